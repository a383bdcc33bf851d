//! Flushes of the guest, and what a failed one means.
//!
//! ```text
//!  FLUSH, FUA ─► wait (primary/flush.rs) ─┬─ flushed ─► reply
//!                                         └─ failed, or session lost ─► what was not flushed leaves the cache ─► error
//! ```
//! A guest whose write may be lost hears of it once, by a flush that fails (primary/losses.rs). The disk begins with a
//! flush of primary storage. If that fails, what a former run acknowledged may be lost, and the guest that lived on hears
//! of it. The executor flushes at the end, too. If that fails, the next run has to report it.
//!
//! In a mode with a log, the log has all that was acknowledged, and a disk begins without that flush.

use crate::action::{Event, ReplyData};
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::geometry::ByteRange;
use crate::request::Request;
use crate::requests::in_flight::{Job, Stage};
use crate::status::IoStatus;
use crate::table::Key;

/// A lost session may drop as many blocks at once as so many other calls: it is rare, and has up to 2,048 ranges.
const AT_RISK_CALLS: u32 = 8;

impl Parts {
    pub(in crate::engine) fn submit_flush(&mut self, request: Request, cx: &mut Cx<'_>) {
        let request = Request { range: ByteRange::default(), ..request };
        if !self.primary.begin_guest_flush() {
            return self.refuse(request, IoStatus::IoError, cx);
        }
        let key = self.requests.insert(request, Job::Flush, cx);
        match self.mode.logs() {
            true => self.wait_for_log(key, cx),
            false => self.join_flush(key, cx),
        }
    }

    /// The disk begins: flushes what a former run may have written.
    pub(in crate::engine) fn begin(&mut self, cx: &mut Cx<'_>) {
        self.want_first_flush(cx.shared);
        self.tick(cx);
    }

    /// What a dead process had sent can land no more: flushes what of it has.
    pub(in crate::engine) fn note_settled(&mut self, shared: &Shared) {
        if let Some(index) = &mut self.cache_index {
            index.note_settled(self.primary.flushes());
        }
        self.primary.note_settled();
        if self.refuses.is_none() {
            self.want_first_flush(shared);
        }
    }

    fn want_first_flush(&mut self, shared: &Shared) {
        if !shared.config.backend.read_only && !self.mode.logs() {
            self.primary.want_first_flush();
        }
    }

    /// The request is answered when a flush that starts from now on has ended.
    pub(in crate::engine) fn join_flush(&mut self, key: Key, cx: &mut Cx<'_>) {
        self.requests.table[key].enter(Stage::Flush, cx.now);
        self.primary.join_flush(key, cx);
    }

    pub(in crate::engine) fn flush_primary_storage(&mut self, cx: &mut Cx<'_>) -> Option<u64> {
        if self.mode.logs() {
            return None;
        }
        let number = self.primary.flush(cx);
        self.run(cx);
        Some(number)
    }

    /// A flush of primary storage ended.
    pub(in crate::engine) fn on_flushed(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        if status.is_ok() {
            let covered = self.primary.on_flushed();
            self.end_flush(covered, status, cx);
        } else {
            self.primary.on_flush_failed(cx.now);
            self.lose_former(cx);
            if let Some(write_back) = &mut self.write_back {
                // Writes that were held for a change of mode go on meanwhile.
                write_back.note_room();
                // It may have taken what the destager wrote along, and the next flush would not say so.
                write_back.on_session_lost();
            }
            self.lose_unflushed(status, cx);
        }
        self.primary.start_flush(cx);
    }

    /// Answers those who waited for a flush.
    fn end_flush(&mut self, keys: Vec<Key>, status: IoStatus, cx: &mut Cx<'_>) {
        // A disk may have become write-back while they waited.
        if let Some(log) = self.write_back.as_mut().filter(|_| status.is_ok()) {
            log.raise_epoch();
        }
        for &key in &keys {
            let of = self.requests.latency_of(key);
            match self.requests.table[key].job {
                _ if !status.is_ok() => {}
                Job::Write(_) => self.requests.count_write(key, cx),
                Job::Zero(_) => cx.counters.discards += 1,
                Job::Flush => cx.counters.flushes += 1,
                Job::Read(_) | Job::Allocation(_) => unreachable!("they wait for no flush"),
            }
            self.requests.answer(key, status, ReplyData::None, Some(of), cx);
            self.requests.forget(key, cx);
        }
        self.primary.recycle(keys);
    }

    pub(in crate::engine) fn on_session_lost(&mut self, cx: &mut Cx<'_>) {
        if let Some(write_back) = &mut self.write_back {
            write_back.on_session_lost();
        }
        if self.primary.is_landed_alone() {
            // Flushes go on in the next session.
            self.drop_unflushed(cx);
        } else if self.primary.is_at_risk() {
            self.primary.on_session_lost();
            self.lose_former(cx);
            self.lose_unflushed(IoStatus::IoError, cx);
        }
        self.run(cx);
    }

    /// Before the first good flush, what a former run wrote may be lost, too. A log still has all that matters, and nobody
    /// relies on it who only reads.
    fn lose_former(&mut self, cx: &mut Cx<'_>) {
        let may_matter = !self.mode.logs() && !cx.config.backend.read_only;
        if may_matter && self.primary.lose_former() {
            cx.event(Event::FormerWritesAtRisk);
        }
    }

    /// What was not flushed may be lost: drops it from the cache, and fails those who wait for a flush.
    fn lose_unflushed(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let Parts { primary, requests, .. } = self;
        let is_guest = |key: Key| matches!(requests.table[key].job, Job::Flush);
        let waited = primary.lose_unflushed(is_guest);
        if self.primary.is_at_risk() {
            self.drop_unflushed(cx);
        }
        self.end_flush(waited, status, cx);
    }

    /// Drops from the cache what primary storage may not have kept.
    fn drop_unflushed(&mut self, cx: &mut Cx<'_>) {
        let Parts { primary, requests, cache, .. } = self;
        for request in requests.table.iter_mut() {
            match &mut request.job {
                // A read under way may already hold bytes that are gone by now.
                Job::Read(job) => (job.admit, job.is_doubtful) = (false, true),
                // Some of its zeroes may be gone.
                Job::Zero(job) if job.cursor > request.range.start => {
                    request.failed.get_or_insert(IoStatus::IoError);
                }
                Job::Zero(_) | Job::Write(_) | Job::Flush | Job::Allocation(_) => {}
            }
        }
        let mut visits = cache.visits_max() * AT_RISK_CALLS;
        if primary.is_unknown() {
            cache.invalidate_within(cx.config.disk(), &mut visits, true, cx);
        }
        for range in primary.at_risk() {
            cache.invalidate_within(range, &mut visits, true, cx);
        }
        let bytes = primary.unflushed_bytes();
        if bytes > 0 {
            cx.event(Event::UnflushedWritesAtRisk { bytes });
        }
    }
}
