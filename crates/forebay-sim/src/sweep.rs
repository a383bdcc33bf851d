//! How the cache block size changes mean latency, in virtual time: the figure that reference R1 (a host
//! flash read cache of 2013) published, in kind.
//!
//! A deterministic workload of 4 KiB requests drives the real engine over the modelled SAN and a modelled
//! flash device; no byte is moved, only time passes. Four clients each wait for their answer and ask again. 95 % of
//! the requests read. 85 % go to a hot set of 60,000 pages strewn over 16 GiB, some hotter than others (page
//! number `60,000 × u^1.5`), the others anywhere. The cache is 256 MiB of flash, no RAM; what is read
//! or written is admitted.
//!
//! With 4 KiB blocks the hot set fits. Each doubling of the block size halves the number of blocks, and a block
//! still holds one hot page, because its neighbours are cold: the hit ratio falls, mean latency rises.

pub mod plot;

use forebay_backends::model::{Model, ModelConfig, ModelOp};
use forebay_core::action::{Action, Actions, Io, IoOp, ReplyData, Target};
use forebay_core::config::{BackendTraits, Config, FlashAdmission, GridOffset, Mode};
use forebay_core::engine::Engine;
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;
use serde::Serialize;

use crate::clock::Queue;
use crate::rng::Rng;

const DISK: u64 = 16 << 30;
const CACHE: u64 = 256 << 20;
const HOT_PAGES: u64 = 60_000;
const HOT_PERMILLE: u32 = 850;
const READ_PERMILLE: u32 = 950;
const CLIENTS: u64 = 4;

/// Block sizes of the sweep.
pub const BLOCK_SIZES: [u64; 9] =
    [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];

/// One point of the figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Cache block in bytes; 0: no cache.
    pub block_size: u64,
    /// Mean latency of all requests, in microseconds.
    pub mean_us: f64,
    /// Reads answered from the cache, per cent of all reads.
    pub hit_percent: f64,
    /// Reads that primary storage did.
    pub backend_reads: u64,
    /// Megabytes written to flash.
    pub flash_written_mb: f64,
}

/// The whole figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// Requests that were measured for each point, after one read of each hot page and half as many
    /// requests to warm up.
    pub requests: u64,
    /// Without cache.
    pub uncached: Point,
    /// By block size.
    pub points: Vec<Point>,
}

/// Measures every point with `requests` requests.
pub fn sweep(requests: u64) -> Sweep {
    let points = BLOCK_SIZES.map(|block_size| measure(block_size, requests));
    Sweep { requests, uncached: measure(0, requests), points: points.to_vec() }
}

/// Measures one block size; 0: without cache.
pub fn measure(block_size: u64, requests: u64) -> Point {
    let mut run = Run::new(block_size);
    run.warm();
    run.go(requests / 2);
    let before = run.engine.statistics().counters;
    (run.latency_ns, run.answered) = (0, 0);
    run.go(requests);
    let after = run.engine.statistics().counters;
    let hits = after.read_hits_flash - before.read_hits_flash;
    Point {
        block_size,
        mean_us: run.latency_ns as f64 / run.answered as f64 / 1000.0,
        hit_percent: 100.0 * hits as f64 / (after.reads - before.reads) as f64,
        backend_reads: after.backend_reads - before.backend_reads,
        flash_written_mb: (after.flash_write_bytes - before.flash_write_bytes) as f64 / 1e6,
    }
}

fn config(block_size: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    let mode = if block_size == 0 { Mode::PassThrough } else { Mode::WriteThrough };
    Config {
        mode,
        block_size: if block_size == 0 { PAGE } else { block_size },
        grid_offset: GridOffset::Fixed(0),
        flash_bytes: if block_size == 0 { 0 } else { CACHE },
        flash_admission: FlashAdmission::Always,
        sequential_bypass: None,
        ..Config::for_disk(backend)
    }
}

/// One engine, its modelled devices and its clients.
struct Run {
    engine: Engine,
    actions: Actions,
    san: Model,
    flash: Model,
    completions: Queue<Io>,
    hot: Vec<u64>,
    rng: Rng,
    now: Nanos,
    latency_ns: u64,
    answered: u64,
    idle_clients: u64,
}

