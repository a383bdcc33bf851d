//! Discards and write-zeroes: ranges of any length, done piece by piece.
//!
//! ```text
//!  hold the range ─► piece ─► backend (or zeroes from memory) ─► drop from cache ─┬► next piece
//!                                                                                   └► (FUA: flush) ─► reply
//! ```
//! Pieces bound the work of one step (a discard may cover the whole disk). What is done of the range is
//! let go with each: who waits for the first blocks does not wait for the last. A backend that cannot
//! write zeroes is written zeroes to (`requests/zero_memory.rs`), unless the client wants it fast or not at all. So are parts of
//! a logical block at either end. A discard is
//! advice: what is not whole logical blocks is left alone, and a backend that cannot discard is not
//! asked. With FUA it ends with a flush all the same.

use crate::action::{Action, IoOp, ReplyData, Span, Target};
use crate::cx::io::RequestIo;
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::geometry::ByteRange;
use crate::request::Request;
use crate::requests::in_flight::{Job, ZeroJob, ZeroKind};
use crate::requests::ledger::LatencyOf;
use crate::requests::overlap::Access;
use crate::requests::zero_memory;
use crate::status::IoStatus;
use crate::table::Key;

/// Longest piece that the backend is asked to zero or discard.
const PIECE_MAX: u64 = 64 << 20;

/// The next piece that the backend is asked to zero: whole logical blocks, if the rest begins with any.
fn whole_blocks(rest: ByteRange, shared: &Shared) -> ByteRange {
    let logical = u64::from(shared.config.backend.logical_block);
    let end = (rest.end & !(logical - 1)).min(rest.start + PIECE_MAX);
    match rest.start.is_multiple_of(logical) {
        true => ByteRange::new(rest.start, end.max(rest.start)),
        false => ByteRange::new(rest.start, rest.start),
    }
}

impl Parts {
    pub(in crate::engine) fn submit_discard(
        &mut self,
        request: Request,
        fua: bool,
        cx: &mut Cx<'_>,
    ) {
        let backend = cx.config.backend;
        let logical = u64::from(backend.logical_block);
        let start = request.range.start.next_multiple_of(logical);
        // The log keeps a discard as zeroes: without holes all of it would be written in the end.
        let followed = if self.mode.logs() { cx.makes_holes() } else { backend.discard };
        let end = if followed { request.range.end & !(logical - 1) } else { start };
        let range = ByteRange::new(start, end.max(start));
        if range.is_empty() && !fua {
            cx.counters.discards += 1;
            return self.refuse(request, IoStatus::Ok, cx);
        }
        if range.is_empty() && self.mode.logs() {
            // It tells of no loss: a guest takes that from a flush.
            let key = self.requests.insert(request, Job::Flush, cx);
            return self.wait_for_log(key, cx);
        }
        self.enter_zero(Request { range, ..request }, ZeroKind::Discard, fua, false, cx);
    }

    pub(in crate::engine) fn submit_zeroes(
        &mut self,
        request: Request,
        may_unmap: bool,
        fast_only: bool,
        fua: bool,
        cx: &mut Cx<'_>,
    ) {
        let aligned = cx.align_to_backend(request.range) == request.range;
        let by_writing = cx.writes_zeroes(may_unmap);
        let is_slow = by_writing || !self.mode.logs() && !aligned;
        if is_slow && fast_only {
            return self.refuse(request, IoStatus::Unsupported, cx);
        }
        let kind = ZeroKind::WriteZeroes { may_unmap, fast_only };
        self.enter_zero(request, kind, fua, by_writing, cx);
    }

    fn enter_zero(
        &mut self,
        request: Request,
        kind: ZeroKind,
        fua: bool,
        by_writing: bool,
        cx: &mut Cx<'_>,
    ) {
        let cursor = request.range.start;
        let piece = ByteRange::new(cursor, cursor);
        let job = ZeroJob { kind, fua, cursor, piece, by_writing };
        let held = cx.align_to_backend(request.range);
        self.enter(request, Access::Write, held, Job::Zero(job), cx);
    }

    /// Starts the next piece.
    pub(in crate::engine) fn run_zero(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        let mut job = entry.job.zero();
        let rest = ByteRange::new(job.cursor, entry.range.end);
        let is_over = rest.is_empty() || entry.failed.is_some();
        // The mode may have changed since it was submitted, also between two pieces.
        if !is_over && (self.mode.logs() || self.holds_writes(cx)) {
            // Others write what they began before there is room in the log.
            self.requests.end_zero_turn(key, cx);
            return self.wait_for_room(key, cx.now);
        }
        let is_lost = job.kind == ZeroKind::Discard && !cx.config.backend.discard;
        if is_over || is_lost {
            return self.finish_zero(key, cx);
        }
        let is_fast_only = matches!(job.kind, ZeroKind::WriteZeroes { fast_only: true, .. });
        if is_fast_only && cx.align_to_backend(entry.range) != entry.range {
            // It came while a log would have taken it: now its ends are slow, and nothing of it may be done.
            self.requests.table[key].failed = Some(IoStatus::Unsupported);
            return self.finish_zero(key, cx);
        }
        if !self.intend(key, cx.align_to_backend(rest), cx) {
            return;
        }
        let whole = whole_blocks(rest, cx);
        if !job.by_writing && !whole.is_empty() {
            job.piece = whole;
            self.requests.table[key].job = Job::Zero(job);
            let op = match job.kind {
                ZeroKind::Discard => IoOp::Discard,
                ZeroKind::WriteZeroes { may_unmap, fast_only } => {
                    IoOp::WriteZeroes { may_unmap, fast_only }
                }
            };
            let io = RequestIo::Zero;
            return self.requests.start_io(key, io, Target::Backend, job.piece, op, cx);
        }
        job.piece = self.written_piece(rest, cx);
        self.requests.table[key].job = Job::Zero(job);
        let Some(page) = self.requests.zero_memory.turn(key) else { return };
        let whole = cx.align_to_backend(job.piece);
        if whole == job.piece {
            let memory = self.requests.zero_memory.zeroes(whole.len(), cx);
            return self.write_zeroes(key, whole, memory, cx);
        }
        // A part of one logical block: read it, then zero and write.
        let memory = page.part(0, whole.len());
        self.requests.read_backend(key, RequestIo::Edge, whole, memory, cx);
    }

