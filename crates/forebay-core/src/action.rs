//! The engine's requests to its executor, as data.
//!
//! The executor (a shard on io_uring, or the simulator) carries out the actions **in order**. It
//! copies and zeroes at once. It starts each I/O. It sends a reply, or copies it out. It tells
//! the engine of each finished I/O with `Engine::complete`, and calls `Engine::sent` when all
//! replies handed out so far have left cache memory.
//!
//! All memory of a disk is one flat area of `Engine::memory_size` bytes, page-aligned: request
//! buffers first, RAM slots after them. A [`Span`] is a piece of it.

mod event;

pub use event::{DestageFault, Event, PrimaryOp};

use crate::geometry::ByteRange;
use crate::ids::{
    FlushEpoch, Generation, GroupNumber, IoId, Nanos, RequestTag, SegmentId, Sequence,
};
use crate::status::IoStatus;
use crate::write_back::format::group::Entry;

/// A piece of the disk's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    /// Bytes from the start of the disk's memory.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Span {
    /// The part of this span from `skip`, `len` bytes long; panics when it sticks out.
    pub fn part(self, skip: u64, len: u64) -> Span {
        assert!(skip + len <= u64::from(self.len));
        Span { offset: self.offset + skip, len: len as u32 }
    }
}

/// The device that an I/O goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Primary storage.
    Backend,
    /// The disk's share of local flash.
    Flash,
    /// The flash pool, where the disk's log segments are: segment `n` starts at `n` × segment size.
    Log,
    /// The ring of the disk's cache, without its header.
    Ring,
    /// The destage journal beside primary storage.
    Journal,
}

/// What to do on a device. Offsets are in [`Io::range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// Fill `memory` from the device.
    Read {
        /// Where the bytes go; as long as the range.
        memory: Span,
    },
    /// Write `memory` to the device.
    Write {
        /// Where the bytes come from; as long as the range.
        memory: Span,
        /// Durable when it completes, without a flush. Says nothing of earlier writes. Only writes of the log
        /// and of the ring ask for it.
        durable: bool,
    },
    /// Note durably how far destaging is, in the disk's progress page.
    Progress {
        /// Records up to this one are on primary storage and were flushed there.
        flushed: Sequence,
        /// Records up to this one may be on primary storage.
        through: Sequence,
    },
    /// Make every write completed so far durable.
    Flush,
    /// The bytes of the range are no longer needed; what they read as afterwards is undefined.
    Discard,
    /// The range reads as zeroes afterwards.
    WriteZeroes {
        /// False: the space must stay allocated.
        may_unmap: bool,
        /// Fail with [`IoStatus::Unsupported`] rather than be as slow as writing the zeroes.
        fast_only: bool,
    },
    /// Ask which parts of the range are allocated; answered with `Engine::complete_extents`.
    Extents,
}

impl IoOp {
    /// True when a device may answer [`IoStatus::Unsupported`].
    pub(crate) fn is_optional(self) -> bool {
        match self {
            IoOp::Discard | IoOp::WriteZeroes { .. } | IoOp::Extents => true,
            IoOp::Read { .. } | IoOp::Write { .. } | IoOp::Progress { .. } | IoOp::Flush => false,
        }
    }
}

/// What came of [`Action::Void`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Voided {
    /// The pool says durably that the ring must not be believed.
    InPool,
    /// The pool cannot say it. So primary storage does, of all that is on flash: of the log, too.
    WithLog,
    /// Nobody can know.
    Nowhere,
}

/// One I/O to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Io {
    /// Comes back in `Engine::complete`.
    pub id: IoId,
    /// The device.
    pub target: Target,
    /// Bytes of the device; empty for a flush.
    pub range: ByteRange,
    /// What to do.
    pub op: IoOp,
    /// Bytes per checksum; 0: none wanted. With the completion the executor reports the CRC32C of
    /// each piece of this length of `memory`. It takes them before a write starts, or after a
    /// read ended. For a group of the log it reports those of its data pages as they were when
    /// their records were staged; others may come before them.
    pub checksum_piece: u32,
}

