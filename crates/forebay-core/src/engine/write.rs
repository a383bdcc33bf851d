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

use super::fill::{BlockBytes, Offer};
use super::inflight::{IoKind, Job, WriteJob};
use super::{Engine, LatencyOf};
use crate::action::{Action, Actions, Buffer, IoOp, ReplyData, Span, Target};
use crate::geometry::{ByteRange, GranuleMask, PAGE};
use crate::ids::{BlockIndex, Nanos, SlotId};
use crate::overlap::Access;
use crate::request::Request;
use crate::status::IoStatus;
use crate::table::Key;

/// Pages behind the buffer of a write that is not made of whole logical blocks: one for the logical
/// block at each end.
pub(super) const EDGE_PAGES: u64 = 2;

impl Engine {
    pub(super) fn submit_write(&mut self, now: Nanos, request: Request, buffer: Buffer, fua: bool) {
        debug_assert!(buffer.window.contains(request.range));
        let run = self.streams.observe(request.range);
        let is_stream = self.is_stream(run);
        let bypass = is_stream && self.passes_streams_by();
        self.counters.writes_bypassed += u64::from(bypass && self.mode.caches());
        let held = self.align_to_backend(request.range);
        let job = WriteJob { fua, compared: false, is_stream, bypass, cursor: request.range.start };
        self.enter(now, request, Access::Write, held, Job::Write(job));
    }

    /// The range is ours: appends to the log, or writes out.
    pub(super) fn run_write(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        if self.mode.logs() || self.holds_writes() {
            return self.wait_for_room(key);
        }
        let range = self.align_to_backend(self.requests[key].range);
        if self.intend(key, range) {
            self.write_through(now, key, actions);
        }
    }

    /// Reads the edges when the write is not made of whole logical blocks.
    fn write_through(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let range = self.requests[key].range;
        let whole = self.align_to_backend(range);
        if whole == range {
            return self.write_out(now, key, actions);
        }
        let logical = u64::from(self.config.backend.logical_block);
        let (head, tail) =
            (ByteRange::at(whole.start, logical), ByteRange::at(whole.end - logical, logical));
        let [head_memory, tail_memory] = self.edges_of(key);
        let kind = IoKind::EdgeRead { request: key };
        let one_block = head == tail;
        if range.start > head.start || one_block {
            let op = IoOp::Read { memory: head_memory };
            self.start_io(now, Target::Backend, head, op, kind, actions);
        }
        if range.end < tail.end && !one_block {
            let op = IoOp::Read { memory: tail_memory };
            self.start_io(now, Target::Backend, tail, op, kind, actions);
        }
    }

    /// Memory for the logical blocks around a write: the pages behind its buffer's window.
    fn edges_of(&self, key: Key) -> [Span; 2] {
        let buffer = self.requests[key].buffer.expect("a write has a buffer");
        let logical = u64::from(self.config.backend.logical_block);
        let behind = u64::from(buffer.span.len) - EDGE_PAGES * PAGE;
        [buffer.span.part(behind, logical), buffer.span.part(behind + PAGE, logical)]
    }

    /// An edge is there: when both are, completes the buffer around the guest's bytes.
    pub(super) fn on_edge_read(
        &mut self,
        now: Nanos,
        key: Key,
        status: IoStatus,
        actions: &mut Actions,
    ) {
        self.end_request_io(now, key, status);
        let entry = self.requests[key];
        if entry.outstanding > 0 {
            return;
        }
        if matches!(entry.job, Job::Zero(_)) {
            return self.on_zero_edge(now, key, actions);
        }
        if entry.failed.is_some() || entry.answered {
            return self.finish_write(now, key, actions);
        }
        let buffer = entry.buffer.expect("a write has a buffer");
        let (range, whole) = (entry.range, self.align_to_backend(entry.range));
        let [head_memory, tail_memory] = self.edges_of(key);
        let head = ByteRange::new(whole.start, range.start);
        if !head.is_empty() {
            let from = head_memory.part(0, head.len());
            actions.list.push(Action::Copy { from, to: buffer.at(head) });
        }
        let tail = ByteRange::new(range.end, whole.end);
        if !tail.is_empty() {
            let logical = u64::from(self.config.backend.logical_block);
            let block = if whole.len() == logical { head_memory } else { tail_memory };
            let from = block.part(logical - tail.len(), tail.len());
            actions.list.push(Action::Copy { from, to: buffer.at(tail) });
        }
        self.write_out(now, key, actions);
    }

    fn write_out(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let entry = &self.requests[key];
        let range = self.align_to_backend(entry.range);
        let memory = entry.buffer.expect("a write has a buffer").at(range);
        let kind = IoKind::Write { request: key };
        self.counters.backend_writes += 1;
        self.counters.backend_write_bytes += range.len();
        let op = IoOp::Write { memory, durable: false };
        self.start_io(now, Target::Backend, range, op, kind, actions);
    }

    /// Primary storage has the bytes, or not.
    pub(super) fn on_written(
        &mut self,
        now: Nanos,
        key: Key,
        status: IoStatus,
        actions: &mut Actions,
    ) {
        self.end_request_io(now, key, status);
        match self.requests[key].job {
            Job::Zero(_) => self.on_zero_piece(now, key, actions),
            _ => self.finish_write(now, key, actions),
        }
    }

