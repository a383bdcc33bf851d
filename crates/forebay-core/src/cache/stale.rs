//! Blocks of the cache that became wrong, too many to be dropped at once: a large cache has millions.
//!
//! ```text
//!   a long range is wrong ─► stale: not looked up, nothing kept ─┬─ dropped, some at each tick ─► ended ─► the index knows
//!                                                                └─ whoever made it so goes on at once
//! ```
//! A stale block counts as not cached from the moment that it is one: nothing is read from its slots, and nothing is put
//! there. So nobody waits for the sweep, and no bytes depend on how far it is. Only a restart could find what is not
//! dropped yet, and what protects it from that (a mark, a record of the log) goes when the index knows of the drop: a part
//! is a change of the cache with a number, and no change from that number on counts as recorded before the part has ended
//! ([`Stale::recordable`]).
//!
//! A part goes through its blocks, or through all slots, whichever are fewer.
//!
//! **Invariants:** parts end in the order in which they began. One that is under way takes no more blocks, so that it
//! ends whatever comes.
//!
//! **Limits:** one call looks at no more than [`Cache::visits_max`] blocks or slots. There are at most [`PARTS_MAX`]
//! parts, as many as a guest that trims what is free between its files can be ahead of the sweep. A range that finds no
//! place joins the nearest one, with all that is between them: more is dropped than need be, never less.

use std::collections::VecDeque;

use super::Cache;
use super::directory::Directory;
use crate::cx::Shared;
use crate::geometry::{ByteRange, Grid};
use crate::ids::{BlockIndex, Nanos, SlotId};

/// Blocks or slots that one call looks at, at most: some tenths of a millisecond.
const VISITS_MAX: u32 = 512;
/// Ticks that a sweep of the smallest cache takes at least.
const TICKS_MIN: u32 = 4;
/// Between two ticks.
pub(super) const PAUSE: Nanos = Nanos::from_micros(10);
/// Parts that wait to be dropped, with the one under way.
const PARTS_MAX: usize = 1024;

/// The blocks that are stale.
#[derive(Debug)]
pub(crate) struct Stale {
    /// The first one is being dropped.
    parts: VecDeque<Part>,
    /// When more is to be dropped.
    due: Nanos,
    /// The number of the last part that began.
    begun: PartNumber,
    /// Of the last one that ended.
    ended: PartNumber,
    /// Blocks dropped so far, in all parts.
    dropped: u64,
}

/// Parts are numbered in the order in which they begin, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartNumber(u64);

#[derive(Debug)]
struct Part {
    number: PartNumber,
    /// Its number among the changes that the index is to know of.
    change: u64,
    blocks: Blocks,
    /// Slots before this one hold none of them.
    slot: u32,
    is_under_way: bool,
    /// They are dropped because primary storage may have lost what was written to them.
    at_risk: bool,
}

/// Neighbouring blocks, from the first up to the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Blocks(u32, u32);

impl Blocks {
    fn len(self) -> u32 {
        self.1 - self.0
    }

    fn has(self, block: BlockIndex) -> bool {
        (self.0..self.1).contains(&block.0)
    }

    fn overlaps(self, other: Blocks) -> bool {
        self.0 < other.1 && other.0 < self.1
    }

    /// How many blocks are between them; 0 where they overlap, too.
    fn gap(self, other: Blocks) -> u32 {
        other.0.saturating_sub(self.1).max(self.0.saturating_sub(other.1))
    }

    /// Both, with what is between them.
    fn and(self, other: Blocks) -> Blocks {
        Blocks(self.0.min(other.0), self.1.max(other.1))
    }
}

impl Stale {
    pub(super) fn new() -> Stale {
        Stale {
            parts: VecDeque::with_capacity(PARTS_MAX),
            due: Nanos::NEVER,
            begun: PartNumber(0),
            ended: PartNumber(0),
            dropped: 0,
        }
    }

    /// True when no block is stale.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// True when nothing is known of the block any more.
    pub(super) fn has(&self, block: BlockIndex) -> bool {
        self.parts.iter().any(|part| part.blocks.has(block))
    }

    /// True when a block that `range` touches is stale.
    #[inline]
    pub(super) fn touches(&self, range: ByteRange, grid: &Grid) -> bool {
        if self.is_empty() {
            return false;
        }
        let (first, last) = (grid.block_of(range.start), grid.block_of(range.end - 1));
        let blocks = Blocks(first.0, last.0 + 1);
        self.parts.iter().any(|part| part.blocks.overlaps(blocks))
    }

    /// True when the part with this number has ended.
    pub(super) fn has_ended(&self, number: PartNumber) -> bool {
        self.ended >= number
    }

    /// Blocks dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// How many of so many changes of the cache are made: those before the one that is under way.
    pub(super) fn recordable(&self, changes: u64) -> u64 {
        self.parts.front().map_or(changes, |part| changes.min(part.change.saturating_sub(1)))
    }

    /// Slots have other numbers from now on: parts that go through them begin anew.
    pub(super) fn renumber(&mut self) {
        self.parts.iter_mut().for_each(|part| part.slot = 0);
    }

    #[cfg(test)]
    pub(crate) fn due(&self) -> Nanos {
        self.due
    }

