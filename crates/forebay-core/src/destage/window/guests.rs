//! Keeps the guest's reads of primary storage nearly as fast as without destaging.
//!
//! # The law
//! A limit on outstanding writes cannot do this: an array with a write cache takes any number of
//! writes at once, and reads queue behind them inside. So the *rate* of starts is paced, and the
//! guest's own latency is the signal.
//! - **Quiet.** What reads take without destaging is measured: for free while there is nothing to
//!   destage, otherwise in a pause, at the first reads and every [`QUIET_EVERY`] again, until the
//!   means of two batches of reads agree (queues inside the storage have to drain first).
//! - **Paced.** For each batch of reads the mean is compared with that. Up to [`SLOWER_MAX`] times
//!   it the pace rises by a tenth, above it falls with the square of the excess, never under a
//!   [`FLOOR_PART`]th of what the storage bears: destaging gets slower, but does not stop. When the
//!   log fills beyond the throttle's threshold, so that the guest's writers wait, reads *yield*:
//!   nothing is paced until the log has room again.
//! - **Absent.** Without reads for a second there is no pace.
//!
//! The bound is on the mean. A disk does one thing at a time, and where a small write keeps it busy
//! for longer than a read (RAID 5), one read in a hundred meets one at almost any pace: for a guest
//! with one read at a time the 99th percentile doubles.
//!
//! # Limits
//! Reads too rare to compare (a few per second) are not protected. A guest whose load changes is
//! compared with its old self until the next quiet phase. What a write cache inside the storage
//! holds when the first reads arrive has to drain first.

use super::pace::Pace;
use crate::ids::Nanos;

