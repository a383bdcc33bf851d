//! Ghosts: a bounded memory of blocks that were dropped, or refused, not long ago.
//!
//! It keeps 16-bit fingerprints in buckets of eight, newest first; a full bucket forgets its
//! oldest. So it takes 2 bytes per remembered block, needs no list, and answers with one cache
//! line. The price: a block that was never here is taken for a remembered one about once in 8000
//! times, and how long a block is remembered varies with the luck of its bucket.

use crate::ids::BlockIndex;

/// Fingerprints in a bucket.
const WAYS: usize = 8;
/// The fingerprint that stands for "nothing".
const EMPTY: u16 = 0;

/// See the module.
#[derive(Debug)]
pub struct Ghost {
    buckets: Box<[[u16; WAYS]]>,
}

impl Ghost {
    /// A memory of about `blocks` blocks, at least one bucket.
    pub fn new(blocks: u32) -> Ghost {
        Ghost { buckets: vec![[EMPTY; WAYS]; Self::buckets_for(blocks)].into() }
    }

    /// True when `block` is remembered (or, rarely, another one is taken for it).
    pub fn contains(&self, block: BlockIndex) -> bool {
        let (bucket, fingerprint) = self.place_of(block);
        self.buckets[bucket].contains(&fingerprint)
    }

    /// Reads what is known of these blocks. The sum is for nothing.
    pub fn look_ahead(&self, blocks: &[BlockIndex]) -> u32 {
        blocks
            .iter()
            .fold(0, |sum, &block| sum ^ u32::from(self.buckets[self.place_of(block).0][0]))
    }

    /// Remembers `block` as the newest.
    pub fn insert(&mut self, block: BlockIndex) {
        let (bucket, fingerprint) = self.place_of(block);
        let bucket = &mut self.buckets[bucket];
        let from = bucket.iter().position(|&f| f == fingerprint).unwrap_or(WAYS - 1);
        bucket.copy_within(..from, 1);
        bucket[0] = fingerprint;
    }

    /// Forgets `block`; true when it was remembered.
    pub fn remove(&mut self, block: BlockIndex) -> bool {
        let (bucket, fingerprint) = self.place_of(block);
        let bucket = &mut self.buckets[bucket];
        let Some(at) = bucket.iter().position(|&f| f == fingerprint) else { return false };
        bucket.copy_within(at + 1.., at);
        bucket[WAYS - 1] = EMPTY;
        true
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.buckets.fill([EMPTY; WAYS]);
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// What [`Ghost::memory_bytes`] will be.
    pub fn memory_bytes_for(blocks: u32) -> u64 {
        Self::buckets_for(blocks) as u64 * (2 * WAYS as u64)
    }

    fn buckets_for(blocks: u32) -> usize {
        (blocks as usize).div_ceil(WAYS).max(1)
    }

    /// The bucket of a block and its fingerprint there: distinct bits of one well-mixed hash.
    fn place_of(&self, block: BlockIndex) -> (usize, u16) {
        let hash = block.hash();
        let bucket = ((hash >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, (hash as u16).max(EMPTY + 1))
    }
}

#[cfg(test)]
mod tests;
