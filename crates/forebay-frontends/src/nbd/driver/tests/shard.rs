//! A shard reduced to what the tests need: the real engine and reactor, primary storage in a `Vec`.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::action::{Action, Actions, Extent, ExtentState, Io, IoOp};
use forebay_core::config::{BackendTraits, Config, GridOffset, SequentialBypass};
use forebay_core::engine::Engine;
use forebay_core::ids::Nanos;
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{Reactor, Token};
use forebay_nbd::flags::{ChunkFlags, CommandFlags};
use forebay_nbd::reply::{ChunkKind, ErrorChunk, OffsetData, ReplyHeader};
use forebay_nbd::request::{Command, RequestHeader};

use crate::client::{
    Answer as EngineAnswer, Client as _, Context, DiskId, Disks, Permission, Port, Tokens,
};
use crate::nbd::session::Session;
use crate::nbd::{Connection, Export, Negotiated};

pub(super) const SIZE: u64 = 16 << 20;

impl Disks for Port {
    fn port(&mut self, disk: DiskId) -> &mut Port {
        assert_eq!(disk, DISK);
        self
    }

    fn find_port(&mut self, disk: DiskId) -> Option<&mut Port> {
        Some(self.port(disk))
    }
}

const DISK: DiskId = DiskId(0);

fn tokens(id: usize) -> Tokens {
    Tokens { recv: Token(2 * id as u64), send: Token(2 * id as u64 + 1) }
}

/// Engine, reactor and primary storage of one disk.
pub(super) struct Disk {
    pub(super) port: Port,
    reactor: Reactor,
    running: Actions,
    pub(super) now: Nanos,
    pub(super) backend: Vec<u8>,
    /// I/O is kept back while this is set.
    pub(super) is_holding: bool,
    held: Vec<Io>,
}

impl Disk {
    pub(super) fn cx(&mut self) -> Context<'_> {
        Context { now: self.now, reactor: &mut self.reactor, disks: &mut self.port }
    }

    /// Does `io` on primary storage and tells the engine.
    fn perform(&mut self, io: Io) {
        assert_eq!(io.checksum_piece, 0, "there is no flash here");
        let range = io.range.start as usize..io.range.end as usize;
        let Port { engine, memory: arena, actions, .. } = &mut self.port;
        match io.op {
            IoOp::Read { memory } => arena.write_at(memory.offset, &self.backend[range]),
            IoOp::Write { memory, .. } => arena.read_at(memory.offset, &mut self.backend[range]),
            IoOp::WriteZeroes { .. } => self.backend[range].fill(0),
            IoOp::Flush | IoOp::Discard => {}
            IoOp::Progress { .. } => unreachable!("there is no log here"),
            IoOp::Extents => {
                let extents = [Extent { len: io.range.len(), state: ExtentState::Zero }];
                engine.complete_extents(self.now, io.id, &extents, actions);
                return;
            }
        }
        engine.complete(self.now, io.id, IoStatus::Ok, &[], actions);
    }

    /// True when something was done.
    fn run_actions(&mut self, connections: &mut [Connection]) -> bool {
        let Port { engine, actions, .. } = &mut self.port;
        let did_something = engine.wants_to_proceed() || !actions.list.is_empty();
        engine.proceed(self.now, actions);
        std::mem::swap(actions, &mut self.running);
        let mut running = std::mem::take(&mut self.running);
        for action in &running.list {
            let arena = &self.port.memory;
            match *action {
                Action::Io(io) if self.is_holding => self.held.push(io),
                Action::Io(io) => self.perform(io),
                Action::Copy { from, to } => arena.copy_within(from.offset, to.offset, from.len),
                Action::Zero { memory } => arena.zero(memory.offset, memory.len),
                Action::Compare { .. } => unreachable!("NBD has no compare-and-write"),
                Action::Reply(reply) => {
                    let connection = &mut connections[(reply.tag.0 >> 32) as usize];
                    let (slices, extents) = (&running.slices, &running.extents);
                    let answer = EngineAnswer { disk: DISK, reply: &reply, slices, extents };
                    connection.on_reply(&mut self.cx(), answer);
                }
                Action::Event(_) => {}
                Action::Log(_)
                | Action::Lease
                | Action::GrowStaging
                | Action::Unlease(_)
                | Action::Renew(_) => {
                    unreachable!("there is no log here")
                }
                Action::Ring { .. }
                | Action::Void
                | Action::Revoke
                | Action::Journal { .. }
                | Action::RevokeJournal => {
                    unreachable!("there is no flash here")
                }
            }
        }
        running.clear();
        self.running = running;
        did_something
    }
}

/// A disk and its connections.
pub(super) struct Shard {
    pub(super) disk: Disk,
    pub(super) connections: Vec<Connection>,
}

