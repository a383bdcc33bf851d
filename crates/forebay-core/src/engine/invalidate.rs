//! Dropping what became wrong, or may have, from both tiers.

use super::Engine;
use crate::directory::Directory;
use crate::geometry::ByteRange;
use crate::ids::{BlockIndex, SlotId};

impl Engine {
    /// Drops every granule that `range` touches from both tiers; returns how many blocks had one.
    pub(super) fn invalidate(&mut self, range: ByteRange) -> u64 {
        let slots = (self.memory_size() + self.flash_size()) / self.config.block_size;
        let blocks = range.len() / self.config.block_size;
        if blocks <= slots {
            return self.grid.blocks(range).map(|block| self.invalidate_in(block, range)).sum();
        }
        // Fewer blocks are cached than asked about: look at those.
        let mut dropped = 0;
        let slots_of = |dir: Option<&Directory>| dir.map_or(0, |d| d.slots());
        for slot in 0..slots_of(self.ram.as_ref().map(|ram| &ram.dir)) {
            let block = self.ram.as_ref().and_then(|ram| ram.dir.block_of(SlotId(slot)));
            dropped += block.map_or(0, |block| self.invalidate_in(block, range));
        }
        for slot in 0..slots_of(self.flash.as_ref().map(|flash| &flash.dir)) {
            let block = self.flash.as_ref().and_then(|flash| flash.dir.block_of(SlotId(slot)));
            dropped += block.map_or(0, |block| self.invalidate_in(block, range));
        }
        for block in self.fills.iter().map(|(_, fill)| fill.block).collect::<Vec<_>>() {
            self.cancel_fills(block, self.grid.touched(block, range));
        }
        dropped
    }

    /// Drops the granules of `block` that `range` touches from both tiers.
    fn invalidate_in(&mut self, block: BlockIndex, range: ByteRange) -> u64 {
        let mask = self.grid.touched(block, range);
        if mask.is_empty() {
            return 0;
        }
        self.cancel_fills(block, mask);
        let mut had = self.flash.as_mut().is_some_and(|flash| flash.invalidate(block, mask));
        if let Some(ram) = &mut self.ram
            && let Some(slot) = ram.dir.find(block)
        {
            had |= !ram.dir.valid(slot).intersect(mask).is_empty();
            ram.invalidate(slot, mask);
        }
        u64::from(had)
    }
}
