//! The index of a tier: which slot holds a cache block.
//!
//! A hash table with chains that run through `entries`, one {key, next} per slot. Its buckets lie in
//! *lines* of 64 bytes, in one of two densities:
//! ```text
//! fast      |7 keys      |-|7 slots     |c|    one bucket: 7 *ways*, and the chain of what found no way
//! compact   |c|c|c|c|c|c|c|c|c|c|c|c|c|c|c|c|    16 buckets: a chain each
//!            └─► entry ─► entry
//! ```
//! | density | slots per bucket | bytes per slot | lines and entries per hit |
//! |---|---|---|---|
//! | fast | 5 | 20.8 | 1.05 |
//! | compact | 2 | 10 | 3 |
//!
//! A slot without a block needs neither field, so the list of free slots runs through `next` too.
//! States of a slot and its edges:
//! ```text
//! free ──take_free──► taken ──insert──► occupied
//!   ▲                 │ │ ▲                │
//!   └────release──────┘ │ └─────remove─────┘
//!   ▲                   ├─quarantine─► quarantined (for ever)
//!   │                   └─retire─► retired ─record_retired─► recorded ─┐
//!   └──────────────────────────────free_recorded───────────────────────┘
//! ```
//! Retired and recorded slots are two more lists through `next`: slots that are free for new blocks when it is
//! durable that they hold nothing (`cache_index/`).
//!
//! **Invariants:** a block is in one way or one chain; a bucket with a free way has no chain.
//!
//! The hash is multiply-shift, twice, so that strides of blocks spread like random ones. It is salted, so that no guest can
//! choose blocks of one bucket: long chains would be the loss of all disks of its shard.

mod resize;
mod restore;
mod retired;

use self::resize::Sifting;
use crate::ids::{BlockIndex, SlotId};
use crate::list::SLOTS_MAX;

/// End of a chain, and the key of a slot or way without a block (a grid has fewer blocks, see `Grid`).
const NONE: u32 = u32::MAX;
/// `next` of a taken slot without a block.
const TAKEN: u32 = u32::MAX - 1;
/// `next` of a slot that is never used again.
const QUARANTINED: u32 = u32::MAX - 2;
/// Ways of a fast bucket.
const WAYS: usize = 7;
/// Where the slots of the ways start in their line. The word before never holds a key.
const SLOTS: usize = 8;
/// Where the chain of a fast bucket starts.
const CHAIN: usize = 15;

/// How an index spends memory; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Density {
    /// One cache line a lookup, for a tier whose hits cost nothing else.
    Fast,
    /// Within the budget of a flash tier.
    Compact,
}

impl Density {
    fn slots_per_bucket(self) -> u32 {
        match self {
            Density::Fast => 5,
            Density::Compact => 2,
        }
    }

    fn buckets_per_line(self) -> u32 {
        match self {
            Density::Fast => 1,
            Density::Compact => 16,
        }
    }
}

/// Exactly one cache line; [`NONE`] in what holds nothing.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u32; 16]);

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// The way of a fast bucket that holds `key`. All are compared, so that the only branch is the
    /// caller's on whether there is one: which one would be mispredicted, line by line.
    fn way_of(&self, key: u32) -> Option<usize> {
        // A byte of a way that matches is all ones.
        let matches: [u8; SLOTS] =
            std::array::from_fn(|way| if self.0[way] == key { u8::MAX } else { 0 });
        let matches = u64::from_le_bytes(matches);
        (matches != 0).then(|| matches.trailing_zeros() as usize / 8 % SLOTS)
    }
}

/// A bucket: its line and the word of it where its chain starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    line: usize,
    chain: usize,
}

/// The index's entry for one slot.
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
    lines: Box<[Line]>,
    buckets: u32,
    salt: u64,
    density: Density,
    entries: Box<[Entry]>,
    /// Slots that the buckets are enough for, where there are fewer now.
    room: u32,
    free: Free,
    sifting: Sifting,
    retired: Chain,
    recorded: Chain,
    len: u32,
    quarantined: u32,
}

