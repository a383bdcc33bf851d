//! auto: S3-FIFO's queues by the rules that small copies of the cache have the fewest misses with.
//!
//! ```text
//!                         ┌► shadow, small queue  1 %, main queue guarded ─┐
//!                         ├► shadow, the same, but quick                   │
//!                         ├► shadow, small queue  1 %                      │
//!  uses of 1 block in R ──┼► shadow, small queue  8 %  (at first)          ├─ misses, the older the less
//!                         ├► shadow, no small queue but a hand             │
//!                         ├► shadow, small queue 30 %                      │  they count
//!                         └► shadow, small queue 80 %                     ─┘      │
//!  all uses ────────────────────────────────► the cache ◄── the best one's rules ─┘
//! ```
//! No division of the queues is good for all. A loop that is longer than the cache wants a small
//! queue that lets go at once. It also wants a *guarded* main queue: a remembered block cannot
//! enter while its blocks are used. Where one loop follows another, these rules have to be
//! *quick*. A block that was used often then has no longer notice than one that was used once.
//! Blocks are remembered for longer, as LIRS remembers them. A working set that moves on wants
//! nearly all slots in the small queue. Between them lies what S3-FIFO does. Where most of the
//! used blocks have room, a block that was used once should stay as long as an older one was not
//! used again. SIEVE's hand does that, on the same queues.
//!
//! All of these have two rules that the paper has not ([`Rules::lets_unused_in`]):
//! - The main queue takes the blocks that the small one has too many of. So a change of the
//!   division loses no blocks.
//! - Now and then the main queue takes a block that was used once. So unused blocks leave a main
//!   queue into which nothing else comes, and a loop of any length gets hold of it. That is rare
//!   (one block of 128 that leave): each such block takes the place of one that a long loop would
//!   have come back to.
//!
//! A *shadow* is a cache of at most [`SHADOW_SLOTS`] slots without bytes. The hash of a block
//! decides whether the shadow sees it. Its share of the blocks is its share of the slots
//! (Waldspurger et al., "Cache modeling and optimization using miniature simulations", ATC '17).
//! All shadows see the same blocks, so that what the sample gets wrong it gets wrong for all of
//! them.
//!
//! Other rules are taken over when their shadow *leads* by enough misses. A change costs at most
//! the share of the cache that it concerns. A fifth of that has to be saved first. With rules in
//! between it is so many times as much, because those would win before. To all other rules a hand
//! counts as a small queue of 8 %, and quick rules count as slow ones. So they are no cheaper way
//! to them. Between the two a lead of about a hundredth of the cache, or of a fiftieth, is
//! enough. Then all begin to count anew, so that one lead is not used twice. No block moves at a
//! change: the queues follow with the evictions.
//!
//! Until they have followed, the cache misses what the shadow of its new rules, which has always had them, does not. A workload
//! without a steady form brings one small lead after the other, and the changes would cost more than all of them save. So each
//! change makes those after it dearer by a fifth, the longer ago the less.
//!
//! The contents of a cache also depend on its past. Rules that do well in their shadow, which has
//! always had them, may make nothing of the queues that they took over. So the cache counts its
//! own misses of the sampled blocks beside. The excess over a whole cache (a change may cost that
//! much) counts as if the shadow of its rules had missed it.
//!
//! It cannot know a change before. It has to see the new workload first, for about as many uses
//! as the cache has slots. A loop that nearly fills the cache is missed for two or three rounds,
//! where LRU misses it for one.
//!
//! **Invariants:** those of its parts. Deterministic: what it does follows from the uses alone.
//!
//! Memory: 8 bytes a slot. The shadows take 21.6 bytes for each of their slots, 303 KiB together
//! at most. That is 1.2 bytes a slot of a tier of 1 GiB in 4 KiB blocks, and 0.02 of one of 64
//! GiB.

mod shadow;

use super::s3fifo::{Rules, S3Fifo};
use super::{Policy, Victim, block_in};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Index;
use crate::list::Links;
use shadow::{Fading, MISS, Shadow};

/// Slots of a shadow at most.
const SHADOW_SLOTS: u32 = 2048;

/// Rules to choose from.
#[derive(Debug)]
struct Plan {
    rules: Rules,
    /// Its place between rules that hold on to blocks and rules that let go, in percent of the
    /// cache. The distance of two plans is the share of the cache that a change concerns.
    place: i64,
    /// Which place that is, counted.
    step: i64,
}

const fn plan(small_percent: u32, is_guarded: bool, place: i64, step: i64) -> Plan {
    let rules = Rules { small_percent, is_guarded, lets_unused_in: true, is_quick: false };
    Plan { rules, place, step }
}

const fn quick(plan: Plan) -> Plan {
    Plan { rules: Rules { is_quick: true, ..plan.rules }, ..plan }
}

/// In the order of their places.
const PLANS: [Plan; 7] = [
    plan(1, true, -9, 0),
    quick(plan(1, true, -9, 0)),
    plan(1, false, 1, 1),
    plan(8, false, 8, 2),
    plan(0, false, 8, 2),
    plan(30, false, 30, 3),
    plan(80, false, 80, 4),
];
/// A change to rules with a hand, or back, concerns so many percent of the cache more.
const HAND_PERCENT: i64 = 4;
/// So does a change to quick rules, or back.
const QUICK_PERCENT: i64 = 10;
/// A change makes the next one dearer by one part of so many.
const DEARER_PART: i64 = 5;
/// The one that a new cache has.
const FIRST: usize = 3;

