//! W-TinyLFU (Einziger, Friedman, Manes: "TinyLFU: a highly efficient cache admission policy", ACM
//! Transactions on Storage 13(4), 2017).
//!
//! ```text
//!  new ─► window (1 %) ──used more often than the oldest of probation?──► probation ◄─┐
//!                      └─no─► gone                                        hit │       │ oldest
//!                                                                             ▼       │
//!                                                                     protected (80 %) ┘
//! ```
//! All three queues are in LRU order. A *sketch* estimates how often a block was used. It is a
//! table of counters, ten of them for a block. The smallest is nearest the truth.
//!
//! Parameters near libCacheSim's: a window of 1 %, a fifth of the rest for probation, 14.4
//! counters a slot. The window has one slot at least, where libCacheSim's has none and misses
//! always. It counts insertions, hits outside the window, and blocks that leave the window. After
//! 32 insertions and such hits a slot all counters are halved (there: hits only), some at a time
//! beside the uses that follow, so that nobody waits.
//!
//! Memory: 37 bytes a slot: links 8, counters 28.8. It is above the budget of 26 bytes.

mod sketch;

use forebay_core::ids::{BlockIndex, SlotId};
use forebay_core::index::Index;
use forebay_core::list::{Links, List};
use forebay_core::policy::{LOOKS_MAX, Policy, Victim, block_in};

use sketch::Sketch;

const WINDOW: u8 = 1;
const PROBATION: u8 = 2;
const PROTECTED: u8 = 3;

/// See the module.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    window: List,
    probation: List,
    protected: List,
    window_max: u32,
    probation_max: u32,
    protected_max: u32,
    /// Slots of probation and protected together.
    main_max: u32,
    sketch: Sketch,
}

impl WTinyLfu {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> WTinyLfu {
        let window_max = (slots / 100).max(1);
        let main_max = slots - window_max;
        WTinyLfu {
            links: Links::new(slots),
            window: List::new(WINDOW),
            probation: List::new(PROBATION),
            protected: List::new(PROTECTED),
            window_max,
            probation_max: main_max / 5,
            protected_max: (u64::from(main_max) * 4 / 5) as u32,
            main_max,
            sketch: Sketch::new(main_max),
        }
    }

    /// What [`Policy::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        let main_max = slots - (slots / 100).max(1);
        Links::memory_bytes_for(slots) + Sketch::memory_bytes_for(main_max)
    }

    fn queue_of(&mut self, slot: SlotId) -> (&mut Links, &mut List) {
        match self.links.queue(slot) {
            WINDOW => (&mut self.links, &mut self.window),
            PROBATION => (&mut self.links, &mut self.probation),
            _ => (&mut self.links, &mut self.protected),
        }
    }

    fn main_len(&self) -> u32 {
        self.probation.len() + self.protected.len()
    }

    /// Lets the oldest of the window into a main part with room, where nobody has to be better than another one.
    fn fill_main(&mut self, index: &Index) {
        for _ in 0..LOOKS_MAX {
            if self.window.len() <= self.window_max || self.main_len() >= self.main_max {
                break;
            }
            let Some(oldest) = self.links.pop_back(&mut self.window) else { break };
            self.sketch.add(block_in(index, oldest));
            self.admit(oldest);
        }
    }

    /// Puts `slot`, which is in no queue, into the lowest queue with room.
    fn admit(&mut self, slot: SlotId) {
        let is_full = self.probation.len() >= self.probation_max;
        let to_protected = is_full && self.protected.len() < self.protected_max;
        let queue = if to_protected { &mut self.protected } else { &mut self.probation };
        self.links.push_front(queue, slot);
    }
}

impl Policy for WTinyLfu {
    fn on_insert(&mut self, slot: SlotId, block: BlockIndex, _remembered: bool) {
        self.links.push_front(&mut self.window, slot);
        self.sketch.add(block);
        self.sketch.age();
    }

    fn on_restore(&mut self, slot: SlotId, block: BlockIndex, referenced: bool) {
        let to_protected = referenced && self.protected.len() < self.protected_max;
        let queue = if to_protected { &mut self.protected } else { &mut self.probation };
        self.links.push_back(queue, slot);
        self.sketch.add(block);
    }

    fn on_hit(&mut self, slot: SlotId, index: &Index) {
        match self.links.queue(slot) {
            WINDOW => return self.links.move_to_front(&mut self.window, slot),
            PROBATION => {
                self.links.remove(&mut self.probation, slot);
                self.links.push_front(&mut self.protected, slot);
                if self.protected.len() > self.protected_max {
                    let oldest = self.links.pop_back(&mut self.protected).expect("it is too long");
                    self.links.push_front(&mut self.probation, oldest);
                }
            }
            _ => self.links.move_to_front(&mut self.protected, slot),
        }
        self.sketch.add(block_in(index, slot));
        self.sketch.age();
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
        self.fill_main(index);
        let main = self.probation.back().or(self.protected.back());
        let window = self.window.back().filter(|_| self.main_len() >= self.main_max);
        let slot = match (window, main) {
            (None, None) => self.window.back()?,
            (Some(slot), None) | (None, Some(slot)) => slot,
            (Some(candidate), Some(oldest)) => {
                let block = block_in(index, candidate);
                let is_better =
                    self.sketch.count(block) > self.sketch.count(block_in(index, oldest));
                self.sketch.add(block);
                if is_better { oldest } else { candidate }
            }
        };
        self.on_remove(slot);
        if let (Some(candidate), true) = (window, window != Some(slot)) {
            self.links.remove(&mut self.window, candidate);
            self.admit(candidate);
        }
        Some(Victim { slot, remember: true })
    }

    fn forget(&mut self) {
        self.sketch.clear();
    }

    fn len(&self) -> u32 {
        self.window.len() + self.main_len()
    }

    fn check_invariants(&self) {
        self.links.check_invariants(&self.window);
        self.links.check_invariants(&self.probation);
        self.links.check_invariants(&self.protected);
        assert!(self.protected.len() <= self.protected_max);
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes() + self.sketch.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
