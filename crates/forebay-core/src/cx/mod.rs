//! What every part may use during one call of the engine.
//!
//! ```text
//!  Engine { shared, parts }
//!             │       │
//!             ▼       ▼
//!        Cx { shared, actions } ──passed to──► a flow ──► a part
//! ```
//! A [`Cx`] lives for one call. It is passed on and never stored. Its [`Shared`] half is what belongs to no part:
//! the time of the call, the configuration, the I/Os under way, the request buffers, the counters, and the
//! requests that may go on. A part that only looks takes `&Shared`.

pub(crate) mod buffers;
pub(crate) mod io;

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use crate::action::{Action, Actions, Buffer, Event, Io, IoOp, Span, Target};
use crate::config::Config;
use crate::geometry::{ByteRange, Grid, PAGE};
use crate::ids::{IoId, Nanos};
use crate::misses::Misses;
use crate::requests::deadlines::Deadlines;
use crate::stats::Counters;
use crate::table::{Key, Table};
use crate::write_back::log::hang_time;
use crate::write_back::{DestageIo, LogIo};
use buffers::BufferPool;
use io::{IoEntry, IoKind};

/// What belongs to no part.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The time of this call, or of the last one.
    pub now: Nanos,
    pub config: Config,
    /// The grid of cache blocks, as it lies now.
    pub grid: Grid,
    /// The I/Os under way.
    pub ios: Table<IoEntry>,
    pub hanging: Hanging,
    pub buffers: BufferPool,
    /// Buffers in the hands of the executor.
    pub lent: u32,
    pub counters: Counters,
    /// Why reads miss.
    pub misses: Misses,
    /// Primary storage may still carry out what a former process sent: what is read there now may be something else in a moment.
    pub is_unsettled: bool,
    /// Ways to zero a range that primary storage has refused.
    pub zeroes_refused: ZeroesRefused,
    /// Requests that may go on; run at the end of each public call.
    pub ready: VecDeque<Key>,
}

/// When I/Os have taken too long.
#[derive(Debug)]
pub(crate) struct Hanging {
    /// Of flash.
    pub flash: Deadlines,
    /// Reads of the log for guests: each keeps what it reads from being freed.
    pub log_reads: Deadlines,
}

/// See [`Shared::zeroes_refused`]. Some can make holes only, and some only what keeps its space.
#[derive(Debug, Default)]
pub(crate) struct ZeroesRefused {
    by_unmapping: bool,
    that_stay_mapped: bool,
}

/// See the module.
pub(crate) struct Cx<'a> {
    pub actions: &'a mut Actions,
    pub shared: &'a mut Shared,
}

impl Deref for Cx<'_> {
    type Target = Shared;

    #[inline]
    fn deref(&self) -> &Shared {
        self.shared
    }
}

impl DerefMut for Cx<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Shared {
        self.shared
    }
}

impl Shared {
    /// Nothing is under way.
    pub(crate) fn new(config: Config, grid: Grid, ios_max: u32) -> Shared {
        Shared {
            now: Nanos(0),
            grid,
            ios: Table::new(ios_max),
            hanging: Hanging {
                flash: Deadlines::new(ios_max, config.flash_timeout),
                log_reads: Deadlines::new(ios_max, hang_time(&config)),
            },
            buffers: BufferPool::new(config.buffer_bytes),
            lent: 0,
            counters: Counters::default(),
            misses: Misses::new(),
            is_unsettled: false,
            zeroes_refused: ZeroesRefused::default(),
            ready: VecDeque::with_capacity(config.requests_max as usize),
            config,
        }
    }

    /// `range` grown to the logical blocks of primary storage.
    pub(crate) fn align_to_backend(&self, range: ByteRange) -> ByteRange {
        range.align_out(u64::from(self.config.backend.logical_block))
    }

    /// True when zeroes have to be written from memory: primary storage has no other way.
    pub(crate) fn writes_zeroes(&self, may_unmap: bool) -> bool {
        let ZeroesRefused { by_unmapping, that_stay_mapped } = self.zeroes_refused;
        !self.config.backend.write_zeroes || if may_unmap { by_unmapping } else { that_stay_mapped }
    }

    /// True when zeroes may be holes, as far as is known.
    pub(crate) fn makes_holes(&self) -> bool {
        !self.writes_zeroes(true)
    }

