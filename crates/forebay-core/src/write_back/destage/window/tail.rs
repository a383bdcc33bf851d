//! The slowest reads of a guest: how slow they are without destaging, and what destaging they allow.
//!
//! Of every [`LATE_OF`] reads one may be *late*: take longer than [`LATE`] times the 99th
//! percentile without destaging. When none was, the pace may rise. As soon as two were, it falls.
//! Reads that started meanwhile do not count, so one event makes reads late once.

use crate::ids::Nanos;

const LATE: f64 = 1.45;
const LATE_OF: u32 = 128;
const RISE: f64 = 1.25;
const FALL: f64 = 0.8;
/// How far one read moves the 99th percentile without destaging.
const STEP: f64 = 0.05;
/// After a fall the storage's queues have to become shorter first.
const FALL_TIME: Nanos = Nanos::from_millis(100);

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Tail {
    /// About the 99th percentile without destaging, in nanoseconds; 0: unknown.
    alone_ns: f64,
    /// The work per second that the tail allows.
    rate: f64,
    /// When it fell last.
    fell: Nanos,
    /// Reads since it was judged, and how many of them were late.
    reads: u32,
    late: u32,
}

impl Tail {
    pub(super) fn new() -> Tail {
        Tail { alone_ns: 0.0, rate: f64::MAX, fell: Nanos(0), reads: 0, late: 0 }
    }

    /// A read that met no destaging took so long.
    pub(super) fn learn(&mut self, latency: Nanos) {
        let latency = latency.0 as f64;
        let alone = if self.alone_ns == 0.0 { latency } else { self.alone_ns };
        // In balance when one read of a hundred is above.
        let step = if latency > alone { 0.99 } else { -0.01 };
        self.alone_ns = alone * (1.0 + step * STEP);
    }

    /// The latency known without destaging is wrong: this was the longest of some dozens.
    pub(super) fn learn_anew(&mut self, longest_ns: u64) {
        self.alone_ns = longest_ns as f64;
    }

    /// The latency known without destaging is wrong by this factor.
    pub(super) fn scale(&mut self, factor: f64) {
        self.alone_ns *= factor;
    }

    /// A read beside destaging at `pace` took so long; the pace from now on when it is to fall at once.
    pub(super) fn judge(&mut self, now: Nanos, latency: Nanos, pace: u64) -> Option<u64> {
        let started = Nanos(now.0.saturating_sub(latency.0));
        if self.alone_ns == 0.0 || started < self.fell.plus(FALL_TIME) {
            return None;
        }
        self.reads += 1;
        self.late += u32::from(latency.0 as f64 > self.alone_ns * LATE);
        if self.late > 1 {
            self.rate = self.rate.min(pace as f64) * FALL;
            self.fell = now;
        } else if self.reads < LATE_OF {
            return None;
        } else if self.late == 0 {
            self.rate *= RISE;
        }
        let fell = self.late > 1;
        (self.reads, self.late) = (0, 0);
        fell.then_some(self.rate as u64)
    }

    /// The work per second that is allowed, not less than `floor`.
    pub(super) fn rate(&mut self, floor: u64) -> u64 {
        self.rate = self.rate.max(floor as f64);
        self.rate as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail() -> Tail {
        let mut tail = Tail::new();
        for n in 0..10_000 {
            tail.learn(Nanos::from_millis(1 + u64::from(n % 100 == 0)));
        }
        tail
    }

    fn judge(tail: &mut Tail, at: u64, millis: u64, pace: u64) -> Option<u64> {
        tail.judge(Nanos::from_millis(at), Nanos::from_millis(millis), pace)
    }

    #[test]
    fn the_99th_percentile_is_learnt() {
        let mut tail = tail();
        assert_eq!(judge(&mut tail, 1000, 3, 100), None);
        assert!((1e6..=2.2e6).contains(&tail.alone_ns), "{}", tail.alone_ns);
    }

    #[test]
    fn two_late_reads_lower_the_rate_once_and_none_of_many_raises_it() {
        let mut tail = tail();
        assert_eq!(judge(&mut tail, 1000, 4, 1000), None);
        assert_eq!(judge(&mut tail, 1001, 4, 1000), Some(800));
        // They were under way when it fell.
        assert_eq!(judge(&mut tail, 1002, 4, 800), None);
        assert_eq!(judge(&mut tail, 1003, 4, 800), None);
        assert_eq!(tail.rate(0), 800);
        for n in 0..u64::from(LATE_OF) {
            assert_eq!(judge(&mut tail, 2000 + n, 1, 800), None);
        }
        assert_eq!(tail.rate(0), 1000);
        assert_eq!(tail.rate(5000), 5000);
    }
}
