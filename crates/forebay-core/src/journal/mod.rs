//! The destage journal: windows of the write log, each whole beside primary storage before any of it is in place.
//!
//! ```text
//!  page 0   1   2 …               2 + n
//!  ┌──────┬───┬──────────────────┬──────────────────┬─
//!  │ super│ …2│ slot 0           │ slot 1           │ …
//!  └──────┴───┴──────────────────┴──────────────────┴─
//!             │ header │ payload pages │
//! ```
//! A *record* is one window: the newest bytes of each of its pages, and its zeroes. It is *whole* when its header and every
//! page of its payload have the checksum that the header says. Record *w* lies in slot *w* mod the number of slots. The
//! superblock says up to which window all records are *retired*: in place for good, never to be read again.
//!
//! Whoever finds primary storage with a journal writes the whole records that are not retired in place, in the order of
//! their windows, up to the first gap ([`repair()`]). Then primary storage is as it was at the end of the last of them.
//!
//! | file | what |
//! |---|---|
//! | `superblock.rs` | whose journal it is, how it is cut, what is retired |
//! | `record.rs` | the header of a record |
//! | `repair.rs` | records that are not retired, put in place |

pub mod record;
pub mod repair;
pub mod superblock;

use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Generation, Nanos, Uuid};
use crate::write_back::format::GROUP_PAGES_MAX;
use crate::write_back::format::index::ZEROES_MAX;
pub use repair::{Medium, Repaired, repair};
pub use superblock::Superblock;

/// Pages before the first slot: the two copies of the superblock.
const FIRST_SLOT: u64 = 2;
/// Pages of the log that a window has at most: 64 MiB.
pub const WINDOW_PAGES_MAX: u32 = 16 << 10;
/// Windows that may be in place, or on their way there, and not flushed.
pub(crate) const UNFLUSHED: u32 = 4;
/// Bytes of the payload's and the zeroes' entries in a header.
const ENTRY: u64 = 16;
/// Strict order is given up for windows when something waits longer for it.
const PATIENCE: Nanos = Nanos::from_millis(1_000);
/// Epochs of fewer pages than this are written as windows: 1 MiB.
const EPOCH_PAGES: u64 = 256;
/// Slots of a journal: one is written while the other is put in place.
pub const SLOTS: u32 = 2;

/// Whose records count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The disk.
    pub disk: Uuid,
    /// Made for this journal, and named beside primary storage. Records under another one are of the past.
    pub nonce: u64,
}

/// How a journal is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slots: u32,
    /// Pages of payload that a slot has room for.
    capacity: u32,
}

impl Shape {
    /// Most pages of payload that a slot may have.
    const CAPACITY_MAX: u32 = 1 << 20;

    /// For a write log of so many pages: what is written again after a lost session fits, too, which are
    /// `UNFLUSHED` windows.
    pub fn for_log(pages: u64) -> Shape {
        let window = window_pages(pages);
        Shape { slots: SLOTS, capacity: UNFLUSHED * window + GROUP_PAGES_MAX }
    }

    /// With so many slots of so many pages of payload; nothing where that makes no journal.
    pub fn new(slots: u32, capacity: u32) -> Option<Shape> {
        let is_one = (2..=64).contains(&slots) && (1..=Shape::CAPACITY_MAX).contains(&capacity);
        is_one.then_some(Shape { slots, capacity })
    }

    /// Slots.
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Pages of payload that a record may have.
    pub fn capacity(self) -> u32 {
        self.capacity
    }

    /// Pages of a header.
    pub fn header_pages(self) -> u32 {
        let entries = u64::from(self.capacity) + ZEROES_MAX as u64;
        1 + (entries * ENTRY).div_ceil(PAGE) as u32
    }

    /// Entries of zeroes and of payload that a header has room for.
    pub fn entries_max(self) -> usize {
        self.capacity as usize + ZEROES_MAX
    }

    /// Where the header of the record of `window` is; it may be shorter.
    pub fn header(self, window: u64) -> ByteRange {
        let slot = u64::from(self.header_pages()) + u64::from(self.capacity);
        let first = FIRST_SLOT + window % u64::from(self.slots) * slot;
        ByteRange::at(first * PAGE, u64::from(self.header_pages()) * PAGE)
    }

    /// Where `pages` of its payload are, from the one of this number on.
    pub fn payload(self, window: u64, first: u32, pages: u32) -> ByteRange {
        let start = self.header(window).end + u64::from(first) * PAGE;
        ByteRange::at(start, u64::from(pages) * PAGE)
    }

    /// Bytes of the journal.
    pub fn size(self) -> u64 {
        let slot = u64::from(self.header_pages()) + u64::from(self.capacity);
        (FIRST_SLOT + u64::from(self.slots) * slot) * PAGE
    }
}

/// Pages of a window of a log of so many pages: an eighth of it, and 64 MiB, at most.
pub fn window_pages(log_pages: u64) -> u32 {
    (log_pages / 8).clamp(8, u64::from(WINDOW_PAGES_MAX)) as u32
}

/// A journal as an engine gets it: every record is in place, and retired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Whose records it writes.
    pub owner: Owner,
    /// The session of the disk that writes them.
    pub generation: Generation,
    /// How it is cut.
    pub shape: Shape,
    /// It loses what was not flushed when primary storage does, if at all: it is beside it.
    pub is_beside: bool,
    /// The version of its superblock.
    pub version: u64,
    /// All windows up to this one are retired; the next one has the next number.
    pub retired: u64,
    /// Strict order goes on as long as nothing waits longer for its turn, and less waits than a window has.
    pub patience: Nanos,
    /// Epochs of fewer pages than this on the mean are worth a journal.
    pub epoch_pages: u64,
}

impl JournalConfig {
    /// Of a journal with this superblock, beside primary storage, for a session of its disk.
    pub fn new(superblock: Superblock, generation: Generation) -> JournalConfig {
        let Superblock { owner, shape, version, retired } = superblock;
        let (patience, epoch_pages) = (PATIENCE, EPOCH_PAGES);
        let is_beside = true;
        JournalConfig {
            owner,
            generation,
            shape,
            is_beside,
            version,
            retired,
            patience,
            epoch_pages,
        }
    }
}

#[cfg(test)]
mod tests;
