//! Reading: segment headers, groups from header to header, claims behind an end, data.

use super::input::{LeasedSegment, LogReader, RecoverInput};
use super::{RecordPlace, RecoverError, RecoveredRecord, RecoveryReport};
use crate::ids::{GroupNumber, SegmentId, Sequence};
use crate::log::group::{self, GroupHeader, GroupInvalid, GroupLayout, GroupView};
use crate::log::segment::{SegmentHeader, SegmentInvalid};
use crate::sealed::{self, PAGE_LEN, Page, crc32c};

/// Pages read at once.
const WINDOW: u32 = 64;

/// Reads the log and remembers what it says of durability.
pub(super) struct Walker<'a, R> {
    input: &'a RecoverInput<'a>,
    reader: &'a mut R,
    window: Vec<u8>,
    /// What is in `window`: segment, first page, number of pages.
    window_at: (SegmentId, u32, u32),
    /// Records up to this one were durable, says some header.
    pub durable: Sequence,
    /// Leased segments without a header, void by a later one, or with nothing that is needed.
    pub unused: Vec<SegmentId>,
    /// Those among them without a header.
    unwritten: Vec<LeasedSegment>,
    pub report: RecoveryReport,
}

/// A group whose header is valid.
pub(super) struct WalkedGroup {
    pub page: u32,
    /// The sequence after its last record.
    pub end_sequence: Sequence,
    pub data_pages: u32,
    /// Index of its first record in [`Walk::records`]; they reach to the next group's.
    pub first_record: usize,
    /// Index of its first checksum in [`Walk::checksums`], where there is one for each data page.
    pub first_checksum: usize,
}

const _: () = assert!(size_of::<WalkedGroup>() == 32);

/// What one segment holds. Of groups that are not needed only the numbers are kept.
pub(super) struct Walk {
    pub header: SegmentHeader,
    pub groups: Vec<WalkedGroup>,
    pub records: Vec<RecoveredRecord>,
    pub checksums: Vec<u32>,
    /// The page where the walk ended.
    pub end_page: u32,
}

