//! Records put in place by a start.

use super::*;
use crate::journal::repair::{RepairError, look};
use crate::journal::{Repaired, superblock::Invalid};

/// Pages of the journal.
pub(super) const JOURNAL_PAGES: usize = 2 + 2 * (1 + 2 + 8);

/// The medium died.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Died;

/// Bytes, of which only what was flushed outlives a death.
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Writes, zeroes and flushes until it dies.
    left: u64,
    done: Vec<String>,
    /// A write of somebody else: where, which byte.
    late: Option<(u64, u8)>,
}

impl Memory {
    fn new(bytes: Vec<u8>) -> Memory {
        Memory { durable: bytes.clone(), bytes, left: u64::MAX, done: Vec::new(), late: None }
    }

    fn step(&mut self, drawn: String) -> Result<(), Died> {
        self.left = self.left.checked_sub(1).ok_or(Died)?;
        self.done.push(drawn);
        Ok(())
    }
}

impl Medium for Memory {
    type Error = Died;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Died> {
        let from = self.bytes.get(at as usize..at as usize + bytes.len()).ok_or(Died)?;
        bytes.copy_from_slice(from);
        if let Some((when, byte)) = self.late
            && when == at
        {
            // It lands when this was read once.
            self.late = None;
            self.bytes[at as usize] = byte;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Died> {
        self.step(format!("W {at}+{}", bytes.len()))?;
        self.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&mut self, range: ByteRange) -> Result<(), Died> {
        self.step(format!("Z {}+{}", range.start, range.len()))?;
        self.bytes[range.start as usize..range.end as usize].fill(0);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Died> {
        self.step("F".to_owned())?;
        self.durable.clone_from(&self.bytes);
        Ok(())
    }
}

/// Primary storage whose bytes are 0xDD, and its journal.
pub(super) struct Disk {
    pub(super) journal: Memory,
    pub(super) primary: Memory,
}

impl Disk {
    pub(super) fn new(retired: u64) -> Disk {
        Disk::of_shape(shape(), retired)
    }

    fn of_shape(shape: Shape, retired: u64) -> Disk {
        let mut journal = vec![0; shape.size() as usize];
        let page = encoded(&Superblock { shape, ..superblock(retired) });
        journal[PAGE_LEN..2 * PAGE_LEN].copy_from_slice(&page);
        let primary = vec![0xDD; SIZE as usize];
        Disk { journal: Memory::new(journal), primary: Memory::new(primary) }
    }

    /// Writes a record: its zeroes, and its pages with their sectors and the byte that they hold.
    pub(super) fn record(&mut self, head: Head, zeroes: &[ByteRange], pages: &[(u64, u8, u8)]) {
        self.record_of(shape(), head, zeroes, pages);
    }

    fn record_of(
        &mut self,
        shape: Shape,
        head: Head,
        zeroes: &[ByteRange],
        pages: &[(u64, u8, u8)],
    ) {
        let entries = pages.iter().map(|&(page, sectors, byte)| entry(page, sectors, byte));
        let contents = Contents { zeroes: zeroes.to_vec(), pages: entries.collect() };
        let header = header(head, &contents);
        self.put(shape.header(head.window).start, &header);
        for (number, &(_, _, byte)) in pages.iter().enumerate() {
            let place = shape.payload(head.window, number as u32, 1);
            self.put(place.start, &[byte; PAGE_LEN]);
        }
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.journal.bytes[at as usize..][..bytes.len()].copy_from_slice(bytes);
        self.journal.durable.clone_from(&self.journal.bytes);
    }

    /// A page of the payload of a window is not what its header says.
    fn tear(&mut self, shape: Shape, window: u64) {
        self.put(shape.payload(window, 0, 1).start, b"torn");
    }

    pub(super) fn repair(&mut self) -> Result<Repaired, RepairError<Died, Died>> {
        put_in_place(&mut self.journal, &mut self.primary, OWNER, SIZE)
    }

    /// Puts the records in place: the windows that were whole, and how many records were not.
    fn repaired(&mut self) -> (u32, u32) {
        let found = look::<_, Died>(&mut self.journal, OWNER, SIZE).expect("a journal");
        let came = self.repair().expect("a journal");
        assert_eq!(Repaired { superblock: came.superblock, ..found }, came);
        (came.windows, came.ignored)
    }

    /// The byte that each of these pages begins with.
    fn pages<const N: usize>(&self, pages: [usize; N]) -> [u8; N] {
        pages.map(|page| self.primary.bytes[page * PAGE_LEN])
    }

    /// The power fails: what was not flushed is gone, or only some of it.
    fn lose_power(&mut self, keeps: impl Fn(usize) -> bool) {
        for medium in [&mut self.journal, &mut self.primary] {
            for (number, sector) in medium.bytes.chunks_exact_mut(SECTOR as usize).enumerate() {
                if !keeps(number) {
                    let at = number * SECTOR as usize;
                    sector.copy_from_slice(&medium.durable[at..at + SECTOR as usize]);
                }
            }
            medium.durable.clone_from(&medium.bytes);
            medium.left = u64::MAX;
        }
    }
}

/// Three windows over the same pages in a journal of three slots: zeroes under pages, parts of pages.
fn three_windows() -> Disk {
    let shape = Shape::new(3, 8).expect("a shape");
    let mut disk = Disk::of_shape(shape, 6);
    disk.record_of(shape, head(8), &[ByteRange::at(4096, 8192)], &[(1, 0x0f, 2), (4, 0xff, 2)]);
    disk.record_of(shape, head(7), &[], &[(1, 0xff, 1), (2, 0xff, 1), (3, 0xff, 1)]);
    disk.record_of(shape, head(9), &[ByteRange::at(512, 512)], &[(4, 0b0101_1010, 3)]);
    disk
}

#[test]
fn whole_records_go_in_place_in_the_order_of_their_windows() {
    let mut disk = three_windows();
    assert_eq!(disk.repaired(), (3, 0));
    let mut expected = vec![0xDD; SIZE as usize];
    expected[512..1024].fill(0);
    expected[4096..6144].fill(2);
    expected[6144..12288].fill(0);
    expected[12288..16384].fill(1);
    expected[16384..20480].fill(2);
    for sector in [1, 3, 4, 6] {
        expected[16384 + sector * 512..][..512].fill(3);
    }
    assert!(disk.primary.bytes == expected);
}

#[test]
fn what_was_found_is_told() {
    let mut disk = three_windows();
    let came = disk.repair().expect("a journal");
    let last = came.last.expect("a record");
    assert_eq!((last.window, last.through), (9, Sequence(90)));
    assert_eq!(came.bytes, 6 * PAGE);
    assert_eq!((came.superblock.version, came.superblock.retired), (2, 9));
    let bytes = &disk.journal.bytes;
    let copies = [first_page(bytes), first_page(&bytes[PAGE_LEN..])];
    assert_eq!(Superblock::choose(copies), Ok(came.superblock));
}

#[test]
fn zeroes_lie_under_the_pages_of_their_record_and_over_earlier_ones() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(1, 0xff, 1), (2, 0xff, 1)]);
    disk.record(head(2), &[ByteRange::at(4096, 8192)], &[(2, 0xf0, 2)]);
    assert_eq!(disk.repaired(), (2, 0));
    assert_eq!(
        disk.primary.done,
        ["W 4096+4096", "W 8192+4096", "Z 4096+8192", "W 10240+2048", "F"]
    );
}