impl Run {
    fn new(block_size: u64) -> Run {
        let mut rng = Rng::new(1);
        let flash = ModelConfig {
            latency: Some(Nanos::from_micros(90)),
            bandwidth: Some(400_000_000),
            ..ModelConfig::default()
        };
        Run {
            engine: Engine::new(config(block_size)).expect("a configuration that works"),
            actions: Actions::default(),
            san: ModelConfig::default().build(DISK),
            flash: flash.build(CACHE),
            completions: Queue::default(),
            hot: (0..HOT_PAGES).map(|_| rng.below(DISK / PAGE)).collect(),
            rng,
            now: Nanos(0),
            latency_ns: 0,
            answered: 0,
            idle_clients: CLIENTS,
        }
    }

    /// Reads each hot page once, the hottest last.
    fn warm(&mut self) {
        for page in (0..HOT_PAGES).rev() {
            let page = self.hot[page as usize];
            self.submit(page, true);
            while self.idle_clients == 0 {
                self.complete_next();
            }
        }
    }

    /// Until `requests` were answered.
    fn go(&mut self, requests: u64) {
        let end = self.answered + requests;
        while self.answered < end {
            while self.idle_clients > 0 {
                self.ask();
            }
            self.complete_next();
        }
    }

    fn complete_next(&mut self) {
        let (now, io) = self.completions.pop().expect("a client waits for an I/O");
        self.now = now;
        // No byte is moved, so every granule has the same checksum.
        let pieces = io.range.len().checked_div(u64::from(io.checksum_piece)).unwrap_or(0);
        let checksums = vec![0; pieces as usize];
        self.engine.complete(now, io.id, IoStatus::Ok, &checksums, &mut self.actions);
        self.carry_out();
    }

    fn ask(&mut self) {
        let page = if self.rng.chance(HOT_PERMILLE) {
            // u × √u: the square root is exact on every machine, a power is not.
            let u = self.rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
            self.hot[(HOT_PAGES as f64 * u * u.sqrt()) as usize]
        } else {
            self.rng.below(DISK / PAGE)
        };
        let reads = self.rng.chance(READ_PERMILLE);
        self.submit(page, reads);
    }

    fn submit(&mut self, page: u64, reads: bool) {
        self.idle_clients -= 1;
        let range = ByteRange::at(page * PAGE, PAGE);
        let op = if reads {
            Op::Read { no_admit: false }
        } else {
            let buffer = self.engine.write_buffer(range).expect("few requests need few buffers");
            Op::Write { buffer, fua: false }
        };
        let request = Request { tag: RequestTag(0), range, op };
        self.engine.submit(self.now, request, &mut self.actions).expect("few requests");
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while !self.actions.list.is_empty() {
            let mut actions = std::mem::take(&mut self.actions);
            for action in actions.list.drain(..) {
                match action {
                    Action::Io(io) => self.start(io),
                    Action::Reply(reply) => {
                        assert!(reply.status.is_ok(), "nothing fails here: {reply:?}");
                        self.latency_ns += self.now.since(reply.submitted).0;
                        self.answered += 1;
                        self.idle_clients += 1;
                        if let ReplyData::Buffer { buffer, .. } = reply.data {
                            self.engine.release(self.now, buffer, &mut self.actions);
                        }
                    }
                    Action::Copy { .. } | Action::Zero { .. } | Action::Event(_) => {}
                    Action::Log(_) | Action::Lease | Action::Unlease(_) => {
                        unreachable!("a disk without a log")
                    }
                }
            }
        }
        self.engine.sent(self.now);
    }

    fn start(&mut self, io: Io) {
        let op = match io.op {
            IoOp::Read { .. } => ModelOp::Read,
            IoOp::Write { .. } => ModelOp::Write,
            IoOp::Flush => ModelOp::Flush,
            IoOp::Discard | IoOp::WriteZeroes { .. } | IoOp::Extents | IoOp::Progress { .. } => {
                ModelOp::Unmap
            }
        };
        let device = match io.target {
            Target::Backend => &mut self.san,
            Target::Flash | Target::Log => &mut self.flash,
        };
        let at = device.submit(self.now, op, io.range);
        self.completions.plan(at, io);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_latency_rises_with_the_block_size_until_the_gain_is_gone() {
        let sweep = sweep(10_000);
        for pair in sweep.points.windows(2).take(6) {
            assert!(pair[0].mean_us < pair[1].mean_us, "{sweep:#?}");
        }
        let gain = |point: &Point| 1.0 - point.mean_us / sweep.uncached.mean_us;
        assert!(gain(&sweep.points[0]) > 0.7, "{sweep:#?}");
        for large in &sweep.points[6..] {
            assert!(gain(large) < 0.1, "{sweep:#?}");
        }
    }
}
