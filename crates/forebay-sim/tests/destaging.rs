//! What the destager achieves on modelled storage, with the real engine, in virtual time.

use std::collections::BTreeSet;

use forebay_backends::model::{Distribution, ModelConfig, ModelOp};
use forebay_core::action::Target;
use forebay_core::config::{
    BackendTraits, Config, DestageOrder, FlashAdmission, GridOffset, Mode, SequentialBypass,
    WriteLogConfig,
};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use forebay_core::stats::DestageLimit;
use forebay_sim::rng::Rng;
use forebay_timed::{Ask, Timed, flash};

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
    let mut timed = Timed::new(config(DestageOrder::Strict, 16 << 20), simple(11_000), flash())
        .expect("it works");
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
    let mut timed = Timed::new(config(DestageOrder::Strict, 256 << 20), simple(50_000), flash())
        .expect("it works");
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
    let batches = timed.engine.statistics(timed.now).counters.destage_batches;
    println!("{ratio:.3} of the distinct sectors; {back} steps back in {batches} batches");
    assert!((1.0..=1.05).contains(&ratio), "{ratio:.3} of the distinct sectors per epoch");
    // The storage answers in the order that it is asked in.
    assert!(back < batches, "{back} steps back in {batches} batches");
    let log = timed.engine.log_statistics(timed.now).expect("there is a log");
    assert!(log.is_clean && log.dirty_bytes == 0, "{log:?}");
}

/// 15,000 random 4 KiB writes per second for three seconds, a flush after every `writes` of them.
fn write_in_epochs(order: DestageOrder, storage: ModelConfig, writes: u64) -> (Timed, u64) {
    const PER_SECOND: u64 = 15_000;
    let mut timed = Timed::new(config(order, 1 << 30), storage, flash()).expect("it works");
    let mut rng = Rng::new(1);
    for n in 0..3 * PER_SECOND {
        let at = Nanos(n * SECOND / PER_SECOND);
        while timed.step(at) {}
        if n == PER_SECOND {
            destaged_pages(&mut timed);
        }
        let range = ByteRange::at(rng.below(DISK / PAGE) * PAGE, PAGE);
        timed.submit(0, Ask::Write(false), range);
        if n % writes == 0 {
            timed.submit(0, Ask::Flush, ByteRange::default());
        }
    }
    let destaged = destaged_pages(&mut timed) / 2;
    (timed, destaged)
}

/// Pages of the writes of each flush epoch, in ascending order.
fn epochs(count: u64, writes: u64) -> Vec<BTreeSet<u64>> {
    let mut rng = Rng::new(1);
    let epoch = |_| (0..writes).map(|_| rng.below(DISK / PAGE)).collect();
    (0..count).map(epoch).collect()
}

/// Writes per second of a client that knows everything: it has so many of an epoch under way, in ascending order, and begins
/// the next one (with a flush before it, or without) when all of them have ended. The first
/// quarter is left out, in which a write cache of the storage fills.
fn ideal(storage: ModelConfig, epochs: &[BTreeSet<u64>], depth: usize, barrier: bool) -> f64 {
    let mut model = storage.build(DISK);
    let all: u64 = epochs.iter().map(|epoch| epoch.len() as u64).sum();
    let (mut now, mut writes, mut from) = (Nanos(0), 0, None);
    for epoch in epochs {
        if writes >= all / 4 && from.is_none() {
            from = Some((now, writes));
        }
        let mut under_way = std::collections::BinaryHeap::new();
        for page in epoch {
            if under_way.len() == depth {
                let std::cmp::Reverse(ended) = under_way.pop().expect("some are under way");
                now = now.max(ended);
            }
            let range = ByteRange::at(page * PAGE, PAGE);
            under_way.push(std::cmp::Reverse(model.submit(now, ModelOp::Write, range)));
            writes += 1;
        }
        now = under_way.into_iter().map(|ended| ended.0).fold(now, Nanos::max);
        if barrier {
            now = model.submit(now, ModelOp::Flush, ByteRange::default());
        }
    }
    let (began, before) = from.expect("more than a quarter");
    (writes - before) as f64 * SECOND as f64 / now.since(began).0 as f64
}

