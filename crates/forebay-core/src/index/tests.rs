use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::*;
use crate::splitmix;

proptest! {
    /// Few blocks over few buckets make long chains; several loads.
    #[test]
    fn the_index_behaves_like_a_map(
        slots in 1..20u32,
        density in prop::sample::select(vec![Density::Fast, Density::Compact]),
        slots_per_bucket in 1..30u32,
        steps in prop::collection::vec((0..5u8, 0..40u32), 0..300),
    ) {
        let mut index = Index::with_load(slots, density, slots_per_bucket);
        let mut model: HashMap<u32, SlotId> = HashMap::new();
        let mut taken: Vec<SlotId> = Vec::new();
        let mut quarantined = 0;
        for (what, key) in steps {
            let block = BlockIndex(key.wrapping_mul(0x0101_0101));
            match what {
                0 => match index.take_free() {
                    Some(slot) => taken.push(slot),
                    None => prop_assert_eq!(model.len() + taken.len() + quarantined, slots as usize),
                },
                1 if !model.contains_key(&block.0) => if let Some(slot) = taken.pop() {
                    index.insert(slot, block);
                    model.insert(block.0, slot);
                },
                2 => if let Some(slot) = model.remove(&block.0) {
                    prop_assert_eq!(index.remove(slot), block);
                    taken.push(slot);
                },
                3 => if let Some(new) = taken.pop() {
                    if let Some(old) = model.get_mut(&block.0) {
                        index.replace(*old, new);
                        taken.push(std::mem::replace(old, new));
                    } else if key == 0 {
                        index.quarantine(new);
                        quarantined += 1;
                    } else {
                        index.release(new);
                    }
                },
                _ => prop_assert_eq!(index.find(block), model.get(&block.0).copied()),
            }
            index.check_invariants();
            prop_assert_eq!(index.len() as usize, model.len());
        }
        for (&key, &slot) in &model {
            prop_assert_eq!(index.find(BlockIndex(key)), Some(slot));
            prop_assert_eq!(index.block_of(slot), Some(BlockIndex(key)));
        }
        for &slot in &taken {
            prop_assert_eq!(index.block_of(slot), None);
        }
    }
}

#[test]
fn slots_are_given_out_in_ascending_order_and_then_the_last_released_first() {
    let mut index = Index::new(3, Density::Compact);
    let order: Vec<_> = std::iter::from_fn(|| index.take_free()).map(|slot| slot.0).collect();
    assert_eq!(order, [0, 1, 2]);
    index.release(SlotId(1));
    index.release(SlotId(0));
    assert_eq!(index.take_free(), Some(SlotId(0)));
}

/// Sequential, strided and scattered blocks: a hit takes about as many lines as the density says.
#[test]
fn common_patterns_of_blocks_are_found_in_few_lines() {
    const SLOTS: u32 = 1 << 14;
    type Pattern = fn(u32) -> u32;
    let patterns: [(&str, Pattern); 5] = [
        ("sequential", |i| i),
        ("every 16th", |i| i * 16),
        ("every 4096th", |i| i << 12),
        ("two far regions", |i| (i & 1) << 27 | i >> 1),
        ("scattered", |i| i.wrapping_mul(2_654_435_761) ^ i >> 3),
    ];
    for (density, most) in [(Density::Fast, 1.1), (Density::Compact, 3.2)] {
        for (name, pattern) in patterns {
            let mut index = Index::new(SLOTS, density);
            for i in 0..SLOTS {
                let slot = index.take_free().unwrap();
                if index.find(BlockIndex(pattern(i))).is_none() {
                    index.insert(slot, BlockIndex(pattern(i)));
                }
            }
            let loads: u32 = (0..SLOTS).map(|i| loads_of(&index, BlockIndex(pattern(i)))).sum();
            let average = f64::from(loads) / f64::from(SLOTS);
            assert!(average < most, "{density:?}, {name}: {average} lines a hit");
        }
    }
}

