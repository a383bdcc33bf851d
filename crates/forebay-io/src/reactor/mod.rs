//! The reactor: starts I/O on files and sockets, and reports what has finished.
//!
//! One reactor belongs to one thread. It runs on io_uring, and where that is forbidden (seccomp,
//! `kernel.io_uring_disabled`) on epoll with a few threads for the I/O of each file, behind the same
//! interface. An operation in flight owns its memory: arenas are kept alive by the reactor, other
//! buffers are moved in and come back with the completion.
//!
//! ```text
//!  Reactor ── Shared: arenas, files, sockets, ops ──┐ one entry per operation in flight
//!     │                                             ▼
//!     └── Driver: Uring │ Epoll   start(op) … wait() → finish(op) → Completion
//! ```
//! Short reads and writes of files in memory (tmpfs) are done as they are started: a copy takes less time than
//! handing it over.
//!
//! **Invariants.** Every operation ends with exactly one completion. One that could not be
//! started (unknown file, second receive on a socket) comes back from the next `wait` with an
//! error. A removed file or socket is let go of when the last operation on it ends. Dropping a
//! reactor first ends the operations in flight. One that does not end within seconds keeps its
//! memory and files for ever (they leak).
//!
//! **Limits.** It may be made on one thread and moved to another, but belongs to the thread that starts
//! its first operation or calls `wait` first. More operations than `entries` work, more slowly.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{Shutdown, SocketType, sockopt};

use crate::arena::{Arena, Region};
use shared::{Event, Freed, Op, Shared, Target, Work};

mod call;
mod epoll;
mod hand_over;
mod lookout;
mod per_file;
mod release;
mod send_now;
mod shared;
mod spin;
mod table;
#[cfg(test)]
mod tests;
mod uring;
mod waker;

pub use lookout::Lookout;
pub use spin::SpinStats;
pub use waker::Waker;

/// The caller's name for an operation; it comes back with the completion.
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

/// An eventfd that is watched by the reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId(pub u32);

/// An operation that has finished.
#[derive(Debug)]
pub struct Completion {
    /// The caller's name of it.
    pub token: Token,
    /// Bytes transferred (for operations that transfer), or the kernel's error. May be short.
    /// `EBADF`: no such file or socket. `EFAULT`: no such arena. `EALREADY`: one too many on its
    /// socket. `EINVAL`: no room to receive into. `ECANCELED`: its socket was removed.
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

/// The part of a kind of reactor; the rest is in [`Shared`].
trait Driver: Send + Sync + std::fmt::Debug {
    fn kind(&self) -> ReactorKind;
    fn waker(&self) -> &Waker;
    /// A new thing, to be registered with the kernel.
    fn on_arena(&mut self, key: usize, arena: &Arena);
    /// A part of an arena is to lose its memory.
    fn on_release(&mut self, arena: usize, part: Range<u64>) -> io::Result<()>;
    fn on_file(&mut self, key: usize, file: &Arc<OwnedFd>) -> io::Result<()>;
    fn on_socket(&mut self, key: usize, socket: &OwnedFd) -> io::Result<()>;
    fn on_event(&mut self, key: usize, event: &OwnedFd) -> io::Result<()>;
    /// Watches it no more; `Shared` has to be told when it was watched for the last time.
    fn on_event_removed(&mut self, shared: &mut Shared, key: usize);
    /// Nothing uses it any more; it is dropped right after.
    fn forget(&mut self, freed: &Freed);
    /// Starts the operation, or queues it until the next `wait`.
    fn start(&mut self, shared: &mut Shared, key: usize);
    /// Ends an operation on a socket, unless it ends by itself before.
    fn cancel(&mut self, shared: &mut Shared, socket: SocketId, key: usize);
    fn wait(
        &mut self,
        shared: &mut Shared,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
        lookout: &mut dyn Lookout,
    ) -> io::Result<()>;
    /// Ends everything in flight. False when something would not end.
    fn stop(&mut self, shared: &mut Shared) -> bool;
    fn spin(&mut self) -> Option<&mut spin::Spin>;
}

/// See the module.
#[derive(Debug)]
pub struct Reactor {
    shared: Shared,
    driver: Option<Box<dyn Driver>>,
    fallback_reason: Option<String>,
}

impl Reactor {
    /// A reactor with room for `entries` operations in flight. `kind`: `None` takes io_uring, and epoll
    /// where io_uring does not work (ask [`Reactor::fallback_reason`]).
    ///
    /// # Errors
    /// The kernel's, when neither works (or not the one asked for).
    pub fn new(entries: u32, kind: Option<ReactorKind>) -> io::Result<Reactor> {
        let entries = entries.clamp(8, 1 << 14);
        let uring = || uring::Uring::new(entries).map(|driver| Box::new(driver) as Box<dyn Driver>);
        let epoll = || epoll::Epoll::new().map(|driver| Box::new(driver) as Box<dyn Driver>);
        let mut fallback_reason = None;
        let driver = match kind {
            Some(ReactorKind::Uring) => uring()?,
            Some(ReactorKind::Epoll) => epoll()?,
            None => match uring() {
                Ok(driver) => driver,
                Err(error) => {
                    fallback_reason = Some(format!(
                        "{error}: running on epoll and threads, expect more CPU time per I/O"
                    ));
                    epoll()?
                }
            },
        };
        Ok(Reactor { shared: Shared::new(entries), driver: Some(driver), fallback_reason })
    }

