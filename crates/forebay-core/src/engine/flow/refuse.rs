//! Who is refused when the log is lost, or the disk ends: what a crash takes back must be seen by nobody.
//!
//! ```text
//!   waits for a range, or for memory ─► refused ─┐
//!   waits for room in the log ─────────► refused ─┴─► ranges let go of what only memory has, or the log in part
//! ```
//! A write that was cut into several records counts when its last one is there; a write that a log failed under is in
//! memory alone. Both hold their range. Where they have to let it go, all that waits behind them goes before.

use crate::action::{Event, ReplyData};
use crate::cx::Cx;
use crate::engine::Parts;
use crate::requests::in_flight::{Job, Stage};
use crate::status::IoStatus;
use crate::table::Key;

impl Parts {
    /// The log is not written to any more. Whoever waits for it gets an error; the dirty bytes are drained.
    pub(in crate::engine) fn fail_log(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let Some(write_back) = &mut self.write_back else { return };
        let waited = write_back.fail(status, cx);
        // Those who waited for a mode with the log go on without it, as soon as all of it is on primary storage.
        write_back.note_room();
        write_back.end_hold(cx.now);
        // Writes wait for that.
        if write_back.pause_destaging(false) {
            cx.event(Event::DestagingResumed);
        }
        self.void_index(status, cx);
        let Some(write_back) = &mut self.write_back else { return };
        for (key, _) in waited {
            if !self.requests.table[key].answered {
                self.requests.answer(key, IoStatus::IoError, ReplyData::None, None, cx);
            }
            // A write keeps its range: its bytes would be lost with the process, so nobody may see them
            // before primary storage has them.
            match self.requests.table[key].job {
                Job::Flush => self.requests.forget(key, cx),
                _ => write_back.own(key),
            }
        }
    }

    /// Dirty bytes cannot be saved any more: nothing is served until an administrator decides.
    pub(in crate::engine) fn lose_log(&mut self, cx: &mut Cx<'_>) {
        let Some(write_back) = &mut self.write_back else { return };
        write_back.lose();
        let status = *self.refuses.get_or_insert(IoStatus::IoError);
        self.refuse_unstarted(status, cx);
        self.refuse_reads(status, cx);
        self.refuse_waiting(status, cx);
        self.release_owners(cx);
        // Each of those is refused, too.
        self.release_all_held(cx);
    }

    /// The disk ends or its log is lost: refuses what waits for room in the log, and
    /// what waits behind bytes that only the memory of a log that failed has. True when something did.
    pub(in crate::engine) fn refuse_at_the_end(&mut self, cx: &mut Cx<'_>) -> bool {
        let (Some(status), Some(log)) = (self.refuses, &self.write_back) else { return false };
        let waits_for_owners = log.has_owners();
        if log.first_waiting().is_none() && !waits_for_owners {
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
        let Some(write_back) = &self.write_back else { return };
        // Of what is cut into records the next start finds nothing, so nobody may read its first ones.
        if write_back.waiting().any(|key| self.is_in_log(key)) {
            self.refuse_unstarted(status, cx);
        }
        let Some(write_back) = &mut self.write_back else { return };
        for key in write_back.take_waiting() {
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
        self.requests.buffer_queue.clear();
        while let Some(key) = first(self) {
            self.requests.answer(key, status, ReplyData::None, None, cx);
            self.requests.forget(key, cx);
        }
    }

    /// Answers the reads that are under way: what they wait for on flash may never come.
    fn refuse_reads(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let is_read = |key: &Key| {
            let entry = &self.requests.table[*key];
            let reads = matches!(entry.job, Job::Read(_)) && entry.stage == Stage::Running;
            reads && !entry.answered
        };
        let reads: Vec<Key> =
            self.requests.table.iter().map(|(key, _)| key).filter(is_read).collect();
        for key in reads {
            self.requests.answer(key, status, ReplyData::None, None, cx);
            self.let_go(key, cx);
        }
    }

    /// A log that failed is empty, or lost: its last writes let their ranges go.
    pub(in crate::engine) fn release_owners(&mut self, cx: &mut Cx<'_>) {
        let Some(write_back) = &mut self.write_back else { return };
        for key in write_back.take_owners() {
            self.requests.forget(key, cx);
        }
    }
}
