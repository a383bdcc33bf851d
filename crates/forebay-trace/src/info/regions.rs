//! Where requests begin, by regions of the disks.
//!
//! How far requests will reach is known at the end. Regions are 1 MiB at first; when more than 8192 are in use, each
//! two become one.

use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::record::{Op, Record};

/// Regions in use at most.
const REGIONS_MAX: usize = 8192;
/// Bytes of a region at first, as a power of two.
const FIRST_SHIFT: u32 = 20;

/// Requests that begin in one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Region {
    /// Device.
    pub device: u32,
    /// First byte.
    pub start: u64,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub writes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Regions {
    shift: u32,
    /// Reads and writes, by device and number of the region.
    counts: FxHashMap<(u32, u64), [u64; 2]>,
}

impl Default for Regions {
    fn default() -> Self {
        Regions { shift: FIRST_SHIFT, counts: FxHashMap::default() }
    }
}

impl Regions {
    pub fn add(&mut self, record: &Record) {
        let counts = self.counts.entry((record.device, record.offset >> self.shift)).or_default();
        counts[match record.op {
            Op::Read => 0,
            Op::Write => 1,
        }] += 1;
        // More devices than regions: nothing is gained by larger ones.
        while self.counts.len() > REGIONS_MAX && self.shift < 63 {
            self.widen();
        }
    }

    fn widen(&mut self) {
        self.shift += 1;
        for ((device, region), [reads, writes]) in std::mem::take(&mut self.counts) {
            let counts = self.counts.entry((device, region >> 1)).or_default();
            counts[0] += reads;
            counts[1] += writes;
        }
    }

    pub fn size(&self) -> u64 {
        1 << self.shift
    }

    /// The `number` regions with most requests, most first.
    pub fn hottest(&self, number: usize) -> Vec<Region> {
        let region = |(&(device, region), &[reads, writes]): (&(u32, u64), &[u64; 2])| Region {
            device,
            start: region << self.shift,
            reads,
            writes,
        };
        let mut regions: Vec<Region> = self.counts.iter().map(region).collect();
        let order = |of: &Region| (std::cmp::Reverse(of.reads + of.writes), of.device, of.start);
        regions.sort_by_key(order);
        regions.truncate(number);
        regions
    }
}