impl Shard {
    /// A disk of [`SIZE`] with 4 MiB of RAM, all in the cache's grid at 0, changed by `change`.
    pub(super) fn new(change: impl FnOnce(&mut Config)) -> Shard {
        let mut config = Config::for_disk(BackendTraits {
            size: SIZE,
            logical_block: 512,
            read_only: false,
            discard: true,
            write_zeroes: true,
            extents: true,
        });
        config.ram_bytes = 4 << 20;
        config.buffer_bytes = 40 << 20;
        config.grid_offset = GridOffset::Fixed(0);
        config.sequential_bypass = SequentialBypass::Off;
        change(&mut config);
        let engine = Engine::new(config).unwrap();
        let mut reactor = Reactor::new(64, None).unwrap();
        let memory = Arc::new(Arena::new(engine.memory_size() as usize).unwrap());
        let arena = reactor.add_arena(memory.clone()).unwrap();
        let backend = (0..SIZE).map(|at| (at / 512 + at % 251) as u8).collect();
        let disk = Disk {
            port: Port {
                engine,
                memory,
                arena,
                actions: Actions::default(),
                access: Permission::All,
                is_held: false,
                has_news: false,
            },
            reactor,
            running: Actions::default(),
            now: Nanos::from_millis(1000),
            backend,
            is_holding: false,
            held: Vec::new(),
        };
        Shard { disk, connections: Vec::new() }
    }

    /// A new client.
    pub(super) fn connect(&mut self, negotiated: Negotiated) -> Client {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let socket = self.disk.reactor.add_socket(OwnedFd::from(ours)).unwrap();
        let id = self.connections.len();
        let export = Export::new("db", SIZE);
        let session = Session::new(&export, negotiated);
        let cx = &mut self.disk.cx();
        let connection = Connection::start(cx, socket, DISK, session, &[], id as u32, tokens(id));
        self.connections.push(connection);
        Client { stream: Some(theirs), input: Vec::new(), wanted: HashMap::new(), cookie: 0 }
    }

    /// One turn of the shard's loop.
    pub(super) fn turn(&mut self) {
        let mut completions = Vec::new();
        let patience = Some(Duration::from_millis(2));
        self.disk.reactor.wait(patience, &mut completions).unwrap();
        if !self.disk.is_holding {
            for io in std::mem::take(&mut self.disk.held) {
                self.disk.perform(io);
            }
        }
        for completion in completions {
            let connection = &mut self.connections[completion.token.0 as usize / 2];
            connection.on_completion(&mut self.disk.cx(), completion);
        }
        loop {
            for connection in &mut self.connections {
                connection.resume(&mut self.disk.cx());
            }
            let mut goes_on = self.disk.run_actions(&mut self.connections);
            for connection in &mut self.connections {
                goes_on |= connection.needs_flush();
                connection.flush(&mut self.disk.cx());
            }
            self.disk.port.engine.sent(self.disk.now);
            if !goes_on {
                break;
            }
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

    /// Time passes.
    pub(super) fn pass(&mut self, time: Nanos) {
        self.disk.now = self.disk.now.plus(time);
        for connection in &mut self.connections {
            if connection.next_deadline() <= self.disk.now {
                connection.tick(&mut self.disk.cx());
            }
        }
    }

    /// Has all connections go to another reactor, each with the id of another one; whether they could: a client that has
    /// begun to send what has its memory has to finish that first.
    pub(super) fn move_clients(&mut self) -> bool {
        self.disk.port.is_held = true;
        let mut could = false;
        for _ in 0..8 {
            let is_flushed = self.connections.iter().all(|it| !it.needs_flush());
            if self.disk.port.engine.owes_nothing() && is_flushed {
                let (disk, connections) = (&mut self.disk, &mut self.connections);
                could = connections.iter_mut().all(|it| it.is_done() || it.leave(&mut disk.cx()));
            }
            if could {
                break;
            }
            self.turn();
        }
        if could {
            let mut other = Reactor::new(64, Some(self.disk.reactor.kind())).unwrap();
            self.disk.port.arena = other.add_arena(self.disk.port.memory.clone()).unwrap();
            self.disk.reactor = other;
            self.connections.rotate_left(1);
        }
        self.disk.port.is_held = false;
        for (id, connection) in self.connections.iter_mut().enumerate() {
            if connection.has_left() {
                connection.enter(&mut self.disk.cx(), id as u32, tokens(id)).unwrap();
            }
        }
        could
    }

    /// Turns until connection `id` is done and nothing is left behind in the engine.
    pub(super) fn run_until_done(&mut self, id: usize) {
        self.run("connection done", |shard| shard.connections[id].is_done());
        assert!(self.disk.port.engine.is_idle(), "the connection left something behind");
    }
}

/// A client that checks every answer it gets.
pub(super) struct Client {
    pub(super) stream: Option<UnixStream>,
    input: Vec<u8>,
    /// Requests without an answer, by cookie.
    pub(super) wanted: HashMap<u64, RequestHeader>,
    cookie: u64,
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) header: RequestHeader,
    pub(super) data: Result<Vec<u8>, forebay_nbd::errno::Errno>,
}

impl Client {
    /// Sends a request, and nothing of a payload.
    pub(super) fn ask(&mut self, command: Command, offset: u64, len: u32) -> RequestHeader {
        let header = self.request(command, offset, len);
        self.send(&header.to_bytes());
        header
    }

