//! A queue on its shard: the client of a disk that a ring is.
//!
//! ```text
//! kick ──► Ring ──look, walk, parse──► Coming ──mark──► Engine::submit ──► on_reply ──copy──► Ring::answer ──flush──► call
//!                                         │ write: Engine::write_buffer, the bytes are copied into it
//!                                         └ Waiting: its turn is over, no memory, engine busy ──resume──┘
//! ```
//!
//! ```text
//! Open ──Order::Stop, close──► Draining ──all that was taken is answered──► Closed
//!   ├─ Order::Memory without its ring: Ringless, takes nothing until an Order::Memory has the ring again
//!   └─ broken ring: takes nothing more, until it is stopped
//! ```
//! Whatever the phase, it may leave its shard, be *away*, and enter another one.
//!
//! **Invariants.** A request's pieces belong to the memory that was the guest's when it was taken: that map is kept until it
//! is answered. A request that a disk at its end refuses is not answered: it stays marked, and the next daemon does it.
//!
//! A transfer that is longer than the engine takes is carried out in parts, each begun when the one before has ended.
//!
//! Limits: a ring's size of requests in flight; `TURN_MAX` requests are taken in a row, so that no ring gets more
//! than its turn.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use forebay_core::geometry::{ByteRange, REQUEST_MAX};
use forebay_core::ids::RequestTag;
use forebay_core::request::{Op, Request};

use vm_memory::GuestAddress;

use super::chain::{self, Broken};
use super::export::{Agreed, SERIAL_BYTES};
use super::memory::{self, Map};
use super::request::{Asked, Status};
use super::ring::{Ring, RingError};
use crate::client::{Context, DiskId, Tokens};
use bells::Bells;
use coming::{Coming, Found};
use orders::Control;
use requests::Requests;

mod bells;
mod broken;
mod client;
mod coming;
mod memories;
mod orders;
mod requests;
mod setup;

pub use orders::{NewQueue, Order, Orders, Started, queue};
pub use setup::{Counters, QueueSetup, Report, Weight};

/// Requests that are taken from a ring in a row.
const TURN_MAX: u32 = 128;
/// Bytes of their data: a read that RAM answers is copied before others go on.
const TURN_BYTES_MAX: u64 = 16 << 20;
/// Answers of a turn after which a guest that sleeps is woken, although more are to come: it takes them while others are made.
const EARLY: u16 = 4;
/// Looking at a piece of a chain takes as long as copying so many bytes. That counts for those of long chains.
const PIECE_COST: u64 = 512;
const PIECES_FREE: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes requests.
    Open,
    /// Takes none: its ring is not in the guest's memory for a moment.
    Ringless,
    /// Takes none; ends when what it took is answered.
    Draining,
    /// No ring is listened to any more.
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

/// See the module.
#[derive(Debug)]
pub struct Queue {
    known: Known,
    phase: Phase,
    ring: Ring,
    bells: Bells,
    control: Control,
    device: Agreement,
    tells: Tells,
    requests: Requests,
    coming: Coming,
    waiting: Option<Waiting>,
    /// Transfers whose next part is to be submitted.
    next_parts: VecDeque<u16>,
    /// The request that was taken last was in flight at a kill.
    is_replay: bool,
    /// The guest kicks when it makes a request available; else it is looked whether it has.
    is_armed: bool,
    /// After so many answers that it was not told of the guest is woken, if it sleeps.
    early: u16,
    broken: Option<Broken>,
    /// It was broken until the guest's memory changed, and has taken no request since.
    mended: Option<Broken>,
}

/// However it goes, whoever stops the device hears where the ring is: another start goes on there.
impl Drop for Queue {
    fn drop(&mut self) {
        if self.phase != Phase::Closed {
            self.tell_of_end();
        }
    }
}

/// How its shard knows it.
#[derive(Debug)]
struct Known {
    id: u32,
    disk: DiskId,
    tokens: Tokens,
}

/// What its guest agreed on, and what it is told.
#[derive(Debug)]
struct Agreement {
    agreed: Agreed,
    durable: bool,
    serial: [u8; SERIAL_BYTES],
}

