//! The fresh segments in which a log goes on after a restart. Staged records and a short end of
//! the log are written into them again.
//!
//! ```text
//!  found:    | long segment | short | short | + staged records
//!  fresh:                   | the records of both, packed, and the staged ones | the log goes on here ...
//!  order:     groups ─► flush ─► header ─► flush (the next fresh segment only then)
//! ```
//! The header makes a fresh segment count, and voids the segments that it replaces. Before it is
//! durable, recovery finds what it found before. Afterwards it finds the same records here.
//! Groups get new numbers, records keep their sequences and epochs.
//!
//! **Invariants**
//! - A restart adds one segment, or three where the staging file holds more than fits into one.
//!   It takes none when the end of the log fits into half of one. Of the segments that restarts
//!   leave behind, two neighbours hold more than a quarter of a segment together. So the log is
//!   bounded by its records, however often it is opened.
//! - Unused segments ([`RecoveredLog::unused`]) go back before a segment is leased. So restarts
//!   that are cut off take no more than one that ends.

use std::ops::Range;

use super::data_pages;
use super::group::{self, Entry, GroupHeader, GroupLayout, RecordKind};
use super::recover::{RecordPlace, RecoveredLog, RecoveredRecord, RecoveredSegment};
use super::segment::SegmentHeader;
use super::summary;
use crate::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use crate::sealed::Page;

/// The segments to write, in order. There is always one: the log goes on in the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reopening {
    /// What is to be written.
    pub segments: Vec<FreshSegment>,
    /// Segments of the log before these, which stay.
    kept: usize,
}

/// A segment to write: its groups, flush, its header, flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshSegment {
    /// Its groups, from page 1 on.
    pub groups: Vec<FreshGroup>,
    /// Its next free page.
    pub end_page: u32,
    first_group: GroupNumber,
    first_sequence: Sequence,
    /// After its last record.
    end_sequence: Sequence,
}

/// A group to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshGroup {
    /// Where its header page goes.
    pub page: u32,
    /// Its records, as indices into [`RecoveredLog::records`]; their data follow the header page in this order.
    pub records: Range<usize>,
    number: GroupNumber,
    layout: GroupLayout,
}

/// Under which name segments are written.
#[derive(Clone, Copy, Debug)]
pub struct Session {
    /// Whose log it is.
    pub disk: Uuid,
    /// The new generation.
    pub generation: Generation,
    /// Its nonce.
    pub nonce: u64,
    /// Offset of the page grid for what follows.
    pub phase: u16,
}

/// Where the log goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The segment.
    pub segment: SegmentId,
    /// Its next free page.
    pub page: u32,
}

impl RecoveredRecord {
    /// Pages of data that it has.
    pub fn data_pages(&self) -> u32 {
        match self.kind {
            RecordKind::Write => data_pages(self.range, self.phase) as u32,
            RecordKind::Zero => 0,
        }
    }

    fn is_staged(&self) -> bool {
        matches!(self.place, RecordPlace::Staged { .. })
    }
}

/// The writes after which the log can go on. Nothing of the staging file is needed any more. The
/// end of the log, as far as it fits into half a segment, is in one piece.
pub fn reopen(found: &RecoveredLog, segment_pages: u32) -> Reopening {
    let groups_end = summary::first_page(segment_pages);
    let flash = found.records.partition_point(|record| !record.is_staged());
    let mut kept = found.segments.len();
    let mut first_group = found.next_group;
    let mut start = flash;
    let (mut pages, mut bytes) = (0, 0);
    for (index, segment) in found.segments.iter().enumerate().rev() {
        let first = found.records.partition_point(|r| r.sequence < segment.first_sequence);
        for record in &found.records[first..start] {
            pages += record.data_pages();
            bytes += group::record_bytes(record.data_pages());
        }
        if pages + group::headers_max(bytes) > (segment_pages - 1) / 2 {
            break;
        }
        (kept, start, first_group) = (index, first, segment.first_group);
    }
    let first_sequence = found.records.get(start).map_or(found.next_sequence, |r| r.sequence);
    let first = FreshSegment::begin(first_group, first_sequence);
    let mut packer = Packer { groups_end, done: Vec::new(), last: first, number: first_group };
    for (index, record) in found.records.iter().enumerate().skip(start) {
        let phase = found.records[index.saturating_sub(1)].phase;
        packer.add(index, record, phase);
    }
    packer.done.push(packer.last);
    Reopening { segments: packer.done, kept }
}

/// Fills groups, and segments with them.
struct Packer {
    /// The page of a segment where its groups end.
    groups_end: u32,
    done: Vec<FreshSegment>,
    last: FreshSegment,
    /// Of the next group.
    number: GroupNumber,
}

