//! One target on its shard: its logical units, and the sessions that have it.
//!
//! ```text
//! Session A ──LUN RESET──► Device: units[n].reset, a note for every other session
//! Session B ──next call──► takes its notes: its tasks are gone
//! ```
//! A session notes here its effects on the tasks of another. The other carries them out before it
//! does anything else. That is soon enough: the engine puts its requests before all later ones.
//! So an aborted write is there before the next command looks, or never.
//!
//! ```text
//! Session ──Outcome::Store──► Device ──► Keeper … ──answer, settle──► Device ──► the disk's port
//!                                                                       └─note──► Session, if it is still there
//! ```
//! Reservations that are to outlive a restart are stored by a [`Keeper`], who may take his time. What he has stored comes
//! into force at the next call of any session, and at the latest when he has it [settled](super::driver::settle): all
//! sessions may have gone meanwhile.
//!
//! [`Device::next_access`] says what a reservation leaves to the disk's clients of other
//! protocols. The sessions ask it after everything that they do, before anything is sent.
//!
//! A unit whose disk is being detached, or was, is hidden: who logs in finds the others, and this one again when the detach is
//! cancelled. No session uses such a disk, or it could not be detached.
//!
//! ```text
//!   shown ◄──── meet ────► hidden ──the disk has ended──► free ──another disk──► shown, in the same place
//! ```
//! Once the disk has ended, another one may have the number (`place.rs`). No session is left that has seen the unit. An initiator
//! that had one and comes back gets two unit attentions before it reads or writes anything: POWER ON, as ever, and for another
//! disk INQUIRY DATA HAS CHANGED.
//!
//! **Invariant:** one session per nexus: a newer login of the same initiator port ends the older session.

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};

use forebay_core::geometry::SECTOR;
use forebay_io::reactor::SocketId;

mod aborts;
mod members;
mod place;

use members::{Member, Members};

use super::order::{Order, Stage};
use crate::client::{DiskId, Permission};
use crate::scsi::{
    self, Cdb, Command, Done, Initiator, LogicalUnit, Lun, Medium, Nexus, NexusId, Outcome,
    Response, Status,
};

/// Bytes of data that the heap takes, over all sessions of a target: those that wait for memory, or are compared with.
const HELD_MAX: usize = 32 << 20;
/// So many more are for lists of parameters alone: a reservation is to be taken from who fills all that there is.
const LISTS_MAX: usize = 2 << 20;

/// See the module.
#[derive(Debug)]
pub struct Device {
    /// In the order in which they came.
    pub units: Vec<Unit>,
    /// What the target knows of each unit.
    beside: Vec<Beside>,
    /// The numbers of those that they see, sorted.
    luns: Vec<Lun>,
    /// The numbers of those whose disks are to come.
    awaited: Vec<Lun>,
    /// How often units came or went.
    changes: u64,
    members: Members,
    /// Bytes of data that wait for memory.
    held: usize,
    /// Disks of units whose sessions have notes that they may not have looked at.
    noted: Vec<DiskId>,
    /// Sockets of sessions that were ended, to be closed.
    ended: Vec<SocketId>,
    /// Reservations may have changed since.
    is_told_late: bool,
    /// Answers of keepers.
    stored: (Sender<Stored>, Receiver<Stored>),
    /// Answers that keepers owe.
    owed: usize,
}

/// What a target knows of one of its units.
#[derive(Debug)]
struct Beside {
    /// Initiators see it.
    is_shown: bool,
    /// Its disk has ended for good.
    has_ended: bool,
    /// Another disk had its number before.
    is_another: bool,
    /// Who lost the unit without a logout, and has not come back: he may still have writes for its disk.
    cut_off: Vec<Initiator>,
    /// What other clients of its disk were told that they may.
    told: Permission,
    /// The session that waits for its keeper's answer, which may be gone.
    waits: Option<usize>,
    /// Of its tasks.
    order: Order,
    /// Writes that the engine has, and that were begun with the write cache on.
    cached: u32,
    /// Tasks that turn the write cache off.
    turns_off: u32,
}

/// A unit, and whether its reservations are stored.
type Stored = (usize, bool);

/// Stores a unit's reservations where they outlive a restart.
pub trait Keeper: Send + fmt::Debug {
    /// Stores `state` durably, in place of what was stored before. `answer` takes whether that was done; then it is to be
    /// [settled](super::driver::settle). Must not wait.
    fn keep(&mut self, state: Vec<u8>, answer: Box<dyn FnOnce(bool) + Send>);
}

