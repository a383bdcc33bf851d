//! Bursts of writes over a write log, in virtual time: the two experiments that reference R4 (a host-side
//! accelerator of 2013) published, in kind.
//!
//! A guest writes 250 times per second, 4 KiB each, durably (with FUA, so an acknowledged write
//! survives a loss of power). For 20 seconds it tries 15,000 per second, with at most 32 under
//! way. Primary storage takes 3 ms per write. In experiment I it keeps up with the burst, in II
//! it takes 11,000 per second. The real engine runs over modelled devices ([`forebay_timed`]).
//!
//! Each tenth of a second is a [`Slice`]: three rates (guest, flash, destage) and three latencies (effective,
//! flash, primary storage), as the published figures have them.

pub mod plot;

use forebay_backends::model::{ModelConfig, ModelOp};
use forebay_core::action::Target;
use forebay_core::config::{BackendTraits, Config, DestageOrder, GridOffset, Mode, WriteLogConfig};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use forebay_core::stats::DestageLimit;
use serde::Serialize;

use crate::rng::Rng;
use forebay_timed::{Ask, Timed};

const DISK: u64 = 16 << 30;
const SEGMENT_PAGES: u32 = 1024;
const BASE_PER_SECOND: u64 = 250;
const BURST_PER_SECOND: u64 = 15_000;
const DEPTH: u64 = 32;
const SECOND: u64 = 1_000_000_000;
/// Part of the log that may be dirty before the throttle begins: the default.
const THRESHOLD_PERCENT: f64 = 50.0;
/// Of the burst.
const MIDDLE: Nanos = Nanos::from_millis(15_000);
/// Length of a slice.
pub const SLICE: Nanos = Nanos::from_millis(100);
/// When the burst begins and ends.
pub const BURST: (Nanos, Nanos) = (Nanos::from_millis(5_000), Nanos::from_millis(25_000));
/// When the experiment ends.
pub const END: Nanos = Nanos::from_millis(40_000);

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Writes per second that primary storage takes; `None`: any number.
    pub storage_per_second: Option<u64>,
    /// Order of destaging.
    pub order: DestageOrder,
    /// Bytes that the write log may take.
    pub log_bytes: u64,
}

/// A tenth of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Since the start.
    pub seconds: f64,
    /// Writes per second that the guest had acknowledged.
    pub guest_per_second: f64,
    /// Pages per second that the log's flash took, headers of groups included.
    pub flash_per_second: f64,
    /// Pages per second that primary storage took.
    pub destage_per_second: f64,
    /// Mean latency of what was acknowledged, in microseconds.
    pub effective_us: f64,
    /// Mean latency of the log's writes.
    pub flash_us: f64,
    /// Mean latency of destage writes.
    pub primary_us: f64,
    /// Dirty part of the log at the end of the slice, per cent.
    pub occupancy_percent: f64,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The order of destaging.
    pub order: &'static str,
    /// Bytes that the write log may take.
    pub log_bytes: u64,
    /// Slice by slice.
    pub slices: Vec<Slice>,
    /// 99th percentile of latency outside the burst, in microseconds; what is destaged later is left out.
    pub calm_p99_us: f64,
    /// 99th percentile of what was acknowledged in the burst below the throttle's threshold.
    pub burst_p99_us: f64,
    /// Writes acknowledged in the burst.
    pub burst_writes: u64,
    /// Longest time without an acknowledgement in the burst, in milliseconds.
    pub gap_ms_max: f64,
    /// From the time that the log was below its threshold again to a slice at flash speed, in milliseconds; `None`: it was never above.
    pub recovery_ms: Option<f64>,
    /// Writes that were never answered.
    pub lost: u64,
    /// The limit of destaging in the middle of the burst.
    pub limited_by: Option<DestageLimit>,
}

impl Experiment {
    /// All that the figure shows.
    pub const ALL: [(&str, Experiment); 6] = [
        ("I, window: storage keeps up", Experiment::i(DestageOrder::Window)),
        ("I, strict", Experiment::i(DestageOrder::Strict)),
        ("II, window: storage takes 11,000/s", Experiment::ii(DestageOrder::Window, 2 << 30)),
        ("II, strict", Experiment::ii(DestageOrder::Strict, 2 << 30)),
        ("II, window: a log of 128 MiB fills", Experiment::ii(DestageOrder::Window, 128 << 20)),
        ("II, strict: a log of 128 MiB fills", Experiment::ii(DestageOrder::Strict, 128 << 20)),
    ];

