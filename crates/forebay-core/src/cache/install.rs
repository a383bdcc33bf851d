//! Bytes on their way into the cache: into RAM by a copy, and from there to flash by an I/O.
//! Without a RAM tier they go to flash from a request's buffer. Nobody waits for that I/O.
//!
//! ```text
//!  fetched or written bytes ──copy──► RAM slot ──evicted──► admitted? ──copy──► staging ──I/O──► flash slot
//!                                                              └─ no: remembered only (flash/admission.rs)
//! ```
//! Bytes that only the log has wait for the destager. It offers them from its own memory.
//!
//! **Invariants**
//! - A granule becomes valid only with its newest bytes. The caller holds the range in the overlap table, and a write
//!   that completes cancels what is on its way to flash (`flash/fills.rs`).
//! - A reply never waits for any of this. A fill without a slot or staging memory is skipped and counted.

use super::flash::Offered;
use super::{BlockBytes, Cache, Offer, SlotRun, Undestaged, working};
use crate::action::Buffer;
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, SlotId};
use crate::misses::Fate;
use crate::status::IoStatus;
use crate::table::Key;

/// Evictions tried for one fill before it is given up: more than one only when slots are pinned.
const EVICT_TRIES: u32 = 8;

impl Cache {
    /// Puts the granules that `range` covers, fetched into `buffer`, into the cache.
    pub(crate) fn install(
        &mut self,
        range: ByteRange,
        buffer: Buffer,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) {
        for block in cx.grid.blocks(range) {
            let covered = cx.grid.covered(block, range);
            if covered.is_empty() || self.stale.has(block) {
                continue;
            }
            if self.ram.is_some() {
                self.fill_ram(block, covered, buffer, undestaged, cx);
            } else {
                self.offer_requested(block, covered, buffer, undestaged, cx);
            }
        }
    }

    /// Puts granules of `block` that RAM does not have yet into its slot, a new one if need be.
    fn fill_ram(
        &mut self,
        block: BlockIndex,
        mask: GranuleMask,
        buffer: Buffer,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) {
        let Some(ram) = &mut self.ram else { return };
        let Some((slot, valid)) = ram.dir.lookup(block) else {
            return self.insert_into_ram(block, mask, buffer, undestaged, cx);
        };
        let missing = mask.without(valid);
        ram.copy_in(block, slot, missing, buffer, cx);
        if !missing.is_empty() {
            ram.dir.validate(slot, missing);
        }
    }

    /// Puts granules of `block`, which RAM does not have, into a new slot.
    pub(super) fn insert_into_ram(
        &mut self,
        block: BlockIndex,
        mask: GranuleMask,
        buffer: Buffer,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) {
        let slot = self.take_ram_slot(undestaged, cx);
        let (Some(slot), Some(ram)) = (slot, &mut self.ram) else {
            cx.counters.ram_fills_skipped += 1;
            if !self.is_on_flash(block) {
                cx.misses.note_lost(block, Fate::Bypassed);
            }
            return;
        };
        ram.copy_in(block, slot, mask, buffer, cx);
        cx.counters.ram_filled += 1;
        ram.dir.insert(slot, block, mask);
    }

    /// A RAM slot for a new block, evicting when none is free; `None` when all are pinned.
    pub(super) fn take_ram_slot(
        &mut self,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) -> Option<SlotId> {
        let Cache { ram, flash, stale, streams, .. } = self;
        let ram = ram.as_mut()?;
        if let Some(slot) = ram.dir.take_free() {
            return Some(slot);
        }
        cx.counters.evict_ops += 1;
        for _ in 0..EVICT_TRIES {
            let victim = ram.dir.evict()?;
            cx.counters.ram_evicted += 1;
            streams.note_left(&victim);
            if let Some(flash) = working(flash) {
                let why = if victim.referenced { Offer::Used } else { Offer::Requested };
                let bytes = BlockBytes::Slot(ram.whole(victim.slot));
                let offered = Offered { block: victim.block, mask: victim.valid, why, bytes };
                flash.offer(offered, undestaged, stale, streams, cx);
            }
            if !ram.is_pinned(victim.slot) && ram.may_use(victim.slot) {
                return Some(victim.slot);
            }
            ram.retire(victim.slot);
        }
        None
    }

    /// Offers granules of `block`, which was read or written, to flash from a request's buffer.
    pub(super) fn offer_requested(
        &mut self,
        block: BlockIndex,
        mask: GranuleMask,
        buffer: Buffer,
        undestaged: Undestaged<'_>,
        cx: &mut Cx<'_>,
    ) {
        let Cache { flash, stale, streams, .. } = self;
        if let Some(flash) = working(flash) {
            let bytes = BlockBytes::Buffer(buffer);
            let offered = Offered { block, mask, why: Offer::Requested, bytes };
            flash.offer(offered, undestaged, stale, streams, cx);
        }
    }

    /// Offers granules of `block` that were destaged, and of which the log holds nothing newer, to flash.
    pub(crate) fn offer_destaged(
        &mut self,
        block: BlockIndex,
        mask: GranuleMask,
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) {
        let Cache { flash, stale, streams, .. } = self;
        if let Some(flash) = working(flash) {
            let bytes = BlockBytes::Buffer(buffer);
            let offered = Offered { block, mask, why: Offer::Destaged, bytes };
            flash.offer_current(offered, stale, streams, cx);
        }
    }

    /// A fill of flash ended.
    pub(crate) fn on_fill(
        &mut self,
        fill: Key,
        to: SlotRun,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        let Cache { flash, streams, .. } = self;
        if let Some(flash) = flash {
            flash.end_write((fill, to), status, checksums, streams, cx);
        }
    }
}
