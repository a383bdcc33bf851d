//! What follows a batch: the flush of primary storage, the note of it, and the log that becomes free.

use super::batch::To;
use super::journal::Way;
use super::revoke::Revocation;
use super::{Beside, Course, Destager, Flushing, Notes, Part, Progress};
use crate::action::{Action, DestageFault, IoOp, Target};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Nanos, Sequence};
use crate::status::IoStatus;
use crate::write_back::log::hang_at;
use crate::write_back::{DestageIo, LogEvent, WriteBack};

/// Notes that fail in a row before the log counts as failed; the dirty bytes of one that did count as lost.
pub(in crate::write_back) const NOTE_FAILURES_MAX: u32 = 8;
/// Pages of the log from which on one call frees no further segment: some tenths of a millisecond.
const FREED_MAX: u32 = 4096;
/// Before more is freed: other disks of the shard have their turn.
const FREE_PAUSE: Nanos = Nanos::from_micros(10);

impl Destager {
    /// Every write of the batch has completed; the record that follows has waited since `oldest`.
    pub(super) fn end_batch(&mut self, oldest: Nanos, cx: &mut Cx<'_>) {
        self.epochs.on_end(cx.now, self.batch.began);
        self.reached.done = self.batch.limit();
        self.reached.done_mark = self.batch.end();
        self.batch.end_it();
        self.trouble.unread.clear();
        self.reached.oldest = oldest;
        self.flushes.unflushed_since = self.flushes.unflushed_since.min(cx.now);
        cx.counters.destage_batches += 1;
    }

    pub(super) fn note(&mut self, progress: Progress, cx: &mut Cx<'_>) {
        let Progress { flushed, through } = progress;
        (self.notes.noting, self.notes.until) =
            (Some(progress), cx.now.plus(cx.config.flash_timeout));
        cx.counters.note_write_bytes += PAGE;
        let op = IoOp::Progress { flushed, through };
        cx.start(Target::Log, ByteRange::default(), op, IoKind::Destager(DestageIo::Note));
    }
}

impl WriteBack {
    /// Flushes primary storage when that frees enough, nothing else is to be done, or it is time. `are_waiting`: somebody
    /// waits for room in the log, or for its end.
    pub(super) fn flush_destaged(&mut self, are_waiting: bool, cx: &mut Cx<'_>) {
        let is_unflushed = self.destager.reached.done > self.destager.reached.flushed;
        // Records of the journal are retired behind the flush, and what goes in place without it comes behind that.
        let leaves_journal = is_unflushed && self.way(cx.now) == Way::Nowhere;
        let destager = &mut self.destager;
        let waits = match destager.course {
            Course::Destages => {
                let is_asked_for = are_waiting || leaves_journal || destager.is_held(cx.now);
                let is_time = is_asked_for || destager.rest_at() <= cx.now;
                is_time && !destager.batch.is_active() && !destager.has_ahead()
            }
            // What is under way may be the end of a batch.
            Course::Finishes | Course::Stopped => destager.is_at_rest(),
        };
        let frees_enough = destager.unflushed_pages() >= destager.batch.unflushed_max() / 4;
        let is_due = waits || frees_enough || destager.settle_at() <= cx.now;
        let must_wait = destager.flushes.redo || !destager.may_settle(cx.now);
        if !is_unflushed || destager.flushes.flushing.is_some() || must_wait {
            return;
        }
        if !is_due && !self.log.config.barrier {
            return;
        }
        if self.flush_records(cx) {
            // What the log forgets then must not be overwritten by an older record: they are durable first.
            return;
        }
        let destager = &mut self.destager;
        let (done, mark) = (destager.reached.done, destager.reached.done_mark);
        destager.flushes.flushing = Some(Flushing { done, mark, began: cx.now });
        destager.flushes.unflushed_since = Nanos::NEVER;
        cx.counters.backend_flushes += 1;
        let kind = IoKind::Destager(DestageIo::Flush { session: destager.flushes.session });
        cx.start(Target::Backend, ByteRange::default(), IoOp::Flush, kind);
    }

    /// Primary storage is flushed, or not; true when it is, and that counts. `changes`: how many the cache has had.
    pub(crate) fn on_destage_flushed(
        &mut self,
        session: u64,
        status: IoStatus,
        changes: u64,
        cx: &mut Cx<'_>,
    ) -> bool {
        let destager = &mut self.destager;
        if destager.flushes.session != session {
            if !status.is_ok() {
                // It may have been sent again and failed in the present session, and taken what was written in it.
                destager.on_session_lost();
            }
            return false;
        }
        let Some(Flushing { done, mark, began }) = destager.flushes.flushing.take() else {
            unreachable!("a flush of this session")
        };
        if status.is_ok() {
            destager.flushes.took = cx.now.since(began);
            (destager.reached.flushed, destager.reached.tail) = (done, mark);
            destager.trouble.fault.take_if(|fault| *fault != DestageFault::Note);
            destager.reached.flushed_changes = changes;
            let last = self.log.last_sequence();
            self.log.told.ages.on_flushed(done, last);
            return true;
        }
        // What the failed flush may have lost is written again.
        cx.counters.destage_errors += 1;
        destager.trouble.fault = Some(DestageFault::PrimaryStorage);
        destager.flushes.redo = true;
        destager.batch.fail();
        destager.pause(cx.now);
        false
    }

