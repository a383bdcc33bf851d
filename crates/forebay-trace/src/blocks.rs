//! Which cache blocks a request touches, and which granules of each.
//!
//! As the engine's [`forebay_core::geometry::Grid`], but with a granule per 4 KiB at every block size and for disks of any size (see
//! [`crate::simulate`]).

use std::ops::Range;

use forebay_core::geometry::PAGE;

use crate::record::Record;

/// A grid of cache blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    granule_shift: u32,
    /// A block has two to the power of this granules.
    per_block_shift: u32,
    /// Disk position + `shift` = grid position.
    shift: u64,
}

/// The part of a request that lies in one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
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

    /// The blocks that a request touches, in order.
    #[inline]
    pub fn pieces(&self, record: &Record) -> impl Iterator<Item = Piece> + use<> {
        let (first, last) = self.granules(record);
        let shift = self.per_block_shift;
        let (first_block, last_block) = (first >> shift, last >> shift);
        (first_block..=last_block).map(move |block| {
            let start = if block == first_block { first - (block << shift) } else { 0 };
            let end = if block == last_block { last - (block << shift) + 1 } else { 1 << shift };
            Piece { block, granules: start as u32..end as u32 }
        })
    }

    /// How many granules a request touches.
    pub fn granules_of(&self, record: &Record) -> u64 {
        let (first, last) = self.granules(record);
        last - first + 1
    }

    /// The first and the last granule of a request.
    fn granules(&self, record: &Record) -> (u64, u64) {
        let granule = |position: u64| (position + self.shift) >> self.granule_shift;
        (granule(record.offset), granule(record.end() - 1))
    }
}

/// Bytes of a granule in blocks of this size.
pub(crate) fn granule_size(block_size: u64) -> u64 {
    block_size.min(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;

    fn pieces(block_size: u64, offset: u64, start: u64, len: u32) -> Vec<(u64, Range<u32>)> {
        let record =
            Record { time_ns: 0, op: Op::Read, offset: start, len, device: 0, latency_ns: None };
        let blocks = Blocks::new(block_size, offset);
        let pieces: Vec<_> = blocks.pieces(&record).map(|p| (p.block, p.granules)).collect();
        let granules: u64 = pieces.iter().map(|(_, granules)| granules.len() as u64).sum();
        assert_eq!(granules, blocks.granules_of(&record));
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
