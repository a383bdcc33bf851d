//! The bytes that a client has to send on its socket, in order, and their fate.
//!
//! ```text
//! append, slot, buffer ──► parts ──flush: send_now──► socket
//!                            │ what it did not take
//!                            ├── slot memory: copied at once, the slots are free
//!                            └── ≤ 64 KiB at a time ──► Reactor::send, which waits for the socket
//! ```
//!
//! Data in request buffers is sent from there. A client that keeps them longer than [`HOLD_MAX`]
//! loses that: [`Outbox::let_go`] copies them too, so that it does not hold memory of the disk.
//!
//! **Invariant:** after `flush` no part refers to slot memory. **Limit:** the session's limit of bytes
//! in flight bounds what can be queued; memory above [`KEEP_MAX`] is given back when all is sent.

use std::io;

use forebay_core::action::{Buffer, Span};
use forebay_core::ids::Nanos;
use forebay_io::arena::Region;
use forebay_io::reactor::{SendPart, SocketId, Token};

use crate::client::{Context, DiskId, Port};

/// How long data stays in request buffers when the client does not read.
pub(crate) const HOLD_MAX: Nanos = Nanos::from_millis(1000);
/// Bytes that are waited for at a time once the socket is full.
const WIRE_MAX: usize = 64 << 10;
/// Memory that is kept when everything was sent.
const KEEP_MAX: usize = 1 << 20;

/// A piece to send.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Bytes of `Outbox::bytes`.
    Bytes { start: usize, len: usize },
    /// Cache memory, valid until the flush.
    Slot(Region),
    /// A part of a request buffer of a disk; the buffer is released when it is sent.
    Buffer { data: Region, disk: DiskId, buffer: Buffer },
}

impl Part {
    fn len(&self) -> usize {
        match self {
            Part::Bytes { len, .. } => *len,
            Part::Slot(region) => region.len as usize,
            Part::Buffer { data, .. } => data.len as usize,
        }
    }

