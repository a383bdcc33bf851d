//! What the destager achieves on modelled storage, with the real engine, in virtual time.

use std::collections::BTreeSet;

use forebay_backends::model::{Distribution, ModelConfig, ModelOp};
use forebay_core::action::Target;
use forebay_core::config::{BackendTraits, Config, DestageOrder, GridOffset, Mode, WriteLogConfig};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use forebay_sim::rng::Rng;
use forebay_sim::timed::{Ask, Timed, flash};

const DISK: u64 = 4 << 30;
const SECOND: u64 = 1_000_000_000;

fn config(order: DestageOrder, log_bytes: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    let segments = (log_bytes / PAGE / 256) as u32;
    Config {
        mode: Mode::WriteBack,
        grid_offset: GridOffset::Fixed(0),
        ram_bytes: 16 << 20,
        write_log: Some(WriteLogConfig { order, ..WriteLogConfig::new(256, segments) }),
        ..Config::for_disk(backend)
    }
}

/// 3 ms, and so many writes per second.
fn simple(iops: u64) -> ModelConfig {
    ModelConfig {
        iops: Some(iops),
        latency: Some(Nanos::from_millis(3)),
        distribution: Distribution::Fixed,
        ..ModelConfig::default()
    }
}

fn seconds(seconds: f64) -> Nanos {
    Nanos((seconds * SECOND as f64) as u64)
}

/// Pages that primary storage took since the last look.
fn destaged_pages(timed: &mut Timed) -> u64 {
    let writes = timed.done.drain(..).filter(|d| d.target == Target::Backend);
    writes.filter(|d| d.op == ModelOp::Write).map(|d| d.range.len() / PAGE).sum()
}

/// `depth` durable writers, each with one random 4 KiB write under way, until `until`.
fn write_durably(timed: &mut Timed, rng: &mut Rng, depth: u64, until: Nanos) {
    loop {
        while timed.under_way() < depth {
            let range = ByteRange::at(rng.below(DISK / PAGE) * PAGE, PAGE);
            timed.submit(0, Ask::Write(true), range);
        }
        if !timed.step(until) {
            return;
        }
        timed.answers.clear();
    }
}

#[test]
fn durable_writers_that_strict_order_holds_up_share_its_epochs() {
    let mut timed = Timed::new(config(DestageOrder::Strict, 16 << 20), simple(11_000), flash());
    let mut rng = Rng::new(1);
    write_durably(&mut timed, &mut rng, 32, seconds(20.0));
    destaged_pages(&mut timed);
    write_durably(&mut timed, &mut rng, 32, seconds(30.0));
    let per_second = destaged_pages(&mut timed) / 10;
    println!("{per_second} writes/s");
    // An epoch of one write takes 3 ms: 330 writes/s.
    assert!(per_second > 4_000, "{per_second}");
}

/// Random 4 KiB overwrites of few pages with a flush every tenth of a second: what primary storage is sent,
/// and what it had to be sent, epoch by epoch.
#[test]
fn overwrites_within_an_epoch_reach_primary_storage_once_and_sorted() {
    const PAGES: u64 = 2_000;
    const PER_SECOND: u64 = 10_000;
    let mut timed = Timed::new(config(DestageOrder::Strict, 256 << 20), simple(50_000), flash());
    let mut rng = Rng::new(1);
    let (mut sent, mut back, mut needed) = (0u64, 0u64, 0u64);
    let mut last = ByteRange::default();
    let mut count = |timed: &mut Timed| {
        for done in timed.done.drain(..) {
            if done.target == Target::Backend && done.op == ModelOp::Write {
                sent += done.range.len() / 512;
                back += u64::from(done.range.start < last.end);
                last = done.range;
            }
        }
    };
    for _epoch in 0..100 {
        let mut pages = BTreeSet::new();
        let end = timed.now.plus(Nanos::from_millis(100));
        for n in 0..PER_SECOND / 10 {
            let at = Nanos(end.0 - SECOND / 10 + n * SECOND / PER_SECOND);
            while timed.step(at) {}
            let page = rng.below(PAGES);
            pages.insert(page);
            timed.submit(0, Ask::Write(false), ByteRange::at(page * PAGE, PAGE));
            count(&mut timed);
        }
        timed.submit(0, Ask::Flush, ByteRange::default());
        while timed.under_way() > 0 {
            timed.step(Nanos::NEVER);
        }
        needed += pages.len() as u64 * PAGE / 512;
    }
    let end = timed.now.plus(seconds(10.0));
    while timed.step(end) {}
    count(&mut timed);
    let ratio = sent as f64 / needed as f64;
    let batches = timed.engine.statistics().counters.destage_batches;
    println!("{ratio:.3} of the distinct sectors; {back} steps back in {batches} batches");
    assert!((1.0..=1.05).contains(&ratio), "{ratio:.3} of the distinct sectors per epoch");
    // The storage answers in the order that it is asked in.
    assert!(back < batches, "{back} steps back in {batches} batches");
    let log = timed.engine.log_statistics().expect("there is a log");
    assert!(log.is_clean && log.dirty_bytes == 0, "{log:?}");
}
