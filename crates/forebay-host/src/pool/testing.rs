//! What a shard writes for a disk to its pool, for tests of what a start makes of that.

use anyhow::Result;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::progress::Progress;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{FlushEpoch, GroupNumber, SegmentId, Sequence};
use forebay_core::sealed::crc32c;
use forebay_core::write_back::format::group::{self, Entry, GroupHeader, RecordKind};

use super::file::PoolPage;
use super::{OpenedLog, Pool, page_offset};

/// Writes a durable group of one record, at a page of a segment.
pub(crate) fn append(
    pool: &Pool,
    log: &OpenedLog,
    (segment, page): (SegmentId, u32),
    (number, sequence): (GroupNumber, Sequence),
) -> Result<()> {
    let mut pages = PoolPage::zeroes(2);
    pages[1] = data(sequence.0);
    let header = GroupHeader {
        disk: log.disk,
        generation: log.generation,
        number,
        first_sequence: sequence,
        durable: Sequence(0),
        nonce: log.nonce,
        phase: 0,
    };
    group::begin(&mut pages[0].0, &header);
    let range = ByteRange::at((sequence.0 % 64) * 4096, 4096);
    let entry = Entry { range, epoch: epoch(sequence), kind: RecordKind::Write, more: false };
    let checksum = crc32c(&pages[1].0);
    group::append(&mut pages[0].0, &entry, &[checksum]);
    group::seal(&mut pages[0].0, Sequence(sequence.0 - 1));
    pool.file.write(page_offset(pool.geometry(), segment, page), &pages)?;
    pool.file.sync()?;
    Ok(())
}

/// The bytes of a record say which one it is.
pub(super) fn data(sequence: u64) -> PoolPage {
    let mut page = PoolPage::ZERO;
    page.0[..8].copy_from_slice(&sequence.to_le_bytes());
    page.0[4095] = 1;
    page
}

/// The epoch of a record.
pub(super) fn epoch(sequence: Sequence) -> FlushEpoch {
    FlushEpoch(1000 + sequence.0)
}

/// Writes how far the destager of a disk is: what primary storage has, and what it may have.
pub(crate) fn note_progress(
    pool: &mut Pool,
    number: DiskNumber,
    (flushed, through): (Sequence, Sequence),
) -> Result<()> {
    let progress = Progress { disk: pool.disk_uuid(number), flushed, through };
    pool.tables.set_progress(&pool.file, number, progress)?;
    Ok(())
}
