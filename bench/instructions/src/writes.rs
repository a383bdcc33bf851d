//! Durable writes in the engine alone: from the request to its reply, and on to primary storage.

use forebay_core::action::{Actions, Event, Io, LogAction, Reply, Span, Target};
use forebay_core::config::{Config, Mode, WriteLogConfig};
use forebay_core::engine::Engine;
use forebay_core::executor::{self, Executor, Runs};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos, RequestTag, SegmentId};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;

use crate::common;
use crate::load::{self, BATCH, BLOCK, BLOCKS, Hit};

/// Segments of 16 MiB that the log may have, and how many there are.
const SEGMENTS: u32 = 8;
/// Of the pages of a group, whatever they hold.
const CHECKSUMS: [u32; 512] = [0; 512];
/// Between two batches: the destager has gone on by then.
const PAUSE: Nanos = Nanos::from_micros(200);

/// See the module. Every I/O ends well at once, and nothing has bytes.
pub struct Writes {
    engine: Engine,
    actions: Actions,
    spare: Actions,
    now: Nanos,
    free: Vec<SegmentId>,
    leases: u64,
    replies: usize,
    next: Vec<Hit>,
}

impl Writes {
    /// After a lap, and ready for the next.
    pub fn new() -> Writes {
        let log = Some(WriteLogConfig::new(4096, SEGMENTS));
        let engine = common::warm_engine(BLOCKS, |config| Config {
            recorder_bytes: 8 << 20,
            curve: true,
            mode: Mode::WriteBack,
            write_log: log,
            ..config
        });
        let [first, second] = load::laps();
        let mut writes = Writes {
            engine,
            actions: Actions::with_capacity(1024),
            spare: Actions::with_capacity(1024),
            now: Nanos(1),
            free: (0..SEGMENTS + 4).map(SegmentId).collect(),
            leases: 0,
            replies: 0,
            next: first,
        };
        writes.lap();
        writes.next = second;
        writes
    }

    /// A lap: each batch becomes a group of the log, and is destaged while the next one is under way.
    pub fn lap(&mut self) {
        for batch in std::mem::take(&mut self.next).chunks(BATCH) {
            self.now = self.now.plus(PAUSE);
            self.replies = 0;
            for hit in batch {
                let range = ByteRange::at(hit.block * BLOCK, BLOCK);
                let buffer = self.engine.write_buffer(range).expect("memory");
                let tag = RequestTag(hit.number.into());
                let request = Request { tag, range, op: Op::Write { buffer, fua: true } };
                self.engine.submit(self.now, request, &mut self.actions).expect("room");
            }
            executor::run(self);
            self.engine.sent(self.now);
            assert_eq!(self.replies, BATCH);
            self.now = self.now.plus(PAUSE);
            self.engine.tick(self.now, &mut self.actions);
            executor::run(self);
        }
    }
}

impl Default for Writes {
    fn default() -> Writes {
        Writes::new()
    }
}

impl Executor for Writes {
    fn start(&mut self, io: Io) {
        let checksums = match io.target {
            Target::Log => &CHECKSUMS[..(io.range.len() / 4096) as usize],
            Target::Backend | Target::Flash | Target::Ring | Target::Journal => &[],
        };
        self.engine.complete(self.now, io.id, IoStatus::Ok, checksums, &mut self.actions);
    }

    fn copy(&mut self, _from: Span, _to: Span) {}

    fn zero(&mut self, _memory: Span) {}

    fn compare(&mut self, _id: IoId, _found: Span, _expected: Span) {
        unreachable!("nobody compares");
    }

    fn build(&mut self, _action: LogAction) {}

    fn lease(&mut self) {
        let segment = self.free.remove(0);
        self.leases += 1;
        self.engine.leased(self.now, Ok((segment, self.leases)), &mut self.actions);
    }

    fn grow_staging(&mut self) {
        self.engine.staging_grown(self.now, true, &mut self.actions);
    }

    fn unlease(&mut self, segment: SegmentId) {
        self.free.push(segment);
    }

    fn renew(&mut self, _segment: SegmentId) {
        unreachable!("a pool that always has a segment");
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
    }

    fn event(&mut self, _event: Event) {}
}

impl Runs for Writes {
    fn proceed(&mut self) -> Option<Actions> {
        let goes_on = self.engine.wants_to_proceed() || !self.actions.list.is_empty();
        goes_on.then(|| {
            self.engine.proceed(self.now, &mut self.actions);
            std::mem::replace(&mut self.actions, std::mem::take(&mut self.spare))
        })
    }

    fn carried_out(&mut self, mut actions: Actions) {
        actions.clear();
        self.spare = actions;
    }
}
