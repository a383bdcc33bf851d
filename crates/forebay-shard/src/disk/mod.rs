//! One disk on its shard: its engine, what that does I/O on, and how far it is.
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
//! | file | the disk |
//! |---|---|
//! | `attach.rs`, `registration.rs` | comes to its shard, or leaves nothing behind |
//! | `carry_out.rs` | carries out what its engine asks for |
//! | `complete.rs` | tells its engine what has ended |
//! | `storage.rs` | has primary storage, and flash: cached data (`device.rs`), write log (`log.rs`), the cache's index (`ring.rs`); and its journal (`journal.rs`) |
//! | `answers.rs`, `detach.rs` | is asked by an administrator |
//! | `ram.rs`, `flash.rs` | gets another size of its cache in RAM, or on flash |
//! | `buffers.rs` | gives memory back that its requests used |
//! | `ending.rs`, `beneath.rs` | ends; ends beneath its clients, for another one to take its place |

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_core::action::Actions;
use forebay_core::config::{BackendTraits, Mode, Tuning};
use forebay_core::engine::{ConfigError, Growth};
use forebay_core::ids::Nanos;
use forebay_frontends::client::{DiskId, Port};
use forebay_host::events::{EventKind, EventSender};
use forebay_host::fence::UnreportedLoss;
use forebay_io::reactor::Reactor;

use crate::status::{DiskStatus, PrimaryState};
use answers::Waiting;
use detach::Detaching;
use ending::{Ending, Stage};
use storage::Storage;

mod answers;
mod attach;
mod beneath;
mod buffers;
pub(crate) mod carry_out;
mod complete;
mod detach;
mod device;
mod ending;
mod flash;
mod journal;
mod log;
mod ram;
mod registration;
mod ring;
mod storage;

pub use beneath::Heritage;
pub use flash::FlashUse;
pub use log::LogShare;
pub use ram::Missing;

/// Slots that are prefetched for the replies of a batch. The CPU's nearest cache holds the starts of hardly more.
const EXPECTED_MAX: usize = 256;

/// See the module.
pub(crate) struct ShardDisk {
    id: DiskId,
    name: Arc<str>,
    /// What its clients use: engine, memory, and what the engine appends to.
    pub(crate) port: Port,
    storage: Storage,
    unreported_loss: UnreportedLoss,
    turn: Turn,
    ending: Ending,
    /// Whether it ends when nothing is dirty any more.
    detaching: Detaching,
    waiting: Waiting,
    holds: Holds,
    shown: Shown,
    events: EventSender,
}

/// What others see of it without asking.
struct Shown {
    /// Whether clients may come, for those who let them in.
    is_open: Arc<AtomicBool>,
    /// How often its RAM cache got another size.
    resizes: Arc<AtomicU64>,
}

/// A turn of the disk, and what it leaves to the next.
struct Turn {
    /// What is being carried out; swapped with the port's.
    running: Actions,
    /// The last turn ended before everything was done.
    has_more: bool,
    /// The engine answered, and was not told that what its answers refer to is sent.
    has_replied: bool,
    /// This turn wrote to the log.
    wrote_log: bool,
    /// When to look whether memory of its request buffers is idle.
    buffers_due: Nanos,
    /// Memory of a RAM cache that has become smaller goes back to the kernel.
    gives_ram_back: bool,
}

/// Who held destaging for a snapshot of primary storage.
#[derive(Debug, Default)]
struct Holds {
    /// The number of the last one. No other has it, be it of another disk or, unless the clock was set back, of another run of
    /// the daemon: who ends one that is over ends no other.
    last: u64,
    /// Nobody has ended the last one, be it over or not.
    is_open: bool,
    /// When it is over, if nobody ends it.
    until: Nanos,
    /// Primary storage stood still, and has done so all the time if the engine says the same at the end.
    stillness: Option<u64>,
}

/// How a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndedHold {
    /// Primary storage stood still until now.
    StoodStill,
    /// It did not, or not until now.
    WasOver,
    /// There is no such hold.
    None,
}

/// Milliseconds since 1970, or one more than the hold before.
fn next_hold() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let next = |last| u64::try_from(now.as_millis()).unwrap_or(last).max(last + 1);
    next(
        LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)))
            .unwrap_or(0),
    )
}

