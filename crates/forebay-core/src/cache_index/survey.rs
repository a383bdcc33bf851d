//! Shows an operator what a restart would find in a ring. The ring is read and judged as by a
//! restart, without its engine.
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
use super::recover::{Claims, Cold, RecoverRing, RingReader};
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

/// Looks at the ring with this header, of a disk of `disk_size` bytes, which may have grown since the ring was begun.
/// `pending`: no run of the disk after this one wrote. `logged`: what the write log has records of that may not be on
/// primary storage.
///
/// # Errors
/// A restart would not believe it.
pub fn survey(
    header: &RingHeader,
    disk_size: u64,
    pending: Generation,
    reader: &mut dyn RingReader,
    logged: impl Iterator<Item = ByteRange>,
) -> Result<Survey, Cold> {
    let geometry = geometry(header).ok_or(Cold::Header)?;
    let ask = RecoverRing { header, geometry, pending };
    let mut claims = Surveying { header, disk_size, grid: None, blocks: Vec::new() };
    let ring = ask.recover(reader, &mut claims)?;
    let Surveying { grid, mut blocks, .. } = claims;
    let Some(grid) = grid else { return Err(Cold::Header) };
    let found = blocks.len() as u64;
    // Of two slots with a block the one counts that was recorded later, which came first.
    blocks.sort_by_key(|(block, _)| *block);
    blocks.dedup_by_key(|(block, _)| *block);
    let shift = region_shift(header.block_size.into(), header.disk_size);
    let mut marks = Marks::new(geometry.regions, shift);
    marks.restore(&ring.marks);
    blocks.retain(|(block, _)| !marks.touches(grid.range_of(*block)));
    for range in logged {
        let range = range.intersect(ByteRange::new(0, disk_size));
        if range.is_empty() {
            continue;
        }
        let (first, last) = (grid.block_of(range.start), grid.block_of(range.end - 1));
        let first = blocks.partition_point(|(block, _)| *block < first);
        let end = blocks.partition_point(|(block, _)| *block <= last);
        for (block, valid) in &mut blocks[first..end] {
            *valid = valid.without(grid.touched(*block, range));
        }
    }
    Ok(Survey {
        generation: ring.generation,
        pages: ring.last - ring.tail + 1,
        found,
        kept: blocks.iter().filter(|(_, valid)| !valid.is_empty()).count() as u64,
        marked: marks.count().min(geometry.regions.into()),
        closed: ring.closed,
    })
}

struct Surveying<'a> {
    header: &'a RingHeader,
    disk_size: u64,
    grid: Option<Grid>,
    blocks: Vec<(BlockIndex, GranuleMask)>,
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
            self.blocks.push((claim.block, claim.valid));
        }
        is_there
    }
}
