//! An engine whose RAM tier is full of the first blocks of its disk, and requests that hit it.

use forebay_core::action::{Actions, Event, Io, IoOp, LogAction, Reply, ReplyData, Span};
use forebay_core::config::{BackendTraits, Config, GridOffset, SequentialBypass};
use forebay_core::engine::Engine;
use forebay_core::executor::{self, Executor, Runs};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos, RequestTag, SegmentId};
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
    let (mut actions, mut spare) = (Actions::with_capacity(1024), Actions::default());
    let step = 1 << 20;
    for start in (0..size).step_by(step) {
        let range = ByteRange::at(start, (step as u64).min(size - start));
        read(&mut engine, Nanos(0), range, &mut actions);
        assert_eq!(settle(&mut engine, &mut actions, &mut spare), 1);
    }
    engine
}

/// Submits a read.
pub fn read(engine: &mut Engine, now: Nanos, range: ByteRange, actions: &mut Actions) {
    let request = Request { tag: RequestTag(range.start), range, op: Op::Read { no_admit: false } };
    engine.submit(now, request, actions).expect("room for a request");
}

/// Completes every I/O well until there is none; returns the number of good replies. While
/// `actions` are carried out, `spare` takes what the engine asks for.
pub fn settle(engine: &mut Engine, actions: &mut Actions, spare: &mut Actions) -> u64 {
    let mut settling = Settling { engine, actions, spare, replies: 0 };
    executor::run(&mut settling);
    let replies = settling.replies;
    engine.sent(Nanos(0));
    replies
}

/// Nothing has bytes here: all is the same.
struct Settling<'a> {
    engine: &'a mut Engine,
    actions: &'a mut Actions,
    spare: &'a mut Actions,
    replies: u64,
}

impl Executor for Settling<'_> {
    fn start(&mut self, io: Io) {
        assert!(!matches!(io.op, IoOp::Extents));
        self.engine.complete(Nanos(0), io.id, IoStatus::Ok, &[], self.actions);
    }

    fn copy(&mut self, _from: Span, _to: Span) {}

    fn zero(&mut self, _memory: Span) {}

    fn compare(&mut self, id: IoId, _found: Span, _expected: Span) {
        self.engine.compared(Nanos(0), id, None, self.actions);
    }

    fn build(&mut self, _action: LogAction) {}

    fn lease(&mut self) {
        self.engine.leased(Nanos(0), Ok((SegmentId(1), 1)), self.actions);
    }

    fn grow_staging(&mut self) {
        self.engine.staging_grown(Nanos(0), true, self.actions);
    }

    fn unlease(&mut self, _segment: SegmentId) {
        unreachable!("a log that is hardly used");
    }

    fn renew(&mut self, _segment: SegmentId) {
        unreachable!("a log that is hardly used");
    }

    fn copy_index(&mut self, _memory: Span) {
        unreachable!("a disk without an index");
    }

    fn copy_journal(&mut self, _memory: Span) {
        unreachable!("a disk without a journal");
    }

    fn revoke_journal(&mut self) {
        unreachable!("a disk without a journal");
    }

    fn void(&mut self) {
        unreachable!("a disk without an index");
    }

    fn revoke(&mut self) {
        unreachable!("flash works");
    }

    fn reply(&mut self, reply: &Reply, _actions: &Actions) {
        assert_eq!(reply.status, IoStatus::Ok);
        self.replies += 1;
        if let ReplyData::Buffer { buffer, .. } = reply.data {
            self.engine.release(Nanos(0), buffer, self.actions);
        }
    }

    fn event(&mut self, _event: Event) {}
}

impl Runs for Settling<'_> {
    fn proceed(&mut self) -> Option<Actions> {
        let goes_on = self.engine.wants_to_proceed() || !self.actions.list.is_empty();
        goes_on.then(|| {
            self.engine.proceed(Nanos(0), self.actions);
            std::mem::replace(self.actions, std::mem::take(self.spare))
        })
    }

    fn carried_out(&mut self, mut actions: Actions) {
        actions.clear();
        *self.spare = actions;
    }
}
