//! The pages of its target that a trace touches: to fill them beforehand, and to count reads of
//! pages that were never written.
//!
//! Of pages of 4 KiB there is a bit each, 64 of them in a word: 100 GiB that are touched all over take 20 MiB.

use std::collections::BTreeMap;

use forebay_core::geometry::{ByteRange, PAGE};

use crate::error::Error;
use crate::record::{Op, Record};

/// Pages of a word.
const PAGES: u64 = 64;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    all: Pages,
    /// Read before they were written.
    read_first: Pages,
}

impl Touched {
    /// Counts a record.
    pub fn add(&mut self, record: &Record) {
        let pages = record.offset / PAGE..record.end().div_ceil(PAGE);
        for page in pages {
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

    /// All that is touched on a target of `size` bytes; what lies beyond is folded back.
    pub(super) fn all(&self, size: u64) -> Vec<ByteRange> {
        self.all.ranges(size)
    }

    /// Pages that are read before they are written.
    pub(super) fn read_first(&self, size: u64) -> Vec<ByteRange> {
        self.read_first.ranges(size)
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

    /// In order, those in a row together, up to the pages of a word.
    fn ranges(&self, size: u64) -> Vec<ByteRange> {
        let last = size.div_ceil(PAGE).max(1);
        let mut folded = Pages::default();
        let of_word = |(&word, &bits): (&u64, &u64)| {
            (0..PAGES).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * PAGES + bit)
        };
        let beyond = self.0.range(last / PAGES..).flat_map(of_word).filter(|page| *page >= last);
        for page in beyond {
            folded.insert(page % last);
        }
        let within = self.0.iter().flat_map(of_word).filter(|page| *page < last);
        let mut pages: Vec<u64> = within.chain(folded.0.iter().flat_map(of_word)).collect();
        if !folded.0.is_empty() {
            pages.sort_unstable();
            pages.dedup();
        }
        let mut ranges: Vec<ByteRange> = Vec::new();
        for page in pages {
            let (start, end) = (page * PAGE, ((page + 1) * PAGE).min(size));
            match ranges.last_mut() {
                Some(range) if range.end == start && range.len() < PAGES * PAGE => range.end = end,
                _ if start < end => ranges.push(ByteRange::new(start, end)),
                _ => {}
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn touched(records: &[(Op, u64, u32)]) -> Touched {
        let mut touched = Touched::default();
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
        let touched = touched(&[
            (Op::Write, 8 * KIB, 4096),
            (Op::Read, 8 * KIB + 512, 4096),
            (Op::Read, 512 * KIB, 300 << 10),
        ]);
        let all = [(8, 16), (512, 768), (768, 812)];
        assert_eq!(in_kib(touched.all(1 << 30)), all);
        assert_eq!(in_kib(touched.read_first(1 << 30)), [(12, 16), (512, 768), (768, 812)]);
    }

    #[test]
    fn what_lies_beyond_the_end_is_folded_back() {
        let touched = touched(&[(Op::Read, 16 * KIB, 4096), (Op::Read, 60 * KIB, 12 << 10)]);
        assert_eq!(in_kib(touched.all(64 * KIB)), [(0, 8), (16, 20), (60, 64)]);
        // The last page is a part of one.
        let last = touched.all(62 * KIB).pop().unwrap();
        assert_eq!((last.start, last.end), (60 * KIB, 62 * KIB));
    }
}
