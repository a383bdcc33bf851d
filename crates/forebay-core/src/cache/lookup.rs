//! Lookups: the tiers that hold a block, and its uses.

use super::{Cache, Unrecorded};
use crate::action::{ReplyData, Span};
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask, Grid, Piece};
use crate::ids::{BlockIndex, SlotId};
use crate::status::IoStatus;

/// A block's slot and valid granules in each tier that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub ram: Option<(SlotId, GranuleMask)>,
    pub flash: Option<(SlotId, GranuleMask)>,
}

impl Found {
    /// Granules in RAM.
    pub(crate) fn in_ram(self) -> GranuleMask {
        self.ram.map_or(GranuleMask::NONE, |(_, valid)| valid)
    }

    /// Granules in either tier.
    pub(crate) fn granules(self) -> GranuleMask {
        self.in_ram().union(self.flash.map_or(GranuleMask::NONE, |(_, valid)| valid))
    }
}

/// Granules `first..end` of a block in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotRun {
    pub block: BlockIndex,
    pub slot: SlotId,
    pub first: u32,
    pub end: u32,
}

impl Cache {
    /// True when a read of `range` may find its bytes in RAM.
    #[inline]
    pub(crate) fn may_hit(&self, range: ByteRange, grid: &Grid) -> bool {
        self.ram.is_some() && !self.stale.touches(range, grid)
    }

    /// Reads the memory that hits at these positions begin with, for all of them at once: one after the other the CPU would wait
    /// for each.
    #[inline]
    pub(crate) fn look_ahead(&self, positions: impl Iterator<Item = u64>, grid: &Grid) {
        if let Some(ram) = &self.ram {
            ram.dir.look_ahead_of_hits(positions.map(|position| grid.block_of(position)));
        }
    }

    /// The slots that answer a read of `range`, when RAM has all of it. They are pinned until [`Cache::unpin`].
    #[inline]
    pub(crate) fn hit(&mut self, range: ByteRange, cx: &mut Cx<'_>) -> Option<ReplyData> {
        let (first, count) = self.ram.as_mut()?.hit(range, cx)?;
        self.streams.observe(range);
        if let Some(detector) = &mut self.alignment {
            detector.observe(range);
        }
        Some(ReplyData::Slots { first: first as u32, count: count as u32 })
    }

    /// Looks a block up in both tiers. A stale block is in neither.
    pub(crate) fn lookup(&self, block: BlockIndex) -> Found {
        if self.stale.has(block) {
            return Found::default();
        }
        Found {
            ram: self.ram.as_ref().and_then(|ram| ram.dir.lookup(block)),
            flash: self.flash.as_ref().and_then(|flash| flash.tier.find(block)),
        }
    }

    /// True when RAM has something of a block.
    pub(crate) fn is_in_ram(&self, block: BlockIndex) -> bool {
        self.ram.as_ref().is_some_and(|ram| ram.find(block).is_some())
    }

    /// True when RAM has all of `range`.
    pub(crate) fn has_in_ram(&self, range: ByteRange, grid: &Grid) -> bool {
        self.ram.as_ref().is_some_and(|ram| ram.has(grid, range))
    }

    /// Where RAM has a part of a block, if it has all of it and that is not stale.
    pub(crate) fn memory_of(&self, piece: &Piece) -> Option<Span> {
        let ram = self.ram.as_ref().filter(|_| !self.stale.has(piece.block))?;
        let (slot, valid) = ram.dir.lookup(piece.block)?;
        valid.contains(piece.touched).then(|| ram.memory(slot, piece.offset, piece.len))
    }

    /// Uses granules that [`Cache::lookup`] found in RAM. Returns their memory.
    pub(crate) fn use_ram(&mut self, at: SlotRun, grid: &Grid) -> Span {
        let SlotRun { block, slot, first, end } = at;
        let range = grid.granule_range(block, first, end);
        let ram = self.ram.as_mut().expect("the tier that the slot is of");
        ram.dir.hit(slot);
        ram.memory(slot, grid.offset_in_block(range.start), range.len())
    }

    /// Begins to read granules that [`Cache::lookup`] found on flash. Returns their place there.
    pub(crate) fn begin_flash_read(&mut self, at: SlotRun, grid: &Grid) -> ByteRange {
        let SlotRun { slot, first, end, .. } = at;
        let tier = &mut self.flash.as_mut().expect("the tier that the slot is of").tier;
        tier.dir.hit(slot);
        tier.hold(slot);
        tier.range(slot, first, end, grid.granule_size())
    }

    /// The read ended; true when it delivered what was written there.
    pub(crate) fn end_flash_read(
        &mut self,
        at: SlotRun,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) -> bool {
        self.flash.as_mut().is_some_and(|flash| flash.end_read(at, status, checksums, cx))
    }

    /// A read that nobody waits for any more ended.
    pub(crate) fn abandon_flash_read(&mut self, slot: SlotId) {
        if let Some(flash) = &mut self.flash {
            flash.tier.unhold(slot);
        }
    }

    /// The blocks of `range` that are cached were used.
    pub(crate) fn note_use(&mut self, range: ByteRange, grid: &Grid) {
        for block in grid.blocks(range) {
            if let Some(ram) = &mut self.ram
                && let Some(slot) = ram.find(block)
            {
                ram.dir.hit(slot);
            } else if let Some(flash) = &mut self.flash
                && let Some((slot, _)) = flash.tier.find(block)
            {
                flash.tier.dir.hit(slot);
            }
        }
    }

    /// How many changes of the flash tier there were, as the cache index counts them.
    pub(crate) fn changes(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.tier.change_count())
    }

    /// The changes that the cache index has to record; `None` where nothing is recorded.
    pub(crate) fn unrecorded(&mut self) -> Option<Unrecorded<'_>> {
        self.flash.as_mut()?.tier.unrecorded(&self.stale)
    }
}
