//! A log, a destager and writers as queues in virtual time, with the throttle between them.

use std::collections::VecDeque;

use super::*;
use crate::write_back::destage::window::{DestageWindow, WindowConfig};

const SECOND: u64 = 1_000_000_000;
const CAPACITY: u64 = 20_000;
const DESTAGE_NS: u64 = 90_909;
const LATENCY: Nanos = Nanos::from_millis(3);

#[derive(Clone, Copy)]
enum Writers {
    /// So many writes outstanding; the flash makes each ready after `flash_ns`.
    Closed {
        depth: u64,
        flash_ns: u64,
    },
    /// A write every so often, at most 128 outstanding.
    Open {
        every_ns: u64,
    },
    Stopped,
}

/// All writes are one page.
struct Log {
    now: u64,
    throttle: Throttle,
    window: DestageWindow,
    aim: Aim,
    writers: Writers,
    dirty: u64,
    /// When the flash has each write; when each became ready.
    on_flash: VecDeque<u64>,
    ready: VecDeque<u64>,
    waiting_for_room: u64,
    next_arrival: u64,
    destaged_at: u64,
    until_flush: u64,
    rng: u64,
    acknowledged: Vec<(u64, u64)>,
    dirty_seen: Vec<u64>,
    was_full: bool,
    emptied: u64,
}

impl Log {
    fn new() -> Log {
        Log {
            now: 0,
            throttle: Throttle::new(ThrottleConfig::default()),
            window: DestageWindow::new(WindowConfig::default()),
            aim: Aim::Room,
            writers: Writers::Stopped,
            dirty: 0,
            on_flash: VecDeque::new(),
            ready: VecDeque::new(),
            waiting_for_room: 0,
            next_arrival: 0,
            destaged_at: u64::MAX,
            until_flush: CAPACITY / 8,
            rng: 1,
            acknowledged: Vec::new(),
            dirty_seen: Vec::new(),
            was_full: false,
            emptied: 0,
        }
    }

    fn under(writers: Writers) -> Log {
        let mut log = Log::new();
        log.set_writers(writers);
        log
    }

    fn set_writers(&mut self, writers: Writers) {
        self.writers = writers;
        self.next_arrival = self.now;
    }

    fn outstanding(&self) -> u64 {
        self.waiting_for_room + (self.on_flash.len() + self.ready.len()) as u64
    }

    /// Goes on for `seconds`, and forgets what was seen before.
    fn run(&mut self, seconds: f64) {
        self.acknowledged.clear();
        self.dirty_seen.clear();
        self.was_full = false;
        self.emptied = 0;
        let end = self.now + (seconds * SECOND as f64) as u64;
        while self.now < end {
            self.arrive();
            self.acknowledge();
            let due = self.head_due().unwrap_or(u64::MAX);
            let on_flash = self.on_flash.front().copied().unwrap_or(u64::MAX);
            let arrival = if self.may_arrive() { self.next_arrival } else { u64::MAX };
            let next = due.min(on_flash).min(self.destaged_at).min(arrival).min(end);
            self.now = next.max(self.now);
            if self.now == self.destaged_at {
                self.destage();
            }
            while self.on_flash.front().is_some_and(|at| *at <= self.now) {
                self.ready.extend(self.on_flash.pop_front());
            }
        }
    }

    fn may_arrive(&self) -> bool {
        match self.writers {
            Writers::Closed { depth, .. } => self.outstanding() < depth,
            Writers::Open { .. } => self.outstanding() < 128,
            Writers::Stopped => false,
        }
    }

    fn arrive(&mut self) {
        while self.may_arrive() && self.next_arrival <= self.now {
            self.waiting_for_room += 1;
            match self.writers {
                Writers::Open { every_ns } => self.next_arrival += every_ns,
                Writers::Closed { .. } | Writers::Stopped => self.next_arrival = self.now,
            }
        }
        let flash_ns = match self.writers {
            Writers::Closed { flash_ns, .. } => flash_ns,
            Writers::Open { .. } | Writers::Stopped => 100_000,
        };
        while self.waiting_for_room > 0 && self.dirty < CAPACITY {
            self.waiting_for_room -= 1;
            self.dirty += 1;
            self.on_flash.push_back(self.now + flash_ns);
            if self.dirty == 1 {
                self.window.on_start(Nanos(self.now), PAGE);
                self.destaged_at = self.now + LATENCY.0;
            }
        }
        self.was_full |= self.dirty == CAPACITY;
    }

