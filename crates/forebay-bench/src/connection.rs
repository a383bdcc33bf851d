//! One connection in the transmission phase, with a fixed number of requests in flight.
//!
//! Slot `i` of the `depth` slots always has cookie `i`. [`Connection::receive`] takes what has
//! arrived, and for each complete reply puts the slot's next request behind the unsent ones;
//! [`Connection::send`] sends them all at once. The socket is non-blocking; whoever owns the
//! connection polls it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::offsets::Offsets;
use crate::report::Latencies;

const REQUEST: u32 = 0x2560_9513;
const REPLY: [u8; 4] = 0x6744_6698_u32.to_be_bytes();
const REPLY_HEADER: usize = 16;
const READ: u16 = 0;
const WRITE: u16 = 1;

/// What every request of a connection has in common.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) depth: u32,
    pub(crate) block_size: u32,
    pub(crate) write_percent: u32,
    /// Requests to send in all; `u64::MAX`: until told to stop.
    pub(crate) requests_max: u64,
}

struct Slot {
    sent: Instant,
    is_write: bool,
    is_busy: bool,
}

pub(crate) struct Connection {
    socket: OwnedFd,
    shape: Shape,
    offsets: Offsets,
    slots: Vec<Slot>,
    input: Vec<u8>,
    /// `input[start..end]` has arrived and is not yet taken.
    start: usize,
    end: usize,
    output: Vec<u8>,
    unsent_from: usize,
    payload: Vec<u8>,
    started: u64,
    in_flight: u32,
    stopping: bool,
    /// Latencies are of requests that were sent since then.
    measured_from: Instant,
    pub(crate) reads: Latencies,
    pub(crate) writes: Latencies,
    /// Replies since then.
    pub(crate) answered: u64,
}

impl Connection {
    /// Takes a socket whose handshake is done.
    pub(crate) fn new(socket: OwnedFd, shape: Shape, offsets: Offsets) -> anyhow::Result<Self> {
        rustix::io::ioctl_fionbio(&socket, true)?;
        let block = shape.block_size as usize;
        let batch = shape.depth as usize * (REPLY_HEADER + block);
        Ok(Connection {
            socket,
            shape,
            offsets,
            slots: Vec::new(),
            input: vec![0; batch.max(64 << 10)],
            start: 0,
            end: 0,
            output: Vec::with_capacity(shape.depth as usize * (28 + block)),
            unsent_from: 0,
            payload: (0..block).map(|i| (i % 251) as u8).collect(),
            started: 0,
            in_flight: 0,
            stopping: false,
            measured_from: Instant::now(),
            reads: Latencies::default(),
            writes: Latencies::default(),
            answered: 0,
        })
    }

    /// Fills all slots.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        for slot in 0..self.shape.depth {
            self.slots.push(Slot { sent: now, is_write: false, is_busy: false });
            self.request(slot, now);
        }
        self.send()
    }

    /// From now on replies are taken but no request is sent.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn is_done(&self) -> bool {
        self.in_flight == 0 && !self.has_unsent()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.unsent_from < self.output.len()
    }

    /// Measures from now on: the warm-up is over.
    pub(crate) fn reset(&mut self) {
        self.measured_from = Instant::now();
        self.answered = 0;
        self.reads.reset();
        self.writes.reset();
    }

    /// Receives once and answers each complete reply with the slot's next request.
    pub(crate) fn receive(&mut self) -> anyhow::Result<()> {
        if self.end == self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        match rustix::net::recv(&self.socket, &mut self.input[self.end..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => bail!("the server closed the connection"),
            Ok((_, received)) => self.end += received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        let now = Instant::now();
        while let Some(length) = self.take_reply(now)? {
            self.start += length;
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        Ok(())
    }

    /// Checks the reply at `start`, records it, and queues the next request. Its length, or `None`
    /// while it is incomplete.
    fn take_reply(&mut self, now: Instant) -> anyhow::Result<Option<usize>> {
        let bytes = &self.input[self.start..self.end];
        let Some(header) = bytes.first_chunk::<REPLY_HEADER>() else { return Ok(None) };
        ensure!(header[..4] == REPLY, "bad magic in a reply");
        let error = u32::from_be_bytes(header[4..8].try_into().expect("four bytes"));
        ensure!(error == 0, "a request failed with error {error}");
        let cookie = u64::from_be_bytes(header[8..].try_into().expect("eight bytes"));
        let Some(slot) = usize::try_from(cookie).ok().and_then(|c| self.slots.get_mut(c)) else {
            bail!("a reply with cookie {cookie}, which was never sent");
        };
        ensure!(slot.is_busy, "a second reply to cookie {cookie}");
        let data = if slot.is_write { 0 } else { self.shape.block_size as usize };
        if bytes.len() < REPLY_HEADER + data {
            return Ok(None);
        }
        let latencies = if slot.is_write { &mut self.writes } else { &mut self.reads };
        if slot.sent >= self.measured_from {
            latencies.record(now - slot.sent);
        }
        self.answered += 1;
        slot.is_busy = false;
        self.in_flight -= 1;
        self.request(cookie as u32, now);
        Ok(Some(REPLY_HEADER + data))
    }

    fn request(&mut self, slot: u32, now: Instant) {
        if self.stopping || self.started == self.shape.requests_max {
            return;
        }
        self.started += 1;
        self.in_flight += 1;
        let is_write = self.offsets.chance(self.shape.write_percent);
        self.slots[slot as usize] = Slot { sent: now, is_write, is_busy: true };
        let offset = self.offsets.next() * u64::from(self.shape.block_size);
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST.to_be_bytes());
        header[6..8].copy_from_slice(&if is_write { WRITE } else { READ }.to_be_bytes());
        header[8..16].copy_from_slice(&u64::from(slot).to_be_bytes());
        header[16..24].copy_from_slice(&offset.to_be_bytes());
        header[24..].copy_from_slice(&self.shape.block_size.to_be_bytes());
        self.output.extend_from_slice(&header);
        if is_write {
            self.output.extend_from_slice(&self.payload);
        }
    }

    /// Sends what is unsent, as far as the socket takes it.
    pub(crate) fn send(&mut self) -> anyhow::Result<()> {
        while self.has_unsent() {
            let unsent = &self.output[self.unsent_from..];
            match rustix::net::send(&self.socket, unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
            {
                Ok(sent) => self.unsent_from += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.output.clear();
        self.unsent_from = 0;
        Ok(())
    }

    /// Time that the oldest request in flight has waited.
    pub(crate) fn oldest(&self, now: Instant) -> Duration {
        let busy = self.slots.iter().filter(|s| s.is_busy);
        busy.map(|s| now - s.sent).max().unwrap_or_default()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
