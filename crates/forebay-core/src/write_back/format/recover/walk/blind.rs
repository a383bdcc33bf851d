//! Segments whose header cannot be read any more, in a log that an administrator has accepted.
//!
//! Such a header has ended what came before it, and nobody knows where. What it voided must not come back: the log ends
//! before it, as far as older segments prove by themselves that they are whole.
//!
//! This holds up to the generation *committed*. A start that did not come to its end has copied records, and no older
//! segment lacks one for it.

use super::super::RecoverError;
use super::super::input::{LeasedSegment, LogReader};
use super::{Walk, Walker};
use crate::ids::{GroupNumber, Sequence};
use crate::sealed;
use crate::write_back::format::group::{self, GroupHeader, GroupView};
use crate::write_back::format::segment::SegmentHeader;

/// A segment that was written, or may have been, and has no header any more.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Blind {
    pub lease: LeasedSegment,
    /// The lowest group that is seen in it, and its first record: everything older ends before them, or earlier.
    pub first: Option<(GroupNumber, Sequence)>,
}

impl Blind {
    /// Whether one of the later headers voids it.
    fn is_void(&self, live: &[SegmentHeader]) -> bool {
        live.iter().any(|header| {
            header.ordinal > self.lease.ordinal
                && self.first.is_none_or(|(group, _)| header.first_group <= group)
        })
    }
}

impl<R: LogReader> Walker<'_, R> {
    /// Notes a lease without a header behind `before`, if it may have had one.
    pub(super) fn note_blind(
        &mut self,
        lease: &LeasedSegment,
        is_unreadable: bool,
        before: Option<&SegmentHeader>,
    ) -> Result<bool, RecoverError> {
        if self.input.accept_missing.is_none() || lease.generation > self.input.committed {
            return Ok(false);
        }
        let first = self.first_group_of(lease, before)?;
        let is_blind = is_unreadable || first.is_some();
        if is_blind {
            self.blind.push(Blind { lease: *lease, first });
        }
        Ok(is_blind)
    }

    /// The group at page 1, or else the lowest of all that are of this lease's generation. One that `before` has passed is
    /// left from an earlier lease.
    fn first_group_of(
        &mut self,
        lease: &LeasedSegment,
        before: Option<&SegmentHeader>,
    ) -> Result<Option<(GroupNumber, Sequence)>, RecoverError> {
        let disk = self.input.disk;
        let passed = before
            .filter(|before| before.generation == lease.generation)
            .map(|before| before.first_group);
        let is_ours = |group: &GroupHeader| {
            group.disk == disk
                && group.generation == lease.generation
                && passed.is_none_or(|passed| group.number > passed)
        };
        let mut first: Option<(GroupNumber, Sequence)> = None;
        for number in 1..self.groups_end() {
            let group = self.page(lease.segment, number).map(|page| {
                let is_sealed = sealed::has_seal(page, group::MAGIC);
                let group = is_sealed.then(|| GroupView::sealed(page).ok()).flatten()?;
                Some(*group.header()).filter(is_ours)
            });
            let Some(group) = self.accepted(group)?.flatten() else { continue };
            let (at, sequence) = first.unwrap_or((group.number, group.first_sequence));
            first = Some((at.min(group.number), sequence.min(group.first_sequence)));
            if number == 1 {
                break;
            }
        }
        Ok(first)
    }

    /// Forgets those that are before everything that is needed.
    pub(super) fn settle_blind(&mut self, live: &[SegmentHeader]) {
        let first = live.first().map_or(u64::MAX, |header| header.ordinal);
        self.blind.retain(|blind| blind.lease.ordinal > first);
    }

    /// The number of headers before the first such segment behind header `index`, if there is one.
    fn seen(&self, live: &[SegmentHeader], index: usize) -> Option<usize> {
        let at = live[index].ordinal;
        let blind = self.blind.iter().find(|blind| blind.lease.ordinal > at)?;
        Some(live.partition_point(|header| header.ordinal < blind.lease.ordinal))
    }

    /// Whether such a segment lies between header `index` and the one behind it.
    pub(super) fn is_last_seen(&self, live: &[SegmentHeader], index: usize) -> bool {
        self.seen(live, index) == Some(index + 1)
    }

    /// The segment that the log ends before.
    pub(in super::super) fn cut(&self, live: &[SegmentHeader]) -> Option<Blind> {
        self.blind.iter().find(|blind| !blind.is_void(live)).copied()
    }

    /// Whether the staging file may follow something that a header had voided which nobody sees any more. In one session
    /// nothing is voided, and what is destaged is whole.
    pub(in super::super) fn hides_staged(&self, live: &[SegmentHeader]) -> bool {
        let Some(blind) = self.blind.first() else { return false };
        let before = live.iter().rfind(|header| header.ordinal < blind.lease.ordinal);
        before.is_some_and(|before| before.generation != self.input.committed)
    }

    /// Up to which record each segment's groups are durable without their data being read. What lies behind a segment
    /// without a header proves nothing of what is before it.
    pub(super) fn prove(&mut self, live: &[SegmentHeader], walks: &[Option<Walk>]) {
        self.proven = (0..live.len())
            .map(|index| match self.seen(live, index) {
                Some(seen) => self.heard(&live[..seen], &walks[..seen], Sequence(0)),
                None => Sequence(u64::MAX),
            })
            .collect();
    }

    /// Records of the segment of header `index` up to this one need no look at their data.
    pub(in super::super) fn proven(&self, index: usize) -> Sequence {
        self.durable.min(self.proven[index])
    }
}