const BATCH: u32 = 32;
const QUIET_BATCH: u32 = 24;
const BATCH_TIME: Nanos = Nanos::from_millis(100);
const BATCH_TIME_MAX: Nanos = Nanos::from_millis(1000);
const QUIET_EVERY: Nanos = Nanos::from_millis(10_000);
const QUIET_AGAIN: Nanos = Nanos::from_millis(2_500);
const QUIET_TIME_MAX: Nanos = Nanos::from_millis(6_000);
/// A read may be stuck in the storage's queue; or there are no more reads.
const QUIET_UNREAD_MAX: Nanos = Nanos::from_millis(2_500);
const SLOWER_MAX: f64 = 1.2;
const RISE: f64 = 1.1;
const FALL_MAX: f64 = 0.5;
/// A quiet batch this close to what is known confirms it.
const KNOWN_WITHIN: f64 = 0.25;
/// Two quiet batches whose means are at least this part of each other end the draining.
const DRAINED: f64 = 0.8;
/// Reads never are so much faster with destaging: what was taken for their speed alone was wrong.
const WRONG: f64 = 0.6;
const FLOOR_PART: u64 = 20;
/// Nor slower than about ten writes a second, whatever is known of the storage: a log always empties.
const FLOOR_MIN: u64 = 10 * (132 << 10);
/// Reads outstanding on average, from which a guest counts as reading.
const PRESENT: f64 = 0.05;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Guests {
    phase: Phase,
    /// Mean read latency without destaging in nanoseconds; 0: unknown.
    alone_ns: f64,
    batch: Batch,
    /// Destage writes started in the batch before.
    starts_before: u32,
    /// When a quiet phase ended last, and the pace to go on with.
    quiet_ended: Nanos,
    resume_at: u64,
    /// The guest's writers wait: reads have to do with what they get.
    yields: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Absent,
    Quiet(Quiet),
    Paced(Pace),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Quiet {
    began: Nanos,
    last_read: Nanos,
    /// Reads that started earlier may have met destage writes.
    drained: Nanos,
    /// Mean of the batch before; 0: none.
    mean_before: u64,
}

impl Quiet {
    /// When it is over even if not enough was learnt.
    fn ends(&self) -> Nanos {
        self.began.plus(QUIET_TIME_MAX).min(self.last_read.plus(QUIET_UNREAD_MAX))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Batch {
    began: Nanos,
    reads: u32,
    latency_ns: u64,
    starts: u32,
}

impl Batch {
    fn is_enough(&self, now: Nanos, reads: u32) -> bool {
        self.reads >= reads && now.since(self.began) >= BATCH_TIME
    }

    fn mean(&self) -> f64 {
        self.latency_ns as f64 / f64::from(self.reads.max(1))
    }

    /// Reads outstanding on average.
    fn pressure(&self, now: Nanos) -> f64 {
        self.latency_ns as f64 / now.since(self.began).0.max(1) as f64
    }
}

impl Guests {
    pub(super) fn new() -> Guests {
        Guests {
            phase: Phase::Absent,
            alone_ns: 0.0,
            batch: Batch::default(),
            starts_before: 0,
            quiet_ended: Nanos(0),
            resume_at: 0,
            yields: false,
        }
    }

    /// How far the log is filled beyond the throttle's threshold, 0 to 1.
    pub(super) fn on_excess(&mut self, excess: f64) {
        self.yields = excess > 0.0;
    }

    /// When the next destage write may start, for the sake of reads.
    pub(super) fn next_allowed(&self) -> Nanos {
        if self.yields {
            return Nanos(0);
        }
        match self.phase {
            Phase::Absent => Nanos(0),
            Phase::Quiet(quiet) => quiet.ends(),
            Phase::Paced(pace) => pace.next(),
        }
    }

    pub(super) fn is_present(&self) -> bool {
        self.phase != Phase::Absent
    }

    /// True when reads are what keeps destaging from being faster.
    pub(super) fn is_binding(&self, now: Nanos) -> bool {
        if self.yields {
            return false;
        }
        match self.phase {
            Phase::Absent => false,
            Phase::Quiet(quiet) => now < quiet.ends(),
            Phase::Paced(pace) => pace.is_binding(now),
        }
    }

    /// A destage write starts. `bears` is the work per second that the storage bore lately.
    pub(super) fn on_start(&mut self, now: Nanos, work: u64, bears: u64) {
        self.batch.starts += 1;
        self.pass_time(now, bears);
        if let Phase::Paced(pace) = &mut self.phase
            && !self.yields
        {
            pace.on_start(now, work);
        }
    }

    /// A destage write completed.
    pub(super) fn on_write(&mut self, now: Nanos, bears: u64) {
        if let Phase::Quiet(quiet) = &mut self.phase {
            quiet.drained = now;
        }
        self.pass_time(now, bears);
    }

    /// A read of the guest completed.
    pub(super) fn on_read(&mut self, now: Nanos, latency: Nanos, bears: u64) {
        if let Phase::Quiet(quiet) = &mut self.phase {
            quiet.last_read = now;
            if Nanos(now.0.saturating_sub(latency.0)) < quiet.drained {
                return;
            }
        }
        self.batch.reads += 1;
        self.batch.latency_ns = self.batch.latency_ns.saturating_add(latency.0);
        match self.phase {
            Phase::Quiet(quiet) if self.batch.is_enough(now, QUIET_BATCH) => {
                self.end_quiet_batch(now, quiet, bears);
            }
            Phase::Absent | Phase::Paced(_) if self.batch.is_enough(now, BATCH) => {
                self.end_batch(now, bears);
            }
            Phase::Absent | Phase::Quiet(_) | Phase::Paced(_) => self.pass_time(now, bears),
        }
    }

    fn pass_time(&mut self, now: Nanos, bears: u64) {
        match self.phase {
            Phase::Absent | Phase::Paced(_) if now.since(self.batch.began) >= BATCH_TIME_MAX => {
                self.end_batch(now, bears);
            }
            Phase::Quiet(quiet) if now >= quiet.ends() => {
                self.end_quiet(now, bears);
            }
            Phase::Absent | Phase::Quiet(_) | Phase::Paced(_) => {}
        }
    }

    fn end_batch(&mut self, now: Nanos, bears: u64) {
        let batch = std::mem::replace(&mut self.batch, Batch { began: now, ..Batch::default() });
        let is_alone = batch.starts == 0 && self.starts_before == 0;
        self.starts_before = batch.starts;
        if is_alone && batch.reads >= BATCH {
            self.learn(batch.mean());
        }
        if batch.reads >= BATCH && batch.mean() < self.alone_ns * WRONG {
            self.alone_ns = batch.mean();
        }
        let is_present = batch.pressure(now) >= PRESENT;
        match self.phase {
            Phase::Quiet(_) => {}
            Phase::Absent if is_present && !is_alone => self.begin_quiet(now, bears / 8),
            Phase::Absent => {}
            Phase::Paced(_) if !is_present => self.phase = Phase::Absent,
            Phase::Paced(mut pace) => {
                let ratio = batch.mean() / self.alone_ns / SLOWER_MAX;
                let rate = adjusted(pace.per_second(), ratio, bears);
                let since_quiet = now.since(self.quiet_ended);
                let is_lost = self.alone_ns == 0.0 || ratio > 1.0 && rate == floor(bears);
                if !is_alone
                    && (since_quiet >= QUIET_EVERY || is_lost && since_quiet >= QUIET_AGAIN)
                {
                    return self.begin_quiet(now, rate);
                }
                if rate < pace.per_second() || pace.is_binding(now) {
                    pace.change(now, rate);
                }
                self.phase = Phase::Paced(pace);
            }
        }
    }

    fn begin_quiet(&mut self, now: Nanos, resume_at: u64) {
        self.resume_at = resume_at;
        self.batch = Batch { began: now, ..Batch::default() };
        self.phase =
            Phase::Quiet(Quiet { began: now, last_read: now, drained: now, mean_before: 0 });
    }

    fn end_quiet_batch(&mut self, now: Nanos, mut quiet: Quiet, bears: u64) {
        let mean = self.batch.mean();
        let before = quiet.mean_before as f64;
        self.batch = Batch { began: now, ..Batch::default() };
        let is_as_known = (mean / self.alone_ns - 1.0).abs() < KNOWN_WITHIN;
        if is_as_known {
            self.learn(mean);
            self.end_quiet(now, bears);
        } else if mean >= before * DRAINED && mean * DRAINED <= before {
            self.alone_ns = (mean + before) / 2.0;
            self.end_quiet(now, bears);
        } else {
            quiet.mean_before = mean as u64;
            self.phase = Phase::Quiet(quiet);
        }
    }

    fn end_quiet(&mut self, now: Nanos, bears: u64) {
        self.quiet_ended = now;
        self.batch = Batch { began: now, ..Batch::default() };
        self.phase = Phase::Paced(Pace::new(self.resume_at.max(floor(bears)), Nanos(0)));
    }

    fn learn(&mut self, mean: f64) {
        let known = if self.alone_ns > 0.0 { self.alone_ns } else { mean };
        self.alone_ns = known + (mean - known) / 4.0;
    }
}

fn floor(bears: u64) -> u64 {
    (bears / FLOOR_PART).max(FLOOR_MIN)
}

/// The pace after a batch of reads that took `ratio` times as long as they may.
fn adjusted(rate: u64, ratio: f64, bears: u64) -> u64 {
    let factor = if ratio <= 1.0 { RISE } else { (1.0 / (ratio * ratio)).max(FALL_MAX) };
    ((rate as f64 * factor) as u64).max(floor(bears))
}
