//! The directory of a tier: which blocks are in which slots, which of their granules are valid,
//! which block leaves next, and which left not long ago.
//!
//! It ties the [`Index`], the valid masks, one [`Policy`], the [`Ghost`] and a `referenced` bit per
//! slot together; it knows neither bytes nor I/O. The life of a slot:
//! ```text
//! take_free ─► taken ─insert─► occupied ─evict, remove, invalidate (all)─► taken ─release─► free
//! ```
//! A slot that lost its block stays *taken* until [`Directory::release`], because its bytes may
//! still be read. Where what slots hold is recorded (`cache_index/`) it is *retired* instead, and free when that is durable.
//!
//! The policy hears of hits some dozens at a time, but always before anything else. Each touches
//! memory that nothing else of a hit needs. In one loop the CPU waits for many of them at once.
//!
//! A block whose bytes were all overwritten may stay *hollow*: without a valid granule, at its
//! place in the policy's order. That ends when its new bytes come, or it is evicted. So a block
//! that is written again and again is not a new one each time.
//!
//! The policy can be changed with blocks in place (`directory/handover.rs`).
//!
//! **Invariants:** Index, policy and masks know the same occupied slots. A free or taken slot has
//! no valid granule. A block is in at most one slot.
//!
//! **Memory:** all of it is allocated by `new`; [`Directory::memory_bytes_for`] tells before. Per
//! slot the index takes 10 bytes when compact, 20.8 when fast, the policy 8, the ghost 3.6,
//! referenced 1/8. A valid mask takes 1, 2, 4 or 8 bytes, or a bit when a block is one granule.
//! With 4 KiB blocks and a compact index that is 21.86 bytes, and 25.86 with a 4-byte checksum:
//! within the budget of 26.

mod handover;
mod masks;
mod resize;

use std::ops::Deref;

use crate::geometry::GranuleMask;
use crate::ghost::{Age, Ghost};
use crate::ids::{BlockIndex, SlotId};
use crate::index::{Density, Index};
use crate::policy::{Policy, PolicyKind};

use handover::Handover;
use masks::Masks;

/// Hits that wait to be told at most.
const HITS_MAX: usize = 32;

/// A block that was dropped to make room. Its slot stays taken until it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted {
    /// Where its bytes still are.
    pub slot: SlotId,
    /// Which block it was.
    pub block: BlockIndex,
    /// Its valid granules.
    pub valid: GranuleMask,
    /// Whether it was hit since it was inserted.
    pub referenced: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Directory {
    index: Index,
    valid: Masks,
    /// Occupied slots without a valid granule.
    hollow: u32,
    policy: Box<dyn Policy>,
    /// The policy before, while the blocks go over to this one.
    handover: Option<Handover>,
    ghost: Ghost,
    referenced: Box<[u64]>,
    granules: u32,
    /// Hits that the policy was not told of yet, oldest first.
    hits: Hits,
}

/// A short list of slots.
#[derive(Debug)]
struct Hits {
    slots: [SlotId; HITS_MAX],
    len: usize,
}

/// The index answers what is where. To be asked is no use of a block: [`Directory::hit`] notes one.
impl Deref for Directory {
    type Target = Index;

    #[inline]
    fn deref(&self) -> &Index {
        &self.index
    }
}

impl Directory {
    /// A directory of `slots` free slots for blocks of `granules_per_block` granules (1 to 64).
    /// `density` is that of the index. Panics when there are no slots or
    /// more than [`crate::list::SLOTS_MAX`].
    pub fn new(
        slots: u32,
        granules_per_block: u32,
        policy: PolicyKind,
        density: Density,
    ) -> Directory {
        Directory::with_policy(slots, granules_per_block, policy.build(slots), density)
    }

    /// The same with a policy that has no name, made for `slots` slots.
    pub fn with_policy(
        slots: u32,
        granules_per_block: u32,
        policy: Box<dyn Policy>,
        density: Density,
    ) -> Directory {
        assert!((1..=64).contains(&granules_per_block) && policy.is_empty());
        Directory {
            index: Index::new(slots, density),
            valid: Masks::new(slots, granules_per_block),
            hollow: 0,
            policy,
            handover: None,
            ghost: Ghost::new(ghost_blocks(slots)),
            referenced: vec![0; slots.div_ceil(64) as usize].into(),
            granules: granules_per_block,
            hits: Hits { slots: [SlotId(0); HITS_MAX], len: 0 },
        }
    }

