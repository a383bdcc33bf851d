//! Hits of a cache without a pattern, of `uses` that go anywhere in a set of blocks, each as
//! likely as any other.
//!
//! ```text
//! distinct = blocks × (1 − e^(−uses / blocks))        how large the set is, of which so many were seen
//! full     = blocks × ln(blocks / (blocks − slots))   uses until a cache of so many slots is full
//! hits     = full − slots, then slots / blocks of all others, whatever the policy
//! ```
//! A cache hits such blocks as far as it holds them, whatever the policy: it has the share of them that its size is. Of what has a pattern
//! LRU hits more, or less, as of a loop, of which another policy keeps a part.

use super::choose::hit_ratio;
use super::{BLOCK_SIZES, Disk};
use crate::mrc::{Curve, Point};

/// Where there is a pattern, so many of the reads hit, or miss, besides those that would if there were none.
const PATTERN_MIN: f64 = 0.05;
/// Steps of halving that find the size of the set.
const STEPS: u32 = 60;

/// Uses without a pattern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Random {
    uses: f64,
    distinct: f64,
    /// The set.
    blocks: f64,
}

impl Random {
    /// So many uses, of which so many blocks were seen.
    pub fn of(uses: f64, distinct: f64) -> Random {
        let blocks = if uses > distinct && distinct >= 1.0 {
            distinct / seen(uses / distinct)
        } else {
            f64::INFINITY
        };
        Random { uses, distinct, blocks }
    }

    /// Share of the uses that hit in a cache that is empty at the beginning.
    pub fn hits(&self, slots: f64) -> f64 {
        let &Random { uses, distinct, blocks } = self;
        if blocks.is_infinite() {
            return 0.0;
        }
        let full = if slots < blocks { -blocks * (-slots / blocks).ln_1p() } else { uses };
        let hits = match full < uses {
            true => (full - slots) + (uses - full) * slots / blocks,
            false => uses - distinct,
        };
        (hits / uses).clamp(0.0, 1.0)
    }
}

/// Share of the set that was seen, when each block that was seen was used so often on the mean.
fn seen(times: f64) -> f64 {
    // With x uses for each block of the set, 1 − e^−x of it is seen, and x / (1 − e^−x) uses are of each of these.
    let (mut low, mut high) = (0.0, times);
    for _ in 0..STEPS {
        let x: f64 = (low + high) / 2.0;
        let share = -(-x).exp_m1();
        if share * times > x { low = x } else { high = x }
    }
    -(-high).exp_m1()
}

/// The smallest cache that shows a pattern: more reads hit, or pieces of them, than would without any, or LRU hits fewer, as of
/// a loop.
///
/// Reads without a pattern are so whatever is written beside them: they are compared with random ones for which they have the cache alone.
pub(super) fn pattern_from(disk: &Disk) -> u64 {
    let of_pieces = |curve: &&Curve| curve.block_size == BLOCK_SIZES[0];
    let blocks = |bytes: u64| bytes as f64 / BLOCK_SIZES[0] as f64;
    let Some(lru) = disk.lru(BLOCK_SIZES[0]) else { return u64::MAX };
    let all = Random::of(disk.info.reuse.uses as f64, blocks(lru.footprint));
    let distinct = blocks(disk.of_reads.footprint);
    let reads = Random::of(disk.read_uses as f64, distinct);
    let above = |point: &&Point| {
        let slots = blocks(point.cache_size);
        let hits = hit_ratio(point).max(point.read_hit_ratio);
        hits >= all.hits(slots).max(reads.hits(slots)) + PATTERN_MIN
    };
    let below =
        |point: &&Point| point.read_hit_ratio <= reads.hits(blocks(point.cache_size)) - PATTERN_MIN;
    let cached = disk.curves.iter().filter(of_pieces);
    let found = cached.flat_map(|curve| &curve.points).filter(above);
    let found = found.chain(disk.of_reads.points.iter().filter(below));
    found.map(|point| point.cache_size).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::Random;
    use crate::simulate::{Settings, simulate};

    #[test]
    fn they_are_what_a_simulation_of_random_reads_hits() {
        let record = |block: u64| crate::record::Record {
            time_ns: 0,
            op: crate::record::Op::Read,
            offset: block * 4096,
            len: 4096,
            device: 0,
            latency_ns: None,
        };
        for (uses, blocks) in [(40_000, 4_000), (12_000, 6_000), (3_000, 10_000)] {
            let records: Vec<_> = super::super::tests::random(uses, blocks).map(record).collect();
            let mut seen: Vec<u64> = records.iter().map(|record| record.offset).collect();
            seen.sort_unstable();
            seen.dedup();
            for slots in [blocks / 20, blocks / 4, blocks / 2, blocks * 9 / 10, blocks] {
                let settings = Settings {
                    cache_size: slots * 4096,
                    block_size: 4096,
                    policy: "lru".parse().unwrap(),
                    grid_offset: forebay_core::config::GridOffset::Fixed(0),
                };
                let found = simulate(records.iter().copied().map(Ok), &settings).unwrap();
                let expect = Random::of(uses as f64, seen.len() as f64).hits(slots as f64);
                let of = found.read_hit_ratio;
                assert!((of - expect).abs() < 0.02, "{uses} {blocks} {slots}: {of}, {expect}");
            }
        }
        assert_eq!(Random::of(1000.0, 1000.0).hits(500.0), 0.0, "a scan");
        assert_eq!(Random::of(0.0, 0.0).hits(1.0), 0.0);
    }
}
