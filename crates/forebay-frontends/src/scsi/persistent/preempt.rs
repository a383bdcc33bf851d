//! PREEMPT: registrations are taken away, and the reservation with them if its holder is among those.

use super::output::NEW_KEY_AT;
use super::{Effects, Kind, Persistent, Registration, Reservation};
use crate::scsi::nexus::Nexus;
use crate::scsi::sense::{Code, Sense};
use crate::scsi::unit::Refusal;

impl Persistent {
    /// PREEMPT of whoever is registered with `victim`. `kind`: of the reservation that takes the place
    /// of one that is preempted; `None`: not a type.
    pub fn preempt(
        &mut self,
        nexus: &Nexus,
        key: u64,
        victim: u64,
        kind: Option<Kind>,
    ) -> Result<Effects, Refusal> {
        self.check_key(nexus, key)?;
        let preempts_all = self.reservation.as_ref().is_some_and(|it| it.kind.is_of_all());
        let preempts_reservation = match &self.reservation {
            Some(_) if preempts_all => victim == 0,
            Some(Reservation { holder: Some(holder), .. }) => self.key_of(holder) == Some(victim),
            Some(Reservation { holder: None, .. }) | None => false,
        };
        if preempts_reservation {
            let kind = kind.ok_or(Sense::cdb_field(2, 7))?;
            return Ok(self.preempt_reservation(nexus, victim, kind));
        }
        if victim == 0 {
            return Err(Sense::parameter(NEW_KEY_AT).into());
        }
        if !self.registrations.iter().any(|it| it.key == victim) {
            return Err(Refusal::Conflict);
        }
        let mut effects = self.changed();
        self.evict(nexus, |it| it.key == victim, &mut effects);
        if self.registrations.is_empty() {
            self.reservation = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(effects)
    }

    /// `victim` 0: everybody.
    fn preempt_reservation(&mut self, nexus: &Nexus, victim: u64, kind: Kind) -> Effects {
        let mut effects = self.changed();
        let goes = |it: &Registration| it.nexus != *nexus && (victim == 0 || it.key == victim);
        self.evict(nexus, goes, &mut effects);
        let old = self.reservation.replace(Reservation::of(kind, nexus));
        if old.is_some_and(|old| old.kind != kind) {
            self.tell_others(nexus, Code::RESERVATIONS_RELEASED, &mut effects);
        }
        self.generation = self.generation.wrapping_add(1);
        effects
    }

    /// Takes registrations away, on behalf of `by`.
    fn evict(&mut self, by: &Nexus, goes: impl Fn(&Registration) -> bool, effects: &mut Effects) {
        let gone = self.registrations.extract_if(.., |it| goes(it)).map(|it| it.nexus);
        for nexus in gone.filter(|nexus| nexus != by) {
            effects.told.push((nexus.clone(), Code::REGISTRATIONS_PREEMPTED));
            effects.aborted.push(nexus);
        }
    }
}