impl FreshSegment {
    fn begin(first_group: GroupNumber, first_sequence: Sequence) -> FreshSegment {
        FreshSegment {
            groups: Vec::new(),
            end_page: 1,
            first_group,
            first_sequence,
            end_sequence: first_sequence,
        }
    }
}

impl Packer {
    /// Adds the record with this index, before which one with `phase` was added.
    fn add(&mut self, index: usize, record: &RecoveredRecord, phase: u16) {
        let pages = record.data_pages();
        let segment = &mut self.last;
        let room = self.groups_end - segment.end_page;
        if let Some(group) = segment.groups.last_mut()
            && record.phase == phase
            && group.layout.fits(1, pages)
            && pages <= room
        {
            group.layout.add(pages);
            group.records.end = index + 1;
            segment.end_page += pages;
            segment.end_sequence = record.sequence.plus(1);
            return;
        }
        if pages + 1 > room {
            let next = FreshSegment::begin(self.number, record.sequence);
            self.done.push(std::mem::replace(&mut self.last, next));
        }
        let segment = &mut self.last;
        let mut layout = GroupLayout::default();
        layout.add(pages);
        let (page, number) = (segment.end_page, self.number);
        segment.groups.push(FreshGroup { page, records: index..index + 1, number, layout });
        segment.end_page += 1 + pages;
        segment.end_sequence = record.sequence.plus(1);
        assert!(segment.end_page <= self.groups_end, "{record:?} is larger than a segment");
        self.number.0 += 1;
    }
}

impl FreshSegment {
    /// The page to write first in the segment, when its groups are durable, and everything before them.
    pub fn header(
        &self,
        session: &Session,
        (segment, ordinal): (SegmentId, u64),
        epoch: FlushEpoch,
    ) -> SegmentHeader {
        SegmentHeader {
            disk: session.disk,
            generation: session.generation,
            ordinal,
            first_group: self.first_group,
            first_sequence: self.first_sequence,
            durable: Sequence(self.end_sequence.0 - 1),
            epoch,
            nonce: session.nonce,
            segment,
            phase: session.phase,
        }
    }
}

impl FreshGroup {
    /// Pages that the group takes, its header included.
    pub fn pages(&self) -> u32 {
        self.layout.pages()
    }

    /// Its header page.
    pub fn encode(&self, found: &RecoveredLog, session: &Session, out: &mut Page) {
        let records = &found.records[self.records.clone()];
        let first_sequence = records[0].sequence;
        // It may be heard without the segment's header: of what is not in the log it claims nothing.
        let durable = Sequence(first_sequence.min(found.next_sequence).0 - 1);
        let header = GroupHeader {
            disk: session.disk,
            generation: session.generation,
            number: self.number,
            first_sequence,
            durable,
            nonce: session.nonce,
            phase: records[0].phase,
        };
        group::begin(out, &header);
        for record in records {
            let entry = Entry {
                range: record.range,
                epoch: record.epoch,
                kind: record.kind,
                more: record.more,
            };
            let first = record.first_checksum as usize;
            let count = record.data_pages() as usize;
            group::append(out, &entry, &found.checksums[first..first + count]);
        }
        group::seal(out, durable);
    }
}

impl Reopening {
    /// The log as it is when all is written to these segments, and where it goes on.
    pub fn apply(&self, found: &mut RecoveredLog, places: &[(SegmentId, u64)]) -> Tail {
        assert_eq!(places.len(), self.segments.len());
        found.segments.truncate(self.kept);
        for (fresh, &(segment, ordinal)) in self.segments.iter().zip(places) {
            for group in &fresh.groups {
                let mut page = group.page + 1;
                for record in &mut found.records[group.records.clone()] {
                    record.place = RecordPlace::Log { segment, page };
                    page += record.data_pages();
                }
            }
            if !fresh.groups.is_empty() {
                found.segments.push(RecoveredSegment {
                    segment,
                    ordinal,
                    first_group: fresh.first_group,
                    first_sequence: fresh.first_sequence,
                    end_sequence: fresh.end_sequence,
                });
            }
            found.next_group = GroupNumber(fresh.first_group.0 + fresh.groups.len() as u64);
            found.next_sequence = fresh.end_sequence;
            found.next_ordinal = ordinal + 1;
        }
        let mut pairs = self.segments.iter().zip(places);
        let (last, &(segment, _)) = pairs.next_back().expect("a reopening has a segment");
        Tail { segment, page: last.end_page }
    }
}

#[cfg(test)]
mod tests;
