use std::collections::VecDeque;

use proptest::prelude::*;

use super::super::ARC;
use super::super::model::{Model, agree, steps};

/// The paper's figure 4 on plain queues, newest at the front; the target moves after the eviction.
#[derive(Default)]
struct Slow {
    c: usize,
    p: usize,
    t1: VecDeque<u32>,
    t2: VecDeque<u32>,
    b1: VecDeque<u32>,
    b2: VecDeque<u32>,
}

impl Slow {
    fn learn(&mut self, coming: u32) {
        if self.b1.contains(&coming) {
            self.p = (self.p + (self.b2.len() / self.b1.len()).max(1)).min(self.c);
        } else if self.b2.contains(&coming) {
            self.p = self.p.saturating_sub((self.b1.len() / self.b2.len()).max(1));
        }
    }
}

impl Model for Slow {
    fn on_hit(&mut self, block: u32) {
        self.t1.retain(|&b| b != block);
        self.t2.retain(|&b| b != block);
        self.t2.push_front(block);
    }

    fn on_insert(&mut self, block: u32) {
        if self.b1.contains(&block) || self.b2.contains(&block) {
            self.learn(block);
            self.t2.push_front(block);
        } else {
            self.t1.push_front(block);
        }
        self.b1.retain(|&b| b != block);
        self.b2.retain(|&b| b != block);
        while self.t1.len() + self.b1.len() > self.c && self.b1.pop_back().is_some() {}
        let all = |s: &Slow| s.t1.len() + s.t2.len() + s.b1.len() + s.b2.len();
        while all(self) > 2 * self.c && self.b2.pop_back().is_some() {}
    }

    fn on_remove(&mut self, block: u32) {
        self.t1.retain(|&b| b != block);
        self.t2.retain(|&b| b != block);
    }

    fn evict(&mut self) -> u32 {
        let from_t1 = self.t1.len() > self.p || self.t2.is_empty();
        let (queue, ghosts) =
            if from_t1 { (&mut self.t1, &mut self.b1) } else { (&mut self.t2, &mut self.b2) };
        let block = queue.pop_back().unwrap();
        ghosts.push_front(block);
        block
    }
}

proptest! {
    #[test]
    fn it_drops_what_the_paper_drops(slots in 1..20u32, steps in steps(60)) {
        let model = Slow { c: slots as usize, ..Slow::default() };
        agree(ARC, slots, model, &steps);
    }
}
