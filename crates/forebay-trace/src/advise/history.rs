//! A recording of a disk's last requests, held against what the disk knows of all that it was asked.
//!
//! The disk has one curve of all (LRU, its own blocks, a sample); the recording gives the same
//! curve of its requests. A recording that is too short, or of an unusual hour, has another one.
//! Then the expectation of the cache is widened, as if all policies and block sizes differed by
//! as much. One that becomes too wide is not given.

use serde::Serialize;

use super::choose::warmth;
use super::{Advice, Disk, range, words};
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
        plan.is_steady &= range::says_something(plan.hit_ratio_range);
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

#[cfg(test)]
mod tests {
    use super::super::tests::{POOL, mixed, read, studied};
    use super::super::{Settings, advise, prove};
    use super::*;

    const MIB: u64 = 1 << 20;

    /// A disk and its advice, and the curve of all that it was asked, which hits so much more of its reads than the recording.
    fn recorded(more: f64) -> (Disk, Advice, Curve) {
        let (records, settings) = (mixed(1), Settings { ram: 0, flash: 8 * MIB, ..POOL });
        let disk = studied(&records, &settings);
        let proposed = advise(std::slice::from_ref(&disk), &settings).unwrap().remove(0);
        let advice = prove(&disk, proposed, &settings, || Ok(read(&records)), &|| ()).unwrap();
        let size = compared_size(&disk, &advice, settings.ram, settings.flash);
        let block_size = advice.plan.as_ref().unwrap().block_size;
        let mut all = disk.lru(block_size).unwrap().clone();
        all.points.retain(|point| point.cache_size == size);
        all.points[0].read_hit_ratio += more;
        (disk, advice, all)
    }

    #[test]
    fn a_wider_range_of_hits_keeps_the_measured_mean_in_its_range() {
        let (disk, mut advice, all) = recorded(0.15);
        let plan = advice.plan.as_mut().unwrap();
        let before = plan.hit_ratio_range;
        // The engine measured another mean than the model has.
        let measured = 2.0 * plan.read_mean_range_ns[1];
        plan.read.mean_ns = measured;
        plan.read_mean_range_ns[1] = measured;
        let found = beside(&disk, &mut advice, 1 << 20, &all).unwrap();
        assert!(!found.is_alike);
        let plan = advice.plan.unwrap();
        assert!(plan.hit_ratio_range[1] > before[1], "{:?} of {before:?}", plan.hit_ratio_range);
        assert!(plan.is_steady, "{:?}", plan.hit_ratio_range);
        let [fast, slow] = plan.read_mean_range_ns;
        assert!((fast..=slow).contains(&measured), "{measured} of {fast} to {slow}");
    }

    #[test]
    fn a_range_that_becomes_too_wide_is_not_given() {
        let (disk, mut advice, all) = recorded(0.7);
        assert!(advice.plan.as_ref().unwrap().is_steady);
        beside(&disk, &mut advice, 1 << 20, &all).unwrap();
        let plan = advice.plan.unwrap();
        let [low, high] = plan.hit_ratio_range;
        assert!(high - low > 0.5 && !plan.is_steady, "{low} to {high}");
        assert!(advice.sentence.contains("too much from time to time"), "{}", advice.sentence);
    }
}
