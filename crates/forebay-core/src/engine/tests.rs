//! The engine against devices that the test moves by hand: every I/O stays pending until the test
//! completes it, in any order, with any status.

mod bypass;
mod clean_cache;
mod compare;
mod compare_hindered;
mod destage;
mod destage_flushes;
mod drop_cache;
mod edges;
mod ends;
mod faults;
mod flash_fill;
mod grid;
mod grow;
mod joined;
mod journal;
mod log;
mod log_faults;
mod losses;
mod lost;
mod misses;
mod modes;
mod order;
mod pace;
mod reads;
mod renewed;
mod resize;
mod resize_flash;
mod restored;
mod revoke;
mod revoked_ring;
mod room;
mod shown;
mod stale;
mod summary;
mod time;
mod tune;
mod warm;
mod writes;
mod zeroes;

use super::*;
use crate::action::{Event, Io, IoOp, LogAction, NoLease, Reply, ReplyData, Span, Target};
use crate::config::{BackendTraits, GridOffset, SequentialBypass, WriteLogConfig};
use crate::executor::{self, Executor, Runs};
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{RequestTag, SegmentId};
use crate::request::Op;
use crate::stats::Counters;

const KIB: u64 = 1024;
/// Segments of the log's pool, and pages of each.
const POOL_SEGMENTS: u32 = 64;
const SEGMENT_PAGES: u32 = 16;

/// An engine, its memory, its devices and what its clients heard.
struct Rig {
    engine: Engine,
    memory: Vec<u8>,
    backend: Vec<u8>,
    flash: Vec<u8>,
    ring: Vec<u8>,
    journal: Vec<u8>,
    /// How often the journal was to be revoked.
    journal_revocations: u32,
    /// How often the ring was to be voided.
    voids: u32,
    revocations: u32,
    /// Where the log's segments are.
    pool: Vec<u8>,
    /// Leases asked for, and segments leased so far.
    leases: (u32, u32),
    /// Comparisons that the engine is not told of yet.
    comparisons: Vec<(IoId, Option<u64>)>,
    /// The engine is told of comparisons at once.
    tells_comparisons: bool,
    unleased: Vec<SegmentId>,
    /// Segments that are to be leased anew.
    renewed: Vec<SegmentId>,
    /// I/Os that the engine asked for, oldest first.
    pending: Vec<Io>,
    actions: Actions,
    replies: Vec<(u64, IoStatus, Vec<u8>)>,
    events: Vec<Event>,
    now: Nanos,
}

/// A rig in write-back whose first segment is leased.
fn write_back(config: Config) -> Rig {
    let mut rig = Rig::new(config);
    // Primary storage is flushed before the log answers for it.
    rig.tick(0);
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    rig
}

/// 1 MiB of primary storage whose 4 KiB blocks hold their number, and 4 KiB cache blocks.
fn config() -> Config {
    let backend = BackendTraits {
        size: 1 << 20,
        logical_block: 512,
        read_only: false,
        discard: true,
        write_zeroes: true,
        extents: true,
    };
    Config {
        block_size: 4 * KIB,
        grid_offset: GridOffset::Fixed(0),
        sequential_bypass: SequentialBypass::Off,
        ram_bytes: 256 * KIB,
        ..Config::for_disk(backend)
    }
}

/// The same disk with a write log of four segments of 16 pages, in write-back, without RAM.
fn with_log() -> Config {
    let mut log = WriteLogConfig::new(SEGMENT_PAGES, 4);
    log.throttle_percent = 99;
    log.destage_yield = Nanos(0);
    Config { mode: Mode::WriteBack, write_log: Some(log), ram_bytes: 0, ..config() }
}

/// A rig in write-back whose throttle holds what is written from now on.
fn throttled(config: Config) -> Rig {
    let mut config = config;
    let log = config.write_log.as_mut().expect("a log");
    (log.throttle_percent, log.segments_max) = (10, 40);
    let mut rig = write_back(config);
    // Primary storage is slow, as far as the throttle knows.
    for tag in 2..20 {
        rig.write(tag, 65536 * tag % (1 << 20), 4096, 7);
    }
    for millis in [1, 2_000, 100] {
        rig.tick(millis);
        rig.commit();
    }
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    let mut last = 100;
    while last < 110 || rig.has_reply(last) {
        last += 1;
        rig.write(last, last % 100 * 8192 + 65536, 4096, 7);
        rig.commit();
    }
    rig
}

