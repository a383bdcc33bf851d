//! The summary of a log segment: what its groups hold, so that recovery reads none of them.
//!
//! ```text
//!   +----------------+-------------------------------------------+----------+---------------------+
//!   | segment header | groups …                                  | (unused) | summary … | (unused)|
//!   +----------------+-------------------------------------------+----------+---------------------+
//!     page 0           page 1                                                 page [`first_page`]
//! ```
//! It is gathered in memory as groups are sealed, and written when the segment is full. One checksum is over all of it, so that
//! a torn one is none. Whether it may be believed is not in it: its groups may not have been durable. See `recover.rs`.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBLOGSUM` |
//! | 8 | 4 | CRC32C of the summary, from its magic to its last group |
//! | 12 | 2 | version, 1 |
//! | 14 | 2 | zero |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | generation, as in the segment header |
//! | 40 | 8 | ordinal, as there |
//! | 48 | 8 | number of the first group, as there |
//! | 56 | 8 | sequence of the first record, as there |
//! | 64 | 8 | nonce, as there |
//! | 72 | 4 | number of the segment itself |
//! | 76 | 4 | bytes of the summary, these included |
//! | 80 | 4 | groups |
//! | 84 | 12 | zero |
//! | 96 | … | groups |
//!
//! A group, in the order of the segment and without gaps, so that numbers, sequences and pages follow from those before:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 2 | entries |
//! | 2 | 2 | data pages |
//! | 4 | 2 | phase of the page grid |
//! | 6 | 2 | zero |
//! | 8 | 32 each | entries, as in the group's header |
//! | … | 4 each | CRC32C of the data pages, in order |

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::group::{self, DATA_PAGES_MAX, ENTRIES_MAX, Entry, GroupLayout, RawEntry};
use super::segment::{SegmentHeader, phase_is_sane};
use crate::geometry::PAGE;
use crate::ids::{Generation, GroupNumber, SegmentId, Sequence, Uuid};
use crate::sealed::{self, CHECKSUM, Page, checksum};

/// First bytes of a summary.
pub const MAGIC: &[u8; 8] = b"FBLOGSUM";
/// The version that this code reads and writes.
const VERSION: u16 = 1;
/// Where its groups begin.
pub const GROUPS: u32 = 96;
/// Bytes of a group besides its entries and checksums.
const FRAME: u32 = 8;

/// Pages kept for the summary at the end of a segment of `segment_pages`: one of a hundred.
pub const fn pages(segment_pages: u32) -> u32 {
    segment_pages.div_ceil(100)
}

/// Its first page; groups end before it.
pub const fn first_page(segment_pages: u32) -> u32 {
    segment_pages - pages(segment_pages)
}

/// Bytes that a group takes in a summary.
pub const fn group_bytes(layout: GroupLayout) -> u32 {
    FRAME + layout.entries * size_of::<RawEntry>() as u32 + layout.data_pages * 4
}

/// The least that a group with a record takes.
pub const GROUP_BYTES_MIN: u32 = group_bytes(GroupLayout { entries: 1, data_pages: 1 });

/// Writes the group whose header is `page` to `out`, which is as long as [`group_bytes`] says.
///
/// # Panics
/// When it is not.
pub fn add_group(out: &mut [u8], page: &Page) {
    let (entries, data_pages, phase) = group::parts(page);
    let layout =
        GroupLayout { entries: entries.len() as u32, data_pages: u32::from(data_pages.get()) };
    assert_eq!(out.len(), group_bytes(layout) as usize, "{layout:?}");
    let raw =
        RawGroup { entries: (entries.len() as u16).into(), data_pages, phase, zero: U16::ZERO };
    sealed::put_record(out, &raw);
    let (to, checksums) = out[size_of::<RawGroup>()..].split_at_mut(size_of_val(entries));
    to.copy_from_slice(entries.as_bytes());
    for (index, to) in checksums.chunks_exact_mut(4).enumerate() {
        to.copy_from_slice(&group::checksum_of(page, index).to_le_bytes());
    }
}

