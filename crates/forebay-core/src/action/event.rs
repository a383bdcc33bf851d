//! What the engine reports beside its actions: changes of state for the event log.

use serde::{Deserialize, Serialize};

use crate::config::Mode;
use crate::geometry::ByteRange;
use crate::status::IoStatus;

/// The step that destaging needed and could not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestageFault {
    /// Write or flush primary storage, or read it around a write.
    PrimaryStorage,
    /// Read the log.
    LogRead,
    /// Note in the pool how far it is.
    Note,
    /// Write the destage journal, or flush it.
    Journal,
}

/// A kind of I/O on primary storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum PrimaryOp {
    /// A read.
    #[default]
    Read,
    /// A write, a discard or a write of zeroes.
    Write,
    /// A flush.
    Flush,
}

impl PrimaryOp {
    /// All.
    pub const ALL: [PrimaryOp; 3] = [PrimaryOp::Read, PrimaryOp::Write, PrimaryOp::Flush];
}

impl std::fmt::Display for PrimaryOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PrimaryOp::Read => "reads",
            PrimaryOp::Write => "writes",
            PrimaryOp::Flush => "flushes",
        })
    }
}

/// A change of state that is worth a line in the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The grid was moved to fit the guest's alignment; the cache started afresh.
    GridMoved {
        /// New byte offset of the grid.
        offset: u64,
    },
    /// RAM has as few slots as it is to have: the place of the others, from `end` of the disk's memory to the end of the
    /// room for slots, is not used any more. Actions before this one were the last that did.
    RamShrunk {
        /// Bytes from the start of the disk's memory.
        end: u64,
    },
    /// The flash cache became as small as it was to be, and may have got more since: what is beyond
    /// [`Engine::flash_size`](crate::engine::Engine::flash_size) is not used any more, and nothing of it is believed after a
    /// restart. Actions before this one were the last that used it.
    FlashShrunk {
        /// Bytes from the start of the cache on flash.
        end: u64,
    },
    /// The guest's requests do not fit the grid, too late to move it.
    GridAdvice {
        /// The byte offset that would fit.
        offset: u64,
    },
    /// The flash tier was given up; RAM, or no cache, goes on.
    FlashFailed {
        /// The last error.
        status: IoStatus,
    },
    /// The ring cannot be written: the cache starts empty the next time.
    RingFailed {
        /// The error.
        status: IoStatus,
    },
    /// The flash of a log that failed is dead; what memory has is destaged, and no later start goes on with the log.
    LogRevoked,
    /// The same, but it cannot be noted that no later start may go on with the log.
    LogNotRevoked,
    /// Nor can it be noted that the ring must not be believed.
    RingNotVoided,
    /// A flash slot failed a write and is not used any more.
    SlotQuarantined {
        /// Bytes from the start of the disk's share of flash.
        offset: u64,
    },
    /// Flash returned bytes whose checksum is wrong; they were read from primary storage instead.
    ChecksumMismatch {
        /// Bytes from the start of the disk's share of flash.
        offset: u64,
    },
    /// An I/O on primary storage failed, when none did before. More of them are counted, not told.
    PrimaryFails {
        /// What was asked.
        op: PrimaryOp,
        /// The error.
        status: IoStatus,
        /// The first byte that was asked for.
        offset: u64,
        /// The destager asked, and tries again; otherwise the guest gets an error.
        is_destaging: bool,
    },
    /// After that, primary storage works again.
    PrimaryWorks {
        /// What was asked.
        op: PrimaryOp,
        /// How many I/Os failed.
        failed: u64,
    },
    /// An I/O on primary storage exceeded its time; the client was answered, the I/O is still owned.
    BackendTimedOut {
        /// Where.
        range: ByteRange,
    },
    /// A write or flush of the log failed: nothing more is written to it, and it is drained.
    LogFailed {
        /// The error.
        status: IoStatus,
    },
    /// The log returned bytes whose checksum is wrong, or none: they are the only copy.
    LogCorrupt {
        /// Which bytes of the disk.
        range: ByteRange,
    },
    /// Destaging met another error than before; it is tried again. Those of primary storage are [`Event::PrimaryFails`].
    DestageFailed {
        /// What failed.
        fault: DestageFault,
        /// The error.
        status: IoStatus,
    },
    /// The destage journal could not be written: it does not count any more, and destaging goes on epoch by epoch.
    JournalRevoked,
    /// The same, but that it does not count cannot be noted: destaging waits for it.
    JournalNotRevoked,
    /// Destaging was paused, and goes on because the log has to be emptied: its mode changes, or it failed.
    DestagingResumed,
    /// The log fills: writers are slowed from now on, to the speed of destaging at most.
    LogThrottles,
    /// The log is full: writers wait for room in it.
    LogFull,
    /// After that, the log is emptied so far that writers are not slowed.
    LogHasRoom,
    /// The disk's mode is now what was asked for.
    ModeChanged {
        /// The mode.
        mode: Mode,
    },
    /// Primary storage failed the flush that the disk began with, or its session was lost before one ended well: writes that
    /// a former run answered may be lost. A flush fails for it, once.
    FormerWritesAtRisk,
    /// Writes that were answered but not flushed may be lost; the next flush fails.
    UnflushedWritesAtRisk {
        /// How many bytes, at most.
        bytes: u64,
    },
}
