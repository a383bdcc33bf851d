use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::policy::LOOKS_MAX;

/// The expected state of an occupied slot.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    block: BlockIndex,
    valid: GranuleMask,
    referenced: bool,
}

fn kinds() -> impl Strategy<Value = PolicyKind> {
    prop::sample::select(PolicyKind::ALL.map(|(kind, _)| kind).to_vec())
}

fn granules() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![1, 2, 4, 8, 16, 32, 64])
}

fn densities() -> impl Strategy<Value = Density> {
    prop::sample::select(vec![Density::Fast, Density::Compact])
}

proptest! {
    #[test]
    fn the_directory_behaves_like_a_map_of_slots(
        (slots, granules, kind, density) in (1..12u32, granules(), kinds(), densities()),
        steps in prop::collection::vec((0..15u8, 0..16u32, any::<u64>()), 0..200),
    ) {
        let mut directory = Directory::new(slots, granules, kind, density);
        let mut model: BTreeMap<SlotId, Entry> = BTreeMap::new();
        let mut taken: BTreeSet<SlotId> = BTreeSet::new();
        let mut quarantined = 0;
        for (what, key, bits) in steps {
            let block = BlockIndex(key);
            let mask = GranuleMask(bits).intersect(GranuleMask::span(0, granules));
            let found = model.iter().find(|(_, e)| e.block == block).map(|(&slot, _)| slot);
            prop_assert_eq!(directory.find(block), found);
            let spare = taken.first().copied();
            match (what, found, spare) {
                (0, None, Some(slot)) if !mask.is_empty() => {
                    taken.remove(&slot);
                    directory.insert(slot, block, mask);
                    prop_assert!(!directory.remembers(block));
                    model.insert(slot, Entry { block, valid: mask, referenced: false });
                }
                (1 | 2, Some(slot), _) => {
                    directory.hit(slot);
                    model.get_mut(&slot).unwrap().referenced = true;
                }
                (3, Some(slot), _) => {
                    directory.validate(slot, mask);
                    let valid = &mut model.get_mut(&slot).unwrap().valid;
                    *valid = valid.union(mask);
                }
                (4, Some(slot), _) => {
                    let valid = &mut model.get_mut(&slot).unwrap().valid;
                    *valid = valid.without(mask);
                    let gone = valid.is_empty();
                    prop_assert_eq!(directory.invalidate(slot, mask), gone);
                    if gone {
                        model.remove(&slot);
                        taken.insert(slot);
                    }
                }
                (5, Some(slot), _) => {
                    prop_assert_eq!(directory.remove(slot), block);
                    model.remove(&slot);
                    taken.insert(slot);
                }
                (6, Some(old), Some(new)) => {
                    directory.replace(old, new);
                    let entry = model.remove(&old).unwrap();
                    model.insert(new, entry);
                    taken.remove(&new);
                    taken.insert(old);
                }
                (7, _, Some(slot)) => {
                    taken.remove(&slot);
                    if bits % 16 == 0 {
                        directory.quarantine(slot);
                        quarantined += 1;
                    } else {
                        directory.release(slot);
                    }
                }
                (8, ..) => match directory.evict() {
                    Some(Evicted { slot, block, valid, referenced }) => {
                        let entry = Entry { block, valid, referenced };
                        prop_assert_eq!(model.remove(&slot), Some(entry));
                        taken.insert(slot);
                    }
                    None => prop_assert!(model.is_empty()),
                },
                (9, ..) if bits % 8 == 0 => {
                    directory.clear();
                    model.clear();
                    prop_assert!((0..16).all(|key| !directory.remembers(BlockIndex(key))));
                }
                (12, ..) if bits % 4 == 0 && !directory.is_handing_over() => {
                    let kinds = PolicyKind::ALL;
                    directory.change_policy(kinds[key as usize % kinds.len()].0);
                }
                (13, ..) => directory.hand_over(key % 4),
                _ => match directory.take_free() {
                    Some(slot) => prop_assert!(taken.insert(slot) && !model.contains_key(&slot)),
                    None => {
                        let used = model.len() + taken.len() + quarantined;
                        prop_assert_eq!(used, slots as usize);
                    }
                },
            }
            directory.check_invariants();
            prop_assert_eq!(directory.len() as usize, model.len());
            prop_assert_eq!(directory.quarantined() as usize, quarantined);
            for (&slot, entry) in &model {
                prop_assert_eq!(directory.block_of(slot), Some(entry.block));
                prop_assert_eq!(directory.valid(slot), entry.valid);
                prop_assert_eq!(directory.is_referenced(slot), entry.referenced);
            }
            for &slot in &taken {
                prop_assert_eq!(directory.block_of(slot), None);
                prop_assert_eq!(directory.valid(slot), GranuleMask::NONE);
            }
        }
    }

    #[test]
    fn memory_is_exactly_as_computed_before(
        (slots, granules, kind, density) in (1..3000u32, granules(), kinds(), densities()),
    ) {
        let directory = Directory::new(slots, granules, kind, density);
        prop_assert_eq!(
            directory.memory_bytes(),
            Directory::memory_bytes_for(slots, granules, kind, density)
        );
    }
}

