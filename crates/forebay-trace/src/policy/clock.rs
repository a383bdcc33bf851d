//! CLOCK: first in, first out with a second chance (Corbató: "A paging experiment with the Multics
//! system", MIT Project MAC, 1968).
//!
//! A hit sets a bit. The oldest block leaves, unless its bit is set: then the bit goes and the block is
//! the newest again. It comes near LRU, and a hit moves nothing.
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
pub struct Clock {
    links: Links,
    queue: List,
}

impl Clock {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> Clock {
        Clock { links: Links::new(slots), queue: List::new(1) }
    }
}

impl Policy for Clock {
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
        self.links.remove(&mut self.queue, slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        self.links.replace(&mut self.queue, from, to);
    }

    fn evict(&mut self, _index: &Index) -> Option<Victim> {
        for _ in 0..LOOKS_MAX {
            let slot = self.queue.back()?;
            if self.links.count(slot) == 0 {
                break;
            }
            self.links.move_to_front(&mut self.queue, slot);
            self.links.set_count(slot, 0);
        }
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

#[cfg(test)]
mod tests;
