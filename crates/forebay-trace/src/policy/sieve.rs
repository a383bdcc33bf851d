//! SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi: "SIEVE is simpler than LRU", NSDI '24).
//!
//! ```text
//!   new ─► newest ◄──── hand ──── oldest
//! ```
//! A hit sets a bit and moves nothing. The hand goes from the oldest block towards the newest,
//! and on from the oldest again. It clears bits that are set, and takes the first block without
//! one. What it spares stays at its place, so that new blocks, which come before the hand, are
//! judged soon.
//!
//! An eviction spares at most [`LOOKS_MAX`] blocks, then takes the one at hand.
//!
//! Memory: 8 bytes a slot.

use forebay_core::ids::{BlockIndex, SlotId};
use forebay_core::index::Index;
use forebay_core::list::{Links, List};
use forebay_core::policy::{LOOKS_MAX, Policy, Victim};

/// See the module.
#[derive(Debug)]
pub struct Sieve {
    links: Links,
    queue: List,
    /// Where the next eviction begins to look; `None`: at the oldest.
    hand: Option<SlotId>,
}

impl Sieve {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> Sieve {
        Sieve { links: Links::new(slots), queue: List::new(1), hand: None }
    }

    /// Takes `slot` out; a hand that stands there goes on.
    fn take_out(&mut self, slot: SlotId) {
        if self.hand == Some(slot) {
            self.hand = self.links.newer(slot);
        }
        self.links.remove(&mut self.queue, slot);
    }
}

impl Policy for Sieve {
    fn on_insert(&mut self, slot: SlotId, _block: BlockIndex, _remembered: bool) {
        self.links.push_front(&mut self.queue, slot);
    }

    fn on_restore(&mut self, slot: SlotId, _block: BlockIndex, referenced: bool) {
        self.links.push_back(&mut self.queue, slot);
        self.links.set_count(slot, referenced.into());
    }

    fn on_hit(&mut self, slot: SlotId, _index: &Index) {
        if self.links.count(slot) == 0 {
            self.links.set_count(slot, 1);
        }
    }

    fn on_remove(&mut self, slot: SlotId) {
        self.take_out(slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        self.links.replace(&mut self.queue, from, to);
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }

    fn evict(&mut self, _index: &Index) -> Option<Victim> {
        let oldest = self.queue.back()?;
        let mut at = self.hand.unwrap_or(oldest);
        for _ in 0..LOOKS_MAX {
            if self.links.count(at) == 0 {
                break;
            }
            self.links.set_count(at, 0);
            at = self.links.newer(at).unwrap_or(oldest);
        }
        self.hand = Some(at);
        self.take_out(at);
        Some(Victim { slot: at, remember: true })
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn check_invariants(&self) {
        self.links.check_invariants(&self.queue);
        assert!(
            self.hand.is_none_or(|slot| self.links.queue(slot) != 0),
            "the hand is at no block"
        );
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
