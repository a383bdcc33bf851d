//! A log whose flash is dead: what memory has of it is destaged without notes, once no later start can go on with the log.
//!
//! ```text
//!              a note fails or hangs, and the log has failed
//!   None ──────────────────────────────────────────────────► Asked ─┬─ known ──────────────► Revoked: nothing is noted any more
//!                                                                   └─ not known, too late ► Kept: notes are tried on
//! ```
//! Notes tell a later start which records primary storage may have. Without them it would write old records over newer
//! bytes, if the flash came back to life: so it has to be known first, elsewhere than on flash, that the log there is
//! of the past. Where nothing else can know it (*Kept*), and notes fail on, the dirty bytes count as lost.

use super::Destager;
use crate::action::{Action, Event};
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::ids::Nanos;
use crate::status::IoStatus;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Revocation {
    None,
    Asked,
    Revoked,
    Kept,
}

impl Parts {
    /// A note failed, or hangs: if the log has failed, too, its flash is dead.
    pub(super) fn ask_to_revoke(&mut self, cx: &mut Cx<'_>) {
        let has_failed = self.log.as_ref().is_some_and(|log| log.failed.is_some());
        let until = cx.now.plus(cx.config.flash_timeout);
        let destager = self.destager();
        if has_failed && destager.revocation == Revocation::None {
            (destager.revocation, destager.noting_until) = (Revocation::Asked, until);
            cx.push(Action::Revoke);
        }
    }

    /// The answer to [`Action::Revoke`]: whether it is durably known that no later start may go on with the log.
    pub(in crate::engine) fn revoked(&mut self, known: bool, cx: &mut Cx<'_>) {
        let Some(destager) = &mut self.destager else { return };
        if destager.revocation != Revocation::Asked {
            // It took too long.
            return;
        }
        destager.revocation = if known { Revocation::Revoked } else { Revocation::Kept };
        (destager.retry_at, destager.pause) = (cx.now, super::RETRY_MIN);
        let event = if known { Event::LogRevoked } else { Event::LogNotRevoked };
        cx.event(event);
        self.run(cx);
    }

    /// True when nothing is noted any more.
    pub(super) fn is_revoked(&self) -> bool {
        self.destager.as_ref().is_some_and(|destager| destager.revocation == Revocation::Revoked)
    }

    /// A note that takes too long, or the answer to the question.
    pub(in crate::engine) fn time_out_note(&mut self, cx: &mut Cx<'_>) {
        if self.note_deadline() > cx.now {
            return;
        }
        if self.destager().revocation == Revocation::Asked {
            return self.revoked(false, cx);
        }
        if self.log.as_ref().expect("notes are of a log").failed.is_none() {
            self.fail_log(IoStatus::TimedOut, cx);
        }
        self.ask_to_revoke(cx);
    }

    /// When the note or the question under way has taken too long; never: there is none, or it does not matter any more.
    pub(super) fn note_deadline(&self) -> Nanos {
        let until = |destager: &Destager| match destager.revocation {
            Revocation::None if destager.noting.is_none() => Nanos::NEVER,
            Revocation::None | Revocation::Asked => destager.noting_until,
            Revocation::Revoked | Revocation::Kept => Nanos::NEVER,
        };
        self.destager.as_ref().map_or(Nanos::NEVER, until)
    }
}
