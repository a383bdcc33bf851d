//! The cache for the reads of one disk. It looks at every policy, block size and pair of tiers
//! within the limits. Of those nearly as fast as the fastest it takes the one that costs least.
//!
//! Reads that go anywhere in more than fits (`random.rs`) hit as far as they are cached. They
//! should not be cached by halves. A guest that waits for several such reads waits for one that
//! misses. The slowest of a hundred are as slow as before, until nearly all fits. There the mean
//! alone does not decide.

use forebay_core::config::{BackendTraits, Config, GridOffset};
use forebay_core::engine::metadata_bytes;
use forebay_core::geometry::PAGE;
use forebay_core::policy::PolicyKind;
use serde::Serialize;

use super::random::pattern_from;
use super::{Disk, Latencies, Latency, POLICIES, certainty};
use crate::mrc::{Curve, Point};

/// Mean latencies that are this much above the least are as good, if they cost less. (The rest of 3 % is for what a
/// sample does not show.)
const KNEE: f64 = 0.02;
/// Two that are as close as this are the same: then the default policy, and larger blocks, which need less memory.
const SAME: f64 = 0.005;
/// A byte of RAM costs as much as this many of flash.
const RAM_COST: u64 = 16;
/// Gain in mean latency of reads below which a cache is not worth it.
pub(super) const GAIN_MIN: f64 = 0.1;
/// Reads of all requests, and hits in a cache of everything, below which there is nothing to gain.
const READS_MIN: f64 = 0.01;
const HITS_MIN: f64 = 0.1;
/// Reads that hit when the cache is warm, where everything fits: p99 is that of a hit then.
const FITS: f64 = 0.99;

/// Whether reads are to be cached, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Verdict {
    /// Yes.
    Cache,
    /// Nothing is asked for.
    Empty,
    /// Unknown: the trace is too short to tell.
    TooLittle {
        /// Reads, or writes where there are only such, that it takes.
        wanted: u64,
    },
    /// No: there are hardly any.
    NoReads,
    /// No: hardly anything is read that was read or written before.
    Scan,
    /// No: what is used again does not fit.
    DoesNotFit {
        /// Bytes of cache that would help.
        needed: u64,
    },
    /// No: what there is goes to other disks.
    GoesToOthers,
    /// No: reads would hardly be faster.
    NoGain,
    /// No: curves proposed one, and the engine made too little of it, or less than nothing.
    Disproved,
}

/// A cache and what it is expected to do.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// Bytes of the RAM tier.
    pub ram: u64,
    /// Bytes of the flash tier below it.
    pub flash: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Byte offset of the grid.
    pub grid_offset: u64,
    /// Name of the policy.
    pub policy: String,
    /// Reads that hit in RAM.
    pub ram_hit_ratio: f64,
    /// Reads that hit on flash, in RAM only in part.
    pub flash_hit_ratio: f64,
    /// Reads for which primary storage is not asked: these, and those that take the bytes of an earlier one in flight.
    pub hit_ratio: f64,
    /// Reads that are the first use of something, of all reads.
    pub first_ratio: f64,
    /// Where the hit ratio is expected: from a cache that is empty at the beginning to one that is warm.
    pub hit_ratio_range: [f64; 2],
    /// The parts of the trace, and what the disk was asked besides, are alike enough to tell.
    pub is_steady: bool,
    /// Of reads.
    pub read: Latency,
    /// Where the mean of reads is expected, in nanoseconds.
    pub read_mean_range_ns: [f64; 2],
    /// Where their p99 is expected.
    pub read_p99_range_ns: [f64; 2],
    /// Bytes of RAM for metadata.
    pub metadata_bytes: u64,
}

impl Plan {
    /// Shares of reads and what they take.
    pub(super) fn kinds(&self, latencies: &Latencies) -> Vec<(f64, Latency)> {
        latencies.kinds(self.ram_hit_ratio, self.flash_hit_ratio, self.first_ratio).to_vec()
    }