#[test]
fn metadata_and_checksums_keep_to_26_bytes_per_4_kib_of_flash() {
    for (kind, _) in PolicyKind::ALL {
        for granules in [1, 2, 4, 8, 16, 32, 64] {
            let slots = (1 << 24) / granules;
            let bytes = Directory::memory_bytes_for(slots, granules, kind, Density::Compact);
            let per_granule = bytes as f64 / f64::from(slots * granules) + 4.0;
            assert!(per_granule <= 26.0, "{kind}, {granules} granules: {per_granule}");
        }
    }
}

#[test]
fn a_block_that_comes_back_is_told_to_the_policy_once() {
    let mut directory = Directory::new(10, 1, PolicyKind::S3Fifo, Density::Fast);
    let put = |directory: &mut Directory, key: u32| {
        let slot = directory.take_free().unwrap_or_else(|| directory.evict().unwrap().slot);
        directory.insert(slot, BlockIndex(key), GranuleMask(1));
    };
    (0..11).for_each(|key| put(&mut directory, key));
    assert!(directory.remembers(BlockIndex(0)), "block 0 was dropped from the small queue");
    put(&mut directory, 0);
    assert!(!directory.remembers(BlockIndex(0)));
    // Block 0 is in the main queue now: new blocks drive each other out, not it.
    (100..200).for_each(|key| put(&mut directory, key));
    assert!(directory.find(BlockIndex(0)).is_some());
}

#[test]
fn moving_a_block_keeps_its_place_in_the_order() {
    let mut directory = Directory::new(4, 1, PolicyKind::Lru, Density::Fast);
    for key in 0..3 {
        let slot = directory.take_free().unwrap();
        directory.insert(slot, BlockIndex(key), GranuleMask(1));
    }
    let new = directory.take_free().unwrap();
    directory.replace(SlotId(0), new);
    assert_eq!(directory.find(BlockIndex(0)), Some(new));
    let evicted = directory.evict().unwrap();
    assert_eq!((evicted.slot, evicted.block), (new, BlockIndex(0)));
}

/// A full directory of `slots` slots, of which those with an even block were used.
fn full(kind: PolicyKind, slots: u32) -> Directory {
    let mut directory = Directory::new(slots, 1, kind, Density::Fast);
    for key in 0..slots {
        let slot = directory.take_free().unwrap();
        directory.insert(slot, BlockIndex(key), GranuleMask(1));
    }
    for key in (0..slots).step_by(2) {
        let slot = directory.find(BlockIndex(key)).unwrap();
        directory.hit(slot);
    }
    directory
}

fn blocks_in_order(directory: &mut Directory) -> Vec<u32> {
    std::iter::from_fn(|| directory.evict()).map(|evicted| evicted.block.0).collect()
}

#[test]
fn another_policy_gets_the_blocks_in_the_order_of_the_one_before() {
    let odd_first: Vec<u32> = (1..100).step_by(2).chain((0..100).step_by(2)).collect();
    for blocks_max in [1, 7, 100] {
        let mut directory = full(PolicyKind::Lru, 100);
        directory.change_policy(PolicyKind::Fifo);
        while directory.is_handing_over() {
            directory.hand_over(blocks_max);
            directory.check_invariants();
        }
        assert_eq!(blocks_in_order(&mut directory), odd_first);
    }
}

