//! The destager: carries what is in the write log to primary storage, in order, and frees the log.
//!
//! ```text
//!  records ─► batch ─► noted (may be on primary storage) ─► zeroes ─► runs of pages ─► done
//!                                                                                      │ flush of primary storage
//!   segment free ◄─ noted (flushed) ◄──────────────────────────────────────────────────┘
//! ```
//! Three sequences mark how far it is: `flushed` ≤ `done` ≤ `sent`. Records up to `flushed` are durable on
//! primary storage, up to `done` they are written in the present session, up to `sent` they may be
//! there. After a lost session everything between `flushed` and `sent` is written again, as one batch with the newest
//! bytes only: primary storage never goes back to older bytes than it had.
//!
//! **Notes** (the progress page) tell a later run of `flushed`, and of `through`: up to there it writes again as one
//! batch, what follows in its order. So a batch is noted as `through` before it is sent, unless it overwrites nothing
//! that the later run would write again, be it in the log after the noted `flushed`: then to write everything again in
//! order only repeats what is there. A note costs as much as a write of fast storage; epochs of one write would wait
//! for little else.
//!
//! **Order.** A batch is records in log order: of one flush epoch (`strict`), or of several (`window`,
//! `throughput`). Within a batch only the newest bytes of each sector are written, sorted, neighbours
//! together, zeroes first. The next batch starts when every write of this one has completed, so that
//! primary storage alone is a crash-consistent image at every instant (`strict`).
//!
//! **Settling.** Primary storage is flushed, and that is noted, when that frees a sixteenth of the log, when nothing else is to
//! be done and somebody waits or a batch ended `REST_AFTER` ago, and when one ended `SETTLE_AFTER` ago: a process that is
//! killed again and again does not do the same over and over.
//!
//! **Patience.** Epochs that have ended are destaged at once; the one under way is left alone for a
//! while, so that its overwrites meet in the log. A destager that has caught up first waits for a moment
//! (`destage_yield`): the next writes of clients who were just answered are then on their way to flash while it works.
//!
//! **Failure.** After an error of primary storage the batch pauses, then goes on with what is not done. Nothing
//! is ever given up, nor when flash is dead, as long as memory has it (`revoke.rs`). Memory for runs is the destager's own: writers that wait for the log hold theirs.

mod batch;
mod drive;
pub(crate) mod epochs;
pub(super) mod finish;
mod hold;
mod journal;
mod keep;
mod limit;
mod revoke;
mod row;
mod run;
mod shown;
pub(crate) mod throttle;
mod trouble;
pub mod window;
mod zeroes;

use std::collections::{BTreeMap, VecDeque};

use crate::action::DestageFault;
use crate::config::{DestageOrder, WriteLogConfig};
use crate::cx::Shared;
use crate::cx::buffers::BufferPool;
use crate::geometry::PAGE;
use crate::ids::{Nanos, Sequence};
use crate::table::{Key, Table};
use crate::write_back::format::recover::RecoveredLog;
use crate::write_back::log::hang_at;
use crate::write_back::log::segments::Position;

use super::{Beside, WriteBack};
use batch::{Batch, To};
pub(crate) use drive::Drive;
use epochs::Epochs;
use hold::Hold;
use journal::Journal;
pub(crate) use revoke::LateNote;
use revoke::Revocation;
use run::Run;
use throttle::{Throttle, ThrottleConfig, delay_max};
use trouble::Trouble;
use window::{DestageWindow, WindowConfig};

/// Memory for runs.
const MEMORY: u64 = 4 << 20;
/// Runs under way at most.
const RUNS_MAX: u32 = 128;
/// Longest piece that primary storage is asked to zero.
const ZEROES_PIECE_MAX: u64 = 64 << 20;
/// Pause after an error of primary storage, the first time and at most.
const RETRY_MIN: Nanos = Nanos::from_millis(100);
const RETRY_MAX: Nanos = Nanos::from_millis(10_000);
/// With nothing else to do, what was destaged is flushed and noted after so long. A guest that waits for each of its writes
/// leaves the destager without work after each, and would wait for the note's write on flash, too.
const REST_AFTER: Nanos = Nanos::from_millis(20);
/// What was destaged is flushed and noted after so long, so that a process that lives no longer gets on.
const SETTLE_AFTER: Nanos = Nanos::from_millis(1_000);
/// Of the time, that such flushes take a share of this at most.
const SETTLE_SHARE: u64 = 16;

