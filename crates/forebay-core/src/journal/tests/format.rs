//! Bytes of a superblock and of a header.

use super::*;
use crate::journal::superblock::{Invalid, NUMBER_MAX};
use crate::journal::{WINDOW_PAGES_MAX, record, window_pages};
use crate::sealed::{seal, u32_at, u64_at};
use crate::write_back::format::GROUP_PAGES_MAX;
use crate::write_back::format::index::ZEROES_MAX;

const NOTHING: Page = [0; PAGE_LEN];

fn contents() -> Contents {
    let zeroes = vec![ByteRange::at(512, 1024), ByteRange::new(5 * PAGE, SIZE)];
    Contents { zeroes, pages: vec![entry(7, 0x0f, 1), entry(9, 0xff, 2)] }
}

/// The page with other bytes at an offset, sealed again.
fn changed(page: &Page, at: usize, bytes: &[u8]) -> Page {
    let mut page = *page;
    page[at..at + bytes.len()].copy_from_slice(bytes);
    seal(&mut page);
    page
}

#[test]
fn a_superblock_is_read_as_it_was_written() {
    for version in [1, 2, 3, NUMBER_MAX - 1] {
        let written = Superblock { version, ..superblock(version / 2) };
        let mut copies = [NOTHING; 2];
        copies[(Superblock::place(version).start / PAGE) as usize] = encoded(&written);
        assert_eq!(Superblock::choose([&copies[0], &copies[1]]), Ok(written));
    }
}

#[test]
fn the_copy_with_the_higher_version_counts() {
    for (even, odd, expected) in [(2, 1, 2), (2, 3, 3), (8, 7, 8)] {
        let of = |version| encoded(&Superblock { version, ..superblock(version) });
        let found = Superblock::choose([&of(even), &of(odd)]).expect("two copies");
        assert_eq!((found.version, found.retired), (expected, expected));
    }
}

#[test]
fn a_damaged_copy_leaves_the_other_one() {
    let (old, new) = (superblock(4), Superblock { version: 2, ..superblock(5) });
    let mut damaged = encoded(&new);
    for byte in [0, 8, 12, 20, 60, PAGE_LEN - 1] {
        damaged[byte] ^= 1;
        assert_eq!(Superblock::choose([&damaged, &encoded(&old)]), Ok(old), "byte {byte}");
        damaged[byte] ^= 1;
    }
    assert_eq!(Superblock::choose([&damaged, &encoded(&old)]), Ok(new));
}

#[test]
fn two_damaged_copies_are_no_superblock() {
    let mut damaged = encoded(&superblock(0));
    damaged[100] = 1;
    assert_eq!(Superblock::choose([&damaged, &damaged]), Err(Invalid::Damaged));
    assert_eq!(Superblock::choose([&NOTHING, &NOTHING]), Err(Invalid::Damaged));
}

#[test]
fn a_copy_in_the_place_of_the_other_one_does_not_count() {
    let page = encoded(&superblock(0));
    assert_eq!(Superblock::choose([&page, &NOTHING]), Err(Invalid::Damaged));
}

#[test]
fn a_superblock_of_another_format_is_refused_though_the_other_copy_is_not() {
    let page = encoded(&superblock(0));
    let other = changed(&page, 12, &2_u16.to_le_bytes());
    assert_eq!(Superblock::choose([&NOTHING, &other]), Err(Invalid::Format(2)));
    assert_eq!(Superblock::choose([&other, &page]), Err(Invalid::Format(2)));
}

#[test]
fn a_superblock_with_impossible_fields_is_refused() {
    let page = encoded(&superblock(0));
    let number = NUMBER_MAX.to_le_bytes();
    let cases: [(usize, &[u8], &str); 8] = [
        (40, &0_u32.to_le_bytes(), "shape"),
        (40, &1_u32.to_le_bytes(), "shape"),
        (40, &65_u32.to_le_bytes(), "shape"),
        (44, &0_u32.to_le_bytes(), "shape"),
        (44, &u32::MAX.to_le_bytes(), "shape"),
        (48, &0_u64.to_le_bytes(), "number"),
        (48, &number, "number"),
        (56, &number, "number"),
    ];
    for (at, bytes, field) in cases {
        let came = Superblock::choose([&NOTHING, &changed(&page, at, bytes)]);
        assert_eq!(came, Err(Invalid::Field(field)), "{bytes:?} at {at}");
    }
}

#[test]
fn a_slot_has_room_for_what_is_written_again_after_a_lost_session() {
    for (log, window) in [(0, 8), (64, 8), (1 << 10, 128), (1 << 30, WINDOW_PAGES_MAX)] {
        assert_eq!(window_pages(log), window);
        let shape = Shape::for_log(log);
        assert_eq!(shape.capacity(), 4 * window + GROUP_PAGES_MAX);
        assert_eq!(Shape::new(shape.slots(), shape.capacity()), Some(shape));
    }
}

#[test]
fn superblocks_headers_and_payloads_do_not_overlap() {
    for shape in [shape(), Shape::new(3, 300).expect("a shape"), Shape::for_log(1 << 16)] {
        let mut end = FIRST_SLOT * PAGE;
        for window in 0..u64::from(shape.slots()) {
            let header = shape.header(window);
            let payload = shape.payload(window, 0, shape.capacity());
            assert_eq!((header.start, payload.start), (end, header.end));
            assert!(header.len() - PAGE >= shape.entries_max() as u64 * 16);
            assert_eq!(shape.header(window + u64::from(shape.slots())), header);
            end = payload.end;
        }
        assert_eq!(shape.size(), end);
    }
}

