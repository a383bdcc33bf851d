//! The index of a tier: which slot holds a cache block.
//!
//! A hash table with chains that run through the slots themselves: `heads` has one `u32` per
//! `slots_per_head` slots, `entries` one {key, next} per slot. A lookup loads one head and, with
//! one slot per head, one and a half entries on average; with two slots per head it loads two
//! entries and the heads take half the memory (RAM tiers take 1, flash tiers 2).
//!
//! A slot without a block needs neither field, so the list of free slots runs through `next` too.
//! States of a slot and its edges:
//! ```text
//! free ──take_free──► taken ──insert──► occupied
//!   ▲                 │ │ ▲                │
//!   └────release──────┘ │ └─────remove─────┘
//!                       └─quarantine─► quarantined (for ever)
//! ```
//! The hash is multiply-shift, twice, so that strides of blocks spread like random ones. A guest that
//! knows it can make long chains, at most about (blocks of its disk / heads) long: its own loss.

use crate::ids::{BlockIndex, SlotId};
use crate::list::SLOTS_MAX;

/// End of a chain, and the key of a slot without a block (a grid has fewer blocks, see `Grid`).
const NONE: u32 = u32::MAX;
/// `next` of a taken slot without a block.
const TAKEN: u32 = u32::MAX - 1;
/// `next` of a slot that is never used again.
const QUARANTINED: u32 = u32::MAX - 2;

/// What the index knows of one slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The block, [`NONE`] when there is none.
    key: u32,
    /// Next slot of the chain; without a block: next free slot, [`TAKEN`] or [`QUARANTINED`].
    next: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Index {
    heads: Box<[u32]>,
    entries: Box<[Entry]>,
    free: u32,
    len: u32,
    quarantined: u32,
}

impl Index {
    /// An index of `slots` free slots. Panics unless both arguments are positive and the slots at
    /// most [`SLOTS_MAX`].
    pub fn new(slots: u32, slots_per_head: u32) -> Index {
        assert!(slots > 0 && slots <= SLOTS_MAX && slots_per_head > 0);
        let mut index = Index {
            heads: vec![NONE; slots.div_ceil(slots_per_head) as usize].into(),
            entries: vec![Entry { key: NONE, next: TAKEN }; slots as usize].into(),
            free: NONE,
            len: 0,
            quarantined: 0,
        };
        // Backwards, so that slots are given out in ascending order.
        for slot in (0..slots).rev() {
            index.release(SlotId(slot));
        }
        index
    }

