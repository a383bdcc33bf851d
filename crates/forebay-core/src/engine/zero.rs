//! Discards and write-zeroes: ranges of any length, done piece by piece.
//!
//! ```text
//!  hold the range ─► piece ─► backend (or zeroes from a buffer) ─► drop from cache ─┬► next piece
//!                                                                                   └► (FUA: flush) ─► reply
//! ```
//! Pieces bound the work of one step (a discard may cover the whole disk). A backend that cannot
//! write zeroes is written zeroes to, unless the client wants it fast or not at all. A discard is
//! advice: what is not whole logical blocks is left alone, and a backend that cannot discard is not
//! asked. With FUA it ends with a flush all the same.

use super::inflight::{IoKind, Job, ZeroJob, ZeroKind};
use super::{Engine, LatencyOf};
use crate::action::{Action, Actions, IoOp, ReplyData, Target};
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::overlap::Access;
use crate::request::Request;
use crate::status::IoStatus;
use crate::table::Key;

/// Longest piece that the backend is asked to zero or discard.
const PIECE_MAX: u64 = 64 << 20;
/// Longest piece that is written from a buffer of zeroes.
const WRITTEN_PIECE_MAX: u64 = 1 << 20;

impl Engine {
    pub(super) fn submit_discard(
        &mut self,
        now: Nanos,
        request: Request,
        fua: bool,
        actions: &mut Actions,
    ) {
        let backend = self.config.backend;
        let logical = u64::from(backend.logical_block);
        let start = request.range.start.next_multiple_of(logical);
        // The log keeps a discard as zeroes, which primary storage has to write in the end.
        let followed = if self.mode.logs() { backend.write_zeroes } else { backend.discard };
        let end = if followed { request.range.end & !(logical - 1) } else { start };
        let range = ByteRange::new(start, end.max(start));
        if range.is_empty() && !fua {
            self.counters.discards += 1;
            return self.refuse(now, request, IoStatus::Ok, actions);
        }
        if range.is_empty() && self.mode.logs() {
            return self.submit_log_flush(now, request, actions);
        }
        self.enter_zero(now, Request { range, ..request }, ZeroKind::Discard, fua, false);
    }

    pub(super) fn submit_zeroes(
        &mut self,
        now: Nanos,
        request: Request,
        may_unmap: bool,
        fast_only: bool,
        fua: bool,
        actions: &mut Actions,
    ) {
        let aligned = self.align_to_backend(request.range) == request.range;
        let by_writing = !self.config.backend.write_zeroes || !aligned;
        let is_slow = if self.mode.logs() { !self.config.backend.write_zeroes } else { by_writing };
        if is_slow && fast_only {
            return self.refuse(now, request, IoStatus::Unsupported, actions);
        }
        let kind = ZeroKind::WriteZeroes { may_unmap, fast_only };
        self.enter_zero(now, request, kind, fua, by_writing);
    }

    fn enter_zero(
        &mut self,
        now: Nanos,
        request: Request,
        kind: ZeroKind,
        fua: bool,
        by_writing: bool,
    ) {
        let cursor = request.range.start;
        let piece = ByteRange::new(cursor, cursor);
        let job = ZeroJob { kind, fua, cursor, piece, by_writing };
        let held = self.align_to_backend(request.range);
        self.enter(now, request, Access::Write, held, Job::Zero(job));
    }

    /// Starts the next piece.
    pub(super) fn run_zero(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let entry = self.requests[key];
        let Job::Zero(mut job) = entry.job else { unreachable!("zeroes") };
        let rest = ByteRange::new(job.cursor, entry.range.end);
        // The mode may have changed since it was submitted.
        let is_lost = job.kind == ZeroKind::Discard && !self.config.backend.discard;
        let has_begun = job.cursor > entry.range.start || entry.failed.is_some();
        if !has_begun && !rest.is_empty() && (self.mode.logs() || self.holds_writes()) {
            return self.wait_for_room(key);
        }
        if entry.failed.is_some() || rest.is_empty() || is_lost {
            return self.finish_zero(now, key, actions);
        }
        if !self.intend(key, self.align_to_backend(rest)) {
            return;
        }
        if !job.by_writing {
            job.piece = ByteRange::at(rest.start, rest.len().min(PIECE_MAX));
            self.requests[key].job = Job::Zero(job);
            let op = match job.kind {
                ZeroKind::Discard => IoOp::Discard,
                ZeroKind::WriteZeroes { may_unmap, fast_only } => {
                    IoOp::WriteZeroes { may_unmap, fast_only }
                }
            };
            let kind = IoKind::Zero { request: key };
            return self.start_io(now, Target::Backend, job.piece, op, kind, actions);
        }
        job.piece = self.written_piece(rest);
        self.requests[key].job = Job::Zero(job);
        if !self.ensure_buffer(key) {
            return;
        }
        self.write_zero_piece(now, key, job, actions);
    }

