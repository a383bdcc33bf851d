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
//! be done, and when a batch ended [`SETTLE_AFTER`] ago: a process that is killed again and again does not do
//! the same over and over.
//!
//! **Patience.** Epochs that have ended are destaged at once; the one under way is left alone for a
//! while, so that its overwrites meet in the log.
//!
//! **Failure.** After an error of primary storage the batch pauses, then goes on with what is not done. Nothing
//! is ever given up, nor when flash is dead, as long as memory has it (`revoke.rs`). Memory for runs is the destager's own: writers that wait for the log hold theirs.

mod batch;
mod finish;
mod keep;
mod limit;
mod revoke;
mod row;
mod run;

use std::collections::VecDeque;

use crate::action::{DestageFault, Event};
use crate::config::{DestageOrder, WriteLogConfig};
use crate::destage::epochs::Epochs;
use crate::destage::throttle::{Aim, Fill, Throttle, ThrottleConfig};
use crate::destage::window::{DestageWindow, Supply, WindowConfig};
use crate::engine::Parts;
use crate::engine::buffers::BufferPool;
use crate::engine::cx::{Cx, Shared};
use crate::engine::log::segments::Position;
use crate::geometry::PAGE;
use crate::ids::{Nanos, Sequence};
use crate::log::recover::RecoveredLog;
use crate::status::IoStatus;
use crate::table::{Key, Table};

use batch::Batch;
use revoke::Revocation;
use run::Run;

/// Memory for runs.
const MEMORY: u64 = 4 << 20;
/// Runs under way at most.
const RUNS_MAX: u32 = 128;
/// Longest piece that primary storage is asked to zero.
const ZEROES_PIECE_MAX: u64 = 64 << 20;
/// Pause after an error of primary storage, the first time and at most.
const RETRY_MIN: Nanos = Nanos::from_millis(100);
const RETRY_MAX: Nanos = Nanos::from_millis(10_000);
/// What was destaged is flushed and noted after so long, so that a process that lives no longer gets on.
const SETTLE_AFTER: Nanos = Nanos::from_millis(1_000);
/// Of the time, that such flushes take a share of this at most.
const SETTLE_SHARE: u64 = 16;

