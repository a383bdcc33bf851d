//! LIRS (Jiang, Zhang: "LIRS: an efficient low inter-reference recency set replacement policy",
//! SIGMETRICS '02).
//!
//! ```text
//!  stack   newest ── hot, cold, ghost … ── hot     by time of last use; the oldest is always hot
//!  queue   newest ── cold … ── oldest              cold blocks in slots; the oldest leaves
//! ```
//! A block is *hot* when the time between its last two uses was short (the paper's LIR), else *cold* (HIR).
//! A cold block that is used while it is still in the stack was used again sooner than the oldest hot one: they
//! change roles. So a loop that is longer than the cache keeps a part of itself.
//!
//! Parameters as in libCacheSim: cold blocks have a hundredth of the slots, one at least. The
//! stack is at most twice as long as the cache. Beyond that the ghosts that left first are
//! forgotten.
//!
//! **Invariants:** A hot block is in the stack and not in the queue. A cold one is in the queue.
//! The oldest of the stack is hot.
//!
//! Memory: 42 bytes a slot: stack and queue 8 each; for each of as many ghosts stack 8, order 8, index 10. It is
//! above the budget of 26 bytes. A use of the oldest hot block takes all younger cold ones off the stack, which
//! takes as long as it takes.

use forebay_core::ids::{BlockIndex, SlotId};
use forebay_core::index::{Density, Index};
use forebay_core::list::{Links, List, SLOTS_MAX};
use forebay_core::policy::{Policy, Victim, block_in};

/// See the module.
#[derive(Debug)]
pub struct Lirs {
    slots: u32,
    hot_max: u32,
    hot: u32,
    /// Of slots, and of ghosts, whose numbers follow.
    stack_links: Links,
    stack: List,
    queue_links: Links,
    queue: List,
    /// Which ghost has which number, from 0.
    ghosts: Index,
    /// Ghosts in order of leaving.
    left_links: Links,
    left: List,
}

impl Lirs {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> Lirs {
        let ghosts = ghosts_max(slots);
        Lirs {
            slots,
            hot_max: slots - cold_min(slots),
            hot: 0,
            stack_links: Links::new(slots + ghosts),
            stack: List::new(1),
            queue_links: Links::new(slots),
            queue: List::new(1),
            ghosts: Index::new(ghosts, Density::Compact),
            left_links: Links::new(ghosts),
            left: List::new(1),
        }
    }

    /// What [`Policy::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        let ghosts = ghosts_max(slots);
        Links::memory_bytes_for(slots + ghosts)
            + Links::memory_bytes_for(slots)
            + Links::memory_bytes_for(ghosts)
            + Index::memory_bytes_for(ghosts, Density::Compact)
    }

    fn is_cold(&self, slot: SlotId) -> bool {
        self.queue_links.queue(slot) != 0
    }

    fn is_in_stack(&self, node: SlotId) -> bool {
        self.stack_links.queue(node) != 0
    }

    /// The stack's number of a ghost.
    fn node_of(&self, ghost: SlotId) -> SlotId {
        SlotId(self.slots + ghost.0)
    }

    fn on_use_of_cold(&mut self, slot: SlotId) {
        if self.is_in_stack(slot) {
            self.stack_links.move_to_front(&mut self.stack, slot);
            self.queue_links.remove(&mut self.queue, slot);
            self.heat();
        } else {
            self.stack_links.push_front(&mut self.stack, slot);
            self.queue_links.move_to_front(&mut self.queue, slot);
            self.limit();
        }
    }

    /// One block more is hot; where that is one too many, the oldest hot one turns cold.
    fn heat(&mut self) {
        self.hot += 1;
        if self.hot > self.hot_max {
            let slot =
                self.stack_links.pop_back(&mut self.stack).expect("a hot block is in the stack");
            self.queue_links.push_front(&mut self.queue, slot);
            self.hot -= 1;
        }
        self.prune();
    }

    /// Takes what is older than the oldest hot block off the stack.
    fn prune(&mut self) {
        while let Some(node) = self.stack.back() {
            if node.0 >= self.slots {
                self.drop_ghost(SlotId(node.0 - self.slots));
            } else if self.is_cold(node) {
                self.stack_links.remove(&mut self.stack, node);
            } else {
                break;
            }
        }
    }

    fn drop_ghost(&mut self, ghost: SlotId) {
        let node = self.node_of(ghost);
        self.stack_links.remove(&mut self.stack, node);
        self.left_links.remove(&mut self.left, ghost);
        self.ghosts.remove(ghost);
        self.ghosts.release(ghost);
    }

    /// Keeps the stack within its length.
    fn limit(&mut self) {
        while u64::from(self.stack.len()) > 2 * u64::from(self.slots) {
            let Some(ghost) = self.left.back() else { break };
            self.drop_ghost(ghost);
        }
    }

    /// The cold block in `slot`, which is in no queue any more, becomes a ghost at its place in the stack.
    fn remember(&mut self, slot: SlotId, index: &Index) {
        if self.ghosts.free_len() == 0 {
            let oldest = self.left.back().expect("a ghost has left");
            self.drop_ghost(oldest);
        }
        let block = block_in(index, slot);
        let ghost = self.ghosts.take_free().expect("a ghost was dropped where none was free");
        self.ghosts.insert(ghost, block);
        self.left_links.push_front(&mut self.left, ghost);
        let node = self.node_of(ghost);
        self.stack_links.replace(&mut self.stack, slot, node);
    }

    /// Takes a block out of everything.
    fn take_out(&mut self, slot: SlotId) {
        if self.is_in_stack(slot) {
            self.stack_links.remove(&mut self.stack, slot);
        }
        if self.is_cold(slot) {
            self.queue_links.remove(&mut self.queue, slot);
        } else {
            self.hot -= 1;
        }
        self.prune();
    }
}

