//! One disk on its shard: carries out what its engine asks for.
//!
//! ```text
//!   completion ─► client ──submit──►┌────────┐──Io──► flash, backend
//!   completion ─► flash ──complete─►│ engine │──Copy, Zero, Log──► memory
//!   completion ─► log ────complete─►│        │──Lease, Unlease──► owner of the pool
//!   completion ─► backend ─events──►└────────┘──Reply──► client
//! ```
//! A *turn* is made of rounds. In a round the engine proceeds with all that it was told, its actions are carried
//! out, what there is to send is sent, the engine hears that slot memory is free again, and waiting clients try.
//! Another round follows while there is something to do, because a backend may answer at once; but a turn
//! ends after [`ROUNDS_MAX`], and after a round that wrote to the log, so that the kernel hears of it before
//! the destager goes on. The shard does not wait then.
//!
//! Draining: clients get what is in flight answered and are closed, the engine becomes idle, primary
//! storage is flushed, what the cache holds is recorded, the disk is done. With a write log it is enough that the log is durable: what it holds stays
//! there, and primary storage, which may be dead, is not waited for longer than [`LEAVE_MAX`]. A client that
//! does not take its answers is not waited for longer than [`LEAVE_MAX`].

use std::sync::Arc;

use forebay_backends::{Backend, BackendEvent, BackendIo, Context as BackendContext, TokenRange};
use forebay_core::action::{Action, Actions, Io, IoOp, Reply, ReplyData, Target};
use forebay_core::config::Mode;
use forebay_core::engine::Engine;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_frontends::nbd::Context;
use forebay_io::arena::Arena;
use forebay_io::clock;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::client::Clients;
use super::device::Device;
use super::log::Log;
use super::ring::Ring;
use super::token::{Class, token};
use super::{DiskHandle, Drained, LogEnd, NewClient, NewDisk};
use crate::daemon::api::{DiskStats, Dropped};
use crate::daemon::events::{EventSender, Severity};
use crate::daemon::fence::Trail;
use crate::daemon::pool::owner::Leased;

/// Actions that a batch has room for before its lists grow.
const BATCH: usize = 256;
/// Rounds of a turn at most.
const ROUNDS_MAX: u32 = 16;
/// Time that clients have to take their last answers; less than all of draining may take.
const LEAVE_MAX: Nanos = Nanos::from_millis(3_000);
/// Time that a disk with deferred flushes has to destage at the end; less than all of draining may take.
const DESTAGE_MAX: Nanos = Nanos::from_millis(20_000);
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
    flash: Option<Device>,
    ring: Option<Ring>,
    log: Option<Log>,
    /// Where it is noted when primary storage is written to.
    trail: Option<Arc<Trail>>,
    /// I/Os of flash and log that ended as they were started.
    device_ended: Vec<(IoId, IoStatus)>,
    /// What the engine appends to.
    actions: Actions,
    /// What is being carried out; swapped with `actions`.
    running: Actions,
    clients: Clients,
    /// The last turn ended before everything was done.
    has_more: bool,
    /// The round wrote to the log.
    wrote_log: bool,
    /// Sessions with primary storage that were lost.
    sessions_lost: u64,
    ending: Ending,
    /// Ends when nothing is dirty any more.
    is_detaching: bool,
    /// When draining gives up on clients that do not take their answers.
    leave_by: Nanos,
    /// It was waited for once that long.
    has_waited: bool,
    /// When draining leaves the rest in the log.
    destage_by: Nanos,
    events: EventSender,
}

