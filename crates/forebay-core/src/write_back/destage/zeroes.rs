//! Zeroes of the log, on their way to primary storage: alone, with no run beside them.
//!
//! ```text
//!   whole blocks, and it can ─► WRITE ZEROES, piece by piece
//!   else ─► whole blocks are written from memory; a part of one is read before
//! ```

use super::ZEROES_PIECE_MAX;
use super::batch::ZeroItem;
use super::run::RUN_PAGES_MAX;
use crate::action::{Action, DestageFault, IoOp, Span, Target};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, PAGE};
use crate::status::IoStatus;
use crate::write_back::{DestageIo, WriteBack};

impl WriteBack {
    /// Begins with zeroes from the cursor on.
    pub(super) fn start_zero(&mut self, (zero, cursor): (ZeroItem, u64), cx: &mut Cx<'_>) {
        let destager = &mut self.destager;
        destager.running.outstanding += 1;
        let logical = u64::from(cx.config.backend.logical_block);
        let whole_end = zero.range.end & !(logical - 1);
        let has_blocks = cursor.is_multiple_of(logical) && cursor < whole_end;
        if has_blocks && !cx.writes_zeroes(zero.may_unmap) {
            let piece = ByteRange::new(cursor, whole_end.min(cursor + ZEROES_PIECE_MAX));
            let op = IoOp::WriteZeroes { may_unmap: zero.may_unmap, fast_only: false };
            let kind = IoKind::Destager(DestageIo::Zero { end: piece.end, memory: (0, 0) });
            destager.window.on_zeroes(cx.now, 0);
            return cx.start(Target::Backend, piece, op, kind);
        }
        self.write_zeroes(ByteRange::new(cursor, zero.range.end), cx);
    }

    /// Writes zeroes from memory: whole logical blocks, or a part of one after reading it.
    fn write_zeroes(&mut self, range: ByteRange, cx: &mut Cx<'_>) {
        let logical = u64::from(cx.config.backend.logical_block);
        let whole = range.start.next_multiple_of(logical);
        let destager = &mut self.destager;
        let pages = if whole != range.start { 1 } else { RUN_PAGES_MAX };
        // Zeroes are done alone, so that there is room.
        let first = destager.running.memory.take(pages).expect("runs do not go on beside zeroes");
        let memory = Span {
            offset: destager.running.base + u64::from(first) * PAGE,
            len: pages * PAGE as u32,
        };
        let block_end = (range.start & !(logical - 1)) + logical;
        let tail_is_part = range.end & !(logical - 1) <= range.start;
        if whole != range.start || tail_is_part {
            let block = ByteRange::new(block_end - logical, block_end);
            let end = range.end.min(block_end);
            let kind = IoKind::Destager(DestageIo::ZeroEdge { end, memory: (first, pages) });
            return cx.read_backend(block, memory.part(0, logical), kind);
        }
        let end = (range.start + u64::from(memory.len)).min(range.end & !(logical - 1));
        let piece = ByteRange::new(range.start, end);
        let memory = memory.part(0, piece.len());
        destager.window.on_zeroes(cx.now, piece.len());
        cx.push(Action::Zero { memory });
        let kind = IoKind::Destager(DestageIo::Zero { end, memory: (first, pages) });
        let op = IoOp::Write { memory, durable: false };
        cx.start(Target::Backend, piece, op, kind);
    }

    /// The logical block around zeroes is there: writes it with the zeroes in it.
    pub(crate) fn on_destage_zero_edge(
        &mut self,
        (block, end): (ByteRange, u64),
        (first, pages): (u32, u32),
        status: IoStatus,
        cx: &mut Cx<'_>,
    ) {
        let destager = &mut self.destager;
        let goes_on = status.is_ok() && !destager.batch.has_failed();
        let Some((_, cursor)) = destager.batch.zero().filter(|_| goes_on) else {
            destager.running.outstanding -= 1;
            destager.running.memory.give(first, pages);
            if !status.is_ok() {
                self.destager.fail_batch(DestageFault::PrimaryStorage, status, cx);
            }
            return;
        };
        let base = destager.running.base + u64::from(first) * PAGE;
        let memory = Span { offset: base, len: block.len() as u32 };
        destager.window.on_zeroes(cx.now, block.len());
        let zeroes = memory.part(cursor - block.start, end - cursor);
        cx.push(Action::Zero { memory: zeroes });
        let kind = IoKind::Destager(DestageIo::Zero { end, memory: (first, pages) });
        let op = IoOp::Write { memory, durable: false };
        cx.start(Target::Backend, block, op, kind);
    }

    /// Zeroes are on primary storage up to `end`, or not.
    pub(crate) fn on_destage_zero(
        &mut self,
        end: u64,
        (first, pages): (u32, u32),
        status: IoStatus,
        cx: &mut Cx<'_>,
    ) {
        let destager = &mut self.destager;
        destager.running.outstanding -= 1;
        if pages > 0 {
            destager.running.memory.give(first, pages);
        }
        if status == IoStatus::Unsupported {
            // It cannot after all: from now on they are written.
            let refused = destager.batch.zero().map(|(zero, _)| zero.may_unmap);
            refused.into_iter().for_each(|may_unmap| cx.note_zeroes_refused(may_unmap));
        } else if !status.is_ok() {
            self.destager.fail_batch(DestageFault::PrimaryStorage, status, cx);
        } else if !destager.flushes.redo {
            destager.note_success();
            destager.window.on_zeroed(cx.now);
            destager.batch.advance_zero(end);
            cx.counters.destage_writes += 1;
        }
    }
}
