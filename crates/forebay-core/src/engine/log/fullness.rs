//! How full the log is, as events for an administrator.
//!
//! ```text
//!            above the threshold        a writer waits for room
//!   ┌─ Room ─────────────────────► Throttles ─────────────────► Full ─┐
//!   └─◄──── below 4/5 of the threshold ◄──────────────────────────────┘
//! ```
//! A log under load moves about the throttle's set point, and a full one has room for a write again and again; so
//! nothing is said before it is clearly below the threshold again.

use super::WriteLog;
use crate::action::Event;
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Fullness {
    /// Nobody is slowed.
    #[default]
    Room,
    /// Writers are slowed.
    Throttles,
    /// Writers wait.
    Full,
}

impl WriteLog {
    /// True when a write waits, and there is no segment for it nor will there be one before something is destaged, or
    /// the pool has one.
    pub(in crate::engine) fn is_full(&self) -> bool {
        let has_none = self.segment_is_full() && self.segments.can_have_no_more();
        !self.wait_room.is_empty() && (has_none || self.index.zeroes_are_full())
    }
}

impl Parts {
    /// True when writes wait because the log is full, and not for a change of mode.
    pub(in crate::engine) fn waits_for_room(&self, shared: &Shared) -> bool {
        let is_full = self.log.as_ref().is_some_and(|log| log.failed.is_none() && log.is_full());
        is_full && self.mode.logs() && !self.holds_writes(shared)
    }

    /// Tells when writers begin to be slowed, when they wait, and when neither is so any more.
    pub(in crate::engine) fn note_fullness(&mut self, cx: &mut Cx<'_>) {
        let fill = self.fill();
        let threshold =
            u64::from(self.log.as_ref().expect("there is a log").config.throttle_percent);
        let has_room = u128::from(fill.dirty) * 500 < u128::from(fill.capacity * threshold) * 4;
        let was = self.log.as_ref().expect("there is a log").fullness;
        let is = if self.waits_for_room(cx) {
            Fullness::Full
        } else if has_room {
            Fullness::Room
        } else if self.is_throttled() {
            was.max(Fullness::Throttles)
        } else {
            was
        };
        if is == was {
            return;
        }
        self.log.as_mut().expect("there is a log").fullness = is;
        cx.event(match is {
            Fullness::Room => Event::LogHasRoom,
            Fullness::Throttles => Event::LogThrottles,
            Fullness::Full => Event::LogFull,
        });
    }
}
