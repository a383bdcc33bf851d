//! One disk on its shard: carries out what its engine asks for.
//!
//! ```text
//!   client ───────submit, release──►┌────────┐──Io──► flash, backend
//!   completion ─► flash ──complete─►│ engine │──Copy, Zero, Log──► memory
//!   memory ───────────────compared─►│        │──Compare──► memory
//!   completion ─► log ────complete─►│        │──Lease, Unlease──► owner of the pool
//!   completion ─► backend ─events──►└────────┘──Reply──► client
//! ```
//! The shard's loop lets it begin a turn, carry out what the engine asks for until nothing is left, and end the turn
//! (`run.rs`).
//!
//! Draining: clients get what is in flight answered and are closed, the engine becomes idle, primary
//! storage is flushed, what the cache holds is recorded, the disk is done. With a write log it is enough that the log is durable: what it holds stays
//! there, and primary storage, which may be dead, is not waited for longer than [`LEAVE_MAX`]; only what is destaged is flushed and noted, for up to
//! [`DESTAGE_MAX`], because the cache and the next start believe in nothing that was under way at the end. A client that
//! does not take its answers is not waited for longer than [`LEAVE_MAX`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_backends::{Backend, BackendEvent, BackendIo, Context as BackendContext, TokenRange};
use forebay_core::action::{Action, Actions, Io, IoOp, Target};
use forebay_core::config::Mode;
use forebay_core::engine::{ConfigError, Growth};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_frontends::client::Port;
use forebay_host::events::{EventSender, Severity};
use forebay_host::fence::UnreportedLoss;
use forebay_host::pool::owner::Leased;
use forebay_io::arena::Arena;
use forebay_io::clock;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::answers::Waiting;
use super::detach::Detaching;
use super::device::Device;
use super::log::Log;
use super::registration::Registration;
use super::ring::Ring;
use super::status::{DiskStatus, PrimaryState};
use super::token::{Class, token};
use super::{DiskHandle, Drained, LogEnd, NewDisk};

/// Actions that a batch has room for before its lists grow.
const BATCH: usize = 256;
/// Time that clients have to take their last answers; less than all of draining may take.
const LEAVE_MAX: Nanos = Nanos::from_millis(3_000);
/// Time that a disk has at the end to flush and note what it has destaged, and with deferred flushes to destage; less than all
/// of draining may take.
const DESTAGE_MAX: Nanos = Nanos::from_millis(20_000);
/// The I/O that flushes primary storage at the end. The engine never uses this number: its lower half is a
/// place in a table far smaller; nor do wrapping backends, who count down from the highest.
const FINAL_FLUSH: IoId = IoId(u32::MAX as u64);
/// The I/O that flushes primary storage at the start: a predecessor that was killed may have acknowledged
/// writes that nobody has flushed.
const FIRST_FLUSH: IoId = IoId(u32::MAX as u64 - 1);

/// See the module.
pub(crate) struct ShardDisk {
    pub(super) name: Arc<str>,
    /// What its clients use: engine, memory, and what the engine appends to.
    pub(super) port: Port,
    backend: Box<dyn Backend>,
    backend_events: Vec<BackendEvent>,
    flash: Option<Device>,
    ring: Option<Ring>,
    log: Option<Log>,
    unreported_loss: UnreportedLoss,
    /// I/Os of flash and log that ended as they were started.
    device_ended: Vec<(IoId, IoStatus)>,
    /// What is being carried out; swapped with the port's.
    running: Actions,
    /// The last turn ended before everything was done.
    has_more: bool,
    /// The engine answered, and was not told that what its answers refer to is sent.
    has_replied: bool,
    /// This turn wrote to the log.
    wrote_log: bool,
    /// Sessions with primary storage that were lost.
    sessions_lost: u64,
    ending: Ending,
    /// What the reactor has of it, until it has ended.
    registered: Registration,
    /// Whether it ends when nothing is dirty any more.
    pub(super) detaching: Detaching,
    pub(super) waiting: Waiting,
    /// Whether clients may come, for those who let them in.
    is_open: Arc<AtomicBool>,
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

impl ShardDisk {
    /// Registers everything with the shard's reactor; nothing stays there when it fails.
    ///
    /// # Errors
    /// The kernel's or the backend's, or what the mode lacks.
    pub(crate) fn attach(
        new: NewDisk,
        number: u32,
        now: Nanos,
        reactor: &mut Reactor,
        events: EventSender,
        handle: DiskHandle,
    ) -> std::io::Result<ShardDisk> {
        let mode = new.mode;
        let mut registered = Registration::default();
        let disk = ShardDisk::register(new, number, reactor, &mut registered, events, handle);
        let attached = disk.and_then(|mut disk| {
            disk.set_mode(now, mode).map_err(std::io::Error::other)?;
            disk.begin(now, number, reactor)?;
            Ok(disk)
        });
        match attached {
            Ok(disk) => Ok(ShardDisk { registered, ..disk }),
            Err(error) => {
                registered.undo(reactor);
                Err(error)
            }
        }
    }

