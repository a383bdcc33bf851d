//! The RAM tier: slots in the disk's memory.
//!
//! A slot that a reply still refers to is *pinned* and immutable: a write to its block goes to
//! another slot, and when its block leaves it is given back only after the pin is gone
//! ([`RamTier::unpin_all`], once per batch of replies). Adding granules to a pinned slot is allowed:
//! nobody reads bytes that were not valid. For that to be true a pinned slot loses no single granule:
//! its whole block leaves.
//!
//! Pins are a list, not a count per slot: a hit then touches no memory of its own for them, and who
//! asks (a write, an eviction) scans one batch of replies.
//!
//! The memory of slots may come after the disk begins to serve. Slots without memory are *withheld*:
//! taken, and free when their memory is there ([`RamTier::have_memory`]).
//!
//! While there are to be fewer slots (`resize.rs`), those that are to go are withheld as soon as nothing is in them.

use super::directory::Directory;
use crate::action::{Action, Buffer, Span};
use crate::config::Config;
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask, Grid, Piece};
use crate::ids::{BlockIndex, SlotId};
use crate::index::Density;
use crate::policy::PolicyKind;

/// Slots that one reply refers to; a longer hit is copied together.
const SLICES_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct RamTier {
    pub(super) dir: Directory,
    /// Where slot 0 starts in the disk's memory.
    base: u64,
    block_size: u64,
    /// The slots that replies refer to, once per reply.
    pinned: Vec<SlotId>,
    /// Pinned slots that lost their block.
    retired: Vec<SlotId>,
    /// Slots before this one have memory; the others are withheld.
    ready: u32,
    /// Slots from this one on are to go: no other block comes there.
    end: u32,
}

impl RamTier {
    pub(super) fn new(slots: u32, grid: &Grid, config: &Config, base: u64) -> RamTier {
        let dir = Directory::new(slots, grid.granules_per_block(), config.policy, Density::Fast);
        RamTier {
            dir: dir.salted(config.index_salt),
            base,
            block_size: grid.block_size(),
            pinned: Vec::with_capacity(4096),
            retired: Vec::with_capacity(4096),
            ready: slots,
            end: slots,
        }
    }

    pub(super) fn metadata_bytes_for(slots: u32, granules: u32, policy: PolicyKind) -> u64 {
        Directory::memory_bytes_for(slots, granules, policy, Density::Fast)
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        self.dir.memory_bytes()
    }

    /// Withholds every slot of a tier without blocks.
    pub(super) fn withhold(&mut self) {
        self.dir.take_all();
        self.ready = 0;
    }

    /// The disk's memory is there up to `end`: slots before it are withheld no more.
    pub(super) fn have_memory(&mut self, end: u64) {
        let there = end.saturating_sub(self.base) / self.block_size;
        let there = there.min(self.dir.slots().into()) as u32;
        // Backwards, so that slots are given out in ascending order.
        if there > self.ready {
            for slot in (self.ready..there).rev() {
                self.give_back(SlotId(slot));
            }
            self.ready = there;
            self.dir.have_room();
        }
    }

    /// Slots that have memory.
    pub(super) fn slots_ready(&self) -> u32 {
        self.ready
    }

    /// Goes on with `slots` slots. More are there at once, without memory for those that never had any. Where there are to
    /// be fewer, the others wait to be emptied.
    pub(super) fn resize(&mut self, slots: u32) {
        let before = std::mem::replace(&mut self.end, slots);
        if slots < before {
            return self.dir.take_free_from(SlotId(slots));
        }
        for slot in (before..slots.min(self.ready)).rev().map(SlotId) {
            if self.dir.block_of(slot).is_none() && !self.retired.contains(&slot) {
                self.dir.release(slot);
            }
        }
        self.dir.have_room();
        if slots > self.dir.slots() {
            self.dir.resize(slots);
        }
    }