    fn finish_write(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let entry = self.requests[key];
        let Job::Write(job) = entry.job else { unreachable!("a write") };
        self.flush.note_write(entry.range);
        if entry.answered || entry.failed.is_some() {
            self.invalidate(entry.range);
            if let Some(status) = entry.failed.filter(|_| !entry.answered) {
                self.answer(key, status, ReplyData::None, None, actions);
            }
            return self.forget(key);
        }
        let buffer = entry.buffer.expect("a write has a buffer");
        for block in self.grid.blocks(entry.range) {
            self.update_cache(now, block, entry.range, buffer, job, actions);
        }
        if !job.bypass {
            self.fetch_edges(now, entry.range);
        }
        self.count_write(key);
        if job.fua {
            self.join_flush(now, key, actions);
        } else {
            self.flush.note_acknowledged();
            let of = Some(self.latency_of(key));
            self.answer(key, IoStatus::Ok, ReplyData::None, of, actions);
            self.forget(key);
        }
    }

    /// A write, or a compare-and-write, did what it was to do.
    pub(super) fn count_write(&mut self, key: Key) {
        let entry = &self.requests[key];
        if self.latency_of(key) == LatencyOf::CompareAndWrite {
            self.counters.compare_and_writes += 1;
        } else {
            self.counters.writes += 1;
            self.counters.write_bytes += entry.range.len();
        }
    }

    /// What the latency of a request counts as that wrote something.
    pub(super) fn latency_of(&self, key: Key) -> LatencyOf {
        match self.requests[key].job {
            Job::Write(WriteJob { compared: true, .. }) => LatencyOf::CompareAndWrite,
            Job::Flush => LatencyOf::Flush,
            Job::Write(_) | Job::Zero(_) | Job::Read(_) | Job::Allocation => LatencyOf::Write,
        }
    }

    /// Brings what the cache holds of `block` up to a write to `range` that primary storage has.
    pub(super) fn update_cache(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        range: ByteRange,
        buffer: Buffer,
        job: WriteJob,
        actions: &mut Actions,
    ) {
        let touched = self.grid.touched(block, range);
        let keeps = self.mode.keeps_writes() && !self.stale.has(block);
        let covered = self.grid.covered(block, range);
        let in_ram = self.ram.as_ref().and_then(|ram| ram.dir.find(block));
        if in_ram.is_none() && keeps && !self.is_on_flash(block) {
            self.note_new_block(block, job.is_stream, false);
        }
        match in_ram {
            Some(slot) if keeps => self.update_ram(now, block, slot, range, buffer, actions),
            Some(slot) => {
                let ram = self.ram.as_mut().expect("there is a RAM tier");
                ram.invalidate(slot, touched);
            }
            None if !keeps || job.bypass || covered.is_empty() => {}
            None if self.ram.is_some() => {
                self.insert_into_ram(now, block, covered, buffer, actions)
            }
            None => {}
        }
        // After RAM: making room there may just have sent this block's old bytes to flash.
        self.cancel_fills(block, touched);
        match &mut self.flash {
            // What was worth a slot is so with other bytes in it.
            Some(flash) if keeps && !job.bypass => flash.overwrite(block, touched),
            Some(flash) => _ = flash.invalidate(block, touched),
            None => {}
        }
        if self.ram.is_none() && keeps && !job.bypass && !covered.is_empty() {
            let bytes = BlockBytes::Buffer(buffer);
            self.offer_to_flash(now, block, covered, Offer::Requested, bytes, actions);
        }
    }

    fn is_on_flash(&self, block: BlockIndex) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.find(block).is_some())
    }

    fn insert_into_ram(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        covered: GranuleMask,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        let Some(slot) = self.take_ram_slot(now, actions) else {
            self.counters.ram_fills_skipped += 1;
            return;
        };
        self.copy_to_ram(block, slot, covered, buffer, actions);
        self.counters.ram_filled += 1;
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        ram.dir.insert(slot, block, covered);
    }

    /// Overwrites the written bytes in the block's slot, in a copy of it when replies still refer to
    /// the slot. Granules written in part stay valid if they were, and invalid if they were not.
    fn update_ram(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        slot: SlotId,
        range: ByteRange,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        let touched = self.grid.touched(block, range);
        let covered = self.grid.covered(block, range);
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        let valid = ram.dir.valid(slot);
        let rewritten = touched.intersect(valid);
        let target = if ram.is_pinned(slot) && !rewritten.is_empty() {
            let Some(copy) = self.move_block(now, block, slot, valid.without(covered), actions)
            else {
                return;
            };
            copy
        } else {
            slot
        };
        for (first, end) in super::fill::runs(covered.union(rewritten)) {
            let part = self.grid.granule_range(block, first, end).intersect(range);
            let ram = self.ram.as_ref().expect("there is a RAM tier");
            let to = ram.memory(target, self.grid.offset_in_block(part.start), part.len());
            actions.list.push(Action::Copy { from: buffer.at(part), to });
        }
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        ram.dir.validate(target, covered);
        ram.dir.hit(target);
    }

    /// Moves a block whose slot must not change to another slot, with its granules `keep`. `None`:
    /// there is no slot, and the block was dropped.
    fn move_block(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        from: SlotId,
        keep: GranuleMask,
        actions: &mut Actions,
    ) -> Option<SlotId> {
        let to = self.take_ram_slot(now, actions);
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        // Making room may have evicted this very block.
        if ram.dir.find(block) != Some(from) {
            if let Some(to) = to {
                ram.dir.release(to);
            }
            return None;
        }
        let Some(to) = to else {
            ram.dir.remove(from);
            ram.retire(from);
            return None;
        };
        for (first, end) in super::fill::runs(keep) {
            let range = self.grid.granule_range(block, first, end);
            let offset = self.grid.offset_in_block(range.start);
            let (from, to) =
                (ram.memory(from, offset, range.len()), ram.memory(to, offset, range.len()));
            actions.list.push(Action::Copy { from, to });
        }
        ram.dir.replace(from, to);
        ram.retire(from);
        Some(to)
    }
}
