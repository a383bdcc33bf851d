//! How much of what a guest writes and reads back a flash cache without RAM answers, with the real engine, in virtual time.

use forebay_backends::model::{Distribution, ModelConfig};
use forebay_core::config::{BackendTraits, Config, GridOffset, Mode, WriteLogConfig};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::Nanos;
use forebay_sim::rng::Rng;
use forebay_timed::{Ask, Timed, flash};

const DISK: u64 = 1 << 30;
/// What is written and read again and again, half of the cache.
const HOT: u64 = 32 << 20;

fn config(mode: Mode, block_size: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    Config {
        mode,
        block_size,
        grid_offset: GridOffset::Fixed(0),
        flash_bytes: 2 * HOT,
        write_log: mode.logs().then(|| WriteLogConfig::new(256, 16)),
        ..Config::for_disk(backend)
    }
}

/// Percent of reads of hot blocks that flash or the log answered, and MiB written to flash for the cache; one of two
/// requests is a write, one of ten is of a block that is hot to nobody.
fn hits(mode: Mode, block_size: u64) -> (f64, u64) {
    let storage = ModelConfig {
        iops: Some(20_000),
        latency: Some(Nanos::from_millis(1)),
        distribution: Distribution::Fixed,
        ..ModelConfig::default()
    };
    let mut timed = Timed::new(config(mode, block_size), storage, flash()).expect("it works");
    let mut rng = Rng::new(1);
    let mut before = timed.engine.statistics(timed.now).counters;
    for n in 0..400_000_u64 {
        if n == 200_000 {
            before = timed.engine.statistics(timed.now).counters;
        }
        let blocks = if rng.chance(100) { DISK } else { HOT } / block_size;
        let range = ByteRange::at(rng.below(blocks) * block_size, block_size);
        let ask = if rng.chance(500) { Ask::Write(false) } else { Ask::Read };
        timed.submit(0, ask, range);
        while timed.under_way() >= 8 {
            timed.step(Nanos::NEVER);
        }
        timed.answers.clear();
        timed.done.clear();
    }
    let after = timed.engine.statistics(timed.now).counters;
    let misses = after.read_misses - before.read_misses;
    let reads = after.reads - before.reads;
    let written = (after.flash_write_bytes - before.flash_write_bytes) >> 20;
    (100.0 - misses as f64 * 100.0 / reads as f64, written)
}

#[test]
fn what_is_written_and_read_back_is_answered_by_flash() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        for block_size in [PAGE, 2 * PAGE] {
            let (percent, mib) = hits(mode, block_size);
            println!("{mode:?}, {block_size} bytes: {percent:.1} % hits, {mib} MiB to flash");
            assert!(percent > 80.0, "{mode:?}, {block_size}: {percent:.1} %");
        }
    }
}
