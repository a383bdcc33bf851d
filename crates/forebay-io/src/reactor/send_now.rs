//! The non-blocking vectored send: bytes of the caller and of arenas, in as few calls as it takes.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use super::SendPart;
use super::table::Table;
use crate::arena::Arena;

/// Parts that one call to the kernel takes (`IOV_MAX` of Linux).
pub(super) const PARTS_PER_CALL_MAX: usize = 1024;

/// Space for the kernel's description of parts, kept between calls; empty outside of [`send_now`].
#[derive(Default)]
pub(super) struct Iovecs(Vec<libc::iovec>);

// SAFETY: the pointers are only looked at within one call of `send_now`, which fills the vector anew from
// parts that are borrowed for the call; between calls it is empty.
unsafe impl Send for Iovecs {}
// SAFETY: nothing reads it through a shared reference.
unsafe impl Sync for Iovecs {}

impl std::fmt::Debug for Iovecs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Iovecs").field("capacity", &self.0.capacity()).finish()
    }
}

/// Sends as much as the socket takes now. An error after the first bytes is left for the next call to find.
pub(super) fn send_now(
    socket: BorrowedFd<'_>,
    parts: &[SendPart<'_>],
    arenas: &Table<Arc<Arena>>,
    iovecs: &mut Iovecs,
) -> io::Result<usize> {
    let mut sent = 0;
    for chunk in parts.chunks(PARTS_PER_CALL_MAX) {
        let vectors = &mut iovecs.0;
        vectors.clear();
        let mut len = 0;
        for part in chunk {
            let (base, part_len) = match part {
                SendPart::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
                SendPart::Region(region) => {
                    let Some(arena) = arenas.live(region.arena.0.into()) else {
                        vectors.clear();
                        return Err(io::Error::from_raw_os_error(libc::EFAULT));
                    };
                    let part_len = region.len as usize;
                    (arena.piece(region.offset, part_len), part_len)
                }
            };
            if part_len > 0 {
                len += part_len;
                vectors.push(libc::iovec { iov_base: base.cast(), iov_len: part_len });
            }
        }
        let result = send_vectors(socket, vectors);
        vectors.clear();
        match result {
            Ok(taken) => {
                sent += taken;
                if taken < len {
                    break;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(_) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}

/// One `sendmsg(2)`, tried again when a signal came in between.
fn send_vectors(socket: BorrowedFd<'_>, vectors: &mut [libc::iovec]) -> io::Result<usize> {
    if vectors.is_empty() {
        return Ok(0);
    }
    // SAFETY: all zeroes is a valid `msghdr`: no address, no control data, no vectors.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    loop {
        // SAFETY: `message` points to `vectors`, which outlives the call; each vector is a slice of the caller,
        // borrowed for the call, or a piece of an arena, bounds-checked and kept alive by the table. The
        // kernel only reads them.
        let sent = unsafe {
            libc::sendmsg(
                socket.as_raw_fd(),
                &raw const message,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}
