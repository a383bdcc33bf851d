//! A connection on its shard: socket, session and engine.
//!
//! ```text
//! recv ──► input ──Session::next──► Engine::submit ──► on_reply ──► Outbox ──flush──► socket
//!            │ write: Engine::write_buffer, the rest of the payload is received into it
//!            └ Waiting: a limit is reached, no memory, engine busy ──resume──┘
//! ```
//!
//! ```text
//! Open ──DISC, end of stream, close, the disk ends──► Draining ──all answered and sent──► Closed
//!   └────── broken protocol, broken socket, stalled client ─────────────────►┘
//! ```
//! Whatever the phase, it may leave its shard, be *away*, and enter another one.
//!
//! Limits:
//! - One receive of [`INPUT_BYTES`] at a time, and none while something waits. So no client gets
//!   more than its turn.
//! - Requests and bytes in flight as the session has them.
//! - No request is taken while the client does not read its answers.
//! - A client that stalls in the middle of a request, or does not read an answer, is closed after
//!   [`STALL_MAX`]. A payload has to be there as a whole by then, because it holds a request
//!   buffer (1.1 MiB/s for the longest write).
//!
//! **Invariant:** a buffer that a receive may still write to is not given back: a closed connection
//! keeps it until the receive has ended.

mod greeted;
mod leaving;

pub use greeted::Greeted;

use forebay_core::action::{Buffer, ReplyData, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;
use forebay_io::reactor::{Completion, SocketId};
use forebay_nbd::request::{Command, RequestHeader};

use super::session::{Session, Step, Submission};
use crate::client::{Answer, Client, Context, DiskId, Tokens};
use crate::link::Link;
use crate::outbox::Outbox;

/// Bytes received at a time, payloads that go straight to their buffers not counted.
pub const INPUT_BYTES: usize = 256 << 10;
/// Requests that the engine is told of before the first of them is submitted.
const LOOK_AHEAD: usize = 32;
/// Time without progress after which a client is closed.
pub const STALL_MAX: Nanos = Nanos::from_millis(30_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes requests.
    Open,
    /// Takes none; closes when everything is answered and sent.
    Draining,
    /// The socket is gone; answers are discarded.
    Closed,
}

/// Why no further request is taken.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// A limit of the connection was reached with so many requests in flight.
    Room { in_flight: usize },
    /// The engine has no memory for a write.
    Memory { key: u32, range: ByteRange, fua: bool },
    /// The engine has no place for a request (and for the question after it).
    Place { request: Request, second: Option<Op> },
}

/// A write whose payload is arriving.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    key: u32,
    range: ByteRange,
    fua: bool,
    buffer: Buffer,
    /// Bytes of the payload that are in the buffer.
    arrived: u64,
    /// When all of it must have arrived.
    deadline: Nanos,
}

impl Incoming {
    /// Where the bytes go that have not arrived.
    fn rest(&self) -> Span {
        let span = self.buffer.at(self.range);
        span.part(self.arrived, self.range.len() - self.arrived)
    }

    fn is_complete(&self) -> bool {
        self.arrived == self.range.len()
    }
}

/// One client of one disk in its transmission phase.
#[derive(Debug)]
pub struct Connection {
    link: Link,
    disk: DiskId,
    phase: Phase,
    session: Session,
    outbox: Outbox,
    /// Received bytes; used up to `used`. Moved into the reactor while receiving.
    input: Vec<u8>,
    used: usize,
    is_receiving: bool,
    /// When the receive must have made progress; [`Nanos::NEVER`] between requests.
    receive_deadline: Nanos,
    waiting: Option<Waiting>,
    incoming: Option<Incoming>,
}

