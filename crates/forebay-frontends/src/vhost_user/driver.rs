//! A queue on its shard: the client of a disk that a ring is.
//!
//! ```text
//! kick ──► Ring::next_head ──walk, parse, mark──► Engine::submit ──► on_reply ──copy──► Ring::answer ──flush──► call
//!                          │ write: Engine::write_buffer, the bytes are copied into it
//!                          └ Waiting: its turn is over, no memory, engine busy ──resume──┘
//! ```
//!
//! ```text
//! Open ──Order::Stop, close──► Draining ──all that was taken is answered──► Closed
//!   └─ broken ring: takes nothing more, until it is stopped
//! ```
//! **Invariants.** A request's pieces belong to the memory that was the guest's when it was taken: that map is kept until it
//! is answered. A request that a disk at its end refuses is not answered: it stays marked, and the next daemon does it.
//!
//! Limits: a ring's size of requests in flight; [`TURN_MAX`] requests are taken in a row, so that no ring gets more
//! than its turn.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};

use forebay_core::action::{ReplyData, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;
use forebay_io::reactor::{Completion, EventId};
use rustix::event::{EventfdFlags, eventfd};
use vm_memory::GuestAddress;

use super::chain::{self, Broken, Piece, Pieces};
use super::export::{Agreed, SERIAL_BYTES};
use super::memory::{self, Map};
use super::request::{self, Asked, Status};
use super::ring::{Ring, RingError, RingSetup};
use crate::client::{Answer, Client, Context, DiskId, Newcomer, Tokens};

/// Requests that are taken from a ring in a row.
const TURN_MAX: u32 = 128;

/// What a queue is made from.
#[derive(Debug)]
pub struct QueueSetup {
    /// Its ring.
    pub ring: RingSetup,
    /// Signalled when the guest has made requests available.
    pub kick: OwnedFd,
    /// What the driver agreed to.
    pub agreed: Agreed,
    /// Every write is durable before it is answered.
    pub durable: bool,
    /// The disk's serial number.
    pub serial: [u8; SERIAL_BYTES],
    /// Where it counts.
    pub counters: Arc<Counters>,
    /// Whom it tells that its ring is broken.
    pub report: Report,
}

/// Takes a message for an operator.
#[derive(Clone)]
pub struct Report(pub Arc<dyn Fn(String) + Send + Sync>);

impl std::fmt::Debug for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Report")
    }
}

/// What a queue counts; one writer.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests taken.
    pub requests: AtomicU64,
    /// Of these, those that a daemon before this one had taken.
    pub replayed: AtomicU64,
    /// Kicks.
    pub kicks: AtomicU64,
    /// Times that the guest was woken.
    pub calls: AtomicU64,
    /// Rings found broken.
    pub broken: AtomicU64,
}

/// What the control socket asks of a queue. Each is answered with the ring's position once it is so.
#[derive(Debug)]
pub enum Order {
    /// Answer what was taken, take nothing more, end.
    Stop,
    /// The guest's memory is another one. With `true` it is so only when nothing uses the old one.
    Memory(Map, bool),
    /// Somebody else is to be woken.
    Call(Option<OwnedFd>),
    /// Whether every write is durable before it is answered.
    Durable(bool),
}

/// An order and where its answer goes, which is dropped when the queue is gone.
type Ordered = (Order, SyncSender<u16>);

/// A queue as the control socket has it.
#[derive(Debug)]
pub struct Orders {
    sender: Sender<Ordered>,
    bell: OwnedFd,
    ended_at: EndedAt,
}

/// The position of a ring that was let go of; beyond all positions before.
type EndedAt = Arc<AtomicU32>;

impl Orders {
    /// Gives an order and waits until it is obeyed, or the queue is gone: the ring's position, if that is known.
    pub fn give(&self, order: Order) -> Option<u16> {
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        let obeyed = match self.sender.send((order, done)) {
            Ok(()) => {
                // A bell that is full has rung.
                let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
                answer.recv().ok()
            }
            Err(_) => None,
        };
        obeyed.or_else(|| u16::try_from(self.ended_at.load(Ordering::Acquire)).ok())
    }
}

