//! Ghosts: a bounded memory of blocks that were dropped, or refused, not long ago.
//!
//! It keeps 16-bit fingerprints in buckets of sixteen, newest first; a full bucket forgets its
//! oldest. So it takes 2 bytes per remembered block, needs no list, and answers with one cache
//! line. The newest eight of a bucket are *recent*, the others *old*: who has use for a long
//! memory asks for both. The price: a block that was never here is taken for a recent one about
//! once in 8000 times. The luck of its bucket decides for how long a block is remembered.

use crate::ids::BlockIndex;

/// Fingerprints in a bucket.
const WAYS: usize = 16;
/// Of them recent.
const RECENT: usize = 8;
/// A memory is resized by this part of it at least: all of it is copied.
const NEARLY: u64 = 8;
/// The fingerprint that stands for "nothing".
const EMPTY: u16 = 0;

/// How long ago a remembered block left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Not more than about as many as the memory was made for have left since.
    Recent,
    /// More, but less than twice as many.
    Old,
}

/// See the module.
#[derive(Debug)]
pub struct Ghost {
    buckets: Box<[[u16; WAYS]]>,
}

impl Ghost {
    /// A memory of about `blocks` recent blocks, at least one bucket, and as many old ones.
    pub fn new(blocks: u32) -> Ghost {
        Ghost { buckets: vec![[EMPTY; WAYS]; Self::buckets_for(blocks)].into() }
    }

    /// True when `block` is remembered as recent (or, rarely, another one is taken for it).
    pub fn contains(&self, block: BlockIndex) -> bool {
        let (bucket, fingerprint) = self.place_of(block);
        self.buckets[bucket][..RECENT].contains(&fingerprint)
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

    /// Forgets `block`; how old it was when it was remembered.
    pub fn remove(&mut self, block: BlockIndex) -> Option<Age> {
        let (bucket, fingerprint) = self.place_of(block);
        let bucket = &mut self.buckets[bucket];
        let at = bucket.iter().position(|&f| f == fingerprint)?;
        // An old one does not become recent again because a younger one is forgotten.
        let (age, end) = if at < RECENT { (Age::Recent, RECENT) } else { (Age::Old, WAYS) };
        bucket.copy_within(at + 1..end, at);
        bucket[end - 1] = EMPTY;
        Some(age)
    }

    /// Goes on as a memory of about `blocks` recent blocks, unless it is nearly that already. What a bucket knows is known in
    /// all that stand for its blocks; where there are fewer, of those that become one the first is kept.
    pub fn resize(&mut self, blocks: u32) {
        let (before, len) = (self.buckets.len() as u64, Self::buckets_for(blocks) as u64);
        if before.abs_diff(len) * NEARLY < before {
            return;
        }
        let kept = (0..len).map(|bucket| self.buckets[(bucket * before / len) as usize]);
        self.buckets = kept.collect();
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
        (blocks as usize).div_ceil(RECENT).max(1)
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
