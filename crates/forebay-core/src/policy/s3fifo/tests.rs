use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::tests::full_index;
use super::*;

/// The algorithm of the paper, and the rules that it has not, on plain queues of (slot, count).
struct Reference {
    slots: u32,
    rules: Rules,
    small: VecDeque<(u32, u8)>,
    main: VecDeque<(u32, u8)>,
    is_filling: bool,
    full_len: usize,
    /// The slot at which the hand is.
    hand: Option<u32>,
    strays: u32,
    until_stray: u32,
}

impl Reference {
    fn new(slots: u32, rules: Rules) -> Reference {
        let (small, main) = (VecDeque::new(), VecDeque::new());
        Reference {
            slots,
            rules,
            small,
            main,
            is_filling: true,
            full_len: 0,
            hand: None,
            strays: 0,
            until_stray: rules.until_stray(0),
        }
    }

    fn small_len(&self) -> usize {
        match self.rules.small_percent {
            0 => 0,
            percent => (self.slots as usize * percent as usize / 100).max(1),
        }
    }

    /// Where in main `slot` is, 0 the newest.
    fn at(&self, slot: u32) -> Option<usize> {
        self.main.iter().position(|&(of, _)| of == slot)
    }

    /// `slot` leaves, so a hand that is there goes on.
    fn pass(&mut self, slot: u32) {
        if self.hand == Some(slot) {
            let newer = self.at(slot).unwrap().checked_sub(1);
            self.hand = newer.map(|at| self.main[at].0);
        }
    }

    fn set_rules(&mut self, rules: Rules) {
        if let Some(hand) = self.hand.take() {
            let at = self.at(hand).unwrap();
            let behind = self.main.split_off(at + 1);
            behind.into_iter().rev().for_each(|passed| self.main.push_front(passed));
        }
        (self.rules, self.strays) = (rules, 0);
        self.until_stray = rules.until_stray(0);
    }

    /// The block that the hand takes, in main.
    fn take_by_hand(&mut self) -> Option<Victim> {
        let last = self.main.len().checked_sub(1)?;
        let mut at = self.hand.map_or(last, |slot| self.at(slot).unwrap());
        while self.main[at].1 > 0 {
            self.main[at].1 = 0;
            at = at.checked_sub(1).unwrap_or(last);
        }
        let slot = self.main[at].0;
        self.hand = Some(slot);
        self.pass(slot);
        self.main.remove(at);
        Some(Victim { slot: SlotId(slot), remember: false })
    }

    /// Whether the oldest of main is unused; uses up one of its uses.
    fn is_oldest_unused(&mut self) -> bool {
        match self.main.pop_back() {
            Some((slot, count @ 1..)) => {
                let left = if self.rules.is_quick { 0 } else { count - 1 };
                self.main.push_front((slot, left));
                false
            }
            Some(unused) => {
                self.main.push_back(unused);
                true
            }
            None => false,
        }
    }

    fn all(&mut self) -> impl Iterator<Item = &mut (u32, u8)> {
        self.small.iter_mut().chain(&mut self.main)
    }

    fn insert(&mut self, slot: u32, remembered: bool) {
        self.is_filling |= self.small.is_empty() && self.main.is_empty();
        let has_share = self.small.len() >= self.small_len();
        let is_let_in = remembered
            && !self.rules.has_hand()
            && (!self.rules.is_guarded || self.main.is_empty() || self.is_oldest_unused());
        if self.rules.has_hand() || is_let_in || self.is_filling && has_share {
            self.main.push_front((slot, 0));
        } else {
            self.small.push_front((slot, remembered.into()));
        }
    }

    fn evict(&mut self) -> Option<Victim> {
        self.is_filling = false;
        let len = self.small.len() + self.main.len();
        self.full_len = self.full_len.max(len);
        let coming = self.full_len - len;
        if self.rules.lets_unused_in && self.small.len() > self.small_len() {
            let (slot, _) = self.small.pop_back().unwrap();
            self.main.push_front((slot, 0));
        }
        if self.rules.has_hand() && !self.main.is_empty() {
            return self.take_by_hand();
        }
        let has_share = self.small.len() + coming >= self.small_len();
        let mut from_small = has_share || self.main.is_empty();
        while !self.small.is_empty() || !self.main.is_empty() {
            if from_small && let Some((slot, count)) = self.small.pop_back() {
                if count < 2 {
                    self.until_stray -= 1;
                    if self.until_stray == 0 {
                        self.strays += 1;
                        self.until_stray = self.rules.until_stray(self.strays);
                        let mut looks = 0..STRAY_LOOKS;
                        if self.rules.lets_unused_in && looks.any(|_| self.is_oldest_unused()) {
                            self.pass(self.main.back().unwrap().0);
                            let (oldest, _) = self.main.pop_back().unwrap();
                            self.main.push_front((slot, 0));
                            return Some(Victim { slot: SlotId(oldest), remember: false });
                        }
                    }
                    return Some(Victim { slot: SlotId(slot), remember: true });
                }
                self.main.push_front((slot, 0));
            } else if let Some((slot, count)) = self.main.pop_back() {
                from_small = false;
                if count == 0 {
                    return Some(Victim { slot: SlotId(slot), remember: false });
                }
                self.main.push_front((slot, if self.rules.is_quick { 0 } else { count - 1 }));
            }
        }
        None
    }
}