/// Where it counts, and whom it tells.
#[derive(Debug)]
struct Tells {
    counters: Arc<Counters>,
    report: Report,
}

impl Queue {
    fn start(
        cx: &mut Context<'_>,
        known: Known,
        setup: QueueSetup,
        (control, bell): (Control, OwnedFd),
    ) -> Result<Queue, RingError> {
        let QueueSetup { ring, kick, agreed, durable, serial, counters, report } = setup;
        let (queue, map) = (ring.queue, ring.memory.clone());
        let ring = Ring::open(ring)?;
        let bells = Bells::watch(cx, [kick, bell].map(Arc::new), known.tokens)
            .map_err(|error| RingError::Kick { queue, error })?;
        let mut queue = Queue {
            known,
            phase: Phase::Open,
            requests: Requests::new(ring.size(), map),
            ring,
            bells,
            control,
            device: Agreement { agreed, durable, serial },
            tells: Tells { counters, report },
            coming: Coming::new(),
            waiting: None,
            next_parts: VecDeque::new(),
            is_replay: false,
            is_armed: false,
            early: EARLY,
            broken: None,
            mended: None,
        };
        // Whoever kicked before us is not heard again.
        queue.take_requests(cx);
        Ok(queue)
    }

    /// Does what the control socket asks for.
    fn obey(&mut self, cx: &mut Context<'_>, order: Order, done: SyncSender<u16>) {
        match order {
            Order::Stop => {
                self.control.wait_for_end(done);
                self.drain(cx);
                return;
            }
            Order::Memory(map, waits) => {
                if waits {
                    self.put_back(cx);
                }
                self.change_memory(map);
                if waits {
                    self.control.wait_for_memory(done);
                    self.answer_about_memory();
                    return;
                }
            }
            Order::Call(call) => self.ring.set_call(call),
            Order::Durable(durable) => self.device.durable = durable,
        }
        // Whoever asked may have given up.
        let _ = done.try_send(self.ring.position());
    }

    /// What was away may be there again, as after the two orders that make a region larger: the ring, or what a chain names.
    fn change_memory(&mut self, map: Map) {
        self.coming.forget();
        let has_ring = self.ring.set_memory(map.clone());
        self.requests.memories.change(map);
        if matches!(self.phase, Phase::Open | Phase::Ringless) {
            self.phase = if has_ring { Phase::Open } else { Phase::Ringless };
        }
        // Nothing is written to a ring that is not the guest's.
        self.is_armed &= has_ring;
        if has_ring {
            self.mend();
        }
        self.waiting.get_or_insert(Waiting::Turn);
    }

    /// Takes no further request, and does without the one that the engine has not taken: however long that cannot, the
    /// hypervisor waits for the end of the queue, and does nothing else meanwhile.
    fn drain(&mut self, cx: &mut Context<'_>) {
        if matches!(self.phase, Phase::Open | Phase::Ringless) {
            self.phase = Phase::Draining;
            self.put_back(cx);
        }
    }

    /// Puts the request back in the ring that waits to be submitted, if one does. A transfer of which parts are done goes on.
    fn put_back(&mut self, cx: &mut Context<'_>) {
        let head = match self.waiting.take() {
            None | Some(Waiting::Turn) => return,
            Some(Waiting::Memory { head, .. }) => head,
            Some(Waiting::Place { request }) => {
                if let Some(buffer) = request.op.buffer() {
                    cx.release(self.known.disk, buffer);
                }
                request.tag.0 as u16
            }
        };
        if self.requests.done(head) > 0 {
            self.next_parts.push_front(head);
            return;
        }
        self.coming.forget();
        self.ring.put_back(head, self.is_replay);
        self.forget(head);
    }

    fn takes(&self) -> bool {
        self.phase == Phase::Open && self.broken.is_none() && !self.bells.are_away()
    }

