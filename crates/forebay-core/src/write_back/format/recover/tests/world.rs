//! Segments in memory and a writer that keeps the protocol.

use std::collections::BTreeMap;

use super::super::*;
use crate::ids::{Generation, Uuid};
use crate::sealed::{PAGE_LEN, Page, crc32c};
use crate::write_back::format::group::{self, Entry, GroupHeader, GroupLayout, GroupView};
use crate::write_back::format::segment::SegmentHeader;
use crate::write_back::format::summary;

/// Pages of a segment.
pub const PAGES: u32 = 256;
/// Where its groups end.
pub const GROUPS_END: u32 = summary::first_page(PAGES);

pub fn write(start: u64, len: u64) -> Entry {
    let range = ByteRange::at(start, len);
    Entry { range, epoch: FlushEpoch(0), kind: RecordKind::Write, more: false }
}

pub fn zero(start: u64, len: u64) -> Entry {
    Entry { kind: RecordKind::Zero, ..write(start, len) }
}

pub fn more(entry: Entry) -> Entry {
    Entry { more: true, ..entry }
}

#[derive(Clone)]
pub struct World {
    pub disk: Uuid,
    pub disk_size: u64,
    pub segment_pages: u32,
    pub flushed: u64,
    /// The last record that an orderly end left.
    pub log_end: u64,
    pub committed: u64,
    pub generation: u64,
    pub epoch: u64,
    pub leased: Vec<LeasedSegment>,
    pub staged: Vec<Page>,
    pub accept_missing: bool,
    /// The log reached up to here when that was decided.
    pub accepted: u64,
    pub walk_all: bool,
    /// A segment that cannot be read.
    pub broken: Option<u32>,
    /// A segment whose summary cannot be read, and what is read with it.
    pub broken_summary: Option<u32>,
    /// A page of a segment that cannot be read.
    pub bad_page: Option<(u32, u32)>,
    /// Reads that failed for it.
    pub reads_failed: u32,
    /// Bytes that recovery read.
    pub bytes_read: usize,
    /// A segment beginning was claimed durable up to here.
    pub header_durable: u64,
    images: BTreeMap<u32, Vec<u8>>,
    /// Every record that was ever written, by sequence; the newest writing of a number counts.
    pub written: BTreeMap<u64, (Entry, u64)>,
    next_group: u64,
    next_sequence: u64,
    next_ordinal: u64,
    /// Segment and page where the next group goes.
    tail: (u32, u32),
    /// Where the groups of the last segment begin.
    groups: Vec<u32>,
}

impl World {
    pub fn new() -> World {
        World {
            disk: Uuid([5; 16]),
            disk_size: 1 << 40,
            segment_pages: PAGES,
            flushed: 0,
            log_end: 0,
            committed: 1,
            generation: 1,
            epoch: 10,
            leased: Vec::new(),
            staged: Vec::new(),
            accept_missing: false,
            accepted: 0,
            walk_all: false,
            broken: None,
            broken_summary: None,
            bad_page: None,
            reads_failed: 0,
            header_durable: 0,
            bytes_read: 0,
            images: BTreeMap::new(),
            written: BTreeMap::new(),
            next_group: 1,
            next_sequence: 1,
            next_ordinal: 0,
            tail: (0, 0),
            groups: Vec::new(),
        }
    }

    pub fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    pub fn tail(&self) -> (u32, u32) {
        self.tail
    }

    pub fn image(&mut self, segment: u32) -> &mut Vec<u8> {
        self.images.entry(segment).or_insert_with(|| vec![0; PAGES as usize * PAGE_LEN])
    }

    pub fn page(&mut self, segment: u32, page: u32) -> &mut Page {
        let at = page as usize * PAGE_LEN;
        (&mut self.image(segment)[at..at + PAGE_LEN]).try_into().unwrap()
    }

    /// Leases one more segment.
    pub fn lease(&mut self) -> u32 {
        let segment = SegmentId(self.leased.len() as u32);
        let generation = Generation(self.generation);
        self.leased.push(LeasedSegment { segment, generation, ordinal: self.next_ordinal });
        self.next_ordinal += 1;
        self.image(segment.0);
        segment.0
    }

    /// Leases a segment and writes its header.
    pub fn open(&mut self) {
        let segment = self.lease();
        self.open_leased(segment);
    }

