//! What destaging through a journal achieves on modelled storage, with the real engine, in virtual time.

use forebay_backends::model::{Distribution, ModelConfig, ModelOp};
use forebay_core::action::Target;
use forebay_core::config::{
    BackendTraits, Config, DestageOrder, GridOffset, Mode, SequentialBypass, WriteLogConfig,
};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{Generation, Nanos, Uuid};
use forebay_core::journal::{JournalConfig, Owner, Shape, Superblock};
use forebay_sim::rng::Rng;
use forebay_timed::{Ask, Timed, flash};

const DISK: u64 = 4 << 30;
const SECOND: u64 = 1_000_000_000;
const ORDERS: [DestageOrder; 4] =
    [DestageOrder::Strict, DestageOrder::Journaled, DestageOrder::Window, DestageOrder::Throughput];

fn config(order: DestageOrder, log_bytes: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    let pages = log_bytes / PAGE;
    let owner = Owner { disk: Uuid([1; 16]), nonce: 1 };
    let superblock = Superblock::first(owner, Shape::for_log(pages));
    let journal = JournalConfig::new(superblock, Generation(1));
    let log = WriteLogConfig {
        order,
        journal: Some(journal),
        ..WriteLogConfig::new(256, (pages / 256) as u32)
    };
    Config {
        mode: Mode::WriteBack,
        grid_offset: GridOffset::Fixed(0),
        ram_bytes: 16 << 20,
        write_log: Some(log),
        ..Config::for_disk(backend)
    }
}

/// 3 ms, so many writes per second, and so many MiB per second if any.
fn simple(iops: u64, mib: Option<u64>) -> ModelConfig {
    ModelConfig {
        iops: Some(iops),
        latency: Some(Nanos::from_millis(3)),
        bandwidth: mib.map(|mib| mib << 20),
        distribution: Distribution::Fixed,
        ..ModelConfig::default()
    }
}

fn timed(order: DestageOrder, log_bytes: u64, storage: ModelConfig) -> Timed {
    Timed::new(config(order, log_bytes), storage, flash()).expect("it works")
}

fn random_page(rng: &mut Rng) -> ByteRange {
    ByteRange::at(rng.below(DISK / 2 / PAGE) * PAGE, PAGE)
}

/// Pages that primary storage took in place since the last look.
fn destaged_pages(timed: &mut Timed) -> u64 {
    let writes = timed.done.drain(..).filter(|d| d.target == Target::Backend);
    writes.filter(|d| d.op == ModelOp::Write).map(|d| d.range.len() / PAGE).sum()
}

/// Writes per second of 32 durable writers, once the log is as full as it stays.
fn sustained(order: DestageOrder, storage: ModelConfig) -> f64 {
    let mut timed = timed(order, 64 << 20, storage);
    let mut rng = Rng::new(1);
    let (mut answered, mut before) = (0, 0);
    for second in 1..=30 {
        let end = Nanos(second * SECOND);
        loop {
            while timed.under_way() < 32 {
                let range = random_page(&mut rng);
                timed.submit(0, Ask::Write(true), range);
            }
            let goes_on = timed.step(end);
            answered += timed.answers.drain(..).count();
            if !goes_on {
                break;
            }
        }
        timed.done.clear();
        if second == 10 {
            before = answered;
        }
    }
    (answered - before) as f64 / 20.0
}

#[test]
fn durable_writers_get_nearly_what_they_get_without_any_order() {
    for (mib, least) in [(None, 0.85), (Some(400), 0.85), (Some(100), 0.7)] {
        let storage = simple(11_000, mib);
        let [strict, journaled, window, throughput] = ORDERS.map(|order| sustained(order, storage));
        let ratio = journaled / throughput;
        println!(
            "{mib:?} MiB/s: strict {strict:.0}/s, journaled {journaled:.0}, window {window:.0}, throughput {throughput:.0}: {ratio:.3}"
        );
        assert!(ratio >= least, "{ratio:.3}");
    }
}

/// Writes of a guest that flushes after each, more than primary storage takes: destaged per second, and the bytes written for
/// a byte destaged.
fn flushed_one_by_one(order: DestageOrder, storage: ModelConfig) -> (f64, f64) {
    const PER_SECOND: u64 = 15_000;
    let mut timed = timed(order, 1 << 30, storage);
    let mut rng = Rng::new(1);
    for n in 0..4 * PER_SECOND {
        let at = Nanos(n * SECOND / PER_SECOND);
        while timed.step(at) {}
        if n == PER_SECOND {
            destaged_pages(&mut timed);
        }
        let range = random_page(&mut rng);
        timed.submit(0, Ask::Write(false), range);
        timed.submit(0, Ask::Flush, ByteRange::default());
    }
    let destaged = destaged_pages(&mut timed) as f64 / 3.0;
    // What is in the journal and not in place yet is not to count twice.
    while !timed.engine.log_is_clean() {
        assert!(timed.step(Nanos::NEVER), "all is destaged in the end");
    }
    let written = timed.written;
    (destaged, (written.backend + written.journal) as f64 / written.backend as f64)
}

