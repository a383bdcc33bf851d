//! The connections of one session: sending in batches, receiving, and letting go.
//!
//! A batch of requests goes out with one non-blocking vectored send, write data straight from the
//! arena. The rest of a message that the socket does not take goes in pieces through a bounce
//! buffer. The connection takes no other message until that is done.
//!
//! A session that cannot go on is first *settled*, then closed, then drained:
//! - [`Session::is_settled`]: nothing that the server was sent can still change the export;
//! - [`Session::is_drained`]: the kernel has let go of all memory.
//!
//! **Invariant:** a request is given to another session only after both.

use std::io;
use std::os::fd::OwnedFd;

use forebay_core::action::IoOp;
use forebay_io::arena::Region;
use forebay_io::reactor::{Completion, Reactor, SendPart, SocketId};
use forebay_nbd::flags::{CommandFlags, TransmissionFlags};
use forebay_nbd::request::{Command, RequestHeader};

use super::connect::NewSession;
use super::export::Export;
use super::receive::{Incoming, Sink};
use super::requests::Requests;
use crate::backend::{Context, TokenRange};

/// Messages in one send.
const BATCH: usize = 32;
/// Bytes copied at a time of what the socket does not take.
const BOUNCE: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) export: Export,
    connections: Vec<Connection>,
    tokens: TokenRange,
    /// The connection that is asked first whether it takes the next batch.
    next: usize,
    is_local: bool,
    is_closed: bool,
}

/// The known state of the server's side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    /// It answers, or may.
    There,
    /// Its bytes have no meaning; the session waits for its end.
    Garbled,
    /// It closed the connection, on this host.
    LetGo,
    /// The connection broke; what the server knows of that is not known.
    Unknown,
}

impl Peer {
    /// The meaning of a connection's end: something in between may have ended it, unless there is
    /// nothing.
    fn at_end(is_local: bool) -> Peer {
        if is_local { Peer::LetGo } else { Peer::Unknown }
    }
}

#[derive(Debug)]
struct Connection {
    socket: SocketId,
    peer: Peer,
    incoming: Incoming,
    is_receiving: bool,
    /// The message that is sent in part.
    outgoing: Option<Message>,
    bounce: Vec<u8>,
    is_sending: bool,
    in_flight: u32,
}

/// A request to send.
#[derive(Clone, Copy, Debug)]
struct Message {
    part: usize,
    header: [u8; RequestHeader::SIZE],
    payload: Option<Region>,
    /// Bytes that have gone.
    sent: usize,
}

impl Message {
    const NONE: Message =
        Message { part: 0, header: [0; RequestHeader::SIZE], payload: None, sent: 0 };

    fn len(&self) -> usize {
        RequestHeader::SIZE + self.payload.map_or(0, |payload| payload.len as usize)
    }

    /// The rest of header and payload.
    fn rest(&self) -> (&[u8], Option<Region>) {
        let header = &self.header[self.sent.min(RequestHeader::SIZE)..];
        let skip = self.sent.saturating_sub(RequestHeader::SIZE);
        let payload = self.payload.map(|payload| Region {
            offset: payload.offset + skip as u64,
            len: payload.len - skip as u32,
            ..payload
        });
        (header, payload.filter(|payload| payload.len > 0))
    }
}

impl Connection {
    /// Sends nothing more to a peer whose bytes have no meaning, so that it closes. In the middle of
    /// a request that would look like a broken client, which is closed at once.
    fn end_garbled(&self, reactor: &mut Reactor) {
        if self.peer == Peer::Garbled && self.outgoing.is_none() {
            reactor.end_sending(self.socket);
        }
    }
}

impl Session {
    /// Takes the sockets and begins to listen on them when it has all. After an error the session is closed, and nothing is
    /// in flight.
    pub(super) fn start(
        new: NewSession,
        tokens: TokenRange,
        reactor: &mut Reactor,
    ) -> (Session, io::Result<()>) {
        let mut session = Session {
            export: new.export,
            connections: Vec::new(),
            tokens,
            next: 0,
            is_local: new.is_local,
            is_closed: false,
        };
        for socket in new.sockets {
            if let Err(error) = session.add(socket, reactor) {
                session.close(reactor);
                return (session, Err(error));
            }
        }
        for index in 0..session.connections.len() {
            session.receive(index, reactor);
        }
        (session, Ok(()))
    }

    fn add(&mut self, socket: OwnedFd, reactor: &mut Reactor) -> io::Result<()> {
        let socket = reactor.add_socket(socket)?;
        // When the network is back, the kernel would deliver the writes of a process that was killed over newer ones.
        reactor.outlive(socket, false);
        self.connections.push(Connection {
            socket,
            peer: Peer::There,
            incoming: Incoming::new(),
            is_receiving: false,
            outgoing: None,
            bounce: Vec::new(),
            is_sending: false,
            in_flight: 0,
        });
        Ok(())
    }

    fn receive(&mut self, index: usize, reactor: &mut Reactor) {
        let connection = &mut self.connections[index];
        let (place, buffer) = connection.incoming.lend();
        connection.is_receiving = true;
        reactor.recv(connection.socket, place, buffer, self.tokens.token(2 * index as u64));
    }

