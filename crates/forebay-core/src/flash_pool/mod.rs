//! The flash pool: a file or device cut in segments, and the tables that say who has them. No I/O.
//!
//! ```text
//!   segments 0 … m−1 (metadata)                                     segments m …
//!   +------------+------------+--------------+--------------+------+---------+---------+---
//!   | superblock | superblock | page pairs,  | page pairs,  | zero | leased to disks for
//!   | copy 0     | copy 1     | copies 0     | copies 1     |      | log, cache or index
//!   +------------+------------+--------------+--------------+------+---------+---------+---
//!     page 0       page 128     page 256 …     after copies 0
//! ```
//! [`superblock`]s are written once, when the pool is made, the first one last. Every other page of
//! metadata exists twice, is written alternately and carries a version ([`pair`]), so that a torn write
//! leaves what was there before. The table of pairs holds a [`disk`] record, a [`progress`] page and a page of
//! [`reservations`] per disk and the [`lease`] of every segment; [`PoolGeometry`] says where.
//!
//! The contents of segments of the roles *cache* and *index* (the index snapshot, its journal,
//! the write-intent map) are no part of this format yet. A reader that does not know them gives
//! the segments back.

pub mod disk;
pub mod fence;
pub mod lease;
pub mod pair;
pub mod progress;
pub mod reservations;
pub mod sample;
pub mod sidecar;
pub mod superblock;

use crate::geometry::PAGE;
use crate::ids::SegmentId;

/// Disks that a pool can hold at most; its superblock says for how many there is room.
pub const DISKS_MAX: u16 = 1024;
/// Disks that a new pool can hold at least.
const DISKS_MIN: u64 = 64;
/// Bytes of a new pool for each disk that it can hold.
const BYTES_PER_DISK: u64 = 64 << 20;
/// Smallest segment.
pub const SEGMENT_MIN: u64 = 64 << 10;
/// Segment where nothing else is asked for.
pub const SEGMENT_DEFAULT: u64 = 16 << 20;
/// Largest segment.
pub const SEGMENT_MAX: u64 = 1 << 30;
/// Segments that a pool can have.
pub const SEGMENTS_MAX: u32 = 1 << 20;
/// Segments of which a disk of a new pool has that many, where its size allows, and the smallest that are then chosen.
const SEGMENTS_WANTED: u64 = 256;
const SEGMENT_CHOSEN_MIN: u64 = 1 << 20;
/// Offsets of the two superblocks, in bytes.
pub const SUPERBLOCKS: [u64; 2] = [0, 512 << 10];
/// Page where the table of page pairs begins.
const TABLE: u64 = 256;

/// Number of a disk in its pool, from 0: which record, which progress page, the owner in a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskNumber(pub u16);

/// A page pair in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PairId {
    /// The record of a disk.
    Disk(DiskNumber),
    /// The progress of a disk.
    Progress(DiskNumber),
    /// The reservations of a disk that outlive a restart.
    Reservations(DiskNumber),
    /// Leases of the segments from `168 × n` on.
    Leases(u32),
}

/// Where everything is in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGeometry {
    segment_size: u64,
    segments: u32,
    disks: u16,
}

/// A pool cannot be cut like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GeometryError {
    /// Not a size that a segment can have.
    #[error("a segment of {0} bytes: it must be a power of two from 64 KiB to 1 GiB")]
    SegmentSize(u64),
    /// A number of disks that no pool has room for.
    #[error("room for {0} disks: a pool can have it for 1 to {DISKS_MAX}")]
    Disks(u32),
    /// More segments than a pool can have.
    #[error("{0} segments, at most {SEGMENTS_MAX} are possible: choose larger segments")]
    TooMany(u64),
    /// Metadata would take it all.
    #[error("room for {has} segments, at least {needs} are needed")]
    TooSmall {
        /// Whole segments in the pool.
        has: u64,
        /// Segments for the metadata, and one.
        needs: u64,
    },
}

/// The segment of a new pool for `bytes` of data of so many disks.
pub fn segment_size(bytes: u64, disks: usize) -> u64 {
    let of_a_disk = bytes / (disks as u64).max(1);
    let mut size = (of_a_disk / SEGMENTS_WANTED).max(1).next_power_of_two();
    size = size.clamp(SEGMENT_CHOSEN_MIN, SEGMENT_DEFAULT);
    while bytes / size > u64::from(SEGMENTS_MAX) / 2 {
        size *= 2;
    }
    size
}