    /// Storage that keeps up.
    pub const fn i(order: DestageOrder) -> Experiment {
        Experiment { storage_per_second: None, order, log_bytes: 2 << 30 }
    }

    /// Storage that takes 11,000 writes per second.
    pub const fn ii(order: DestageOrder, log_bytes: u64) -> Experiment {
        Experiment { storage_per_second: Some(11_000), order, log_bytes }
    }

    /// Carries it out.
    pub fn run(self) -> Outcome {
        let mut run = BurstRun::new(self);
        run.go();
        run.outcome(self)
    }

    fn config(self) -> Config {
        let backend = BackendTraits {
            size: DISK,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        };
        let segments = (self.log_bytes / PAGE / u64::from(SEGMENT_PAGES)) as u32;
        let log =
            WriteLogConfig { order: self.order, ..WriteLogConfig::new(SEGMENT_PAGES, segments) };
        Config {
            mode: Mode::WriteBack,
            grid_offset: GridOffset::Fixed(0),
            ram_bytes: 64 << 20,
            write_log: Some(log),
            ..Config::for_disk(backend)
        }
    }

    fn storage(self) -> ModelConfig {
        ModelConfig {
            latency: Some(Nanos::from_millis(3)),
            iops: self.storage_per_second,
            ..ModelConfig::default()
        }
    }
}

/// Requests that ended in the slice under way.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    ios: u64,
    pages: u64,
    latency_ns: u64,
}

impl Sum {
    fn add(&mut self, latency: Nanos, pages: u64) {
        self.ios += 1;
        self.pages += pages;
        self.latency_ns += latency.0;
    }

    fn mean_us(self) -> f64 {
        self.latency_ns as f64 / self.ios.max(1) as f64 / 1000.0
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    guest: Sum,
    flash: Sum,
    primary: Sum,
}

struct BurstRun {
    timed: Timed,
    rng: Rng,
    next_arrival: Nanos,
    sums: Sums,
    slices: Vec<Slice>,
    /// Of the slice under way, in nanoseconds.
    latencies: Vec<u64>,
    calm: Vec<u64>,
    burst: Vec<u64>,
    burst_writes: u64,
    last_acknowledged: Nanos,
    gap_max: Nanos,
    limited_by: Option<DestageLimit>,
}

impl BurstRun {
    fn new(experiment: Experiment) -> BurstRun {
        let timed = Timed::new(experiment.config(), experiment.storage(), forebay_timed::flash())
            .expect("it works");
        BurstRun {
            next_arrival: timed.now,
            timed,
            rng: Rng::new(1),
            sums: Sums::default(),
            slices: Vec::new(),
            latencies: Vec::new(),
            calm: Vec::new(),
            burst: Vec::new(),
            burst_writes: 0,
            last_acknowledged: BURST.0,
            gap_max: Nanos(0),
            limited_by: None,
        }
    }

    fn go(&mut self) {
        let mut slice_ends = SLICE;
        while self.timed.now < END {
            self.arrive();
            let arrival = match self.timed.under_way() < DEPTH {
                true => self.next_arrival,
                false => Nanos::NEVER,
            };
            self.timed.step(arrival.min(slice_ends));
            self.observe();
            if self.timed.now >= slice_ends {
                self.end_slice(slice_ends);
                slice_ends = slice_ends.plus(SLICE);
            }
        }
        while self.timed.under_way() > 0 && self.timed.step(END.plus(Nanos(60 * SECOND))) {
            self.observe();
        }
    }

    fn is_burst(&self) -> bool {
        (BURST.0..BURST.1).contains(&self.timed.now)
    }

