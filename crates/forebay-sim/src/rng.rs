//! The only source of chance: a seeded generator, and what a simulation draws.

use forebay_core::splitmix;
pub use forebay_core::splitmix::mix;

/// State of the generator.
#[derive(Clone, Debug)]
pub struct Rng(splitmix::Rng);

impl Rng {
    /// A generator; every seed is good.
    pub fn new(seed: u64) -> Rng {
        // Neighbouring seeds must not give shifted copies of one sequence.
        Rng(splitmix::Rng::new(mix(seed ^ 0x5bf0_3635_dcf6_0b5d)))
    }

    /// A generator that is independent of this one from here on.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Evenly from `0..bound`; panics when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// Evenly from `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `permille` times of 1000.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// One of `choices`, evenly.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// From 0 (often) to `max` (seldom): each power of two is as likely as the next.
    pub fn skewed(&mut self, max: u64) -> u64 {
        let bits = self.between(0, u64::from(max.max(1).ilog2()) + 1) as u32;
        let bound = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
        self.below(bound.min(max.saturating_add(1)))
    }
}
