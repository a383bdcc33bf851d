//! Where the hit ratio of a disk is expected at another time, from how it went in the trace.
//!
//! ```text
//! second half of the trace, in eight parts ─► how far the parts lie apart, the mean, the mean of the last four
//!     low  = the lower mean  − so many times that − what is never known better − chance
//!     high = the higher mean + so many times that + what is never known better + chance + a share of the misses
//! ```
//! The first half only fills the cache. Another hour is not in the trace; the difference between
//! its own hours is. Some of the misses are first uses, which a warm cache has the next time.
//!
//! The constants were chosen with some traces and are judged by others: docs/traces/advice-results.md.

use crate::what_if::{Outcome, Slice};

/// Parts that are compared.
const PARTS: usize = 8;
/// Of the parts' standard deviation, downwards and upwards.
const DEVIATIONS: [f64; 2] = [1.5, 1.0];
/// A hit ratio is never known better than this, downwards and upwards.
const ERROR: [f64; 2] = [0.02, 0.04];
/// Share of the misses that may hit the next time.
const FIRST_USES: f64 = 0.2;
/// A wider range says nothing.
const WIDTH_MAX: f64 = 0.5;

/// From the lowest hit ratio that is expected to the highest, and whether that says anything.
pub(super) fn of(outcome: &Outcome) -> ([f64; 2], bool) {
    let half = &outcome.slices[outcome.slices.len() / 2..];
    let parts = half.chunks(half.len().div_ceil(PARTS).max(1)).filter_map(hit_ratio);
    let parts: Vec<f64> = parts.collect();
    let warm = outcome.warm.hit_ratio;
    let last = hit_ratio(&half[half.len() / 2..]).unwrap_or(warm);
    let squares: f64 = parts.iter().map(|ratio| (ratio - warm).powi(2)).sum();
    let deviation = (squares / (parts.len().max(2) - 1) as f64).sqrt();
    let chance = 2.0 * (warm * (1.0 - warm) / outcome.warm.reads.max(1) as f64).max(0.0).sqrt();
    let low = warm.min(last) - DEVIATIONS[0] * deviation - ERROR[0] - chance;
    let high = warm.max(last) + DEVIATIONS[1] * deviation + ERROR[1] + chance;
    let range = [low.max(0.0), (high + FIRST_USES * (1.0 - warm)).min(1.0)];
    (range, says_something(range))
}

/// Whether such a range says anything.
pub(super) fn says_something([low, high]: [f64; 2]) -> bool {
    high - low <= WIDTH_MAX
}

fn hit_ratio(slices: &[Slice]) -> Option<f64> {
    let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>();
    let answered = sum(|slice| slice.answered);
    (answered > 0).then(|| sum(|slice| slice.hits) as f64 / answered as f64)
}
