//! Least recently used: a hit moves the block to the front.

use super::{Policy, Victim};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Index;
use crate::list::{Links, List};

/// One queue; the block that was not used for the longest time leaves.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    queue: List,
}

impl Lru {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> Lru {
        Lru { links: Links::new(slots), queue: List::new(1) }
    }
}

impl Policy for Lru {
    fn on_insert(&mut self, slot: SlotId, _block: BlockIndex, _remembered: bool) {
        self.links.push_front(&mut self.queue, slot);
    }

    fn on_restore(&mut self, slot: SlotId, _block: BlockIndex, _referenced: bool) {
        self.links.push_back(&mut self.queue, slot);
    }

    fn on_hit(&mut self, slot: SlotId, _index: &Index) {
        self.links.move_to_front(&mut self.queue, slot);
    }

    fn on_remove(&mut self, slot: SlotId) {
        self.links.remove(&mut self.queue, slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        self.links.replace(&mut self.queue, from, to);
    }

    fn resize(&mut self, slots: u32) {
        self.links.resize(slots);
    }

    fn evict(&mut self, _index: &Index) -> Option<Victim> {
        self.links.pop_back(&mut self.queue).map(|slot| Victim { slot, remember: true })
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }

    fn check_invariants(&self) {
        self.links.check_invariants(&self.queue);
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes()
    }
}
