use super::*;
use crate::index::Density;

/// An index whose slot N holds block N.
pub(super) fn full_index(slots: u32) -> Index {
    let mut index = Index::new(slots, Density::Compact);
    for _ in 0..slots {
        let slot = index.take_free().unwrap();
        index.insert(slot, BlockIndex(slot.0));
    }
    index
}

/// Feeds `steps` ("0" insert slot 0, "+0" hit, "-0" remove, "0>1" move) to a policy and evicts all.
fn check(kind: PolicyKind, steps: &str, expect: &[u32]) {
    let slot = |text: &str| SlotId(text.parse().unwrap());
    let mut policy = kind.build(16);
    let index = full_index(16);
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
fn fifo_drops_the_oldest_whatever_is_used() {
    check(PolicyKind::Fifo, "", &[]);
    check(PolicyKind::Fifo, "3 1 2", &[3, 1, 2]);
    check(PolicyKind::Fifo, "3 1 2 +3 +3", &[3, 1, 2]);
    check(PolicyKind::Fifo, "3 1 2 -1 1", &[3, 2, 1]);
    check(PolicyKind::Fifo, "3 1 2 3>4", &[4, 1, 2]);
}

#[test]
fn lru_drops_what_was_not_used_for_the_longest_time() {
    check(PolicyKind::Lru, "3 1 2", &[3, 1, 2]);
    check(PolicyKind::Lru, "3 1 2 +3", &[1, 2, 3]);
    check(PolicyKind::Lru, "3 1 2 +2 +1 +2", &[3, 1, 2]);
    check(PolicyKind::Lru, "3 1 2 +3 -2", &[1, 3]);
    check(PolicyKind::Lru, "3 1 2 1>7 +3", &[7, 2, 3]);
}

#[test]
fn s3fifo_keeps_what_was_used_twice() {
    check(PolicyKind::S3Fifo, "3 1 2", &[3, 1, 2]);
    check(PolicyKind::S3Fifo, "3 1 2 +3", &[3, 1, 2]);
    check(PolicyKind::S3Fifo, "3 1 2 +3 +3", &[1, 2, 3]);
    check(PolicyKind::S3Fifo, "3 1 2 +3 +3 3>9", &[1, 2, 9]);
}

#[test]
fn every_name_leads_to_its_policy() {
    for (kind, name) in PolicyKind::ALL {
        assert_eq!(PolicyKind::named(name), Some(kind));
        assert_eq!(kind.to_string(), name);
        assert_eq!(kind.build(100).memory_bytes() as u64, kind.memory_bytes_for(100));
    }
    assert_eq!(PolicyKind::named("mru"), None);
}

#[test]
fn a_custom_policy_is_built_and_named_as_it_says() {
    const OLDEST: CustomPolicy = CustomPolicy {
        name: "oldest",
        build: |slots| Box::new(Fifo::new(slots)),
        memory_bytes_for: Links::memory_bytes_for,
    };
    let kind = PolicyKind::Custom(&OLDEST);
    check(kind, "3 1 2 +3 +3", &[3, 1, 2]);
    assert_eq!(kind.to_string(), "oldest");
    assert_eq!(kind.build(100).memory_bytes() as u64, kind.memory_bytes_for(100));
    assert_ne!(kind, PolicyKind::Fifo);
}
