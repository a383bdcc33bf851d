//! The common part of both kinds of reactor: the tables of arenas, files and sockets, and the
//! operations.
//!
//! **Invariant:** an operation in `ops` holds its file or socket and its arena, and owns its
//! buffer. Only [`Shared::finish`] lets go of them, after the kernel (or a thread of the pool) is
//! done with them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FileType};
use slab::Slab;

use super::call::Call;
use super::table::Table;
use super::{Completion, FileId, SocketId, Token, send_now};
use crate::arena::{Arena, Region};

/// File systems whose files are in memory (apart from swap): tmpfs and ramfs, by their numbers in
/// the kernel's `magic.h`. Reads of tmpfs cannot go without waiting, so io_uring would hand each
/// read to a thread of the kernel.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// Bytes that a read or write of such a file moves at most before someone else should do it.
const RUN_HERE_MAX: u32 = 128 << 10;

/// An operation, from its start to its completion.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) token: Token,
    pub(super) target: Target,
    pub(super) work: Work,
    pub(super) memory: Option<Region>,
    pub(super) buffer: Option<Vec<u8>>,
}

impl Op {
    /// Whether a receive has at least a byte to receive into; without, it could not be told from the end of
    /// the stream.
    fn has_room(&self) -> bool {
        self.memory.is_some_and(|region| region.len > 0)
            || self.buffer.as_ref().is_some_and(|buffer| buffer.capacity() > buffer.len())
    }
}

/// What an operation works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    File(FileId),
    Socket(SocketId),
}

/// What an operation does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Work {
    Read {
        offset: u64,
    },
    Write {
        offset: u64,
        /// It is durable when it completes.
        durable: bool,
    },
    Flush,
    Fallocate {
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    },
    Recv,
    /// Bytes of the buffer from `from` on; `done` of them are sent.
    Send {
        from: usize,
        done: usize,
    },
}

/// A file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) fd: Arc<OwnedFd>,
    /// Its bytes are in memory: short reads and writes take less time than handing them over.
    is_in_memory: bool,
    /// Stays open longer: the last close of a device may write to the file behind it.
    _kept: Option<Arc<OwnedFd>>,
}

/// A socket and what is in flight in its two directions.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: Arc<OwnedFd>,
    receive: Option<usize>,
    send: Option<usize>,
}

/// A descriptor that is watched.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) fd: Arc<OwnedFd>,
    pub(super) token: Token,
}

/// Something that was removed and that no operation uses any more: its key, and what is let go of when this
/// is dropped.
#[derive(Debug)]
pub(super) enum Freed {
    Arena(usize, #[expect(dead_code, reason = "held to be dropped")] Arc<Arena>),
    File(usize, #[expect(dead_code, reason = "held to be dropped")] File),
    Socket(usize, Arc<OwnedFd>),
    Event(Arc<OwnedFd>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) arenas: Table<Arc<Arena>>,
    pub(super) files: Table<File>,
    pub(super) sockets: Table<Socket>,
    /// Each is held by the driver while that watches it.
    pub(super) events: Table<Event>,
    pub(super) ops: Slab<Op>,
    /// Operations that ended as they were started, or could not be started.
    pub(super) ended: Vec<Completion>,
    /// For the driver to forget, then to drop.
    pub(super) freed: Vec<Freed>,
    pub(super) iovecs: send_now::Iovecs,
}

/// A piece of memory that the kernel fills or sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) base: *mut u8,
    pub(super) len: usize,
}

impl Shared {
    pub(super) fn new(entries: u32) -> Shared {
        Shared {
            arenas: Table::new(),
            files: Table::new(),
            sockets: Table::new(),
            events: Table::new(),
            ops: Slab::with_capacity(entries as usize),
            ended: Vec::new(),
            freed: Vec::new(),
            iovecs: send_now::Iovecs::default(),
        }
    }

    pub(super) fn add_file(&mut self, fd: Arc<OwnedFd>, kept: Option<Arc<OwnedFd>>) -> usize {
        let is_in_memory = is_in_memory(&fd);
        self.files.insert(File { fd, is_in_memory, _kept: kept })
    }

    pub(super) fn add_socket(&mut self, fd: Arc<OwnedFd>) -> usize {
        self.sockets.insert(Socket { fd, receive: None, send: None })
    }

    pub(super) fn remove_arena(&mut self, key: usize) {
        if let Some(arena) = self.arenas.remove(key) {
            self.freed.push(Freed::Arena(key, arena));
        }
    }

    pub(super) fn remove_file(&mut self, key: usize) {
        if let Some(file) = self.files.remove(key) {
            self.freed.push(Freed::File(key, file));
        }
    }

