//! Joining: which of the groups that were walked are the log, and what the staging file adds.

use super::input::{LeasedSegment, LogReader, RecoverInput};
use super::walk::{Walk, WalkedGroup, Walker};
use super::{LogEnd, RecordPlace, RecoverError, RecoveredLog, RecoveredRecord, RecoveredSegment};
use crate::ids::{FlushEpoch, GroupNumber, SegmentId, Sequence};
use crate::write_back::format::group::{GroupInvalid, GroupView};
use crate::write_back::format::segment::{SegmentHeader, SegmentInvalid};

/// Joins the walks, in order, and the staged groups to a log.
pub(super) fn chain<R: LogReader>(
    input: &RecoverInput<'_>,
    leased: &[LeasedSegment],
    walker: &mut Walker<'_, R>,
    headers: &[SegmentHeader],
    walks: Vec<Option<Walk>>,
) -> Result<RecoveredLog, RecoverError> {
    let first = headers.first();
    let mut chain = Chain {
        log: RecoveredLog {
            next_group: first.map(|header| header.first_group).unwrap_or(GroupNumber(1)),
            next_sequence: input.flushed.plus(1),
            next_ordinal: leased.last().map_or(0, |last| last.ordinal + 1),
            flushed: input.flushed,
            through: input.through,
            ..RecoveredLog::default()
        },
        input,
        joined: 0,
        groups: 0,
        position: leased.first().map_or((SegmentId(0), 0), |lease| (lease.segment, 0)),
        found: None,
    };
    // Not more than segments hold, whatever their headers say.
    let last = headers.last().map_or(0, |last| last.first_sequence.0);
    let pages = headers.len() as u64 * u64::from(input.segment_pages);
    let expected = last.saturating_sub(chain.log.next_sequence.0).min(pages) as usize;
    chain.log.records.reserve(expected);
    chain.log.checksums.reserve(expected);
    let end = chain.join(walker, headers, walks)?;
    if let Some((group, first)) = walker.cut(headers).and_then(|cut| cut.first) {
        chain.end_before(first);
        chain.log.next_group = chain.log.next_group.min(group);
    }
    chain.check_missing(walker.durable)?;
    let Chain { mut log, joined, groups, .. } = chain;
    log.next_sequence = log.next_sequence.max(input.flushed.plus(1));
    let mut report = std::mem::take(&mut walker.report);
    report.records = log.records.len() as u64;
    report.groups_dropped = report.groups - groups;
    report.end = end;
    log.report = report;
    log.unused = std::mem::take(&mut walker.unused);
    let is_after_dead_start = headers.last().is_some_and(|last| last.generation > input.committed);
    let hides_staged = walker.hides_staged(headers);
    let (next, staged) = add_staged(input, &mut log, is_after_dead_start, hides_staged)?;
    drop_incomplete(&mut log);
    let newest = walker.durable.max(staged);
    if newest >= next {
        // Half a request before the hole is lost with the rest of it.
        let used = log.records.last().map_or(input.flushed, |last| last.sequence);
        log.report.records_lost = newest.0 - used.0;
    }
    for header in headers[..joined].iter().rev() {
        // A segment that holds nothing but what was left out is void, and its group numbers are free.
        if header.first_sequence < log.next_sequence {
            break;
        }
        log.next_group = header.first_group;
    }
    let epochs = headers.iter().map(|header| header.epoch);
    let epoch = epochs.chain(log.records.last().map(|record| record.epoch)).max();
    log.next_epoch = FlushEpoch(epoch.map_or(1, |epoch| epoch.0 + 1));
    log.segments = segments(&log, &headers[..joined]);
    Ok(log)
}

struct Chain<'a> {
    input: &'a RecoverInput<'a>,
    log: RecoveredLog,
    /// Walks and groups that belong to the log.
    joined: usize,
    groups: u64,
    /// Where the next group would be, for errors.
    position: (SegmentId, u32),
    /// The sequence of the first record that is there after a gap.
    found: Option<Sequence>,
}

