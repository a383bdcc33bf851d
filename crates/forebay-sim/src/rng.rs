//! The only source of chance: a small seeded generator (SplitMix64).

/// State of the generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; every seed is good.
    pub fn new(seed: u64) -> Rng {
        // Neighbouring seeds must not give shifted copies of one sequence.
        Rng(mix(seed ^ 0x5bf0_3635_dcf6_0b5d))
    }

    /// A generator that is independent of this one from here on.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Evenly from `0..bound`; panics when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
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

/// A bijection of 64 bits that spreads every bit.
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
