//! Requests that go into the log, one after the other in the order of their turn, as there is room.
//!
//! The log has room for so many zero records. Writes pass zeroes that wait for that, unless the log is about to be empty
//! (`mode.rs`). A discard, which is advice, waits no longer than for primary storage; a durable one also for the end of a log
//! that has failed.
//!
//! They hold their range meanwhile. When the mode changes to one without a log, those that wait go on in
//! the new mode, from their beginning; one whose time was over ends, with what of it was in the log.

use crate::cx::Cx;
use crate::engine::Parts;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::requests::in_flight::{Job, Stage, WriteJob, ZeroJob, ZeroKind};
use crate::table::Key;

impl Parts {
    /// The request's range is its own; it is appended when its turn comes.
    pub(in crate::engine) fn wait_for_room(&mut self, key: Key, now: Nanos) {
        self.requests.table[key].enter(Stage::Room, now);
        if let Some(write_back) = &mut self.write_back {
            write_back.wait_for_room(key);
        }
    }

    /// Appends what waits, as far as there is room; true when something moved.
    pub(in crate::engine) fn append_waiting(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(write_back) = &mut self.write_back else { return false };
        if !write_back.takes_room() {
            return false;
        }
        let before = write_back.last_sequence();
        let mut moved = false;
        while let Some(key) = self.take_next() {
            if self.holds_writes(cx) || self.mode.logs() && !self.append(key, cx) {
                if let Some(write_back) = &mut self.write_back {
                    write_back.put_first(key);
                }
                break;
            }
            if !self.mode.logs() {
                match self.requests.table[key].answered {
                    true => self.requests.forget(key, cx),
                    false => {
                        // Primary storage has all of its time.
                        self.requests.deadlines.push(key, cx.now);
                        cx.wake(key);
                    }
                }
            }
            moved = true;
        }
        let Some(write_back) = &mut self.write_back else { return moved };
        write_back.note_waiting(cx.now);
        // A part of a request is something to commit, too.
        moved || write_back.last_sequence() > before
    }

    /// Takes the request whose turn it is.
    fn take_next(&mut self) -> Option<Key> {
        let write_back = self.write_back.as_mut()?;
        match write_back.zeroes_are_full() && self.mode.logs() {
            true => self.take_next_write(),
            false => write_back.take_first(),
        }
    }

    #[cold]
    fn take_next_write(&mut self) -> Option<Key> {
        let write_back = self.write_back.as_mut()?;
        let is_zero = |key: Key| matches!(self.requests.table[key].job, Job::Zero(_));
        let key = write_back.waiting().find(|&key| !is_zero(key))?;
        write_back.leave(key);
        Some(key)
    }

    /// True when zeroes wait until the log has fewer of them.
    pub(in crate::engine) fn zeroes_wait(&self) -> bool {
        let Some(log) = self.write_back.as_ref().filter(|_| self.mode.logs()) else { return false };
        let is_zero = |key: Key| matches!(self.requests.table[key].job, Job::Zero(_));
        log.zeroes_are_full() && log.waiting().any(is_zero)
    }

    /// Answers a discard that waits for room in the log, and has done so for as long as primary storage may take; false for
    /// any other request, and for a durable one where the log has failed: a flush would fail, and the disk is about to leave the
    /// log.
    pub(in crate::engine) fn give_up_discard(&mut self, key: Key, cx: &mut Cx<'_>) -> bool {
        let entry = self.requests.table[key];
        let Job::Zero(job) = entry.job else { return false };
        let waits = entry.stage == Stage::Room && !entry.answered;
        let log_failed = self.write_back.as_ref().is_some_and(|log| log.failed().is_some());
        if job.kind != ZeroKind::Discard || !waits || job.fua && log_failed {
            return false;
        }
        if let Some(write_back) = &mut self.write_back {
            write_back.leave(key);
            // Nobody may wait any more.
            write_back.note_room();
        }
        self.requests.deadlines.push(key, cx.now);
        self.end_discard(key, job, cx);
        true
    }

    /// Ends a discard, which is not followed. What was discarded is flushed, or lost.
    fn end_discard(&mut self, key: Key, job: ZeroJob, cx: &mut Cx<'_>) {
        match job.fua && self.requests.table[key].failed.is_none() {
            true => {
                self.requests.table[key].job = Job::Flush;
                self.wait_for_log(key, cx);
            }
            false => self.finish_zero(key, cx),
        }
    }

    /// Appends the request, or more of it; true when all of it is in the log.
    fn append(&mut self, key: Key, cx: &mut Cx<'_>) -> bool {
        match self.requests.table[key].job {
            Job::Write(job) => self.append_write(key, job, cx),
            other => self.append_zeroes(key, other.zero(), cx),
        }
    }

    fn append_write(&mut self, key: Key, mut job: WriteJob, cx: &mut Cx<'_>) -> bool {
        let Some(write_back) = &mut self.write_back else { return false };
        let entry = self.requests.table[key];
        let buffer = entry.memory();
        let rest = ByteRange::new(job.cursor, entry.range.end);
        let cursor = write_back.append_write(rest, buffer, cx);
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
        self.on_appended(key, job.fua, cx);
        true
    }

    fn append_zeroes(&mut self, key: Key, job: ZeroJob, cx: &mut Cx<'_>) -> bool {
        if self.requests.table[key].failed.is_some() {
            // Primary storage has lost what was done beside the log while this waited.
            self.finish_zero(key, cx);
            return true;
        }
        if job.kind == ZeroKind::Discard && !cx.makes_holes() {
            // It came while there was no log, which would have all of it written.
            self.end_discard(key, job, cx);
            return true;
        }
        let Some(write_back) = &mut self.write_back else { return false };
        // What was done beside the log is its own no more, and newer writes may be there.
        let range = ByteRange::new(job.cursor, self.requests.table[key].range.end);
        let may_unmap = match job.kind {
            ZeroKind::Discard => true,
            ZeroKind::WriteZeroes { may_unmap, .. } => may_unmap,
        };
        if !write_back.append_zero(range, may_unmap, cx) {
            return false;
        }
        self.cache.invalidate(range, cx);
        self.on_appended(key, job.fua, cx);
        true
    }
}
