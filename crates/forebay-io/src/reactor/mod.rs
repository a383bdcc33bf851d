//! The reactor: starts I/O on files and sockets, and reports what has finished.
//!
//! One reactor belongs to one thread. It runs on io_uring, and where that is forbidden (seccomp,
//! `kernel.io_uring_disabled`) on epoll with a small pool of threads for file I/O, behind the same
//! interface. An operation in flight owns its memory: arenas are kept alive by the reactor, other
//! buffers are moved in and come back with the completion.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::arena::{Arena, Region};

/// What the caller calls an operation; comes back with its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// An arena registered with the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ArenaId(pub u16);

/// A file registered with the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileId(pub u32);

/// A connected stream socket registered with the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketId(pub u32);

/// An operation that has finished.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name of it.
    pub token: Token,
    /// Bytes transferred (for operations that transfer), or the kernel's error. May be short.
    pub result: io::Result<usize>,
    /// The buffer that was moved in, for `recv` and `send`.
    pub buffer: Option<Vec<u8>>,
}

/// A piece of what [`Reactor::send_now`] sends.
#[derive(Clone, Copy, Debug)]
pub enum SendPart<'a> {
    /// Bytes of the caller.
    Bytes(&'a [u8]),
    /// Bytes of an arena.
    Region(Region),
}

/// Which kernel interface a reactor runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReactorKind {
    /// io_uring.
    Uring,
    /// epoll and a pool of threads.
    Epoll,
}

/// Wakes a reactor's `wait` from another thread. Cheap to clone; waking twice is waking once.
#[derive(Clone, Debug)]
pub struct Waker {}

impl Waker {
    /// Makes the reactor's current or next `wait` return.
    pub fn wake(&self) {
        todo!()
    }
}

/// See the module.
#[derive(Debug)]
pub struct Reactor {}

impl Reactor {
    /// A reactor with room for `entries` operations in flight. `kind`: `None` takes io_uring, and epoll
    /// where io_uring does not work (ask [`Reactor::fallback_reason`]).
    ///
    /// # Errors
    /// The kernel's, when neither works (or not the one asked for).
    pub fn new(entries: u32, kind: Option<ReactorKind>) -> io::Result<Reactor> {
        let _ = (entries, kind);
        todo!()
    }
    /// What it runs on.
    pub fn kind(&self) -> ReactorKind {
        todo!()
    }
    /// Why io_uring was not used, in words for an operator.
    pub fn fallback_reason(&self) -> Option<&str> {
        todo!()
    }
    /// A handle that wakes this reactor.
    pub fn waker(&self) -> Waker {
        todo!()
    }

    /// Keeps `arena` alive as long as the reactor, registered as a fixed buffer where possible.
    pub fn add_arena(&mut self, arena: Arc<Arena>) -> io::Result<ArenaId> {
        let _ = arena;
        todo!()
    }
    /// The arena behind an id.
    pub fn arena(&self, id: ArenaId) -> &Arc<Arena> {
        let _ = id;
        todo!()
    }
    /// Lets go of an arena once no operation uses it.
    pub fn remove_arena(&mut self, id: ArenaId) {
        let _ = id;
        todo!()
    }
    /// Takes a file.
    pub fn add_file(&mut self, file: OwnedFd) -> io::Result<FileId> {
        let _ = file;
        todo!()
    }
    /// Closes a file once no operation uses it.
    pub fn remove_file(&mut self, id: FileId) {
        let _ = id;
        todo!()
    }
    /// Takes a connected stream socket (unix or TCP) and makes it non-blocking.
    pub fn add_socket(&mut self, socket: OwnedFd) -> io::Result<SocketId> {
        let _ = socket;
        todo!()
    }
    /// Shuts a socket down and closes it; its operations in flight end with an error.
    pub fn remove_socket(&mut self, id: SocketId) {
        let _ = id;
        todo!()
    }

    /// Reads `memory.len` bytes at `offset` of the file.
    pub fn read(&mut self, file: FileId, offset: u64, memory: Region, token: Token) {
        let _ = (file, offset, memory, token);
        todo!()
    }
    /// Writes `memory` at `offset` of the file.
    pub fn write(&mut self, file: FileId, offset: u64, memory: Region, token: Token) {
        let _ = (file, offset, memory, token);
        todo!()
    }
    /// Makes what was written to the file durable (`fdatasync`).
    pub fn flush(&mut self, file: FileId, token: Token) {
        let _ = (file, token);
        todo!()
    }
    /// `fallocate(2)` with `mode` on a range of the file (punch hole, zero range).
    pub fn fallocate(
        &mut self,
        file: FileId,
        mode: rustix::fs::FallocateFlags,
        offset: u64,
        len: u64,
        token: Token,
    ) {
        let _ = (file, mode, offset, len, token);
        todo!()
    }

    /// Receives what has arrived: first into `first` (when given: the rest of a payload, straight to
    /// its place), then into the spare capacity of `buffer` (which must have some, unless `first` is given).
    /// One completion, as soon as at least one byte is there; `result` is the sum, 0 = end of stream.
    /// At most one per socket at a time.
    pub fn recv(&mut self, socket: SocketId, first: Option<Region>, buffer: Vec<u8>, token: Token) {
        let _ = (socket, first, buffer, token);
        todo!()
    }
    /// Sends as much of `parts` as the socket takes without waiting, in one call (in several when
    /// there are more parts than one call takes). Returns the bytes taken, 0 when it would wait.
    ///
    /// # Errors
    /// The socket's, when it is broken.
    pub fn send_now(&mut self, socket: SocketId, parts: &[SendPart<'_>]) -> io::Result<usize> {
        let _ = (socket, parts);
        todo!()
    }
    /// Sends all of `bytes` from `sent` on, waiting as long as it takes; the buffer comes back with
    /// the completion, whose `result` is the number of bytes sent, short only on error or shutdown of the socket.
    /// At most one per socket at a time.
    pub fn send(&mut self, socket: SocketId, bytes: Vec<u8>, sent: usize, token: Token) {
        let _ = (socket, bytes, sent, token);
        todo!()
    }

    /// Starts what was queued and waits for a completion, a wake-up, or `timeout` (`None`: for ever;
    /// zero: not at all). Spins for a moment before it sleeps where that has paid lately. Appends to `completions`.
    ///
    /// # Errors
    /// The kernel's, when the reactor itself broke; nothing can be done on it any more.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        let _ = (timeout, completions);
        todo!()
    }
    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        todo!()
    }
}
