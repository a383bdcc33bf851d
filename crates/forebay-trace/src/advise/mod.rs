//! Which cache a disk should have, from a trace of what it was asked, or that it should have none.
//!
//! ```text
//! trace ─┬► info: reads, writes over time, alignment, footprint ──────────────────────┐
//!        ├► its own latencies, where it has some ──► Latencies (model.rs)             ├► Disk
//!        └► curves of the default policy and LRU, five block sizes, sizes to the whole ┘     │ several
//!              pool of RAM and flash ──► share.rs, divide.rs: a share each ◄───────────────────┤
//! choose.rs: every cache within the share ──► the cheapest of the nearly fastest ──► Advice ◄─┘
//! writes.rs: whether a write log may help     certainty.rs: is it enough to tell    random.rs: what has no pattern
//! prove.rs:  what the engine does with it, and with what lies around it ──► the Advice that is given     words.rs: a sentence
//! ```
//! Curves propose, the engine decides. Small traces are simulated wholly for a curve, so the
//! number of hits is known. Of others a sample stands for all, and hit ratios of 4 KiB pieces
//! stand for those of requests. A file is one disk; with several devices, all of them together.

mod certainty;
mod choose;
mod divide;
mod first;
mod history;
mod model;
mod pages;
mod prediction;
mod prove;
mod random;
mod range;
mod search;
mod setup;
mod share;
mod trial;
mod words;
mod writes;

use std::cell::Cell;

use forebay_core::config::{FlashAdmission, GridOffset, Mode, SequentialBypass};
use forebay_core::geometry::PAGE;
use forebay_core::list::SLOTS_MAX;
use forebay_core::policy::PolicyKind;
use serde::Serialize;

pub use choose::{BySize, Plan, Verdict, by_size};
use choose::{Chosen, GAIN_MIN};
pub use divide::{Choice, Claim, divide};
pub use history::{Beside, beside, compared_size};
pub use model::{Latencies, Latency};
pub use prediction::{Configuration, Judgement, Outcome, Prediction, Reads};
pub use prove::{Proof, Stretch, prove};
pub use setup::Setup;
pub use share::{Share, Winner, check_reservations};
pub use writes::Writes;

pub use crate::assumed::LATENCIES_MIN;
use crate::assumed::{self, BACKEND_NS, RAM_NS};
use crate::error::Error;
use crate::info::{self, Info};
use crate::mrc::{self, Curve, Sample, sizes};
use crate::record::{Op, Record};
use crate::simulate::SimulatedPolicy;

/// Cache blocks that are tried.
const BLOCK_SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// Cache sizes are multiples of the largest.
const BLOCK_MAX: u64 = BLOCK_SIZES[BLOCK_SIZES.len() - 1];
/// The largest cache that is tried: as many of the smallest blocks as an engine takes.
const SIZE_MAX: u64 = SLOTS_MAX as u64 * BLOCK_SIZES[0] / BLOCK_MAX * BLOCK_MAX;
/// Policies that are tried: the engine's default, and the one that everybody knows.
const POLICIES: [PolicyKind; 2] = [PolicyKind::Auto, PolicyKind::Lru];
/// Traces of at most so many uses of 4 KiB pieces are simulated wholly.
const EXACT_USES_MAX: u64 = 2_000_000;
/// Times that [`study`] reads a trace.
pub const READINGS: usize = 5;
/// Times that what plans left is divided again: one gives most of it to others.
const DIVISIONS_MAX: usize = 4;
/// Longer latencies count as this one.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// The memory and flash for all disks together, and the known latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Settings {
    /// Bytes of RAM for cached data.
    pub ram: u64,
    /// Bytes of flash.
    pub flash: u64,
    /// Latencies from the caller.
    pub known: Known,
}

