//! Two disks of one pool, on one shard and on the same primary storage, in virtual time: what a burst that fills the log of
//! one does to the other, and what a scan of one does.

use forebay_backends::model::ModelConfig;
use forebay_core::config::{
    BackendTraits, Config, DestageOrder, GridOffset, Limits, Mode, WriteLogConfig,
};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use forebay_sim::rng::Rng;
use forebay_timed::{Ask, Timed, flash};

const DISK: u64 = 4 << 30;
const SECOND: u64 = 1_000_000_000;
/// Writes of the other disk: so many a second, durable.
const CALM_PER_SECOND: u64 = 250;
/// Durable writers of the burst.
const DEPTH: u64 = 32;
/// How much longer the other disk's durable writes may take: they share flash with the burst's groups, and nothing else.
const SLOWER_MAX: f64 = 1.25;

fn config(order: DestageOrder, log_bytes: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    let log = WriteLogConfig { order, ..WriteLogConfig::new(256, (log_bytes / PAGE / 256) as u32) };
    Config {
        mode: Mode::WriteBack,
        grid_offset: GridOffset::Fixed(0),
        ram_bytes: 16 << 20,
        write_log: Some(log),
        ..Config::for_disk(backend)
    }
}

fn write(disk: &mut Timed, rng: &mut Rng) {
    let range = ByteRange::at(rng.below(DISK / PAGE) * PAGE, PAGE);
    disk.submit(0, Ask::Write(true), range);
}

/// 99th percentiles of the latencies of both disks over so many seconds, and how much of the time the burst's log was full enough to
/// be throttled.
fn run(burst: &mut Timed, calm: &mut Timed, depth: u64, seconds: u64) -> [Vec<u64>; 2] {
    let mut rng = Rng::new(1);
    let end = calm.now.plus(Nanos(seconds * SECOND));
    let mut arrival = calm.now;
    let mut latencies = [Vec::new(), Vec::new()];
    while calm.now < end {
        while burst.under_way() < depth {
            write(burst, &mut rng);
        }
        if calm.now >= arrival {
            write(calm, &mut rng);
            arrival = arrival.plus(Nanos(SECOND / CALM_PER_SECOND));
        }
        let now = burst.next().min(calm.next()).min(arrival).min(end).max(calm.now);
        for (disk, latencies) in [&mut *burst, &mut *calm].into_iter().zip(&mut latencies) {
            while disk.step(now) {}
            latencies.extend(disk.answers.drain(..).map(|answer| answer.latency.0));
            disk.done.clear();
        }
    }
    latencies.each_mut().map(|latencies| {
        latencies.sort_unstable();
        std::mem::take(latencies)
    })
}

fn p99(latencies: &[u64]) -> f64 {
    latencies[latencies.len() * 99 / 100] as f64
}

#[test]
fn a_burst_that_fills_the_log_of_one_disk_slows_no_other() {
    for order in [DestageOrder::Strict, DestageOrder::Window] {
        let storage = ModelConfig {
            iops: Some(11_000),
            latency: Some(Nanos::from_millis(3)),
            ..ModelConfig::default()
        };
        let mut burst = Timed::new(config(order, 32 << 20), storage, flash()).expect("it works");
        let mut calm = burst.beside(config(order, 32 << 20)).expect("it works");
        burst.step(calm.now);
        let [_, alone] = run(&mut burst, &mut calm, 0, 5);
        run(&mut burst, &mut calm, DEPTH, 10);
        let delayed =
            |disk: &Timed| disk.engine.statistics(disk.now).counters.acknowledgements_delayed;
        let before = (delayed(&burst), delayed(&calm));
        let [slowed, beside] = run(&mut burst, &mut calm, DEPTH, 10);
        let (alone, beside, slowed) = (p99(&alone), p99(&beside), p99(&slowed));
        println!(
            "{order:?}: p99 alone {alone:.0} ns, beside the burst {beside:.0} ns, burst {slowed:.0} ns"
        );
        assert!(delayed(&burst) > before.0 + 1000, "the burst is throttled");
        assert_eq!(delayed(&calm), before.1, "the other disk is not");
        assert!(slowed > 5.0 * beside, "{slowed} of the burst, {beside} beside it");
        assert!(beside <= SLOWER_MAX * alone, "{beside} beside the burst, {alone} alone");
    }
}

