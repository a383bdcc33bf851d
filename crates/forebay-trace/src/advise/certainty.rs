//! How well a hit ratio is known: whether there is enough to advise from, and between what it is expected.
//!
//! ```text
//! draws: the reads; of a sample at most the blocks that were looked at
//! from ─ an empty cache, and the low end of Wilson's interval of so many draws ─ what the model does not have
//! to   ─ a warm cache,   and the high end                                     ─ the same
//! ```
//! (Wilson, JASA 1927: unlike hits ± twice the standard deviation it is not of no width where all of a few reads hit.)

use super::choose::GAIN_MIN;
use crate::mrc::{Curve, Method};

/// Standard deviations to both sides: 95 of 100 samples are within.
const DEVIATIONS: f64 = 2.0;
/// Reads from which a hit ratio is known to [`GAIN_MIN`], whatever it is: twice the standard deviation of so many is at most
/// that. From fewer nobody knows whether a cache gains it. Of so many writes the rate is known to a fifth, which is what a write log
/// leaves to primary storage.
pub(super) const REQUESTS_MIN: u64 =
    (DEVIATIONS * DEVIATIONS / 4.0 / (GAIN_MIN * GAIN_MIN) + 0.5) as u64;
/// A hit ratio is never known better than this: the engine admits to flash, and bypasses, by rules of its own.
const ENGINE_ERROR: f64 = 0.01;
/// Where hits of 4 KiB pieces stand for those of requests.
const PIECES_ERROR: f64 = 0.03;

/// Where the hit ratio is expected of a cache that hits `cold` of `reads` when it is empty at the beginning, and `warm` when it
/// is not.
pub(super) fn range(curve: &Curve, reads: u64, cold: f64, warm: f64) -> [f64; 2] {
    let (draws, error) = match curve.method {
        Method::Exact | Method::Simulation => (reads as f64, ENGINE_ERROR),
        Method::Shards | Method::Miniature => {
            let blocks = curve.share * (curve.footprint / curve.block_size) as f64;
            (blocks.min(reads as f64), ENGINE_ERROR + PIECES_ERROR)
        }
    };
    [interval(cold, draws)[0] - error, interval(warm.min(1.0), draws)[1] + error]
}

/// Wilson's interval of a ratio that was found in so many draws.
fn interval(ratio: f64, draws: f64) -> [f64; 2] {
    let (draws, square) = (draws.max(1.0), DEVIATIONS * DEVIATIONS);
    let middle = ratio + square / (2.0 * draws);
    let variance = ratio * (1.0 - ratio) / draws + square / (4.0 * draws * draws);
    let half = DEVIATIONS * variance.max(0.0).sqrt();
    [middle - half, middle + half].map(|end| end / (1.0 + square / draws))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_few_reads_nothing_is_certain_and_of_many_nearly_everything() {
        let check = |ratio: f64, draws: f64, expect: [f64; 2]| {
            let found = interval(ratio, draws);
            let is_near = |(a, b): (f64, f64)| (a - b).abs() < 0.001;
            assert!(found.into_iter().zip(expect).all(is_near), "{ratio} of {draws}: {found:?}");
        };
        // All of five reads hit: it may be every second that misses.
        check(1.0, 5.0, [0.556, 1.0]);
        check(0.0, 5.0, [0.0, 0.444]);
        check(0.5, 100.0, [0.402, 0.598]);
        check(0.95, 1e6, [0.9496, 0.9504]);
        assert_eq!(REQUESTS_MIN, 100);
        for ratio in [0.0, 0.2, 0.5, 1.0] {
            let [low, high] = interval(ratio, REQUESTS_MIN as f64);
            assert!((high - low) / 2.0 <= GAIN_MIN, "{low} to {high}");
        }
    }
}