/// Progress that is, or is to be, noted durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub flushed: Sequence,
    pub through: Sequence,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Destager {
    pub(super) window: DestageWindow,
    throttle: Throttle,
    memory: BufferPool,
    /// Where the memory begins.
    base: u64,
    runs: Table<Run>,
    /// Runs that are not written yet, in the order of their batch.
    unwritten: VecDeque<Key>,
    batch: Batch,
    /// When the batch began.
    began: Nanos,
    pub(super) epochs: Epochs,
    /// Everything before this position is in a batch, or was.
    cursor: Position,
    /// Where the first record after `flushed` may be.
    tail: Mark,
    done: Sequence,
    /// Where the first record after `done` may be.
    done_mark: Mark,
    pub(super) flushed: Sequence,
    /// Changes of the cache that the ring has to know of before `flushed` is noted.
    flushed_changes: u64,
    /// Up to here records may be on primary storage.
    sent: Sequence,
    noted: Progress,
    /// What flash has noted is of records that are gone, and says too much of those that have their numbers now.
    is_noted_ahead: bool,
    noting: Option<Progress>,
    /// The note under way takes too long after this, or the question whether the log is revoked.
    noting_until: Nanos,
    revocation: Revocation,
    flushing: Option<Flushing>,
    /// When the oldest batch ended that no flush covers, be it under way.
    unflushed_since: Nanos,
    /// Time that the last flush of primary storage took.
    flush_took: Nanos,
    /// Sessions of primary storage lost so far.
    session: u64,
    /// What was written since the last flush has to be written again.
    redo: bool,
    /// The last record of an earlier run.
    restored: Sequence,
    /// Not before this time: an error is a moment ago.
    retry_at: Nanos,
    pause: Nanos,
    /// What failed last, until it succeeds.
    fault: Option<DestageFault>,
    /// Writes and zeroes of primary storage under way.
    pub(super) outstanding: u32,
    /// Since when the oldest record that is not destaged has been waiting.
    pub(super) oldest: Nanos,
    /// Primary storage said that it can write zeroes, and could not.
    zeroes_by_writing: bool,
    /// Reads of the log that failed in a row, and notes.
    read_failures: u32,
    note_failures: u32,
    /// An administrator paused it.
    pub paused: bool,
    course: Course,
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
        let window = WindowConfig {
            outstanding_max: RUNS_MAX,
            bytes_per_second_max: config.destage_rate_max,
        };
        let throttle = ThrottleConfig {
            threshold_percent: config.throttle_percent,
            delay_max: Nanos(backend_timeout.0 / 2),
        };
        Destager {
            window: DestageWindow::new(window),
            throttle: Throttle::new(throttle),
            memory: BufferPool::new(MEMORY),
            base,
            runs: Table::new(RUNS_MAX),
            unwritten: VecDeque::with_capacity(RUNS_MAX as usize),
            batch: Batch::new(places),
            began: Nanos(0),
            epochs: Epochs::default(),
            cursor: Position(0),
            tail: Mark::default(),
            done: Sequence(0),
            done_mark: Mark::default(),
            flushed: Sequence(0),
            flushed_changes: 0,
            sent: Sequence(0),
            noted: Progress::default(),
            is_noted_ahead: false,
            noting: None,
            noting_until: Nanos::NEVER,
            revocation: Revocation::None,
            flushing: None,
            unflushed_since: Nanos::NEVER,
            flush_took: Nanos(0),
            session: 0,
            redo: false,
            restored: Sequence(0),
            retry_at: Nanos(0),
            pause: RETRY_MIN,
            fault: None,
            outstanding: 0,
            oldest: Nanos::NEVER,
            zeroes_by_writing: false,
            read_failures: 0,
            note_failures: 0,
            paused: false,
            course: Course::Destages,
        }
    }

    /// Records up to this one are on primary storage, flushed or not.
    pub(super) fn done(&self) -> Sequence {
        self.done
    }

    /// The same, with what stands for the part of the batch that is done.
    pub(super) fn destaged(&self) -> Sequence {
        Sequence(self.done.0 + self.batch.part_done(self.batch.limit().0, self.done.0))
    }

    /// Up to which record any may be on primary storage, or a later run may be told so.
    fn perhaps_there(&self) -> Sequence {
        let noting = self.noting.unwrap_or_default();
        self.sent.max(self.noted.through).max(noting.through)
    }

    /// A read of the guest came back from primary storage.
    pub(super) fn note_guest_read(&mut self, now: Nanos, latency: Nanos) {
        self.window.on_guest_read(now, latency);
    }

    /// What is written is the last of it.
    pub(super) fn finish(&mut self) {
        self.course = Course::Finishes;
    }

    /// Nothing new is started any more.
    pub(super) fn stop(&mut self) {
        self.course = Course::Stopped;
    }

    /// True when it writes, unless it has to wait for a moment.
    pub(super) fn goes_on(&self) -> bool {
        self.course == Course::Destages && !self.paused
    }

    /// True when what was written may be flushed, or noted as flushed, now.
    fn may_settle(&self, now: Nanos) -> bool {
        match self.course {
            Course::Destages => now >= self.retry_at,
            Course::Finishes => self.fault.is_none(),
            Course::Stopped => false,
        }
    }

    /// True when there is something to flush or to note that can be.
    fn has_to_settle(&self) -> bool {
        let goal = if self.redo { self.flushed } else { self.done };
        self.course != Course::Stopped && self.fault.is_none() && self.noted.flushed < goal
    }

    /// Nobody noted when the oldest record that primary storage lacks was written: an earlier run took it.
    pub(super) fn age_is_at_least(&self) -> bool {
        self.flushed < self.restored
    }

    /// True when primary storage alone is what a file system can be mounted from.
    pub(super) fn is_consistent(&self) -> bool {
        !self.redo && !self.batch.mixes_epochs()
    }

    /// True when no write is under way, nor what leads to one.
    fn is_at_rest(&self) -> bool {
        self.outstanding == 0 && self.runs.is_empty()
    }

    /// Pages of the log that are written to primary storage, and not flushed.
    fn unflushed_pages(&self) -> u64 {
        self.done_mark.position.0.saturating_sub(self.tail.position.0)
    }

    /// When what is done is flushed, whatever else there is to do.
    fn settle_at(&self) -> Nanos {
        let often = Nanos(self.flush_took.0.saturating_mul(SETTLE_SHARE));
        self.unflushed_since.plus(often.max(SETTLE_AFTER))
    }

    fn may_start(&self, now: Nanos) -> bool {
        self.goes_on() && now >= self.retry_at
    }
}

