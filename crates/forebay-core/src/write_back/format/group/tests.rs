use proptest::prelude::*;

use super::*;
use crate::write_back::format::page_start;

fn header() -> GroupHeader {
    GroupHeader {
        disk: Uuid([7; 16]),
        generation: Generation(3),
        number: GroupNumber(120),
        first_sequence: Sequence(4000),
        durable: Sequence(0),
        nonce: 0xdead_beef,
        phase: 0,
    }
}

fn write(start: u64, len: u64) -> Entry {
    Entry {
        range: ByteRange::at(start, len),
        epoch: FlushEpoch(5),
        kind: RecordKind::Write,
        more: false,
    }
}

fn filled(entries: &[Entry], phase: u16) -> Page {
    let mut page = [0xee; PAGE_LEN];
    begin(&mut page, &GroupHeader { phase, ..header() });
    for entry in entries {
        let checksums: Vec<u32> =
            (0..entry.data_pages(phase)).map(|k| crc_of(entry, k as u32)).collect();
        append(&mut page, entry, &checksums);
    }
    page
}

fn crc_of(entry: &Entry, page: u32) -> u32 {
    !((entry.range.start as u32).wrapping_mul(31) ^ page)
}

fn read_back(view: &GroupView<'_>) -> Vec<Entry> {
    let phase = view.header().phase;
    for (_, first_page, entry) in view.entries() {
        for k in 0..entry.data_pages(phase) as u32 {
            assert_eq!(view.checksum(first_page + k), crc_of(&entry, k));
        }
    }
    view.entries().map(|(_, _, entry)| entry).collect()
}

#[test]
fn data_pages_mirror_the_disk_at_the_phase_of_its_grid() {
    let check = |start, len, phase, pages, first: i64| {
        assert_eq!(data_pages(ByteRange::at(start, len), phase), pages, "{start} {len} {phase}");
        assert_eq!(page_start(start, phase), first, "{start} {len} {phase}");
    };
    check(0, 512, 0, 1, 0);
    check(512, 4096, 0, 2, 0);
    check(4096, 4096, 0, 1, 4096);
    check(3584, 4096, 3584, 1, 3584);
    check(0, 512, 3584, 1, -512);
    check(0, 4096, 3584, 2, -512);
    check(1 << 61, 8192, 512, 3, (1 << 61) - 3584);
}

#[test]
fn a_header_page_bounds_the_group() {
    let mut layout = GroupLayout::default();
    while layout.fits(1, 1) {
        layout.add(1);
    }
    assert_eq!((layout.entries, layout.pages()), (111, 112));
    assert!(GroupLayout::default().fits(1, DATA_PAGES_MAX));
    assert!(!GroupLayout::default().fits(1, DATA_PAGES_MAX + 1));
    assert!(GroupLayout::default().fits(ENTRIES_MAX, 0));
    assert!(!GroupLayout::default().fits(ENTRIES_MAX + 1, 0));
    assert!(!GroupLayout { entries: 1, data_pages: 1 }.fits(u32::MAX, u32::MAX));
    assert_eq!((ENTRIES_MAX, DATA_PAGES_MAX), (125, 992));
}

#[test]
fn a_full_group_reads_back() {
    let entries: Vec<Entry> = (0..111).map(|i| write(i << 20, 4096)).collect();
    let mut page = filled(&entries, 0);
    seal(&mut page, Sequence(3999));
    let view = GroupView::sealed(&page).unwrap();
    assert_eq!(read_back(&view), entries);
    assert_eq!(view.header(), &GroupHeader { durable: Sequence(3999), ..header() });
    assert_eq!(view.entries().nth(2).unwrap().0, Sequence(4002));

    let large = [write(512, u64::from(DATA_PAGES_MAX) * 4096 - 512)];
    let mut page = filled(&large, 0);
    seal(&mut page, Sequence(0));
    assert_eq!(read_back(&GroupView::sealed(&page).unwrap()), large);
}

