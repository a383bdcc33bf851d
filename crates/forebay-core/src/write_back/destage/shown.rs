//! How far destaging is, as others see it.

use super::WriteBack;
use super::window::Supply;
use crate::config::DestageOrder;
use crate::cx::Shared;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Nanos, Sequence};
use crate::write_back::format::index::PageIndex;

impl WriteBack {
    /// Bytes of the disk in the log that primary storage does not have yet; those that were written twice count twice.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let destager = &self.destager;
        if destager.flushes.redo {
            return (self.log.index.inserted() - destager.reached.tail.pages) * PAGE;
        }
        let from = destager.reached.done_mark.pages;
        let done = destager.batch.part_done(destager.batch.end().pages, from);
        (self.log.index.inserted() - from).saturating_sub(done) * PAGE
    }

    /// Bytes of the log that wait to be destaged, with what describes them.
    pub(crate) fn occupied_bytes(&self) -> u64 {
        let destager = &self.destager;
        let from = destager.reached.done_mark.position.0;
        let pages = self.log.end().0.saturating_sub(from);
        // A batch is much of the log: in one step at its end, writers would feel it.
        let done = destager.batch.part_done(destager.batch.end().position.0, from);
        if destager.reached.done >= self.log.last_sequence() {
            0
        } else {
            pages.saturating_sub(done) * PAGE
        }
    }

    /// True when there is something to flush or to note that can be, of a log that works.
    pub(crate) fn has_to_settle(&self) -> bool {
        self.log.health.failed.is_none()
            && !self.log.health.is_lost
            && self.destager.has_to_settle()
    }

    /// True when the destager writes, unless it has to wait for a moment.
    pub(crate) fn goes_on(&self) -> bool {
        self.destager.goes_on()
    }

    /// True when the destager writes, and the last attempt was none in vain.
    pub(crate) fn makes_progress(&self, now: Nanos) -> bool {
        let destager = &self.destager;
        destager.goes_on() && !destager.is_held(now) && destager.trouble.fault.is_none()
    }

    /// The zero records that primary storage does not have yet, as so many pages to write; each piece that it can zero
    /// itself counts as one.
    pub(crate) fn zero_pages_left(&self, shared: &Shared) -> u64 {
        let unit = |may_unmap| {
            if shared.writes_zeroes(may_unmap) { PAGE } else { super::ZEROES_PIECE_MAX }
        };
        let zeroes = self.log.index.zeroes();
        let destager = &self.destager;
        let is_again = destager.flushes.redo;
        let done = if is_again { destager.reached.flushed } else { destager.reached.done };
        let left = zeroes.filter(|zero| zero.sequence > done);
        left.map(|zero| zero.range.len().div_ceil(unit(zero.may_unmap))).sum()
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.destager.hold.paused
    }

    /// True when primary storage has, durably, everything that the log holds, and no journal has more to say.
    pub(crate) fn is_clean(&self) -> bool {
        self.destager.reached.flushed >= self.log.last_sequence() && self.destager.is_retired()
    }

    /// How long the log's dirty pages will take, as fast as it went lately; 0: nothing was destaged so far.
    pub(crate) fn ns_per_page(&self) -> u64 {
        self.destager.window.destaging().ns_per_page
    }

    /// Time that the last flush of primary storage took.
    pub(crate) fn flush_took(&self) -> Nanos {
        self.destager.flushes.took
    }

    /// True while a run is under way that touches `range`.
    pub(crate) fn is_destaging(&self, range: ByteRange) -> bool {
        let grid = self.log.index.grid();
        self.destager.running.runs.iter().any(|(_, run)| {
            let last = PageIndex(run.page.0 + u64::from(run.pages) - 1);
            ByteRange::new(grid.range_of(run.page).start, grid.range_of(last).end).overlaps(range)
        })
    }

    /// What the destager could write, if its window let it.
    pub(super) fn destage_supply(&self) -> Supply {
        let (destager, log) = (&self.destager, &self.log);
        if destager.batch.is_active() && destager.batch.has_more() {
            Supply::Writes
        } else if !destager.batch.is_active()
            || destager.batch.limit() >= log.reached.written.sequence
        {
            Supply::Nothing
        } else if log.config.order == DestageOrder::Strict {
            Supply::LaterEpochs
        } else {
            // The last writes of one window are under way before the first of the next.
            Supply::Writes
        }
    }
}

impl super::Destager {
    /// Records up to this one are on primary storage, flushed or not.
    pub(in crate::write_back) fn done(&self) -> Sequence {
        self.reached.done
    }

    /// Records up to this one are on primary storage and flushed there.
    pub(in crate::write_back) fn flushed(&self) -> Sequence {
        self.reached.flushed
    }
}