    /// True while slots are to go.
    pub(super) fn is_shrinking(&self) -> bool {
        self.end < self.dir.slots()
    }

    /// The slots that are to go and may hold a block.
    pub(super) fn leaving(&self) -> std::ops::Range<u32> {
        self.end.min(self.ready)..self.ready
    }

    /// Forgets the slots that are to go and hold no block; false when a reply still refers to one.
    pub(super) fn shrink(&mut self) -> bool {
        if self.retired.iter().any(|slot| slot.0 >= self.end) {
            return false;
        }
        self.dir.resize(self.end);
        self.ready = self.ready.min(self.end);
        true
    }

    /// The slots without memory, of those that are to stay, as a part of the disk's memory.
    pub(super) fn missing(&self) -> Option<ByteRange> {
        let at = |slot: u32| self.base + u64::from(slot) * self.block_size;
        (self.ready < self.end).then(|| ByteRange::new(at(self.ready), at(self.end)))
    }

    /// Where the slots are in the disk's memory.
    pub(super) fn place(&self) -> ByteRange {
        ByteRange::at(self.base, u64::from(self.dir.slots()) * self.block_size)
    }

    /// `len` bytes of a slot from `offset` on.
    pub(super) fn memory(&self, slot: SlotId, offset: u64, len: u64) -> Span {
        assert!(offset + len <= self.block_size);
        Span { offset: self.base + u64::from(slot.0) * self.block_size + offset, len: len as u32 }
    }

    /// True when all of `range` is here.
    pub(super) fn has(&self, grid: &Grid, range: ByteRange) -> bool {
        grid.blocks(range).all(|block| {
            let found = self.dir.lookup(block);
            found.is_some_and(|(_, valid)| valid.contains(grid.touched(block, range)))
        })
    }

    /// The slot that holds `block`.
    pub(super) fn find(&self, block: BlockIndex) -> Option<SlotId> {
        self.dir.find(block)
    }

    pub(super) fn is_pinned(&self, slot: SlotId) -> bool {
        self.pinned.contains(&slot)
    }

    /// Appends the slices that hold all of `range` to those of the call, and pins their slots; the place of the
    /// first one, and how many there are. `None`: something is not here, or they are too many.
    #[inline]
    pub(super) fn hit(&mut self, range: ByteRange, cx: &mut Cx<'_>) -> Option<(usize, usize)> {
        let piece = cx.grid.piece(range.start, range.end);
        if piece.len < range.len() {
            return self.hit_in_blocks(range, cx);
        }
        let first = cx.actions.slices.len();
        let slot = self.find_all_of(&piece)?;
        self.pinned.push(slot);
        cx.actions.slices.push(self.memory(slot, piece.offset, piece.len));
        self.dir.hit(slot);
        Some((first, 1))
    }

    /// The same for a range of several blocks, of which any may not be here.
    fn hit_in_blocks(&mut self, range: ByteRange, cx: &mut Cx<'_>) -> Option<(usize, usize)> {
        let first = cx.actions.slices.len();
        let pinned = self.pinned.len();
        let mut position = range.start;
        while position < range.end {
            let piece = cx.grid.piece(position, range.end);
            let hit = self.find_all_of(&piece);
            let Some(slot) = hit.filter(|_| cx.actions.slices.len() - first < SLICES_MAX) else {
                // Not all of it: take back what was said of the blocks before.
                cx.actions.slices.truncate(first);
                self.pinned.truncate(pinned);
                return None;
            };
            self.pinned.push(slot);
            cx.actions.slices.push(self.memory(slot, piece.offset, piece.len));
            position += piece.len;
        }
        for &slot in &self.pinned[pinned..] {
            self.dir.hit(slot);
        }
        Some((first, cx.actions.slices.len() - first))
    }

    /// The slot that has all of a piece.
    #[inline]
    fn find_all_of(&self, piece: &Piece) -> Option<SlotId> {
        let (slot, valid) = self.dir.lookup(piece.block)?;
        valid.contains(piece.touched).then_some(slot)
    }

