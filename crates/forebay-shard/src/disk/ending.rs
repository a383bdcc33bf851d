//! A disk ends.
//!
//! ```text
//!   serving ─► draining ─┬─► flushing ──┬─► flushed ─► recording ─► done
//!                        └─ log, or ────┘
//!                           read only
//! ```
//! Draining: clients get what is in flight answered and are closed, the engine becomes idle, primary
//! storage is flushed, what the cache holds is recorded, the disk is done. With a write log it is enough that the log is durable: what it holds stays
//! there, and primary storage, which may be dead, is not waited for longer than [`LEAVE_MAX`]; only what is destaged is flushed and noted, for up to
//! [`DESTAGE_MAX`], because the cache and the next start believe in nothing that was under way at the end. A log that failed
//! is destaged for so long, too. A client that does not take its answers is not waited for longer than [`LEAVE_MAX`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_backends::BackendIo;
use forebay_core::action::IoOp;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_host::events::Severity;
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, Reactor};

use super::ShardDisk;
use super::buffers::AT_ONCE;
use crate::roster::free;
use crate::{Drained, LogEnd};

/// Time that clients have to take their last answers; less than all of draining may take.
const LEAVE_MAX: Nanos = Nanos::from_millis(3_000);
/// Time that a disk has at the end to flush and note what it has destaged, and with deferred flushes, or a log that failed, to
/// destage; less than all of draining may take.
const DESTAGE_MAX: Nanos = Nanos::from_millis(20_000);
/// Time in a turn in which the memory of a disk that has ended goes back.
const FREE_MAX: Duration = Duration::from_millis(2);
/// The I/O that flushes primary storage at the end. The engine never uses this number: its lower half is a
/// place in a table far smaller; nor do wrapping backends, who count down from the highest.
pub(super) const FINAL_FLUSH: IoId = IoId(u32::MAX as u64);

/// How far draining is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    Draining,
    Flushing,
    Flushed(IoStatus),
    /// What the cache holds is recorded for the next run.
    Recording(IoStatus),
    /// Primary storage is let go of; nothing happens any more.
    Done(IoStatus),
}

/// How far it is, and how long each step may still take.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) stage: Stage,
    /// When draining gives up on clients that do not take their answers.
    leave_by: Nanos,
    /// It was waited for once that long.
    has_waited: bool,
    /// When draining leaves the rest in the log.
    destage_by: Nanos,
    /// That was.
    is_late: bool,
    /// Its clients stay, for the disk that takes its place.
    pub(super) beneath: bool,
    /// They stayed, and are to end by now.
    pub(super) gave_place_up: bool,
    /// Why none does yet, where that takes long.
    pub(super) unopened: Option<String>,
    /// Nobody asks for it any more; whether nobody has to hear once more how it ended.
    left: Option<bool>,
    /// The daemon ends.
    pub(super) daemon_ends: bool,
    /// All is done, and its memory goes back to the kernel.
    is_freeing: bool,
}

impl Ending {
    /// The disk serves.
    pub(super) const NONE: Ending = Ending {
        stage: Stage::Serving,
        leave_by: Nanos::NEVER,
        has_waited: false,
        destage_by: Nanos::NEVER,
        is_late: false,
        beneath: false,
        gave_place_up: false,
        unopened: None,
        left: None,
        daemon_ends: false,
        is_freeing: false,
    };

    /// When one of its times is up.
    pub(super) fn next_deadline(&self) -> Nanos {
        self.leave_by.min(self.destage_by)
    }
}

