//! The flash tier: slots in the disk's share of local flash, with a checksum per granule.
//!
//! A slot that an I/O in flight reads or writes is *busy*: when its block leaves, the slot is given
//! back only after the last such I/O ended. A slot that failed a write is quarantined. After
//! [`ERRORS_MAX`] failed I/Os without a good one between them, or one that never answered, the tier
//! is given up.
//!
//! With a cache index a slot that lost its block is *retired*, and free for another one when the index says
//! durably that it is empty. So that there are such slots blocks are evicted a little ahead, [`FlashTier::reserve`].
//!
//! Granules that lie partly outside the disk (at most two, at its ends) are not kept on flash, so
//! that every flash I/O is a number of whole granules.

mod resize;

use super::changes::{Change, Changes};
use super::unrecorded::Unrecorded;
use crate::cache::directory::{Directory, Evicted};
use crate::cache::stale::Stale;
use crate::config::Config;
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Density;
use crate::policy::PolicyKind;
use crate::status::IoStatus;

/// Failed I/Os in a row after which the tier is given up.
const ERRORS_MAX: u32 = 8;
/// Most slots that are kept empty ahead.
const RESERVE_MAX: u32 = 4096;
/// Blocks evicted ahead for one that comes: more than one, so that a reserve that was used up comes back.
const EVICTED_AHEAD_MAX: u32 = 2;

#[derive(Debug)]
pub(in crate::cache) struct FlashTier {
    pub dir: Directory,
    /// CRC32C of each granule of each slot; meaningful where valid.
    checksums: Vec<u32>,
    granules: u32,
    block_size: u64,
    busy: Vec<BusySlot>,
    /// Why the tier was given up.
    pub failed: Option<IoStatus>,
    errors_in_a_row: u32,
    /// What is to be recorded, where there is an index.
    changes: Option<Changes>,
    /// A quarantined slot could not be noted: the index is wrong about it.
    pub is_misrecorded: bool,
    leaving: Leaving,
}

/// The slots that are to go.
#[derive(Debug)]
struct Leaving {
    /// Those from this one on: no other block comes there.
    end: u32,
    /// Of them, the ones before this one hold no block.
    swept: u32,
    /// None of the free ones is to go.
    is_sifted: bool,
    /// They are empty when these changes are recorded.
    vacated: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct BusySlot {
    pub slot: SlotId,
    ios: u32,
    /// Do not use it again.
    bad: bool,
}

impl FlashTier {
    /// `room`: slots that there may be at work. `ios_max`: I/Os in flight at most. `is_recorded`: what slots hold is recorded.
    pub(in crate::cache) fn new(
        (slots, room): (u32, u32),
        grid: &Grid,
        config: &Config,
        ios_max: usize,
        is_recorded: bool,
    ) -> FlashTier {
        let granules = grid.granules_per_block();
        let dir = Directory::new(slots, granules, config.policy, Density::Compact);
        let mut dir = dir.salted(config.index_salt);
        dir.make_room(room);
        FlashTier {
            dir,
            checksums: vec![0; slots as usize * granules as usize],
            granules,
            block_size: grid.block_size(),
            busy: Vec::with_capacity(ios_max),
            failed: None,
            errors_in_a_row: 0,
            changes: is_recorded.then(Changes::new),
            is_misrecorded: false,
            leaving: Leaving { end: slots, swept: slots, is_sifted: true, vacated: None },
        }
    }

    pub(in crate::cache) fn metadata_bytes_for(
        (slots, room): (u32, u32),
        granules: u32,
        policy: PolicyKind,
    ) -> u64 {
        Directory::memory_bytes_for(slots, granules, policy, Density::Compact)
            + Directory::room_bytes_for(slots, room, Density::Compact)
            + u64::from(slots) * u64::from(granules) * size_of::<u32>() as u64
    }

    pub(in crate::cache) fn metadata_bytes(&self) -> u64 {
        self.dir.memory_bytes() + (self.checksums.len() * size_of::<u32>()) as u64
    }

    /// The valid granules of `block` and their slot.
    pub(in crate::cache) fn find(&self, block: BlockIndex) -> Option<(SlotId, GranuleMask)> {
        if self.failed.is_some() {
            return None;
        }
        let slot = self.dir.find(block)?;
        Some((slot, self.dir.valid(slot)))
    }

    /// Where granules `first..end` of a slot lie on flash.
    pub(in crate::cache) fn range(
        &self,
        slot: SlotId,
        first: u32,
        end: u32,
        granule: u64,
    ) -> ByteRange {
        let start = u64::from(slot.0) * self.block_size;
        ByteRange::new(start + u64::from(first) * granule, start + u64::from(end) * granule)
    }

