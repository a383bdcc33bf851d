//! What follows a batch: the flush of primary storage, the note of it, and the log that becomes free.

use super::revoke::Revocation;
use super::{Course, Flushing, Progress};
use crate::action::{Action, DestageFault, IoOp, Target};
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::engine::io::IoKind;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::status::IoStatus;

/// Notes that fail in a row before the log counts as failed; the dirty bytes of one that did count as lost.
const NOTE_FAILURES_MAX: u32 = 8;

impl Parts {
    /// Every write of the batch has completed.
    pub(super) fn end_batch(&mut self, cx: &mut Cx<'_>) {
        let destager = self.destager();
        destager.epochs.on_end(cx.now, destager.began);
        destager.done = destager.batch.limit();
        destager.done_mark = destager.batch.end();
        destager.batch.end_it();
        destager.oldest = Nanos::NEVER;
        destager.unflushed_since = destager.unflushed_since.min(cx.now);
        cx.counters.destage_batches += 1;
    }

    /// Flushes primary storage when that frees enough, nothing else is to be done, or it is time.
    pub(super) fn flush_destaged(&mut self, cx: &mut Cx<'_>) {
        let log = self.log.as_ref().expect("there is a log");
        let barrier = log.config.barrier;
        let destager = self.destager.as_ref().expect("a log has a destager");
        let waits = match destager.course {
            Course::Destages => !destager.batch.is_active(),
            // What is under way may be the end of a batch.
            Course::Finishes | Course::Stopped => destager.is_at_rest(),
        };
        let frees_enough = destager.unflushed_pages() >= destager.batch.unflushed_max() / 4;
        let is_due = waits || frees_enough || destager.settle_at() <= cx.now;
        let must_wait = destager.redo || !destager.may_settle(cx.now);
        if destager.done <= destager.flushed || destager.flushing.is_some() || must_wait {
            return;
        }
        if !is_due && !barrier {
            return;
        }
        let (done, mark) = (destager.done, destager.done_mark);
        let destager = self.destager();
        destager.flushing = Some(Flushing { done, mark, began: cx.now });
        destager.unflushed_since = Nanos::NEVER;
        cx.counters.backend_flushes += 1;
        let session = self.destager().session;
        let kind = IoKind::DestageFlush { session };
        let nothing = ByteRange::default();
        cx.start(Target::Backend, nothing, IoOp::Flush, kind);
    }

    /// Primary storage is flushed, or not.
    pub(in crate::engine) fn on_destage_flushed(
        &mut self,
        session: u64,
        status: IoStatus,
        cx: &mut Cx<'_>,
    ) {
        let destager = self.destager();
        if destager.session != session {
            if !status.is_ok() {
                // It may have been sent again and failed in the present session, and taken what was written in it.
                self.destage_session_lost();
            }
            return;
        }
        let flushing = destager.flushing.take().expect("a flush of this session");
        let Flushing { done, mark, began } = flushing;
        if status.is_ok() {
            destager.flush_took = cx.now.since(began);
            (destager.flushed, destager.tail) = (done, mark);
            destager.fault = None;
            self.destager().flushed_changes = self.cache.changes();
            let log = self.log.as_mut().expect("there is a log");
            let last = log.last_sequence();
            log.ages.on_flushed(done, last);
            self.primary.flush.note_destage_flushed();
            return;
        }
        // What the failed flush may have lost is written again.
        cx.counters.destage_errors += 1;
        let destager = self.destager();
        destager.fault = Some(DestageFault::PrimaryStorage);
        destager.redo = true;
        destager.batch.fail();
        destager.retry_at = cx.now.plus(destager.pause);
        destager.pause = Nanos(destager.pause.0 * 2).min(super::RETRY_MAX);
    }

    /// Notes what was flushed, when no batch is about to.
    pub(super) fn note_flushed_progress(&mut self, cx: &mut Cx<'_>) {
        let is_revoked = self.is_revoked();
        let destager = self.destager();
        if is_revoked {
            destager.noted.flushed = destager.flushed;
            return;
        }
        let behind = destager.noted.flushed < destager.flushed;
        let waits = destager.noting.is_some() || !destager.may_settle(cx.now);
        let changes = destager.flushed_changes;
        if !behind || waits || !self.is_recorded(changes) {
            return;
        }
        let destager = self.destager();
        let flushed = destager.flushed;
        let progress = Progress { flushed, through: destager.noted.through.max(flushed) };
        self.note(progress, cx);
    }

    pub(super) fn note(&mut self, progress: Progress, cx: &mut Cx<'_>) {
        let Progress { flushed, through } = progress;
        let until = cx.now.plus(cx.config.flash_timeout);
        let destager = self.destager();
        (destager.noting, destager.noting_until) = (Some(progress), until);
        let nothing = ByteRange::default();
        let op = IoOp::Progress { flushed, through };
        cx.start(Target::Log, nothing, op, IoKind::DestageNote);
    }

    /// Progress is noted, or not.
    pub(in crate::engine) fn on_destage_noted(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let destager = self.destager();
        let noting = destager.noting.take().expect("its own I/O");
        if self.is_revoked() {
            return;
        }
        let destager = self.destager();
        if status.is_ok() {
            (destager.noted, destager.is_noted_ahead) = (noting, false);
            destager.note_failures = 0;
            destager.fault.take_if(|fault| *fault == DestageFault::Note);
            return;
        }
        destager.note_failures += 1;
        // Without notes nothing is destaged: try again, as after an error of primary storage.
        let is_hopeless = destager.note_failures >= NOTE_FAILURES_MAX;
        cx.counters.destage_errors += 1;
        self.note_destage_fault(DestageFault::Note, status, cx);
        let destager = self.destager();
        destager.retry_at = cx.now.plus(destager.pause);
        destager.pause = Nanos(destager.pause.0 * 2).min(super::RETRY_MAX);
        let has_failed = self.log.as_ref().expect("there is a log").failed.is_some();
        if is_hopeless && !has_failed {
            // Nothing is freed, and the mode does not change: writers would wait for ever.
            self.fail_log(status, cx);
        } else if is_hopeless && self.destager().revocation == Revocation::Kept {
            self.lose_log(cx);
        }
        self.ask_to_revoke(cx);
    }

    /// Frees segments whose records are flushed, and that is noted.
    pub(in crate::engine) fn free_log(&mut self, cx: &mut Cx<'_>) {
        let is_revoked = self.is_revoked();
        let flushed = self.destager().noted.flushed;
        let log = self.log.as_mut().expect("there is a log");
        while let Some(last) = log.segments.oldest_is_free(flushed) {
            log.forget_segment(last);
            let id = log.segments.free_oldest();
            // What is on dead flash stays as it is, for whoever has to save something.
            if !is_revoked {
                cx.push(Action::Unlease(id));
            }
        }
        let forgets = log.index.has_zeroes() || log.forgets_when_clean;
        let is_clean = flushed >= log.last_sequence() && log.is_quiet();
        if forgets && is_clean && log.segments.has_no_reader() {
            log.forget_all();
        }
    }
}