fn nanos(span: Duration) -> Nanos {
    Nanos(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
}

impl ShardDisk {
    /// Asks for a mode.
    ///
    /// # Errors
    /// What it lacks.
    fn set_mode(&mut self, now: Nanos, mode: Mode) -> Result<(), String> {
        self.port
            .engine
            .set_mode(now, mode, &mut self.port.actions)
            .map_err(|error| error.to_string())
    }

    /// Goes on with these settings.
    ///
    /// # Errors
    /// What cannot be set so, or the disk is ending.
    pub(crate) fn tune(&mut self, now: Nanos, tuning: Tuning) -> Result<(), String> {
        if self.is_ending() {
            return Err(self.why_closed());
        }
        let Port { engine, actions, .. } = &mut self.port;
        engine.tune(now, tuning, actions).map_err(|error| error.to_string())
    }

    /// Stops destaging, or goes on.
    fn pause(&mut self, now: Nanos, pause: bool) {
        self.port.engine.pause_destaging(now, pause, &mut self.port.actions);
    }

    /// Begins no destaging for so long; the number of the hold.
    ///
    /// # Errors
    /// Destaging is held already, or the disk is ending.
    pub(crate) fn begin_hold(&mut self, now: Nanos, span: Duration) -> Result<u64, String> {
        if self.is_held() || self.is_ending() {
            return Err(self.why_closed());
        }
        if self.port.engine.is_held(now) {
            return Err("destaging is held already, by another 'disk quiesce' or for the disk to grow: wait until that is over".to_owned());
        }
        let until = now.plus(nanos(span));
        self.holds = Holds { last: next_hold(), is_open: true, until, stillness: None };
        self.port.engine.hold_destaging(now, until, &mut self.port.actions);
        Ok(self.holds.last)
    }

    /// True while an administrator holds destaging. It is also held for a moment while a disk grows, which hinders nobody.
    pub(super) fn is_quiesced(&self, now: Nanos) -> bool {
        self.holds.is_open && now < self.holds.until && self.port.engine.is_held(now)
    }

    /// Begins no destaging for a moment more, or for `span` from now on if primary storage stands still: true then.
    ///
    /// # Errors
    /// Somebody ended the hold, or destaging is what the disk's end or its writers wait for.
    pub(crate) fn hold_still(
        &mut self,
        now: Nanos,
        (moment, span): (Duration, Duration),
        hold: u64,
    ) -> Result<bool, String> {
        if hold != self.holds.last || !self.holds.is_open {
            return Err("somebody else ended the hold".to_owned());
        }
        let log = self.port.engine.log_statistics(now);
        if self.is_ending() || log.is_some_and(|log| log.failure.is_some()) {
            self.holds.is_open = false;
            return Err("its write log failed, or it ends: destaging goes on".to_owned());
        }
        let Port { engine, actions, .. } = &mut self.port;
        self.holds.until = now.plus(nanos(moment));
        engine.hold_destaging(now, self.holds.until, actions);
        self.holds.stillness = engine.stillness(now);
        if self.holds.stillness.is_some() {
            self.holds.until = now.plus(nanos(span));
            engine.hold_destaging(now, self.holds.until, actions);
        }
        Ok(self.holds.stillness.is_some())
    }

    /// Goes on with destaging after this hold, or whichever there is.
    pub(crate) fn end_hold(&mut self, now: Nanos, hold: Option<u64>) -> EndedHold {
        if !self.holds.is_open || hold.is_some_and(|hold| hold != self.holds.last) {
            return EndedHold::None;
        }
        self.holds.is_open = false;
        let stillness = self.port.engine.stillness(now);
        let stood_still = stillness.is_some() && stillness == self.holds.stillness;
        self.port.engine.end_hold(now, &mut self.port.actions);
        if stood_still { EndedHold::StoodStill } else { EndedHold::WasOver }
    }

    /// How long primary storage is, as it was `looked` at or by itself; the disk can be, too.
    pub(crate) fn measure(&self, looked: Option<u64>) -> Result<Option<u64>, ConfigError> {
        let length = looked.or(self.storage.backend.length());
        length.map_or(Ok(()), |length| self.port.engine.check_growth(length))?;
        Ok(length)
    }

    /// The disk is to have so many bytes.
    pub(crate) fn grow(&mut self, now: Nanos, size: u64) -> Result<Growth, ConfigError> {
        let growth = self.port.engine.grow(now, size, &mut self.port.actions)?;
        if growth == Growth::Done && size > self.storage.backend.properties().size {
            self.storage.backend.lengthen(size);
        }
        Ok(growth)
    }

    /// As clients know it.
    pub(crate) fn id(&self) -> DiskId {
        self.id
    }

    /// True when clients may come.
    pub(crate) fn takes_clients(&self) -> bool {
        self.ends_beneath() || !self.is_ending() && !self.is_detaching()
    }

    /// Tells those who let clients in whether they may come.
    fn tell_clients(&self) {
        self.shown.is_open.store(self.takes_clients(), Ordering::Relaxed);
    }

    /// A turn begins: what the passing of time brings.
    pub(crate) fn begin_turn(&mut self, now: Nanos, reactor: &mut Reactor) {
        self.storage.wake(now, reactor);
        // The flush that a disk ends with says nothing of what lands after it.
        let may_settle = matches!(self.ending.stage, Stage::Serving | Stage::Draining);
        let settles =
            may_settle && self.port.engine.is_unsettled() && !self.storage.backend.holds_changes();
        if settles {
            self.port.engine.set_unsettled(false);
        }
        // Before what time brings: that may ask for copies out of RAM that is to be given back then.
        self.give_buffers_back(now, reactor);
        self.give_some_ram_back();
        let Port { engine, actions, .. } = &mut self.port;
        // An idle disk flushes what has landed, too.
        if settles || engine.next_deadline() <= now {
            engine.tick(now, actions);
        }
        self.turn.wrote_log = false;
    }

    /// True when there is something to carry out in this turn.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_done() && !self.turn.wrote_log && self.has_something_to_do()
    }

    /// Lets the engine proceed: what it asks for, to be carried out and given back.
    pub(crate) fn proceed(&mut self, now: Nanos) -> Actions {
        self.absorb_ended(now);
        let Port { engine, actions, .. } = &mut self.port;
        engine.proceed(now, actions);
        self.follow_loss();
        std::mem::replace(&mut self.port.actions, std::mem::take(&mut self.turn.running))
    }

    /// What is about to be sent is on its way to the CPU, for many replies at once.
    pub(crate) fn expect_replies(&self, actions: &Actions) {
        for slice in actions.slices.iter().take(EXPECTED_MAX) {
            self.port.memory.prefetch(slice.offset, slice.len);
        }
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
        self.turn.running = actions;
    }

    /// What the engine's answers refer to is sent.
    pub(crate) fn sent(&mut self, now: Nanos) {
        if std::mem::take(&mut self.turn.has_replied) {
            self.port.engine.sent(now);
        }
    }

    /// A turn ends, with so many clients; true when the disk is to drain.
    pub(crate) fn end_turn(&mut self, now: Nanos, reactor: &mut Reactor, clients: usize) -> bool {
        self.limit_destaging(now);
        self.turn.has_more = self.has_something_to_do();
        self.look_at_buffers_later(now);
        self.advance_ending(now, reactor, clients);
        self.advance_detach(now)
    }

    /// When the next turn is due at the latest.
    pub(crate) fn next_deadline(&self) -> Nanos {
        if self.is_done() {
            return if self.is_freeing() { Nanos(0) } else { Nanos::NEVER };
        }
        if self.turn.has_more || self.turn.gives_ram_back {
            return Nanos(0);
        }
        let engine = self.port.engine.next_deadline().min(self.turn.buffers_due);
        engine.min(self.storage.next_deadline()).min(self.ending.next_deadline())
    }

    /// What primary storage is, as the engine was told.
    pub(crate) fn traits(&self) -> BackendTraits {
        self.port.engine.config().backend
    }

    /// How the disk is, with so many clients, of which some wait.
    pub(crate) fn status(&self, now: Nanos, clients: usize, waiting: usize) -> DiskStatus {
        let mut engine = self.port.engine.statistics(now);
        let trouble = self.ending.unopened.as_deref().or(self.storage.backend.trouble());
        let primary_trouble = trouble.map(str::to_owned);
        if let (Some(log), Some(_)) = (&mut engine.log, &primary_trouble) {
            log.note_primary_storage_lost();
        }
        let primary_storage = match primary_trouble {
            Some(_) => PrimaryState::Lost,
            None if self.storage.backend.holds_changes() => PrimaryState::HoldsWrites,
            None if !engine.primary_errors.is_empty() => PrimaryState::Fails,
            None => PrimaryState::Connected,
        };
        DiskStatus {
            name: self.name.to_string(),
            connections: clients as u32,
            connections_waiting: waiting as u32,
            primary_storage,
            primary_trouble,
            sessions_lost: self.storage.sessions_lost,
            is_detaching: self.is_detaching(),
            engine,
        }
    }

    fn has_something_to_do(&self) -> bool {
        !self.port.actions.list.is_empty()
            || self.port.has_news
            || self.storage.has_news()
            || self.port.engine.wants_to_proceed()
    }

    fn report(&self, kind: impl Into<EventKind>, text: String) {
        self.events.report(Some(&self.name), kind, text);
    }
}
