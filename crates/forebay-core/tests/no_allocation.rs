//! Nothing is allocated per request: not on hits, not on misses, not on writes, nor by a curve.

#[allow(dead_code, reason = "benchmarks want it without observers")]
mod common;

use common::{read, settle, warm_engine};
use forebay_core::action::Actions;
use forebay_core::characteristics::Kind;
use forebay_core::config::Config;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::mrc::Shards;
use forebay_core::request::{Op, Request};
use forebay_core::splitmix::Rng;

/// With all that observes what it is asked.
fn observed(config: Config) -> Config {
    Config { recorder_bytes: 64 << 10, curve: true, ..config }
}

#[test]
fn a_ram_hit_allocates_nothing() {
    let blocks = 4096;
    let mut engine = warm_engine(blocks, observed);
    engine.observer_mut().count(Nanos(0), Box::default());
    let (mut actions, mut spare) = (Actions::with_capacity(256), Actions::with_capacity(256));
    let mut random = Rng::new(1);
    let info = allocation_counter::measure(|| {
        for tag in 0..10_000 {
            let block = random.below(blocks);
            read(&mut engine, Nanos(tag), ByteRange::at(block * 4096, 4096), &mut actions);
            if tag % 32 == 0 {
                settle(&mut engine, &mut actions, &mut spare);
            }
        }
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn writes_flushes_and_misses_allocate_nothing() {
    let blocks = 4096;
    let mut engine = warm_engine(blocks, observed);
    engine.observer_mut().count(Nanos(0), Box::default());
    let (mut actions, mut spare) = (Actions::with_capacity(256), Actions::with_capacity(256));
    let mut random = Rng::new(1);
    let info = allocation_counter::measure(|| {
        for tag in 0..10_000 {
            let range = ByteRange::at(random.below(blocks) * 4096, 4096);
            let op = match tag % 8 {
                0 => Op::Discard { fua: tag % 16 == 0 },
                1 => Op::Flush,
                2 => {
                    let buffer = engine.write_buffer(range).expect("a buffer");
                    Op::Write { buffer, fua: tag % 16 == 2 }
                }
                3 => {
                    let buffer = engine.compare_buffer(range).expect("a buffer");
                    Op::CompareAndWrite { buffer, fua: tag % 16 == 3 }
                }
                _ => Op::Read { no_admit: false },
            };
            let request = Request { tag: RequestTag(tag), range, op };
            engine.submit(Nanos(tag), request, &mut actions).expect("room for a request");
            assert_eq!(settle(&mut engine, &mut actions, &mut spare), 1);
        }
    });
    assert_eq!(info.count_total, 0);
}

#[test]
fn a_miss_ratio_curve_beside_a_live_disk_allocates_nothing() {
    for granules in [1, 2, 8, 16, 32, 64] {
        let mut shards = Shards::for_disk(granules);
        let mut random = Rng::new(1);
        let info = allocation_counter::measure(|| {
            for _ in 0..100_000 {
                shards.on_use(Kind::Write, random.below(200_000), 0..granules);
            }
        });
        assert_eq!(info.count_total, 0);
    }
}