    /// Number of slots.
    pub fn slots(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Number of occupied slots.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True when no slot is occupied.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of slots that are never used again.
    pub fn quarantined(&self) -> u32 {
        self.quarantined
    }

    /// Number of taken slots without a block. Slow.
    pub fn taken(&self) -> u32 {
        let vacant = |e: &&Entry| e.key == NONE && e.next == TAKEN;
        self.entries.iter().filter(vacant).count() as u32
    }

    /// The slot that holds `block`.
    pub fn find(&self, block: BlockIndex) -> Option<SlotId> {
        let mut slot = self.heads[self.head_of(block)];
        while slot != NONE {
            let entry = &self.entries[slot as usize];
            if entry.key == block.0 {
                return Some(SlotId(slot));
            }
            slot = entry.next;
        }
        None
    }

    /// The block in `slot`, `None` when the slot is not occupied.
    pub fn block_of(&self, slot: SlotId) -> Option<BlockIndex> {
        let key = self.entries[slot.0 as usize].key;
        (key != NONE).then_some(BlockIndex(key))
    }

    /// Takes a free slot.
    pub fn take_free(&mut self) -> Option<SlotId> {
        let slot = (self.free != NONE).then_some(SlotId(self.free))?;
        let entry = &mut self.entries[slot.0 as usize];
        self.free = entry.next;
        entry.next = TAKEN;
        Some(slot)
    }

    /// Gives a taken slot without a block back.
    pub fn release(&mut self, slot: SlotId) {
        let free = self.free;
        self.vacant(slot).next = free;
        self.free = slot.0;
    }

    /// Sets a taken slot without a block aside for ever.
    pub fn quarantine(&mut self, slot: SlotId) {
        self.vacant(slot).next = QUARANTINED;
        self.quarantined += 1;
    }

    /// Puts `block`, which must not be in the index, into a taken slot without a block.
    pub fn insert(&mut self, slot: SlotId, block: BlockIndex) {
        assert!(block.0 != NONE && self.find(block).is_none(), "block {} is there", block.0);
        let head = self.head_of(block);
        let next = self.heads[head];
        *self.vacant(slot) = Entry { key: block.0, next };
        self.heads[head] = slot.0;
        self.len += 1;
    }

    /// Takes the block out of an occupied slot, which stays taken.
    pub fn remove(&mut self, slot: SlotId) -> BlockIndex {
        let Entry { key, next } = self.entries[slot.0 as usize];
        *self.link_to(slot) = next;
        self.entries[slot.0 as usize] = Entry { key: NONE, next: TAKEN };
        self.len -= 1;
        BlockIndex(key)
    }

    /// Moves the block of the occupied slot `old` to the taken slot `new`; `old` stays taken.
    pub fn replace(&mut self, old: SlotId, new: SlotId) {
        let entry = self.entries[old.0 as usize];
        *self.vacant(new) = entry;
        *self.link_to(old) = new.0;
        self.entries[old.0 as usize] = Entry { key: NONE, next: TAKEN };
    }

    /// Panics when chains, free slots and counts contradict each other. Slow.
    pub fn check_invariants(&self) {
        let mut seen = vec![false; self.entries.len()];
        let mut visit = |slot: u32| {
            assert!(!std::mem::replace(&mut seen[slot as usize], true), "slot {slot} found twice");
        };
        let mut occupied = 0;
        for (head, &first) in self.heads.iter().enumerate() {
            let mut slot = first;
            while slot != NONE {
                visit(slot);
                let entry = self.entries[slot as usize];
                assert!(entry.key != NONE && self.head_of(BlockIndex(entry.key)) == head);
                assert_eq!(self.find(BlockIndex(entry.key)), Some(SlotId(slot)), "block twice");
                occupied += 1;
                slot = entry.next;
            }
        }
        assert_eq!(occupied, self.len);
        let mut slot = self.free;
        while slot != NONE {
            visit(slot);
            assert_eq!(self.entries[slot as usize].key, NONE);
            slot = self.entries[slot as usize].next;
        }
        let mut quarantined = 0;
        for (entry, seen) in self.entries.iter().zip(seen) {
            quarantined += u32::from(entry.key == NONE && entry.next == QUARANTINED);
            assert!(
                seen || entry.key == NONE && matches!(entry.next, TAKEN | QUARANTINED),
                "a slot is neither found by its block nor free nor taken"
            );
        }
        assert_eq!(quarantined, self.quarantined);
    }

    /// Bytes of memory that the index takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.entries)
    }

    /// What [`Index::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32, slots_per_head: u32) -> u64 {
        u64::from(slots.div_ceil(slots_per_head)) * size_of::<u32>() as u64
            + u64::from(slots) * size_of::<Entry>() as u64
    }

    /// The head of the chain that `block` belongs to: mix, then scale to the number of heads.
    fn head_of(&self, block: BlockIndex) -> usize {
        let mut hash = u64::from(block.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        (((hash >> 32) * self.heads.len() as u64) >> 32) as usize
    }

    /// The entry of a slot that must be taken and hold no block.
    fn vacant(&mut self, slot: SlotId) -> &mut Entry {
        let entry = &mut self.entries[slot.0 as usize];
        assert!(entry.key == NONE && entry.next == TAKEN, "slot {} is not taken", slot.0);
        entry
    }

    /// The link in the chain that points to the occupied `slot`.
    fn link_to(&mut self, slot: SlotId) -> &mut u32 {
        let key = self.entries[slot.0 as usize].key;
        assert!(key != NONE, "slot {} holds no block", slot.0);
        let head = self.head_of(BlockIndex(key));
        if self.heads[head] == slot.0 {
            return &mut self.heads[head];
        }
        let mut at = self.heads[head];
        loop {
            let next = self.entries[at as usize].next;
            if next == slot.0 {
                return &mut self.entries[at as usize].next;
            }
            at = next;
        }
    }
}

#[cfg(test)]
mod tests;
