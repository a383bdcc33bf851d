//! Dropping what became wrong, or may have, from both tiers.

use super::Cache;
use crate::cx::Shared;
use crate::geometry::ByteRange;
use crate::ids::BlockIndex;
use crate::misses::Fate;

impl Cache {
    /// Drops every granule that `range` touches from both tiers; what is too long for that is stale at once and dropped
    /// later (`stale.rs`).
    pub(crate) fn invalidate(&mut self, range: ByteRange, shared: &mut Shared) {
        let mut visits = self.visits_max();
        self.invalidate_within(range, &mut visits, false, shared);
    }

    /// The same with so many blocks left to look at. `at_risk`: because primary storage may have lost them.
    pub(crate) fn invalidate_within(
        &mut self,
        range: ByteRange,
        visits: &mut u32,
        at_risk: bool,
        shared: &mut Shared,
    ) {
        if range.is_empty() {
            return;
        }
        let mut first = shared.grid.block_of(range.start).0;
        let mut end = shared.grid.block_of(range.end - 1).0 + 1;
        let dropped = if end - first <= self.visits_max().min(*visits) {
            *visits -= end - first;
            (first..end).map(|block| self.invalidate_in(BlockIndex(block), range, shared)).sum()
        } else {
            let mut dropped = 0;
            // What of a block is not in the range stays.
            if !range.contains(shared.grid.range_of(BlockIndex(first))) {
                dropped += self.invalidate_in(BlockIndex(first), range, shared);
                first += 1;
            }
            if first < end && !range.contains(shared.grid.range_of(BlockIndex(end - 1))) {
                dropped += self.invalidate_in(BlockIndex(end - 1), range, shared);
                end -= 1;
            }
            if first < end {
                self.begin_stale((first, end), at_risk, shared);
            }
            dropped
        };
        if at_risk {
            shared.counters.blocks_dropped_at_risk += dropped;
        }
    }

    /// Drops the granules of `block` that `range` touches from both tiers; 1 when it had some.
    fn invalidate_in(&mut self, block: BlockIndex, range: ByteRange, shared: &mut Shared) -> u64 {
        let mask = shared.grid.touched(block, range);
        if mask.is_empty() {
            return 0;
        }
        let mut had = self.flash.as_mut().is_some_and(|flash| flash.invalidate(block, mask));
        if let Some(ram) = &mut self.ram
            && let Some(slot) = ram.find(block)
        {
            had |= !ram.dir.valid(slot).intersect(mask).is_empty();
            ram.invalidate(slot, mask);
        }
        if had {
            shared.misses.note_lost(block, Fate::Invalidated);
        }
        u64::from(had)
    }
}
