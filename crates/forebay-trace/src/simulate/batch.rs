//! Uses that are gathered before a cache has them, so that what it reads for many of them is read at once. Nothing else
//! depends on it: they come to the cache in their order.

use std::ops::Range;

use forebay_core::ids::BlockIndex;

use super::Cache;
use crate::record::Op;

/// Uses that are gathered, but for the last request's.
const USES: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Batch {
    blocks: Vec<BlockIndex>,
    granules: Vec<Range<u32>>,
    /// Of each request: what it was, its granules, and where its uses end.
    requests: Vec<(Op, u64, usize)>,
}

impl Batch {
    /// A use of granules of a block.
    #[inline]
    pub fn add(&mut self, block: BlockIndex, granules: Range<u32>) {
        self.blocks.push(block);
        self.granules.push(granules);
    }

    /// The uses since the last one were those of a request of so many granules.
    #[inline]
    pub fn end_request(&mut self, op: Op, granules: u64) {
        self.requests.push((op, granules, self.blocks.len()));
    }

    /// True when it is worth a look at memory.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.blocks.len() >= USES
    }

    /// Makes all of the uses, and tells of each request how many of its granules hit.
    pub fn touch(&mut self, cache: &mut Cache, mut tell: impl FnMut(Op, u64, u64)) {
        let mut at = 0;
        for (op, granules, end) in self.requests.drain(..) {
            let mut hits = 0;
            for place in at..end {
                if place % USES == 0 {
                    let last = self.blocks.len().min(place + USES);
                    cache.look_ahead(&self.blocks[place..last]);
                }
                hits += cache.touch(self.blocks[place], self.granules[place].clone());
            }
            at = end;
            tell(op, granules, hits);
        }
        self.blocks.clear();
        self.granules.clear();
    }
}
