//! File work as one system call of the thread that runs it.

use std::io;
use std::os::fd::RawFd;

use rustix::fs::FallocateFlags;

use super::shared::{Piece, Shared, Work};

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Read { into: Piece, offset: u64 },
    Write { from: Piece, offset: u64, durable: bool },
    Flush,
    Fallocate { mode: FallocateFlags, offset: u64, len: u64 },
}

impl Call {
    /// The call of an operation; `None` when it works on a socket.
    pub(super) fn of(shared: &Shared, key: usize) -> Option<Call> {
        let op = &shared.ops[key];
        let piece = || shared.region(op.memory.expect("it has memory"));
        match op.work {
            Work::Read { offset } => Some(Call::Read { into: piece(), offset }),
            Work::Write { offset, durable } => Some(Call::Write { from: piece(), offset, durable }),
            Work::Flush => Some(Call::Flush),
            Work::Fallocate { mode, offset, len } => Some(Call::Fallocate { mode, offset, len }),
            Work::Recv | Work::Send { .. } => None,
        }
    }

    /// Runs it on the file of its operation, which the caller keeps in flight meanwhile.
    pub(super) fn run(self, fd: RawFd) -> io::Result<usize> {
        retry(|| match self {
            // SAFETY: the kernel writes at most `len` bytes to the piece, which the operation keeps alive
            // and which lies in its arena; `pread` on any descriptor number is memory safe.
            Call::Read { into, offset } => unsafe {
                libc::pread(fd, into.base.cast(), into.len, offset as libc::off_t)
            },
            // SAFETY: as above; the kernel only reads the piece.
            Call::Write { from, offset, durable: false } => unsafe {
                libc::pwrite(fd, from.base.cast(), from.len, offset as libc::off_t)
            },
            // SAFETY: as above; the vector outlives the call.
            Call::Write { from, offset, durable: true } => unsafe {
                let vector = libc::iovec { iov_base: from.base.cast(), iov_len: from.len };
                libc::pwritev2(fd, &vector, 1, offset as libc::off_t, libc::RWF_DSYNC)
            },
            // SAFETY: takes no memory.
            Call::Flush => unsafe { libc::fdatasync(fd) as isize },
            // SAFETY: takes no memory.
            Call::Fallocate { mode, offset, len } => unsafe {
                let (offset, len) = (offset as libc::off_t, len as libc::off_t);
                libc::fallocate(fd, mode.bits() as i32, offset, len) as isize
            },
        })
    }
}

/// A system call, again when a signal came in between.
pub(super) fn retry(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
