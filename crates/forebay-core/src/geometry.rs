//! Geometry: byte ranges of a disk, the grid of cache blocks laid over it, and granule masks.
//!
//! A disk of `size` bytes is covered by cache blocks of one power-of-two size. A *grid offset* (0
//! ≤ offset < block size) may move the grid, so that a guest whose partition starts at sector 63
//! does not straddle. Block boundaries lie at `offset + k × block`. With an offset other than 0
//! the first block is short at its low end; the last block may be short at its high end.
//! Positions on the grid are disk positions plus a constant *shift* = (block − offset) mod block.
//!
//! A block is divided into at most 64 granules of `max(4 KiB, block / 64)`; bit *i* of a
//! [`GranuleMask`] stands for granule *i*. A granule that lies partly outside the disk counts as
//! covered when its part inside is.

use crate::ids::BlockIndex;

/// The smallest unit that any frontend addresses.
pub const SECTOR: u64 = 512;
/// The smallest granule, and the page that memory is counted in.
pub const PAGE: u64 = 4096;
/// Smallest cache block.
pub const BLOCK_MIN: u64 = 4 << 10;
/// Largest cache block.
pub const BLOCK_MAX: u64 = 1 << 20;
/// Longest request that the engine takes.
pub const REQUEST_MAX: u64 = 32 << 20;
/// Longest compare-and-write: what SCSI's can name in sectors is 255 of them.
pub const COMPARE_MAX: u64 = 64 << 10;

/// A half-open range of bytes of a disk: `start..end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl ByteRange {
    /// `len` bytes from `start`.
    pub const fn at(start: u64, len: u64) -> ByteRange {
        ByteRange { start, end: start + len }
    }

    /// `start..end`; panics when it would run backwards.
    pub const fn new(start: u64, end: u64) -> ByteRange {
        assert!(start <= end);
        ByteRange { start, end }
    }

    /// Length in bytes.
    pub const fn len(self) -> u64 {
        self.end - self.start
    }

    /// True when it holds no byte.
    pub const fn is_empty(self) -> bool {
        self.start >= self.end
    }

    /// True when the two share a byte.
    pub const fn overlaps(self, other: ByteRange) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// True when every byte of `other` lies in this range.
    pub const fn contains(self, other: ByteRange) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes that both hold, empty when there are none.
    pub fn intersect(self, other: ByteRange) -> ByteRange {
        let start = self.start.max(other.start);
        ByteRange { start, end: self.end.min(other.end).max(start) }
    }

    /// Grown outwards to multiples of `unit` (a power of two).
    pub const fn align_out(self, unit: u64) -> ByteRange {
        debug_assert!(unit.is_power_of_two());
        ByteRange { start: self.start & !(unit - 1), end: (self.end + unit - 1) & !(unit - 1) }
    }

    /// True when both ends are multiples of `unit` (a power of two).
    pub const fn is_aligned(self, unit: u64) -> bool {
        (self.start | self.end) & (unit - 1) == 0
    }
}

/// Which granules of one cache block something is said of; bit *i* is granule *i*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GranuleMask(pub u64);

impl GranuleMask {
    /// No granule.
    pub const NONE: GranuleMask = GranuleMask(0);
    /// Every granule.
    pub const ALL: GranuleMask = GranuleMask(u64::MAX);

    /// Granules `first..end`.
    pub const fn span(first: u32, end: u32) -> GranuleMask {
        assert!(first <= end && end <= 64);
        let below_end = if end == 64 { u64::MAX } else { (1 << end) - 1 };
        let below_first = if first == 64 { u64::MAX } else { (1 << first) - 1 };
        GranuleMask(below_end & !below_first)
    }

    /// Granules `first..=last`; `last` is below 64 and not below `first`.
    pub const fn run(first: u32, last: u32) -> GranuleMask {
        GranuleMask((u64::MAX >> (63 - (last - first))) << first)
    }

    /// True when no granule is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True when it has every granule of `other`.
    pub const fn contains(self, other: GranuleMask) -> bool {
        self.0 & other.0 == other.0
    }

    /// Granules in either.
    pub const fn union(self, other: GranuleMask) -> GranuleMask {
        GranuleMask(self.0 | other.0)
    }

    /// Granules in both.
    pub const fn intersect(self, other: GranuleMask) -> GranuleMask {
        GranuleMask(self.0 & other.0)
    }

    /// Granules in this one but not in `other`.
    pub const fn without(self, other: GranuleMask) -> GranuleMask {
        GranuleMask(self.0 & !other.0)
    }

    /// How many granules.
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// True when granule `index` is in it.
    pub const fn has(self, index: u32) -> bool {
        self.0 >> index & 1 == 1
    }

    /// The lowest run of neighbouring granules as `first..end`, `None` when empty.
    pub fn first_run(self) -> Option<(u32, u32)> {
        if self.is_empty() {
            return None;
        }
        let first = self.0.trailing_zeros();
        let run = (!(self.0 >> first)).trailing_zeros().min(64 - first);
        Some((first, first + run))
    }

    /// The runs of neighbouring granules as `first..end`, lowest first.
    pub fn runs(self) -> impl Iterator<Item = (u32, u32)> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let (first, end) = rest.first_run()?;
            rest = rest.without(GranuleMask::span(first, end));
            Some((first, end))
        })
    }
}

/// The part of a range that lies in one cache block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The block.
    pub block: BlockIndex,
    /// Offset of the part from the start of the block.
    pub offset: u64,
    /// Length of the part in bytes.
    pub len: u64,
    /// Granules that it touches, wholly or in part.
    pub touched: GranuleMask,
}