    /// The rest of it without its first `count` bytes.
    fn without_first(self, count: usize) -> Part {
        let rest = |region: Region| Region {
            offset: region.offset + count as u64,
            len: region.len - count as u32,
            ..region
        };
        match self {
            Part::Bytes { start, len } => Part::Bytes { start: start + count, len: len - count },
            Part::Slot(region) => Part::Slot(rest(region)),
            Part::Buffer { data, disk, buffer } => Part::Buffer { data: rest(data), disk, buffer },
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    socket: SocketId,
    token: Token,
    /// Headers, and what was copied.
    bytes: Vec<u8>,
    /// Parts before `first` are sent.
    parts: Vec<Part>,
    first: usize,
    /// Moved into the reactor while a send waits there.
    wire: Vec<u8>,
    is_sending: bool,
    /// When the parts began to wait; [`Nanos::NEVER`] when none do.
    waiting_since: Nanos,
    /// When the send in the reactor began.
    sending_since: Nanos,
    /// Empty; kept for its memory.
    scratch: Vec<SendPart<'static>>,
}

impl Outbox {
    pub(crate) fn new(socket: SocketId, token: Token) -> Outbox {
        Outbox {
            socket,
            token,
            bytes: Vec::new(),
            parts: Vec::new(),
            first: 0,
            wire: Vec::new(),
            is_sending: false,
            waiting_since: Nanos::NEVER,
            sending_since: Nanos::NEVER,
            scratch: Vec::new(),
        }
    }

    /// Its socket is known by another number from now on; nothing is on its way, and nothing waits that lies in memory of
    /// the disks.
    pub(crate) fn enter(&mut self, socket: SocketId, token: Token) {
        let waiting = &self.parts[self.first..];
        let is_its_own = |part: &Part| matches!(part, Part::Bytes { .. });
        assert!(!self.is_sending && waiting.iter().all(is_its_own), "a disk owes it something");
        (self.socket, self.token) = (socket, token);
    }

    /// The send in the reactor has ended because the socket was taken: what was not sent is to be sent later.
    pub(crate) fn on_taken(&mut self, sent: io::Result<usize>, buffer: Option<Vec<u8>>) {
        self.is_sending = false;
        self.sending_since = Nanos::NEVER;
        self.wire = buffer.unwrap_or_default();
        // Of an error whoever sends next hears.
        let rest = &self.wire[sent.unwrap_or(0)..];
        if !rest.is_empty() {
            let part = Part::Bytes { start: self.bytes.len(), len: rest.len() };
            self.bytes.extend_from_slice(rest);
            self.parts.insert(self.first, part);
        }
        self.wire.clear();
    }

    /// True when nothing waits and nothing is on its way.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.is_sending
    }

    /// True while a send waits in the reactor: the client reads more slowly than it asks.
    pub(crate) fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// Bytes of headers, and of what was copied, that are to be sent, as long as nothing is on its way.
    pub(crate) fn copied(&self) -> usize {
        self.bytes.len()
    }

    /// True when a flush has something to do.
    #[cfg(test)]
    pub(crate) fn needs_flush(&self) -> bool {
        !self.parts.is_empty() && !self.is_sending
    }

    /// When the send in the reactor began, [`Nanos::NEVER`] when there is none.
    pub(crate) fn sending_since(&self) -> Nanos {
        self.sending_since
    }

    /// When request buffers are to be let go, [`Nanos::NEVER`] when none are held.
    pub(crate) fn hold_deadline(&self) -> Nanos {
        if self.waiting_since == Nanos::NEVER {
            return Nanos::NEVER;
        }
        let holds = self.parts[self.first..].iter().any(|p| matches!(p, Part::Buffer { .. }));
        if holds { self.waiting_since.plus(HOLD_MAX) } else { Nanos::NEVER }
    }

    /// Lets `encode` append headers.
    pub(crate) fn append<R>(&mut self, encode: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.bytes.len();
        let result = encode(&mut self.bytes);
        let added = self.bytes.len() - start;
        match self.parts.last_mut() {
            _ if added == 0 => {}
            Some(Part::Bytes { start: last, len }) if *last + *len == start => *len += added,
            _ => self.parts.push(Part::Bytes { start, len: added }),
        }
        result
    }

    /// Adds cache memory of a disk.
    pub(crate) fn push_slots(&mut self, port: &Port, slices: &[Span]) {
        self.parts.extend(slices.iter().map(|span| Part::Slot(port.region(*span))));
    }

    /// Adds data in a request buffer of a disk, and takes the buffer over.
    pub(crate) fn push_buffer(&mut self, data: Region, disk: DiskId, buffer: Buffer) {
        self.parts.push(Part::Buffer { data, disk, buffer });
    }

    /// Sends what the socket takes and sees to the rest.
    ///
    /// # Errors
    /// The socket's, when it is broken.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.parts.is_empty() {
            return Ok(());
        }
        if !self.is_sending {
            let sent = self.send_now(cx)?;
            self.advance(sent, cx);
        }
        if self.parts.is_empty() {
            return Ok(());
        }
        self.waiting_since = self.waiting_since.min(cx.now);
        self.copy_parts(cx, false);
        if !self.is_sending {
            self.start_send(cx);
        }
        Ok(())
    }

    /// The send in the reactor has ended, well when `sent` is all of it.
    ///
    /// # Errors
    /// The socket's, or that it took less than all.
    pub(crate) fn on_sent(
        &mut self,
        sent: io::Result<usize>,
        buffer: Option<Vec<u8>>,
    ) -> io::Result<()> {
        self.is_sending = false;
        self.sending_since = Nanos::NEVER;
        self.wire = buffer.unwrap_or_default();
        let (sent, len) = (sent?, self.wire.len());
        self.wire.clear();
        if sent < len {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.parts.is_empty() {
            self.rest();
        }
        Ok(())
    }

    /// Copies what lies in request buffers and gives them back.
    pub(crate) fn let_go(&mut self, cx: &mut Context<'_>) {
        self.copy_parts(cx, true);
    }

    /// Forgets everything that was to be sent.
    pub(crate) fn discard(&mut self, cx: &mut Context<'_>) {
        for part in self.parts.drain(..).skip(self.first) {
            if let Part::Buffer { disk, buffer, .. } = part {
                cx.release(disk, buffer);
            }
        }
        self.rest();
    }

    fn send_now(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut list: Vec<SendPart<'_>> = std::mem::take(&mut self.scratch);
        list.extend(self.parts[self.first..].iter().map(|part| match *part {
            Part::Bytes { start, len } => SendPart::Bytes(&self.bytes[start..start + len]),
            Part::Slot(region) | Part::Buffer { data: region, .. } => SendPart::Region(region),
        }));
        let sent = cx.reactor.send_now(self.socket, &list);
        list.clear();
        // An empty list holds no reference: the same memory under another lifetime.
        self.scratch = list.into_iter().map(|_| SendPart::Bytes(&[])).collect();
        sent
    }

    /// `count` more bytes are sent or copied.
    fn advance(&mut self, mut count: usize, cx: &mut Context<'_>) {
        while let Some(part) = self.parts.get_mut(self.first) {
            if count < part.len() {
                *part = part.without_first(count);
                return;
            }
            count -= part.len();
            if let Part::Buffer { disk, buffer, .. } = *part {
                cx.release(disk, buffer);
            }
            self.first += 1;
        }
        assert_eq!(count, 0, "more was sent than there was");
        self.rest();
    }

    /// Everything is sent: starts afresh.
    fn rest(&mut self) {
        self.parts.clear();
        self.first = 0;
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_MAX);
        self.waiting_since = Nanos::NEVER;
    }

    /// Copies slot memory, and with `buffers` what lies in request buffers, behind the headers.
    fn copy_parts(&mut self, cx: &mut Context<'_>, buffers: bool) {
        for part in &mut self.parts[self.first..] {
            let (region, held) = match *part {
                Part::Slot(region) => (region, None),
                Part::Buffer { data, disk, buffer } if buffers => (data, Some((disk, buffer))),
                Part::Bytes { .. } | Part::Buffer { .. } => continue,
            };
            let start = self.bytes.len();
            let arena = cx.reactor.arena(region.arena);
            arena.append_to(region.offset, region.len, &mut self.bytes);
            *part = Part::Bytes { start, len: region.len as usize };
            if let Some((disk, buffer)) = held {
                cx.release(disk, buffer);
            }
        }
    }

    /// Hands the first bytes to the reactor, which waits until the socket takes them.
    fn start_send(&mut self, cx: &mut Context<'_>) {
        let mut wire = std::mem::take(&mut self.wire);
        wire.reserve(WIRE_MAX);
        for part in &self.parts[self.first..] {
            let len = part.len().min(WIRE_MAX - wire.len());
            match *part {
                Part::Bytes { start, .. } => {
                    wire.extend_from_slice(&self.bytes[start..start + len]);
                }
                Part::Slot(region) | Part::Buffer { data: region, .. } => {
                    let arena = cx.reactor.arena(region.arena);
                    arena.append_to(region.offset, len as u32, &mut wire);
                }
            }
            if wire.len() == WIRE_MAX {
                break;
            }
        }
        self.advance(wire.len(), cx);
        self.is_sending = true;
        self.sending_since = cx.now;
        cx.reactor.send(self.socket, wire, 0, self.token);
    }
}
