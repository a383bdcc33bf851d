//! The cache index among the other parts: who writes to primary storage, and what is flushed there.

use super::{Parts, RestoredCache};
use crate::action::Voided;
use crate::cache_index::header::RingHeader;
use crate::cache_index::recover::{Cold, RingReader};
use crate::cache_index::{CacheIndex, IndexWants};
use crate::cx::{Cx, Shared};
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::requests::in_flight::Stage;
use crate::sealed::Page;
use crate::status::IoStatus;
use crate::table::Key;

impl Parts {
    pub(super) fn restore_cache(
        &mut self,
        header: &RingHeader,
        reader: &mut dyn RingReader,
        logged: impl Iterator<Item = ByteRange>,
        shared: &mut Shared,
    ) -> Result<RestoredCache, Cold> {
        let index = self.cache_index.as_mut().expect("the disk has a cache index");
        let before = shared.grid.offset();
        let restored = index.restore(header, reader, logged, &mut self.cache, shared);
        let offset = shared.grid.offset();
        if offset != before {
            // The cache lies where it did, and what observes it has to look there.
            self.requests.ledger.observer.move_grid(offset);
        }
        restored
    }

    /// The pages that [`Action::Ring`](crate::action::Action::Ring) is about.
    pub(super) fn ring_pages(&self) -> &[Page] {
        self.cache_index.as_ref().map_or(&[], CacheIndex::pages)
    }

    /// True when a write to `range` may go to primary storage; it waits otherwise, and asks again.
    pub(super) fn intend(&mut self, key: Key, range: ByteRange, cx: &mut Cx<'_>) -> bool {
        let Some(index) = &mut self.cache_index else { return true };
        if index.intends(key, range) {
            return true;
        }
        self.requests.table[key].enter(Stage::Intent, cx.now);
        cx.counters.writes_waited_for_marks += 1;
        false
    }

    /// Goes on with the index, when there is something to do.
    pub(super) fn advance_index(&mut self, cx: &mut Cx<'_>) {
        let Parts { cache_index, cache, requests, primary, .. } = self;
        let Some(index) = cache_index else { return };
        let logical = u64::from(cx.config.backend.logical_block);
        let writes = requests.writing().map(|range| range.align_out(logical));
        match index.advance_marks(primary.flushes(), writes, cache, cx) {
            IndexWants::Nothing => {}
            IndexWants::Flush => self.primary.flush_unasked(cx),
        }
        if let Some(index) = &mut self.cache_index {
            index.record_if_due(&mut self.cache, cx);
        }
    }

    /// An I/O of the index ended.
    pub(super) fn on_index_io(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        if let Some(index) = &mut self.cache_index {
            index.on_io(status, &mut self.cache, cx);
        }
        self.shrink_flash(cx);
    }

    /// What is on flash is wrong, or will be: the index must not be believed.
    pub(super) fn void_index(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        if let Some(index) = &mut self.cache_index {
            index.void(status, cx);
        }
    }

    /// That the index must not be believed is durably known now, or cannot be.
    pub(super) fn voided(&mut self, voided: Voided, cx: &mut Cx<'_>) {
        let (known, takes_log) = match voided {
            Voided::InPool => (true, false),
            Voided::WithLog => (true, true),
            Voided::Nowhere => (false, false),
        };
        // It is so of the log also where nobody has waited for the answer.
        let has_changed = takes_log && self.on_flash_revoked(cx);
        let Parts { cache_index, cache, .. } = self;
        let was_awaited = cache_index.as_mut().is_some_and(|index| index.voided(known, cache, cx));
        if was_awaited || has_changed {
            self.run(cx);
        }
    }

    /// Voiding took too long.
    pub(super) fn time_out_void(&mut self, cx: &mut Cx<'_>) {
        if let Some(index) = &mut self.cache_index {
            index.time_out(&mut self.cache, cx);
        }
    }

    /// Records everything and ends the index, so that the next run finds all of it. `flushed`: primary storage was
    /// flushed after the last write to it.
    pub(super) fn close_ring(&mut self, flushed: bool, cx: &mut Cx<'_>) {
        let has_flushed = (flushed || self.primary.is_flushed()) && !cx.config.backend.read_only;
        let is_safe = self.is_idle(cx) && has_flushed && !cx.is_unsettled;
        if self.cache_index.as_mut().is_some_and(|index| index.close(is_safe)) {
            self.run(cx);
        }
    }

    /// True when the index knows durably of the first `changes` changes of the cache, or is not believed; it is asked to
    /// otherwise.
    pub(super) fn is_recorded(&mut self, changes: u64) -> bool {
        self.cache_index.as_mut().is_none_or(|index| index.is_recorded(changes))
    }

    /// Forgets slots of flash that are to go, when they are empty and a restart finds nothing in them. An index that is
    /// written no more does not say so: then they stay until the disk is opened again.
    pub(super) fn shrink_flash(&mut self, cx: &mut Cx<'_>) {
        let Some(changes) = self.cache.flash_vacated() else { return };
        if self.cache_index.as_mut().is_none_or(|index| index.says(changes)) {
            self.cache.end_flash_shrinking(cx);
        }
    }

    /// When time alone asks something of the index.
    pub(super) fn index_deadline(&self, since: Nanos) -> Nanos {
        let index = self.cache_index.as_ref();
        index.map_or(Nanos::NEVER, |index| index.deadline(since, self.primary.flushes()))
    }
}