    /// Shuts the socket down first, so that what is in flight on it ends.
    pub(super) fn remove_socket(&mut self, key: usize) {
        if let Some(socket) = self.sockets.live(key) {
            shutdown(socket.fd.as_fd());
        }
        self.forget_socket(key);
    }

    /// Lets go of a socket when what is in flight on it has ended.
    pub(super) fn forget_socket(&mut self, key: usize) {
        if let Some(socket) = self.sockets.remove(key) {
            self.freed.push(Freed::Socket(key, socket.fd));
        }
    }

    /// What is in flight on a socket.
    pub(super) fn on_socket(&self, id: SocketId) -> [Option<usize>; 2] {
        let socket = self.sockets.live(id.0 as usize);
        socket.map_or([None; 2], |socket| [socket.receive, socket.send])
    }

    pub(super) fn remove_event(&mut self, key: usize) {
        if let Some(event) = self.events.remove(key) {
            self.freed.push(Freed::Event(event.fd));
        }
    }

    /// The driver watches it no more.
    pub(super) fn release_event(&mut self, key: usize) {
        if let Some(event) = self.events.release(key) {
            self.freed.push(Freed::Event(event.fd));
        }
    }

    /// The report of a signal; none, once it was removed.
    pub(super) fn signalled(&self, key: usize, result: io::Result<usize>) -> Option<Completion> {
        let event = self.events.live(key)?;
        Some(Completion { token: event.token, result, buffer: None })
    }

    /// Takes an operation and what it uses; its key. An operation on what is not there, or that is one too
    /// many for its socket, ends with an error instead. Panics when its memory is out of its arena's bounds.
    pub(super) fn begin(&mut self, op: Op) -> Option<usize> {
        if let Err(error) = self.admit(&op) {
            let result = Err(io::Error::from_raw_os_error(error));
            self.ended.push(Completion { token: op.token, result, buffer: op.buffer });
            return None;
        }
        if let Some(region) = op.memory {
            self.arenas.hold(region.arena.0.into());
        }
        match op.target {
            Target::File(id) => self.files.hold(id.0 as usize),
            Target::Socket(id) => self.sockets.hold(id.0 as usize),
        }
        let (target, work) = (op.target, op.work);
        let key = self.ops.insert(op);
        if let Target::Socket(id) = target {
            self.mark_direction(id, work, Some(key));
        }
        Some(key)
    }

    fn admit(&self, op: &Op) -> Result<(), i32> {
        if let Some(region) = op.memory {
            let arena = self.arenas.live(region.arena.0.into()).ok_or(libc::EFAULT)?;
            arena.piece(region.offset, region.len as usize);
        }
        match op.target {
            Target::File(id) => {
                self.files.live(id.0 as usize).ok_or(libc::EBADF)?;
            }
            Target::Socket(id) => {
                let socket = self.sockets.live(id.0 as usize).ok_or(libc::EBADF)?;
                let is_busy = match op.work {
                    Work::Recv => socket.receive.is_some(),
                    Work::Send { .. } => socket.send.is_some(),
                    Work::Read { .. }
                    | Work::Write { .. }
                    | Work::Flush
                    | Work::Fallocate { .. } => {
                        unreachable!("file work on a socket")
                    }
                };
                if is_busy {
                    return Err(libc::EALREADY);
                }
                if matches!(op.work, Work::Recv) && !op.has_room() {
                    return Err(libc::EINVAL);
                }
            }
        }
        Ok(())
    }

    fn mark_direction(&mut self, id: SocketId, work: Work, taken_by: Option<usize>) {
        let socket = self.sockets.held_mut(id.0 as usize);
        match work {
            Work::Recv => socket.receive = taken_by,
            Work::Send { .. } => socket.send = taken_by,
            Work::Read { .. } | Work::Write { .. } | Work::Flush | Work::Fallocate { .. } => {}
        }
    }

    /// Runs an operation here if that is sooner done than handed over. Whether it has ended.
    pub(super) fn run_here(&mut self, key: usize) -> bool {
        let Op { target: Target::File(id), memory: Some(memory), .. } = self.ops[key] else {
            return false;
        };
        if memory.len > RUN_HERE_MAX || !self.files.held(id.0 as usize).is_in_memory {
            return false;
        }
        let call = Call::of(self, key).expect("it works on a file");
        let result = call.run(self.fd(Target::File(id)));
        let completion = self.finish(key, result);
        self.ended.push(completion);
        true
    }

    /// Ends an operation that nothing outside of this program uses any more.
    pub(super) fn finish(&mut self, key: usize, result: io::Result<usize>) -> Completion {
        let mut op = self.ops.remove(key);
        let result = match op.work {
            Work::Recv => self.end_recv(&mut op, result),
            Work::Send { done, .. } => match result {
                Ok(more) => Ok(done + more),
                Err(_) if done > 0 => Ok(done),
                Err(error) => Err(error),
            },
            Work::Read { .. } | Work::Write { .. } | Work::Flush | Work::Fallocate { .. } => result,
        };
        self.let_go(&op);
        Completion { token: op.token, result, buffer: op.buffer }
    }