/// Which segment it is: as its header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summarized {
    /// Whose log it is.
    pub disk: Uuid,
    /// The run of the disk that wrote it.
    pub generation: Generation,
    /// Its place in the log.
    pub ordinal: u64,
    /// Its first group.
    pub first_group: GroupNumber,
    /// That group's first record.
    pub first_sequence: Sequence,
    /// The random number of the session.
    pub nonce: u64,
    /// The segment.
    pub segment: SegmentId,
}

impl From<&SegmentHeader> for Summarized {
    fn from(header: &SegmentHeader) -> Summarized {
        Summarized {
            disk: header.disk,
            generation: header.generation,
            ordinal: header.ordinal,
            first_group: header.first_group,
            first_sequence: header.first_sequence,
            nonce: header.nonce,
            segment: header.segment,
        }
    }
}

/// Completes the summary of a segment with `groups` groups, which take all between its own header and `bytes`; what is
/// behind is zeroed.
pub fn seal(out: &mut [u8], segment: &Summarized, groups: u32, bytes: u32) {
    let raw = RawSummary { groups: groups.into(), bytes: bytes.into(), ..RawSummary::of(segment) };
    sealed::put_record(out, &raw);
    out[bytes as usize..].fill(0);
    let checksum = checksum(&out[..bytes as usize]);
    out[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// Makes the checksum of a summary right, whatever it says, if it says how long it is.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn reseal(out: &mut [u8]) {
    let (raw, _) = sealed::record::<RawSummary>(out);
    let len = raw.bytes.get() as usize;
    if (GROUPS as usize..=out.len()).contains(&len) {
        let checksum = checksum(&out[..len]);
        out[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// Why there is no summary of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryInvalid {
    /// None was written since the segment was begun.
    Absent,
    /// Torn, rotten, or impossible.
    Damaged,
    /// Flash does not read it.
    Unreadable,
}

/// Bytes of the summary of the segment of `header`, whose first page is `page`.
///
/// # Errors
/// There is none, or none that can be.
pub fn length(page: &[u8], header: &SegmentHeader) -> Result<u32, SummaryInvalid> {
    let (raw, _) = sealed::record::<RawSummary>(page);
    let expected = RawSummary {
        checksum: raw.checksum,
        bytes: raw.bytes,
        groups: raw.groups,
        ..RawSummary::of(&header.into())
    };
    if raw.as_bytes() != expected.as_bytes() {
        return Err(SummaryInvalid::Absent);
    }
    Ok(raw.bytes.get())
}

/// A summary whose checksum is right, and whose segment is the one that was expected.
#[derive(Clone, Copy, Debug)]
pub struct Summary<'a> {
    groups: u32,
    rest: &'a [u8],
}

/// A group in a summary.
#[derive(Clone, Copy, Debug)]
pub struct SummaryGroup<'a> {
    /// Its entries and data pages.
    pub layout: GroupLayout,
    /// Offset of the page grid.
    pub phase: u16,
    entries: &'a [RawEntry],
    checksums: &'a [U32],
}

impl<'a> Summary<'a> {
    /// Reads the summary of the segment of `header`.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn decode(bytes: &'a [u8], header: &SegmentHeader) -> Result<Summary<'a>, SummaryInvalid> {
        let len = length(bytes, header)? as usize;
        if len < GROUPS as usize || len > bytes.len() {
            return Err(SummaryInvalid::Damaged);
        }
        let bytes = &bytes[..len];
        let (raw, rest) = sealed::record::<RawSummary>(bytes);
        if raw.checksum != checksum(bytes) {
            return Err(SummaryInvalid::Damaged);
        }
        Ok(Summary { groups: raw.groups.get(), rest })
    }

    /// Groups that it has.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Takes the next group off.
    ///
    /// # Errors
    /// It has no more, or one that cannot be.
    pub fn next_group(&mut self) -> Result<SummaryGroup<'a>, SummaryInvalid> {
        let wrong = SummaryInvalid::Damaged;
        let (raw, rest) = RawGroup::ref_from_prefix(self.rest).map_err(|_| wrong)?;
        let layout = GroupLayout {
            entries: raw.entries.get().into(),
            data_pages: raw.data_pages.get().into(),
        };
        let is_sane = (1..=ENTRIES_MAX).contains(&layout.entries)
            && layout.data_pages <= DATA_PAGES_MAX
            && GroupLayout::default().fits(layout.entries, layout.data_pages)
            && phase_is_sane(raw.phase.get());
        if !is_sane {
            return Err(wrong);
        }
        let (entries, rest) =
            <[RawEntry]>::ref_from_prefix_with_elems(rest, layout.entries as usize)
                .map_err(|_| wrong)?;
        let (checksums, rest) =
            <[U32]>::ref_from_prefix_with_elems(rest, layout.data_pages as usize)
                .map_err(|_| wrong)?;
        self.rest = rest;
        Ok(SummaryGroup { layout, phase: raw.phase.get(), entries, checksums })
    }
}

