//! What of the offered bytes goes to flash.
//!
//! ```text
//!  offered ─► not in the log ─► whole granules ─► not there yet ─► admitted? ─┬─ yes ─► a fill
//!                └─ all in it: the destager offers it again                   └─ no ──► remembered
//! ```
//! A block that has a place on flash needs no admission. But its bytes wear flash as those of others do, so they stay
//! away while the budget of writes is spent.

use super::Flash;
use super::admission::Candidate;
use crate::action::{Buffer, Span};
use crate::cache::Undestaged;
use crate::cache::stale::Stale;
use crate::cache::streams::Streams;
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::BlockIndex;
use crate::misses::Fate;

/// Why a block is offered to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It was read, or written.
    Requested,
    /// RAM gave it up, where it was used.
    Used,
    /// It was destaged.
    Destaged,
}

/// Where the bytes of a block are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockBytes {
    /// In a RAM slot.
    Slot(Span),
    /// In a request's buffer.
    Buffer(Buffer),
}

impl BlockBytes {
    /// The memory of `range` of the disk, which begins at `offset` of the block.
    pub(super) fn at(self, range: ByteRange, offset: u64) -> Span {
        match self {
            BlockBytes::Buffer(buffer) => buffer.at(range),
            BlockBytes::Slot(slot) => slot.part(offset, range.len()),
        }
    }
}

/// A block that is offered.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Offered {
    pub block: BlockIndex,
    /// Granules that there are bytes of.
    pub mask: GranuleMask,
    pub why: Offer,
    pub bytes: BlockBytes,
}

impl Flash {
    /// Sends granules of a block to flash that are not in the log, if they are admitted.
    pub(in crate::cache) fn offer(
        &mut self,
        offered: Offered,
        undestaged: Undestaged<'_>,
        stale: &Stale,
        streams: &mut Streams,
        cx: &mut Cx<'_>,
    ) {
        let Offered { block, mask, why, .. } = offered;
        let logged = undestaged(block, mask, &cx.grid);
        if !mask.is_empty() && logged.contains(mask) {
            // The destager offers it again.
            if why == Offer::Used && !self.tier.dir.remembers(block) {
                self.tier.dir.remember(block);
            }
            return;
        }
        self.offer_current(Offered { mask: mask.without(logged), ..offered }, stale, streams, cx);
    }

    /// The same for granules of which the log holds nothing that is not on primary storage.
    pub(in crate::cache) fn offer_current(
        &mut self,
        offered: Offered,
        stale: &Stale,
        streams: &mut Streams,
        cx: &mut Cx<'_>,
    ) {
        let Offered { block, mask, why, bytes } = offered;
        if stale.has(block) {
            return;
        }
        let mask = mask.intersect(whole_granules(block, &cx.grid));
        let present = self.tier.find(block);
        let missing = mask.without(present.map_or(GranuleMask::NONE, |(_, valid)| valid));
        if missing.is_empty() {
            return;
        }
        let is_admitted = match present {
            None => self.admits(block, why, cx),
            Some(_) => self.admission.has_credit(cx.now, &cx.counters),
        };
        if !is_admitted {
            cx.counters.flash_refused += 1;
            if present.is_none_or(|(_, valid)| valid.is_empty()) {
                cx.misses.note_lost(block, Fate::NotAdmitted);
            }
            return;
        }
        self.fill(block, present.map(|p| p.0), missing, bytes, streams, cx);
    }

    /// Whether a block that is not here is let in; it is remembered if not.
    fn admits(&mut self, block: BlockIndex, why: Offer, cx: &Cx<'_>) -> bool {
        let has_history = self.tier.dir.remembers(block);
        let candidate = Candidate {
            has_history: has_history || why == Offer::Used,
            has_free_slot: self.tier.has_free(),
            was_destaged: why == Offer::Destaged,
        };
        let is_admitted = self.admission.admits(cx.now, &cx.counters, candidate);
        if (!is_admitted || why == Offer::Used) && !has_history {
            // A block that was used in RAM comes to flash as one that was there before.
            self.tier.dir.remember(block);
        }
        is_admitted
    }
}

/// Granules of `block` that lie wholly on the disk.
fn whole_granules(block: BlockIndex, grid: &Grid) -> GranuleMask {
    let range = grid.range_of(block);
    let granule = grid.granule_size();
    let first = grid.offset_in_block(range.start).div_ceil(granule);
    let end = (grid.offset_in_block(range.start) + range.len()) / granule;
    GranuleMask::span(first as u32, (end as u32).max(first as u32))
}
