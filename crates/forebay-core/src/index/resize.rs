//! An index that gets more slots, or fewer, with the blocks in place.
//!
//! A bucket's place among all buckets follows from the hash, and is the same share of the way in a larger table. So both
//! tables are gone through from their start to their end. That is left out while there is room for all slots.

use super::{Density, Entry, Free, Index, Line, NONE, QUARANTINED, TAKEN, WAYS};
use crate::ids::{BlockIndex, SlotId};
use crate::list::SLOTS_MAX;

/// Slots that were free, and are to be taken from some slot on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sifting {
    pub(super) rest: Free,
    /// Slots before this one are free.
    from: SlotId,
}

impl Sifting {
    pub(super) const NOTHING: Sifting = Sifting { rest: Free::NOTHING, from: SlotId(0) };
}

impl Index {
    /// Goes on with `slots` slots. Those that are new are taken.
    ///
    /// Panics unless those that go are taken or quarantined, and hold no block.
    pub fn resize(&mut self, slots: u32) {
        assert!(slots > 0 && slots <= SLOTS_MAX);
        for entry in self.entries.iter().skip(slots as usize) {
            let is_bad = entry.next == QUARANTINED;
            assert!(
                entry.key == NONE && (is_bad || entry.next == TAKEN),
                "a slot that goes is used"
            );
            self.quarantined -= u32::from(is_bad);
        }
        let mut entries = std::mem::take(&mut self.entries).into_vec();
        entries.resize(slots as usize, Entry { key: NONE, next: TAKEN });
        self.entries = entries.into();
        self.make_room(self.room);
    }

    /// Has buckets for `room` slots from now on: another number of slots up to that changes none of them.
    pub fn make_room(&mut self, room: u32) {
        self.room = room;
        let per_bucket = self.density.slots_per_bucket();
        let slots = self.slots().max(room);
        if slots.div_ceil(per_bucket) == self.buckets {
            return;
        }
        let (buckets, lines) = Index::table_for(slots, self.density, per_bucket);
        let before = std::mem::replace(&mut self.lines, lines);
        let buckets_before = std::mem::replace(&mut self.buckets, buckets);
        for number in 0..buckets_before {
            let bucket = self.bucket(number);
            let Line(line) = before[bucket.line];
            if self.density == Density::Fast {
                for way in (0..WAYS).filter(|&way| line[way] != NONE) {
                    self.move_in(line[super::SLOTS + way], line[way]);
                }
            }
            let mut slot = line[bucket.chain];
            while slot != NONE {
                let Entry { key, next } = self.entries[slot as usize];
                self.move_in(slot, key);
                slot = next;
            }
        }
    }

    fn move_in(&mut self, slot: u32, key: u32) {
        self.entries[slot as usize].next = self.link(SlotId(slot), BlockIndex(key));
    }

    /// Takes the free slots from `first` on.
    pub fn take_free_from(&mut self, first: SlotId) {
        self.begin_taking_from(first);
        self.sift(u32::MAX);
    }

    /// Begins to take the free slots from `first` on: [`Index::sift`] goes on with it.
    pub fn begin_taking_from(&mut self, first: SlotId) {
        assert!(self.sifting.rest.len == 0, "one after the other");
        self.sifting = Sifting { rest: self.free, from: first };
        self.free = Free::NOTHING;
    }

    /// Looks at some more of them; true when all were.
    pub fn sift(&mut self, visits: u32) -> bool {
        let from = self.sifting.from;
        let (mut before, mut slot, mut kept) = (NONE, self.sifting.rest.first, 0);
        let visits = visits.min(self.sifting.rest.len);
        for _ in 0..visits {
            let next = self.entries[slot as usize].next;
            if SlotId(slot) < from {
                // In their order, before those that became free since.
                match before {
                    NONE => kept = slot,
                    before => self.entries[before as usize].next = slot,
                }
                before = slot;
                self.free.len += 1;
            } else {
                self.entries[slot as usize].next = TAKEN;
            }
            slot = next;
        }
        if before != NONE {
            self.entries[before as usize].next = self.free.first;
            self.free.first = kept;
        }
        let len = self.sifting.rest.len - visits;
        self.sifting.rest = Free { first: slot, len };
        len == 0
    }
}