/// Latencies from the caller; for the others, those of the trace or a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Known {
    /// Of a hit in RAM.
    pub ram: Option<Latency>,
    /// Of a hit on flash.
    pub flash: Option<Latency>,
    /// Of a durable write to flash.
    pub flash_write: Option<Latency>,
    /// Of a read of primary storage.
    pub backend: Option<Latency>,
    /// Of a write to primary storage.
    pub backend_write: Option<Latency>,
}

impl Known {
    /// These, and where there is none those of `other`.
    #[must_use]
    pub fn or(self, other: Known) -> Known {
        Known {
            ram: self.ram.or(other.ram),
            flash: self.flash.or(other.flash),
            flash_write: self.flash_write.or(other.flash_write),
            backend: self.backend.or(other.backend),
            backend_write: self.backend_write.or(other.backend_write),
        }
    }
}

/// The input of an advice for a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Disk {
    /// What it is called.
    pub name: String,
    /// What it was asked.
    pub info: Info,
    /// What its requests take.
    pub latencies: Latencies,
    /// By policy and block size, all with the same cache sizes.
    pub curves: Vec<Curve>,
    /// LRU in blocks of 4 KiB, for its reads alone.
    pub of_reads: Curve,
    /// Uses that are of: its blocks, each as often as it is read.
    pub read_uses: u64,
    /// What it keeps at least of what there is.
    pub reserved: Share,
}

impl Disk {
    /// LRU in blocks of this size, which every study has.
    fn lru(&self, block_size: u64) -> Option<&Curve> {
        let lru = mrc::LRU.to_string();
        self.curves.iter().find(|of| of.block_size == block_size && of.policy == lru)
    }
}

/// An advice for one disk.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// What the disk is called.
    pub name: String,
    /// All of it in a sentence or two.
    pub sentence: String,
    /// Whether to cache reads.
    pub verdict: Verdict,
    /// What to do with writes.
    pub writes: Writes,
    /// What it is to be.
    #[serde(skip)]
    pub setup: Setup,
    /// The mode of `forebay run`.
    pub mode: Mode,
    /// Options of `forebay run` that carry it out; POOL stands for the flash.
    pub options: Vec<String>,
    /// The cache; none where reads are not to be cached.
    pub plan: Option<Plan>,
    /// One that would make reads faster on the mean: that what there is does not suffice for all, or for all that is used, stands
    /// against it.
    pub forgone: Option<Plan>,
    /// The disks that have what this one would gain from, the largest first; none unless that is the verdict.
    pub goes_to: Vec<Winner>,
    /// What it gets of what there is, that of it which it reserved and does not need with it.
    pub share: Share,
    /// What of that it reserved.
    pub reserved: Share,
    /// Bytes of flash whose wear is this disk's: a part of all there is, as large as its share of what the disks get.
    #[serde(skip)]
    pub flash_to_wear: u64,
    /// Other block sizes and cache sizes.
    pub alternatives: Vec<Plan>,
    /// Number of reads.
    pub reads: u64,
    /// Number of writes.
    pub write_requests: u64,
    /// All requests, without Forebay.
    pub before: Latency,
    /// All requests, as advised.
    pub after: Latency,
    /// Bytes that go to flash in a day when the cache is warm, as in the second half of the requests; none: the trace has no
    /// times, or is shorter than a second.
    pub flash_written_per_day: Option<f64>,
    /// Times that all flash there is is written in a day by this disk.
    pub drive_writes_per_day: Option<f64>,
    /// The log destages through a journal, since strict order does not keep up with the writes.
    pub needs_journal: bool,
    /// The engine's run of the trace as advised; none: nothing is advised, or it was not run yet
    /// (`prove`).
    pub proof: Option<Proof>,
    /// What was reckoned with.
    pub latencies: Latencies,
}

impl Advice {
    /// What it is advised to have.
    pub fn used(&self) -> Share {
        let (ram, flash) = self.plan.as_ref().map_or((0, 0), |plan| (plan.ram, plan.flash));
        Share { ram, flash: flash + self.writes.log_bytes() }
    }