impl Connection {
    /// Takes over `socket`, of a client that has sent `leftover` already. Replies come back with `id` in the upper half
    /// of their tag.
    pub fn start(
        cx: &mut Context<'_>,
        socket: SocketId,
        disk: DiskId,
        session: Session,
        leftover: &[u8],
        id: u32,
        tokens: Tokens,
    ) -> Connection {
        let mut input = Vec::with_capacity(INPUT_BYTES.max(leftover.len() + 1));
        input.extend_from_slice(leftover);
        let mut connection = Connection {
            link: Link::new(id, tokens, socket),
            disk,
            phase: Phase::Open,
            session,
            outbox: Outbox::new(socket, tokens.send),
            input,
            used: 0,
            is_receiving: false,
            receive_deadline: Nanos::NEVER,
            waiting: None,
            incoming: None,
        };
        connection.take_requests(cx);
        connection
    }
    /// True when [`Client::flush`] has something to send.
    #[cfg(test)]
    fn needs_flush(&self) -> bool {
        let is_to_close = self.phase == Phase::Draining && self.is_drained();
        !self.link.is_away() && (self.outbox.needs_flush() || is_to_close)
    }

    #[cfg(test)]
    fn has_left(&self) -> bool {
        self.link.is_away()
    }

    /// Requests that were taken and not answered.
    pub fn in_flight(&self) -> usize {
        self.session.in_flight()
    }

    /// True when all that was submitted is answered and sent.
    fn is_drained(&self) -> bool {
        self.is_answered() && self.outbox.is_empty()
    }

    /// True when all that was submitted is answered; a payload that is cut short is not waited for.
    fn is_answered(&self) -> bool {
        let waits = matches!(self.waiting, Some(Waiting::Memory { .. } | Waiting::Place { .. }));
        let unsubmitted = usize::from(waits) + usize::from(self.incoming.is_some());
        self.session.in_flight() == unsubmitted
    }

    fn on_received(&mut self, cx: &mut Context<'_>, completion: Completion) {
        self.is_receiving = false;
        self.receive_deadline = Nanos::NEVER;
        debug_assert!(self.input.is_empty(), "the input was moved into the reactor");
        self.input = completion.buffer.unwrap_or_default();
        if self.link.is_away() {
            // An end of the stream, or an error, is found again.
            return;
        }
        if self.phase != Phase::Open {
            self.drop_unsubmitted(cx);
            return;
        }
        match completion.result {
            Err(_) => self.disconnect(cx),
            Ok(0) if self.is_mid_request() => self.disconnect(cx),
            Ok(0) => self.drain(cx),
            Ok(received) => {
                if let Some(incoming) = &mut self.incoming {
                    // Nothing was in the input: what is there now came after the payload.
                    incoming.arrived += (received - self.input.len()) as u64;
                }
                self.take_requests(cx);
            }
        }
    }

    /// Takes requests from the input until it is used up or something has to be waited for, then
    /// receives more unless something waits.
    fn take_requests(&mut self, cx: &mut Context<'_>) {
        let mut seen = self.used;
        while self.phase == Phase::Open {
            if self.used >= seen {
                seen = self.look_ahead(cx);
            }
            if !self.retry(cx) || !self.take_payload(cx) {
                break;
            }
            if self.outbox.is_sending() {
                self.waiting = Some(Waiting::Room { in_flight: usize::MAX });
                break;
            }
            let (session, input) = (&mut self.session, &self.input[self.used..]);
            let step = self.outbox.append(|out| session.next(input, out));
            let Ok((consumed, step)) = step else { return self.disconnect(cx) };
            self.used += consumed;
            match step {
                Step::NeedMore => break,
                Step::Refused => {}
                Step::Request(submission) => self.submit_questions(cx, submission),
                Step::Write { key, range, fua } => {
                    self.waiting = Some(Waiting::Memory { key, range, fua });
                }
                Step::Full => {
                    let in_flight = self.session.in_flight();
                    self.waiting = Some(Waiting::Room { in_flight });
                    break;
                }
                Step::Disconnect => return self.drain(cx),
            }
        }
        self.receive(cx);
    }

