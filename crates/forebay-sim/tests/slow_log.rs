//! What guests feel of a log and of destaging that are slow, with the real engine, in virtual time.

use forebay_backends::model::{Distribution, ModelConfig};
use forebay_core::config::{BackendTraits, Config, GridOffset, Mode, WriteLogConfig};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use forebay_core::stats::{LogState, LogStatistics};
use forebay_sim::rng::Rng;
use forebay_timed::{Ask, Timed, flash};

const DISK: u64 = 4 << 30;
const MILLISECOND: u64 = 1_000_000;
/// What is read, and is in RAM.
const READ: u64 = 256;
const WRITE_TAG: u64 = 1;
const READ_TAG: u64 = 2;

fn config(log_bytes: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    Config {
        mode: Mode::WriteBack,
        grid_offset: GridOffset::Fixed(0),
        // Of blocks that are written and read, those stay that are read again and again.
        ram_bytes: 64 << 20,
        write_log: Some(WriteLogConfig::new(256, (log_bytes / PAGE / 256) as u32)),
        ..Config::for_disk(backend)
    }
}

/// So many milliseconds for each I/O.
fn device(milliseconds: u64) -> ModelConfig {
    ModelConfig {
        latency: Some(Nanos::from_millis(milliseconds)),
        distribution: Distribution::Fixed,
        ..ModelConfig::default()
    }
}

/// A disk whose first blocks are in RAM.
fn warm(config: Config, storage: ModelConfig, flash: ModelConfig) -> Timed {
    let mut timed = Timed::new(config, storage, flash).expect("it works");
    for block in 0..READ {
        timed.submit(READ_TAG, Ask::Read, ByteRange::at(block * PAGE, PAGE));
        while timed.under_way() > 0 {
            timed.step(Nanos::NEVER);
        }
    }
    timed.answers.clear();
    timed
}

/// Latencies of `depth` durable writers, each with one random 4 KiB write under way, and of a read of what is in RAM
/// every millisecond, for so long.
fn load(timed: &mut Timed, depth: usize, milliseconds: u64) -> (Vec<u64>, Vec<u64>) {
    let mut rng = Rng::new(1);
    let (mut writes, mut reads, mut writing) = (Vec::new(), Vec::new(), 0);
    let end = timed.now.plus(Nanos::from_millis(milliseconds));
    let mut next = timed.now;
    while timed.now < end {
        while writing < depth {
            let page = READ + rng.below(DISK / PAGE - READ);
            timed.submit(WRITE_TAG, Ask::Write(true), ByteRange::at(page * PAGE, PAGE));
            writing += 1;
        }
        if timed.now >= next {
            next = next.plus(Nanos(MILLISECOND));
            let block = rng.below(READ);
            timed.submit(READ_TAG, Ask::Read, ByteRange::at(block * PAGE, PAGE));
        }
        timed.step(next);
        for answer in timed.answers.drain(..) {
            match answer.tag.0 {
                READ_TAG => reads.push(answer.latency.0),
                // Of writers of before, too.
                _ => {
                    writing = writing.saturating_sub(1);
                    writes.push(answer.latency.0);
                }
            }
        }
    }
    (writes, reads)
}

fn shown(timed: &Timed) -> LogStatistics {
    timed.engine.log_statistics(timed.now).expect("there is a log")
}

/// A commit of 20 ms: two of them at most, the one under way and its own, are all that a write feels; hits feel nothing,
/// nobody is throttled, and `log_io` tells whose fault it is.
#[test]
fn a_log_device_that_is_slow_slows_durable_writers_alone_and_is_told() {
    let mut timed = warm(config(64 << 20), device(1), device(20));
    let (writes, reads) = load(&mut timed, 8, 10_000);
    let longest = writes.iter().max().expect("there were writes");
    println!("{} writes, at most {longest} ns", writes.len());
    assert!(writes.len() > 8 * 10_000 / 45, "{}", writes.len());
    assert!(writes.iter().all(|&latency| latency >= 20 * MILLISECOND));
    // A new segment for the log costs an I/O of flash, too, in this model.
    assert!(*longest <= 60 * MILLISECOND, "{longest}");
    assert!(
        reads.len() > 9_000 && reads.iter().all(|&latency| latency == 0),
        "hits wait for nothing"
    );
    let log = shown(&timed);
    assert_eq!((log.state, log.injected_latency_ns), (LogState::Active, 0), "{log:?}");
    let all = timed.engine.statistics(timed.now);
    assert_eq!((all.counters.acknowledgements_delayed, all.counters.log_errors), (0, 0));
    assert!(all.latency.log_io.p50_ns >= 19 * MILLISECOND, "{:?}", all.latency.log_io);
    assert!(all.latency.backend_io.p50_ns < 2 * MILLISECOND, "{:?}", all.latency.backend_io);
    assert!(timed.noted.is_empty(), "nothing is given up for being slow: {:?}", timed.noted);
}

/// Beside destaging at full rate and the throttle, and with destaging paused until the log is full.
#[test]
fn hits_in_ram_wait_for_nothing_while_writers_wait_for_the_log() {
    let mut timed = warm(config(32 << 20), device(3), flash());
    let (_, beside) = load(&mut timed, 8, 5_000);
    let log = shown(&timed);
    assert!(log.injected_latency_ns > 0 && log.dirty_bytes > 0, "it is throttled: {log:?}");
    let mut abrupt = config(32 << 20);
    abrupt.write_log.as_mut().expect("a log").throttle_percent = 99;
    let mut timed = warm(abrupt, device(3), flash());
    timed.pause_destaging(true);
    let (_, filling) = load(&mut timed, 8, 5_000);
    let log = shown(&timed);
    assert!(log.writes_waiting > 0, "{log:?}");
    for (when, reads) in [("beside", beside), ("filling", filling)] {
        assert!(reads.len() > 4_000 && reads.iter().all(|&latency| latency == 0), "{when}");
    }
}

/// 50 epochs a second, of which the log has room for minutes: what a kill would have destaged again is a second of them, and
/// flushes that take long are rare.
#[test]
fn what_is_destaged_is_noted_every_second() {
    for (latency, behind_max) in [(20, 1_200), (100, 2_000)] {
        let mut timed = Timed::new(config(256 << 20), device(latency), flash()).expect("it works");
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let page = rng.below(DISK / PAGE) * PAGE;
            timed.submit(WRITE_TAG, Ask::Write(true), ByteRange::at(page, PAGE));
            while timed.under_way() > 0 {
                timed.step(Nanos::NEVER);
            }
        }
        let mut progress = Vec::new();
        let (began, mut most) = (timed.now, 0);
        for tenth in 1..=200 {
            let until = began.plus(Nanos::from_millis(100 * tenth));
            while timed.step(until) {}
            let log = shown(&timed);
            // When what is flushed by now had been destaged.
            let at = progress.iter().rposition(|&done| done <= log.flushed_sequence).unwrap_or(0);
            progress.push(log.destaged_sequence);
            most = most.max((progress.len() - 1 - at) as u64 * 100);
        }
        let log = shown(&timed);
        assert!(log.dirty_bytes > 0, "it was destaging all the time: {log:?}");
        println!("{latency} ms: {most} ms behind at most");
        assert!(most <= behind_max, "{latency} ms: {most} ms behind");
        let flushes = timed.engine.statistics(timed.now).counters.backend_flushes;
        assert!((8..=21).contains(&flushes), "{latency} ms: {flushes} flushes");
        let share = flushes * latency * 100 / 20_000;
        assert!(share <= 7, "{latency} ms: {share} % of the time");
    }
}
