//! Pages of 4 KiB that were used, or a sample of them where there are many: memory is bounded.
//!
//! A page is known by a hash of its device and its place. The sample has the pages of the lowest
//! hashes. When it would be too large it becomes half as large, which makes it a sample of half
//! the share. **Invariant:** one in 2⁶³ leaves two hashes at most, so halving always ends, and
//! whoever writes a trace cannot fill the memory by the choice of its places.

use forebay_core::geometry::PAGE;
use forebay_core::splitmix::{hash, mix};
use rustc_hash::FxHashSet;

use crate::record::Record;

/// Pages that are known at a time.
pub(super) const KNOWN_MAX: usize = 1 << 20;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    known: FxHashSet<u64>,
    /// One page in two to this power is looked at.
    rarity: u32,
}

/// Pages of a request that are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// There are some.
    pub any: bool,
    /// One of them was not known.
    pub new: bool,
}

impl Pages {
    /// The pages of `record` are known from now on.
    pub fn add(&mut self, record: &Record) -> Seen {
        let mut seen = Seen::default();
        let of_device = hash(record.device.into());
        for page in record.offset / PAGE..record.end().div_ceil(PAGE) {
            let name = mix(of_device ^ page);
            if self.samples(name) {
                seen.any = true;
                seen.new |= self.insert(name);
            }
        }
        seen
    }

    /// How many of them `earlier`, from the same trace, knew already, and how many there are.
    pub fn known_to(&self, earlier: &Pages) -> (usize, usize) {
        let before = earlier.known.iter().filter(|&&name| self.samples(name)).count();
        (before, self.known.len())
    }

    fn insert(&mut self, name: u64) -> bool {
        let is_new = self.known.insert(name);
        while self.known.len() > KNOWN_MAX {
            self.rarity += 1;
            let rarity = self.rarity;
            self.known.retain(|&name| is_below(name, rarity));
        }
        is_new
    }

    fn samples(&self, name: u64) -> bool {
        is_below(name, self.rarity)
    }
}

/// Among the lowest hashes, one in two to the power of `rarity`.
fn is_below(name: u64, rarity: u32) -> bool {
    name <= u64::MAX >> rarity
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Op;

    fn record(device: u32, page: u64, len: u32) -> Record {
        Record { time_ns: 0, op: Op::Read, offset: page * PAGE, len, device, latency_ns: None }
    }

    #[test]
    fn a_sample_stays_small_and_even() {
        let mut pages = Pages::default();
        for n in 0..4_000_000 {
            pages.add(&record(0, n, PAGE as u32));
            assert!(pages.known.len() <= KNOWN_MAX);
        }
        assert_eq!(pages.rarity, 2);
        let estimate = pages.known.len() as f64 * 4.0;
        assert!((estimate / 4e6 - 1.0).abs() < 0.01, "{estimate}");
    }

    #[test]
    fn a_place_of_very_many_devices_is_sampled_as_any_others() {
        let mut pages = Pages::default();
        for device in 0..=KNOWN_MAX as u32 {
            let seen = pages.add(&record(device, 0, 512));
            assert!(!seen.any || seen.new, "none was there before");
        }
        assert!(pages.known.len() <= KNOWN_MAX && pages.rarity == 1, "{}", pages.rarity);
    }

    #[test]
    fn two_halves_of_a_trace_are_compared_by_the_pages_that_both_samples_look_at() {
        // 3 million pages, of which the first half has 2: samples of a half, and of a quarter.
        let mut pages = Pages::default();
        for n in 0..2_000_000 {
            pages.add(&record(0, n, PAGE as u32));
        }
        let first = pages.clone();
        for n in 1_000_000..3_000_000 {
            pages.add(&record(0, n, PAGE as u32));
        }
        assert_eq!((first.rarity, pages.rarity), (1, 2));
        let (before, all) = pages.known_to(&first);
        assert!((before as f64 / all as f64 - 2.0 / 3.0).abs() < 0.002, "{before} {all}");
    }
}
