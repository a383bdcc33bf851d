use std::collections::HashMap;

use forebay_core::directory::Directory;
use forebay_core::geometry::GranuleMask;
use forebay_core::index::Density;
use proptest::prelude::*;

use super::super::W_TINY_LFU;
use super::sketch::Sketch;
use super::*;

proptest! {
    #[test]
    fn the_sketch_never_counts_too_few(uses in prop::collection::vec(0..500u32, 0..2000)) {
        let mut sketch = Sketch::new(100);
        let mut truth: HashMap<u32, u16> = HashMap::new();
        for block in uses {
            sketch.add(BlockIndex(block));
            *truth.entry(block).or_insert(0) += 1;
        }
        for (block, count) in truth {
            prop_assert!(sketch.count(BlockIndex(block)) >= count);
        }
    }
}

#[test]
fn the_sketch_is_right_about_few_blocks() {
    let mut sketch = Sketch::new(1000);
    for block in 0..100 {
        (0..=block % 7).for_each(|_| sketch.add(BlockIndex(block)));
    }
    for block in 0..100 {
        assert_eq!(u32::from(sketch.count(BlockIndex(block))), block % 7 + 1);
    }
    assert_eq!(sketch.count(BlockIndex(12345)), 0);
}

#[test]
fn after_enough_hits_every_counter_is_halved_beside_the_uses_that_follow() {
    let mut sketch = Sketch::new(100);
    (0..8).for_each(|_| sketch.add(BlockIndex(1)));
    (0..3200).for_each(|_| sketch.age());
    // 1437 counters, 64 with each use.
    (0..23).for_each(|_| sketch.add(BlockIndex(2)));
    assert_eq!(sketch.count(BlockIndex(1)), 4);
    sketch.clear();
    assert_eq!(sketch.count(BlockIndex(1)), 0);
}

/// Uses a block; true when it was there.
fn touch(directory: &mut Directory, block: u32) -> bool {
    let block = BlockIndex(block);
    if let Some(slot) = directory.find(block) {
        directory.hit(slot);
        return true;
    }
    let slot = directory.take_free().unwrap_or_else(|| directory.evict().unwrap().slot);
    directory.insert(slot, block, GranuleMask(1));
    directory.check_invariants();
    false
}

#[test]
fn what_is_used_often_stays_whatever_passes_by() {
    let mut directory = Directory::new(100, 1, W_TINY_LFU, Density::Fast);
    (0..100).for_each(|block| assert!(!touch(&mut directory, block)));
    touch(&mut directory, 1000);
    for block in (0..5).flat_map(|_| 0..80) {
        touch(&mut directory, block);
    }
    (2000..2500).for_each(|block| assert!(!touch(&mut directory, block)));
    let kept = (0..80).filter(|&block| touch(&mut directory, block)).count();
    assert!(kept >= 76, "{kept} of 80");
}

#[test]
fn a_block_that_comes_back_often_gets_in() {
    let mut directory = Directory::new(100, 1, W_TINY_LFU, Density::Fast);
    (0..200).for_each(|block| assert!(!touch(&mut directory, block)));
    for round in 0..4 {
        touch(&mut directory, 7777);
        (0..5).for_each(|i| assert!(!touch(&mut directory, 3000 + round * 5 + i)));
    }
    assert!(touch(&mut directory, 7777));
}

#[test]
fn a_cache_of_any_size_gives_up_all_that_it_has() {
    for slots in 1..150 {
        let mut directory = Directory::new(slots, 1, W_TINY_LFU, Density::Fast);
        (0..3 * slots).for_each(|block| assert!(!touch(&mut directory, block)));
        assert_eq!(directory.len(), slots);
        directory.clear();
        assert!(directory.is_empty());
    }
}
