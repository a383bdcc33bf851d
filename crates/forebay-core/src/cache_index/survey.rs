//! Shows what a restart would find in a ring, which is read and judged as by a restart, without its engine: how much, for an
//! operator, and some of what primary storage must hold then, for the fence.
//!
//! ```text
//!   ring ─► claims, newest first ─► one per block ─► less blocks in marked regions ─► less granules that the log has ─► kept
//! ```
//! Nothing is changed. Memory: 16 bytes for each claim, less than the cache takes when it is served. The simulation compares
//! it with what each restart finds. Not judged: whether primary storage is what the disk left (`flash_pool/fence.rs`).

use crate::geometry::{BLOCK_MAX, BLOCK_MIN, ByteRange, GranuleMask, Grid};
use crate::ids::{BlockIndex, Generation, SlotId};

use super::header::RingHeader;
use super::marks::Marks;
use super::page::Claim;
use super::recover::{Claims, Cold, RecoverRing, RecoveredRing, RingReader};
use super::{RingGeometry, region_shift};

/// Slots at most: the highest two bits of a record's first word are its kind.
const SLOTS_MAX: u32 = (1 << 30) - 2;

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// The run that wrote the last page.
    pub generation: Generation,
    /// Pages that count: from the tail to the last.
    pub pages: u64,
    /// Blocks that it shows.
    pub found: u64,
    /// Blocks that a restart would keep.
    pub kept: u64,
    /// Regions of the disk that are marked: written to, and perhaps not flushed.
    pub marked: u64,
    /// The run ended in order.
    pub closed: bool,
}

/// The numbers of the ring with this header; `None` when they cannot be.
pub fn geometry(header: &RingHeader) -> Option<RingGeometry> {
    let RingHeader { disk_size, block_size, slots, pages, .. } = *header;
    let block = u64::from(block_size);
    if !block.is_power_of_two() || !(BLOCK_MIN..=BLOCK_MAX).contains(&block) {
        return None;
    }
    // Wherever the grid lies.
    let blocks = disk_size / block + 2;
    if disk_size == 0 || blocks >= u32::MAX.into() || !(1..=SLOTS_MAX).contains(&slots) {
        return None;
    }
    let granules = Grid::new(disk_size, block, 0).granules_per_block();
    let geometry = RingGeometry::new(slots, granules, block, disk_size);
    (geometry.pages() == pages).then_some(geometry)
}

/// The ring with this header, of a disk of `disk_size` bytes, which may have grown since the ring was begun.
pub struct Surveyor<'a> {
    /// Where it says what it is of.
    pub header: &'a RingHeader,
    /// Bytes.
    pub disk_size: u64,
    /// No run of the disk after this one wrote.
    pub pending: Generation,
}

/// A granule of the cache, as the ring has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedGranule {
    /// On the disk.
    pub range: ByteRange,
    /// CRC32C of its bytes.
    pub checksum: u32,
}

/// What a ring shows, without what is in marked regions.
struct Shown {
    ring: RecoveredRing,
    grid: Grid,
    /// In ascending order.
    blocks: Vec<ShownBlock>,
    found: u64,
    marked: u64,
}

/// A block that a ring shows.
struct ShownBlock {
    block: BlockIndex,
    valid: GranuleMask,
    /// Of the first valid granule.
    checksum: u32,
}