    /// The guest need not kick: it is looked whether there is a request.
    fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.ring.disarm();
        }
    }

    /// Takes requests until there is none, something has to be waited for, or it is the turn of others.
    fn take_requests(&mut self, cx: &mut Context<'_>) {
        self.disarm();
        let mut bytes = 0;
        for _ in 0..TURN_MAX {
            if !self.takes() || self.waiting.is_some() {
                return;
            }
            match self.take(cx) {
                Ok(Some(more)) => {
                    bytes += more;
                    self.tell_if_mended();
                }
                Ok(None) => return,
                Err(broken) => return self.break_off(broken),
            }
            if bytes >= TURN_BYTES_MAX {
                break;
            }
        }
        if self.takes() && self.waiting.is_none() {
            self.waiting = Some(Waiting::Turn);
        }
    }

    /// Takes the next request: marks it, submits it. The bytes of its data, when there is one.
    fn take(&mut self, cx: &mut Context<'_>) -> Result<Option<u64>, Broken> {
        if self.coming.is_empty() {
            let (map, discards) = (self.requests.memories.now(), self.device.agreed.discards());
            let starts = self.coming.read(&mut self.ring, map, discards);
            cx.port(self.known.disk).engine.look_ahead(starts);
        }
        let Some((found, pieces)) = self.coming.next() else { return Ok(None) };
        // What is no request stays where it is: a ring that was broken for a moment goes on there.
        let Found { head, asked, status } = found?;
        let walked = pieces.readable.len() + pieces.writable.len();
        let data = match asked {
            Asked::Write(_) => &mut pieces.readable,
            _ => &mut pieces.writable,
        };
        if !self.requests.begin(head, status, data) {
            return Err(Broken::InFlight(head));
        }
        self.ring.advance();
        self.is_replay = self.ring.take(head);
        count(&self.tells.counters.requests);
        let len = asked.data_len();
        if self.is_replay && !self.can_replay(head, status)? {
            return Ok(Some(len));
        }
        match len > REQUEST_MAX {
            true => self.submit_first_part(cx, head, asked),
            false => self.submit(cx, head, asked),
        }
        match walked > PIECES_FREE {
            true => Ok(Some(len + PIECE_COST * walked as u64)),
            false => Ok(Some(len)),
        }
    }

    /// Whether the memory of a request that was in flight at a kill can be had; else it is answered with an error, if that
    /// can be.
    #[cold]
    fn can_replay(&mut self, head: u16, status: GuestAddress) -> Result<bool, Broken> {
        count(&self.tells.counters.replayed);
        let (map, data, _) = self.requests.data(head);
        if !memory::populate(map, status, 1) {
            self.coming.forget();
            self.ring.put_back(head, true);
            self.forget(head);
            return Err(Broken::Address { address: status.0, len: 1 });
        }
        let has_memory = data.iter().all(|piece| memory::populate(map, piece.address, piece.len));
        if !has_memory {
            self.answer(head, Status::Error, 0);
        }
        Ok(has_memory)
    }

    /// Submits the first part of a transfer that is longer than the engine takes, unless the disk is too small for all of it.
    #[cold]
    fn submit_first_part(&mut self, cx: &mut Context<'_>, head: u16, asked: Asked) {
        let backend = cx.port(self.known.disk).engine.config().backend;
        match asked {
            Asked::Write(range) if range.end > backend.size => {
                self.answer(head, Status::Error, 0);
            }
            _ => {
                let part = self.requests.part(head, Some(asked));
                self.submit(cx, head, part);
            }
        }
    }

    #[inline(always)]
    fn submit(&mut self, cx: &mut Context<'_>, head: u16, asked: Asked) {
        let (fua, none) = (self.device.durable, ByteRange::at(0, 0));
        let backend = cx.port(self.known.disk).engine.config().backend;
        let (range, op) = match asked {
            Asked::Write(range) if range.end > backend.size || backend.read_only => {
                return self.answer(head, Status::Error, 0);
            }
            Asked::Read(range) => (range, Op::Read { no_admit: false }),
            Asked::Write(range) => return self.submit_write(cx, head, range),
            Asked::Flush => (none, Op::Flush),
            Asked::Discard(range) => (range, Op::Discard { fua }),
            Asked::WriteZeroes { range, may_unmap } => {
                (range, Op::WriteZeroes { may_unmap, fast_only: false, fua })
            }
            Asked::Serial => return self.answer_serial(head),
            Asked::Refused(status) => return self.answer(head, status, 0),
        };
        self.submit_request(cx, Request { tag: self.tag(head), range, op });
    }

    /// Copies what is to be written, if the engine has memory for it. These are the bytes that are written, whatever
    /// the guest does to its memory from now on.
    fn submit_write(&mut self, cx: &mut Context<'_>, head: u16, range: ByteRange) {
        let disk = self.known.disk;
        let Some(buffer) = cx.write_buffer(disk, range) else {
            self.waiting = Some(Waiting::Memory { head, range });
            return;
        };
        let (map, data, _) = self.requests.data(head);
        let (span, done) = (buffer.at(range), self.requests.done(head));
        let memory = &cx.port(disk).memory;
        memory.edit(span.offset, span.len, |bytes| chain::gather(map, data, done, bytes));
        let op = Op::Write { buffer, fua: self.device.durable };
        self.submit_request(cx, Request { tag: self.tag(head), range, op });
    }

    fn submit_request(&mut self, cx: &mut Context<'_>, request: Request) {
        if cx.submit_if_allowed(self.known.disk, request).is_err() {
            self.waiting = Some(Waiting::Place { request });
        }
    }

    /// Tries again what waits; true when nothing waits any more.
    fn retry(&mut self, cx: &mut Context<'_>) -> bool {
        match self.waiting.take() {
            None | Some(Waiting::Turn) => {}
            Some(Waiting::Memory { head, range }) => self.submit_write(cx, head, range),
            Some(Waiting::Place { request }) => {
                // Its guest may have switched the write cache off meanwhile.
                let op = if self.device.durable { request.op.durable() } else { request.op };
                self.submit_request(cx, Request { op, ..request });
            }
        }
        self.waiting.is_none()
    }

    /// Submits the next part of a transfer; false when there is none to submit.
    #[cold]
    fn submit_part(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(head) = self.next_parts.pop_front() else { return false };
        let part = self.requests.part(head, None);
        self.submit(cx, head, part);
        self.waiting.is_none()
    }

    fn answer_serial(&mut self, head: u16) {
        let (map, data, _) = self.requests.data(head);
        let len = chain::len(data).min(SERIAL_BYTES as u64);
        chain::scatter(map, data, 0, &self.device.serial[..len as usize]);
        self.answer(head, Status::Ok, len as u32);
    }

    /// Answers a request, of whose data `written` bytes were written.
    fn answer(&mut self, head: u16, status: Status, written: u32) {
        self.requests.note_status(head, status);
        let answered = match self.broken {
            // Its memory may be gone.
            Some(Broken::Used) => Ok(()),
            Some(_) | None => self.ring.answer(head, written + 1),
        };
        self.forget(head);
        if self.ring.unannounced() == self.early {
            self.wake_early();
        }
        if let Err(broken) = answered {
            self.break_off(broken);
            // An answer is lost: other memory does not mend that.
            self.broken = Some(broken);
        }
    }

    /// Wakes the guest although more answers are to come, each time after twice as many.
    #[inline(never)]
    fn wake_early(&mut self) {
        self.early = self.early.saturating_mul(2);
        if self.ring.notify() {
            count(&self.tells.counters.calls);
        }
    }

    /// A request is not in flight any more.
    #[inline(always)]
    fn forget(&mut self, head: u16) {
        self.requests.end(head);
        self.answer_about_memory();
    }

    /// Tells those who wait for it that only the memory of now is used.
    fn answer_about_memory(&mut self) {
        if self.control.is_memory_awaited() && self.requests.memories.is_one() {
            self.control.tell_of_memory(self.ring.position());
        }
    }

    fn tag(&self, head: u16) -> RequestTag {
        tag(self.known.id, head)
    }
}

/// The tag of the request at `head` of a client's ring.
fn tag(id: u32, head: u16) -> RequestTag {
    RequestTag(u64::from(id) << 32 | u64::from(head))
}

/// Counts one more; there is one writer.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
