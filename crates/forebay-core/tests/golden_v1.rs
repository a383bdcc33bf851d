//! A pool as version 1 wrote it: it must always open, and the encoder must go on writing the same bytes.
//!
//! `golden/pool-v1.hex` is its image (`common/image.rs`), `golden/sidecar-v1.txt` the file beside primary storage. They are never
//! generated again: a change of the format is a new version with a new image.

#[path = "common/image.rs"]
mod image;

use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, Evidence, SessionEnd};
use forebay_core::flash_pool::lease::{Lease, LeaseTable, Role};
use forebay_core::flash_pool::progress::Progress;
use forebay_core::flash_pool::reservations::Reservations;
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::flash_pool::{DiskNumber, PairId, PoolGeometry, SUPERBLOCKS};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use forebay_core::sealed::{PAGE_LEN, Page, crc32c};
use forebay_core::write_back::format::group::{self, Entry, GroupHeader, GroupView, RecordKind};
use forebay_core::write_back::format::recover::{
    LogReader, ReadError, RecordPlace, RecoverInput, RecoveredLog, recover,
};
use forebay_core::write_back::format::segment::SegmentHeader;
use forebay_core::write_back::format::summary;
use image::Image;

const GOLDEN: &str = include_str!("golden/pool-v1.hex");
const POOL: Uuid = Uuid(*b"pool-uuid-golden");
const DISK: Uuid = Uuid(*b"disk-uuid-golden");
const NUMBER: DiskNumber = DiskNumber(0);
const BLANK: Page = [0; PAGE_LEN];
const SEGMENT: u64 = 1 << 20;
const DISK_SIZE: u64 = 1 << 30;

impl Image {
    fn pair(&self, geometry: &PoolGeometry, pair: PairId) -> [&Page; 2] {
        [0, 1].map(|copy| self.page(geometry.pair_offset(pair, copy)))
    }
}

impl LogReader for &Image {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        let start = u64::from(segment.0) * SEGMENT + u64::from(page) * PAGE_LEN as u64;
        for (index, out) in (0..).zip(out.chunks_mut(PAGE_LEN)) {
            out.copy_from_slice(self.page(start + index * PAGE_LEN as u64));
        }
        Ok(())
    }
}

fn geometry() -> PoolGeometry {
    PoolGeometry::new(SEGMENT, 8 * SEGMENT, 64).unwrap()
}

fn superblock() -> Superblock {
    Superblock { pool: POOL, geometry: geometry(), created: 1_700_000_000 }
}

fn record() -> DiskRecord {
    DiskRecord {
        uuid: DISK,
        boot: Uuid(*b"boot-uuid-golden"),
        committed: Generation(2),
        pending: Generation(2),
        size: DISK_SIZE,
        block_size: 65536,
        grid_offset: 32256,
        log_reserved: SEGMENT,
        log_max: 4 * SEGMENT,
        opened: 1_700_000_100,
        closed: 1_700_000_050,
        flags: DiskFlags::EXCLUSIVE,
        session: SessionEnd::Running,
        evidence: Evidence {
            size: Some(DISK_SIZE),
            modified: Some((1_700_000_000, 5)),
            sample: Some(*b"sampled-ranges-sampled-ranges-sa"),
            ..Evidence::default()
        },
        mode: "write-back".into(),
        name: "golden".into(),
        uri: "file:/san/golden.raw".into(),
        identity: Uuid::NIL,
        log_end: Sequence(0),
    }
}

fn leases() -> LeaseTable {
    let mut table = LeaseTable::new(geometry());
    let lease = |role, generation, ordinal| Lease {
        disk: NUMBER,
        role,
        generation: Generation(generation),
        ordinal,
    };
    table.lease(SegmentId(4), lease(Role::Log, 1, 0));
    table.lease(SegmentId(6), lease(Role::Log, 2, 1));
    table.lease(SegmentId(3), lease(Role::Cache, 2, 0));
    table.lease(SegmentId(7), lease(Role::Index, 2, 0));
    table
}

/// The phase of the grid: its offset in a page.
const PHASE: u16 = 32256 % 4096;

fn entry(start: u64, len: u64, epoch: u64, kind: RecordKind, more: bool) -> Entry {
    Entry { range: ByteRange::at(start, len), epoch: FlushEpoch(epoch), kind, more }
}

