//! The ring of a disk's cache without its engine: what a start would find in it, for an operator and for the fence.

use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::recover::{Cold, RingReader};
use forebay_core::cache_index::survey::{CachedGranule, Surveyor};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::lease::Role;
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::SegmentId;
use forebay_core::sealed::Page;
use forebay_core::write_back::format::recover::RecoveredLog;
use serde::{Deserialize, Serialize};

use super::file::{PoolFile, PoolPage};
use super::tables::Tables;

/// The index of the cache of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RingReport {
    /// The generation that wrote the index last.
    pub generation: u64,
    /// Pages of the index that count.
    pub pages: u64,
    /// Blocks in the cache, as the index says.
    pub blocks: u64,
    /// Blocks that a start keeps when nobody else changed primary storage. Of a disk that is served: after an orderly
    /// end.
    pub kept: u64,
    /// Regions of the disk that were written to, and perhaps not flushed.
    pub regions_marked: u64,
    /// The disk ended in order.
    pub closed: bool,
    /// Why the cache would start empty. Null: it would not.
    pub cold: Option<String>,
    /// The cache would start empty because the index is damaged.
    #[serde(default)]
    pub is_damaged: bool,
}

/// Pages that are read for a sample, and granules of it at most.
const SAMPLE: (u64, usize) = (1024, 64);

/// Looks at the ring of a disk; `None`: it has none. `log`: what its log holds, if that can be read.
pub(super) fn ring(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    log: Option<&RecoveredLog>,
) -> Option<RingReport> {
    let first = *tables.held(number, Role::Index).first()?;
    Some(look(file, tables, (number, first), log).unwrap_or_else(|(why, is_damaged)| RingReport {
        cold: Some(why),
        is_damaged,
        ..RingReport::default()
    }))
}

/// As [`ring`], of the ring in segments from this one on; or why it is cold, and whether that is damage.
fn look(
    file: &PoolFile,
    tables: &Tables,
    (number, first): (DiskNumber, SegmentId),
    log: Option<&RecoveredLog>,
) -> Result<RingReport, (String, bool)> {
    let (header, mut reader) = open(file, tables, (number, first))?;
    let log = log.ok_or_else(|| ("the write log cannot be used".to_owned(), false))?;
    let found = surveyor(&header, tables, number).survey(&mut reader, logged(log));
    let found = found.map_err(|why| (why.to_string(), why != Cold::Empty))?;
    Ok(RingReport {
        generation: found.generation.0,
        pages: found.pages,
        blocks: found.found,
        kept: found.kept,
        regions_marked: found.marked,
        closed: found.closed,
        cold: None,
        is_damaged: false,
    })
}

/// Some of what primary storage holds, as the ring of a disk says, beside what the log holds; nothing where the ring says
/// nothing that a start would believe.
pub(super) fn sample(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    log: &RecoveredLog,
) -> Vec<CachedGranule> {
    let sampled = || {
        let first = *tables.held(number, Role::Index).first()?;
        let (header, mut reader) = open(file, tables, (number, first)).ok()?;
        surveyor(&header, tables, number).sample(&mut reader, logged(log), SAMPLE).ok()
    };
    sampled().unwrap_or_default()
}

/// The header of a ring, and what reads its pages.
fn open<'a>(
    file: &'a PoolFile,
    tables: &Tables,
    (number, first): (DiskNumber, SegmentId),
) -> Result<(RingHeader, Direct<'a>), (String, bool)> {
    let cold = |why: &str| Err((why.to_owned(), false));
    if tables.has_void_ring(number) {
        return cold("its index was given up");
    }
    let size = tables.geometry().segment_size();
    let offset = tables.geometry().segment_offset(first);
    let mut page = PoolPage::ZERO;
    let read = file.read(offset, std::slice::from_mut(&mut page));
    read.map_err(|error| (Cold::Unreadable(error.to_string()).to_string(), true))?;
    let Some(header) = RingHeader::decode(&page.0) else {
        return cold("nothing was recorded");
    };
    let record = tables.disk(number).expect("there is such a disk");
    let room = tables.held(number, Role::Index).len() as u64 * size;
    if !describes(&header, record, room) || !is_of_lease(&header, tables, number) {
        return cold("its index is of another cache");
    }
    Ok((header, Direct { file, offset: offset + PAGE, pages: Vec::new() }))
}

/// Whether an index was begun since its place was leased. An older one was there before, and says what is in slots no more: a
/// crash may leave half of a longer place, which begins where that one does.
pub(super) fn is_of_lease(header: &RingHeader, tables: &Tables, number: DiskNumber) -> bool {
    let leased = tables.held_under(number, Role::Index);
    leased.first().is_none_or(|(_, lease)| header.generation >= lease.generation)
}

fn surveyor<'a>(header: &'a RingHeader, tables: &Tables, number: DiskNumber) -> Surveyor<'a> {
    let record = tables.disk(number).expect("there is such a disk");
    Surveyor { header, disk_size: record.size, pending: record.pending }
}

/// What the log has records of.
fn logged(log: &RecoveredLog) -> impl Iterator<Item = ByteRange> {
    log.records.iter().map(|record| record.range)
}

/// True when a header is of this disk, and of a ring of so many bytes at most.
fn describes(header: &RingHeader, record: &DiskRecord, room: u64) -> bool {
    let pages = u64::from(header.pages) + 1;
    header.disk == record.uuid
        && header.disk_size <= record.size
        && header.block_size == record.block_size
        && pages * PAGE <= room
}

/// Reads pages when they are asked for.
struct Direct<'a> {
    file: &'a PoolFile,
    offset: u64,
    pages: Vec<PoolPage>,
}

impl RingReader for Direct<'_> {
    fn load(&mut self, first: u32, count: u32, _: Option<(u32, u32)>) -> Result<(), String> {
        self.pages.resize_with(count as usize, || PoolPage::ZERO);
        let offset = self.offset + u64::from(first) * PAGE;
        self.file.read(offset, &mut self.pages).map_err(|error| error.to_string())
    }

    fn page(&self, index: u32) -> &Page {
        &self.pages[index as usize].0
    }
}