    /// Registers everything but primary storage.
    fn register(
        new: NewDisk,
        number: u32,
        reactor: &mut Reactor,
        registered: &mut Registration,
        events: EventSender,
        handle: DiskHandle,
    ) -> std::io::Result<ShardDisk> {
        let NewDisk {
            name,
            mut engine,
            memory,
            mut backend,
            last_write,
            unreported_loss,
            access,
            ..
        } = new;
        if let Some(last_write) = last_write {
            backend.tell_of_writes(last_write);
        }
        if unreported_loss.is_noted() {
            engine.remember_untold_loss();
        }
        let arena = registered.arena(reactor, memory.clone())?;
        let is_open = handle.is_open.clone();
        let (mut flash, mut ring) = (None, None);
        if let Some(share) = new.flash {
            let file = registered.file(reactor, share.file)?;
            flash = Some(Device::new(file, share.offset, Class::Flash, number));
            ring = share.ring.map(|share| Ring::new(share, file, number, handle.clone()));
        }
        let log = new.log.map(|share| Log::new(share, number, handle, reactor, registered));
        let log = log.transpose()?;
        memory.own();
        Ok(ShardDisk {
            name,
            port: Port { engine, memory, arena, actions: Actions::with_capacity(BATCH), access },
            backend,
            backend_events: Vec::with_capacity(BATCH),
            flash,
            ring,
            log,
            unreported_loss,
            device_ended: Vec::new(),
            running: Actions::with_capacity(BATCH),
            has_more: false,
            has_replied: false,
            wrote_log: false,
            sessions_lost: 0,
            ending: Ending::Serving,
            registered: Registration::default(),
            detaching: Detaching::No("nobody asked for it"),
            waiting: Waiting::default(),
            is_open,
            leave_by: Nanos::NEVER,
            has_waited: false,
            destage_by: Nanos::NEVER,
            events,
        })
    }

    /// Attaches primary storage, after all else that can fail: what is sent to it completes for this number.
    fn begin(&mut self, now: Nanos, number: u32, reactor: &mut Reactor) -> std::io::Result<()> {
        let tokens = TokenRange { base: token(Class::Backend, number, 0).0 };
        let mut cx = BackendContext { now, reactor, events: &mut self.backend_events };
        if let Err(error) = self.backend.attach(&mut cx, tokens) {
            self.backend.detach(&mut cx);
            return Err(error);
        }
        if !self.backend.properties().read_only {
            self.backend.submit(&mut cx, flush(FIRST_FLUSH, self.port.arena));
            self.unreported_loss.hold(true);
        }
        // What a former run left is destaged, and the mode entered, without waiting for a client.
        let Port { engine, actions, .. } = &mut self.port;
        engine.tick(now, actions);
        Ok(())
    }

    /// Asks for a mode.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn set_mode(&mut self, now: Nanos, mode: Mode) -> Result<(), String> {
        self.port
            .engine
            .set_mode(now, mode, &mut self.port.actions)
            .map_err(|error| error.to_string())
    }

    /// Stops destaging, or goes on.
    pub(super) fn pause(&mut self, now: Nanos, pause: bool) {
        self.port.engine.pause_destaging(now, pause, &mut self.port.actions);
    }

