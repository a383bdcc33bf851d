//! Bodies of the fuzz targets: hostile pages and texts in, promises checked. The targets in `fuzz/` feed them what
//! libFuzzer finds; the tests feed them random bytes on the stable toolchain. With the feature
//! `planted-bugs` each must fail soon.

mod ring;
mod sidecar;

pub use ring::ring_format;
pub use sidecar::sidecar;

use crate::config::{BackendTraits, Config, GridOffset, Mode, WriteLogConfig};
use crate::engine::Engine;
use crate::flash_pool::disk::DiskRecord;
use crate::flash_pool::lease::LeaseTable;
use crate::flash_pool::progress::Progress;
use crate::flash_pool::reservations::Reservations;
use crate::flash_pool::superblock::Superblock;
use crate::flash_pool::{DiskNumber, PoolGeometry};
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use crate::sealed::{self, PAGE_LEN, Page};
use crate::write_back::format::group::{self, Entry, GroupHeader, RecordKind};
use crate::write_back::format::recover::{
    LeasedSegment, LogReader, ReadError, RecordPlace, RecoverInput, RecoveredLog, recover,
};
use crate::write_back::format::reopen::reopen;
use crate::write_back::format::segment::SegmentHeader;
use crate::write_back::format::summary;

/// A file of changes to a valid log and pool. Each is a page, an offset and a byte. The page's
/// lowest bit says whether the page is sealed again.
pub fn flash_format(data: &[u8]) {
    let mut log = Log([[0; PAGE_LEN]; PAGES]);
    for page in 0..PAGES {
        template(page, &mut log.0[page]);
    }
    let mut staged = log.0[1];
    for change in data.chunks_exact(4) {
        let page = usize::from(change[0] >> 1) % (PAGES + 1);
        let target = log.0.get_mut(page).unwrap_or(&mut staged);
        target[usize::from(u16::from_le_bytes([change[1], change[2]])) % PAGE_LEN] = change[3];
        if change[0] & 1 == 1 {
            match is_summary(page) {
                true => summary::reseal(target),
                false => sealed::seal(target),
            }
        }
    }
    pool(&log.0[1]);
    let segments = [0, 1].map(|number| LeasedSegment {
        segment: SegmentId(number),
        generation: Generation(1),
        ordinal: number.into(),
    });
    let input = RecoverInput {
        disk: DISK,
        disk_size: DISK_SIZE,
        segment_pages: SEGMENT_PAGES,
        segments: &segments,
        flushed: Sequence(1),
        through: Sequence(1),
        durable: Sequence(0),
        committed: Generation(1),
        pending: Generation(1),
        staged: &[&staged],
        accept_missing: (data.len() % 2 == 1).then_some(Sequence(0)),
        walk_all: false,
    };
    if let Ok(mut log) = recover(&input, &mut log) {
        check(&log);
        take_over(&mut log);
    }
}

const DISK: Uuid = Uuid([5; 16]);
const DISK_SIZE: u64 = 1 << 40;
const SEGMENT_PAGES: u32 = 256;
const SUMMARY: usize = summary::first_page(SEGMENT_PAGES) as usize;
/// Of each of the two segments the first pages are kept, and the first one of the summary; the others are zero.
const PAGES: usize = 16;

/// Whether a page that is kept is one of a summary.
fn is_summary(page: usize) -> bool {
    page < PAGES && page % (PAGES / 2) == PAGES / 2 - 1
}

struct Log([Page; PAGES]);

impl LogReader for Log {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        for (index, out) in (page as usize..).zip(out.chunks_mut(PAGE_LEN)) {
            let first = segment.0 as usize * PAGES / 2;
            let at = match index {
                index if index < PAGES / 2 - 1 => Some(first + index),
                index if index == SUMMARY => Some(first + PAGES / 2 - 1),
                _ => None,
            };
            let page = at.map(|at| &self.0[at]);
            out.copy_from_slice(page.unwrap_or(&[0; PAGE_LEN]));
        }
        Ok(())
    }
}