    #[cfg(test)]
    pub(crate) fn postpone(&mut self, due: Nanos) {
        self.due = due;
    }

    /// Makes blocks stale; the part that they are in.
    fn add(&mut self, blocks: Blocks, change: u64, at_risk: bool) -> PartNumber {
        let is_full = self.parts.len() == PARTS_MAX;
        let waiting = self.parts.iter_mut().filter(|part| !part.is_under_way);
        let nearest = waiting.min_by_key(|part| part.blocks.gap(blocks));
        if let Some(part) = nearest.filter(|part| is_full || part.blocks.gap(blocks) == 0) {
            part.blocks = part.blocks.and(blocks);
            part.at_risk |= at_risk;
            return part.number;
        }
        self.begun.0 += 1;
        let number = self.begun;
        self.parts.push_back(Part {
            number,
            change,
            blocks,
            slot: 0,
            is_under_way: false,
            at_risk,
        });
        number
    }
}

impl Cache {
    /// Blocks or slots that one call looks at, at most.
    pub(crate) fn visits_max(&self) -> u32 {
        (self.slots_in_all() / TICKS_MIN).clamp(1, VISITS_MAX)
    }

    /// Slots of both tiers, those of RAM first.
    fn slots_in_all(&self) -> u32 {
        self.slots_in_ram() + slots_of(self.flash.as_ref().map(|flash| &flash.tier.dir))
    }

    fn slots_in_ram(&self) -> u32 {
        slots_of(self.ram.as_ref().map(|ram| &ram.dir))
    }

    /// Makes the blocks `first..end` stale; the part that they are in.
    pub(super) fn begin_stale(
        &mut self,
        (first, end): (u32, u32),
        at_risk: bool,
        shared: &mut Shared,
    ) -> PartNumber {
        let blocks = Blocks(first, end);
        shared.misses.note_dropped((first, end));
        let change = self.flash.as_mut().map_or(0, |flash| {
            flash.fills.cancel_all(|block| blocks.has(block));
            flash.tier.begin_change()
        });
        if self.stale.is_empty() {
            self.stale.due = shared.now;
        }
        shared.counters.drops_in_parts += 1;
        self.stale.add(blocks, change, at_risk)
    }

    /// When more is to be dropped.
    pub(crate) fn stale_deadline(&self) -> Nanos {
        if self.stale.is_empty() { Nanos::NEVER } else { self.stale.due }
    }

    /// Drops some, if that is due; changes that the index is to know of now.
    pub(crate) fn drop_more(&mut self, shared: &mut Shared) -> Option<u64> {
        if shared.now < self.stale_deadline() || self.stale.is_empty() {
            return None;
        }
        self.drop_some(shared);
        self.stale.due = shared.now.plus(PAUSE);
        self.note_dropped()
    }

    /// Drops everything that is stale: at the start of a disk, when nobody waits.
    pub(crate) fn drop_all_stale(&mut self, shared: &mut Shared) {
        while !self.stale.is_empty() {
            self.drop_some(shared);
        }
    }

    /// Goes on with the first part, through its blocks or through the slots.
    fn drop_some(&mut self, shared: &mut Shared) {
        let (visits, slots) = (self.visits_max(), self.slots_in_all());
        let Some(mut part) = self.stale.parts.pop_front() else { return };
        part.is_under_way = true;
        let mut dropped = 0;
        if part.blocks.len() <= slots - part.slot {
            let Blocks(first, end) = part.blocks;
            let next = end.min(first.saturating_add(visits));
            for block in first..next {
                dropped += u64::from(self.drop_block(BlockIndex(block)));
            }
            part.blocks = Blocks(next, end);
        } else {
            let next = slots.min(part.slot + visits);
            for slot in part.slot..next {
                let block = self.block_in(slot).filter(|&block| part.blocks.has(block));
                dropped += u64::from(block.is_some_and(|block| self.drop_block(block)));
            }
            part.slot = next;
        }
        self.stale.dropped += dropped;
        if part.at_risk {
            shared.counters.blocks_dropped_at_risk += dropped;
        }
        if part.blocks.len() == 0 || part.slot == slots {
            self.stale.ended = part.number;
        } else {
            self.stale.parts.push_front(part);
        }
    }

    /// The block in one of the slots of both tiers.
    fn block_in(&self, slot: u32) -> Option<BlockIndex> {
        match slot.checked_sub(self.slots_in_ram()) {
            None => self.ram.as_ref()?.dir.block_of(SlotId(slot)),
            Some(slot) => self.flash.as_ref()?.tier.dir.block_of(SlotId(slot)),
        }
    }

    /// Drops a stale block before its part comes to it.
    pub(super) fn drop_stale(&mut self, block: BlockIndex) {
        self.stale.dropped += u64::from(self.drop_block(block));
    }

    /// Takes a block out of both tiers; true when it was in one.
    fn drop_block(&mut self, block: BlockIndex) -> bool {
        let was_in_ram = self.ram.as_mut().is_some_and(|ram| ram.remove(block));
        let was_on_flash = self.flash.as_mut().is_some_and(|flash| flash.tier.remove(block));
        was_in_ram || was_on_flash
    }
}

fn slots_of(dir: Option<&Directory>) -> u32 {
    dir.map_or(0, |dir| dir.slots())
}
