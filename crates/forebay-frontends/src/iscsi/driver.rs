//! A session on its shard: socket, session, logical units and engines.
//!
//! ```text
//! recv ──► input ──Session::next──► ready tasks ──work.rs──► engine ──on_reply──► read.rs ──► Outbox ──► socket
//!            │ data of a write: received into the memory that it will be written from
//!            └ blocked: the initiator does not read;  ready, wanting: no memory, engine busy ──resume──┘
//! ```
//!
//! ```text
//! Open ──logout, close, end of stream──► Draining ──all answered and sent──► Closed
//!   └─── broken protocol, broken socket, silence, another session instead ──────►┘
//! ```
//! Whatever the phase, it may leave its shard, be *away*, and enter another one.
//!
//! Limits: the input is [`INPUT_MIN`] bytes while little comes and at most [`INPUT_MAX`]; nothing is taken
//! while the initiator does not read its answers, and one task management function at a time. One that says nothing is asked after [`IDLE_MAX`],
//! and closed when it stalls for [`STALL_MAX`].
//!
//! **Invariant:** memory that a receive may still write to is not given back before the receive has
//! ended. **Invariant:** the lock around the [`Device`] is never contended but by whoever asks for statistics:
//! all sessions of a target live on one shard, and go to another one together. What keepers have stored is settled there, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::action::Span;
use forebay_core::ids::Nanos;

use crate::client::{Context, DiskId, Port};
use crate::link::Link;
use crate::outbox::Outbox;

use super::device::Device;
use super::negotiate::SEGMENT_MAX;
use super::session::Session;

mod client;
mod compare;
mod memory;
mod newcomer;
mod read;
mod receive;
#[cfg(test)]
mod tests;
mod work;

pub use newcomer::Newcomer;

/// Bytes received at a time while little comes.
pub const INPUT_MIN: usize = 8 << 10;
/// Bytes received at a time when much does: a PDU as long as it may be.
pub const INPUT_MAX: usize = SEGMENT_MAX + (8 << 10);
/// Time without progress after which a client is closed.
pub const STALL_MAX: Nanos = Nanos::from_millis(30_000);
/// Time of silence after which an initiator is asked whether it is there.
pub const IDLE_MAX: Nanos = Nanos::from_millis(30_000);
/// Receives in a row that used little of the input, after which it shrinks.
const SMALL_RECEIVES: u32 = 64;

/// A target that sessions share.
pub type SharedDevice = Arc<Mutex<Device>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes commands.
    Open,
    /// Takes none; closes when everything is answered and sent.
    Draining,
    /// The socket is gone; answers are discarded.
    Closed,
}

/// The disks of the target.
#[derive(Debug)]
struct Disks {
    list: Vec<DiskId>,
    /// Since which change of the device's units they are.
    seen: Option<u64>,
}

/// What was received.
#[derive(Debug, Default)]
struct Input {
    /// Used up to `used`. Moved into the reactor while receiving.
    bytes: Vec<u8>,
    used: usize,
    /// Bytes that it must have before it makes sense.
    needed: usize,
    is_receiving: bool,
    /// A part of a PDU has come.
    is_partial: bool,
    small_receives: u32,
}

impl Input {
    fn new(bytes: Vec<u8>) -> Input {
        Input { bytes, ..Input::default() }
    }
}

/// One session of one target.
#[derive(Debug)]
pub struct Connection {
    link: Link,
    phase: Phase,
    device: SharedDevice,
    disks: Disks,
    session: Session,
    outbox: Outbox,
    input: Input,
    /// Where the next data of a task go, and whose they are.
    direct: Option<(DiskId, Span)>,
    /// Nothing is taken from then on, because the initiator does not read, or has had its turn.
    blocked_at: Option<Nanos>,
    /// When something came last.
    heard: Nanos,
    /// For comparing; empty between uses.
    scratch: Vec<u8>,
}

