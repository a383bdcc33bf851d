use proptest::prelude::*;

use super::disk::{DiskFlags, DiskRecord, Evidence, SessionEnd};
use super::lease::{Holder, Lease, LeaseTable, NotHeld, Role};
use super::pair::PairInvalid;
use super::progress::Progress;
use super::reservations::{Reservations, STATE_MAX};
use super::superblock::{Superblock, SuperblockInvalid};
use super::*;
use crate::ids::{Generation, Sequence, Uuid};
use crate::sealed::{self, PAGE_LEN, Page};
use crate::write_back::format::COUNT_MAX;

const POOL: Uuid = Uuid([1; 16]);
const BLANK: Page = [0; PAGE_LEN];

fn geometry() -> PoolGeometry {
    PoolGeometry::new(1 << 20, 300 << 20, 64).unwrap()
}

fn pool() -> Superblock {
    Superblock { pool: POOL, geometry: geometry(), created: 0 }
}

fn record() -> DiskRecord {
    DiskRecord {
        uuid: Uuid([2; 16]),
        boot: Uuid([3; 16]),
        committed: Generation(4),
        pending: Generation(5),
        size: 1 << 40,
        block_size: 8192,
        grid_offset: 3584,
        log_reserved: 1 << 30,
        log_max: 1 << 32,
        opened: 1_700_000_000,
        closed: 0,
        flags: DiskFlags::EXCLUSIVE,
        session: SessionEnd::Running,
        evidence: Evidence {
            size: Some(1 << 40),
            modified: Some((-5, 999)),
            changed: Some((-4, 1)),
            sample: Some([8; 32]),
            is_final: true,
            sidecar: Generation(1),
        },
        mode: "write-back".into(),
        name: "db".into(),
        uri: "file:/san/db.raw".into(),
        identity: Uuid([6; 16]),
        log_end: Sequence(77),
    }
}

fn progress(flushed: u64) -> Progress {
    Progress { disk: Uuid([2; 16]), flushed: Sequence(flushed), through: Sequence(flushed + 10) }
}

fn progress_page(flushed: u64, version: u64) -> Page {
    let mut page = BLANK;
    progress(flushed).encode(&pool(), DiskNumber(3), version, &mut page);
    page
}

fn read_progress(copies: [&Page; 2]) -> Result<(u64, u64), PairInvalid> {
    Progress::decode(&pool(), DiskNumber(3), copies).map(|(version, p)| (version, p.flushed.0))
}

#[test]
fn places_do_not_overlap_and_fit_the_metadata() {
    for (segment, size, disks) in [
        (1 << 20, 8 << 20, 64),
        (1 << 20, 8 << 20, 1),
        (1 << 20, 1 << 40, 64),
        (1 << 20, 1 << 40, 1024),
        (1 << 24, 1 << 40, 512),
        (1 << 30, 1 << 42, 1024),
    ] {
        let geometry = PoolGeometry::new(segment, size, disks).unwrap();
        let mut places: Vec<u64> = SUPERBLOCKS.to_vec();
        let pairs = geometry
            .disks()
            .map(PairId::Disk)
            .chain(geometry.disks().map(PairId::Progress))
            .chain(geometry.disks().map(PairId::Reservations))
            .chain((0..geometry.lease_pages()).map(PairId::Leases));
        for pair in pairs {
            places.extend([0, 1].map(|copy| geometry.pair_offset(pair, copy)));
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[0] + PAGE <= pair[1]));
        let end = u64::from(geometry.metadata_segments()) * segment;
        assert!(places.last().unwrap() + PAGE <= end && end < size);
        assert_eq!(places.len() as u32, 2 + 2 * geometry.pairs());
    }
}

