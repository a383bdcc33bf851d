//! A shard with one disk and one client, reduced to what RAM hits need. The reactor, the client's
//! driver and the engine are the real ones.
//!
//! ```text
//! turn: wait ─► on_completion │ resume ─► engine ─► actions ─► on_reply ─► flush ─► sent
//! ```
//! It follows `forebay-shard`'s loop, which has more around it: lists of disks and clients, a
//! mailbox, the clock, primary storage. The reactor runs on epoll, as valgrind does not know
//! io_uring. The disk's memory is never written, so every block reads
//! as zeroes.

use std::sync::Arc;

use forebay_core::action::{Action, Actions};
use forebay_core::engine::Engine;
use forebay_core::ids::Nanos;
use forebay_frontends::client::{
    Answer, Client, Context, DiskId, Disks, Newcomer, Permission, Port, Tokens,
};
use forebay_io::arena::Arena;
use forebay_io::reactor::{Completion, Lookout, Reactor, ReactorKind, Token};

/// The disk.
pub const DISK: DiskId = DiskId(0);

const TOKENS: Tokens = Tokens { recv: Token(0), send: Token(1) };
/// Actions that a batch has room for before its lists grow, as on a shard.
const ACTIONS: usize = 256;

/// See the module.
pub struct Shard {
    disk: Disk,
    reactor: Reactor,
    attached: Attached,
    /// The actions under way; swapped with the port's.
    running: Actions,
    completions: Vec<Completion>,
    now: Nanos,
    answers: usize,
}

struct Disk(Port);

struct Attached {
    client: Box<dyn Client>,
    /// It may have something to send.
    is_touched: bool,
}

impl Disks for Disk {
    fn port(&mut self, disk: DiskId) -> &mut Port {
        assert_eq!(disk, DISK);
        &mut self.0
    }

    fn find_port(&mut self, disk: DiskId) -> Option<&mut Port> {
        Some(self.port(disk))
    }
}

impl Lookout for Attached {
    fn is_on(&self) -> bool {
        self.client.looks_out()
    }

    fn has_work(&mut self) -> bool {
        self.client.look()
    }

    fn rest(&mut self) -> bool {
        self.client.rest()
    }
}

/// The client's view; a macro, because the client is borrowed beside it.
macro_rules! context {
    ($shard:ident) => {
        &mut Context { now: $shard.now, reactor: &mut $shard.reactor, disks: &mut $shard.disk }
    };
}

impl Shard {
    /// Serves the disk of `engine` to a client.
    pub fn new(engine: Engine, new: Box<dyn Newcomer>) -> Shard {
        let mut reactor = Reactor::new(64, Some(ReactorKind::Epoll)).expect("epoll works");
        let memory = Arena::reserve(engine.memory_size() as usize).expect("there is memory");
        memory.own();
        let memory = Arc::new(memory);
        let arena = reactor.add_arena(memory.clone()).expect("the first");
        let mut disk = Disk(Port {
            engine,
            memory,
            arena,
            actions: Actions::with_capacity(ACTIONS),
            access: Permission::All,
            is_held: false,
            has_news: false,
        });
        let now = Nanos(0);
        let mut cx = Context { now, reactor: &mut reactor, disks: &mut disk };
        let client = new.start(&mut cx, 0, TOKENS).expect("the reactor takes it");
        Shard {
            disk,
            reactor,
            attached: Attached { client, is_touched: true },
            running: Actions::with_capacity(ACTIONS),
            completions: Vec::with_capacity(256),
            now,
            answers: 0,
        }
    }

    /// Answers a batch. A turn is enough; in another one the shard might wait for ever.
    pub fn answer(&mut self, count: usize) {
        self.answers = 0;
        self.turn();
        assert_eq!(self.answers, count, "answers in a turn");
    }

    /// One turn.
    pub fn turn(&mut self) {
        self.now = self.now.plus(Nanos(1));
        let (completions, attached) = (&mut self.completions, &mut self.attached);
        self.reactor.wait_looking(None, completions, attached).expect("epoll works");
        self.attached.has_work();
        for completion in self.completions.drain(..) {
            self.attached.client.on_completion(context!(self), completion);
            self.attached.is_touched = true;
        }
        while self.round() {}
    }

    /// One round of a turn. Whether there is something left to do.
    fn round(&mut self) -> bool {
        if self.goes_on() {
            self.run_actions();
        }
        if std::mem::take(&mut self.attached.is_touched) {
            self.attached.client.flush(context!(self));
            self.disk.0.engine.sent(self.now);
        }
        if self.attached.client.wants_resume() {
            self.attached.is_touched = self.attached.client.resume(context!(self));
        }
        self.attached.is_touched || self.goes_on()
    }

    fn goes_on(&self) -> bool {
        !self.disk.0.actions.list.is_empty() || self.disk.0.engine.wants_to_proceed()
    }

    /// Lets the engine proceed, and hands its answers to the client.
    fn run_actions(&mut self) {
        let Port { engine, actions, .. } = &mut self.disk.0;
        engine.proceed(self.now, actions);
        std::mem::swap(actions, &mut self.running);
        let Actions { list, slices, extents, .. } = &self.running;
        for action in list {
            let Action::Reply(reply) = action else { panic!("a hit asks for {action:?}") };
            let answer = Answer { disk: DISK, reply, slices, extents };
            self.attached.client.on_reply(context!(self), answer);
            self.attached.is_touched = true;
            self.answers += 1;
        }
        self.running.clear();
    }
}
