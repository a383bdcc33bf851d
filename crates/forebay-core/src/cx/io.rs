//! The I/Os under way, and whom each belongs to. Every I/O has one owner, who alone is told of its end.

use crate::cache::SlotRun;
use crate::geometry::ByteRange;
use crate::ids::{Nanos, SlotId};
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::format::index::Place;
use crate::write_back::{DestageIo, LogIo};

/// An I/O under way and whom it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoEntry {
    pub issued: Nanos,
    pub range: ByteRange,
    pub kind: IoKind,
    /// A device may be unable to do such a thing at all, and say so.
    pub is_optional: bool,
}

impl IoEntry {
    /// How it ended. Of what every device has to do, one that says that it cannot has failed.
    pub(crate) fn status(&self, told: IoStatus) -> IoStatus {
        match told {
            IoStatus::Unsupported if !self.is_optional => IoStatus::IoError,
            told => told,
        }
    }
}

/// Whose I/O it is, and what it does there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IoKind {
    /// A request's.
    Request(Key, RequestIo),
    /// Nobody's: it still writes to a buffer that its request gave up.
    Orphan { orphan: Key, flash_slot: Option<SlotId>, log_place: Option<Place> },
    /// The cache's: granules on their way to flash.
    Fill { fill: Key, to: SlotRun },
    /// The cache index's: a flush of what it is about to claim, or its pages.
    Index,
    /// The write log's.
    Log(LogIo),
    /// The destager's.
    Destager(DestageIo),
    /// Those who wait for a flush of primary storage.
    PrimaryFlush,
}

impl IoKind {
    /// True when it changes what the disk has on flash.
    pub fn writes_flash(&self) -> bool {
        match self {
            IoKind::Fill { .. } | IoKind::Index | IoKind::Log(_) => true,
            IoKind::Destager(io) => matches!(io, DestageIo::Note),
            IoKind::Request(..) | IoKind::Orphan { .. } | IoKind::PrimaryFlush => false,
        }
    }
}

/// What an I/O of a request does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestIo {
    /// Reads from primary storage.
    Fetch,
    /// Reads from a flash slot; `bytes`: the same on the disk.
    Flash { at: SlotRun, bytes: ByteRange },
    /// Reads pages of the log.
    Log { place: Place, pages: u32 },
    /// Reads a page of the log of which a read needs some sectors.
    Overlay { place: Place },
    /// Reads a logical block around a small write.
    Edge,
    /// Writes bytes, or a piece of zeroes, to primary storage.
    Write,
    /// Discards, or writes zeroes, on primary storage.
    Zero,
    /// Asks for extents.
    Extents,
    /// No I/O, but the comparison of what was read; `fua`: of the write that follows.
    Compare { fua: bool },
}
