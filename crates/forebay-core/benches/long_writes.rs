//! The longest call of the engine for a write of 32 MiB, which updates 8192 blocks of 4 KiB in RAM, and the copies that such a call asks for,
//! carried out: all disks of the shard wait for both.
//!
//! Prints a line for each mode and block size.

#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "it measures time")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::warm_engine;
use forebay_core::action::{Action, Actions, Target};
use forebay_core::config::{Config, Mode, WriteLogConfig};
use forebay_core::engine::Engine;
use forebay_core::geometry::{ByteRange, REQUEST_MAX};
use forebay_core::ids::{Nanos, RequestTag, SegmentId};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;

/// Of a group's pages, whatever they hold.
const CHECKSUMS: [u32; 1024] = [0; 1024];

/// A call, and the bytes that it has copied.
#[derive(Clone, Copy, Debug, Default)]
struct Call {
    engine: Duration,
    copies: Duration,
    bytes: u64,
}

/// Makes a call of the engine, and carries out the copies that it asked for.
fn call(
    engine: &mut Engine,
    actions: &mut Actions,
    memory: &mut [u8],
    work: impl FnOnce(&mut Engine, &mut Actions),
) -> Call {
    let (before, began) = (actions.list.len(), Instant::now());
    work(engine, actions);
    let mut call = Call { engine: began.elapsed(), ..Call::default() };
    let began = Instant::now();
    for action in &actions.list[before..] {
        if let Action::Copy { from, to } = *action {
            let from = from.offset as usize..from.offset as usize + from.len as usize;
            memory.copy_within(from, to.offset as usize);
            call.bytes += u64::from(to.len);
        }
    }
    call.copies = began.elapsed();
    call
}

/// The longest call of a write of `len` bytes.
fn write(engine: &mut Engine, memory: &mut [u8], leases: &mut u32, len: u64) -> Call {
    let mut actions = Actions::with_capacity(1024);
    let range = ByteRange::at(4096, len);
    let buffer = engine.write_buffer(range).expect("there is memory");
    let request = Request { tag: RequestTag(1), range, op: Op::Write { buffer, fua: false } };
    let mut calls = vec![call(engine, &mut actions, memory, |engine, actions| {
        engine.submit(Nanos(1), request, actions).expect("room for a request");
    })];
    let mut next = 0;
    while next < actions.list.len() || engine.wants_to_proceed() {
        if next == actions.list.len() {
            calls.push(call(engine, &mut actions, memory, |engine, actions| {
                engine.proceed(Nanos(1), actions);
            }));
            continue;
        }
        let action = actions.list[next];
        next += 1;
        calls.push(call(engine, &mut actions, memory, |engine, actions| match action {
            Action::Io(io) => {
                let checksums = if io.target == Target::Log { &CHECKSUMS[..] } else { &[] };
                engine.complete(Nanos(1), io.id, IoStatus::Ok, checksums, actions);
            }
            Action::Lease => {
                *leases += 1;
                engine.leased(Nanos(1), Ok((SegmentId(*leases), (*leases).into())), actions);
            }
            Action::GrowStaging => engine.staging_grown(Nanos(1), true, actions),
            _ => {}
        }));
    }
    engine.sent(Nanos(1));
    calls.into_iter().max_by_key(|call| call.engine + call.copies).expect("there are calls")
}

fn measure(what: &str, block_size: u64, len: u64, with: impl FnOnce(Config) -> Config) {
    let blocks = (4 * len).max(64 << 20) / 4096;
    let mut engine = warm_engine(blocks, |config| with(Config { block_size, ..config }));
    let mut memory = vec![1; engine.memory_size() as usize];
    let mut leases = 1;
    let calls = (0..9).map(|_| write(&mut engine, &mut memory, &mut leases, len));
    let mut calls: Vec<Call> = calls.collect();
    calls.sort_unstable_by_key(|call| call.engine + call.copies);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let Call { engine, copies, bytes } = calls[calls.len() / 2];
    println!(
        "{what}, blocks of {} KiB: the longest call {:.2} ms, and {:.2} ms for its copies of {} KiB (median of {})",
        block_size >> 10,
        ms(engine),
        ms(copies),
        bytes >> 10,
        calls.len(),
    );
}

fn main() {
    // As a test (`cargo test --benches`) it runs tiny.
    let tiny = !std::env::args().any(|arg| arg == "--bench");
    let len = if tiny { 1 << 20 } else { REQUEST_MAX };
    for block_size in [4096, 8192, 65536] {
        measure("write-through", block_size, len, |config| config);
        measure("write-back", block_size, len, |config| {
            let write_log = Some(WriteLogConfig::new(4096, 8));
            Config { mode: Mode::WriteBack, write_log, ..config }
        });
    }
}