#[test]
fn sizes_outside_the_limits_are_refused() {
    let check = |segment, size, expect: &str| {
        assert_eq!(PoolGeometry::new(segment, size, 64).unwrap_err().to_string(), expect);
    };
    check(
        3 << 20,
        1 << 40,
        "a segment of 3145728 bytes: it must be a power of two from 64 KiB to 1 GiB",
    );
    check(
        1 << 15,
        1 << 40,
        "a segment of 32768 bytes: it must be a power of two from 64 KiB to 1 GiB",
    );
    check(1 << 20, 3 << 20, "room for 3 segments, at least 4 are needed");
    check(1 << 20, 0, "room for 0 segments, at least 4 are needed");
    check(
        1 << 20,
        u64::MAX,
        "17592186044415 segments, at most 1048576 are possible: choose larger segments",
    );
    for disks in [0, 1025, 1 << 16] {
        assert_eq!(PoolGeometry::new(1 << 20, 1 << 30, disks), Err(GeometryError::Disks(disks)));
    }
}

#[test]
fn a_new_pool_has_room_for_as_many_disks_again_and_more_where_it_is_large() {
    let checks = [(0, 1, 64), (1 << 30, 32, 64), (1 << 30, 33, 128), (1 << 30, 500, 1024)];
    for (bytes, wanted, expect) in checks {
        assert_eq!(disks(bytes, wanted), expect, "{wanted} disks");
    }
    let checks =
        [(4 << 30, 64), (5 << 30, 128), (32 << 30, 512), (1 << 40, 1024), (u64::MAX, 1024)];
    for (bytes, expect) in checks {
        assert_eq!(disks(bytes, 1), expect, "{bytes} bytes");
    }
    assert_eq!(disks(0, 100_000), 1024);
}

#[test]
fn the_segment_of_a_new_pool_suits_the_share_of_a_disk() {
    const MIB: u64 = 1 << 20;
    let checks = [
        (0, 0, MIB),
        (1 << 30, 1, 4 * MIB),
        (1 << 40, 1, 16 * MIB),
        (32 << 30, 10, 16 * MIB),
        (32 << 30, 500, MIB),
        (1 << 46, 1, 128 * MIB),
    ];
    for (bytes, disks, expect) in checks {
        assert_eq!(segment_size(bytes, disks), expect, "{bytes} bytes of {disks} disks");
    }
}

#[test]
fn a_pool_says_how_many_disks_it_has_room_for() {
    for disks in [1, 64, 1024] {
        let geometry = PoolGeometry::new(1 << 20, 300 << 20, disks).unwrap();
        let superblock = Superblock { geometry, ..pool() };
        let mut page = BLANK;
        superblock.encode(&mut page);
        assert_eq!(Superblock::decode(&page), Ok(superblock));
        assert_eq!(geometry.disks().count() as u32, disks);
    }
    let mut page = BLANK;
    pool().encode(&mut page);
    page[44..48].copy_from_slice(&1025_u32.to_le_bytes());
    sealed::seal(&mut page);
    assert_eq!(Superblock::decode(&page), Err(SuperblockInvalid::Field("number of disks")));
}

#[test]
fn a_lease_of_a_disk_that_the_pool_has_no_room_for_is_refused() {
    let lease = |disk| Lease {
        disk: DiskNumber(disk),
        role: Role::Log,
        generation: Generation(1),
        ordinal: 1,
    };
    let read = |disk| {
        let mut table = LeaseTable::new(geometry());
        table.lease(SegmentId(50), lease(disk));
        let mut page = BLANK;
        table.encode(&pool(), 0, 1, &mut page);
        LeaseTable::new(geometry()).decode(&pool(), 0, [&BLANK, &page])
    };
    assert_eq!(read(63), Ok(1));
    assert_eq!(read(64), Err(PairInvalid::Field("lease")));
}

