//! The I/Os that this backend owns, and the parts in which they travel.
//!
//! A request is cut into parts no longer than the server takes, a few at a time. Each part is one
//! NBD request with its own cookie. Parts outlive a session: an unanswered one is queued again,
//! under another cookie. A write with some answered parts is queued again as a whole. Those parts
//! may be lost with the session, and nobody knows yet that it had begun.
//!
//! ```text
//! request: submit ─► queued ─► (parts) ─► all parts ended ─► finished
//! part:    cut ─► sent on a connection ─► ended
//!            ▲            │ session lost
//!            └── queued ◄─┘
//! ```

use super::arrived::Arrived;
use std::collections::VecDeque;

use forebay_core::action::{Extent, IoOp};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use slab::Slab;

use crate::backend::{BackendEvent, BackendIo};

/// Parts of one request on their way at a time.
const PARTS_MAX: u32 = 16;
/// Times as long as another I/O a flush or a discard may take: a server may have gigabytes in its cache to write. To ask for
/// the same again on a new session would only give it more to do.
const PATIENCE: u64 = 10;
/// Sessions that may end while a request waits for its answer: it may be the one that ends them. With the pauses between
/// short ones that takes half a minute.
const REPLAYS_MAX: u32 = 12;

/// See the module.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) io: BackendIo,
    /// The rest that is not cut into parts yet; a flush has one part of no length.
    uncut: Option<ByteRange>,
    parts: u32,
    /// Parts that were answered in the session of today.
    answered: u32,
    /// Sessions that ended while it waited for an answer.
    replays: u32,
    status: IoStatus,
    pub(super) extents: Vec<Extent>,
}

/// One request on the wire.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) request: usize,
    pub(super) range: ByteRange,
    /// Changes with each sending.
    pub(super) cookie: u64,
    /// The connection that it was sent on.
    pub(super) connection: Option<usize>,
    /// How many were sent before it.
    order: u64,
    /// When it was sent, or when something slow was answered that had been sent on that connection before it.
    waits_since: Nanos,
    /// What of a read has come.
    pub(super) arrived: Arrived,
    pub(super) status: IoStatus,
    /// The server does not do it, because it shuts down.
    pub(super) is_refused: bool,
    /// Of a flush: the writes that had been answered when it was sent.
    pub(super) covers: u64,
}