#[test]
fn while_the_policy_changes_the_coldest_block_leaves_first() {
    let mut directory = full(PolicyKind::Lru, 100);
    directory.change_policy(PolicyKind::Fifo);
    directory.hand_over(10);
    // A use counts on either side: 1 went over, 41 did not.
    directory.hit(directory.find(BlockIndex(1)).unwrap());
    directory.hit(directory.find(BlockIndex(41)).unwrap());
    assert_eq!(directory.evict().unwrap().block, BlockIndex(21));
    assert_eq!(directory.evict().unwrap().block, BlockIndex(23));
    let slot = directory.take_free();
    assert_eq!(slot, None, "evicted slots stay taken");
    directory.hand_over(1000);
    assert!(!directory.is_handing_over());
    directory.check_invariants();
    let order = blocks_in_order(&mut directory);
    assert_eq!(order[..10], [1, 3, 5, 7, 9, 11, 13, 15, 17, 19], "those that went over first");
    assert_eq!(*order.last().unwrap(), 41, "it was used last");
    assert_eq!(order.len(), 98);
}

#[test]
fn every_policy_takes_over_from_every_other_one_without_losing_a_block() {
    for (from, _) in PolicyKind::ALL {
        for (to, _) in PolicyKind::ALL {
            let mut directory = full(from, 300);
            let before = directory.memory_bytes();
            directory.change_policy(to);
            assert!(directory.memory_bytes() > before, "two policies take more than one");
            directory.hand_over(100);
            assert_eq!(directory.len(), 300);
            while directory.is_handing_over() {
                directory.hand_over(100);
                directory.check_invariants();
            }
            let after = Directory::memory_bytes_for(300, 1, to, Density::Fast);
            assert_eq!(directory.memory_bytes(), after);
            let mut order = blocks_in_order(&mut directory);
            order.sort();
            assert_eq!(order, (0..300).collect::<Vec<u32>>(), "{from} to {to}");
        }
    }
}

#[test]
fn a_policy_whose_blocks_were_all_used_often_hands_over_in_small_steps() {
    const SLOTS: u32 = 16 * LOOKS_MAX;
    const VISITS: u32 = 2 * LOOKS_MAX;
    for kind in [PolicyKind::Auto, PolicyKind::S3Fifo] {
        let mut directory = full(kind, SLOTS);
        for slot in (0..3).flat_map(|_| (0..SLOTS).map(SlotId)) {
            directory.hit(slot);
        }
        directory.change_policy(PolicyKind::Lru);
        let mut calls = 0;
        while let Some(before) = directory.handover.as_ref().map(Handover::len) {
            let spared = |it: &Directory| it.handover.as_ref().map(Handover::spared);
            let spared_before = spared(&directory).unwrap();
            directory.hand_over(VISITS);
            let moved = before - directory.handover.as_ref().map_or(0, Handover::len);
            let looks = spared(&directory).map_or(0, |after| after - spared_before);
            let all = u64::from(moved) + looks;
            assert!(moved > 0 && all <= u64::from(VISITS + LOOKS_MAX), "{kind}: {all} looks");
            calls += 1;
        }
        // Each block is spared three times in the main queue, and once more on its way there.
        assert!((8..=40).contains(&calls), "{kind}: {calls} calls");
    }
}

#[test]
fn a_refused_block_can_be_remembered() {
    let mut directory = Directory::new(100, 1, PolicyKind::Lru, Density::Compact);
    directory.remember(BlockIndex(5));
    assert!(directory.remembers(BlockIndex(5)));
    assert!(!directory.remembers(BlockIndex(6)));
}

#[test]
#[should_panic(expected = "too wide")]
fn a_mask_with_more_granules_than_a_block_is_refused() {
    let mut directory = Directory::new(1, 2, PolicyKind::Lru, Density::Fast);
    let slot = directory.take_free().unwrap();
    directory.insert(slot, BlockIndex(0), GranuleMask(4));
}