/// Slots for cold blocks.
fn cold_min(slots: u32) -> u32 {
    (slots / 100).max(1)
}

/// The stack holds twice as many as the cache, of which the hot ones are not ghosts.
fn ghosts_max(slots: u32) -> u32 {
    (slots + cold_min(slots)).min(SLOTS_MAX - slots)
}

impl Policy for Lirs {
    fn on_insert(&mut self, slot: SlotId, block: BlockIndex, _remembered: bool) {
        if let Some(ghost) = self.ghosts.find(block) {
            self.drop_ghost(ghost);
            self.stack_links.push_front(&mut self.stack, slot);
            self.heat();
        } else if self.hot < self.hot_max {
            self.stack_links.push_front(&mut self.stack, slot);
            self.hot += 1;
        } else {
            self.stack_links.push_front(&mut self.stack, slot);
            self.queue_links.push_front(&mut self.queue, slot);
            self.prune();
        }
        self.limit();
    }

    fn on_restore(&mut self, slot: SlotId, _block: BlockIndex, referenced: bool) {
        if referenced && self.hot < self.hot_max {
            self.stack_links.push_back(&mut self.stack, slot);
            self.hot += 1;
        } else {
            self.queue_links.push_back(&mut self.queue, slot);
        }
    }

    fn on_hit(&mut self, slot: SlotId, _index: &Index) {
        if self.is_cold(slot) {
            self.on_use_of_cold(slot);
        } else {
            self.stack_links.move_to_front(&mut self.stack, slot);
        }
        self.prune();
    }

    fn on_remove(&mut self, slot: SlotId) {
        self.take_out(slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        if self.is_in_stack(from) {
            self.stack_links.replace(&mut self.stack, from, to);
        }
        if self.is_cold(from) {
            self.queue_links.replace(&mut self.queue, from, to);
        }
    }

    fn evict(&mut self, index: &Index) -> Option<Victim> {
        if let Some(slot) = self.queue_links.pop_back(&mut self.queue) {
            if self.is_in_stack(slot) {
                self.remember(slot, index);
            }
            return Some(Victim { slot, remember: true });
        }
        // Nothing is cold: the cache shrinks, or has one slot.
        let slot = self.stack.back()?;
        self.take_out(slot);
        Some(Victim { slot, remember: true })
    }

    fn forget(&mut self) {
        while let Some(ghost) = self.left.back() {
            self.drop_ghost(ghost);
        }
        self.prune();
    }

    fn len(&self) -> u32 {
        self.hot + self.queue.len()
    }

    fn check_invariants(&self) {
        self.stack_links.check_invariants(&self.stack);
        self.queue_links.check_invariants(&self.queue);
        self.left_links.check_invariants(&self.left);
        self.ghosts.check_invariants();
        assert_eq!(self.ghosts.len(), self.left.len());
        let hot = |node: &SlotId| node.0 < self.slots && !self.is_cold(*node);
        assert!(self.stack.back().is_none_or(|node| hot(&node)), "the oldest of the stack is cold");
        assert_eq!(self.stack_links.iter(&self.stack).filter(hot).count(), self.hot as usize);
        assert!(self.hot <= self.hot_max);
    }

    fn memory_bytes(&self) -> usize {
        self.stack_links.memory_bytes()
            + self.queue_links.memory_bytes()
            + self.left_links.memory_bytes()
            + self.ghosts.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
