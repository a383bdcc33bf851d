//! Requests that go into the log, one after the other in the order of their turn, as there is room.
//!
//! They hold their range meanwhile. When the mode changes to one without a log, those that wait go on in
//! the new mode, from their beginning; one whose time was over ends, with what of it was in the log.

use super::super::Engine;
use super::super::inflight::{Job, Stage, ZeroKind};
use crate::action::Actions;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::table::Key;

impl Engine {
    /// The request's range is its own; it is appended when its turn comes.
    pub(in crate::engine) fn wait_for_room(&mut self, key: Key) {
        self.requests[key].stage = Stage::Room;
        let log = self.log.as_mut().expect("the mode has a log");
        log.wait_room.push_back(key);
        log.room_changed = true;
    }

    /// Appends what waits, as far as there is room; true when something moved.
    pub(in crate::engine) fn append_waiting(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        let log = self.log.as_mut().expect("there is a log");
        if !std::mem::take(&mut log.room_changed) {
            return false;
        }
        let before = log.last_sequence();
        let mut moved = false;
        while let Some(&key) = self.log.as_ref().and_then(|log| log.wait_room.front()) {
            if self.holds_writes() {
                break;
            }
            if self.mode.logs() && !self.append(now, key, actions) {
                break;
            }
            self.log.as_mut().expect("there is a log").wait_room.pop_front();
            if !self.mode.logs() {
                match self.requests[key].answered {
                    true => self.forget(key),
                    false => {
                        // Primary storage has all of its time.
                        self.request_deadlines.push(key, now.plus(self.config.backend_timeout));
                        self.ready.push_back(key);
                    }
                }
            }
            moved = true;
        }
        let log = self.log.as_mut().expect("there is a log");
        if !log.wait_room.is_empty() {
            log.waited_until = Some(Nanos::NEVER);
        } else if log.waited_until == Some(Nanos::NEVER) {
            log.waited_until = Some(now);
        }
        // A part of a request is something to commit, too.
        moved || self.log.as_ref().is_some_and(|log| log.last_sequence() > before)
    }

    /// Appends the request, or more of it; true when all of it is in the log.
    fn append(&mut self, now: Nanos, key: Key, actions: &mut Actions) -> bool {
        match self.requests[key].job {
            Job::Write(_) => self.append_write(now, key, actions),
            Job::Zero(_) => self.append_zeroes(now, key, actions),
            Job::Read(_) | Job::Flush | Job::Allocation => unreachable!("it changes nothing"),
        }
    }

    fn append_write(&mut self, now: Nanos, key: Key, actions: &mut Actions) -> bool {
        let entry = self.requests[key];
        let Job::Write(mut job) = entry.job else { unreachable!("a write") };
        let buffer = entry.buffer.expect("a write has a buffer");
        let rest = ByteRange::new(job.cursor, entry.range.end);
        let log = self.log.as_mut().expect("there is a log");
        let cursor = log.append_write(now, rest, buffer, actions);
        let group = log.last_appended();
        if cursor < entry.range.end {
            // The log is ahead of the cache until the rest has come.
            self.invalidate(ByteRange::new(job.cursor, cursor));
            job.cursor = cursor;
            self.requests[key].job = Job::Write(job);
            return false;
        }
        for block in self.grid.blocks(entry.range) {
            self.update_cache(now, block, entry.range, buffer, job, actions);
        }
        if !job.bypass {
            self.fetch_edges(now, entry.range);
        }
        self.on_appended(now, key, job.fua, group);
        true
    }

    fn append_zeroes(&mut self, now: Nanos, key: Key, actions: &mut Actions) -> bool {
        let entry = self.requests[key];
        let Job::Zero(job) = entry.job else { unreachable!("zeroes") };
        let may_unmap = match job.kind {
            ZeroKind::Discard => true,
            ZeroKind::WriteZeroes { may_unmap, .. } => may_unmap,
        };
        let log = self.log.as_mut().expect("there is a log");
        if !log.append_zero(now, entry.range, may_unmap, actions) {
            return false;
        }
        let group = log.last_appended();
        self.invalidate(entry.range);
        self.on_appended(now, key, job.fua, group);
        true
    }
}