/// Segment, page, generation, number, first sequence, durable; records.
type Group = ([u64; 6], Vec<Entry>);

/// Two sessions: in the first, group 3 got lost; the second one went on after group 2.
fn groups() -> [Group; 4] {
    use RecordKind::{Write, Zero};
    let a = entry(32256, 4096, 1, Write, false);
    let b = entry(0, 512, 1, Write, true);
    let c = entry(1 << 20, 1 << 29, 2, Zero, false);
    let d = entry(512, 8192, 3, Write, false);
    [
        ([4, 1, 1, 1, 1, 0], vec![a, b]),
        ([4, 4, 1, 2, 3, 2], vec![c]),
        ([4, 8, 1, 4, 5, 2], vec![a]),
        ([6, 1, 2, 3, 4, 3], vec![d]),
    ]
}

fn reservations() -> Reservations {
    Reservations { disk: DISK, state: b"what a frontend wrote".to_vec() }
}

fn written() -> Image {
    let mut image = Image::default();
    for offset in SUPERBLOCKS {
        superblock().encode(image.at(offset));
    }
    let geometry = geometry();
    record()
        .encode(&superblock(), NUMBER, 6, image.at(geometry.pair_offset(PairId::Disk(NUMBER), 0)))
        .unwrap();
    let older = DiskRecord { committed: Generation(1), ..record() };
    older
        .encode(&superblock(), NUMBER, 5, image.at(geometry.pair_offset(PairId::Disk(NUMBER), 1)))
        .unwrap();
    let progress = Progress { disk: DISK, flushed: Sequence(1), through: Sequence(100) };
    let pair = PairId::Progress(NUMBER);
    progress.encode(&superblock(), NUMBER, 9, image.at(geometry.pair_offset(pair, 1)));
    reservations().encode(
        &superblock(),
        NUMBER,
        3,
        image.at(geometry.pair_offset(PairId::Reservations(NUMBER), 1)),
    );
    leases().encode(&superblock(), 0, 4, image.at(geometry.pair_offset(PairId::Leases(0), 0)));
    for (segment, generation, ordinal, group, sequence) in [(4, 1, 0, 1, 1), (6, 2, 1, 3, 4)] {
        let header = SegmentHeader {
            disk: DISK,
            generation: Generation(generation),
            ordinal,
            first_group: GroupNumber(group),
            first_sequence: Sequence(sequence),
            durable: Sequence(sequence - 1),
            epoch: FlushEpoch(generation),
            nonce: 0x0123_4567_89ab_cdef + generation,
            segment: SegmentId(segment),
            phase: PHASE,
        };
        header.encode(image.at(u64::from(segment) * SEGMENT));
    }
    for ([segment, page, generation, number, sequence, durable], entries) in groups() {
        let at = segment * SEGMENT + page * PAGE_LEN as u64;
        let mut head = BLANK;
        let header = GroupHeader {
            disk: DISK,
            generation: Generation(generation),
            number: GroupNumber(number),
            first_sequence: Sequence(sequence),
            durable: Sequence(0),
            nonce: 0x0123_4567_89ab_cdef + generation,
            phase: PHASE,
        };
        group::begin(&mut head, &header);
        for entry in entries {
            let data: Vec<Page> = (0..entry.data_pages(PHASE)).map(|k| data(&entry, k)).collect();
            let checksums: Vec<u32> = data.iter().map(|page| crc32c(page)).collect();
            let first = u64::from(group::append(&mut head, &entry, &checksums));
            for (k, page) in (0..).zip(data) {
                *image.at(at + (1 + first + k) * PAGE_LEN as u64) = page;
            }
        }
        group::seal(&mut head, Sequence(durable));
        *image.at(at) = head;
    }
    summarize(&mut image);
    image
}

/// The summary of the first segment: of its third group, too, which got lost before it was durable.
fn summarize(image: &mut Image) {
    let header = SegmentHeader::decode(image.page(4 * SEGMENT)).unwrap();
    let mut bytes = vec![0; summary::GROUPS as usize];
    for page in [1, 4, 8] {
        let page = *image.page(4 * SEGMENT + page * PAGE_LEN as u64);
        let at = bytes.len();
        let layout = GroupView::sealed(&page).unwrap().layout();
        bytes.resize(at + summary::group_bytes(layout) as usize, 0);
        summary::add_group(&mut bytes[at..], &page);
    }
    let len = bytes.len();
    bytes.resize(PAGE_LEN, 0);
    summary::seal(&mut bytes, &(&header).into(), 3, len as u32);
    let first = summary::first_page((SEGMENT / PAGE_LEN as u64) as u32);
    *image.at(4 * SEGMENT + u64::from(first) * PAGE_LEN as u64) = bytes.try_into().unwrap();
}

