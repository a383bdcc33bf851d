//! The flash tier as a former run left it, and what the cache index asks of the tier while it is recorded.

use super::Cache;
use crate::cx::Cx;
use crate::geometry::GranuleMask;
use crate::ids::{BlockIndex, SlotId};

impl Cache {
    /// Begins to put blocks back where a former run had them. The tier must be empty.
    pub(crate) fn begin_restore(&mut self) {
        if let Some(flash) = &mut self.flash {
            flash.tier.dir.take_all();
        }
    }

    /// Fetches the memory that [`Cache::restore`] of these needs, for all of them at once.
    pub(crate) fn prefetch(&self, coming: &[(SlotId, BlockIndex)]) {
        if let Some(flash) = &self.flash {
            flash.tier.prefetch(coming);
        }
    }

    /// Puts `block` back, as the one that was used longest ago of those that are here. A block that is here already
    /// lies in the slot that was recorded later, and stays there. The other slot lost it, which is to be recorded before
    /// anything that becomes of the block: else the next start finds the block there as it was.
    pub(crate) fn restore(
        &mut self,
        slot: SlotId,
        (block, valid, referenced): (BlockIndex, GranuleMask, bool),
        checksums: impl Iterator<Item = (u32, u32)>,
    ) {
        let Some(flash) = &mut self.flash else { return };
        if flash.tier.dir.restore(slot, block, valid, referenced) {
            for (granule, checksum) in checksums {
                flash.tier.store_checksum(slot, granule, checksum);
            }
        } else {
            flash.tier.retire(slot);
        }
    }

    /// Every block is back: the other slots are free.
    pub(crate) fn end_restore(&mut self) {
        if let Some(flash) = &mut self.flash {
            flash.tier.dir.end_restore();
        }
    }

    /// Drops the blocks of flash that `is_wrong` names. Slow: it looks at every slot.
    pub(crate) fn drop_from_flash(&mut self, is_wrong: impl Fn(BlockIndex) -> bool) {
        let Some(flash) = &mut self.flash else { return };
        for slot in (0..flash.tier.dir.slots()).map(SlotId) {
            let block = flash.tier.dir.block_of(slot).filter(|&block| is_wrong(block));
            if let Some(block) = block {
                flash.tier.remove(block);
            }
        }
    }

    /// Blocks on flash.
    pub(crate) fn blocks_on_flash(&self) -> u64 {
        self.flash.as_ref().map_or(0, |flash| flash.tier.dir.len().into())
    }

    /// True when the index says of a slot what is wrong, and has no room to say otherwise.
    pub(crate) fn is_misrecorded(&self) -> bool {
        self.flash.as_ref().is_some_and(|flash| flash.tier.is_misrecorded)
    }

    /// What was recorded of slots that lost their block is durable: they are free.
    pub(crate) fn on_recorded(&mut self) {
        if let Some(flash) = &mut self.flash {
            flash.tier.free_recorded();
        }
    }

    /// What slots hold is not recorded any more.
    pub(crate) fn stop_recording(&mut self) {
        if let Some(flash) = &mut self.flash {
            flash.tier.stop_recording();
        }
    }

    /// Starts writes of fills that wait for a free slot.
    pub(crate) fn write_waiting_fills(&mut self, cx: &mut Cx<'_>) {
        let Cache { flash, streams, .. } = self;
        if let Some(flash) = flash {
            flash.write_waiting(streams, cx);
        }
    }

    /// Ends the fills that wait for a free slot.
    pub(crate) fn end_waiting_fills(&mut self, cx: &mut Cx<'_>) {
        if let Some(flash) = &mut self.flash {
            flash.end_waiting(cx);
        }
    }
}
