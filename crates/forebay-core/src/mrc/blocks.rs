//! Which cache blocks a request touches, and which granules of each.
//!
//! As the engine's [`crate::geometry::Grid`], but with a granule per 4 KiB at every block size and for disks of any size.

use std::ops::Range;

use crate::geometry::{ByteRange, PAGE};

/// A grid of cache blocks.
#[derive(Clone, Copy, Debug)]
pub struct Blocks {
    granule_shift: u32,
    /// A block has two to the power of this granules.
    per_block_shift: u32,
    /// Disk position + `shift` = grid position.
    shift: u64,
}

/// The part of a request that lies in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the block on its disk.
    pub block: u64,
    /// Granules of it that are touched, wholly or in part.
    pub granules: Range<u32>,
}

impl Blocks {
    /// Blocks of `block_size`, a power of two, with a boundary at byte `offset`, which is below that.
    pub fn new(block_size: u64, offset: u64) -> Blocks {
        let granule_shift = granule_size(block_size).trailing_zeros();
        Blocks {
            granule_shift,
            per_block_shift: block_size.trailing_zeros() - granule_shift,
            shift: (block_size - offset) % block_size,
        }
    }

    /// The blocks that a request for `range`, which is not empty, touches, in order.
    #[inline]
    pub fn pieces(&self, range: ByteRange) -> impl Iterator<Item = Piece> + use<> {
        let (first, last) = self.granules(range);
        let shift = self.per_block_shift;
        let (first_block, last_block) = (first >> shift, last >> shift);
        (first_block..=last_block).map(move |block| {
            let start = if block == first_block { first - (block << shift) } else { 0 };
            let end = if block == last_block { last - (block << shift) + 1 } else { 1 << shift };
            Piece { block, granules: start as u32..end as u32 }
        })
    }

    /// The block of a request for `range`, which is not empty, and how many of its granules it touches; `None`: it touches
    /// several blocks.
    #[inline]
    pub fn only_block(&self, range: ByteRange) -> Option<(u64, u32)> {
        let (first, last) = self.granules(range);
        let block_of = |granule: u64| granule.wrapping_shr(self.per_block_shift);
        let block = block_of(first);
        (block_of(last) == block).then_some((block, (last - first + 1) as u32))
    }

    /// How many granules a request touches.
    pub fn granules_of(&self, range: ByteRange) -> u64 {
        let (first, last) = self.granules(range);
        last - first + 1
    }

    /// The first and the last granule of a request.
    fn granules(&self, range: ByteRange) -> (u64, u64) {
        // Both shifts are below 64, so nothing wraps: that spares a check for each request.
        let granule = |position: u64| (position + self.shift).wrapping_shr(self.granule_shift);
        (granule(range.start), granule(range.end - 1))
    }
}

/// Bytes of a granule in blocks of this size.
pub fn granule_size(block_size: u64) -> u64 {
    block_size.min(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(block_size: u64, offset: u64, start: u64, len: u64) -> Vec<(u64, Range<u32>)> {
        let range = ByteRange::at(start, len);
        let blocks = Blocks::new(block_size, offset);
        let pieces: Vec<_> = blocks.pieces(range).map(|p| (p.block, p.granules)).collect();
        let granules: u64 = pieces.iter().map(|(_, granules)| granules.len() as u64).sum();
        assert_eq!(granules, blocks.granules_of(range));
        let only = match &pieces[..] {
            [(block, granules)] => Some((*block, granules.len() as u32)),
            _ => None,
        };
        assert_eq!(blocks.only_block(range), only);
        pieces
    }

    #[test]
    fn a_request_is_cut_at_the_blocks_of_its_grid() {
        assert_eq!(pieces(512, 0, 1024, 1), [(2, 0..1)]);
        assert_eq!(pieces(4096, 0, 3584, 4096), [(0, 0..1), (1, 0..1)]);
        assert_eq!(pieces(4096, 3584, 3584, 4096), [(1, 0..1)]);
        assert_eq!(pieces(16384, 0, 8192, 32768), [(0, 2..4), (1, 0..4), (2, 0..2)]);
        assert_eq!(pieces(1 << 20, 0, (1 << 20) - 1, 2), [(0, 255..256), (1, 0..1)]);
        assert_eq!(pieces(8192, 4096, 0, 8192), [(0, 1..2), (1, 0..1)]);
    }
}
