//! What the destager does next, and when time alone may change that.

use super::batch::To;
use super::throttle::{Aim, Fill};
use crate::cx::Cx;
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::write_back::{Beside, WriteBack};

/// What drives destaging beside what is in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drive {
    /// The log is emptied for good.
    pub is_draining: bool,
    /// The disk ends, and is destaged first.
    pub is_ending: bool,
    /// New writes go into the log, and wait for room where it is full.
    pub takes_writes: bool,
}

impl WriteBack {
    /// Does what can be done now; called whenever something has changed.
    pub(crate) fn destage(&mut self, drive: Drive, beside: &mut Beside<'_>, cx: &mut Cx<'_>) {
        // What only the memory of a failed log has must not reach primary storage while a cache that does not
        // know of it might be believed.
        if self.log.health.failed.is_some() && beside.is_voiding() {
            return;
        }
        // What is left is noted for that at once.
        self.log.wants.forgets_when_clean |= drive.is_draining;
        self.free_log(cx);
        self.note_restored_age(cx.now);
        let waits_for_room = drive.takes_writes && self.is_full();
        let are_waiting = self.is_throttled()
            || waits_for_room
            || self.log.has_zeroes_waiting()
            || drive.is_draining
            || drive.is_ending;
        self.destager.window.on_writers(are_waiting);
        if self.destager.flushes.redo {
            self.note_loss(cx);
        }
        loop {
            self.advance_journal(drive, beside, cx);
            if !self.destager.batch.is_active() && !self.begin_batch(drive, cx) {
                break;
            }
            if !self.note_progress(To::Place, beside, cx) {
                break;
            }
            if self.destager.is_held(cx.now) {
                // Who wants primary storage left alone waits for what has begun.
                self.destager.window.on_writers(true);
            }
            if !self.write_batch(beside, cx) {
                break;
            }
        }
        self.flush_destaged(are_waiting, cx);
        self.note_flushed_progress(beside, cx);
        self.note_idle(cx.now);
    }

    /// What an earlier run left ages from now on.
    fn note_restored_age(&mut self, now: Nanos) {
        let (log, flushed) = (&mut self.log, self.destager.reached.flushed);
        if log.told.ages.oldest().is_none() && flushed < log.reached.written.sequence {
            log.told.ages.on_append(now, flushed.plus(1));
        }
    }

    /// When time alone may change something, of what was not due yet at `since`.
    pub(crate) fn destage_deadline(&self, since: Nanos) -> Nanos {
        let (destager, log) = (&self.destager, &self.log);
        let has_dirty = destager.notes.noted.flushed < log.reached.written.sequence
            || destager.notes.is_ahead && !destager.is_revoked()
            || self.lacks_second_note()
            || !destager.is_retired();
        let later = |time: Nanos| if time > since { time } else { Nanos::NEVER };
        let note = destager.note_deadline().min(later(log.segments.frees_at()));
        let flush = later(destager.rest_at()).min(later(destager.settle_at()));
        if !destager.goes_on() || !has_dirty {
            let settles =
                destager.has_to_settle() || destager.goes_on_noting() || self.lacks_second_note();
            let settle = flush.min(later(destager.trouble.retry_at));
            return if settles { note.min(settle) } else { note };
        }
        let oldest = destager.reached.oldest;
        let delayed = oldest.plus(log.config.destage_delay);
        let yielded = oldest.plus(log.config.destage_yield);
        let start = later(destager.hold.until)
            .min(later(destager.trouble.retry_at))
            .min(later(destager.window.next_allowed()));
        start.min(later(delayed)).min(later(yielded)).min(flush).min(note)
    }

    /// The session of primary storage ended: what was not flushed is written again.
    pub(crate) fn on_session_lost(&mut self) {
        self.destager.on_session_lost();
    }

    /// A read of the guest goes to primary storage, or came back from there after so long.
    pub(crate) fn note_guest_read_start(&mut self, now: Nanos) {
        self.destager.window.on_guest_read_start(now);
    }

    pub(crate) fn note_guest_read(&mut self, now: Nanos, latency: Nanos) {
        self.destager.window.on_guest_read(now, latency);
    }

    /// Destages nothing until told to go on, or goes on; true when that is a change.
    pub(crate) fn pause_destaging(&mut self, pause: bool) -> bool {
        std::mem::replace(&mut self.destager.hold.paused, pause) != pause
    }

    pub(in crate::write_back) fn fill(&self) -> Fill {
        // What was destaged and is not free yet takes room, too, but comes back with the next flush.
        Fill { dirty: self.occupied_bytes(), capacity: self.log.segments.pages_there() * PAGE }
    }

    /// True when writers are slowed.
    pub(in crate::write_back) fn is_throttled(&self) -> bool {
        self.destager.throttle.excess(self.fill()) > 0.0
    }

    /// When a write that could be acknowledged since `ready` may be.
    pub(crate) fn throttle_due(&self, ready: Nanos, bytes: u64, aim: Aim) -> Nanos {
        let destager = &self.destager;
        destager.throttle.due(ready, bytes, self.fill(), aim, &destager.window.destaging())
    }

    fn note_idle(&mut self, now: Nanos) {
        // Records of zeroes have no bytes.
        let (last, destager) = (self.log.last_sequence(), &mut self.destager);
        if destager.running.outstanding > 0 {
            return;
        }
        let is_done = destager.reached.done >= last;
        if is_done {
            destager.reached.oldest = Nanos::NEVER;
        }
        // The speed is that of destaging, and not of a pause.
        if is_done
            || !destager.goes_on()
            || destager.is_held(now)
            || destager.trouble.retry_at > now
        {
            destager.window.on_idle(now);
        }
    }
}