impl Surveyor<'_> {
    /// What a restart would find. `logged`: what the write log has records of that may not be on primary storage.
    ///
    /// # Errors
    /// A restart would not believe it.
    pub fn survey(
        &self,
        reader: &mut dyn RingReader,
        logged: impl Iterator<Item = ByteRange>,
    ) -> Result<Survey, Cold> {
        let mut shown = self.read(reader, u64::MAX)?;
        for range in logged {
            shown.each_in(range, |shown, touched| shown.valid = shown.valid.without(touched));
        }
        Ok(Survey {
            generation: shown.ring.generation,
            pages: shown.ring.last - shown.ring.tail + 1,
            found: shown.found,
            kept: shown.blocks.iter().filter(|shown| !shown.valid.is_empty()).count() as u64,
            marked: shown.marked,
            closed: shown.ring.closed,
        })
    }

    /// At most `count` whole granules, in ascending order, that a restart would take from the cache, so that primary storage
    /// holds the same: from all over those that the newest `pages_max` pages tell of.
    ///
    /// # Errors
    /// A restart would not believe the ring.
    pub fn sample(
        &self,
        reader: &mut dyn RingReader,
        logged: impl Iterator<Item = ByteRange>,
        (pages_max, count): (u64, usize),
    ) -> Result<Vec<CachedGranule>, Cold> {
        let mut shown = self.read(reader, pages_max)?;
        let grid = shown.grid;
        for range in logged {
            shown.each_in(range, |shown, touched| {
                if shown.valid.first_run().is_some_and(|(first, _)| touched.has(first)) {
                    shown.valid = GranuleMask::NONE;
                }
            });
        }
        let granules = shown.blocks.iter().filter_map(|shown| {
            let (first, _) = shown.valid.first_run()?;
            let range = grid.granule_range(shown.block, first, first + 1);
            let is_whole = range.len() == grid.granule_size();
            is_whole.then_some(CachedGranule { range, checksum: shown.checksum })
        });
        let granules: Vec<CachedGranule> = granules.collect();
        let one_in = granules.len().div_ceil(count).max(1);
        Ok(granules.into_iter().step_by(one_in).collect())
    }

    /// Reads the newest `pages_max` pages.
    fn read(&self, reader: &mut dyn RingReader, pages_max: u64) -> Result<Shown, Cold> {
        let Surveyor { header, disk_size, pending } = *self;
        let geometry = geometry(header).ok_or(Cold::Header)?;
        let ask = RecoverRing { header, geometry, pending, pages_max };
        let mut claims = Surveying { header, disk_size, grid: None, blocks: Vec::new() };
        let ring = ask.recover(reader, &mut claims)?;
        let Surveying { grid, mut blocks, .. } = claims;
        let Some(grid) = grid else { return Err(Cold::Header) };
        let found = blocks.len() as u64;
        // Of two slots with a block the one counts that was recorded later, which came first.
        blocks.sort_by_key(|shown| shown.block);
        blocks.dedup_by_key(|shown| shown.block);
        let shift = region_shift(header.block_size.into(), header.disk_size);
        let mut marks = Marks::new(geometry.regions, shift);
        marks.restore(&ring.marks);
        blocks.retain(|shown| !marks.touches(grid.range_of(shown.block)));
        let marked = marks.count().min(geometry.regions.into());
        Ok(Shown { ring, grid, blocks, found, marked })
    }
}

impl Shown {
    /// Visits the blocks in `range`, with the granules that it touches.
    fn each_in(&mut self, range: ByteRange, visit: impl Fn(&mut ShownBlock, GranuleMask)) {
        let grid = &self.grid;
        let range = range.intersect(ByteRange::new(0, grid.disk_size()));
        if range.is_empty() {
            return;
        }
        let (first, last) = (grid.block_of(range.start), grid.block_of(range.end - 1));
        let first = self.blocks.partition_point(|shown| shown.block < first);
        let end = self.blocks.partition_point(|shown| shown.block <= last);
        for shown in &mut self.blocks[first..end] {
            visit(shown, grid.touched(shown.block, range));
        }
    }
}

struct Surveying<'a> {
    header: &'a RingHeader,
    disk_size: u64,
    grid: Option<Grid>,
    blocks: Vec<ShownBlock>,
}

impl Claims for Surveying<'_> {
    fn on_grid(&mut self, offset: u64) -> bool {
        let block = u64::from(self.header.block_size);
        let fits = offset < block && offset.is_multiple_of(crate::geometry::SECTOR);
        if fits {
            self.grid = Some(Grid::new(self.disk_size, block, offset));
        }
        fits
    }

    fn prefetch(&mut self, _: &[(SlotId, BlockIndex)]) {}

    fn claim(&mut self, claim: &Claim<'_>) -> bool {
        let Some(grid) = &self.grid else { return false };
        let is_there = claim.block <= grid.block_of(self.disk_size - 1);
        if is_there {
            let checksum = claim.checksums().next().map_or(0, |(_, checksum)| checksum);
            self.blocks.push(ShownBlock { block: claim.block, valid: claim.valid, checksum });
        }
        is_there
    }
}