    /// Ends all connections; what they have not delivered yet is dropped where that is possible.
    pub(super) fn close(&mut self, reactor: &mut Reactor) {
        if !std::mem::replace(&mut self.is_closed, true) {
            for connection in &self.connections {
                reactor.abort_socket(connection.socket);
            }
        }
    }

    /// Says goodbye, then closes. A server that still owes answers sees the end alone: what it was not sent yet must not
    /// come any more.
    pub(super) fn leave(&mut self, reactor: &mut Reactor, requests: &Requests) {
        if requests.in_flight() > 0 {
            return self.close(reactor);
        }
        let header = RequestHeader {
            flags: CommandFlags::NONE,
            command: Command::Disconnect.wire(),
            cookie: 0,
            offset: 0,
            len: 0,
        };
        for connection in &self.connections {
            reactor.outlive(connection.socket, true);
            // A courtesy: the server sees the end of the stream anyway.
            let _ = reactor.send_now(connection.socket, &[SendPart::Bytes(&header.to_bytes())]);
        }
        self.is_closed = true;
        for connection in &self.connections {
            reactor.remove_socket(connection.socket);
        }
    }

    /// True when no change of data can be on its way any more: each was answered, or its connection
    /// was closed by the server.
    pub(super) fn is_settled(&self, requests: &Requests) -> bool {
        requests.changes_in_flight().all(|index| self.connections[index].peer == Peer::LetGo)
    }

    /// True when closed and no operation is in flight any more.
    pub(super) fn is_drained(&self) -> bool {
        let mut connections = self.connections.iter();
        self.is_closed
            && connections.all(|connection| !connection.is_receiving && !connection.is_sending)
    }

    /// Takes a completion of one of its sockets.
    ///
    /// # Errors
    /// Why the session cannot go on.
    pub(super) fn on_completion(
        &mut self,
        cx: &mut Context<'_>,
        completion: Completion,
        requests: &mut Requests,
    ) -> Result<(), String> {
        let local = TokenRange::local(completion.token) as usize;
        let (index, is_send) = (local / 2, local % 2 == 1);
        let connection = &mut self.connections[index];
        let buffer = completion.buffer.unwrap_or_default();
        if is_send {
            connection.is_sending = false;
            return self.on_sent(index, buffer, completion.result);
        }
        connection.is_receiving = false;
        if self.is_closed {
            return Ok(());
        }
        let count = match completion.result {
            Ok(0) => {
                connection.peer = Peer::at_end(self.is_local);
                return Err("the server closed the connection".to_owned());
            }
            Ok(count) => count,
            Err(error) => {
                connection.peer = Peer::at_end(self.is_local);
                return Err(format!("the connection broke: {error}"));
            }
        };
        if connection.peer == Peer::Garbled {
            connection.incoming.discard(buffer);
            self.receive(index, cx.reactor);
            return Ok(());
        }
        let before = requests.in_flight();
        let mut sink = Sink {
            now: cx.now,
            connection: index,
            export: &self.export,
            reactor: cx.reactor,
            requests,
            events: cx.events,
            unsent: connection.outgoing.map(|message| message.part),
            shuts_down: false,
        };
        let understood = connection.incoming.received(buffer, count, &mut sink);
        let shuts_down = sink.shuts_down;
        connection.in_flight -= (before - requests.in_flight()) as u32;
        if understood.is_err() {
            connection.peer = Peer::Garbled;
            connection.incoming.discard(Vec::new());
            connection.end_garbled(cx.reactor);
        }
        self.receive(index, cx.reactor);
        understood.map_err(|what| format!("the server broke the protocol: {what}"))?;
        match shuts_down {
            true => Err("the server is shutting down".to_owned()),
            false => Ok(()),
        }
    }

    fn on_sent(
        &mut self,
        index: usize,
        buffer: Vec<u8>,
        result: io::Result<usize>,
    ) -> Result<(), String> {
        if self.is_closed {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        let wanted = buffer.len();
        connection.bounce = buffer;
        match result {
            Ok(sent) => {
                let message = connection.outgoing.as_mut().expect("a message was being sent");
                // Also when it is not all: the rest follows while the session is settled.
                message.sent += sent;
                match sent == wanted {
                    true => Ok(()),
                    false => Err("the connection broke while sending".to_owned()),
                }
            }
            Err(error) => Err(format!("the connection broke: {error}")),
        }
    }

    /// Sends what the connections take.
    ///
    /// # Errors
    /// Why the session cannot go on.
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        requests: &mut Requests,
    ) -> Result<(), String> {
        self.finish_messages(cx.reactor)?;
        while requests.has_next() {
            let count = self.connections.len();
            let free = (0..count)
                .map(|step| (self.next + step) % count)
                .filter(|index| self.connections[*index].outgoing.is_none());
            let Some(index) = free.min_by_key(|index| self.connections[*index].in_flight) else {
                return Ok(());
            };
            self.next = index + 1;
            self.send_batch(index, cx, requests)?;
        }
        Ok(())
    }