    /// One page is on primary storage; after an eighth of the log a flush takes 20 ms.
    fn destage(&mut self) {
        self.dirty -= 1;
        self.dirty_seen.push(self.dirty);
        self.window.on_write(Nanos(self.now), LATENCY, PAGE, 32);
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let jitter = DESTAGE_NS / 2 + (self.rng >> 33) % DESTAGE_NS;
        self.until_flush -= 1;
        let flush = if self.until_flush == 0 { 20_000_000 } else { 0 };
        if self.until_flush == 0 {
            self.until_flush = CAPACITY / 8;
        }
        self.destaged_at = self.now + jitter + flush;
        if self.dirty == 0 {
            self.emptied += 1;
            self.window.on_idle(Nanos(self.now));
            self.destaged_at = u64::MAX;
        } else {
            self.window.on_start(Nanos(self.now), PAGE);
        }
    }

    fn head_due(&self) -> Option<u64> {
        let ready = Nanos(*self.ready.front()?);
        let fill = Fill { dirty: self.dirty * PAGE, capacity: CAPACITY * PAGE };
        Some(self.throttle.due(ready, PAGE, fill, self.aim, &self.window.destaging()).0)
    }

    fn acknowledge(&mut self) {
        while let Some(due) = self.head_due().filter(|due| *due <= self.now) {
            let ready = self.ready.pop_front().expect("it has a due");
            self.throttle.on_acknowledged(Nanos(self.now), Nanos(due));
            self.acknowledged.push((self.now, self.now - ready));
        }
        self.arrive();
    }

    fn occupancy(&self) -> f64 {
        self.dirty as f64 / CAPACITY as f64
    }

    /// The longest time between two acknowledgements.
    fn longest_gap(&self) -> u64 {
        self.acknowledged.windows(2).map(|pair| pair[1].0 - pair[0].0).max().unwrap_or(u64::MAX)
    }

    fn mean_delay(&self) -> f64 {
        let sum: u64 = self.acknowledged.iter().map(|(_, delay)| delay).sum();
        sum as f64 / self.acknowledged.len().max(1) as f64
    }

    /// Spread of the delay relative to its mean.
    fn delay_variation(&self) -> f64 {
        let mean = self.mean_delay();
        let squares: f64 =
            self.acknowledged.iter().map(|(_, delay)| (*delay as f64 - mean).powi(2)).sum();
        (squares / self.acknowledged.len() as f64).sqrt() / mean
    }

    fn occupancy_range(&self) -> (f64, f64) {
        let part = |dirty: Option<&u64>| *dirty.expect("something") as f64 / CAPACITY as f64;
        (part(self.dirty_seen.iter().min()), part(self.dirty_seen.iter().max()))
    }
}

fn closed(depth: u64, demand: f64) -> Writers {
    let flash_ns = (depth as f64 * DESTAGE_NS as f64 / demand) as u64;
    Writers::Closed { depth, flash_ns }
}

fn open(demand: f64) -> Writers {
    Writers::Open { every_ns: (DESTAGE_NS as f64 / demand) as u64 }
}

#[test]
fn writers_settle_at_the_destagers_speed_with_the_log_at_most_three_quarters_full() {
    for demand in [1.1, 2.0, 5.0, 20.0] {
        let writers = [closed(1, demand), closed(8, demand), closed(128, demand), open(demand)];
        for writers in writers {
            let mut log = Log::under(writers);
            log.run(18.0);
            assert!(!log.was_full, "demand {demand}: full");
            assert!(log.longest_gap() < SECOND / 10, "demand {demand}: {}", log.longest_gap());
            log.run(4.0);
            let (low, high) = log.occupancy_range();
            assert!(low > 0.50 && high < 0.80, "demand {demand}: {low:.3} to {high:.3}");
            assert!(high - low < 0.05, "demand {demand}: {low:.3} to {high:.3}");
            assert!(log.longest_gap() < SECOND / 100, "demand {demand}: {}", log.longest_gap());
            // With demand just above the destager's speed the delay is the small difference of two
            // equal things.
            let variation_max = if demand < 2.0 { 0.25 } else { 0.10 };
            let variation = log.delay_variation();
            // Small beside what primary storage takes.
            let is_small = variation * log.mean_delay() < LATENCY.0 as f64 / 30.0;
            assert!(variation < variation_max || is_small, "demand {demand}: {variation:.3}");
        }
    }
}

