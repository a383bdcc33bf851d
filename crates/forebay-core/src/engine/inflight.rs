//! The requests and I/Os in flight: what the engine remembers between two calls.
//!
//! ```text
//!  submit ─► Overlap ─► Buffer ─► Running ─► (Flush) ─► answered, forgotten
//!                │         │         │          │
//!                └─────────┴─────────┴──────────┴─ time over ─► answered, kept while I/O is owned
//! ```

use crate::action::{Buffer, Source};
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, Nanos, RequestTag, SlotId};
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
}

/// A request that was not answered at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlight {
    pub tag: RequestTag,
    pub range: ByteRange,
    pub submitted: Nanos,
    pub stage: Stage,
    /// I/Os under way that use its buffer or its range.
    pub outstanding: u32,
    /// The first error of its I/Os.
    pub failed: Option<IoStatus>,
    /// The client has its answer; the entry stays while `outstanding` > 0.
    pub answered: bool,
    pub buffer: Option<Buffer>,
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

#[derive(Clone, Copy, Debug)]
pub(super) struct ReadJob {
    /// The client wants the bytes; false: only the cache does.
    pub wants_data: bool,
    /// What is fetched goes into the cache.
    pub admit: bool,
    /// Look into the cache; false in modes without one, and once the grid moved under the read.
    pub use_cache: bool,
    /// The part of the disk that the buffer will mirror: the range grown to granules.
    pub target: ByteRange,
    /// Up to here sources were chosen.
    pub cursor: u64,
    /// The slowest source so far.
    pub source: Source,
    /// Some of it was in the cache.
    pub any_cached: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct WriteJob {
    pub fua: bool,
    /// Belongs to a sequential stream: does not take new slots.
    pub bypass: bool,
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
    /// A flush of primary storage.
    Flush,
    /// Granules on their way to flash.
    FlashFill { fill: Key },
    /// Still writes to a buffer that its request gave up.
    Orphan { orphan: Key, flash_slot: Option<SlotId> },
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
            | IoKind::Extents { request } => Some(request),
            IoKind::Flush | IoKind::FlashFill { .. } | IoKind::Orphan { .. } => None,
        }
    }
}

/// A buffer that I/Os still use although their request went on without them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Orphan {
    pub buffer: Buffer,
    pub outstanding: u32,
}

/// A block on its way to flash, from a copy of its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlashFill {
    pub block: BlockIndex,
    pub slot: SlotId,
    /// Laid out like the block.
    pub staging: Buffer,
    /// Granules still to write.
    pub todo: GranuleMask,
    /// Granules being written.
    pub writing: GranuleMask,
    /// Granules whose bytes became old meanwhile.
    pub cancelled: GranuleMask,
    /// The slot is new: the directory does not know it yet.
    pub fresh: bool,
}