    pub fn open_leased(&mut self, segment: u32) {
        let header = SegmentHeader {
            disk: self.disk,
            generation: Generation(self.generation),
            ordinal: self.leased[segment as usize].ordinal,
            first_group: GroupNumber(self.next_group),
            first_sequence: Sequence(self.next_sequence),
            durable: Sequence(self.header_durable),
            epoch: FlushEpoch(self.epoch),
            nonce: self.generation * 77,
            segment: SegmentId(segment),
            phase: 0,
        };
        header.encode(self.page(segment, 0));
        self.tail = (segment, 1);
        self.groups.clear();
    }

    /// Bytes of the summary of a segment.
    pub fn summary_len(&mut self, segment: u32) -> usize {
        let at = GROUPS_END as usize * PAGE_LEN + 76;
        u32::from_le_bytes(self.image(segment)[at..at + 4].try_into().unwrap()) as usize
    }

    /// Makes the summary of a segment one of the segment as its header is now, with a right checksum.
    pub fn reseal_summary(&mut self, segment: u32) {
        let header = SegmentHeader::decode(self.page(segment, 0)).unwrap();
        let len = self.summary_len(segment) as u32;
        let at = GROUPS_END as usize * PAGE_LEN;
        let summary = &mut self.image(segment)[at..];
        let groups = u32::from_le_bytes(summary[80..84].try_into().unwrap());
        summary::seal(summary, &(&header).into(), groups, len);
    }

    /// Writes the summary of the last segment, if there is one.
    pub fn summarize_if_open(&mut self) {
        if !self.leased.is_empty() {
            self.summarize();
        }
    }

    /// Writes the summary of the last segment.
    pub fn summarize(&mut self) {
        let (segment, _) = self.tail;
        let mut bytes = vec![0; summary::GROUPS as usize];
        for page in self.groups.clone() {
            let (page, at) = (*self.page(segment, page), bytes.len());
            let layout = GroupView::sealed(&page).unwrap().layout();
            bytes.resize(at + summary::group_bytes(layout) as usize, 0);
            summary::add_group(&mut bytes[at..], &page);
        }
        let len = bytes.len();
        bytes.resize(len.next_multiple_of(PAGE_LEN), 0);
        let header = SegmentHeader::decode(self.page(segment, 0)).unwrap();
        let count = self.groups.len() as u32;
        summary::seal(&mut bytes, &(&header).into(), count, len as u32);
        let at = GROUPS_END as usize * PAGE_LEN;
        let room = &mut self.image(segment)[at..];
        if bytes.len() <= room.len() {
            room[..bytes.len()].copy_from_slice(&bytes);
        }
    }

    pub fn change_header(&mut self, segment: u32, change: impl Fn(&mut SegmentHeader)) {
        let page = self.page(segment, 0);
        let mut header = SegmentHeader::decode(page).unwrap();
        change(&mut header);
        header.encode(page);
    }

    /// The bytes of a group of these records, data included.
    pub fn bytes(&mut self, entries: &[Entry], durable: Option<u64>) -> Vec<u8> {
        let mut layout = GroupLayout::default();
        let mut data = Vec::new();
        let mut page = [0; PAGE_LEN];
        let header = GroupHeader {
            disk: self.disk,
            generation: Generation(self.generation),
            number: GroupNumber(self.next_group),
            first_sequence: Sequence(self.next_sequence),
            durable: Sequence(0),
            nonce: self.generation * 77,
            phase: 0,
        };
        group::begin(&mut page, &header);
        for entry in entries {
            let entry = Entry { epoch: FlushEpoch(self.epoch), ..*entry };
            let pages = entry.data_pages(0) as usize;
            let sequence = self.next_sequence;
            let stamp = sequence * 1000 + self.generation;
            let bytes: Vec<u8> = (0..pages * PAGE_LEN)
                .map(|at| (stamp + at as u64 * 7 + at as u64 / 4096) as u8)
                .collect();
            let checksums: Vec<u32> = bytes.chunks(PAGE_LEN).map(crc32c).collect();
            group::append(&mut page, &entry, &checksums);
            layout.add(pages as u32);
            data.extend(bytes);
            self.written.insert(sequence, (entry, self.generation));
            self.next_sequence += 1;
        }
        if let Some(durable) = durable {
            group::seal(&mut page, Sequence(durable));
        }
        self.next_group += 1;
        [&page[..], &data].concat()
    }

