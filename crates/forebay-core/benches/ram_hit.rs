//! Time of a 4 KiB RAM read hit in the engine alone, from submit to reply, over two million blocks in random order and over
//! as many as fit a CPU's caches better: with nothing that observes the disk, with its flight recorder, and with its miss-ratio
//! curve as well, which is how a disk is served. Rounds take turns. Prints the medians.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{read, warm_engine};
use forebay_core::action::Actions;
use forebay_core::config::Config;
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::splitmix::Rng;

const BATCH: u64 = 32;
const ROUNDS: usize = 9;
const RECORDER: u64 = 8 << 20;

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let (sizes, hits) =
        if tiny { ([4096, 8192], 32_000) } else { ([64 << 10, 2 << 20], 4_000_000) };
    for blocks in sizes {
        let observed =
            [("nothing", 0, false), ("recorder", RECORDER, false), ("curve too", RECORDER, true)];
        let mut engines = observed.map(|(name, recorder_bytes, curve)| {
            let with = |config| Config { recorder_bytes, curve, ..config };
            (name, warm_engine(blocks, with), Vec::new(), Vec::new())
        });
        for _ in 0..ROUNDS {
            for (_, engine, rounds, ahead) in &mut engines {
                rounds.push(round(engine, blocks, hits));
                ahead.push(round_ahead(engine, blocks, hits));
            }
        }
        for (name, engine, mut rounds, mut ahead) in engines {
            assert_eq!(
                engine.statistics(Nanos(0)).counters.read_hits_ram,
                2 * hits * ROUNDS as u64
            );
            ahead.sort_by(f64::total_cmp);
            println!("{blocks} blocks, {name}: {:.1} ns a hit in batches", ahead[ROUNDS / 2]);
            rounds.sort_by(f64::total_cmp);
            let (median, most) = (rounds[ROUNDS / 2], rounds[ROUNDS - 1]);
            let least = rounds[0];
            println!("{blocks} blocks, {name}: {median:.1} ns a hit ({least:.1}-{most:.1})");
        }
    }
}

/// Nanoseconds of a hit, where the engine is told of a batch before its requests are submitted.
fn round_ahead(engine: &mut Engine, blocks: u64, hits: u64) -> f64 {
    let mut actions = Actions::with_capacity(256);
    let mut random = Rng::new(1);
    let start = Instant::now();
    for batch in 0..hits / BATCH {
        let now = Nanos(batch);
        let ranges =
            [(); BATCH as usize].map(|()| ByteRange::at(random.below(blocks) * 4096, 4096));
        engine.look_ahead(ranges.iter().map(|range| range.start));
        for range in ranges {
            read(engine, now, range, &mut actions);
        }
        assert_eq!(actions.list.len() as u64, BATCH);
        engine.sent(now);
        actions.clear();
    }
    start.elapsed().as_nanos() as f64 / hits as f64
}

/// Nanoseconds of a hit.
fn round(engine: &mut Engine, blocks: u64, hits: u64) -> f64 {
    let mut actions = Actions::with_capacity(256);
    let mut random = Rng::new(1);
    let start = Instant::now();
    for tag in 0..hits {
        let block = random.below(blocks);
        // A shard reads the clock once per batch.
        let now = Nanos(tag / BATCH);
        read(engine, now, ByteRange::at(block * 4096, 4096), &mut actions);
        if tag % BATCH == BATCH - 1 {
            assert_eq!(actions.list.len() as u64, BATCH);
            engine.sent(now);
            actions.clear();
        }
    }
    start.elapsed().as_nanos() as f64 / hits as f64
}
