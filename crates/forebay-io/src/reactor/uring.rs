//! The reactor on io_uring.
//!
//! `start` writes a submission, `wait` submits what was written and reaps completions in one system call.
//! A full submission queue is submitted at once; when the kernel does not take it, entries wait in a
//! backlog. A full completion queue is the kernel's matter (`IORING_FEAT_NODROP`): it keeps the
//! rest and hands it out as entries are reaped.
//!
//! Work on a file may take a thread of the kernel, always so for flushes. So the kernel has a number of operations of each file
//! at most, and many more threads than that: a device that hangs takes none from another one.
//!
//! **Invariants.** The `user_data` of an operation is its key in `Shared::ops`, which owns all
//! memory that the entry points to until [`Shared::finish`]. The vectors of a receive live in a
//! box per socket. `expected` counts the entries given to the ring whose (last) completion was
//! not reaped.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

use super::per_file::PerFile;
use super::shared::{Op, Piece, Shared, Target, Work};
use super::spin::Spin;
use super::{Completion, Lookout, Waker, context};
use crate::clock::now_nanos;
use registered::{Descriptor, Registered};

mod driver;
mod registered;
mod setup;

/// `user_data` of the read of the waker's eventfd, and of cancellations.
const WAKER: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;
/// With the key of an event: its poll, which goes on until it is cancelled.
const EVENT: u64 = 1 << 62;
/// Operations of a file that the kernel has at a time: more than a device gets faster by.
const OF_A_FILE_MAX: usize = 256;
/// Files that may hang with all of these, before others wait for a thread.
const HANGING_MAX: usize = 16;
/// Flags of `io_uring_enter(2)`, from the kernel's `io_uring.h`.
const ENTER_GETEVENTS: u32 = 1 << 0;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// See the module.
pub(super) struct Uring {
    ring: IoUring,
    is_enabled: bool,
    registered: Registered,
    /// Entries that found no room in the submission queue.
    backlog: VecDeque<squeue::Entry>,
    lines: PerFile<Line>,
    expected: usize,
    /// Per socket, where the kernel finds the vectors of its receive.
    messages: Vec<Option<Box<Message>>>,
    waker: Waker,
    /// Where the kernel puts the count of the waker's eventfd.
    waker_count: Box<u64>,
    is_waker_armed: bool,
    spin: Spin,
}

/// The operations of a file.
#[derive(Debug, Default)]
struct Line {
    under_way: usize,
    /// Keys of those that were not given to the ring yet.
    waiting: VecDeque<usize>,
}

/// The kernel's description of a receive in two pieces.
struct Message {
    header: libc::msghdr,
    vectors: [libc::iovec; 2],
}

// SAFETY: the raw pointers in `messages` are only followed by the kernel, during an operation whose memory
// `Shared` owns; `Uring` itself never follows them, so it may move between threads.
unsafe impl Send for Uring {}
// SAFETY: no method that takes `&Uring` touches the pointers.
unsafe impl Sync for Uring {}

impl std::fmt::Debug for Uring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uring")
            .field("expected", &self.expected)
            .field("backlog", &self.backlog.len())
            .finish_non_exhaustive()
    }
}

impl Uring {
    pub(super) fn new(entries: u32) -> io::Result<Uring> {
        let ring = setup::ring(entries)?;
        let registered = Registered::new(&ring);
        Ok(Uring {
            ring,
            is_enabled: false,
            registered,
            backlog: VecDeque::new(),
            lines: PerFile::new(),
            expected: 0,
            messages: Vec::new(),
            waker: Waker::new()?,
            waker_count: Box::new(0),
            is_waker_armed: false,
            spin: Spin::new(crate::thread::cpus()),
        })
    }

    /// Makes the ring this thread's.
    fn enable(&mut self) -> io::Result<()> {
        if !self.is_enabled {
            self.ring.submitter().register_enable_rings()?;
            self.is_enabled = true;
        }
        Ok(())
    }

