//! Tests without modelled storage; `forebay-sim` tests how well the window does on one.

use super::*;

/// Storage with a fixed latency and a rate, and a destager that does what the window allows.
struct Bench {
    window: DestageWindow,
    now: Nanos,
    under_way: std::collections::VecDeque<(Nanos, Nanos)>,
    /// Never more than this is there to write.
    supply: usize,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            window: DestageWindow::new(WindowConfig::default()),
            now: Nanos(0),
            under_way: std::collections::VecDeque::new(),
            supply: usize::MAX,
        }
    }

    /// `writes` complete, 100 µs apart and not before `latency`.
    fn run(&mut self, writes: u32, latency: Nanos) {
        let mut completed = 0;
        while completed < writes {
            completed += u32::from(self.step(latency, Nanos::NEVER));
        }
    }

    /// Destages for so long, and returns how many writes completed.
    fn run_for(&mut self, time: Nanos) -> u64 {
        let (end, mut writes) = (self.now.plus(time), 0);
        while self.now < end {
            writes += u64::from(self.step(LATENCY, end));
        }
        writes
    }

    /// Goes to the next start or completion, not beyond `end`; true when a write completed.
    fn step(&mut self, latency: Nanos, end: Nanos) -> bool {
        let has_room = self.under_way.len() < self.supply.min(self.window.limit() as usize);
        let start = if has_room { self.window.next_allowed() } else { Nanos::NEVER };
        let start = start.max(self.now);
        let done = self.under_way.front().map_or(Nanos::NEVER, |(_, done)| *done);
        if start.min(done) > end {
            self.now = end;
            return false;
        }
        if start < done {
            self.now = start;
            self.window.on_start(start, PAGE);
            let last = self.under_way.back().map_or(Nanos(0), |(_, done)| *done);
            let done = start.plus(latency).max(last.plus(Nanos::from_micros(100)));
            self.under_way.push_back((start, done));
            return false;
        }
        self.now = done;
        let (started, _) = self.under_way.pop_front().expect("it is due");
        let outstanding = self.under_way.len() as u32 + 1;
        self.window.on_write(done, done.since(started), PAGE, outstanding);
        true
    }

    /// So many reads begin so far apart, each of this latency, beside destaging.
    fn read_each(&mut self, apart: Nanos, latency: Nanos, reads: u32) {
        for _ in 0..reads {
            self.window.on_guest_read_start(self.now);
            self.run_for(latency);
            self.window.on_guest_read(self.now, latency);
            self.run_for(Nanos(apart.0 - latency.0));
        }
    }

    fn writes_in_a_second(&mut self) -> u64 {
        self.run_for(Nanos::from_millis(1000))
    }
}

const LATENCY: Nanos = Nanos::from_millis(2);

#[test]
fn the_limit_finds_the_knee_and_stays() {
    let mut bench = Bench::new();
    bench.run(20_000, LATENCY);
    // 2 ms at 10,000 writes/s: 20 outstanding.
    assert!((16..=64).contains(&bench.window.limit()), "{}", bench.window.limit());
    let speed = bench.window.destaging();
    assert!((95_000..115_000).contains(&speed.ns_per_page), "{speed:?}");
    let baseline = bench.window.knee.baseline();
    assert!((2e6..2.2e6).contains(&baseline), "{baseline}");
}

#[test]
fn a_limit_that_is_not_used_does_not_move() {
    let mut bench = Bench::new();
    bench.run(20_000, LATENCY);
    bench.supply = 2;
    bench.run(200, LATENCY);
    let limit = bench.window.limit();
    bench.run(5_000, LATENCY);
    assert_eq!(bench.window.limit(), limit);
    let now = bench.now;
    assert_eq!(bench.window.limited_by(now, Supply::LaterEpochs), Limit::EpochBound);
    assert_eq!(bench.window.limited_by(now, Supply::Nothing), Limit::Idle);
    assert_eq!(bench.window.limited_by(now, Supply::Writes), Limit::Storage);
}

#[test]
fn short_bursts_are_learnt_from_and_the_time_between_them_is_not_counted() {
    for (burst, expect) in [(40, 8), (15, 6)] {
        let mut bench = Bench::new();
        for _ in 0..500 {
            // So many writes, and nothing more to write before the last is done.
            let mut left = burst;
            while left > 0 {
                bench.supply = left;
                bench.run(1, LATENCY);
                left -= 1;
            }
            // Other I/O comes and goes meanwhile.
            for _ in 0..500 {
                bench.window.on_idle(bench.now);
                bench.now = bench.now.plus(Nanos::from_millis(1));
            }
        }
        println!("bursts of {burst}: a limit of {}", bench.window.limit());
        assert!(bench.window.limit() >= expect, "{}", bench.window.limit());
    }
}

