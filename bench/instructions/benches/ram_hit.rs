//! Instructions of RAM read hits in the engine, counted under valgrind, so that the figure repeats
//! exactly: 1000 hits of 4 KiB over an index of 64 Ki blocks, replies counted every 32. Once without and once
//! with the flight recorder. A run with more than [`INSTRUCTIONS_MAX`] fails.

use forebay_core::action::Actions;
use forebay_core::config::Config;
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use gungraun::prelude::*;
use gungraun::{Callgrind, EventKind};

#[path = "../../../crates/forebay-core/tests/common/mod.rs"]
mod common;

const BLOCKS: u64 = 64 << 10;
const HITS: u64 = 1000;
/// What 1000 hits may take: what they took when this was written, recorded, and a tenth.
const INSTRUCTIONS_MAX: u64 = 660_000;

fn warm() -> (Engine, Actions) {
    (common::warm_engine(BLOCKS), Actions::with_capacity(256))
}

fn warm_recorded() -> (Engine, Actions) {
    let recorded = |config| Config { recorder_bytes: 8 << 20, ..config };
    (common::warm_engine_with(BLOCKS, recorded), Actions::with_capacity(256))
}

#[library_benchmark]
#[bench::thousand(setup = warm)]
#[bench::recorded(setup = warm_recorded)]
fn ram_hits((mut engine, mut actions): (Engine, Actions)) -> (Engine, Actions) {
    let mut state = 1;
    for i in 0..HITS {
        let block = common::next_block(&mut state, BLOCKS);
        let now = Nanos(i / 32);
        common::read(&mut engine, now, ByteRange::at(block * 4096, 4096), &mut actions);
        if i % 32 == 31 {
            engine.sent(now);
            actions.clear();
        }
    }
    (engine, actions)
}

library_benchmark_group!(name = hits, benchmarks = ram_hits);

main!(
    config = LibraryBenchmarkConfig::default()
        .tool(Callgrind::default().hard_limits([(EventKind::Ir, INSTRUCTIONS_MAX)])),
    library_benchmark_groups = hits
);
