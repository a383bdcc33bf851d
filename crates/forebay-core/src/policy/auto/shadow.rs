//! A cache without bytes that sees a sample of the blocks.

use super::super::Policy;
use super::super::s3fifo::{Rules, S3Fifo};
use crate::ghost::{Age, Ghost};
use crate::ids::{BlockIndex, SlotId};
use crate::index::{Bucket, Density, Index};
use crate::list::Links;

/// One miss, or another event, before any of it is forgotten.
pub const MISS: i64 = 1 << 20;
/// Uses for each slot after which 1/e of it is left.
const MEMORY: i64 = 24;

/// How many misses, or other events, a cache had, in parts of [`MISS`]; the older one is, the less it counts.
#[derive(Debug, Default)]
pub struct Fading(i64);

impl Fading {
    /// A use of a block in a cache of `slots` slots.
    pub fn count(&mut self, slots: u32, is_miss: bool) {
        self.fade(slots);
        if is_miss {
            self.add();
        }
    }

    /// A use of a block in a cache of `slots` slots makes all events older.
    pub fn fade(&mut self, slots: u32) {
        self.0 -= self.0 / (MEMORY * i64::from(slots));
    }

    /// One event more.
    pub fn add(&mut self) {
        self.0 += MISS;
    }

    /// What is left of them.
    pub fn sum(&self) -> i64 {
        self.0
    }

    /// Forgets them.
    pub fn clear(&mut self) {
        self.0 = 0;
    }
}

/// See the module.
#[derive(Debug)]
pub struct Shadow {
    index: Index,
    rules: Rules,
    queues: S3Fifo,
    ghost: Ghost,
    misses: Fading,
}

impl Shadow {
    pub fn new(slots: u32, rules: Rules) -> Shadow {
        Shadow {
            index: Index::new(slots, Density::Compact),
            rules,
            queues: S3Fifo::with_rules(slots, rules),
            ghost: Ghost::new(ghost_blocks(slots)),
            misses: Fading::default(),
        }
    }

    /// What [`Shadow::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        Index::memory_bytes_for(slots, Density::Compact)
            + Links::memory_bytes_for(slots)
            + Ghost::memory_bytes_for(ghost_blocks(slots))
    }

    /// What it missed.
    pub fn misses(&self) -> i64 {
        self.misses.sum()
    }

    /// Forgets what it missed, not what it holds.
    pub fn start_afresh(&mut self) {
        self.misses.clear();
    }

    /// Where `block` is looked for, in this shadow and in every other one of as many slots.
    pub fn bucket_of(&self, block: BlockIndex) -> Bucket {
        self.index.bucket_of(block)
    }

    /// A use of `block`, which belongs to `bucket`; true when it was missed.
    pub fn touch(&mut self, bucket: Bucket, block: BlockIndex) -> bool {
        let found = self.index.find_in(bucket, block);
        self.misses.count(self.index.slots(), found.is_none());
        if let Some(slot) = found {
            self.queues.on_hit(slot, &self.index);
            return false;
        }
        let slot = self.index.take_free().unwrap_or_else(|| self.evict());
        self.index.insert(slot, block);
        let remembered = match self.ghost.remove(block) {
            Some(Age::Recent) => true,
            Some(Age::Old) => self.queues.looks_far_back(),
            None => false,
        };
        self.queues.on_insert(slot, block, remembered);
        true
    }

    /// Drops a block; its slot is taken.
    fn evict(&mut self) -> SlotId {
        let victim = self.queues.evict(&self.index).expect("no slot is free, so one is occupied");
        let gone = self.index.remove(victim.slot);
        if victim.remember {
            self.ghost.insert(gone);
        }
        victim.slot
    }

    /// Empties it.
    pub fn clear(&mut self) {
        while let Some(victim) = self.queues.evict(&self.index) {
            self.index.remove(victim.slot);
            self.index.release(victim.slot);
        }
        self.queues.set_rules(self.rules);
        self.ghost.clear();
        self.misses.clear();
    }

    /// Panics when its structures contradict each other. Slow.
    pub fn check_invariants(&self) {
        self.index.check_invariants();
        self.queues.check_invariants();
        assert_eq!(self.queues.len(), self.index.len());
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.queues.memory_bytes() + self.ghost.memory_bytes()
    }
}

/// As in a tier's directory.
fn ghost_blocks(slots: u32) -> u32 {
    (u64::from(slots) * 9 / 10) as u32
}
