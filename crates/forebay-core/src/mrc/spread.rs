//! How far chance may have moved a sampled curve: what two halves of the sample say, which are samples themselves.
//!
//! ```text
//!              positions below the threshold
//! region ─► |‾‾‾‾‾‾‾‾ +1 ‾‾‾‾‾‾‾|‾‾‾‾‾‾‾‾ −1 ‾‾‾‾‾‾‾|   misses of one half less those of the other, in 16 groups of regions
//! ```
//! Both halves have their blocks as evenly among neighbours as the whole sample ([`super::Sampler`]), so that their
//! difference varies as their sum does. Groups of regions vary by themselves: the variance of the sum is that of the
//! groups' differences added up. Where every block is sampled there is no chance: each use counts with √(1 − share).

use super::curve::{COUNTS, range_of, step_of};

/// Groups of regions.
const GROUPS: usize = 16;
/// Steps of a curve to one of these: a bound need not be as fine.
const COARSE: usize = 4;
const STEPS: usize = COUNTS.div_ceil(COARSE);
/// Bit of the half, above the group.
const HALF: u8 = 1 << 7;

/// Group and half of a sampled block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part(u8);

impl Part {
    /// Of a block at `position` below `threshold`, in the region with this hash.
    #[inline]
    pub(super) fn of(region: u64, position: u32, threshold: u64) -> Part {
        let half = if u64::from(position) * 2 < threshold { 0 } else { HALF };
        Part(region as u8 & (GROUPS as u8 - 1) | half)
    }

    #[inline]
    fn group(self) -> usize {
        usize::from(self.0 & !HALF)
    }

    #[inline]
    fn sign(self) -> f64 {
        if self.0 & HALF == 0 { 1.0 } else { -1.0 }
    }
}

/// The difference between the halves of each group.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Differences([f64; GROUPS]);

impl Differences {
    /// `uses` of a block.
    #[inline]
    pub fn add(&mut self, part: Part, uses: f64) {
        self.0[part.group()] += part.sign() * uses;
    }

    /// Standard deviation of the sum of both halves and all groups.
    pub fn deviation(&self) -> f64 {
        self.0.iter().map(|difference| difference * difference).sum::<f64>().sqrt()
    }
}

/// The same of the uses that a cache of each size misses.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    all: Differences,
    /// By need.
    steps: Box<[Differences]>,
}

impl Default for Spread {
    fn default() -> Spread {
        Spread { all: Differences::default(), steps: vec![Differences::default(); STEPS].into() }
    }
}

impl Spread {
    /// Bytes of memory.
    pub(super) const BYTES: usize = STEPS * size_of::<Differences>();

    /// A use that a cache of more slots than `need` has; `None`: the first.
    #[inline]
    pub fn add(&mut self, part: Part, need: Option<u64>, weight: f64) {
        self.add_step(part, need.map(step_of), weight);
    }

    #[inline]
    pub(super) fn add_step(&mut self, part: Part, step: Option<u16>, weight: f64) {
        self.all.add(part, weight);
        if let Some(step) = step {
            self.steps[usize::from(step) / COARSE].add(part, weight);
        }
    }

    /// Standard deviation of the number of uses that a cache of `slots` slots misses.
    pub fn deviation(&self, slots: u64) -> f64 {
        let mut misses = self.all;
        let has = |step: &usize| range_of(step * COARSE).start < slots;
        for step in (0..STEPS).take_while(has) {
            for (misses, hits) in misses.0.iter_mut().zip(&self.steps[step].0) {
                *misses -= hits;
            }
        }
        misses.deviation()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_that_say_the_same_have_no_deviation_and_groups_add_up() {
        let halves = |group| [Part(group), Part(group | HALF)];
        let mut spread = Spread::default();
        for group in 0..16 {
            for part in halves(group) {
                spread.add(part, Some(100), 2.0);
            }
        }
        assert_eq!(spread.deviation(50), 0.0);
        for group in 0..4 {
            spread.add(halves(group)[usize::from(group) % 2], Some(1000), 3.0);
        }
        assert_eq!([50, 500, 5000].map(|slots| spread.deviation(slots)), [6.0, 6.0, 0.0]);
        spread.add(halves(9)[0], None, 8.0);
        assert_eq!([50, 5000].map(|slots| spread.deviation(slots)), [10.0, 8.0]);
    }

    #[test]
    fn half_of_the_sample_is_below_half_of_the_threshold() {
        let halves = [0, 499, 500, 999].map(|position| Part::of(0xF3, position, 1000).sign());
        assert_eq!(halves, [1.0, 1.0, -1.0, -1.0]);
        assert_eq!(Part::of(0xF3, 999, 1000).group(), 3);
    }
}
