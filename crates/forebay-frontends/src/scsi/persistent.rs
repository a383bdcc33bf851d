//! Persistent reservations: registrations, the holder of the disk, and the operations that change
//! them.
//!
//! ```text
//!                    RESERVE (a registered nexus)
//!  not reserved  ──────────────────────────────────►  reserved, of one of six types
//!       ▲                                                │   ▲
//!       │ RELEASE, CLEAR, the holder unregisters         │   │ PREEMPT of the holder,
//!       └────────────────────────────────────────────────┘   │ REGISTER AND MOVE
//!         (All Registrants: the last one unregisters)        └─ another holder
//! ```
//! This file is the state and its rules, without commands. An operation changes the state. Its
//! [`Effects`] name the unit attentions, and the nexuses whose tasks are to be aborted.
//! `output.rs` reads PERSISTENT RESERVE OUT. `settle.rs` lets its changes come into force.
//! `input.rs` answers PERSISTENT RESERVE IN. `stored.rs` is the form that outlives a restart.
//!
//! A registration belongs to a nexus: initiator port and target port. With ALL_TG_PT one is made
//! for each port of the disk. **Invariants:** a holder is registered. A nexus is registered once.
//! At most [`REGISTRATIONS_MAX`] are.

use super::nexus::{Nexus, Standing};
use super::sense::{Code, Sense};
use super::unit::Refusal;

mod input;
mod output;
mod preempt;
mod register;
mod settle;
mod stored;
mod transport_id;

pub(super) use input::{read_full_status, read_keys, read_reservation, report_capabilities};
pub(super) use output::{out, take};
pub(super) use settle::Pending;
pub use stored::InvalidState;

/// Registrations of one disk.
pub(super) const REGISTRATIONS_MAX: usize = 512;

/// Types of reservations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    WriteExclusive = 1,
    ExclusiveAccess = 3,
    WriteExclusiveRegistrants = 5,
    ExclusiveAccessRegistrants = 6,
    WriteExclusiveAll = 7,
    ExclusiveAccessAll = 8,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 6] = [
        Kind::WriteExclusive,
        Kind::ExclusiveAccess,
        Kind::WriteExclusiveRegistrants,
        Kind::ExclusiveAccessRegistrants,
        Kind::WriteExclusiveAll,
        Kind::ExclusiveAccessAll,
    ];

    pub fn from_wire(code: u8) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| *kind as u8 == code)
    }

    /// Reading is forbidden too.
    fn excludes_reads(self) -> bool {
        use Kind::{ExclusiveAccess, ExclusiveAccessAll, ExclusiveAccessRegistrants};
        matches!(self, ExclusiveAccess | ExclusiveAccessRegistrants | ExclusiveAccessAll)
    }

    /// A registered nexus is exempt.
    fn exempts_registrants(self) -> bool {
        !matches!(self, Kind::WriteExclusive | Kind::ExclusiveAccess)
    }

    /// Whoever is registered holds it.
    pub fn is_of_all(self) -> bool {
        matches!(self, Kind::WriteExclusiveAll | Kind::ExclusiveAccessAll)
    }
}

/// A registered nexus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Registration {
    pub nexus: Nexus,
    /// Not 0.
    pub key: u64,
}

/// The reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reservation {
    pub kind: Kind,
    /// `None` exactly when the kind is of all registrants.
    pub holder: Option<Nexus>,
}

/// Registrations and the reservation of one disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Persistent {
    /// Counts changes of registrations, since the start.
    pub generation: u32,
    pub registrations: Vec<Registration>,
    pub reservation: Option<Reservation>,
    /// APTPL: what the last registration asked for.
    pub outlives_restart: bool,
}

/// Effects of an operation beside the change of state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Unit attentions.
    pub told: Vec<(Nexus, Code)>,
    /// Whose tasks are to be aborted.
    pub aborted: Vec<Nexus>,
    /// The stored state is out of date.
    pub store: bool,
}

impl Persistent {
    /// What a nexus is at present.
    pub fn standing(&self, nexus: &Nexus) -> Standing {
        match (self.key_of(nexus), &self.reservation) {
            (None, _) => Standing::Stranger,
            (Some(_), Some(reservation)) if reservation.is_held_by(nexus) => Standing::Holder,
            (Some(_), _) => Standing::Registered,
        }
    }

