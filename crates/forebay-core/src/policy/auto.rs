//! auto: S3-FIFO's queues by the rules that small copies of the cache have the fewest misses with.
//!
//! ```text
//!                         ┌► shadow, small queue  1 %, main queue guarded ─┐
//!                         ├► shadow, small queue  1 %                      │
//!  uses of 1 block in R ──┼► shadow, small queue  8 %  (at first)          ├─ misses, the older the less
//!                         ├► shadow, no small queue but a hand             │
//!                         ├► shadow, small queue 30 %                      │  they count
//!                         └► shadow, small queue 80 %                     ─┘      │
//!  all uses ────────────────────────────────► the cache ◄── the best one's rules ─┘
//! ```
//! No division of the queues is good for all. A loop that is longer than the cache wants a small queue that lets go at
//! once, and a main queue that a remembered block cannot enter while its blocks are used (*guarded*); a working set that
//! moves on wants nearly all slots in the small queue. Between them lies what S3-FIFO does. Where most of what is used has room,
//! a block that was used once should stay as long as there is an older one that was not used again: SIEVE's hand does
//! that, on the same queues. All of these have
//! two rules that the paper has not ([`Rules::lets_unused_in`]): the main queue takes what the small one has too many of,
//! so that a change of the division is no loss of blocks, and now and then a block that was used once, so that what
//! nobody uses any more leaves a main queue into which nothing else comes, and a loop of any length gets hold of it.
//!
//! A *shadow* is a cache of at most [`SHADOW_SLOTS`] slots without bytes that sees the blocks whose hash says so, as many
//! as its part of the slots (Waldspurger et al., "Cache modeling and optimization using miniature simulations",
//! ATC '17). All shadows see the same blocks, so that what the sample gets wrong it gets wrong for all of them.
//!
//! Other rules are taken over when their shadow *leads* by enough misses. What a change costs is at most the share of
//! the cache that it concerns; two fifths of that have to be saved first, and with rules in between so many times as
//! much, because those would win before. As far as others are concerned a hand divides the cache as a small queue of 8 %
//! does, so that it is no cheaper way to them; between these two a lead of a sixtieth of the cache is enough. Then all begin to count anew, so that one lead is not used twice. No block
//! moves at a change: the queues follow with the evictions.
//!
//! What it cannot do is to know before: a workload that changes has to be seen first, for about as many uses as the
//! cache has slots, and a loop that nearly fills the cache is missed for two or three rounds where LRU misses it for one.
//!
//! **Invariants:** those of its parts. Deterministic: what it does follows from the uses alone.
//!
//! Memory: 8 bytes a slot; and for the shadows 20 bytes for each of their slots, 238 KiB together at most: 0.9 bytes a
//! slot of a tier of 1 GiB in 4 KiB blocks, 0.01 of one of 64 GiB.

mod shadow;

use super::s3fifo::{Rules, S3Fifo};
use super::{Policy, Victim, block_in};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Index;
use crate::list::Links;
use shadow::{MISS, Shadow};

/// Slots of a shadow at most.
const SHADOW_SLOTS: u32 = 2048;

/// Rules to choose from.
#[derive(Debug)]
struct Plan {
    rules: Rules,
    /// Where it lies between what holds on to blocks and what lets go, in percent of the cache: how far two plans are
    /// apart is how much of the cache a change concerns.
    place: i64,
    /// Which place that is, counted.
    step: i64,
}

const fn plan(small_percent: u32, is_guarded: bool, place: i64, step: i64) -> Plan {
    Plan { rules: Rules { small_percent, is_guarded, lets_unused_in: true }, place, step }
}

/// In the order of their places.
const PLANS: [Plan; 6] = [
    plan(1, true, -9, 0),
    plan(1, false, 1, 1),
    plan(8, false, 8, 2),
    plan(0, false, 8, 2),
    plan(30, false, 30, 3),
    plan(80, false, 80, 4),
];
/// A change to rules with a hand, or back, concerns so many percent of the cache more.
const HAND_PERCENT: i64 = 4;
/// The one that a new cache has.
const FIRST: usize = 2;

