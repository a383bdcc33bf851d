//! ARC (Megiddo, Modha: "ARC: a self-tuning, low overhead replacement cache", FAST '03).
//!
//! ```text
//!  new ─► recent (T1) ──hit──► frequent (T2) ◄─┐ hit
//!            │ oldest          ▲  │ oldest   └─┘
//!            ▼                 │  ▼
//!         ghosts (B1) ──back───┴─ ghosts (B2)
//! ```
//! `recent_target` (the paper's p) is how many slots the recent blocks should have. A ghost of recent blocks
//! that comes back raises it, a frequent one lowers it. All four queues are in LRU order.
//!
//! The ghosts are its own, exact, and not those of the tier. A policy here learns of the block that comes after
//! it chose the one that goes, so the target moves one eviction later than in the paper.
//!
//! **Invariants:** T1 and B1 together are no longer than the cache, all four no longer than twice the cache.
//!
//! Memory: 26 bytes a slot: links 8; for each of as many ghosts links 8 and index 10. It is above the budget of
//! 26 bytes with everything else.

use forebay_core::ids::{BlockIndex, SlotId};
use forebay_core::index::{Density, Index};
use forebay_core::list::{Links, List, SLOTS_MAX};
use forebay_core::policy::{Policy, Victim, block_in};

/// Queue number of what was used once, and of its ghosts.
const RECENT: u8 = 1;
/// Queue number of what was used again, and of its ghosts.
const FREQUENT: u8 = 2;

/// See the module.
#[derive(Debug)]
pub struct Arc {
    slots: u32,
    links: Links,
    recent: List,
    frequent: List,
    recent_target: u32,
    /// Which ghost has which number.
    ghosts: Index,
    ghost_links: Links,
    recent_ghosts: List,
    frequent_ghosts: List,
}

impl Arc {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> Arc {
        Arc {
            slots,
            links: Links::new(slots),
            recent: List::new(RECENT),
            frequent: List::new(FREQUENT),
            recent_target: 0,
            ghosts: Index::new(ghosts_max(slots), Density::Compact),
            ghost_links: Links::new(ghosts_max(slots)),
            recent_ghosts: List::new(RECENT),
            frequent_ghosts: List::new(FREQUENT),
        }
    }

    /// What [`Policy::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        Links::memory_bytes_for(slots)
            + Links::memory_bytes_for(ghosts_max(slots))
            + Index::memory_bytes_for(ghosts_max(slots), Density::Compact)
    }

    /// The queue that `slot`, which must be in one, is in.
    fn queue_of(&mut self, slot: SlotId) -> (&mut Links, &mut List) {
        match self.links.queue(slot) {
            RECENT => (&mut self.links, &mut self.recent),
            _ => (&mut self.links, &mut self.frequent),
        }
    }

    /// Moves the target as the ghost that came back says, and forgets the ghost.
    fn learn(&mut self, ghost: SlotId) {
        let (recent, frequent) = (self.recent_ghosts.len(), self.frequent_ghosts.len());
        if self.ghost_links.queue(ghost) == RECENT {
            let step = (frequent / recent).max(1);
            self.recent_target = self.recent_target.saturating_add(step).min(self.slots);
            self.ghost_links.remove(&mut self.recent_ghosts, ghost);
        } else {
            let step = (recent / frequent).max(1);
            self.recent_target = self.recent_target.saturating_sub(step);
            self.ghost_links.remove(&mut self.frequent_ghosts, ghost);
        }
        self.ghosts.remove(ghost);
        self.ghosts.release(ghost);
    }

    fn remember(&mut self, block: BlockIndex, was_recent: bool) {
        if self.ghosts.free_len() == 0 && !self.drop_ghost(FREQUENT) {
            self.drop_ghost(RECENT);
        }
        let ghost = self.ghosts.take_free().expect("a ghost was dropped where none was free");
        self.ghosts.insert(ghost, block);
        let queue = if was_recent { &mut self.recent_ghosts } else { &mut self.frequent_ghosts };
        self.ghost_links.push_front(queue, ghost);
    }

    /// Forgets the oldest ghost of a queue; false when it has none.
    fn drop_ghost(&mut self, queue: u8) -> bool {
        let queue =
            if queue == RECENT { &mut self.recent_ghosts } else { &mut self.frequent_ghosts };
        let Some(ghost) = self.ghost_links.pop_back(queue) else { return false };
        self.ghosts.remove(ghost);
        self.ghosts.release(ghost);
        true
    }

    fn is_too_long(&self) -> (bool, bool) {
        let recent = self.recent.len() + self.recent_ghosts.len();
        let frequent = self.frequent.len() + self.frequent_ghosts.len();
        (recent > self.slots, u64::from(recent) + u64::from(frequent) > 2 * u64::from(self.slots))
    }
}

/// One more than in the paper: a block leaves before it is known whether another one comes back.
fn ghosts_max(slots: u32) -> u32 {
    (slots + 1).min(SLOTS_MAX)
}

impl Policy for Arc {
    fn on_insert(&mut self, slot: SlotId, block: BlockIndex, _remembered: bool) {
        match self.ghosts.find(block) {
            Some(ghost) => {
                self.learn(ghost);
                self.links.push_front(&mut self.frequent, slot);
            }
            None => self.links.push_front(&mut self.recent, slot),
        }
        while self.is_too_long().0 && self.drop_ghost(RECENT) {}
        while self.is_too_long().1 && self.drop_ghost(FREQUENT) {}
    }

    fn on_restore(&mut self, slot: SlotId, _block: BlockIndex, referenced: bool) {
        let queue = if referenced { &mut self.frequent } else { &mut self.recent };
        self.links.push_back(queue, slot);
    }

    fn on_hit(&mut self, slot: SlotId, _index: &Index) {
        if self.links.queue(slot) == FREQUENT {
            self.links.move_to_front(&mut self.frequent, slot);
        } else {
            self.links.remove(&mut self.recent, slot);
            self.links.push_front(&mut self.frequent, slot);
        }
    }

    fn on_remove(&mut self, slot: SlotId) {
        let (links, queue) = self.queue_of(slot);
        links.remove(queue, slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        let (links, queue) = self.queue_of(from);
        links.replace(queue, from, to);
    }

    fn evict(&mut self, index: &Index) -> Option<Victim> {
        let from_recent = self.recent.len() > self.recent_target || self.frequent.is_empty();
        let queue = if from_recent { &mut self.recent } else { &mut self.frequent };
        let slot = self.links.pop_back(queue)?;
        self.remember(block_in(index, slot), from_recent);
        Some(Victim { slot, remember: true })
    }

    fn forget(&mut self) {
        while self.drop_ghost(RECENT) || self.drop_ghost(FREQUENT) {}
        self.recent_target = 0;
    }

    fn len(&self) -> u32 {
        self.recent.len() + self.frequent.len()
    }

    fn check_invariants(&self) {
        self.links.check_invariants(&self.recent);
        self.links.check_invariants(&self.frequent);
        self.ghost_links.check_invariants(&self.recent_ghosts);
        self.ghost_links.check_invariants(&self.frequent_ghosts);
        self.ghosts.check_invariants();
        assert_eq!(self.ghosts.len(), self.recent_ghosts.len() + self.frequent_ghosts.len());
        assert!(self.recent_target <= self.slots);
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes() + self.ghost_links.memory_bytes() + self.ghosts.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