    /// How long primary storage is, by itself or `looked` at; the disk can be, too.
    pub(crate) fn measure(&self, looked: Option<u64>) -> Result<Option<u64>, ConfigError> {
        let length = self.backend.length().or(looked);
        length.map_or(Ok(()), |length| self.port.engine.check_growth(length))?;
        Ok(length)
    }

    /// The disk is to have so many bytes.
    pub(crate) fn grow(&mut self, size: u64) -> Result<Growth, ConfigError> {
        let growth = self.port.engine.grow(size)?;
        if growth == Growth::Done && size > self.backend.properties().size {
            self.backend.lengthen(size);
        }
        Ok(growth)
    }

    /// A segment that was asked for came, or not.
    pub(crate) fn leased(&mut self, now: Nanos, leased: Leased) {
        // What comes to a disk that has ended is given back when its record is closed.
        if !self.is_done() {
            let leased = self.log.as_mut().expect("it asked for a lease").leased(leased);
            self.port.engine.leased(now, leased, &mut self.port.actions);
        }
    }

    /// The ring is durably known not to be believed, or cannot be.
    pub(crate) fn voided(&mut self, now: Nanos, known: bool) {
        if !matches!(self.ending, Ending::Done(_)) {
            self.port.engine.voided(now, known, &mut self.port.actions);
        }
    }

    /// No later start goes on with the log, whose flash is dead; or nobody can know.
    pub(crate) fn revoked(&mut self, now: Nanos, known: bool) {
        if !matches!(self.ending, Ending::Done(_)) {
            self.port.engine.revoked(now, known, &mut self.port.actions);
        }
    }

    /// True when clients may come.
    pub(crate) fn takes_clients(&self) -> bool {
        !self.is_ending() && !self.is_detaching()
    }

