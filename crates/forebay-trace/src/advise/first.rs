//! The time of primary storage for reads that no cache could have, and for those that one could.
//!
//! The first use of a place misses in any cache. Such reads may be dearer than others: an array
//! reads ahead of streams, and blocks that are read often lie close together. Then a cache gains
//! less than its hit ratio and the mean say. It takes the cheap reads away, and the dear ones
//! stay.
//!
//! It also measures reads that are far from those before them. An array that reads ahead of
//! streams does not recognise one of which most reads hit. So a miss may take as long as these,
//! however cheap it was without a cache.
//!
//! Of many pages a sample is looked at (`pages.rs`), so that memory is bounded.

use super::pages::Pages;
use super::{Latency, LatencyHistogram};
use crate::record::{Op, Record};

/// Requests that another may go on from, and how close.
const STREAMS: usize = 16;
const NEAR: u64 = 256 << 10;

/// Reads with their latencies, by whether they are the first use of something.
#[derive(Debug, Default)]
pub(super) struct Uses {
    known: Pages,
    first: LatencyHistogram,
    again: LatencyHistogram,
    /// Where the last requests ended, in a ring.
    ends: [(u32, u64); STREAMS],
    next: usize,
    far: LatencyHistogram,
}

impl Uses {
    pub fn add(&mut self, record: &Record) {
        let Record { device, offset, op, latency_ns, .. } = *record;
        let end = record.end();
        let seen = self.known.add(record);
        let is_near = |&(of, end): &(u32, u64)| of == device && offset.abs_diff(end) <= NEAR;
        let is_far = !self.ends.iter().any(is_near);
        self.ends[self.next % STREAMS] = (device, end);
        self.next += 1;
        if let (Op::Read, true, Some(latency)) = (op, is_far, latency_ns) {
            let LatencyHistogram(all) = &mut self.far;
            all.saturating_record(latency);
        }
        if let (Op::Read, true, Some(latency)) = (op, seen.any, latency_ns) {
            let LatencyHistogram(all) = if seen.new { &mut self.first } else { &mut self.again };
            all.saturating_record(latency);
        }
    }

    /// First uses, and others; `None`: too few of one kind are known.
    pub fn latencies(&self) -> Option<(Latency, Latency)> {
        self.first.latency().zip(self.again.latency())
    }

    /// Reads far from those before them, if enough are known.
    pub fn far(&self) -> Option<Latency> {
        self.far.latency()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::geometry::PAGE;

    #[test]
    fn first_uses_are_told_from_others() {
        let mut uses = Uses::default();
        let record = |piece: u64, latency| Record {
            time_ns: 0,
            op: Op::Read,
            offset: piece * PAGE,
            len: 8192,
            device: 0,
            latency_ns: Some(latency),
        };
        for round in 0..2 {
            for n in 0..2_000_000 {
                uses.add(&record(n * 2, if round == 0 { 9000 } else { 1000 }));
            }
        }
        let (first, again) = uses.latencies().unwrap();
        assert!((first.mean_ns - 9000.0).abs() < 10.0 && (again.mean_ns - 1000.0).abs() < 2.0);
        assert!(uses.far().is_none(), "they were read in order");
        for n in 0..200 {
            uses.add(&record(n * 7919, 5000));
        }
        assert!((uses.far().unwrap().mean_ns - 5000.0).abs() < 50.0);
    }
}
