use proptest::prelude::*;

use super::super::SIEVE;
use super::super::model::{Model, agree, steps};

/// Blocks with their bit, the oldest first, and the place of the hand.
#[derive(Default)]
struct Slow {
    blocks: Vec<(u32, bool)>,
    hand: usize,
}

impl Model for Slow {
    fn on_hit(&mut self, block: u32) {
        self.blocks.iter_mut().filter(|m| m.0 == block).for_each(|m| m.1 = true);
    }

    fn on_insert(&mut self, block: u32) {
        // A hand that has passed the newest begins at the oldest.
        self.hand %= self.blocks.len().max(1);
        self.blocks.push((block, false));
    }

    fn on_remove(&mut self, block: u32) {
        let at = self.blocks.iter().position(|m| m.0 == block).unwrap();
        self.blocks.remove(at);
        self.hand -= usize::from(at < self.hand);
    }

    fn evict(&mut self) -> u32 {
        loop {
            self.hand %= self.blocks.len();
            match &mut self.blocks[self.hand] {
                (_, used @ true) => *used = false,
                (block, false) => {
                    let block = *block;
                    self.blocks.remove(self.hand);
                    return block;
                }
            }
            self.hand += 1;
        }
    }
}

proptest! {
    #[test]
    fn it_drops_what_a_hand_over_a_list_drops(slots in 1..20u32, steps in steps(40)) {
        agree(SIEVE, slots, Slow::default(), &steps);
    }
}