    /// The trace has too little to advise anything from.
    pub fn is_empty(&self) -> bool {
        match self.verdict {
            Verdict::Empty => true,
            Verdict::TooLittle { wanted } => self.plan.is_none() && self.write_requests < wanted,
            Verdict::Cache
            | Verdict::NoReads
            | Verdict::Scan
            | Verdict::NoGain
            | Verdict::DoesNotFit { .. }
            | Verdict::GoesToOthers
            | Verdict::Disproved => false,
        }
    }

    /// Mean latency of its reads without Forebay, in nanoseconds: of the run, where it was run.
    pub(crate) fn uncached_read_ns(&self) -> f64 {
        let ran = self.proof.as_ref().map(|proof| proof.before.reads.mean_ns as f64);
        ran.unwrap_or(self.latencies.backend.mean_ns)
    }

    /// All requests together, in nanoseconds.
    fn latency_of_all(&self) -> f64 {
        self.after.mean_ns * (self.reads + self.write_requests) as f64
    }

    /// What it keeps at least, in words; `None`: nothing.
    pub fn reserved_words(&self) -> Option<String> {
        words::share(self.reserved)
    }

    /// The advised cache and the others, in an order for tables; true at the advised one.
    pub fn by_size(&self) -> Vec<(&Plan, bool)> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let others = self.alternatives.iter().map(|of| (of, false));
        let mut all: Vec<_> = others.chain([(plan, true)]).collect();
        all.sort_by_key(|(of, _)| {
            (of.block_size != plan.block_size, of.flash, of.ram, of.block_size)
        });
        all
    }
}

/// Studies a disk. `open` reads its trace from the beginning, [`READINGS`] times.
///
/// # Errors
/// The trace's own.
pub fn study<R>(
    name: &str,
    mut open: impl FnMut() -> Result<R, Error>,
    settings: &Settings,
) -> Result<Disk, Error>
where
    R: Iterator<Item = Result<Record, Error>>,
{
    let mut own = OwnLatencies::default();
    let looked_at = open()?.inspect(|record| own.add(record));
    let info = info::info(looked_at, false)?;
    let latencies = own.latencies(&settings.known);
    let sample = match info.reuse.uses {
        0..=EXACT_USES_MAX => Sample::Exact,
        _ => Sample::Auto,
    };
    let most = info.devices.iter().max_by_key(|of| of.summary.reads + of.summary.writes);
    let grid_offset = most.and_then(|of| of.alignment.grid_offset).unwrap_or(0);
    let mut of_curves = mrc::Settings {
        policies: vec![SimulatedPolicy::Online(PolicyKind::Lru)],
        block_sizes: BLOCK_SIZES.to_vec(),
        cache_sizes: vec![BLOCK_MAX],
        sample: Sample::Auto,
        grid_offset: GridOffset::Fixed(grid_offset),
    };
    let footprints = mrc::curves(&mut open, &of_curves)?;
    let footprints = footprints.iter().map(|curve| (curve.block_size, curve.footprint));
    let log = writes::of(&info, &latencies, settings.flash).log_bytes();
    let limits = [settings.ram, settings.flash, settings.flash - log];
    of_curves.cache_sizes = cache_sizes(sizes::chosen(footprints), &limits);
    let is_no_write =
        |record: &Result<Record, Error>| !matches!(record, Ok(Record { op: Op::Write, .. }));
    let (read_uses, shift) = (Cell::new(0), PAGE - grid_offset % PAGE);
    let count = |record: &Result<Record, Error>| {
        let Ok(record) = record else { return };
        let (start, end) = (record.offset + shift, record.end() + shift);
        read_uses.set(read_uses.get() + end.div_ceil(PAGE) - start / PAGE);
    };
    let reads = || Ok(open()?.filter(is_no_write).inspect(&count));
    let of_pieces = mrc::Settings { block_sizes: vec![BLOCK_SIZES[0]], ..of_curves.clone() };
    let of_reads = mrc::curves(reads, &of_pieces)?.remove(0);
    of_curves.policies = POLICIES.map(SimulatedPolicy::Online).to_vec();
    of_curves.sample = sample;
    let curves = mrc::curves(open, &of_curves)?;
    let (read_uses, reserved) = (read_uses.get(), Share::default());
    let name = name.to_owned();
    Ok(Disk { name, info, latencies, curves, of_reads, read_uses, reserved })
}