#[test]
fn sectors_of_a_page_that_do_not_count_stay_as_they_are() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(3, 0b1000_0110, 1)]);
    assert_eq!(disk.repaired(), (1, 0));
    assert_eq!(disk.primary.done, ["W 12800+1024", "W 15872+512", "F"]);
}

#[test]
fn pages_begin_where_the_header_says() {
    let mut disk = Disk::new(0);
    let head = head(1).on_pages_from(1024);
    disk.record(head, &[], &[(0, 0b1100_0000, 1), (1, 0b0000_0001, 2), (64, 0b0000_0011, 3)]);
    assert_eq!(disk.repaired(), (1, 0));
    assert_eq!(disk.primary.done, ["W 0+1024", "W 1024+512", "W 259072+1024", "F"]);
}

#[test]
fn long_records_go_in_place_piece_by_piece() {
    let shape = Shape::new(2, 600).expect("a shape");
    let mut disk = Disk::of_shape(shape, 0);
    // More pages than are read at once, of which those of one page of the disk are written one after the other.
    let pages: Vec<_> = (0..600).map(|n| (n % 64, 0xff, (n % 251) as u8)).collect();
    disk.record_of(shape, head(1), &[], &pages);
    assert_eq!(disk.repaired(), (1, 0));
    let last = pages.iter().rev().find(|page| page.0 == 5).expect("it is written").2;
    assert_eq!(disk.pages([5]), [last]);
    assert_eq!(disk.primary.done.len(), 601);
}

