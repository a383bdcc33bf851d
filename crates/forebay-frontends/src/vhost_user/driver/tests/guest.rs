//! A guest and a shard reduced to what the tests need: a ring made by hand, the real engine and reactor, primary storage
//! in a `Vec`.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::action::{Action, Actions, Io, IoOp};
use forebay_core::config::{BackendTraits, Config, GridOffset, SequentialBypass};
use forebay_core::engine::Engine;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{Reactor, Token};
use rustix::event::{EventfdFlags, eventfd};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress};

use super::super::super::export::example;
use super::super::super::inflight::Region;
use super::super::super::memory::{GuestMap, Map};
use super::super::super::ring::RingSetup;
use super::super::*;
use crate::client::{Answer, Client};
use crate::client::{Permission, Port};

pub(super) const SIZE: u64 = 16 << 20;
pub(super) const RING: u16 = 256;
const DISK: DiskId = DiskId(0);

pub(super) const TABLE: u64 = 0x1000;
const AVAILABLE: u64 = 0x4000;
const USED: u64 = 0x8000;
/// Where each request of the guest has its header, status and data.
pub(super) const REQUESTS: u64 = 0x10_0000;
const REQUEST: u64 = 0x8000;

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;

/// The driver of one queue.
pub(super) struct Guest {
    pub(super) memory: Map,
    pub(super) region: Option<Region>,
    queue: u16,
    kick: OwnedFd,
    call: OwnedFd,
    available: u16,
    seen: u16,
    /// From one request's place in memory to that of the next.
    stride: u64,
}

impl Guest {
    pub(super) fn new(queue: u16, region: Option<Region>) -> Guest {
        Guest::with_memory(queue, region, 16 << 20, REQUEST)
    }

    /// With so much memory, of which each request has `stride` bytes.
    pub(super) fn with_memory(queue: u16, region: Option<Region>, size: u64, stride: u64) -> Guest {
        let memory = GuestMap::of_test(&[(0, size as usize)]);
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        let (kick, call) = (event(), event());
        Guest { memory, region, queue, kick, call, available: 0, seen: 0, stride }
    }

    pub(super) fn setup(&self) -> QueueSetup {
        let offered = example().features();
        let ring = RingSetup {
            queue: self.queue,
            size: RING,
            descriptors: GuestAddress(TABLE),
            available: GuestAddress(AVAILABLE),
            used: GuestAddress(USED),
            base: 0,
            event_index: true,
            memory: self.memory.clone(),
            inflight: self.region.clone(),
            call: Some(self.call.try_clone().unwrap()),
        };
        QueueSetup {
            ring,
            kick: self.kick.try_clone().unwrap(),
            agreed: Agreed::new(offered).unwrap(),
            durable: false,
            serial: example().serial_bytes(),
            counters: Arc::default(),
            report: Report(Arc::new(|_, _| {})),
        }
    }

    /// Makes a request available that begins with descriptor `head`, of `len` bytes of data; it uses `head`, the one
    /// after it and the one after that. With `data` they are written.
    pub(super) fn ask(&mut self, head: u16, kind: u32, sector: u64, len: u32, data: Option<u8>) {
        let at = self.at(head);
        let header = [kind.to_le_bytes(), [0; 4]].concat();
        self.memory.write_slice(&header, GuestAddress(at)).unwrap();
        self.memory.write_obj(sector, GuestAddress(at + 8)).unwrap();
        self.memory.write_obj(0xff_u8, GuestAddress(at + 16)).unwrap();
        if let Some(byte) = data {
            self.memory.write_slice(&vec![byte; len as usize], GuestAddress(at + 512)).unwrap();
        }
        let writes = if data.is_some() { 0 } else { WRITE };
        self.describe(head, at, 16, NEXT, head + 1);
        match len {
            0 => self.describe(head + 1, at + 16, 1, WRITE, 0),
            _ => {
                self.describe(head + 1, at + 512, len, writes | NEXT, head + 2);
                self.describe(head + 2, at + 16, 1, WRITE, 0);
            }
        }
        self.offer(head);
    }

    pub(super) fn describe(&self, index: u16, address: u64, len: u32, flags: u16, next: u16) {
        let descriptor = Descriptor::new(address, len, flags, next);
        let at = TABLE + 16 * u64::from(index);
        self.memory.write_obj(descriptor, GuestAddress(at)).unwrap();
    }

    /// Puts a head into the available ring.
    pub(super) fn offer(&mut self, head: u16) {
        let place = AVAILABLE + 4 + 2 * u64::from(self.available % RING);
        self.memory.write_obj(head, GuestAddress(place)).unwrap();
        self.available = self.available.wrapping_add(1);
        self.set_available(self.available);
    }

