use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::splitmix::Rng;

/// Uses of granules that hit in an LRU cache of `slots` blocks, from a plain list of (block, granules that are valid).
fn naive_hits(uses: &[(u64, Range<u32>)], slots: usize) -> u64 {
    let mut cache: Vec<(u64, u64)> = Vec::new();
    let mut hits = 0;
    for (block, granules) in uses {
        let mut valid = 0;
        if let Some(at) = cache.iter().position(|(cached, _)| cached == block) {
            valid = cache.remove(at).1;
        } else if cache.len() == slots {
            cache.remove(0);
        }
        hits += granules.clone().filter(|granule| valid >> granule & 1 == 1).count() as u64;
        cache.push((*block, granules.clone().fold(valid, |valid, granule| valid | 1 << granule)));
    }
    hits
}

fn uses() -> impl Strategy<Value = Vec<(u64, Range<u32>)>> {
    let granules = (0..16u32, 1..5u32).prop_map(|(first, len)| first..(first + len).min(16));
    prop::collection::vec((0..50u64, granules), 0..1500)
}

proptest! {
    #[test]
    fn with_a_slot_for_each_block_it_is_exact(uses in uses()) {
        let mut shards = Shards::new(50, 16);
        for (n, (block, granules)) in uses.iter().enumerate() {
            let kind = if n % 3 == 0 { Kind::Write } else { Kind::Read };
            shards.on_use(kind, *block, granules.clone());
        }
        for slots in [1, 2, 3, 5, 8, 20, 49, 50, 1000] {
            let hits = shards.reads().hits(slots) + shards.writes().hits(slots);
            prop_assert_eq!(hits as u64, naive_hits(&uses, slots as usize));
        }
        let blocks: BTreeSet<_> = uses.iter().map(|(block, _)| *block).collect();
        let granule = |(block, of): &(u64, Range<u32>)| {
            of.clone().map(|granule| (*block, granule)).collect::<Vec<_>>()
        };
        let granules: BTreeSet<_> = uses.iter().flat_map(granule).collect();
        prop_assert_eq!(shards.blocks(), blocks.len() as f64);
        prop_assert_eq!(shards.granules(), granules.len() as f64);
    }

    #[test]
    fn more_slots_never_hit_less_and_counts_add_up(uses in uses(), samples in 1..50u32) {
        let mut shards = Shards::new(samples, 16);
        for (block, granules) in &uses {
            shards.on_use(Kind::Read, *block, granules.clone());
        }
        prop_assert!(shards.samples() <= samples);
        let hits: Vec<_> = (0..100).map(|slots| shards.reads().hits(slots)).collect();
        prop_assert!(hits.is_sorted(), "{:?}", hits);
        let all: u64 = uses.iter().map(|(_, granules)| granules.len() as u64).sum();
        prop_assert_eq!(shards.reads().uses(), all);
        prop_assert!(hits[99] <= all as f64 && hits[0] == 0.0);
        prop_assert_eq!(shards.writes().uses(), 0);
    }
}

/// Of 200,000 blocks one from anywhere and one from those that were used not long ago, by turns.
fn mixed() -> impl Iterator<Item = u64> {
    let mut random = Rng::new(7);
    (0..2_000_000u64).map(move |n| match n % 2 {
        0 => random.below(200_000),
        _ => n / 50 % 180_000 + random.below(20_000),
    })
}

#[test]
fn a_sample_is_near_the_exact_curve() {
    let (mut sampled, mut exact) = (Shards::new(SAMPLES, 1), Shards::new(250_000, 1));
    for block in mixed() {
        sampled.on_use(Kind::Read, block, 0..1);
        exact.on_use(Kind::Read, block, 0..1);
    }
    assert_eq!(exact.share(), 1.0);
    assert!(sampled.share() < 0.05 && sampled.samples() <= SAMPLES);
    let ratio = |shards: &Shards, slots| shards.reads().hits(slots) / 2e6;
    let sizes = (1..100).map(|n| n * 2000);
    let differ = sizes.map(|slots| (ratio(&sampled, slots) - ratio(&exact, slots)).abs());
    let mean = differ.sum::<f64>() / 99.0;
    assert!(mean < 0.01, "{mean}");
    assert!(exact.spread().deviation(1000) == 0.0, "nothing is left to chance");
    let deviation = sampled.spread().deviation(100_000) / 2e6;
    assert!((0.0005..0.01).contains(&deviation), "{deviation}");
    assert!((sampled.blocks() / exact.blocks() - 1.0).abs() < 0.03);
}

#[test]
fn beside_a_live_disk_it_looks_at_one_block_in_eight_and_at_fewer_of_a_large_one() {
    let (mut live, mut all) = (Shards::for_disk(1), Shards::new(40_000, 1));
    for block in mixed().map(|block| block % 40_000) {
        live.on_use(Kind::Read, block, 0..1);
        all.on_use(Kind::Read, block, 0..1);
    }
    assert_eq!((live.share(), all.share()), (0.125, 1.0));
    assert!((live.blocks() / all.blocks() - 1.0).abs() < 0.01);
    for slots in (1..40).map(|n| n * 1000) {
        let [live, all] = [&live, &all].map(|shards| shards.reads().hits(slots) / 2e6);
        assert!((live - all).abs() < 0.01, "{slots}: {live} {all}");
    }
    for block in 0..200_000 {
        live.on_use(Kind::Read, block, 0..1);
    }
    assert!(live.share() < 0.05 && live.emptied().share() == 0.125);
}

#[test]
fn beside_a_live_disk_it_takes_a_mebibyte_at_most() {
    for granules in [1, 2, 8, 16, 32, 64] {
        let shards = Shards::for_disk(granules);
        let samples = shards.index.slots();
        assert!(samples >= SAMPLES / 2);
        let own = size_of_val(&*shards.times)
            + size_of_val(&*shards.needs)
            + shards.positions.capacity() * size_of::<(u32, u32)>()
            + 2 * COUNTS * size_of::<f64>()
            + Spread::BYTES
            + shards.index.memory_bytes();
        let bytes = own as u64 + Recency::memory_bytes_for(2 * samples);
        assert_eq!(bytes, Shards::memory_bytes_for(samples, granules));
        assert!(bytes <= LIVE_BYTES);
    }
}

#[test]
fn emptied_it_knows_the_uses_and_no_block() {
    let mut shards = Shards::new(8, 1);
    for block in [1, 2, 1, 2] {
        shards.on_use(Kind::Read, block, 0..1);
    }
    let mut shards = shards.emptied();
    shards.on_use(Kind::Read, 1, 0..1);
    assert_eq!((shards.reads().uses(), shards.reads().hits(2), shards.blocks()), (5, 2.0, 1.0));
}