impl Executor for Rig {
    fn start(&mut self, io: Io) {
        self.pending.push(io);
    }

    fn copy(&mut self, from: Span, to: Span) {
        let bytes = self.slice(from).to_vec();
        self.slice(to).copy_from_slice(&bytes);
    }

    fn zero(&mut self, memory: Span) {
        self.slice(memory).fill(0);
    }

    fn compare(&mut self, id: IoId, found: Span, expected: Span) {
        let expected = self.slice(expected).to_vec();
        let pairs = self.slice(found).iter().zip(&expected);
        let difference = pairs.map(|(a, b)| a == b).position(|same| !same);
        self.comparisons.push((id, difference.map(|at| at as u64)));
        if self.tells_comparisons {
            self.compared();
        }
    }

    /// What the bytes of the log say is the business of `log`; here places count.
    fn build(&mut self, _action: LogAction) {}

    fn lease(&mut self) {
        self.leases.0 += 1;
    }

    fn grow_staging(&mut self) {
        self.engine.staging_grown(self.now, true, &mut self.actions);
    }

    fn unlease(&mut self, segment: SegmentId) {
        self.unleased.push(segment);
    }

    fn renew(&mut self, segment: SegmentId) {
        self.renewed.push(segment);
    }

    fn copy_journal(&mut self, memory: Span) {
        let bytes = self.engine.journal_bytes().to_vec();
        self.slice(memory).copy_from_slice(&bytes);
    }

    fn revoke_journal(&mut self) {
        self.journal_revocations += 1;
    }

    fn copy_index(&mut self, memory: Span) {
        let pages = self.engine.ring_pages().concat();
        self.slice(memory).copy_from_slice(&pages);
    }

    fn void(&mut self) {
        self.voids += 1;
    }

    fn revoke(&mut self) {
        self.revocations += 1;
    }

    fn reply(&mut self, reply: &Reply, actions: &Actions) {
        let bytes = match reply.data {
            ReplyData::None => Vec::new(),
            ReplyData::Difference { offset } => offset.to_le_bytes().to_vec(),
            ReplyData::Extents { .. } => Vec::new(),
            ReplyData::Buffer { data, buffer } => {
                let bytes = self.slice(data).to_vec();
                self.engine.release(self.now, buffer, &mut self.actions);
                bytes
            }
            ReplyData::Slots { first, count } => {
                let slices = &actions.slices[first as usize..(first + count) as usize];
                slices.iter().flat_map(|&slice| self.slice(slice).to_vec()).collect()
            }
        };
        self.replies.push((reply.tag.0, reply.status, bytes));
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }
}

impl Runs for Rig {
    fn proceed(&mut self) -> Option<Actions> {
        let goes_on = self.engine.wants_to_proceed() || !self.actions.list.is_empty();
        goes_on.then(|| {
            self.engine.proceed(self.now, &mut self.actions);
            std::mem::take(&mut self.actions)
        })
    }

    fn carried_out(&mut self, _actions: Actions) {}
}

impl Rig {
    fn new(config: Config) -> Rig {
        let engine = Engine::new(config).expect("a valid configuration");
        // What nobody has written reads as garbage, but for buffers beyond four times the disk: no test comes to them,
        // and memory that is left alone costs nothing.
        let mut memory = vec![0; engine.memory_size() as usize];
        memory[..config.buffer_bytes.min(4 * config.backend.size) as usize].fill(0xEE);
        memory[config.buffer_bytes as usize..].fill(0xEE);
        Rig {
            memory,
            backend: (0..config.backend.size).map(|i| (i / 4096) as u8).collect(),
            flash: vec![0; engine.flash_size() as usize],
            ring: vec![0; config.ring.map_or(0, |ring| ring.pages as usize * 4096)],
            journal: vec![0; journal_size(&config)],
            journal_revocations: 0,
            voids: 0,
            revocations: 0,
            pool: vec![0; POOL_SEGMENTS as usize * SEGMENT_PAGES as usize * 4096],
            leases: (0, 0),
            comparisons: Vec::new(),
            tells_comparisons: true,
            unleased: Vec::new(),
            renewed: Vec::new(),
            pending: Vec::new(),
            actions: Actions::default(),
            replies: Vec::new(),
            events: Vec::new(),
            now: Nanos(0),
            engine,
        }
    }