/// Two segments with two groups each, of one record with one page of zeroes each, and summaries.
fn template(number: usize, page: &mut Page) {
    let (segment, index) = ((number / (PAGES / 2)) as u64, number % (PAGES / 2));
    let group = |index: u64| 1 + 2 * segment + index;
    let header = SegmentHeader {
        disk: DISK,
        generation: Generation(1),
        ordinal: segment,
        first_group: GroupNumber(group(0)),
        first_sequence: Sequence(group(0)),
        durable: Sequence(2 * segment),
        epoch: FlushEpoch(1),
        nonce: 7,
        segment: SegmentId(segment as u32),
        phase: 0,
    };
    if index == 0 {
        header.encode(page);
    } else if is_summary(number) {
        let mut at = summary::GROUPS as usize;
        for group in [1, 3] {
            let mut of = [0; PAGE_LEN];
            template(number - index + group, &mut of);
            let len = summary::GROUP_BYTES_MIN as usize;
            summary::add_group(&mut page[at..at + len], &of);
            at += len;
        }
        summary::seal(page, &(&header).into(), 2, at as u32);
    } else if index == 1 || index == 3 {
        let number = group(index as u64 / 2);
        let header = GroupHeader {
            disk: DISK,
            generation: Generation(1),
            number: GroupNumber(number),
            first_sequence: Sequence(number),
            durable: Sequence(0),
            nonce: 7,
            phase: 0,
        };
        let range = ByteRange::at(0, PAGE);
        group::begin(page, &header);
        let entry = Entry { range, epoch: FlushEpoch(1), kind: RecordKind::Write, more: false };
        group::append(page, &entry, &[sealed::crc32c(&[0; PAGE_LEN])]);
        group::seal(page, Sequence(0));
    }
}

/// Checks that hold for every log that recovery gives out.
fn check(log: &RecoveredLog) {
    let mut next = log.flushed.plus(1);
    for record in &log.records {
        assert_eq!(record.sequence, next);
        next = next.plus(1);
        assert!(!record.range.is_empty() && record.range.end <= DISK_SIZE);
        let pages = match record.kind {
            RecordKind::Write => crate::write_back::format::data_pages(record.range, record.phase),
            RecordKind::Zero => 0,
        };
        assert!(u64::from(record.first_checksum) + pages <= log.checksums.len() as u64);
        if let RecordPlace::Log { page, .. } = record.place {
            assert!(page > 1 && u64::from(page) + pages <= u64::from(SEGMENT_PAGES));
        }
    }
    assert!(log.next_sequence <= next && log.next_sequence > log.flushed);
    assert!(log.records.last().is_none_or(|last| !last.more && last.epoch < log.next_epoch));
}

/// Opens the log again, and hands it to an engine: it goes on with it, or says why not.
fn take_over(log: &mut RecoveredLog) {
    let plan = reopen(log, SEGMENT_PAGES);
    let fresh = (2..).map(|number| (SegmentId(number), number.into()));
    let tail = plan.apply(log, &fresh.take(plan.segments.len()).collect::<Vec<_>>());
    let phase = log.records.first().map_or(0, |record| record.phase);
    let backend = BackendTraits {
        size: DISK_SIZE,
        logical_block: 512,
        read_only: false,
        discard: true,
        write_zeroes: true,
        extents: true,
    };
    let segments_found = log.segments.len() as u32 + 1;
    let write_log = WriteLogConfig {
        segments_found,
        ..WriteLogConfig::new(SEGMENT_PAGES, segments_found.max(3))
    };
    let config = Config {
        mode: Mode::WriteBack,
        write_log: Some(write_log),
        grid_offset: GridOffset::Fixed(phase.into()),
        ram_bytes: 0,
        requests_max: 4,
        ..Config::for_disk(backend)
    };
    let mut engine = Engine::new(config).expect("a sane configuration");
    if engine.restore(log, tail).is_ok() {
        engine.check_invariants();
    }
}

/// Decodes a page as everything that a pool has.
fn pool(page: &Page) {
    let blank = [0; PAGE_LEN];
    let _ = Superblock::decode(page);
    let geometry = PoolGeometry::new(1 << 20, 1 << 30, 64).expect("sane");
    let pool = Superblock { pool: DISK, geometry, created: 0 };
    let number = DiskNumber(0);
    let _ = DiskRecord::decode(&pool, number, [&blank, page]);
    let _ = Progress::decode(&pool, number, [&blank, page]);
    let _ = Reservations::decode(&pool, number, [&blank, page]);
    let _ = LeaseTable::new(geometry).decode(&pool, 0, [&blank, page]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "planted-bugs"))]
    proptest::proptest! {
        #[test]
        fn hostile_flash_keeps_every_promise(
            changes in proptest::collection::vec(
                (proptest::prelude::any::<u8>(), 0..400_u16, proptest::prelude::any::<u8>()), 0..20),
        ) {
            let bytes = changes.iter().flat_map(|(page, at, byte)| {
                let [low, high] = at.to_le_bytes();
                [*page, low, high, *byte]
            });
            flash_format(&bytes.collect::<Vec<u8>>());
        }
    }

    /// The length of a record that no group has room for, sealed again; in the last segment, which is walked.
    const LONG: [u8; 4] = [19, 107, 0, 1];
    /// The same in the summary of the first one.
    const LONG_IN_SUMMARY: [u8; 4] = [15, 115, 0, 1];

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn a_record_longer_than_its_group_is_refused() {
        flash_format(&LONG_IN_SUMMARY);
        flash_format(&LONG);
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    #[should_panic(expected = "the group is full")]
    fn the_planted_bug_is_found() {
        flash_format(&LONG);
    }
}
