//! Time until a cache on flash is warm again, against its size and that of its blocks.
//!
//! ```text
//!   engine fills its flash tier ─► ring pages ─► pool in a file ─► closed
//!   engine made ─► ring read past the page cache, taken in ─► ready
//! ```
//! The real engine writes the ring and takes it over, through the pool's own code; the cached data, which a restart does not
//! look at, are nowhere. The tier is filled in random order and a quarter of it evicted again, so that the ring is
//! as after a long run. Prints a line for each cache. The pool is made in the folder for temporary files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use forebay_core::action::{Action, Actions, Io, ReplyData, Target};
use forebay_core::cache_index::RingGeometry;
use forebay_core::cache_index::header::RingHeader;
use forebay_core::config::{
    BackendTraits, Config, FlashAdmission, GridOffset, RingConfig, SequentialBypass,
};
use forebay_core::engine::{Engine, RestoredCache};
use forebay_core::geometry::{ByteRange, Grid, PAGE};
use forebay_core::ids::{Generation, Nanos, RequestTag};
use forebay_core::request::{Op, Request};
use forebay_core::sealed::PAGE_LEN;
use forebay_core::splitmix::Rng;
use forebay_core::status::IoStatus;
use forebay_host::pool::{Area, DiskWish, Pool, Share};

const KIB: u64 = 1 << 10;
/// MiB of a GiB.
const GIB: u64 = 1 << 10;
const NONCE: u64 = 7;

/// A cache whose ring is on flash.
struct Cache {
    pool: Pool,
    /// Of the ring.
    area: Area,
    header: RingHeader,
    config: Config,
}

/// The engine that fills the cache, and where its ring goes.
struct Filling {
    engine: Engine,
    actions: Actions,
    file: File,
    ring: u64,
    now: Nanos,
}

impl Cache {
    fn new(path: &Path, bytes: u64, block_size: u64) -> Cache {
        let size = bytes * 2;
        let backend = BackendTraits {
            size,
            logical_block: 512,
            read_only: false,
            discard: true,
            write_zeroes: true,
            extents: false,
        };
        let slots = (bytes / block_size) as u32;
        let granules = Grid::new(size, block_size, 0).granules_per_block();
        let pages = RingGeometry::new(slots, granules, block_size, size).pages();
        let ring = (u64::from(pages) + 1) * PAGE;
        let data = 16 << 20;
        let mut pool = Pool::open(path, &[Share { cache: data, ring, log: 0 }]).unwrap();
        let number = pool.admit(&wish(size, block_size)).unwrap();
        let generation = pool.begin_session(number).unwrap();
        pool.take_cache(number, data).unwrap();
        let disk = pool.disk_uuid(number);
        let header = RingHeader {
            disk,
            generation,
            nonce: NONCE,
            disk_size: size,
            block_size: block_size as u32,
            slots,
            pages,
        };
        let area = pool.begin_ring(number, ring, &header).unwrap().unwrap();
        let config = Config {
            block_size,
            grid_offset: GridOffset::Fixed(0),
            flash_bytes: bytes,
            flash_admission: FlashAdmission::Always,
            sequential_bypass: SequentialBypass::Off,
            metadata_bytes_max: 1 << 40,
            ring: Some(RingConfig::new(disk, generation, NONCE, pages, size)),
            ..Config::for_disk(backend)
        };
        Cache { pool, area, header, config }
    }

    /// Reads blocks in random order until the cache was filled one and a quarter times, and ends in order.
    fn fill(&self) {
        let engine = Engine::new(self.config).unwrap();
        let file = File::options().write(true).open(self.pool.path()).unwrap();
        let ring = self.area.offset + PAGE;
        let actions = Actions::with_capacity(1024);
        let mut filling = Filling { engine, actions, file, ring, now: Nanos(0) };
        let blocks = self.config.backend.size / self.config.block_size;
        let mut random = Rng::new(1);
        for _ in 0..u64::from(self.header.slots) * 5 / 4 {
            filling.read(random.below(blocks) * self.config.block_size, self.config.block_size);
        }
        filling.close();
    }

    /// What a restart does for the cache, and how long it takes.
    fn restart(&self) -> (RestoredCache, f64) {
        let start = Instant::now();
        let mut config = self.config;
        let ring = config.ring.as_mut().unwrap();
        ring.generation = Generation(ring.generation.0 + 1);
        let mut engine = Engine::new(config).unwrap();
        let area = self.area;
        let none = std::iter::empty();
        let restored = self.pool.restore_cache(area, &self.header, &mut engine, none).unwrap();
        (restored, start.elapsed().as_secs_f64())
    }
}

impl Filling {
    fn read(&mut self, start: u64, len: u64) {
        let range = ByteRange::at(start, len);
        let request = Request { tag: RequestTag(0), range, op: Op::Read { no_admit: false } };
        // A millisecond for 32 reads.
        self.now = Nanos(self.now.0 + 31_250);
        self.engine.submit(self.now, request, &mut self.actions).unwrap();
        self.settle();
    }

