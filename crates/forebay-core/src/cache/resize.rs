//! Another number of RAM slots, with the blocks in place.
//!
//! ```text
//!   more  ─► there at once, withheld until their memory is
//!   fewer ─► those that are to go: withheld when nothing is in them
//!              └─ with a block ─► it moves to another slot, for which the coldest block leaves, some at each tick
//!            nothing is left in them ─► forgotten, and the executor hears that their memory is not needed
//! ```
//! So what is used most stays. What leaves is offered to flash, as always; while flash has all the writes that it is
//! given at once, no more leaves for this.
//!
//! A slot that a reply refers to does not change: its block is copied, and the slot waits until the reply is sent.
//!
//! **Limits:** one call looks at no more than [`Cache::visits_max`] slots, and moves or drops [`MOVED_MAX`] bytes of
//! blocks, or one block. The tables of slots are made anew once for each change, in one call: they are copied from start
//! to end. The list of free slots is gone through once, when the change begins.

use super::flash::fills::WRITES_MAX;
use super::{Cache, Undestaged, slots};
use crate::action::Event;
use crate::cx::{Cx, Shared};
use crate::geometry::ByteRange;
use crate::ids::{BlockIndex, SlotId};

/// Bytes of blocks that one call moves, or drops, at most; one block in any case. Requests wait for that.
const MOVED_MAX: u64 = 128 << 10;

impl Cache {
    /// Goes on with as much RAM as the configuration says. The part of the disk's memory that is to come.
    pub(crate) fn resize_ram(&mut self, shared: &Shared) -> Option<ByteRange> {
        let slots = slots(shared.config.ram_bytes, &shared.config)?;
        self.ram.as_mut()?.resize(slots);
        if self.flash.is_none() {
            self.streams.resize(slots);
            self.edges.resize(slots);
        }
        // Slots that were passed by may have got blocks, and those of flash have other numbers behind RAM's.
        self.changing.begin_sweep(slots);
        self.stale.renumber();
        self.plan_changes(shared);
        self.ram.as_ref()?.missing()
    }

    /// The part of the disk's memory that RAM slots wait for.
    pub(crate) fn ram_missing(&self) -> Option<ByteRange> {
        self.ram.as_ref()?.missing()
    }

    /// True while RAM slots are to go.
    pub(super) fn is_shrinking(&self) -> bool {
        self.ram.as_ref().is_some_and(|ram| ram.is_shrinking())
    }

    /// True while flash has all the writes that it is given at once.
    pub(super) fn is_flash_busy(&self) -> bool {
        let flash = self.flash.as_ref().filter(|flash| flash.is_working());
        flash.is_some_and(|flash| flash.fills.writes() >= WRITES_MAX)
    }

    /// Empties some of the RAM slots that are to go, and ends that when nothing is in them.
    pub(super) fn vacate_some(&mut self, undestaged: Undestaged<'_>, cx: &mut Cx<'_>) {
        let moves_max = (MOVED_MAX / cx.grid.block_size()).max(1);
        let mut moves = 0;
        for _ in 0..self.visits_max() {
            let Some(ram) = &self.ram else { return };
            let slot = SlotId(self.changing.swept());
            if !ram.leaving().contains(&slot.0) {
                return self.end_shrinking(cx);
            }
            let block = ram.dir.block_of(slot);
            match block {
                None => {}
                Some(block) if self.stale.has(block) => self.drop_stale(block),
                Some(_) if moves == moves_max || self.is_flash_busy() => return,
                Some(block) => {
                    moves += 1;
                    if !self.move_down(block, slot, undestaged, cx) {
                        continue;
                    }
                }
            }
            self.changing.sweep_on();
        }
    }

    /// Moves a block out of a slot that is to go. False: every slot that was to take it is in use, or is to go, too.
    fn move_down(
        &mut self,
        block: BlockIndex,
        from: SlotId,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) -> bool {
        let to = self.take_ram_slot(undestaged, cx);
        let Some(ram) = &mut self.ram else { return true };
        // Making room may have evicted this very block.
        if ram.find(block) != Some(from) {
            to.into_iter().for_each(|to| ram.give_back(to));
            return true;
        }
        let Some(to) = to else { return false };
        let valid = ram.dir.valid(from);
        ram.relocate(block, (from, to), valid, cx);
        true
    }

    fn end_shrinking(&mut self, cx: &mut Cx<'_>) {
        let Some(ram) = self.ram.as_mut().filter(|ram| ram.is_shrinking()) else { return };
        if ram.shrink() {
            let memory = ram.place();
            self.stale.renumber();
            cx.event(Event::RamShrunk { end: memory.end });
        }
    }
}