    /// Makes sure that primary storage never goes back to older bytes, whenever a crash comes: that the records of
    /// the batch are noted as perhaps there, unless writing everything again that is not noted as flushed does no harm.
    pub(super) fn note_progress(
        &mut self,
        of: To,
        beside: &mut Beside<'_>,
        cx: &mut Cx<'_>,
    ) -> bool {
        let is_revoked = self.destager.is_revoked();
        let has_failed = self.log.health.failed.is_some();
        let batch = self.destager.batch_of(of);
        let (limit, batch_overwrites) = (batch.limit(), batch.overwrites);
        // Without a journal that makes it whole. After a crash in its middle all of it is written again, before anybody may
        // take primary storage for an image.
        let is_torn_by_crash = batch.mixes_epochs() && self.destager.journal.is_none();
        let is_part = limit > self.log.durable_whole() && !has_failed;
        if is_part && !self.is_part_recorded(limit, beside) {
            return false;
        }
        let destager = &mut self.destager;
        if is_revoked {
            destager.notes.noted.through = destager.notes.noted.through.max(limit);
        }
        let overwrites = has_failed
            || destager.notes.is_ahead
            || is_torn_by_crash
            || batch_overwrites > destager.notes.noted.flushed;
        if !overwrites || destager.notes.noted.through >= limit {
            destager.reached.sent = destager.reached.sent.max(limit);
            return true;
        }
        if destager.notes.noting.is_none() && destager.may_start(cx.now) {
            let (flushed, changes) = (destager.reached.flushed, destager.reached.flushed_changes);
            // Records stay as they are until the ring knows what they dropped from the cache.
            let is_recorded = beside.is_recorded(changes);
            let flushed = if is_recorded { flushed } else { self.destager.notes.noted.flushed };
            self.destager.note(Progress { flushed, through: limit }, cx);
        }
        false
    }

    /// True when the index knows durably what the records up to `limit` dropped from the cache. A start that finds a part of
    /// a request alone knows nothing of it.
    fn is_part_recorded(&mut self, limit: Sequence, beside: &mut Beside<'_>) -> bool {
        let notes = &mut self.destager.notes;
        if notes.part.through < limit {
            notes.part = Part { through: limit, changes: beside.cache.changes() };
        }
        beside.is_recorded(notes.part.changes)
    }

    /// True when one copy of the last note may say that records are yet to be written which are needed no more: guests are about
    /// to write past them, as the log is to be left, or a segment with them is to be free.
    pub(super) fn lacks_second_note(&self) -> bool {
        let notes = &self.destager.notes;
        let flushed = notes.noted.flushed;
        if self.destager.is_revoked() || notes.twice >= flushed {
            return false;
        }
        let is_left = self.log.wants.forgets_when_clean && flushed >= self.log.last_sequence();
        // Whoever still reads that is sent to primary storage from then on, and does not keep it.
        is_left || self.log.segments.oldest_is_needless(flushed, self.log.renews())
    }

    /// Up to which record the log is needed no more, whichever copy of the progress a start finds.
    fn unneeded(&self) -> Sequence {
        let Notes { noted, twice, .. } = &self.destager.notes;
        if self.destager.is_revoked() { noted.flushed } else { *twice }
    }

    /// Notes at once that a lost session or a failed flush may have taken any part of what is not flushed: also a start that
    /// comes before it is written again must not take primary storage for an image.
    #[cold]
    pub(super) fn note_loss(&mut self, cx: &mut Cx<'_>) {
        let destager = &mut self.destager;
        let may_retry = destager.course != Course::Stopped && cx.now >= destager.trouble.retry_at;
        let is_due = destager.notes_a_loss_at_once() || may_retry && destager.hides_a_loss();
        if is_due && destager.notes.noting.is_none() && !self.log.health.is_lost {
            let (flushed, through) = (destager.notes.noted.flushed, destager.perhaps_there());
            destager.note(Progress { flushed, through }, cx);
        }
    }

    /// Notes what was flushed, when no batch is about to.
    pub(super) fn note_flushed_progress(&mut self, beside: &mut Beside<'_>, cx: &mut Cx<'_>) {
        let lacks_second = self.lacks_second_note();
        let destager = &mut self.destager;
        if destager.is_revoked() {
            destager.notes.noted.flushed = destager.reached.flushed;
            return;
        }
        let notes = &destager.notes;
        let is_behind = notes.noted.flushed < destager.reached.flushed;
        let behind = notes.is_ahead || is_behind || lacks_second;
        let waits = notes.noting.is_some() || !destager.may_settle(cx.now);
        if !behind || waits || !beside.is_recorded(destager.reached.flushed_changes) {
            return;
        }
        let flushed = destager.reached.flushed;
        let through = destager.notes.noted.through.max(flushed);
        destager.note(Progress { flushed, through }, cx);
    }