    /// Tells the engine of the next requests. Returns where in the input the one behind them begins, if it is there.
    fn look_ahead(&self, cx: &mut Context<'_>) -> usize {
        let mut seen = 1;
        let requests = coming(&self.input[self.used..]).take(LOOK_AHEAD);
        let positions = requests.map(|(position, end)| {
            seen = end;
            position
        });
        cx.port(self.disk).engine.look_ahead(positions);
        self.used + seen
    }

    /// Tries again what waits; true when nothing waits any more.
    fn retry(&mut self, cx: &mut Context<'_>) -> bool {
        match self.waiting.take() {
            None | Some(Waiting::Room { .. }) => {}
            Some(Waiting::Memory { key, range, fua }) => match cx.write_buffer(self.disk, range) {
                Some(buffer) => {
                    let deadline = cx.now.plus(STALL_MAX);
                    self.incoming =
                        Some(Incoming { key, range, fua, buffer, arrived: 0, deadline });
                }
                None => self.waiting = Some(Waiting::Memory { key, range, fua }),
            },
            Some(Waiting::Place { request, second }) => self.submit(cx, request, second),
        }
        self.waiting.is_none()
    }

    /// Moves payload from the input to the write that it belongs to, and submits the write when it is
    /// complete; true when no payload is awaited any more.
    fn take_payload(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(incoming) = &mut self.incoming else { return true };
        let rest = incoming.rest();
        let here = &self.input[self.used..];
        let count = here.len().min(rest.len as usize);
        if count > 0 {
            cx.port(self.disk).memory.write_at(rest.offset, &here[..count]);
            incoming.arrived += count as u64;
            self.used += count;
        }
        if !incoming.is_complete() {
            return false;
        }
        let Incoming { key, range, fua, buffer, .. } = *incoming;
        self.incoming = None;
        let request = Request { tag: self.link.tag(key), range, op: Op::Write { buffer, fua } };
        self.submit(cx, request, None);
        self.waiting.is_none()
    }

    fn submit_questions(&mut self, cx: &mut Context<'_>, submission: Submission) {
        let Submission { key, range, op, second } = submission;
        self.submit(cx, Request { tag: self.link.tag(key), range, op }, second);
    }

    /// Submits a request, and the second question of it when there is one.
    fn submit(&mut self, cx: &mut Context<'_>, mut request: Request, mut second: Option<Op>) {
        loop {
            if cx.submit_if_allowed(self.disk, request).is_err() {
                self.waiting = Some(Waiting::Place { request, second });
                return;
            }
            let Some(op) = second.take() else { return };
            request = Request { tag: RequestTag(request.tag.0 + 1), op, ..request };
        }
    }

    /// Receives more, when nothing waits: the rest of a payload straight to its place.
    fn receive(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Open || self.is_receiving || self.waiting.is_some() {
            return;
        }
        self.input.drain(..self.used);
        self.used = 0;
        self.receive_deadline = match &self.incoming {
            Some(incoming) => incoming.deadline,
            None if self.is_mid_request() => cx.now.plus(STALL_MAX),
            None => Nanos::NEVER,
        };
        let first =
            self.incoming.as_ref().map(|incoming| cx.port(self.disk).region(incoming.rest()));
        let input = std::mem::take(&mut self.input);
        self.is_receiving = true;
        cx.reactor.recv(self.link.socket, first, input, self.link.tokens.recv);
    }

    /// True when a part of a request has arrived.
    fn is_mid_request(&self) -> bool {
        self.used < self.input.len() || self.incoming.is_some() || self.session.is_skipping()
    }
}