    /// What it runs on.
    pub fn kind(&self) -> ReactorKind {
        self.driver().kind()
    }

    /// Why io_uring was not used, in words for an operator.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// A handle that wakes this reactor.
    pub fn waker(&self) -> Waker {
        self.driver().waker().clone()
    }

    /// Turns spinning in `wait` on or off. By default it is on where there are CPUs to spare, or there is something to be
    /// looked at, and then happens only while it pays.
    pub fn set_spinning(&mut self, is_enabled: bool) {
        if let Some(spin) = self.driver_mut().spin() {
            spin.enable(is_enabled);
        }
    }

    /// The effect of spinning so far.
    pub fn spin_stats(&mut self) -> SpinStats {
        self.driver_mut().spin().map_or_else(SpinStats::default, |spin| spin.stats())
    }

    /// Keeps `arena` alive as long as the reactor. What files are read into or written from often is registered as fixed
    /// buffers where possible, which keeps it in memory.
    ///
    /// # Errors
    /// When there are 65536 arenas already.
    pub fn add_arena(&mut self, arena: Arc<Arena>) -> io::Result<ArenaId> {
        let key = self.shared.arenas.insert(arena);
        let Ok(id) = u16::try_from(key) else {
            self.shared.arenas.remove(key);
            let text = "a reactor takes at most 65536 arenas: remove one first";
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        };
        let (driver, shared) = self.parts();
        driver.on_arena(key, shared.arenas.held(key));
        Ok(ArenaId(id))
    }

    /// The arena behind an id. Panics when it was removed.
    pub fn arena(&self, id: ArenaId) -> &Arc<Arena> {
        self.shared.arenas.live(id.0.into()).expect("the arena was added and not removed")
    }

    /// Lets go of an arena once no operation uses it.
    pub fn remove_arena(&mut self, id: ArenaId) {
        self.shared.remove_arena(id.0.into());
        self.drop_freed();
    }

    /// Takes a file, which others may have, too: reactors, and who reads it without one. What is `kept` with it, such as a
    /// lock, stays open until no operation uses it.
    ///
    /// # Errors
    /// The kernel's, where it takes threads to wait for files and there are none left.
    pub fn add_file(
        &mut self,
        file: impl Into<Arc<OwnedFd>>,
        kept: Option<Arc<OwnedFd>>,
    ) -> io::Result<FileId> {
        let key = self.shared.add_file(file.into(), kept);
        let (driver, shared) = self.parts();
        if let Err(error) = driver.on_file(key, &shared.files.held(key).fd) {
            shared.files.remove(key);
            return Err(context("no threads for the I/O of a file", &error));
        }
        Ok(FileId(key as u32))
    }

    /// Lets go of a file once no operation uses it.
    pub fn remove_file(&mut self, id: FileId) {
        self.shared.remove_file(id.0 as usize);
        self.drop_freed();
    }

