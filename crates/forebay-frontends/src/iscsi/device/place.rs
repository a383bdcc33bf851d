//! The places of a target's units: disks come, end, and leave their numbers to others.

use super::{Beside, Device, Note, Unit};
use crate::client::DiskId;
use crate::iscsi::order::Order;
use crate::scsi::{Initiator, Lun, Nexus, NexusId};

/// Initiators at most that a unit remembers as cut off; with so many its number stays taken.
const CUT_OFF_MAX: usize = 256;

impl Device {
    /// Another logical unit, in the place of one that has its number and has ended. Sessions have it at once, and hear that the
    /// set of units changed.
    ///
    /// Panics when a unit has its number that [`Device::has_room_for`] would not give it.
    pub fn add(&mut self, mut unit: Unit) {
        assert!(self.has_room_for(unit.lun), "each unit has its number");
        let before = self.place_of(unit.lun);
        let place = before.unwrap_or(self.units.len());
        let is_another = before.is_some_and(|place| {
            let is_same = self.units[place].logical.is_same_disk(&unit.logical);
            self.beside[place].is_another || !is_same
        });
        // Whoever may have writes for the disk may have them when it goes once more.
        let cut_off = match before {
            Some(place) if self.units[place].logical.is_same_disk(&unit.logical) => {
                std::mem::take(&mut self.beside[place].cut_off)
            }
            Some(_) | None => Vec::new(),
        };
        let beside = Beside {
            is_shown: true,
            has_ended: false,
            is_another,
            cut_off,
            told: unit.logical.access_of_others(),
            waits: None,
            order: Order::new(),
            cached: 0,
            turns_off: 0,
        };
        for (_, member) in self.members.all.iter_mut().filter(|(_, it)| !it.nexuses.is_empty()) {
            let nexus = Nexus { initiator: member.initiator.clone(), port: member.port };
            let nexus = beside.attach(&mut unit, nexus);
            match before {
                Some(place) => member.nexuses[place] = nexus,
                None => member.nexuses.push(nexus),
            }
            member.notes.retain(|note| match note {
                Note::Aborted(unit, _) | Note::Stored(unit, _) => *unit != place,
                Note::Ended => true,
            });
        }
        match before {
            Some(place) => (self.units[place], self.beside[place]) = (unit, beside),
            None => {
                self.units.push(unit);
                self.beside.push(beside);
            }
        }
        self.tell_changed(place);
    }

    /// True when no unit has this number, or one whose disk has ended, and nothing of that is left.
    pub fn has_room_for(&mut self, lun: Lun) -> bool {
        self.take_stored();
        self.place_of(lun).is_none_or(|place| self.beside[place].is_free())
    }

    /// The initiators that may still have writes for another disk with the number of this unit: they lost that one without a
    /// logout, and have not come back and seen that it is gone.
    pub fn cut_off_from(&self, unit: &Unit) -> &[Initiator] {
        match self.place_of(unit.lun) {
            Some(place) if !self.units[place].logical.is_same_disk(&unit.logical) => {
                &self.beside[place].cut_off
            }
            Some(_) | None => &[],
        }
    }

    /// The disk of a unit has ended for good: nobody finds the unit any more.
    pub fn end_disk(&mut self, disk: DiskId) {
        let Some(place) = self.units.iter().position(|unit| unit.disk == disk) else { return };
        self.units[place].keeper = None;
        self.beside[place].has_ended = true;
        if std::mem::replace(&mut self.beside[place].is_shown, false) {
            self.tell_changed(place);
        }
    }

    fn place_of(&self, lun: Lun) -> Option<usize> {
        self.units.iter().position(|unit| unit.lun == lun)
    }
}

impl Beside {
    /// A session begins with its unit, and is told what it has to know of that.
    pub(super) fn attach(&self, unit: &mut Unit, nexus: Nexus) -> NexusId {
        let nexus = unit.logical.attach(nexus);
        if self.is_another {
            unit.logical.identity_changed(nexus);
        }
        nexus
    }

    /// An initiator lost its session.
    pub(super) fn cut_off(&mut self, initiator: &Initiator) {
        let is_known = !self.is_shown || self.cut_off.contains(initiator);
        if !is_known && self.cut_off.len() < CUT_OFF_MAX {
            self.cut_off.push(initiator.clone());
        }
    }

    /// It has another one.
    pub(super) fn comes_back(&mut self, initiator: &Initiator) {
        if self.cut_off.len() < CUT_OFF_MAX {
            self.cut_off.retain(|known| known != initiator);
        }
    }

    /// True when its disk has ended, and no task and no keeper has to do with it any more.
    fn is_free(&self) -> bool {
        let has_tasks = !self.order.is_empty() || self.cached > 0 || self.turns_off > 0;
        self.has_ended && !has_tasks && self.waits.is_none()
    }
}
