//! The bytes of a summary, there and back.

use super::*;
use crate::geometry::ByteRange;
use crate::ids::FlushEpoch;
use crate::sealed::PAGE_LEN;
use crate::write_back::format::group::{GroupHeader, RecordKind};

const HEADER: SegmentHeader = SegmentHeader {
    disk: Uuid([3; 16]),
    generation: Generation(2),
    ordinal: 5,
    first_group: GroupNumber(7),
    first_sequence: Sequence(9),
    durable: Sequence(8),
    epoch: FlushEpoch(1),
    nonce: 11,
    segment: SegmentId(13),
    phase: 512,
};

fn entry(start: u64, len: u64, kind: RecordKind) -> Entry {
    Entry { range: ByteRange::at(start, len), epoch: FlushEpoch(4), kind, more: start == 512 }
}

fn group(entries: &[Entry]) -> (Page, u32) {
    let mut page = [0; PAGE_LEN];
    let header = GroupHeader {
        disk: HEADER.disk,
        generation: HEADER.generation,
        number: HEADER.first_group,
        first_sequence: HEADER.first_sequence,
        durable: HEADER.durable,
        nonce: HEADER.nonce,
        phase: HEADER.phase,
    };
    group::begin(&mut page, &header);
    let mut layout = GroupLayout::default();
    for entry in entries {
        let pages = entry.data_pages(HEADER.phase) as u32;
        let checksums: Vec<u32> = (0..pages).map(|n| layout.data_pages + n + 100).collect();
        group::append(&mut page, entry, &checksums);
        layout.add(pages);
    }
    group::seal(&mut page, HEADER.durable);
    (page, group_bytes(layout))
}

fn groups() -> Vec<Vec<Entry>> {
    let many = (0..111).map(|n| entry(512 + n * 4096, 4096, RecordKind::Write)).collect();
    let large = vec![entry(512, 992 * 4096, RecordKind::Write)];
    vec![vec![entry(0, 512, RecordKind::Write), entry(0, 1 << 40, RecordKind::Zero)], many, large]
}

fn summary() -> Vec<u8> {
    let mut bytes = vec![0; GROUPS as usize];
    for entries in groups() {
        let (page, len) = group(&entries);
        let at = bytes.len();
        bytes.resize(at + len as usize, 0xaa);
        add_group(&mut bytes[at..], &page);
    }
    let len = bytes.len();
    bytes.resize(len.next_multiple_of(PAGE_LEN), 0xaa);
    seal(&mut bytes, &(&HEADER).into(), 3, len as u32);
    bytes
}

#[test]
fn a_summary_has_what_the_groups_have() {
    let bytes = summary();
    let mut summary = Summary::decode(&bytes, &HEADER).unwrap();
    assert_eq!(summary.groups(), 3);
    for entries in groups() {
        let found = summary.next_group().unwrap();
        assert_eq!(found.phase, 512);
        assert!(found.entries().map(|entry| entry.unwrap().1).eq(entries));
        let pages = found.layout.data_pages;
        assert!(found.checksums().eq(100..100 + pages));
    }
    assert!(summary.next_group().is_err());
    assert!(bytes[length(&bytes, &HEADER).unwrap() as usize..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_flipped_bit_breaks_it_anywhere() {
    let whole = summary();
    let len = length(&whole, &HEADER).unwrap() as usize;
    for at in (0..len).step_by(3) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(Summary::decode(&bytes, &HEADER).is_err(), "byte {at}");
    }
    assert!(Summary::decode(&whole[..len - 1], &HEADER).is_err(), "cut");
}

#[test]
fn single_pages_and_zeroes_by_the_hundred_fit_into_what_is_kept() {
    for segment_pages in [16, 17, 99, 100, 101, 256, 4096, 1 << 18] {
        assert!(has_room(segment_pages), "{segment_pages}");
        let groups = u64::from(first_page(segment_pages) - 1);
        let spare = u64::from(pages(segment_pages)) * PAGE - u64::from(GROUPS) - groups * 36;
        assert!(spare >= 32 * groups / 50, "{segment_pages}");
    }
}