/// Free slots through `next`, last in, first out.
#[derive(Clone, Copy, Debug)]
struct Free {
    first: u32,
    len: u32,
}

impl Free {
    const NOTHING: Free = Free { first: NONE, len: 0 };
}

/// Slots that one search for a free one looks at.
const SIFTED_AT_ONCE: u32 = 512;

/// A list of slots through `next`, first in, first out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    first: u32,
    last: u32,
    len: u32,
}

impl Chain {
    const EMPTY: Chain = Chain { first: NONE, last: NONE, len: 0 };
}

impl Index {
    /// An index of `slots` free slots. Panics unless there are any and at most [`SLOTS_MAX`].
    pub fn new(slots: u32, density: Density) -> Index {
        Index::with_load(slots, density, density.slots_per_bucket())
    }

    fn with_load(slots: u32, density: Density, slots_per_bucket: u32) -> Index {
        assert!(slots > 0 && slots <= SLOTS_MAX);
        let (buckets, lines) = Index::table_for(slots, density, slots_per_bucket);
        let mut index = Index {
            lines,
            buckets,
            salt: 0,
            density,
            entries: vec![Entry { key: NONE, next: TAKEN }; slots as usize].into(),
            room: 0,
            free: Free::NOTHING,
            sifting: Sifting::NOTHING,
            retired: Chain::EMPTY,
            recorded: Chain::EMPTY,
            len: 0,
            quarantined: 0,
        };
        // Backwards, so that slots are given out in ascending order.
        for slot in (0..slots).rev() {
            index.release(SlotId(slot));
        }
        index
    }

    /// Empty buckets for so many slots, and how many they are.
    fn table_for(slots: u32, density: Density, slots_per_bucket: u32) -> (u32, Box<[Line]>) {
        let buckets = slots.div_ceil(slots_per_bucket);
        let lines = buckets.div_ceil(density.buckets_per_line());
        (buckets, vec![Line([NONE; 16]); lines as usize].into())
    }

