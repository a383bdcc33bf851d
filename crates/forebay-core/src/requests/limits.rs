//! Limits of a disk: requests per second, and bytes per second.
//!
//! ```text
//!   submitted ─► both limits have room ─► it goes
//!                  └─ no ─► held, in order of arrival ─► due ─► it goes
//! ```
//! # The law
//! Each limit has a *turn*: when all that it has let go would be over, at its rate. A request goes when neither turn is
//! further ahead than the burst, and moves both by its own time. So
//! - a disk that was idle may use the burst at once; with none its requests are spaced evenly;
//! - over any time the disk gets its rate, and one burst more at most;
//! - a request that is larger than the burst goes when the turn is there, and the next one waits for all of it.
//!
//! This is the generic cell rate algorithm of ATM networks.
//!
//! What reads, writes, discards or zeroes counts, hits as well as misses. Flushes and queries pass: they wait for nothing
//! that is held, as a flush covers what was answered before.
//!
//! A compare-and-write passes as well: hosts keep the locks of a shared file system by them, and give it up after seconds.
//! What was to change its bytes before it goes first, and so does all that came before that.
//!
//! **Invariants.** Requests go in the order in which they came, and a compare-and-write never before one that changes a byte
//! of it. Those that are held have a place in the table of requests, for when they go.

use std::collections::VecDeque;

use crate::config::Limits;
use crate::geometry::REQUEST_MAX;
use crate::ids::Nanos;
use crate::request::{Op, Request};

/// Compare-and-writes that went beyond the limits keep those after it waiting for so long at most, in addition to a burst.
const DEBT_MAX: Nanos = Nanos::from_millis(1_000);
/// A timer may be this late without lowering the rate.
const LATE_MAX: Nanos = Nanos::from_millis(10);

/// Holds requests back as the limits of the disk want it.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    limits: Limits,
    /// The turn of requests per second.
    requests: Nanos,
    /// The turn of bytes per second.
    bytes: Nanos,
    held: VecDeque<(Request, Nanos)>,
    /// Some request may have to wait: there are limits, or some are held.
    is_on: bool,
}

impl Limiter {
    /// Goes on with other limits, and so many places for requests. What is held is due by these.
    pub(crate) fn set(&mut self, limits: Limits, places: usize) {
        self.limits = limits;
        (self.requests, self.bytes) = (Nanos(0), Nanos(0));
        self.note_held();
        if self.is_on {
            self.held.reserve(places - self.held.len());
        }
    }

    /// True when some request may have to wait.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    fn note_held(&mut self) {
        let Limits { iops, bandwidth, burst: _ } = self.limits;
        self.is_on = iops.is_some() || bandwidth.is_some() || !self.held.is_empty();
    }

    /// Requests that are held.
    pub(crate) fn held(&self) -> u32 {
        self.held.len() as u32
    }

    /// Takes a request; true when it may go at once, and false when it is held.
    pub(crate) fn take(&mut self, request: &Request, now: Nanos) -> bool {
        if !counts(&request.op) && !self.asks_about_held(request) {
            return true;
        }
        // Those after it wait longer.
        let goes_at_once = matches!(request.op, Op::CompareAndWrite { .. });
        if goes_at_once || self.held.is_empty() && self.due() <= now {
            let before = (self.requests, self.bytes);
            self.let_go(request, now);
            if goes_at_once {
                let latest = now.plus(self.limits.burst).plus(DEBT_MAX);
                self.requests = self.requests.min(latest.max(before.0));
                self.bytes = self.bytes.min(latest.max(before.1));
            }
            return true;
        }
        self.held.push_back((*request, now));
        false
    }

    /// Whether it asks what is allocated where something that is held changes that: it waits behind that.
    fn asks_about_held(&self, request: &Request) -> bool {
        let changes = |(held, _): &(Request, Nanos)| {
            changes_data(&held.op) && held.range.overlaps(request.range)
        };
        request.op == Op::Allocation && self.held.iter().any(changes)
    }

    /// How many of those that are held have to go before this request can be taken.
    pub(crate) fn in_the_way(&self, request: &Request) -> usize {
        if !matches!(request.op, Op::CompareAndWrite { .. }) {
            return 0;
        }
        let is_in_the_way = |(held, _): &(Request, Nanos)| {
            changes_data(&held.op) && held.range.overlaps(request.range)
        };
        self.held.iter().rposition(is_in_the_way).map_or(0, |last| last + 1)
    }

    /// The first of those that are held, when it may go now, and when it came.
    pub(crate) fn next(&mut self, now: Nanos) -> Option<(Request, Nanos)> {
        if self.due() > now { None } else { self.next_in_debt(now) }
    }

    /// The first of those that are held, due or not. The next ones wait for its time too.
    pub(crate) fn next_in_debt(&mut self, now: Nanos) -> Option<(Request, Nanos)> {
        let next = self.held.pop_front()?;
        self.let_go(&next.0, now);
        self.note_held();
        Some(next)
    }

    /// The first of those that are held, whatever the limits say.
    pub(crate) fn next_anyway(&mut self) -> Option<(Request, Nanos)> {
        let next = self.held.pop_front();
        self.note_held();
        next
    }

    /// When a request that is held may go; [`Nanos::NEVER`] when none is.
    pub(crate) fn deadline(&self) -> Nanos {
        if self.held.is_empty() { Nanos::NEVER } else { self.due() }
    }

    /// When the next request may go.
    fn due(&self) -> Nanos {
        Nanos(self.requests.max(self.bytes).0.saturating_sub(self.limits.burst.0))
    }

    fn let_go(&mut self, request: &Request, now: Nanos) {
        let earliest = Nanos(now.0.saturating_sub(LATE_MAX.0));
        let time = |units: u64, rate: u64| Nanos(units * 1_000_000_000 / rate.max(1));
        if let Some(iops) = self.limits.iops {
            self.requests = self.requests.max(earliest).plus(time(1, iops));
        }
        if let Some(bandwidth) = self.limits.bandwidth {
            self.bytes = self.bytes.max(earliest).plus(time(bytes(request), bandwidth));
        }
    }
}

