//! REGISTER, REGISTER AND IGNORE EXISTING KEY, REGISTER AND MOVE.

use super::output::FLAGS_AT;
use super::{Effects, Persistent, REGISTRATIONS_MAX, Registration, Reservation};
use crate::scsi::nexus::Nexus;
use crate::scsi::sense::{Code, Sense};
use crate::scsi::unit::Refusal;

/// A REGISTER, or REGISTER AND IGNORE EXISTING KEY.
#[derive(Clone, Debug)]
pub(super) struct Register {
    /// RESERVATION KEY; `None`: whatever it was.
    pub key: Option<u64>,
    /// SERVICE ACTION RESERVATION KEY; 0 unregisters.
    pub new_key: u64,
    /// For whom: the nexus itself and, with ALL_TG_PT, the same initiator through other ports.
    pub nexuses: Vec<Nexus>,
    /// SPEC_I_PT: whom else.
    pub others: Vec<Nexus>,
    /// APTPL.
    pub outlives_restart: bool,
}

/// A REGISTER AND MOVE.
#[derive(Clone, Debug)]
pub(super) struct Move {
    /// RESERVATION KEY.
    pub key: u64,
    /// The holder of the reservation from here on.
    pub to: Nexus,
    /// With which key; not 0.
    pub new_key: u64,
    /// UNREG: who held it is no longer registered.
    pub unregister: bool,
    /// APTPL.
    pub outlives_restart: bool,
}

impl Persistent {
    pub(super) fn register(&mut self, nexus: &Nexus, it: &Register) -> Result<Effects, Refusal> {
        let present = self.key_of(nexus);
        if it.key.is_some_and(|key| key != present.unwrap_or(0)) {
            return Err(Refusal::Conflict);
        }
        if present.is_some() && !it.others.is_empty() {
            return Err(Sense::parameter(FLAGS_AT).into());
        }
        let mut effects = Effects::default();
        if present.is_none() && it.new_key == 0 {
            return Ok(effects);
        }
        if it.others.iter().any(|other| self.key_of(other).is_some()) {
            return Err(Refusal::Conflict);
        }
        if it.new_key == 0 {
            for nexus in &it.nexuses {
                self.unregister(nexus, &mut effects);
            }
        } else {
            self.add(it.nexuses.iter().chain(&it.others), it.new_key)?;
        }
        effects.store = self.outlives_restart || it.outlives_restart;
        self.outlives_restart = it.outlives_restart;
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// Registers all of them with `key`, or none.
    fn add<'a>(
        &mut self,
        nexuses: impl Iterator<Item = &'a Nexus> + Clone,
        key: u64,
    ) -> Result<(), Refusal> {
        let new = nexuses.clone().filter(|nexus| self.key_of(nexus).is_none()).count();
        if self.registrations.len() + new > REGISTRATIONS_MAX {
            return Err(Sense::illegal(Code::INSUFFICIENT_REGISTRATION_RESOURCES).into());
        }
        for nexus in nexuses {
            match self.registrations.iter_mut().find(|it| it.nexus == *nexus) {
                Some(registration) => registration.key = key,
                None => self.registrations.push(Registration { nexus: nexus.clone(), key }),
            }
        }
        Ok(())
    }

    /// A nexus gives its registration up.
    fn unregister(&mut self, nexus: &Nexus, effects: &mut Effects) {
        let was_held = self.is_held_by(nexus);
        self.registrations.retain(|it| it.nexus != *nexus);
        let Some(reservation) = &self.reservation else { return };
        let ends = match reservation.kind.is_of_all() {
            true => self.registrations.is_empty(),
            false => was_held,
        };
        if ends {
            self.end_reservation(nexus, effects);
        }
    }

    /// The reservation moves to another nexus.
    pub(super) fn register_and_move(
        &mut self,
        nexus: &Nexus,
        it: &Move,
    ) -> Result<Effects, Refusal> {
        self.check_key(nexus, it.key)?;
        match &self.reservation {
            Some(Reservation { holder: Some(holder), .. }) if holder == nexus => {}
            Some(_) | None => return Err(Refusal::Conflict),
        }
        self.add([&it.to].into_iter(), it.new_key)?;
        if let Some(reservation) = &mut self.reservation {
            reservation.holder = Some(it.to.clone());
        }
        if it.unregister {
            self.registrations.retain(|it| it.nexus != *nexus);
        }
        let store = self.outlives_restart || it.outlives_restart;
        self.outlives_restart = it.outlives_restart;
        self.generation = self.generation.wrapping_add(1);
        Ok(Effects { store, ..Effects::default() })
    }
}
