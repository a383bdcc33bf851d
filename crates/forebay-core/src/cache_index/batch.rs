//! The ring of the flash tier: records what slots hold and which regions are written, so that the cache outlives
//! the process (`crate::warm` has the bytes and the rules).
//!
//! ```text
//!   fill, eviction, invalidation ─► changes ─┐
//!   write beside the log ─► mark, wait ──────┼─► batch of pages ─► flash flushed ─► pages durable ─┬─► slots free
//!   `flushed` to be noted, wait ─────────────┘                                                     └─► who waits goes on
//! ```
//! One batch is under way at a time; what comes meanwhile shares the next one. A batch begins when somebody waits
//! for it, when slots run short or changes are many, and a while after the first change.
//!
//! ```text
//!   Active ──error, flash or log given up──► Voiding ──noted elsewhere, or that failed, too──► Off
//!     └──────closed in order────────────────────────────────────────────────────────────────► Off
//! ```
//! While *Voiding*, writes to primary storage beside the log wait: the ring on flash would be believed without
//! knowing of them.

#[path = "../cache/flash/changes.rs"]
pub(in crate::engine) mod changes;
#[path = "turn.rs"]
mod intent;
mod record;
mod restore;

use crate::action::{Action, Event, IoOp, Span, Target};
use crate::config::{Config, RingConfig};
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};
use crate::engine::io::IoKind;
use crate::geometry::{ByteRange, Grid, PAGE};
use crate::ids::Nanos;
use crate::sealed::{PAGE_LEN, Page};
use crate::stats::{IndexState, RingStatistics};
use crate::status::IoStatus;
use crate::table::Key;
use crate::warm::marks::Marks;
use crate::warm::walk::Walk;
use crate::warm::{BATCH_PAGES, RingGeometry, region_shift};

use changes::Changes;
use intent::Turn;
pub use restore::RestoredCache;

/// Where the ring is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is written.
    Active,
    /// What is on flash is wrong from now on, and that is not durably known.
    Voiding,
    /// Nothing is recorded any more.
    Off,
}

/// The batch under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    None,
    /// What it claims is being flushed.
    Flushing(Pages),
    /// It is being written.
    Writing(Pages),
}

/// The pages of a batch and what follows when they are durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pages {
    first: u64,
    count: u32,
    /// Changes up to this one are recorded with it.
    changes: u64,
    /// The walk's, behind it.
    tail: u64,
    /// The last one of the run.
    closes: bool,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    No,
    /// As soon as all is recorded; true: primary storage has been flushed, no mark is needed.
    Wanted(bool),
    Closed,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    config: RingConfig,
    geometry: RingGeometry,
    state: State,
    /// The pages of the batch under way.
    pages: Box<[Page]>,
    /// Where the executor has them while they are written.
    memory: Span,
    marks: Marks,
    turn: Turn,
    walk: Walk,
    next_page: u64,
    durable_page: u64,
    durable_tail: u64,
    batch: Batch,
    /// Changes up to this one are durable.
    durable: u64,
    /// Somebody waits for changes up to this one.
    wanted: u64,
    /// Since when something is not recorded.
    changed_at: Nanos,
    /// A fill ended since the last flush began.
    is_unflushed: bool,
    /// Writes that wait for their marks.
    waiting: Vec<Key>,
    closing: Closing,
    /// Not answered after this time: it cannot be noted that the ring is void.
    void_until: Nanos,
    /// The cache was restored from it.
    restored: Option<RestoredCache>,
}

impl Ring {
    /// Pages of memory for a batch.
    pub(super) fn memory_pages(config: &Config) -> u64 {
        config.ring.map_or(0, |_| u64::from(BATCH_PAGES))
    }