    pub(in crate::cache) fn checksums(&self, slot: SlotId, first: u32, end: u32) -> &[u32] {
        let base = slot.0 as usize * self.granules as usize;
        &self.checksums[base + first as usize..base + end as usize]
    }

    /// Fetches the memory that [`Directory::restore`] and [`FlashTier::store_checksum`] of these need.
    pub(in crate::cache) fn prefetch(&self, coming: &[(SlotId, BlockIndex)]) {
        let mut sum = 0;
        for (slot, _) in coming {
            sum ^= self.checksums[slot.0 as usize * self.granules as usize];
        }
        std::hint::black_box(sum);
        self.dir.prefetch(coming);
    }

    pub(in crate::cache) fn store_checksum(&mut self, slot: SlotId, granule: u32, checksum: u32) {
        self.checksums[slot.0 as usize * self.granules as usize + granule as usize] = checksum;
    }

    /// An I/O on the slot starts.
    pub(in crate::cache) fn hold(&mut self, slot: SlotId) {
        match self.busy.iter_mut().find(|b| b.slot == slot) {
            Some(busy) => busy.ios += 1,
            None => self.busy.push(BusySlot { slot, ios: 1, bad: false }),
        }
    }

    /// An I/O on the slot ended.
    pub(in crate::cache) fn unhold(&mut self, slot: SlotId) {
        let position = self.busy_position(slot);
        self.busy[position].ios -= 1;
        if self.busy[position].ios > 0 {
            return;
        }
        let busy = self.busy.swap_remove(position);
        if busy.bad {
            self.dir.quarantine(slot);
            if let Some(changes) = &mut self.changes {
                self.is_misrecorded |= !changes.note(slot, Change::Quarantine);
            }
        } else if self.dir.block_of(slot).is_none() {
            self.give_back(slot);
        }
    }

    /// The busy slot failed a write: its block is dropped and it is not used again.
    pub(in crate::cache) fn mark_bad(&mut self, slot: SlotId) {
        if self.dir.block_of(slot).is_some() {
            self.dir.remove(slot);
            self.note_change();
        }
        let position = self.busy_position(slot);
        self.busy[position].bad = true;
    }

    fn busy_position(&self, slot: SlotId) -> usize {
        self.busy.iter().position(|b| b.slot == slot).expect("the slot is busy")
    }

    /// Gives a slot that lost its block back, now or when it is not busy any more.
    pub(in crate::cache) fn retire(&mut self, slot: SlotId) {
        self.note_change();
        if !self.busy.iter().any(|b| b.slot == slot) {
            self.give_back(slot);
        }
    }

    fn give_back(&mut self, slot: SlotId) {
        match self.changes {
            None if slot.0 < self.leaving.end => self.dir.release(slot),
            None => {}
            Some(_) => self.dir.retire(slot),
        }
    }

    /// The number of a change that is made bit by bit; 0 where none is recorded.
    pub(in crate::cache) fn begin_change(&mut self) -> u64 {
        self.note_change();
        self.changes.as_ref().map_or(0, |changes| changes.count)
    }

    fn note_change(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.count += 1;
        }
    }

    /// The slot holds more. Where there is no room to say so now the walk will.
    pub(in crate::cache) fn note_claim(&mut self, slot: SlotId) {
        if let Some(changes) = &mut self.changes {
            changes.note(slot, Change::Claim);
        }
    }

    /// True when no block has to leave for another one.
    pub(in crate::cache) fn has_free(&self) -> bool {
        self.dir.spare().0 > self.kept_empty()
    }

    /// Slots that hold no block although some could.
    pub(in crate::cache) fn kept_empty(&self) -> u32 {
        if self.changes.is_some() { self.reserve() } else { 0 }
    }

    /// True when a slot may become free soon: its record is under way, or not all free ones were looked at.
    pub(in crate::cache) fn awaits_slot(&self) -> bool {
        self.dir.spare().1 > 0 || !self.leaving.is_sifted
    }

    /// Slots that are to be empty ahead, so that fills need not wait for the index.
    fn reserve(&self) -> u32 {
        let slots = self.dir.slots();
        (slots / 64).clamp(1, RESERVE_MAX)
    }

    /// How many changes there were; 0 where none is recorded.
    pub(in crate::cache) fn change_count(&self) -> u64 {
        self.changes.as_ref().map_or(0, |changes| changes.count)
    }