/// A logical unit.
#[derive(Debug)]
pub struct Unit {
    /// Its number.
    pub lun: Lun,
    /// What it answers.
    pub logical: LogicalUnit,
    /// The disk behind it.
    pub disk: DiskId,
    /// The store of its reservations; one whose export has `store_max` needs one.
    pub keeper: Option<Box<dyn Keeper>>,
}

/// Effects from outside on a session's tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// Those of a logical unit are aborted, and why.
    Aborted(usize, Cause),
    /// The session is over.
    Ended,
    /// The store answered to one of them on a logical unit: stored, or not.
    Stored(usize, Response),
}

/// Why tasks are aborted from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Another session cleared the task set: the owners of the tasks hear of it.
    Cleared,
    /// Another session preempted the registration: a unit attention says so.
    Preempted,
    /// A reset, reported by a unit attention.
    Reset {
        /// Each task is answered as well. The reset ends what TAS said, so it was asked before.
        answers: bool,
    },
}

impl Device {
    /// A target with these logical units.
    pub fn new(units: Vec<Unit>) -> Device {
        let mut device = Device {
            units: Vec::new(),
            beside: Vec::new(),
            luns: Vec::new(),
            awaited: Vec::new(),
            changes: 0,
            members: Members::default(),
            held: 0,
            noted: Vec::new(),
            ended: Vec::new(),
            is_told_late: false,
            stored: channel(),
            owed: 0,
        };
        units.into_iter().for_each(|unit| device.add(unit));
        device
    }

    /// Shows the units whose disks are served, and no others.
    pub fn show_served(&mut self, is_served: impl Fn(DiskId) -> bool) {
        for unit in 0..self.units.len() {
            let is_shown = !self.beside[unit].has_ended && is_served(self.units[unit].disk);
            if std::mem::replace(&mut self.beside[unit].is_shown, is_shown) != is_shown {
                self.tell_changed(unit);
            }
        }
    }

    /// A unit came or went: all other units tell sessions that the set changed.
    fn tell_changed(&mut self, changed: usize) {
        self.changes += 1;
        self.luns = self.shown().map(|unit| unit.lun).collect();
        self.luns.sort_unstable();
        for (_, member) in &self.members.all {
            let known = self.units.iter_mut().zip(&member.nexuses).enumerate();
            for (_, (unit, nexus)) in known.filter(|(place, _)| *place != changed) {
                unit.logical.luns_changed(*nexus);
            }
        }
    }

    fn shown(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().zip(&self.beside).filter(|(_, it)| it.is_shown).map(|(it, _)| it)
    }

    /// How often units came or went.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The disks behind the units that are shown.
    pub fn disks(&self) -> Vec<DiskId> {
        self.shown().map(|unit| unit.disk).collect()
    }

    /// A disk has another size: initiators hear of it.
    pub fn resize(&mut self, disk: DiskId, size: u64) {
        for unit in self.units.iter_mut().filter(|unit| unit.disk == disk) {
            unit.logical.resize(size - size % SECTOR);
        }
    }

    /// A session begins; an older one of the same initiator port ends. Its number.
    pub fn join(&mut self, initiator: Initiator, port: u16, socket: Option<SocketId>) -> usize {
        if let Some(old) = self.members.current(&initiator) {
            self.end(old);
        }
        self.beside.iter_mut().for_each(|beside| beside.comes_back(&initiator));
        let nexus = Nexus { initiator: initiator.clone(), port };
        let units = self.units.iter_mut().zip(&self.beside);
        let nexuses = units.map(|(unit, beside)| beside.attach(unit, nexus.clone())).collect();
        let (notes, is_leaving) = (Vec::new(), false);
        self.members.add(Member { initiator, socket, port, nexuses, notes, is_leaving })
    }

    /// The initiator of a session has logged out.
    pub fn log_out(&mut self, session: usize) {
        self.members.all[session].is_leaving = true;
    }

    /// A session is over.
    pub fn leave(&mut self, session: usize) {
        let member = self.members.remove(session);
        self.detach(&member.nexuses);
        if !member.is_leaving && self.members.current(&member.initiator).is_none() {
            self.beside.iter_mut().for_each(|beside| beside.cut_off(&member.initiator));
        }
    }