    fn submit(&mut self, tag: u64, start: u64, len: u64, op: Op) {
        let request = Request { tag: RequestTag(tag), range: ByteRange::at(start, len), op };
        self.engine.submit(self.now, request, &mut self.actions).expect("a free place");
        self.run_actions();
    }

    fn read(&mut self, tag: u64, start: u64, len: u64) {
        self.submit(tag, start, len, Op::Read { no_admit: false });
    }

    fn write(&mut self, tag: u64, start: u64, len: u64, byte: u8) {
        self.write_with(tag, start, len, byte, false);
    }

    fn write_with(&mut self, tag: u64, start: u64, len: u64, byte: u8, fua: bool) {
        let range = ByteRange::at(start, len);
        let buffer = self.engine.write_buffer(range).expect("a free buffer");
        self.slice(buffer.at(range)).fill(byte);
        self.submit(tag, start, len, Op::Write { buffer, fua });
    }

    /// Asks for `new` where `expected` is.
    fn compare_and_write(&mut self, tag: u64, start: u64, expected: &[u8], new: u8, fua: bool) {
        let range = ByteRange::at(start, expected.len() as u64);
        let buffer = self.engine.compare_buffer(range).expect("a free buffer");
        self.slice(buffer.at(range)).fill(new);
        self.slice(buffer.expected(range)).copy_from_slice(expected);
        self.submit(tag, start, range.len(), Op::CompareAndWrite { buffer, fua });
    }

    fn slice(&mut self, span: Span) -> &mut [u8] {
        &mut self.memory[span.offset as usize..][..span.len as usize]
    }

    /// Runs the actions in order; replies keep their slots pinned until [`Rig::sent`].
    fn run_actions(&mut self) {
        executor::run(self);
        self.engine.check_invariants();
    }

    fn sent(&mut self) {
        self.engine.sent(self.now);
    }

    /// Ends the pending I/O at `index`; when well, does what it asks for first.
    fn complete(&mut self, index: usize, status: IoStatus) {
        let io = self.pending.remove(index);
        let piece = io.checksum_piece as usize;
        let mut checksums = Vec::new();
        if status.is_ok() {
            let range = io.range.start as usize..io.range.end as usize;
            let device = match io.target {
                Target::Backend => &mut self.backend,
                Target::Flash => &mut self.flash,
                Target::Log => &mut self.pool,
                Target::Ring => &mut self.ring,
                Target::Journal => &mut self.journal,
            };
            match io.op {
                IoOp::Read { memory } => {
                    assert_eq!(u64::from(memory.len), io.range.len());
                    let memory = memory.offset as usize..memory.offset as usize + range.len();
                    self.memory[memory].copy_from_slice(&device[range.clone()]);
                }
                IoOp::Write { memory, .. } => {
                    assert_eq!(u64::from(memory.len), io.range.len());
                    let memory = memory.offset as usize..memory.offset as usize + range.len();
                    device[range.clone()].copy_from_slice(&self.memory[memory]);
                }
                IoOp::WriteZeroes { .. } | IoOp::Discard => device[range.clone()].fill(0),
                IoOp::Flush | IoOp::Extents | IoOp::Progress { .. } => {}
            }
            if piece > 0 {
                // Any function of the bytes will do for the engine.
                let sum =
                    |bytes: &[u8]| bytes.iter().fold(7u32, |s, &b| s * 31 % 65537 + u32::from(b));
                checksums = match io.target {
                    Target::Journal => {
                        device[range].chunks(piece).map(crate::sealed::crc32c).collect()
                    }
                    _ => device[range].chunks(piece).map(sum).collect(),
                };
            }
        }
        self.engine.complete(self.now, io.id, status, &checksums, &mut self.actions);
        self.run_actions();
    }