/// The grid of cache blocks over one disk.
///
/// Every hit asks it several times, so its shifts, which [`Grid::new`] keeps below 21, are not checked for overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    size: u64,
    block_shift: u32,
    granule_shift: u32,
    /// Disk position + `shift` = grid position.
    shift: u64,
}

impl Grid {
    /// A grid over `size` bytes with blocks of `block` bytes whose boundaries lie at
    /// `offset + k × block`.
    ///
    /// Panics unless `block` is a power of two in [`BLOCK_MIN`]..=[`BLOCK_MAX`], `offset` is a
    /// multiple of [`SECTOR`] below `block`, and the disk has fewer than 2³² blocks.
    pub fn new(size: u64, block: u64, offset: u64) -> Grid {
        assert!(block.is_power_of_two() && (BLOCK_MIN..=BLOCK_MAX).contains(&block));
        assert!(offset < block && offset.is_multiple_of(SECTOR));
        let granule = (block / 64).max(PAGE);
        let grid = Grid {
            size,
            block_shift: block.trailing_zeros(),
            granule_shift: granule.trailing_zeros(),
            shift: (block - offset) % block,
        };
        assert!((size + grid.shift) >> grid.block_shift < u64::from(u32::MAX));
        grid
    }

    /// Size of the disk in bytes.
    pub fn disk_size(&self) -> u64 {
        self.size
    }

    /// Size of a cache block in bytes.
    pub fn block_size(&self) -> u64 {
        1u64.wrapping_shl(self.block_shift)
    }

    /// Size of a granule in bytes.
    pub fn granule_size(&self) -> u64 {
        1 << self.granule_shift
    }

    /// Granules in a block, 1 to 64.
    pub fn granules_per_block(&self) -> u32 {
        1 << (self.block_shift - self.granule_shift)
    }

    /// Byte offset of the grid on the disk.
    pub fn offset(&self) -> u64 {
        (self.block_size() - self.shift) & (self.block_size() - 1)
    }

    /// The block that holds the byte at `position`.
    pub fn block_of(&self, position: u64) -> BlockIndex {
        BlockIndex((position + self.shift).wrapping_shr(self.block_shift) as u32)
    }

    /// Offset of the byte at `position` from the start of its block.
    pub fn offset_in_block(&self, position: u64) -> u64 {
        (position + self.shift) & (self.block_size() - 1)
    }

    /// The part of `start..end` (not empty, on the disk) that lies in the block of `start`.
    #[inline]
    pub fn piece(&self, start: u64, end: u64) -> Piece {
        debug_assert!(start < end);
        let offset = self.offset_in_block(start);
        let len = (end - start).min(self.block_size() - offset);
        let first = offset.wrapping_shr(self.granule_shift);
        let last = (offset + (len - 1)).wrapping_shr(self.granule_shift);
        let touched = GranuleMask::run(first as u32, last as u32);
        Piece { block: self.block_of(start), offset, len, touched }
    }

    /// The part of `block` that lies on the disk.
    pub fn range_of(&self, block: BlockIndex) -> ByteRange {
        let start = u64::from(block.0) << self.block_shift;
        let end = start + self.block_size();
        ByteRange::new(start.saturating_sub(self.shift), (end - self.shift).min(self.size))
    }

    /// The part of granules `first..end` of `block` that lies on the disk.
    pub fn granule_range(&self, block: BlockIndex, first: u32, end: u32) -> ByteRange {
        let base = u64::from(block.0) << self.block_shift;
        let start = base + (u64::from(first) << self.granule_shift);
        let end = base + (u64::from(end) << self.granule_shift);
        let start = start.saturating_sub(self.shift).min(self.size);
        ByteRange::new(start, end.saturating_sub(self.shift).clamp(start, self.size))
    }

    /// Granules of `block` that `range` touches, wholly or in part.
    pub fn touched(&self, block: BlockIndex, range: ByteRange) -> GranuleMask {
        let part = range.intersect(self.range_of(block));
        if part.is_empty() {
            return GranuleMask::NONE;
        }
        let first = self.offset_in_block(part.start) >> self.granule_shift;
        let last = self.offset_in_block(part.end - 1) >> self.granule_shift;
        GranuleMask::span(first as u32, last as u32 + 1)
    }

    /// Granules of `block` whose whole part on the disk lies in `range`.
    pub fn covered(&self, block: BlockIndex, range: ByteRange) -> GranuleMask {
        let touched = self.touched(block, range);
        let Some((first, end)) = touched.first_run() else { return touched };
        // Only the two ends of a contiguous range can be covered in part.
        let mut covered = touched;
        for edge in [first, end - 1] {
            if !range.contains(self.granule_range(block, edge, edge + 1)) {
                covered = covered.without(GranuleMask::span(edge, edge + 1));
            }
        }
        covered
    }

    /// `range` grown outwards to granule boundaries of the grid, within the disk.
    pub fn align_to_granules(&self, range: ByteRange) -> ByteRange {
        let shifted = ByteRange::new(range.start + self.shift, range.end + self.shift)
            .align_out(self.granule_size());
        ByteRange::new(
            shifted.start.saturating_sub(self.shift),
            (shifted.end - self.shift).min(self.size.max(range.end)),
        )
    }

    /// Blocks that `range` touches, in order.
    pub fn blocks(&self, range: ByteRange) -> impl Iterator<Item = BlockIndex> + use<> {
        let (first, end) = if range.is_empty() {
            (0, 0)
        } else {
            (self.block_of(range.start).0, self.block_of(range.end - 1).0 + 1)
        };
        (first..end).map(BlockIndex)
    }
}

#[cfg(test)]
mod tests;
