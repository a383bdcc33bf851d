//! How large an index is: its records, its pages, and the regions of the disk that it marks.

use super::page;

/// Pages that one write has at most. The next batch begins when the one before is durable.
pub const BATCH_PAGES: u32 = 32;
/// Bytes of a page for what has changed; the rest is the walk's.
pub const CHANGES_MAX: usize = (page::RECORDS_MAX) / 2;
/// Slots and words that the walk passes in one page at most, with or without something to say.
pub const WALK_MAX: u32 = 4096;
/// Regions of a disk at most.
pub const REGIONS_MAX: u64 = 1 << 20;
/// Smallest region.
const REGION_MIN: u64 = 64 << 10;

/// The numbers of slots, granules and regions that a ring describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingGeometry {
    /// Slots of the cache.
    pub slots: u32,
    /// Granules of a cache block.
    pub granules: u32,
    /// Regions of the disk.
    pub regions: u32,
}

impl RingGeometry {
    /// The ring of a cache of `slots` blocks of `block_size` bytes of a disk of `disk_size`.
    pub fn new(slots: u32, granules: u32, block_size: u64, disk_size: u64) -> RingGeometry {
        let regions = disk_size.div_ceil(1 << region_shift(block_size, disk_size));
        RingGeometry { slots, granules, regions: regions as u32 }
    }

    /// Words of marks.
    pub fn words(&self) -> u32 {
        self.regions.div_ceil(64)
    }

    /// Positions of the walk: slots, then words.
    pub fn positions(&self) -> u32 {
        self.slots + self.words()
    }

    /// Pages that the ring needs. They are for one walk over everything (at the least that a page
    /// gives it), and for the pages under way. Some more are for the coarseness with which the
    /// walk's past is known.
    pub fn pages(&self) -> u32 {
        let claim = page::claim_len(self.granules, self.granules) as u64;
        let (slots, words) = (u64::from(self.slots), u64::from(self.words()));
        let per_page = (page::RECORDS_MAX - CHANGES_MAX) as u64 - claim;
        let bytes = slots * claim + words * page::MARKS_LEN as u64;
        let round = bytes.div_ceil(per_page) + (slots + words).div_ceil(u64::from(WALK_MAX));
        (round + round / 256 + 4 * u64::from(BATCH_PAGES) + 64) as u32
    }
}

/// A region is 2 to this many bytes: the unit of write-intent marks.
pub fn region_shift(block_size: u64, disk_size: u64) -> u32 {
    let least = disk_size.div_ceil(REGIONS_MAX).next_power_of_two();
    least.max(block_size).max(REGION_MIN).trailing_zeros()
}
