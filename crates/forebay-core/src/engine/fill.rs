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

use super::Engine;
use super::admission::Candidate;
use super::bypass::note_left;
use crate::action::{Action, Actions, Buffer};
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, Nanos, Sequence, SlotId};
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

impl Engine {
    /// Puts the granules that `range` covers, fetched into `buffer`, into the cache.
    pub(super) fn install(
        &mut self,
        now: Nanos,
        range: ByteRange,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        for block in self.grid.blocks(range) {
            let covered = self.grid.covered(block, range);
            if covered.is_empty() || self.stale.has(block) {
                continue;
            }
            if self.ram.is_some() {
                self.fill_ram(now, block, covered, buffer, actions);
            } else {
                let bytes = BlockBytes::Buffer(buffer);
                self.offer_to_flash(now, block, covered, Offer::Requested, bytes, actions);
            }
        }
    }

    /// Puts granules of `block` that RAM does not have yet into its slot, a new one if need be.
    fn fill_ram(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        mask: GranuleMask,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        let found = self.ram.as_ref().and_then(|ram| ram.dir.find(block));
        let Some(slot) = found.or_else(|| self.take_ram_slot(now, actions)) else {
            self.counters.ram_fills_skipped += 1;
            return;
        };
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        let missing = match found {
            Some(_) => mask.without(ram.dir.valid(slot)),
            None => mask,
        };
        self.copy_to_ram(block, slot, missing, buffer, actions);
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        match found {
            Some(_) if missing.is_empty() => {}
            Some(_) => ram.dir.validate(slot, missing),
            None => {
                self.counters.ram_filled += 1;
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
        actions: &mut Actions,
    ) {
        let ram = self.ram.as_ref().expect("there is a RAM tier");
        for (first, end) in runs(mask) {
            let range = self.grid.granule_range(block, first, end);
            let to = ram.memory(slot, self.grid.offset_in_block(range.start), range.len());
            actions.list.push(Action::Copy { from: buffer.at(range), to });
        }
    }

    /// A RAM slot for a new block, evicting when none is free; `None` when all are pinned.
    pub(super) fn take_ram_slot(&mut self, now: Nanos, actions: &mut Actions) -> Option<SlotId> {
        let ram = self.ram.as_mut()?;
        if let Some(slot) = ram.dir.take_free() {
            return Some(slot);
        }
        self.counters.evict_ops += 1;
        for _ in 0..EVICT_TRIES {
            let ram = self.ram.as_mut()?;
            let victim = ram.dir.evict()?;
            self.counters.ram_evicted += 1;
            note_left(&mut self.streams_returned, &victim);
            let bytes = BlockBytes::Slot(victim.slot);
            let (block, valid) = (victim.block, victim.valid);
            let offer = if victim.referenced { Offer::Used } else { Offer::Requested };
            self.offer_to_flash(now, block, valid, offer, bytes, actions);
            let ram = self.ram.as_mut()?;
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
        now: Nanos,
        block: BlockIndex,
        mask: GranuleMask,
        offer: Offer,
        bytes: BlockBytes,
        actions: &mut Actions,
    ) {
        let logged = self.undestaged_granules(block);
        let Some(flash) = self.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        if !mask.is_empty() && logged.contains(mask) {
            // The destager offers it again.
            if offer == Offer::Used && !flash.dir.remembers(block) {
                flash.dir.remember(block);
            }
            return;
        }
        self.offer_current(now, block, mask.without(logged), offer, bytes, actions);
    }

    /// The same for granules of which the log holds nothing that is not on primary storage.
    pub(super) fn offer_current(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        mask: GranuleMask,
        offer: Offer,
        bytes: BlockBytes,
        actions: &mut Actions,
    ) {
        let mask = mask.intersect(self.whole_granules(block));
        let Some(flash) = self.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        if self.stale.has(block) {
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
            let is_admitted = self.admission.admits(now, &self.counters, candidate);
            if (!is_admitted || offer == Offer::Used) && !has_history {
                // A block that was used in RAM comes to flash as one that was there before.
                flash.dir.remember(block);
            }
            if !is_admitted {
                self.counters.flash_refused += 1;
                return;
            }
        }
        self.fill_flash(now, block, present.map(|p| p.0), missing, bytes, actions);
    }

    /// Granules of `block` of which the log holds something.
    pub(super) fn logged_granules(&self, block: BlockIndex) -> GranuleMask {
        self.granules_in_log(block, |index, range| index.touches(range))
    }

    /// Granules of `block` of which the log holds something that primary storage has not, or of a request that is not
    /// durable to its end: a loss of what is not durable would leave it on flash alone, and the rest may be overwritten
    /// before it is destaged.
    fn undestaged_granules(&self, block: BlockIndex) -> GranuleMask {
        let done = self.destager.as_ref().map_or(Sequence(0), |destager| destager.done());
        let done = self.log.as_ref().map_or(done, |log| done.min(log.durable_whole()));
        self.granules_in_log(block, |index, range| index.touches_after(range, done))
    }

    fn granules_in_log(
        &self,
        block: BlockIndex,
        is_in: impl Fn(&LogIndex, ByteRange) -> bool,
    ) -> GranuleMask {
        let Some(log) = self.log.as_ref().filter(|log| !log.index.is_empty()) else {
            return GranuleMask::NONE;
        };
        let mut mask = GranuleMask::NONE;
        for granule in 0..self.grid.granules_per_block() {
            let range = self.grid.granule_range(block, granule, granule + 1);
            if is_in(&log.index, range) {
                mask = mask.union(GranuleMask::span(granule, granule + 1));
            }
        }
        mask
    }

    /// Granules of `block` that lie wholly on the disk.
    fn whole_granules(&self, block: BlockIndex) -> GranuleMask {
        let range = self.grid.range_of(block);
        let granule = self.grid.granule_size();
        let first = self.grid.offset_in_block(range.start).div_ceil(granule);
        let end = (self.grid.offset_in_block(range.start) + range.len()) / granule;
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