/// A queue on its way to the shard.
#[derive(Debug)]
pub struct NewQueue {
    disk: DiskId,
    setup: QueueSetup,
    orders: Receiver<Ordered>,
    bell: OwnedFd,
    ended_at: EndedAt,
    started: SyncSender<Result<(), String>>,
}

/// What tells how a start went; disconnected when the shard did not take the queue.
pub type Started = Receiver<Result<(), String>>;

/// A queue for the shard of `disk`, and what the control socket keeps of it.
///
/// # Errors
/// The kernel has no eventfd for it.
pub fn queue(
    disk: DiskId,
    setup: QueueSetup,
) -> std::io::Result<(Box<dyn Newcomer>, Orders, Started)> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let ours = bell.try_clone()?;
    let (sender, orders) = channel();
    let (started, result) = std::sync::mpsc::sync_channel(1);
    let ended_at = Arc::new(AtomicU32::new(u32::MAX));
    let new = NewQueue { disk, setup, orders, bell: ours, ended_at: ended_at.clone(), started };
    Ok((Box::new(new), Orders { sender, bell, ended_at }, result))
}

impl Newcomer for NewQueue {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.disk)
    }

    fn start(
        self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> std::io::Result<Box<dyn Client>> {
        let NewQueue { disk, setup, orders, bell, ended_at, started } = *self;
        let result = Queue::start(cx, disk, setup, (orders, bell, ended_at), id, tokens);
        // Whoever asked may have given up.
        let told = |result| drop(started.try_send(result));
        match result {
            Ok(queue) => {
                told(Ok(()));
                Ok(Box::new(queue))
            }
            Err(error) => {
                told(Err(error.to_string()));
                Err(std::io::Error::other(error))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes requests.
    Open,
    /// Takes none; ends when what it took is answered.
    Draining,
    /// Nobody is listened to any more.
    Closed,
}

/// Why no further request is taken.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// Others have their turn.
    Turn,
    /// The engine has no memory for a write.
    Memory { head: u16, range: ByteRange },
    /// The engine has no place for a request.
    Place { request: Request },
}

/// A request that was taken, by the head of its chain.
#[derive(Debug, Default)]
struct Slot {
    is_taken: bool,
    /// Where its data are, or go.
    data: Vec<Piece>,
    status: GuestAddress,
    /// The number of the memory that these belong to.
    memory: u64,
}

/// A memory of the guest, of now or before.
#[derive(Debug)]
struct Held {
    map: Map,
    /// Requests in flight that use it.
    users: u32,
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    id: u32,
    disk: DiskId,
    tokens: Tokens,
    phase: Phase,
    ring: Ring,
    kick: EventId,
    /// Rings when there are orders.
    bell: EventId,
    orders: Receiver<Ordered>,
    ended_at: EndedAt,
    agreed: Agreed,
    durable: bool,
    serial: [u8; SERIAL_BYTES],
    counters: Arc<Counters>,
    report: Report,
    slots: Vec<Slot>,
    in_flight: u32,
    pieces: Pieces,
    waiting: Option<Waiting>,
    /// The guest kicks when it makes a request available; else it is looked whether it has.
    is_armed: bool,
    broken: Option<Broken>,
    /// The memory of now is the last one; the first has the number `first_memory`.
    memories: Vec<Held>,
    first_memory: u64,
    /// Who waits until only the memory of now is used.
    waits_for_memory: Vec<SyncSender<u16>>,
    /// Who waits for the end.
    waits_for_end: Vec<SyncSender<u16>>,
}

impl Queue {
    fn start(
        cx: &mut Context<'_>,
        disk: DiskId,
        setup: QueueSetup,
        (orders, bell, ended_at): (Receiver<Ordered>, OwnedFd, EndedAt),
        id: u32,
        tokens: Tokens,
    ) -> Result<Queue, RingError> {
        let queue = setup.ring.queue;
        let map = setup.ring.memory.clone();
        let ring = Ring::open(setup.ring)?;
        let failed = |error| RingError::Kick { queue, error };
        let kick = cx.reactor.add_event(setup.kick, tokens.recv).map_err(failed)?;
        let bell = cx.reactor.add_event(bell, tokens.send).map_err(|error| {
            cx.reactor.remove_event(kick);
            failed(error)
        })?;
        let slots = (0..ring.size()).map(|_| Slot::default()).collect();
        let mut queue = Queue {
            id,
            disk,
            tokens,
            phase: Phase::Open,
            ring,
            kick,
            bell,
            orders,
            ended_at,
            agreed: setup.agreed,
            durable: setup.durable,
            serial: setup.serial,
            counters: setup.counters,
            report: setup.report,
            slots,
            in_flight: 0,
            pieces: Pieces::default(),
            waiting: None,
            is_armed: false,
            broken: None,
            memories: vec![Held { map, users: 0 }],
            first_memory: 0,
            waits_for_memory: Vec::new(),
            waits_for_end: Vec::new(),
        };
        // Whoever kicked before us is not heard again.
        queue.take_requests(cx);
        Ok(queue)
    }

    /// Does what the control socket asks for.
    fn obey(&mut self, order: Order, done: SyncSender<u16>) {
        match order {
            Order::Stop => {
                self.waits_for_end.push(done);
                self.drain();
                return;
            }
            Order::Memory(map, waits) => {
                self.ring.set_memory(map.clone());
                self.memories.push(Held { map, users: 0 });
                if waits {
                    self.waits_for_memory.push(done);
                    self.forget_memories();
                    return;
                }
                self.forget_memories();
            }
            Order::Call(call) => self.ring.set_call(call),
            Order::Durable(durable) => self.durable = durable,
        }
        // Whoever asked may have given up.
        let _ = done.try_send(self.ring.position());
    }

    /// Takes no further request.
    fn drain(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            if matches!(self.waiting, Some(Waiting::Turn)) {
                self.waiting = None;
            }
        }
    }

    fn takes(&self) -> bool {
        self.phase == Phase::Open && self.broken.is_none()
    }

    /// Takes requests until there is none, something has to be waited for, or it is the turn of others.
    fn take_requests(&mut self, cx: &mut Context<'_>) {
        if std::mem::take(&mut self.is_armed) {
            self.ring.disarm();
        }
        for _ in 0..TURN_MAX {
            if !self.takes() || self.waiting.is_some() {
                return;
            }
            let taken = match self.ring.next_head() {
                Ok(Some(head)) => self.take(cx, head),
                Ok(None) => return,
                Err(broken) => Err(broken),
            };
            if let Err(broken) = taken {
                return self.break_off(broken);
            }
        }
        if self.takes() && self.waiting.is_none() {
            self.waiting = Some(Waiting::Turn);
        }
    }

    /// Takes the request at `head`: reads it, marks it, submits it.
    fn take(&mut self, cx: &mut Context<'_>, head: u16) -> Result<(), Broken> {
        let slot = &mut self.slots[usize::from(head)];
        if slot.is_taken {
            return Err(Broken::InFlight(head));
        }
        self.ring.walk(head, &mut self.pieces)?;
        let memory = self.memories.last_mut().expect("there is always one");
        let (asked, status) =
            request::parse(&memory.map, self.agreed.discards(), &mut self.pieces)?;
        if self.ring.take(head) {
            count(&self.counters.replayed);
        }
        count(&self.counters.requests);
        memory.users += 1;
        slot.memory = self.first_memory + self.memories.len() as u64 - 1;
        (slot.is_taken, slot.status) = (true, status);
        self.in_flight += 1;
        self.submit(cx, head, asked);
        Ok(())
    }

    fn submit(&mut self, cx: &mut Context<'_>, head: u16, asked: Asked) {
        let slot = &mut self.slots[usize::from(head)];
        let (fua, none) = (self.durable, ByteRange::at(0, 0));
        let backend = cx.port(self.disk).engine.config().backend;
        let (range, op) = match asked {
            Asked::Read(range) => {
                std::mem::swap(&mut slot.data, &mut self.pieces.writable);
                (range, Op::Read { no_admit: false })
            }
            Asked::Write(range) if range.end > backend.size || backend.read_only => {
                return self.answer(head, Status::Error, 0);
            }
            Asked::Write(range) => {
                std::mem::swap(&mut slot.data, &mut self.pieces.readable);
                return self.submit_write(cx, head, range);
            }
            Asked::Flush => (none, Op::Flush),
            Asked::Discard(range) => (range, Op::Discard { fua }),
            Asked::WriteZeroes { range, may_unmap } => {
                (range, Op::WriteZeroes { may_unmap, fast_only: false, fua })
            }
            Asked::Serial => {
                std::mem::swap(&mut slot.data, &mut self.pieces.writable);
                return self.answer_serial(head);
            }
            Asked::Refused(status) => return self.answer(head, status, 0),
        };
        self.submit_request(cx, Request { tag: self.tag(head), range, op });
    }

    /// Copies what is to be written, if the engine has memory for it. These are the bytes that are written, whatever
    /// the guest does to its memory from now on.
    fn submit_write(&mut self, cx: &mut Context<'_>, head: u16, range: ByteRange) {
        let Some(buffer) = cx.write_buffer(self.disk, range) else {
            self.waiting = Some(Waiting::Memory { head, range });
            return;
        };
        let slot = &self.slots[usize::from(head)];
        let map = &self.memories[(slot.memory - self.first_memory) as usize].map;
        let span = buffer.at(range);
        let memory = &cx.port(self.disk).memory;
        memory.edit(span.offset, span.len, |bytes| chain::gather(map, &slot.data, bytes));
        let op = Op::Write { buffer, fua: self.durable };
        self.submit_request(cx, Request { tag: self.tag(head), range, op });
    }

    fn submit_request(&mut self, cx: &mut Context<'_>, request: Request) {
        if cx.submit_unreserved(self.disk, request).is_err() {
            self.waiting = Some(Waiting::Place { request });
        }
    }

    /// Tries again what waits; true when nothing waits any more.
    fn retry(&mut self, cx: &mut Context<'_>) -> bool {
        match self.waiting.take() {
            None | Some(Waiting::Turn) => {}
            Some(Waiting::Memory { head, range }) => self.submit_write(cx, head, range),
            Some(Waiting::Place { request }) => self.submit_request(cx, request),
        }
        self.waiting.is_none()
    }

    fn answer_serial(&mut self, head: u16) {
        let slot = &self.slots[usize::from(head)];
        let map = &self.memories.last().expect("there is always one").map;
        let len = chain::len(&slot.data).min(SERIAL_BYTES as u64);
        chain::scatter(map, &slot.data, 0, &self.serial[..len as usize]);
        self.answer(head, Status::Ok, len as u32);
    }

    /// Answers a request, of whose data `written` bytes were written.
    fn answer(&mut self, head: u16, status: Status, written: u32) {
        let slot = &self.slots[usize::from(head)];
        let map = &self.memories[(slot.memory - self.first_memory) as usize].map;
        let told = memory::write(map, status as u8, slot.status);
        debug_assert!(told.is_some(), "the place was checked against this memory");
        let answered = match self.broken {
            // Its memory may be gone.
            Some(Broken::Used) => Ok(()),
            Some(_) | None => self.ring.answer(head, written + 1),
        };
        self.forget(head);
        if let Err(broken) = answered {
            self.break_off(broken);
        }
    }

    /// A request is not in flight any more.
    fn forget(&mut self, head: u16) {
        let slot = &mut self.slots[usize::from(head)];
        assert!(slot.is_taken, "one reply per request");
        slot.is_taken = false;
        slot.data.clear();
        self.in_flight -= 1;
        self.memories[(slot.memory - self.first_memory) as usize].users -= 1;
        if self.memories.len() > 1 {
            self.forget_memories();
        }
    }

    /// Lets go of memories that nobody uses, from the oldest on.
    fn forget_memories(&mut self) {
        while self.memories.len() > 1 && self.memories[0].users == 0 {
            self.memories.remove(0);
            self.first_memory += 1;
        }
        if self.memories.len() == 1 {
            for done in self.waits_for_memory.drain(..) {
                let _ = done.try_send(self.ring.position());
            }
        }
    }

    /// Takes nothing more from a ring that says what cannot be.
    fn break_off(&mut self, broken: Broken) {
        if self.broken.is_none() {
            self.broken = Some(broken);
            count(&self.counters.broken);
            let text = format!(
                "a guest's queue is stopped, its ring is broken: {broken}; the guest has to reset the device"
            );
            (self.report.0)(text);
        }
    }

    fn tag(&self, head: u16) -> RequestTag {
        RequestTag(u64::from(self.id) << 32 | u64::from(head))
    }
}

impl Client for Queue {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.disk)
    }

    /// The guest has kicked, or cannot any more; or there are orders.
    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        if completion.token == self.tokens.send {
            while let Ok((order, done)) = self.orders.try_recv() {
                self.obey(order, done);
            }
            return;
        }
        count(&self.counters.kicks);
        if completion.result.is_ok() && self.waiting.is_none() {
            self.take_requests(cx);
        }
    }

    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { disk, reply, slices, .. } = answer;
        let head = reply.tag.0 as u16;
        let port = cx.port(disk);
        let slot = &self.slots[usize::from(head)];
        let map = &self.memories[(slot.memory - self.first_memory) as usize].map;
        let mut written = 0;
        let mut copy = |span: Span| {
            port.memory.look(span.offset, span.len, |bytes| {
                chain::scatter(map, &slot.data, written, bytes);
            });
            written += u64::from(span.len);
        };
        match reply.data {
            ReplyData::Slots { first, count } => {
                slices[first as usize..][..count as usize].iter().for_each(|span| copy(*span));
            }
            ReplyData::Buffer { data, buffer } => {
                copy(data);
                cx.release(disk, buffer);
            }
            ReplyData::None | ReplyData::Extents { .. } | ReplyData::Difference { .. } => {}
        }
        if reply.status == IoStatus::ShuttingDown && self.ring.survives() {
            self.forget(head);
        } else {
            self.answer(head, reply.status.into(), written as u32);
        }
    }

    /// Wakes the guest for what was answered, and whoever waits for the end.
    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.ring.notify() {
            count(&self.counters.calls);
        }
        if self.phase == Phase::Draining && self.in_flight == 0 {
            self.phase = Phase::Closed;
            cx.reactor.remove_event(self.kick);
            cx.reactor.remove_event(self.bell);
            let position = self.ring.position();
            self.ended_at.store(position.into(), Ordering::Release);
            for done in self.waits_for_end.drain(..).chain(self.waits_for_memory.drain(..)) {
                let _ = done.try_send(position);
            }
        }
    }

    fn wants_resume(&self) -> bool {
        self.waiting.is_some()
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        let goes_on = self.waiting.is_some() && self.retry(cx);
        if goes_on {
            self.take_requests(cx);
        }
        goes_on
    }

    fn looks_out(&self) -> bool {
        self.takes() && self.waiting.is_none() && !self.is_armed
    }

    fn look(&mut self) -> bool {
        if self.looks_out() && self.ring.has_next() {
            self.waiting = Some(Waiting::Turn);
        }
        self.waiting.is_some()
    }

    fn rest(&mut self) -> bool {
        if self.looks_out() {
            match self.ring.arm() {
                Ok(true) => self.waiting = Some(Waiting::Turn),
                Ok(false) => self.is_armed = true,
                Err(broken) => self.break_off(broken),
            }
        }
        self.waiting.is_some()
    }

    fn close(&mut self, _cx: &mut Context<'_>) {
        self.drain();
    }

    fn give_up(&mut self, _cx: &mut Context<'_>) {
        // A guest does not have to take its answers.
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }

    fn tick(&mut self, _cx: &mut Context<'_>) {}

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed
    }
}

/// Counts one more; there is one writer.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
