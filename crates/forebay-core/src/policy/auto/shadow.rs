//! A cache without bytes that sees a sample of the blocks.

use super::super::Policy;
use super::super::s3fifo::{Rules, S3Fifo};
use crate::ghost::Ghost;
use crate::ids::{BlockIndex, SlotId};
use crate::index::{Density, Index};
use crate::list::Links;

/// One miss, before any of it is forgotten.
pub const MISS: i64 = 1 << 20;
/// Uses for each slot after which of a miss 1/e is left.
const MEMORY: i64 = 24;

/// See the module.
#[derive(Debug)]
pub struct Shadow {
    index: Index,
    rules: Rules,
    queues: S3Fifo,
    ghost: Ghost,
    misses: i64,
}

impl Shadow {
    pub fn new(slots: u32, rules: Rules) -> Shadow {
        Shadow {
            index: Index::new(slots, Density::Compact),
            rules,
            queues: S3Fifo::with_rules(slots, rules),
            ghost: Ghost::new(ghost_blocks(slots)),
            misses: 0,
        }
    }

    /// What [`Shadow::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        Index::memory_bytes_for(slots, Density::Compact)
            + Links::memory_bytes_for(slots)
            + Ghost::memory_bytes_for(ghost_blocks(slots))
    }

    /// What it missed, in parts of [`MISS`]; the older a miss, the less it counts.
    pub fn misses(&self) -> i64 {
        self.misses
    }

    /// Forgets what it missed, not what it holds.
    pub fn start_afresh(&mut self) {
        self.misses = 0;
    }

    /// A use of `block`.
    pub fn touch(&mut self, block: BlockIndex) {
        self.misses -= self.misses / (MEMORY * i64::from(self.index.slots()));
        if let Some(slot) = self.index.find(block) {
            return self.queues.on_hit(slot, &self.index);
        }
        self.misses += MISS;
        let slot = self.index.take_free().unwrap_or_else(|| self.evict());
        self.index.insert(slot, block);
        let remembered = self.ghost.remove(block);
        self.queues.on_insert(slot, block, remembered);
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
        self.misses = 0;
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
