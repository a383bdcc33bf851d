//! Time of a 4 KiB RAM read hit in the engine alone, from submit to reply, over an index of two
//! million blocks in random order. Prints one line a round and the median.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::{next_block, read, warm_engine};
use forebay_core::action::Actions;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;

const BLOCKS: u64 = 2 << 20;
const BATCH: u64 = 32;
const ROUNDS: usize = 9;

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let (blocks, hits) = if tiny { (4096, 320_000) } else { (BLOCKS, 4_000_000) };
    let mut engine = warm_engine(blocks);
    let mut actions = Actions::with_capacity(256);
    let mut state = 1;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let start = Instant::now();
        for tag in 0..hits {
            let block = next_block(&mut state, blocks);
            // A shard reads the clock once per batch.
            let now = Nanos(tag / BATCH);
            read(&mut engine, now, ByteRange::at(block * 4096, 4096), &mut actions);
            if tag % BATCH == BATCH - 1 {
                assert_eq!(actions.list.len() as u64, BATCH);
                engine.sent(Nanos(tag / BATCH));
                actions.clear();
            }
        }
        let nanos = start.elapsed().as_nanos() as f64 / hits as f64;
        println!("round {round}: {nanos:.1} ns per hit");
        rounds.push(nanos);
    }
    assert_eq!(engine.statistics(Nanos(0)).counters.read_hits_ram, hits * ROUNDS as u64);
    rounds.sort_by(f64::total_cmp);
    println!("engine RAM hit, {blocks} blocks: median {:.1} ns", rounds[ROUNDS / 2]);
}