impl Parts {
    /// Does what can be done now; called whenever something has changed.
    pub(super) fn destage(&mut self, cx: &mut Cx<'_>) {
        // What only the memory of a failed log has must not reach primary storage while a cache that does not
        // know of it might be believed.
        if self.log.as_ref().is_none_or(|log| log.failed.is_some() && self.is_voiding()) {
            return;
        }
        self.free_log(cx);
        self.note_restored_age(cx);
        let are_waiting = self.is_throttled()
            || self.waits_for_room(cx)
            || self.is_draining(cx)
            || self.destages_at_end();
        self.destager().window.on_writers(are_waiting);
        loop {
            let destager = self.destager();
            if !destager.batch.is_active() && !self.begin_batch(cx) {
                break;
            }
            if !self.note_progress(cx) {
                break;
            }
            if !self.write_batch(cx) {
                break;
            }
        }
        self.flush_destaged(cx);
        self.note_flushed_progress(cx);
        self.note_idle(cx);
    }

    /// Takes over where an earlier run was.
    pub(super) fn restore_destager(&mut self, found: &RecoveredLog) {
        let destager = self.destager();
        // What is not in the log any more needs no destaging.
        let last = Sequence(found.next_sequence.0 - 1);
        let flushed = found.flushed.min(last);
        (destager.done, destager.flushed) = (flushed, flushed);
        // Numbers after the last record are used again.
        let through = found.through.min(last);
        destager.is_noted_ahead = found.through > last;
        (destager.sent, destager.noted) = (through, Progress { flushed: found.flushed, through });
        // The session in which it was sent is over.
        destager.redo = through > flushed;
        destager.restored = last;
    }

    pub(super) fn destager(&mut self) -> &mut Destager {
        self.destager.as_mut().expect("a log has a destager")
    }

    /// What an earlier run left ages from now on.
    fn note_restored_age(&mut self, cx: &mut Cx<'_>) {
        let flushed = self.destager().flushed;
        let log = self.log.as_mut().expect("there is a log");
        if log.ages.oldest().is_none() && flushed < log.written_sequence {
            log.ages.on_append(cx.now, flushed.plus(1));
        }
    }

    /// When time alone may change something.
    pub(super) fn destage_deadline(&self, shared: &Shared) -> Nanos {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else {
            return Nanos::NEVER;
        };
        let has_dirty = destager.noted.flushed < log.written_sequence;
        let note = self.note_deadline();
        let later = |time: Nanos| if time > shared.now { time } else { Nanos::NEVER };
        if !destager.goes_on() || !has_dirty {
            let settles = destager.has_to_settle();
            return if settles { note.min(later(destager.retry_at)) } else { note };
        }
        let delayed = destager.oldest.plus(log.config.destage_delay);
        let start = later(destager.retry_at).min(later(destager.window.next_allowed()));
        start.min(later(delayed)).min(later(destager.settle_at())).min(note)
    }

    /// The session of primary storage ended: what was not flushed is written again.
    pub(super) fn destage_session_lost(&mut self) {
        let Some(destager) = &mut self.destager else { return };
        destager.session += 1;
        destager.flushing = None;
        destager.redo = destager.perhaps_there() > destager.flushed;
        destager.batch.fail();
    }

    /// An I/O of a batch failed: what is not done is tried again after a pause.
    fn fail_batch(&mut self, fault: DestageFault, status: IoStatus, cx: &mut Cx<'_>) {
        cx.counters.destage_errors += 1;
        let destager = self.destager();
        destager.window.on_error(cx.now);
        self.note_destage_fault(fault, status, cx);
        let destager = self.destager();
        destager.batch.fail();
        destager.retry_at = cx.now.plus(destager.pause);
        destager.pause = Nanos(destager.pause.0 * 2).min(RETRY_MAX);
    }

