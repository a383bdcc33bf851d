//! Miss-ratio curves of a trace: what share of its uses a cache of each size would miss.
//!
//! ```text
//! trace, first time ──► for each block size: LRU by reuse distances ─► curve, footprint ─► sizes, share to sample
//! trace, second time ─► for each block size and other policy: a small cache for every size, fed with that share
//! ```
//! The steps between the arrows run on all CPUs (`lanes`).
//!
//! | method | policies | what it is | memory |
//! |---|---|---|---|
//! | exact | lru | every reuse distance (`exact.rs`) | about 70 bytes a block, and 4 a granule |
//! | shards | lru | a sample of fixed size ([`forebay_core::mrc::Shards`]) | fixed, below 5 MiB |
//! | simulation | all | caches of the whole size | with the caches |
//! | miniature | all but lru | caches as much smaller as fewer blocks are looked at | with the small caches |
//!
//! (Miniature simulation: Waldspurger, Saemundsson, Ahmad, Park, ATC '17. Of Belady the uses that are looked at are kept.)
//!
//! **Invariant:** exact and simulated points are what [`crate::simulate`] says of that size, in all counts. Uses are
//! counted as there.
//!
//! A grid that is found from the requests (`lanes`) moves at the request where it moves in
//! [`crate::simulate`], and only for caches that are large enough. So the curve is that of one
//! grid below a size, and of another above it.

mod bound;
mod exact;
mod lanes;
mod lru;
mod miniature;
pub(crate) mod sizes;

use forebay_core::config::GridOffset;
use forebay_core::mrc::{Curve as Reuse, Snapshot, granule_size};
use forebay_core::policy::PolicyKind;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};
use crate::record::Record;
use crate::simulate::{self, SimulatedPolicy, Uses};
use bound::Sampled;
use lanes::add_all;
pub(crate) use lanes::{Lanes, key_of};
pub(crate) use lru::Lru;
use miniature::Miniatures;

/// The policy whose curve is known from reuse distances: of one reading of the trace.
pub const LRU: SimulatedPolicy = SimulatedPolicy::Online(PolicyKind::Lru);
/// Blocks that miniature simulations look at when nobody says how many.
const MINIATURE_BLOCKS: f64 = 32_768.0;

/// How much of a trace is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// 8192 blocks for LRU, as many as are needed for the other policies.
    Auto,
    /// This share of the blocks, above 0 and up to 1.
    Share(f64),
    /// All.
    Exact,
}

impl std::str::FromStr for Sample {
    type Err = Error;

    fn from_str(text: &str) -> Result<Sample, Error> {
        match text {
            "auto" => return Ok(Sample::Auto),
            "exact" => return Ok(Sample::Exact),
            _ => {}
        }
        let share = text.parse().ok().filter(|&share: &f64| share > 0.0 && share <= 1.0);
        share.map(Sample::Share).ok_or_else(|| {
            let message = format!(
                "\"{text}\" is no sample: use auto, exact, or a share above 0 and up to 1, such as 0.01"
            );
            Error::new(ErrorKind::Invalid, message)
        })
    }
}

/// Which curves.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What to drop.
    pub policies: Vec<SimulatedPolicy>,
    /// Bytes of a cache block, powers of two from 512 to 1 MiB.
    pub block_sizes: Vec<u64>,
    /// Bytes of the caches; none: chosen by the footprint.
    pub cache_sizes: Vec<u64>,
    /// How much is looked at.
    pub sample: Sample,
    /// Where the grid of blocks lies.
    pub grid_offset: GridOffset,
}

/// How a curve was found; see the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Every reuse distance.
    Exact,
    /// Reuse distances of a sample.
    Shards,
    /// Whole caches.
    Simulation,
    /// Small caches for a sample.
    Miniature,
}

/// Where the grid went, as [`simulate::Outcome`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridMove {
    /// The new byte offset.
    pub grid_offset: u64,
    /// Requests before it.
    pub after: u64,
    /// Caches of at most this many bytes kept the old grid: too much of them was filled.
    pub above: u64,
}

/// One curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// Name of the policy.
    pub policy: String,
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes of a granule.
    pub granule_size: u64,
    /// How it was found.
    pub method: Method,
    /// Share of the blocks that was looked at, at the end.
    pub share: f64,
    /// Byte offset of the grid at the beginning.
    pub grid_offset: u64,
    /// Where it moved.
    pub grid_moved: Option<GridMove>,
    /// Bytes of the distinct blocks: larger caches are of no use.
    pub footprint: u64,
    /// Bytes of the distinct granules.
    pub touched: u64,
    /// By size.
    pub points: Vec<Point>,
}