    /// A new request, to be sent by the caller.
    pub(super) fn request(&mut self, command: Command, offset: u64, len: u32) -> RequestHeader {
        self.cookie += 1;
        let flags = CommandFlags::NONE;
        let (command, cookie) = (command.wire(), self.cookie);
        let header = RequestHeader { flags, command, cookie, offset, len };
        if header.command != Command::Disconnect.wire() {
            self.wanted.insert(cookie, header);
        }
        header
    }

    /// Sends bytes that the socket has room for.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Sends more than the socket has room for, while the shard turns. Takes in the answers
    /// meanwhile, as a server may stop reading from a client that does not.
    pub(super) fn send_all(&mut self, shard: &mut Shard, mut bytes: &[u8]) {
        shard.run("all sent", |_| {
            match self.stream.as_mut().unwrap().write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            self.receive();
            bytes.is_empty()
        });
    }

    /// Reads what is there; true at the end of the stream.
    pub(super) fn receive(&mut self) -> bool {
        let mut piece = vec![0; 1 << 20];
        loop {
            match self.stream.as_mut().unwrap().read(&mut piece) {
                Ok(0) => return true,
                Ok(count) => self.input.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => return true,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next answer among the bytes that were received.
    fn next_answer(&mut self) -> Option<Answer> {
        let header = ReplyHeader::decode(&self.input).unwrap()?;
        let size = header.size();
        let (cookie, used, data) = match header {
            ReplyHeader::Simple(reply) => {
                let request = self.wanted[&reply.cookie];
                let is_read = request.command == Command::Read.wire() && reply.result.is_ok();
                let end = size + if is_read { request.len as usize } else { 0 };
                let data = self.input.get(size..end)?.to_vec();
                (reply.cookie, end, reply.result.map(|()| data))
            }
            ReplyHeader::Chunk(chunk) => {
                let end = size + chunk.len as usize;
                let payload = self.input.get(size..end)?;
                if !chunk.flags.has(ChunkFlags::DONE) {
                    assert_eq!(chunk.kind, ChunkKind::BlockStatus, "of two contexts");
                    self.input.drain(..end);
                    return self.next_answer();
                }
                let data = match chunk.kind {
                    ChunkKind::OffsetData => {
                        let offset = OffsetData::decode(payload).unwrap().offset;
                        assert_eq!(offset, self.wanted[&chunk.cookie].offset);
                        Ok(payload[OffsetData::SIZE..].to_vec())
                    }
                    ChunkKind::BlockStatus => Ok(payload.to_vec()),
                    kind => Err(ErrorChunk::decode(kind, payload).unwrap().errno),
                };
                (chunk.cookie, end, data)
            }
        };
        self.input.drain(..used);
        let header = self.wanted.remove(&cookie).expect("an answer to a request, once");
        Some(Answer { header, data })
    }

    /// The next answer, while the shard turns.
    pub(super) fn answer(&mut self, shard: &mut Shard) -> Answer {
        let mut answer = None;
        shard.run("answer", |_| {
            self.receive();
            answer = self.next_answer();
            answer.is_some()
        });
        answer.unwrap()
    }

    /// Waits until the connection ends without another answer.
    pub(super) fn sees_no_answer(&mut self, shard: &mut Shard) {
        shard.run_until_done(0);
        self.receive();
        assert!(self.next_answer().is_none(), "an answer");
    }

    /// Sends a request and waits for the data of its answer.
    pub(super) fn call(
        &mut self,
        shard: &mut Shard,
        command: Command,
        at: u64,
        len: u32,
    ) -> Vec<u8> {
        let header = self.ask(command, at, len);
        let answer = self.answer(shard);
        assert_eq!(answer.header, header);
        answer.data.unwrap()
    }

    /// Writes and waits for the answer.
    pub(super) fn write(&mut self, shard: &mut Shard, offset: u64, bytes: &[u8]) {
        let header = self.ask(Command::Write, offset, bytes.len() as u32);
        self.send_all(shard, bytes);
        let answer = self.answer(shard);
        assert_eq!(answer, Answer { header, data: Ok(Vec::new()) });
    }

    /// Turns until the server has closed the connection.
    pub(super) fn expect_end(&mut self, shard: &mut Shard) {
        shard.run("end of stream", |_| self.receive());
    }
}