impl<'a> SummaryGroup<'a> {
    /// Its records in order, each with its first data page in the group; `None` in place of one that cannot be.
    pub fn entries(&self) -> impl Iterator<Item = Option<(u32, Entry)>> + use<'a> {
        let SummaryGroup { layout, phase, entries, .. } = *self;
        let mut pages = 0;
        entries.iter().map(move |raw| {
            let entry = raw.decode().ok()?;
            let first = pages;
            let count = entry.data_pages(phase);
            if u32::from(raw.first_page()) != first || count > u64::from(layout.data_pages - first)
            {
                return None;
            }
            pages += count as u32;
            Some((first, entry))
        })
    }

    /// CRC32C of its data pages.
    pub fn checksums(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.checksums.iter().map(|checksum| checksum.get())
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSummary {
    magic: [u8; 8],
    checksum: U32,
    version: U16,
    zero: U16,
    disk: [u8; 16],
    generation: U64,
    ordinal: U64,
    first_group: U64,
    first_sequence: U64,
    nonce: U64,
    segment: U32,
    bytes: U32,
    groups: U32,
    zeroes: [u8; 12],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGroup {
    entries: U16,
    data_pages: U16,
    phase: U16,
    zero: U16,
}

const _: () = assert!(size_of::<RawSummary>() == GROUPS as usize);
const _: () = assert!(size_of::<RawGroup>() == FRAME as usize);

impl RawSummary {
    /// The part of its segment's header that a summary has.
    fn of(header: &Summarized) -> RawSummary {
        RawSummary {
            magic: *MAGIC,
            checksum: U32::ZERO,
            version: VERSION.into(),
            zero: U16::ZERO,
            disk: header.disk.0,
            generation: header.generation.0.into(),
            ordinal: header.ordinal.into(),
            first_group: header.first_group.0.into(),
            first_sequence: header.first_sequence.0.into(),
            nonce: header.nonce.into(),
            segment: header.segment.0.into(),
            bytes: U32::ZERO,
            groups: U32::ZERO,
            zeroes: [0; 12],
        }
    }
}

/// A segment of any size has room for the summary of groups that fill it with writes of single pages.
const fn has_room(segment_pages: u32) -> bool {
    let groups = first_page(segment_pages) as u64 - 1;
    // A page of header makes room for more than a frame takes.
    let needed = GROUPS as u64 + groups * (size_of::<RawEntry>() as u64 + 4);
    needed <= pages(segment_pages) as u64 * PAGE
}

const _: () = assert!(has_room(16) && has_room(100) && has_room(4096) && has_room(1 << 18));

#[cfg(test)]
mod tests;
