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
//! Until the first eviction new blocks go to the main queue as soon as the small one has its
//! share, as in the authors' libCacheSim. (Otherwise a cache fills with a small queue of its
//! whole size, and the first scan drives everything out. On a file server's trace with half of
//! its blocks in cache this rule lowers misses from 90 % to 78 %.)
//!
//! `auto` also has these queues, by other rules (`auto.rs`). With a small queue of 0 % they are
//! SIEVE's (of `forebay-trace`): new blocks go to the main queue. A *hand* goes through it, and leaves
//! used blocks where they are.
//!
//! One thing differs from both: an eviction looks at no more than [`LOOKS_MAX`] blocks and then
//! takes the one at hand. After a long time of hits only, every block of the main queue has been
//! used. The first miss would walk all of it while other disks wait.

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

/// Of so many blocks that the small queue gives up, one is let into the main queue on average, by rules that allow it.
const STRAY_EVERY: u32 = 128;
/// The same by quick rules.
const STRAY_EVERY_QUICK: u32 = 32;
/// Blocks of the main queue that are looked at for one that leaves for a stray.
const STRAY_LOOKS: u32 = 4;

/// How the queues are divided, and what else gets into the main queue or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// Share of the small queue; 0: new blocks go to the main queue, from which a hand takes what was not used.
    pub small_percent: u32,
    /// A remembered block gets into the main queue only when the oldest one there was not used.
    pub is_guarded: bool,
    /// Blocks that the small queue has too many of go to the main queue, and so do *strays*. A
    /// stray is one of [`STRAY_EVERY`] blocks that the small queue gives up. It enters when one
    /// of the [`STRAY_LOOKS`] oldest of the main queue was not used: that one leaves instead.
    pub lets_unused_in: bool,
    /// One look at a block of the main queue forgets all of its uses, strays come more often, and old ghosts are remembered, too.
    pub is_quick: bool,
}

impl Rules {
    /// The paper's.
    const PAPER: Rules =
        Rules { small_percent: 10, is_guarded: false, lets_unused_in: false, is_quick: false };

    /// Whether a hand takes from the main queue.
    pub fn has_hand(self) -> bool {
        self.small_percent == 0
    }

    /// Uses that a block of the main queue with `count` has left when it was looked at.
    fn after_a_look(self, count: u8) -> u8 {
        if self.is_quick { 0 } else { count - 1 }
    }

    /// Blocks to give up before the next stray. Not always as many: in a loop it would be the same blocks each round.
    fn until_stray(self, strays: u32) -> u32 {
        let every = if self.is_quick { STRAY_EVERY_QUICK } else { STRAY_EVERY };
        every / 2 + BlockIndex(strays).hash() as u32 % (every + 1)
    }

    fn small_len(self, slots: u32) -> u32 {
        let len = (u64::from(slots) * u64::from(self.small_percent) / 100) as u32;
        if self.has_hand() { 0 } else { len.max(1) }
    }
}

/// See the module.
#[derive(Debug)]
pub struct S3Fifo {
    slots: u32,
    rules: Rules,
    links: Links,
    small: List,
    main: List,
    /// The small queue gives up blocks while it is at least this long.
    small_len: u32,
    /// Nothing was dropped since the cache was empty.
    is_filling: bool,
    /// Blocks that it had at most when one was to leave: fewer are there while room is made ahead of new ones.
    full_len: u32,
    /// Where in the main queue the next eviction by hand begins to look; `None`: at the oldest.
    hand: Option<SlotId>,
    /// Strays so far, and blocks that the small queue gives up until the next one.
    strays: u32,
    until_stray: u32,
    /// Blocks that evictions have spared.
    spared: u64,
}

impl S3Fifo {
    /// For slots `0..slots`, a tenth of them for the small queue.
    pub fn new(slots: u32) -> S3Fifo {
        S3Fifo::with_rules(slots, Rules::PAPER)
    }

    /// The same by other rules.
    pub(super) fn with_rules(slots: u32, rules: Rules) -> S3Fifo {
        S3Fifo {
            slots,
            rules,
            links: Links::new(slots),
            small: List::new(SMALL),
            main: List::new(MAIN),
            small_len: rules.small_len(slots),
            is_filling: true,
            full_len: 0,
            hand: None,
            strays: 0,
            until_stray: rules.until_stray(0),
            spared: 0,
        }
    }

