//! Which blocks a disk's requests use, for a miss-ratio curve beside the disk.
//!
//! Blocks are cut as by `forebay trace mrc`, in pieces of 4 KiB whatever the granule of the cache
//! is. Every read and write is a use, also one that bypasses the cache. So the curve is that of a
//! recording of the same requests. It is kept in every mode, and needs no cache. A cache's blocks
//! are on a grid that moves once at most; the curve then forgets its blocks, as the cache does,
//! and keeps its counts.

use crate::characteristics::Kind;
use crate::geometry::ByteRange;
use crate::mrc::{Blocks, Piece, Shards, Snapshot, granule_size};

/// See the module. At most 1 MiB.
#[derive(Debug)]
pub struct Uses {
    block_size: u64,
    grid_offset: u64,
    grid: Blocks,
    shards: Shards,
}

impl Uses {
    /// Of blocks of `block_size`, with a boundary at byte `grid_offset`.
    pub fn new(block_size: u64, grid_offset: u64) -> Uses {
        let granules = (block_size / granule_size(block_size)) as u32;
        let grid = Blocks::new(block_size, grid_offset % block_size);
        Uses { block_size, grid_offset, grid, shards: Shards::for_disk(granules) }
    }

    #[inline]
    pub(super) fn add(&mut self, kind: Kind, range: ByteRange) {
        // Most requests use one block, and most blocks are not sampled.
        let only = self.grid.only_block(range);
        let is_counted = only
            .is_some_and(|(block, granules)| self.shards.count_unsampled(kind, block, granules));
        if !is_counted {
            self.add_pieces(kind, range);
        }
    }

    /// The rest of `add`, apart for the registers that it saves.
    #[inline(never)]
    fn add_pieces(&mut self, kind: Kind, range: ByteRange) {
        for Piece { block, granules } in self.grid.pieces(range) {
            self.shards.on_use(kind, block, granules);
        }
    }

    pub(super) fn move_grid(&mut self, grid_offset: u64) {
        self.grid = Blocks::new(self.block_size, grid_offset % self.block_size);
        self.grid_offset = grid_offset;
        self.shards = self.shards.emptied();
    }

    /// Bytes of a block.
    pub fn block_size(&self) -> u64 {
        self.block_size
    }

    /// Where the grid lies.
    pub fn grid_offset(&self) -> u64 {
        self.grid_offset
    }

    /// What is known by now.
    pub fn snapshot(&self) -> Snapshot {
        self.shards.snapshot()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_that_moves_keeps_the_counts_and_forgets_the_blocks() {
        const BLOCKS: u64 = 1024;
        let mut uses = Uses::new(4096, 0);
        let read_all_twice = |uses: &mut Uses| {
            for at in (0..2 * BLOCKS).map(|n| n % BLOCKS) {
                uses.add(Kind::Read, ByteRange::at(3584 + at * 4096, 4096));
            }
            let snapshot = uses.snapshot();
            (snapshot.blocks, snapshot.reads.uses(), snapshot.reads.hits(2 * BLOCKS))
        };
        let near = |of: f64, to: u64| (of - to as f64).abs() < 16.0;
        let (blocks, pieces, hits) = read_all_twice(&mut uses);
        // Each request has pieces of two blocks, of which the second is used again by the next.
        assert!(near(blocks, BLOCKS + 1) && near(hits, 3 * BLOCKS - 1), "{blocks} {hits}");
        assert_eq!(pieces, 4 * BLOCKS);
        uses.move_grid(3584);
        let (blocks, pieces, hits) = read_all_twice(&mut uses);
        assert!(near(blocks, BLOCKS) && near(hits, 4 * BLOCKS - 1), "{blocks} {hits}");
        assert_eq!(pieces, 6 * BLOCKS);
        assert_eq!(uses.grid_offset(), 3584);
    }
}
