//! The reactor where io_uring is forbidden: epoll for sockets, a pool of threads for each file.
//!
//! Sockets are watched edge-triggered from the start. An operation on one is tried in the next
//! `wait`, and again at each edge. Every try goes on until the kernel says that it would block.
//! So nothing gets lost before the next edge.
//!
//! **Invariants.** An operation is in exactly one place: to be tried (`untried`), pending on its socket, or
//! with its file's pool (waiting, running, ended). `Shared::ops` owns its memory in all of them.

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};

use super::call::{Call, retry};
use super::per_file::PerFile;
use super::shared::{Freed, Op, Piece, Shared, Target, Work};
use super::spin::Spin;
use super::{Completion, Driver, Lookout, ReactorKind, SocketId, Waker, context};
use crate::arena::Arena;
use crate::clock::{nanos_after, now_nanos};
use pool::{Job, Outcome, Outcomes, Pool};

mod pool;

/// The numbers of the two eventfds in epoll; sockets go by their keys.
const WAKER: u64 = u64::MAX;
const POOL: u64 = u64::MAX - 1;
/// With the key of an event.
const EVENT: u64 = 1 << 62;
/// Events taken at a time.
const EVENTS: usize = 256;
/// How long `stop` waits for the pool.
const STOP_MAX: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Epoll {
    epoll: OwnedFd,
    waker: Waker,
    pools: PerFile<Pool>,
    /// Of all pools.
    outcomes: Arc<Outcomes>,
    /// Those that were taken at a time.
    taken: Vec<Outcome>,
    /// Keys of socket operations that were not tried yet.
    untried: Vec<usize>,
    /// By the keys of sockets.
    pending: Vec<Pending>,
}

