//! An index that gets more slots, or fewer, with the blocks in place.
//!
//! A bucket's place among all buckets follows from the hash, and is the same share of the way in a larger table. So both
//! tables are gone through from their start to their end, and the CPU waits for little.

use super::{Density, Entry, Index, Line, NONE, QUARANTINED, TAKEN, WAYS};
use crate::ids::{BlockIndex, SlotId};
use crate::list::SLOTS_MAX;

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
        let (buckets, lines) =
            Index::table_for(slots, self.density, self.density.slots_per_bucket());
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
        let (mut before, mut slot) = (NONE, self.free);
        while slot != NONE {
            let next = self.entries[slot as usize].next;
            if slot < first.0 {
                before = slot;
            } else {
                self.entries[slot as usize].next = TAKEN;
                self.free_len -= 1;
                match before {
                    NONE => self.free = next,
                    before => self.entries[before as usize].next = next,
                }
            }
            slot = next;
        }
    }
}
