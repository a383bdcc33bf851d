//! The longest call of the engine when much of a large cache becomes wrong at once: the disk's other requests, and those of
//! all disks of its shard, wait for as long. 26 million blocks (25 Mi) of 4 KiB are 100 GiB of cache.
//!
//! Prints a line for each way in which it becomes wrong.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::{settle, warm_engine};
use forebay_core::action::Actions;
use forebay_core::config::{Config, Mode, WriteLogConfig};
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::{Op, Request};

const BLOCKS: u64 = 25 << 20;

/// How long the calls took that were made.
#[derive(Default)]
struct Calls(Vec<Duration>);

impl Calls {
    fn time(&mut self, call: impl FnOnce()) {
        let began = Instant::now();
        call();
        self.0.push(began.elapsed());
    }
}

fn discard(engine: &mut Engine, actions: &mut Actions) {
    let range = ByteRange::at(0, engine.config().backend.size);
    let request = Request { tag: RequestTag(1), range, op: Op::Discard { fua: false } };
    engine.submit(Nanos(1), request, actions).expect("room for a request");
}

fn measure(what: &str, mut engine: Engine, makes_wrong: impl FnOnce(&mut Engine, &mut Actions)) {
    let cached = |engine: &Engine| engine.statistics(Nanos(0)).vfrc.num_blocks_currently_cached;
    let blocks = cached(&engine);
    let (mut actions, mut spare) = (Actions::with_capacity(1024), Actions::with_capacity(1024));
    let mut calls = Calls::default();
    calls.time(|| makes_wrong(&mut engine, &mut actions));
    calls.time(|| _ = settle(&mut engine, &mut actions, &mut spare));
    let mut now = Nanos(0);
    // It is looked at seldom, since that takes longer than a call.
    while cached(&engine) > 0 {
        for _ in 0..1000 {
            now = now.max(engine.next_deadline().min(now.plus(Nanos::from_micros(10))));
            calls.time(|| engine.tick(now, &mut actions));
            calls.time(|| _ = settle(&mut engine, &mut actions, &mut spare));
        }
    }
    let all: Duration = calls.0.iter().sum();
    calls.0.sort_unstable();
    let [half, most, longest] = [500, 999, 1000].map(|permille| {
        let at = (calls.0.len() - 1) * permille / 1000;
        calls.0[at].as_secs_f64() * 1e3
    });
    println!(
        "{what}: {blocks} blocks dropped in {} calls, {:.0} ms; one takes {half:.3} ms, 99.9 % at most {most:.3} ms, the \
         longest {longest:.3} ms",
        calls.0.len(),
        all.as_secs_f64() * 1e3,
    );
}

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let blocks = if tiny { 8192 } else { BLOCKS };
    let through = |config| Config { metadata_bytes_max: u64::MAX, ..config };
    let back = |config| {
        let write_log = Some(WriteLogConfig::new(4096, 8));
        Config { mode: Mode::WriteBack, write_log, ..through(config) }
    };
    measure("session lost", warm_engine(blocks, through), |engine, actions| {
        engine.on_session_lost(Nanos(1), actions);
    });
    measure("discard, write-through", warm_engine(blocks, through), discard);
    measure("discard, write-back", warm_engine(blocks, back), discard);
}