/// The operations that wait for an edge of a socket.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    recv: Option<usize>,
    send: Option<usize>,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        let failed = |error: rustix::io::Errno| context("epoll does not work", &error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let waker = Waker::new()?;
        let pool_waker = Waker::new()?;
        for (waker, data) in [(&waker, WAKER), (&pool_waker, POOL)] {
            // SAFETY: the waker is alive during the call.
            let event = unsafe { BorrowedFd::borrow_raw(waker.fd()) };
            epoll::add(&epoll, event, epoll::EventData::new_u64(data), epoll::EventFlags::IN)
                .map_err(failed)?;
        }
        Ok(Epoll {
            epoll,
            waker,
            pools: PerFile::new(),
            outcomes: Arc::new(Outcomes::new(pool_waker)),
            taken: Vec::new(),
            untried: Vec::new(),
            pending: Vec::new(),
        })
    }

    /// Tries an operation on a socket; it stays pending when it would block.
    fn attempt(&mut self, shared: &mut Shared, key: usize) -> Option<Completion> {
        let Op { target, work, .. } = shared.ops[key];
        let Target::Socket(id) = target else { unreachable!("file work on a socket") };
        let fd = shared.fd(target);
        let result = match work {
            Work::Recv => recv(fd, shared.recv_pieces(key)),
            Work::Send { .. } => send_all(shared, key, fd),
            Work::Read { .. } | Work::Write { .. } | Work::Flush | Work::Fallocate { .. } => {
                unreachable!("file work on a socket")
            }
        };
        let pending = &mut self.pending[id.0 as usize];
        let slot = if matches!(work, Work::Recv) { &mut pending.recv } else { &mut pending.send };
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                *slot = Some(key);
                None
            }
            result => {
                *slot = None;
                Some(shared.finish(key, result))
            }
        }
    }

    fn attempt_untried(&mut self, shared: &mut Shared, completions: &mut Vec<Completion>) {
        let mut untried = std::mem::take(&mut self.untried);
        for key in untried.drain(..) {
            completions.extend(self.attempt(shared, key));
        }
        self.untried = untried;
    }

    /// Takes events of the kernel and what follows from them. Whether the waker was among them.
    fn poll(
        &mut self,
        shared: &mut Shared,
        deadline: Option<u64>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<Polled> {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let timeout = deadline.map(|deadline| {
            let left = deadline.saturating_sub(now_nanos());
            // In whole milliseconds, rounded up: older kernels know no finer ones.
            let left = Duration::from_millis(left.div_ceil(1_000_000).min(1 << 30));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        let events = match epoll::wait(&self.epoll, &mut space, timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(Polled::Interrupted),
            Err(error) => return Err(context("epoll failed", &error.into())),
        };
        let mut polled = Polled::Events;
        for event in events {
            match event.data.u64() {
                WAKER => {
                    self.waker.consume()?;
                    polled = Polled::Woken;
                }
                POOL => {
                    self.outcomes.collect(&mut self.taken)?;
                    for (key, result) in self.taken.drain(..) {
                        completions.push(shared.finish(key, result));
                    }
                }
                event if event & EVENT != 0 => {
                    completions.extend(shared.signalled((event & !EVENT) as usize, Ok(0)));
                }
                key => {
                    let pending = self.pending.get(key as usize).copied().unwrap_or_default();
                    for key in [pending.recv, pending.send].into_iter().flatten() {
                        completions.extend(self.attempt(shared, key));
                    }
                }
            }
        }
        Ok(polled)
    }
}

/// How taking events ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    Events,
    Woken,
    Interrupted,
}

impl Driver for Epoll {
    fn kind(&self) -> ReactorKind {
        ReactorKind::Epoll
    }

    fn waker(&self) -> &Waker {
        &self.waker
    }

    fn on_arena(&mut self, _key: usize, _arena: &Arena) {}

    fn on_release(&mut self, _arena: usize, _part: Range<u64>) -> io::Result<()> {
        Ok(())
    }

    fn on_file(&mut self, key: usize, file: &Arc<OwnedFd>) -> io::Result<()> {
        self.pools.register(key, file, || Pool::new(Arc::clone(&self.outcomes)))
    }

    fn on_socket(&mut self, key: usize, socket: &OwnedFd) -> io::Result<()> {
        let flags = epoll::EventFlags::IN
            | epoll::EventFlags::OUT
            | epoll::EventFlags::RDHUP
            | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(key as u64), flags)?;
        if self.pending.len() <= key {
            self.pending.resize(key + 1, Pending::default());
        }
        Ok(())
    }

    fn on_event(&mut self, key: usize, event: &OwnedFd) -> io::Result<()> {
        // Edge-triggered: one that is never read is seen once per signal.
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let data = epoll::EventData::new_u64(EVENT | key as u64);
        Ok(epoll::add(&self.epoll, event, data, flags)?)
    }

    fn on_event_removed(&mut self, shared: &mut Shared, key: usize) {
        shared.release_event(key);
    }

    fn forget(&mut self, freed: &Freed) {
        match freed {
            Freed::Event(fd) => {
                let _ = epoll::delete(&self.epoll, fd);
            }
            Freed::Arena(..) => {}
            Freed::File(key, _) => self.pools.forget(*key),
            // Another reactor may have the same descriptor by now, so that nobody closes it here.
            Freed::Socket(_, fd) => {
                let _ = epoll::delete(&self.epoll, fd);
            }
        }
    }

    fn start(&mut self, shared: &mut Shared, key: usize) {
        let Some(call) = Call::of(shared, key) else { return self.untried.push(key) };
        let target = shared.ops[key].target;
        let Target::File(id) = target else { unreachable!("a call on a socket") };
        self.pools.of(id.0 as usize).start(Job { key, fd: shared.fd(target), call });
    }

    fn cancel(&mut self, shared: &mut Shared, socket: SocketId, key: usize) {
        self.untried.retain(|untried| *untried != key);
        let pending = &mut self.pending[socket.0 as usize];
        pending.recv.take_if(|receive| *receive == key);
        pending.send.take_if(|send| *send == key);
        let cancelled = Err(io::Error::from_raw_os_error(libc::ECANCELED));
        let completion = shared.finish(key, cancelled);
        shared.ended.push(completion);
    }

    fn wait(
        &mut self,
        shared: &mut Shared,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
        lookout: &mut dyn Lookout,
    ) -> io::Result<()> {
        let deadline = timeout.map(nanos_after);
        let sleeps = timeout != Some(Duration::ZERO);
        let before = completions.len();
        loop {
            self.attempt_untried(shared, completions);
            let has_work = sleeps && completions.len() == before && lookout.rest();
            let until = if has_work || completions.len() > before { Some(0) } else { deadline };
            let polled = self.poll(shared, until, completions)?;
            if completions.len() > before
                || has_work
                || polled != Polled::Events
                || deadline.is_some_and(|deadline| now_nanos() >= deadline)
            {
                return Ok(());
            }
        }
    }

    fn stop(&mut self, _shared: &mut Shared) -> bool {
        let end = nanos_after(STOP_MAX);
        let mut is_idle = true;
        for pool in self.pools.all() {
            is_idle &= pool.stop(Duration::from_nanos(end.saturating_sub(now_nanos())));
        }
        is_idle
    }

    fn spin(&mut self) -> Option<&mut Spin> {
        None
    }
}

/// Receives what is there.
fn recv(fd: RawFd, pieces: [Piece; 2]) -> io::Result<usize> {
    let mut vectors =
        pieces.map(|piece| libc::iovec { iov_base: piece.base.cast(), iov_len: piece.len });
    // SAFETY: all zeroes is a valid `msghdr`: no address, no control data, no vectors.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    retry(|| {
        // SAFETY: the vectors outlive the call; each is empty, a piece of an arena that the operation keeps
        // alive, or spare capacity of the buffer that it owns, and nothing else refers to that memory.
        unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) }
    })
}

/// Sends until all is sent or it would block. The bytes of the last call, which the operation has not
/// counted yet.
fn send_all(shared: &mut Shared, key: usize, fd: RawFd) -> io::Result<usize> {
    loop {
        let Piece { base, len } = shared.send_piece(key);
        if len == 0 {
            return Ok(0);
        }
        let sent = retry(|| {
            // SAFETY: the piece lies in the buffer that the operation owns; the kernel only reads it.
            unsafe { libc::send(fd, base.cast(), len, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) }
        })?;
        if !shared.send_goes_on(key, sent) {
            return Ok(0);
        }
    }
}

#[cfg(test)]
mod tests;