    /// Primary storage has no way to zero a range but to be written to.
    pub(crate) fn note_zeroes_refused(&mut self, may_unmap: bool) {
        let ZeroesRefused { by_unmapping, that_stay_mapped } = &mut self.zeroes_refused;
        *if may_unmap { by_unmapping } else { that_stay_mapped } = true;
    }

    /// A buffer that mirrors `range` grown to granules.
    pub(crate) fn take_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        self.take_buffer_with(range, 0)
    }

    /// A buffer that mirrors `range` grown to granules, with `extra` pages behind it.
    pub(crate) fn take_buffer_with(&mut self, range: ByteRange, extra: u64) -> Option<Buffer> {
        let window = self.grid.align_to_granules(range);
        // A window cut off by the start of the disk begins within a page, so that its granules meet
        // page boundaries in memory, too.
        let lead = self.grid.offset_in_block(window.start) % PAGE;
        let len = (lead + window.len()).next_multiple_of(PAGE) + extra * PAGE;
        let first = self.buffers.take((len / PAGE) as u32)?;
        let span = buffer_span(first, len).part(lead, len - lead);
        Some(Buffer { span, window })
    }

    /// The engine is done with a buffer, but copies from it may still have to be made.
    pub(crate) fn free_buffer(&mut self, buffer: Buffer) {
        let (first, count) = pages_of(buffer);
        self.buffers.spend(first, count);
    }
}

impl Cx<'_> {
    /// Asks the executor for a read of primary storage: all of them are counted here.
    pub(crate) fn read_backend(&mut self, range: ByteRange, memory: Span, kind: IoKind) {
        self.counters.backend_reads += 1;
        self.counters.backend_read_bytes += range.len();
        self.start(Target::Backend, range, IoOp::Read { memory }, kind);
    }

    /// Asks the executor for another I/O.
    pub(crate) fn start(&mut self, target: Target, range: ByteRange, op: IoOp, kind: IoKind) {
        let issued = self.now;
        let key = self.ios.insert(IoEntry { issued, range, kind, is_optional: op.is_optional() });
        let checksum_piece = match target {
            Target::Flash | Target::Ring => {
                self.hanging.flash.push(key, issued);
                if matches!(kind, IoKind::Index) { 0 } else { self.grid.granule_size() as u32 }
            }
            Target::Journal if matches!(kind, IoKind::Destager(DestageIo::Piece { .. })) => {
                PAGE as u32
            }
            Target::Backend | Target::Journal => 0,
            Target::Log if matches!(kind, IoKind::Request(..)) => {
                self.hanging.log_reads.push(key, issued);
                PAGE as u32
            }
            Target::Log if matches!(kind, IoKind::Log(LogIo::Summary)) => 0,
            Target::Log if matches!(op, IoOp::Read { .. } | IoOp::Write { .. }) => PAGE as u32,
            Target::Log => 0,
        };
        self.push(Action::Io(Io { id: IoId(key.0), target, range, op, checksum_piece }));
    }

    /// An I/O ended: whose it was.
    ///
    /// Panics when the engine did not ask for it or was told of its end before.
    pub(crate) fn end(&mut self, io: IoId) -> IoEntry {
        let key = Key(io.0);
        let entry = self.ios.remove(key);
        self.hanging.flash.remove(key);
        self.hanging.log_reads.remove(key);
        entry
    }

    pub(crate) fn push(&mut self, action: Action) {
        self.actions.list.push(action);
    }

    /// Tells the operator.
    pub(crate) fn event(&mut self, event: Event) {
        self.push(Action::Event(event));
    }

    /// A request may go on.
    pub(crate) fn wake(&mut self, key: Key) {
        self.ready.push_back(key);
    }
}

/// The first page of a buffer, and how many it has.
pub(crate) fn pages_of(buffer: Buffer) -> (u32, u32) {
    let first = buffer.span.offset / PAGE;
    let end = (buffer.span.offset + u64::from(buffer.span.len)) / PAGE;
    (first as u32, (end - first) as u32)
}

/// The memory of a buffer whose first page is `first`.
pub(crate) fn buffer_span(first: u32, len: u64) -> Span {
    Span { offset: u64::from(first) * PAGE, len: len as u32 }
}
