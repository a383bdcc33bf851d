//! The I/Os under way, and whom each belongs to.

use crate::cache::SlotRun;
use crate::geometry::ByteRange;
use crate::ids::{Nanos, SlotId};
use crate::log::index::Place;
use crate::table::Key;

/// An I/O under way and whom it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IoEntry {
    pub issued: Nanos,
    pub range: ByteRange,
    pub kind: IoKind,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum IoKind {
    /// Part of a read, from primary storage.
    BackendRead { request: Key },
    /// Part of a read, from a flash slot; `bytes`: the same on the disk.
    FlashRead { request: Key, at: SlotRun, bytes: ByteRange },
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
    FlashFill { fill: Key, to: SlotRun },
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
    pub(crate) fn request(&self) -> Option<Key> {
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

    /// True when it belongs to the cache index.
    pub(crate) fn is_of_index(&self) -> bool {
        matches!(self, IoKind::RingFlush | IoKind::RingWrite)
    }

    /// True when it belongs to the log or the destager, and to no request.
    pub(crate) fn is_of_log(&self) -> bool {
        let of_cache =
            matches!(self, IoKind::Flush | IoKind::FlashFill { .. } | IoKind::Orphan { .. });
        self.request().is_none() && !of_cache && !self.is_of_index()
    }
}