    /// Progress is noted, or not.
    pub(crate) fn on_destage_noted(&mut self, status: IoStatus, cx: &mut Cx<'_>) -> LogEvent {
        let destager = &mut self.destager;
        let noting = destager.notes.noting.take().expect("its own I/O");
        if destager.is_revoked() {
            return LogEvent::Nothing;
        }
        if status.is_ok() {
            let other = destager.notes.noted.flushed.min(noting.flushed);
            destager.notes.twice = if destager.notes.is_ahead { Sequence(0) } else { other };
            (destager.notes.noted, destager.notes.is_ahead) = (noting, false);
            destager.notes.failures = 0;
            destager.trouble.fault.take_if(|fault| *fault == DestageFault::Note);
            return LogEvent::Nothing;
        }
        self.on_note_failed(noting, status, cx)
    }

    /// A note failed, or takes too long.
    pub(super) fn on_note_failed(
        &mut self,
        noting: Progress,
        status: IoStatus,
        cx: &mut Cx<'_>,
    ) -> LogEvent {
        let is_second = noting == self.destager.notes.noted && self.lacks_second_note();
        let destager = &mut self.destager;
        // While it is asked whether they are needed at all, none is one too many.
        destager.notes.failures += u32::from(destager.notes.revocation != Revocation::Asked);
        // Without notes nothing is destaged: try again, as after an error of primary storage.
        let is_hopeless = destager.notes.failures >= NOTE_FAILURES_MAX;
        cx.counters.destage_errors += 1;
        destager.note_fault(DestageFault::Note, status, cx);
        destager.pause(cx.now);
        if is_hopeless && is_second {
            // The first one says it. No log fails for a copy.
            (destager.notes.twice, destager.notes.failures) = (destager.notes.noted.flushed, 0);
            destager.trouble.fault.take_if(|fault| *fault == DestageFault::Note);
            return LogEvent::Nothing;
        }
        if is_hopeless && self.log.health.failed.is_none() {
            // Nothing is freed, and the mode does not change: writers would wait for ever.
            LogEvent::Fails(status)
        } else if is_hopeless && destager.notes.revocation == Revocation::Kept {
            LogEvent::Lost
        } else {
            LogEvent::Nothing
        }
    }

    /// Frees segments whose records are flushed, and that is noted twice, a few at a time. Where the pool has no segment the log
    /// goes on in one of them: who gets what it gives back is not sure.
    pub(crate) fn free_log(&mut self, cx: &mut Cx<'_>) {
        let is_revoked = self.destager.is_revoked();
        let unneeded = self.unneeded();
        let log = &mut self.log;
        if cx.now < log.segments.frees_at() {
            return;
        }
        let mut pages = 0;
        loop {
            let renews = log.renews();
            let Some(last) = log.segments.oldest_is_free(unneeded, renews) else { break };
            if renews && log.segments.waits_for_lease() {
                break;
            }
            if pages >= FREED_MAX {
                return log.segments.pause_freeing(cx.now.plus(FREE_PAUSE));
            }
            pages += log.forget_segment(last);
            let id = log.segments.free_oldest();
            if renews {
                log.segments.begin_renewal(hang_at(cx));
                cx.push(Action::Renew(id));
            } else if !is_revoked {
                // What is on dead flash stays as it is, for whoever has to save something.
                cx.push(Action::Unlease(id));
            }
        }
        let waits = !log.segments.has_no_reader() && self.forgets_at() > cx.now;
        let has_any = !self.log.index.is_empty() || self.log.health.failed.is_some();
        if has_any && self.forgets_all() && !waits {
            self.log.forget_all(cx);
        }
    }

    /// True when primary storage has all that the log holds of `range`, and reads keep the log from freeing what nobody
    /// needs any more: reads one after the other would do so for ever.
    pub(crate) fn is_left_to_storage(&self, range: ByteRange) -> bool {
        let log = &self.log;
        let flushed = self.destager.notes.noted.flushed;
        let waits_for_reads = log.segments.oldest_waits_for_reads(self.unneeded(), log.renews())
            || self.forgets_all() && !log.segments.has_no_reader();
        waits_for_reads && log.index.touches(range) && !log.index.touches_after(range, flushed)
    }

    /// True when all of the log is to be forgotten, once nobody reads it.
    pub(in crate::write_back) fn forgets_all(&self) -> bool {
        let log = &self.log;
        let forgets = log.index.has_zeroes() || log.wants.forgets_when_clean;
        let is_clean = self.destager.notes.noted.flushed >= log.last_sequence();
        forgets && is_clean && log.is_quiet()
    }

    /// The log is left, or entered: whether its index is emptied as soon as primary storage has everything.
    pub(crate) fn forget_when_clean(&mut self, forgets: bool) {
        self.log.wants.forgets_when_clean = forgets;
    }

    /// True when nothing of the log is left that a mode without one would miss.
    pub(crate) fn is_left(&self) -> bool {
        let is_quiet = self.log.is_quiet() && self.log.index.is_empty();
        let is_noted = self.unneeded() >= self.log.last_sequence();
        self.is_clean() && is_noted && is_quiet && self.acknowledgements.is_empty()
    }
}