    /// Writes a group at the tail, which says that records up to `durable` are so.
    pub fn group(&mut self, entries: &[Entry], durable: u64) -> (u32, u32) {
        let bytes = self.bytes(entries, Some(durable));
        self.put(&bytes)
    }

    /// Writes these bytes at the tail.
    pub fn put(&mut self, bytes: &[u8]) -> (u32, u32) {
        let (segment, page) = self.tail;
        self.groups.push(page);
        let at = page as usize * PAGE_LEN;
        self.image(segment)[at..at + bytes.len()].copy_from_slice(bytes);
        self.tail.1 += (bytes.len() / PAGE_LEN) as u32;
        (segment, page)
    }

    /// Begins a group in the staging file. Returns its bytes as they would go to flash.
    pub fn stage(&mut self, entries: &[Entry]) -> Vec<u8> {
        let bytes = self.bytes(entries, None);
        self.staged.push(bytes[..PAGE_LEN].try_into().unwrap());
        bytes
    }

    pub fn recover(&mut self) -> Result<RecoveredLog, RecoverError> {
        let staged: Vec<Page> = self.staged.clone();
        let staged: Vec<&Page> = staged.iter().collect();
        let leased = self.leased.clone();
        let input = RecoverInput {
            disk: self.disk,
            disk_size: self.disk_size,
            segment_pages: self.segment_pages,
            segments: &leased,
            flushed: Sequence(self.flushed),
            through: Sequence(self.flushed),
            durable: Sequence(self.log_end),
            committed: Generation(self.committed),
            pending: Generation(self.generation),
            staged: &staged,
            accept_missing: self.accept_missing.then_some(Sequence(self.accepted)),
            walk_all: self.walk_all,
        };
        recover(&input, self)
    }

    /// Recovers and goes on under a new generation, as the owner of the log does.
    pub fn restart(&mut self) -> RecoveredLog {
        let log = self.restart_uncommitted();
        self.committed = self.generation;
        self.log_end = 0;
        self.staged.clear();
        log
    }

    /// The same, and dies before the new generation is committed.
    pub fn restart_uncommitted(&mut self) -> RecoveredLog {
        let log = self.recover().unwrap();
        self.generation += 1;
        self.next_group = log.next_group.0;
        self.next_sequence = log.next_sequence.0;
        self.next_ordinal = log.next_ordinal;
        self.epoch = log.next_epoch.0;
        self.header_durable = self.next_sequence - 1;
        self.open();
        log
    }

    /// Every record found is one that was written, and was not replaced by a later session.
    pub fn check_records(&mut self, log: &RecoveredLog) {
        let mut next = log.records.first().map(|record| record.sequence);
        for record in &log.records {
            assert_eq!(Some(record.sequence), next);
            next = Some(record.sequence.plus(1));
            let (entry, generation) = self.written[&record.sequence.0];
            assert_eq!(
                (record.range, record.kind, record.more, record.epoch),
                (entry.range, entry.kind, entry.more, entry.epoch),
                "{record:?}"
            );
            let RecordPlace::Log { segment, page } = record.place else { continue };
            for k in 0..entry.data_pages(record.phase) as u32 {
                let data = *self.page(segment.0, page + k);
                let at = u64::from(k) * 4096;
                let stamp = record.sequence.0 * 1000 + generation;
                assert_eq!(data[0], (stamp + at * 7 + at / 4096) as u8, "{record:?}");
                assert_eq!(log.checksums[(record.first_checksum + k) as usize], crc32c(&data));
            }
        }
    }
}

impl LogReader for World {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        if self.broken == Some(segment.0) {
            return Err(ReadError("broken".into()));
        }
        let end = page + (out.len() / PAGE_LEN) as u32;
        if self.broken_summary == Some(segment.0) && end > GROUPS_END {
            return Err(ReadError("broken".into()));
        }
        if self.bad_page.is_some_and(|bad| bad.0 == segment.0 && (page..end).contains(&bad.1)) {
            self.reads_failed += 1;
            return Err(ReadError("bad sector".into()));
        }
        self.bytes_read += out.len();
        let at = page as usize * PAGE_LEN;
        out.copy_from_slice(&self.image(segment.0)[at..at + out.len()]);
        Ok(())
    }
}