/// Reads of the disk beside a scan: so many a second, most of them of what fits its cache.
const READS_PER_SECOND: u64 = 2_000;
const HOT: u64 = 48 << 20;
/// Bytes that the scan reads at a time, and how many reads it has under way.
const PIECE: u64 = 64 << 10;
const SCAN_DEPTH: u64 = 128;

/// Hit ratio and 99th percentile of a disk's reads over ten seconds, beside a scan with so many reads under way.
fn beside_scan(scan: &mut Timed, calm: &mut Timed, depth: u64) -> (f64, f64) {
    let mut rng = Rng::new(7);
    let counted = |disk: &Timed| {
        let counters = disk.engine.statistics(disk.now).counters;
        (counters.reads, counters.read_hits())
    };
    let mut run = |seconds: u64, at: &mut u64| {
        let end = calm.now.plus(Nanos(seconds * SECOND));
        let (mut arrival, before, mut latencies) = (calm.now, counted(calm), Vec::new());
        while calm.now < end {
            while scan.under_way() < depth {
                scan.submit(0, Ask::Read, ByteRange::at(*at % DISK, PIECE));
                *at += PIECE;
            }
            if calm.now >= arrival {
                let area = if rng.below(10) == 0 { DISK } else { HOT };
                calm.submit(0, Ask::Read, ByteRange::at(rng.below(area / PAGE) * PAGE, PAGE));
                arrival = arrival.plus(Nanos(SECOND / READS_PER_SECOND));
            }
            let now = scan.next().min(calm.next()).min(arrival).min(end).max(calm.now);
            for disk in [&mut *scan, &mut *calm] {
                while disk.step(now) {}
                disk.done.clear();
            }
            latencies.extend(calm.answers.drain(..).map(|answer| answer.latency.0));
            scan.answers.clear();
        }
        latencies.sort_unstable();
        let (reads, hits) = counted(calm);
        ((hits - before.1) as f64 / (reads - before.0) as f64, p99(&latencies))
    };
    let mut at = 0;
    run(20, &mut at);
    run(10, &mut at)
}

#[test]
fn a_scan_of_one_disk_costs_another_no_hits_and_with_a_limit_hardly_any_time() {
    let storage = || ModelConfig {
        iops: Some(11_000),
        bandwidth: Some(1_200_000_000),
        latency: Some(Nanos::from_millis(3)),
        ..ModelConfig::default()
    };
    let reads = |limits: Limits| {
        let config = config(DestageOrder::Strict, 32 << 20);
        Config { mode: Mode::WriteThrough, write_log: None, ram_bytes: 64 << 20, limits, ..config }
    };
    let figures = |depth: u64, limits: Limits| {
        let mut scan = Timed::new(reads(limits), storage(), flash()).expect("it works");
        let mut calm = scan.beside(reads(Limits::default())).expect("it works");
        beside_scan(&mut scan, &mut calm, depth)
    };
    let (hits, alone) = figures(0, Limits::default());
    let (hits_beside, beside) = figures(SCAN_DEPTH, Limits::default());
    // A third of what primary storage gives.
    let limits = Limits { bandwidth: Some(400_000_000), ..Limits::default() };
    let (hits_limited, limited) = figures(SCAN_DEPTH, limits);
    println!(
        "hit ratio {hits:.4} alone, {hits_beside:.4} beside a scan, {hits_limited:.4} beside one with a limit; p99 {alone:.0} ns, \
         {beside:.0} ns, {limited:.0} ns"
    );
    assert!(hits > 0.8, "{hits}");
    assert!(hits - hits_beside < 0.02 && hits - hits_limited < 0.02);
    assert!(limited < 1.2 * alone, "{limited} beside a scan with a limit, {alone} alone");
}