/// Where the bytes of a reply are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyData {
    /// The reply has no data.
    None,
    /// In cache slots: `Actions::slices[first..first + count]`, in disk order. Valid until the next
    /// `Engine::sent`; must be sent or copied by then.
    Slots {
        /// Index of the first slice.
        first: u32,
        /// Number of slices.
        count: u32,
    },
    /// In a request buffer that the executor now owns; give it back with `Engine::release`.
    Buffer {
        /// The bytes that were asked for.
        data: Span,
        /// The buffer they lie in.
        buffer: Buffer,
    },
    /// Allocation or cache state: `Actions::extents[first..first + count]`, in disk order.
    Extents {
        /// Index of the first extent.
        first: u32,
        /// Number of extents.
        count: u32,
    },
    /// The bytes that a compare-and-write found differ from the expected ones.
    Difference {
        /// The first byte that does, from the start of the range.
        offset: u64,
    },
}

/// A request buffer: memory that mirrors `window` of the disk, byte for byte.
///
/// The window is the request grown outwards to granules (and to the backend's logical blocks). So
/// the byte at disk position `p` lies at `p - window.start` in the buffer, and page-aligned
/// memory meets aligned I/O. Every kind of I/O of a request uses the same buffer. (A window that
/// the start of the disk cuts off within a granule starts within a page.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Its memory, at least as long as the window. Granule boundaries of the window are page-aligned.
    pub span: Span,
    /// The part of the disk that it mirrors.
    pub window: ByteRange,
}

impl Buffer {
    /// The memory of `range`, which must lie in the window.
    pub fn at(self, range: ByteRange) -> Span {
        assert!(self.window.contains(range));
        self.span.part(range.start - self.window.start, range.len())
    }

    /// Where a compare-and-write of `range` has the bytes that it expects, in a buffer of
    /// `Engine::compare_buffer`.
    pub fn expected(self, range: ByteRange) -> Span {
        assert!(self.window.contains(range));
        self.span.part(self.window.len(), range.len())
    }
}

/// Where the bytes of an answered read came from; the slowest source counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// All of it from RAM.
    Ram,
    /// At least a part from flash, none from primary storage.
    Flash,
    /// At least a part from primary storage.
    Backend,
}

/// The answer to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The request's tag.
    pub tag: RequestTag,
    /// How it ended.
    pub status: IoStatus,
    /// When the request was submitted.
    pub submitted: Nanos,
    /// What it returns.
    pub data: ReplyData,
}

/// Why a log gets no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLease {
    /// None is free at the moment.
    #[error("no segment of it is free")]
    Now,
    /// What is leased cannot be noted any more.
    #[error("its tables cannot be written")]
    Ever,
}

/// One thing to do, at once and in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start an I/O.
    Io(Io),
    /// Copy bytes within the disk's memory; the spans are equally long and do not overlap.
    Copy {
        /// Source.
        from: Span,
        /// Destination.
        to: Span,
    },
    /// Compare two pieces of the disk's memory, equally long; answered with `Engine::compared`, before or after what
    /// comes behind it is carried out.
    Compare {
        /// Comes back in `Engine::compared`.
        id: IoId,
        /// What was fetched.
        found: Span,
        /// What a client expects.
        expected: Span,
    },
    /// Fill a piece of the disk's memory with zeroes.
    Zero {
        /// What to fill.
        memory: Span,
    },
    /// Build a piece of the write log in memory: `Actions::log[index]`.
    Log(u32),
    /// Lease another log segment; answered with `Engine::leased`.
    Lease,
    /// Take memory for the rest of the groups; answered with `Engine::staging_grown`.
    GrowStaging,
    /// Give a log segment back.
    Unlease(SegmentId),
    /// The pool has no other: lease this segment of the log anew, in the place of its lease; answered with
    /// `Engine::leased`, as [`Action::Lease`] is.
    Renew(SegmentId),
    /// Copy the pages that [`crate::engine::Engine::ring_pages`] has into memory, to be written.
    Ring {
        /// Where to.
        memory: Span,
    },
    /// Copy what [`crate::engine::Engine::journal_bytes`] has into memory, to be written, and date it with
    /// [`crate::journal::record::date`].
    Journal {
        /// Where to.
        memory: Span,
    },
    /// The destage journal cannot be written: durably name another one beside primary storage, or none; answered with
    /// `Engine::journal_revoked`.
    RevokeJournal,
    /// The ring on flash must not be believed any more: note that durably, elsewhere than in the ring; answered
    /// with `Engine::voided`.
    Void,
    /// Flash is dead: no later start may go on with the log that is there. Note that durably, elsewhere than on flash;
    /// answered with `Engine::revoked`.
    Revoke,
    /// Answer a request.
    Reply(Reply),
    /// Something an operator wants to know happened.
    Event(Event),
}

