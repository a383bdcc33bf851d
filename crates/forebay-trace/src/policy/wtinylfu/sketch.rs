//! How often blocks were used, about: a counting Bloom filter.
//!
//! A use raises the smallest of the counters of the block. That is the estimate. It may be too
//! high, where other blocks share all of them. Only aging, and counters at their end, make it too
//! low.

use forebay_core::ids::BlockIndex;

/// Counters of a block.
const HASHES: u32 = 10;
/// Counters for every 1000 slots: for a share of wrong answers of 0.001 with that many blocks.
const COUNTERS_PER_1000: u64 = 14_378;
/// Uses for each slot after which all counters are halved.
const PERIOD: u64 = 32;
/// Counters that one use halves, while they are being halved.
const HALVED_AT_ONCE: usize = 64;

/// See the module.
#[derive(Debug)]
pub struct Sketch {
    counters: Box<[u16]>,
    uses: u64,
    uses_max: u64,
    /// Counters from here on are not halved yet.
    halved: usize,
}

impl Sketch {
    /// For `slots` slots.
    pub fn new(slots: u32) -> Sketch {
        let counters = Self::counters_for(slots);
        Sketch {
            counters: vec![0; counters].into(),
            uses: 0,
            uses_max: PERIOD * u64::from(slots),
            halved: counters,
        }
    }

    /// What [`Sketch::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        2 * Self::counters_for(slots) as u64
    }

    fn counters_for(slots: u32) -> usize {
        let counters = u64::from(slots) * COUNTERS_PER_1000 / 1000;
        counters.max(2 * u64::from(HASHES)) as usize
    }

    /// `block` was used.
    pub fn add(&mut self, block: BlockIndex) {
        let least = self.count(block);
        for at in self.places_of(block) {
            if self.counters[at] == least {
                self.counters[at] = self.counters[at].saturating_add(1);
            }
        }
        let end = (self.halved + HALVED_AT_ONCE).min(self.counters.len());
        self.counters[self.halved..end].iter_mut().for_each(|counter| *counter /= 2);
        self.halved = end;
    }

    /// How often `block` was used, at most.
    pub fn count(&self, block: BlockIndex) -> u16 {
        self.places_of(block).map(|at| self.counters[at]).min().unwrap_or(0)
    }

    /// A use passed that counts; after so many the counters are halved.
    pub fn age(&mut self) {
        self.uses += 1;
        if self.uses >= self.uses_max {
            (self.uses, self.halved) = (0, 0);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.counters.fill(0);
        (self.uses, self.halved) = (0, self.counters.len());
    }

    /// Bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.counters)
    }

    fn places_of(&self, block: BlockIndex) -> impl Iterator<Item = usize> + use<> {
        let hash = block.hash();
        let (first, step) = (hash as u32, (hash >> 32) as u32 | 1);
        let counters = self.counters.len() as u64;
        (0..HASHES).map(move |i| {
            let at = first.wrapping_add(i.wrapping_mul(step));
            ((u64::from(at) * counters) >> 32) as usize
        })
    }
}