    /// Expects hit ratios down to `low` and up to `high`, and what reads take then. The plan's own mean is part of that: the
    /// engine may have measured another one than the model has.
    pub(super) fn expect(&mut self, [low, high]: [f64; 2], latencies: &Latencies) {
        let range = [low.clamp(0.0, 1.0), high.clamp(0.0, 1.0)];
        let at = |hits: f64, latencies: &Latencies| {
            let in_ram = if self.flash > 0 { self.ram_hit_ratio.min(hits) } else { hits };
            latencies.reads(in_ram, hits - in_ram, self.first_ratio)
        };
        let slow = at(range[0], &latencies.without_read_ahead());
        let fast = at(range[1], latencies);
        self.hit_ratio_range = range;
        // Fewer hits are slower, unless primary storage is faster than the cache.
        let range = |one: f64, other: f64| [one.min(other), one.max(other)];
        let [low, high] = range(fast.mean_ns, slow.mean_ns);
        let mean = self.read.mean_ns;
        self.read_mean_range_ns = [low.min(mean), high.max(mean)];
        self.read_p99_range_ns = range(fast.p99_ns, slow.p99_ns);
    }

    /// The larger of the tiers, and what it is made of.
    pub(crate) fn larger(&self) -> (u64, &'static str) {
        if self.flash > 0 { (self.flash, "flash") } else { (self.ram, "RAM") }
    }
}

/// A cache, in short: which curve, sizes, and the mean of reads.
#[derive(Clone, Copy, Debug)]
struct Candidate<'a> {
    curve: &'a Curve,
    ram: u64,
    flash: u64,
    mean_ns: f64,
}

impl Candidate<'_> {
    fn cost(&self) -> u64 {
        self.ram.saturating_mul(RAM_COST).saturating_add(self.flash)
    }

    fn is_default(&self) -> bool {
        self.curve.policy == POLICIES[0].to_string()
    }

    /// Bytes of its larger tier.
    fn size(&self) -> u64 {
        self.ram.max(self.flash)
    }

    /// Reads become faster on the mean.
    fn gains(&self, disk: &Disk) -> bool {
        self.mean_ns <= disk.latencies.backend.mean_ns * (1.0 - GAIN_MIN)
    }

    /// The mean is worth something: there is a pattern ([`pattern_from`]), or it holds everything.
    fn is_worth(&self, disk: &Disk, pattern_from: u64) -> bool {
        let size = self.size();
        let fits = || {
            let hits = hit_ratios(self.curve, self.ram, self.flash).1;
            hits + warmth(counted(disk, self.curve), size) >= FITS
        };
        size >= pattern_from || size >= self.curve.footprint || fits()
    }
}

/// What was chosen for a disk.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub verdict: Verdict,
    /// The cache, where the verdict is yes.
    pub plan: Option<Plan>,
    /// One that makes reads faster on the mean, where that is no reason to have it.
    pub forgone: Option<Plan>,
}

/// The cache that a disk with these limits should have.
pub(super) fn choose(disk: &Disk, ram: u64, flash: u64) -> Chosen {
    let without = |verdict| Chosen { verdict, plan: None, forgone: None };
    let summary = &disk.info.summary;
    if summary.reads + summary.writes == 0 {
        return without(Verdict::Empty);
    }
    let wanted = certainty::REQUESTS_MIN;
    if summary.reads.max(summary.writes) < wanted {
        return without(Verdict::TooLittle { wanted });
    }
    if disk.info.read_share < READS_MIN {
        return without(Verdict::NoReads);
    }
    if summary.reads < wanted {
        return without(Verdict::TooLittle { wanted });
    }
    let best_hit = disk.curves.iter().flat_map(|curve| &curve.points).map(hit_ratio);
    if best_hit.fold(0.0, f64::max) < HITS_MIN {
        return without(Verdict::Scan);
    }
    let patterned = pattern_from(disk);
    let mut within = candidates(disk, ram, flash);
    within.retain(|of| of.gains(disk));
    let (worth, by_halves): (Vec<_>, Vec<_>) =
        within.into_iter().partition(|of| of.is_worth(disk, patterned));
    if let Some(best) = cheapest(&worth) {
        return Chosen { plan: Some(plan(disk, &best)), ..without(Verdict::Cache) };
    }
    let needed = |ram: u64, flash: u64| {
        let all = candidates(disk, ram, flash).into_iter();
        all.filter(|of| of.gains(disk) && of.is_worth(disk, patterned)).map(|of| of.size()).min()
    };
    // In flash if there is any for it, else in RAM; so, too, where others have both.
    let of_flash = if flash > 0 { needed(0, u64::MAX) } else { None };
    let of_ram = || if ram > 0 || flash == 0 { needed(u64::MAX, 0) } else { None };
    let needed = of_flash.or_else(of_ram);
    let verdict = needed.map_or(Verdict::NoGain, |needed| Verdict::DoesNotFit { needed });
    let forgone = cheapest(&by_halves).map(|best| plan(disk, &best));
    Chosen { forgone, ..without(verdict) }
}