impl Connection {
    /// Works with the target, after what others did to the session was noticed.
    fn with(
        &mut self,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Connection, &mut Context<'_>, &mut Device),
    ) {
        let device = self.device.clone();
        let mut device = lock(&device);
        if self.disks.seen != Some(device.changes()) {
            self.disks.seen = Some(device.changes());
            self.disks.list = device.disks();
        }
        // Who is away hears of it when it enters.
        if self.phase != Phase::Closed && !self.link.is_away() {
            self.session.begin(cx.now, &mut device);
            if self.session.has_late() {
                let session = &mut self.session;
                self.outbox.append(|out| session.answer_late(&mut device, out));
            }
            if self.session.is_over() {
                self.close_socket(cx, &mut device);
            }
        }
        work(self, cx, &mut device);
        while let Some((disk, access)) = device.next_access() {
            // One that was detached may be on another shard.
            if let Some(port) = cx.disks.find_port(disk) {
                port.access = access;
            }
        }
        while let Some(disk) = device.take_noted() {
            if let Some(port) = cx.disks.find_port(disk) {
                port.has_news = true;
            }
        }
        self.give_back(cx, &mut device);
        close_ended(cx, &mut device);
    }

    /// Sends what is queued, and copies what the socket does not take.
    fn send(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        if self.phase == Phase::Closed || self.link.is_away() {
            return;
        }
        let sent = self.outbox.flush(cx);
        let is_drained = self.session.is_answered() && self.outbox.is_empty();
        if sent.is_err() || (self.phase == Phase::Draining && is_drained) {
            self.disconnect(cx, device);
        }
    }

    /// Takes nothing further; what is not at work yet is dropped.
    fn drain(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        if self.phase == Phase::Open {
            self.phase = Phase::Draining;
            self.session.abort_unstarted(device);
            self.give_back(cx, device);
        }
    }

    /// Closes the socket; what is in flight finishes unseen.
    fn disconnect(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        if self.phase != Phase::Closed {
            self.link.close(cx);
            self.close_socket(cx, device);
        }
    }

    /// The socket is closed.
    fn close_socket(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        self.phase = Phase::Closed;
        self.outbox.discard(cx);
        self.session.end(device);
        self.give_back(cx, device);
        device.leave(self.session.member());
    }

    /// The session cannot go on where it was to enter.
    fn end_away(&mut self, device: &mut Device) {
        if self.phase == Phase::Closed {
            // Its initiator has begun another session meanwhile.
            return;
        }
        self.phase = Phase::Closed;
        self.session.end(device);
        device.leave(self.session.member());
    }

    /// When the initiator has made no progress for too long.
    fn stalls_at(&self) -> Nanos {
        let sends = self.outbox.sending_since().plus(STALL_MAX);
        if self.blocked_at.is_some() {
            // Nothing is received, so nothing is heard.
            return sends;
        }
        let receives =
            match (self.input.is_partial && self.input.is_receiving, self.session.pinged()) {
                (true, _) => self.heard.plus(STALL_MAX),
                (false, Some(pinged)) => pinged.plus(STALL_MAX),
                (false, None) => Nanos::NEVER,
            };
        sends.min(receives).min(self.session.data_deadline())
    }

    /// When an initiator that says nothing is asked whether it is there.
    fn asks_at(&self) -> Nanos {
        let is_quiet = self.phase == Phase::Open && self.session.pinged().is_none();
        if is_quiet { self.heard.plus(IDLE_MAX) } else { Nanos::NEVER }
    }
}

/// The keeper of a disk's reservations has answered: what he has stored comes into force, whether a session is left or not.
/// To be called on the shard of the disk.
pub fn settle(device: &SharedDevice, disk: DiskId, port: &mut Port) {
    if let Some(access) = lock(device).settle(disk) {
        port.access = access;
    }
    // A session may wait for the answer.
    port.has_news = true;
}

fn lock(device: &SharedDevice) -> MutexGuard<'_, Device> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the sockets of sessions that were ended by this one; they notice.
fn close_ended(cx: &mut Context<'_>, device: &mut Device) {
    while let Some(socket) = device.take_ended() {
        cx.reactor.remove_socket(socket);
    }
}
