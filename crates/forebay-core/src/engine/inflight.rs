//! The requests and I/Os in flight: what the engine remembers between two calls.
//!
//! ```text
//!  submit ─► Overlap ─► Buffer ─► Running ─► (Flush) ─► answered, forgotten
//!                │         │         │          │
//!                └─────────┴─────────┴──────────┴─ time over ─► answered, kept while I/O is owned
//! ```

use crate::action::{Buffer, Source};
use crate::geometry::ByteRange;
use crate::ids::{BlockIndex, Nanos, RequestTag, SlotId};
use crate::log::index::Place;
use crate::observer::Ticket;
use crate::status::IoStatus;
use crate::table::Key;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An earlier request on the same bytes.
    Overlap,
    /// A buffer.
    Buffer,
    /// Its I/Os.
    Running,
    /// A flush of primary storage that covers it.
    Flush,
    /// Its regions being durably marked as about to be written.
    Intent,
    /// Room in the write log, or a mode that is about to change.
    Room,
    /// Its group being on flash.
    Logged,
    /// Its group being durable.
    Durable,
    /// The throttle.
    Throttled,
}

/// A request that was not answered at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub tag: RequestTag,
    pub range: ByteRange,
    pub submitted: Nanos,
    /// Of a guest's read or write.
    pub ticket: Option<Ticket>,
    pub stage: Stage,
    /// I/Os under way that use its buffer or its range.
    pub outstanding: u32,
    /// The first error of its I/Os.
    pub failed: Option<IoStatus>,
    /// The client has its answer; the entry stays while `outstanding` > 0.
    pub answered: bool,
    pub buffer: Option<Buffer>,
    /// What a compare-and-write got from its client, while `buffer` is for what it fetches.
    pub brought: Option<Buffer>,
    pub job: Job,
}

/// What is particular to a kind of request; each kind has its file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Job {
    Read(ReadJob),
    Write(WriteJob),
    Zero(ZeroJob),
    Flush,
    Allocation,
}

