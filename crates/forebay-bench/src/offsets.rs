//! Which offsets a connection asks for. Both sequences repeat exactly for the same seed.

use clap::ValueEnum;
use forebay_core::splitmix::{Rng, mix};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Uniformly random
    Random,
    /// Every block once, shuffled, then again in the same order: the first round is all cold
    EachOnce,
    /// One after the other
    Sequential,
}

/// An endless sequence of block numbers below `blocks`.
pub(crate) struct Offsets {
    pattern: Pattern,
    blocks: u64,
    step: u64,
    at: u64,
    random: Rng,
}

impl Offsets {
    /// Connection `index` of `of`: connections with one seed share [`Pattern::EachOnce`] evenly,
    /// so that together they ask for every block once. It and [`Pattern::Sequential`] leave out the
    /// first `skip` blocks of their order.
    pub(crate) fn new(
        pattern: Pattern,
        blocks: u64,
        seed: u64,
        skip: u64,
        (index, of): (u64, u64),
    ) -> Offsets {
        assert!(blocks > 0 && of > 0);
        let share = blocks.div_ceil(of);
        Offsets {
            pattern,
            blocks,
            step: coprime_step(blocks),
            at: (share * index + skip) % blocks,
            random: Rng::new(mix(seed ^ mix(index + 1))),
        }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let at = self.at;
        match self.pattern {
            Pattern::Random => self.random.below(self.blocks),
            Pattern::EachOnce => {
                self.at = (at + 1) % self.blocks;
                ((u128::from(at) * u128::from(self.step)) % u128::from(self.blocks)) as u64
            }
            Pattern::Sequential => {
                self.at = (at + 1) % self.blocks;
                at
            }
        }
    }

    /// True for `percent` of all calls.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        percent > 0 && self.random.next_u64() % 100 < u64::from(percent)
    }
}

/// A step near the golden section of `blocks` that has no divisor in common with it: multiples of
/// it visit every block once and neighbours lie far apart.
fn coprime_step(blocks: u64) -> u64 {
    let mut step = ((blocks as f64 * 0.618_033_988) as u64).max(1);
    while gcd(step, blocks) != 1 {
        step += 1;
    }
    step
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_once_visits_every_block_once() {
        for blocks in [1, 2, 3, 64, 1000, 32768] {
            let mut offsets = Offsets::new(Pattern::EachOnce, blocks, 1, 0, (0, 1));
            let mut seen: Vec<u64> = (0..blocks).map(|_| offsets.next()).collect();
            seen.sort_unstable();
            assert_eq!(seen, (0..blocks).collect::<Vec<_>>());
        }
    }

    #[test]
    fn random_offsets_stay_below_the_size_and_repeat_for_a_seed() {
        let take = |seed| {
            let mut offsets = Offsets::new(Pattern::Random, 1000, seed, 0, (0, 1));
            (0..10_000).map(|_| offsets.next()).collect::<Vec<_>>()
        };
        assert!(take(7).iter().all(|&o| o < 1000));
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
    }
}