/// Progress that is, or is to be, noted durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    flushed: Sequence,
    pub through: Sequence,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Destager {
    pub(in crate::write_back) window: DestageWindow,
    throttle: Throttle,
    pub(in crate::write_back) epochs: Epochs,
    pub(in crate::write_back) running: Running,
    batch: Batch,
    reached: Reached,
    notes: Notes,
    flushes: Flushes,
    trouble: Trouble,
    /// Windows go through it, where that pays.
    pub(in crate::write_back) journal: Option<Journal>,
    pub(in crate::write_back) hold: Hold,
    course: Course,
}

/// Runs under way, and their memory.
#[derive(Debug)]
pub(super) struct Running {
    memory: BufferPool,
    /// Where the memory begins.
    base: u64,
    runs: Table<Run>,
    /// Runs that are not written yet, in the order of their batch.
    unwritten: VecDeque<Key>,
    /// Reads of the log under way.
    reads: u32,
    /// When they hang, unless one of them ends.
    reads_until: Nanos,
    /// Writes and zeroes of primary storage under way.
    pub(in crate::write_back) outstanding: u32,
}

/// How far destaging is.
#[derive(Debug, Default)]
struct Reached {
    /// Everything before this position is in a batch, or was.
    cursor: Position,
    /// Since when the oldest record that is not destaged has been waiting.
    oldest: Nanos,
    /// Where the first record after `flushed` may be.
    tail: Mark,
    done: Sequence,
    /// Where the first record after `done` may be.
    done_mark: Mark,
    flushed: Sequence,
    /// Changes of the cache that the index has to know of before `flushed` is noted.
    flushed_changes: u64,
    /// Up to here records may be on primary storage.
    sent: Sequence,
    /// The last record of an earlier run.
    restored: Sequence,
}

/// What is noted of it.
#[derive(Debug)]
struct Notes {
    noted: Progress,
    /// Both copies on flash say that so much is flushed: the records after it are needed, whichever of them a start finds.
    twice: Sequence,
    /// What flash has noted is of records that are gone, and says too much of those that have their numbers now.
    is_ahead: bool,
    noting: Option<Progress>,
    /// The note under way takes too long after this.
    until: Nanos,
    /// The question whether the log is revoked takes too long after this.
    answer_until: Nanos,
    revocation: Revocation,
    /// Notes that failed in a row.
    failures: u32,
    /// The last batch that had a part of a request.
    part: Part,
}

/// A batch that ends in a request whose rest is not durable: a crash takes it back, although its part is in place.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    /// The last record of the batch.
    through: Sequence,
    /// The changes of the cache that its index records before the batch goes.
    changes: u64,
}

/// Flushes of primary storage.
#[derive(Debug)]
struct Flushes {
    flushing: Option<Flushing>,
    /// When the oldest batch ended that no flush covers, be it under way.
    unflushed_since: Nanos,
    /// Time that the last flush took.
    took: Nanos,
    /// Sessions of primary storage lost so far.
    session: u64,
    /// What was written since the last flush has to be written again.
    redo: bool,
}

/// A place in the log.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    position: Position,
    /// Data pages before it, of those that this engine has seen.
    pages: u64,
}

/// A flush of primary storage that is under way.
#[derive(Clone, Copy, Debug)]
struct Flushing {
    /// It covers the records up to this one.
    done: Sequence,
    mark: Mark,
    began: Nanos,
}

/// What it still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    /// Everything.
    Destages,
    /// Writes nothing new. What is done is flushed and noted, so that the next run does not do it again; unless that fails.
    Finishes,
    /// Starts nothing.
    Stopped,
}

impl Destager {
    /// Pages of memory that it needs.
    pub(super) fn memory_pages() -> u64 {
        MEMORY / PAGE
    }

    pub(super) fn ios_max() -> u32 {
        // Each run reads its pages one by one at worst.
        RUNS_MAX * run::RUN_PAGES_MAX + 4
    }

