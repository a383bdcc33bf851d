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
use crate::cx::Cx;
use crate::write_back::WriteBack;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fullness {
    /// Nobody is slowed.
    #[default]
    Room,
    /// Writers are slowed.
    Throttles,
    /// Writers wait.
    Full,
}

impl WriteLog {
    /// True when a request waits, and there is no segment for it nor will there be one before something is destaged, or
    /// the pool has one.
    fn is_full(&self) -> bool {
        !self.waiting.room.is_empty() && self.segment_is_full() && self.segments.can_have_no_more()
    }

    /// True when a request waits, and the log has all zero records that it may have.
    pub(in crate::write_back) fn has_zeroes_waiting(&self) -> bool {
        !self.waiting.room.is_empty() && self.index.zeroes_are_full()
    }

    /// True when writes wait for room. They pass zeroes that wait for others to go.
    pub(super) fn has_writers_waiting(&self) -> bool {
        !self.waiting.room.is_empty() && (!self.index.zeroes_are_full() || self.is_full())
    }
}

impl WriteBack {
    /// True when writes wait because the log, which works, is full.
    pub(crate) fn is_full(&self) -> bool {
        self.log.health.failed.is_none() && self.log.is_full()
    }

    /// Tells when writers begin to be slowed, when they wait (`waits`), and when neither is so any more.
    pub(crate) fn note_fullness(&mut self, waits: bool, cx: &mut Cx<'_>) {
        let fill = self.fill();
        let threshold = u64::from(self.log.config.throttle_percent);
        let has_room = u128::from(fill.dirty) * 500 < u128::from(fill.capacity * threshold) * 4;
        let was = self.log.told.fullness;
        let is = if waits {
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
        // One that goes on in its only segment is full, and empty, over and over.
        let goes_round = self.log.renews() && self.has_waited(cx.now, cx.config.backend_timeout);
        if is == Fullness::Room && goes_round {
            return;
        }
        self.log.told.fullness = is;
        cx.event(match is {
            Fullness::Room => Event::LogHasRoom,
            Fullness::Throttles => Event::LogThrottles,
            Fullness::Full => Event::LogFull,
        });
    }
}