    /// The ring of a cache that starts empty; its memory begins at `base`.
    pub(super) fn new(
        ring: RingConfig,
        config: &Config,
        slots: u32,
        grid: &Grid,
        base: u64,
    ) -> Ring {
        let (block, disk) = (config.block_size, ring.disk_size);
        let geometry = RingGeometry::new(slots, grid.granules_per_block(), block, disk);
        assert!(ring.pages >= geometry.pages(), "the ring is too short");
        let mut marks = Marks::new(geometry.regions, region_shift(block, disk));
        if !config.backend.read_only {
            marks.mark_all();
        }
        Ring {
            geometry,
            state: State::Active,
            pages: vec![[0; PAGE_LEN]; BATCH_PAGES as usize].into(),
            memory: Span { offset: base, len: BATCH_PAGES * PAGE as u32 },
            turn: Turn::first(!config.backend.read_only),
            marks,
            walk: Walk::new(geometry.positions()),
            next_page: 1,
            durable_page: 0,
            durable_tail: 1,
            batch: Batch::None,
            durable: 0,
            wanted: 0,
            changed_at: Nanos::NEVER,
            is_unflushed: false,
            waiting: Vec::with_capacity(config.requests_max as usize),
            closing: Closing::No,
            void_until: Nanos::NEVER,
            restored: None,
            config: ring,
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let pages = size_of_val(&*self.pages) as u64;
        pages + self.marks.memory_bytes() + self.walk.memory_bytes() + Changes::memory_bytes()
    }

    /// A request gave up waiting.
    pub(super) fn leave(&mut self, key: Key) {
        self.waiting.retain(|&k| k != key);
    }

    /// A fill of flash ended.
    pub(super) fn note_fill(&mut self) {
        self.is_unflushed = true;
    }
}

impl Parts {
    /// The pages that [`Action::Ring`] is about.
    pub(in crate::engine) fn ring_pages(&self) -> &[Page] {
        let ring = self.cache_index.as_ref().expect("there is a ring");
        match ring.batch {
            Batch::Flushing(pages) | Batch::Writing(pages) => &ring.pages[..pages.count as usize],
            Batch::None => panic!("no batch is under way"),
        }
    }

    /// Goes on with the ring, when there is something to do.
    pub(super) fn advance_ring(&mut self, cx: &mut Cx<'_>) {
        if self.cache_index.as_ref().is_none_or(|ring| ring.state != State::Active) {
            return;
        }
        if self.cache.flash.as_ref().is_some_and(|flash| flash.is_misrecorded) {
            return self.void_ring(IoStatus::NoSpace, cx);
        }
        self.advance_marks(cx);
        if self.ring_is_due(cx) {
            self.start_batch(cx);
        }
    }

    fn ring_is_due(&mut self, cx: &mut Cx<'_>) -> bool {
        let (Some(ring), Some(flash)) = (&mut self.cache_index, &self.cache.flash) else {
            return false;
        };
        let Some(changes) = &flash.changes else { return false };
        if ring.batch != Batch::None || ring.closing == Closing::Closed {
            return false;
        }
        let recordable = self.cache.stale.recordable(changes.count);
        let has_changed = recordable > ring.durable || flash.dir.has_retired();
        // The last page is written when nothing is stale any more.
        let ends = ring.closing != Closing::No && self.cache.stale.is_empty();
        let is_behind = has_changed || ring.marks.has_changed() || changes.first().is_some();
        if !is_behind {
            ring.changed_at = Nanos::NEVER;
            return ends;
        }
        if ring.changed_at == Nanos::NEVER {
            ring.changed_at = cx.now;
        }
        let (free, _) = flash.dir.spare();
        let is_short = free * 2 <= flash.reserve() && flash.dir.has_retired();
        is_short
            || changes.are_many()
            || !ring.waiting.is_empty()
            || ring.wanted.min(recordable) > ring.durable
            || ends
            || cx.now >= ring.changed_at.plus(ring.config.record_delay)
    }