#[test]
fn a_guest_that_flushes_after_each_write_is_destaged_nearly_as_fast_as_in_windows() {
    let storage = simple(11_000, None);
    let [strict, journaled, window, _] = ORDERS.map(|order| flushed_one_by_one(order, storage));
    let ratio = journaled.0 / window.0;
    println!(
        "strict {:.0}/s, journaled {:.0}, window {:.0}: {ratio:.3}, {:.3} bytes for each",
        strict.0, journaled.0, window.0, journaled.1
    );
    assert!(ratio >= 0.8, "{ratio:.3}");
    assert!(journaled.1 <= 2.1, "{:.3}", journaled.1);
}

/// What a client gets that has 32 random writes under way on primary storage itself.
fn bare(storage: ModelConfig) -> f64 {
    let mut model = storage.build(DISK);
    let mut rng = Rng::new(1);
    let mut under_way = std::collections::BinaryHeap::new();
    let (mut now, mut writes, end) = (Nanos(0), 0, Nanos(30 * SECOND));
    while now < end {
        if under_way.len() == 32 {
            let std::cmp::Reverse(ended) = under_way.pop().expect("some are under way");
            now = now.max(ended);
            writes += u64::from(now.0 > 10 * SECOND);
        }
        let range = random_page(&mut rng);
        under_way.push(std::cmp::Reverse(model.submit(now, ModelOp::Write, range)));
    }
    writes as f64 / 20.0
}

/// Every write is a read, a write and two of parity there, and few of a window meet in a stripe: sorted, they are hardly faster,
/// and their record comes on top.
#[test]
fn raid_takes_windows_nearly_as_fast_as_random_writes() {
    let storage = ModelConfig::default();
    let (journaled, bare) = (sustained(DestageOrder::Journaled, storage), bare(storage));
    let [strict, _, window, _] = ORDERS.map(|order| sustained(order, storage));
    println!(
        "strict {strict:.0}/s, journaled {journaled:.0}, window {window:.0}, bare random writes {bare:.0}"
    );
    assert!(journaled >= 0.9 * bare && journaled > window, "{:.3}", journaled / bare);
}

#[test]
fn large_epochs_go_in_place_without_a_journal() {
    let mut timed = timed(DestageOrder::Journaled, 1 << 30, simple(11_000, None));
    let mut rng = Rng::new(1);
    for _ in 0..20 {
        for _ in 0..1000 {
            let range = random_page(&mut rng);
            timed.submit(0, Ask::Write(false), range);
            while timed.under_way() > 16 {
                timed.step(Nanos::NEVER);
            }
        }
        timed.submit(0, Ask::Flush, ByteRange::default());
        while timed.under_way() > 0 {
            timed.step(Nanos::NEVER);
        }
    }
    while timed.step(Nanos(timed.now.0 + 20 * SECOND)) {}
    let written = timed.written;
    assert!(written.backend >= 19_900 * PAGE, "{written:?}");
    let ratio = (written.backend + written.journal) as f64 / written.backend as f64;
    println!("{ratio:.3} bytes for each");
    assert!(ratio < 1.01, "{ratio:.3}");
}

/// 99th percentile of the latency of random reads, so many at a time, for four seconds.
fn reads_p99(timed: &mut Timed, rng: &mut Rng, depth: u64) -> f64 {
    timed.answers.clear();
    let end = timed.now.plus(Nanos(4 * SECOND));
    let mut latencies = Vec::new();
    loop {
        while timed.under_way() < depth {
            let block = rng.below(200_000);
            timed.submit(0, Ask::Read, ByteRange::at(DISK / 2 + block * 8192, 8192));
        }
        let goes_on = timed.step(end);
        latencies.extend(timed.answers.drain(..).map(|answer| answer.latency.0));
        if !goes_on {
            break;
        }
    }
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100] as f64
}

#[test]
fn misses_are_nearly_as_fast_beside_it() {
    for (mib, depth) in [(None, 1), (None, 8), (Some(400), 8)] {
        let config = config(DestageOrder::Journaled, 2 << 30);
        let config =
            Config { ram_bytes: 1 << 20, sequential_bypass: SequentialBypass::Off, ..config };
        let mut timed = Timed::new(config, simple(11_000, mib), flash()).expect("it works");
        let mut rng = Rng::new(1);
        timed.pause_destaging(true);
        for _ in 0..150_000 {
            let range = random_page(&mut rng);
            timed.submit(0, Ask::Write(true), range);
            while timed.under_way() > 0 {
                timed.step(Nanos::NEVER);
            }
        }
        let alone = reads_p99(&mut timed, &mut rng, depth);
        timed.pause_destaging(false);
        reads_p99(&mut timed, &mut rng, depth);
        destaged_pages(&mut timed);
        let beside = reads_p99(&mut timed, &mut rng, depth);
        let log = timed.engine.log_statistics(timed.now).expect("there is a log");
        assert!(log.dirty_bytes > 0, "it was destaging all the time");
        let (ratio, destaged) = (beside / alone, destaged_pages(&mut timed) / 4);
        println!("{mib:?} MiB/s, {depth} at a time: p99 {ratio:.2}, {destaged} destaged/s");
        assert!(ratio <= 1.5, "p99 {ratio:.2}");
    }
}
