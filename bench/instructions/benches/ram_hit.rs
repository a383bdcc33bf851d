//! Instructions of RAM read hits in the engine, counted under valgrind, so that the figure repeats
//! exactly: 1000 hits of 4 KiB over an index of 64 Ki blocks, replies counted every 32: with
//! nothing that observes the disk, with its flight recorder, with its miss-ratio curve as well, which is how a
//! disk is served, and while its histograms are counted. Each fails above its limit.

use forebay_core::action::Actions;
use forebay_core::config::Config;
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::splitmix::Rng;
use forebay_instructions::limit::at_most;
use gungraun::prelude::*;

// Compiled here, so that its calls are inlined: they would take 5 instructions of each hit.
#[path = "../../../crates/forebay-core/tests/common/mod.rs"]
mod common;

const BLOCKS: u64 = 64 << 10;
const HITS: u64 = 1000;

fn warm() -> (Engine, Actions) {
    (common::warm_engine(BLOCKS, |config| config), Actions::with_capacity(256))
}

fn warm_recorded() -> (Engine, Actions) {
    let recorded = |config| Config { recorder_bytes: 8 << 20, ..config };
    (common::warm_engine(BLOCKS, recorded), Actions::with_capacity(256))
}

fn warm_with_curve() -> (Engine, Actions) {
    let observed = |config| Config { recorder_bytes: 8 << 20, curve: true, ..config };
    (common::warm_engine(BLOCKS, observed), Actions::with_capacity(256))
}

fn warm_counted() -> (Engine, Actions) {
    let (mut engine, actions) = warm_with_curve();
    engine.observer_mut().count(Nanos(0), Box::default());
    (engine, actions)
}

#[library_benchmark]
#[bench::thousand(setup = warm, config = at_most(625_000))]
#[bench::recorded(setup = warm_recorded, config = at_most(646_000))]
#[bench::with_curve(setup = warm_with_curve, config = at_most(791_000))]
#[bench::counted(setup = warm_counted, config = at_most(1_970_000))]
fn ram_hits((mut engine, mut actions): (Engine, Actions)) -> (Engine, Actions) {
    let mut random = Rng::new(1);
    for i in 0..HITS {
        let block = random.next_u64() % BLOCKS;
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

main!(library_benchmark_groups = hits);