#[test]
fn a_header_is_read_as_it_was_written() {
    for contents in [Contents::default(), contents()] {
        let header = header(head(5), &contents);
        let (found, entries) = decoded(&header).expect("a header");
        assert_eq!(entries, contents);
        assert_eq!((found.owner, found.generation), (OWNER, Generation(3)));
        assert_eq!((found.window, found.through, found.date), (5, Sequence(50), 0));
        assert_eq!(found.pages() as usize, contents.pages.len());
        assert_eq!(found.header_pages(), contents.header_pages());
    }
}

#[test]
fn a_header_of_as_many_entries_as_a_slot_has_room_for_is_read() {
    let zeroes = (0..ZEROES_MAX as u64).map(|n| ByteRange::at(n * SECTOR, SECTOR)).collect();
    let pages = (0..8).map(|page| entry(page, 0xff, page as u8)).collect();
    let full = Contents { zeroes, pages };
    let header = header(head(1), &full);
    assert_eq!(header.len() as u64, shape().header(1).len());
    assert_eq!(decoded(&header).expect("a header").1, full);
}

#[test]
fn a_header_keeps_where_its_pages_begin() {
    let contents = Contents { zeroes: Vec::new(), pages: vec![entry(0, 0x80, 1)] };
    let header = header(head(1).on_pages_from(512), &contents);
    let (found, entries) = decoded(&header).expect("a header");
    assert_eq!((found.phase, found.grid().phase()), (512, 512));
    assert_eq!(entries, contents, "the first page of the disk has one sector");
}

#[test]
fn a_length_of_zeroes_of_more_than_four_bytes_is_kept() {
    let size = 1 << 45;
    let all = ByteRange::new(0, size - 512);
    let header = header(head(1), &Contents { zeroes: vec![all], pages: Vec::new() });
    let head = Head::decode(first_page(&header), OWNER, shape()).expect("a head");
    let found = Contents::decode(&head, &header[PAGE_LEN..], size).expect("its contents");
    assert_eq!(found.zeroes, [all]);
}

#[test]
fn a_date_changes_nothing_else() {
    let contents = contents();
    let mut header = header(head(5), &contents);
    let (mut expected, _) = decoded(&header).expect("a header");
    record::date(header.first_chunk_mut().expect("a page"), 1_700_000_000);
    let (after, entries) = decoded(&header).expect("a header");
    expected.date = 1_700_000_000;
    assert_eq!(after, expected);
    assert_eq!(entries, contents);
}

#[test]
fn a_header_with_any_flipped_bit_does_not_count() {
    let contents = contents();
    let mut header = header(head(5), &contents);
    // Bytes behind the last entry are of nothing.
    let used = PAGE_LEN + 16 * (contents.zeroes.len() + contents.pages.len());
    for bit in 0..used * 8 {
        header[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(decoded(&header), None, "bit {bit}");
        header[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(decoded(&header).is_some());
}

#[test]
fn a_header_of_another_disk_or_of_an_earlier_journal_does_not_count() {
    let header = header(head(5), &contents());
    let page = first_page(&header);
    let disk = Uuid([7; 16]);
    for owner in [Owner { disk, ..OWNER }, Owner { nonce: OWNER.nonce + 1, ..OWNER }] {
        assert_eq!(Head::decode(page, owner, shape()), None);
    }
}

#[test]
fn a_superblock_keeps_its_bytes() {
    let page = encoded(&Superblock { version: 6, ..superblock(41) });
    assert_eq!(&page[..8], b"FBJRNLSB");
    assert_eq!(&page[12..16], [1, 0, 0, 0]);
    assert_eq!(&page[16..32], b"disk-uuid-golden");
    assert_eq!(u64_at(&page, 32), 0x0123_4567_89ab_cdef);
    assert_eq!((u32_at(&page, 40), u32_at(&page, 44)), (2, 8));
    assert_eq!((u64_at(&page, 48), u64_at(&page, 56)), (6, 41));
    assert!(page[64..].iter().all(|&byte| byte == 0));
    assert_eq!(crc32c(&page), SUPERBLOCK);
}

#[test]
fn a_header_keeps_its_bytes() {
    let mut header = header(head(5).on_pages_from(3584), &contents());
    record::date(header.first_chunk_mut().expect("a page"), 1_700_000_000);
    assert_eq!(&header[..8], b"FBJRNLWI");
    assert_eq!(&header[12..16], [1, 0, 0, 14]);
    assert_eq!(&header[16..32], b"disk-uuid-golden");
    assert_eq!(u64_at(&header, 32), 0x0123_4567_89ab_cdef);
    assert_eq!((u64_at(&header, 40), u64_at(&header, 48)), (3, 5));
    assert_eq!((u64_at(&header, 56), u64_at(&header, 64)), (50, 1_700_000_000));
    assert_eq!((u32_at(&header, 72), u32_at(&header, 76)), (2, 2));
    assert_eq!(u32_at(&header, 80), crc32c(&header[PAGE_LEN..PAGE_LEN + 64]));
    assert!(header[84..PAGE_LEN].iter().all(|&byte| byte == 0));
    let at = |entry: usize, byte: usize| PAGE_LEN + 16 * entry + byte;
    assert_eq!((u64_at(&header, at(0, 0)), u64_at(&header, at(0, 8))), (512, 1024));
    assert_eq!(u64_at(&header, at(2, 0)), 7);
    assert_eq!(u32_at(&header, at(2, 8)), crc32c(&[1; PAGE_LEN]));
    assert_eq!(&header[at(2, 12)..at(3, 0)], [0x0f, 0, 0, 0]);
    assert_eq!(crc32c(&header), HEADER);
}

/// CRC32C of a superblock and of a header of format 1.
const SUPERBLOCK: u32 = 0xdfa0_06ea;
const HEADER: u32 = 0xa1e2_acd5;