/// See the module.
#[derive(Debug)]
pub struct Auto {
    queues: S3Fifo,
    shadows: [Shadow; PLANS.len()],
    /// The cache's own misses of the blocks that the shadows see, since the last change.
    misses: Fading,
    /// Its changes.
    changes: Fading,
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
            shadows: shadows(shadow_slots),
            misses: Fading::default(),
            changes: Fading::default(),
            plan: FIRST,
            shadow_slots,
            seen_below: seen_below(slots),
        }
    }

    /// What [`Policy::memory_bytes`] will be.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        let shadow = Shadow::memory_bytes_for(slots.min(SHADOW_SLOTS));
        Links::memory_bytes_for(slots) + PLANS.len() as u64 * shadow
    }

    /// Shows a use to the shadows if they see that block. Most they do not: then this is all that a use costs here.
    #[inline]
    fn show(&mut self, block: BlockIndex, is_miss: bool) {
        if self.is_sampled(block) {
            self.show_sampled(block, is_miss);
        }
    }

    /// Shows a use to the shadows, and follows the one that leads.
    #[inline(never)]
    fn show_sampled(&mut self, block: BlockIndex, is_miss: bool) {
        self.misses.count(self.shadow_slots, is_miss);
        self.changes.fade(self.shadow_slots);
        let bucket = self.shadows[0].bucket_of(block);
        let mut is_behind = is_miss;
        for (plan, shadow) in self.shadows.iter_mut().enumerate() {
            is_behind |= shadow.touch(bucket, block) & (plan == self.plan);
        }
        // Only by what these miss do others gain a lead.
        if !is_behind {
            return;
        }
        let leads = (0..PLANS.len()).map(|plan| (self.lead(plan), plan));
        if let Some((1.., plan)) = leads.max() {
            self.plan = plan;
            self.queues.set_rules(PLANS[plan].rules);
            self.shadows.iter_mut().for_each(Shadow::start_afresh);
            self.misses.clear();
            self.changes.add();
        }
    }

    /// Whether the shadows see `block`. Bits other than those by which ghosts choose, or few blocks would share them.
    fn is_sampled(&self, block: BlockIndex) -> bool {
        let position = block.hash().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        position < self.seen_below
    }

    /// Misses that `plan` would have saved beyond those that it has to, in parts of [`MISS`].
    fn lead(&self, plan: usize) -> i64 {
        if plan == self.plan {
            return 0;
        }
        let cache = MISS * i64::from(self.shadow_slots);
        let missed = self.shadows[self.plan].misses().max(self.misses.sum() - cache);
        let saved = missed - self.shadows[plan].misses();
        let (from, to) = (&PLANS[self.plan], &PLANS[plan]);
        let by_place = (to.place - from.place).abs() * (to.step - from.step).abs();
        let changes_hand = from.rules.has_hand() != to.rules.has_hand();
        let changes_pace = from.rules.is_quick != to.rules.is_quick;
        let percent = by_place
            + HAND_PERCENT * i64::from(changes_hand)
            + QUICK_PERCENT * i64::from(changes_pace);
        let price = cache * percent / 500;
        saved - price - price / DEARER_PART * self.changes.sum() / MISS
    }
}

/// An empty shadow for each of [`PLANS`].
fn shadows(slots: u32) -> [Shadow; PLANS.len()] {
    PLANS.map(|plan| Shadow::new(slots, plan.rules))
}

/// The shadows of a cache of `slots` slots see blocks whose place is below this: their share of the blocks is that of
/// the slots.
fn seen_below(slots: u32) -> u64 {
    (u64::from(slots.min(SHADOW_SLOTS)) << 32).div_ceil(u64::from(slots))
}

impl Policy for Auto {
    fn on_insert(&mut self, slot: SlotId, block: BlockIndex, remembered: bool) {
        self.queues.on_insert(slot, block, remembered);
        self.show(block, true);
    }

    fn on_restore(&mut self, slot: SlotId, block: BlockIndex, referenced: bool) {
        self.queues.on_restore(slot, block, referenced);
    }

    fn looks_far_back(&self) -> bool {
        self.queues.looks_far_back()
    }

    fn on_hit(&mut self, slot: SlotId, index: &Index) {
        self.queues.on_hit(slot, index);
        self.show(block_in(index, slot), false);
    }

    fn on_remove(&mut self, slot: SlotId) {
        self.queues.on_remove(slot);
    }

    fn on_move(&mut self, from: SlotId, to: SlotId) {
        self.queues.on_move(from, to);
    }

    fn resize(&mut self, slots: u32) {
        self.queues.resize(slots);
        let shadow_slots = slots.min(SHADOW_SLOTS);
        if shadow_slots != self.shadow_slots {
            self.shadows = shadows(shadow_slots);
            self.misses.clear();
            self.shadow_slots = shadow_slots;
        }
        self.seen_below = seen_below(slots);
    }

    fn evict(&mut self, index: &Index) -> Option<Victim> {
        self.queues.evict(index)
    }

    fn spared(&self) -> u64 {
        self.queues.spared()
    }

    fn have_room(&mut self) {
        self.queues.have_room();
    }

    fn forget(&mut self) {
        self.shadows.iter_mut().for_each(Shadow::clear);
        self.misses.clear();
        self.changes.clear();
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
