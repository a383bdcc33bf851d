//! The ring of a disk's cache, for an operator: what a start would find in it.

use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::recover::{Cold, RingReader};
use forebay_core::cache_index::survey;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::lease::Role;
use forebay_core::geometry::{ByteRange, PAGE};
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

/// Looks at the ring of a disk; `None`: it has none. `log`: what its log holds, if that can be read.
pub(super) fn ring(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    log: Option<&RecoveredLog>,
) -> Option<RingReport> {
    let segments = tables.held(number, Role::Index);
    let first = *segments.first()?;
    let cold = |why: &str| RingReport { cold: Some(why.to_owned()), ..RingReport::default() };
    if tables.has_void_ring(number) {
        return Some(cold("its index was given up"));
    }
    let Some(log) = log else {
        return Some(cold("the write log cannot be used"));
    };
    let size = tables.geometry().segment_size();
    let offset = tables.geometry().segment_offset(first);
    let mut page = PoolPage::ZERO;
    if let Err(error) = file.read(offset, std::slice::from_mut(&mut page)) {
        let why = Cold::Unreadable(error.to_string()).to_string();
        return Some(RingReport { is_damaged: true, ..cold(&why) });
    }
    let Some(header) = RingHeader::decode(&page.0) else {
        return Some(cold("nothing was recorded"));
    };
    let record = tables.disk(number).expect("there is such a disk");
    let room = segments.len() as u64 * size;
    if !describes(&header, record, room) {
        return Some(cold("its index is of another cache"));
    }
    let mut reader = Direct { file, offset: offset + PAGE, pages: Vec::new() };
    let logged = log.records.iter().map(|record| -> ByteRange { record.range });
    Some(match survey::survey(&header, record.size, record.pending, &mut reader, logged) {
        Ok(found) => RingReport {
            generation: found.generation.0,
            pages: found.pages,
            blocks: found.found,
            kept: found.kept,
            regions_marked: found.marked,
            closed: found.closed,
            cold: None,
            is_damaged: false,
        },
        Err(why) => {
            let is_damaged = why != Cold::Empty;
            RingReport { is_damaged, ..cold(&why.to_string()) }
        }
    })
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
