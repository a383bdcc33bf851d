//! CPU time of recovery against what is not destaged: logs of random 4 KiB writes, in groups of one (a client that waits
//! for each write) and of 32, found by the real recovery in a file and taken over by the real engine. Once by the summaries of
//! the segments, and, for the smallest log, by walking all groups as where there is none.
//!
//! The pages of data are holes, and so are groups that are not read. Prints a line for each log.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures time and reads a file"
)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use forebay_core::config::{BackendTraits, Config, GridOffset, Mode, WriteLogConfig};
use forebay_core::engine::Engine;
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use forebay_core::sealed::PAGE_LEN;
use forebay_core::splitmix::Rng;
use forebay_core::write_back::format::group::{self, Entry, GroupHeader, GroupView, RecordKind};
use forebay_core::write_back::format::recover::{
    LeasedSegment, LogReader, ReadError, RecoverInput, recover,
};
use forebay_core::write_back::format::reopen::Tail;
use forebay_core::write_back::format::segment::SegmentHeader;
use forebay_core::write_back::format::summary;

/// Segments of 16 MiB.
const PAGES: u32 = 4096;
const DISK: Uuid = Uuid([1; 16]);
const DISK_SIZE: u64 = 64 << 30;
const NONCE: u64 = 7;

struct Log {
    file: File,
    segments: Vec<LeasedSegment>,
    bytes_read: u64,
    reads: u64,
}

impl LogReader for Log {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        self.bytes_read += out.len() as u64;
        self.reads += 1;
        let read = self.file.read_exact_at(out, offset(segment.0, page));
        read.map_err(|error| ReadError(error.to_string()))
    }
}

fn offset(segment: u32, page: u32) -> u64 {
    (u64::from(segment) * u64::from(PAGES) + u64::from(page)) * PAGE
}

/// The summary of the segment that is being written.
struct Gathered {
    header: SegmentHeader,
    bytes: Vec<u8>,
    groups: u32,
}

impl Gathered {
    fn put(mut self, file: &File) {
        let len = self.bytes.len();
        self.bytes.resize(len.next_multiple_of(PAGE_LEN), 0);
        summary::seal(&mut self.bytes, &(&self.header).into(), self.groups, len as u32);
        let place = offset(self.header.segment.0, summary::first_page(PAGES));
        file.write_all_at(&self.bytes, place).unwrap();
    }
}

/// A log of `writes`, `each` of them in a group; only what is read of it, unless groups are to be walked.
fn write(path: &std::path::Path, writes: u64, each: u64, walk: bool) -> Log {
    let in_segment = u64::from(summary::first_page(PAGES) - 1) / (1 + each);
    let walked = if walk { 0 } else { (writes / each - 1) / in_segment };
    let mut gathered: Option<Gathered> = None;
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let mut log = Log { file, segments: Vec::new(), bytes_read: 0, reads: 0 };
    let mut random = Rng::new(1);
    let mut tail = PAGES;
    let mut page = [0; PAGE_LEN];
    for number in 0..writes / each {
        let first_sequence = Sequence(1 + number * each);
        let durable = Sequence(first_sequence.0 - 1);
        if tail + 1 + each as u32 > summary::first_page(PAGES) {
            let segment = SegmentId(log.segments.len() as u32);
            let (generation, ordinal) = (Generation(1), u64::from(segment.0));
            log.segments.push(LeasedSegment { segment, generation, ordinal });
            let header = SegmentHeader {
                disk: DISK,
                generation,
                ordinal,
                first_group: GroupNumber(number),
                first_sequence,
                durable,
                epoch: FlushEpoch(1),
                nonce: NONCE,
                segment,
                phase: 0,
            };
            if let Some(summary) = gathered.take() {
                summary.put(&log.file);
            }
            gathered =
                Some(Gathered { header, bytes: vec![0; summary::GROUPS as usize], groups: 0 });
            header.encode(&mut page);
            log.file.write_all_at(&page, offset(segment.0, 0)).unwrap();
            tail = 1;
        }
        let header = GroupHeader {
            disk: DISK,
            generation: Generation(1),
            number: GroupNumber(number),
            first_sequence,
            durable,
            nonce: NONCE,
            phase: 0,
        };
        group::begin(&mut page, &header);
        for _ in 0..each {
            let range = ByteRange::at(random.below(DISK_SIZE / PAGE) * PAGE, PAGE);
            let kind = RecordKind::Write;
            let entry = Entry { range, epoch: FlushEpoch(1), kind, more: false };
            group::append(&mut page, &entry, &[forebay_core::sealed::crc32c(&[0; PAGE_LEN])]);
        }
        group::seal(&mut page, durable);
        let segment = log.segments.len() as u32 - 1;
        if u64::from(segment) >= walked {
            log.file.write_all_at(&page, offset(segment, tail)).unwrap();
        }
        let summary = gathered.as_mut().unwrap();
        let layout = GroupView::sealed(&page).unwrap().layout();
        let at = summary.bytes.len();
        summary.bytes.resize(at + summary::group_bytes(layout) as usize, 0);
        summary::add_group(&mut summary.bytes[at..], &page);
        summary.groups += 1;
        tail += 1 + each as u32;
    }
    log.file.set_len(offset(log.segments.len() as u32, 0)).unwrap();
    log
}