    /// The session's socket is another one, or none; false when the session was ended.
    pub fn move_socket(&mut self, session: usize, socket: Option<SocketId>) -> bool {
        let member = &mut self.members.all[session];
        member.socket = socket;
        !member.nexuses.is_empty()
    }

    /// The session's nexus with a unit; `None` when the session was ended.
    pub fn nexus(&self, session: usize, unit: usize) -> Option<NexusId> {
        self.members.all[session].nexuses.get(unit).copied()
    }

    /// Events of the session since the last call.
    pub fn notes(&mut self, session: usize) -> Vec<Note> {
        if self.owed > 0 {
            self.take_stored();
        }
        std::mem::take(&mut self.members.all[session].notes)
    }

    /// The answer of a logical unit to a command of a session, or to the parameters that it asked
    /// for.
    pub fn ask(
        &mut self,
        session: usize,
        unit: Option<usize>,
        cdb: Cdb,
        data_out: u32,
        list: Option<&[u8]>,
    ) -> Outcome {
        let command = Command { cdb, data_out, luns: &self.luns };
        let Some(unit) = unit else { return Outcome::Done(scsi::absent(&command)) };
        let Some(nexus) = self.members.all[session].nexuses.get(unit) else {
            return Outcome::Done(Response::of(Status::Busy));
        };
        let logical = &mut self.units[unit].logical;
        let outcome = match list {
            None => logical.command(*nexus, &command),
            Some(list) => logical.parameters(*nexus, &command, list),
        };
        self.is_told_late |= !matches!(outcome, Outcome::Medium(_));
        outcome
    }

    /// A unit's keeper is to store `state`; a note tells the session what to answer.
    pub fn store(&mut self, session: usize, unit: usize, state: Vec<u8>) {
        self.owed += 1;
        self.beside[unit].waits = Some(session);
        let sender = self.stored.0.clone();
        // Without the target there is nobody who would wait.
        let answer = move |is_stored| {
            let _ = sender.send((unit, is_stored));
        };
        match &mut self.units[unit].keeper {
            Some(keeper) => keeper.keep(state, Box::new(answer)),
            None => answer(false),
        }
    }

    /// Lets what keepers have stored come into force.
    fn take_stored(&mut self) {
        while let Ok((unit, is_stored)) = self.stored.1.try_recv() {
            self.owed -= 1;
            let (response, abort) = self.units[unit].logical.stored(is_stored);
            self.is_told_late = true;
            self.note_aborted(unit, Cause::Preempted, |_, member| member.is_one_of(unit, &abort));
            // Whoever has that place by now waits for nothing of this unit.
            if let Some(member) =
                self.beside[unit].waits.take().and_then(|it| self.members.all.get_mut(it))
            {
                member.notes.push(Note::Stored(unit, response));
            }
        }
    }

    /// Lets what keepers have stored come into force; what is left to the other clients of a disk, who are told. `None`: no
    /// unit has it.
    pub fn settle(&mut self, disk: DiskId) -> Option<Permission> {
        self.take_stored();
        let unit = self.units.iter().position(|unit| unit.disk == disk)?;
        let access = self.units[unit].logical.access_of_others();
        self.beside[unit].told = access;
        Some(access)
    }

    /// A disk whose other clients may from now on what they might not before, or the other way round; `None` when
    /// nothing is left to be told.
    pub fn next_access(&mut self) -> Option<(DiskId, Permission)> {
        if !self.is_told_late {
            return None;
        }
        for (unit, beside) in self.units.iter().zip(&mut self.beside) {
            let access = unit.logical.access_of_others();
            if std::mem::replace(&mut beside.told, access) != access {
                return Some((unit.disk, access));
            }
        }
        self.is_told_late = false;
        None
    }

    /// A session asked for a reset of a unit, or of the whole target: the tasks of all others are aborted. Only for a reset of
    /// a unit they may be answered (SAM-4, 5.6).
    pub fn reset(&mut self, by: usize, unit: usize, of_target: bool) {
        let answers = !of_target && self.units[unit].logical.answers_aborted();
        self.abort_others(by, unit, Cause::Reset { answers });
        self.units[unit].logical.reset();
        self.is_told_late = true;
    }

    /// True when the write cache of a unit is off, or is being turned off: what is written is acknowledged when it is durable.
    pub fn is_write_through(&self, unit: usize) -> bool {
        self.beside[unit].turns_off > 0 || self.units[unit].logical.is_write_through()
    }

