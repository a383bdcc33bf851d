//! What destaging needs of the cache, and of what keeps it over a restart.

use crate::action::{Buffer, Span};
use crate::cache::Cache;
use crate::cache_index::CacheIndex;
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::BlockIndex;

/// See the module. A flow makes one for a call.
pub(crate) struct Beside<'a> {
    pub cache: &'a mut Cache,
    pub index: &'a mut Option<CacheIndex>,
    /// The mode keeps written data in the cache.
    pub keeps_writes: bool,
}

impl Beside<'_> {
    /// The memory of `range`, when RAM has all of it.
    pub(super) fn in_ram(&self, range: ByteRange, cx: &Cx<'_>) -> Option<Span> {
        self.cache.memory_of(&cx.grid.piece(range.start, range.end))
    }

    /// True when what was destaged may be worth a place on flash.
    pub(super) fn keeps_destaged(&self) -> bool {
        self.keeps_writes && self.cache.has_flash()
    }

    /// Offers granules that primary storage has, and whose newest bytes are in `buffer`, to flash.
    pub(super) fn keep(
        &mut self,
        block: BlockIndex,
        newest: GranuleMask,
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) {
        if !newest.is_empty() && !self.cache.is_in_ram(block) {
            self.cache.offer_destaged(block, newest, buffer, cx);
        }
    }

    /// True while the index on flash might be believed, although nothing is recorded in it any more.
    pub(super) fn is_voiding(&self) -> bool {
        self.index.as_ref().is_some_and(CacheIndex::is_voiding)
    }

    /// True when the index knows durably of so many changes, or is not believed; it is asked to record them otherwise.
    pub(super) fn is_recorded(&mut self, changes: u64) -> bool {
        self.index.as_mut().is_none_or(|index| index.is_recorded(changes))
    }
}