    fn end_recv(&self, op: &mut Op, result: io::Result<usize>) -> io::Result<usize> {
        let received = result?;
        let Target::Socket(id) = op.target else { unreachable!("a receive on a file") };
        if received == 0 && self.sockets.is_removed(id.0 as usize) {
            return Err(io::Error::from_raw_os_error(libc::ECANCELED));
        }
        let first = op.memory.map_or(0, |region| region.len as usize);
        if let (Some(more), Some(buffer)) = (received.checked_sub(first), op.buffer.as_mut()) {
            let len = buffer.len() + more;
            assert!(len <= buffer.capacity(), "received more than there was room for");
            // SAFETY: the kernel filled the spare capacity (`recv_pieces`) from its start with the bytes
            // beyond those of the first region: `more` bytes, which fit (asserted above).
            unsafe { buffer.set_len(len) };
        }
        Ok(received)
    }

    fn let_go(&mut self, op: &Op) {
        if let Some(region) = op.memory {
            let key = usize::from(region.arena.0);
            if let Some(arena) = self.arenas.release(key) {
                self.freed.push(Freed::Arena(key, arena));
            }
        }
        match op.target {
            Target::File(id) => {
                let key = id.0 as usize;
                if let Some(file) = self.files.release(key) {
                    self.freed.push(Freed::File(key, file));
                }
            }
            Target::Socket(id) => {
                let key = id.0 as usize;
                self.mark_direction(id, op.work, None);
                if let Some(socket) = self.sockets.release(key) {
                    self.freed.push(Freed::Socket(key, socket.fd));
                }
            }
        }
    }

    pub(super) fn fd(&self, target: Target) -> RawFd {
        match target {
            Target::File(id) => self.files.held(id.0 as usize).fd.as_raw_fd(),
            Target::Socket(id) => self.sockets.held(id.0 as usize).fd.as_raw_fd(),
        }
    }

    /// The piece of an arena that an operation in flight uses.
    pub(super) fn region(&self, region: Region) -> Piece {
        let arena = self.arenas.held(region.arena.0.into());
        let len = region.len as usize;
        Piece { base: arena.piece(region.offset, len), len }
    }

    /// Where a receive puts its bytes: the region, then the spare capacity of the buffer.
    pub(super) fn recv_pieces(&mut self, key: usize) -> [Piece; 2] {
        let memory = self.ops[key].memory;
        let none = Piece { base: std::ptr::null_mut(), len: 0 };
        let first = memory.map_or(none, |region| self.region(region));
        let second = self.ops[key].buffer.as_mut().map_or(none, |buffer| {
            let spare = buffer.spare_capacity_mut();
            Piece { base: spare.as_mut_ptr().cast(), len: spare.len() }
        });
        [first, second]
    }

    /// What a send has left to send.
    pub(super) fn send_piece(&mut self, key: usize) -> Piece {
        let op = &mut self.ops[key];
        let Work::Send { from, done } = op.work else { unreachable!("not a send") };
        let buffer = op.buffer.as_mut().expect("a send owns its buffer");
        let rest = buffer.get_mut(from + done..).unwrap_or_default();
        Piece { base: rest.as_mut_ptr(), len: rest.len() }
    }

    /// Counts `more` bytes that a send sent; whether it has some left and can go on.
    pub(super) fn send_goes_on(&mut self, key: usize, more: usize) -> bool {
        let op = &mut self.ops[key];
        let Target::Socket(id) = op.target else { unreachable!("a send on a file") };
        let is_removed = self.sockets.is_removed(id.0 as usize);
        let Work::Send { from, done } = &mut op.work else { unreachable!("not a send") };
        *done += more;
        let len = op.buffer.as_ref().map_or(0, Vec::len);
        more > 0 && *from + *done < len && !is_removed
    }
}

/// Ends both directions of a socket. It may be broken already, which is as good.
pub(super) fn shutdown(socket: std::os::fd::BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// True of a regular file on such a file system. The nodes of devices lie on one, too, and their storage does not.
fn is_in_memory(file: &OwnedFd) -> bool {
    let is_regular = rustix::fs::fstat(file)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile);
    is_regular
        && rustix::fs::fstatfs(file).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_not_in_memory_though_its_node_is() {
        let open = |path: &str| OwnedFd::from(std::fs::File::open(path).unwrap());
        assert!(!is_in_memory(&open("/dev/zero")));
        if let Ok(file) = tempfile::tempfile_in("/dev/shm") {
            assert!(is_in_memory(&file.into()));
        }
    }
}