    /// True when a nexus of that standing may not read, or write.
    pub fn forbids(&self, standing: Standing, write: bool) -> bool {
        let Some(reservation) = &self.reservation else { return false };
        let is_exempt = match standing {
            Standing::Stranger => false,
            Standing::Registered => reservation.kind.exempts_registrants(),
            Standing::Holder => true,
        };
        !is_exempt && (write || reservation.kind.excludes_reads())
    }

    #[inline]
    pub fn is_reserved(&self) -> bool {
        self.reservation.is_some()
    }

    /// True when who is not registered may not read, or write.
    pub fn forbids_strangers(&self, write: bool) -> bool {
        self.forbids(Standing::Stranger, write)
    }

    /// True when a nexus of that standing holds the reservation, or shares it by being registered.
    pub fn shares(&self, standing: Standing) -> bool {
        let kind = self.reservation.as_ref().map(|reservation| reservation.kind);
        match standing {
            Standing::Stranger => false,
            Standing::Registered => kind.is_some_and(Kind::exempts_registrants),
            Standing::Holder => true,
        }
    }

    pub fn has_registrations(&self) -> bool {
        !self.registrations.is_empty()
    }

    fn key_of(&self, nexus: &Nexus) -> Option<u64> {
        self.registrations.iter().find(|it| it.nexus == *nexus).map(|it| it.key)
    }

    /// Refuses who is not registered with `key`.
    fn check_key(&self, nexus: &Nexus, key: u64) -> Result<(), Refusal> {
        if self.key_of(nexus) == Some(key) { Ok(()) } else { Err(Refusal::Conflict) }
    }

    fn is_held_by(&self, nexus: &Nexus) -> bool {
        self.standing(nexus) == Standing::Holder
    }

    /// The reservation ends. With types that let registrants in, those get a unit attention, but
    /// not `by`.
    fn end_reservation(&mut self, by: &Nexus, effects: &mut Effects) {
        let Some(ended) = self.reservation.take() else { return };
        if ended.kind.exempts_registrants() {
            self.tell_others(by, Code::RESERVATIONS_RELEASED, effects);
        }
    }

    /// Everybody registered but `by` gets a unit attention.
    fn tell_others(&self, by: &Nexus, code: Code, effects: &mut Effects) {
        let others = self.registrations.iter().filter(|it| it.nexus != *by);
        effects.told.extend(others.map(|it| (it.nexus.clone(), code)));
    }

    pub fn reserve(&mut self, nexus: &Nexus, key: u64, kind: Kind) -> Result<Effects, Refusal> {
        self.check_key(nexus, key)?;
        match &self.reservation {
            Some(present) if present.kind == kind && present.is_held_by(nexus) => {
                Ok(Effects::default())
            }
            Some(_) => Err(Refusal::Conflict),
            None => {
                self.reservation = Some(Reservation::of(kind, nexus));
                Ok(self.changed())
            }
        }
    }

    pub fn release(&mut self, nexus: &Nexus, key: u64, kind: Kind) -> Result<Effects, Refusal> {
        self.check_key(nexus, key)?;
        match &self.reservation {
            Some(present) if present.is_held_by(nexus) => {
                if present.kind != kind {
                    let code = Code::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
                    return Err(Sense::illegal(code).into());
                }
                let mut effects = self.changed();
                self.end_reservation(nexus, &mut effects);
                Ok(effects)
            }
            Some(_) | None => Ok(Effects::default()),
        }
    }

    pub fn clear(&mut self, nexus: &Nexus, key: u64) -> Result<Effects, Refusal> {
        self.check_key(nexus, key)?;
        let mut effects = self.changed();
        self.tell_others(nexus, Code::RESERVATIONS_PREEMPTED, &mut effects);
        self.registrations.clear();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    fn changed(&self) -> Effects {
        Effects { store: self.outlives_restart, ..Effects::default() }
    }
}

impl Reservation {
    fn of(kind: Kind, nexus: &Nexus) -> Reservation {
        Reservation { kind, holder: (!kind.is_of_all()).then(|| nexus.clone()) }
    }

    /// `nexus` is registered.
    fn is_held_by(&self, nexus: &Nexus) -> bool {
        self.holder.as_ref().is_none_or(|holder| holder == nexus)
    }
}