    /// Takes a connected stream socket (unix or TCP). Its blocking mode does not matter.
    ///
    /// # Errors
    /// `InvalidInput` when it is no stream socket, else the kernel's.
    pub fn add_socket(&mut self, socket: impl Into<Arc<OwnedFd>>) -> io::Result<SocketId> {
        let socket = socket.into();
        if sockopt::socket_type(&socket)? != SocketType::STREAM {
            let text = "not a stream socket: only unix and TCP stream sockets carry a connection";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let key = self.shared.add_socket(socket);
        let (driver, shared) = self.parts();
        if let Err(error) = driver.on_socket(key, &shared.sockets.held(key).fd) {
            shared.sockets.remove(key);
            return Err(error);
        }
        Ok(SocketId(key as u32))
    }

    /// Shuts a socket down and closes it; its operations in flight end with an error.
    pub fn remove_socket(&mut self, id: SocketId) {
        self.shared.remove_socket(id.0 as usize);
        self.drop_freed();
    }

    /// As [`Reactor::remove_socket`]; over TCP, what was sent and has not gone yet is dropped instead of
    /// being delivered when the peer can be reached again.
    pub fn abort_socket(&mut self, id: SocketId) {
        self.outlive(id, false);
        self.remove_socket(id);
    }

    /// Whether the kernel goes on to deliver, over TCP, what was sent, after the socket was removed or the process has ended,
    /// however it did. It does by default.
    pub fn outlive(&mut self, id: SocketId, delivers: bool) {
        if let Some(socket) = self.shared.sockets.live(id.0 as usize) {
            // Where it fails the socket is no connection any more, which delivers nothing.
            let _ = sockopt::set_socket_linger(&socket.fd, (!delivers).then_some(Duration::ZERO));
        }
    }

    /// Tells the peer that nothing more will be sent; what it sends can still be received.
    pub fn end_sending(&mut self, id: SocketId) {
        if let Some(socket) = self.shared.sockets.live(id.0 as usize) {
            // It fails on a broken connection, whose receive says so.
            let _ = rustix::net::shutdown(&socket.fd, Shutdown::Write);
        }
    }

    /// Watches an eventfd of somebody else, whose blocking mode does not matter. After one or
    /// several signals, also from before, there is a completion under `token`. The eventfd is not
    /// read. When it cannot be watched any more, a last completion has an error.
    ///
    /// # Errors
    /// The kernel's, when it is nothing that can be watched.
    pub fn add_event(
        &mut self,
        event: impl Into<Arc<OwnedFd>>,
        token: Token,
    ) -> io::Result<EventId> {
        let key = self.shared.events.insert(Event { fd: event.into(), token });
        let (driver, shared) = self.parts();
        if let Err(error) = driver.on_event(key, &shared.events.held(key).fd) {
            shared.events.remove(key);
            return Err(context("a descriptor cannot be watched", &error));
        }
        shared.events.hold(key);
        Ok(EventId(key as u32))
    }

    /// Watches it no more, and closes it. Completions of earlier waits are all that there are of it.
    pub fn remove_event(&mut self, id: EventId) {
        let key = id.0 as usize;
        if self.shared.events.live(key).is_some() {
            self.shared.remove_event(key);
            let (driver, shared) = self.parts();
            driver.on_event_removed(shared, key);
            self.drop_freed();
        }
    }

    /// Reads `memory.len` bytes at `offset` of the file.
    pub fn read(&mut self, file: FileId, offset: u64, memory: Region, token: Token) {
        let target = Target::File(file);
        let work = Work::Read { offset };
        self.start(Op { token, target, work, memory: Some(memory), buffer: None });
    }

    /// Writes `memory` at `offset` of the file.
    pub fn write(&mut self, file: FileId, offset: u64, memory: Region, token: Token) {
        let target = Target::File(file);
        let work = Work::Write { offset, durable: false };
        self.start(Op { token, target, work, memory: Some(memory), buffer: None });
    }

    /// As [`Reactor::write`], and durable when it completes (`O_DSYNC`); says nothing of earlier writes.
    pub fn write_durably(&mut self, file: FileId, offset: u64, memory: Region, token: Token) {
        let target = Target::File(file);
        let work = Work::Write { offset, durable: true };
        self.start(Op { token, target, work, memory: Some(memory), buffer: None });
    }

    /// Makes what was written to the file durable (`fdatasync`).
    pub fn flush(&mut self, file: FileId, token: Token) {
        let target = Target::File(file);
        self.start(Op { token, target, work: Work::Flush, memory: None, buffer: None });
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
        let target = Target::File(file);
        let work = Work::Fallocate { mode, offset, len };
        self.start(Op { token, target, work, memory: None, buffer: None });
    }

    /// Receives the bytes that have arrived. They go first into `first`, when given: the rest of
    /// a payload, straight to its place. Then they go into the spare capacity of `buffer`, which
    /// must have some, unless `first` is given. There is one completion, as soon as at least one
    /// byte is there. Its `result` is the sum, 0 = end of stream. At most one per socket at a
    /// time.
    pub fn recv(&mut self, socket: SocketId, first: Option<Region>, buffer: Vec<u8>, token: Token) {
        let target = Target::Socket(socket);
        self.start(Op { token, target, work: Work::Recv, memory: first, buffer: Some(buffer) });
    }

    /// Sends as much of `parts` as the socket takes without waiting, in one call (in several when
    /// there are more parts than one call takes). Returns the bytes taken, 0 when it would wait.
    ///
    /// # Errors
    /// The socket's, when it is broken and took nothing.
    pub fn send_now(&mut self, socket: SocketId, parts: &[SendPart<'_>]) -> io::Result<usize> {
        let Some(entry) = self.shared.sockets.live(socket.0 as usize) else {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        };
        send_now::send_now(entry.fd.as_fd(), parts, &self.shared.arenas, &mut self.shared.iovecs)
    }

    /// Sends all of `bytes` from `sent` on, waiting as long as it takes. The buffer comes back
    /// with the completion. Its `result` is the number of bytes sent by this operation:
    /// `bytes.len() - sent`, less only on error or shutdown of the socket. At most one per socket
    /// at a time.
    pub fn send(&mut self, socket: SocketId, bytes: Vec<u8>, sent: usize, token: Token) {
        let target = Target::Socket(socket);
        let work = Work::Send { from: sent, done: 0 };
        self.start(Op { token, target, work, memory: None, buffer: Some(bytes) });
    }

    /// Starts what was queued and waits for a completion, a wake-up, or `timeout` (`None`: for ever;
    /// zero: not at all), or a signal. Spins for a moment before it sleeps where that has paid lately. Appends
    /// to `completions`.
    ///
    /// # Errors
    /// The kernel's, when the reactor itself broke; nothing can be done on it any more.
    pub fn wait(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        self.wait_looking(timeout, completions, &mut ())
    }

    /// As [`Reactor::wait`], and ends also when `lookout` has work. With a timeout of zero it is not asked.
    ///
    /// # Errors
    /// As for [`Reactor::wait`].
    pub fn wait_looking(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
        lookout: &mut dyn Lookout,
    ) -> io::Result<()> {
        let has_ended = !self.shared.ended.is_empty();
        completions.append(&mut self.shared.ended);
        let timeout = if has_ended { Some(Duration::ZERO) } else { timeout };
        let (driver, shared) = self.parts();
        let result = driver.wait(shared, timeout, completions, lookout);
        self.drop_freed();
        result
    }

    /// Whether another thread woke it since this was asked last.
    pub fn was_woken(&self) -> bool {
        self.driver().waker().take_news()
    }

    /// Operations that were started and whose completion was not reported yet.
    pub fn in_flight(&self) -> usize {
        self.shared.ops.len() + self.shared.ended.len()
    }

    fn start(&mut self, op: Op) {
        let (driver, shared) = self.parts();
        if let Some(key) = shared.begin(op)
            && !shared.run_here(key)
        {
            driver.start(shared, key);
        }
    }

    fn drop_freed(&mut self) {
        if self.shared.freed.is_empty() {
            return;
        }
        let (driver, shared) = self.parts();
        for freed in shared.freed.drain(..) {
            driver.forget(&freed);
        }
    }

    fn driver(&self) -> &dyn Driver {
        self.driver.as_deref().expect("only `drop` takes the driver")
    }

    fn driver_mut(&mut self) -> &mut dyn Driver {
        self.parts().0
    }

    fn parts(&mut self) -> (&mut dyn Driver, &mut Shared) {
        let driver = self.driver.as_deref_mut().expect("only `drop` takes the driver");
        (driver, &mut self.shared)
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        for socket in self.shared.sockets.all() {
            shared::shutdown(socket.fd.as_fd());
        }
        let Some(mut driver) = self.driver.take() else { return };
        if !driver.stop(&mut self.shared) {
            // Something in flight may still write to this memory: it stays for ever.
            std::mem::forget(std::mem::replace(&mut self.shared, Shared::new(0)));
            std::mem::forget(driver);
        }
    }
}

/// An error of the kernel, with what was asked for in front.
fn context(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what}: {error}"))
}
