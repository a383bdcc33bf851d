use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

proptest! {
    /// Few blocks over few heads make long chains; several loads.
    #[test]
    fn the_index_behaves_like_a_map(
        slots in 1..20u32,
        slots_per_head in 1..30u32,
        steps in prop::collection::vec((0..5u8, 0..40u32), 0..300),
    ) {
        let mut index = Index::new(slots, slots_per_head);
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
    let mut index = Index::new(3, 2);
    let order: Vec<_> = std::iter::from_fn(|| index.take_free()).map(|slot| slot.0).collect();
    assert_eq!(order, [0, 1, 2]);
    index.release(SlotId(1));
    index.release(SlotId(0));
    assert_eq!(index.take_free(), Some(SlotId(0)));
}

/// Sequential, strided and scattered blocks: chains stay about as short as the load says.
#[test]
fn common_patterns_of_blocks_make_short_chains() {
    const SLOTS: u32 = 1 << 14;
    type Pattern = fn(u32) -> u32;
    let patterns: [(&str, Pattern); 5] = [
        ("sequential", |i| i),
        ("every 16th", |i| i * 16),
        ("every 4096th", |i| i << 12),
        ("two far regions", |i| (i & 1) << 27 | i >> 1),
        ("scattered", |i| i.wrapping_mul(2_654_435_761) ^ i >> 3),
    ];
    for (name, pattern) in patterns {
        let mut index = Index::new(SLOTS, 1);
        for i in 0..SLOTS {
            let slot = index.take_free().unwrap();
            if index.find(BlockIndex(pattern(i))).is_none() {
                index.insert(slot, BlockIndex(pattern(i)));
            }
        }
        let mut loads = 0;
        for &head in &index.heads {
            let (mut slot, mut depth) = (head, 0);
            while slot != NONE {
                depth += 1;
                loads += depth;
                slot = index.entries[slot as usize].next;
            }
        }
        let average = f64::from(loads) / f64::from(index.len());
        assert!(average < 2.0, "{name}: {average} entries per lookup");
    }
}

#[test]
#[should_panic(expected = "block 7 is there")]
fn a_block_cannot_be_in_two_slots() {
    let mut index = Index::new(2, 1);
    for _ in 0..2 {
        let slot = index.take_free().unwrap();
        index.insert(slot, BlockIndex(7));
    }
}

#[test]
#[should_panic(expected = "slot 0 is not taken")]
fn a_free_slot_cannot_be_released() {
    Index::new(1, 1).release(SlotId(0));
}

#[test]
fn memory_is_as_computed_before() {
    for (slots, per_head) in [(1, 1), (1000, 1), (1001, 2), (5, 8)] {
        assert_eq!(
            Index::new(slots, per_head).memory_bytes() as u64,
            Index::memory_bytes_for(slots, per_head)
        );
    }
    assert_eq!(Index::memory_bytes_for(1000, 2), 10_000);
}