#[test]
fn nothing_behind_a_gap_goes_in_place() {
    let shape = Shape::new(4, 8).expect("a shape");
    let mut disk = Disk::of_shape(shape, 4);
    for window in [5, 6, 8] {
        disk.record_of(shape, head(window), &[], &[(window, 0xff, window as u8)]);
    }
    assert_eq!(disk.repaired(), (2, 1));
    assert_eq!(disk.pages([5, 6, 8]), [5, 6, 0xDD]);
}

#[test]
fn a_torn_record_is_a_gap() {
    let shape = Shape::new(3, 8).expect("a shape");
    for (torn, expected, in_place) in [
        (9, (2, 1), [0, 2]),
        (8, (1, 2), [1, 0xDD]),
        // The one before it is complete: its slot was to be used again.
        (7, (2, 1), [0, 2]),
    ] {
        let mut disk = three_windows();
        disk.tear(shape, torn);
        assert_eq!(disk.repaired(), expected, "window {torn} is torn");
        assert_eq!(disk.pages([2, 4]), in_place, "window {torn} is torn");
        assert_eq!(disk.repaired(), (0, 0), "it does not count later");
    }
}

#[test]
fn a_header_that_is_torn_is_nothing() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(1, 0xff, 1)]);
    disk.record(head(2), &[], &[(2, 0xff, 2)]);
    disk.put(shape().header(2).start + 100, b"torn");
    assert_eq!(disk.repaired(), (1, 0));
    assert_eq!(disk.pages([1, 2]), [1, 0xDD]);
}

#[test]
fn entries_that_are_torn_are_ignored() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(1, 0xff, 1)]);
    disk.put(shape().header(1).start + PAGE, b"torn");
    assert_eq!(disk.repaired(), (0, 1));
    assert_eq!(disk.primary.done, ["F"]);
}

#[test]
fn retired_records_stay_where_they_are() {
    for retired in [2, 5, 1 << 40] {
        let mut disk = Disk::new(retired);
        disk.record(head(1), &[], &[(1, 0xff, 1)]);
        disk.record(head(2), &[], &[(2, 0xff, 2)]);
        assert_eq!(disk.repaired(), (0, 0));
        assert_eq!(disk.pages([1, 2]), [0xDD, 0xDD]);
    }
}

#[test]
fn only_records_that_are_not_retired_go_in_place() {
    let mut disk = Disk::new(1);
    disk.record(head(1), &[], &[(1, 0xff, 1)]);
    disk.record(head(2), &[], &[(2, 0xff, 2)]);
    assert_eq!(disk.repaired(), (1, 0));
    assert_eq!(disk.pages([1, 2]), [0xDD, 2]);
}

#[test]
fn a_stale_record_whose_slot_was_used_again_stays_where_it_is() {
    let mut disk = Disk::new(0);
    // Window 4 took the slot of 2, and that write was lost; 5 has the slot of 3.
    disk.record(head(2), &[], &[(1, 0xff, 2)]);
    disk.record(head(5), &[], &[(5, 0xff, 5)]);
    assert_eq!(disk.repaired(), (1, 1));
    assert_eq!(disk.pages([1, 5]), [0xDD, 5]);
}

#[test]
fn a_record_in_the_slot_of_another_window_does_not_count() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(1, 0xff, 1)]);
    let slot = shape().header(1).start as usize..shape().payload(1, 0, 8).end as usize;
    let bytes = disk.journal.bytes[slot].to_vec();
    disk.put(shape().header(2).start, &bytes);
    disk.put(shape().header(1).start, &[0; PAGE_LEN]);
    assert_eq!(disk.repaired(), (0, 0));
}