    pub(super) fn new(config: &WriteLogConfig, base: u64, backend_timeout: Nanos) -> Destager {
        let places = config.segment_pages * config.slots();
        let journal = config.journal.filter(|_| config.order == DestageOrder::Journaled);
        let window = WindowConfig {
            outstanding_max: RUNS_MAX,
            bytes_per_second_max: config.destage_rate_max,
        };
        let throttle = ThrottleConfig {
            threshold_percent: config.throttle_percent,
            delay_max: delay_max(backend_timeout),
        };
        Destager {
            window: DestageWindow::new(window),
            throttle: Throttle::new(throttle),
            epochs: Epochs::default(),
            running: Running {
                memory: BufferPool::new(MEMORY),
                base,
                runs: Table::new(RUNS_MAX),
                unwritten: VecDeque::with_capacity(RUNS_MAX as usize),
                reads: 0,
                reads_until: Nanos::NEVER,
                outstanding: 0,
            },
            batch: match journal {
                Some(_) => Batch::journaled(places),
                None => Batch::new(places),
            },
            reached: Reached { oldest: Nanos::NEVER, ..Reached::default() },
            notes: Notes {
                noted: Progress::default(),
                is_ahead: false,
                twice: Sequence::default(),
                noting: None,
                until: Nanos::NEVER,
                answer_until: Nanos::NEVER,
                revocation: Revocation::None,
                failures: 0,
                part: Part::default(),
            },
            flushes: Flushes {
                flushing: None,
                unflushed_since: Nanos::NEVER,
                took: Nanos(0),
                session: 0,
                redo: false,
            },
            trouble: Trouble {
                retry_at: Nanos(0),
                pause: RETRY_MIN,
                fault: None,
                unread: BTreeMap::new(),
            },
            journal: journal.map(|config| Journal::new(config, places)),
            hold: Hold::default(),
            course: Course::Destages,
        }
    }

    /// Goes on with another rate at most, and another time for an I/O on primary storage.
    pub(super) fn tune(&mut self, now: Nanos, rate_max: Option<u64>, backend_timeout: Nanos) {
        self.window.limit_rate(now, rate_max);
        self.throttle.limit_delay(delay_max(backend_timeout));
    }

    /// The same, with what stands for the part of the batch that is done.
    pub(super) fn destaged(&self) -> Sequence {
        if self.flushes.redo {
            return self.reached.flushed;
        }
        Sequence(
            self.reached.done.0 + self.batch.part_done(self.batch.limit().0, self.reached.done.0),
        )
    }

    fn batch_of(&self, to: To) -> &Batch {
        match (to, &self.journal) {
            (To::Journal, Some(journal)) => journal.next_batch(),
            _ => &self.batch,
        }
    }

    /// The last record in a batch, and the data pages up to there.
    fn taken(&self) -> (Sequence, u64) {
        let ahead =
            self.journal.as_ref().map(Journal::next_batch).filter(|ahead| ahead.is_active());
        match ahead.or(self.batch.is_active().then_some(&self.batch)) {
            Some(batch) => (batch.limit(), batch.end().pages),
            None => (self.reached.done, self.reached.done_mark.pages),
        }
    }

    /// Up to which record any may be on primary storage, or a later run may be told so.
    fn perhaps_there(&self) -> Sequence {
        let noting = self.notes.noting.unwrap_or_default();
        self.reached.sent.max(self.notes.noted.through).max(noting.through)
    }

    /// What is written is the last of it.
    pub(super) fn finish(&mut self) {
        self.course = Course::Finishes;
    }

    /// The log failed: a disk that ends leaves nothing in it that can be destaged.
    pub(super) fn leave_nothing(&mut self) {
        if self.course == Course::Finishes {
            self.course = Course::Destages;
        }
    }

    /// Nothing new is started any more; false when that is nothing new. Primary storage that `is_away` may have lost what is
    /// not flushed.
    pub(super) fn stop(&mut self, is_away: bool) -> bool {
        let before = (self.course, self.flushes.redo);
        self.course = Course::Stopped;
        self.flushes.redo |= is_away && self.perhaps_there() > self.reached.flushed;
        before != (self.course, self.flushes.redo)
    }

    /// True when it writes, unless it has to wait for a moment.
    pub(super) fn goes_on(&self) -> bool {
        self.course == Course::Destages && !self.hold.paused
    }

    /// True when what was written may be flushed, or noted as flushed, now.
    fn may_settle(&self, now: Nanos) -> bool {
        match self.course {
            Course::Destages => now >= self.trouble.retry_at,
            Course::Finishes => self.trouble.fault.is_none(),
            Course::Stopped => false,
        }
    }

    /// True when there is something to flush or to note that can be.
    fn has_to_settle(&self) -> bool {
        if self.course == Course::Stopped {
            // The last note is under way, or comes.
            return self.notes.noting.is_some() || self.notes_a_loss_at_once();
        }
        let goal = if self.flushes.redo { self.reached.flushed } else { self.reached.done };
        let has_to_note = self.hides_a_loss() && self.trouble.fault != Some(DestageFault::Note);
        has_to_note
            || self.trouble.fault.is_none()
                && (self.notes.is_ahead
                    || self.notes.noted.flushed < goal
                    || self.may_retire() && !self.is_retired())
    }