/// Who wants what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFor {
    Client,
    /// Nobody, for now.
    Cache,
    /// Nobody: it was not asked for, and is not answered (`edges.rs`).
    Edge,
    /// A compare-and-write, as which it goes on.
    Compare {
        fua: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ReadJob {
    pub purpose: ReadFor,
    /// What is fetched goes into the cache.
    pub admit: bool,
    /// What it has read may be gone from primary storage by now: it is for whoever asked before that alone.
    pub is_doubtful: bool,
    /// It belongs to a long sequential stream.
    pub is_stream: bool,
    /// Look into the cache; false in modes without one, and once the grid moved under the read.
    pub use_cache: bool,
    /// Only the logical blocks of the range are held, not whole granules: flash is left alone, nothing is admitted.
    pub exact: bool,
    /// The part of the disk that the buffer will mirror: the range grown to granules, or to logical blocks.
    pub target: ByteRange,
    /// Up to here sources were chosen.
    pub cursor: u64,
    /// The slowest source so far.
    pub source: Source,
    /// Some of it was in the cache.
    pub any_cached: bool,
    /// The log holds pages of it in parts: what the log had freed when they were seen.
    pub partial: Option<u64>,
    /// Up to which page, and which of its layers, those parts are in place.
    pub overlay: (u64, usize),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WriteJob {
    pub fua: bool,
    /// It was a compare-and-write that found what it expected.
    pub compared: bool,
    /// It belongs to a long sequential stream.
    pub is_stream: bool,
    /// It does not take new slots.
    pub bypass: bool,
    /// Up to here it is in the log.
    pub cursor: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ZeroJob {
    pub kind: ZeroKind,
    pub fua: bool,
    /// Up to here the range is done.
    pub cursor: u64,
    /// The piece under way.
    pub piece: ByteRange,
    /// Zeroes are written from a buffer: primary storage cannot do it by itself.
    pub by_writing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ZeroKind {
    Discard,
    WriteZeroes { may_unmap: bool, fast_only: bool },
}

/// An I/O under way and whom it belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoEntry {
    pub issued: Nanos,
    pub range: ByteRange,
    pub kind: IoKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum IoKind {
    /// Part of a read, from primary storage.
    BackendRead { request: Key },
    /// Part of a read, from granules `first..end` of a flash slot.
    FlashRead {
        request: Key,
        block: BlockIndex,
        slot: SlotId,
        first: u32,
        end: u32,
        /// The same bytes on the disk.
        bytes: ByteRange,
    },
    /// A logical block around a small write.
    EdgeRead { request: Key },
    /// A write's bytes, or a piece of zeroes, to primary storage.
    Write { request: Key },
    /// A discard or write-zeroes on primary storage.
    Zero { request: Key },
    /// A query for extents.
    Extents { request: Key },
    /// No I/O, but the comparison of what was read.
    Compare { request: Key },
    /// A flush of primary storage.
    Flush,
    /// Granules on their way to flash.
    FlashFill { fill: Key },
    /// A flush of flash, of what the ring is about to claim.
    RingFlush,
    /// Pages of the ring.
    RingWrite,
    /// A group of the log: which of those in memory.
    LogWrite { group: usize },
    /// The summary of a segment of the log.
    LogSummary,
    /// A flush of the log.
    LogFlush,
    /// Part of a read, from pages of the log.
    LogRead { request: Key, place: Place, pages: u32 },
    /// A page of the log of which a read needs some sectors.
    LogOverlay { request: Key, place: Place },
    /// Pages of the log for a run of the destager.
    DestageRead { run: Key, place: Place, pages: u32 },
    /// What is below a page in parts.
    DestageBelow { run: Key },
    /// A run of the destager to primary storage.
    DestageWrite { run: Key },
    /// Zeroes of the destager, up to `end`; from this memory, when they are written.
    DestageZero { end: u64, memory: (u32, u32) },
    /// The logical block around them.
    DestageZeroEdge { end: u64, memory: (u32, u32) },
    /// A flush of primary storage in this session of it.
    DestageFlush { session: u64 },
    /// A note of the destager's progress.
    DestageNote,
    /// Still writes to a buffer that its request gave up.
    Orphan { orphan: Key, flash_slot: Option<SlotId>, log_place: Option<Place> },
}

impl IoKind {
    /// The request that the I/O belongs to.
    pub(super) fn request(&self) -> Option<Key> {
        match *self {
            IoKind::BackendRead { request }
            | IoKind::FlashRead { request, .. }
            | IoKind::EdgeRead { request }
            | IoKind::Write { request }
            | IoKind::Zero { request }
            | IoKind::LogRead { request, .. }
            | IoKind::LogOverlay { request, .. }
            | IoKind::Compare { request }
            | IoKind::Extents { request } => Some(request),
            IoKind::Flush | IoKind::FlashFill { .. } | IoKind::Orphan { .. } => None,
            IoKind::RingFlush | IoKind::RingWrite => None,
            IoKind::LogWrite { .. }
            | IoKind::LogSummary
            | IoKind::LogFlush
            | IoKind::DestageRead { .. }
            | IoKind::DestageBelow { .. }
            | IoKind::DestageWrite { .. }
            | IoKind::DestageZero { .. }
            | IoKind::DestageZeroEdge { .. }
            | IoKind::DestageFlush { .. }
            | IoKind::DestageNote => None,
        }
    }

    /// True when it belongs to the ring.
    pub(super) fn is_of_ring(&self) -> bool {
        matches!(self, IoKind::RingFlush | IoKind::RingWrite)
    }

    /// True when it belongs to the log or the destager, and to no request.
    pub(super) fn is_of_log(&self) -> bool {
        let of_cache =
            matches!(self, IoKind::Flush | IoKind::FlashFill { .. } | IoKind::Orphan { .. });
        self.request().is_none() && !of_cache && !self.is_of_ring()
    }
}

/// A buffer that I/Os still use although their request went on without them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub buffer: Buffer,
    pub outstanding: u32,
}