#[test]
fn a_journal_of_another_owner_is_refused() {
    let mut disk = three_windows();
    let owner = Owner { nonce: OWNER.nonce + 1, ..OWNER };
    let came = put_in_place(&mut disk.journal, &mut disk.primary, owner, SIZE);
    assert!(matches!(came, Err(RepairError::NotItsOwn { found: OWNER })), "{came:?}");
    assert!(disk.primary.done.is_empty() && disk.journal.done.is_empty());
}

#[test]
fn records_under_an_earlier_nonce_do_not_count() {
    let mut disk = Disk::new(0);
    let earlier = Owner { nonce: OWNER.nonce - 1, ..OWNER };
    disk.record(Head::new(earlier, Generation(3), 1, Sequence(1)), &[], &[(1, 0xff, 1)]);
    assert_eq!(disk.repaired(), (0, 0));
}

#[test]
fn bytes_that_are_no_journal_are_refused() {
    let mut disk = Disk::new(0);
    disk.put(PAGE, &[0; PAGE_LEN]);
    let came = disk.repair();
    assert!(matches!(came, Err(RepairError::Invalid(Invalid::Damaged))), "{came:?}");
}

#[test]
fn a_journal_that_is_cut_off_is_an_error() {
    let mut disk = three_windows();
    disk.journal.bytes.truncate(shape().header(1).start as usize + PAGE_LEN);
    assert!(matches!(disk.repair(), Err(RepairError::Journal(Died))));
}

#[test]
fn a_window_that_reaches_beyond_primary_storage_is_neither_ignored_nor_retired() {
    // The older window has room, the newer one has not: of the newer one a part may be in place.
    for zeroes in [&[ByteRange::at(SIZE - 512, 512)][..], &[]] {
        let mut disk = Disk::new(0);
        disk.record(head(1), &[], &[(1, 0xff, 1)]);
        disk.record(head(2), zeroes, &[(if zeroes.is_empty() { 63 } else { 2 }, 0x80, 2)]);
        disk.primary.bytes.truncate(SIZE as usize - 512);
        let cut =
            |came| matches!(came, Err(RepairError::Cut { end: SIZE, size }) if size == SIZE - 512);
        assert!(cut(look::<_, Died>(&mut disk.journal, OWNER, SIZE - 512)));
        let came = put_in_place(&mut disk.journal, &mut disk.primary, OWNER, SIZE - 512);
        assert!(matches!(came, Err(RepairError::Cut { .. })), "{came:?}");
        assert!(disk.primary.done.is_empty() && disk.journal.done.is_empty());
        disk.primary.bytes.resize(SIZE as usize, 0xDD);
        assert_eq!(disk.repaired(), (2, 0), "it has its length back");
    }
}

#[test]
fn a_write_that_lands_late_in_the_journal_does_not_reach_primary_storage() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(1, 0xff, 1), (2, 0xff, 1)]);
    let place = shape().payload(1, 0, 2).start;
    disk.journal.late = Some((place, 7));
    assert!(matches!(disk.repair(), Err(RepairError::Changed)));
    assert!(disk.primary.done.is_empty(), "{:?}", disk.primary.done);
    // The record was written over, so that its window was complete.
    assert_eq!(disk.repaired(), (0, 1));
}

#[test]
fn what_is_in_place_is_flushed_before_it_is_retired() {
    let mut disk = Disk::new(0);
    disk.record(head(1), &[], &[(1, 0xff, 1)]);
    disk.primary.left = 1;
    assert!(matches!(disk.repair(), Err(RepairError::Primary(Died))));
    assert_eq!(disk.journal.done, ["F"]);
    disk.primary.left = u64::MAX;
    assert_eq!(disk.repaired(), (1, 0));
    assert_eq!(disk.primary.done.last().map(String::as_str), Some("F"));
    assert_eq!(disk.journal.done, ["F", "F", "W 0+4096", "F"]);
}