#[test]
fn who_does_not_know_the_salt_cannot_choose_blocks_of_one_bucket() {
    for density in [Density::Fast, Density::Compact] {
        let known = Index::new(1024, density);
        let bucket = known.bucket_of(BlockIndex(7));
        let shares = |block: &BlockIndex| known.bucket_of(*block) == bucket;
        let chosen: Vec<_> = (0..).map(BlockIndex).filter(shares).take(1024).collect();
        for salt in 1..65 {
            let index = Index::new(1024, density).salted(splitmix::hash(salt));
            let mut of_bucket = BTreeMap::new();
            for block in &chosen {
                let Bucket { line, chain } = index.bucket_of(*block);
                *of_bucket.entry((line, chain)).or_insert(0) += 1;
            }
            let most = of_bucket.values().max();
            assert!(most < Some(&64), "{density:?}: {most:?} of 1024 in one bucket");
        }
    }
}

/// Lines and entries that it takes to find `block`.
fn loads_of(index: &Index, block: BlockIndex) -> u32 {
    let bucket = index.bucket_of(block);
    if index.way_of(bucket, block).is_some() {
        return 1;
    }
    let (mut slot, mut loads) = (index.lines[bucket.line].0[bucket.chain], 2);
    while index.entries[slot as usize].key != block.0 {
        slot = index.entries[slot as usize].next;
        loads += 1;
    }
    loads
}

#[test]
#[should_panic(expected = "block 7 is there")]
fn a_block_cannot_be_in_two_slots() {
    let mut index = Index::new(2, Density::Fast);
    for _ in 0..2 {
        let slot = index.take_free().unwrap();
        index.insert(slot, BlockIndex(7));
    }
}

#[test]
#[should_panic(expected = "slot 0 is not taken")]
fn a_free_slot_cannot_be_released() {
    Index::new(1, Density::Fast).release(SlotId(0));
}

#[test]
fn memory_is_as_computed_before() {
    for density in [Density::Fast, Density::Compact] {
        for slots in [1, 5, 1000, 1001] {
            let bytes = Index::new(slots, density).memory_bytes() as u64;
            assert_eq!(bytes, Index::memory_bytes_for(slots, density));
        }
    }
    assert_eq!(Index::memory_bytes_for(9600, Density::Compact), 96_000);
    assert_eq!(Index::memory_bytes_for(9600, Density::Fast), 199_680);
}

#[test]
fn free_slots_from_one_on_are_taken_some_at_a_time() {
    for visits in [1, 3, 7, 100] {
        let mut index = Index::new(40, Density::Compact);
        let taken: Vec<SlotId> = (0..10).filter_map(|_| index.take_free()).collect();
        index.begin_taking_from(SlotId(20));
        let mut found = Vec::new();
        for round in 0.. {
            let is_done = index.sift(visits);
            index.check_invariants();
            if round == 0 {
                index.release(taken[9]);
            }
            if round % 2 == 1 {
                found.extend(index.take_free());
            }
            index.check_invariants();
            if is_done {
                break;
            }
        }
        found.extend(std::iter::from_fn(|| index.take_free()));
        found.sort();
        assert_eq!(found, (9..20).map(SlotId).collect::<Vec<_>>(), "{visits}");
        assert!((20..40).map(SlotId).all(|slot| index.is_taken(slot)));
        index.resize(20);
        index.check_invariants();
    }
}

#[test]
fn a_search_for_a_free_slot_goes_through_those_that_are_not_looked_at_yet() {
    let mut index = Index::new(4, Density::Compact);
    index.begin_taking_from(SlotId(2));
    let found: Vec<_> = std::iter::from_fn(|| index.take_free()).map(|slot| slot.0).collect();
    assert_eq!((found, index.free_len()), (vec![0, 1], 0));
}

#[test]
fn with_room_another_number_of_slots_moves_no_block() {
    let mut index = Index::new(100, Density::Compact);
    index.make_room(400);
    let bytes = Index::memory_bytes_for(100, Density::Compact)
        + Index::room_bytes_for(100, 400, Density::Compact);
    assert_eq!(index.memory_bytes() as u64, bytes);
    for block in 0..100 {
        let slot = index.take_free().unwrap();
        index.insert(slot, BlockIndex(block * 77));
    }
    let buckets = index.buckets;
    for slots in [400, 100, 250, 401] {
        index.resize(slots);
        index.check_invariants();
        assert_eq!(index.buckets == buckets, slots <= 400);
        assert!((0..100).all(|block| index.find(BlockIndex(block * 77)) == Some(SlotId(block))));
    }
}