/// One cache size of a curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of the cache, whole blocks.
    pub cache_size: u64,
    /// Granules read or written that miss, of all of them.
    pub miss_ratio: f64,
    /// The exact miss ratio is not farther from it, in 95 of 100 points; `None`: it is exact.
    #[serde(default)]
    pub bound: Option<f64>,
    /// Granules read that hit, of all granules read.
    pub read_hit_ratio: f64,
    /// Reads that hit wholly, of all reads; not known of a sample.
    pub read_request_hit_ratio: Option<f64>,
    /// The reads, where everything was looked at.
    pub reads: Option<Uses>,
    /// The writes.
    pub writes: Option<Uses>,
}

/// Granules of reads and writes, and how many of them hit.
#[derive(Clone, Copy, Debug, Default)]
struct Hits {
    reads: f64,
    read_hits: f64,
    writes: f64,
    write_hits: f64,
}

impl Point {
    fn estimated(cache_size: u64, hits: Hits) -> Point {
        let ratio =
            |part: f64, all: f64| if all > 0.0 { (part / all).clamp(0.0, 1.0) } else { 0.0 };
        let granules = hits.reads + hits.writes;
        Point {
            cache_size,
            miss_ratio: ratio(granules - hits.read_hits - hits.write_hits, granules),
            bound: None,
            read_hit_ratio: ratio(hits.read_hits, hits.reads),
            read_request_hit_ratio: None,
            reads: None,
            writes: None,
        }
    }

    /// From reuse distances, or a sample of them.
    fn sampled(slots: u64, block_size: u64, reads: &Reuse, writes: &Reuse) -> Point {
        let hits = Hits {
            reads: reads.uses() as f64,
            read_hits: reads.hits(slots),
            writes: writes.uses() as f64,
            write_hits: writes.hits(slots),
        };
        Point::estimated(slots.saturating_mul(block_size), hits)
    }

    fn counted(cache_size: u64, reads: Uses, writes: Uses) -> Point {
        let hits = Hits {
            reads: reads.granules as f64,
            read_hits: reads.granule_hits as f64,
            writes: writes.granules as f64,
            write_hits: writes.granule_hits as f64,
        };
        let requests = (reads.requests as f64).max(1.0);
        Point {
            read_request_hit_ratio: Some(reads.request_hits as f64 / requests),
            reads: Some(reads),
            writes: Some(writes),
            ..Point::estimated(cache_size, hits)
        }
    }
}

/// The curve of a disk that runs: LRU, in blocks of `block_size`. `cache_sizes`: chosen by the footprint when there is none.
pub fn of_disk(
    snapshot: &Snapshot,
    block_size: u64,
    grid_offset: u64,
    cache_sizes: &[u64],
) -> Curve {
    let Snapshot { reads, writes, spread, share, blocks, granules } = snapshot;
    let footprint = blocks.round() as u64 * block_size;
    let sizes = match cache_sizes {
        [] => sizes::chosen([(block_size, footprint)].into_iter()),
        _ => cache_sizes.to_vec(),
    };
    let of_slots = |slots: u64| Point::sampled(slots, block_size, reads, writes);
    let uses = (reads.uses() + writes.uses()).max(1) as f64;
    let point = |size: &u64| {
        let slots = size / block_size;
        let sampled = Sampled {
            deviation: spread.deviation(slots) / uses,
            imbalance: imbalance(reads, writes),
            blocks: slots as f64 * share,
            is_simulated: false,
        };
        with_bound(sampled, slots, *share, of_slots)
    };
    Curve {
        policy: LRU.to_string(),
        block_size,
        granule_size: granule_size(block_size),
        method: Method::Shards,
        share: *share,
        grid_offset,
        grid_moved: None,
        footprint,
        touched: granules.round() as u64 * granule_size(block_size),
        points: sizes.iter().map(point).collect(),
    }
}

/// How many more or fewer uses were looked at than there are, as a share of them.
fn imbalance(reads: &Reuse, writes: &Reuse) -> f64 {
    let uses = (reads.uses() + writes.uses()).max(1) as f64;
    ((reads.looked_at() + writes.looked_at()) / uses - 1.0).abs()
}

/// A point of a curve of which all others are known, with its bound; exact where everything was looked at.
fn with_bound(sampled: Sampled, slots: u64, share: f64, of_slots: impl Fn(u64) -> Point) -> Point {
    let near = |times: f64| of_slots((slots as f64 * times).round() as u64).miss_ratio;
    Point { bound: (share < 1.0).then(|| sampled.bound(near)), ..of_slots(slots) }
}

