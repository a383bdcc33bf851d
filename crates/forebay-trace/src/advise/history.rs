//! A recording of a disk's last requests, held against what the disk knows of all that it was asked.
//!
//! The disk has one curve of all (LRU, its own blocks, a sample); the recording gives the same
//! curve of its requests. A recording that is too short, or of an unusual hour, has another one.
//! Then the expectation of the cache is widened, as if all policies and block sizes differed by
//! as much.

use serde::Serialize;

use super::choose::warmth;
use super::{Advice, Disk, words};
use crate::mrc::Curve;

/// Curves that differ by less are the same: one is a sample, and the recording begins without a past.
const SAME: f64 = 0.03;

/// How a recording stands to all that the disk was asked.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Beside {
    /// Requests of the recording.
    pub recorded: u64,
    /// Requests since the disk was started.
    pub observed: u64,
    /// The cache whose hit ratios follow: LRU, in the disk's blocks, so many bytes.
    pub cache_size: u64,
    /// Pieces of 4 KiB read that it would have hit of the recording: empty at the beginning, and warm.
    pub recorded_hit_ratio: [f64; 2],
    /// The same of all requests.
    pub all_hit_ratio: f64,
    /// Whether the recording is like the whole.
    pub is_alike: bool,
}

/// The size of the cache to compare, for the advice that was given or could not be given within `ram` and `flash`.
pub fn compared_size(disk: &Disk, advice: &Advice, ram: u64, flash: u64) -> u64 {
    let most = advice.plan.as_ref().map_or(ram.max(flash), |plan| plan.larger().0);
    let sizes = disk.curves.iter().flat_map(|curve| &curve.points).map(|point| point.cache_size);
    sizes.filter(|&size| size <= most).max().unwrap_or(most)
}

/// Holds the recording that `advice` is from against `all`, a curve of everything with one cache size, and widens what the
/// advice expects where they differ. `None`: the recording has no curve for such blocks, or nothing was read.
pub fn beside(disk: &Disk, advice: &mut Advice, observed: u64, all: &Curve) -> Option<Beside> {
    let recorded = disk.lru(all.block_size)?;
    let of_all = all.points.first()?;
    let size = of_all.cache_size;
    let point = recorded.points.iter().find(|point| point.cache_size == size)?;
    let cold = point.read_hit_ratio;
    let warm = (cold + warmth(recorded, size)).min(1.0);
    let all_hit_ratio = of_all.read_hit_ratio;
    let less = (cold - SAME - all_hit_ratio).max(0.0);
    let more = (all_hit_ratio - warm - SAME).max(0.0);
    let summary = &disk.info.summary;
    let found = Beside {
        recorded: summary.reads + summary.writes,
        observed,
        cache_size: size,
        recorded_hit_ratio: [cold, warm],
        all_hit_ratio,
        is_alike: less == 0.0 && more == 0.0,
    };
    if let (false, Some(plan)) = (found.is_alike, &mut advice.plan) {
        let [low, high] = plan.hit_ratio_range;
        plan.expect([low - less, high + more], &advice.latencies);
        advice.sentence = words::sentence(advice);
    }
    (summary.reads > 0).then_some(found)
}

impl Beside {
    /// In words.
    pub fn words(&self) -> String {
        words::beside(self)
    }
}
