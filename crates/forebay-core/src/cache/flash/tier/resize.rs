//! Another number of slots of flash, with the blocks in place.
//!
//! ```text
//!   more  ─► free at once
//!   fewer ─► those that are to go: their blocks leave, some at each tick ─► no I/O is on them ─► the cache index says
//!            durably that they are empty ─► forgotten, and the executor hears that their flash is not needed
//! ```
//! A block is dropped, not moved: that would be a read and a write of flash, while its bytes are on primary storage.
//!
//! Before the index has said so, a restart would believe what was in these slots, wherever their flash is by then. So
//! nobody may have it earlier.

use super::FlashTier;
use crate::ids::{BlockIndex, SlotId};

impl FlashTier {
    /// Goes on with more slots.
    pub(in crate::cache) fn grow(&mut self, slots: u32) {
        let before = self.dir.slots();
        assert!(slots >= before && !self.is_shrinking(), "one change after the other");
        self.dir.resize(slots);
        let granules = slots as usize * self.granules as usize;
        self.checksums.reserve_exact(granules - self.checksums.len());
        self.checksums.resize(granules, 0);
        // Backwards, so that slots are given out in ascending order.
        for slot in (before..slots).rev() {
            self.dir.release(SlotId(slot));
        }
        (self.leaving.end, self.leaving.swept) = (slots, slots);
    }

    /// Slots from `end` on are to go.
    pub(in crate::cache) fn begin_shrinking(&mut self, end: u32) {
        assert!(end <= self.dir.slots() && !self.is_shrinking(), "one change after the other");
        (self.leaving.end, self.leaving.swept, self.leaving.is_sifted) = (end, end, false);
        self.dir.begin_taking_from(SlotId(end));
    }

    /// True while slots are to go.
    pub(in crate::cache) fn is_shrinking(&self) -> bool {
        self.leaving.end < self.dir.slots()
    }

    /// The next block that has to leave, after at most `visits` slots. `None`: there is none in them.
    pub(in crate::cache) fn next_leaving(&mut self, visits: &mut u32) -> Option<BlockIndex> {
        if !self.leaving.is_sifted {
            self.leaving.is_sifted = self.dir.sift(*visits);
            return None;
        }
        while *visits > 0 && self.leaving.swept < self.dir.slots() {
            let slot = SlotId(self.leaving.swept);
            (self.leaving.swept, *visits) = (self.leaving.swept + 1, *visits - 1);
            if let Some(block) = self.dir.block_of(slot) {
                return Some(block);
            }
        }
        None
    }

    /// Changes that are to be recorded before the slots that are to go are forgotten; `None`: something is in them still,
    /// or an I/O is on them.
    pub(in crate::cache) fn vacated(&mut self) -> Option<u64> {
        let is_over = self.is_shrinking()
            && self.leaving.is_sifted
            && self.leaving.swept == self.dir.slots()
            && !self.busy.iter().any(|busy| busy.slot.0 >= self.leaving.end);
        if is_over && self.leaving.vacated.is_none() {
            // A slot that an I/O was on until now is recorded anew: in a batch that begins from now on.
            self.leaving.vacated = Some(self.begin_change());
        }
        self.leaving.vacated
    }

    /// True while something has to be done until they are vacated.
    pub(in crate::cache) fn is_vacating(&self) -> bool {
        self.is_shrinking() && self.leaving.vacated.is_none()
    }

    /// Forgets the slots that are to go. They are vacated, and recorded as empty where that is recorded.
    pub(in crate::cache) fn end_shrinking(&mut self) {
        self.leaving.vacated = None;
        self.dir.resize(self.leaving.end);
        self.checksums.truncate(self.leaving.end as usize * self.granules as usize);
        self.checksums.shrink_to_fit();
        if let Some(changes) = &mut self.changes {
            changes.forget_from(SlotId(self.leaving.end));
        }
    }
}