#[test]
fn every_flipped_bit_and_every_truncation_is_detected() {
    let mut page = filled(&[write(512, 9000 / 512 * 512), write(1 << 30, 512)], 512);
    seal(&mut page, Sequence(12));
    for bit in 0..PAGE_LEN * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(GroupView::sealed(&page).unwrap_err(), GroupInvalid::Absent, "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
    // The last byte is one of a checksum that does not end in a zero.
    assert_ne!(page[PAGE_LEN - 1], 0);
    for cut in 0..PAGE_LEN {
        let mut cut_off = page;
        cut_off[cut..].fill(0);
        assert_eq!(GroupView::sealed(&cut_off).unwrap_err(), GroupInvalid::Absent, "cut at {cut}");
    }
}

#[test]
fn a_staged_group_has_the_entries_that_were_published() {
    let entries = [write(512, 4096), Entry { more: true, ..write(0, 512) }, write(8192, 512)];
    for count in 0..=entries.len() {
        let page = filled(&entries[..count], 0);
        let view = GroupView::staged(&page).unwrap();
        assert_eq!(read_back(&view), &entries[..count]);
        assert_eq!(GroupView::sealed(&page).unwrap_err(), GroupInvalid::Absent);
        // An entry that was written but not counted is none.
        let mut ahead = filled(&entries, 0);
        ahead[12] = count as u8;
        assert_eq!(read_back(&GroupView::staged(&ahead).unwrap()), &entries[..count]);
    }
    let mut sealed = filled(&entries, 0);
    seal(&mut sealed, Sequence(7));
    assert_eq!(read_back(&GroupView::staged(&sealed).unwrap()), entries);
    assert_eq!(GroupView::staged(&[0; PAGE_LEN]).unwrap_err(), GroupInvalid::Absent);
}

#[test]
fn impossible_fields_are_refused() {
    let check = |at: usize, bytes: &[u8], expect: &str| {
        let mut page = filled(&[write(512, 4096), write(1 << 30, 512)], 0);
        page[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut page, Sequence(12));
        assert_eq!(GroupView::sealed(&page).unwrap_err().to_string(), expect, "{at}");
    };
    check(12, &[126, 0], "the group header has an impossible number of entries");
    check(12, &[255, 255], "the group header has an impossible number of entries");
    check(14, &[9, 0], "the group header has an impossible number of data pages");
    check(40, &[255; 8], "the group header has an impossible number");
    check(48, &[255; 8], "the group header has an impossible first sequence");
    check(72, &[1, 0], "the group header has an impossible phase");
    check(96, &[1], "the group header has an impossible range of an entry");
    check(96, &[255; 16], "the group header has an impossible range of an entry");
    check(104, &[0; 8], "the group header has an impossible range of an entry");
    check(104, &[0, 0, 0, 0, 0, 1, 0, 0], "the group header has an impossible length of an entry");
    check(112, &[6], "the group header has an impossible epoch of an entry");
    check(120, &[1], "the group header has an impossible first data page of an entry");
    check(122, &[3], "the group header has an impossible kind of an entry");
    check(123, &[2], "the group header has an impossible flag of an entry");
}

#[test]
#[should_panic(expected = "the group is full")]
fn one_record_too_many_is_a_bug() {
    filled(&vec![write(0, 4096); 112], 0);
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let entry = (0..1_u64 << 40, 1..2000_u64, 0..3_u8, any::<bool>()).prop_map(
        |(start, sectors, kind, more)| {
            let zero = kind == 0;
            let len = sectors * 512 * if zero { 1 << 20 } else { 1 };
            let kind = if zero { RecordKind::Zero } else { RecordKind::Write };
            Entry { kind, more, ..write(start * 512, len) }
        },
    );
    proptest::collection::vec(entry, 1..130)
}

proptest! {
    #[test]
    fn what_is_appended_is_read_back(mut entries in entries(), phase in 0..8_u16, epoch in 0..9_u64) {
        let phase = phase * 512;
        let mut layout = GroupLayout::default();
        let fitting = entries.iter().take_while(|entry| {
            let pages = entry.data_pages(phase) as u32;
            let fits = layout.fits(1, pages);
            if fits { layout.add(pages); }
            fits
        }).count();
        prop_assume!(fitting > 0);
        entries.truncate(fitting);
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.epoch = FlushEpoch(epoch * index as u64);
        }
        let mut page = filled(&entries, phase);
        prop_assert_eq!(read_back(&GroupView::staged(&page).unwrap()), entries.clone());
        seal(&mut page, Sequence(1));
        let view = GroupView::sealed(&page).unwrap();
        prop_assert_eq!(read_back(&view), entries);
        prop_assert_eq!(view.layout(), layout);
    }

    #[test]
    fn a_random_page_under_a_right_checksum_never_panics(
        mut page in proptest::collection::vec(any::<u8>(), PAGE_LEN),
        changes in proptest::collection::vec((0..300_usize, any::<u8>()), 0..8),
        from_valid in any::<bool>(),
    ) {
        let page: &mut Page = page.as_mut_slice().try_into().unwrap();
        if from_valid {
            *page = filled(&[write(512, 4096), write(1 << 30, 512)], 0);
            seal(page, Sequence(12));
        }
        for (at, byte) in changes {
            page[at] = byte;
        }
        page[..8].copy_from_slice(MAGIC);
        sealed::seal(page);
        for view in [GroupView::sealed(page), GroupView::staged(page)].into_iter().flatten() {
            prop_assert_eq!(view.entries().count() as u32, view.layout().entries);
            let _ = (0..view.layout().data_pages).map(|index| view.checksum(index)).max();
        }
    }
}