/// How far draining is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Serving,
    Draining,
    Flushing,
    Flushed(IoStatus),
    /// What the cache holds is recorded for the next run.
    Recording(IoStatus),
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
        handle: DiskHandle,
    ) -> std::io::Result<Disk> {
        let NewDisk { name, engine, memory, mut backend, flash, log, trail, mode } = new;
        let arena = reactor.add_arena(memory.clone())?;
        let mut backend_events = Vec::with_capacity(BATCH);
        let tokens = TokenRange { base: token(Class::Backend, number, 0).0 };
        let mut cx = BackendContext { now, reactor, events: &mut backend_events };
        backend.attach(&mut cx, tokens)?;
        if !backend.properties().read_only {
            backend.submit(&mut cx, flush(FIRST_FLUSH, arena));
        }
        let (mut cache, mut ring) = (None, None);
        if let Some(share) = flash {
            let file = reactor.add_file(share.file)?;
            cache = Some(Device::new(file, share.offset, Class::Flash, number));
            ring = share.ring.map(|share| Ring::new(share, file, number, handle.clone()));
        }
        let log = log.map(|share| Log::new(share, number, handle, reactor)).transpose()?;
        let mut disk = Disk {
            name,
            engine,
            memory,
            arena,
            backend,
            backend_events,
            flash: cache,
            ring,
            log,
            trail,
            device_ended: Vec::new(),
            actions: Actions::with_capacity(BATCH),
            running: Actions::with_capacity(BATCH),
            clients: Clients::new(number),
            has_more: false,
            wrote_log: false,
            sessions_lost: 0,
            ending: Ending::Serving,
            is_detaching: false,
            leave_by: Nanos::NEVER,
            has_waited: false,
            destage_by: Nanos::NEVER,
            events,
        };
        disk.set_mode(now, mode).map_err(std::io::Error::other)?;
        // What a former run left is destaged, and the mode entered, without waiting for a client.
        disk.engine.tick(now, &mut disk.actions);
        Ok(disk)
    }

    /// Asks for a mode.
    ///
    /// # Errors
    /// What it lacks.
    pub(crate) fn set_mode(&mut self, now: Nanos, mode: Mode) -> Result<(), String> {
        if self.engine.config().mode == mode {
            return Ok(());
        }
        self.engine.set_mode(now, mode, &mut self.actions).map_err(|error| error.to_string())
    }

    /// Stops destaging, or goes on.
    pub(crate) fn pause(&mut self, now: Nanos, pause: bool) {
        self.engine.pause_destaging(now, pause, &mut self.actions);
    }

    /// Drops what is cached.
    pub(crate) fn drop_cache(&mut self) -> Dropped {
        let blocks = self.engine.drop_cache();
        Dropped { blocks, block_size: self.engine.config().block_size }
    }

    /// Lets everything be destaged and ends then.
    ///
    /// # Errors
    /// A client is attached.
    pub(crate) fn detach(&mut self, now: Nanos) -> Result<(), String> {
        if self.clients.len() > 0 {
            let count = self.clients.len();
            return Err(format!("{count} clients are attached: detach them from the disk first"));
        }
        self.pause(now, false);
        self.set_mode(now, Mode::WriteThrough)?;
        self.is_detaching = true;
        Ok(())
    }

    /// A segment that was asked for came, or not.
    pub(crate) fn leased(&mut self, now: Nanos, leased: Leased) {
        if !matches!(self.ending, Ending::Done(_)) {
            self.engine.leased(now, leased, &mut self.actions);
        }
    }

    /// The ring is durably known not to be believed, or cannot be.
    pub(crate) fn voided(&mut self, now: Nanos, known: bool) {
        if !matches!(self.ending, Ending::Done(_)) {
            self.engine.voided(now, known, &mut self.actions);
        }
    }

    /// Takes a client over.
    pub(crate) fn connect(&mut self, now: Nanos, reactor: &mut Reactor, client: NewClient) {
        if self.ending != Ending::Serving || self.is_detaching {
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
            Class::Log => {
                let device = &mut self.log.as_mut().expect("its own token").device;
                let (io, status, checksums) = device.finish(index, &completion, &self.memory);
                self.engine.complete(now, io, status, checksums, &mut self.actions);
            }
            Class::Ring => {
                let device = &mut self.ring.as_mut().expect("its own token").device;
                let (io, status, checksums) = device.finish(index, &completion, &self.memory);
                self.engine.complete(now, io, status, checksums, &mut self.actions);
            }
            Class::Progress => {
                let log = self.log.as_mut().expect("its own token");
                let (io, status) = log.noted(&completion);
                self.engine.complete(now, io, status, &[], &mut self.actions);
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
            self.has_waited = true;
            self.clients.give_up(&mut context!(self, now, reactor));
        }
        for _ in 0..ROUNDS_MAX {
            self.run_actions(now, reactor);
            if !self.clients.is_flushed() {
                self.clients.flush(&mut context!(self, now, reactor));
                // Read again: what was sent, was sent after the batch began.
                self.engine.sent(Nanos(clock::now_nanos()));
            }
            self.clients.resume(&mut context!(self, now, reactor));
            self.has_more = self.has_something_to_do();
            if !self.has_more || std::mem::take(&mut self.wrote_log) {
                break;
            }
        }
        if let (Some(trail), Some(at)) = (&self.trail, self.backend.last_write()) {
            trail.note_write(at);
        }
        if self.is_detaching && !self.engine.mode().logs() {
            self.drain(now, reactor);
        }
        self.limit_destaging(now);
        self.has_more |= self.has_something_to_do();
        self.advance_ending(now, reactor);
    }

    /// When the next turn is due at the latest.
    pub(crate) fn next_deadline(&self) -> Nanos {
        if self.is_done() {
            return Nanos::NEVER;
        }
        if self.has_more {
            return Nanos(0);
        }
        let engine = self.engine.next_deadline();
        engine
            .min(self.backend.next_deadline())
            .min(self.clients.next_deadline())
            .min(self.leave_by)
            .min(self.destage_by)
    }

    /// Begins to end; [`Disk::drained`] tells when it has.
    pub(crate) fn drain(&mut self, now: Nanos, reactor: &mut Reactor) {
        if self.ending == Ending::Serving {
            self.ending = Ending::Draining;
            self.leave_by = now.plus(LEAVE_MAX);
            self.clients.close(&mut context!(self, now, reactor));
            self.engine.shut_down(now, &mut self.actions);
            self.destage_by = now.plus(DESTAGE_MAX);
        }
    }

    /// A disk whose flushes are deferred destages before it ends, as long as primary storage is there and time is left.
    fn limit_destaging(&mut self, now: Nanos) {
        let is_late = self.destage_by <= now;
        if is_late {
            self.destage_by = Nanos::NEVER;
        }
        if self.ending != Ending::Draining || !self.engine.destages_at_end() {
            return;
        }
        let why = match self.backend.trouble() {
            Some(why) => why.to_string(),
            None if is_late => "it takes too long".to_owned(),
            None => return,
        };
        let text = format!(
            "not all is destaged before the end: {why}; the rest stays in the write log, and the next start goes on"
        );
        self.report(Severity::Warning, text);
        self.engine.stop_destaging(now, &mut self.actions);
    }

    /// How it ended, once it has.
    pub(crate) fn drained(&self) -> Option<Drained> {
        match self.ending {
            Ending::Done(status) => {
                let is_quiet = self.engine.is_idle();
                let log = self.engine.statistics().log;
                let log =
                    log.map(|log| LogEnd { is_durable: log.is_durable, is_clean: log.is_clean });
                Some(Drained { name: self.name.to_string(), status, log, is_quiet })
            }
            Ending::Serving | Ending::Draining | Ending::Flushing => None,
            Ending::Flushed(_) | Ending::Recording(_) => None,
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

    /// Lets the engine proceed and carries out what it asks for.
    fn run_actions(&mut self, now: Nanos, reactor: &mut Reactor) {
        self.absorb_ended(now);
        self.engine.proceed(now, &mut self.actions);
        std::mem::swap(&mut self.actions, &mut self.running);
        for index in 0..self.running.list.len() {
            match self.running.list[index] {
                Action::Io(io) => self.start_io(now, reactor, io),
                Action::Copy { from, to } => {
                    self.memory.copy_within(from.offset, to.offset, from.len);
                }
                Action::Zero { memory } => self.memory.zero(memory.offset, memory.len),
                Action::Log(index) => {
                    let log = self.log.as_mut().expect("the engine has a log only with one");
                    log.build(self.running.log[index as usize], &self.memory);
                }
                Action::Lease => self.log.as_ref().expect("as above").lease(),
                Action::Unlease(segment) => {
                    self.log.as_ref().expect("as above").unlease(segment);
                }
                Action::Ring { memory } => {
                    Ring::copy(self.engine.ring_pages(), memory, &self.memory);
                }
                Action::Void => {
                    self.ring.as_ref().expect("the engine has a ring only with one").void();
                }
                Action::Reply(reply) => self.reply(now, reactor, &reply),
                Action::Event(event) => {
                    let (severity, text) = super::event::describe(event);
                    self.report(severity, text);
                }
            }
        }
        self.running.clear();
    }

    fn has_something_to_do(&self) -> bool {
        !self.actions.list.is_empty()
            || !self.backend_events.is_empty()
            || !self.device_ended.is_empty()
            || !self.clients.is_flushed()
            || self.engine.wants_to_proceed()
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
                    self.device_ended.push((io.id, status));
                }
            }
            Target::Ring => {
                let ring = self.ring.as_mut().expect("the engine has a ring only with one");
                if let Some(status) = ring.start(io, reactor, self.arena, &self.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
            Target::Log => {
                self.wrote_log |= matches!(io.op, IoOp::Write { .. });
                let log = self.log.as_mut().expect("the engine has a log only with one");
                if let Some(status) = log.start(io, reactor, self.arena, &self.memory) {
                    self.device_ended.push((io.id, status));
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
        for (io, status) in self.device_ended.drain(..) {
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
        let is_quiet = !self.has_more
            && self.clients.len() == 0
            && !self.engine.destages_at_end()
            && (self.engine.is_idle() || self.has_waited && self.is_safe_in_log());
        if self.ending == Ending::Draining && is_quiet {
            self.ending = Ending::Flushed(IoStatus::Ok);
            // What the log holds is durable there; primary storage is flushed before it is forgotten.
            if !self.backend.properties().read_only && !self.engine.mode().logs() {
                self.ending = Ending::Flushing;
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor: &mut *reactor, events };
                self.backend.submit(&mut cx, flush(FINAL_FLUSH, self.arena));
                self.absorb_ended(now);
            }
        }
        if let Ending::Flushed(status) = self.ending {
            self.ending = Ending::Recording(status);
            let flushed = status.is_ok() && !self.engine.mode().logs();
            self.engine.close_ring(now, flushed, &mut self.actions);
            self.has_more |= self.has_something_to_do();
        }
        // The log may be given up after this, so that the ring has to know what it dropped, or to be void.
        if let Ending::Recording(status) = self.ending
            && self.engine.is_ring_closed()
        {
            let events = &mut self.backend_events;
            self.backend.detach(&mut BackendContext { now, reactor, events });
            self.trail = None;
            self.ending = Ending::Done(status);
        }
    }

    /// True when all that is missing is primary storage's, and the log will write it there again.
    fn is_safe_in_log(&self) -> bool {
        let statistics = self.engine.statistics();
        let is_durable = statistics.log.is_some_and(|log| log.is_durable);
        self.engine.mode().logs() && is_durable && statistics.requests_in_flight == 0
    }

    fn report(&self, severity: Severity, text: String) {
        self.events.report(Some(&self.name), severity, text);
    }
}

/// A flush of primary storage.
fn flush(id: IoId, arena: ArenaId) -> BackendIo {
    BackendIo { id, range: ByteRange::at(0, 0), op: IoOp::Flush, arena }
}
