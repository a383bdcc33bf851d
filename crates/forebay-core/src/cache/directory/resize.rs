//! A directory that gets more slots, or fewer, with the blocks in place.
//!
//! Slots keep their numbers, their granules and their place in the order. What is remembered of blocks that left is kept
//! as far as there is room.

use super::{Directory, ghost_blocks};
use crate::ids::SlotId;

impl Directory {
    /// Goes on with `slots` slots. Those that are new are taken, and are to be released.
    ///
    /// Panics unless those that go are taken or quarantined, and hold no block.
    pub fn resize(&mut self, slots: u32) {
        self.tell_hits();
        self.index.resize(slots);
        self.valid.resize(slots);
        self.policy.resize(slots);
        if let Some(handover) = &mut self.handover {
            handover.resize(slots);
        }
        self.ghost.resize(ghost_blocks(slots));
        resize(&mut self.referenced, slots.div_ceil(64));
    }

    /// Takes the free slots from `first` on.
    pub fn take_free_from(&mut self, first: SlotId) {
        self.index.take_free_from(first);
    }

    /// Of the recorded slots those from `first` on stay taken.
    pub fn take_recorded_from(&mut self, first: SlotId) {
        self.index.take_recorded_from(first);
    }
}

/// Makes a table longer, with zeroes, or shorter.
pub(super) fn resize<T: Clone + Default>(table: &mut Box<[T]>, len: u32) {
    let mut longer = std::mem::take(table).into_vec();
    longer.resize(len as usize, T::default());
    *table = longer.into();
}
