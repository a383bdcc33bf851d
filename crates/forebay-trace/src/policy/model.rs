//! A policy beside a slow, obvious one that knows blocks only: both have to drop the same blocks.

use forebay_core::ids::BlockIndex;
use forebay_core::index::{Density, Index};
use forebay_core::policy::PolicyKind;
use proptest::prelude::*;

/// A test's idea of a policy.
pub trait Model {
    fn on_hit(&mut self, block: u32);
    fn on_insert(&mut self, block: u32);
    fn on_remove(&mut self, block: u32);
    /// The block that leaves.
    fn evict(&mut self) -> u32;
}

/// What happens to a block.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Use(u32),
    Remove(u32),
    Move(u32),
}

/// Uses, mostly, of `blocks` blocks, low numbers more often.
pub fn steps(blocks: u32) -> impl Strategy<Value = Vec<Step>> {
    let block = prop_oneof![0..blocks, 0..blocks.div_ceil(3)];
    let step = (0..20u8, block).prop_map(|(what, block)| match what {
        0 => Step::Remove(block),
        1 => Step::Move(block),
        _ => Step::Use(block),
    });
    prop::collection::vec(step, 0..600)
}

/// An index whose slot N holds block N.
pub fn full_index(slots: u32) -> Index {
    let mut index = Index::new(slots, Density::Compact);
    for _ in 0..slots {
        let slot = index.take_free().unwrap();
        index.insert(slot, BlockIndex(slot.0));
    }
    index
}

/// Runs `steps` on a policy with `slots` slots and on the model.
pub fn agree(kind: PolicyKind, slots: u32, mut model: impl Model, steps: &[Step]) {
    let mut index = Index::new(slots, Density::Compact);
    let mut policy = kind.build(slots);
    for &step in steps {
        match step {
            Step::Use(block) => match index.find(BlockIndex(block)) {
                Some(slot) => {
                    policy.on_hit(slot, &index);
                    model.on_hit(block);
                }
                None => {
                    if index.len() == slots {
                        let victim = policy.evict(&index).unwrap();
                        let gone = index.remove(victim.slot);
                        index.release(victim.slot);
                        assert_eq!(gone.0, model.evict(), "{kind}");
                    }
                    let slot = index.take_free().unwrap();
                    index.insert(slot, BlockIndex(block));
                    policy.on_insert(slot, BlockIndex(block), false);
                    model.on_insert(block);
                }
            },
            Step::Remove(block) => {
                if let Some(slot) = index.find(BlockIndex(block)) {
                    policy.on_remove(slot);
                    index.remove(slot);
                    index.release(slot);
                    model.on_remove(block);
                }
            }
            Step::Move(block) => {
                if let Some(slot) = index.find(BlockIndex(block))
                    && let Some(to) = index.take_free()
                {
                    index.replace(slot, to);
                    index.release(slot);
                    policy.on_move(slot, to);
                }
            }
        }
        policy.check_invariants();
        assert_eq!(policy.len(), index.len());
    }
}
