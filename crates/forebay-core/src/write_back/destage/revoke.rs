//! A log whose flash is dead: what memory has of it is destaged without notes, once no later start can go on with the log.
//!
//! ```text
//!              a note fails or hangs, and the log has failed
//!   None ──────────────────────────────────────────────────► Asked ─┬─ known ──────────────► Revoked: nothing is noted any more
//!                                                                   └─ not known, too late ► Kept: notes are tried on
//!                                                                                              │ known after all ► Revoked
//! ```
//! Notes tell a later start which records primary storage may have. Without them it would write old records over newer
//! bytes, if the flash came back to life: so it has to be known first, elsewhere than on flash, that the log there is
//! of the past. Where nothing else can know it (*Kept*), and notes fail on, the dirty bytes count as lost.

use super::Destager;
use crate::action::{Action, DestageFault, Event};
use crate::cx::Cx;
use crate::ids::Nanos;
use crate::status::IoStatus;
use crate::write_back::{LogEvent, WriteBack};

/// What takes too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateNote {
    /// A note of progress.
    Note,
    /// The answer whether the log is revoked.
    Answer,
}

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revocation {
    None,
    Asked,
    Revoked,
    Kept,
}

impl Destager {
    /// True when nothing is noted any more.
    pub(in crate::write_back) fn is_revoked(&self) -> bool {
        self.notes.revocation == Revocation::Revoked
    }

    /// True from the moment on when it is asked whether the log is revoked.
    pub(in crate::write_back) fn was_asked_to_revoke(&self) -> bool {
        self.notes.revocation != Revocation::None
    }

    /// When the note or the question under way has taken too long; never: there is none, or it does not matter any more.
    pub(super) fn note_deadline(&self) -> Nanos {
        match self.notes.revocation {
            Revocation::Asked => self.notes.answer_until,
            Revocation::None | Revocation::Kept if self.notes.noting.is_some() => self.notes.until,
            Revocation::None | Revocation::Kept | Revocation::Revoked => Nanos::NEVER,
        }
    }
}

impl WriteBack {
    /// A note failed, or hangs: if the log has failed, too, its flash is dead.
    pub(crate) fn ask_to_revoke(&mut self, cx: &mut Cx<'_>) {
        // The answer is written beside primary storage.
        let until = cx.now.plus(cx.config.backend_timeout);
        let destager = &mut self.destager;
        if self.log.health.failed.is_some() && destager.notes.revocation == Revocation::None {
            (destager.notes.revocation, destager.notes.answer_until) = (Revocation::Asked, until);
            cx.push(Action::Revoke);
        }
    }

    /// The answer to [`Action::Revoke`]: whether it is durably known that no later start may go on with the log. False:
    /// nobody waits for it any more.
    pub(crate) fn on_revoked(&mut self, known: bool, cx: &mut Cx<'_>) -> bool {
        let (destager, is_lost) = (&mut self.destager, self.log.health.is_lost);
        destager.notes.revocation = match destager.notes.revocation {
            Revocation::Asked if !known => Revocation::Kept,
            // It took long, and is as good as in time.
            Revocation::Asked | Revocation::Kept if known && !is_lost => Revocation::Revoked,
            _ => return false,
        };
        (destager.trouble.retry_at, destager.trouble.pause) = (cx.now, super::RETRY_MIN);
        destager.notes.failures = 0;
        // Nothing is noted any more.
        destager.trouble.fault.take_if(|fault| known && *fault == DestageFault::Note);
        cx.event(if known { Event::LogRevoked } else { Event::LogNotRevoked });
        true
    }

    /// A note hangs, and nothing else tells a later start what it would: as good as failed, once more.
    pub(crate) fn on_late_note(&mut self, cx: &mut Cx<'_>) -> LogEvent {
        let notes = &mut self.destager.notes;
        notes.until = cx.now.plus(cx.config.flash_timeout);
        match notes.noting {
            Some(noting) if notes.revocation == Revocation::Kept => {
                self.on_note_failed(noting, IoStatus::TimedOut, cx)
            }
            Some(_) | None => LogEvent::Nothing,
        }
    }

    /// What is late, if anything: a note, or the answer to the question.
    pub(crate) fn late_note(&self, now: Nanos) -> Option<LateNote> {
        let is_late = self.destager.note_deadline() <= now;
        let asked = self.destager.notes.revocation == Revocation::Asked;
        is_late.then_some(if asked { LateNote::Answer } else { LateNote::Note })
    }
}