    /// Goes on with what is sent in part, on each connection, be others broken or not.
    ///
    /// # Errors
    /// Why the session cannot go on.
    pub(super) fn finish_messages(&mut self, reactor: &mut Reactor) -> Result<(), String> {
        let each = 0..self.connections.len();
        each.map(|index| self.finish_message(index, reactor)).fold(Ok(()), Result::and)
    }

    /// Sends several requests on one connection.
    fn send_batch(
        &mut self,
        index: usize,
        cx: &mut Context<'_>,
        requests: &mut Requests,
    ) -> Result<(), String> {
        let mut messages = [Message::NONE; BATCH];
        // Several connections share what there is.
        let share = requests.waiting().div_ceil(self.connections.len()).clamp(1, BATCH);
        let mut count = 0;
        while count < share
            && let Some(part) = requests.next()
        {
            messages[count] = message(part, &self.export, requests);
            count += 1;
        }
        let messages = &messages[..count];
        let mut parts = [SendPart::Bytes(&[]); 2 * BATCH];
        let mut used = 0;
        for message in messages {
            let (header, payload) = message.rest();
            parts[used] = SendPart::Bytes(header);
            used += 1;
            if let Some(payload) = payload {
                parts[used] = SendPart::Region(payload);
                used += 1;
            }
        }
        let connection = &mut self.connections[index];
        let taken = cx.reactor.send_now(connection.socket, &parts[..used]);
        let mut taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                messages.iter().rev().for_each(|message| requests.unsent(message.part));
                return Err(format!("the connection broke: {error}"));
            }
        };
        let mut later = messages.len();
        for (position, message) in messages.iter().enumerate() {
            requests.sent(message.part, index, cx.now);
            connection.in_flight += 1;
            if taken < message.len() {
                connection.outgoing = Some(Message { sent: taken, ..*message });
                later = position + 1;
                break;
            }
            taken -= message.len();
        }
        messages[later..].iter().rev().for_each(|message| requests.unsent(message.part));
        self.finish_message(index, cx.reactor)
    }

    /// Goes on with a message that is sent in part.
    fn finish_message(&mut self, index: usize, reactor: &mut Reactor) -> Result<(), String> {
        let connection = &mut self.connections[index];
        let Some(message) = &mut connection.outgoing else { return Ok(()) };
        if connection.is_sending {
            return Ok(());
        }
        if message.sent < message.len() {
            let (header, payload) = message.rest();
            let mut parts = [SendPart::Bytes(header); 2];
            let mut used = usize::from(!header.is_empty());
            if let Some(payload) = payload {
                parts[used] = SendPart::Region(payload);
                used += 1;
            }
            let taken = reactor.send_now(connection.socket, &parts[..used]);
            message.sent += taken.map_err(|error| format!("the connection broke: {error}"))?;
        }
        if message.sent == message.len() {
            connection.outgoing = None;
            connection.end_garbled(reactor);
            return Ok(());
        }
        let (header, payload) = message.rest();
        let mut bounce = std::mem::take(&mut connection.bounce);
        bounce.clear();
        bounce.extend_from_slice(header);
        if let Some(payload) = payload {
            let len = (payload.len as usize).min(BOUNCE) as u32;
            reactor.arena(payload.arena).append_to(payload.offset, len, &mut bounce);
        }
        connection.is_sending = true;
        reactor.send(connection.socket, bounce, 0, self.tokens.token(2 * index as u64 + 1));
        Ok(())
    }
}

/// The request that carries a part.
fn message(key: usize, export: &Export, requests: &Requests) -> Message {
    let (part, request) = requests.part(key);
    let can = |flag| export.flags.has(flag);
    let mut payload = None;
    // A server without flush keeps its promise change by change, or makes none.
    let fua = !can(TransmissionFlags::SEND_FLUSH) && can(TransmissionFlags::SEND_FUA);
    let changes = CommandFlags::NONE.with_if(fua, CommandFlags::FUA);
    let (command, flags) = match request.io.op {
        IoOp::Read { .. } => (Command::Read, CommandFlags::NONE),
        IoOp::Write { .. } => {
            let skip = part.range.start - request.io.range.start;
            let whole = request.io.region(skip).expect("a write has memory");
            payload = Some(Region { len: part.range.len() as u32, ..whole });
            (Command::Write, changes)
        }
        IoOp::Flush => (Command::Flush, CommandFlags::NONE),
        IoOp::Discard => (Command::Trim, changes),
        IoOp::WriteZeroes { may_unmap, fast_only } => {
            let flags = changes
                .with_if(!may_unmap, CommandFlags::NO_HOLE)
                .with_if(fast_only, CommandFlags::FAST_ZERO);
            (Command::WriteZeroes, flags)
        }
        IoOp::Extents => (Command::BlockStatus, CommandFlags::NONE),
        IoOp::Progress { .. } => unreachable!("refused"),
    };
    let header = RequestHeader {
        flags,
        command: command.wire(),
        cookie: part.cookie,
        offset: part.range.start,
        len: part.range.len() as u32,
    };
    Message { part: key, header: header.to_bytes(), payload, sent: 0 }
}