/// The same by the destager, of a log that has all of it; the first quarter is left out, in which it finds its window.
fn destaged(storage: ModelConfig, epochs: &[BTreeSet<u64>], barrier: bool) -> f64 {
    let config = config(DestageOrder::Strict, 1 << 30);
    let write_log = config.write_log.map(|log| WriteLogConfig { barrier, ..log });
    let mut timed = Timed::new(Config { write_log, ..config }, storage, flash()).expect("it works");
    timed.pause_destaging(true);
    for epoch in epochs {
        for page in epoch {
            while timed.under_way() > 16 {
                timed.step(Nanos::NEVER);
            }
            timed.submit(0, Ask::Write(false), ByteRange::at(page * PAGE, PAGE));
        }
        timed.submit(0, Ask::Flush, ByteRange::default());
        while timed.under_way() > 0 {
            timed.step(Nanos::NEVER);
        }
    }
    timed.done.clear();
    timed.pause_destaging(false);
    let all: u64 = epochs.iter().map(|epoch| epoch.len() as u64).sum();
    let (mut pages, mut from) = (0, None);
    while pages < all {
        assert!(timed.step(Nanos::NEVER), "{pages} of {all} pages destaged");
        pages += destaged_pages(&mut timed);
        if pages >= all / 4 && from.is_none() {
            from = Some((timed.now, pages));
        }
    }
    let (began, before) = from.expect("more than a quarter");
    (all - before) as f64 * SECOND as f64 / timed.now.since(began).0 as f64
}

#[test]
fn strict_order_gets_nine_tenths_of_what_an_ideal_client_gets_in_the_same_order() {
    let raid = ModelConfig::default();
    for (name, storage) in [
        ("fixed", simple(11_000)),
        ("spread", ModelConfig { distribution: Distribution::Exponential, ..simple(11_000) }),
        ("RAID", raid),
        ("RAID without cache", ModelConfig { write_cache: 0, ..raid }),
    ] {
        for (count, writes) in [(1000, 1), (150, 64), (16, 1000)] {
            for barrier in [false, true] {
                let epochs = epochs(count, writes);
                let best =
                    [1, 4, 16, 32, 64, 128, 1024].map(|n| ideal(storage, &epochs, n, barrier));
                let best = best.into_iter().fold(0.0, f64::max);
                let ours = destaged(storage, &epochs, barrier);
                let ratio = ours / best;
                println!(
                    "{name}, epochs of {writes}, flushed: {barrier}: {ours:.0}/s of {best:.0}/s, {ratio:.3}"
                );
                assert!(ratio >= 0.9, "{name}, epochs of {writes}: {ratio:.3} of an ideal client");
            }
        }
    }
}

#[test]
fn the_limit_that_is_shown_says_what_window_order_would_do() {
    let spread = ModelConfig { distribution: Distribution::Exponential, ..simple(11_000) };
    let raid = ModelConfig::default();
    let raid_without_cache = ModelConfig { write_cache: 0, ..raid };
    for (name, storage) in [
        ("fixed", simple(11_000)),
        ("spread", spread),
        ("slow", simple(400)),
        ("RAID", raid),
        ("RAID without cache", raid_without_cache),
    ] {
        let (_, window) = write_in_epochs(DestageOrder::Window, storage, 64);
        for writes in [1, 64, 1000] {
            let (timed, strict) = write_in_epochs(DestageOrder::Strict, storage, writes);
            let log = timed.engine.log_statistics(timed.now).expect("there is a log");
            let estimate = log.without_order_writes_per_second;
            let at_least = log.without_order_is_at_least;
            println!(
                "{name}, epochs of {writes}: {} epochs/s at {:.2} ms, {strict} writes/s; window {window}/s, {estimate} {at_least}, {:?}",
                log.epochs_per_second,
                log.epoch_ns as f64 / 1e6,
                log.limited_by
            );
            assert!(
                log.limited_by == DestageLimit::EpochOrder || writes >= 64,
                "{:?}",
                log.limited_by
            );
            if matches!(name, "fixed" | "spread") {
                let busy = log.epochs_per_second as f64 * log.epoch_ns as f64 / 1e9;
                assert!((0.75..=1.1).contains(&busy), "epoch after epoch: {busy:.2}");
            }
            // Otherwise it is not the order that is in the way, and nothing is said of it.
            if log.limited_by == DestageLimit::EpochOrder && estimate > 0 {
                let ratio = estimate as f64 / window as f64;
                assert!(ratio < 1.3, "{estimate} estimated, {window} done");
                assert!(ratio > 0.7 || at_least, "{estimate} estimated, {window} done");
                let gain = window as f64 / strict as f64;
                assert!(gain > 1.15, "it would gain {gain:.2}");
            }
        }
    }
}