#[test]
fn a_record_is_durable_before_any_of_it_goes_in_place() {
    for steps in 0..4 {
        let mut disk = Disk::new(0);
        let before = disk.journal.durable.clone();
        disk.record(head(1), &[], &[(1, 0xff, 1), (3, 0xff, 1), (5, 0xff, 1)]);
        // The kill came before its flush.
        disk.journal.durable = before;
        disk.primary.left = steps;
        let came = disk.repair();
        assert!(matches!(came, Err(RepairError::Primary(Died))), "{came:?}");
        // Primary storage keeps all that reached it, the journal only what was flushed.
        disk.primary.durable.clone_from(&disk.primary.bytes);
        disk.lose_power(|_| false);
        assert_eq!(disk.repaired(), (1, 0), "{steps}");
        assert_eq!(disk.pages([1, 3, 5]), [1, 1, 1]);
    }
}

#[test]
fn a_second_repair_finds_nothing() {
    let mut disk = three_windows();
    assert_eq!(disk.repaired(), (3, 0));
    let image = disk.primary.bytes.clone();
    let version = disk.repair().expect("a journal").superblock.version;
    assert_eq!(disk.repaired(), (0, 0));
    assert_eq!(disk.repair().expect("a journal").superblock.version, version);
    assert!(disk.primary.bytes == image);
}

/// The next run begins with lower numbers than theirs, and writes payload below their headers.
#[test]
fn torn_records_are_retired_however_far_behind_the_retired_ones_are() {
    let mut disk = Disk::new(3);
    for window in [10, 11] {
        disk.record(head(window), &[], &[(window, 0xff, window as u8)]);
        disk.tear(shape(), window);
    }
    assert_eq!(disk.repaired(), (0, 2));
    for window in [10, 11] {
        disk.put(shape().payload(window, 0, 1).start, &[window as u8; PAGE_LEN]);
    }
    assert_eq!(disk.repaired(), (0, 0));
    assert_eq!(disk.pages([10, 11]), [0xDD, 0xDD]);
}

#[test]
fn a_record_of_the_last_window_leaves_a_journal_that_can_be_read() {
    let mut disk = Disk::new(0);
    let last = Head::new(OWNER, Generation(3), (1 << 62) - 1, Sequence(1));
    disk.record(last, &[], &[(1, 0xff, 1)]);
    assert_eq!(disk.repaired(), (1, 0));
    assert_eq!(disk.repaired(), (0, 0));
}

/// Cuts a repair after any number of writes and flushes of either medium, then does it again.
fn check_cut_anywhere(made: impl Fn() -> Disk, lose_power: impl Fn(&mut Disk)) {
    let mut whole = made();
    whole.repaired();
    let steps = (whole.primary.done.len() as u64, whole.journal.done.len() as u64);
    let cuts = (0..steps.0).map(|cut| (cut, u64::MAX));
    for (primary, journal) in cuts.chain((0..steps.1).map(|cut| (u64::MAX, cut))) {
        let mut disk = made();
        (disk.primary.left, disk.journal.left) = (primary, journal);
        assert!(disk.repair().is_err(), "{primary} {journal}");
        lose_power(&mut disk);
        disk.repaired();
        let is_same = disk.primary.bytes == whole.primary.bytes;
        assert!(is_same, "cut after {primary} steps in place, {journal} in the journal");
        disk.lose_power(|_| false);
        let is_durable = disk.primary.bytes == whole.primary.bytes;
        assert!(is_durable, "cut after {primary} steps in place, {journal} in the journal");
        assert_eq!(disk.repaired(), (0, 0));
    }
}

#[test]
fn a_repair_that_is_killed_anywhere_and_done_again_gives_the_same_image() {
    check_cut_anywhere(three_windows, |disk| disk.lose_power(|_| true));
}

#[test]
fn a_repair_that_power_cuts_anywhere_and_that_is_done_again_gives_the_same_image() {
    check_cut_anywhere(three_windows, |disk| disk.lose_power(|_| false));
    for seed in 0..16 {
        let keeps = move |sector: usize| crc32c(&[(sector as u8), seed]).is_multiple_of(2);
        check_cut_anywhere(three_windows, |disk| disk.lose_power(keeps));
    }
}

#[test]
fn a_repair_beside_a_torn_record_that_is_cut_and_done_again_gives_the_same_image() {
    let made = || {
        let mut disk = three_windows();
        disk.tear(Shape::new(3, 8).expect("a shape"), 9);
        disk
    };
    check_cut_anywhere(made, |disk| disk.lose_power(|_| false));
    check_cut_anywhere(made, |disk| disk.lose_power(|sector| sector % 3 == 0));
}
