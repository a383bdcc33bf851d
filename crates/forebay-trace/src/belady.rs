//! The offline optimum (Belady 1966): drop the block whose next use lies farthest ahead.
//!
//! It has to know the future: the position of the next use for every use, in order, is computed
//! from the whole trace before. Every `on_insert` and every `on_hit` is one use. It drops a block
//! for every one that enters, as the engine does, even when the entering one is never used again.

use std::collections::{BinaryHeap, HashMap};

use forebay_core::ids::{BlockIndex, SlotId};
use forebay_core::index::Index;
use forebay_core::policy::{Policy, Victim};

/// The position of a next use that does not come.
const NEVER: u32 = u32::MAX;

/// The eviction policy; see the module.
#[derive(Debug)]
pub struct Belady {
    /// For each use, the position of the next use of the same block.
    next: Vec<u32>,
    /// Number of uses so far.
    uses: usize,
    /// For each slot, when its block is used next; `None` when the slot is not occupied.
    due: Vec<Option<u32>>,
    /// (due, slot), the farthest first, with entries that have become wrong between the right ones.
    farthest: BinaryHeap<(u32, u32)>,
    len: u32,
}

/// For each use of a block the position of its next one. Panics beyond 2³² − 1 uses.
pub fn next_uses(blocks: &[u32]) -> Vec<u32> {
    assert!(blocks.len() < NEVER as usize);
    let mut later: HashMap<u32, u32> = HashMap::new();
    let mut next = vec![NEVER; blocks.len()];
    for (at, &block) in blocks.iter().enumerate().rev() {
        if let Some(use_at) = later.insert(block, at as u32) {
            next[at] = use_at;
        }
    }
    next
}

impl Belady {
    /// For slots `0..slots` and the uses that will come, as [`next_uses`] gives them.
    pub fn new(slots: u32, next: Vec<u32>) -> Belady {
        let due = vec![None; slots as usize];
        Belady { next, uses: 0, due, farthest: BinaryHeap::new(), len: 0 }
    }

    fn on_use(&mut self, slot: SlotId) {
        let due = self.next[self.uses];
        self.uses += 1;
        self.set(slot, due);
    }

    fn set(&mut self, slot: SlotId, due: u32) {
        self.due[slot.0 as usize] = Some(due);
        if self.farthest.len() > 4 * self.due.len() {
            self.farthest.clear();
            let right = self.due.iter().zip(0..).filter_map(|(due, slot)| Some(((*due)?, slot)));
            self.farthest.extend(right);
        } else {
            self.farthest.push((due, slot.0));
        }
    }
}

impl Policy for Belady {
    fn on_insert(&mut self, slot: SlotId, _block: BlockIndex, _remembered: bool) {
        self.len += 1;
        self.on_use(slot);
    }

    fn on_hit(&mut self, slot: SlotId, _index: &Index) {
        self.on_use(slot);
    }

    fn on_remove(&mut self, slot: SlotId) {
        let gone = self.due[slot.0 as usize].take();
        assert!(gone.is_some(), "slot {} is not occupied", slot.0);
        self.len -= 1;
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        let due = self.due[from.0 as usize].take().expect("the slot is occupied");
        self.set(to, due);
    }

    fn evict(&mut self, _index: &Index) -> Option<Victim> {
        loop {
            let (due, slot) = self.farthest.pop()?;
            if self.due[slot as usize] == Some(due) {
                let slot = SlotId(slot);
                self.on_remove(slot);
                return Some(Victim { slot, remember: false });
            }
        }
    }

    fn len(&self) -> u32 {
        self.len
    }

    fn check_invariants(&self) {
        assert_eq!(self.due.iter().flatten().count(), self.len as usize);
    }

    fn memory_bytes(&self) -> usize {
        self.next.capacity() * size_of::<u32>()
            + self.due.capacity() * size_of::<Option<u32>>()
            + self.farthest.capacity() * size_of::<(u32, u32)>()
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::index::Density;

    use super::*;

    /// An index that no policy of these tests looks at.
    fn no_index() -> Index {
        Index::new(1, Density::Compact)
    }

    /// Misses of the optimum, found by trying every victim.
    fn misses_min(blocks: &[u32], slots: usize, cached: &[u32]) -> u32 {
        let Some((block, rest)) = blocks.split_first() else { return 0 };
        if cached.contains(block) {
            return misses_min(rest, slots, cached);
        }
        if cached.len() < slots {
            return 1 + misses_min(rest, slots, &[cached, &[*block]].concat());
        }
        let with = |victim: usize| {
            let mut cached = cached.to_vec();
            cached[victim] = *block;
            1 + misses_min(rest, slots, &cached)
        };
        (0..slots).map(with).min().unwrap()
    }

    fn misses(blocks: &[u32], slots: u32) -> u32 {
        let mut policy = Belady::new(slots, next_uses(blocks));
        let index = no_index();
        let mut held: HashMap<u32, SlotId> = HashMap::new();
        let mut misses = 0;
        for &block in blocks {
            if let Some(&slot) = held.get(&block) {
                policy.on_hit(slot, &index);
                continue;
            }
            misses += 1;
            let free = SlotId(policy.len());
            let slot = if policy.len() < slots { free } else { policy.evict(&index).unwrap().slot };
            held.retain(|_, s| *s != slot);
            held.insert(block, slot);
            policy.on_insert(slot, BlockIndex(block), false);
            policy.check_invariants();
        }
        misses
    }

    proptest::proptest! {
        #[test]
        fn no_choice_of_victims_misses_less(
            blocks in proptest::collection::vec(0..6u32, 0..14),
            slots in 1..4u32,
        ) {
            let best = misses_min(&blocks, slots as usize, &[]);
            proptest::prop_assert_eq!(misses(&blocks, slots), best);
        }
    }

    #[test]
    fn the_book_example_misses_seven_times() {
        // Belady's well-known string with three frames.
        assert_eq!(misses(&[1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], 3), 7);
    }

    #[test]
    fn hits_do_not_grow_its_memory() {
        let blocks = vec![7; 10_000];
        let mut policy = Belady::new(2, next_uses(&blocks));
        let index = no_index();
        policy.on_insert(SlotId(0), BlockIndex(7), false);
        (1..blocks.len()).for_each(|_| policy.on_hit(SlotId(0), &index));
        assert!(policy.farthest.len() <= 9);
        assert_eq!(policy.evict(&index).map(|victim| victim.slot), Some(SlotId(0)));
        assert_eq!(policy.evict(&index), None);
    }
}