    /// What is not recorded; `None` where nothing is.
    pub(in crate::cache) fn unrecorded<'a>(
        &'a mut self,
        stale: &'a Stale,
    ) -> Option<Unrecorded<'a>> {
        let reserve = self.reserve();
        let FlashTier { dir, checksums, granules, busy, changes, .. } = self;
        let changes = changes.as_mut()?;
        Some(Unrecorded { dir, checksums, granules: *granules, busy, changes, stale, reserve })
    }

    /// What was recorded of slots that lost their block is durable: they are free, but for those that are to go.
    pub(in crate::cache) fn free_recorded(&mut self) {
        if self.is_shrinking() {
            self.dir.take_recorded_from(SlotId(self.leaving.end));
        }
        self.dir.free_recorded();
    }

    /// What slots hold is not recorded any more.
    pub(in crate::cache) fn stop_recording(&mut self) {
        if self.changes.take().is_some() {
            self.dir.record_all_retired();
            self.free_recorded();
        }
    }

    /// A slot for a new block, of those that are known to be empty; evicts ahead.
    fn take_recorded_slot(&mut self, mut leaves: impl FnMut(Evicted)) -> (Option<SlotId>, u32) {
        let slot = self.dir.take_free();
        let mut evicted = 0;
        while evicted < EVICTED_AHEAD_MAX {
            let (free, retired) = self.dir.spare();
            if free + retired >= self.reserve() {
                break;
            }
            let Some(victim) = self.dir.evict() else { break };
            evicted += 1;
            leaves(victim);
            self.retire(victim.slot);
        }
        (slot, evicted)
    }

    /// A slot for a new block, evicting when none is free; `None` when all are busy. Tells how many
    /// blocks were evicted, and passes each to `leaves`.
    pub(in crate::cache) fn take_slot(
        &mut self,
        mut leaves: impl FnMut(Evicted),
    ) -> (Option<SlotId>, u32) {
        if self.changes.is_some() {
            return self.take_recorded_slot(leaves);
        }
        let mut evicted = 0;
        // Every busy slot could come up once.
        for _ in 0..=self.busy.len() {
            if let Some(slot) = self.dir.take_free() {
                return (Some(slot), evicted);
            }
            let Some(victim) = self.dir.evict() else { break };
            evicted += 1;
            leaves(victim);
            self.retire(victim.slot);
        }
        (self.dir.take_free(), evicted)
    }

    /// Takes note of how an I/O ended; true when the tier has to be given up.
    pub(in crate::cache) fn note(&mut self, status: IoStatus) -> bool {
        if status.is_ok() {
            self.errors_in_a_row = 0;
            return false;
        }
        self.errors_in_a_row += 1;
        self.errors_in_a_row >= ERRORS_MAX
    }

    /// Granules `mask` of `block` are old from now on.
    pub(in crate::cache) fn invalidate(&mut self, block: BlockIndex, mask: GranuleMask) -> bool {
        let Some(slot) = self.dir.find(block) else { return false };
        let had = !self.dir.valid(slot).intersect(mask).is_empty();
        if had && self.dir.invalidate(slot, mask) {
            self.retire(slot);
        } else if had
            && let Some(changes) = &mut self.changes
            && !changes.note(slot, Change::Loss)
        {
            // There is no room to say that it holds less: it holds nothing, which always has room.
            self.dir.remove(slot);
            self.retire(slot);
        }
        had
    }

    /// Granules `mask` of `block` were overwritten: they are old, but the block keeps its place for its new bytes.
    pub(in crate::cache) fn overwrite(&mut self, block: BlockIndex, mask: GranuleMask) {
        let Some(slot) = self.dir.find(block) else { return };
        if self.dir.valid(slot).intersect(mask).is_empty() {
            return;
        }
        self.dir.overwrite(slot, mask);
        if let Some(changes) = &mut self.changes
            && !changes.note(slot, Change::Loss)
        {
            // There is no room to say that it holds less: it holds nothing, which always has room.
            self.dir.remove(slot);
            self.retire(slot);
        }
    }

    /// Takes `block` out; true when it was here.
    pub(in crate::cache) fn remove(&mut self, block: BlockIndex) -> bool {
        let Some(slot) = self.dir.find(block) else { return false };
        self.dir.remove(slot);
        self.retire(slot);
        true
    }

    /// Drops every block; busy slots are given back when their I/O ends.
    pub(in crate::cache) fn clear(&mut self) {
        while let Some(victim) = self.dir.evict() {
            self.retire(victim.slot);
        }
        self.dir.clear();
        if let Some(changes) = &mut self.changes {
            changes.emptied = true;
            changes.count += 1;
        }
    }

    pub(in crate::cache) fn check_invariants(&self) {
        self.dir.check_invariants();
        assert!(self.busy.iter().all(|b| b.ios > 0));
        assert!(self.leaving.end <= self.dir.slots());
        let homeless = self.busy.iter().filter(|b| self.dir.block_of(b.slot).is_none());
        let homeless = homeless.filter(|b| b.slot.0 < self.leaving.end).count();
        let leaving = (self.leaving.end..self.dir.slots()).map(SlotId);
        let withheld = leaving.filter(|slot| self.dir.is_taken(*slot)).count();
        assert_eq!(self.dir.taken() as usize, homeless + withheld, "a slot was lost");
    }
}
