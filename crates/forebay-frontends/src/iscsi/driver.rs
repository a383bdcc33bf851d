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
//!
//! Limits: the input is [`INPUT_MIN`] bytes while little comes and at most [`INPUT_MAX`]; nothing is taken
//! while the initiator does not read its answers. One that says nothing is asked after [`IDLE_MAX`],
//! and closed when it stalls for [`STALL_MAX`].
//!
//! **Invariant:** memory that a receive may still write to is not given back before the receive has
//! ended. **Invariant:** the lock around the [`Device`] is never contended but by whoever asks for statistics:
//! all sessions of a target live on one shard.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_core::action::Span;
use forebay_core::ids::{Nanos, RequestTag};
use forebay_io::reactor::{Completion, SocketId};

use crate::client::{self, Answer, Client, Context, DiskId, Tokens};
use crate::outbox::Outbox;
use crate::scsi::{Initiator, Medium};

use super::device::Device;
use super::login::Established;
use super::negotiate::SEGMENT_MAX;
use super::pdu_log::{Lines, PduLog};
use super::session::{Session, Start, Step};
use super::task::Memory;

mod read;
mod work;

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

/// An initiator on its way to the shard.
#[derive(Debug)]
pub struct Newcomer {
    /// Its socket.
    pub socket: OwnedFd,
    /// The target.
    pub device: SharedDevice,
    /// The disks of the target.
    pub disks: Vec<DiskId>,
    /// What its login led to.
    pub established: Established,
    /// What SendTargets is answered with.
    pub targets: Vec<u8>,
    /// The relative identifier of the target port.
    pub port: u16,
    /// Where PDUs are logged.
    pub log: Option<Arc<dyn Lines>>,
}

impl client::Newcomer for Newcomer {
    fn disks(&self) -> &[DiskId] {
        &self.disks
    }

    fn start(
        self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> io::Result<Box<dyn Client>> {
        let socket = cx.reactor.add_socket(self.socket)?;
        let mut established = self.established;
        let input = std::mem::take(&mut established.leftover);
        let initiator = Initiator { name: established.initiator.clone(), isid: established.isid };
        let log = self.log.map(|lines| PduLog::new(lines, &initiator));
        let member = {
            let mut device = lock(&self.device);
            let member = device.join(initiator, self.port, socket);
            close_ended(cx, &mut device);
            member
        };
        let session = Session::new(Start { established, member, targets: self.targets, log });
        let mut connection = Connection {
            id,
            socket,
            tokens,
            phase: Phase::Open,
            device: self.device,
            disks: self.disks,
            session,
            outbox: Outbox::new(socket, tokens.send),
            input,
            used: 0,
            needed: 0,
            direct: None,
            is_receiving: false,
            is_partial: false,
            is_blocked: false,
            small_receives: 0,
            heard: cx.now,
            scratch: Vec::new(),
        };
        connection.with(cx, |connection, cx, device| connection.take_pdus(cx, device));
        Ok(Box::new(connection))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Takes commands.
    Open,
    /// Takes none; closes when everything is answered and sent.
    Draining,
    /// The socket is gone; answers are discarded.
    Closed,
}

/// One session of one target.
#[derive(Debug)]
pub struct Connection {
    id: u32,
    socket: SocketId,
    tokens: Tokens,
    phase: Phase,
    device: SharedDevice,
    disks: Vec<DiskId>,
    session: Session,
    outbox: Outbox,
    /// Received bytes; used up to `used`. Moved into the reactor while receiving.
    input: Vec<u8>,
    used: usize,
    /// Bytes that the input must have before it makes sense.
    needed: usize,
    /// Where the next data of a task go, and whose they are.
    direct: Option<(DiskId, Span)>,
    is_receiving: bool,
    /// A part of a PDU has come.
    is_partial: bool,
    /// Nothing is taken because the initiator does not read.
    is_blocked: bool,
    small_receives: u32,
    /// When something came last.
    heard: Nanos,
    /// For comparing; empty between uses.
    scratch: Vec<u8>,
}

impl Client for Connection {
    fn disks(&self) -> &[DiskId] {
        &self.disks
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        self.with(cx, |connection, cx, device| {
            if completion.token == connection.tokens.recv {
                return connection.on_received(cx, device, completion);
            }
            assert_eq!(completion.token, connection.tokens.send, "a completion of someone else");
            let sent = connection.outbox.on_sent(completion.result, completion.buffer);
            if connection.phase != Phase::Closed {
                match sent {
                    Ok(()) => connection.send(cx, device),
                    Err(_) => connection.disconnect(cx, device),
                }
            }
        });
    }

    fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) {
        self.with(cx, |connection, cx, device| {
            connection.on_engine(cx, device, answer);
            connection.give_back(cx, device);
            if connection.phase == Phase::Closed {
                connection.outbox.discard(cx);
            }
        });
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Closed {
            self.with(cx, Connection::send);
        }
    }

    fn wants_resume(&self) -> bool {
        if self.phase == Phase::Closed || self.outbox.is_sending() {
            return false;
        }
        self.is_blocked || self.session.has_waiting()
    }

    fn resume(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.wants_resume() {
            return false;
        }
        let mut goes_on = false;
        self.with(cx, |connection, cx, device| {
            goes_on = std::mem::take(&mut connection.is_blocked);
            goes_on |= connection.find_memory(cx, device);
            goes_on |= connection.run_ready(cx, device);
            if goes_on {
                connection.take_pdus(cx, device);
            }
        });
        goes_on
    }

    fn close(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |connection, cx, device| {
            if connection.phase == Phase::Open {
                let session = &mut connection.session;
                connection.outbox.append(|out| session.say_goodbye(out));
                connection.drain(cx, device);
            }
        });
    }

