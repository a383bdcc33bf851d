//! One disk on its shard: carries out what its engine asks for.
//!
//! ```text
//!   completion ─► client ──submit──►┌────────┐──Io──► flash, backend
//!   completion ─► flash ──complete─►│ engine │──Copy, Zero──► memory
//!   completion ─► backend ─events──►└────────┘──Reply──► client
//! ```
//! A *turn* runs actions until none is left (a backend may answer at once, which gives new ones), sends
//! on every connection that has something, tells the engine that slot memory is free again, and lets
//! waiting clients try. It ends because each round consumes what clients sent before the turn.
//!
//! Draining: clients get what is in flight answered and are closed, the engine becomes idle, primary
//! storage is flushed and let go of, the disk is done. A client that does not take its answers is not waited for longer
//! than [`LEAVE_MAX`].

use std::sync::Arc;

use forebay_backends::{Backend, BackendEvent, BackendIo, Context as BackendContext, TokenRange};
use forebay_core::action::{Action, Actions, Io, IoOp, Reply, ReplyData, Target};
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_frontends::nbd::Context;
use forebay_io::arena::Arena;
use forebay_io::clock;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::client::Clients;
use super::flash::Flash;
use super::token::{Class, token};
use super::{Drained, NewClient, NewDisk};
use crate::daemon::api::DiskStats;
use crate::daemon::events::{EventSender, Severity};

/// Actions that a batch has room for before its lists grow.
const BATCH: usize = 256;
/// Time that clients have to take their last answers; less than all of draining may take.
const LEAVE_MAX: Nanos = Nanos::from_millis(3_000);
/// The I/O that flushes primary storage at the end. The engine never uses this number: its lower half is a
/// place in a table far smaller; nor do wrapping backends, who count down from the highest.
const FINAL_FLUSH: IoId = IoId(u32::MAX as u64);
/// The I/O that flushes primary storage at the start: a predecessor that was killed may have acknowledged
/// writes that nobody has flushed.
const FIRST_FLUSH: IoId = IoId(u32::MAX as u64 - 1);

/// See the module.
pub(crate) struct Disk {
    name: Arc<str>,
    engine: Engine,
    memory: Arc<Arena>,
    arena: ArenaId,
    backend: Box<dyn Backend>,
    backend_events: Vec<BackendEvent>,
    flash: Option<Flash>,
    /// Flash I/Os that ended as they were started.
    flash_ended: Vec<(IoId, IoStatus)>,
    /// What the engine appends to.
    actions: Actions,
    /// What is being carried out; swapped with `actions`.
    running: Actions,
    clients: Clients,
    /// Sessions with primary storage that were lost.
    sessions_lost: u64,
    ending: Ending,
    /// When draining gives up on clients that do not take their answers.
    leave_by: Nanos,
    events: EventSender,
}

/// How far draining is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Serving,
    Draining,
    Flushing,
    Flushed(IoStatus),
    /// Primary storage is let go of; nothing happens any more.
    Done(IoStatus),
}

/// The frontend's view of the disk; a macro, because clients are borrowed beside it.
macro_rules! context {
    ($disk:ident, $now:expr, $reactor:expr) => {
        Context {
            now: $now,
            engine: &mut $disk.engine,
            reactor: $reactor,
            arena: $disk.arena,
            actions: &mut $disk.actions,
        }
    };
}

impl Disk {
    /// Registers everything with the shard's reactor.
    pub(crate) fn attach(
        new: NewDisk,
        number: u32,
        now: Nanos,
        reactor: &mut Reactor,
        events: EventSender,
    ) -> std::io::Result<Disk> {
        let NewDisk { name, engine, memory, mut backend, flash } = new;
        let arena = reactor.add_arena(memory.clone())?;
        let mut backend_events = Vec::with_capacity(BATCH);
        let tokens = TokenRange { base: token(Class::Backend, number, 0).0 };
        let mut cx = BackendContext { now, reactor, events: &mut backend_events };
        backend.attach(&mut cx, tokens)?;
        if !backend.properties().read_only {
            backend.submit(&mut cx, flush(FIRST_FLUSH, arena));
        }
        let flash = match flash {
            None => None,
            Some(share) => Some(Flash::new(reactor.add_file(share.file)?, share.offset, number)),
        };
        Ok(Disk {
            name,
            engine,
            memory,
            arena,
            backend,
            backend_events,
            flash,
            flash_ended: Vec::new(),
            actions: Actions::with_capacity(BATCH),
            running: Actions::with_capacity(BATCH),
            clients: Clients::new(number),
            sessions_lost: 0,
            ending: Ending::Serving,
            leave_by: Nanos::NEVER,
            events,
        })
    }

