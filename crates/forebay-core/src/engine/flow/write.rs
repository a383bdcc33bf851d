//! Writes: to primary storage first, then into the cache, then the reply.
//!
//! ```text
//!  hold the range ─► (edges: read the logical blocks around) ─► write ─► cache ─► (FUA: flush) ─► reply
//! ```
//! The range is held from arrival to reply (to the end of the I/O, when its time ran out before), so
//! overlapping requests see either all of the write or none of it. The cache is changed after
//! primary storage: RAM is updated, flash granules are dropped and come back through RAM (or at once,
//! without a RAM tier). A write that failed may have changed a part of its range: what the cache
//! holds of it is dropped.

use super::in_log::undestaged;
use crate::action::{Action, Buffer, IoOp, ReplyData, Span, Target};
use crate::cache::Update;
use crate::cx::io::RequestIo;
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::geometry::{ByteRange, PAGE};
use crate::request::Request;
use crate::requests::in_flight::{Job, WriteJob};
use crate::requests::overlap::Access;
use crate::status::IoStatus;
use crate::table::Key;

/// Pages behind the buffer of a write that is not made of whole logical blocks: one for the logical
/// block at each end.
pub(in crate::engine) const EDGE_PAGES: u64 = 2;

impl Parts {
    pub(in crate::engine) fn submit_write(
        &mut self,
        request: Request,
        buffer: Buffer,
        fua: bool,
        cx: &mut Cx<'_>,
    ) {
        debug_assert!(buffer.window.contains(request.range));
        let is_stream = self.cache.observe_stream(request.range, &cx.config);
        let bypass = is_stream && self.cache.passes_streams_by(&cx.config);
        cx.counters.writes_bypassed += u64::from(bypass && self.mode.caches());
        let held = cx.align_to_backend(request.range);
        let job = WriteJob { fua, compared: false, is_stream, bypass, cursor: request.range.start };
        self.enter(request, Access::Write, held, Job::Write(job), cx);
    }

    /// The range is ours: appends to the log, or writes out.
    pub(in crate::engine) fn run_write(&mut self, key: Key, cx: &mut Cx<'_>) {
        if self.mode.logs() || self.holds_writes(cx) {
            return self.wait_for_room(key, cx.now);
        }
        let range = cx.align_to_backend(self.requests.table[key].range);
        if self.intend(key, range, cx) {
            self.write_through(key, cx);
        }
    }

    /// Reads the edges when the write is not made of whole logical blocks.
    fn write_through(&mut self, key: Key, cx: &mut Cx<'_>) {
        let range = self.requests.table[key].range;
        let whole = cx.align_to_backend(range);
        if whole == range {
            return self.write_out(key, cx);
        }
        let logical = u64::from(cx.config.backend.logical_block);
        let (head, tail) =
            (ByteRange::at(whole.start, logical), ByteRange::at(whole.end - logical, logical));
        let [head_memory, tail_memory] = self.edges_of(key, cx);
        let io = RequestIo::Edge;
        let one_block = head == tail;
        if range.start > head.start || one_block {
            self.requests.read_backend(key, io, head, head_memory, cx);
        }
        if range.end < tail.end && !one_block {
            self.requests.read_backend(key, io, tail, tail_memory, cx);
        }
    }

    /// Memory for the logical blocks around a write: the pages behind its buffer's window.
    fn edges_of(&self, key: Key, shared: &Shared) -> [Span; 2] {
        let buffer = self.requests.table[key].memory();
        let logical = u64::from(shared.config.backend.logical_block);
        let behind = u64::from(buffer.span.len) - EDGE_PAGES * PAGE;
        [buffer.span.part(behind, logical), buffer.span.part(behind + PAGE, logical)]
    }

    /// An edge is there: when both are, completes the buffer around the guest's bytes.
    pub(in crate::engine) fn on_edge_read(&mut self, key: Key, status: IoStatus, cx: &mut Cx<'_>) {
        self.requests.end_io(key, status, cx);
        let entry = self.requests.table[key];
        if entry.outstanding > 0 {
            return;
        }
        if matches!(entry.job, Job::Zero(_)) {
            return self.on_zero_edge(key, cx);
        }
        if entry.failed.is_some() || entry.answered {
            return self.finish_write(key, cx);
        }
        let buffer = entry.memory();
        let (range, whole) = (entry.range, cx.align_to_backend(entry.range));
        let [head_memory, tail_memory] = self.edges_of(key, cx);
        let head = ByteRange::new(whole.start, range.start);
        if !head.is_empty() {
            let from = head_memory.part(0, head.len());
            cx.push(Action::Copy { from, to: buffer.at(head) });
        }
        let tail = ByteRange::new(range.end, whole.end);
        if !tail.is_empty() {
            let logical = u64::from(cx.config.backend.logical_block);
            let block = if whole.len() == logical { head_memory } else { tail_memory };
            let from = block.part(logical - tail.len(), tail.len());
            cx.push(Action::Copy { from, to: buffer.at(tail) });
        }
        self.write_out(key, cx);
    }

    fn write_out(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = &self.requests.table[key];
        let range = cx.align_to_backend(entry.range);
        let memory = entry.memory().at(range);
        let io = RequestIo::Write;
        cx.counters.backend_writes += 1;
        cx.counters.backend_write_bytes += range.len();
        let op = IoOp::Write { memory, durable: false };
        self.requests.start_io(key, io, Target::Backend, range, op, cx);
    }

    /// Primary storage has the bytes, or not.
    pub(in crate::engine) fn on_written(&mut self, key: Key, status: IoStatus, cx: &mut Cx<'_>) {
        self.requests.end_io(key, status, cx);
        match self.requests.table[key].job {
            Job::Zero(_) => self.on_zero_piece(key, cx),
            _ => self.finish_write(key, cx),
        }
    }

    fn finish_write(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        let job = entry.job.write();
        self.primary.note_write(entry.range);
        if entry.answered || entry.failed.is_some() {
            self.cache.invalidate(entry.range, cx);
            if let Some(status) = entry.failed.filter(|_| !entry.answered) {
                self.requests.answer(key, status, ReplyData::None, None, cx);
            }
            return self.requests.forget(key, cx);
        }
        let buffer = entry.memory();
        self.update_cache(entry.range, buffer, job, cx);
        if !job.bypass {
            self.fetch_edges(entry.range, cx);
        }
        if job.fua {
            self.join_flush(key, cx);
        } else {
            self.requests.count_write(key, cx);
            self.primary.note_acknowledged();
            let of = Some(self.requests.latency_of(key));
            self.requests.answer(key, IoStatus::Ok, ReplyData::None, of, cx);
            self.requests.forget(key, cx);
        }
    }

    /// Brings what the cache holds up to a write to `range` that primary storage, or the log, has.
    pub(in crate::engine) fn update_cache(
        &mut self,
        range: ByteRange,
        buffer: Buffer,
        job: WriteJob,
        cx: &mut Cx<'_>,
    ) {
        let Parts { cache, write_back, mode, .. } = self;
        let undestaged = undestaged(write_back.as_ref());
        let WriteJob { is_stream, bypass, .. } = job;
        let write = Update { range, buffer, keeps: mode.keeps_writes(), is_stream, bypass };
        for block in cx.grid.blocks(range) {
            cache.update(block, &write, &undestaged, cx);
        }
    }
}