    /// Ends everything well until nothing is pending, and sends all replies.
    fn settle(&mut self) {
        while !self.pending.is_empty() {
            self.complete(0, IoStatus::Ok);
        }
        self.sent();
        self.engine.check_invariants();
    }

    /// Grants the leases that were asked for.
    fn grant(&mut self) {
        while std::mem::take(&mut self.leases.0) > 0 {
            let segment = (SegmentId(self.leases.1), u64::from(self.leases.1));
            self.leases.1 += 1;
            self.engine.leased(self.now, Ok(segment), &mut self.actions);
            self.run_actions();
        }
    }

    /// Ends everything well, and lets time pass, until nothing is to be done.
    fn settle_log(&mut self) {
        loop {
            self.grant();
            let deadline = self.engine.next_deadline();
            if !self.pending.is_empty() {
                self.complete(0, IoStatus::Ok);
            } else if self.leases.0 == 0 && deadline != Nanos::NEVER {
                self.now = self.now.max(deadline);
                self.tick(0);
            } else if self.leases.0 == 0 {
                break;
            }
        }
        self.sent();
    }

    /// Ends what is pending well until this is.
    fn settle_until(&mut self, drawn: &str) {
        while !self.drawn().iter().any(|io| io == drawn) {
            self.grant();
            if self.pending.is_empty() {
                self.tick(1);
            } else {
                self.complete(0, IoStatus::Ok);
            }
        }
    }

    /// The place among the pending I/Os of the first that is drawn so.
    fn find(&self, drawn: &str) -> usize {
        let all = self.drawn();
        all.iter().position(|io| io == drawn).unwrap_or_else(|| panic!("{drawn} in {all:?}"))
    }

    fn begin(&mut self) {
        self.engine.begin(self.now, &mut self.actions);
        self.run_actions();
    }

    fn tick(&mut self, millis: u64) {
        self.now = self.now.plus(Nanos::from_millis(millis));
        self.engine.tick(self.now, &mut self.actions);
        self.run_actions();
    }

    /// The reply with `tag`, which must have come.
    fn replied(&self, tag: u64) -> &(u64, IoStatus, Vec<u8>) {
        self.replies
            .iter()
            .find(|reply| reply.0 == tag)
            .unwrap_or_else(|| panic!("no reply {tag} {:?}", self.drawn()))
    }

    fn has_reply(&self, tag: u64) -> bool {
        self.replies.iter().any(|reply| reply.0 == tag)
    }

    /// Reads and expects every byte to be `byte`.
    fn expect_bytes(&mut self, start: u64, len: u64, byte: u8) {
        let tag = 1_000_000 + self.replies.len() as u64;
        self.read(tag, start, len);
        self.settle();
        let (_, status, bytes) = self.replied(tag);
        assert_eq!(*status, IoStatus::Ok);
        assert_eq!(bytes.len() as u64, len);
        assert!(bytes.iter().all(|&b| b == byte), "{byte} expected at {start}, {} found", bytes[0]);
    }

    /// The pending I/Os as `R 0+4096`: read or write, flash in lower case, start and length.
    fn drawn(&self) -> Vec<String> {
        let draw = |io: &Io| {
            let letter = match io.op {
                IoOp::Read { .. } => "R",
                IoOp::Write { .. } => "W",
                IoOp::Flush => "F",
                IoOp::Discard => "D",
                IoOp::WriteZeroes { .. } => "Z",
                IoOp::Extents => "E",
                IoOp::Progress { .. } => "P",
            };
            let letter = match io.target {
                Target::Backend => letter.to_string(),
                Target::Flash => letter.to_lowercase(),
                Target::Log => format!("log {letter}"),
                Target::Ring => format!("ring {letter}"),
                Target::Journal => format!("journal {letter}"),
            };
            format!("{letter} {}+{}", io.range.start, io.range.len())
        };
        self.pending.iter().map(draw).collect()
    }

    fn counters(&self) -> Counters {
        self.engine.statistics(self.now).counters
    }
}

/// Bytes of the destage journal of a disk.
fn journal_size(config: &Config) -> usize {
    let journal = config.write_log.and_then(|log| log.journal);
    journal.map_or(0, |journal| journal.shape.size() as usize)
}
