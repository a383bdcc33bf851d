//! The pages of its target that a replay touches: to fill them beforehand, and to count reads of
//! pages that were never written. What is too long for a replay touches none.
//!
//! Of pages of 4 KiB there is a bit each, 64 of them in a word: 100 GiB that are touched all over take 20 MiB.

use std::collections::BTreeMap;

use forebay_core::geometry::{ByteRange, PAGE};

use super::place::place;
use crate::error::Error;
use crate::record::{Op, Record};

/// Pages of a word.
const PAGES: u64 = 64;

/// See the module.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Of the target, and of its logical blocks.
    size: u64,
    block: u64,
    all: Pages,
    /// Read before they were written.
    read_first: Pages,
}

impl Touched {
    /// None yet, of a target of `size` bytes with logical blocks of `block` bytes.
    pub fn new(size: u64, block: u32) -> Touched {
        let (all, read_first) = (Pages::default(), Pages::default());
        Touched { size, block: block.into(), all, read_first }
    }

    /// Counts a record where a replay has it.
    pub fn add(&mut self, record: &Record) {
        let Some(place) = place(record, self.size, self.block) else { return };
        for page in place.range.start / PAGE..place.range.end.div_ceil(PAGE) {
            let is_new = self.all.insert(page);
            if is_new && record.op == Op::Read {
                self.read_first.insert(page);
            }
        }
    }

    /// Counts records on their way.
    pub fn counted<'a>(
        &'a mut self,
        records: impl Iterator<Item = Result<Record, Error>> + 'a,
    ) -> impl Iterator<Item = Result<Record, Error>> + 'a {
        records.inspect(|record| {
            if let Ok(record) = record {
                self.add(record);
            }
        })
    }

    /// All that is touched.
    pub(super) fn all(&self) -> Vec<ByteRange> {
        self.all.ranges(self.size / self.block * self.block)
    }

    /// Pages that are read before they are written.
    pub(super) fn read_first(&self) -> Vec<ByteRange> {
        self.read_first.ranges(self.size)
    }
}

/// A set of pages.
#[derive(Clone, Debug, Default)]
struct Pages(BTreeMap<u64, u64>);

impl Pages {
    /// True when it is new.
    fn insert(&mut self, page: u64) -> bool {
        let word = self.0.entry(page / PAGES).or_default();
        let bit = 1 << (page % PAGES);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// On a target of `size` bytes, in order, those in a row together, up to the pages of a word.
    fn ranges(&self, size: u64) -> Vec<ByteRange> {
        let of_word = |(&word, &bits): (&u64, &u64)| {
            (0..PAGES).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * PAGES + bit)
        };
        let mut ranges: Vec<ByteRange> = Vec::new();
        for page in self.0.iter().flat_map(of_word) {
            let (start, end) = (page * PAGE, ((page + 1) * PAGE).min(size));
            match ranges.last_mut() {
                Some(range) if range.end == start && range.len() < PAGES * PAGE => range.end = end,
                _ => ranges.push(ByteRange::new(start, end)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn touched(size: u64, records: &[(Op, u64, u32)]) -> Touched {
        let mut touched = Touched::new(size, 512);
        for &(op, offset, len) in records {
            touched.add(&Record { time_ns: 0, op, offset, len, device: 0, latency_ns: None });
        }
        touched
    }

    fn in_kib(ranges: Vec<ByteRange>) -> Vec<(u64, u64)> {
        ranges.into_iter().map(|range| (range.start / KIB, range.end / KIB)).collect()
    }

    #[test]
    fn pages_in_a_row_are_one_range_and_what_was_written_first_is_not_read_first() {
        let records = [
            (Op::Write, 8 * KIB, 4096),
            (Op::Read, 8 * KIB + 512, 4096),
            (Op::Read, 512 * KIB, 300 << 10),
        ];
        let touched = touched(1 << 30, &records);
        let all = [(8, 16), (512, 768), (768, 812)];
        assert_eq!(in_kib(touched.all()), all);
        assert_eq!(in_kib(touched.read_first()), [(12, 16), (512, 768), (768, 812)]);
    }

    #[test]
    fn what_lies_beyond_the_end_is_where_the_replay_moves_it() {
        let records =
            [(Op::Read, 16 * KIB, 4096), (Op::Read, 60 * KIB, 12 << 10), (Op::Read, 68 * KIB, 512)];
        assert_eq!(in_kib(touched(64 * KIB, &records).all()), [(4, 8), (16, 20), (52, 64)]);
        // The last page is a part of one.
        assert_eq!(in_kib(touched(62 * KIB, &records).all()), [(4, 8), (16, 20), (48, 62)]);
    }

    #[test]
    fn what_is_too_long_for_a_replay_is_not_touched() {
        let records = [(Op::Read, 0, 1 << 30), (Op::Write, 8 * KIB, 4096)];
        assert_eq!(in_kib(touched(4 << 30, &records).all()), [(8, 12)]);
    }
}
