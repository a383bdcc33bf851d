//! Reads a disk's log back after a restart.

use crate::geometry::ByteRange;
use crate::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use crate::log::group::RecordKind;
use crate::log::segment::SegmentInvalid;
use crate::sealed::Page;

/// Where the log's pages are read from.
pub trait LogReader {
    /// Fills `out` (whole pages) with what `segment` holds from page `page` on.
    ///
    /// # Errors
    /// The medium could not be read.
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError>;
}

/// The medium could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

/// A segment that the lease table gives to this log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasedSegment {
    /// The segment.
    pub segment: SegmentId,
    /// From its lease: the generation that it was leased under.
    pub generation: Generation,
    /// From its lease: its place in the log.
    pub ordinal: u64,
}

/// What recovery is told.
#[derive(Clone, Copy, Debug)]
pub struct RecoverInput<'a> {
    /// Whose log it is.
    pub disk: Uuid,
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// Pages of a segment.
    pub segment_pages: u32,
    /// The log's segments as leased, in any order.
    pub segments: &'a [LeasedSegment],
    /// From the progress page: records up to this one are on primary storage and were flushed there.
    pub flushed: Sequence,
    /// From the progress page: no record after this one was ever sent to primary storage.
    pub through: Sequence,
    /// From the disk record: the generation that requests were last served under.
    pub committed: Generation,
    /// From the disk record: the highest generation that anything may have been written under.
    pub pending: Generation,
    /// Header pages in the staging file, in order, when it outlived the process; empty after a loss of the host.
    pub staged: &'a [&'a Page],
}

/// Where a record's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// On flash, from this page of the segment on; for a zero record, where they would be.
    Log {
        /// The segment.
        segment: SegmentId,
        /// Its first data page, from the start of the segment.
        page: u32,
    },
    /// In the staging file: these must go into the log again.
    Staged {
        /// Index into [`RecoverInput::staged`].
        group: u32,
        /// First data page within that group.
        page: u32,
    },
}

/// A record that outlived the restart and is not known to be on primary storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredRecord {
    /// Its number; the list is in this order, without gaps.
    pub sequence: Sequence,
    /// Its epoch.
    pub epoch: FlushEpoch,
    /// What it does.
    pub kind: RecordKind,
    /// Whether the next record belongs to the same request.
    pub more: bool,
    /// The bytes of the disk.
    pub range: ByteRange,
    /// Offset of the page grid that its data pages follow.
    pub phase: u16,
    /// Where its data are.
    pub place: RecordPlace,
    /// Index of its first data page's checksum in [`RecoveredLog::checksums`]; one for each page.
    pub first_checksum: u32,
}

/// A segment of the log that holds records, in order of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveredSegment {
    /// The segment.
    pub segment: SegmentId,
    /// Its place in the log.
    pub ordinal: u64,
    /// Its first group's number.
    pub first_group: GroupNumber,
    /// The sequence that it begins with.
    pub first_sequence: Sequence,
    /// The sequence after its last record: it can be given back when all before this one are destaged.
    pub end_sequence: Sequence,
}

/// A log as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveredLog {
    /// Segments that hold records after `flushed`, in order. All other leased ones can be given back,
    /// once the new generation's first segment header is durable.
    pub segments: Vec<RecoveredSegment>,
    /// Records after `flushed`, in order.
    pub records: Vec<RecoveredRecord>,
    /// CRC32C of their data pages.
    pub checksums: Vec<u32>,
    /// What the header of the next segment says as first group.
    pub next_group: GroupNumber,
    /// What the header of the next segment says as first sequence: after the last record on flash.
    /// Staged records begin here.
    pub next_sequence: Sequence,
    /// Of the next segment: above the ordinal of every leased one.
    pub next_ordinal: u64,
    /// Higher than any epoch that was seen.
    pub next_epoch: FlushEpoch,
    /// As it was given.
    pub flushed: Sequence,
    /// As it was given.
    pub through: Sequence,
    /// For the log and `pool show`.
    pub report: RecoveryReport,
}

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Leased segments.
    pub segments_leased: u32,
    /// Those among them with a valid header.
    pub segments_valid: u32,
    /// Groups that were walked.
    pub groups: u64,
    /// Data pages that were read to see if they are whole.
    pub pages_verified: u64,
    /// Records found on flash after `flushed`.
    pub records: u64,
    /// Records taken from the staging file.
    pub records_staged: u64,
    /// Records left out because the rest of their request is missing.
    pub records_dropped: u64,
    /// Groups left out because one before them is missing or torn.
    pub groups_dropped: u64,
    /// Where and why the log ends.
    pub end: LogEnd,
}

/// Why the log ends where it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogEnd {
    /// No segment holds anything after `flushed`.
    #[default]
    Empty,
    /// No valid group follows, or there is no room for one.
    Tail {
        /// The segment.
        segment: SegmentId,
        /// The page where the next group would be.
        page: u32,
    },
    /// A group that was not durable is there, but its data are torn.
    TornData {
        /// The segment.
        segment: SegmentId,
        /// The first page with the wrong checksum.
        page: u32,
    },
    /// Groups that were not durable are missing before one that is there.
    Gap {
        /// The segment.
        segment: SegmentId,
        /// The page where the missing group would be.
        page: u32,
    },
}

/// The log must not be used as it is. Nothing of it was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The medium failed.
    #[error("cannot read segment {segment:?} page {page}: {error}")]
    Read {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: u32,
        /// What the medium said.
        error: ReadError,
    },
    /// Durable records are not there.
    #[error("")]
    Missing,
    /// Written by a newer program, or impossible although its checksum is right.
    #[error("segment {segment:?}: {why}")]
    Segment {
        /// The segment.
        segment: SegmentId,
        /// What is wrong.
        why: SegmentInvalid,
    },
}

/// Walks the log.
///
/// # Errors
/// It cannot be read, or must not be used; see [`RecoverError`].
pub fn recover(
    input: &RecoverInput<'_>,
    reader: &mut impl LogReader,
) -> Result<RecoveredLog, RecoverError> {
    let _ = (input, reader);
    todo!()
}