    /// What keeps destaging up. An event tells when that is something else than before.
    fn note_destage_fault(&mut self, fault: DestageFault, status: IoStatus, cx: &mut Cx<'_>) {
        let before = self.destager().fault.replace(fault);
        // Errors of primary storage are told where each of its I/Os is noted.
        if before != Some(fault) && fault != DestageFault::PrimaryStorage {
            cx.event(Event::DestageFailed { fault, status });
        }
    }

    /// Bytes of the disk in the log that primary storage does not have yet; those that were written twice count twice.
    pub(in crate::engine) fn dirty_bytes(&self) -> u64 {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else { return 0 };
        let pages = log.index.inserted() - destager.done_mark.pages;
        let done = destager.batch.part_done(destager.batch.end().pages, destager.done_mark.pages);
        pages.saturating_sub(done) * PAGE
    }

    /// Bytes of the log that wait to be destaged, with what describes them.
    pub(super) fn occupied_bytes(&self) -> u64 {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else { return 0 };
        let from = destager.done_mark.position.0;
        let pages = log.end().0.saturating_sub(from);
        // A batch is much of the log: in one step at its end, writers would feel it.
        let done = destager.batch.part_done(destager.batch.end().position.0, from);
        if destager.done >= log.last_sequence() { 0 } else { pages.saturating_sub(done) * PAGE }
    }

    /// True while a disk that is shut down flushes and notes what it has destaged.
    pub(in crate::engine) fn settles_at_end(&self) -> bool {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else { return false };
        let is_ending = self.refuses == Some(IoStatus::ShuttingDown);
        is_ending && log.failed.is_none() && !log.is_lost && destager.has_to_settle()
    }

    /// True when primary storage has, durably, everything that the log holds.
    pub(in crate::engine) fn log_is_clean(&self) -> bool {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else { return true };
        destager.flushed >= log.last_sequence()
    }

    pub(super) fn fill(&self) -> Fill {
        let log = self.log.as_ref().expect("there is a log");
        let capacity = log.segments.pages_max() * PAGE;
        // What was destaged and is not free yet takes room, too, but comes back with the next flush.
        Fill { dirty: self.occupied_bytes(), capacity }
    }

    /// True when writers are slowed.
    pub(super) fn is_throttled(&self) -> bool {
        let destager = self.destager.as_ref().expect("a log has a destager");
        destager.throttle.excess(self.fill()) > 0.0
    }

    /// When a write that could be acknowledged since `ready` may be.
    pub(super) fn throttle_due(&self, ready: Nanos, bytes: u64, shared: &Shared) -> Nanos {
        let destager = self.destager.as_ref().expect("a log has a destager");
        let aim = if self.is_draining(shared) { Aim::Empty } else { Aim::Room };
        destager.throttle.due(ready, bytes, self.fill(), aim, &destager.window.destaging())
    }

    pub(super) fn note_throttled(&mut self, due: Nanos, cx: &mut Cx<'_>) {
        self.destager().throttle.on_acknowledged(cx.now, due);
    }

    /// What the destager could write, if its window let it.
    pub(super) fn destage_supply(&self) -> Supply {
        let (Some(destager), Some(log)) = (&self.destager, &self.log) else {
            return Supply::Nothing;
        };
        if destager.batch.is_active() && destager.batch.has_more() {
            Supply::Writes
        } else if !destager.batch.is_active() || destager.batch.limit() >= log.written_sequence {
            Supply::Nothing
        } else if log.config.order == DestageOrder::Strict {
            Supply::LaterEpochs
        } else {
            // The last writes of one window are under way before the first of the next.
            Supply::Writes
        }
    }

    fn note_idle(&mut self, cx: &mut Cx<'_>) {
        // Records of zeroes have no bytes.
        let last = self.log.as_ref().expect("there is a log").last_sequence();
        let destager = self.destager();
        if destager.done >= last && destager.outstanding == 0 {
            destager.window.on_idle(cx.now);
            destager.oldest = Nanos::NEVER;
        }
    }
}
