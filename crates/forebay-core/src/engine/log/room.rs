//! Requests that go into the log, one after the other in the order of their turn, as there is room.
//!
//! They hold their range meanwhile. When the mode changes to one without a log, those that wait go on in
//! the new mode, from their beginning; one whose time was over ends, with what of it was in the log.

use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::requests::in_flight::{Job, Stage, ZeroKind};
use crate::table::Key;

impl Parts {
    /// The request's range is its own; it is appended when its turn comes.
    pub(in crate::engine) fn wait_for_room(&mut self, key: Key) {
        self.requests.table[key].stage = Stage::Room;
        let log = self.log.as_mut().expect("the mode has a log");
        log.wait_room.push_back(key);
        log.room_changed = true;
    }

    /// Appends what waits, as far as there is room; true when something moved.
    pub(in crate::engine) fn append_waiting(&mut self, cx: &mut Cx<'_>) -> bool {
        let log = self.log.as_mut().expect("there is a log");
        if !std::mem::take(&mut log.room_changed) {
            return false;
        }
        let before = log.last_sequence();
        let mut moved = false;
        while let Some(&key) = self.log.as_ref().and_then(|log| log.wait_room.front()) {
            if self.holds_writes(cx) {
                break;
            }
            if self.mode.logs() && !self.append(key, cx) {
                break;
            }
            self.log.as_mut().expect("there is a log").wait_room.pop_front();
            if !self.mode.logs() {
                match self.requests.table[key].answered {
                    true => self.requests.forget(key, cx),
                    false => {
                        // Primary storage has all of its time.
                        self.requests.deadlines.push(key, cx.now.plus(cx.config.backend_timeout));
                        cx.ready.push_back(key);
                    }
                }
            }
            moved = true;
        }
        let log = self.log.as_mut().expect("there is a log");
        if !log.wait_room.is_empty() {
            log.waited_until = Some(Nanos::NEVER);
        } else if log.waited_until == Some(Nanos::NEVER) {
            log.waited_until = Some(cx.now);
        }
        // A part of a request is something to commit, too.
        moved || self.log.as_ref().is_some_and(|log| log.last_sequence() > before)
    }

    /// Appends the request, or more of it; true when all of it is in the log.
    fn append(&mut self, key: Key, cx: &mut Cx<'_>) -> bool {
        match self.requests.table[key].job {
            Job::Write(_) => self.append_write(key, cx),
            Job::Zero(_) => self.append_zeroes(key, cx),
            Job::Read(_) | Job::Flush | Job::Allocation => unreachable!("it changes nothing"),
        }
    }

    fn append_write(&mut self, key: Key, cx: &mut Cx<'_>) -> bool {
        let entry = self.requests.table[key];
        let Job::Write(mut job) = entry.job else { unreachable!("a write") };
        let buffer = entry.buffer.expect("a write has a buffer");
        let rest = ByteRange::new(job.cursor, entry.range.end);
        let log = self.log.as_mut().expect("there is a log");
        let cursor = log.append_write(cx.now, rest, buffer, cx.actions);
        let group = log.last_appended();
        if cursor < entry.range.end {
            // The log is ahead of the cache until the rest has come.
            self.cache.invalidate(ByteRange::new(job.cursor, cursor), cx);
            job.cursor = cursor;
            self.requests.table[key].job = Job::Write(job);
            return false;
        }
        self.update_cache(entry.range, buffer, job, cx);
        if !job.bypass {
            self.fetch_edges(entry.range, cx);
        }
        self.on_appended(key, job.fua, group, cx);
        true
    }

    fn append_zeroes(&mut self, key: Key, cx: &mut Cx<'_>) -> bool {
        let entry = self.requests.table[key];
        let Job::Zero(job) = entry.job else { unreachable!("zeroes") };
        let may_unmap = match job.kind {
            ZeroKind::Discard => true,
            ZeroKind::WriteZeroes { may_unmap, .. } => may_unmap,
        };
        let log = self.log.as_mut().expect("there is a log");
        if !log.append_zero(cx.now, entry.range, may_unmap, cx.actions) {
            return false;
        }
        let group = log.last_appended();
        self.cache.invalidate(entry.range, cx);
        self.on_appended(key, job.fua, group, cx);
        true
    }
}
