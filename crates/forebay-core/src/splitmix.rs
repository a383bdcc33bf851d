//! SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA '14):
//! numbers that look like chance and follow from a seed, the same on every machine.
//!
//! It is the one generator of the project. The engine draws nothing: it only hashes with it.
//! Formats depend on it (`flash_pool/sample.rs`), and so do the seeds of the simulation and of made-up
//! workloads. So the sequence of a seed never changes. It keeps no secret.

/// State of the generator.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator; every seed is good.
    #[inline]
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Evenly from `0..bound`; panics when `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Evenly from `0.0..1.0`.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Well-mixed bits for `key`, the same everywhere: the first number of its generator.
#[inline]
pub fn hash(key: u64) -> u64 {
    Rng::new(key).next_u64()
}

/// A bijection of 64 bits that spreads every bit; 0 stays 0.
#[inline]
pub fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_is_that_of_the_paper() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        let expect = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        assert_eq!(first, expect);
        assert_eq!(hash(1_234_567), expect[0]);
        assert_eq!(mix(0), 0);
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut rng = Rng::new(0);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert!((0..1000).all(|_| (0.0..1.0).contains(&rng.unit())));
        let mut seen = [false; 7];
        (0..1000).for_each(|_| seen[rng.below(7) as usize] = true);
        assert_eq!(seen, [true; 7]);
    }
}
