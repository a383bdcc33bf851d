//! The cache index: what keeps a read cache on flash alive over a restart. It is a *ring* of pages that says what the
//! slots hold, with the disk's write-intent marks.
//!
//! ```text
//!   claims, frees, marks ─┐
//!                         ├─► pages of one batch ─► flash flushed ─► batch durable ─┬► slots free for new blocks
//!   walk over all slots ──┘                                                         ├► writes may reach primary storage
//!                                                                                   └► `flushed` may be noted
//!   +--------+------+------+------+------+------+------+
//!   | header | page | page | page | page | page | page |   page n lies at (n − 1) mod pages; the newest goes over
//!   +--------+------+------+------+------+------+------+   the oldest
//!              tail ─────────────► newest                  recovery: newest first, down to the tail
//! ```
//! Every record says all of one thing: what a slot holds, that it is free, which regions of a word are marked.
//! The later record wins, so neither snapshot nor replay is needed. Each page gives at least half of its room
//! to a *walk*, which repeats the state of every slot and of every word of marks. When the walk has come round, older
//! pages are not needed. [`RingGeometry::pages`] are enough for that.
//!
//! | file | what it is |
//! |---|---|
//! | `header.rs`, `page.rs`, `geometry.rs` | the bytes |
//! | `batch.rs`, `record.rs`, `walk.rs` | pages are filled and written, one batch at a time |
//! | `marks.rs`, `turn.rs` | write-intent marks, and how they go again |
//! | `recover.rs`, `restore.rs` | the index of a former run is read back, into the cache |
//! | `survey.rs` | the same for an operator, without an engine |
//!
//! ```text
//!   Active ──error, flash or log given up──► Voiding ──noted elsewhere──► Off
//!     │                                        └──────that failed, too──► Unnoted ──noted in the end──► Off
//!     └──────closed in order────────────────────────────────────────────────────────────────────────► Off
//! ```
//! While *Voiding*, writes to primary storage beside the log wait: the index on flash would be believed without
//! knowing of them. *Unnoted* they go on, and it is tried again: there may be a place for the sidecar by then.
//!
//! The index may use the cache; the cache knows nothing of it. A flow passes the flushes of primary storage in as data
//! (`PrimaryFlushes`). The wish for one comes back as data (`IndexWants`).
//!
//! **Invariants** (docs/format/ring.md argues them failure by failure)
//! - A page is durable only after the data that it claims.
//! - A slot that lost its block gets other bytes only after that is durable here.
//! - Bytes go to primary storage beside the write log only after their regions are durably marked.
//! - A mark goes after three things: the write ended, a later flush of primary storage succeeded, and the drops that it
//!   caused in the cache are durable here.
//! - `flushed` of the write log is noted only after what its records dropped from the cache is durable here.
//!
//! **Limits:** 2²⁰ regions, 2³⁰ − 2 slots; see [`BATCH_PAGES`].

mod batch;
mod geometry;
pub mod header;
pub mod marks;
pub mod page;
mod record;
pub mod recover;
mod restore;
pub mod survey;
mod turn;
pub mod walk;

use crate::action::{Action, Event, Span};
use crate::cache::{Cache, Unrecorded};
use crate::config::{Config, RingConfig};
use crate::cx::Cx;
use crate::geometry::{Grid, PAGE};
use crate::ids::Nanos;
use crate::sealed::{PAGE_LEN, Page};
use crate::stats::{IndexState, RingStatistics};
use crate::status::IoStatus;
use crate::table::Key;

use batch::{Batch, Pages};
pub use geometry::{BATCH_PAGES, CHANGES_MAX, REGIONS_MAX, RingGeometry, WALK_MAX, region_shift};
use marks::Marks;
pub use restore::RestoredCache;
pub(crate) use turn::{IndexWants, PrimaryFlushes};
use turn::{Marking, Turn};
use walk::Walk;

/// Where the index is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is written.
    Active,
    /// The index on flash is wrong from now on, and that is not durably known. After `until` it cannot be noted.
    Voiding { until: Nanos },
    /// It was given up, and that could not be noted: `again` it is tried again, or when the answer has come that is late.
    Unnoted { again: Nanos },
    /// Nothing is recorded any more: it was closed, or given up.
    Off,
}

impl State {
    /// One that was given up, and whether that is noted.
    fn of_given_up(known: bool, again: Nanos) -> State {
        if known { State::Off } else { State::Unnoted { again } }
    }
}

