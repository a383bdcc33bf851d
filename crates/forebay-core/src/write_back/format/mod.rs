//! The write log of one disk: the bytes on flash and how they are read back. No I/O.
//!
//! ```text
//!   segment (leased from the pool)
//!   +----------------+--------------+-----------+-----------+--------------+--------+---------+
//!   | segment header | group header | data page | data page | group header | data … | summary |
//!   +----------------+--------------+-----------+-----------+--------------+--------+---------+
//!     page 0           page 1         page 2      page 3      page 4
//! ```
//! A *group* is what one write puts on flash: a header page with an entry per record, then the data. Groups
//! follow each other without gaps, and none spans two segments. A full segment gets a *summary* of its groups. [`segment`], [`group`]
//! and [`summary`] encode and decode the three; [`build`] makes them in
//! memory, [`recover`] reads them after a restart. `docs/format/log.md` has every byte, `docs/format/protocol.md`
//! argues the protocol failure by failure; what writers owe to it is repeated at the functions here.

pub mod build;
pub mod group;
pub mod index;
pub mod recover;
pub mod reopen;
pub mod segment;
pub mod summary;

use crate::geometry::{ByteRange, PAGE};

/// Data pages of a group in memory at most.
pub(crate) const GROUP_PAGES_MAX: u32 = 256;
/// Data pages that a group in memory has room for from the start, where its memory is a staging file: 128 KiB with those before.
pub const GROUP_PAGES_FIRST: u32 = 30;
/// Pages before a group's data in memory: the header of the segment and its own.
pub(crate) const GROUP_HEADER_PAGES: u32 = 2;

/// Groups that stand in memory, and so in the staging file from its start: two being written and one open.
pub const GROUPS_IN_MEMORY: usize = 3;

/// Pages that a group takes in memory. All of them together hold no more than fits into two segments.
pub fn group_memory_pages(segment_pages: u32) -> u32 {
    let data_pages = 2 * (segment_pages - GROUP_HEADER_PAGES) / GROUPS_IN_MEMORY as u32;
    GROUP_HEADER_PAGES + GROUP_PAGES_MAX.min(data_pages)
}

/// The same of those that it has room for from the start.
pub fn first_memory_pages(segment_pages: u32) -> u32 {
    group_memory_pages(segment_pages).min(GROUP_HEADER_PAGES + GROUP_PAGES_FIRST)
}

/// No record lies beyond this byte.
pub const DISK_SIZE_MAX: u64 = 1 << 62;

/// No sequence, epoch, generation, ordinal or group number is above this, so that adding to one never overflows.
pub const COUNT_MAX: u64 = 1 << 62;

/// The start of the page that `position` lies in, on a grid whose pages begin at `phase + k ×
/// 4096`. The first page of a shifted grid starts before the disk, hence signed.
pub fn page_start(position: u64, phase: u16) -> i64 {
    let shift = grid_shift(phase);
    ((position + shift) & !(PAGE - 1)) as i64 - shift as i64
}

/// Data pages that a write of `range` takes: one for each page of the grid that it touches.
pub fn data_pages(range: ByteRange, phase: u16) -> u64 {
    let start = page_start(range.start, phase);
    ((range.end as i64 - start) as u64).div_ceil(PAGE)
}

fn grid_shift(phase: u16) -> u64 {
    (PAGE - u64::from(phase)) % PAGE
}
