//! The description of a trace: how long, how much of what, where, when, and how often again.
//!
//! ```text
//! record ─┬► Summary, lengths                      ─┐
//!         ├► its device: streams, alignment         ─┤
//!         ├► windows of time: requests, distinct    ─┼─► Info
//!         ├► regions of the disks: requests          ─┤
//!         ├► cells of position and time: requests    ─┤
//!         └► reuse distances of a sample            ─┘
//! ```
//! It reads a trace once. **Memory** does not grow with its length: windows and regions grow instead when they would
//! become too many, sets are sampled. It grows with the number of devices (some hundred bytes each), and where exact
//! reuse distances are asked for, with what the trace touches.

mod alignment;
mod map;
mod regions;
mod windows;

use std::collections::BTreeMap;

use forebay_core::alignment::AlignmentDetector;
use forebay_core::config::GridOffset;
use forebay_core::geometry::{ByteRange, PAGE};
use serde::Serialize;

use crate::error::Error;
use crate::mrc::{Lanes, Lru, Sample};
use crate::record::{Record, Summary};
pub use alignment::alignments;
use map::Maps;
pub use map::{Cell, Map};
pub use regions::Region;
use regions::Regions;
pub use windows::Window;
use windows::Windows;

/// Distinct lengths that are counted one by one; others are counted as the next power of two.
const LENGTHS_MAX: usize = 16_384;
/// Requests before one that it may go on from.
const STREAMS: usize = 16;
/// Regions and lengths in the report.
const TOLD: usize = 8;

/// See the module.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Info {
    /// Requests, bytes, span and duration.
    #[serde(flatten)]
    pub summary: Summary,
    /// Reads of all requests.
    pub read_share: f64,
    /// Of all requests.
    pub lengths: Lengths,
    /// Each by itself.
    pub devices: Vec<Device>,
    /// Nanoseconds of a window.
    pub window_ns: u64,
    /// From the beginning of the trace, without gaps.
    pub windows: Vec<Window>,
    /// How often again.
    pub reuse: Reuse,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// The regions in which most requests begin.
    pub hottest: Vec<Region>,
    /// Where and when requests begin, of the first 32 devices.
    pub maps: Vec<Map>,
}

/// Bytes of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Lengths {
    /// The shortest.
    pub min: u32,
    /// Of all requests.
    pub mean: f64,
    /// As long as half of them, at most.
    pub p50: u32,
    /// As long as 99 % of them, at most.
    pub p99: u32,
    /// The longest.
    pub max: u32,
    /// The most common, with the number of requests.
    pub common: Vec<(u32, u64)>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Device {
    /// Its number in the trace.
    pub device: u32,
    /// What it was asked.
    #[serde(flatten)]
    pub summary: Summary,
    /// Requests that begin where the one before ended, of all.
    pub sequential: f64,
    /// Requests that begin where one of the sixteen before ended, of all.
    pub sequential_of_16: f64,
    /// Where its data lie.
    pub alignment: Alignment,
}

/// Where the data of a guest lie on its disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alignment {
    /// The byte offset that a grid should have; `None`: requests do not agree, or are too few.
    pub grid_offset: Option<u64>,
    /// Requests of whole pages: only they tell.
    pub requests: u32,
    /// Of those, how many agree.
    pub agree: u32,
}

/// How often, and how soon, the same is used again, in pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reuse {
    /// Share of the pages whose reuse was looked at.
    pub sample: f64,
    /// Bytes of the distinct pages.
    pub footprint: u64,
    /// Pages read or written, all of them.
    pub uses: u64,
    /// Uses that are the first, of all.
    pub first: f64,
    /// Uses with other pages of fewer than this many bytes used since the last time, of all: powers of two, those
    /// from the one before on.
    pub distances: Vec<(u64, f64)>,
}

/// Tells what a trace is; `is_exact`: with every reuse distance.
///
/// # Errors
/// The trace's own, and too many distinct pages for exact distances.
pub fn info(
    records: impl Iterator<Item = Result<Record, Error>>,
    is_exact: bool,
) -> Result<Info, Error> {
    let mut gathered = Gathered::new(is_exact);
    for record in records {
        gathered.add(&record?)?;
    }
    Ok(gathered.info())
}

#[derive(Debug)]
struct Gathered {
    summary: Summary,
    lengths: BTreeMap<u32, u64>,
    devices: BTreeMap<u32, OneDevice>,
    windows: Windows,
    regions: Regions,
    maps: Maps,
    reuse: Lanes<Lru>,
    pages: u64,
}

