//! Why reads miss: what became of a block since it was used last.
//!
//! ```text
//!   never seen: cold ──read──► kept ──lost its place──► evicted ─┐
//!                   └─► bypassed, not admitted, invalidated ─────┴─ read again: a miss with this reason
//! ```
//! A sample of the blocks is followed, at most [`SAMPLES`] at a time. It begins with every block. Each time it is full,
//! every other block leaves, and a miss of one that stays counts for twice as many. So a disk with few blocks has exact
//! figures, and a large one has estimates.
//!
//! **Limits:** it begins anew with the process. A block that flash kept over a restart and then evicts counts as cold. A
//! request that needs a part of a block of which another part is cached counts as partial, whatever became of the rest.

use crate::ids::{BlockIndex, SlotId};
use crate::index::{Density, Index};
use crate::splitmix;
use crate::stats::MissStatistics;

/// Blocks that are followed at most.
const SAMPLES: u32 = 2048;

/// What became of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It came into the cache, and may have been evicted since.
    Kept,
    /// It passed the cache by.
    Bypassed,
    /// Flash did not take it when it left RAM.
    NotAdmitted,
    /// What was cached of it became wrong, or was dropped.
    Invalidated,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Misses {
    index: Index,
    fates: Box<[Fate]>,
    /// One block in two to the power of this many is followed.
    shift: u32,
    counted: MissStatistics,
}

impl Misses {
    pub(crate) fn new() -> Misses {
        Misses {
            index: Index::new(SAMPLES, Density::Compact),
            fates: vec![Fate::Kept; SAMPLES as usize].into(),
            shift: 0,
            counted: MissStatistics::default(),
        }
    }

    /// What was counted so far.
    pub(crate) fn counted(&self) -> MissStatistics {
        self.counted
    }

    /// Primary storage is asked for a block, of which other granules are cached (`is_partial`); what becomes of it now.
    pub(crate) fn note(&mut self, block: BlockIndex, is_partial: bool, fate: Fate) {
        if !self.is_sampled(block) {
            return;
        }
        let found = self.index.find(block);
        let counted = &mut self.counted;
        let reason = match found.map(|slot| self.fates[slot.0 as usize]) {
            _ if is_partial => &mut counted.partial,
            None => &mut counted.cold,
            Some(Fate::Kept) => &mut counted.evicted,
            Some(Fate::Bypassed) => &mut counted.bypassed,
            Some(Fate::NotAdmitted) => &mut counted.not_admitted,
            Some(Fate::Invalidated) => &mut counted.invalidated,
        };
        *reason += 1 << self.shift;
        match found {
            Some(slot) => self.fates[slot.0 as usize] = fate,
            None => self.follow(block, fate),
        }
    }

    /// A block was written, or fetched behind a write, without a read that asked for it; what becomes of it now.
    pub(crate) fn note_written(&mut self, block: BlockIndex, fate: Fate) {
        if !self.is_sampled(block) {
            return;
        }
        match self.index.find(block) {
            Some(slot) => self.fates[slot.0 as usize] = fate,
            None => self.follow(block, fate),
        }
    }

    /// A block that the cache had, or was about to have, is lost.
    pub(crate) fn note_lost(&mut self, block: BlockIndex, fate: Fate) {
        if self.is_sampled(block)
            && let Some(slot) = self.index.find(block)
        {
            self.fates[slot.0 as usize] = fate;
        }
    }

    /// What was cached of the blocks `first..end` is dropped.
    pub(crate) fn note_dropped(&mut self, (first, end): (u32, u32)) {
        for slot in 0..SAMPLES {
            let block = self.index.block_of(SlotId(slot));
            let fate = &mut self.fates[slot as usize];
            if block.is_some_and(|block| (first..end).contains(&block.0)) && *fate == Fate::Kept {
                *fate = Fate::Invalidated;
            }
        }
    }

    /// Blocks are something else from now on.
    pub(crate) fn forget_blocks(&mut self) {
        self.leave(|_| true);
    }

    #[inline]
    fn is_sampled(&self, block: BlockIndex) -> bool {
        is_sampled(block, self.shift)
    }

    fn follow(&mut self, block: BlockIndex, fate: Fate) {
        while self.index.free_len() == 0 {
            self.shift += 1;
            let shift = self.shift;
            self.leave(|block| !is_sampled(block, shift));
        }
        if self.is_sampled(block)
            && let Some(slot) = self.index.take_free()
        {
            self.index.insert(slot, block);
            self.fates[slot.0 as usize] = fate;
        }
    }

    fn leave(&mut self, goes: impl Fn(BlockIndex) -> bool) {
        for slot in (0..SAMPLES).map(SlotId) {
            if self.index.block_of(slot).is_some_and(&goes) {
                self.index.remove(slot);
                self.index.release(slot);
            }
        }
    }
}

#[inline]
fn is_sampled(block: BlockIndex, shift: u32) -> bool {
    // The high bits: others choose by low ones.
    splitmix::hash(block.0.into()).leading_zeros() >= shift
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(misses: &mut Misses, block: u32, fate: Fate) -> MissStatistics {
        let before = misses.counted();
        misses.note(BlockIndex(block), false, fate);
        misses.counted().since(&before)
    }

    #[test]
    fn a_miss_has_the_reason_that_its_block_was_lost_for() {
        let mut misses = Misses::new();
        let none = MissStatistics::default();
        let cold = MissStatistics { cold: 1, ..none };
        assert_eq!(missed(&mut misses, 1, Fate::Kept), cold);
        assert_eq!(missed(&mut misses, 1, Fate::Bypassed), MissStatistics { evicted: 1, ..none });
        assert_eq!(missed(&mut misses, 1, Fate::Kept), MissStatistics { bypassed: 1, ..none });
        misses.note_lost(BlockIndex(1), Fate::NotAdmitted);
        let refused = MissStatistics { not_admitted: 1, ..none };
        assert_eq!(missed(&mut misses, 1, Fate::Kept), refused);
        misses.note_dropped((0, 2));
        let dropped = MissStatistics { invalidated: 1, ..none };
        assert_eq!(missed(&mut misses, 1, Fate::Kept), dropped);
        let before = misses.counted();
        misses.note(BlockIndex(1), true, Fate::Kept);
        assert_eq!(misses.counted().since(&before), MissStatistics { partial: 1, ..none });
        // One that nobody has read is lost without a trace, one that was written is known.
        misses.note_lost(BlockIndex(2), Fate::Invalidated);
        assert_eq!(missed(&mut misses, 2, Fate::Kept), cold);
        misses.note_written(BlockIndex(3), Fate::Kept);
        assert_eq!(missed(&mut misses, 3, Fate::Kept), MissStatistics { evicted: 1, ..none });
        misses.forget_blocks();
        assert_eq!(missed(&mut misses, 1, Fate::Kept), cold);
    }

    #[test]
    fn many_blocks_are_counted_from_a_sample_that_fits() {
        let mut misses = Misses::new();
        const BLOCKS: u32 = 1 << 20;
        for _ in 0..2 {
            (0..BLOCKS).for_each(|block| misses.note(BlockIndex(block), false, Fate::Kept));
        }
        let MissStatistics { cold, evicted, .. } = misses.counted();
        let near = |counted: u64| counted.abs_diff(BLOCKS.into()) < u64::from(BLOCKS) / 12;
        assert!(near(cold) && near(evicted), "{cold} cold, {evicted} evicted of {BLOCKS}");
        assert!(misses.shift > 8 && misses.index.len() <= SAMPLES);
        misses.index.check_invariants();
    }
}