#[test]
fn nothing_is_delayed_below_the_threshold() {
    let mut log = Log::under(closed(32, 5.0));
    while log.occupancy() < 0.47 {
        log.run(0.01);
        assert_eq!(log.mean_delay(), 0.0);
    }
    // And again as soon as it is below: what waits goes at once.
    log.run(10.0);
    assert!(log.mean_delay() > 0.0);
    log.set_writers(Writers::Stopped);
    while log.occupancy() >= 0.5 {
        log.run(0.01);
    }
    assert!(log.ready.is_empty());
    log.set_writers(closed(1, 0.5));
    log.run(1.0);
    assert!(log.acknowledged.len() > 3000);
    assert_eq!(log.mean_delay(), 0.0);
}

#[test]
fn a_burst_that_ends_leaves_no_delay_after_a_second() {
    let mut log = Log::under(open(20.0));
    log.run(10.0);
    log.set_writers(open(0.1));
    log.run(1.0);
    log.run(1.0);
    assert!(log.acknowledged.len() > 1000);
    assert_eq!(log.mean_delay(), 0.0);
}

#[test]
fn a_drain_reaches_nothing_dirty_with_writers_going_on() {
    for writers in [closed(1, 20.0), closed(128, 20.0), open(1.5)] {
        let mut log = Log::under(writers);
        log.run(5.0);
        log.aim = Aim::Empty;
        let mut seconds = 0.0;
        while log.emptied == 0 {
            log.run(0.1);
            seconds += 0.1;
            assert!(log.longest_gap() < SECOND / 10, "{} after {seconds:.1} s", log.longest_gap());
            assert!(seconds < 10.0, "still {} dirty", log.dirty);
        }
    }
}

fn spacing(dirty: u64, ns_per_page: u64) -> u64 {
    let throttle = Throttle::new(ThrottleConfig::default());
    let fill = Fill { dirty, capacity: 1000 };
    let destaging = Destaging { ns_per_page, latency: Nanos(0) };
    throttle.due(Nanos(0), PAGE, fill, Aim::Room, &destaging).0
}

#[test]
fn the_delay_grows_smoothly_and_convexly_from_zero() {
    assert_eq!(spacing(500, 1_000_000), 0);
    assert_eq!(spacing(750, 1_000_000), 1_000_000);
    assert_eq!(spacing(1000, 1_000_000), 4_000_000);
    let steps: Vec<u64> = (500..1000)
        .map(|dirty| spacing(dirty + 1, 1_000_000) - spacing(dirty, 1_000_000))
        .collect();
    assert!(steps.windows(2).all(|pair| pair[1] + 2 >= pair[0]), "not convex");
    assert!(steps.iter().all(|step| *step < 17_000), "a jump");
}

#[test]
fn a_lone_write_is_delayed_by_no_more_than_destaging_takes() {
    let throttle = Throttle::new(ThrottleConfig::default());
    let destaging = Destaging { ns_per_page: 1000, latency: LATENCY };
    let due = |dirty| {
        let fill = Fill { dirty, capacity: 1000 };
        throttle.due(Nanos(0), PAGE, fill, Aim::Room, &destaging)
    };
    assert_eq!(due(500), Nanos(0));
    assert_eq!(due(625), Nanos(LATENCY.0 / 4));
    assert_eq!(due(750), LATENCY);
    assert_eq!(due(1000), LATENCY);
}

#[test]
fn the_delay_is_bounded_whatever_is_measured() {
    let max = ThrottleConfig::default().delay_max.0;
    assert_eq!(spacing(1000, u64::MAX), max);
    assert!(spacing(1000, 0) > 0);
    let throttle = Throttle::new(ThrottleConfig::default());
    let fill = Fill { dirty: u64::MAX, capacity: 0 };
    let destaging = Destaging { ns_per_page: u64::MAX, latency: Nanos::NEVER };
    let due = throttle.due(Nanos(5), u64::MAX, fill, Aim::Empty, &destaging);
    assert_eq!(due, Nanos(5 + max));
    let never = throttle.due(Nanos::NEVER, 0, fill, Aim::Empty, &destaging);
    assert_eq!(never, Nanos::NEVER);
}

#[test]
fn a_late_timer_does_not_lower_the_rate() {
    let mut throttle = Throttle::new(ThrottleConfig::default());
    let fill = Fill { dirty: 750, capacity: 1000 };
    let destaging = Destaging { ns_per_page: 1_000_000, latency: Nanos(0) };
    let ready = Nanos::from_millis(100);
    throttle.on_acknowledged(ready, ready);
    for turn in 1..1000 {
        let due = throttle.due(ready, PAGE, fill, Aim::Room, &destaging);
        assert_eq!(due, Nanos::from_millis(100 + turn));
        throttle.on_acknowledged(due.plus(Nanos::from_millis(5)), due);
    }
}
