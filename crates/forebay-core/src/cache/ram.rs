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

use crate::action::Span;
use crate::directory::Directory;
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::SlotId;
use crate::index::Density;
use crate::policy::PolicyKind;

#[derive(Debug)]
pub(super) struct RamTier {
    pub dir: Directory,
    /// Where slot 0 starts in the disk's memory.
    base: u64,
    block_size: u64,
    /// The slots that replies refer to, once per reply.
    pinned: Vec<SlotId>,
    /// Pinned slots that lost their block.
    retired: Vec<SlotId>,
}

impl RamTier {
    pub(super) fn new(slots: u32, grid: &Grid, policy: PolicyKind, base: u64) -> RamTier {
        RamTier {
            dir: Directory::new(slots, grid.granules_per_block(), policy, Density::Fast),
            base,
            block_size: grid.block_size(),
            pinned: Vec::with_capacity(4096),
            retired: Vec::with_capacity(4096),
        }
    }

    pub(super) fn metadata_bytes_for(slots: u32, granules: u32, policy: PolicyKind) -> u64 {
        Directory::memory_bytes_for(slots, granules, policy, Density::Fast)
    }

    pub(super) fn metadata_bytes(&self) -> u64 {
        self.dir.memory_bytes()
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

    pub(super) fn is_pinned(&self, slot: SlotId) -> bool {
        self.pinned.contains(&slot)
    }

    pub(super) fn pin(&mut self, slot: SlotId) {
        self.pinned.push(slot);
    }

    /// How many pins there are: the place of the next one.
    pub(super) fn pinned_len(&self) -> usize {
        self.pinned.len()
    }

    /// Takes back the pins from place `first` on, of a reply that is not given after all.
    pub(super) fn unpin_from(&mut self, first: usize) {
        self.pinned.truncate(first);
    }

    /// The blocks pinned from place `first` on were used.
    pub(super) fn hit_from(&mut self, first: usize) {
        for &slot in &self.pinned[first..] {
            self.dir.hit(slot);
        }
    }

    /// Every reply has left the slots.
    pub(super) fn unpin_all(&mut self) {
        self.pinned.clear();
        for slot in self.retired.drain(..) {
            self.dir.release(slot);
        }
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
            self.dir.release(slot);
        }
    }

    pub(super) fn check_invariants(&self) {
        self.dir.check_invariants();
        assert!(self.retired.iter().all(|slot| self.is_pinned(*slot)));
        assert!(self.retired.iter().all(|slot| self.dir.block_of(*slot).is_none()));
        assert_eq!(self.dir.taken() as usize, self.retired.len(), "a slot was lost");
    }
}