    pub(super) fn set_available(&self, index: u16) {
        let at = GuestAddress(AVAILABLE + 2);
        self.memory.store(index, at, Ordering::Release).unwrap();
    }

    /// The request that is to be kicked for.
    pub(super) fn wanted_kick(&self) -> u16 {
        let at = GuestAddress(USED + 4 + 8 * u64::from(RING));
        self.memory.load(at, Ordering::SeqCst).unwrap()
    }

    /// Whether the guest need not kick, where no position says so.
    pub(super) fn used_flags(&self) -> u16 {
        self.memory.load(GuestAddress(USED), Ordering::SeqCst).unwrap()
    }

    pub(super) fn kick(&self) {
        rustix::io::write(&self.kick, &1_u64.to_ne_bytes()).unwrap();
    }

    /// Answers since the last time: head, bytes written, status.
    pub(super) fn answers(&mut self) -> Vec<(u16, u32, u8)> {
        let used: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
        let mut answers = Vec::new();
        while self.seen != used {
            let at = USED + 4 + 8 * u64::from(self.seen % RING);
            let head: u32 = self.memory.read_obj(GuestAddress(at)).unwrap();
            let len: u32 = self.memory.read_obj(GuestAddress(at + 4)).unwrap();
            let status = GuestAddress(self.at(head as u16) + 16);
            answers.push((head as u16, len, self.memory.read_obj(status).unwrap()));
            self.seen = self.seen.wrapping_add(1);
        }
        // To be woken by the next one.
        let event = GuestAddress(AVAILABLE + 4 + 2 * u64::from(RING));
        self.memory.store(self.seen, event, Ordering::SeqCst).unwrap();
        answers
    }

    pub(super) fn was_called(&self) -> bool {
        rustix::io::read(&self.call, &mut [0; 8]).is_ok()
    }

    pub(super) fn data(&self, head: u16, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(self.at(head) + 512)).unwrap();
        bytes
    }

    pub(super) fn set_data(&self, head: u16, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(self.at(head) + 512)).unwrap();
    }

    pub(super) fn change_data(&self, head: u16, len: usize, byte: u8) {
        let at = GuestAddress(self.at(head) + 512);
        self.memory.write_slice(&vec![byte; len], at).unwrap();
    }

    fn at(&self, head: u16) -> u64 {
        REQUESTS + u64::from(head / 3) * self.stride
    }
}

/// A disk with its queues.
pub(super) struct Shard {
    pub(super) port: Port,
    reactor: Reactor,
    pub(super) backend: Vec<u8>,
    /// I/O is kept back while this is set.
    pub(super) is_holding: bool,
    pub(super) held: Vec<Io>,
    pub(super) clients: Vec<Option<Box<dyn Client>>>,
}

impl Shard {
    pub(super) fn new() -> Shard {
        let backend = (0..SIZE).map(|at| (at / 512 + at % 251) as u8).collect();
        Shard::over(backend)
    }

    pub(super) fn over(backend: Vec<u8>) -> Shard {
        Shard::with_buffers(backend, 40 << 20)
    }

    /// With so many bytes of request buffers.
    pub(super) fn with_buffers(backend: Vec<u8>, bytes: u64) -> Shard {
        let mut config = Config::for_disk(BackendTraits {
            size: backend.len() as u64,
            logical_block: 512,
            read_only: false,
            discard: true,
            write_zeroes: true,
            extents: false,
        });
        config.ram_bytes = 4 << 20;
        config.buffer_bytes = bytes;
        config.grid_offset = GridOffset::Fixed(0);
        config.sequential_bypass = SequentialBypass::Off;
        let engine = Engine::new(config).unwrap();
        let mut reactor = Reactor::new(64, None).unwrap();
        let memory = Arc::new(Arena::new(engine.memory_size() as usize).unwrap());
        let arena = reactor.add_arena(memory.clone()).unwrap();
        let port = Port {
            engine,
            memory,
            arena,
            actions: Actions::default(),
            access: Permission::All,
            is_held: false,
            has_news: false,
        };
        Shard { port, reactor, backend, is_holding: false, held: Vec::new(), clients: Vec::new() }
    }

    pub(super) fn attach(&mut self, guest: &Guest) -> Orders {
        self.attach_with(guest.setup()).unwrap()
    }