    /// The submission of an operation in `shared.ops`.
    fn entry(&mut self, shared: &mut Shared, key: usize) -> squeue::Entry {
        let Op { target, work, memory, .. } = shared.ops[key];
        let fd = shared.fd(target);
        let descriptor = match target {
            Target::File(id) => self.registered.file(id.0 as usize, fd),
            Target::Socket(id) => self.registered.socket(id.0 as usize, fd),
        };
        macro_rules! on {
            ($fd:ident => $build:expr) => {
                match descriptor {
                    Descriptor::Plain($fd) => $build,
                    Descriptor::Fixed($fd) => $build,
                }
            };
        }
        match work {
            Work::Read { offset } => {
                let region = memory.expect("a read has memory");
                let Piece { base, .. } = shared.region(region);
                let arena = shared.arenas.held(region.arena.0.into());
                match self.registered.buffer(&self.ring, region, arena) {
                    Some(slot) => on!(fd => opcode::ReadFixed::new(fd, base, region.len, slot)
                        .offset(offset).build()),
                    None => {
                        on!(fd => opcode::Read::new(fd, base, region.len).offset(offset).build())
                    }
                }
            }
            Work::Write { offset, durable } => {
                let region = memory.expect("a write has memory");
                let Piece { base, .. } = shared.region(region);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let arena = shared.arenas.held(region.arena.0.into());
                match self.registered.buffer(&self.ring, region, arena) {
                    Some(slot) => on!(fd => opcode::WriteFixed::new(fd, base, region.len, slot)
                        .offset(offset).rw_flags(flags).build()),
                    None => on!(fd => opcode::Write::new(fd, base, region.len)
                        .offset(offset).rw_flags(flags).build()),
                }
            }
            Work::Flush => {
                on!(fd => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build())
            }
            Work::Fallocate { mode, offset, len } => on!(fd => opcode::Fallocate::new(fd, len)
                .offset(offset).mode(mode.bits() as i32).build()),
            Work::Recv => {
                let pieces = shared.recv_pieces(key);
                match self.recv_message(target, pieces) {
                    Ok(one) => {
                        let len = one.len.min(u32::MAX as usize) as u32;
                        on!(fd => opcode::Recv::new(fd, one.base, len).build())
                    }
                    Err(message) => on!(fd => opcode::RecvMsg::new(fd, message).build()),
                }
            }
            Work::Send { .. } => {
                let Piece { base, len } = shared.send_piece(key);
                // Not MSG_WAITALL: of a send that is cancelled some kernels forget then what they have sent.
                let flags = libc::MSG_NOSIGNAL;
                let len = len.min(u32::MAX as usize) as u32;
                on!(fd => opcode::Send::new(fd, base, len).flags(flags).build())
            }
        }
        .user_data(key as u64)
    }

    /// The one piece to receive into, or else the description of two.
    fn recv_message(
        &mut self,
        target: Target,
        [first, second]: [Piece; 2],
    ) -> Result<Piece, *mut libc::msghdr> {
        if first.len == 0 {
            return Ok(second);
        }
        if second.len == 0 {
            return Ok(first);
        }
        let Target::Socket(id) = target else { unreachable!("a receive on a file") };
        let message = self.messages[id.0 as usize].as_mut().expect("every socket has a message");
        message.vectors = [first, second]
            .map(|piece| libc::iovec { iov_base: piece.base.cast(), iov_len: piece.len });
        message.header.msg_iov = message.vectors.as_mut_ptr();
        message.header.msg_iovlen = 2;
        Err(&raw mut message.header)
    }