    /// True when a loss is noted, however primary storage does and whatever the course: no note has failed.
    fn notes_a_loss_at_once(&self) -> bool {
        let has_failed = self.trouble.fault == Some(DestageFault::Note) || self.notes.failures > 0;
        self.hides_a_loss() && !has_failed
    }

    /// True when a loss, or what was flushed, is yet to be noted, however often that failed.
    fn goes_on_noting(&self) -> bool {
        let is_behind = self.notes.noted.flushed < self.reached.flushed && !self.is_revoked();
        self.course == Course::Destages && (self.hides_a_loss() || is_behind)
    }

    /// True when primary storage may have lost what a later start would take for being there.
    fn hides_a_loss(&self) -> bool {
        self.flushes.redo && !self.is_revoked() && self.notes.noted.through < self.perhaps_there()
    }

    /// Nobody noted when the oldest record that primary storage lacks was written: an earlier run took it.
    pub(super) fn age_is_at_least(&self) -> bool {
        self.reached.flushed < self.reached.restored
    }

    /// True when primary storage alone is what a file system can be mounted from.
    pub(super) fn is_consistent(&self) -> bool {
        !self.flushes.redo && !self.batch.mixes_epochs() && !self.is_redone_ahead()
    }

    /// True when no write is under way, nor what leads to one.
    fn is_at_rest(&self) -> bool {
        self.running.outstanding == 0 && self.running.runs.is_empty()
    }

    /// Pages of the log that are written to primary storage, and not flushed.
    fn unflushed_pages(&self) -> u64 {
        self.reached.done_mark.position.0.saturating_sub(self.reached.tail.position.0)
    }

    /// When what is done is flushed, whatever else there is to do.
    fn settle_at(&self) -> Nanos {
        let often = Nanos(self.flushes.took.0.saturating_mul(SETTLE_SHARE));
        self.flushes.unflushed_since.plus(often.max(SETTLE_AFTER))
    }

    /// When what is done is flushed, with nothing else to do and nobody who waits for that.
    fn rest_at(&self) -> Nanos {
        self.flushes.unflushed_since.plus(REST_AFTER)
    }

    fn may_start(&self, now: Nanos) -> bool {
        self.goes_on() && now >= self.trouble.retry_at
    }
}

impl Destager {
    /// Takes over where an earlier run was, which left so many zero records, and so many pages to write again.
    pub(super) fn restore(&mut self, found: &RecoveredLog, zeroes: usize, again: u64) {
        self.batch.expect_zeroes(zeroes);
        // What is not in the log any more needs no destaging.
        let last = Sequence(found.next_sequence.0 - 1);
        let flushed = found.flushed.min(last);
        (self.reached.done, self.reached.flushed) = (flushed, flushed);
        // Numbers after the last record are used again.
        let through = found.through.min(last);
        self.notes.is_ahead = found.through > last;
        (self.reached.sent, self.notes.noted) =
            (through, Progress { flushed: found.flushed, through });
        // A start has both copies say the same.
        self.notes.twice = found.flushed;
        // The session in which it was sent is over.
        self.flushes.redo = through > flushed;
        self.reached.restored = last;
        if let Some(journal) = &mut self.journal {
            journal.expect_again(again, through);
        }
    }

    /// The throttle let a write go that was `due` then.
    pub(super) fn on_acknowledged(&mut self, now: Nanos, due: Nanos) {
        self.throttle.on_acknowledged(now, due);
    }

    /// True while a read of the log is under way.
    fn reads_log(&self) -> bool {
        self.running.reads > 0
    }

    /// The reads of the log that are under way have their time from now on.
    pub(super) fn stir_reads(&mut self, shared: &Shared) {
        self.running.reads_until = hang_at(shared);
    }

    /// When they hang. At its end nobody waits for them.
    pub(super) fn reads_hang_at(&self) -> Nanos {
        let waits = self.reads_log() && self.course == Course::Destages;
        if waits { self.running.reads_until } else { Nanos::NEVER }
    }

    /// Panics when the destager contradicts itself. For tests; slow.
    pub(super) fn check_invariants(&self) {
        assert!(self.reached.flushed <= self.reached.done || self.flushes.redo);
        assert!(
            self.reached.done <= self.reached.sent || self.reached.done <= self.reached.flushed
        );
        assert!(self.running.unwritten.len() <= self.running.runs.len());
        if self.is_at_rest() && self.journal.as_ref().is_none_or(Journal::is_at_rest) {
            assert_eq!(u64::from(self.running.memory.pages_free()), MEMORY / PAGE);
        }
    }
}
