//! How the cache block size changes mean latency, in virtual time: the figure that reference R1 (a host
//! flash read cache of 2013) published, in kind.
//!
//! A deterministic workload of 4 KiB requests drives the real engine over the modelled SAN and a
//! modelled flash device. No byte is moved, only time passes. Four clients each wait for their
//! answer and ask again. 95 % of the requests read. 85 % go to a hot set of 60,000 pages strewn
//! over 16 GiB, some hotter than others (page number `60,000 × u^1.5`), the others anywhere. The
//! cache is 256 MiB of flash, no RAM. Every read and write is admitted.
//!
//! With 4 KiB blocks the hot set fits. Each doubling of the block size halves the number of
//! blocks. A block still holds one hot page, because its neighbours are cold. So the hit ratio
//! falls, and mean latency rises.

pub mod plot;

use forebay_backends::model::ModelConfig;
use forebay_core::config::{
    BackendTraits, Config, FlashAdmission, GridOffset, Mode, SequentialBypass,
};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use serde::Serialize;

use crate::rng::Rng;
use forebay_timed::{Ask, Timed};

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
    let mut run = SweepRun::new(block_size);
    run.warm();
    run.go(requests / 2);
    let before = run.timed.engine.statistics(run.timed.now).counters;
    (run.latency_ns, run.answered) = (0, 0);
    run.go(requests);
    let after = run.timed.engine.statistics(run.timed.now).counters;
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
        sequential_bypass: SequentialBypass::Off,
        ..Config::for_disk(backend)
    }
}

/// One engine, its modelled devices and its clients.
struct SweepRun {
    timed: Timed,
    hot: Vec<u64>,
    rng: Rng,
    latency_ns: u64,
    answered: u64,
}

impl SweepRun {
    fn new(block_size: u64) -> SweepRun {
        let mut rng = Rng::new(1);
        let flash = ModelConfig {
            latency: Some(Nanos::from_micros(90)),
            bandwidth: Some(400_000_000),
            ..ModelConfig::default()
        };
        SweepRun {
            timed: Timed::new(config(block_size), ModelConfig::default(), flash).expect("it works"),
            hot: (0..HOT_PAGES).map(|_| rng.below(DISK / PAGE)).collect(),
            rng,
            latency_ns: 0,
            answered: 0,
        }
    }

    /// Reads each hot page once, the hottest last.
    fn warm(&mut self) {
        for page in (0..HOT_PAGES).rev() {
            self.submit(self.hot[page as usize], Ask::Read);
            while self.timed.under_way() == CLIENTS {
                self.step();
            }
        }
    }

    /// Until `requests` were answered.
    fn go(&mut self, requests: u64) {
        let end = self.answered + requests;
        while self.answered < end {
            while self.timed.under_way() < CLIENTS {
                self.ask();
            }
            self.step();
        }
    }

    fn step(&mut self) {
        assert!(self.timed.step(Nanos::NEVER), "a client waits for an I/O");
        self.timed.done.clear();
        for answer in self.timed.answers.drain(..) {
            self.latency_ns += answer.latency.0;
            self.answered += 1;
        }
    }

    fn ask(&mut self) {
        let page = if self.rng.chance(HOT_PERMILLE) {
            // u × √u: the square root is exact on every machine, a power is not.
            let u = self.rng.below(1 << 53) as f64 / (1u64 << 53) as f64;
            self.hot[(HOT_PAGES as f64 * u * u.sqrt()) as usize]
        } else {
            self.rng.below(DISK / PAGE)
        };
        let ask = if self.rng.chance(READ_PERMILLE) { Ask::Read } else { Ask::Write(false) };
        self.submit(page, ask);
    }

    fn submit(&mut self, page: u64, ask: Ask) {
        self.timed.submit(0, ask, ByteRange::at(page * PAGE, PAGE));
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
