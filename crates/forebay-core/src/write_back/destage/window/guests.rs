//! Keeps the guest's reads of primary storage nearly as fast as without destaging.
//!
//! # The law
//! A limit on outstanding writes cannot do this: an array with a write cache takes any number of
//! writes at once, and reads queue behind them inside. So the *rate* of starts is paced, and the
//! guest's own latency is the signal.
//! - **Quiet.** The pacer measures the latency of reads without destaging. That is free while
//!   there is nothing to destage. Otherwise destaging pauses: at the first reads, and every
//!   [`QUIET_EVERY`] again. The pause ends when the means of two batches of reads agree (queues
//!   inside the storage have to drain first).
//! - **Paced.** For each batch of reads the mean is compared with that. Up to [`SLOWER_MAX`]
//!   times it the pace rises by a tenth. Above that it falls with the square of the excess. The
//!   floor is a twentieth of what the storage bears, or of less where reads are too slow even so:
//!   destaging gets slower, but does not stop. Reads *yield*, and nothing is paced, when the
//!   guest's writers wait: the log has filled beyond the throttle's threshold, or the mode is to
//!   change. They also yield at the end of a disk that is destaged then.
//! - **Late reads.** The pace is never above what the slowest reads allow (`tail.rs`).
//! - **Behind a read.** Where writes are fewer than reads, a write that is due waits for the next
//!   read to start, and goes right behind it. The storage serves that read first, and most of the
//!   write before the next one comes. At the same pace reads meet less of it, and shorter rests
//!   of it, than at any other time.
//! - **Absent.** A storage with a write cache takes a burst at once, and who reads next waits
//!   until the disks have it. So without reads, or with few, the pace goes on from where it was,
//!   and doubles every second (`rate.rs`). A short break lets through little more than the pace
//!   did. A long one uses all that the storage has. A few reads that are slow hold it, until what
//!   is known of reads is ten seconds old. There is none before a guest has read.
//!
//! A disk does one thing at a time. Where a small write keeps it busy for longer than a read
//! (RAID 5), one read in a hundred meets one at almost any pace. Destaging then goes at the
//! floor, for a guest with one read at a time. The log takes the rest until its threshold, and
//! then reads yield.
//!
//! # Limits
//! Reads too rare to compare (a few per second) are not protected. A guest whose load changes is
//! compared with its old self until the next quiet phase. A write cache inside the storage has to
//! drain first, when the first reads arrive.

use super::pace::Pace;
use super::rate::Rate;
use super::tail::Tail;
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
const SLOWER_MAX: f64 = 1.27;
/// A quiet batch this close to what is known confirms it.
const KNOWN_WITHIN: f64 = 0.25;
/// Two quiet batches whose means are at least this part of each other end the draining.
const DRAINED: f64 = 0.8;
/// Reads never are so much faster with destaging: what was taken for their speed alone was wrong.
const WRONG: f64 = 0.6;
/// Times between the starts of two reads that a write waits for the next.
const PATIENCE: u64 = 4;
/// Starts of reads over which their distance is averaged.
const READS_APART: u64 = 16;
/// Reads outstanding on average, from which a guest counts as reading.
const PRESENT: f64 = 0.05;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Guests {
    phase: Phase,
    /// Mean read latency without destaging in nanoseconds; 0: unknown.
    alone_ns: f64,
    tail: Tail,
    batch: Batch,
    /// Destage writes started in the batch before.
    starts_before: u32,
    /// When a quiet phase ended last, and the pace to go on with.
    quiet_ended: Nanos,
    resume_at: u64,
    rate: Rate,
    /// When reads were enough to judge the pace, last.
    heard: Nanos,
    /// The guest's writers wait: reads have to do with what they get.
    yields: bool,
    apart: Apart,
}

