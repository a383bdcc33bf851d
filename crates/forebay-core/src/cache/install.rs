//! Bytes on their way into the cache: into RAM by a copy, from there (or from a request's buffer,
//! without a RAM tier) to flash by an I/O that nobody waits for.
//!
//! ```text
//!  fetched or written bytes ──copy──► RAM slot ──evicted──► admitted? ──copy──► staging ──I/O──► flash slot
//!                                                              └─ no: remembered only (admission.rs)
//! ```
//! What is in the log and not on primary storage waits for the destager, which offers it from its own memory
//! (`destage/keep.rs`).
//!
//! **Invariants:** a granule becomes valid only with bytes that are the newest: the caller holds the
//! range in the overlap table, and a write that completes cancels what is on its way to flash
//! (`flash_fill.rs`). What finds no slot or no staging buffer is skipped and counted; a reply never waits for any of this.

use super::admission::Candidate;
use super::bypass::note_left;
use crate::action::{Action, Buffer};
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, Sequence, SlotId};
use crate::log::index::LogIndex;

/// Evictions tried for one fill before it is given up: more than one only when slots are pinned.
const EVICT_TRIES: u32 = 8;

/// Why a block is offered to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It was read, or written.
    Requested,
    /// RAM gave it up, where it was used.
    Used,
    /// It was destaged.
    Destaged,
}

/// Where the bytes of a block are.
#[derive(Clone, Copy)]
pub(super) enum BlockBytes {
    /// In a RAM slot.
    Slot(SlotId),
    /// In a request's buffer.
    Buffer(Buffer),
}

impl Parts {
    /// Puts the granules that `range` covers, fetched into `buffer`, into the cache.
    pub(super) fn install(&mut self, range: ByteRange, buffer: Buffer, cx: &mut Cx<'_>) {
        for block in cx.grid.blocks(range) {
            let covered = cx.grid.covered(block, range);
            if covered.is_empty() || self.cache.stale.has(block) {
                continue;
            }
            if self.cache.ram.is_some() {
                self.fill_ram(block, covered, buffer, cx);
            } else {
                let bytes = BlockBytes::Buffer(buffer);
                self.offer_to_flash(block, covered, Offer::Requested, bytes, cx);
            }
        }
    }

    /// Puts granules of `block` that RAM does not have yet into its slot, a new one if need be.
    fn fill_ram(&mut self, block: BlockIndex, mask: GranuleMask, buffer: Buffer, cx: &mut Cx<'_>) {
        let found = self.cache.ram.as_ref().and_then(|ram| ram.dir.find(block));
        let Some(slot) = found.or_else(|| self.take_ram_slot(cx)) else {
            cx.counters.ram_fills_skipped += 1;
            return;
        };
        let ram = self.cache.ram.as_mut().expect("there is a RAM tier");
        let missing = match found {
            Some(_) => mask.without(ram.dir.valid(slot)),
            None => mask,
        };
        self.copy_to_ram(block, slot, missing, buffer, cx);
        let ram = self.cache.ram.as_mut().expect("there is a RAM tier");
        match found {
            Some(_) if missing.is_empty() => {}
            Some(_) => ram.dir.validate(slot, missing),
            None => {
                cx.counters.ram_filled += 1;
                ram.dir.insert(slot, block, missing);
            }
        }
    }

    /// Copies granules `mask` of `block` from a request's buffer to a RAM slot.
    pub(super) fn copy_to_ram(
        &self,
        block: BlockIndex,
        slot: SlotId,
        mask: GranuleMask,
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) {
        let ram = self.cache.ram.as_ref().expect("there is a RAM tier");
        for (first, end) in runs(mask) {
            let range = cx.grid.granule_range(block, first, end);
            let to = ram.memory(slot, cx.grid.offset_in_block(range.start), range.len());
            cx.push(Action::Copy { from: buffer.at(range), to });
        }
    }

    /// A RAM slot for a new block, evicting when none is free; `None` when all are pinned.
    pub(super) fn take_ram_slot(&mut self, cx: &mut Cx<'_>) -> Option<SlotId> {
        let ram = self.cache.ram.as_mut()?;
        if let Some(slot) = ram.dir.take_free() {
            return Some(slot);
        }
        cx.counters.evict_ops += 1;
        for _ in 0..EVICT_TRIES {
            let ram = self.cache.ram.as_mut()?;
            let victim = ram.dir.evict()?;
            cx.counters.ram_evicted += 1;
            note_left(&mut self.cache.streams_returned, &victim);
            let bytes = BlockBytes::Slot(victim.slot);
            let (block, valid) = (victim.block, victim.valid);
            let offer = if victim.referenced { Offer::Used } else { Offer::Requested };
            self.offer_to_flash(block, valid, offer, bytes, cx);
            let ram = self.cache.ram.as_mut()?;
            if !ram.is_pinned(victim.slot) {
                return Some(victim.slot);
            }
            ram.retire(victim.slot);
        }
        None
    }