/// Reads of blocks of 8 KiB, so many at a time.
#[derive(Clone, Copy)]
struct Reads {
    depth: u64,
    /// Blocks that are read, from the start of the disk's second half on; writes go to the first half.
    blocks: u64,
}

impl Reads {
    fn of(self, timed: &mut Timed, block: u64) {
        timed.submit(0, Ask::Read, ByteRange::at(DISK / 2 + block * 8192, 8192));
    }

    /// 99th percentile of latency over so many seconds.
    fn p99(self, timed: &mut Timed, rng: &mut Rng, seconds: f64) -> f64 {
        timed.answers.clear();
        let end = timed.now.plus(Nanos((seconds * SECOND as f64) as u64));
        let mut latencies = Vec::new();
        loop {
            while timed.under_way() < self.depth {
                self.of(timed, rng.below(self.blocks));
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
}

/// What destaging at full rate does to reads: their 99th percentile with it over that without, and writes
/// destaged per second meanwhile.
fn reads_beside_destaging(reads: Reads, flash_cache: u64) -> (f64, u64) {
    let log = config(DestageOrder::Window, 2 << 30);
    let config = Config {
        flash_bytes: flash_cache,
        flash_admission: FlashAdmission::Always,
        ram_bytes: 1 << 20,
        sequential_bypass: SequentialBypass::Off,
        ..log
    };
    let mut timed = Timed::new(config, simple(11_000), flash()).expect("it works");
    let mut rng = Rng::new(1);
    timed.pause_destaging(true);
    for _ in 0..150_000 {
        let range = ByteRange::at(rng.below(DISK / 2 / PAGE) * PAGE, PAGE);
        timed.submit(0, Ask::Write(false), range);
        while timed.under_way() > 0 {
            timed.step(Nanos::NEVER);
        }
    }
    if flash_cache > 0 {
        // Twice, so that what RAM gave up is in flash.
        for block in (0..2 * reads.blocks).map(|block| block % reads.blocks) {
            reads.of(&mut timed, block);
            while timed.under_way() > 0 {
                timed.step(Nanos::NEVER);
            }
        }
    }
    let alone = reads.p99(&mut timed, &mut rng, 4.0);
    timed.pause_destaging(false);
    reads.p99(&mut timed, &mut rng, 3.0);
    destaged_pages(&mut timed);
    let beside = reads.p99(&mut timed, &mut rng, 4.0);
    let log = timed.engine.log_statistics(timed.now).expect("there is a log");
    assert!(log.dirty_bytes > 0, "it was destaging all the time");
    (beside / alone, destaged_pages(&mut timed) / 4)
}

#[test]
fn hits_in_flash_are_as_fast_while_everything_is_destaged() {
    for depth in [1, 8] {
        let (ratio, destaged) = reads_beside_destaging(Reads { depth, blocks: 4096 }, 64 << 20);
        println!("hits, {depth} at a time: p99 {ratio:.2}, {destaged} destaged/s");
        assert!(ratio < 1.2, "p99 {ratio:.2}");
        assert!(destaged > 9_900, "{destaged} writes/s of 11,000");
    }
}

#[test]
fn misses_are_nearly_as_fast_while_everything_is_destaged() {
    for depth in [1, 8] {
        let (ratio, destaged) = reads_beside_destaging(Reads { depth, blocks: 100_000 }, 0);
        println!("misses, {depth} at a time: p99 {ratio:.2}, {destaged} destaged/s");
        assert!(ratio < 1.5, "p99 {ratio:.2}");
        assert!(destaged > 5_500, "{destaged} writes/s of 11,000");
    }
}

#[test]
fn compare_and_writes_wait_for_no_destage_and_no_flush_of_primary_storage() {
    // An I/O of primary storage takes 200 ms, and durable writers fill the log until they wait for that.
    let latency = Some(Nanos::from_millis(200));
    let slow = ModelConfig { latency, ..simple(100) };
    let mut timed =
        Timed::new(config(DestageOrder::Strict, 64 << 20), slow, flash()).expect("it works");
    let mut rng = Rng::new(1);
    let heartbeats: Vec<ByteRange> = (0..4).map(|host| ByteRange::at(host * 512, 512)).collect();
    timed.submit(1, Ask::Read, ByteRange::at(0, PAGE));
    while timed.under_way() > 0 {
        timed.step(Nanos::NEVER);
    }
    timed.answers.clear();
    let (mut writes, mut compares) = (Vec::new(), Vec::new());
    let mut next = timed.now;
    while timed.now < seconds(30.0) {
        while timed.under_way() < 16 {
            let range = ByteRange::at(PAGE + rng.below(DISK / PAGE - 1) * PAGE, PAGE);
            timed.submit(0, Ask::Write(true), range);
        }
        if timed.now >= next {
            next = next.plus(Nanos::from_millis(50));
            heartbeats.iter().for_each(|&range| timed.submit(2, Ask::CompareAndWrite, range));
        }
        timed.step(next);
        for answer in timed.answers.drain(..) {
            if answer.tag.0 == 2 { &mut compares } else { &mut writes }.push(answer.latency);
        }
    }
    let longest = compares.iter().max().expect("some were answered");
    let throttled = writes.iter().filter(|latency| latency.0 > 50_000_000).count();
    println!("{} compare-and-writes, at most {longest:?}", compares.len());
    assert!(compares.len() > 2000 && throttled > 50, "{} {throttled}", compares.len());
    // Two commits of up to 200 us each.
    assert!(longest.0 < 1_000_000, "{longest:?}");
}

/// Eight reads at a time leave little of RAID 5 to destaging. Paced by them, a change of mode took hours, in which a
/// write waited for a second, and the last ones for a minute.
#[test]
fn a_change_of_mode_and_its_writers_do_not_wait_for_reads() {
    let log = config(DestageOrder::Window, 1 << 30);
    let mut timed = Timed::new(log, ModelConfig::default(), flash()).expect("it works");
    let mut rng = Rng::new(1);
    let random = |rng: &mut Rng| ByteRange::at(rng.below(DISK / 2 / PAGE) * PAGE, PAGE);
    let reads = Reads { depth: 8, blocks: 250_000 };
    timed.pause_destaging(true);
    for _ in 0..8192 {
        timed.submit(0, Ask::Write(false), random(&mut rng));
        while timed.under_way() > 0 {
            timed.step(Nanos::NEVER);
        }
    }
    reads.p99(&mut timed, &mut rng, 4.0);
    timed.pause_destaging(false);
    reads.p99(&mut timed, &mut rng, 10.0);
    timed.set_mode(Mode::WriteThrough);
    let (began, mut latencies, mut writes) = (timed.now, Vec::new(), false);
    while timed.engine.mode() != Mode::WriteThrough || writes {
        if !writes {
            timed.submit(1, Ask::Write(true), random(&mut rng));
            writes = true;
        }
        while timed.under_way() < 9 {
            reads.of(&mut timed, rng.below(reads.blocks));
        }
        timed.step(Nanos::NEVER);
        for answer in timed.answers.drain(..).filter(|answer| answer.tag.0 == 1) {
            latencies.push(answer.latency.0);
            writes = false;
        }
    }
    let longest = latencies.iter().max().copied().expect("there were writes");
    let mean = latencies.iter().sum::<u64>() / latencies.len() as u64;
    let took = timed.now.since(began).0;
    println!("changed in {:.0} s, writes {mean} ns, {longest} at most", took as f64 / 1e9);
    assert!(longest < SECOND && mean < SECOND / 10 && took < 120 * SECOND);
}