#[test]
fn reservations_are_read_back_or_refused() {
    let number = DiskNumber(3);
    let decode = |page: &Page| Reservations::decode(&pool(), number, [&BLANK, page]);
    for len in [0, 1, 1000, STATE_MAX] {
        let reservations = Reservations { disk: Uuid([2; 16]), state: vec![7; len] };
        let mut page = BLANK;
        reservations.encode(&pool(), number, 5, &mut page);
        assert_eq!(decode(&page), Ok((5, reservations)));
        // Longer than the page, and bytes behind its end; a length between is for the state itself to find out.
        for (at, byte) in [(81, 0xff), (82, 1), (88 + len.min(STATE_MAX - 1), 9)] {
            let mut changed = page;
            changed[at] = byte;
            assert_eq!(decode(&changed), Err(PairInvalid::Damaged));
            sealed::seal(&mut changed);
            let expect = Err(PairInvalid::Field("length of its state"));
            // A byte of a state that fills the page is a byte of the state.
            assert!(decode(&changed) == expect || len == STATE_MAX && at > 87, "{len} {at}");
        }
    }
    let mut page = BLANK;
    progress(1).encode(&pool(), number, 5, &mut page);
    assert_eq!(decode(&page), Err(PairInvalid::Damaged), "another kind of page");
}

#[test]
fn one_superblock_is_enough_and_two_must_agree() {
    let superblock = Superblock { pool: POOL, geometry: geometry(), created: 9 };
    let mut page = BLANK;
    superblock.encode(&mut page);
    let mut damaged = page;
    damaged[100] = 1;
    let mut newer = page;
    newer[12] = 2;
    sealed::seal(&mut newer);
    let mut other = BLANK;
    Superblock { created: 10, ..superblock }.encode(&mut other);
    let check = |copies, expect| assert_eq!(Superblock::choose(copies), expect);
    check([&page, &page], Ok(superblock));
    check([&page, &damaged], Ok(superblock));
    check([&page, &BLANK], Ok(superblock));
    check([&damaged, &page], Ok(superblock));
    // Somebody else's data, or a pool that was not finished.
    check([&BLANK, &page], Err(SuperblockInvalid::Foreign));
    check([&damaged, &damaged], Err(SuperblockInvalid::Damaged));
    check([&newer, &page], Err(SuperblockInvalid::Version(2)));
    check([&page, &newer], Err(SuperblockInvalid::Version(2)));
    check([&newer, &BLANK], Err(SuperblockInvalid::Version(2)));
    check([&damaged, &newer], Err(SuperblockInvalid::Version(2)));
    check([&BLANK, &newer], Err(SuperblockInvalid::Version(2)));
    check([&[0xff; PAGE_LEN], &newer], Err(SuperblockInvalid::Version(2)));
    check([&[0x5a; PAGE_LEN], &newer], Err(SuperblockInvalid::Foreign));
    check([&page, &other], Err(SuperblockInvalid::Differ));
    for (at, expect) in [
        (16, "UUID"),
        (32, "segment size or count"),
        (40, "segment size or count"),
        (44, "number of disks"),
        (48, "place of the tables"),
        (52, "place of the tables"),
    ] {
        let mut page = page;
        page[at..at + if at == 16 { 16 } else { 4 }].fill(0);
        sealed::seal(&mut page);
        assert_eq!(Superblock::decode(&page), Err(SuperblockInvalid::Field(expect)));
    }
}