    fn close(&mut self) {
        self.engine.shut_down(self.now, &mut self.actions);
        self.settle();
        while !self.engine.is_idle() {
            self.now = self.now.max(self.engine.next_deadline());
            self.engine.tick(self.now, &mut self.actions);
            self.settle();
        }
        self.engine.close_ring(self.now, true, &mut self.actions);
        self.settle();
        assert!(self.engine.is_ring_closed());
        self.file.sync_all().unwrap();
    }

    /// Carries out what the engine asks for until it asks for nothing.
    fn settle(&mut self) {
        let mut next = 0;
        while next < self.actions.list.len() || self.engine.wants_to_proceed() {
            self.engine.proceed(self.now, &mut self.actions);
            let Some(action) = self.actions.list.get(next).copied() else { continue };
            match action {
                Action::Io(io) => self.carry_out(io),
                Action::Reply(reply) => {
                    assert_eq!(reply.status, IoStatus::Ok);
                    if let ReplyData::Buffer { buffer, .. } = reply.data {
                        self.engine.release(self.now, buffer, &mut self.actions);
                    }
                }
                Action::Event(event) => panic!("{event:?}"),
                Action::Copy { .. } | Action::Zero { .. } | Action::Ring { .. } => {}
                Action::Log(_)
                | Action::Lease
                | Action::GrowStaging
                | Action::Unlease(_)
                | Action::Renew(_) => {
                    unreachable!("a disk without a log")
                }
                Action::Void | Action::Revoke | Action::Journal { .. } | Action::RevokeJournal => {
                    unreachable!("a disk without a log, on flash that works")
                }
                Action::Compare { .. } => {
                    unreachable!("nobody asks for one")
                }
            }
            next += 1;
        }
        self.engine.sent(self.now);
        self.actions.clear();
    }

    fn carry_out(&mut self, io: Io) {
        let mut sums = [0; 64];
        let sums = match io.checksum_piece {
            0 => &[][..],
            piece => {
                let sums = &mut sums[..(io.range.len() / u64::from(piece)) as usize];
                sums.fill(io.range.start as u32 | 1);
                sums
            }
        };
        if io.target == Target::Ring {
            let pages = self.engine.ring_pages();
            assert_eq!(pages.len() * PAGE_LEN, io.range.len() as usize);
            for (page, at) in pages.iter().zip((self.ring + io.range.start..).step_by(PAGE_LEN)) {
                self.file.write_all_at(page, at).unwrap();
            }
        }
        self.engine.complete(self.now, io.id, IoStatus::Ok, sums, &mut self.actions);
    }
}

fn wish(size: u64, block_size: u64) -> DiskWish {
    DiskWish {
        name: "disk".to_owned(),
        uri: "mem:1GiB".to_owned(),
        size,
        block_size,
        grid_offset: Some(0),
        mode: "write-through".to_owned(),
        log_bytes: 0,
        read_only: false,
        is_deferred: false,
        identity: forebay_core::ids::Uuid::NIL,
        is_staged: false,
        is_exclusive: false,
        takes_over: None,
    }
}

/// Seconds of CPU that this process has used, by all of its threads.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}

fn measure(path: &Path, mib: u64, block_size: u64, rounds: usize) {
    let cache = Cache::new(path, mib << 20, block_size);
    cache.fill();
    let mut times = Vec::new();
    let mut last = RestoredCache::default();
    let before = cpu();
    for _ in 0..rounds {
        let (restored, seconds) = cache.restart();
        last = restored;
        times.push(seconds);
    }
    let cpu = (cpu() - before) / rounds as f64;
    times.sort_by(f64::total_cmp);
    assert!(last.closed && last.found > 0);
    println!(
        "{} MiB of {} KiB blocks: ring {} MiB, read {} MiB; ready in {:.2} s ({:.2}-{:.2}), {:.2} s of CPU; kept {} of {} blocks",
        mib,
        block_size / KIB,
        (u64::from(cache.header.pages) * PAGE) >> 20,
        (last.pages_read * PAGE) >> 20,
        times[rounds / 2],
        times[0],
        times[rounds - 1],
        cpu,
        last.kept,
        last.found,
    );
    drop(cache);
    std::fs::remove_file(path).unwrap();
}

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let (sizes, rounds): (&[u64], _) = match tiny {
        true => (&[16], 1),
        false => (&[GIB, 10 * GIB, 100 * GIB], 3),
    };
    let folder = tempfile::tempdir().unwrap();
    for block_size in [4 * KIB, 8 * KIB, 64 * KIB] {
        for &mib in sizes {
            measure(&folder.path().join("pool"), mib, block_size, rounds);
        }
    }
}
