//! Who is refused when the log is lost, or the disk ends: what a crash takes back must be seen by nobody.
//!
//! ```text
//!   waits for a range, or for memory ─► refused ─┐
//!   waits for room in the log ─────────► refused ─┴─► ranges let go of what only memory has, or the log in part
//! ```
//! A write that was cut into several records counts when its last one is there; a write that a log failed under is in
//! memory alone. Both hold their range. Where they have to let it go, all that waits behind them goes before.

use crate::action::ReplyData;
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::requests::in_flight::Stage;
use crate::status::IoStatus;
use crate::table::Key;

impl Parts {
    /// Dirty bytes cannot be saved any more: nothing is served until an administrator decides.
    pub(in crate::engine) fn lose_log(&mut self, cx: &mut Cx<'_>) {
        let Some(log) = &mut self.log else { return };
        log.is_lost = true;
        let status = *self.refuses.get_or_insert(IoStatus::IoError);
        self.destager().stop();
        self.refuse_unstarted(status, cx);
        self.refuse_waiting(status, cx);
        self.release_owners(cx);
    }

    /// The disk ends or its log is lost, and nothing is destaged any more: refuses what waits for room in the log, and
    /// what waits behind bytes that only the memory of a log that failed has. True when something did.
    pub(in crate::engine) fn refuse_at_the_end(&mut self, cx: &mut Cx<'_>) -> bool {
        let (Some(status), Some(log)) = (self.refuses, &self.log) else { return false };
        let waits_for_owners = log.failed.is_some() && !log.owners.is_empty();
        if log.wait_room.is_empty() && !waits_for_owners {
            return false;
        }
        if waits_for_owners {
            self.refuse_unstarted(status, cx);
            self.release_owners(cx);
        }
        self.refuse_waiting(status, cx);
        true
    }

    /// Answers what waits for room in the log, and lets it go.
    pub(in crate::engine) fn refuse_waiting(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let Some(log) = &self.log else { return };
        // Of what is cut into records the next start finds nothing, so nobody may read its first ones.
        if log.wait_room.iter().any(|&key| self.is_in_log(key)) {
            self.refuse_unstarted(status, cx);
        }
        let log = self.log.as_mut().expect("there is a log");
        for key in std::mem::take(&mut log.wait_room) {
            if !self.requests.table[key].answered {
                self.requests.answer(key, status, ReplyData::None, None, cx);
            }
            self.requests.forget(key, cx);
        }
    }

    /// Answers what waits for its range or for memory, and lets it go.
    fn refuse_unstarted(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let waits = |stage: Stage| match stage {
            Stage::Overlap | Stage::Buffer => true,
            Stage::Running | Stage::Flush | Stage::Intent => false,
            Stage::Room | Stage::Logged | Stage::Durable | Stage::Throttled => false,
        };
        let first = |engine: &Parts| -> Option<Key> {
            let mut requests = engine.requests.table.iter();
            requests.find(|(_, request)| waits(request.stage)).map(|(key, _)| key)
        };
        self.requests.buffer_waiters.clear();
        while let Some(key) = first(self) {
            self.requests.answer(key, status, ReplyData::None, None, cx);
            self.requests.forget(key, cx);
        }
    }

    /// A log that failed is empty, or lost: its last writes let their ranges go.
    pub(in crate::engine) fn release_owners(&mut self, cx: &mut Cx<'_>) {
        let Some(log) = &mut self.log else { return };
        for key in std::mem::take(&mut log.owners) {
            self.requests.forget(key, cx);
        }
    }
}