    /// The same, empty as it is, with a salted index.
    pub fn salted(self, salt: u64) -> Directory {
        Directory { index: self.index.salted(salt), ..self }
    }

    /// Number of blocks in it of which it has something: all but the hollow ones.
    pub fn filled(&self) -> u32 {
        self.index.len() - self.hollow
    }

    /// The slot that holds `block`, and its valid granules.
    pub fn lookup(&self, block: BlockIndex) -> Option<(SlotId, GranuleMask)> {
        let slot = self.index.find(block)?;
        Some((slot, self.valid.at(slot)))
    }

    /// The valid granules of `slot`, none when the slot is not occupied.
    pub fn valid(&self, slot: SlotId) -> GranuleMask {
        self.valid.at(slot)
    }

    /// The block in the occupied `slot` was used.
    #[inline]
    pub fn hit(&mut self, slot: SlotId) {
        self.hits.slots[self.hits.len] = slot;
        self.hits.len += 1;
        if self.hits.len == HITS_MAX {
            self.tell_hits();
        }
    }

    /// Tells the policy of the hits that it does not know yet. Before anything else changes, so that
    /// it never learns late; together, so that their cache misses overlap. Not in line: most hits only wait,
    /// and need none of its registers.
    #[inline(never)]
    fn tell_hits(&mut self) {
        if self.handover.is_some() {
            let hits = self.hits.slots;
            let len = std::mem::take(&mut self.hits.len);
            return self.tell_two(&hits[..len]);
        }
        let Hits { slots, len } = &mut self.hits;
        for &slot in &slots[..std::mem::take(len)] {
            self.policy.on_hit(slot, &self.index);
            let word = &mut self.referenced[slot.0 as usize / 64];
            let bit = 1 << (slot.0 % 64);
            // Most hits are not the first: leave the line clean then.
            if *word & bit == 0 {
                *word |= bit;
            }
        }
    }

