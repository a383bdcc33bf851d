//! Headers and journals that nobody wrote.

use proptest::prelude::*;

use super::repair::{Disk, JOURNAL_PAGES};
use super::*;
use crate::sealed::{seal, u32_at};

/// A header whose checksums are right, whatever its counts and its entries are.
fn forged(zeroes: u32, pages: u32, entries: &[u8]) -> Vec<u8> {
    let (count, rest) = (zeroes.saturating_add(pages), shape().header(1).len() as usize);
    let mut header = header(head(1), &Contents::default());
    header.resize(rest, 0);
    let entries = &entries[..entries.len().min(rest - PAGE_LEN)];
    header[PAGE_LEN..PAGE_LEN + entries.len()].copy_from_slice(entries);
    let used = (count as usize).saturating_mul(16).min(rest - PAGE_LEN);
    let checksum = crc32c(&header[PAGE_LEN..PAGE_LEN + used]);
    header[72..76].copy_from_slice(&zeroes.to_le_bytes());
    header[76..80].copy_from_slice(&pages.to_le_bytes());
    header[80..84].copy_from_slice(&checksum.to_le_bytes());
    seal(header.first_chunk_mut().expect("a page"));
    header
}

/// One entry of zeroes.
fn zero(start: u64, len: u64) -> Vec<u8> {
    [start.to_le_bytes(), len.to_le_bytes()].concat()
}

/// One entry of the payload.
fn page(number: u64, sectors: u8) -> Vec<u8> {
    [&number.to_le_bytes()[..], &[0; 4], &[sectors, 0, 0, 0]].concat()
}

#[test]
fn zeroes_beyond_the_disk_do_not_count() {
    assert!(decoded(&forged(1, 0, &zero(0, SIZE))).is_some());
    let cases = [
        (0, 0),
        (0, SIZE + 512),
        (SIZE, 512),
        (512, SIZE),
        (0, 100),
        (100, 512),
        (512, u64::MAX),
        (512, u64::MAX - 511),
        (u64::MAX - 511, 512),
        (u64::MAX, 1),
    ];
    for (start, len) in cases {
        assert_eq!(decoded(&forged(1, 0, &zero(start, len))), None, "{len} from {start}");
    }
}

#[test]
fn pages_beyond_the_disk_do_not_count() {
    assert!(decoded(&forged(0, 1, &page(63, 0xff))).is_some());
    for (number, sectors) in [(63, 0), (64, 0xff), (65, 1), (66, 1), (u64::MAX, 1), (1 << 52, 1)] {
        let header = forged(0, 1, &page(number, sectors));
        assert_eq!(decoded(&header), None, "{sectors:#x} of {number}");
    }
}

#[test]
fn a_count_of_more_entries_than_a_slot_has_room_for_does_not_count() {
    let most = shape().entries_max() as u32;
    let cases =
        [(0, 9), (most, 1), (most + 1, 0), (u32::MAX, 0), (0, u32::MAX), (u32::MAX, u32::MAX)];
    for (zeroes, pages) in cases {
        let header = forged(zeroes, pages, &[]);
        let head = Head::decode(first_page(&header), OWNER, shape());
        assert_eq!(head, None, "{zeroes} zeroes, {pages} pages");
    }
}

#[test]
fn a_header_that_is_shorter_than_its_counts_does_not_count() {
    let header = forged(1, 2, &[zero(0, 512), page(1, 1), page(2, 1)].concat());
    let head = Head::decode(first_page(&header), OWNER, shape()).expect("a head");
    for len in [0, 16, 47] {
        assert_eq!(Contents::decode(&head, &header[PAGE_LEN..][..len], SIZE), None);
    }
    assert!(Contents::decode(&head, &header[PAGE_LEN..][..48], SIZE).is_some());
}

#[test]
fn a_header_with_an_impossible_field_does_not_count() {
    let good = forged(0, 0, &[]);
    let cases: [(usize, &[u8]); 5] = [
        (12, &2_u16.to_le_bytes()),
        (14, &4096_u16.to_le_bytes()),
        (14, &u16::MAX.to_le_bytes()),
        (48, &0_u64.to_le_bytes()),
        (48, &(1_u64 << 62).to_le_bytes()),
    ];
    for (at, bytes) in cases {
        let mut header = good.clone();
        header[at..at + bytes.len()].copy_from_slice(bytes);
        seal(header.first_chunk_mut().expect("a page"));
        assert_eq!(decoded(&header), None, "{bytes:?} at {at}");
    }
}

