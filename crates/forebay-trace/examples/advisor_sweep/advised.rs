//! What is advised beside the best that a sweep finds: every block size and policy of the engine, sizes a third apart.

use forebay_core::config::GridOffset;
use forebay_trace::Error;
use forebay_trace::advise::{self, Disk, Known, Latency, Settings, Share, Verdict, Writes};
use forebay_trace::mrc::{self, Curve, Sample};
use forebay_trace::record::Record;
use serde::Serialize;

use super::of;
use super::traces::Trace;

const BLOCK_SIZES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
const POLICIES: [&str; 3] = ["auto", "s3fifo", "lru"];
/// Caches are multiples of the largest block.
const STEP: u64 = 64 << 10;
/// Sizes of the sweep, the smallest a hundredth of the largest.
const SIZES: usize = 17;
/// Of primary storage.
const BACKEND_NS: f64 = 5_000_000.0;
const PLENTY: u64 = 1 << 40;

#[derive(Serialize)]
pub struct Row {
    trace: &'static str,
    /// What there is.
    limits: Share,
    verdict: Verdict,
    /// None: no read cache.
    advised: Option<Cache>,
    best: Cache,
    /// The mean of reads as advised, and the least of the sweep.
    mean_ns: f64,
    best_mean_ns: f64,
    ratio: f64,
}

#[derive(Clone, Serialize)]
struct Cache {
    ram: u64,
    flash: u64,
    block_size: u64,
    policy: String,
}

/// With flash as it likes, with flash for a quarter of what it touches, and with RAM for a twentieth over flash as it likes.
pub fn rows(trace: &Trace, records: &[Record]) -> Result<Vec<Row>, Error> {
    let known = Known { backend: Some(Latency::of_mean(BACKEND_NS)), ..Known::default() };
    let sizes = |percent| mrc_size(records, percent);
    let (quarter, twentieth) = (sizes(25)?, sizes(5)?);
    // One study knows all limits.
    let studied = Settings { ram: twentieth, flash: quarter, known };
    let disk = advise::study(trace.name, || Ok(of(records)), &studied)?;
    let limits = [(0, PLENTY), (0, quarter), (twentieth, PLENTY)];
    let limits = limits.map(|(ram, flash)| Share { ram, flash });
    let advices = limits.map(|Share { ram, flash }| {
        // Flash is for reads here: what a write log would take is not in the sweep.
        let mut disk = disk.clone();
        disk.info.summary.writes = 0;
        advise::advise(&[disk], &Settings { ram, flash, known }).map(|mut all| all.remove(0))
    });
    let advices = advices.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let mut tried: Vec<u64> = vec![quarter, twentieth];
    let plans = advices.iter().filter_map(|advice| advice.plan.as_ref());
    tried.extend(plans.flat_map(|plan| [plan.ram, plan.flash]));
    let curves = sweep(&disk, records, tried)?;
    let row = |(limits, advice): (Share, advise::Advice)| {
        assert_eq!(advice.writes, Writes::Few, "it has none");
        let advised = advice.plan.map(|plan| {
            let advise::Plan { ram, flash, block_size, policy, .. } = plan;
            Cache { ram, flash, block_size, policy }
        });
        let mean_ns = advised.as_ref().map_or(BACKEND_NS, |cache| {
            let is_it =
                |of: &&Curve| of.block_size == cache.block_size && of.policy == cache.policy;
            let curve = curves.iter().find(is_it).expect("the sweep has all that is advised");
            mean_ns(&disk, curve, cache.ram, cache.flash)
        });
        let (best_mean_ns, best) = best(&disk, &curves, limits);
        let ratio = mean_ns / best_mean_ns;
        let verdict = advice.verdict;
        Row { trace: trace.name, limits, verdict, advised, best, mean_ns, best_mean_ns, ratio }
    };
    Ok(limits.into_iter().zip(advices).map(row).collect())
}

fn mrc_settings(
    policies: &[&str],
    sizes: Vec<u64>,
    grid_offset: u64,
) -> Result<mrc::Settings, Error> {
    Ok(mrc::Settings {
        policies: policies.iter().map(|policy| policy.parse()).collect::<Result<_, Error>>()?,
        block_sizes: BLOCK_SIZES.to_vec(),
        cache_sizes: sizes,
        sample: Sample::Exact,
        grid_offset: GridOffset::Fixed(grid_offset),
    })
}

/// A share of what a trace touches in pieces of 4 KiB.
fn mrc_size(records: &[Record], percent: u64) -> Result<u64, Error> {
    let settings =
        mrc::Settings { block_sizes: vec![4096], ..mrc_settings(&["lru"], vec![STEP], 0)? };
    let curve = mrc::curves(|| Ok(of(records)), &settings)?.remove(0);
    Ok((curve.footprint * percent / 100).max(STEP) / STEP * STEP)
}

/// Caches filled as the engine fills them, up to one that holds everything.
fn sweep(disk: &Disk, records: &[Record], mut sizes: Vec<u64>) -> Result<Vec<Curve>, Error> {
    let largest = disk.curves.iter().map(|curve| curve.footprint).max().unwrap_or(STEP);
    let grid_offset = disk.curves.first().map_or(0, |curve| curve.grid_offset);
    let third_less = |size: &f64| Some(size * 0.75).filter(|&less| less >= STEP as f64);
    let ladder = std::iter::successors(Some(largest as f64), third_less).take(SIZES);
    sizes.extend(ladder.map(|size| size as u64));
    sizes.iter_mut().for_each(|size| *size = size.next_multiple_of(STEP));
    sizes.retain(|&size| size > 0);
    sizes.sort_unstable();
    sizes.dedup();
    let settings = mrc_settings(&POLICIES, sizes, grid_offset)?;
    Ok(mrc::curves_of_engine(|| Ok(of(records)), &settings)?.0)
}

fn mean_ns(disk: &Disk, curve: &Curve, ram: u64, flash: u64) -> f64 {
    let hits = |size: u64| {
        let point = curve.points.iter().find(|point| point.cache_size == size);
        point.map_or(0.0, |point| point.read_request_hit_ratio.expect("it was exact"))
    };
    let (in_ram, all) = (hits(ram), hits(ram.max(flash)));
    disk.latencies.reads(in_ram, (all - in_ram).max(0.0), 0.0).mean_ns
}

fn best(disk: &Disk, curves: &[Curve], limits: Share) -> (f64, Cache) {
    let mut found: Option<(f64, Cache)> = None;
    for curve in curves {
        let within = |limit: u64| {
            let sizes = curve.points.iter().map(|point| point.cache_size);
            [0].into_iter().chain(sizes.filter(move |&size| size <= limit))
        };
        for ram in within(limits.ram) {
            for flash in within(limits.flash) {
                let mean = mean_ns(disk, curve, ram, flash);
                if found.as_ref().is_none_or(|(least, _)| mean < *least) {
                    let (policy, block_size) = (curve.policy.clone(), curve.block_size);
                    found = Some((mean, Cache { ram, flash, block_size, policy }));
                }
            }
        }
    }
    found.expect("there are curves, and no cache is among the choices")
}
