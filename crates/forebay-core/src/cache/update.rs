//! What a write changes: RAM is updated, flash granules are dropped and come back through RAM (or at once, without a
//! RAM tier).

use super::{Cache, Undestaged};
use crate::action::{Action, Buffer};
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, SlotId};
use crate::misses::Fate;

/// A write that is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    pub range: ByteRange,
    /// Where its bytes are.
    pub buffer: Buffer,
    /// The mode keeps what is written; what is cached of it is dropped otherwise.
    pub keeps: bool,
    /// It belongs to a long sequential stream.
    pub is_stream: bool,
    /// It does not take new slots.
    pub bypass: bool,
}

impl Cache {
    /// Brings what the cache holds of `block` up to a write.
    pub(crate) fn update(
        &mut self,
        block: BlockIndex,
        write: &Update,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) {
        let Update { range, buffer, is_stream, bypass, .. } = *write;
        let touched = cx.grid.touched(block, range);
        let covered = cx.grid.covered(block, range);
        let keeps = write.keeps && !self.stale.has(block);
        let takes_slot = keeps && !bypass && !covered.is_empty();
        let in_ram = self.ram.as_ref().and_then(|ram| ram.find(block));
        let is_cached = in_ram.is_some() || self.is_on_flash(block);
        // A stream that goes on within a block writes it once.
        let goes_on = is_stream && range.start > cx.grid.range_of(block).start;
        if !is_cached && keeps && !goes_on {
            self.note_new_block(block, is_stream, false);
        }
        match (keeps, is_cached, takes_slot) {
            (true, false, true) => cx.misses.note_written(block, Fate::Kept),
            (false, true, _) => cx.misses.note_written(block, Fate::Invalidated),
            (_, false, _) => cx.misses.note_written(block, Fate::Bypassed),
            (true, true, _) => {}
        }
        match (in_ram, &mut self.ram) {
            (Some(slot), _) if keeps => self.update_ram(block, slot, write, undestaged, cx),
            (Some(slot), Some(ram)) => ram.invalidate(slot, touched),
            (None, Some(_)) if takes_slot => {
                self.insert_into_ram(block, covered, buffer, undestaged, cx);
            }
            (None, _) | (_, None) => {}
        }
        // After RAM: making room there may just have sent this block's old bytes to flash.
        match &mut self.flash {
            // What was worth a slot is so with other bytes in it.
            Some(flash) if keeps && !bypass => flash.overwrite(block, touched),
            Some(flash) => _ = flash.invalidate(block, touched),
            None => {}
        }
        if self.ram.is_none() && takes_slot {
            self.offer_requested(block, covered, buffer, undestaged, cx);
        }
    }

    pub(super) fn is_on_flash(&self, block: BlockIndex) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.tier.find(block).is_some())
    }

    /// Overwrites the written bytes in the block's slot, in a copy of it when replies still refer to
    /// the slot. Granules written in part stay valid if they were, and invalid if they were not.
    fn update_ram(
        &mut self,
        block: BlockIndex,
        slot: SlotId,
        write: &Update,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) {
        let Some(ram) = &self.ram else { return };
        let touched = cx.grid.touched(block, write.range);
        let covered = cx.grid.covered(block, write.range);
        let valid = ram.dir.valid(slot);
        let rewritten = touched.intersect(valid);
        let must_move = ram.is_pinned(slot) && !rewritten.is_empty();
        let target = match must_move {
            true => self.move_block(block, slot, valid.without(covered), undestaged, cx),
            false => Some(slot),
        };
        let (Some(target), Some(ram)) = (target, &mut self.ram) else { return };
        for (first, end) in covered.union(rewritten).runs() {
            let part = cx.grid.granule_range(block, first, end).intersect(write.range);
            let to = ram.memory(target, cx.grid.offset_in_block(part.start), part.len());
            cx.push(Action::Copy { from: write.buffer.at(part), to });
        }
        ram.dir.validate(target, covered);
        ram.dir.hit(target);
    }

    /// Moves a block whose slot must not change to another slot, with its granules `keep`. `None`:
    /// there is no slot, and the block was dropped.
    fn move_block(
        &mut self,
        block: BlockIndex,
        from: SlotId,
        keep: GranuleMask,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) -> Option<SlotId> {
        let to = self.take_ram_slot(undestaged, cx);
        let ram = self.ram.as_mut()?;
        // Making room may have evicted this very block.
        if ram.find(block) != Some(from) {
            if let Some(to) = to {
                ram.give_back(to);
            }
            return None;
        }
        let Some(to) = to else {
            ram.dir.remove(from);
            ram.retire(from);
            return None;
        };
        ram.relocate(block, (from, to), keep, cx);
        Some(to)
    }
}