/// How far apart reads are, and destage writes.
#[derive(Clone, Copy, Debug, Default)]
struct Apart {
    /// When a read started last.
    read_started: Nanos,
    /// The mean time between two.
    reads_ns: u64,
    /// The distance that the pace puts between destage writes, lately.
    writes_ns: u64,
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
    /// Mean and longest of the batch before; 0: none.
    mean_before: u64,
    longest_before: u64,
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
    longest_ns: u64,
    /// Destage writes that started, and their work.
    starts: u32,
    work: u64,
}

impl Batch {
    fn is_enough(&self, now: Nanos, reads: u32) -> bool {
        self.reads >= reads && now.since(self.began) >= BATCH_TIME
    }

    fn mean(&self) -> f64 {
        self.latency_ns as f64 / f64::from(self.reads.max(1))
    }

    /// Most of what this pace allowed was done.
    fn uses(&self, now: Nanos, pace: Pace) -> bool {
        pace.cost(self.work).0 >= now.since(self.began).0 / 2
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
            tail: Tail::new(),
            batch: Batch::default(),
            starts_before: 0,
            quiet_ended: Nanos(0),
            resume_at: 0,
            rate: Rate::new(),
            heard: Nanos(0),
            yields: false,
            apart: Apart::default(),
        }
    }

    /// Whether writers wait for destaging.
    pub(super) fn on_writers(&mut self, are_waiting: bool) {
        self.yields = are_waiting;
    }

    /// When the next destage write may start, for the sake of reads.
    pub(super) fn next_allowed(&self) -> Nanos {
        if self.yields {
            return Nanos(0);
        }
        match self.phase {
            Phase::Absent => Nanos(0),
            Phase::Quiet(quiet) => quiet.ends(),
            Phase::Paced(pace) if self.apart.read_started >= pace.next() => pace.next(),
            Phase::Paced(pace) => pace.next().plus(self.patience()),
        }
    }

    /// How long a write that is due waits for a read to start.
    fn patience(&self) -> Nanos {
        let waits = self.is_sparse() && !self.rate.is_unheard();
        Nanos(if waits { self.apart.reads_ns.saturating_mul(PATIENCE) } else { 0 })
    }

    /// Writes are so few that each can go behind a read of its own.
    fn is_sparse(&self) -> bool {
        self.apart.writes_ns.saturating_mul(2) >= self.apart.reads_ns
    }

    /// A read of the guest was started a moment ago.
    pub(super) fn on_read_start(&mut self, now: Nanos) {
        let apart = now.since(self.apart.read_started).0.min(BATCH_TIME_MAX.0);
        self.apart.reads_ns = match self.apart.reads_ns {
            0 => apart,
            mean => mean - mean / READS_APART + apart / READS_APART,
        };
        self.apart.read_started = now;
    }

    pub(super) fn is_present(&self) -> bool {
        self.phase != Phase::Absent && !self.rate.is_unheard()
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
        self.pass_time(now, bears);
        self.batch.starts += 1;
        self.batch.work = self.batch.work.saturating_add(work);
        if let Phase::Paced(mut pace) = self.phase
            && !self.yields
        {
            self.apart.writes_ns = pace.cost(work).0;
            pace.on_start(now, work);
            // Waiting for a read costs no turn, but does not add up to a burst either.
            pace.allow_burst(Nanos(if self.is_sparse() { self.apart.writes_ns } else { 0 }));
            self.phase = Phase::Paced(pace);
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
        self.batch.longest_ns = self.batch.longest_ns.max(latency.0);
        self.judge_tail(now, latency, bears);
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

    fn judge_tail(&mut self, now: Nanos, latency: Nanos, bears: u64) {
        match self.phase {
            Phase::Quiet(_) => self.tail.learn(latency),
            Phase::Absent if self.batch.starts == 0 && self.starts_before == 0 => {
                self.tail.learn(latency);
            }
            // Nothing is destaged: they are late for another reason, or not.
            Phase::Paced(_) if self.batch.starts == 0 && self.starts_before == 0 => {}
            Phase::Paced(mut pace) if !self.yields && !self.rate.is_unheard() => {
                if let Some(rate) = self.tail.judge(now, latency, pace.per_second()) {
                    self.rate.on_late_reads();
                    pace.change(now, rate.max(self.rate.floor(bears)));
                    self.phase = Phase::Paced(pace);
                }
            }
            Phase::Absent | Phase::Paced(_) => {}
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
            self.tail.scale(batch.mean() / self.alone_ns);
            self.alone_ns = batch.mean();
        }
        let is_present = batch.pressure(now) >= PRESENT;
        match self.phase {
            Phase::Quiet(_) => {}
            Phase::Absent if is_present && !is_alone => self.begin_quiet(now, bears / 8),
            Phase::Absent => {}
            Phase::Paced(_) if self.alone_ns == 0.0 && !is_present => self.phase = Phase::Absent,
            Phase::Paced(mut pace) => {
                let ratio = batch.mean() / self.alone_ns / SLOWER_MAX;
                let floor = self.rate.floor(bears);
                let rate = if is_present {
                    self.heard = now;
                    let rate = self.rate.beside_reads(pace.per_second(), ratio, floor);
                    rate.min(self.tail.rate(floor))
                } else {
                    // What is known of reads is old at some time; a few cannot tell anew.
                    let are_slow = ratio > 1.0 && now.since(self.heard) < QUIET_EVERY;
                    let is_used = batch.uses(now, pace);
                    self.rate.without_reads(pace.per_second(), are_slow, is_used).max(floor)
                };
                let since_quiet = now.since(self.quiet_ended);
                let is_lost = self.alone_ns == 0.0 || ratio > 1.0 && rate == floor;
                if !is_alone
                    && is_present
                    && (since_quiet >= QUIET_EVERY || is_lost && since_quiet >= QUIET_AGAIN)
                {
                    return self.begin_quiet(now, rate);
                }
                let is_absent = self.rate.is_unheard();
                // Reads beside no write tell of no write.
                let is_sparse = self.is_sparse() && batch.starts > 0;
                if is_absent || rate < pace.per_second() || pace.is_binding(now) || is_sparse {
                    pace.change(now, rate);
                }
                self.phase = Phase::Paced(pace);
            }
        }
    }

    fn begin_quiet(&mut self, now: Nanos, resume_at: u64) {
        self.resume_at = resume_at;
        self.rate.begin(resume_at == 0);
        self.batch = Batch { began: now, ..Batch::default() };
        self.phase = Phase::Quiet(Quiet {
            began: now,
            last_read: now,
            drained: now,
            mean_before: 0,
            longest_before: 0,
        });
    }

    fn end_quiet_batch(&mut self, now: Nanos, mut quiet: Quiet, bears: u64) {
        let (mean, longest) = (self.batch.mean(), self.batch.longest_ns);
        let before = quiet.mean_before as f64;
        self.batch = Batch { began: now, ..Batch::default() };
        let is_as_known = (mean / self.alone_ns - 1.0).abs() < KNOWN_WITHIN;
        if is_as_known {
            self.learn(mean);
            self.end_quiet(now, bears);
        } else if mean >= before * DRAINED && mean * DRAINED <= before {
            self.alone_ns = (mean + before) / 2.0;
            self.tail.learn_anew(longest.max(quiet.longest_before));
            self.end_quiet(now, bears);
        } else {
            (quiet.mean_before, quiet.longest_before) = (mean as u64, longest);
            self.phase = Phase::Quiet(quiet);
        }
    }

    fn end_quiet(&mut self, now: Nanos, bears: u64) {
        self.quiet_ended = now;
        self.batch = Batch { began: now, ..Batch::default() };
        self.phase = Phase::Paced(Pace::new(self.resume_at.max(self.rate.floor(bears)), Nanos(0)));
    }

    fn learn(&mut self, mean: f64) {
        let known = if self.alone_ns > 0.0 { self.alone_ns } else { mean };
        self.alone_ns = known + (mean - known) / 4.0;
    }
}