    /// Takes a client over.
    pub(crate) fn connect(&mut self, now: Nanos, reactor: &mut Reactor, client: NewClient) {
        if self.ending != Ending::Serving {
            return;
        }
        let mut cx = context!(self, now, reactor);
        if let Err(error) = self.clients.add(&mut cx, client) {
            self.report(Severity::Warning, format!("a client was dropped: {error}"));
        }
    }

    /// An operation of this disk has finished.
    pub(crate) fn on_completion(
        &mut self,
        now: Nanos,
        reactor: &mut Reactor,
        class: Class,
        index: u64,
        completion: Completion,
    ) {
        if self.is_done() {
            return;
        }
        match class {
            Class::Connection => {
                let mut cx = context!(self, now, reactor);
                self.clients.on_completion(&mut cx, index, completion);
            }
            Class::Flash => {
                let flash = self.flash.as_mut().expect("its own token");
                let (io, status, checksums) = flash.finish(index, &completion, &self.memory);
                self.engine.complete(now, io, status, checksums, &mut self.actions);
            }
            Class::Backend => {
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor, events };
                self.backend.on_completion(&mut cx, completion);
            }
        }
    }

    /// Everything that is to be done now; see the module.
    pub(crate) fn turn(&mut self, now: Nanos, reactor: &mut Reactor) {
        if self.is_done() {
            return;
        }
        let events = &mut self.backend_events;
        self.backend.on_wake(&mut BackendContext { now, reactor, events });
        if self.engine.next_deadline() <= now {
            self.engine.tick(now, &mut self.actions);
        }
        self.clients.tick(&mut context!(self, now, reactor));
        if self.leave_by <= now {
            self.leave_by = now.plus(LEAVE_MAX);
            self.clients.give_up(&mut context!(self, now, reactor));
        }
        loop {
            self.run_actions(now, reactor);
            if !self.clients.is_flushed() {
                self.clients.flush(&mut context!(self, now, reactor));
                // Read again: what was sent, was sent after the batch began.
                self.engine.sent(Nanos(clock::now_nanos()));
            }
            self.clients.resume(&mut context!(self, now, reactor));
            if self.actions.list.is_empty()
                && self.backend_events.is_empty()
                && self.clients.is_flushed()
            {
                break;
            }
        }
        self.advance_ending(now, reactor);
    }

    /// When the next turn is due at the latest.
    pub(crate) fn next_deadline(&self) -> Nanos {
        if self.is_done() {
            return Nanos::NEVER;
        }
        let engine = self.engine.next_deadline();
        engine
            .min(self.backend.next_deadline())
            .min(self.clients.next_deadline())
            .min(self.leave_by)
    }

    /// Begins to end; [`Disk::drained`] tells when it has.
    pub(crate) fn drain(&mut self, now: Nanos, reactor: &mut Reactor) {
        if self.ending == Ending::Serving {
            self.ending = Ending::Draining;
            self.leave_by = now.plus(LEAVE_MAX);
            self.clients.close(&mut context!(self, now, reactor));
            self.engine.shut_down();
        }
    }

    /// How it ended, once it has.
    pub(crate) fn drained(&self) -> Option<Drained> {
        match self.ending {
            Ending::Done(status) => Some(Drained { name: self.name.to_string(), status }),
            Ending::Serving | Ending::Draining | Ending::Flushing | Ending::Flushed(_) => None,
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.ending, Ending::Done(_))
    }

    /// How the disk is.
    pub(crate) fn stats(&self) -> DiskStats {
        let primary_storage = match self.backend.trouble() {
            None => "connected".to_owned(),
            Some(why) => format!("lost: {why}; I/O waits"),
        };
        DiskStats {
            name: self.name.to_string(),
            connections: self.clients.len() as u32,
            connections_waiting: self.clients.waiting() as u32,
            primary_storage,
            sessions_lost: self.sessions_lost,
            engine: self.engine.statistics(),
        }
    }

    /// Carries out actions, and those that they lead to, until none is left.
    fn run_actions(&mut self, now: Nanos, reactor: &mut Reactor) {
        loop {
            self.absorb_ended(now);
            if self.actions.list.is_empty() {
                return;
            }
            std::mem::swap(&mut self.actions, &mut self.running);
            for index in 0..self.running.list.len() {
                match self.running.list[index] {
                    Action::Io(io) => self.start_io(now, reactor, io),
                    Action::Copy { from, to } => {
                        self.memory.copy_within(from.offset, to.offset, from.len);
                    }
                    Action::Zero { memory } => self.memory.zero(memory.offset, memory.len),
                    Action::Reply(reply) => self.reply(now, reactor, &reply),
                    Action::Event(event) => {
                        let (severity, text) = super::event::describe(event);
                        self.report(severity, text);
                    }
                }
            }
            self.running.clear();
        }
    }

    fn start_io(&mut self, now: Nanos, reactor: &mut Reactor, io: Io) {
        match io.target {
            Target::Backend => {
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor, events };
                let io = BackendIo { id: io.id, range: io.range, op: io.op, arena: self.arena };
                self.backend.submit(&mut cx, io);
            }
            Target::Flash => {
                let flash =
                    self.flash.as_mut().expect("the engine has a flash tier only with flash");
                if let Some(status) = flash.start(io, reactor, self.arena, &self.memory) {
                    self.flash_ended.push((io.id, status));
                }
            }
        }
    }

    fn reply(&mut self, now: Nanos, reactor: &mut Reactor, reply: &Reply) {
        let mut cx = context!(self, now, reactor);
        match self.clients.of_reply(reply.tag) {
            Some(connection) => {
                connection.on_reply(&mut cx, reply, &self.running.slices, &self.running.extents);
            }
            None => {
                debug_assert!(false, "a reply to nobody: {reply:?}");
                if let ReplyData::Buffer { buffer, .. } = reply.data {
                    self.engine.release(now, buffer, &mut self.actions);
                }
            }
        }
    }

    /// Tells the engine of I/Os that ended without a completion of the reactor.
    fn absorb_ended(&mut self, now: Nanos) {
        for (io, status) in self.flash_ended.drain(..) {
            self.engine.complete(now, io, status, &[], &mut self.actions);
        }
        let mut events = std::mem::take(&mut self.backend_events);
        for event in events.drain(..) {
            match event {
                BackendEvent::Done { id: FINAL_FLUSH, status } => {
                    self.ending = Ending::Flushed(status);
                }
                BackendEvent::Done { id: FIRST_FLUSH, status } if !status.is_ok() => {
                    let text = "primary storage failed the first flush: what a former run wrote may be lost";
                    self.report(Severity::Error, text.to_owned());
                }
                BackendEvent::Done { id: FIRST_FLUSH, .. } => {}
                BackendEvent::Done { id, status } => {
                    self.engine.complete(now, id, status, &[], &mut self.actions);
                }
                BackendEvent::Extents { id, extents } => {
                    self.engine.complete_extents(now, id, &extents, &mut self.actions);
                }
                BackendEvent::SessionLost => {
                    self.sessions_lost += 1;
                    self.engine.on_session_lost(now, &mut self.actions);
                    let text = "the connection to primary storage was lost; it is being restored";
                    self.report(Severity::Error, text.to_owned());
                }
                BackendEvent::SessionRestored => {
                    let text = "the connection to primary storage is restored";
                    self.report(Severity::Info, text.to_owned());
                }
            }
        }
        self.backend_events = events;
    }

    /// Goes on with draining, when there is nothing in flight any more.
    fn advance_ending(&mut self, now: Nanos, reactor: &mut Reactor) {
        let is_quiet = self.clients.len() == 0 && self.engine.is_idle();
        if self.ending == Ending::Draining && is_quiet {
            self.ending = Ending::Flushed(IoStatus::Ok);
            if !self.backend.properties().read_only {
                self.ending = Ending::Flushing;
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor: &mut *reactor, events };
                self.backend.submit(&mut cx, flush(FINAL_FLUSH, self.arena));
                self.absorb_ended(now);
            }
        }
        if let Ending::Flushed(status) = self.ending {
            let events = &mut self.backend_events;
            self.backend.detach(&mut BackendContext { now, reactor, events });
            self.ending = Ending::Done(status);
        }
    }

    fn report(&self, severity: Severity, text: String) {
        self.events.report(Some(&self.name), severity, text);
    }
}

/// A flush of primary storage.
fn flush(id: IoId, arena: ArenaId) -> BackendIo {
    BackendIo { id, range: ByteRange::at(0, 0), op: IoOp::Flush, arena }
}
