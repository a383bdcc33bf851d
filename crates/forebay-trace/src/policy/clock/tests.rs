use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::CLOCK;
use super::super::model::{Model, agree, steps};

/// Blocks with their bit, the oldest at the back.
#[derive(Default)]
struct Slow(VecDeque<(u32, bool)>);

impl Model for Slow {
    fn on_hit(&mut self, block: u32) {
        self.0.iter_mut().filter(|m| m.0 == block).for_each(|m| m.1 = true);
    }

    fn on_insert(&mut self, block: u32) {
        self.0.push_front((block, false));
    }

    fn on_remove(&mut self, block: u32) {
        self.0.retain(|m| m.0 != block);
    }

    fn evict(&mut self) -> u32 {
        while let Some((block, true)) = self.0.back().copied() {
            self.0.pop_back();
            self.0.push_front((block, false));
        }
        self.0.pop_back().unwrap().0
    }
}

proptest! {
    #[test]
    fn it_drops_what_a_clock_drops(slots in 1..20u32, steps in steps(40)) {
        agree(CLOCK, slots, Slow::default(), &steps);
    }
}