#[test]
fn a_torn_page_leaves_what_was_there_before() {
    let (old, new) = (progress_page(100, 6), progress_page(200, 7));
    let mut before = progress_page(50, 5);
    for cut in (0..=PAGE_LEN).step_by(512) {
        before[..cut].copy_from_slice(&new[..cut]);
        // The part with data decides; the rest is zero in both.
        let expect = if cut == 0 { (6, 100) } else { (7, 200) };
        assert_eq!(read_progress([&old, &before]), Ok(expect), "{cut}");
    }
    for bit in 0..PAGE_LEN * 8 {
        let mut torn = new;
        torn[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(read_progress([&old, &torn]), Ok((6, 100)), "bit {bit}");
        assert_eq!(read_progress([&BLANK, &torn]), Err(PairInvalid::Damaged), "bit {bit}");
    }
}

#[test]
fn a_page_in_the_wrong_place_does_not_count() {
    let (old, new) = (progress_page(100, 6), progress_page(200, 7));
    assert_eq!(read_progress([&old, &new]), Ok((7, 200)));
    // The copies swapped, another disk's place, another pool, another kind.
    assert_eq!(read_progress([&new, &old]), Err(PairInvalid::Damaged));
    let other =
        |pool: Superblock, number| Progress::decode(&pool, DiskNumber(number), [&old, &new]);
    assert_eq!(other(pool(), 4), Err(PairInvalid::Damaged));
    assert_eq!(other(Superblock { pool: Uuid([9; 16]), ..pool() }, 3), Err(PairInvalid::Damaged));
    assert!(DiskRecord::decode(&pool(), DiskNumber(3), [&old, &new]).is_err());
    // A newer format is not taken for damage.
    let mut newer = new;
    newer[12] = 2;
    sealed::seal(&mut newer);
    assert_eq!(read_progress([&old, &newer]), Err(PairInvalid::Format(2)));
    let mut wrong = new;
    wrong[80..88].fill(0xff);
    sealed::seal(&mut wrong);
    assert_eq!(read_progress([&old, &wrong]), Err(PairInvalid::Field("progress")));
}

#[test]
fn a_disk_record_reads_back_within_its_limits() {
    let read_back = |record: &DiskRecord| {
        let mut page = BLANK;
        record.encode(&pool(), DiskNumber(0), 2, &mut page)?;
        let (version, back) = DiskRecord::decode(&pool(), DiskNumber(0), [&page, &BLANK])?;
        assert_eq!((version, back.as_ref()), (2, Some(record)));
        Ok::<_, PairInvalid>(())
    };
    read_back(&record()).unwrap();
    read_back(&DiskRecord {
        evidence: Evidence::default(),
        session: SessionEnd::Clean,
        name: "n".repeat(disk::NAME_MAX),
        uri: "ü".repeat(disk::URI_MAX / 2),
        mode: "m".repeat(disk::MODE_MAX),
        ..record()
    })
    .unwrap();
    let refused = |change: &dyn Fn(&mut DiskRecord), what| {
        let mut record = record();
        change(&mut record);
        assert_eq!(read_back(&record), Err(PairInvalid::Field(what)));
    };
    refused(&|r| r.name = "n".repeat(disk::NAME_MAX + 1), "name");
    refused(&|r| r.name = String::new(), "name");
    refused(&|r| r.uri = "u".repeat(disk::URI_MAX + 1), "URI");
    refused(&|r| r.mode = "a\0b".into(), "mode");
    refused(&|r| r.uuid = Uuid::NIL, "UUID");
    refused(&|r| r.committed = Generation(6), "generation");
    refused(&|r| r.pending = Generation(u64::MAX), "generation");
    refused(&|r| r.size = 100, "size");
    refused(&|r| r.block_size = 5000, "block size");
    refused(&|r| r.grid_offset = 8192, "grid offset");
    refused(&|r| r.log_reserved = u64::MAX, "log limit");
    refused(&|r| r.flags = DiskFlags(1 << 31), "flag");
    refused(&|r| r.evidence.sidecar = Generation(6), "evidence");
    // No progress could say that it is discarded.
    refused(&|r| r.log_end = Sequence(COUNT_MAX + 1), "end of the log");
    let mut page = BLANK;
    DiskRecord::encode_free(&pool(), DiskNumber(0), 1, &mut page);
    assert_eq!(DiskRecord::decode(&pool(), DiskNumber(0), [&BLANK, &page]), Ok((1, None)));
}

#[test]
fn leases_read_back_page_by_page() {
    let lease = |disk, role, ordinal| {
        let (disk, generation) = (DiskNumber(disk), Generation(7));
        Lease { disk, role, generation, ordinal }
    };
    let mut table = LeaseTable::new(geometry());
    assert_eq!(geometry().metadata_segments(), 3);
    assert_eq!(table.holder(SegmentId(2)), Holder::Metadata);
    table.lease(SegmentId(3), lease(1, Role::Log, 5));
    table.lease(SegmentId(200), lease(1, Role::Log, 4));
    table.lease(SegmentId(167), lease(2, Role::Cache, 0));
    table.lease(SegmentId(299), lease(63, Role::Index, 0));
    let pages: Vec<Page> = (0..geometry().lease_pages())
        .map(|number| {
            let mut page = BLANK;
            table.encode(&pool(), number, 1, &mut page);
            page
        })
        .collect();
    let mut back = LeaseTable::new(geometry());
    for (number, page) in (0..).zip(&pages) {
        assert_eq!(back.decode(&pool(), number, [&BLANK, page]), Ok(1));
    }
    assert_eq!(back, table);
    let log: Vec<_> = back.log_of(DiskNumber(1)).map(|l| (l.segment.0, l.ordinal)).collect();
    assert_eq!(log, [(3, 5), (200, 4)]);
    // An entry of 24 bytes at a time.
    let refused = |number: u32, entry: usize, at: usize, byte: u8, what| {
        let mut page = pages[number as usize];
        page[pair::CONTENTS + entry * 24 + at] = byte;
        sealed::seal(&mut page);
        let error = Err(PairInvalid::Field(what));
        assert_eq!(LeaseTable::new(geometry()).decode(&pool(), number, [&BLANK, &page]), error);
    };
    refused(0, 3, 18, 4, "lease");
    refused(0, 3, 16, 64, "lease");
    refused(0, 3, 7, 0xff, "lease");
    refused(0, 3, 18, 255, "lease of the pool's own segments");
    refused(0, 0, 18, 0, "lease of the pool's own segments");
    refused(1, 167, 18, 1, "lease of a segment that is not there");
}

#[test]
#[should_panic(expected = "SegmentId(5) from")]
fn a_segment_does_not_go_from_disk_to_disk() {
    let lease = |disk| {
        let (disk, generation) = (DiskNumber(disk), Generation(7));
        Lease { disk, role: Role::Log, generation, ordinal: 0 }
    };
    let mut table = LeaseTable::new(geometry());
    table.lease(SegmentId(5), lease(1));
    table.lease(SegmentId(5), lease(2));
}

#[test]
fn a_segment_is_freed_only_under_the_lease_that_it_is_held_under() {
    let lease = |disk, role, generation, ordinal| Lease {
        disk: DiskNumber(disk),
        role,
        generation: Generation(generation),
        ordinal,
    };
    let held = lease(1, Role::Log, 7, 3);
    let mut table = LeaseTable::new(geometry());
    table.lease(SegmentId(5), held);
    for other in [
        lease(2, Role::Log, 7, 3),
        lease(1, Role::Index, 7, 3),
        lease(1, Role::Log, 8, 3),
        lease(1, Role::Log, 7, 4),
    ] {
        assert_eq!(table.free(SegmentId(5), other), Err(NotHeld));
        assert_eq!(table.holder(SegmentId(5)), Holder::Leased(held));
    }
    assert_eq!(table.free(SegmentId(5), held), Ok(()));
    for segment in [5, 0, 300, u32::MAX] {
        let before = table.clone();
        assert_eq!(table.free(SegmentId(segment), held), Err(NotHeld), "segment {segment}");
        assert_eq!(table, before);
    }
}

proptest! {
    #[test]
    fn changed_bytes_under_a_right_checksum_never_panic(
        changes in prop::collection::vec((12..2400_usize, any::<u8>()), 1..12),
    ) {
        let mut pages = [BLANK; 4];
        Superblock { pool: POOL, geometry: geometry(), created: 9 }.encode(&mut pages[0]);
        record().encode(&pool(), DiskNumber(3), 1, &mut pages[1]).unwrap();
        progress(5).encode(&pool(), DiskNumber(3), 1, &mut pages[2]);
        LeaseTable::new(geometry()).encode(&pool(), 1, 1, &mut pages[3]);
        for page in &mut pages {
            for (at, byte) in &changes {
                page[*at] = *byte;
            }
            sealed::seal(page);
        }
        let _ = Superblock::decode(&pages[0]);
        let _ = DiskRecord::decode(&pool(), DiskNumber(3), [&BLANK, &pages[1]]);
        let _ = read_progress([&BLANK, &pages[2]]);
        let _ = LeaseTable::new(geometry()).decode(&pool(), 1, [&BLANK, &pages[3]]);
    }
}
