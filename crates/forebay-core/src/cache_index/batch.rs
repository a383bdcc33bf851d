//! Batches: pages are filled, what they claim is flushed, and they are written.
//!
//! ```text
//!   fill, eviction, invalidation ─► changes ─┐
//!   write beside the log ─► mark, wait ──────┼─► batch of pages ─► flash flushed ─► pages durable ─┬─► slots free
//!   `flushed` to be noted, wait ─────────────┘                                                     └─► who waits goes on
//! ```
//! One batch is under way at a time; what comes meanwhile shares the next one. A batch begins when somebody waits
//! for it, when slots run short or changes are many, and a while after the first change. A ring that began with a cache
//! that held something is written batch after batch, until the walk has come round.

use super::{CacheIndex, Closing, State};
use crate::action::{Action, IoOp, Target};
use crate::cache::{Cache, Unrecorded};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::Nanos;
use crate::sealed::Page;
use crate::status::IoStatus;

/// The batch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    None,
    /// What it claims is being flushed.
    Flushing(Pages),
    /// It is being written.
    Writing(Pages),
}

/// The pages of a batch and what follows when they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub first: u64,
    pub count: u32,
    /// Changes up to this one are recorded with it.
    pub changes: u64,
    /// The walk's, behind it.
    pub tail: u64,
    /// The last one of the run.
    pub closes: bool,
}

impl CacheIndex {
    /// The pages of the batch under way.
    ///
    /// Panics when there is none.
    pub(crate) fn pages(&self) -> &[Page] {
        match self.batch {
            Batch::Flushing(pages) | Batch::Writing(pages) => {
                &self.memory.pages[..pages.count as usize]
            }
            Batch::None => panic!("no batch is under way"),
        }
    }

    /// Begins the next batch, if it is due.
    pub(crate) fn record_if_due(&mut self, cache: &mut Cache, cx: &mut Cx<'_>) {
        let is_active = self.state == State::Active && self.closing != Closing::Closed;
        if !is_active || self.batch != Batch::None {
            return;
        }
        let Some(mut cache) = cache.unrecorded() else { return };
        if self.is_due(&cache, cx.now) {
            let pages = self.record(&mut cache, cx.grid.offset() as u32, cx.now);
            self.start_batch(pages, cx);
        }
    }

    fn is_due(&mut self, cache: &Unrecorded<'_>, now: Nanos) -> bool {
        let recordable = cache.recordable();
        let progress = &mut self.progress;
        let has_changed = recordable > progress.durable || cache.has_retired();
        // The last page is written when nothing is stale any more.
        let ends = self.closing != Closing::No && !cache.has_stale();
        let is_behind = has_changed
            || self.marking.marks.has_changed()
            || cache.has_changed()
            || self.walk.unsaid > 0;
        if !is_behind {
            progress.changed_at = Nanos::NEVER;
            return ends;
        }
        if progress.changed_at == Nanos::NEVER {
            progress.changed_at = now;
        }
        cache.is_short_of_slots()
            || cache.are_many()
            || !self.waiting.is_empty()
            || progress.wanted.min(recordable) > progress.durable
            || ends
            || self.walk.unsaid > 0
            || now >= progress.changed_at.plus(self.config.record_delay)
    }

    /// Starts what comes before the pages are written.
    fn start_batch(&mut self, pages: Pages, cx: &mut Cx<'_>) {
        if !std::mem::take(&mut self.progress.is_unflushed) {
            return self.write_batch(pages, cx);
        }
        self.batch = Batch::Flushing(pages);
        cx.counters.ring_flushes += 1;
        let nothing = ByteRange::default();
        cx.start(Target::Flash, nothing, IoOp::Flush, IoKind::Index);
    }

    fn write_batch(&mut self, pages: Pages, cx: &mut Cx<'_>) {
        self.batch = Batch::Writing(pages);
        let memory = self.memory.span.part(0, u64::from(pages.count) * PAGE);
        cx.push(Action::Ring { memory });
        let place = (pages.first - 1) % u64::from(self.config.pages);
        let range = ByteRange::at(place * PAGE, memory.len.into());
        cx.counters.ring_writes += 1;
        cx.counters.ring_write_bytes += range.len();
        let op = IoOp::Write { memory, durable: true };
        cx.start(Target::Ring, range, op, IoKind::Index);
    }

    /// An I/O of the index ended: the flush of what the batch claims, or its write.
    pub(crate) fn on_io(&mut self, status: IoStatus, cache: &mut Cache, cx: &mut Cx<'_>) {
        let batch = std::mem::replace(&mut self.batch, Batch::None);
        let is_good = self.state == State::Active && status.is_ok();
        match batch {
            _ if !is_good => self.void(status, cx),
            Batch::Flushing(pages) => self.write_batch(pages, cx),
            Batch::Writing(pages) => self.end_batch(pages, cache, cx),
            Batch::None => unreachable!("an I/O of a batch"),
        }
    }

    /// The batch is durable.
    fn end_batch(&mut self, pages: Pages, cache: &mut Cache, cx: &mut Cx<'_>) {
        self.place.durable_page = pages.first + u64::from(pages.count) - 1;
        self.place.durable_tail = pages.tail;
        self.progress.durable = pages.changes;
        self.marking.marks.on_durable();
        cx.ready.extend(self.waiting.drain(..));
        cache.on_recorded();
        if pages.closes {
            self.closing = Closing::Closed;
            self.end(cache, cx);
            cache.end_waiting_fills(cx);
        } else {
            cache.write_waiting_fills(cx);
        }
    }
}