/// After so long it is tried again to note that an index was given up.
const NOTED_AGAIN: Nanos = Nanos::from_millis(10_000);

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
pub(crate) struct CacheIndex {
    config: RingConfig,
    geometry: RingGeometry,
    state: State,
    closing: Closing,
    marking: Marking,
    walk: Walk,
    place: PageNumbers,
    progress: Progress,
    batch: Batch,
    memory: BatchMemory,
    /// Writes that wait for their marks.
    waiting: Vec<Key>,
    /// The cache was restored from it.
    restored: Option<RestoredCache>,
}

/// Memory for a batch.
#[derive(Debug)]
struct BatchMemory {
    /// The pages of the batch under way.
    pages: Box<[Page]>,
    /// Where the executor has them while they are written.
    span: Span,
}

/// Which pages there are.
#[derive(Debug)]
struct PageNumbers {
    next_page: u64,
    durable_page: u64,
    /// The first page that counts, as the durable ones say.
    durable_tail: u64,
}

/// How far the changes of the cache are recorded.
#[derive(Debug)]
struct Progress {
    /// Changes up to this one are durable.
    durable: u64,
    /// Somebody waits for changes up to this one.
    wanted: u64,
    /// Since when something is not recorded.
    changed_at: Nanos,
    /// A fill ended since the last flush began.
    is_unflushed: bool,
}

impl CacheIndex {
    /// Pages of memory for a batch.
    pub(crate) fn memory_pages(config: &Config) -> u64 {
        config.ring.map_or(0, |_| u64::from(BATCH_PAGES))
    }

    /// The index of a cache that starts empty; its memory begins at `base`.
    pub(crate) fn new(
        ring: RingConfig,
        config: &Config,
        slots: u32,
        grid: &Grid,
        base: u64,
    ) -> CacheIndex {
        let (block, disk) = (config.block_size, ring.disk_size);
        let geometry = RingGeometry::new(slots, grid.granules_per_block(), block, disk);
        assert!(ring.pages >= geometry.pages(), "the ring is too short");
        let mut marks = Marks::new(geometry.regions, region_shift(block, disk));
        let is_read_only = config.backend.read_only;
        // A run that only reads flushes nothing: what a former one left unflushed stays marked until another one writes.
        if !is_read_only || ring.is_unanswered {
            marks.mark_all();
        }
        CacheIndex {
            geometry,
            state: State::Active,
            closing: Closing::No,
            marking: Marking { marks, turn: Turn::first(!is_read_only) },
            walk: Walk::new(geometry.positions()),
            place: PageNumbers { next_page: 1, durable_page: 0, durable_tail: 1 },
            progress: Progress {
                durable: 0,
                wanted: 0,
                changed_at: Nanos::NEVER,
                is_unflushed: false,
            },
            batch: Batch::None,
            memory: BatchMemory {
                pages: vec![[0; PAGE_LEN]; BATCH_PAGES as usize].into(),
                span: Span { offset: base, len: BATCH_PAGES * PAGE as u32 },
            },
            waiting: Vec::with_capacity(config.requests_max as usize),
            restored: None,
            config: ring,
        }
    }

    /// A fill of flash ended.
    pub(crate) fn note_fill(&mut self) {
        self.progress.is_unflushed = true;
    }

    /// The index on flash is wrong, or will be. That has to be known before anything else is written beside it.
    pub(crate) fn void(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        if self.state != State::Active {
            return;
        }
        self.state = State::Voiding { until: cx.now.plus(cx.config.flash_timeout) };
        cx.event(Event::RingFailed { status });
        cx.push(Action::Void);
    }

    /// That the index must not be believed is durably known now, or cannot be. False: it took too long.
    pub(crate) fn voided(&mut self, known: bool, cache: &mut Cache, cx: &mut Cx<'_>) -> bool {
        match self.state {
            State::Active | State::Off => return false,
            State::Voiding { .. } => {}
            State::Unnoted { .. } => {
                self.state = State::of_given_up(known, cx.now.plus(NOTED_AGAIN));
                return false;
            }
        }
        if !known {
            cx.event(Event::RingNotVoided);
        }
        self.end(cache, cx);
        self.state = State::of_given_up(known, cx.now.plus(NOTED_AGAIN));
        cache.write_waiting_fills(cx);
        true
    }

    /// Gives up waiting for that, if it took too long, and tries again what failed.
    pub(crate) fn time_out(&mut self, cache: &mut Cache, cx: &mut Cx<'_>) {
        match self.state {
            State::Voiding { until } if cx.now >= until => {
                self.voided(false, cache, cx);
                // The answer comes yet.
                self.state = State::Unnoted { again: Nanos::NEVER };
            }
            State::Unnoted { again } if cx.now >= again => {
                self.state = State::Unnoted { again: Nanos::NEVER };
                cx.push(Action::Void);
            }
            State::Active | State::Voiding { .. } | State::Unnoted { .. } | State::Off => {}
        }
    }

