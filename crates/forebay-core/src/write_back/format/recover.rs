//! Reads a disk's log back after a restart.
//!
//! ```text
//!   headers of all leased segments ──► those that count, in order ──► from the last one back: walk, group by group, until a
//!      later header claims that what is before was durable ──► highest claim "durable up to"
//!      ──► chain: summaries, walked groups, cut at gaps and torn data ──► staged groups ──► result
//! ```
//! Rules, argued in `docs/format/protocol.md`:
//! - A segment counts when its header says what its lease says. A header voids, in all segments before it, the groups and
//!   records from its own first ones on.
//! - A group counts when its header page is whole and has the disk, generation and nonce of its segment and the number that is
//!   next. Groups after the highest claim of durability have their data verified too.
//! - The log ends at the first group that does not count. When a claim says that records beyond
//!   were durable, that is an error instead ([`RecoverError::Missing`]). Groups behind a broken
//!   one may have such claims, so recovery searches the rest of the segment.
//! - A page that cannot be read, and a hole before the staged groups, are errors, too. An administrator
//!   may accept each of them: the log ends there, and nothing behind it is used.
//! - A segment's summary stands for its groups only where a header behind it claims them. The
//!   claim says that all of them, up to the first one of the next segment, were durable. A walk
//!   would find the same; it is done where the summary is missing or damaged.
//! - A request of which a part is missing at the end is left out.
//!
//! A summary is a hundredth of its segment; a walk reads all of it, in pieces of 256 KiB. The time grows with the records that are
//! not destaged yet. Memory is bounded by the segments given. Bytes that contradict
//! themselves under a right checksum are an error, never a shorter log.

mod chain;
mod input;
mod walk;

#[cfg(test)]
mod tests;

pub use input::{LeasedSegment, LogReader, ReadError, RecoverInput};

use crate::geometry::ByteRange;
use crate::ids::{FlushEpoch, GroupNumber, SegmentId, Sequence};
use crate::write_back::format::group::{GroupInvalid, RecordKind};
use crate::write_back::format::segment::SegmentInvalid;

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

// What docs/format/protocol.md says of memory.
const _: () = assert!(size_of::<RecoveredRecord>() == 56);

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
    /// Leased segments that nothing depends on, not even what is void: they can be given back at once.
    pub unused: Vec<SegmentId>,
    /// Records after `flushed`, in order.
    pub records: Vec<RecoveredRecord>,
    /// CRC32C of their data pages.
    pub checksums: Vec<u32>,
    /// The first group, in the header of the next segment.
    pub next_group: GroupNumber,
    /// The first sequence, in the header of the next segment: after the last record on flash.
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

impl RecoveredLog {
    /// True when the run before may have sent to primary storage what is not in the log any more: a part of a write that was
    /// never acknowledged, what was accepted as lost, or what a log that had failed kept in memory. A guest may read it. So it
    /// has to be flushed before the log goes on: from then on the log does not tell.
    pub fn lacks_what_was_sent(&self) -> bool {
        let is_short = self.report.records_dropped + self.report.records_lost > 0;
        is_short || self.lacks_what_was_acknowledged()
    }

    /// True when primary storage alone may have what was acknowledged: a log that had failed kept it in memory.
    pub fn lacks_what_was_acknowledged(&self) -> bool {
        self.through >= self.next_sequence
    }
}

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments whose summary was enough.
    pub segments_summarized: u32,
    /// Segments that were walked because their summary is torn or rotten.
    pub summaries_damaged: u32,
    /// Segments that were walked because their summary cannot be read.
    pub summaries_unreadable: u32,
    /// Groups that were walked, or found in a summary.
    pub groups: u64,
    /// Data pages that were read to see if they are whole.
    pub pages_verified: u64,
    /// Records found on flash after `flushed`.
    pub records: u64,
    /// Records taken from the staging file.
    pub records_staged: u64,
    /// Staged groups left out because they are of a session before the last one.
    pub groups_stale: u64,
    /// Records left out because the rest of their request is missing.
    pub records_dropped: u64,
    /// Records that were durable or staged, and are missing or behind one that is: only where that was accepted.
    pub records_lost: u64,
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
    /// Groups that were not durable are missing before this segment.
    Gap {
        /// The first segment that is left out.
        segment: SegmentId,
    },
}

/// The log must not be used as it is. Nothing of it was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoverError {
    /// The pool's tables contradict themselves.
    #[error("the tables of the pool have an impossible {0}")]
    Input(&'static str),
    /// The medium failed.
    #[error("cannot read segment {} page {page}: {error}", segment.0)]
    Read {
        /// The segment.
        segment: SegmentId,
        /// The page.
        page: u32,
        /// What the medium said.
        error: ReadError,
    },
    /// Of a version that this program does not read, or impossible although its checksum is right.
    #[error("segment {}: {why}", segment.0)]
    Segment {
        /// The segment.
        segment: SegmentId,
        /// What is wrong.
        why: SegmentInvalid,
    },
    /// Impossible although its checksum is right.
    #[error("segment {} page {page}: {why}", segment.0)]
    Group {
        /// The segment.
        segment: SegmentId,
        /// The page of the group's header.
        page: u32,
        /// What is wrong.
        why: GroupInvalid,
    },
    /// Records that were durable and are not on primary storage are not there.
    #[error(
        "records are missing: expected {} at segment {} page {page}, found {}; \
         records up to {} were durable", expected.0, segment.0, Found(*found), durable.0
    )]
    Missing {
        /// Where they would begin.
        segment: SegmentId,
        /// The page there.
        page: u32,
        /// The first one that is missing.
        expected: Sequence,
        /// The next one that is there, if any.
        found: Option<Sequence>,
        /// All up to this one were durable once.
        durable: Sequence,
    },
    /// A group in the staging file is impossible.
    #[error("group {group} of the staging file: {why}")]
    Staged {
        /// Index into the groups given.
        group: u32,
        /// What is wrong.
        why: GroupInvalid,
    },
    /// Records between log and staging file are missing, although Forebay acknowledges none before it is in either.
    #[error("records {} to {} are neither in the log nor in the staging file", expected.0, found.0 - 1)]
    StagedGap {
        /// The first one that is missing.
        expected: Sequence,
        /// The first one in the staging file after it.
        found: Sequence,
    },
}

struct Found(Option<Sequence>);

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(sequence) => write!(f, "{}", sequence.0),
            None => f.write_str("none after it"),
        }
    }
}

/// Reads the log.
///
/// # Errors
/// It cannot be read, or must not be used; see [`RecoverError`].
pub fn recover(
    input: &RecoverInput<'_>,
    reader: &mut impl LogReader,
) -> Result<RecoveredLog, RecoverError> {
    let leased = input.check()?;
    let mut walker = walk::Walker::new(input, reader);
    let segments = walker.headers(&leased)?;
    let walks = walker.walk(&segments)?;
    walker.search_unwritten(&segments)?;
    chain::chain(input, &leased, &mut walker, &segments, walks)
}