    /// Goes on by other rules. No block moves now: the queues change with the evictions that
    /// follow. The hand has looked at the blocks behind it last, so they are the newest from now
    /// on.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        if let Some(hand) = self.hand.take() {
            self.links.turn_to_back(&mut self.main, hand);
        }
        self.rules = rules;
        self.small_len = rules.small_len(self.slots);
        (self.strays, self.until_stray) = (0, rules.until_stray(0));
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
                let instead = self.let_stray_in(slot);
                let remember = instead.is_none();
                return Some(Victim { slot: instead.unwrap_or(slot), remember });
            }
            *looks += 1;
            self.links.push_front(&mut self.main, slot);
        }
        None
    }

    /// As [`super::Sieve`] does.
    fn evict_by_hand(&mut self, looks: &mut u32) -> Option<Victim> {
        let oldest = self.main.back()?;
        let mut at = self.hand.unwrap_or(oldest);
        while *looks < LOOKS_MAX && self.links.count(at) > 0 {
            *looks += 1;
            self.links.set_count(at, 0);
            at = self.links.newer(at).unwrap_or(oldest);
        }
        self.hand = Some(at);
        self.take_out(at);
        Some(Victim { slot: at, remember: false })
    }

    /// Takes `slot` out of its queue; a hand that is there goes on.
    fn take_out(&mut self, slot: SlotId) {
        if self.hand == Some(slot) {
            self.hand = self.links.newer(slot);
        }
        let (links, queue) = self.queue_of(slot);
        links.remove(queue, slot);
    }

    fn evict_from_main(&mut self, looks: &mut u32) -> Option<Victim> {
        if self.rules.has_hand() {
            return self.evict_by_hand(looks);
        }
        while let Some(slot) = self.main.back() {
            let count = self.links.count(slot);
            if count == 0 || *looks >= LOOKS_MAX {
                self.links.remove(&mut self.main, slot);
                return Some(Victim { slot, remember: false });
            }
            *looks += 1;
            self.links.move_to_front(&mut self.main, slot);
            self.links.set_count(slot, self.rules.after_a_look(count));
        }
        None
    }

    /// Now and then, puts `slot`, which the small queue gave up, into the main queue; which block leaves instead.
    fn let_stray_in(&mut self, slot: SlotId) -> Option<SlotId> {
        self.until_stray -= 1;
        if self.until_stray > 0 {
            return None;
        }
        self.strays = self.strays.wrapping_add(1);
        self.until_stray = self.rules.until_stray(self.strays);
        if !self.rules.lets_unused_in {
            return None;
        }
        let oldest = (0..STRAY_LOOKS).find_map(|_| self.unused_oldest())?;
        self.take_out(oldest);
        self.links.push_front(&mut self.main, slot);
        Some(oldest)
    }

    /// The oldest of the main queue when it was not used; one that was goes another round.
    fn unused_oldest(&mut self) -> Option<SlotId> {
        let oldest = self.main.back()?;
        let count = self.links.count(oldest);
        if count == 0 {
            return Some(oldest);
        }
        self.links.move_to_front(&mut self.main, oldest);
        self.links.set_count(oldest, self.rules.after_a_look(count));
        None
    }

    /// Whether a remembered block gets into the main queue.
    fn lets_in(&mut self) -> bool {
        !self.rules.is_guarded || self.main.is_empty() || self.unused_oldest().is_some()
    }
}

impl Policy for S3Fifo {
    fn on_insert(&mut self, slot: SlotId, _block: BlockIndex, remembered: bool) {
        self.is_filling |= self.len() == 0;
        let to_main = self.rules.has_hand()
            || remembered && self.lets_in()
            || self.is_filling && self.small.len() >= self.small_len;
        let queue = if to_main { &mut self.main } else { &mut self.small };
        self.links.push_front(queue, slot);
        if remembered && !to_main {
            self.links.set_count(slot, COUNT_TO_MAIN - 1);
        }
    }

    fn on_restore(&mut self, slot: SlotId, _block: BlockIndex, referenced: bool) {
        // Which queue it was in is not known; a scan of new blocks does not drive it out of this one.
        self.links.push_back(&mut self.main, slot);
        self.links.set_count(slot, referenced.into());
    }

    fn looks_far_back(&self) -> bool {
        self.rules.is_quick
    }

    fn on_hit(&mut self, slot: SlotId, _index: &Index) {
        let count = self.links.count(slot);
        // The line is only written while the count still rises.
        if count < COUNT_MAX {
            self.links.set_count(slot, count + 1);
        }
    }

    fn on_remove(&mut self, slot: SlotId) {
        self.take_out(slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        let (links, queue) = self.queue_of(from);
        links.replace(queue, from, to);
        if self.hand == Some(from) {
            self.hand = Some(to);
        }
    }

    fn resize(&mut self, slots: u32) {
        self.links.resize(slots);
        // More slots fill as new ones do.
        self.is_filling |= slots > self.slots;
        self.slots = slots;
        self.small_len = self.rules.small_len(slots);
        self.full_len = self.full_len.min(slots);
    }

    fn have_room(&mut self) {
        self.is_filling = true;
    }

    fn evict(&mut self, _index: &Index) -> Option<Victim> {
        self.is_filling = false;
        self.full_len = self.full_len.max(self.len());
        // Room for new blocks is made some evictions ahead: as if those were in the small queue already.
        let small_len_then = self.small.len() + self.full_len - self.len();
        let mut looks = 0;
        if self.rules.lets_unused_in
            && self.small.len() > self.small_len
            && let Some(oldest) = self.links.pop_back(&mut self.small)
        {
            self.links.push_front(&mut self.main, oldest);
        }
        if !self.rules.has_hand()
            && small_len_then >= self.small_len
            && let Some(victim) = self.evict_from_small(&mut looks)
        {
            self.spared += u64::from(looks);
            return Some(victim);
        }
        // A short small queue may still promote all it has: then main has something.
        let victim = self
            .evict_from_main(&mut looks)
            .or_else(|| self.evict_from_small(&mut looks))
            .or_else(|| self.evict_from_main(&mut looks));
        self.spared += u64::from(looks);
        victim
    }

    fn spared(&self) -> u64 {
        self.spared
    }

    fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    fn check_invariants(&self) {
        self.links.check_invariants(&self.small);
        self.links.check_invariants(&self.main);
        assert!(
            self.hand.is_none_or(|slot| self.links.queue(slot) == MAIN),
            "the hand is at no block of the main queue"
        );
    }

    fn memory_bytes(&self) -> usize {
        self.links.memory_bytes()
    }
}

#[cfg(test)]
mod tests;