#[test]
fn errors_pause_and_shrink_the_window_and_successes_bring_it_back() {
    let mut bench = Bench::new();
    bench.run(20_000, LATENCY);
    let before = bench.window.limit();
    // All that are under way fail together: that is one event.
    for _ in 0..before {
        bench.window.on_error(bench.now);
    }
    assert!((before / 4..=before / 2).contains(&bench.window.limit()));
    assert_eq!(bench.window.next_allowed(), bench.now.plus(PAUSE_MIN));
    for _ in 0..20 {
        bench.now = bench.window.next_allowed();
        bench.window.on_error(bench.now);
    }
    assert_eq!(bench.window.limit(), 1);
    assert_eq!(bench.window.next_allowed(), bench.now.plus(PAUSE_MAX));
    assert_eq!(bench.window.limited_by(bench.now, Supply::Writes), Limit::Errors);
    bench.under_way.clear();
    bench.run(10_000, LATENCY);
    assert!(bench.window.limit() >= before / 2, "{}", bench.window.limit());
    assert_eq!(bench.window.limited_by(bench.now, Supply::Writes), Limit::Storage);
}

#[test]
fn any_limit_is_at_least_one_and_at_most_what_was_configured() {
    for outstanding_max in [0, 1, 3, 100, u32::MAX] {
        let config = WindowConfig { outstanding_max, ..WindowConfig::default() };
        let mut bench = Bench { window: DestageWindow::new(config), ..Bench::new() };
        for _ in 0..200 {
            bench.run(100, Nanos::from_millis(100));
            let limit = bench.window.limit();
            assert!((1..=outstanding_max.max(1)).contains(&limit), "{outstanding_max}: {limit}");
        }
    }
}

/// Nothing is destaged, so that nothing is known of what the late reads come from.
#[test]
fn late_reads_of_hours_without_destaging_hold_no_burst() {
    let (mut window, mut now) = (DestageWindow::new(WindowConfig::default()), Nanos(0));
    let millis = Nanos::from_millis;
    for _ in 0..30_000 {
        now = now.plus(millis(1));
        window.on_guest_read_start(now);
        window.on_guest_read(now, millis(1));
        if window.next_allowed() <= now {
            window.on_start(now, PAGE);
            window.on_write(now, Nanos(200_000), PAGE, 1);
        }
    }
    assert!(window.guests.is_present());
    window.on_idle(now);
    for (apart, reads) in [(10, 40_000), (100, 40_000)] {
        for n in 0..reads {
            now = now.plus(millis(apart));
            window.on_guest_read_start(now);
            window.on_guest_read(now, millis(if n % 30 == 0 { 4 } else { 1 }));
        }
        let burst = now;
        for _ in 0..20 {
            now = now.max(window.next_allowed());
            window.on_start(now, PAGE);
            now = now.plus(Nanos(200_000));
            window.on_write(now, Nanos(200_000), PAGE, 1);
        }
        assert!(now.since(burst) < millis(3_000), "{:?}", now.since(burst));
    }
}

/// Others may have made the storage slower for good; who reads once a second cannot tell.
#[test]
fn a_few_slow_reads_do_not_hold_destaging_for_long() {
    let mut bench = Bench::new();
    bench.run_for(Nanos::from_millis(2_000));
    // One read after the other, as fast beside destaging as without, until it is known how fast that is.
    bench.read_each(Nanos::from_millis(4), Nanos::from_millis(4), 200);
    assert!(bench.window.guests.is_present());
    let paced = bench.writes_in_a_second();
    let second = Nanos::from_millis(1000);
    bench.read_each(second, Nanos::from_millis(40), 8);
    let held = bench.writes_in_a_second();
    bench.read_each(second, Nanos::from_millis(40), 12);
    let later = bench.writes_in_a_second();
    println!("{paced} writes/s beside reads, {held} beside few, {later} at last");
    assert!(paced < 4_000 && held <= 2 * paced, "{paced} and {held}");
    assert!(later > 9_000, "{later} of 10,000");
}

