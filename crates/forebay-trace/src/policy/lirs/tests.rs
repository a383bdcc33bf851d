use std::collections::VecDeque;

use forebay_core::directory::Directory;
use forebay_core::geometry::GranuleMask;
use forebay_core::ids::BlockIndex;
use forebay_core::index::Density;
use proptest::prelude::*;

use super::super::LIRS;
use super::super::model::{Model, agree, steps};

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Hot,
    Cold,
    Ghost,
}

/// The paper on plain lists, newest at the front. `left`: ghosts in order of leaving.
struct Slow {
    slots: usize,
    hot_max: usize,
    stack: VecDeque<(u32, State)>,
    queue: VecDeque<u32>,
    left: VecDeque<u32>,
}

impl Slow {
    fn new(slots: u32) -> Slow {
        let slots = slots as usize;
        let hot_max = slots - (slots / 100).max(1);
        Slow {
            slots,
            hot_max,
            stack: VecDeque::new(),
            queue: VecDeque::new(),
            left: VecDeque::new(),
        }
    }

    fn hot(&self) -> usize {
        self.stack.iter().filter(|m| m.1 == State::Hot).count()
    }

    fn take(&mut self, block: u32) -> Option<State> {
        let at = self.stack.iter().position(|m| m.0 == block)?;
        let state = self.stack.remove(at)?.1;
        if state == State::Ghost {
            self.left.retain(|&b| b != block);
        }
        Some(state)
    }

    fn settle(&mut self) {
        if self.hot() > self.hot_max {
            let (block, _) = self.stack.pop_back().unwrap();
            self.queue.push_front(block);
        }
        while let Some(&(block, state)) = self.stack.back()
            && state != State::Hot
        {
            self.take(block);
        }
        while self.stack.len() > 2 * self.slots
            && let Some(&block) = self.left.back()
        {
            self.take(block);
        }
    }
}

impl Model for Slow {
    fn on_hit(&mut self, block: u32) {
        let state = match self.take(block) {
            Some(State::Cold) => {
                self.queue.retain(|&b| b != block);
                State::Hot
            }
            Some(state) => state,
            None => {
                self.queue.retain(|&b| b != block);
                self.queue.push_front(block);
                State::Cold
            }
        };
        self.stack.push_front((block, state));
        self.settle();
    }

    fn on_insert(&mut self, block: u32) {
        let is_hot = self.take(block).is_some() || self.hot() < self.hot_max;
        self.stack.push_front((block, if is_hot { State::Hot } else { State::Cold }));
        if !is_hot {
            self.queue.push_front(block);
        }
        self.settle();
    }

    fn on_remove(&mut self, block: u32) {
        self.take(block);
        self.queue.retain(|&b| b != block);
        self.settle();
    }

    fn evict(&mut self) -> u32 {
        let Some(block) = self.queue.pop_back() else {
            let (block, _) = self.stack.pop_back().unwrap();
            self.settle();
            return block;
        };
        if let Some(member) = self.stack.iter_mut().find(|m| m.0 == block) {
            member.1 = State::Ghost;
            self.left.push_front(block);
        }
        block
    }
}

proptest! {
    #[test]
    fn it_drops_what_the_paper_drops(slots in 2..20u32, steps in steps(60)) {
        agree(LIRS, slots, Slow::new(slots), &steps);
    }
}

#[test]
fn a_loop_that_is_longer_than_the_cache_keeps_a_part_of_itself() {
    let mut directory = Directory::new(100, 1, LIRS, Density::Compact);
    let mut hits = 0;
    for block in (0..10).flat_map(|_| 0..150).map(BlockIndex) {
        if let Some(slot) = directory.find(block) {
            directory.hit(slot);
            hits += 1;
            continue;
        }
        let slot = directory.take_free().unwrap_or_else(|| directory.evict().unwrap().slot);
        directory.insert(slot, block, GranuleMask(1));
    }
    assert!(hits >= 9 * 98, "{hits} hits of 9 rounds with 99 hot blocks");
}