    fn wake(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |_, _, _| {});
    }

    fn give_up(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |connection, cx, device| {
            if connection.phase == Phase::Draining && connection.session.is_answered() {
                connection.disconnect(cx, device);
            }
        });
    }

    fn next_deadline(&self) -> Nanos {
        if self.phase == Phase::Closed {
            return Nanos::NEVER;
        }
        self.stalls_at().min(self.outbox.hold_deadline()).min(self.asks_at())
    }

    fn tick(&mut self, cx: &mut Context<'_>) {
        self.with(cx, |connection, cx, device| {
            if connection.phase == Phase::Closed {
                return;
            }
            connection.session.settle_deadline();
            if connection.stalls_at() <= cx.now {
                connection.disconnect(cx, device);
            } else if connection.outbox.hold_deadline() <= cx.now {
                connection.outbox.let_go(cx);
            } else if connection.asks_at() <= cx.now {
                let session = &mut connection.session;
                connection.outbox.append(|out| session.ping(out));
            }
        });
    }

    fn is_done(&self) -> bool {
        self.phase == Phase::Closed
            && !self.is_receiving
            && !self.outbox.is_sending()
            && self.session.in_flight() == 0
    }
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
        if self.phase != Phase::Closed {
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
            cx.port(disk).access = access;
        }
        self.give_back(cx, &mut device);
        close_ended(cx, &mut device);
    }

    fn on_received(&mut self, cx: &mut Context<'_>, device: &mut Device, completion: Completion) {
        self.is_receiving = false;
        self.input = completion.buffer.unwrap_or_default();
        let direct = self.direct.take();
        let received = completion.result.as_ref().map_or(0, |count| *count);
        if let Some((disk, span)) = direct {
            // Nothing was in the input: what is there now came after the data.
            let count = (received - self.input.len()) as u32;
            if count > 0 && self.session.is_mid_pdu() {
                let sum = self.sum(cx, disk, span.part(0, count.into()));
                self.session.arrived(count, sum);
            }
            self.session.receive_ended(device);
        }
        if self.phase != Phase::Open {
            return;
        }
        match completion.result {
            Err(_) => self.disconnect(cx, device),
            Ok(0) if self.session.is_mid_pdu() || self.used < self.input.len() => {
                self.disconnect(cx, device);
            }
            Ok(0) => self.drain(cx, device),
            Ok(_) => {
                self.heard = cx.now;
                self.session.hear();
                self.resize_input(received);
                self.take_pdus(cx, device);
            }
        }
    }

    /// Takes PDUs from the input until it is used up or something has to be waited for, then
    /// receives more unless the initiator does not read.
    fn take_pdus(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        self.needed = 0;
        if !self.is_receiving {
            self.direct = None;
        }
        while self.phase == Phase::Open && !self.is_receiving {
            if self.outbox.is_sending() {
                self.is_blocked = true;
                break;
            }
            let (session, input) = (&mut self.session, &self.input[self.used..]);
            let step = self.outbox.append(|out| session.next(device, input, out));
            let Ok((consumed, step)) = step else { return self.disconnect(cx, device) };
            self.used += consumed;
            match step {
                Step::Done => {}
                Step::NeedMore(bytes) => {
                    self.needed = bytes;
                    break;
                }
                Step::Memory(key) => {
                    if !self.give_memory(cx, device, key) {
                        let session = &mut self.session;
                        self.outbox.append(|out| session.hold(device, key, out));
                    }
                }
                Step::Payload(key, span) => {
                    if !self.take_payload(cx, device, key, span) {
                        break;
                    }
                }
                Step::Leave => {
                    self.drain(cx, device);
                    break;
                }
            }
        }
        self.run_ready(cx, device);
        self.receive(cx);
    }

    /// Moves data of a task from the input to their place; false when they have to be received first.
    fn take_payload(
        &mut self,
        cx: &mut Context<'_>,
        device: &Device,
        key: u32,
        span: Span,
    ) -> bool {
        let unit = self.session.task(key).unit.expect("a task with memory has a unit");
        let disk = device.units[unit].disk;
        let here = &self.input[self.used..];
        let count = here.len().min(span.len as usize);
        if count == 0 {
            self.direct = Some((disk, span));
            return false;
        }
        cx.port(disk).memory.write_at(span.offset, &here[..count]);
        self.used += count;
        let sum = self.sum(cx, disk, span.part(0, count as u64));
        self.session.arrived(count as u32, sum);
        true
    }

    /// The sum of a piece of memory, if the session wants it.
    fn sum(&self, cx: &mut Context<'_>, disk: DiskId, span: Span) -> Option<u32> {
        let wants = self.session.wants_sum();
        wants.then(|| cx.port(disk).memory.crc32c(span.offset, span.len))
    }

    /// Memory for the data of a task, if there is any now.
    fn give_memory(&mut self, cx: &mut Context<'_>, device: &mut Device, key: u32) -> bool {
        let task = self.session.task(key);
        let (wanted, unit) = (task.data.wanted, task.unit.expect("it has data for a unit"));
        let disk = device.units[unit].disk;
        if !self.session.has_room(wanted.into()) || !self.session.may_begin(device, key) {
            return false;
        }
        let memory = match self.session.task(key).medium {
            Some(Medium::Write { range, .. }) => {
                let range = work::first(range, wanted.into());
                cx.write_buffer(disk, range).map(|buffer| Memory {
                    buffer,
                    first: buffer.at(range),
                    second: Span { offset: 0, len: 0 },
                })
            }
            Some(Medium::CompareAndWrite { range, .. }) => work::compare_memory(cx, disk, range),
            ref other => unreachable!("{other:?} wants no memory"),
        };
        let Some(memory) = memory else { return false };
        let session = &mut self.session;
        let held = self.outbox.append(|out| session.give(device, key, memory, wanted.into(), out));
        let mut at = 0;
        while at < held.len() {
            let rest = memory.rest(at as u32);
            let end = held.len().min(at + rest.len as usize);
            cx.port(disk).memory.write_at(rest.offset, &held[at..end]);
            at = end;
        }
        true
    }

    /// Memory for tasks that wait for it, oldest first; true when one got some.
    fn find_memory(&mut self, cx: &mut Context<'_>, device: &mut Device) -> bool {
        let mut found = false;
        while let Some(key) = self.session.wanting(device) {
            if !self.give_memory(cx, device, key) {
                break;
            }
            found = true;
        }
        found
    }

    /// Receives more, unless nothing may be taken.
    fn receive(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Open || self.is_receiving || self.is_blocked {
            return;
        }
        self.input.drain(..self.used);
        self.used = 0;
        let room = self.needed.max(INPUT_MIN).max(self.input.len() + 1);
        self.input.reserve_exact(room.saturating_sub(self.input.len()));
        self.is_partial = self.session.is_mid_pdu() || !self.input.is_empty();
        let first = self.direct.map(|(disk, span)| cx.port(disk).region(span));
        self.session.is_receiving_direct = first.is_some();
        self.is_receiving = true;
        let input = std::mem::take(&mut self.input);
        cx.reactor.recv(self.socket, first, input, self.tokens.recv);
    }

    /// Makes the input as large as what comes.
    fn resize_input(&mut self, received: usize) {
        let capacity = self.input.capacity();
        if self.input.len() == capacity && capacity < INPUT_MAX {
            self.input.reserve_exact(capacity.min(INPUT_MAX - capacity));
        }
        let is_small = received < capacity / 8 && self.input.len() < INPUT_MIN;
        self.small_receives = if is_small { self.small_receives + 1 } else { 0 };
        if self.small_receives > SMALL_RECEIVES && capacity > INPUT_MIN {
            self.small_receives = 0;
            self.input.shrink_to(INPUT_MIN);
        }
    }

    /// Sends what is queued, and copies what the socket does not take.
    fn send(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        if self.phase == Phase::Closed {
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
            cx.reactor.remove_socket(self.socket);
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

    /// Gives memory of tasks back that are gone.
    fn give_back(&mut self, cx: &mut Context<'_>, device: &mut Device) {
        while let Some((unit, buffer)) = self.session.take_released() {
            cx.release(device.units[unit].disk, buffer);
        }
    }

    /// When the initiator has made no progress for too long.
    fn stalls_at(&self) -> Nanos {
        let sends = self.outbox.sending_since().plus(STALL_MAX);
        let receives = match (self.is_partial && self.is_receiving, self.session.pinged()) {
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

    fn tag(&self, key: u32) -> RequestTag {
        RequestTag(u64::from(self.id) << 32 | u64::from(key))
    }
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