    /// The next piece that is written: a logical block's part at an unaligned end, else whole blocks.
    fn written_piece(&self, rest: ByteRange, shared: &Shared) -> ByteRange {
        let logical = u64::from(shared.config.backend.logical_block);
        let head_end = rest.start.next_multiple_of(logical).min(rest.end);
        if head_end > rest.start {
            return ByteRange::new(rest.start, head_end);
        }
        let end = (rest.start + zero_memory::PIECE_MAX).min(rest.end);
        let whole_end = end & !(logical - 1);
        ByteRange::new(rest.start, if whole_end > rest.start { whole_end } else { rest.end })
    }

    /// The logical block around a piece is there.
    pub(in crate::engine) fn on_zero_edge(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        let job = entry.job.zero();
        if entry.failed.is_some() || entry.answered {
            return self.finish_zero(key, cx);
        }
        let whole = cx.align_to_backend(job.piece);
        let page = self.requests.zero_memory.turn(key).expect("it was read in its turn");
        let memory = page.part(job.piece.start - whole.start, job.piece.len());
        cx.push(Action::Zero { memory });
        self.write_zeroes(key, whole, page.part(0, whole.len()), cx);
    }

    fn write_zeroes(&mut self, key: Key, whole: ByteRange, memory: Span, cx: &mut Cx<'_>) {
        cx.counters.backend_writes += 1;
        cx.counters.backend_write_bytes += whole.len();
        let op = IoOp::Write { memory, durable: false };
        self.requests.start_io(key, RequestIo::Write, Target::Backend, whole, op, cx);
    }

    /// The backend zeroed or discarded a piece, or could not.
    pub(in crate::engine) fn on_zeroed(&mut self, key: Key, status: IoStatus, cx: &mut Cx<'_>) {
        let start = self.requests.table[key].range.start;
        let job = self.requests.table[key].job.zero_mut();
        if status == IoStatus::Unsupported {
            match job.kind {
                // Advice that nobody can follow.
                ZeroKind::Discard => {
                    self.requests.end_io(key, IoStatus::Ok, cx);
                    return self.on_zero_piece(key, cx);
                }
                ZeroKind::WriteZeroes { fast_only, may_unmap }
                    if !fast_only || job.cursor > start =>
                {
                    job.by_writing = true;
                    if !fast_only {
                        cx.note_zeroes_refused(may_unmap);
                    }
                    let piece = job.piece;
                    self.requests.end_io(key, IoStatus::Ok, cx);
                    // A part of it may be done. What is written instead may end before all of that is.
                    self.primary.note_write(piece);
                    self.cache.invalidate(piece, cx);
                    if self.requests.table[key].answered {
                        return self.finish_zero(key, cx);
                    }
                    return cx.ready.push_back(key);
                }
                // It is refused as a whole: the client writes instead.
                ZeroKind::WriteZeroes { .. } => {}
            }
        }
        self.requests.end_io(key, status, cx);
        self.on_zero_piece(key, cx);
    }

    /// A piece is done, or failed.
    pub(in crate::engine) fn on_zero_piece(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        let mut job = entry.job.zero();
        self.primary.note_write(job.piece);
        self.cache.invalidate(job.piece, cx);
        self.requests.end_zero_turn(key, cx);
        job.cursor = job.piece.end;
        self.requests.table[key].job = Job::Zero(job);
        let rest = ByteRange::new(job.cursor, entry.range.end);
        let rest = cx.align_to_backend(rest);
        self.requests.overlap.narrow(key, rest, &mut cx.ready);
        if entry.failed.is_none() && !entry.answered && job.cursor < entry.range.end {
            cx.ready.push_back(key);
        } else {
            self.finish_zero(key, cx);
        }
    }

    /// All of it is done, or it has failed.
    pub(in crate::engine) fn finish_zero(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        let job = entry.job.zero();
        if entry.answered {
            return self.requests.forget(key, cx);
        }
        if let Some(status) = entry.failed {
            self.requests.answer(key, status, ReplyData::None, None, cx);
            return self.requests.forget(key, cx);
        }
        if job.fua {
            return self.join_flush(key, cx);
        }
        cx.counters.discards += 1;
        // With a log what was done beside it was flushed before, and a discard that is given up did nothing.
        if !self.mode.logs() {
            self.primary.note_acknowledged();
        }
        self.requests.answer(key, IoStatus::Ok, ReplyData::None, Some(LatencyOf::Zero), cx);
        self.requests.forget(key, cx);
    }
}
