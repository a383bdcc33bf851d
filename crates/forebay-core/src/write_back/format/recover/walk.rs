//! Reading: segment headers, summaries, groups from header to header, claims behind an end, data.

pub(super) mod blind;
mod take;

use std::ops::Range;

use blind::Blind;
use take::{take, take_summary};

use super::input::{LeasedSegment, LogReader, RecoverInput};
use super::{RecoverError, RecoveredRecord, RecoveryReport};
use crate::ids::{GroupNumber, SegmentId, Sequence};
use crate::sealed::{self, PAGE_LEN, Page, crc32c};
use crate::write_back::format::group::{self, GroupHeader, GroupView};
use crate::write_back::format::segment::{SegmentHeader, SegmentInvalid};
use crate::write_back::format::summary::{self, Summary, SummaryInvalid};

/// Pages read at once.
const WINDOW: u32 = 64;

/// Reads the log and remembers what it says of durability.
pub(super) struct Walker<'a, R> {
    input: &'a RecoverInput<'a>,
    reader: &'a mut R,
    window: Vec<u8>,
    /// The contents of `window`: segment, first page, number of pages.
    window_at: (SegmentId, u32, u32),
    /// Pages of a segment that cannot be read together, so that each is read alone.
    alone: (SegmentId, Range<u32>),
    /// A summary, and pages that the last one had.
    summary: Vec<u8>,
    summary_pages: u32,
    /// Records up to this one were durable, says some header.
    pub durable: Sequence,
    /// Leased segments without a header, void by a later one, or with nothing that is needed.
    pub unused: Vec<SegmentId>,
    /// Those among them without a header.
    unwritten: Vec<LeasedSegment>,
    /// Those whose header may be lost, in a log that was accepted.
    blind: Vec<Blind>,
    /// See [`Walker::proven`].
    proven: Vec<Sequence>,
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
    /// Records up to this one were durable, says a header in it.
    claimed: Sequence,
}

impl Walk {
    pub(super) fn new(header: &SegmentHeader) -> Walk {
        Walk {
            header: *header,
            groups: Vec::new(),
            records: Vec::new(),
            checksums: Vec::new(),
            end_page: 1,
            claimed: header.durable,
        }
    }

    /// Begins anew with another segment, in the same memory.
    fn renew(&mut self, header: &SegmentHeader) {
        let Walk { mut groups, mut records, mut checksums, .. } =
            std::mem::replace(self, Walk::new(header));
        groups.clear();
        records.clear();
        checksums.clear();
        (self.groups, self.records, self.checksums) = (groups, records, checksums);
    }
}

