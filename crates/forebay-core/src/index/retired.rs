//! Slots that lost their block, and are free when that is recorded.

use super::{Chain, Index, NONE, TAKEN};
use crate::ids::SlotId;

impl Index {
    /// Number of slots that are retired or recorded.
    pub fn retired_len(&self) -> u32 {
        self.retired.len + self.recorded.len
    }

    /// True when a slot is retired and not recorded.
    pub fn has_retired(&self) -> bool {
        self.retired.len > 0
    }

    /// Puts a taken slot without a block last among the retired ones.
    pub fn retire(&mut self, slot: SlotId) {
        self.vacant(slot).next = NONE;
        let mut chain = self.retired;
        self.append(&mut chain, slot);
        self.retired = chain;
    }

    /// The first of the retired slots is recorded from now on.
    pub fn record_retired(&mut self) -> Option<SlotId> {
        let slot = (self.retired.len > 0).then_some(SlotId(self.retired.first))?;
        let next = std::mem::replace(&mut self.entries[slot.0 as usize].next, NONE);
        self.retired = match self.retired.len {
            1 => Chain::EMPTY,
            len => Chain { first: next, len: len - 1, ..self.retired },
        };
        let mut chain = self.recorded;
        self.append(&mut chain, slot);
        self.recorded = chain;
        Some(slot)
    }

    /// All of the retired slots are recorded from now on.
    pub fn record_all_retired(&mut self) {
        let retired = std::mem::replace(&mut self.retired, Chain::EMPTY);
        if retired.len == 0 {
            return;
        }
        self.recorded = match self.recorded.len {
            0 => retired,
            len => {
                self.entries[self.recorded.last as usize].next = retired.first;
                Chain { last: retired.last, len: len + retired.len, ..self.recorded }
            }
        };
    }

    /// The recorded slots are free.
    pub fn free_recorded(&mut self) {
        let chain = std::mem::replace(&mut self.recorded, Chain::EMPTY);
        if chain.len > 0 {
            self.entries[chain.last as usize].next = self.free.first;
            self.free.first = chain.first;
            self.free.len += chain.len;
        }
    }

    /// Of the recorded slots those from `first` on stay taken.
    pub fn take_recorded_from(&mut self, first: SlotId) {
        let before = std::mem::replace(&mut self.recorded, Chain::EMPTY);
        let mut rest = Chain::EMPTY;
        let mut next = before.first;
        for _ in 0..before.len {
            let slot = SlotId(next);
            let entry = &mut self.entries[slot.0 as usize];
            next = std::mem::replace(&mut entry.next, TAKEN);
            if slot < first {
                entry.next = NONE;
                self.append(&mut rest, slot);
            }
        }
        self.recorded = rest;
    }

    fn append(&mut self, chain: &mut Chain, slot: SlotId) {
        match chain.len {
            0 => chain.first = slot.0,
            _ => self.entries[chain.last as usize].next = slot.0,
        }
        (chain.last, chain.len) = (slot.0, chain.len + 1);
    }
}
