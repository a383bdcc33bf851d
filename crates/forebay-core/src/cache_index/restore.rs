//! Taking over the cache that a former run left.

use super::intent::Turn;
use crate::config::{Config, GridOffset};
use crate::engine::Parts;
use crate::engine::cx::Shared;
use crate::engine::flash::FlashTier;
use crate::geometry::{ByteRange, Grid};
use crate::ids::{BlockIndex, SlotId};
use crate::warm::header::RingHeader;
use crate::warm::page::Claim;
use crate::warm::recover::{Claims, Cold, RecoverRing, RingReader};

/// What came back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoredCache {
    /// Blocks that the ring shows.
    pub found: u64,
    /// Blocks that are in the cache.
    pub kept: u64,
    /// The former run ended in order.
    pub closed: bool,
    /// Pages that were read.
    pub pages_read: u64,
}

impl Parts {
    pub(in crate::engine) fn restore_cache(
        &mut self,
        header: &RingHeader,
        reader: &mut dyn RingReader,
        logged: impl Iterator<Item = ByteRange>,
        shared: &mut Shared,
    ) -> Result<RestoredCache, Cold> {
        let ring = self.cache_index.as_mut().expect("the disk has a ring");
        let flash = self.cache.flash.as_mut().expect("a ring has a flash tier");
        assert_eq!((header.nonce, header.pages), (ring.config.nonce, ring.config.pages));
        let pending = ring.config.generation;
        let ask = RecoverRing { header, geometry: ring.geometry, pending };
        flash.dir.begin_restore();
        let Shared { config, grid, .. } = shared;
        let mut claims = Restoring { config, grid, flash, end: 0, found: 0 };
        let found = ask.recover(reader, &mut claims)?;
        let mut restored = RestoredCache {
            found: claims.found,
            closed: found.closed,
            pages_read: found.pages_read,
            kept: 0,
        };
        flash.dir.end_restore();
        if shared.grid.offset() != 0 {
            // What it was moved for is known.
            self.cache.alignment = None;
        }
        ring.next_page = found.last + 1;
        (ring.durable_page, ring.durable_tail) = (found.last, found.tail);
        ring.walk.restore(found.walk, found.tail);
        for (number, from, to) in found.walked {
            ring.walk.restore_page(number, (from, to));
        }
        ring.walk.end_restore();
        ring.marks.restore(&found.marks);
        ring.turn = Turn::first(ring.marks.any());
        if ring.marks.any() {
            for slot in (0..flash.dir.slots()).map(SlotId) {
                let block = flash.dir.block_of(slot);
                if block.is_some_and(|block| ring.marks.touches(shared.grid.range_of(block))) {
                    flash.dir.remove(slot);
                    flash.retire(slot);
                }
            }
        }
        for range in logged {
            self.invalidate(range, shared);
            self.drop_all_stale(shared);
        }
        let flash = self.cache.flash.as_ref().expect("a ring has a flash tier");
        restored.kept = flash.dir.len().into();
        let ring = self.cache_index.as_mut().expect("the disk has a ring");
        ring.restored = Some(restored);
        Ok(restored)
    }
}

struct Restoring<'a> {
    config: &'a Config,
    grid: &'a mut Grid,
    flash: &'a mut FlashTier,
    /// Blocks of the disk.
    end: u32,
    found: u64,
}

impl Claims for Restoring<'_> {
    fn on_grid(&mut self, offset: u64) -> bool {
        let (size, block) = (self.config.backend.size, self.config.block_size);
        let logical = u64::from(self.config.backend.logical_block);
        let fits = match self.config.grid_offset {
            GridOffset::Fixed(fixed) => fixed == offset,
            GridOffset::Auto => offset < block && offset.is_multiple_of(logical),
        };
        if fits {
            *self.grid = Grid::new(size, block, offset);
            self.end = self.grid.block_of(size - 1).0 + 1;
        }
        fits
    }

    fn expect(&mut self, coming: &[(SlotId, BlockIndex)]) {
        self.flash.expect(coming);
    }

    fn claim(&mut self, claim: &Claim<'_>) -> bool {
        if claim.block.0 >= self.end {
            return false;
        }
        self.found += 1;
        // A block that is here already lies in the slot that was recorded later.
        if self.flash.dir.restore(claim.slot, claim.block, claim.valid, claim.referenced) {
            for (granule, checksum) in claim.checksums() {
                self.flash.store_checksum(claim.slot, granule, checksum);
            }
        }
        true
    }
}
