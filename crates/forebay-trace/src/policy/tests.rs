use std::collections::BTreeMap;

use forebay_core::directory::{Directory, Evicted};
use forebay_core::geometry::GranuleMask;
use forebay_core::ids::{BlockIndex, SlotId};
use forebay_core::index::Density;
use proptest::prelude::*;

use super::*;

/// Feeds `steps` ("0" insert slot 0, "+0" hit, "-0" remove, "0>1" move) to a policy and evicts all.
fn check(kind: PolicyKind, steps: &str, expect: &[u32]) {
    let slot = |text: &str| SlotId(text.parse().unwrap());
    let mut policy = kind.build(16);
    let index = model::full_index(16);
    for step in steps.split_whitespace() {
        if let Some((from, to)) = step.split_once('>') {
            policy.on_move(slot(from), slot(to));
        } else if let Some(hit) = step.strip_prefix('+') {
            policy.on_hit(slot(hit), &index);
        } else if let Some(gone) = step.strip_prefix('-') {
            policy.on_remove(slot(gone));
        } else {
            policy.on_insert(slot(step), BlockIndex(slot(step).0), false);
        }
        policy.check_invariants();
    }
    assert_eq!(policy.len() as usize, expect.len(), "{kind}: {steps}");
    let order: Vec<_> = std::iter::from_fn(|| policy.evict(&index)).map(|v| v.slot.0).collect();
    assert_eq!(order, expect, "{kind}: {steps}");
    assert!(policy.is_empty());
}

#[test]
fn clock_gives_what_was_used_another_round() {
    check(CLOCK, "3 1 2", &[3, 1, 2]);
    check(CLOCK, "3 1 2 +3", &[1, 2, 3]);
    check(CLOCK, "3 1 2 +2 +3 +3", &[1, 3, 2]);
    check(CLOCK, "3 1 2 +3 3>4 -1", &[2, 4]);
}

#[test]
fn sieve_spares_what_was_used_where_it_is() {
    check(SIEVE, "3 1 2", &[3, 1, 2]);
    check(SIEVE, "3 1 2 +3", &[1, 2, 3]);
    check(SIEVE, "3 1 2 4 +1", &[3, 2, 4, 1]);
    check(SIEVE, "3 1 2 +3 3>4 -1", &[2, 4]);
}

#[test]
fn arc_and_lirs_drop_what_was_used_once_first() {
    check(ARC, "3 1 2 +3", &[1, 2, 3]);
    check(ARC, "3 1 2 +3 +1 +3 3>4", &[2, 1, 4]);
    check(LIRS, "3 1 2 +3 3>4", &[1, 2, 4]);
}

#[test]
fn every_name_leads_to_its_policy_and_others_to_none() {
    for kind in ONLINE {
        assert_eq!(named(kind.name()), Some(kind));
        assert_eq!(kind.build(100).memory_bytes() as u64, kind.memory_bytes_for(100));
    }
    assert_eq!(named("mru"), None);
    let engines = PolicyKind::ALL.map(|(kind, _)| kind);
    assert!(
        engines.iter().all(|kind| ONLINE.contains(kind)),
        "a disk's policies are compared, too"
    );
}

proptest! {
    #[test]
    fn a_directory_with_any_policy_behaves_like_a_map(
        slots in 1..12u32,
        kind in prop::sample::select(ONLINE.to_vec()),
        steps in prop::collection::vec((0..10u8, 0..16u32), 0..200),
    ) {
        let mut directory = Directory::new(slots, 1, kind, Density::Fast);
        let mut model: BTreeMap<BlockIndex, SlotId> = BTreeMap::new();
        for (what, key) in steps {
            let block = BlockIndex(key);
            prop_assert_eq!(directory.find(block), model.get(&block).copied());
            match (what, directory.find(block)) {
                (0, Some(slot)) => {
                    prop_assert_eq!(directory.remove(slot), block);
                    directory.release(slot);
                    model.remove(&block);
                }
                (1, Some(slot)) => {
                    if let Some(new) = directory.take_free() {
                        directory.replace(slot, new);
                        directory.release(slot);
                        model.insert(block, new);
                    }
                }
                (2, _) if key == 0 => {
                    directory.clear();
                    model.clear();
                }
                (_, Some(slot)) => directory.hit(slot),
                (_, None) => {
                    let free = directory.take_free();
                    let slot = free.unwrap_or_else(|| {
                        let Evicted { slot, block, .. } = directory.evict().expect("it is full");
                        assert_eq!(model.remove(&block), Some(slot));
                        slot
                    });
                    directory.insert(slot, block, GranuleMask(1));
                    model.insert(block, slot);
                }
            }
            directory.check_invariants();
            prop_assert_eq!(directory.len() as usize, model.len());
        }
    }

    #[test]
    fn memory_is_exactly_as_computed_before(
        slots in 1..3000u32,
        kind in prop::sample::select(ONLINE.to_vec()),
    ) {
        let directory = Directory::new(slots, 1, kind, Density::Fast);
        let expect = Directory::memory_bytes_for(slots, 1, kind, Density::Fast);
        prop_assert_eq!(directory.memory_bytes(), expect);
    }
}
