mod life;

use proptest::prelude::*;

use super::marks::Marks;
use super::page::{self, Claim, PageFlags, PageHeader, PageWriter, RECORDS_MAX, Record};
use super::walk::Walk;
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, Generation, SlotId, Uuid};
use crate::sealed::{PAGE_LEN, Page, seal};

const DISK: Uuid = Uuid([7; 16]);
const NONCE: u64 = 99;

fn header(number: u64) -> PageHeader {
    PageHeader {
        disk: DISK,
        generation: Generation(3),
        nonce: NONCE,
        number,
        durable: number - 1,
        tail: 1,
        walk: (5, 6),
        grid_offset: 3584,
        flags: PageFlags::EMPTY.with(PageFlags::MARKED),
    }
}

#[test]
fn records_come_back_as_they_were_written() {
    for granules in [1, 2, 16, 32, 33, 64] {
        let checksums: Vec<u32> = (0..granules).map(|n| n * 1_000_003).collect();
        let valid = GranuleMask::span(granules / 2, granules);
        let mut page: Page = [0; PAGE_LEN];
        let mut writer = PageWriter::new(&mut page);
        writer.marks(17, 0xf0f0);
        writer.free(SlotId(4));
        writer.claim(SlotId(9), BlockIndex(1234), valid, true, &checksums);
        let used = 12 + 4 + page::claim_len(granules, valid.count());
        assert_eq!(writer.used(), used);
        writer.finish(&header(2));
        assert_eq!(page::decode(&page, DISK, NONCE), Some(header(2)));
        assert_eq!(page::decode(&page, DISK, NONCE + 1), None, "of another ring");
        assert_eq!(page::decode(&page, Uuid([8; 16]), NONCE), None, "of another disk");
        let read: Vec<Record<'_>> =
            page::records(&page, granules).map(|record| record.unwrap()).collect();
        assert_eq!(read[..2], [Record::Marks { word: 17, bits: 0xf0f0 }, Record::Free(SlotId(4))]);
        let Record::Claim(claim) = read[2] else { panic!("{read:?}") };
        let Claim { slot, block, valid: there, referenced, .. } = claim;
        assert_eq!((slot, block, there), (SlotId(9), BlockIndex(1234), valid));
        assert!(referenced && read.len() == 3);
        let expect: Vec<(u32, u32)> =
            (granules / 2..granules).map(|n| (n, checksums[n as usize])).collect();
        assert_eq!(claim.checksums().collect::<Vec<_>>(), expect);
        page[200] ^= 1;
        assert_eq!(page::decode(&page, DISK, NONCE), None, "torn");
    }
}

#[test]
fn a_mark_that_comes_while_its_word_of_a_new_ring_is_recorded_is_not_durable() {
    let mut marks = Marks::new(40, 16);
    let region = ByteRange::at(3 << 16, 4096);
    // Primary storage is flushed before the ring has its first batch.
    marks.mark_all();
    marks.turn();
    marks.clear_old();
    for is_durable in [false, true] {
        marks.take_all();
        while marks.take_changed().is_some() {}
        assert!(!marks.mark(region), "the batch under way says nothing of it yet");
        marks.on_durable();
        assert_eq!(marks.mark(region), is_durable);
    }
}

proptest! {
    #[test]
    fn bytes_that_are_no_records_end_in_an_error(
        bytes in proptest::collection::vec(any::<u8>(), RECORDS_MAX),
        used in any::<u16>(),
        granules in 1_u32..=64,
    ) {
        let mut page: Page = [0; PAGE_LEN];
        PageWriter::new(&mut page).finish(&header(1));
        page[14..16].copy_from_slice(&used.to_le_bytes());
        page[PAGE_LEN - RECORDS_MAX..].copy_from_slice(&bytes);
        seal(&mut page);
        prop_assert!(page::decode(&page, DISK, NONCE).is_some());
        let read: Vec<_> = page::records(&page, granules).collect();
        let errors = read.iter().filter(|record| record.is_err()).count();
        prop_assert!(errors == 0 || errors == 1 && read.last().is_some_and(Result::is_err));
        if usize::from(used) > RECORDS_MAX {
            prop_assert_eq!(read.len(), 1);
        }
    }

    #[test]
    fn nothing_below_the_tail_of_a_walk_counts(
        positions in 1_u32..5000,
        pages in proptest::collection::vec(1_u32..600, 1..200),
    ) {
        let mut walk = Walk::new(positions);
        let mut said = vec![1_u64; positions as usize];
        for (number, count) in (1_u64..).zip(pages) {
            for _ in 0..count.min(positions) {
                said[walk.at() as usize] = number;
                walk.advance(number);
            }
            let oldest = *said.iter().min().expect("a position");
            prop_assert!(walk.tail() <= oldest, "{} is said in page {oldest}", walk.tail());
        }
    }

    #[test]
    fn a_region_is_durably_marked_only_while_the_last_durable_page_says_so(
        is_new in any::<bool>(),
        steps in proptest::collection::vec((0_u8..5, 0_u64..40, 1_u64..6), 1..300),
    ) {
        let mut marks = Marks::new(40, 16);
        // What the ring on flash says, and the batch under way.
        let (mut on_flash, mut batch): (u64, Option<u64>) = (0, None);
        let mut at_the_turn = 0_u64;
        if is_new {
            marks.mark_all();
            at_the_turn = u64::MAX;
        }
        for (step, first, count) in steps {
            let end = (first + count).min(40);
            let bits = u64::MAX >> (64 - (end - first)) << first;
            match step {
                0 | 1 => {
                    if marks.mark(ByteRange::new(first << 16, end << 16)) {
                        prop_assert_eq!(on_flash & bits, bits, "written without a mark");
                    }
                    at_the_turn &= !bits;
                }
                2 if batch.is_none() => {
                    // What is said of one word counts for it, whatever is said of all.
                    let all = marks.take_all().then_some(u64::MAX);
                    batch = marks.take_changed().map(|(_, bits)| bits).or(all);
                }
                2 => {
                    on_flash = batch.take().expect("a batch");
                    marks.on_durable();
                }
                3 => {
                    marks.turn();
                    at_the_turn = marks.word(0);
                }
                _ => {
                    let before = marks.word(0);
                    marks.clear_old();
                    let gone = before & !marks.word(0);
                    prop_assert_eq!(gone & !at_the_turn, 0, "cleared before its turn");
                }
            }
        }
    }
}