/// Latency of all reads together with tiers of these sizes, in the blocks that are best for them; without a cache where that
/// would not be advised.
pub(super) fn total_latency(disk: &Disk, ram: u64, flash: u64) -> f64 {
    let patterned = pattern_from(disk);
    let candidates = disk.curves.iter().map(|curve| candidate(disk, curve, ram, flash));
    let worth =
        candidates.filter(|of| of.gains(disk) && of.is_worth(disk, patterned)).map(|of| of.mean_ns);
    worth.fold(disk.latencies.backend.mean_ns, f64::min) * disk.info.summary.reads as f64
}

/// Other block sizes for this cache, and this block size for caches around it.
pub(super) fn alternatives(disk: &Disk, plan: &Plan) -> Vec<Plan> {
    let same_policy = disk.curves.iter().filter(|curve| curve.policy == plan.policy);
    let mut found = Vec::new();
    for curve in same_policy {
        let mut add = |ram: u64, flash: u64| {
            found.push(self::plan(disk, &candidate(disk, curve, ram, flash)));
        };
        if curve.block_size != plan.block_size {
            add(plan.ram, plan.flash);
            continue;
        }
        let (size, tier) = plan.larger();
        let sizes: Vec<u64> = curve.points.iter().map(|point| point.cache_size).collect();
        let at = sizes.iter().position(|&of| of == size).unwrap_or(0);
        for &other in &sizes[at.saturating_sub(3)..sizes.len().min(at + 3)] {
            match tier {
                _ if other == size => {}
                "flash" => add(plan.ram.min(other), other),
                _ => add(other, 0),
            }
        }
    }
    found
}

/// The effect of caches of one block size, by their larger tier.
#[derive(Clone, Debug, PartialEq)]
pub struct BySize<'a> {
    /// Its name.
    pub policy: &'a str,
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes of the larger tier, reads that hit, and their mean in nanoseconds.
    pub points: Vec<(u64, f64, f64)>,
}

/// For all block sizes, with the policy and the tiers of `plan`; without one the default policy, and flash.
pub fn by_size<'a>(disk: &'a Disk, plan: Option<&Plan>) -> Vec<BySize<'a>> {
    let default = POLICIES[0].to_string();
    let policy = plan.map_or(&default, |plan| &plan.policy);
    let of_curve = |curve: &'a Curve| {
        let point = |point: &Point| {
            let size = point.cache_size;
            let (ram, flash) = match plan {
                Some(plan) if plan.flash == 0 => (size, 0),
                Some(plan) => (plan.ram.min(size), size),
                None => (0, size),
            };
            (size, hit_ratios(curve, ram, flash).1, mean_ns(disk, curve, ram, flash))
        };
        let points = curve.points.iter().map(point).collect();
        BySize { policy: &curve.policy, block_size: curve.block_size, points }
    };
    disk.curves.iter().filter(|curve| curve.policy == *policy).map(of_curve).collect()
}

/// All caches that may be; the first policy and the smallest blocks first.
fn candidates(disk: &Disk, ram: u64, flash: u64) -> Vec<Candidate<'_>> {
    let mut found = Vec::new();
    // Below RAM, flash that is no faster than primary storage would make reads slower.
    let flash =
        if disk.latencies.flash.mean_ns < disk.latencies.backend.mean_ns { flash } else { 0 };
    for curve in &disk.curves {
        let sizes = |limit: u64| {
            let sizes = curve.points.iter().map(|point| point.cache_size);
            [0].into_iter().chain(sizes.take_while(move |&size| size <= limit))
        };
        for ram in sizes(ram) {
            // Flash that is not larger than the RAM over it has hardly anything that RAM has not.
            for flash in sizes(flash).filter(|&flash| flash > ram || flash == 0 && ram > 0) {
                found.push(candidate(disk, curve, ram, flash));
            }
        }
    }
    found
}

fn cheapest<'a>(all: &[Candidate<'a>]) -> Option<Candidate<'a>> {
    let least = all.iter().map(|of| of.mean_ns).min_by(f64::total_cmp)?;
    let is_near = |of: &&Candidate<'_>| of.mean_ns <= least * (1.0 + KNEE);
    let cost = all.iter().filter(is_near).map(Candidate::cost).min()?;
    let as_cheap = || all.iter().filter(is_near).filter(|of| of.cost() == cost);
    let least = as_cheap().map(|of| of.mean_ns).min_by(f64::total_cmp)?;
    let same = as_cheap().filter(|of| of.mean_ns <= least * (1.0 + SAME));
    same.max_by_key(|of| (of.is_default(), of.curve.block_size)).copied()
}

