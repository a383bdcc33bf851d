//! The I/Os that the log and the destager own.

use crate::table::Key;
use crate::write_back::format::index::Place;

/// What an I/O of the log does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LogIo {
    /// Writes a group: which of those in memory.
    Write {
        group: usize,
    },
    /// Writes the summary of a segment.
    Summary,
    Flush,
}

/// What an I/O of the destager does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DestageIo {
    /// Reads pages of the log for a run.
    Read { run: Key, place: Place, pages: u32 },
    /// Reads what is below a page in parts.
    Below { run: Key },
    /// Writes a run to primary storage.
    Write { run: Key },
    /// Zeroes primary storage up to `end`; from this memory, when the zeroes are written.
    Zero { end: u64, memory: (u32, u32) },
    /// Reads the logical block around them.
    ZeroEdge { end: u64, memory: (u32, u32) },
    /// Flushes primary storage in this session of it.
    Flush { session: u64 },
    /// Notes the progress.
    Note,
    /// Writes a piece of a window into the journal.
    Piece { run: Key },
    /// Writes the header of a window, flushes the journal, or retires what is in it.
    Journal,
}