impl Chain<'_> {
    fn join<R: LogReader>(
        &mut self,
        walker: &mut Walker<'_, R>,
        headers: &[SegmentHeader],
        mut walks: Vec<Option<Walk>>,
    ) -> Result<LogEnd, RecoverError> {
        let mut end = LogEnd::Empty;
        let mut before = None;
        // Walks one after the other, in the same memory.
        let mut spare = headers.first().map(Walk::new);
        let cut = walker.cut(headers);
        let cut_ordinal = cut.map_or(u64::MAX, |cut| cut.lease.ordinal);
        let first_cut = cut.and_then(|cut| cut.first);
        let cut_group = first_cut.map_or(GroupNumber(u64::MAX), |first| first.0);
        for (index, header) in headers.iter().enumerate() {
            let segment = header.segment;
            let is_cut = header.ordinal > cut_ordinal || header.first_group >= cut_group;
            if is_cut || !self.follows(header, before) {
                self.found = Some(header.first_sequence);
                return Ok(LogEnd::Gap { segment });
            }
            self.begin(header, before)?;
            let walked = walks[index].take();
            let walk = match &walked {
                Some(walk) => walk,
                None => {
                    let spare = spare.as_mut().expect("there is a header");
                    walker.read_back(header, &headers[index + 1], spare)?;
                    spare
                }
            };
            for (number, group) in walk.groups.iter().enumerate() {
                if self.log.next_group >= cut_group {
                    break;
                }
                let needed = self.input.flushed.max(walker.proven(index)).plus(1);
                if group.end_sequence > needed
                    && let Some(page) = walker.torn_page(walk, group)?
                {
                    self.position.1 = group.page;
                    return Ok(LogEnd::TornData { segment, page });
                }
                let end =
                    walk.groups.get(number + 1).map_or(walk.records.len(), |g| g.first_record);
                self.add(walk, group, end)?;
            }
            end = LogEnd::Tail { segment, page: walk.end_page };
            before = Some(header);
        }
        Ok(end)
    }

    /// Whether nothing is missing before the segment.
    fn follows(&self, header: &SegmentHeader, before: Option<&SegmentHeader>) -> bool {
        match before {
            None => header.first_sequence <= self.input.flushed.plus(1),
            Some(_) => header.first_group == self.log.next_group,
        }
    }

    /// Goes on with the segment of `header`, which ends what came before it.
    fn begin(
        &mut self,
        header: &SegmentHeader,
        before: Option<&SegmentHeader>,
    ) -> Result<(), RecoverError> {
        let first = header.first_sequence;
        if let Some(before) = before {
            let is_same = before.generation == header.generation;
            if first > self.log.next_sequence || is_same && first < self.log.next_sequence {
                let why = SegmentInvalid::Field("first sequence");
                return Err(RecoverError::Segment { segment: header.segment, why });
            }
        }
        self.end_before(first);
        self.log.next_group = header.first_group;
        self.log.next_sequence = first;
        self.position = (header.segment, 1);
        self.joined += 1;
        Ok(())
    }

    /// Leaves out the records from this one on.
    fn end_before(&mut self, first: Sequence) {
        while let Some(last) = self.log.records.last()
            && last.sequence >= first
        {
            self.log.checksums.truncate(last.first_checksum as usize);
            self.log.records.pop();
        }
        self.log.next_sequence = self.log.next_sequence.min(first);
    }

    /// Takes a group in, whose records are those up to `end` of the walk.
    fn add(&mut self, walk: &Walk, group: &WalkedGroup, end: usize) -> Result<(), RecoverError> {
        let moved = |record: &RecoveredRecord, base: usize| RecoveredRecord {
            first_checksum: (record.first_checksum as usize - group.first_checksum + base) as u32,
            ..*record
        };
        let base = self.log.checksums.len();
        for record in &walk.records[group.first_record..end] {
            if self.log.records.last().is_some_and(|last| last.epoch > record.epoch) {
                let why = GroupInvalid::Field("epoch of an entry");
                let segment = walk.header.segment;
                return Err(RecoverError::Group { segment, page: group.page, why });
            }
            self.log.records.push(moved(record, base));
        }
        if group.end_sequence > self.input.flushed.plus(1) {
            let checksums = &walk.checksums[group.first_checksum..];
            self.log.checksums.extend_from_slice(&checksums[..group.data_pages as usize]);
        }
        self.log.next_group.0 += 1;
        self.log.next_sequence = group.end_sequence;
        self.position.1 = group.page + 1 + group.data_pages;
        self.groups += 1;
        Ok(())
    }

    /// Fails when records that are needed were durable and are not in the log.
    fn check_missing(&self, durable: Sequence) -> Result<(), RecoverError> {
        let expected = self.log.next_sequence.max(self.input.flushed.plus(1));
        // A decision was about what was there then: a flash that reads worse by now needs another one.
        let durable = self.input.accept_missing.unwrap_or(durable);
        if durable < expected {
            return Ok(());
        }
        let (segment, page) = self.position;
        Err(RecoverError::Missing { segment, page, expected, found: self.found, durable })
    }
}