impl ShardDisk {
    /// True once it drains.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.stage != Stage::Serving
    }

    /// True from the moment that it ends, or is to end when nothing is dirty any more, until it is done.
    pub(crate) fn is_about_to_end(&self) -> bool {
        !self.is_done() && (self.is_ending() || self.is_detaching())
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.ending.stage, Stage::Done(_))
    }

    /// Begins to end, as its clients are told to; [`ShardDisk::drained`] tells when it has.
    pub(crate) fn drain(&mut self, now: Nanos) {
        self.end_with_clients();
        self.begin_to_end(now);
    }

    pub(super) fn begin_to_end(&mut self, now: Nanos) {
        if self.ending.stage == Stage::Serving {
            self.ending.stage = Stage::Draining;
            self.tell_clients();
            self.ending.leave_by = now.plus(LEAVE_MAX);
            self.port.engine.shut_down(now, &mut self.port.actions);
            self.ending.destage_by = now.plus(DESTAGE_MAX);
            self.turn.has_more = true;
        }
    }

    /// True when its clients are not to be waited for any longer, each time that one has waited for long.
    pub(crate) fn gives_clients_up(&mut self, now: Nanos) -> bool {
        let gives_up = self.ending.leave_by <= now;
        if gives_up {
            self.ending.leave_by = now.plus(LEAVE_MAX);
            self.ending.has_waited = true;
        }
        gives_up && !self.ending.beneath
    }

    /// What is destaged is flushed and noted before a disk ends, and one whose flushes are deferred, or whose log failed,
    /// destages, as long as primary storage is there and time is left.
    pub(super) fn limit_destaging(&mut self, now: Nanos) {
        if self.ending.destage_by <= now {
            (self.ending.destage_by, self.ending.is_late) = (Nanos::NEVER, true);
        }
        let engine = &self.port.engine;
        let destages = engine.destages_at_end();
        if self.ending.stage != Stage::Draining || !(destages || engine.settles_at_end()) {
            return;
        }
        let trouble = self.primary_trouble();
        let is_away = trouble.is_some();
        let why = match trouble {
            Some(why) => why,
            None if self.ending.is_late => "it takes too long".to_owned(),
            None => return,
        };
        if destages {
            let failed =
                self.port.engine.log_statistics(now).is_some_and(|log| log.failure.is_some());
            let rest = match failed {
                true => "the rest is in the write log, which failed",
                false => "the rest stays in the write log, and the next start goes on",
            };
            let text = format!("not all is destaged before the end: {why}; {rest}");
            self.report(Severity::Warning, text);
        }
        self.port.engine.stop_destaging(now, is_away, &mut self.port.actions);
    }

    /// Why primary storage is away. No later start goes on with a log that is revoked.
    fn primary_trouble(&self) -> Option<String> {
        let is_revoked = self.port.engine.log_is_revoked();
        self.storage.backend.trouble().filter(|_| !is_revoked).map(|why| why.to_string())
    }

    /// Goes on with draining, when there is nothing in flight any more.
    pub(super) fn advance_ending(&mut self, now: Nanos, reactor: &mut Reactor, clients: usize) {
        let waits_for_fence = self.is_detaching() && self.storage.backend.holds_changes();
        let is_quiet = !self.turn.has_more
            && clients == 0
            && !waits_for_fence
            && !self.port.engine.destages_at_end()
            && !self.port.engine.settles_at_end()
            && (self.port.engine.is_idle() || self.ending.has_waited && self.needs_no_more());
        let flushes =
            !self.storage.backend.properties().read_only && !self.port.engine.mode().logs();
        if self.ending.stage == Stage::Draining && is_quiet {
            // Also if the log fails while the end of the cache is noted.
            let is_away = self.primary_trouble().is_some();
            self.port.engine.stop_destaging(now, is_away, &mut self.port.actions);
            self.turn.has_more |= self.has_something_to_do();
        }
        if self.ending.stage == Stage::Draining && is_quiet && !self.port.engine.settles_at_end() {
            self.ending.stage = Stage::Flushed(IoStatus::Ok);
            // What the log holds is durable there; primary storage is flushed before it is forgotten.
            if flushes {
                self.ending.stage = Stage::Flushing;
                let (backend, mut cx) = self.storage.primary(now, reactor);
                backend.submit(&mut cx, flush(FINAL_FLUSH, self.port.arena));
                self.absorb_ended(now);
            }
        }
        if let Stage::Flushed(status) = self.ending.stage {
            self.ending.stage = Stage::Recording(status);
            let flushed = status.is_ok() && !self.port.engine.mode().logs();
            self.port.engine.close_ring(now, flushed, &mut self.port.actions);
            self.turn.has_more |= self.has_something_to_do();
        }
        if self.ending.daemon_ends && self.ending.has_waited && self.waits_for_flash() {
            self.give_detach_up();
        }
        // The log may be given up after this, so that the ring has to know what it dropped, or to be void. What the disk has on
        // flash is another one's at once where it leaves its pool, and its own again beneath its clients.
        if let Stage::Recording(status) = self.ending.stage
            && self.port.engine.is_ring_closed()
            && !self.waits_for_flash()
        {
            self.storage.detach(now, reactor);
            if self.is_detaching() && !self.ending.beneath && !self.port.engine.mode().logs() {
                // The administrator is told, and no guest has the disk any more.
                self.unreported_loss.forget();
            }
            self.ending.stage = Stage::Done(status);
            self.let_go(reactor);
        }
    }

    /// True when all that is missing for its end is what is written to flash yet.
    pub(super) fn waits_for_flash(&self) -> bool {
        let has_to = self.ending.beneath || self.is_detaching();
        has_to
            && matches!(self.ending.stage, Stage::Recording(_))
            && self.port.engine.writes_flash()
    }

    /// It has ended, and starts nothing any more: its memory is free as soon as nothing under way uses it.
    fn let_go(&mut self, reactor: &mut Reactor) {
        self.storage.let_go(reactor, self.port.engine.is_idle());
        self.ending.is_freeing = true;
    }

    /// True while the memory of a disk that has ended goes back to the kernel.
    pub(super) fn is_freeing(&self) -> bool {
        self.ending.is_freeing
    }

    /// Gives some of it back. All at once takes the kernel 0.1 ms a MiB, for which other disks of the shard would wait: they wait
    /// for [`FREE_MAX`]. The disk is told to have ended after that: whoever opens it again has room for its memory then.
    pub(crate) fn free_some(&mut self, until: &mut Option<Instant>) {
        if !self.ending.is_freeing {
            return;
        }
        // With the process it goes by itself, and who still uses it has it until then.
        let is_shared = self.ending.daemon_ends || Arc::strong_count(&self.port.memory) > 1;
        let until = *until.get_or_insert_with(|| Instant::now() + FREE_MAX);
        self.ending.is_freeing = !is_shared;
        while self.ending.is_freeing && Instant::now() < until {
            let has_more = self.port.memory.give_back(0, AT_ONCE.into());
            self.ending.is_freeing = has_more.unwrap_or(false);
        }
        if !self.ending.is_freeing
            && let Ok(nothing) = Arena::new(1)
        {
            let memory = std::mem::replace(&mut self.port.memory, Arc::new(nothing));
            match self.ending.daemon_ends {
                true => free(memory),
                false => drop(memory),
            }
        }
    }

    /// True when what is under way need not be waited for.
    fn needs_no_more(&self) -> bool {
        let is_last = !self.ending.beneath && !self.is_detaching();
        self.is_safe_in_log() || is_last && self.port.engine.waits_for_dead_flash()
    }

    /// True when all that is missing is primary storage's, and the log will write it there again. What is still written to flash
    /// would change what a disk finds there that takes the place of this one.
    fn is_safe_in_log(&self) -> bool {
        let engine = &self.port.engine;
        let statistics = engine.statistics(Nanos(0));
        let is_durable = statistics.log.is_some_and(|log| log.is_durable);
        let leaves_flash = !(self.ending.beneath && engine.writes_flash());
        engine.mode().logs() && is_durable && statistics.requests_in_flight == 0 && leaves_flash
    }

    /// Nobody asks for it any more. `is_settled`: nobody has to hear once more how it ended.
    pub(crate) fn note_left(&mut self, is_settled: bool) {
        self.ending.left = Some(is_settled);
    }

    /// How it ended, once that is over and nobody has to do with it any more; whether nobody has to hear of it once more.
    pub(crate) fn gone(&self) -> Option<(Drained, bool)> {
        let is_settled = self.ending.left?;
        let is_gone = self.is_done()
            && !self.ending.beneath
            && self.port.engine.is_idle()
            && !self.waiting.is_any();
        let drained = if is_gone { self.drained() } else { None };
        Some((drained?, is_settled))
    }

    /// How it ended, once it has.
    pub(crate) fn drained(&self) -> Option<Drained> {
        match self.ending.stage {
            Stage::Done(_) if self.ending.is_freeing => None,
            Stage::Done(status) => {
                let statistics = self.port.engine.statistics(Nanos(0));
                let log = statistics.log.map(|log| LogEnd {
                    is_durable: log.is_durable,
                    is_clean: log.is_clean,
                    is_lost: log.is_lost,
                    is_revoked: self.port.engine.log_is_revoked(),
                    reads_failed: log.reads_failed,
                    dirty_bytes: log.dirty_bytes,
                });
                Some(Drained {
                    id: self.id,
                    name: self.name.to_string(),
                    status,
                    unflushed_bytes: statistics.unflushed_bytes,
                    has_unreported_loss: self.port.engine.has_untold_loss(),
                    log_end: self.port.engine.log_end(),
                    log,
                    is_detaching: self.is_detaching(),
                    is_quiet: self.port.engine.is_idle() && !self.storage.backend.holds_changes(),
                })
            }
            Stage::Serving | Stage::Draining | Stage::Flushing => None,
            Stage::Flushed(_) | Stage::Recording(_) => None,
        }
    }
}

/// A flush of primary storage.
pub(super) fn flush(id: IoId, arena: ArenaId) -> BackendIo {
    BackendIo { id, range: ByteRange::at(0, 0), op: IoOp::Flush, arena }
}