    /// Tells those who let clients in whether they may come.
    pub(super) fn tell_clients(&self) {
        self.is_open.store(self.takes_clients(), Ordering::Relaxed);
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
            Class::Client => unreachable!("a client is the shard's"),
            Class::Flash => {
                let flash = self.flash.as_mut().expect("its own token");
                let (io, status, checksums) = flash.finish(index, &completion, &self.port.memory);
                self.port.engine.complete(now, io, status, checksums, &mut self.port.actions);
            }
            Class::Log => {
                let device = &mut self.log.as_mut().expect("its own token").device;
                let (io, status, checksums) = device.finish(index, &completion, &self.port.memory);
                self.port.engine.complete(now, io, status, checksums, &mut self.port.actions);
            }
            Class::Ring => {
                let device = &mut self.ring.as_mut().expect("its own token").device;
                let (io, status, checksums) = device.finish(index, &completion, &self.port.memory);
                self.port.engine.complete(now, io, status, checksums, &mut self.port.actions);
            }
            Class::Progress => {
                let log = self.log.as_mut().expect("its own token");
                let (io, status) = log.noted(&completion);
                self.port.engine.complete(now, io, status, &[], &mut self.port.actions);
            }
            Class::Backend => {
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor, events };
                self.backend.on_completion(&mut cx, completion);
            }
        }
    }

    /// True once it drains.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending != Ending::Serving
    }

    /// A turn begins: what the passing of time brings.
    pub(crate) fn begin_turn(&mut self, now: Nanos, reactor: &mut Reactor) {
        let events = &mut self.backend_events;
        self.backend.on_wake(&mut BackendContext { now, reactor, events });
        let Port { engine, actions, .. } = &mut self.port;
        if engine.next_deadline() <= now {
            engine.tick(now, actions);
        }
        self.wrote_log = false;
    }

    /// True when its clients are not to be waited for any longer, each time that one has waited for long.
    pub(crate) fn gives_clients_up(&mut self, now: Nanos) -> bool {
        let gives_up = self.leave_by <= now;
        if gives_up {
            self.leave_by = now.plus(LEAVE_MAX);
            self.has_waited = true;
        }
        gives_up
    }

    /// True when there is something to carry out in this turn.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_done() && !self.wrote_log && self.has_something_to_do()
    }

    /// Lets the engine proceed: what it asks for, to be carried out and given back.
    pub(crate) fn proceed(&mut self, now: Nanos) -> Actions {
        self.absorb_ended(now);
        let Port { engine, actions, .. } = &mut self.port;
        engine.proceed(now, actions);
        self.follow_loss();
        std::mem::replace(&mut self.port.actions, std::mem::take(&mut self.running))
    }

    /// Before anybody hears of anything.
    fn follow_loss(&mut self) {
        let engine = &self.port.engine;
        let (is_unreported, told) = (engine.has_untold_loss(), engine.losses_told());
        self.unreported_loss
            .follow(is_unreported, told, engine.flushes(), || engine.flushes_under_way());
    }

    /// What [`ShardDisk::proceed`] returned is carried out; its memory is used again.
    pub(crate) fn carried_out(&mut self, mut actions: Actions) {
        actions.clear();
        self.running = actions;
    }

    /// What the engine's answers refer to is sent.
    pub(crate) fn sent(&mut self) {
        if std::mem::take(&mut self.has_replied) {
            // Read again: what was sent, was sent after the turn began.
            self.port.engine.sent(Nanos(clock::now_nanos()));
        }
    }

    /// A turn ends, with so many clients; true when the disk is to drain.
    pub(crate) fn end_turn(&mut self, now: Nanos, reactor: &mut Reactor, clients: usize) -> bool {
        self.limit_destaging(now);
        self.has_more = self.has_something_to_do();
        self.advance_ending(now, reactor, clients);
        self.advance_detach(now)
    }

    /// When the next turn is due at the latest.
    pub(crate) fn next_deadline(&self) -> Nanos {
        if self.is_done() {
            return Nanos::NEVER;
        }
        if self.has_more {
            return Nanos(0);
        }
        let engine = self.port.engine.next_deadline();
        engine.min(self.backend.next_deadline()).min(self.leave_by).min(self.destage_by)
    }

    /// Begins to end, as its clients are told to; [`ShardDisk::drained`] tells when it has.
    pub(crate) fn drain(&mut self, now: Nanos) {
        if self.ending == Ending::Serving {
            self.ending = Ending::Draining;
            self.tell_clients();
            self.leave_by = now.plus(LEAVE_MAX);
            self.port.engine.shut_down(now, &mut self.port.actions);
            self.destage_by = now.plus(DESTAGE_MAX);
            self.has_more = true;
        }
    }

    /// What is destaged is flushed and noted before a disk ends, and one whose flushes are deferred destages, as long as primary
    /// storage is there and time is left.
    fn limit_destaging(&mut self, now: Nanos) {
        let is_late = self.destage_by <= now;
        if is_late {
            self.destage_by = Nanos::NEVER;
        }
        let engine = &self.port.engine;
        let destages = engine.destages_at_end();
        if self.ending != Ending::Draining || !(destages || engine.settles_at_end()) {
            return;
        }
        let why = match self.backend.trouble() {
            Some(why) => why.to_string(),
            None if is_late => "it takes too long".to_owned(),
            None => return,
        };
        if destages {
            let text = format!(
                "not all is destaged before the end: {why}; the rest stays in the write log, and the next start goes on"
            );
            self.report(Severity::Warning, text);
        }
        self.port.engine.stop_destaging(now, &mut self.port.actions);
    }

    /// How it ended, once it has.
    pub(crate) fn drained(&self) -> Option<Drained> {
        match self.ending {
            Ending::Done(status) => {
                let statistics = self.port.engine.statistics(Nanos(0));
                let log = statistics.log.map(|log| LogEnd {
                    is_durable: log.is_durable,
                    is_clean: log.is_clean,
                    is_lost: log.is_lost,
                    reads_failed: log.reads_failed,
                    dirty_bytes: log.dirty_bytes,
                });
                Some(Drained {
                    name: self.name.to_string(),
                    status,
                    unflushed_bytes: statistics.unflushed_bytes,
                    has_unreported_loss: self.port.engine.has_untold_loss(),
                    log_end: self.port.engine.log_end(),
                    log,
                    is_detaching: self.is_detaching(),
                    is_quiet: self.port.engine.is_idle(),
                })
            }
            Ending::Serving | Ending::Draining | Ending::Flushing => None,
            Ending::Flushed(_) | Ending::Recording(_) => None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.ending, Ending::Done(_))
    }

    /// How the disk is, with so many clients, of which some wait.
    pub(crate) fn status(&self, now: Nanos, clients: usize, waiting: usize) -> DiskStatus {
        let mut engine = self.port.engine.statistics(now);
        let primary_trouble = self.backend.trouble().map(str::to_owned);
        if let (Some(log), Some(_)) = (&mut engine.log, &primary_trouble) {
            log.note_primary_storage_lost();
        }
        let primary_storage = match primary_trouble {
            Some(_) => PrimaryState::Lost,
            None if self.backend.holds_changes() => PrimaryState::HoldsWrites,
            None if !engine.primary_errors.is_empty() => PrimaryState::Fails,
            None => PrimaryState::Connected,
        };
        DiskStatus {
            name: self.name.to_string(),
            connections: clients as u32,
            connections_waiting: waiting as u32,
            primary_storage,
            primary_trouble,
            sessions_lost: self.sessions_lost,
            is_detaching: self.is_detaching(),
            engine,
        }
    }

    /// Carries out one action; replies are the shard's.
    pub(crate) fn carry_out(
        &mut self,
        now: Nanos,
        reactor: &mut Reactor,
        actions: &Actions,
        action: Action,
    ) {
        match action {
            Action::Io(io) => self.start_io(now, reactor, io),
            Action::Copy { from, to } => {
                self.port.memory.copy_within(from.offset, to.offset, from.len);
            }
            Action::Zero { memory } => self.port.memory.zero(memory.offset, memory.len),
            Action::Compare { id, found, expected } => {
                let (found, expected, len) = (found.offset, expected.offset, found.len);
                let difference = self.port.memory.first_difference(found, expected, len);
                self.port.engine.compared(now, id, difference, &mut self.port.actions);
            }
            Action::Log(index) => {
                let log = self.log.as_mut().expect("the engine has a log only with one");
                log.build(actions.log[index as usize], &self.port.memory);
            }
            Action::Lease => self.log.as_ref().expect("as above").lease(),
            Action::Unlease(segment) => {
                if !self.log.as_mut().expect("as above").unlease(segment) {
                    let text = format!("it gave back segment {} of the flash twice", segment.0);
                    self.report(Severity::Error, text);
                }
            }
            Action::Ring { memory } => {
                Ring::copy(self.port.engine.ring_pages(), memory, &self.port.memory);
            }
            Action::Revoke => {
                if !self.log.as_ref().expect("as above").revoke() {
                    self.revoked(now, false);
                }
            }
            Action::Void => {
                self.ring.as_ref().expect("the engine has a ring only with one").void();
            }
            Action::Event(event) => {
                let (severity, text) = super::event::describe(event);
                self.report(severity, text);
            }
            Action::Reply(_) => self.has_replied = true,
        }
    }

    fn has_something_to_do(&self) -> bool {
        !self.port.actions.list.is_empty()
            || !self.backend_events.is_empty()
            || !self.device_ended.is_empty()
            || self.port.engine.wants_to_proceed()
    }

    fn start_io(&mut self, now: Nanos, reactor: &mut Reactor, io: Io) {
        match io.target {
            Target::Backend => {
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor, events };
                let io =
                    BackendIo { id: io.id, range: io.range, op: io.op, arena: self.port.arena };
                self.backend.submit(&mut cx, io);
            }
            Target::Flash => {
                let flash =
                    self.flash.as_mut().expect("the engine has a flash tier only with flash");
                if let Some(status) = flash.start(io, reactor, self.port.arena, &self.port.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
            Target::Ring => {
                let ring = self.ring.as_mut().expect("the engine has a ring only with one");
                if let Some(status) = ring.start(io, reactor, self.port.arena, &self.port.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
            Target::Log => {
                self.wrote_log |= matches!(io.op, IoOp::Write { .. });
                let log = self.log.as_mut().expect("the engine has a log only with one");
                if let Some(status) = log.start(io, reactor, self.port.arena, &self.port.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
        }
    }

    /// Tells the engine of I/Os that ended without a completion of the reactor.
    fn absorb_ended(&mut self, now: Nanos) {
        for (io, status) in self.device_ended.drain(..) {
            self.port.engine.complete(now, io, status, &[], &mut self.port.actions);
        }
        let mut events = std::mem::take(&mut self.backend_events);
        for event in events.drain(..) {
            match event {
                BackendEvent::Done { id: FINAL_FLUSH, status } => {
                    if !matches!(status, IoStatus::Ok | IoStatus::Unsupported) {
                        self.port.engine.on_last_flush_failed();
                        self.follow_loss();
                    }
                    self.ending = Ending::Flushed(status);
                }
                BackendEvent::Done { id: FIRST_FLUSH, status } if !status.is_ok() => {
                    self.unreported_loss.hold(false);
                    let Port { engine, actions, .. } = &mut self.port;
                    engine.on_first_flush_failed(now, status, actions);
                    let text = "primary storage failed the first flush: what a former run wrote may be lost; the next \
                                flush fails";
                    self.report(Severity::Error, text.to_owned());
                }
                BackendEvent::Done { id: FIRST_FLUSH, .. } => self.unreported_loss.hold(false),
                BackendEvent::Done { id, status } => {
                    self.port.engine.complete(now, id, status, &[], &mut self.port.actions);
                }
                BackendEvent::Extents { id, extents } => {
                    self.port.engine.complete_extents(now, id, &extents, &mut self.port.actions);
                }
                BackendEvent::SessionLost => {
                    self.sessions_lost += 1;
                    self.port.engine.on_session_lost(now, &mut self.port.actions);
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
    fn advance_ending(&mut self, now: Nanos, reactor: &mut Reactor, clients: usize) {
        let is_quiet = !self.has_more
            && clients == 0
            && !self.port.engine.destages_at_end()
            && !self.port.engine.settles_at_end()
            && (self.port.engine.is_idle() || self.has_waited && self.is_safe_in_log());
        let flushes = !self.backend.properties().read_only && !self.port.engine.mode().logs();
        // Primary storage may tell the first flush alone what it lost.
        let is_heard = !flushes || !self.unreported_loss.is_held();
        if self.ending == Ending::Draining && is_quiet && is_heard {
            self.ending = Ending::Flushed(IoStatus::Ok);
            // What the log holds is durable there; primary storage is flushed before it is forgotten.
            if flushes {
                self.ending = Ending::Flushing;
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor: &mut *reactor, events };
                self.backend.submit(&mut cx, flush(FINAL_FLUSH, self.port.arena));
                self.absorb_ended(now);
            }
        }
        if let Ending::Flushed(status) = self.ending {
            self.ending = Ending::Recording(status);
            let flushed = status.is_ok() && !self.port.engine.mode().logs();
            self.port.engine.close_ring(now, flushed, &mut self.port.actions);
            self.has_more |= self.has_something_to_do();
        }
        // The log may be given up after this, so that the ring has to know what it dropped, or to be void.
        if let Ending::Recording(status) = self.ending
            && self.port.engine.is_ring_closed()
        {
            let events = &mut self.backend_events;
            self.backend.detach(&mut BackendContext { now, reactor, events });
            if self.is_detaching() && !self.port.engine.mode().logs() {
                // The administrator is told, and no guest has the disk any more.
                self.unreported_loss.forget();
            }
            self.ending = Ending::Done(status);
            self.let_go(reactor);
        }
    }

    /// It has ended, and starts nothing any more: its memory is free as soon as nothing under way uses it.
    fn let_go(&mut self, reactor: &mut Reactor) {
        (self.flash, self.ring, self.log) = (None, None, None);
        std::mem::take(&mut self.registered).let_memory_go(reactor);
        if let Ok(nothing) = Arena::new(1) {
            self.port.memory = Arc::new(nothing);
        }
    }

    /// True when all that is missing is primary storage's, and the log will write it there again.
    fn is_safe_in_log(&self) -> bool {
        let statistics = self.port.engine.statistics(Nanos(0));
        let is_durable = statistics.log.is_some_and(|log| log.is_durable);
        self.port.engine.mode().logs() && is_durable && statistics.requests_in_flight == 0
    }

    pub(super) fn report(&self, severity: Severity, text: String) {
        self.events.report(Some(&self.name), severity, text);
    }
}

/// A flush of primary storage.
fn flush(id: IoId, arena: ArenaId) -> BackendIo {
    BackendIo { id, range: ByteRange::at(0, 0), op: IoOp::Flush, arena }
}