    pub(super) fn attach_with(&mut self, setup: QueueSetup) -> Result<Orders, String> {
        let (new, orders, started) = queue(DISK, setup).unwrap();
        let id = self.clients.len() as u32;
        let tokens = Tokens { recv: Token(2 * u64::from(id)), send: Token(2 * u64::from(id) + 1) };
        let mut cx = Context { now: NOW, reactor: &mut self.reactor, disks: &mut self.port };
        let client = new.start(&mut cx, id, tokens).ok();
        self.clients.push(client);
        started.recv().unwrap().map(|()| orders)
    }

    /// One turn of the shard's loop.
    pub(super) fn turn(&mut self) {
        let mut completions = Vec::new();
        let has_work = self.clients.iter_mut().flatten().any(|client| client.rest());
        let patience = if has_work { Duration::ZERO } else { Duration::from_millis(2) };
        self.reactor.wait(Some(patience), &mut completions).unwrap();
        for client in self.clients.iter_mut().flatten() {
            client.look();
        }
        if !self.is_holding {
            for io in std::mem::take(&mut self.held) {
                self.perform(io);
            }
        }
        for completion in completions {
            let id = completion.token.0 as usize / 2;
            self.each(id, |client, cx| client.on_completion(cx, completion));
        }
        let mut goes_on = true;
        while goes_on {
            goes_on = self.run_actions();
            for id in 0..self.clients.len() {
                self.each(id, |client, cx| {
                    client.flush(cx);
                    client.resume(cx);
                });
                if self.clients[id].as_ref().is_some_and(|client| client.is_done()) {
                    self.clients[id] = None;
                }
            }
            self.port.engine.sent(NOW);
        }
    }

    /// Turns until `done`, or fails when that takes too long.
    pub(super) fn run(&mut self, what: &str, mut done: impl FnMut(&mut Shard) -> bool) {
        for _ in 0..5000 {
            self.turn();
            if done(self) {
                return;
            }
        }
        panic!("never happened: {what}");
    }

    /// Turns until `guest` has so many answers.
    pub(super) fn answers(&mut self, guest: &mut Guest, count: usize) -> Vec<(u16, u32, u8)> {
        let mut answers = Vec::new();
        self.run("answers", |_| {
            answers.extend(guest.answers());
            answers.len() >= count
        });
        assert_eq!(answers.len(), count);
        answers
    }

    pub(super) fn each(&mut self, id: usize, call: impl FnOnce(&mut dyn Client, &mut Context<'_>)) {
        let Some(client) = &mut self.clients[id] else { return };
        let mut cx = Context { now: NOW, reactor: &mut self.reactor, disks: &mut self.port };
        call(client.as_mut(), &mut cx);
    }

    fn run_actions(&mut self) -> bool {
        let Port { engine, actions, .. } = &mut self.port;
        let did_something = engine.wants_to_proceed() || !actions.list.is_empty();
        engine.proceed(NOW, actions);
        let running = std::mem::take(actions);
        for action in &running.list {
            match *action {
                Action::Io(io) if self.is_holding => self.held.push(io),
                Action::Io(io) => self.perform(io),
                Action::Copy { from, to } => {
                    self.port.memory.copy_within(from.offset, to.offset, from.len);
                }
                Action::Zero { memory } => self.port.memory.zero(memory.offset, memory.len),
                Action::Reply(reply) => {
                    let (slices, extents) = (&running.slices[..], &running.extents[..]);
                    let answer = Answer { disk: DISK, reply: &reply, slices, extents };
                    let id = (reply.tag.0 >> 32) as usize;
                    self.each(id, |client, cx| client.on_reply(cx, answer));
                }
                Action::Event(_) => {}
                Action::Compare { .. } => unreachable!("no compare-and-write"),
                Action::Log(_)
                | Action::Lease
                | Action::GrowStaging
                | Action::Unlease(_)
                | Action::Renew(_) => {
                    unreachable!("no log")
                }
                Action::Ring { .. }
                | Action::Void
                | Action::Revoke
                | Action::Journal { .. }
                | Action::RevokeJournal => unreachable!("no flash"),
            }
        }
        did_something
    }

    fn perform(&mut self, io: Io) {
        let range = io.range.start as usize..io.range.end as usize;
        let Port { engine, memory: arena, actions, .. } = &mut self.port;
        match io.op {
            IoOp::Read { memory } => arena.write_at(memory.offset, &self.backend[range]),
            IoOp::Write { memory, .. } => arena.read_at(memory.offset, &mut self.backend[range]),
            IoOp::WriteZeroes { .. } => self.backend[range].fill(0),
            IoOp::Flush | IoOp::Discard => {}
            IoOp::Progress { .. } | IoOp::Extents => unreachable!("nobody asks for it"),
        }
        engine.complete(NOW, io.id, IoStatus::Ok, &[], actions);
    }
}

const NOW: Nanos = Nanos::from_millis(1000);