/// The parts of the write log that are built in the disk's memory (`log/` has the bytes).
///
/// A group lies in memory as it will lie on flash: a page for the header of its segment, a page
/// for the group's header, its data pages. The first page is written only when the group opens
/// the segment. From the moment that a record is staged it survives the process, if that memory
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogAction {
    /// Make the header of a segment.
    OpenSegment {
        /// One page.
        memory: Span,
        /// The segment.
        segment: SegmentId,
        /// Its place in the log, as it was leased.
        ordinal: u64,
        /// The run of the disk that writes it.
        generation: Generation,
        /// Its first group.
        first_group: GroupNumber,
        /// That group's first record.
        first_sequence: Sequence,
        /// Records up to this one are known to be durable.
        durable: Sequence,
        /// The epoch under way.
        epoch: FlushEpoch,
        /// Where pages begin on the disk, below 4096.
        phase: u16,
    },
    /// Make the header of an empty group.
    OpenGroup {
        /// One page.
        memory: Span,
        /// The group.
        number: GroupNumber,
        /// The run of the disk that writes it.
        generation: Generation,
        /// Its first record.
        first_sequence: Sequence,
        /// Where pages begin on the disk, below 4096.
        phase: u16,
    },
    /// Append a record, whose data are in place, and only then count it.
    Stage {
        /// The group's header page.
        memory: Span,
        /// The record's data pages in the group; empty for zeroes.
        data: Span,
        /// What it does.
        record: Entry,
    },
    /// Complete the header of a group that is about to be written.
    SealGroup {
        /// The group's header page.
        memory: Span,
        /// Records up to this one are known to be durable.
        durable: Sequence,
        /// Where the group goes in the summary of its segment; `None`: the segment gets none.
        summary: Option<Span>,
    },
    /// Complete the summary of a segment, whose groups are in it.
    SealSegment {
        /// Whole pages, from the summary's start.
        memory: Span,
        /// The segment.
        segment: SegmentId,
        /// Its place in the log, as it was leased.
        ordinal: u64,
        /// The run of the disk that writes it.
        generation: Generation,
        /// Its first group.
        first_group: GroupNumber,
        /// That group's first record.
        first_sequence: Sequence,
        /// Groups that it has.
        groups: u32,
        /// Bytes of the summary.
        bytes: u32,
    },
}

/// A run of bytes of a disk with one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Allocation or cache state; which of the two, the request says.
    pub state: ExtentState,
}

/// State of an [`Extent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExtentState {
    /// Allocated, or not known.
    Allocated,
    /// A hole that reads as zeroes.
    Hole,
    /// Allocated, and reads as zeroes.
    Zero,
    /// Not in the cache.
    Uncached,
    /// In the cache, the same as on primary storage.
    Clean,
    /// In the cache or the log, newer than primary storage.
    Dirty,
}

/// A reusable list of actions, with the slices and extents that replies refer to.
///
/// The engine appends; the executor carries out and then calls [`Actions::clear`]. Its memory is kept, so that
/// nothing is allocated per I/O once it has grown to the largest batch.
#[derive(Debug, Default)]
pub struct Actions {
    /// What to do, in order.
    pub list: Vec<Action>,
    /// Slot memory that [`ReplyData::Slots`] refers to.
    pub slices: Vec<Span>,
    /// Extents that [`ReplyData::Extents`] refers to.
    pub extents: Vec<Extent>,
    /// What [`Action::Log`] refers to.
    pub log: Vec<LogAction>,
}

impl Actions {
    /// An empty list with room for `batch` actions.
    pub fn with_capacity(batch: usize) -> Actions {
        Actions {
            list: Vec::with_capacity(batch),
            slices: Vec::with_capacity(4 * batch),
            extents: Vec::with_capacity(64),
            log: Vec::with_capacity(batch),
        }
    }

    /// Appends a piece of the write log to build.
    pub(crate) fn push_log(&mut self, action: LogAction) {
        self.list.push(Action::Log(self.log.len() as u32));
        self.log.push(action);
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.list.clear();
        self.slices.clear();
        self.extents.clear();
        self.log.clear();
    }
}