/// See the module.
#[derive(Debug)]
pub struct Auto {
    queues: S3Fifo,
    shadows: [Shadow; PLANS.len()],
    /// Which of [`PLANS`] the cache follows.
    plan: usize,
    shadow_slots: u32,
    /// The shadows see blocks whose place among all hashes is below this, of 2³².
    seen_below: u64,
}

impl Auto {
    /// For slots `0..slots`.
    pub fn new(slots: u32) -> Auto {
        let shadow_slots = slots.min(SHADOW_SLOTS);
        Auto {
            queues: S3Fifo::with_rules(slots, PLANS[FIRST].rules),
            shadows: PLANS.map(|plan| Shadow::new(shadow_slots, plan.rules)),
            plan: FIRST,
            shadow_slots,
            seen_below: (u64::from(shadow_slots) << 32).div_ceil(u64::from(slots)),
        }
    }

    /// What [`Policy::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        let shadow = Shadow::memory_bytes_for(slots.min(SHADOW_SLOTS));
        Links::memory_bytes_for(slots) + PLANS.len() as u64 * shadow
    }

    /// Shows a use to the shadows if they see that block. Most they do not: then this is all that a use costs here.
    #[inline]
    fn show(&mut self, block: BlockIndex) {
        if self.is_sampled(block) {
            self.show_sampled(block);
        }
    }

    /// Shows a use to the shadows, and follows the one that leads.
    #[inline(never)]
    fn show_sampled(&mut self, block: BlockIndex) {
        self.shadows.iter_mut().for_each(|shadow| shadow.touch(block));
        let leads = (0..PLANS.len()).map(|plan| (self.lead(plan), plan));
        if let Some((1.., plan)) = leads.max() {
            self.plan = plan;
            self.queues.set_rules(PLANS[plan].rules);
            self.shadows.iter_mut().for_each(Shadow::start_afresh);
        }
    }

    /// Whether the shadows see `block`. Bits other than those by which ghosts choose, or few blocks would share them.
    fn is_sampled(&self, block: BlockIndex) -> bool {
        let position = block.hash().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        position < self.seen_below
    }

    /// Misses that `plan` would have saved beyond those that it has to, in parts of [`MISS`].
    fn lead(&self, plan: usize) -> i64 {
        let saved = self.shadows[self.plan].misses() - self.shadows[plan].misses();
        let (from, to) = (&PLANS[self.plan], &PLANS[plan]);
        let by_place = (to.place - from.place).abs() * (to.step - from.step).abs();
        let changes_hand = from.rules.has_hand() != to.rules.has_hand();
        let percent = by_place + HAND_PERCENT * i64::from(changes_hand);
        saved - MISS * i64::from(self.shadow_slots) * percent * 2 / 500
    }
}

impl Policy for Auto {
    fn on_insert(&mut self, slot: SlotId, block: BlockIndex, remembered: bool) {
        self.queues.on_insert(slot, block, remembered);
        self.show(block);
    }

    fn on_restore(&mut self, slot: SlotId, block: BlockIndex, referenced: bool) {
        self.queues.on_restore(slot, block, referenced);
    }

    fn on_hit(&mut self, slot: SlotId, index: &Index) {
        self.queues.on_hit(slot, index);
        self.show(block_in(index, slot));
    }

    fn on_remove(&mut self, slot: SlotId) {
        self.queues.on_remove(slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        self.queues.on_move(from, to);
    }

    fn evict(&mut self, index: &Index) -> Option<Victim> {
        self.queues.evict(index)
    }

    fn forget(&mut self) {
        self.shadows.iter_mut().for_each(Shadow::clear);
        self.plan = FIRST;
        self.queues.set_rules(PLANS[FIRST].rules);
    }

    fn len(&self) -> u32 {
        self.queues.len()
    }

    fn check_invariants(&self) {
        self.queues.check_invariants();
        self.shadows.iter().for_each(Shadow::check_invariants);
    }

    fn memory_bytes(&self) -> usize {
        let shadows: usize = self.shadows.iter().map(Shadow::memory_bytes).sum();
        self.queues.memory_bytes() + shadows
    }
}

#[cfg(test)]
mod tests;