    /// Makes the pages of a batch and starts what comes before they are written.
    fn start_batch(&mut self, cx: &mut Cx<'_>) {
        let pages = self.record(cx);
        let ring = self.cache_index.as_mut().expect("there is a ring");
        let nothing = ByteRange::default();
        if std::mem::take(&mut ring.is_unflushed) {
            ring.batch = Batch::Flushing(pages);
            cx.counters.ring_flushes += 1;
            let (op, kind) = (IoOp::Flush, IoKind::RingFlush);
            return cx.start(Target::Flash, nothing, op, kind);
        }
        self.write_batch_pages(pages, cx);
    }

    fn write_batch_pages(&mut self, pages: Pages, cx: &mut Cx<'_>) {
        let ring = self.cache_index.as_mut().expect("there is a ring");
        ring.batch = Batch::Writing(pages);
        let memory = ring.memory.part(0, u64::from(pages.count) * PAGE);
        cx.push(Action::Ring { memory });
        let place = (pages.first - 1) % u64::from(ring.config.pages);
        let range = ByteRange::at(place * PAGE, memory.len.into());
        cx.counters.ring_writes += 1;
        cx.counters.ring_write_bytes += range.len();
        let op = IoOp::Write { memory, durable: true };
        cx.start(Target::Ring, range, op, IoKind::RingWrite);
    }

    /// What the batch claims is flushed, or not.
    pub(super) fn on_ring_flushed(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let ring = self.cache_index.as_mut().expect("its own I/O");
        let Batch::Flushing(pages) = ring.batch else { unreachable!("a flush for the batch") };
        if ring.state != State::Active || !status.is_ok() {
            ring.batch = Batch::None;
            return self.void_ring(status, cx);
        }
        self.write_batch_pages(pages, cx);
    }

    /// The batch is durable, or not.
    pub(super) fn on_ring_written(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let ring = self.cache_index.as_mut().expect("its own I/O");
        let Batch::Writing(pages) = ring.batch else { unreachable!("the batch") };
        ring.batch = Batch::None;
        if ring.state != State::Active || !status.is_ok() {
            return self.void_ring(status, cx);
        }
        ring.durable_page = pages.first + u64::from(pages.count) - 1;
        ring.durable_tail = pages.tail;
        ring.durable = pages.changes;
        ring.marks.on_durable();
        cx.ready.extend(ring.waiting.drain(..));
        if let Some(flash) = &mut self.cache.flash {
            flash.dir.free_recorded();
        }
        if pages.closes {
            ring.closing = Closing::Closed;
            self.end_ring(cx);
            return self.end_waiting_fills(cx);
        }
        self.write_waiting_fills(cx);
    }

    /// The ring on flash is wrong, or will be: that has to be known before anything else is written beside it.
    pub(super) fn void_ring(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let timeout = cx.config.flash_timeout;
        let Some(ring) = self.cache_index.as_mut().filter(|ring| ring.state == State::Active)
        else {
            return;
        };
        ring.state = State::Voiding;
        ring.void_until = cx.now.plus(timeout);
        cx.event(Event::RingFailed { status });
        cx.push(Action::Void);
    }

    /// That the ring must not be believed is durably known now, or cannot be.
    pub(in crate::engine) fn voided(&mut self, known: bool, cx: &mut Cx<'_>) {
        let voiding = self.cache_index.as_ref().is_some_and(|ring| ring.state == State::Voiding);
        if !voiding {
            // It took too long.
            return;
        }
        if !known {
            cx.event(Event::RingNotVoided);
        }
        self.end_ring(cx);
        self.write_waiting_fills(cx);
        self.run(cx);
    }

    fn end_ring(&mut self, cx: &mut Cx<'_>) {
        let ring = self.cache_index.as_mut().expect("there is a ring");
        ring.state = State::Off;
        (ring.changed_at, ring.void_until) = (Nanos::NEVER, Nanos::NEVER);
        cx.ready.extend(ring.waiting.drain(..));
        if let Some(flash) = &mut self.cache.flash {
            flash.stop_recording();
        }
    }

