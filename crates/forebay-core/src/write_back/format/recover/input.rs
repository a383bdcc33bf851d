//! The input of recovery, and how it reads.

use super::RecoverError;
use crate::flash_pool::{SEGMENT_MAX, SEGMENT_MIN};
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Generation, SegmentId, Sequence, Uuid};
use crate::sealed::Page;
use crate::write_back::format::{COUNT_MAX, DISK_SIZE_MAX};

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

/// The input of recovery.
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
    /// From the progress page: no record after this one was ever sent to primary storage that overwrites one after `flushed`.
    pub through: Sequence,
    /// From the disk record: records up to this one were durable when the disk was left in order; 0: not known.
    pub durable: Sequence,
    /// From the disk record: the generation that requests were last served under.
    pub committed: Generation,
    /// From the disk record: the highest generation that anything may have been written under.
    pub pending: Generation,
    /// Header pages in the staging file, in order, when it outlived the process; empty after a loss of the host.
    pub staged: &'a [&'a Page],
    /// Set when an administrator has decided to go on without records that were durable or staged, and are
    /// missing: the log then ends before the first one. It has to reach up to this one all the same.
    pub accept_missing: Option<Sequence>,
    /// Read the groups of every segment, whatever its summary says.
    pub walk_all: bool,
}

impl RecoverInput<'_> {
    /// The segments in order of the log.
    ///
    /// # Errors
    /// The tables of the pool contradict themselves.
    pub(super) fn check(&self) -> Result<Vec<LeasedSegment>, RecoverError> {
        let wrong = |what| Err(RecoverError::Input(what));
        let segment_size = u64::from(self.segment_pages) * PAGE;
        if !(SEGMENT_MIN..=SEGMENT_MAX).contains(&segment_size) {
            return wrong("segment size");
        }
        if self.disk_size > DISK_SIZE_MAX {
            return wrong("disk size");
        }
        if self.flushed > self.through || self.through.0 > COUNT_MAX {
            return wrong("progress");
        }
        if self.committed > self.pending || self.pending.0 > COUNT_MAX {
            return wrong("generation");
        }
        let mut segments = self.segments.to_vec();
        segments.sort_unstable_by_key(|leased| leased.segment);
        if segments.windows(2).any(|pair| pair[0].segment == pair[1].segment) {
            return wrong("list of segments: one is there twice");
        }
        segments.sort_unstable_by_key(|leased| leased.ordinal);
        if segments.windows(2).any(|pair| pair[0].ordinal == pair[1].ordinal) {
            return wrong("lease: two segments have the same ordinal");
        }
        if segments.windows(2).any(|pair| pair[0].generation > pair[1].generation) {
            return wrong("lease: generations go backwards");
        }
        if segments.last().is_some_and(|last| last.generation > self.pending) {
            return wrong("lease: a generation from the future");
        }
        if segments.last().is_some_and(|last| last.ordinal > COUNT_MAX) {
            return wrong("lease: ordinal");
        }
        Ok(segments)
    }

    /// True when a record may lie there.
    pub(super) fn has(&self, range: ByteRange) -> bool {
        range.end <= self.disk_size
    }
}