impl<'a, R: LogReader> Walker<'a, R> {
    pub(super) fn new(input: &'a RecoverInput<'a>, reader: &'a mut R) -> Walker<'a, R> {
        Walker {
            input,
            reader,
            window: vec![0; WINDOW as usize * PAGE_LEN],
            window_at: (SegmentId(0), 0, 0),
            durable: Sequence(0),
            unused: Vec::new(),
            unwritten: Vec::new(),
            report: RecoveryReport::default(),
        }
    }

    /// The headers that count, in order of the log: those not void by a later one, from the last one on that
    /// begins with a record that is destaged or the first that is not.
    pub(super) fn headers(
        &mut self,
        leased: &[LeasedSegment],
    ) -> Result<Vec<SegmentHeader>, RecoverError> {
        self.report.segments_leased = leased.len() as u32;
        let mut live: Vec<SegmentHeader> = Vec::new();
        for lease in leased {
            let Some(header) = self.header(lease)? else {
                self.unused.push(lease.segment);
                self.unwritten.push(*lease);
                continue;
            };
            self.report.segments_valid += 1;
            while let Some(last) = live.last()
                && last.first_group >= header.first_group
            {
                if last.generation == header.generation && last.first_group > header.first_group {
                    let why = SegmentInvalid::Field("first group: it goes back");
                    return Err(RecoverError::Segment { segment: lease.segment, why });
                }
                self.unused.push(last.segment);
                live.pop();
            }
            live.push(header);
        }
        let wanted = self.input.flushed.plus(1);
        let start = live.iter().rposition(|header| header.first_sequence <= wanted).unwrap_or(0);
        self.unused.extend(live.drain(..start).map(|header| header.segment));
        Ok(live)
    }

    /// The header of a leased segment; `None` when none was written since the lease.
    fn header(&mut self, lease: &LeasedSegment) -> Result<Option<SegmentHeader>, RecoverError> {
        let segment = lease.segment;
        let mut page = [0; PAGE_LEN];
        self.reader.read(segment, 0, &mut page).map_err(|error| RecoverError::Read {
            segment,
            page: 0,
            error,
        })?;
        match SegmentHeader::decode(&page) {
            Ok(header) => {
                // Otherwise it is what an earlier lease left.
                let is_this = header.disk == self.input.disk
                    && header.generation == lease.generation
                    && header.ordinal == lease.ordinal
                    && header.segment == segment;
                Ok(is_this.then_some(header))
            }
            Err(SegmentInvalid::Absent) => Ok(None),
            Err(why) => Err(RecoverError::Segment { segment, why }),
        }
    }

    /// Walks the groups of all segments.
    pub(super) fn walk(&mut self, live: &[SegmentHeader]) -> Result<Vec<Walk>, RecoverError> {
        let mut walks = Vec::with_capacity(live.len());
        for (index, header) in live.iter().enumerate() {
            if index > 0 && live[index - 1].generation < header.generation {
                // What a restart left out, incomplete requests, is void whatever was claimed of it.
                self.durable = self.durable.min(Sequence(header.first_sequence.0 - 1));
            }
            self.durable = self.durable.max(header.durable);
            let stop = live.get(index + 1).map(|next| next.first_group);
            walks.push(self.walk_segment(header, stop)?);
        }
        Ok(walks)
    }

    /// Walks one segment as far as groups follow each other, at most to group `stop`; where it ends before, the
    /// rest is searched for claims.
    fn walk_segment(
        &mut self,
        header: &SegmentHeader,
        stop: Option<GroupNumber>,
    ) -> Result<Walk, RecoverError> {
        let mut walk = Walk {
            header: *header,
            groups: Vec::new(),
            records: Vec::new(),
            checksums: Vec::new(),
            end_page: 1,
        };
        let mut number = header.first_group;
        let mut sequence = header.first_sequence;
        while walk.end_page < self.input.segment_pages && Some(number) != stop {
            let page = *self.page(header.segment, walk.end_page)?;
            let is_next = sealed::has_seal(&page, group::MAGIC)
                && is_of(header, &GroupHeader::read(&page))
                && GroupHeader::read(&page).number == number;
            if !is_next {
                break;
            }
            let at = walk.end_page;
            let layout = take(self.input, &mut walk, &page, sequence)
                .map_err(|why| RecoverError::Group { segment: header.segment, page: at, why })?;
            self.durable = self.durable.max(GroupHeader::read(&page).durable);
            sequence = sequence.plus(u64::from(layout.entries));
            number.0 += 1;
        }
        self.report.groups += walk.groups.len() as u64;
        if Some(number) != stop {
            let from = walk.end_page + 1;
            self.search(header.segment, from, |group| {
                is_of(header, group) && group.number > number
            })?;
        }
        Ok(walk)
    }

    /// Searches leased segments without a valid header for claims: a header may have rotted. What older
    /// generations than the last one claim is not asked for: an administrator may have overruled it.
    pub(super) fn search_unwritten(&mut self, live: &[SegmentHeader]) -> Result<(), RecoverError> {
        let last = live.last().map(|header| header.generation);
        for lease in std::mem::take(&mut self.unwritten) {
            if last.is_some_and(|last| lease.generation < last) {
                continue;
            }
            let disk = self.input.disk;
            self.search(lease.segment, 1, |group| {
                group.disk == disk && group.generation == lease.generation
            })?;
        }
        Ok(())
    }

    /// Hears the claims of all groups from page `from` on that are `ours`.
    fn search(
        &mut self,
        segment: SegmentId,
        from: u32,
        ours: impl Fn(&GroupHeader) -> bool,
    ) -> Result<(), RecoverError> {
        for number in from..self.input.segment_pages {
            self.report.pages_searched += 1;
            let page = self.page(segment, number)?;
            if !sealed::has_seal(page, group::MAGIC) {
                continue;
            }
            let Ok(group) = GroupView::sealed(page) else { continue };
            let group = *group.header();
            if ours(&group) {
                self.durable = self.durable.max(group.durable);
            }
        }
        Ok(())
    }

    /// The first data page of `group` whose checksum is wrong.
    pub(super) fn torn_page(
        &mut self,
        walk: &Walk,
        group: &WalkedGroup,
    ) -> Result<Option<u32>, RecoverError> {
        for index in 0..group.data_pages {
            let number = group.page + 1 + index;
            let page = self.page(walk.header.segment, number)?;
            let expected = walk.checksums[group.first_checksum + index as usize];
            let is_whole = crc32c(page) == expected;
            self.report.pages_verified += 1;
            if !is_whole {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// A page, read with those that follow it when it is not at hand.
    fn page(&mut self, segment: SegmentId, page: u32) -> Result<&Page, RecoverError> {
        let (at, first, count) = self.window_at;
        let is_here = at == segment && (first..first + count).contains(&page);
        if !is_here {
            let count = WINDOW.min(self.input.segment_pages - page);
            // Whatever a failed read leaves is not to be taken for a page.
            self.window_at = (segment, page, 0);
            let out = &mut self.window[..count as usize * PAGE_LEN];
            self.reader.read(segment, page, out).map_err(|error| RecoverError::Read {
                segment,
                page,
                error,
            })?;
            self.window_at = (segment, page, count);
        }
        let at = (page - self.window_at.1) as usize * PAGE_LEN;
        Ok(self.window[at..at + PAGE_LEN].try_into().expect("a page"))
    }
}

/// True when `group` was written into the segment of `header`.
fn is_of(header: &SegmentHeader, group: &GroupHeader) -> bool {
    group.disk == header.disk
        && group.generation == header.generation
        && group.nonce == header.nonce
}

/// Adds the group whose header is `page` to the walk; its first record must be `sequence`.
fn take(
    input: &RecoverInput<'_>,
    walk: &mut Walk,
    page: &Page,
    sequence: Sequence,
) -> Result<GroupLayout, GroupInvalid> {
    let view = GroupView::sealed(page)?;
    let layout = view.layout();
    if view.header().first_sequence != sequence {
        return Err(GroupInvalid::Field("first sequence"));
    }
    if layout.pages() > input.segment_pages - walk.end_page {
        return Err(GroupInvalid::Field("length"));
    }
    let end_sequence = sequence.plus(u64::from(layout.entries));
    let first_checksum = walk.checksums.len();
    walk.groups.push(WalkedGroup {
        page: walk.end_page,
        end_sequence,
        data_pages: layout.data_pages,
        first_record: walk.records.len(),
        first_checksum,
    });
    if end_sequence > input.flushed.plus(1) {
        walk.checksums.extend((0..layout.data_pages).map(|index| view.checksum(index)));
    }
    for (sequence, first_page, entry) in view.entries() {
        if sequence <= input.flushed {
            continue;
        }
        if !input.has(entry.range) {
            return Err(GroupInvalid::Field("range of an entry: beyond the disk's end"));
        }
        walk.records.push(RecoveredRecord {
            sequence,
            epoch: entry.epoch,
            kind: entry.kind,
            more: entry.more,
            range: entry.range,
            phase: view.header().phase,
            place: RecordPlace::Log {
                segment: walk.header.segment,
                page: walk.end_page + 1 + first_page,
            },
            first_checksum: first_checksum as u32 + first_page,
        });
    }
    walk.end_page += layout.pages();
    Ok(layout)
}
