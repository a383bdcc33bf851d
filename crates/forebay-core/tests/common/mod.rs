//! An engine whose RAM tier is full of the first blocks of its disk, and requests that hit it.

use forebay_core::action::{Action, Actions, IoOp, ReplyData};
use forebay_core::config::{BackendTraits, Config, GridOffset, SequentialBypass};
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag, SegmentId};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;

/// An engine with `blocks` cache blocks of 4 KiB in RAM, all of them valid, and `with` in its configuration.
pub fn warm_engine(blocks: u64, with: impl FnOnce(Config) -> Config) -> Engine {
    let size = blocks * 4096;
    let backend = BackendTraits {
        size,
        logical_block: 512,
        read_only: false,
        discard: true,
        write_zeroes: true,
        extents: false,
    };
    let config = Config {
        block_size: 4096,
        ram_bytes: size,
        sequential_bypass: SequentialBypass::Off,
        grid_offset: GridOffset::Fixed(0),
        ..Config::for_disk(backend)
    };
    let mut engine = Engine::new(with(config)).expect("a valid configuration");
    let mut actions = Actions::with_capacity(1024);
    let step = 1 << 20;
    for start in (0..size).step_by(step) {
        let range = ByteRange::at(start, (step as u64).min(size - start));
        read(&mut engine, Nanos(0), range, &mut actions);
        assert_eq!(settle(&mut engine, &mut actions), 1);
    }
    engine
}

/// Submits a read.
pub fn read(engine: &mut Engine, now: Nanos, range: ByteRange, actions: &mut Actions) {
    let request = Request { tag: RequestTag(range.start), range, op: Op::Read { no_admit: false } };
    engine.submit(now, request, actions).expect("room for a request");
}

/// Completes every I/O well until there is none; returns the number of good replies.
pub fn settle(engine: &mut Engine, actions: &mut Actions) -> u64 {
    let mut replies = 0;
    let mut next = 0;
    while next < actions.list.len() || engine.wants_to_proceed() {
        engine.proceed(Nanos(0), actions);
        if next == actions.list.len() {
            continue;
        }
        match actions.list[next] {
            Action::Io(io) => {
                assert!(!matches!(io.op, IoOp::Extents));
                engine.complete(Nanos(0), io.id, IoStatus::Ok, &[], actions);
            }
            Action::Reply(reply) => {
                assert_eq!(reply.status, IoStatus::Ok);
                replies += 1;
                if let ReplyData::Buffer { buffer, .. } = reply.data {
                    engine.release(Nanos(0), buffer, actions);
                }
            }
            // Nothing has bytes here: all is the same.
            Action::Compare { id, .. } => engine.compared(Nanos(0), id, None, actions),
            Action::Copy { .. } | Action::Zero { .. } | Action::Event(_) => {}
            Action::Lease => engine.leased(Nanos(0), Some((SegmentId(1), 1)), actions),
            Action::Log(_) => {}
            Action::Unlease(_) | Action::Revoke => unreachable!("a log that is hardly used"),
            Action::Ring { .. } | Action::Void => {
                unreachable!("a disk without a ring")
            }
        }
        next += 1;
    }
    engine.sent(Nanos(0));
    actions.clear();
    replies
}

/// A block number below `blocks`, from a simple generator.
pub fn next_block(state: &mut u64, blocks: u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) % blocks
}
