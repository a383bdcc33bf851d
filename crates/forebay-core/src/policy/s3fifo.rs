//! S3-FIFO: three static queues (Yang, Zhang, Qiu, Yue, Vigfusson: "FIFO queues are all you need
//! for cache eviction", SOSP '23).
//!
//! ```text
//!           new ──► small (10 %) ──used twice or more──► main (90 %) ──not used──► gone
//!                     │                                  ▲   │  ▲
//!                     └──else──► ghost ──comes back──────┘   └──┘ used: once more round
//! ```
//! A block that is used once leaves after a tenth of the cache, which is what makes scans harmless.
//! A hit only counts, up to three; nothing moves. The ghost queue belongs to the tier's directory:
//! it says `remembered` at insertion and keeps what [`Victim::remember`] asks for.
//!
//! Until the first eviction new blocks go to the main queue as soon as the small one has its share,
//! as in the authors' libCacheSim. (Otherwise a cache fills with a small queue of its whole size, and
//! the first scan drives everything out: with it, misses on a file server's trace with half of its
//! blocks in cache go from 90 % to 78 %.)
//!
//! One thing differs from both: an eviction looks at no more than [`LOOKS_MAX`] blocks and
//! then takes the one at hand. After a long time of hits only, every block of the main queue has
//! been used, and the first miss would walk all of it while other disks wait.

use super::{LOOKS_MAX, Policy, Victim};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Index;
use crate::list::{Links, List};

/// Uses are counted up to this.
const COUNT_MAX: u8 = 3;
/// Uses in the small queue that take a block to the main queue.
const COUNT_TO_MAIN: u8 = 2;
/// Queue number of the small queue.
const SMALL: u8 = 1;
/// Queue number of the main queue.
const MAIN: u8 = 2;

/// See the module.
#[derive(Debug)]
pub struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    /// The small queue gives up blocks while it is at least this long.
    small_len: u32,
    /// Nothing was dropped since the cache was empty.
    is_filling: bool,
}

impl S3Fifo {
    /// For slots `0..slots`, a tenth of them for the small queue.
    pub fn new(slots: u32) -> S3Fifo {
        S3Fifo {
            links: Links::new(slots),
            small: List::new(SMALL),
            main: List::new(MAIN),
            small_len: (slots / 10).max(1),
            is_filling: true,
        }
    }

    /// The queue that `slot`, which must be in one, is in.
    fn queue_of(&mut self, slot: SlotId) -> (&mut Links, &mut List) {
        match self.links.queue(slot) {
            SMALL => (&mut self.links, &mut self.small),
            _ => (&mut self.links, &mut self.main),
        }
    }

    fn evict_from_small(&mut self, looks: &mut u32) -> Option<Victim> {
        while let Some(slot) = self.small.back() {
            let promote = self.links.count(slot) >= COUNT_TO_MAIN && *looks < LOOKS_MAX;
            self.links.remove(&mut self.small, slot);
            if !promote {
                return Some(Victim { slot, remember: true });
            }
            *looks += 1;
            self.links.push_front(&mut self.main, slot);
        }
        None
    }

    fn evict_from_main(&mut self, looks: &mut u32) -> Option<Victim> {
        while let Some(slot) = self.main.back() {
            let count = self.links.count(slot);
            if count == 0 || *looks >= LOOKS_MAX {
                self.links.remove(&mut self.main, slot);
                return Some(Victim { slot, remember: false });
            }
            *looks += 1;
            self.links.move_to_front(&mut self.main, slot);
            self.links.set_count(slot, count - 1);
        }
        None
    }
}

impl Policy for S3Fifo {
    fn on_insert(&mut self, slot: SlotId, _block: BlockIndex, remembered: bool) {
        self.is_filling |= self.len() == 0;
        let to_main = remembered || self.is_filling && self.small.len() >= self.small_len;
        let queue = if to_main { &mut self.main } else { &mut self.small };
        self.links.push_front(queue, slot);
    }

    fn on_restore(&mut self, slot: SlotId, _block: BlockIndex, referenced: bool) {
        // Which queue it was in is not known; a scan of new blocks does not drive it out of this one.
        self.links.push_back(&mut self.main, slot);
        self.links.set_count(slot, referenced.into());
    }

    fn on_hit(&mut self, slot: SlotId) {
        let count = self.links.count(slot);
        // The line is only written while the count still rises.
        if count < COUNT_MAX {
            self.links.set_count(slot, count + 1);
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

    fn evict(&mut self, _index: &Index) -> Option<Victim> {
        self.is_filling = false;
        let mut looks = 0;
        if self.small.len() >= self.small_len
            && let Some(victim) = self.evict_from_small(&mut looks)
        {
            return Some(victim);
        }
        // A short small queue may still promote all it has: then main has something.
        self.evict_from_main(&mut looks)
            .or_else(|| self.evict_from_small(&mut looks))
            .or_else(|| self.evict_from_main(&mut looks))
    }

    fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    fn check_invariants(&self) {
        self.links.check_invariants(&self.small);
        self.links.check_invariants(&self.main);
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