    /// Gives an entry to the ring, or to the backlog.
    fn push(&mut self, entry: squeue::Entry) {
        self.expected += 1;
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
            // An error shows again in `wait`, which has someone to tell.
            let _ = self.push_backlog();
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: every entry comes from `entry`, `arm_waker` or `cancel`: its memory is owned by
        // `Shared::ops` and the arenas there, by the box of a socket, or by `waker_count`, none of which is let
        // go of before its completion was reaped, or ever when `stop` fails.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Moves the backlog to the ring, as far as the kernel takes it.
    fn push_backlog(&mut self) -> io::Result<()> {
        while let Some(entry) = self.backlog.front().cloned() {
            if self.try_push(&entry) {
                self.backlog.pop_front();
                continue;
            }
            self.submit(None)?;
            if self.ring.submission().is_full() {
                break;
            }
        }
        Ok(())
    }

    /// Reads the waker's eventfd, unless a read is in flight.
    fn arm_waker(&mut self) {
        if !self.is_waker_armed {
            self.is_waker_armed = true;
            let fd = types::Fd(self.waker.fd());
            let count = (&raw mut *self.waker_count).cast();
            self.push(opcode::Read::new(fd, count, 8).build().user_data(WAKER));
        }
    }

    /// Submits. With a deadline, also waits for a completion (`u64::MAX`: for ever).
    fn submit(&mut self, deadline: Option<u64>) -> io::Result<Submitted> {
        self.enable()?;
        let result = match deadline {
            None => self.ring.submit(),
            Some(u64::MAX) => self.submit_and_wait(&types::SubmitArgs::new()),
            Some(deadline) => {
                let left = Duration::from_nanos(deadline.saturating_sub(now_nanos()));
                let left = types::Timespec::from(left);
                self.submit_and_wait(&types::SubmitArgs::new().timespec(&left))
            }
        };
        match result {
            Ok(_) => Ok(Submitted::Taken),
            Err(error) => match error.raw_os_error() {
                // The time is over; completions must be reaped first; no memory just now.
                Some(libc::ETIME | libc::EBUSY | libc::EAGAIN) => Ok(Submitted::Taken),
                Some(libc::EINTR) => Ok(Submitted::Ended),
                Some(_) | None => Err(context("io_uring failed", &error)),
            },
        }
    }

    /// Submits and waits for a completion. An idle shard has receives in flight all the time. A
    /// flag asks the kernel not to show that as a CPU waiting for I/O, where it can.
    fn submit_and_wait(&mut self, args: &types::SubmitArgs<'_, '_>) -> io::Result<usize> {
        if !self.ring.params().is_feature_no_iowait() {
            return self.ring.submitter().submit_with_args(1, args);
        }
        let count = self.ring.submission().len() as u32;
        let flags = ENTER_GETEVENTS | ENTER_EXT_ARG | ENTER_NO_IOWAIT;
        // SAFETY: `count` entries are in the queue, whose memory `try_push` vouches for; `args` is what
        // `ENTER_EXT_ARG` says it is, and outlives the call, as does the time that it points to.
        unsafe { self.ring.submitter().enter(count, 1, flags, Some(args)) }
    }

    /// Whether there is something for the kernel to do before completions are looked at.
    fn needs_submit(&mut self) -> bool {
        let queue = self.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Takes completions off the ring. Whether the waker was among them.
    fn reap(&mut self, shared: &mut Shared, completions: &mut Vec<Completion>) -> bool {
        let mut is_woken = false;
        loop {
            let next = self.ring.completion().next();
            let Some(entry) = next else { break };
            self.expected -= 1;
            match entry.user_data() {
                WAKER => {
                    self.is_waker_armed = false;
                    if entry.result() == 8 {
                        self.waker.is_consumed();
                        is_woken = true;
                    }
                }
                CANCEL => {}
                user_data if user_data & EVENT != 0 => {
                    completions.extend(self.on_signal(shared, &entry));
                }
                _ => completions.extend(self.end(shared, &entry)),
            }
        }
        is_woken
    }

    /// Polls a descriptor until it is cancelled.
    fn watch(&mut self, key: usize, fd: RawFd) {
        let poll = opcode::PollAdd::new(types::Fd(fd), libc::POLLIN as u32).multi(true);
        self.push(poll.build().user_data(EVENT | key as u64));
    }

    /// A descriptor was signalled, or is watched no more.
    fn on_signal(&mut self, shared: &mut Shared, entry: &cqueue::Entry) -> Option<Completion> {
        let key = (entry.user_data() & !EVENT) as usize;
        let goes_on = cqueue::more(entry.flags());
        // Each poll is expected to end once.
        self.expected += usize::from(goes_on);
        let result = match entry.result() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            events if events & i32::from(libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 => {
                Err(io::Error::from_raw_os_error(libc::EPIPE))
            }
            _ => Ok(0),
        };
        let completion = shared.signalled(key, result);
        if !goes_on {
            match &completion {
                // The kernel ended it for want of room.
                Some(Completion { result: Ok(_), .. }) => {
                    let fd = shared.events.held(key).fd.as_raw_fd();
                    self.watch(key, fd);
                }
                Some(_) | None => shared.release_event(key),
            }
        }
        completion
    }

    /// An operation's completion, unless it has to go on.
    fn end(&mut self, shared: &mut Shared, entry: &cqueue::Entry) -> Option<Completion> {
        let key = entry.user_data() as usize;
        let result = match usize::try_from(entry.result()) {
            Ok(count) => Ok(count),
            Err(_) => Err(io::Error::from_raw_os_error(-entry.result())),
        };
        if let (Work::Send { .. }, Ok(sent)) = (shared.ops[key].work, &result) {
            if shared.send_goes_on(key, *sent) {
                self.give(shared, key);
                return None;
            }
            return Some(shared.finish(key, Ok(0)));
        }
        if let Target::File(id) = shared.ops[key].target {
            let line = self.lines.of(id.0 as usize);
            match line.waiting.pop_front() {
                Some(next) => self.give(shared, next),
                None => line.under_way -= 1,
            }
        }
        Some(shared.finish(key, result))
    }

    /// Gives an operation to the ring.
    fn give(&mut self, shared: &mut Shared, key: usize) {
        let entry = self.entry(shared, key);
        self.push(entry);
    }

    /// Spins, if that has paid lately. Whether it found something.
    fn spin(&mut self, deadline: u64, lookout: &mut dyn Lookout) -> io::Result<bool> {
        let Some(budget) = self.spin.budget_ns(lookout.is_on()) else { return Ok(false) };
        let start = now_nanos();
        let end = deadline.min(start + budget);
        loop {
            if self.needs_submit() {
                self.submit(None)?;
            }
            let now = now_nanos();
            let has_found = lookout.has_work() || self.has_completions();
            if has_found || now >= end {
                self.spin.on_spin(now - start, has_found);
                return Ok(has_found);
            }
            for _ in 0..8 {
                std::hint::spin_loop();
            }
        }
    }

    /// Submits and waits until there is a completion or work, or the deadline.
    fn sleep(&mut self, deadline: u64, lookout: &mut dyn Lookout) -> io::Result<Submitted> {
        if !self.spin.is_enabled(lookout.is_on()) {
            let until = (!lookout.rest()).then_some(deadline);
            return self.submit_until(until);
        }
        let start = now_nanos();
        if self.spin(deadline, lookout)? {
            return Ok(Submitted::Ended);
        }
        let until = (!lookout.rest()).then_some(deadline);
        let submitted = self.submit_until(until)?;
        self.spin.on_wait(now_nanos() - start);
        Ok(submitted)
    }

    /// Submits, and waits if there is a deadline; else there is work.
    fn submit_until(&mut self, deadline: Option<u64>) -> io::Result<Submitted> {
        let submitted = self.submit(deadline)?;
        Ok(if deadline.is_none() { Submitted::Ended } else { submitted })
    }

    fn cancel_entry(&mut self, user_data: u64) {
        self.push(opcode::AsyncCancel::new(user_data).build().user_data(CANCEL));
    }
}

/// How a submission went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submitted {
    Taken,
    /// There is no need to wait on.
    Ended,
}

#[cfg(test)]
mod tests;
