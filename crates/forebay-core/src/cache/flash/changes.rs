//! Which slots the ring does not say the truth about: what is to be recorded.
//!
//! Slots that lost their block stand in the directory's list of retired ones, or are busy; this is about the
//! others. A claim that finds the list full is left to the walk, which comes to it: until then the cache on flash
//! has less than there is. What must not be forgotten, that a slot holds less than before, finds room:
//! its block leaves otherwise.

use std::collections::VecDeque;

use crate::ids::SlotId;

/// Slots in the list at most.
const LIST_MAX: usize = 4096;
/// Claims leave room for what must not be forgotten.
const CLAIMS_MAX: usize = LIST_MAX * 3 / 4;
/// So does what has another way out.
const LOSSES_MAX: usize = LIST_MAX - 64;
const NONE: u32 = u32::MAX;

/// What a slot is to be listed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It holds more than is recorded.
    Claim,
    /// It holds less, and still something.
    Loss,
    /// It is never used again.
    Quarantine,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Changes {
    /// Changes so far, of every kind.
    pub count: u64,
    /// Every slot was emptied at once.
    pub emptied: bool,
    list: VecDeque<SlotId>,
    /// Slots that are in the list, by a hash; some are forgotten, and then listed twice.
    recent: Box<[u32]>,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes {
            count: 0,
            emptied: false,
            list: VecDeque::with_capacity(LIST_MAX),
            recent: vec![NONE; LIST_MAX].into(),
        }
    }

    /// A slot is to be recorded; false when there is no room.
    pub(super) fn note(&mut self, slot: SlotId, change: Change) -> bool {
        let recent = &mut self.recent[slot.0 as usize % LIST_MAX];
        let max = match change {
            Change::Claim => CLAIMS_MAX,
            Change::Loss => LOSSES_MAX,
            Change::Quarantine => LIST_MAX,
        };
        if *recent != slot.0 {
            if self.list.len() >= max {
                return false;
            }
            *recent = slot.0;
            self.list.push_back(slot);
        }
        self.count += 1;
        true
    }

    /// The next slot to record.
    pub(super) fn next(&mut self) -> Option<SlotId> {
        let slot = self.list.pop_front()?;
        let recent = &mut self.recent[slot.0 as usize % LIST_MAX];
        if *recent == slot.0 {
            *recent = NONE;
        }
        Some(slot)
    }

    /// The next slot to record stays.
    pub(super) fn first(&self) -> Option<SlotId> {
        self.list.front().copied()
    }

    /// Slots from `end` on are no more.
    pub(super) fn forget_from(&mut self, end: SlotId) {
        self.list.retain(|slot| *slot < end);
        self.recent.iter_mut().filter(|slot| **slot >= end.0).for_each(|slot| *slot = NONE);
    }

    /// True when the list should not become longer.
    pub(super) fn are_many(&self) -> bool {
        self.list.len() >= LIST_MAX / 2
    }

    pub(super) fn memory_bytes() -> u64 {
        2 * 4 * LIST_MAX as u64
    }
}
