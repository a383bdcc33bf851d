//! A cache without data: which granules of which blocks it has.

use std::ops::Range;

use forebay_core::directory::Directory;
use forebay_core::geometry::GranuleMask;
use forebay_core::ids::{BlockIndex, SlotId};

/// A [`Directory`] with a valid bit for every granule of its slots, more than the 64 that the engine has.
#[derive(Debug)]
pub(crate) struct Cache {
    directory: Directory,
    /// Valid granules of all slots, `words` words for each; none where a block is one granule, which is valid when it is there.
    valid: Vec<u64>,
    words: usize,
    evictions: u64,
}

impl Cache {
    /// An empty one; the blocks have `granules_per_block`, whatever the directory has.
    pub fn new(directory: Directory, granules_per_block: u64) -> Cache {
        let words =
            if granules_per_block > 1 { granules_per_block.div_ceil(64) as usize } else { 0 };
        let valid = vec![0; words * directory.slots() as usize];
        Cache { directory, valid, words, evictions: 0 }
    }

    /// Blocks that it has room for.
    pub fn slots(&self) -> u32 {
        self.directory.slots()
    }

    /// Blocks in it.
    pub fn len(&self) -> u32 {
        self.directory.len()
    }

    /// Blocks dropped to make room so far.
    pub fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Drops everything.
    pub fn clear(&mut self) {
        self.directory.clear();
    }

    /// Reads what uses of these blocks will read, for all of them at once: one after the other the CPU would wait for each.
    pub fn look_ahead(&self, blocks: &[BlockIndex]) {
        self.directory.look_ahead(blocks);
    }

    /// Uses granules of a block, and makes them valid; returns how many of them hit.
    #[inline]
    pub fn touch(&mut self, block: BlockIndex, granules: Range<u32>) -> u64 {
        let found = self.directory.find(block);
        let slot = match found {
            Some(slot) => {
                self.directory.hit(slot);
                slot
            }
            None => self.insert(block),
        };
        if self.words == 0 {
            return found.is_some().into();
        }
        let valid = &mut self.valid[slot.0 as usize * self.words..][..self.words];
        if let [valid] = valid {
            let GranuleMask(mask) = GranuleMask::run(granules.start, granules.end - 1);
            let hits = (*valid & mask).count_ones();
            *valid |= mask;
            return hits.into();
        }
        let mut hits = 0;
        for granule in granules {
            let word = &mut valid[granule as usize / 64];
            hits += *word >> (granule % 64) & 1;
            *word |= 1 << (granule % 64);
        }
        hits
    }

    /// Puts a block without a valid granule into it.
    fn insert(&mut self, block: BlockIndex) -> SlotId {
        let slot = self.directory.take_free().unwrap_or_else(|| {
            self.evictions += 1;
            self.directory.evict().expect("a cache without a free slot has an occupied one").slot
        });
        self.directory.insert(slot, block, GranuleMask(1));
        match &mut self.valid[slot.0 as usize * self.words..][..self.words] {
            // Most blocks have no word or one. A call of `fill` would be a quarter of an insertion.
            [] => {}
            [one] => *one = 0,
            all => all.fill(0),
        }
        slot
    }
}