/// Reads that hit; of a sample, their pieces.
pub(super) fn hit_ratio(point: &Point) -> f64 {
    point.read_request_hit_ratio.unwrap_or(point.read_hit_ratio)
}

/// Hits in RAM and hits in all of the cache.
fn hit_ratios(curve: &Curve, ram: u64, flash: u64) -> (f64, f64) {
    let of = |size: u64| curve.points.iter().find(|point| point.cache_size == size);
    let in_ram = of(ram).map_or(0.0, hit_ratio);
    (in_ram, of(ram.max(flash)).map_or(0.0, hit_ratio).max(in_ram))
}

fn candidate<'a>(disk: &Disk, curve: &'a Curve, ram: u64, flash: u64) -> Candidate<'a> {
    Candidate { curve, ram, flash, mean_ns: mean_ns(disk, curve, ram, flash) }
}

fn mean_ns(disk: &Disk, curve: &Curve, ram: u64, flash: u64) -> f64 {
    let (in_ram, all) = hit_ratios(curve, ram, flash);
    disk.latencies.reads(in_ram, all - in_ram, first_uses(counted(disk, curve))).mean_ns
}

fn plan(disk: &Disk, of: &Candidate<'_>) -> Plan {
    let &Candidate { curve, ram, flash, .. } = of;
    let (in_ram, all) = hit_ratios(curve, ram, flash);
    let first = first_uses(counted(disk, curve));
    let mut plan = Plan {
        ram,
        flash,
        block_size: curve.block_size,
        grid_offset: curve.grid_offset,
        policy: curve.policy.clone(),
        ram_hit_ratio: in_ram,
        flash_hit_ratio: all - in_ram,
        hit_ratio: all,
        hit_ratio_range: [all; 2],
        is_steady: true,
        first_ratio: first,
        read: disk.latencies.reads(in_ram, all - in_ram, first),
        read_mean_range_ns: [0.0; 2],
        read_p99_range_ns: [0.0; 2],
        metadata_bytes: metadata(disk, curve, ram, flash),
    };
    plan.expect(hit_ratio_range(disk, curve, all, ram.max(flash)), &disk.latencies);
    plan
}

/// Where the hit ratio of a cache of `size` is expected that hits `cold` when it is empty at the beginning.
fn hit_ratio_range(disk: &Disk, curve: &Curve, cold: f64, size: u64) -> [f64; 2] {
    let warm = cold + warmth(counted(disk, curve), size);
    certainty::range(curve, disk.info.summary.reads, cold, warm)
}

/// Further hits of a cache of `size` that is warm at the beginning: at most the first uses that
/// missed, of the blocks that it can have kept.
pub(super) fn warmth(curve: &Curve, size: u64) -> f64 {
    first_uses(curve) * (size as f64 / curve.footprint.max(1) as f64).min(1.0)
}

/// LRU in such blocks, with whatever is touched valid: a read that misses there is the first use of something.
fn counted<'a>(disk: &'a Disk, curve: &'a Curve) -> &'a Curve {
    disk.lru(curve.block_size).unwrap_or(curve)
}

/// Reads that are the first use of something in blocks of this size.
pub(super) fn first_uses_of(disk: &Disk, block_size: u64) -> f64 {
    disk.lru(block_size).map_or(0.0, first_uses)
}

/// Reads that miss in a cache of everything.
fn first_uses(curve: &Curve) -> f64 {
    1.0 - curve.points.iter().map(hit_ratio).fold(0.0, f64::max)
}

fn metadata(disk: &Disk, curve: &Curve, ram: u64, flash: u64) -> u64 {
    let backend = BackendTraits {
        size: disk.info.summary.span_bytes.next_multiple_of(PAGE),
        logical_block: PAGE as u32,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    let policy = PolicyKind::named(&curve.policy).unwrap_or(POLICIES[0]);
    metadata_bytes(&Config {
        block_size: curve.block_size,
        grid_offset: GridOffset::Fixed(curve.grid_offset),
        ram_bytes: ram,
        flash_bytes: flash,
        policy,
        ..Config::for_disk(backend)
    })
}
