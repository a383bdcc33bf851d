//! A small shard for tests: one reactor, one arena, one backend, and a clock that the test sets or
//! that runs.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::action::{Extent, IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::clock::now_nanos;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use crate::backend::{Backend, BackendEvent, BackendIo, Context, TokenRange};
use crate::{OpenOptions, Uri, open};

/// Bytes of memory for I/O.
const MEMORY: u64 = 16 << 20;
/// A test that waits longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(20);
const TOKENS: TokenRange = TokenRange { base: 3 << 40 };

/// See the module.
pub(crate) struct Bench {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) reactor: Reactor,
    arena: ArenaId,
    /// Virtual time; `None`: the clock runs.
    pub(crate) now: Option<Nanos>,
    next_id: u64,
    next_memory: u64,
    pub(crate) events: Vec<BackendEvent>,
    pub(crate) ended: HashMap<IoId, IoStatus>,
    pub(crate) extents: HashMap<IoId, Vec<Extent>>,
    /// Sessions lost and restored, in order: `'-'` and `'+'`.
    pub(crate) sessions: String,
}

impl Bench {
    pub(crate) fn open(uri: &str) -> Bench {
        let uri: Uri = uri.parse().expect("a good URI");
        // The kernel lets go of a file some time after its reactor is gone.
        let options = OpenOptions { lock_wait: PATIENCE, ..OpenOptions::default() };
        Bench::new(open(&uri, options).expect("it opens"))
    }

    pub(crate) fn new(mut backend: Box<dyn Backend>) -> Bench {
        let mut reactor = Reactor::new(256, None).expect("a reactor");
        let arena = Arc::new(Arena::new(MEMORY as usize).expect("memory"));
        let arena = reactor.add_arena(arena).expect("room for an arena");
        let mut events = Vec::new();
        let mut cx = Context { now: Nanos(0), reactor: &mut reactor, events: &mut events };
        backend.attach(&mut cx, TOKENS).expect("it attaches");
        Bench {
            backend,
            reactor,
            arena,
            now: None,
            next_id: 1,
            next_memory: 0,
            events,
            ended: HashMap::new(),
            extents: HashMap::new(),
            sessions: String::new(),
        }
    }

    pub(crate) fn at(uri: &str, now: Nanos) -> Bench {
        let mut bench = Bench::open(uri);
        bench.now = Some(now);
        bench
    }

    fn with(&mut self, act: impl FnOnce(&mut dyn Backend, &mut Context<'_>)) {
        let now = self.now.unwrap_or_else(|| Nanos(now_nanos()));
        let mut cx = Context { now, reactor: &mut self.reactor, events: &mut self.events };
        act(&mut *self.backend, &mut cx);
        for event in self.events.drain(..) {
            match event {
                BackendEvent::Done { id, status } => {
                    assert_eq!(self.ended.insert(id, status), None, "{id:?} ended twice");
                }
                BackendEvent::Extents { id, extents } => {
                    assert_eq!(self.ended.insert(id, IoStatus::Ok), None, "{id:?} ended twice");
                    self.extents.insert(id, extents);
                }
                BackendEvent::SessionLost => self.sessions.push('-'),
                BackendEvent::SessionRestored => self.sessions.push('+'),
            }
        }
    }

    pub(crate) fn submit(&mut self, op: IoOp, range: ByteRange) -> IoId {
        let id = IoId(self.next_id);
        self.next_id += 1;
        let io = BackendIo { id, range, op, arena: self.arena };
        self.with(|backend, cx| backend.submit(cx, io));
        id
    }

    /// Memory that no other I/O of the test uses.
    pub(crate) fn memory(&mut self, len: u64) -> Span {
        let offset = self.next_memory;
        self.next_memory += len.next_multiple_of(4096);
        assert!(self.next_memory <= MEMORY, "the test needs more memory");
        Span { offset, len: len as u32 }
    }

    pub(crate) fn submit_read(&mut self, range: ByteRange) -> (IoId, Span) {
        let memory = self.memory(range.len());
        // What is not read must not pass for what is.
        self.fill(memory, 0xee);
        (self.submit(IoOp::Read { memory }, range), memory)
    }

    pub(crate) fn submit_write(&mut self, range: ByteRange, fill: u8) -> IoId {
        let memory = self.memory(range.len());
        self.fill(memory, fill);
        self.submit(IoOp::Write { memory, durable: false }, range)
    }

    fn fill(&mut self, memory: Span, fill: u8) {
        self.reactor.arena(self.arena).write_at(memory.offset, &vec![fill; memory.len as usize]);
    }

    pub(crate) fn bytes(&self, memory: Span) -> Vec<u8> {
        let mut bytes = vec![0; memory.len as usize];
        self.reactor.arena(self.arena).read_at(memory.offset, &mut bytes);
        bytes
    }

    /// One turn of a shard's loop.
    pub(crate) fn turn(&mut self, timeout: Duration) {
        let mut completions: Vec<Completion> = Vec::new();
        self.reactor.wait(Some(timeout), &mut completions).expect("the reactor works");
        for completion in completions {
            self.with(|backend, cx| backend.on_completion(cx, completion));
        }
        self.with(|backend, cx| backend.on_wake(cx));
    }

    /// Turns until `done`; fails when that takes too long.
    pub(crate) fn until(&mut self, mut done: impl FnMut(&mut Bench) -> bool) {
        let limit = now_nanos() + PATIENCE.as_nanos() as u64;
        while !done(self) {
            assert!(now_nanos() < limit, "waited too long; trouble: {:?}", self.backend.trouble());
            let now = self.now.unwrap_or_else(|| Nanos(now_nanos()));
            let wait = self.backend.next_deadline().since(now).0;
            self.turn(Duration::from_nanos(wait).min(Duration::from_millis(100)));
        }
    }

    /// The status of an I/O, waited for.
    pub(crate) fn end_of(&mut self, id: IoId) -> IoStatus {
        self.until(|bench| bench.ended.contains_key(&id));
        self.ended[&id]
    }

    pub(crate) fn read(&mut self, range: ByteRange) -> Result<Vec<u8>, IoStatus> {
        let (id, memory) = self.submit_read(range);
        match self.end_of(id) {
            IoStatus::Ok => Ok(self.bytes(memory)),
            status => Err(status),
        }
    }

    /// The one byte that all of `range` holds.
    pub(crate) fn read_fill(&mut self, range: ByteRange) -> u8 {
        let bytes = self.read(range).expect("the read ends well");
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "not all the same");
        bytes[0]
    }

    pub(crate) fn write(&mut self, range: ByteRange, fill: u8) -> IoStatus {
        let id = self.submit_write(range, fill);
        self.end_of(id)
    }

    pub(crate) fn run(&mut self, op: IoOp, range: ByteRange) -> IoStatus {
        let id = self.submit(op, range);
        self.end_of(id)
    }

    pub(crate) fn flush(&mut self) -> IoStatus {
        self.run(IoOp::Flush, ByteRange::at(0, 0))
    }

    pub(crate) fn extents_of(&mut self, range: ByteRange) -> Vec<Extent> {
        let id = self.submit(IoOp::Extents, range);
        assert_eq!(self.end_of(id), IoStatus::Ok);
        self.extents.remove(&id).expect("extents came")
    }

    /// Sets virtual time and lets the backend act on it.
    pub(crate) fn at_time(&mut self, now: Nanos) {
        self.now = Some(now);
        self.turn(Duration::ZERO);
    }
}
