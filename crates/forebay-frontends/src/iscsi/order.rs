//! In which order the tasks of a unit are begun, by their attributes (SAM-5, 8.6), over all sessions of its target.
//!
//! ```text
//! simple simple │ ORDERED │ simple simple simple │ ORDERED │ …      HEAD OF QUEUE: beside all of this, before the others
//!    stage 7    │ stage 8 │        stage 9       │ stage 10│
//! ```
//! A stage begins when all before it have ended. Without ordered tasks there is one stage, and nothing waits. Only work on
//! the medium waits; what a unit answers by itself it answers at once. A task that has to wait gets no memory either:
//! otherwise those before it might wait for that.

use std::collections::VecDeque;

/// Task attributes on the wire.
const ORDERED: u8 = 2;
const HEAD_OF_QUEUE: u8 = 3;

/// The stage that a task belongs to; `None`: it waits for nobody.
pub type Stage = Option<u64>;

/// See the module.
#[derive(Debug)]
pub struct Order {
    /// The number of the stage at the front, which may begin.
    first: u64,
    /// Tasks in each stage that have not ended, and whether it is that of an ordered one. Never empty.
    stages: VecDeque<(u32, bool)>,
}

impl Order {
    /// Nothing is there.
    pub fn new() -> Order {
        Order { first: 0, stages: VecDeque::from([(0, false)]) }
    }

    /// A task comes; its stage.
    pub fn enter(&mut self, attribute: u8) -> Stage {
        if attribute == HEAD_OF_QUEUE {
            return None;
        }
        let is_ordered = attribute == ORDERED;
        let is_alone = |(left, was_ordered): (u32, bool)| left > 0 && (was_ordered || is_ordered);
        if self.stages.back().is_some_and(|stage| is_alone(*stage)) {
            self.stages.push_back((0, is_ordered));
        }
        let last = self.stages.back_mut().expect("there is always one");
        *last = (last.0 + 1, is_ordered);
        Some(self.first + self.stages.len() as u64 - 1)
    }

    /// True when all tasks have ended, but for those that wait for nobody.
    pub fn is_empty(&self) -> bool {
        self.stages.iter().all(|(left, _)| *left == 0)
    }

    /// Whether a task of a stage may begin.
    pub fn may_begin(&self, stage: Stage) -> bool {
        stage.is_none_or(|stage| stage == self.first)
    }

    /// A task ended, or was aborted, begun or not.
    pub fn leave(&mut self, stage: Stage) {
        let Some(stage) = stage else { return };
        self.stages[(stage - self.first) as usize].0 -= 1;
        while self.stages.len() > 1 && self.stages[0].0 == 0 {
            self.stages.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tasks by their letters: s(imple), o(rdered), h(ead of queue); with those in `ended` gone, which may begin.
    fn check(tasks: &str, ended: &[usize], expect: &str) {
        let mut order = Order::new();
        let stages: Vec<Stage> = tasks
            .chars()
            .map(|letter| {
                order.enter(match letter {
                    's' => 1,
                    'o' => ORDERED,
                    _ => HEAD_OF_QUEUE,
                })
            })
            .collect();
        ended.iter().for_each(|at| order.leave(stages[*at]));
        let may: String = (0..stages.len())
            .map(|at| match (ended.contains(&at), order.may_begin(stages[at])) {
                (true, _) => '.',
                (false, true) => 'y',
                (false, false) => 'n',
            })
            .collect();
        assert_eq!(may, expect, "{tasks} {ended:?}");
    }

    #[test]
    fn ordered_tasks_come_after_all_before_and_before_all_after() {
        check("ss", &[], "yy");
        check("o", &[], "y");
        check("sos", &[], "ynn");
        check("sos", &[0], ".yn");
        check("sos", &[1], "y.n");
        check("sos", &[0, 1], "..y");
        check("oo", &[], "yn");
        check("oo", &[0], ".y");
        check("ssosohs", &[], "yynnnyn");
        check("ssosohs", &[0, 1, 2], "...ynyn");
        check("ssosohs", &[0, 1, 2, 3], "....yyn");
        check("ssosohs", &[0, 1, 2, 3, 4], ".....yy");
        check("so", &[1], "y.");
        check("hs", &[0], ".y");
    }

    #[test]
    fn an_end_leaves_nothing_behind() {
        let mut order = Order::new();
        for attribute in [1, 2, 1, 1, 2, 2, 1].repeat(50) {
            let stage = order.enter(attribute);
            assert!(order.may_begin(stage));
            order.leave(stage);
            assert_eq!(order.stages.len(), 1);
        }
    }
}