/// Reads that are fast while nothing is destaged say nothing of what destaging does to them.
#[test]
fn a_burst_after_reads_alone_is_no_faster_than_what_was_learnt_beside_them() {
    let mut bench = Bench::new();
    bench.run_for(Nanos::from_millis(2_000));
    let millis = Nanos::from_millis;
    // Each read is twice as slow beside writes, until hardly any write is left.
    for _ in 0..2_000 {
        let latency = if bench.under_way.is_empty() { millis(2) } else { millis(8) };
        bench.read_each(millis(8), latency, 1);
    }
    assert!(bench.window.guests.is_present());
    let before = bench.window.clone();
    let paced = bench.writes_in_a_second();
    bench.window = before;
    bench.under_way.clear();
    bench.window.on_idle(bench.now);
    for _ in 0..30_000 {
        bench.now = bench.now.plus(millis(2));
        bench.window.on_guest_read_start(bench.now);
        bench.window.on_guest_read(bench.now, millis(2));
    }
    let burst = bench.writes_in_a_second();
    println!("{paced} writes/s beside reads, {burst} after reads alone");
    assert!(paced < 2_000 && burst <= 3 * paced, "{paced} and {burst}");
}

#[test]
fn zeroes_tell_nothing_of_writes_and_are_limited_as_they_are() {
    let mut bench = Bench::new();
    bench.run(20_000, LATENCY);
    let before = bench.window.destaging().ns_per_page;
    bench.window.on_zeroes(bench.now, 0);
    bench.now = bench.now.plus(Nanos::from_millis(10_000));
    bench.under_way.clear();
    bench.window.on_zeroed(bench.now);
    bench.run(1_000, LATENCY);
    let after = bench.window.destaging().ns_per_page;
    assert!(after < 2 * before, "{before} and {after}");

    // Nor do they keep it from being known what writes take.
    let mut bench = Bench::new();
    for _ in 0..2_000 {
        bench.window.on_zeroes(bench.now, 0);
        bench.now = bench.now.plus(Nanos::from_millis(10));
        bench.window.on_zeroed(bench.now);
        bench.run(8, LATENCY);
        bench.under_way.clear();
    }
    let beside = bench.window.destaging().ns_per_page;
    assert!((100_000..1_000_000).contains(&beside), "{beside}");

    let rate = WindowConfig { outstanding_max: 8, bytes_per_second_max: Some(1 << 20) };
    let (mut window, mut now) = (DestageWindow::new(rate), Nanos(0));
    for _ in 0..40 {
        now = now.max(window.next_allowed());
        window.on_zeroes(now, 256 << 10);
        window.on_zeroed(now);
    }
    assert!(now >= Nanos::from_millis(9_000), "10 MiB in {now:?}");
}

#[test]
fn another_rate_finds_what_was_started_and_is_not_paid_for() {
    let rate = |rate| WindowConfig { outstanding_max: 8, bytes_per_second_max: rate };
    let mut window = DestageWindow::new(rate(Some(1 << 20)));
    window.on_start(Nanos(0), 1 << 20);
    let second = Nanos::from_millis(1000);
    assert_eq!(window.next_allowed().plus(RATE_BURST), second);
    window.limit_rate(Nanos(0), Some(4 << 20));
    assert_eq!(window.next_allowed().plus(RATE_BURST), Nanos::from_millis(250));
    window.limit_rate(Nanos(0), Some(1 << 20));
    assert_eq!(window.next_allowed().plus(RATE_BURST), second);
    window.limit_rate(Nanos(0), None);
    assert_eq!(window.next_allowed(), Nanos(0));
    window.limit_rate(second, Some(1 << 20));
    window.on_start(second, 1 << 20);
    assert_eq!(window.next_allowed().plus(RATE_BURST), second.plus(second));
}

#[test]
fn absurd_times_do_no_harm() {
    let mut window =
        DestageWindow::new(WindowConfig { outstanding_max: 8, bytes_per_second_max: Some(0) });
    for turn in 0..2000 {
        let now = Nanos(if turn % 3 == 0 { u64::MAX } else { turn });
        window.on_start(now, u64::MAX / 4);
        window.on_guest_read(now, Nanos::NEVER);
        window.on_write(now, Nanos::NEVER, u64::MAX / 4, 0);
        window.on_writers(true);
        if turn % 7 == 0 {
            window.on_idle(now);
        }
        let _ = (window.limit(), window.next_allowed(), window.destaging());
        let _ = window.limited_by(now, Supply::Writes);
    }
}