#[derive(Debug, Default)]
struct OneDevice {
    summary: Summary,
    alignment: AlignmentDetector,
    following: u64,
    following_of_16: u64,
    /// Where the latest requests ended, in a ring.
    ends: [Option<u64>; STREAMS],
}

impl Gathered {
    fn new(is_exact: bool) -> Gathered {
        let sample = if is_exact { Sample::Exact } else { Sample::Auto };
        Gathered {
            summary: Summary::default(),
            lengths: BTreeMap::new(),
            devices: BTreeMap::new(),
            windows: Windows::default(),
            regions: Regions::default(),
            maps: Maps::default(),
            reuse: Lanes::new(PAGE, GridOffset::Fixed(0), Lru::new(sample, PAGE)),
            pages: 0,
        }
    }

    fn add(&mut self, record: &Record) -> Result<(), Error> {
        self.summary.add(record);
        let is_known = self.lengths.len() < LENGTHS_MAX || self.lengths.contains_key(&record.len);
        let len = if is_known { record.len } else { record.len.next_power_of_two() };
        *self.lengths.entry(len).or_default() += 1;
        self.devices.entry(record.device).or_default().add(record);
        self.windows.add(record);
        self.regions.add(record);
        self.maps.add(record);
        self.pages += (record.end() - 1) / PAGE - record.offset / PAGE + 1;
        self.reuse.add(record)
    }

    fn info(self) -> Info {
        let requests = self.summary.reads + self.summary.writes;
        Info {
            summary: self.summary,
            read_share: ratio(self.summary.reads, requests),
            lengths: lengths(&self.lengths, &self.summary),
            devices: self.devices.iter().map(|(&device, of)| of.told(device)).collect(),
            window_ns: self.windows.width_ns(),
            windows: self.windows.told(),
            reuse: reuse(&self.reuse, self.pages),
            region_bytes: self.regions.size(),
            hottest: self.regions.hottest(TOLD),
            maps: self.maps.told(),
        }
    }
}

impl OneDevice {
    fn add(&mut self, record: &Record) {
        let seen = (self.summary.reads + self.summary.writes) as usize;
        let latest = self.ends[seen.wrapping_sub(1) % STREAMS];
        self.following += u64::from(latest == Some(record.offset));
        self.following_of_16 += u64::from(self.ends.contains(&Some(record.offset)));
        self.ends[seen % STREAMS] = Some(record.end());
        self.summary.add(record);
        self.alignment.observe(ByteRange::at(record.offset, u64::from(record.len)));
    }

    fn told(&self, device: u32) -> Device {
        let requests = self.summary.reads + self.summary.writes;
        let (_, agree) = self.alignment.most();
        Device {
            device,
            summary: self.summary,
            sequential: ratio(self.following, requests),
            sequential_of_16: ratio(self.following_of_16, requests),
            alignment: Alignment {
                grid_offset: self.alignment.verdict(),
                requests: self.alignment.samples(),
                agree,
            },
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn lengths(counts: &BTreeMap<u32, u64>, summary: &Summary) -> Lengths {
    let all: u64 = counts.values().sum();
    let quantile = |percent: u64| {
        let mut seen = 0;
        let mut reached = counts.iter().filter(|(_, count)| {
            seen += **count;
            seen * 100 >= all * percent
        });
        reached.next().map_or(0, |(&len, _)| len)
    };
    let mut common: Vec<_> = counts.iter().map(|(&len, &count)| (len, count)).collect();
    common.sort_by_key(|&(len, count)| (std::cmp::Reverse(count), len));
    common.truncate(TOLD);
    Lengths {
        min: counts.keys().next().copied().unwrap_or(0),
        mean: ratio(summary.read_bytes + summary.written_bytes, all),
        p50: quantile(50),
        p99: quantile(99),
        max: summary.len_max,
        common,
    }
}

fn reuse(of: &Lanes<Lru>, uses: u64) -> Reuse {
    let footprint = of.footprint();
    let doublings = (footprint / PAGE).next_power_of_two().ilog2();
    let sizes: Vec<u64> = (0..=doublings).map(|n| PAGE << n).collect();
    let mut before = 0.0;
    let mut distances = Vec::new();
    for point in of.points(&sizes) {
        let hits = if uses == 0 { 0.0 } else { 1.0 - point.miss_ratio };
        distances.push((point.cache_size, hits - before));
        before = hits;
    }
    let first = if uses == 0 { 0.0 } else { 1.0 - before };
    Reuse { sample: of.method().1, footprint, uses, first, distances }
}

#[cfg(test)]
mod tests;