    /// The next piece to write: a logical block's part at an unaligned end, else whole blocks.
    fn written_piece(&self, rest: ByteRange) -> ByteRange {
        let logical = u64::from(self.config.backend.logical_block);
        let head_end = rest.start.next_multiple_of(logical).min(rest.end);
        if head_end > rest.start {
            return ByteRange::new(rest.start, head_end);
        }
        let end = (rest.start + WRITTEN_PIECE_MAX).min(rest.end);
        let whole_end = end & !(logical - 1);
        ByteRange::new(rest.start, if whole_end > rest.start { whole_end } else { rest.end })
    }

    fn write_zero_piece(&mut self, now: Nanos, key: Key, job: ZeroJob, actions: &mut Actions) {
        let buffer = self.requests[key].buffer.expect("the piece has a buffer");
        let whole = self.align_to_backend(job.piece);
        if whole != job.piece {
            // A part of one logical block: read it, then zero and write.
            let op = IoOp::Read { memory: buffer.at(whole) };
            let kind = IoKind::EdgeRead { request: key };
            return self.start_io(now, Target::Backend, whole, op, kind, actions);
        }
        self.write_zeroed_buffer(now, key, job, actions);
    }

    /// The logical block around a piece is there.
    pub(super) fn on_zero_edge(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let entry = self.requests[key];
        let Job::Zero(job) = entry.job else { unreachable!("zeroes") };
        if entry.failed.is_some() || entry.answered {
            return self.finish_zero(now, key, actions);
        }
        self.write_zeroed_buffer(now, key, job, actions);
    }

    fn write_zeroed_buffer(&mut self, now: Nanos, key: Key, job: ZeroJob, actions: &mut Actions) {
        let buffer = self.requests[key].buffer.expect("the piece has a buffer");
        let whole = self.align_to_backend(job.piece);
        actions.list.push(Action::Zero { memory: buffer.at(job.piece) });
        self.counters.backend_writes += 1;
        self.counters.backend_write_bytes += whole.len();
        let op = IoOp::Write { memory: buffer.at(whole), durable: false };
        let kind = IoKind::Write { request: key };
        self.start_io(now, Target::Backend, whole, op, kind, actions);
    }

    /// The backend zeroed or discarded a piece, or could not.
    pub(super) fn on_zeroed(
        &mut self,
        now: Nanos,
        key: Key,
        status: IoStatus,
        actions: &mut Actions,
    ) {
        let Job::Zero(job) = &mut self.requests[key].job else { unreachable!("zeroes") };
        if status == IoStatus::Unsupported {
            match job.kind {
                // Advice that nobody can follow.
                ZeroKind::Discard => {
                    self.end_request_io(now, key, IoStatus::Ok);
                    return self.on_zero_piece(now, key, actions);
                }
                ZeroKind::WriteZeroes { fast_only: false, .. } => {
                    job.by_writing = true;
                    self.end_request_io(now, key, IoStatus::Ok);
                    if self.requests[key].answered {
                        return self.finish_zero(now, key, actions);
                    }
                    return self.ready.push_back(key);
                }
                ZeroKind::WriteZeroes { fast_only: true, .. } => {}
            }
        }
        self.end_request_io(now, key, status);
        self.on_zero_piece(now, key, actions);
    }

    /// A piece is done, or failed.
    pub(super) fn on_zero_piece(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let entry = self.requests[key];
        let Job::Zero(mut job) = entry.job else { unreachable!("zeroes") };
        self.flush.note_write(job.piece);
        self.invalidate(job.piece);
        if let Some(buffer) = self.requests[key].buffer.take() {
            self.free_buffer(buffer);
        }
        job.cursor = job.piece.end;
        self.requests[key].job = Job::Zero(job);
        if entry.failed.is_none() && !entry.answered && job.cursor < entry.range.end {
            self.ready.push_back(key);
        } else {
            self.finish_zero(now, key, actions);
        }
    }

    fn finish_zero(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let entry = self.requests[key];
        let Job::Zero(job) = entry.job else { unreachable!("zeroes") };
        if entry.answered {
            return self.forget(key);
        }
        if let Some(status) = entry.failed {
            self.answer(key, status, ReplyData::None, None, actions);
            return self.forget(key);
        }
        self.counters.discards += 1;
        if job.fua {
            return self.join_flush(now, key, actions);
        }
        self.flush.note_acknowledged();
        self.answer(key, IoStatus::Ok, ReplyData::None, Some(LatencyOf::Write), actions);
        self.forget(key);
    }
}