/// These, as far as an engine takes them, and what there is of RAM and flash, without and beside a log, where that is less
/// than the largest.
fn cache_sizes(mut chosen: Vec<u64>, limits: &[u64]) -> Vec<u64> {
    chosen.iter_mut().for_each(|size| *size = SIZE_MAX.min(*size));
    let largest = chosen.last().copied().unwrap_or(0);
    for limit in limits {
        let limit = limit / BLOCK_MAX * BLOCK_MAX;
        if (BLOCK_MAX..largest).contains(&limit) {
            chosen.push(limit);
        }
    }
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}

/// Advises all disks, that share what there is.
///
/// # Errors
/// They reserve more than there is.
pub fn advise(disks: &[Disk], settings: &Settings) -> Result<Vec<Advice>, Error> {
    let reserved: Vec<Share> = disks.iter().map(|disk| disk.reserved).collect();
    check_reservations(&reserved, settings)?;
    let within = |most: &[Share]| -> Vec<Advice> {
        let each = disks.iter().zip(share::shares(disks, settings, most));
        each.map(|(disk, (writes, share))| faster(disk, writes, share)).collect()
    };
    let total = |advices: &[Advice]| -> f64 { advices.iter().map(Advice::latency_of_all).sum() };
    let mut most = vec![Share { ram: u64::MAX, flash: u64::MAX }; disks.len()];
    let mut advices = within(&most);
    for _ in 0..DIVISIONS_MAX {
        // What a plan leaves of its share, such as flash below RAM that holds everything, is for the others.
        for (most, advice) in most.iter_mut().zip(&advices) {
            let Some(plan) = &advice.plan else { continue };
            let used = advice.used();
            if used.ram < advice.share.ram {
                most.ram = plan.ram;
            }
            if used.flash < advice.share.flash {
                most.flash = plan.flash;
            }
        }
        let again = within(&most);
        if total(&again) >= total(&advices) {
            break;
        }
        advices = again;
    }
    share::divide_wear(settings, &mut advices);
    share::tell_who_won(disks, settings, &mut advices);
    Ok(advices)
}

/// The engine's setup for `plan`, and a log of so many bytes.
fn setup(disk: &Disk, plan: Option<&Plan>, log: u64) -> Setup {
    let policy = |plan: &Plan| PolicyKind::named(&plan.policy).unwrap_or(POLICIES[0]);
    Setup {
        ram: plan.map_or(0, |plan| plan.ram),
        flash: plan.map_or(0, |plan| plan.flash),
        log,
        block_size: plan.map_or(BLOCK_SIZES[0], |plan| plan.block_size),
        grid_offset: disk.curves.first().map_or(0, |curve| curve.grid_offset),
        policy: plan.map_or(POLICIES[0], policy),
        admission: FlashAdmission::Always,
        bypass: SequentialBypass::Auto,
    }
}

/// With the log, or with its flash for the cache, whichever serves all requests faster.
fn faster(disk: &Disk, writes: Writes, share: Share) -> Advice {
    let with = advice(disk, writes, share);
    if writes.log_bytes() == 0 {
        return with;
    }
    let without = advice(disk, Writes::CacheGainsMore, share);
    if without.after.mean_ns < with.after.mean_ns { without } else { with }
}