    /// Voiding took too long.
    pub(super) fn time_out_void(&mut self, cx: &mut Cx<'_>) {
        let late = |ring: &Ring| ring.state == State::Voiding && cx.now >= ring.void_until;
        if self.cache_index.as_ref().is_some_and(late) {
            cx.event(Event::RingNotVoided);
            self.end_ring(cx);
            self.write_waiting_fills(cx);
        }
    }

    /// Records everything and ends the ring, so that the next run finds all of it. `flushed`: primary storage was
    /// flushed after the last write to it. Call it when the engine is idle; [`Engine::is_idle`] tells when it is done.
    pub(in crate::engine) fn close_ring(&mut self, flushed: bool, cx: &mut Cx<'_>) {
        let is_safe = self.is_idle(cx) && (flushed || self.primary.flush.is_flushed());
        if let Some(ring) = self.cache_index.as_mut().filter(|ring| ring.state == State::Active) {
            ring.closing = Closing::Wanted(is_safe);
            self.run(cx);
        }
    }

    /// True when the ring is written no more: closed, or given up.
    pub(in crate::engine) fn is_ring_closed(&self) -> bool {
        self.cache_index.as_ref().is_none_or(|ring| ring.state == State::Off)
    }

    /// True when nothing of the ring is to be waited for.
    pub(super) fn ring_is_settled(&self) -> bool {
        self.cache_index.as_ref().is_none_or(|ring| match ring.state {
            State::Active => ring.closing == Closing::No,
            State::Voiding => false,
            State::Off => true,
        })
    }

    /// How many changes of the cache there were, to be asked for with [`Engine::is_recorded`].
    pub(super) fn cache_changes(&self) -> u64 {
        let changes = self.cache.flash.as_ref().and_then(|flash| flash.changes.as_ref());
        changes.map_or(0, |changes| changes.count)
    }

    /// True when the ring knows durably of the first `changes` changes, or is not believed; it is asked to otherwise.
    pub(super) fn is_recorded(&mut self, changes: u64) -> bool {
        let Some(ring) = &mut self.cache_index else { return true };
        match ring.state {
            State::Off => true,
            State::Voiding => false,
            State::Active => {
                ring.wanted = ring.wanted.max(changes);
                ring.durable >= changes
            }
        }
    }

    /// True while the ring on flash might be believed, although nothing is recorded in it any more.
    pub(super) fn is_voiding(&self) -> bool {
        self.cache_index.as_ref().is_some_and(|ring| ring.state == State::Voiding)
    }

    /// When time alone asks something of the ring.
    pub(super) fn ring_deadline(&self, shared: &Shared) -> Nanos {
        let Some(ring) = &self.cache_index else { return Nanos::NEVER };
        match ring.state {
            State::Off => Nanos::NEVER,
            State::Voiding => ring.void_until,
            State::Active => {
                let due = match ring.batch {
                    Batch::None => ring.changed_at.plus(ring.config.record_delay),
                    Batch::Flushing(_) | Batch::Writing(_) => Nanos::NEVER,
                };
                due.min(ring.turn.deadline(shared.now, &self.primary.flush))
            }
        }
    }

    pub(super) fn ring_statistics(&self) -> Option<RingStatistics> {
        let ring = self.cache_index.as_ref()?;
        let state = match ring.state {
            State::Active => IndexState::Recorded,
            State::Voiding => IndexState::GivenUp,
            State::Off if ring.closing == Closing::Closed => IndexState::Closed,
            State::Off => IndexState::NotRecorded,
        };
        Some(RingStatistics {
            state,
            pages: ring.config.pages.into(),
            last_page: ring.durable_page,
            regions: ring.geometry.regions.into(),
            regions_marked: ring.marks.count(),
            region_bytes: 1 << ring.marks.shift(),
            is_warm: ring.restored.is_some(),
            blocks_found: ring.restored.map_or(0, |restored| restored.found),
            blocks_kept: ring.restored.map_or(0, |restored| restored.kept),
            memory_bytes: ring.memory_bytes(),
        })
    }
}
