use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::model::full_index;
use super::*;

/// The algorithm of the paper on plain queues of (slot, count).
struct Reference {
    small: VecDeque<(u32, u8)>,
    main: VecDeque<(u32, u8)>,
    small_len: usize,
    is_filling: bool,
}

impl Reference {
    fn all(&mut self) -> impl Iterator<Item = &mut (u32, u8)> {
        self.small.iter_mut().chain(&mut self.main)
    }

    fn insert(&mut self, slot: u32, remembered: bool) {
        self.is_filling |= self.small.is_empty() && self.main.is_empty();
        let has_share = self.small.len() >= self.small_len;
        if remembered || self.is_filling && has_share {
            self.main.push_front((slot, 0));
        } else {
            self.small.push_front((slot, 0));
        }
    }

    fn evict(&mut self) -> Option<Victim> {
        self.is_filling = false;
        let mut from_small = self.small.len() >= self.small_len || self.main.is_empty();
        while !self.small.is_empty() || !self.main.is_empty() {
            if from_small && let Some((slot, count)) = self.small.pop_back() {
                if count < 2 {
                    return Some(Victim { slot: SlotId(slot), remember: true });
                }
                self.main.push_front((slot, 0));
            } else if let Some((slot, count)) = self.main.pop_back() {
                from_small = false;
                if count == 0 {
                    return Some(Victim { slot: SlotId(slot), remember: false });
                }
                self.main.push_front((slot, count - 1));
            }
        }
        None
    }
}

proptest! {
    #[test]
    fn it_evicts_what_the_paper_evicts(
        slots in 1..30u32,
        steps in prop::collection::vec((0..8u8, 0..30u32, any::<bool>()), 0..400),
    ) {
        let mut policy = S3Fifo::new(slots);
        let index = full_index(slots);
        let mut reference = Reference {
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_len: (slots as usize / 10).max(1),
            is_filling: true,
        };
        for (what, slot, remembered) in steps {
            let slot = slot % slots;
            let known = reference.all().any(|&mut (s, _)| s == slot);
            match (what, known) {
                (0, true) => {
                    policy.on_remove(SlotId(slot));
                    reference.small.retain(|&(s, _)| s != slot);
                    reference.main.retain(|&(s, _)| s != slot);
                }
                (1, _) => {
                    prop_assert_eq!(policy.evict(&index), reference.evict());
                }
                (3, true) => {
                    let to = (slot + 1) % slots;
                    if !reference.all().any(|&mut (s, _)| s == to) {
                        policy.on_move(SlotId(slot), SlotId(to));
                        reference.all().filter(|m| m.0 == slot).for_each(|m| m.0 = to);
                    }
                }
                (_, true) => {
                    policy.on_hit(SlotId(slot));
                    reference.all().filter(|m| m.0 == slot).for_each(|m| m.1 = (m.1 + 1).min(3));
                }
                (_, false) => {
                    policy.on_insert(SlotId(slot), BlockIndex(slot), remembered);
                    reference.insert(slot, remembered);
                }
            }
            policy.check_invariants();
            prop_assert_eq!(policy.len() as usize, reference.small.len() + reference.main.len());
        }
    }
}

#[test]
fn a_scan_does_not_flush_blocks_that_are_used_again() {
    let mut policy = S3Fifo::new(100);
    let index = full_index(100);
    for slot in 0..100 {
        policy.on_insert(SlotId(slot), BlockIndex(slot), slot < 80);
    }
    for _ in 0..3 {
        (0..80).for_each(|slot| policy.on_hit(SlotId(slot)));
    }
    for _ in 0..1000 {
        let victim = policy.evict(&index).unwrap();
        assert!(victim.slot.0 >= 80, "{victim:?} is a hot block");
        assert!(victim.remember);
        policy.on_insert(victim.slot, BlockIndex(0), false);
    }
}

#[test]
fn one_eviction_spares_a_bounded_number_of_blocks() {
    let slots = 10 * LOOKS_MAX;
    let mut policy = S3Fifo::new(slots);
    let index = full_index(slots);
    for slot in 0..slots {
        policy.on_insert(SlotId(slot), BlockIndex(slot), true);
        policy.on_hit(SlotId(slot));
    }
    assert_eq!(policy.evict(&index), Some(Victim { slot: SlotId(LOOKS_MAX), remember: false }));
}

#[test]
fn everything_can_be_evicted_however_often_it_was_used() {
    for slots in 1..30 {
        let mut policy = S3Fifo::new(slots);
        let index = full_index(slots);
        for slot in 0..slots {
            policy.on_insert(SlotId(slot), BlockIndex(slot), slot % 3 == 0);
            (0..slot % 5).for_each(|_| policy.on_hit(SlotId(slot)));
        }
        let mut gone: Vec<_> =
            std::iter::from_fn(|| policy.evict(&index)).map(|victim| victim.slot.0).collect();
        gone.sort_unstable();
        assert_eq!(gone, (0..slots).collect::<Vec<_>>());
        assert_eq!(policy.len(), 0);
    }
}
