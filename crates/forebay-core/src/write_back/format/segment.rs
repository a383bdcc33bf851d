//! The header of a log segment: page 0.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBLOGSEG` |
//! | 8 | 4 | CRC32C of the page |
//! | 12 | 2 | version, 1 |
//! | 14 | 2 | phase: offset of the disk's page grid, a multiple of 512 below 4096 |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | generation |
//! | 40 | 8 | ordinal: orders the log's segments |
//! | 48 | 8 | number of the first group |
//! | 56 | 8 | sequence of the first record |
//! | 64 | 8 | durable: records up to this sequence were durable when this was written; they may be in this segment |
//! | 72 | 8 | flush epoch that was current |
//! | 80 | 8 | nonce: random, the same in all segments and groups of a session |
//! | 88 | 4 | number of the segment itself |
//! | 92 | … | zero |
//!
//! The header also ends what came before it: in all segments of lower ordinal, groups from
//! `first_group` and records from `first_sequence` on are void. The nonce never leaves the flash.
//! So a guest cannot forge a group for another guest's log. (It could write bytes that look like
//! one, and hope that they lie behind the end of that log.)
//!
//! Every version has the magic, the checksum, the disk, the generation, the ordinal and the segment's number where they
//! are here. So a program knows of a header that it cannot read whether it is one of the log.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::COUNT_MAX;
use super::recover::LeasedSegment;
use crate::geometry::{PAGE, SECTOR};
use crate::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use crate::sealed::{self, Page};

/// First bytes of a segment header.
pub const MAGIC: &[u8; 8] = b"FBLOGSEG";
/// The version that this code reads and writes, of segments and of the groups in them.
pub const VERSION: u16 = 1;

/// A segment's description of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Whose log it is.
    pub disk: Uuid,
    /// Under which it was leased; the same in all its groups.
    pub generation: Generation,
    /// Later segments have higher ones; as in its lease.
    pub ordinal: u64,
    /// Number of the group at page 1.
    pub first_group: GroupNumber,
    /// Sequence of that group's first record.
    pub first_sequence: Sequence,
    /// Records up to this one were known to be durable.
    pub durable: Sequence,
    /// The current flush epoch, so that epochs never go back even when no record is left.
    pub epoch: FlushEpoch,
    /// Random, one for a whole session. The same in all groups of its segments.
    pub nonce: u64,
    /// Where it was written.
    pub segment: SegmentId,
    /// Offset of the disk's page grid.
    pub phase: u16,
}

/// Why page 0 of a segment is not a header of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SegmentInvalid {
    /// No magic, or a wrong checksum: never written, torn or rotten.
    #[error("there is no valid segment header")]
    Absent,
    /// Sealed, but of another version.
    #[error("the segment has version {0}, this program reads version {VERSION}")]
    Version(u16),
    /// Sealed, but with a field that cannot be.
    #[error("the segment header has an impossible {0}")]
    Field(&'static str),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    version: U16,
    phase: U16,
    disk: [u8; 16],
    generation: U64,
    ordinal: U64,
    first_group: U64,
    first_sequence: U64,
    durable: U64,
    epoch: U64,
    nonce: U64,
    segment: U32,
}

const _: () = assert!(size_of::<Raw>() == 92);

impl SegmentHeader {
    /// The page to write at the start of the segment.
    ///
    /// It may be written once the segment's lease and everything that [`SegmentHeader::durable`] claims
    /// are durable. When it opens a new generation, everything before `first_sequence` must be durable. Where it is
    /// written after groups of its own, and replaces older segments, so must be those groups (`format/reopen.rs`).
    pub fn encode(&self, page: &mut Page) {
        let raw = Raw {
            magic: *MAGIC,
            checksum: U32::ZERO,
            version: VERSION.into(),
            phase: self.phase.into(),
            disk: self.disk.0,
            generation: self.generation.0.into(),
            ordinal: self.ordinal.into(),
            first_group: self.first_group.0.into(),
            first_sequence: self.first_sequence.0.into(),
            durable: self.durable.0.into(),
            epoch: self.epoch.0.into(),
            nonce: self.nonce.into(),
            segment: self.segment.0.into(),
        };
        page.fill(0);
        sealed::put_record(page, &raw);
        sealed::seal(page);
    }

    /// Whether page 0 says that it is of this log and lease, in whatever version.
    pub fn is_of(page: &Page, disk: Uuid, lease: &LeasedSegment) -> bool {
        let (raw, _) = sealed::record::<Raw>(page);
        raw.disk == disk.0
            && raw.generation == lease.generation.0
            && raw.ordinal == lease.ordinal
            && raw.segment == lease.segment.0
    }

    /// Reads page 0 of a segment.
    ///
    /// # Errors
    /// It is not a header, or not one that this program understands.
    pub fn decode(page: &Page) -> Result<SegmentHeader, SegmentInvalid> {
        if !sealed::has_seal(page, MAGIC) {
            return Err(SegmentInvalid::Absent);
        }
        let (raw, _) = sealed::record::<Raw>(page);
        if raw.version != VERSION {
            return Err(SegmentInvalid::Version(raw.version.get()));
        }
        let header = SegmentHeader {
            disk: Uuid(raw.disk),
            generation: Generation(raw.generation.get()),
            ordinal: raw.ordinal.get(),
            first_group: GroupNumber(raw.first_group.get()),
            first_sequence: Sequence(raw.first_sequence.get()),
            durable: Sequence(raw.durable.get()),
            epoch: FlushEpoch(raw.epoch.get()),
            nonce: raw.nonce.get(),
            segment: SegmentId(raw.segment.get()),
            phase: raw.phase.get(),
        };
        let impossible = |what| Err(SegmentInvalid::Field(what));
        match header {
            _ if !phase_is_sane(header.phase) => impossible("phase"),
            _ if !(1..=COUNT_MAX).contains(&header.first_sequence.0) => {
                impossible("first sequence")
            }
            _ if header.first_group.0 > COUNT_MAX => impossible("first group"),
            _ if header.epoch.0 > COUNT_MAX => impossible("epoch"),
            _ if header.durable.0 > COUNT_MAX => impossible("durable sequence"),
            _ => Ok(header),
        }
    }
}

pub(super) fn phase_is_sane(phase: u16) -> bool {
    u64::from(phase) < PAGE && u64::from(phase).is_multiple_of(SECTOR)
}

#[cfg(test)]
mod tests;
