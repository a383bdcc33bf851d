//! Granules of a cache block that the write log holds. Reads and the cache have to know them.

use crate::cx::Shared;
use crate::engine::Parts;
use crate::geometry::{ByteRange, GranuleMask, Grid};
use crate::ids::BlockIndex;
use crate::write_back::WriteBack;

impl Parts {
    /// Of some granules of `block` those of which the log holds something.
    pub(in crate::engine) fn logged_granules(
        &self,
        block: BlockIndex,
        of: GranuleMask,
        shared: &Shared,
    ) -> GranuleMask {
        granules_in_log(self.write_back.as_ref(), (block, of), &shared.grid, WriteBack::touches)
    }
}

/// Of some granules of a block those of which the log holds something that must not come to flash yet.
pub(in crate::engine) fn undestaged(
    log: Option<&WriteBack>,
) -> impl Fn(BlockIndex, GranuleMask, &Grid) -> GranuleMask {
    move |block, of, grid| granules_in_log(log, (block, of), grid, WriteBack::is_undestaged)
}

fn granules_in_log(
    log: Option<&WriteBack>,
    (block, of): (BlockIndex, GranuleMask),
    grid: &Grid,
    is_in: impl Fn(&WriteBack, ByteRange) -> bool,
) -> GranuleMask {
    let Some(log) = log.filter(|log| !log.is_empty()) else {
        return GranuleMask::NONE;
    };
    let mut mask = GranuleMask::NONE;
    for granule in of.runs().flat_map(|(first, end)| first..end) {
        let range = grid.granule_range(block, granule, granule + 1);
        if is_in(log, range) {
            mask = mask.union(GranuleMask::span(granule, granule + 1));
        }
    }
    mask
}