    /// Whether the block in the occupied `slot` was hit since it was inserted.
    pub fn is_referenced(&self, slot: SlotId) -> bool {
        self.hits.slots[..self.hits.len].contains(&slot)
            || self.referenced[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1
    }

    /// Whether `block` is here and was hit since it was inserted.
    pub fn was_used(&self, block: BlockIndex) -> bool {
        self.find(block).is_some_and(|slot| self.is_referenced(slot))
    }

    /// Takes a free slot, `None` when there is none ([`Directory::evict`] then).
    pub fn take_free(&mut self) -> Option<SlotId> {
        self.index.take_free()
    }

    /// Drops the block that the policy chooses, and remembers it when the policy says so. Its slot
    /// stays taken. `None` when no slot is occupied.
    pub fn evict(&mut self) -> Option<Evicted> {
        self.tell_hits();
        let victim = self.choose()?;
        let evicted = self.forget(victim.slot);
        if victim.remember {
            self.ghost.insert(evicted.block);
        }
        Some(evicted)
    }

    /// Gives back a taken slot that holds no block.
    pub fn release(&mut self, slot: SlotId) {
        self.index.release(slot);
    }

    /// Gives back a taken slot that holds no block, to be used again when that was recorded.
    pub fn retire(&mut self, slot: SlotId) {
        self.index.retire(slot);
    }

    /// The next retired slot to record.
    pub fn record_retired(&mut self) -> Option<SlotId> {
        self.index.record_retired()
    }

    /// All of the retired slots are recorded.
    pub fn record_all_retired(&mut self) {
        self.index.record_all_retired();
    }

    /// The records of retired slots are durable: they are free.
    pub fn free_recorded(&mut self) {
        self.index.free_recorded();
    }

    /// Number of free slots, and of retired ones.
    pub fn spare(&self) -> (u32, u32) {
        (self.index.free_len(), self.index.retired_len())
    }

    /// Takes every slot of a directory without blocks: before they are put back where a former run had them
    /// ([`Directory::restore`]), or before they are released one by one.
    pub fn take_all(&mut self) {
        self.index.take_all();
    }

    /// Puts `block` back into `slot`, as the one that was used longest ago of those that are here. False when
    /// the block is here already, or something is in the slot.
    pub fn restore(
        &mut self,
        slot: SlotId,
        block: BlockIndex,
        valid: GranuleMask,
        referenced: bool,
    ) -> bool {
        if !self.index.insert_if_new(slot, block) {
            return false;
        }
        self.assert_mask(valid);
        self.valid.set(slot, valid);
        self.policy.on_restore(slot, block, referenced);
        self.own(slot);
        self.set_referenced(slot, referenced);
        true
    }

    /// Fetches the memory that [`Directory::restore`] of these needs, for all of them at once: one after the
    /// other the CPU would wait for each.
    pub fn prefetch(&self, coming: &[(SlotId, BlockIndex)]) {
        std::hint::black_box(self.index.prefetch(coming));
    }

    /// Reads the memory that hits of these blocks begin with, for all of them at once.
    #[inline]
    pub fn look_ahead_of_hits(&self, blocks: impl Iterator<Item = BlockIndex>) {
        std::hint::black_box(self.index.look_ahead(blocks));
    }

    /// Reads the memory that uses of these blocks begin with, for all of them at once: one after the other the CPU would
    /// wait for each.
    pub fn look_ahead(&self, blocks: &[BlockIndex]) {
        std::hint::black_box(
            self.index.look_ahead(blocks.iter().copied()) ^ self.ghost.look_ahead(blocks),
        );
    }

    /// Every block is back: the other slots are free.
    pub fn end_restore(&mut self) {
        self.index.end_restore();
    }

    /// Sets a taken slot that holds no block aside: it is never used again.
    pub fn quarantine(&mut self, slot: SlotId) {
        self.index.quarantine(slot);
    }

    /// Puts `block`, which must not be here, with the valid granules `valid`, not none, into a taken
    /// slot. Tells the policy whether the block is remembered, and forgets that.
    pub fn insert(&mut self, slot: SlotId, block: BlockIndex, valid: GranuleMask) {
        self.tell_hits();
        self.assert_mask(valid);
        assert!(!valid.is_empty(), "block {} without a valid granule", block.0);
        self.index.insert(slot, block);
        self.valid.set(slot, valid);
        let remembered = match self.ghost.remove(block) {
            Some(Age::Recent) => true,
            Some(Age::Old) => self.policy.looks_far_back(),
            None => false,
        };
        self.policy.on_insert(slot, block, remembered);
        self.own(slot);
    }

    /// Granules `mask` of the occupied `slot` are valid, too.
    pub fn validate(&mut self, slot: SlotId, mask: GranuleMask) {
        self.assert_mask(mask);
        assert!(self.index.block_of(slot).is_some(), "slot {} holds no block", slot.0);
        let before = self.valid.at(slot);
        self.hollow -= u32::from(before.is_empty());
        self.valid.set(slot, before.union(mask));
    }

    /// Granules `mask` of the occupied `slot` are not valid any more, and it keeps its block, hollow if need be: they were
    /// overwritten, which is a use.
    pub fn overwrite(&mut self, slot: SlotId, mask: GranuleMask) {
        let before = self.valid.at(slot);
        let left = before.without(mask);
        self.hollow += u32::from(left.is_empty() && !before.is_empty());
        self.valid.set(slot, left);
        self.hit(slot);
    }

    /// Granules `mask` of the occupied `slot` are not valid any more. True when none is left: the
    /// block was removed then, and the slot stays taken.
    pub fn invalidate(&mut self, slot: SlotId, mask: GranuleMask) -> bool {
        let left = self.valid(slot).without(mask);
        if left.is_empty() {
            self.remove(slot);
            return true;
        }
        self.valid.set(slot, left);
        false
    }

    /// Removes the block of the occupied `slot`, which stays taken. It is not remembered.
    pub fn remove(&mut self, slot: SlotId) -> BlockIndex {
        self.tell_hits();
        self.policy_of(slot).on_remove(slot);
        self.forget(slot).block
    }

    /// Moves the block of the occupied slot `old` to the taken slot `new`. Its granules, its
    /// place in the policy's order and its referenced bit move too. `old` stays taken.
    pub fn replace(&mut self, old: SlotId, new: SlotId) {
        self.tell_hits();
        let (valid, referenced) = (self.valid(old), self.is_referenced(old));
        self.index.replace(old, new);
        self.move_in_order(old, new);
        self.valid.set(old, GranuleMask::NONE);
        self.valid.set(new, valid);
        self.set_referenced(old, false);
        self.set_referenced(new, referenced);
    }

    /// True when `block` left, or was refused, not long ago.
    pub fn remembers(&self, block: BlockIndex) -> bool {
        self.ghost.contains(block)
    }

    /// Remembers `block`, as if it had been here.
    pub fn remember(&mut self, block: BlockIndex) {
        self.ghost.insert(block);
    }

    /// Drops every block and forgets every remembered one (block numbers mean something else from
    /// now on). Occupied slots become free at once, so none may be in use; taken slots stay taken.
    pub fn clear(&mut self) {
        self.tell_hits();
        while let Some(victim) = self.choose() {
            self.forget(victim.slot);
            self.index.release(victim.slot);
        }
        self.handover = None;
        self.ghost.clear();
        self.policy.forget();
    }

    /// Panics when its structures contradict each other. Slow.
    pub fn check_invariants(&self) {
        self.index.check_invariants();
        self.policy.check_invariants();
        let former = self.handover.as_ref().map_or(0, Handover::len);
        assert_eq!(self.policy.len() + former, self.index.len());
        self.handover.iter().for_each(Handover::check_invariants);
        let mut hollow = 0;
        for slot in (0..self.slots()).map(SlotId) {
            let occupied = self.index.block_of(slot).is_some();
            assert!(occupied || self.valid(slot).is_empty(), "slot {}", slot.0);
            hollow += u32::from(occupied && self.valid(slot).is_empty());
            assert!(occupied || !self.is_referenced(slot), "slot {}", slot.0);
            self.assert_mask(self.valid(slot));
        }
        assert_eq!(hollow, self.hollow);
    }

    /// Bytes of memory that it takes on the heap; changes with the number of slots, and while the policy changes.
    pub fn memory_bytes(&self) -> u64 {
        let bytes = self.index.memory_bytes()
            + self.valid.memory_bytes()
            + self.policy.memory_bytes()
            + self.handover.as_ref().map_or(0, Handover::memory_bytes)
            + self.ghost.memory_bytes()
            + size_of_val(&*self.referenced);
        bytes as u64
    }

    /// What [`Directory::memory_bytes`] will be.
    pub fn memory_bytes_for(
        slots: u32,
        granules_per_block: u32,
        policy: PolicyKind,
        density: Density,
    ) -> u64 {
        Index::memory_bytes_for(slots, density)
            + Masks::memory_bytes_for(slots, granules_per_block)
            + policy.memory_bytes_for(slots)
            + Ghost::memory_bytes_for(ghost_blocks(slots))
            + u64::from(slots.div_ceil(64)) * 8
    }

    /// Takes a block that the policy does not order any more out of everything else.
    fn forget(&mut self, slot: SlotId) -> Evicted {
        let (valid, referenced) = (self.valid(slot), self.is_referenced(slot));
        let block = self.index.remove(slot);
        self.hollow -= u32::from(valid.is_empty());
        self.valid.set(slot, GranuleMask::NONE);
        self.set_referenced(slot, false);
        Evicted { slot, block, valid, referenced }
    }

    fn set_referenced(&mut self, slot: SlotId, referenced: bool) {
        let word = &mut self.referenced[slot.0 as usize / 64];
        *word = *word & !(1 << (slot.0 % 64)) | u64::from(referenced) << (slot.0 % 64);
    }

    fn assert_mask(&self, mask: GranuleMask) {
        assert!(GranuleMask::span(0, self.granules).contains(mask), "{mask:?} is too wide");
    }
}

/// Recent blocks that a tier of `slots` slots remembers: as many as S3-FIFO's main queue holds.
fn ghost_blocks(slots: u32) -> u32 {
    (u64::from(slots) * 9 / 10) as u32
}

#[cfg(test)]
mod tests;