    /// Number of slots, quarantined ones included.
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
        self.find_in(self.bucket_of(block), block)
    }

    /// The same, where the bucket of `block` is known: it is that of any index of as many slots and the same density.
    #[inline]
    pub fn find_in(&self, bucket: Bucket, block: BlockIndex) -> Option<SlotId> {
        if let Some(way) = self.way_of(bucket, block) {
            return Some(SlotId(self.lines[bucket.line].0[SLOTS + way]));
        }
        let mut slot = self.lines[bucket.line].0[bucket.chain];
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
        if self.free.first == NONE && self.sifting.rest.len > 0 {
            self.sift(SIFTED_AT_ONCE);
        }
        let slot = (self.free.first != NONE).then_some(SlotId(self.free.first))?;
        let entry = &mut self.entries[slot.0 as usize];
        self.free.first = entry.next;
        self.free.len -= 1;
        entry.next = TAKEN;
        Some(slot)
    }

    /// Number of free slots, with those that may have to be taken ([`Index::begin_taking_from`]).
    pub fn free_len(&self) -> u32 {
        self.free.len + self.sifting.rest.len
    }

    /// Gives a taken slot without a block back.
    pub fn release(&mut self, slot: SlotId) {
        let free = self.free.first;
        self.vacant(slot).next = free;
        self.free.first = slot.0;
        self.free.len += 1;
    }

    /// True for a taken slot without a block.
    pub fn is_taken(&self, slot: SlotId) -> bool {
        let entry = &self.entries[slot.0 as usize];
        entry.key == NONE && entry.next == TAKEN
    }

    /// Sets a taken slot without a block aside for ever.
    pub fn quarantine(&mut self, slot: SlotId) {
        self.vacant(slot).next = QUARANTINED;
        self.quarantined += 1;
    }

    /// Puts `block`, which must not be in the index, into a taken slot without a block.
    pub fn insert(&mut self, slot: SlotId, block: BlockIndex) {
        assert!(self.entries[slot.0 as usize].key == NONE, "slot {} holds a block", slot.0);
        assert!(self.insert_if_new(slot, block), "block {} is there", block.0);
    }

    /// The same, where the block may be in the index or something in the slot: false then.
    pub fn insert_if_new(&mut self, slot: SlotId, block: BlockIndex) -> bool {
        assert!(block.0 != NONE);
        if self.entries[slot.0 as usize].key != NONE || self.find(block).is_some() {
            return false;
        }
        let next = self.link(slot, block);
        *self.vacant(slot) = Entry { key: block.0, next };
        self.len += 1;
        true
    }

    /// Puts a slot into the bucket of `block`; the next one of its chain.
    #[inline]
    fn link(&mut self, slot: SlotId, block: BlockIndex) -> u32 {
        let bucket = self.bucket_of(block);
        let line = &mut self.lines[bucket.line].0;
        let way = match self.density {
            Density::Fast => line[..WAYS].iter().position(|&key| key == NONE),
            Density::Compact => None,
        };
        match way {
            Some(way) => {
                (line[way], line[SLOTS + way]) = (block.0, slot.0);
                NONE
            }
            None => std::mem::replace(&mut line[bucket.chain], slot.0),
        }
    }

    /// Takes the block out of an occupied slot, which stays taken.
    pub fn remove(&mut self, slot: SlotId) -> BlockIndex {
        let Entry { key, next } = self.occupied(slot);
        let bucket = self.bucket_of(BlockIndex(key));
        match self.way_of(bucket, BlockIndex(key)) {
            Some(way) => self.vacate(bucket, way),
            None => *self.link_to(bucket, slot) = next,
        }
        self.entries[slot.0 as usize] = Entry { key: NONE, next: TAKEN };
        self.len -= 1;
        BlockIndex(key)
    }

    /// Empties a way, or puts the first of the bucket's chain there.
    fn vacate(&mut self, bucket: Bucket, way: usize) {
        let line = &mut self.lines[bucket.line].0;
        let spilled = line[bucket.chain];
        (line[way], line[SLOTS + way]) = (NONE, spilled);
        if spilled != NONE {
            let entry = &mut self.entries[spilled as usize];
            line[way] = entry.key;
            line[bucket.chain] = std::mem::replace(&mut entry.next, NONE);
        }
    }

    /// Moves the block of the occupied slot `old` to the taken slot `new`; `old` stays taken.
    pub fn replace(&mut self, old: SlotId, new: SlotId) {
        let entry = self.occupied(old);
        *self.vacant(new) = entry;
        let block = BlockIndex(entry.key);
        let bucket = self.bucket_of(block);
        match self.way_of(bucket, block) {
            Some(way) => self.lines[bucket.line].0[SLOTS + way] = new.0,
            None => *self.link_to(bucket, old) = new.0,
        }
        self.entries[old.0 as usize] = Entry { key: NONE, next: TAKEN };
    }

    /// Panics when chains, free slots and counts contradict each other. Slow.
    pub fn check_invariants(&self) {
        let mut seen = vec![false; self.entries.len()];
        let mut visit = |slot: u32| {
            assert!(!std::mem::replace(&mut seen[slot as usize], true), "slot {slot} found twice");
        };
        let mut occupied = 0;
        let mut occupy = |slot: u32, bucket: Bucket| {
            visit(slot);
            let Entry { key, next } = self.entries[slot as usize];
            assert!(key != NONE && self.bucket_of(BlockIndex(key)) == bucket);
            assert_eq!(self.find(BlockIndex(key)), Some(SlotId(slot)), "block twice");
            occupied += 1;
            (key, next)
        };
        for bucket in (0..self.buckets).map(|number| self.bucket(number)) {
            let line = &self.lines[bucket.line].0;
            if self.density == Density::Fast {
                assert_eq!(line[WAYS], NONE);
                for way in 0..WAYS {
                    let (key, slot) = (line[way], line[SLOTS + way]);
                    assert!(key != NONE || line[CHAIN] == NONE, "a chain beside a free way");
                    assert_eq!(key == NONE, slot == NONE);
                    assert!(key == NONE || occupy(slot, bucket) == (key, NONE));
                }
            }
            let mut slot = line[bucket.chain];
            while slot != NONE {
                slot = occupy(slot, bucket).1;
            }
        }
        assert_eq!(occupied, self.len);
        let lists = [self.free, self.sifting.rest].map(|list| (list.first, list.len));
        let chains = [self.retired, self.recorded].map(|chain| (chain.first, chain.len));
        for (mut slot, expect) in lists.into_iter().chain(chains) {
            let mut len = 0;
            while slot != NONE {
                visit(slot);
                assert_eq!(self.entries[slot as usize].key, NONE);
                slot = self.entries[slot as usize].next;
                len += 1;
            }
            assert_eq!(len, expect);
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
        size_of_val(&*self.lines) + size_of_val(&*self.entries)
    }

    /// What [`Index::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32, density: Density) -> u64 {
        Self::line_bytes_for(slots, density) + u64::from(slots) * size_of::<Entry>() as u64
    }

    /// What room for so many slots adds to that ([`Index::make_room`]).
    pub fn room_bytes_for(slots: u32, room: u32, density: Density) -> u64 {
        Self::line_bytes_for(room.max(slots), density) - Self::line_bytes_for(slots, density)
    }

    fn line_bytes_for(slots: u32, density: Density) -> u64 {
        let buckets = slots.div_ceil(density.slots_per_bucket());
        u64::from(buckets.div_ceil(density.buckets_per_line())) * size_of::<Line>() as u64
    }

    /// The same, empty as it is, with another salt than 0.
    pub fn salted(self, salt: u64) -> Index {
        assert_eq!(self.len, 0, "blocks would be looked for elsewhere");
        Index { salt, ..self }
    }

    /// The bucket that `block` belongs to: mix, then scale to the number of buckets.
    pub fn bucket_of(&self, block: BlockIndex) -> Bucket {
        let mut hash = (u64::from(block.0) ^ self.salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash = (hash ^ hash >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        self.bucket((((hash >> 32) * u64::from(self.buckets)) >> 32) as u32)
    }

    fn bucket(&self, number: u32) -> Bucket {
        let number = number as usize;
        match self.density {
            Density::Fast => Bucket { line: number, chain: CHAIN },
            Density::Compact => Bucket { line: number / 16, chain: number % 16 },
        }
    }

    /// The way of its bucket that holds `block`.
    fn way_of(&self, bucket: Bucket, block: BlockIndex) -> Option<usize> {
        match self.density {
            Density::Fast => self.lines[bucket.line].way_of(block.0),
            Density::Compact => None,
        }
    }

    /// The entry of a slot that must be occupied.
    fn occupied(&self, slot: SlotId) -> Entry {
        let entry = self.entries[slot.0 as usize];
        assert!(entry.key != NONE, "slot {} holds no block", slot.0);
        entry
    }

    /// The entry of a slot that must be taken and hold no block.
    fn vacant(&mut self, slot: SlotId) -> &mut Entry {
        let entry = &mut self.entries[slot.0 as usize];
        assert!(entry.key == NONE && entry.next == TAKEN, "slot {} is not taken", slot.0);
        entry
    }

    /// The link in the chain of `bucket` that points to `slot`, which must be in it.
    fn link_to(&mut self, bucket: Bucket, slot: SlotId) -> &mut u32 {
        let head = &mut self.lines[bucket.line].0[bucket.chain];
        if *head == slot.0 {
            return head;
        }
        let mut at = *head;
        while self.entries[at as usize].next != slot.0 {
            at = self.entries[at as usize].next;
        }
        &mut self.entries[at as usize].next
    }
}

#[cfg(test)]
mod tests;
