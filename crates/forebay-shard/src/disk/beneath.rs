//! A disk ends beneath its clients, and another one takes its place.
//!
//! ```text
//!   serving ── hold_clients ──► held ── owes them nothing ──► draining (ending.rs) ─► done ── heritage ──► the next one
//!      ▲                         │
//!      └── let_clients_go_on ────┘  requests do not finish
//! ```
//! The next one may be on another shard: the clients are handed to it when all of them have left this one.
//!
//! Held, a client gets no buffer and submits nothing new, and waits as it does for room in the engine (`Port`). What it
//! has begun it may finish. So nobody notices more than a pause.

use forebay_core::ids::Nanos;
use forebay_core::observer::Observed;
use forebay_frontends::client::Permission;

use super::ShardDisk;
use super::detach::{Detaching, ENDING};
use crate::NewDisk;

pub(super) const OPENED_AGAIN: &str = "the disk is being opened again: try again in a moment";

const QUIESCED: &str = "destaging is held by 'disk quiesce': wait until that is over";

const PAUSED: &str =
    "destaging is paused, and has to empty its write log: first 'forebay disk resume'";

impl ShardDisk {
    /// Has its clients wait; true when it owes them nothing, and all that was answered `is_sent`.
    ///
    /// # Errors
    /// It ends, or is being detached, or primary storage stands still for a snapshot.
    pub(crate) fn hold_clients(&mut self, now: Nanos, is_sent: bool) -> Result<bool, String> {
        if self.is_ending() || self.is_detaching() {
            return Err(ENDING.to_owned());
        }
        if self.is_quiesced(now) {
            return Err(QUIESCED.to_owned());
        }
        self.port.is_held = true;
        self.port.engine.let_limited_go(now, &mut self.port.actions);
        let is_told = self.port.actions.list.is_empty() && !self.turn.has_more;
        Ok(is_sent && is_told && self.port.engine.owes_nothing())
    }

    /// Whether it may leave its pool, for which its log is emptied.
    ///
    /// # Errors
    /// An administrator keeps destaging from that.
    pub(crate) fn check_leave(&self, now: Nanos) -> Result<(), String> {
        if self.is_quiesced(now) {
            return Err(QUIESCED.to_owned());
        }
        match self.port.engine.log_statistics(now) {
            Some(log) if log.is_paused => Err(PAUSED.to_owned()),
            Some(_) | None => Ok(()),
        }
    }

    /// Its clients go on.
    pub(crate) fn let_clients_go_on(&mut self) {
        if !self.is_ending() {
            self.port.is_held = false;
        }
    }

    /// Its clients end with it, also when they were held: they are answered as long as the engine answers.
    pub(super) fn end_with_clients(&mut self) {
        self.ending.gave_place_up = false;
        if std::mem::take(&mut self.ending.beneath) && self.is_detaching() {
            self.detaching = Detaching::No("the daemon ended");
        }
        if !self.is_done() {
            self.port.is_held = false;
        }
    }

    /// Why a disk that is ending cannot be changed.
    pub(super) fn why_closed(&self) -> String {
        match &self.ending.unopened {
            Some(why) => why.clone(),
            None if self.is_held() => OPENED_AGAIN.to_owned(),
            None => ENDING.to_owned(),
        }
    }

    /// Why its clients wait, if that takes long: it does not end, or cannot be opened again.
    pub(crate) fn note_unopened(&mut self, why: Option<String>) {
        self.ending.unopened = why;
    }

    /// No disk takes its place: its clients are to end as well.
    ///
    /// # Errors
    /// It has not ended beneath them.
    pub(crate) fn give_up_place(&mut self) -> Result<(), String> {
        self.heritage()?;
        self.end_with_clients();
        self.ending.gave_place_up = true;
        self.tell_clients();
        Ok(())
    }

    /// Its clients did not all end: a disk may take its place after all. Those who were told to end do so as soon as they can.
    pub(crate) fn keep_place(&mut self) {
        if std::mem::take(&mut self.ending.gave_place_up) {
            self.ending.beneath = true;
            self.tell_clients();
        }
    }

    /// True while its clients are held.
    pub(super) fn is_held(&self) -> bool {
        self.port.is_held
    }

    /// True when it ends, or has ended, and its clients stay.
    pub(crate) fn ends_beneath(&self) -> bool {
        self.ending.beneath
    }

    /// Begins to end; its clients are held. To leave its pool its log must not be in use.
    ///
    /// # Errors
    /// It is, or the disk ends already.
    pub(super) fn begin_end_beneath(
        &mut self,
        now: Nanos,
        leaves_pool: bool,
    ) -> Result<(), String> {
        if self.is_ending() || self.is_detaching() || !self.port.is_held {
            return Err(ENDING.to_owned());
        }
        if self.is_quiesced(now) {
            return Err(QUIESCED.to_owned());
        }
        if leaves_pool && self.port.engine.mode().logs() {
            return Err("its write log is in use again: its mode was changed meanwhile".to_owned());
        }
        if leaves_pool {
            self.detaching = Detaching::Since(self.port.engine.config().mode);
        }
        self.ending.beneath = true;
        self.begin_to_end(now);
        Ok(())
    }

    /// What it leaves to the disk that takes its place.
    ///
    /// # Errors
    /// It has not ended beneath its clients.
    pub(crate) fn heritage(&self) -> Result<Heritage, String> {
        if !self.is_done() || !self.ending.beneath {
            return Err("the disk before it is at work".to_owned());
        }
        let engine = &self.port.engine;
        Ok(Heritage {
            is_paused: engine.log_statistics(Nanos(0)).is_some_and(|log| log.is_paused),
            has_untold_loss: engine.has_untold_loss(),
            observed: engine.observer().observed(),
        })
    }

    /// What reservations leave to clients that have no part in them.
    pub(crate) fn access(&self) -> Permission {
        self.port.access
    }

    /// Its clients are to come from another shard: nobody uses it before.
    pub(crate) fn await_clients(&mut self) {
        self.port.is_held = true;
    }

    /// They come, and reservations leave this to others.
    pub(crate) fn welcome_clients(&mut self, access: Permission) {
        self.port.access = access;
        self.let_clients_go_on();
    }
}

/// What outlives a disk that has ended beneath its clients. What reservations leave to others may change until its clients
/// go over: that goes with them.
#[derive(Clone, Debug)]
pub struct Heritage {
    /// Destaging is paused.
    is_paused: bool,
    /// A guest has to hear of a loss.
    has_untold_loss: bool,
    /// Recordings and histograms go on.
    observed: Observed,
}

impl Heritage {
    /// Gives it to the one that takes its place.
    pub(crate) fn give_to(self, new: &mut NewDisk) {
        new.is_paused = self.is_paused;
        if self.has_untold_loss {
            new.engine.remember_untold_loss();
        }
        new.engine.observer_mut().go_on(self.observed);
    }
}