/// Every byte that a header has put in place lies on the disk.
fn is_on_the_disk(head: &Head, contents: &Contents) -> bool {
    let disk = ByteRange::new(0, SIZE);
    let grid = head.grid();
    let parts = contents.pages.iter().flat_map(|entry| {
        let ranges = entry.sectors.runs();
        ranges.map(move |(first, end)| grid.sector_range(entry.page, first, end))
    });
    contents.zeroes.iter().copied().chain(parts).all(|range| disk.contains(range))
}

/// The pages begin between two sectors of the disk, so that its last sector lies partly beyond its end.
#[test]
fn pages_that_do_not_begin_with_a_sector_do_not_count() {
    for (phase, number) in [(100, 0), (100, 64), (4000, 64), (513, 63)] {
        let mut header = forged(0, 1, &page(number, 1 << 7));
        for sectors in 0..=u8::MAX {
            let body = page(number, sectors);
            header[PAGE_LEN..PAGE_LEN + 16].copy_from_slice(&body);
            header[14..16].copy_from_slice(&u16::to_le_bytes(phase));
            let checksum = crc32c(&body);
            header[80..84].copy_from_slice(&checksum.to_le_bytes());
            seal(header.first_chunk_mut().expect("a page"));
            let on_it = decoded(&header).is_none_or(|(head, body)| is_on_the_disk(&head, &body));
            assert!(on_it, "sectors {sectors:#x} of page {number}, from {phase} on");
        }
    }
}

proptest! {
    #[test]
    fn bytes_that_nobody_wrote_are_no_header(
        bytes in prop::collection::vec(any::<u8>(), 2 * PAGE_LEN)
    ) {
        prop_assert_eq!(decoded(&bytes), None);
    }

    #[test]
    fn a_forged_header_says_nothing_beyond_the_disk(
        zeroes in 0..300_u32,
        pages in 0..12_u32,
        phase in (0..8_u16).prop_map(|sector| sector * SECTOR as u16),
        numbers in prop::collection::vec(prop_oneof![0..200_u64, any::<u64>()], 0..8),
        entries in prop::collection::vec(any::<u8>(), 0..256),
    ) {
        let mut body: Vec<u8> =
            numbers.iter().flat_map(|n| n.wrapping_mul(SECTOR).to_le_bytes()).collect();
        body.extend(entries);
        let mut header = forged(zeroes, pages, &body);
        header[14..16].copy_from_slice(&phase.to_le_bytes());
        seal(header.first_chunk_mut().expect("a page"));
        if let Some((head, contents)) = decoded(&header) {
            prop_assert_eq!(contents.zeroes.len() as u32, zeroes);
            prop_assert!(is_on_the_disk(&head, &contents));
        }
    }

    /// Bytes of a valid journal are changed, and its pages are sealed again.
    #[test]
    fn a_hostile_journal_is_put_in_place_as_it_stands_or_not_at_all(
        changes in prop::collection::vec((0..JOURNAL_PAGES, 0..160_usize, any::<u8>()), 1..12),
    ) {
        let mut disk = Disk::new(0);
        disk.record(head(1), &[ByteRange::at(0, 8192)], &[(1, 0xff, 1), (2, 0x0f, 2)]);
        disk.record(head(2), &[], &[(1, 0xff, 3), (5, 0xff, 4)]);
        let bytes = &mut disk.journal.bytes;
        for (page, at, byte) in changes {
            bytes[page * PAGE_LEN + at] = byte;
        }
        for window in 1..=2 {
            let at = shape().header(window).start as usize;
            let count = u32_at(bytes, at + 72).saturating_add(u32_at(bytes, at + 76)) as usize;
            let rest = &bytes[at + PAGE_LEN..shape().header(window).end as usize];
            let checksum = crc32c(&rest[..count.saturating_mul(16).min(rest.len())]);
            bytes[at + 80..at + 84].copy_from_slice(&checksum.to_le_bytes());
        }
        for page in bytes.chunks_exact_mut(PAGE_LEN) {
            let page: &mut Page = page.try_into().expect("a page");
            if page.starts_with(b"FBJRNL") {
                seal(page);
            }
        }
        if disk.repair().is_ok() {
            let image = disk.primary.bytes.clone();
            let again = disk.repair().expect("it was a journal");
            prop_assert_eq!(again.windows, 0);
            prop_assert_eq!(disk.primary.bytes, image);
        }
    }
}
