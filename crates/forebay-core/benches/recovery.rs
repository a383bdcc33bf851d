//! CPU time of recovery against what is not destaged: logs of random 4 KiB writes, in groups of one (a client that waits
//! for each write) and of 32, found by the real recovery in a file and taken over by the real engine.
//!
//! The pages of data are holes: recovery passes them by, or copies them with what it reads at once. Prints a line for each log.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it measures time and reads a file"
)]

use std::fs::File;
use std::os::unix::fs::FileExt;

use forebay_core::config::{BackendTraits, Config, GridOffset, Mode, WriteLogConfig};
use forebay_core::engine::Engine;
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{FlushEpoch, Generation, GroupNumber, SegmentId, Sequence, Uuid};
use forebay_core::log::group::{self, Entry, GroupHeader, RecordKind};
use forebay_core::log::recover::{LeasedSegment, LogReader, ReadError, RecoverInput, recover};
use forebay_core::log::reopen::Tail;
use forebay_core::log::segment::SegmentHeader;
use forebay_core::sealed::PAGE_LEN;

/// Segments of 16 MiB.
const PAGES: u32 = 4096;
const DISK: Uuid = Uuid([1; 16]);
const DISK_SIZE: u64 = 64 << 30;
const NONCE: u64 = 7;

struct Log {
    file: File,
    segments: Vec<LeasedSegment>,
    bytes_read: u64,
}

impl LogReader for Log {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        self.bytes_read += out.len() as u64;
        let read = self.file.read_exact_at(out, offset(segment.0, page));
        read.map_err(|error| ReadError(error.to_string()))
    }
}

fn offset(segment: u32, page: u32) -> u64 {
    (u64::from(segment) * u64::from(PAGES) + u64::from(page)) * PAGE
}

/// A log of `writes`, `each` of them in a group.
fn write(path: &std::path::Path, writes: u64, each: u64) -> Log {
    let file =
        File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    let mut log = Log { file, segments: Vec::new(), bytes_read: 0 };
    let mut state = 1_u64;
    let mut tail = PAGES;
    let mut page = [0; PAGE_LEN];
    for number in 0..writes / each {
        let first_sequence = Sequence(1 + number * each);
        let durable = Sequence(first_sequence.0 - 1);
        if tail + 1 + each as u32 > PAGES {
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
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let range = ByteRange::at((state >> 20) % (DISK_SIZE / PAGE) * PAGE, PAGE);
            let kind = RecordKind::Write;
            let entry = Entry { range, epoch: FlushEpoch(1), kind, more: false };
            group::append(&mut page, &entry, &[forebay_core::sealed::crc32c(&[0; PAGE_LEN])]);
        }
        group::seal(&mut page, durable);
        let segment = log.segments.len() as u32 - 1;
        log.file.write_all_at(&page, offset(segment, tail)).unwrap();
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

fn measure(path: &std::path::Path, mib: u64, each: u64) {
    let writes = (mib << 20) / PAGE;
    let mut log = write(path, writes, each);
    let segments = log.segments.clone();
    let input = RecoverInput {
        disk: DISK,
        disk_size: DISK_SIZE,
        segment_pages: PAGES,
        segments: &segments,
        flushed: Sequence(0),
        through: Sequence(0),
        committed: Generation(1),
        pending: Generation(2),
        staged: &[],
        accept_missing: false,
    };
    let start = cpu();
    let found = recover(&input, &mut log).unwrap();
    let walked = cpu();
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
    let made = cpu();
    engine.restore(&found, Tail { segment: SegmentId(count - 1), page: 1 }).unwrap();
    let restored = cpu();
    let memory = found.records.len() * 56 + found.checksums.len() * 4;
    println!(
        "{mib} MiB of 4 KiB writes, {each} to a group: log {} MiB, read {} MiB; CPU: recovery {:.2} s, engine {:.2} s; \
         memory {} MiB",
        (u64::from(count - 1) * u64::from(PAGES) * PAGE) >> 20,
        log.bytes_read >> 20,
        walked - start,
        restored - made,
        memory >> 20,
    );
}

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let path = std::env::temp_dir().join(format!("forebay-recovery-{}.log", std::process::id()));
    let sizes: &[u64] = if tiny { &[4] } else { &[256, 1024, 4096] };
    for each in [1, 32] {
        for &mib in sizes {
            measure(&path, mib, each);
        }
    }
    std::fs::remove_file(&path).unwrap();
}