fn changes_data(op: &Op) -> bool {
    match op {
        Op::Write { .. } | Op::CompareAndWrite { .. } => true,
        Op::Discard { .. } | Op::WriteZeroes { .. } => true,
        Op::Read { .. } | Op::Prefetch | Op::Flush | Op::Allocation | Op::CacheState => false,
    }
}

fn counts(op: &Op) -> bool {
    match op {
        Op::Read { .. } | Op::Write { .. } | Op::CompareAndWrite { .. } | Op::Prefetch => true,
        Op::Discard { .. } | Op::WriteZeroes { .. } => true,
        Op::Flush | Op::Allocation | Op::CacheState => false,
    }
}

/// Bytes that a request moves; one that is longer than it may be is refused.
fn bytes(request: &Request) -> u64 {
    match request.op {
        Op::Read { .. } | Op::Write { .. } | Op::CompareAndWrite { .. } | Op::Prefetch => {
            request.range.len().min(REQUEST_MAX)
        }
        Op::Discard { .. } | Op::WriteZeroes { .. } => 0,
        Op::Flush | Op::Allocation | Op::CacheState => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{Buffer, Span};
    use crate::geometry::ByteRange;
    use crate::ids::RequestTag;

    const SECOND: u64 = 1_000_000_000;

    fn read(tag: u64, len: u64) -> Request {
        let op = Op::Read { no_admit: false };
        Request { tag: RequestTag(tag), range: ByteRange::at(0, len), op }
    }

    /// When each of `count` requests of `len` goes that all come at `from`.
    fn times(limiter: &mut Limiter, from: u64, count: u64, len: u64) -> Vec<u64> {
        let mut times = Vec::new();
        for tag in 0..count {
            if limiter.take(&read(tag, len), Nanos(from)) {
                times.push(from);
            }
        }
        let mut expected = times.len() as u64;
        while limiter.held() > 0 {
            let now = limiter.deadline();
            while let Some((request, came)) = limiter.next(now) {
                assert_eq!((request.tag, came), (RequestTag(expected), Nanos(from)), "in order");
                expected += 1;
                times.push(now.0);
            }
        }
        assert_eq!(limiter.deadline(), Nanos::NEVER);
        times
    }

    fn limiter(iops: Option<u64>, bandwidth: Option<u64>, burst: Nanos) -> Limiter {
        let mut limiter = Limiter::default();
        limiter.set(Limits { iops, bandwidth, burst }, 1024);
        limiter
    }

    #[test]
    fn without_limits_nothing_is_held() {
        let mut limiter = limiter(None, None, Nanos(0));
        assert!(!limiter.is_on());
        assert_eq!(times(&mut limiter, 7, 1000, 4096), [7; 1000]);
    }

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        // 1000 a second: 100 and what a late timer may catch up go at once, one a millisecond after that.
        let mut limiter = limiter(Some(1000), None, Nanos::from_millis(100));
        let came = 5 * SECOND;
        let times = times(&mut limiter, came, 1111, 4096);
        assert_eq!(times.iter().filter(|time| **time == came).count(), 111);
        assert_eq!(times.last(), Some(&(came + SECOND)));
        assert!(times[111..].windows(2).all(|pair| pair[1] - pair[0] == SECOND / 1000));
    }

    #[test]
    fn a_compare_and_write_waits_for_nobody_and_is_counted() {
        let mut limiter = limiter(Some(10), None, Nanos(0));
        let came = 5 * SECOND;
        let held = (0..100).filter(|tag| !limiter.take(&read(*tag, 4096), Nanos(came))).count();
        assert!(held > 0);
        let before = limiter.deadline();
        let span = Span { offset: 0, len: 1024 };
        let buffer = Buffer { span, window: ByteRange::at(0, 1024) };
        let op = Op::CompareAndWrite { buffer, fua: false };
        let compare = Request { op, ..read(1000, 512) };
        assert!(limiter.take(&compare, Nanos(came)));
        assert_eq!(limiter.held() as usize, held);
        assert_eq!(limiter.deadline().0 - before.0, SECOND / 10, "the others wait for it");
    }

    #[test]
    fn who_asks_what_is_allocated_waits_for_what_is_held_there_alone() {
        let mut limiter = limiter(Some(10), None, Nanos(0));
        let came = Nanos(5 * SECOND);
        let at = |tag, start, op| Request {
            tag: RequestTag(tag),
            range: ByteRange::at(start, 4096),
            op,
        };
        while limiter.take(&read(1, 4096), came) {}
        assert!(limiter.take(&at(2, 0, Op::Allocation), came), "a read changes nothing");
        assert!(!limiter.take(&at(3, 8192, Op::Discard { fua: false }), came));
        assert!(limiter.take(&at(4, 0, Op::Allocation), came));
        assert!(!limiter.take(&at(5, 8192, Op::Allocation), came));
        let order: Vec<u64> =
            std::iter::from_fn(|| limiter.next_anyway()).map(|it| it.0.tag.0).collect();
        assert_eq!(order, [1, 3, 5]);
        assert!(limiter.take(&at(6, 8192, Op::Allocation), came));
    }

    #[test]
    fn compare_and_writes_beyond_the_limit_keep_others_waiting_for_a_second() {
        let mut limiter = limiter(Some(10), None, Nanos(0));
        let came = Nanos(5 * SECOND);
        let span = Span { offset: 0, len: 1024 };
        let buffer = Buffer { span, window: ByteRange::at(0, 1024) };
        let compare = Request { op: Op::CompareAndWrite { buffer, fua: false }, ..read(1000, 512) };
        assert!((0..1000).all(|_| limiter.take(&compare, came)));
        let mut slow = self::limiter(None, Some(1 << 20), Nanos(0));
        assert!(slow.take(&read(1, 16 << 20), came) && !slow.take(&read(2, 512), came));
        let due = slow.deadline();
        assert!(slow.take(&compare, came) && slow.deadline() >= due, "it forgives nobody");
        assert!(!limiter.take(&read(1, 512), came));
        assert!(limiter.deadline() <= came.plus(DEBT_MAX), "{:?}", limiter.deadline());
    }

    #[test]
    fn without_a_burst_requests_are_spaced_evenly_also_after_a_pause() {
        let mut limiter = limiter(Some(20), None, Nanos(0));
        for came in [SECOND, 9 * SECOND] {
            let times = times(&mut limiter, came, 4, 4096);
            let spaces: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
            assert_eq!(spaces, [40_000_000, 50_000_000, 50_000_000], "10 ms may be late");
        }
    }

    #[test]
    fn bytes_count_and_the_limit_that_is_reached_first_holds() {
        let (mib, burst) = (1 << 20, Nanos::from_millis(100));
        let mut large = limiter(Some(1000), Some(mib), burst);
        // Larger than the burst: each waits for all of the one before.
        assert_eq!(times(&mut large, SECOND, 3, mib), [SECOND, 1_890_000_000, 2_890_000_000]);
        let mut small = limiter(Some(10), Some(mib), burst);
        assert_eq!(times(&mut small, SECOND, 3, 512), [SECOND, SECOND, 1_090_000_000]);
    }

    #[test]
    fn a_timer_that_is_late_does_not_lower_the_rate() {
        let mut limiter = limiter(Some(10_000), None, Nanos(0));
        let mut gone = 0;
        for tag in 0..20_000 {
            gone += u64::from(limiter.take(&read(tag, 512), Nanos(SECOND)));
        }
        // A timer that fires each eight milliseconds.
        for round in 1..=125 {
            while limiter.next(Nanos(SECOND + round * 8_000_000)).is_some() {
                gone += 1;
            }
        }
        assert!((10_000..=10_101).contains(&gone), "{gone}");
    }

    #[test]
    fn flushes_pass_and_what_is_invalid_costs_no_more_than_the_longest_request() {
        let mut limiter = limiter(Some(1), Some(REQUEST_MAX), Nanos(0));
        let huge = Request { range: ByteRange::new(0, u64::MAX), ..read(0, 512) };
        assert!(limiter.take(&huge, Nanos(SECOND)));
        assert!(!limiter.take(&read(1, 512), Nanos(SECOND)));
        let flush = Request { tag: RequestTag(2), range: ByteRange::at(0, 0), op: Op::Flush };
        assert!(limiter.take(&flush, Nanos(SECOND)));
        assert_eq!(limiter.deadline(), Nanos(SECOND + SECOND - LATE_MAX.0));
        // Other limits are in force at once, and none lets all go.
        limiter.set(Limits::default(), 1024);
        assert!(limiter.is_on() && limiter.next(Nanos(SECOND)).is_some() && !limiter.is_on());
    }
}
