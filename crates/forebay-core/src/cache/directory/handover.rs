//! Another policy for a directory at work.
//!
//! ```text
//!   former policy ──evict: the coldest that is left──► on_insert ──► the policy from now on
//!                                                                      ▲
//!   new blocks ────────────────────────────────────────────────────────┘
//! ```
//! A pass over all slots takes seconds where there are many, so blocks go over some at a time. A used block may be spared
//! several times before it goes, and each time counts. Until all have gone, each slot is ordered by one of the two
//! policies. The former one gives up blocks first: what it has left is older.
//!
//! What it says of the order is all that the other policy learns, and whether a block was used since it came.

use super::Directory;
use super::resize::resize;
use crate::ids::SlotId;
use crate::policy::{Policy, PolicyKind, Victim, block_in};

/// The policy before, while it still orders some slots.
#[derive(Debug)]
pub(super) struct Handover {
    former: Box<dyn Policy>,
    /// A bit for each slot: what is in it is not the former one's any more.
    moved: Box<[u64]>,
}

impl Handover {
    /// True when the block in `slot` is ordered by the policy from now on.
    fn has_moved(&self, slot: SlotId) -> bool {
        self.moved[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1
    }

    fn set_moved(&mut self, slot: SlotId, has_moved: bool) {
        let word = &mut self.moved[slot.0 as usize / 64];
        *word = *word & !(1 << (slot.0 % 64)) | u64::from(has_moved) << (slot.0 % 64);
    }

    pub(super) fn resize(&mut self, slots: u32) {
        self.former.resize(slots);
        resize(&mut self.moved, slots.div_ceil(64));
    }

    pub(super) fn len(&self) -> u32 {
        self.former.len()
    }

    /// Blocks that the former policy has spared so far.
    #[cfg(test)]
    pub(super) fn spared(&self) -> u64 {
        self.former.spared()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.former.memory_bytes() + size_of_val(&*self.moved)
    }

    pub(super) fn check_invariants(&self) {
        self.former.check_invariants();
    }
}

impl Directory {
    /// Goes on with another policy, which gets the blocks by [`Directory::hand_over`]. The change before must have ended.
    pub fn change_policy(&mut self, kind: PolicyKind) {
        assert!(self.handover.is_none(), "one change of the policy after the other");
        self.tell_hits();
        let policy = kind.build(self.slots());
        let former = std::mem::replace(&mut self.policy, policy);
        if !former.is_empty() {
            let moved = vec![0; self.slots().div_ceil(64) as usize].into();
            self.handover = Some(Handover { former, moved });
        }
    }

    /// True while the former policy has blocks left.
    pub fn is_handing_over(&self) -> bool {
        self.handover.is_some()
    }

    /// Gives the coldest blocks that the former policy has to the other one. It looks at no more than `visits_max` blocks
    /// for that, and as many more as one eviction may spare.
    pub fn hand_over(&mut self, visits_max: u32) {
        self.tell_hits();
        let Directory { index, policy, handover, referenced, .. } = self;
        let Some(under_way) = handover else { return };
        let spared_before = under_way.former.spared();
        let mut moved = 0;
        while moved + (under_way.former.spared() - spared_before) < u64::from(visits_max) {
            let Some(Victim { slot, .. }) = under_way.former.evict(index) else { break };
            moved += 1;
            under_way.set_moved(slot, true);
            policy.on_insert(slot, block_in(index, slot), false);
            if referenced[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1 {
                policy.on_hit(slot, index);
            }
        }
        if under_way.former.is_empty() {
            self.handover = None;
        }
    }

    /// The block to drop, which its policy has forgotten.
    pub(super) fn choose(&mut self) -> Option<Victim> {
        let Directory { index, policy, handover, .. } = self;
        let older = handover.as_mut().and_then(|under_way| under_way.former.evict(index));
        older.or_else(|| policy.evict(index))
    }

    /// The policy that orders the block in `slot`.
    pub(super) fn policy_of(&mut self, slot: SlotId) -> &mut dyn Policy {
        match &mut self.handover {
            Some(under_way) if !under_way.has_moved(slot) => &mut *under_way.former,
            Some(_) | None => &mut *self.policy,
        }
    }

    /// The block in `slot` is ordered by the policy from now on.
    pub(super) fn own(&mut self, slot: SlotId) {
        if let Some(under_way) = &mut self.handover {
            under_way.set_moved(slot, true);
        }
    }

    /// The block in `old` lies in `new` from now on, which holds none.
    pub(super) fn move_in_order(&mut self, old: SlotId, new: SlotId) {
        self.policy_of(old).on_move(old, new);
        if let Some(under_way) = &mut self.handover {
            let has_moved = under_way.has_moved(old);
            under_way.set_moved(new, has_moved);
        }
    }

    /// The same as the loop of [`Directory::tell_hits`], where two policies are to be told.
    pub(super) fn tell_two(&mut self, hits: &[SlotId]) {
        for &slot in hits {
            let Directory { index, policy, handover, .. } = self;
            match handover {
                Some(under_way) if !under_way.has_moved(slot) => {
                    under_way.former.on_hit(slot, index);
                }
                Some(_) | None => policy.on_hit(slot, index),
            }
            self.set_referenced(slot, true);
        }
    }
}