fn data(entry: &Entry, page: u64) -> Page {
    let mut data = BLANK;
    data[..8].copy_from_slice(&entry.range.start.to_le_bytes());
    data[4095] = page as u8 + 1;
    data
}

fn recovered(image: &Image) -> RecoveredLog {
    let geometry = geometry();
    let mut leases = LeaseTable::new(geometry);
    leases.decode(&superblock(), 0, image.pair(&geometry, PairId::Leases(0))).unwrap();
    let segments: Vec<_> = leases.log_of(NUMBER).collect();
    let pair = image.pair(&geometry, PairId::Progress(NUMBER));
    let (_, progress) = Progress::decode(&superblock(), NUMBER, pair).unwrap();
    let input = RecoverInput {
        disk: DISK,
        disk_size: DISK_SIZE,
        segment_pages: geometry.segment_pages(),
        segments: &segments,
        flushed: progress.flushed,
        through: progress.through,
        durable: Sequence(0),
        committed: Generation(2),
        pending: Generation(2),
        staged: &[],
        accept_missing: None,
        walk_all: false,
    };
    recover(&input, &mut { image }).unwrap()
}

#[test]
fn the_golden_pool_opens() {
    let image = Image::parse(GOLDEN);
    let copies = SUPERBLOCKS.map(|offset| image.page(offset));
    assert_eq!(Superblock::choose(copies), Ok(superblock()));
    let geometry = geometry();
    let pair = image.pair(&geometry, PairId::Disk(NUMBER));
    assert_eq!(DiskRecord::decode(&superblock(), NUMBER, pair), Ok((6, Some(record()))));
    let pair = image.pair(&geometry, PairId::Reservations(NUMBER));
    assert_eq!(Reservations::decode(&superblock(), NUMBER, pair), Ok((3, reservations())));
    let mut table = LeaseTable::new(geometry);
    let pair = image.pair(&geometry, PairId::Leases(0));
    assert_eq!(table.decode(&superblock(), 0, pair), Ok(4));
    assert_eq!(table, leases());

    let log = recovered(&image);
    assert_eq!((log.report.segments_summarized, log.report.summaries_damaged), (1, 0));
    let found: Vec<_> = log
        .records
        .iter()
        .map(|record| {
            (
                record.sequence.0,
                record.epoch.0,
                record.range.start,
                record.range.len(),
                record.place,
            )
        })
        .collect();
    let place = |segment, page| RecordPlace::Log { segment: SegmentId(segment), page };
    let expect = [
        (2, 1, 0, 512, place(4, 3)),
        (3, 2, 1 << 20, 1 << 29, place(4, 5)),
        (4, 3, 512, 8192, place(6, 2)),
    ];
    assert_eq!(found, expect);
    assert_eq!((log.next_group, log.next_sequence), (GroupNumber(4), Sequence(5)));
    assert_eq!((log.next_ordinal, log.next_epoch), (2, FlushEpoch(4)));
    assert_eq!(
        log.checksums[log.records[2].first_checksum as usize],
        crc32c(image.page(6 * SEGMENT + 8192))
    );
}

#[test]
fn the_same_bytes_are_written_today() {
    assert_eq!(written().text(), GOLDEN, "the format changed without a new version");
}

#[test]
fn the_golden_sidecar_is_read_and_written() {
    const SIDECAR: &[u8] = include_bytes!("golden/sidecar-v1.txt");
    let sidecar = Sidecar {
        disk: DISK,
        pool: POOL,
        generation: Generation(7),
        state: SidecarState::OpenWithLog,
        date: 1_700_000_000,
        host: "host.example".into(),
        name: "golden".into(),
        journal: None,
    };
    assert_eq!(Sidecar::decode(SIDECAR).as_ref(), Ok(&sidecar));
    assert_eq!(sidecar.encode(), SIDECAR, "the format changed without a new version");
}