    /// A task comes that turns the write cache of a unit off.
    pub fn begin_cache_off(&mut self, unit: usize) {
        self.beside[unit].turns_off += 1;
    }

    /// It is gone.
    #[cold]
    pub fn end_cache_off(&mut self, unit: Option<usize>) {
        if let Some(unit) = unit {
            self.beside[unit].turns_off -= 1;
        }
    }

    /// The engine has a write that was begun with the write cache on.
    pub fn begin_cached(&mut self, unit: usize) {
        self.beside[unit].cached += 1;
    }

    /// It has ended.
    pub fn end_cached(&mut self, unit: usize) {
        self.beside[unit].cached -= 1;
    }

    /// True while the engine has such a write: a flush that begins now may miss it.
    pub fn has_cached(&self, unit: usize) -> bool {
        self.beside[unit].cached > 0
    }

    /// True when a reservation came meanwhile that forbids work on the medium, or its next piece.
    pub fn forbids(&self, session: usize, unit: usize, medium: &Medium) -> bool {
        let logical = &self.units[unit].logical;
        logical.is_reserved()
            && self.nexus(session, unit).is_some_and(|nexus| logical.forbids(nexus, medium))
    }

    /// The answer of a logical unit after work on the medium.
    pub fn medium_done(
        &mut self,
        session: usize,
        unit: usize,
        medium: &Medium,
        done: Done<'_>,
    ) -> Response {
        match self.nexus(session, unit) {
            Some(nexus) => self.units[unit].logical.medium_done(nexus, medium, done),
            None => Response::of(Status::Busy),
        }
    }

    /// Units with these numbers are to come, and no others: an initiator that knows one from before waits for it. It would
    /// give up for ever one that is not there.
    pub fn set_awaited(&mut self, numbers: impl IntoIterator<Item = u16>) {
        let luns = numbers.into_iter().filter_map(Lun::new);
        self.awaited = luns.filter(|lun| self.units.iter().all(|unit| unit.lun != *lun)).collect();
    }

    /// Of those, units with other numbers than these are not to come any more.
    pub fn await_no_others(&mut self, is_one: impl Fn(u16) -> bool) {
        self.awaited.retain(|lun| is_one(lun.number()));
    }

    /// True when a unit with this number is to come.
    pub fn awaits(&self, lun: [u8; 8]) -> bool {
        let is_new = |lun: &Lun| self.units.iter().all(|unit| unit.lun != *lun);
        Lun::decode(lun).is_some_and(|lun| self.awaited.contains(&lun) && is_new(&lun))
    }

    /// The place of a logical unit that is shown.
    pub fn find(&self, lun: [u8; 8]) -> Option<usize> {
        let lun = Lun::decode(lun)?;
        let place = self.units.iter().position(|unit| unit.lun == lun)?;
        self.beside[place].is_shown.then_some(place)
    }

    /// A task of a unit comes.
    pub fn enter(&mut self, unit: usize, attribute: u8) -> Stage {
        self.beside[unit].order.enter(attribute)
    }

    /// Whether it may begin.
    pub fn may_begin(&self, unit: usize, stage: Stage) -> bool {
        self.beside[unit].order.may_begin(stage)
    }

    /// It is gone.
    pub fn leave_order(&mut self, unit: Option<usize>, stage: Stage) {
        if let Some(unit) = unit {
            self.beside[unit].order.leave(stage);
        }
    }

    /// Room on the heap for `bytes` of data, or of a list of parameters; false when there is none. Who is alone has it.
    pub fn hold(&mut self, bytes: usize, is_list: bool) -> bool {
        let max = HELD_MAX + if is_list { LISTS_MAX } else { 0 };
        let fits = self.held == 0 || self.held + bytes <= max;
        self.held += if fits { bytes } else { 0 };
        fits
    }

    /// Data have memory of the disk, or are gone.
    pub fn unhold(&mut self, bytes: usize) {
        self.held -= bytes;
    }

    /// Who has a session.
    pub fn sessions(&self) -> impl Iterator<Item = &Initiator> {
        self.members.all.iter().map(|(_, member)| &member.initiator)
    }

    fn detach(&mut self, nexuses: &[NexusId]) {
        for (unit, nexus) in self.units.iter_mut().zip(nexuses) {
            unit.logical.detach(*nexus);
        }
        self.is_told_late = true;
    }
}