    /// Copies granules `mask` of `block` from a request's buffer to a slot.
    pub(super) fn copy_in(
        &self,
        block: BlockIndex,
        slot: SlotId,
        mask: GranuleMask,
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) {
        for (first, end) in mask.runs() {
            let range = cx.grid.granule_range(block, first, end);
            let to = self.memory(slot, cx.grid.offset_in_block(range.start), range.len());
            cx.push(Action::Copy { from: buffer.at(range), to });
        }
    }

    /// All of a slot, laid out like its block.
    pub(super) fn whole(&self, slot: SlotId) -> Span {
        self.memory(slot, 0, self.block_size)
    }

    /// Every reply has left the slots.
    pub(super) fn unpin_all(&mut self) {
        self.pinned.clear();
        for at in 0..self.retired.len() {
            self.give_back(self.retired[at]);
        }
        self.retired.clear();
    }

    /// True for a slot that another block may come to.
    pub(super) fn may_use(&self, slot: SlotId) -> bool {
        slot.0 < self.end
    }

    /// Gives a taken slot back that holds no block, and that no reply refers to.
    pub(super) fn give_back(&mut self, slot: SlotId) {
        if self.may_use(slot) {
            self.dir.release(slot);
        }
    }

    /// Moves the block in `from` to `to`, with its granules `keep`.
    pub(super) fn relocate(
        &mut self,
        block: BlockIndex,
        (from, to): (SlotId, SlotId),
        keep: GranuleMask,
        cx: &mut Cx<'_>,
    ) {
        for (first, end) in keep.runs() {
            let range = cx.grid.granule_range(block, first, end);
            let offset = cx.grid.offset_in_block(range.start);
            let (from, to) =
                (self.memory(from, offset, range.len()), self.memory(to, offset, range.len()));
            cx.push(Action::Copy { from, to });
        }
        self.dir.replace(from, to);
        self.retire(from);
    }

    /// Granules `mask` of the occupied `slot` are old from now on.
    pub(super) fn invalidate(&mut self, slot: SlotId, mask: GranuleMask) {
        let loses = !self.dir.valid(slot).intersect(mask).is_empty();
        if loses && self.is_pinned(slot) {
            self.dir.remove(slot);
            self.retire(slot);
        } else if self.dir.invalidate(slot, mask) {
            self.retire(slot);
        }
    }

    /// Gives a slot that lost its block back, now or when it is not pinned any more.
    pub(super) fn retire(&mut self, slot: SlotId) {
        if self.is_pinned(slot) {
            self.retired.push(slot);
        } else {
            self.give_back(slot);
        }
    }

    /// Takes `block` out; true when it was here.
    pub(super) fn remove(&mut self, block: BlockIndex) -> bool {
        let Some(slot) = self.dir.find(block) else { return false };
        self.dir.remove(slot);
        self.retire(slot);
        true
    }

    /// Drops every block, and what is remembered of others.
    pub(super) fn clear(&mut self) {
        while let Some(victim) = self.dir.evict() {
            self.retire(victim.slot);
        }
        self.dir.clear();
    }

    pub(super) fn check_invariants(&self) {
        self.dir.check_invariants();
        assert!(self.retired.iter().all(|slot| self.is_pinned(*slot)));
        assert!(self.retired.iter().all(|slot| self.dir.block_of(*slot).is_none()));
        assert!(self.end <= self.dir.slots() && self.ready <= self.dir.slots());
        let is_withheld =
            |slot: &SlotId| self.dir.block_of(*slot).is_none() && !self.retired.contains(slot);
        let leaving = self.leaving().map(SlotId).filter(is_withheld).count();
        let withheld = (self.dir.slots() - self.ready) as usize + leaving;
        let taken = self.dir.taken() as usize;
        assert_eq!(taken, self.retired.len() + withheld, "a slot was lost");
    }
}
