//! Taking over the cache that a former run left.
//!
//! ```text
//!   ring of as many slots ─► goes on: pages, walk and marks as they were
//!   ring of more or fewer ─► blocks whose slots there are; the ring of this run begins anew, and the walk says them again
//! ```
//! A ring that begins anew has every region marked, and is written until its walk has come round. A crash before that
//! leaves less in the cache than there was, and nothing that is wrong. An end in order waits for it.

use super::CacheIndex;
use super::header::RingHeader;
use super::page::Claim;
use super::recover::{Claims, Cold, RecoverRing, RingReader};
use super::turn::{Marking, Turn};
use super::{marks::Marks, region_shift, survey};
use crate::cache::Cache;
use crate::config::{Config, GridOffset};
use crate::cx::Shared;
use crate::geometry::{ByteRange, Grid};
use crate::ids::{BlockIndex, SlotId};

/// What came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredCache {
    /// Blocks that the index shows.
    pub found: u64,
    /// Blocks that are in the cache.
    pub kept: u64,
    /// The former run ended in order.
    pub closed: bool,
    /// Pages that were read.
    pub pages_read: u64,
}

impl CacheIndex {
    /// Takes over what the index with this header says is on flash. When that has the nonce of this index, it goes on.
    /// `logged`: what the write log has records of that may not be on primary storage.
    ///
    /// # Errors
    /// The cache must not be believed, and neither must this index nor `cache`.
    pub(crate) fn restore(
        &mut self,
        header: &RingHeader,
        reader: &mut dyn RingReader,
        logged: impl Iterator<Item = ByteRange>,
        cache: &mut Cache,
        shared: &mut Shared,
    ) -> Result<RestoredCache, Cold> {
        let goes_on = (header.nonce, header.pages) == (self.config.nonce, self.config.pages);
        let geometry = match goes_on {
            true => self.geometry,
            false => survey::geometry(header).ok_or(Cold::Header)?,
        };
        let ask =
            RecoverRing { header, geometry, pending: self.config.generation, pages_max: u64::MAX };
        cache.begin_restore();
        let slots = cache.flash_slots().unwrap_or(0);
        let Shared { config, grid, .. } = shared;
        let mut claims = Restoring { config, grid, cache, end: 0, found: 0, slots, goes_on };
        let found = ask.recover(reader, &mut claims)?;
        let blocks_found = claims.found;
        cache.end_restore();
        if shared.grid.offset() != 0 {
            // What it was moved for is known.
            cache.stop_watching_alignment();
        }
        let shift = region_shift(shared.config.block_size, header.disk_size);
        let mut marks = Marks::new(geometry.regions, shift);
        marks.restore(&found.marks);
        if marks.any() {
            cache.drop_from_flash(|block| marks.touches(shared.grid.range_of(block)));
        }
        // Nobody writes then, but what was written may not be durable yet, and its flushes flush nothing: marks stay.
        let is_read_only = shared.config.backend.read_only;
        if goes_on {
            self.place.next_page = found.last + 1;
            (self.place.durable_page, self.place.durable_tail) = (found.last, found.tail);
            self.walk.restore(found.walk, found.tail);
            for (number, from, to) in &found.walked {
                self.walk.restore_page(*number, (*from, *to));
            }
            self.walk.end_restore();
            self.marking = Marking { turn: Turn::first(marks.any() && !is_read_only), marks };
        } else {
            // What was found knows better than its end what may not be durable.
            match marks.any() {
                true if is_read_only => self.marking.marks.mark_all(),
                false if is_read_only => self.marking.marks.clear(),
                true | false => {}
            }
            if cache.blocks_on_flash() > 0 {
                self.walk.unsaid = self.geometry.positions();
            }
        }
        for range in logged {
            cache.invalidate(range, shared);
            cache.drop_all_stale(shared);
        }
        let restored = RestoredCache {
            found: blocks_found,
            kept: cache.blocks_on_flash(),
            closed: found.closed,
            pages_read: found.pages_read,
        };
        self.restored = Some(restored);
        Ok(restored)
    }
}

struct Restoring<'a> {
    config: &'a Config,
    grid: &'a mut Grid,
    cache: &'a mut Cache,
    /// Blocks of the disk.
    end: u32,
    found: u64,
    /// Slots that there are now.
    slots: u32,
    /// So it says nothing of others: before they went it said that they are empty.
    goes_on: bool,
}

impl Claims for Restoring<'_> {
    fn on_grid(&mut self, offset: u64) -> bool {
        let (size, block) = (self.config.backend.size, self.config.block_size);
        let logical = u64::from(self.config.backend.logical_block);
        // Pages of a log lie on the grid: it does not move, whoever chose it.
        let moves = self.config.grid_offset == GridOffset::Auto && self.config.write_log.is_none();
        let fits = match moves {
            true => offset < block && offset.is_multiple_of(logical),
            false => offset == self.grid.offset(),
        };
        if fits {
            *self.grid = Grid::new(size, block, offset);
            self.end = self.grid.block_of(size - 1).0 + 1;
        }
        fits
    }

    fn prefetch(&mut self, coming: &[(SlotId, BlockIndex)]) {
        if coming.iter().all(|(slot, _)| slot.0 < self.slots) {
            self.cache.prefetch(coming);
        }
    }

    fn claim(&mut self, claim: &Claim<'_>) -> bool {
        if claim.block.0 >= self.end {
            return false;
        }
        self.found += 1;
        if claim.slot.0 >= self.slots {
            // An older claim of the block may count instead: what it says is gone by R6 and R7, or right.
            return !self.goes_on;
        }
        let what = (claim.block, claim.valid, claim.referenced);
        self.cache.restore(claim.slot, what, claim.checksums());
        true
    }
}