/// Adds what stands in the staging file and did not reach the log. A start that died has left half a request out of the
/// log: the parts of it that are staged have nothing to follow any more. Nor has what is behind a hole, or is hidden by one that nobody sees. Returns the sequence
/// after what there is now, and the highest one that is staged.
fn add_staged(
    input: &RecoverInput<'_>,
    log: &mut RecoveredLog,
    is_after_dead_start: bool,
    hides_staged: bool,
) -> Result<(Sequence, Sequence), RecoverError> {
    let (mut next, mut newest) = (log.next_sequence, Sequence(0));
    for (index, page) in input.staged.iter().enumerate() {
        let group = index as u32;
        let wrong = |why| RecoverError::Staged { group, why };
        let view = match GroupView::staged(page) {
            Ok(view) => view,
            Err(GroupInvalid::Absent) => continue,
            Err(why) => return Err(wrong(why)),
        };
        let header = view.header();
        if header.disk != input.disk || header.generation != input.committed {
            log.report.groups_stale += 1;
            continue;
        }
        let base = log.checksums.len() as u32;
        let count = log.records.len();
        let known = next;
        for (sequence, page, entry) in view.entries().skip_while(|(at, ..)| *at < known) {
            if sequence > next && entry.more && is_after_dead_start {
                log.report.records_dropped += 1;
                continue;
            }
            newest = sequence;
            if hides_staged {
                continue;
            }
            if sequence > next && input.accept_missing.is_some() {
                continue;
            }
            if sequence > next {
                return Err(RecoverError::StagedGap { expected: next, found: sequence });
            }
            if log.records.last().is_some_and(|last| last.epoch > entry.epoch) {
                return Err(wrong(GroupInvalid::Field("epoch of an entry")));
            }
            if !input.has(entry.range) {
                return Err(wrong(GroupInvalid::Field("range of an entry")));
            }
            log.records.push(RecoveredRecord {
                sequence,
                epoch: entry.epoch,
                kind: entry.kind,
                more: entry.more,
                range: entry.range,
                phase: header.phase,
                place: RecordPlace::Staged { group, page },
                first_checksum: base + page,
            });
            next = next.plus(1);
        }
        if log.records.len() > count {
            log.checksums.extend((0..view.layout().data_pages).map(|index| view.checksum(index)));
        }
        log.report.records_staged += (log.records.len() - count) as u64;
    }
    Ok((next, newest))
}

/// Leaves out the beginning of a request whose rest is in neither place.
fn drop_incomplete(log: &mut RecoveredLog) {
    while let Some(last) = log.records.last()
        && last.more
    {
        log.next_sequence = log.next_sequence.min(last.sequence);
        log.checksums.truncate(last.first_checksum as usize);
        log.records.pop();
        log.report.records_dropped += 1;
    }
}

/// The segments that hold records of the log.
fn segments(log: &RecoveredLog, headers: &[SegmentHeader]) -> Vec<RecoveredSegment> {
    let mut end = log.next_sequence;
    let mut segments = Vec::new();
    for header in headers.iter().rev() {
        let first = header.first_sequence;
        if end > first.max(log.flushed.plus(1)) {
            segments.push(RecoveredSegment {
                segment: header.segment,
                ordinal: header.ordinal,
                first_group: header.first_group,
                first_sequence: first,
                end_sequence: end,
            });
        }
        end = end.min(first);
    }
    segments.reverse();
    segments
}