    /// Nothing is recorded any more.
    fn end(&mut self, cache: &mut Cache, cx: &mut Cx<'_>) {
        self.state = State::Off;
        self.progress.changed_at = Nanos::NEVER;
        cx.ready.extend(self.waiting.drain(..));
        cache.stop_recording();
    }

    /// Records what is listed and ends the index, so that the next run finds it. `is_safe`: primary storage was
    /// flushed after the last write to it. False: it has ended.
    pub(crate) fn close(&mut self, is_safe: bool) -> bool {
        if self.state != State::Active {
            return false;
        }
        self.closing = Closing::Wanted(is_safe);
        true
    }

    /// True when it is written no more: closed, or given up.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.state, State::Unnoted { .. } | State::Off)
    }

    /// True while it is written, and goes on to be.
    pub(crate) fn is_written(&self) -> bool {
        self.state == State::Active && self.closing == Closing::No
    }

    /// True when nothing of it is to be waited for.
    pub(crate) fn is_settled(&self) -> bool {
        match self.state {
            State::Active => self.closing == Closing::No,
            State::Voiding { .. } => false,
            State::Unnoted { .. } | State::Off => true,
        }
    }

    /// True while the index on flash might be believed, although nothing is recorded in it any more.
    pub(crate) fn is_voiding(&self) -> bool {
        matches!(self.state, State::Voiding { .. })
    }

    /// True when it knows durably of the first `changes` changes, or is not believed; it is asked to otherwise.
    pub(crate) fn is_recorded(&mut self, changes: u64) -> bool {
        match self.state {
            State::Unnoted { .. } | State::Off => true,
            State::Voiding { .. } => false,
            State::Active => {
                self.progress.wanted = self.progress.wanted.max(changes);
                self.progress.durable >= changes
            }
        }
    }

    /// The same, and false when it is written no more: something may be believed of it still.
    pub(crate) fn says(&mut self, changes: u64) -> bool {
        self.state == State::Active && self.is_recorded(changes)
    }

    /// When time alone asks something of it.
    pub(crate) fn deadline(&self, since: Nanos, flushes: PrimaryFlushes) -> Nanos {
        match self.state {
            State::Off => Nanos::NEVER,
            State::Voiding { until } => until,
            State::Unnoted { again } => again,
            State::Active => {
                let due = match self.batch {
                    Batch::None if self.walk.unsaid > 0 => Nanos(0),
                    Batch::None => self.progress.changed_at.plus(self.config.record_delay),
                    Batch::Flushing(_) | Batch::Writing(_) => Nanos::NEVER,
                };
                due.min(self.marking.turn.deadline(since, flushes))
            }
        }
    }

    pub(crate) fn statistics(&self) -> RingStatistics {
        let state = match self.state {
            State::Active => IndexState::Recorded,
            State::Off if self.closing == Closing::Closed => IndexState::Closed,
            State::Voiding { .. } | State::Unnoted { .. } | State::Off => IndexState::GivenUp,
        };
        let marks = &self.marking.marks;
        RingStatistics {
            state,
            pages: self.config.pages.into(),
            last_page: self.place.durable_page,
            regions: self.geometry.regions.into(),
            // Where all is marked, that is also what the last word has beyond them.
            regions_marked: marks.count().min(self.geometry.regions.into()),
            region_bytes: 1 << marks.shift(),
            is_warm: self.restored.is_some(),
            blocks_found: self.restored.map_or(0, |restored| restored.found),
            blocks_kept: self.restored.map_or(0, |restored| restored.kept),
            memory_bytes: self.memory_bytes(),
        }
    }

    fn memory_bytes(&self) -> u64 {
        let pages = size_of_val(&*self.memory.pages) as u64;
        let lists = self.marking.marks.memory_bytes() + Unrecorded::memory_bytes();
        pages + lists + self.walk.memory_bytes()
    }

    /// Panics when the part contradicts itself. For tests; slow.
    pub(crate) fn check_invariants(&self) {
        let PageNumbers { next_page, durable_page, durable_tail } = self.place;
        assert!(durable_page < next_page, "page {durable_page} is durable before it is written");
        assert!(durable_tail <= self.walk.tail(), "what counts began later than the walk says");
        match self.batch {
            Batch::None if self.state == State::Active => assert_eq!(durable_page + 1, next_page),
            Batch::None => {}
            Batch::Flushing(pages) | Batch::Writing(pages) => {
                assert_eq!(pages.first + u64::from(pages.count), next_page);
            }
        }
        assert!(!self.is_closed() || self.waiting.is_empty(), "nobody wakes who waits");
    }
}

#[cfg(test)]
mod tests;