/// The advice for a disk that may have this much.
fn advice(disk: &Disk, writes: Writes, share: Share) -> Advice {
    let Chosen { verdict, plan, forgone } =
        choose::choose(disk, share.ram, share.flash - writes.log_bytes());
    let (reads, write_requests) = (disk.info.summary.reads, disk.info.summary.writes);
    let part = |of: u64| of as f64 / (reads + write_requests).max(1) as f64;
    let Latencies { backend, backend_write, .. } = disk.latencies;
    let all = |mut kinds: Vec<(f64, Latency)>, written: Latency| {
        kinds.iter_mut().for_each(|(of_reads, _)| *of_reads *= part(reads));
        kinds.push((part(write_requests), written));
        Latency::mixture(&kinds)
    };
    let before = all(vec![(1.0, backend)], backend_write);
    let kinds = plan.as_ref().map_or(vec![(1.0, backend)], |plan| plan.kinds(&disk.latencies));
    let after = all(kinds, writes.latency(&disk.latencies));
    let setup = setup(disk, plan.as_ref(), writes.log_bytes());
    let mut advice = Advice {
        name: disk.name.clone(),
        sentence: String::new(),
        verdict,
        options: setup.options(),
        writes,
        mode: setup.mode(),
        setup,
        alternatives: plan.as_ref().map_or(Vec::new(), |plan| choose::alternatives(disk, plan)),
        flash_written_per_day: None,
        drive_writes_per_day: None,
        needs_journal: false,
        proof: None,
        plan,
        forgone,
        goes_to: Vec::new(),
        share,
        flash_to_wear: share.flash,
        reserved: disk.reserved,
        reads,
        write_requests,
        before,
        after,
        latencies: disk.latencies,
    };
    advice.sentence = words::sentence(&advice);
    advice
}

/// The latencies of the trace.
#[derive(Debug, Default)]
struct OwnLatencies {
    reads: LatencyHistogram,
    writes: LatencyHistogram,
    uses: first::Uses,
}

#[derive(Debug)]
struct LatencyHistogram(hdrhistogram::Histogram<u64>);

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        let all = hdrhistogram::Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3);
        LatencyHistogram(all.expect("bounds and digits are allowed"))
    }
}

impl LatencyHistogram {
    fn latency(&self) -> Option<Latency> {
        let LatencyHistogram(all) = self;
        (all.len() >= LATENCIES_MIN)
            .then(|| Latency { mean_ns: all.mean(), p99_ns: all.value_at_quantile(0.99) as f64 })
    }
}

impl OwnLatencies {
    fn add(&mut self, record: &Result<Record, Error>) {
        let Ok(record) = record else { return };
        self.uses.add(record);
        let Record { op, latency_ns: Some(latency), .. } = *record else { return };
        let LatencyHistogram(all) = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        };
        all.saturating_record(latency);
    }

    fn latencies(&self, known: &Known) -> Latencies {
        let or = |told: Option<Latency>, ns| told.unwrap_or(Latency::of_mean(ns));
        let backend = or(known.backend.or(self.reads.latency()), BACKEND_NS);
        // What is told is of all reads.
        let uses = self.uses.latencies().filter(|_| known.backend.is_none());
        let (backend_first, backend_again) = uses.unwrap_or((backend, backend));
        let far = self.uses.far().filter(|_| known.backend.is_none());
        let ram = or(known.ram, RAM_NS);
        let written = known.backend_write.or(self.writes.latency());
        Latencies {
            ram,
            // A host on which each request takes longer is no reason to doubt its RAM.
            flash: or(known.flash, assumed::flash_ns(ram.mean_ns)),
            flash_write: or(known.flash_write, assumed::flash_write_ns(ram.mean_ns)),
            backend,
            backend_first,
            backend_again,
            backend_far: far.unwrap_or(backend),
            backend_write: written.unwrap_or(backend),
        }
    }
}

#[cfg(test)]
mod tests;