fn rules() -> impl Strategy<Value = Rules> {
    let percents = prop_oneof![Just(0), 1..=100u32];
    let rules = (percents, any::<bool>(), any::<bool>(), any::<bool>());
    rules.prop_map(|(small_percent, is_guarded, lets_unused_in, is_quick)| Rules {
        small_percent,
        is_guarded,
        lets_unused_in,
        is_quick,
    })
}

proptest! {
    #[test]
    fn it_evicts_what_the_rules_say(
        slots in 1..30u32,
        steps in prop::collection::vec((0..8u8, 0..30u32, any::<bool>()), 0..400),
        first in prop::option::of(rules()),
        second in prop::option::of(rules()),
    ) {
        // Without rules, those of the paper.
        let first = first.unwrap_or(Rules::PAPER);
        let mut policy = S3Fifo::with_rules(slots, first);
        let index = full_index(slots);
        let mut reference = Reference::new(slots, first);
        let half = steps.len() / 2;
        for (at, (what, slot, remembered)) in steps.into_iter().enumerate() {
            if let Some(second) = second.filter(|_| at == half) {
                policy.set_rules(second);
                reference.set_rules(second);
            }
            let slot = slot % slots;
            let known = reference.all().any(|&mut (s, _)| s == slot);
            match (what, known) {
                (0, true) => {
                    policy.on_remove(SlotId(slot));
                    reference.pass(slot);
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
                        reference.hand = reference.hand.map(|at| if at == slot { to } else { at });
                    }
                }
                (_, true) => {
                    policy.on_hit(SlotId(slot), &index);
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

/// SIEVE's hand over slots with a bit, the oldest first.
#[derive(Default)]
struct Hand {
    slots: Vec<(SlotId, bool)>,
    at: usize,
}

impl Hand {
    fn insert(&mut self, slot: SlotId) {
        // A hand that has passed the newest begins at the oldest.
        self.at %= self.slots.len().max(1);
        self.slots.push((slot, false));
    }

    fn hit(&mut self, slot: SlotId) {
        self.slots.iter_mut().filter(|m| m.0 == slot).for_each(|m| m.1 = true);
    }

    fn remove(&mut self, slot: SlotId) {
        let at = self.slots.iter().position(|m| m.0 == slot).unwrap();
        self.slots.remove(at);
        self.at -= usize::from(at < self.at);
    }

    fn evict(&mut self) -> Option<SlotId> {
        loop {
            self.at = self.at.checked_rem(self.slots.len())?;
            match &mut self.slots[self.at] {
                (_, used @ true) => *used = false,
                (_, false) => return Some(self.slots.remove(self.at).0),
            }
            self.at += 1;
        }
    }
}

proptest! {
    #[test]
    fn without_a_small_queue_it_is_sieve(
        slots in 1..30u32,
        steps in prop::collection::vec((0..4u8, 0..30u32, any::<bool>()), 0..400),
    ) {
        let rules =
            Rules { small_percent: 0, is_guarded: false, lets_unused_in: true, is_quick: false };
        let (mut ours, mut sieve) = (S3Fifo::with_rules(slots, rules), Hand::default());
        let index = full_index(slots);
        let mut occupied = vec![false; slots as usize];
        for (what, slot, remembered) in steps {
            let (at, slot) = ((slot % slots) as usize, SlotId(slot % slots));
            match (what, occupied[at]) {
                (0, _) => {
                    let victim = ours.evict(&index).map(|victim| victim.slot);
                    prop_assert_eq!(victim, sieve.evict());
                    victim.into_iter().for_each(|victim| occupied[victim.0 as usize] = false);
                }
                (1, true) => {
                    ours.on_remove(slot);
                    sieve.remove(slot);
                    occupied[at] = false;
                }
                (_, true) => {
                    ours.on_hit(slot, &index);
                    sieve.hit(slot);
                }
                (_, false) => {
                    ours.on_insert(slot, BlockIndex(slot.0), remembered);
                    sieve.insert(slot);
                    occupied[at] = true;
                }
            }
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
        (0..80).for_each(|slot| policy.on_hit(SlotId(slot), &index));
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
        policy.on_hit(SlotId(slot), &index);
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
            (0..slot % 5).for_each(|_| policy.on_hit(SlotId(slot), &index));
        }
        let mut gone: Vec<_> =
            std::iter::from_fn(|| policy.evict(&index)).map(|victim| victim.slot.0).collect();
        gone.sort_unstable();
        assert_eq!(gone, (0..slots).collect::<Vec<_>>());
        assert_eq!(policy.len(), 0);
    }
}