impl<'a, R: LogReader> Walker<'a, R> {
    pub(super) fn new(input: &'a RecoverInput<'a>, reader: &'a mut R) -> Walker<'a, R> {
        Walker {
            input,
            reader,
            window: vec![0; WINDOW as usize * PAGE_LEN],
            window_at: (SegmentId(0), 0, 0),
            alone: (SegmentId(0), 0..0),
            summary: Vec::new(),
            summary_pages: 1,
            durable: Sequence(0),
            unused: Vec::new(),
            unwritten: Vec::new(),
            blind: Vec::new(),
            proven: Vec::new(),
            report: RecoveryReport::default(),
        }
    }

    /// The headers that count, in order of the log: those that no later one voids. They begin
    /// with the last one that begins with a destaged record, or with the first one that is not
    /// destaged.
    pub(super) fn headers(
        &mut self,
        leased: &[LeasedSegment],
    ) -> Result<Vec<SegmentHeader>, RecoverError> {
        let mut live: Vec<SegmentHeader> = Vec::new();
        for lease in leased {
            let read = self.header(lease)?;
            let Some(header) = read.flatten() else {
                self.unwritten.push(*lease);
                // Where it may have had one, the next start has to see it, too, until its own header is durable.
                if !self.note_blind(lease, read.is_none(), live.last())? {
                    self.unused.push(lease.segment);
                }
                continue;
            };
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
        self.settle_blind(&live);
        Ok(live)
    }

    /// The header of a leased segment, if one was written since the lease; `None` when it cannot be read, and that was accepted.
    fn header(
        &mut self,
        lease: &LeasedSegment,
    ) -> Result<Option<Option<SegmentHeader>>, RecoverError> {
        let segment = lease.segment;
        let mut page = [0; PAGE_LEN];
        let read = self.reader.read(segment, 0, &mut page);
        let read = read.map_err(|error| RecoverError::Read { segment, page: 0, error });
        if self.accepted(read)?.is_none() {
            return Ok(None);
        }
        // Otherwise it is what an earlier lease left, or a guest whose cache the segment had.
        if !SegmentHeader::is_of(&page, self.input.disk, lease) {
            return Ok(Some(None));
        }
        match SegmentHeader::decode(&page) {
            Ok(header) => Ok(Some(Some(header))),
            Err(SegmentInvalid::Absent) => Ok(Some(None)),
            Err(why) => Err(RecoverError::Segment { segment, why }),
        }
    }

    /// Walks the segments whose groups no later one claims, all of them, to be durable; `None` for the others, whose
    /// summaries will do. From the last one on, because claims come from behind.
    pub(super) fn walk(
        &mut self,
        live: &[SegmentHeader],
    ) -> Result<Vec<Option<Walk>>, RecoverError> {
        let mut walks: Vec<Option<Walk>> = live.iter().map(|_| None).collect();
        let mut claimed = Sequence(0);
        for (index, header) in live.iter().enumerate().rev() {
            let next = live.get(index + 1);
            if self.is_last_seen(live, index) {
                claimed = Sequence(0);
            }
            let is_claimed = next.is_some_and(|next| claimed.plus(1) >= next.first_sequence);
            if !is_claimed || self.input.walk_all {
                let mut walk = Walk::new(header);
                self.walk_segment(&mut walk, next.map(|next| next.first_group))?;
                claimed = claimed.max(walk.claimed);
                walks[index] = Some(walk);
            }
            claimed = claimed.max(header.durable);
        }
        self.durable = self.heard(live, &walks, self.input.durable);
        self.prove(live, &walks);
        Ok(walks)
    }

    /// The claims, in order of the log. The claim of an orderly end comes after all of its
    /// session's segments. It comes before the segments of the starts behind it.
    fn heard(&self, live: &[SegmentHeader], walks: &[Option<Walk>], noted: Sequence) -> Sequence {
        let mut durable = Sequence(0);
        let ended = live.partition_point(|header| header.generation <= self.input.committed);
        for (index, header) in live.iter().enumerate() {
            if index == ended {
                durable = durable.max(noted);
            }
            if index == ended || index > 0 && live[index - 1].generation < header.generation {
                // What a restart left out, incomplete requests, is void whatever was claimed of it.
                durable = durable.min(Sequence(header.first_sequence.0 - 1));
            }
            let claimed = walks[index].as_ref().map_or(header.durable, |walk| walk.claimed);
            durable = durable.max(claimed);
        }
        if ended == live.len() {
            durable = durable.max(noted);
        }
        durable
    }

    /// The contents of a segment before `next`, all claimed: from its summary, or by a walk.
    pub(super) fn read_back(
        &mut self,
        header: &SegmentHeader,
        next: &SegmentHeader,
        walk: &mut Walk,
    ) -> Result<(), RecoverError> {
        walk.renew(header);
        match self.summarized(walk, next) {
            Ok(()) => {
                self.report.segments_summarized += 1;
                self.report.groups += walk.groups.len() as u64;
                return Ok(());
            }
            Err(SummaryInvalid::Absent) => {}
            Err(SummaryInvalid::Damaged) => self.report.summaries_damaged += 1,
            Err(SummaryInvalid::Unreadable) => self.report.summaries_unreadable += 1,
        }
        walk.renew(header);
        self.walk_segment(walk, Some(next.first_group))
    }

    /// Takes over from the summary of a segment what its groups before `next` hold.
    fn summarized(&mut self, walk: &mut Walk, next: &SegmentHeader) -> Result<(), SummaryInvalid> {
        let input = self.input;
        let bytes = self.summary(&walk.header)?;
        take_summary(input, walk, Summary::decode(bytes, &walk.header)?, next)
    }

    /// The bytes of a segment's summary, as far as there is one.
    fn summary(&mut self, header: &SegmentHeader) -> Result<&[u8], SummaryInvalid> {
        let (segment, pages) = (header.segment, self.input.segment_pages);
        let (first, max) = (summary::first_page(pages), summary::pages(pages));
        self.summary.resize(max as usize * PAGE_LEN, 0);
        // As long as the one before, as a rule.
        let mut count = self.summary_pages.clamp(1, max);
        self.read_summary(segment, first, 0..count)?;
        if let Ok(len) = summary::length(&self.summary, header) {
            self.summary_pages = len.div_ceil(PAGE_LEN as u32).clamp(1, max);
            if self.summary_pages > count {
                self.read_summary(segment, first, count..self.summary_pages)?;
                count = self.summary_pages;
            }
        }
        Ok(&self.summary[..count as usize * PAGE_LEN])
    }

    fn read_summary(
        &mut self,
        segment: SegmentId,
        first: u32,
        pages: Range<u32>,
    ) -> Result<(), SummaryInvalid> {
        let page = first + pages.start;
        let out = &mut self.summary[pages.start as usize * PAGE_LEN..pages.end as usize * PAGE_LEN];
        self.reader.read(segment, page, out).map_err(|_| SummaryInvalid::Unreadable)
    }

    /// Walks one segment as far as groups follow each other, at most to group `stop`; where it ends before, the
    /// rest is searched for claims.
    fn walk_segment(
        &mut self,
        walk: &mut Walk,
        stop: Option<GroupNumber>,
    ) -> Result<(), RecoverError> {
        let header = walk.header;
        let mut number = header.first_group;
        let mut sequence = header.first_sequence;
        while walk.end_page < self.groups_end() && Some(number) != stop {
            let page = self.page(header.segment, walk.end_page).copied();
            let Some(page) = self.accepted(page)? else { break };
            let is_next = sealed::has_seal(&page, group::MAGIC)
                && is_of(&header, &GroupHeader::read(&page))
                && GroupHeader::read(&page).number == number;
            if !is_next {
                break;
            }
            let at = walk.end_page;
            let data = self.check_data(header.segment, at, &page);
            if self.accepted(data)?.is_none() {
                break;
            }
            let layout = take(self.input, walk, &page, sequence)
                .map_err(|why| RecoverError::Group { segment: header.segment, page: at, why })?;
            walk.claimed = walk.claimed.max(GroupHeader::read(&page).durable);
            sequence = sequence.plus(u64::from(layout.entries));
            number.0 += 1;
        }
        self.report.groups += walk.groups.len() as u64;
        if Some(number) != stop {
            let from = walk.end_page + 1;
            let claimed = self.search(header.segment, from, |group| {
                is_of(&header, group) && group.number > number
            })?;
            walk.claimed = walk.claimed.max(claimed);
        }
        Ok(())
    }

    /// Searches leased segments without a valid header for claims: a header may have rotted.
    /// Claims of older generations than the last one do not matter: an administrator may have
    /// overruled it. Those of the last one have its nonce: a guest may have written what looks like a
    /// group, when the segment was its cache.
    pub(super) fn search_unwritten(&mut self, live: &[SegmentHeader]) -> Result<(), RecoverError> {
        let last = live.last();
        for lease in std::mem::take(&mut self.unwritten) {
            if last.is_some_and(|last| lease.generation < last.generation) {
                continue;
            }
            let disk = self.input.disk;
            let same = last.filter(|last| lease.generation == last.generation);
            let claimed = self.search(lease.segment, 1, |group| match same {
                Some(header) => is_of(header, group),
                None => group.disk == disk && group.generation == lease.generation,
            })?;
            self.durable = self.durable.max(claimed);
        }
        Ok(())
    }

    /// The highest claim of all groups from page `from` on that are `ours`.
    fn search(
        &mut self,
        segment: SegmentId,
        from: u32,
        ours: impl Fn(&GroupHeader) -> bool,
    ) -> Result<Sequence, RecoverError> {
        let mut claimed = Sequence(0);
        for number in from..self.groups_end() {
            let claim = self.page(segment, number).map(|page| {
                let is_sealed = sealed::has_seal(page, group::MAGIC);
                let group = is_sealed.then(|| GroupView::sealed(page).ok()).flatten()?;
                Some(*group.header()).filter(&ours).map(|group| group.durable)
            });
            claimed = claimed.max(self.accepted(claim)?.flatten().unwrap_or_default());
        }
        Ok(claimed)
    }

    /// The first data page of `group` whose checksum is wrong.
    pub(super) fn torn_page(
        &mut self,
        walk: &Walk,
        group: &WalkedGroup,
    ) -> Result<Option<u32>, RecoverError> {
        for index in 0..group.data_pages {
            let number = group.page + 1 + index;
            let page = self.page(walk.header.segment, number).map(|page| crc32c(page));
            let expected = walk.checksums[group.first_checksum + index as usize];
            let is_whole = self.accepted(page)? == Some(expected);
            self.report.pages_verified += 1;
            if !is_whole {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// The page of a segment where its groups end.
    fn groups_end(&self) -> u32 {
        summary::first_page(self.input.segment_pages)
    }

    /// Fails when data of the group whose header is at page `at` cannot be read. That is asked of pages near one that could not
    /// be: elsewhere a walk does not look at data.
    fn check_data(&mut self, segment: SegmentId, at: u32, page: &Page) -> Result<(), RecoverError> {
        let (suspect, alone) = self.alone.clone();
        let Ok(group) = GroupView::sealed(page) else { return Ok(()) };
        if suspect != segment {
            return Ok(());
        }
        let end = at.saturating_add(group.layout().pages());
        for number in alone.start.max(at)..alone.end.min(end) {
            self.page(segment, number)?;
        }
        Ok(())
    }

    /// What was read; `None` where that failed and an administrator has accepted that the log ends there.
    fn accepted<T>(&self, read: Result<T, RecoverError>) -> Result<Option<T>, RecoverError> {
        match read {
            Err(RecoverError::Read { .. }) if self.input.accept_missing.is_some() => Ok(None),
            read => read.map(Some),
        }
    }

    /// A page, read with those that follow it when it is not at hand. Where they cannot be read together, each is read alone: one
    /// that nobody asks for may be bad.
    fn page(&mut self, segment: SegmentId, page: u32) -> Result<&Page, RecoverError> {
        let (at, first, count) = self.window_at;
        let is_here = at == segment && (first..first + count).contains(&page);
        if !is_here {
            let is_alone = self.alone.0 == segment && self.alone.1.contains(&page);
            let count = if is_alone { 1 } else { WINDOW.min(self.groups_end() - page) };
            // Whatever a failed read leaves is not to be taken for a page.
            self.window_at = (segment, page, 0);
            let out = &mut self.window[..count as usize * PAGE_LEN];
            match self.reader.read(segment, page, out) {
                Ok(()) => self.window_at = (segment, page, count),
                Err(error) if count == 1 => {
                    return Err(RecoverError::Read { segment, page, error });
                }
                Err(_) => {
                    self.alone = (segment, page..page + count);
                    return self.page(segment, page);
                }
            }
        }
        let at = (page - self.window_at.1) as usize * PAGE_LEN;
        Ok(self.window[at..at + PAGE_LEN].try_into().expect("a page"))
    }
}

/// True when `group` was written into the segment of `header`, or into another one of its session.
fn is_of(header: &SegmentHeader, group: &GroupHeader) -> bool {
    group.disk == header.disk
        && group.generation == header.generation
        && group.nonce == header.nonce
}
