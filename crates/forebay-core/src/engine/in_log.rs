//! What the write log holds of a cache block, as the cache and reads have to know it.

use super::Parts;
use super::cx::Shared;
use super::destage::Destager;
use super::log::WriteLog;
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::{BlockIndex, Sequence};
use crate::log::index::LogIndex;

impl Parts {
    /// Granules of `block` of which the log holds something.
    pub(super) fn logged_granules(&self, block: BlockIndex, shared: &Shared) -> GranuleMask {
        let is_in = |index: &LogIndex, range| index.touches(range);
        granules_in_log(self.log.as_ref(), block, &shared.grid, is_in)
    }
}

/// Granules of a block of which the log holds something that primary storage has not, or of a request that is not
/// durable to its end. A loss of what is not durable would leave it on flash alone, and the rest may be overwritten
/// before it is destaged.
pub(super) fn undestaged(
    log: Option<&WriteLog>,
    destager: Option<&Destager>,
) -> impl Fn(BlockIndex, &Grid) -> GranuleMask {
    move |block, grid| {
        let done = destager.map_or(Sequence(0), |destager| destager.done());
        let done = log.map_or(done, |log| done.min(log.durable_whole()));
        granules_in_log(log, block, grid, |index, range| index.touches_after(range, done))
    }
}

fn granules_in_log(
    log: Option<&WriteLog>,
    block: BlockIndex,
    grid: &Grid,
    is_in: impl Fn(&LogIndex, ByteRange) -> bool,
) -> GranuleMask {
    let Some(log) = log.filter(|log| !log.index.is_empty()) else {
        return GranuleMask::NONE;
    };
    let mut mask = GranuleMask::NONE;
    for granule in 0..grid.granules_per_block() {
        let range = grid.granule_range(block, granule, granule + 1);
        if is_in(&log.index, range) {
            mask = mask.union(GranuleMask::span(granule, granule + 1));
        }
    }
    mask
}