impl Client for Connection {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.disk)
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        if completion.token == self.link.tokens.recv {
            self.on_received(cx, completion);
        } else {
            assert_eq!(completion.token, self.link.tokens.send, "a completion of someone else");
            if self.link.is_away() {
                return self.outbox.on_taken(completion.result, completion.buffer);
            }
            let sent = self.outbox.on_sent(completion.result, completion.buffer);
            if self.phase != Phase::Closed {
                match sent {
                    Ok(()) => self.flush(cx),
                    Err(_) => self.disconnect(cx),
                }
            }
        }
    }

    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        let Answer { disk, reply, slices, extents } = answer;
        debug_assert_eq!((reply.tag.0 >> 32) as u32, self.link.id);
        if reply.status == IoStatus::ShuttingDown {
            // A client that comes back repeats what has no answer. An error would reach its guest.
            self.session.forget(reply.tag.0 as u32);
            return self.drain(cx);
        }
        let session = &mut self.session;
        let with_data = self.outbox.append(|out| session.reply(reply, slices, extents, out));
        match reply.data {
            ReplyData::Slots { first, count } if with_data => {
                let slices = &slices[first as usize..][..count as usize];
                self.outbox.push_slots(cx.port(disk), slices);
            }
            ReplyData::Buffer { data, buffer } if with_data => {
                self.outbox.push_buffer(cx.port(disk).region(data), disk, buffer);
            }
            ReplyData::Buffer { buffer, .. } => cx.release(disk, buffer),
            ReplyData::None
            | ReplyData::Slots { .. }
            | ReplyData::Extents { .. }
            | ReplyData::Difference { .. } => {}
        }
        if self.phase == Phase::Closed {
            self.outbox.discard(cx);
        }
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Closed || self.link.is_away() {
            return;
        }
        let sent = self.outbox.flush(cx);
        if sent.is_err() || (self.phase == Phase::Draining && self.is_drained()) {
            self.disconnect(cx);
        }
    }

    fn wants_resume(&self) -> bool {
        match self.waiting {
            _ if self.link.is_away() => false,
            None => false,
            Some(Waiting::Room { in_flight }) => {
                self.outbox.is_empty() && self.session.in_flight() < in_flight
            }
            Some(Waiting::Memory { .. } | Waiting::Place { .. }) => true,
        }
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        let goes_on = self.wants_resume() && self.retry(cx);
        if goes_on {
            self.take_requests(cx);
        }
        goes_on
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.drain(cx);
    }

    fn give_up(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Draining && self.is_answered() {
            self.disconnect(cx);
        }
    }

    fn leave(&mut self, cx: &mut Context<'_>) -> bool {
        self.let_go(cx)
    }

    fn enter(&mut self, cx: &mut Context<'_>, id: u32, tokens: Tokens) -> std::io::Result<()> {
        self.come_in(cx, id, tokens)
    }

    fn next_deadline(&self) -> Nanos {
        if self.phase == Phase::Closed || self.link.is_away() {
            return Nanos::NEVER;
        }
        let send = self.outbox.sending_since().plus(STALL_MAX);
        self.receive_deadline.min(send).min(self.outbox.hold_deadline())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Closed {
            return;
        }
        let stalled = self.outbox.sending_since().plus(STALL_MAX).min(self.receive_deadline);
        if stalled <= cx.now {
            self.disconnect(cx);
        } else if self.outbox.hold_deadline() <= cx.now {
            self.outbox.let_go(cx);
        }
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed
            && !self.is_receiving
            && !self.outbox.is_sending()
            && self.session.in_flight() == 0
    }
}

/// The requests that the input begins with: where each begins on the disk, and where it ends in the input, with its payload.
fn coming(input: &[u8]) -> impl Iterator<Item = (u64, usize)> {
    let mut end = 0;
    std::iter::from_fn(move || {
        let bytes = input.get(end..)?.first_chunk::<{ RequestHeader::SIZE }>()?;
        let header = RequestHeader::decode(bytes).ok()??;
        let is_write = Command::from_wire(header.command) == Some(Command::Write);
        end += RequestHeader::SIZE + if is_write { header.len as usize } else { 0 };
        Some((header.offset, end))
    })
}

#[cfg(test)]
mod tests;