impl Part {
    /// It was sent later, on the same connection.
    fn is_behind(&self, other: &Part) -> bool {
        self.connection == other.connection && self.order > other.order
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Requests {
    requests: Slab<Request>,
    parts: Slab<Part>,
    /// Requests with something to cut, in order.
    to_cut: VecDeque<usize>,
    /// Parts that wait to be sent (again), in order; before what is to be cut.
    to_send: VecDeque<usize>,
    in_flight: usize,
    /// Parts that were ever sent.
    sent: u64,
    generation: u32,
    len_max: u64,
    block: u64,
    /// Writes, discards and write-zeroes that have been answered, and how many of them are durable.
    answered: u64,
    durable: u64,
}

impl Requests {
    /// For a server that takes up to `len_max` bytes at a time, in multiples of `block`.
    pub(super) fn new(len_max: u64, block: u64) -> Requests {
        assert!(len_max > 0 && len_max.is_multiple_of(block));
        Requests {
            requests: Slab::new(),
            parts: Slab::new(),
            to_cut: VecDeque::new(),
            to_send: VecDeque::new(),
            in_flight: 0,
            sent: 0,
            generation: 0,
            len_max,
            block,
            answered: 0,
            durable: 0,
        }
    }

    /// Takes an I/O.
    pub(super) fn submit(&mut self, io: BackendIo) {
        // A question for extents may be asked of any sectors; the answer is cut to size again.
        let uncut = match io.op {
            IoOp::Extents => io.range.align_out(self.block),
            IoOp::Read { .. }
            | IoOp::Write { .. }
            | IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Progress { .. } => io.range,
        };
        let key = self.requests.insert(Request {
            io,
            uncut: Some(uncut),
            parts: 0,
            answered: 0,
            replays: 0,
            status: IoStatus::Ok,
            extents: Vec::new(),
        });
        self.to_cut.push_back(key);
    }

    /// Ends all that waits to be sent, with an error; nothing of it is in flight.
    pub(super) fn fail(&mut self, events: &mut Vec<BackendEvent>) {
        assert_eq!(self.in_flight, 0, "what was sent may be answered");
        let ends = self
            .requests
            .drain()
            .map(|request| BackendEvent::Done { id: request.io.id, status: IoStatus::IoError });
        events.extend(ends);
        self.parts.clear();
        self.to_cut.clear();
        self.to_send.clear();
    }

    /// True when a part could be sent.
    pub(super) fn has_next(&self) -> bool {
        !self.to_send.is_empty() || !self.to_cut.is_empty()
    }

    /// Parts that could be sent, at least.
    pub(super) fn waiting(&self) -> usize {
        self.to_send.len() + self.to_cut.len()
    }

    /// Parts that wait for their answer.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The next part to send, with a new cookie.
    pub(super) fn next(&mut self) -> Option<usize> {
        let key = match self.to_send.pop_front() {
            Some(key) => key,
            None => self.cut_next()?,
        };
        self.generation = self.generation.wrapping_add(1);
        self.parts[key].cookie = u64::from(self.generation) << 32 | key as u64;
        Some(key)
    }

    fn cut_next(&mut self) -> Option<usize> {
        let key = *self.to_cut.front()?;
        let request = &mut self.requests[key];
        let uncut = request.uncut.take().expect("queued because there is something to cut");
        let len = uncut.len().min(self.len_max);
        let range = ByteRange::at(uncut.start, len);
        let rest = ByteRange::new(range.end, uncut.end);
        // The answer for extents may be short anyway.
        if !rest.is_empty() && !matches!(request.io.op, IoOp::Extents) {
            request.uncut = Some(rest);
        }
        request.parts += 1;
        if request.uncut.is_none() || request.parts == PARTS_MAX {
            self.to_cut.pop_front();
        }
        Some(self.parts.insert(Part {
            request: key,
            range,
            cookie: 0,
            connection: None,
            order: 0,
            waits_since: Nanos(0),
            arrived: Arrived::default(),
            status: IoStatus::Ok,
            is_refused: false,
            covers: 0,
        }))
    }

    /// A part has gone to a connection.
    pub(super) fn sent(&mut self, key: usize, connection: usize, now: Nanos) {
        let part = &mut self.parts[key];
        assert!(part.connection.is_none());
        part.connection = Some(connection);
        part.order = self.sent;
        part.waits_since = now;
        part.covers = self.answered;
        self.sent += 1;
        self.in_flight += 1;
    }

    /// A part could not be sent now; it stays the next one.
    pub(super) fn unsent(&mut self, key: usize) {
        self.to_send.push_front(key);
    }

    /// A part was refused: it is for the next session.
    pub(super) fn put_back(&mut self, key: usize) {
        self.parts[key].connection = None;
        self.in_flight -= 1;
        self.to_send.push_front(key);
    }

    pub(super) fn part(&self, key: usize) -> (&Part, &Request) {
        let part = &self.parts[key];
        (part, &self.requests[part.request])
    }

    pub(super) fn part_mut(&mut self, key: usize) -> (&mut Part, &mut Request) {
        let part = &mut self.parts[key];
        let request = part.request;
        (part, &mut self.requests[request])
    }

    /// The part behind a cookie that came from `connection`.
    pub(super) fn find(&self, cookie: u64, connection: usize) -> Option<usize> {
        let key = (cookie & u64::from(u32::MAX)) as usize;
        let part = self.parts.get(key)?;
        (part.cookie == cookie && part.connection == Some(connection)).then_some(key)
    }

    /// A part was answered. The event of its request when that was the last one.
    pub(super) fn end_part(&mut self, key: usize, now: Nanos) -> Option<BackendEvent> {
        let part = self.parts.remove(key);
        assert!(part.connection.is_some());
        self.in_flight -= 1;
        if self.patience(&part) > 1 {
            let later = self.parts.iter_mut().filter(|(_, later)| later.is_behind(&part));
            later.for_each(|(_, later)| later.waits_since = now);
        }
        let request = &mut self.requests[part.request];
        request.answered += 1;
        if request.io.changes_data() {
            self.answered += 1;
        } else if matches!(request.io.op, IoOp::Flush) && part.status.is_ok() {
            self.durable = self.durable.max(part.covers);
        }
        self.leave(part)
    }

    fn leave(&mut self, part: Part) -> Option<BackendEvent> {
        let request = &mut self.requests[part.request];
        if request.status.is_ok() {
            request.status = part.status;
        }
        let was_queued = request.uncut.is_some() && request.parts < PARTS_MAX;
        request.parts -= 1;
        if !request.status.is_ok() && request.uncut.take().is_some() && was_queued {
            self.to_cut.retain(|queued| *queued != part.request);
        }
        let request = &self.requests[part.request];
        if request.uncut.is_some() && !was_queued {
            self.to_cut.push_back(part.request);
        }
        if request.parts > 0 || request.uncut.is_some() {
            return None;
        }
        let Request { io, status, extents, .. } = self.requests.remove(part.request);
        Some(match extents.is_empty() || !status.is_ok() {
            false => BackendEvent::Extents { id: io.id, extents },
            true => BackendEvent::Done { id: io.id, status },
        })
    }

    /// The session ended: queues again what was not answered. Flushes that would have covered
    /// writes which may be lost now fail, and so does what has seen too many sessions end. Ends of
    /// reads go to `reads`: the session may still receive into their memory until it has drained.
    pub(super) fn session_lost(
        &mut self,
        events: &mut Vec<BackendEvent>,
        reads: &mut Vec<BackendEvent>,
    ) {
        let is_at_risk = self.answered > self.durable;
        self.durable = self.answered;
        self.in_flight = 0;
        self.to_send.clear();
        let mut was_waiting = vec![0u32; self.requests.capacity()];
        for (key, part) in &mut self.parts {
            let is_refused = std::mem::take(&mut part.is_refused);
            let was_sent = part.connection.take().is_some();
            was_waiting[part.request] += u32::from(was_sent || is_refused);
            part.arrived = Arrived::default();
            part.status = IoStatus::Ok;
            self.to_send.push_back(key);
        }
        let mut failed = Vec::new();
        for (key, request) in &mut self.requests {
            request.extents.clear();
            request.replays += u32::from(was_waiting[key] > 0);
            let is_unsafe_flush = matches!(request.io.op, IoOp::Flush) && is_at_risk;
            if is_unsafe_flush || request.replays > REPLAYS_MAX {
                failed.push((key, IoStatus::IoError));
            } else if !request.status.is_ok() {
                failed.push((key, request.status));
            }
        }
        for (key, status) in failed {
            self.drop_parts(key);
            let request = self.requests.remove(key);
            let is_read = matches!(request.io.op, IoOp::Read { .. });
            let ends = if is_read { &mut *reads } else { &mut *events };
            ends.push(BackendEvent::Done { id: request.io.id, status });
        }
        self.begin_broken_writes_again();
    }

    /// Forgets the parts of a request, and that there is something to cut.
    fn drop_parts(&mut self, request: usize) {
        let parts = &mut self.parts;
        self.to_send.retain(|key| parts[*key].request != request);
        parts.retain(|_, part| part.request != request);
        self.to_cut.retain(|key| *key != request);
    }

    /// Writes of which a part was answered start from their beginning.
    fn begin_broken_writes_again(&mut self) {
        let broken: Vec<usize> = self
            .requests
            .iter()
            .filter(|(_, request)| request.answered > 0 && request.io.changes_data())
            .map(|(key, _)| key)
            .collect();
        for key in broken {
            self.drop_parts(key);
            let request = &mut self.requests[key];
            request.answered = 0;
            request.parts = 0;
            request.uncut = Some(request.io.range);
            self.to_cut.push_back(key);
        }
    }

    /// The connections on which something that changes data waits for its answer.
    pub(super) fn changes_in_flight(&self) -> impl Iterator<Item = usize> {
        self.parts
            .iter()
            .filter(|(_, part)| self.requests[part.request].io.changes_data())
            .filter_map(|(_, part)| part.connection)
    }

    /// When the first part on its way will have waited too long, and how long that is, with so much time for most. A server may
    /// do what comes on a connection one after the other: the time of a part has not begun while something slow that was sent
    /// there before it waits for its answer.
    pub(super) fn due(&self, timeout: Nanos) -> Option<(Nanos, Nanos)> {
        let due = |part: &Part| {
            let time = Nanos(timeout.0.saturating_mul(self.patience(part)));
            (part.waits_since.plus(time), time)
        };
        let sent =
            || self.parts.iter().map(|(_, part)| part).filter(|part| part.connection.is_some());
        let mut slow: Vec<&Part> = Vec::new();
        for part in sent().filter(|part| self.patience(part) > 1) {
            match slow.iter_mut().find(|first| first.connection == part.connection) {
                Some(first) if first.is_behind(part) => *first = part,
                Some(_) => {}
                None => slow.push(part),
            }
        }
        let begun = sent().filter(|part| !slow.iter().any(|first| part.is_behind(first)));
        begun.map(due).min()
    }

    /// Times as long as most that a part may take.
    fn patience(&self, part: &Part) -> u64 {
        match self.requests[part.request].io.op {
            IoOp::Flush | IoOp::Discard | IoOp::WriteZeroes { .. } => PATIENCE,
            IoOp::Read { .. } | IoOp::Write { .. } => 1,
            IoOp::Extents | IoOp::Progress { .. } => 1,
        }
    }
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