    /// Sends granules of `block` to flash, if they are admitted.
    pub(super) fn offer_to_flash(
        &mut self,
        block: BlockIndex,
        mask: GranuleMask,
        offer: Offer,
        bytes: BlockBytes,
        cx: &mut Cx<'_>,
    ) {
        let logged = self.undestaged_granules(block, cx);
        let Some(flash) = self.cache.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        if !mask.is_empty() && logged.contains(mask) {
            // The destager offers it again.
            if offer == Offer::Used && !flash.dir.remembers(block) {
                flash.dir.remember(block);
            }
            return;
        }
        self.offer_current(block, mask.without(logged), offer, bytes, cx);
    }

    /// The same for granules of which the log holds nothing that is not on primary storage.
    pub(super) fn offer_current(
        &mut self,
        block: BlockIndex,
        mask: GranuleMask,
        offer: Offer,
        bytes: BlockBytes,
        cx: &mut Cx<'_>,
    ) {
        let mask = mask.intersect(self.whole_granules(block, cx));
        let Some(flash) = self.cache.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        if self.cache.stale.has(block) {
            return;
        }
        let present = flash.find(block);
        let missing = mask.without(present.map_or(GranuleMask::NONE, |(_, valid)| valid));
        if missing.is_empty() {
            return;
        }
        if present.is_none() {
            let has_history = flash.dir.remembers(block);
            let candidate = Candidate {
                has_history: has_history || offer == Offer::Used,
                has_free_slot: flash.has_free(),
                was_destaged: offer == Offer::Destaged,
            };
            let is_admitted = self.cache.admission.admits(cx.now, &cx.counters, candidate);
            if (!is_admitted || offer == Offer::Used) && !has_history {
                // A block that was used in RAM comes to flash as one that was there before.
                flash.dir.remember(block);
            }
            if !is_admitted {
                cx.counters.flash_refused += 1;
                return;
            }
        }
        self.fill_flash(block, present.map(|p| p.0), missing, bytes, cx);
    }

    /// Granules of `block` of which the log holds something.
    pub(super) fn logged_granules(&self, block: BlockIndex, shared: &Shared) -> GranuleMask {
        self.granules_in_log(block, |index, range| index.touches(range), shared)
    }

    /// Granules of `block` of which the log holds something that primary storage has not, or of a request that is not
    /// durable to its end: a loss of what is not durable would leave it on flash alone, and the rest may be overwritten
    /// before it is destaged.
    fn undestaged_granules(&self, block: BlockIndex, shared: &Shared) -> GranuleMask {
        let done = self.destager.as_ref().map_or(Sequence(0), |destager| destager.done());
        let done = self.log.as_ref().map_or(done, |log| done.min(log.durable_whole()));
        self.granules_in_log(block, |index, range| index.touches_after(range, done), shared)
    }

    fn granules_in_log(
        &self,
        block: BlockIndex,
        is_in: impl Fn(&LogIndex, ByteRange) -> bool,
        shared: &Shared,
    ) -> GranuleMask {
        let Some(log) = self.log.as_ref().filter(|log| !log.index.is_empty()) else {
            return GranuleMask::NONE;
        };
        let mut mask = GranuleMask::NONE;
        for granule in 0..shared.grid.granules_per_block() {
            let range = shared.grid.granule_range(block, granule, granule + 1);
            if is_in(&log.index, range) {
                mask = mask.union(GranuleMask::span(granule, granule + 1));
            }
        }
        mask
    }

    /// Granules of `block` that lie wholly on the disk.
    fn whole_granules(&self, block: BlockIndex, shared: &Shared) -> GranuleMask {
        let range = shared.grid.range_of(block);
        let granule = shared.grid.granule_size();
        let first = shared.grid.offset_in_block(range.start).div_ceil(granule);
        let end = (shared.grid.offset_in_block(range.start) + range.len()) / granule;
        GranuleMask::span(first as u32, (end as u32).max(first as u32))
    }
}

/// The runs of neighbouring granules of a mask, lowest first.
pub(super) fn runs(mut mask: GranuleMask) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        let (first, end) = mask.first_run()?;
        mask = mask.without(GranuleMask::span(first, end));
        Some((first, end))
    })
}
