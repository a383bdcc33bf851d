//! A directory that gets more slots, or fewer, with the blocks in place.
//!
//! Slots keep their numbers, their granules and their place in the order. What is remembered of blocks that left is kept
//! as far as there is room.

use super::{Directory, ghost_blocks};
use crate::ids::SlotId;
use crate::index::{Density, Index};

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

    /// Slots are there that were withheld: the policy fills them as it fills a new cache.
    pub fn have_room(&mut self) {
        self.policy.have_room();
    }

    /// Has a table for `room` slots from now on, so that another number of them up to that is had at once.
    pub fn make_room(&mut self, room: u32) {
        self.index.make_room(room);
    }

    /// What [`Directory::make_room`] adds to [`Directory::memory_bytes_for`].
    pub fn room_bytes_for(slots: u32, room: u32, density: Density) -> u64 {
        Index::room_bytes_for(slots, room, density)
    }

    /// Takes the free slots from `first` on.
    pub fn take_free_from(&mut self, first: SlotId) {
        self.index.take_free_from(first);
    }

    /// Begins to take the free slots from `first` on: [`Directory::sift`] goes on with it.
    pub fn begin_taking_from(&mut self, first: SlotId) {
        self.index.begin_taking_from(first);
    }

    /// Looks at some more free slots; true when all were.
    pub fn sift(&mut self, visits: u32) -> bool {
        self.index.sift(visits)
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
