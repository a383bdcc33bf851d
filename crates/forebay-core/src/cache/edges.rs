//! Whether granules that a write covers in part are read again in time: learned from a sample that is not fetched.
//!
//! What becomes of it is a flow's matter (`engine/flow/edges.rs`). A granule has its number on the disk for a key, counted
//! from byte 0.

use super::Cache;
use super::returns::Returns;
use crate::geometry::{ByteRange, Grid};

/// Of so many edges one is left alone, to see whether it would have been read.
const ONE_IN: u64 = 64;
/// Edges are fetched while so many of a hundred are read again. Each costs primary storage a read that nobody waits for;
/// one that is missing costs the guest a wait.
const RETURNS_PERCENT: u32 = 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Edges {
    /// None without a cache.
    returned: Option<Returns>,
}

impl Edges {
    /// For a cache of so many blocks, if there is one.
    pub(super) fn new(blocks: Option<u32>) -> Edges {
        Edges { returned: blocks.map(|blocks| Returns::new(blocks, ONE_IN)) }
    }

    /// The cache has so many blocks from now on.
    pub(super) fn resize(&mut self, blocks: u32) {
        if let Some(returns) = &mut self.returned {
            returns.resize(blocks);
        }
    }

    /// A block came into the cache, or would have.
    pub(super) fn pass(&mut self) {
        if let Some(returns) = &mut self.returned {
            returns.pass();
        }
    }

    /// A client reads `range`, which was not cached.
    pub(super) fn note_read(&mut self, range: ByteRange, grid: &Grid) {
        let granule = grid.granule_size();
        let Some(returns) = self.returned.as_mut().filter(|returns| returns.is_waiting()) else {
            return;
        };
        for key in range.start / granule..range.end.div_ceil(granule) {
            if returns.is_sampled(key) {
                returns.settle(key, true);
            }
        }
    }
}

impl Cache {
    /// Whether a granule that a write covers in part is worth a fetch. One that is in RAM was brought up to date.
    pub(crate) fn wants_edge(&mut self, edge: ByteRange, grid: &Grid) -> bool {
        let key = edge.start / grid.granule_size();
        let is_in_ram = self.ram.as_ref().is_some_and(|ram| ram.has(grid, edge));
        let Some(returns) = self.edges.returned.as_mut().filter(|_| !is_in_ram) else {
            return false;
        };
        if returns.is_sampled(key) {
            returns.settle(key, false);
            returns.expire(|_| false);
            returns.wait_for(key);
            return false;
        }
        returns.is_at_least(RETURNS_PERCENT) != Some(false)
    }
}