/// Seconds of CPU that this process has used.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn measure(path: &std::path::Path, mib: u64, each: u64, walk: bool) {
    let writes = (mib << 20) / PAGE;
    let mut log = write(path, writes, each, walk);
    let segments = log.segments.clone();
    let input = RecoverInput {
        disk: DISK,
        disk_size: DISK_SIZE,
        segment_pages: PAGES,
        segments: &segments,
        flushed: Sequence(0),
        through: Sequence(0),
        durable: Sequence(0),
        committed: Generation(1),
        pending: Generation(2),
        staged: &[],
        accept_missing: None,
        walk_all: walk,
    };
    let (start, began) = (cpu(), Instant::now());
    let found = recover(&input, &mut log).unwrap();
    let (recovered, took) = (cpu(), began.elapsed());
    assert_eq!(found.records.len() as u64, writes / each * each);
    let traits = BackendTraits {
        size: DISK_SIZE,
        logical_block: 512,
        read_only: false,
        discard: true,
        write_zeroes: true,
        extents: false,
    };
    let count = segments.len() as u32 + 1;
    let write_log =
        WriteLogConfig { segments_found: count, ..WriteLogConfig::new(PAGES, count + 2) };
    let config = Config {
        mode: Mode::WriteBack,
        grid_offset: GridOffset::Fixed(0),
        write_log: Some(write_log),
        metadata_bytes_max: 1 << 40,
        ..Config::for_disk(traits)
    };
    let mut engine = Engine::new(config).unwrap();
    let (made, began) = (cpu(), Instant::now());
    engine.restore(&found, Tail { segment: SegmentId(count - 1), page: 1 }).unwrap();
    let (restored, took) = (cpu(), took + began.elapsed());
    let memory = found.records.len() * 56 + found.checksums.len() * 4;
    println!(
        "{mib} MiB of 4 KiB writes, {each} to a group, {}: log {} MiB, read {:.1} MiB in {}; CPU: recovery {:.2} s, \
         engine {:.2} s; wall {:.2} s; memory {} MiB",
        if walk { "walked" } else { "summaries" },
        (u64::from(count - 1) * u64::from(PAGES) * PAGE) >> 20,
        log.bytes_read as f64 / 1048576.0,
        log.reads,
        recovered - start,
        restored - made,
        took.as_secs_f64(),
        memory >> 20,
    );
}

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let path = std::env::temp_dir().join(format!("forebay-recovery-{}.log", std::process::id()));
    let sizes: &[u64] = if tiny { &[4] } else { &[256, 1024, 4096] };
    for each in [1, 32] {
        measure(&path, sizes[0], each, true);
        for &mib in sizes {
            measure(&path, mib, each, false);
        }
    }
    std::fs::remove_file(&path).unwrap();
}
