//! RESERVE and RELEASE of SPC-2, and what reservations forbid.
//!
//! ```text
//!            RESERVE of another   Write Exclusive (WE)   Exclusive Access (EA)
//! Always     –                    –                      –
//! Inform     –                    –                      –
//! Query      conflict             –                      –
//! Read       conflict             –                      conflict
//! Control    conflict             conflict               conflict
//! Write      conflict             conflict               conflict
//! ```
//! A persistent reservation forbids nothing to its holder (with All Registrants: to whoever is
//! registered), and with Registrants Only nothing to whoever is registered.
//!
//! The two kinds do not mix: while RESERVE is held, PERSISTENT RESERVE IN and OUT conflict. While
//! there are registrations RESERVE and RELEASE change nothing: they are GOOD for who holds the
//! persistent reservation, or shares it by being registered (CRH), and conflict otherwise.

use super::nexus::{NexusId, Standing};
use super::opcodes::Class;
use super::task::{Outcome, Response};
use super::unit::{Answer, Call, LogicalUnit, Refusal};

impl LogicalUnit {
    /// Refuses a command of `class` when a reservation is against it.
    pub(super) fn check_reservations(&self, nexus: NexusId, class: Class) -> Result<(), Refusal> {
        let by_another = self.reserved.is_some_and(|holder| holder != nexus);
        let persistent = || self.persistent.forbids(self.standing(nexus), class != Class::Read);
        let is_refused = match class {
            Class::Always | Class::Inform => false,
            Class::Query => by_another,
            Class::Read | Class::Control | Class::Write => by_another || persistent(),
        };
        if is_refused { Err(Refusal::Conflict) } else { Ok(()) }
    }

    pub(super) fn standing(&self, nexus: NexusId) -> Standing {
        self.nexuses.of(nexus).standing
    }

    /// True when `nexus` is exempt from registrations (CRH); a conflict when there are some and it is not.
    fn is_compatible(&self, nexus: NexusId) -> Result<bool, Refusal> {
        self.check_pending()?;
        if !self.persistent.has_registrations() {
            return Ok(false);
        }
        if self.persistent.shares(self.standing(nexus)) { Ok(true) } else { Err(Refusal::Conflict) }
    }
}

pub(super) fn reserve(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if !unit.is_compatible(call.nexus)? {
        unit.reserved = Some(call.nexus);
    }
    Ok(Outcome::Done(Response::GOOD))
}

pub(super) fn release(unit: &mut LogicalUnit, call: &Call) -> Answer {
    if !unit.is_compatible(call.nexus)? && unit.reserved == Some(call.nexus) {
        unit.reserved = None;
    }
    Ok(Outcome::Done(Response::GOOD))
}
