//! Filling an index after a restart, many blocks at a time.

use super::{Free, Index, TAKEN};
use crate::ids::{BlockIndex, SlotId};

impl Index {
    /// Takes every slot of an index without blocks.
    pub fn take_all(&mut self) {
        assert!(self.is_empty() && self.retired_len() == 0);
        self.entries.iter_mut().for_each(|entry| entry.next = TAKEN);
        self.free = Free::NOTHING;
    }

    /// Reads the memory that a lookup of these blocks, and putting them into these slots, will
    /// read. The loops have no branch that depends on it, so the CPU waits for many cache lines
    /// at once. The sum is for nothing.
    pub fn prefetch(&self, coming: &[(SlotId, BlockIndex)]) -> u32 {
        let last = self.entries.len() - 1;
        let next = |slot: u32| self.entries[last.min(slot as usize)].next;
        let head = |block: BlockIndex| {
            let bucket = self.bucket_of(block);
            self.lines[bucket.line].0[bucket.chain]
        };
        let slots = coming.iter().fold(0, |sum, &(slot, block)| sum ^ next(slot.0) ^ head(block));
        // The chain's first two entries; few are longer.
        let first = coming.iter().fold(slots, |sum, &(_, block)| sum ^ next(head(block)));
        coming.iter().fold(first, |sum, &(_, block)| sum ^ next(next(head(block))))
    }

    /// Reads what lookups of these blocks begin with. The sum is for nothing.
    #[inline]
    pub fn look_ahead(&self, blocks: impl Iterator<Item = BlockIndex>) -> u32 {
        blocks.fold(0, |sum, block| {
            let bucket = self.bucket_of(block);
            sum ^ self.lines[bucket.line].0[bucket.chain]
        })
    }

    /// Frees the slots that are not occupied nor retired, after [`Index::take_all`].
    pub fn end_restore(&mut self) {
        for slot in (0..self.slots()).rev().map(SlotId) {
            if self.is_taken(slot) {
                self.release(slot);
            }
        }
    }
}
