//! The flash tier: slots in the disk's share of local flash, with a checksum per granule.
//!
//! A slot that an I/O in flight reads or writes is *busy*: when its block leaves, the slot is given
//! back only after the last such I/O ended. A slot that failed a write is quarantined. After
//! [`ERRORS_MAX`] failed I/Os without a good one between them, or one that never answered, the tier
//! is given up.
//!
//! Granules that lie partly outside the disk (at most two, at its ends) are not kept on flash, so
//! that every flash I/O is a number of whole granules.

use crate::directory::Directory;
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Density;
use crate::policy::PolicyKind;
use crate::status::IoStatus;

/// Failed I/Os in a row after which the tier is given up.
const ERRORS_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct FlashTier {
    pub dir: Directory,
    /// CRC32C of each granule of each slot; meaningful where valid.
    checksums: Vec<u32>,
    granules: u32,
    block_size: u64,
    busy: Vec<BusySlot>,
    /// Why the tier was given up.
    pub failed: Option<IoStatus>,
    errors_in_a_row: u32,
}

#[derive(Clone, Copy, Debug)]
struct BusySlot {
    slot: SlotId,
    ios: u32,
    /// Do not use it again.
    bad: bool,
}

impl FlashTier {
    /// `ios_max`: I/Os in flight at most.
    pub(super) fn new(slots: u32, grid: &Grid, policy: PolicyKind, ios_max: usize) -> FlashTier {
        let granules = grid.granules_per_block();
        FlashTier {
            dir: Directory::new(slots, granules, policy, Density::Compact),
            checksums: vec![0; slots as usize * granules as usize],
            granules,
            block_size: grid.block_size(),
            busy: Vec::with_capacity(ios_max),
            failed: None,
            errors_in_a_row: 0,
        }
    }

    pub(super) fn metadata_bytes_for(slots: u32, granules: u32, policy: PolicyKind) -> u64 {
        Directory::memory_bytes_for(slots, granules, policy, Density::Compact)
            + u64::from(slots) * u64::from(granules) * size_of::<u32>() as u64
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        self.dir.memory_bytes() + (self.checksums.len() * size_of::<u32>()) as u64
    }

    /// The valid granules of `block` and their slot.
    pub(super) fn find(&self, block: BlockIndex) -> Option<(SlotId, GranuleMask)> {
        if self.failed.is_some() {
            return None;
        }
        let slot = self.dir.find(block)?;
        Some((slot, self.dir.valid(slot)))
    }

    /// Where granules `first..end` of a slot lie on flash.
    pub(super) fn range(&self, slot: SlotId, first: u32, end: u32, granule: u64) -> ByteRange {
        let start = u64::from(slot.0) * self.block_size;
        ByteRange::new(start + u64::from(first) * granule, start + u64::from(end) * granule)
    }

    pub(super) fn checksums(&self, slot: SlotId, first: u32, end: u32) -> &[u32] {
        let base = slot.0 as usize * self.granules as usize;
        &self.checksums[base + first as usize..base + end as usize]
    }

    pub(super) fn store_checksum(&mut self, slot: SlotId, granule: u32, checksum: u32) {
        self.checksums[slot.0 as usize * self.granules as usize + granule as usize] = checksum;
    }

    /// An I/O on the slot starts.
    pub(super) fn hold(&mut self, slot: SlotId) {
        match self.busy.iter_mut().find(|b| b.slot == slot) {
            Some(busy) => busy.ios += 1,
            None => self.busy.push(BusySlot { slot, ios: 1, bad: false }),
        }
    }

    /// An I/O on the slot ended.
    pub(super) fn unhold(&mut self, slot: SlotId) {
        let position = self.busy.iter().position(|b| b.slot == slot).expect("the slot is busy");
        self.busy[position].ios -= 1;
        if self.busy[position].ios > 0 {
            return;
        }
        let busy = self.busy.swap_remove(position);
        if busy.bad {
            self.dir.quarantine(slot);
        } else if self.dir.block_of(slot).is_none() {
            self.dir.release(slot);
        }
    }

    /// The busy slot failed a write: its block is dropped and it is not used again.
    pub(super) fn mark_bad(&mut self, slot: SlotId) {
        if self.dir.block_of(slot).is_some() {
            self.dir.remove(slot);
        }
        let busy = self.busy.iter_mut().find(|b| b.slot == slot).expect("the slot is busy");
        busy.bad = true;
    }

    /// Gives a slot that lost its block back, now or when it is not busy any more.
    pub(super) fn retire(&mut self, slot: SlotId) {
        if !self.busy.iter().any(|b| b.slot == slot) {
            self.dir.release(slot);
        }
    }

    /// A slot for a new block, evicting when none is free; `None` when all are busy. Tells whether
    /// a block was evicted.
    pub(super) fn take_slot(&mut self) -> (Option<SlotId>, u32) {
        let mut evicted = 0;
        // Every busy slot could come up once.
        for _ in 0..=self.busy.len() {
            if let Some(slot) = self.dir.take_free() {
                return (Some(slot), evicted);
            }
            let Some(victim) = self.dir.evict() else { break };
            evicted += 1;
            self.retire(victim.slot);
        }
        (self.dir.take_free(), evicted)
    }

    /// Takes note of how an I/O ended; true when the tier has to be given up.
    pub(super) fn note(&mut self, status: IoStatus) -> bool {
        if status.is_ok() {
            self.errors_in_a_row = 0;
            return false;
        }
        self.errors_in_a_row += 1;
        self.errors_in_a_row >= ERRORS_MAX
    }

    /// Granules `mask` of `block` are old from now on.
    pub(super) fn invalidate(&mut self, block: BlockIndex, mask: GranuleMask) -> bool {
        let Some(slot) = self.dir.find(block) else { return false };
        let had = !self.dir.valid(slot).intersect(mask).is_empty();
        if had && self.dir.invalidate(slot, mask) {
            self.retire(slot);
        }
        had
    }

    /// Drops every block; busy slots are given back when their I/O ends.
    pub(super) fn clear(&mut self) {
        while let Some(victim) = self.dir.evict() {
            self.retire(victim.slot);
        }
        self.dir.clear();
    }

    pub(super) fn check_invariants(&self) {
        self.dir.check_invariants();
        assert!(self.busy.iter().all(|b| b.ios > 0));
        let homeless = self.busy.iter().filter(|b| self.dir.block_of(b.slot).is_none()).count();
        assert_eq!(self.dir.taken() as usize, homeless, "a slot was lost");
    }
}