/// Makes the curves, first block size first and of that the first policy. `open` reads the trace from its beginning,
/// once or twice.
///
/// # Errors
/// The settings cannot work, or the trace ends with an error.
pub fn curves<R>(
    open: impl FnMut() -> Result<R, Error>,
    settings: &Settings,
) -> Result<Vec<Curve>, Error>
where
    R: Iterator<Item = Result<Record, Error>>,
{
    let Measured { lru, simulated } = measure(open, settings)?;
    let mut simulated = simulated.into_iter();
    let mut curves = Vec::new();
    for lru in &lru {
        for &policy in &settings.policies {
            curves.push(match policy {
                LRU => lru.clone(),
                _ => simulated.next().expect("one for each block size and policy"),
            });
        }
    }
    Ok(curves)
}

/// Curves, first block size first.
#[derive(Debug)]
struct Measured {
    /// LRU by reuse distances.
    lru: Vec<Curve>,
    /// All policies but that, which are simulated.
    simulated: Vec<Curve>,
}

fn measure<R>(
    mut open: impl FnMut() -> Result<R, Error>,
    settings: &Settings,
) -> Result<Measured, Error>
where
    R: Iterator<Item = Result<Record, Error>>,
{
    settings.check()?;
    let lru = |&block_size: &u64| {
        let lru = Lru::new(settings.sample, block_size);
        Lanes::new(block_size, settings.grid_offset, lru)
    };
    let mut lrus: Vec<_> = settings.block_sizes.iter().map(lru).collect();
    add_all(&mut lrus, open()?)?;
    let sizes = match settings.cache_sizes.is_empty() {
        false => settings.cache_sizes.clone(),
        true => sizes::chosen(lrus.iter().map(|lru| (lru.block_size(), lru.footprint()))),
    };
    let mut policies = settings.policies.clone();
    policies.retain(|&policy| policy != LRU);
    let caches_of = |lru: &Lanes<Lru>| -> Vec<Lanes<Miniatures>> {
        policies.iter().map(|&policy| settings.miniatures(lru, policy, &sizes)).collect()
    };
    let mut caches: Vec<_> = lrus.iter().flat_map(caches_of).collect();
    if !caches.is_empty() {
        add_all(&mut caches, open()?)?;
    }
    let curve = |lru: &Lanes<Lru>, policy: SimulatedPolicy, (method, share), points| Curve {
        policy: policy.to_string(),
        block_size: lru.block_size(),
        granule_size: granule_size(lru.block_size()),
        method,
        share,
        grid_offset: lru.grid_offset(),
        grid_moved: lru.grid_moved(),
        footprint: lru.footprint(),
        touched: lru.granules() * granule_size(lru.block_size()),
        points,
    };
    let counted = lrus.iter().map(|lru| curve(lru, LRU, lru.method(), lru.points(&sizes)));
    let of_caches = |caches: &Lanes<Miniatures>| {
        let lru = lrus.iter().find(|lru| lru.block_size() == caches.block_size());
        let lru = lru.expect("they were made for it");
        curve(lru, caches.policy(), caches.method(), caches.points(&sizes))
    };
    Ok(Measured { lru: counted.collect(), simulated: caches.iter().map(of_caches).collect() })
}

impl Settings {
    /// Caches of this policy and these sizes, for the blocks and the trace of `lru`.
    fn miniatures(
        &self,
        lru: &Lanes<Lru>,
        policy: SimulatedPolicy,
        sizes: &[u64],
    ) -> Lanes<Miniatures> {
        let share = match self.sample {
            Sample::Auto => (MINIATURE_BLOCKS / lru.blocks().max(1) as f64).min(1.0),
            Sample::Share(share) => share,
            Sample::Exact => 1.0,
        };
        let blocks = lru.blocks();
        let caches = Miniatures::new(policy, sizes, lru.block_size(), (share, blocks));
        Lanes::new(lru.block_size(), self.grid_offset, caches)
    }

    fn check(&self) -> Result<(), Error> {
        let none = |what: &str| Err(Error::new(ErrorKind::Invalid, format!("name a {what}")));
        if self.policies.is_empty() {
            return none("policy");
        }
        if self.block_sizes.is_empty() {
            return none("block size");
        }
        for &block_size in &self.block_sizes {
            for &cache_size in self.cache_sizes.iter().chain(&[block_size]) {
                let Settings { grid_offset, .. } = *self;
                let settings =
                    simulate::Settings { cache_size, block_size, policy: LRU, grid_offset };
                settings.check()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