    fn arrive(&mut self) {
        let now = self.timed.now;
        while self.next_arrival <= now && self.timed.under_way() < DEPTH {
            let range = ByteRange::at(self.rng.below(DISK / PAGE) * PAGE, PAGE);
            self.timed.submit(0, Ask::Write(true), range);
            let rate = if self.is_burst() { BURST_PER_SECOND } else { BASE_PER_SECOND };
            // A guest that was held up does not make up for it.
            self.next_arrival = self.next_arrival.max(now).plus(Nanos(SECOND / rate));
        }
        // The base does not sleep through the start of the burst.
        if now < BURST.0 {
            self.next_arrival = self.next_arrival.min(BURST.0);
        }
    }

    fn observe(&mut self) {
        let (now, is_burst) = (self.timed.now, self.is_burst());
        for answer in self.timed.answers.drain(..) {
            self.sums.guest.add(answer.latency, 1);
            self.latencies.push(answer.latency.0);
            if is_burst {
                self.burst_writes += 1;
                self.gap_max = self.gap_max.max(now.since(self.last_acknowledged));
                self.last_acknowledged = now;
            }
        }
        for done in self.timed.done.drain(..).filter(|done| done.op == ModelOp::Write) {
            let pages = done.range.len() / PAGE;
            match done.target {
                Target::Backend => self.sums.primary.add(done.latency, pages),
                // Notes of progress have no range.
                Target::Log if pages > 0 => self.sums.flash.add(done.latency, pages),
                Target::Log | Target::Flash | Target::Ring | Target::Journal => {}
            }
        }
    }

    fn end_slice(&mut self, end: Nanos) {
        let log = self.timed.engine.log_statistics(self.timed.now).expect("the disk has a log");
        let occupancy_percent = 100.0 * log.occupied_bytes as f64 / log.capacity_bytes as f64;
        let before = self.slices.last().map_or(0.0, |slice| slice.occupancy_percent);
        let is_free = occupancy_percent.max(before) < THRESHOLD_PERCENT;
        let is_burst = BURST.0 < end && end <= BURST.1;
        match (is_burst, is_free) {
            (true, true) => self.burst.append(&mut self.latencies),
            (false, true) => self.calm.append(&mut self.latencies),
            (true | false, false) => self.latencies.clear(),
        }
        let sums = std::mem::take(&mut self.sums);
        let per_second = |n: u64| n as f64 * SECOND as f64 / SLICE.0 as f64;
        self.slices.push(Slice {
            seconds: end.0 as f64 / SECOND as f64,
            guest_per_second: per_second(sums.guest.ios),
            flash_per_second: per_second(sums.flash.pages),
            destage_per_second: per_second(sums.primary.pages),
            effective_us: sums.guest.mean_us(),
            flash_us: sums.flash.mean_us(),
            primary_us: sums.primary.mean_us(),
            occupancy_percent,
        });
        if end == MIDDLE {
            self.limited_by = Some(log.limited_by);
        }
    }

    fn outcome(self, experiment: Experiment) -> Outcome {
        let order = DestageOrder::ALL.iter().find(|(order, _)| *order == experiment.order);
        Outcome {
            order: order.map_or("", |(_, name)| name),
            log_bytes: experiment.log_bytes,
            calm_p99_us: p99_us(self.calm),
            burst_p99_us: p99_us(self.burst),
            burst_writes: self.burst_writes,
            gap_ms_max: self.gap_max.0 as f64 / 1e6,
            recovery_ms: recovery_ms(&self.slices),
            lost: self.timed.under_way(),
            limited_by: self.limited_by,
            slices: self.slices,
        }
    }
}

/// From the end of the last slice above the threshold to the end of the first one at flash speed.
fn recovery_ms(slices: &[Slice]) -> Option<f64> {
    let above = |slice: &Slice| slice.occupancy_percent > THRESHOLD_PERCENT;
    let last = slices.iter().rposition(above)?;
    let is_fast = |slice: &Slice| slice.effective_us < 2.0 * slice.flash_us;
    let after = slices[last + 1..].iter().position(is_fast);
    let slices = after.map_or(f64::INFINITY, |slices| (slices + 1) as f64);
    Some(slices * SLICE.0 as f64 / 1e6)
}

fn p99_us(mut latencies: Vec<u64>) -> f64 {
    latencies.sort_unstable();
    latencies.get(latencies.len() * 99 / 100).map_or(0.0, |ns| *ns as f64 / 1000.0)
}
