//! How far a sampled point may be from the exact one.
//!
//! | left to chance | how far that goes |
//! |---|---|
//! | which uses were looked at | what the halves of the sample differ by ([`forebay_core::mrc::Spread`]) |
//! | busy blocks that are not in either half | a part of how many more or fewer uses were looked at than there should be |
//! | how large a cache is | one of *n* sampled blocks stands for one that is 1/√*n* larger or smaller; that matters where the curve is steep |
//! | what a policy does in a small cache | as if the cache were a little larger or smaller |
//!
//! The factors are such that of the points of real traces at least 95 % have the exact miss ratio within the bound; the
//! example `curve_bounds` counts them, and docs/traces/analyse.md has the trials.

/// Standard deviations of a bound.
const DEVIATIONS: f64 = 3.0;
/// The least bound, of a simulated policy and of reuse distances.
const LEAST_SIMULATED: f64 = 0.004;
const LEAST_DISTANCES: f64 = 0.001;

/// Part of the imbalance that is taken for a standard deviation.
const IMBALANCE: f64 = 0.05;
/// How much larger or smaller than it is a small cache seems to its policy.
const OF_POLICY: f64 = 0.04;

/// What a point is known from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sampled {
    /// Standard deviation of the miss ratio, of which uses were looked at.
    pub deviation: f64,
    /// How many more or fewer uses than there are were looked at, by weight, as a share of them.
    pub imbalance: f64,
    /// Sampled blocks that fit the cache.
    pub blocks: f64,
    pub is_simulated: bool,
}

impl Sampled {
    /// The exact miss ratio is not farther away, in 95 of 100 points. `miss_ratio` has that of a cache so many times as large.
    pub fn bound(self, miss_ratio: impl Fn(f64) -> f64) -> f64 {
        let of_policy = if self.is_simulated { OF_POLICY } else { 0.0 };
        let stretch = of_policy + 1.0 / self.blocks.max(1.0).sqrt();
        let steep = (miss_ratio(1.0 / (1.0 + stretch)) - miss_ratio(1.0 + stretch)).abs() / 2.0;
        let least = if self.is_simulated { LEAST_SIMULATED } else { LEAST_DISTANCES };
        let deviation = self.deviation.hypot(steep).hypot(IMBALANCE * self.imbalance);
        (DEVIATIONS * deviation + least).min(1.0)
    }
}

/// Between the points of a curve, (size, miss ratio) by size; beyond them as at the ends.
pub(super) fn between(points: &[(u64, f64)], size: f64) -> f64 {
    let after = points.partition_point(|&(point, _)| (point as f64) < size);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some(&(low, of_low)), Some(&(high, of_high))) => {
            let (low, high) = ((low.max(1) as f64).ln(), (high as f64).ln());
            of_low + (of_high - of_low) * (size.ln() - low) / (high - low)
        }
        (Some(&(_, of)), None) | (None, Some(&(_, of))) => of,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steep_curve_and_few_blocks_widen_a_bound() {
        let of = |deviation, blocks, slope: f64| {
            let sampled = Sampled { deviation, imbalance: 0.0, blocks, is_simulated: false };
            sampled.bound(|times| 0.5 - slope * times.ln())
        };
        assert!((of(0.0, 100.0, 0.0) - LEAST_DISTANCES).abs() < 1e-9);
        assert!((of(0.01, 100.0, 0.0) - LEAST_DISTANCES - DEVIATIONS * 0.01).abs() < 1e-9);
        assert!(of(0.0, 100.0, 0.2) > of(0.0, 10_000.0, 0.2));
        assert!(of(0.0, 100.0, 0.2) > of(0.0, 100.0, 0.1));
        assert_eq!(of(2.0, 100.0, 0.0), 1.0);
    }

    #[test]
    fn between_two_points_the_curve_is_straight_by_doublings() {
        let points = [(100, 0.8), (400, 0.4)];
        assert!((between(&points, 200.0) - 0.6).abs() < 1e-9);
        assert_eq!(
            [10.0, 100.0, 400.0, 1e9].map(|size| between(&points, size)),
            [0.8, 0.8, 0.4, 0.4]
        );
        assert_eq!(between(&[], 5.0), 0.0);
    }
}