/// Disks that a new pool for `bytes` of data is to hold, when it is made for so many.
pub fn disks(bytes: u64, wanted: usize) -> u16 {
    // As many again may come.
    let wanted = (bytes / BYTES_PER_DISK).max(2 * wanted as u64).max(DISKS_MIN);
    wanted.next_power_of_two().min(DISKS_MAX.into()) as u16
}

impl PoolGeometry {
    /// The geometry of `size` bytes in segments of `segment_size`, with room for `disks` disks; what is left at the end is not
    /// used.
    ///
    /// # Errors
    /// The sizes are outside the limits of the format.
    pub fn new(segment_size: u64, size: u64, disks: u32) -> Result<PoolGeometry, GeometryError> {
        let Ok(disks @ 1..=DISKS_MAX) = u16::try_from(disks) else {
            return Err(GeometryError::Disks(disks));
        };
        if !segment_size.is_power_of_two() || !(SEGMENT_MIN..=SEGMENT_MAX).contains(&segment_size) {
            return Err(GeometryError::SegmentSize(segment_size));
        }
        let count = size / segment_size;
        let Ok(segments @ ..=SEGMENTS_MAX) = u32::try_from(count) else {
            return Err(GeometryError::TooMany(count));
        };
        let geometry = PoolGeometry { segment_size, segments, disks };
        let needs = u64::from(geometry.metadata_segments()) + 1;
        if count < needs {
            return Err(GeometryError::TooSmall { has: count, needs });
        }
        Ok(geometry)
    }

    /// Bytes of a segment.
    pub fn segment_size(&self) -> u64 {
        self.segment_size
    }

    /// Pages of a segment.
    pub fn segment_pages(&self) -> u32 {
        (self.segment_size / PAGE) as u32
    }

    /// Segments, those of the metadata included.
    pub fn segments(&self) -> u32 {
        self.segments
    }

    /// The numbers of the disks that there is room for.
    pub fn disks(&self) -> impl Iterator<Item = DiskNumber> + use<> {
        (0..self.disks).map(DiskNumber)
    }

    /// True when there is room for a disk of this number.
    pub fn has(&self, disk: DiskNumber) -> bool {
        disk.0 < self.disks
    }

    /// Segments at the start that hold the metadata.
    pub fn metadata_segments(&self) -> u32 {
        let pages = TABLE + 2 * u64::from(self.pairs());
        (pages * PAGE).div_ceil(self.segment_size) as u32
    }

    /// Pages of leases.
    pub fn lease_pages(&self) -> u32 {
        self.segments.div_ceil(lease::PER_PAGE)
    }

    /// Page pairs in the table.
    pub fn pairs(&self) -> u32 {
        self.place(PairId::Leases(self.lease_pages()))
    }

    /// The place of a page pair in the table.
    pub fn place(&self, pair: PairId) -> u32 {
        let disks = u32::from(self.disks);
        match pair {
            PairId::Disk(DiskNumber(number)) => u32::from(number),
            PairId::Progress(DiskNumber(number)) => disks + u32::from(number),
            PairId::Reservations(DiskNumber(number)) => 2 * disks + u32::from(number),
            PairId::Leases(number) => 3 * disks + number,
        }
    }

    /// Offset of one copy (0 or 1) of a page pair, in bytes.
    ///
    /// # Panics
    /// When there is no such pair or copy.
    pub fn pair_offset(&self, pair: PairId, copy: u32) -> u64 {
        let place = self.place(pair);
        assert!(place < self.pairs() && copy < 2, "{pair:?} copy {copy}");
        (TABLE + u64::from(copy * self.pairs() + place)) * PAGE
    }

    /// Offset of a segment, in bytes.
    ///
    /// # Panics
    /// When there is no such segment.
    pub fn segment_offset(&self, segment: SegmentId) -> u64 {
        assert!(segment.0 < self.segments, "{segment:?}");
        u64::from(segment.0) * self.segment_size
    }

    /// The page pair that holds the lease of `segment`.
    pub fn lease_pair(&self, segment: SegmentId) -> PairId {
        PairId::Leases(segment.0 / lease::PER_PAGE)
    }
}

#[cfg(test)]
mod tests;
