//! The nexuses of a logical unit: who is attached, and what each is to be told first.

use std::collections::VecDeque;

use slab::Slab;

use super::sense::Code;

/// Unit attentions that wait for one nexus; more of them are one POWER ON.
const ATTENTIONS_MAX: usize = 8;

/// An initiator port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Initiator {
    /// iSCSI name, at most 223 bytes.
    pub name: String,
    /// Its part of the session identifier.
    pub isid: [u8; 6],
}

/// An initiator port and the target port through which it came.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nexus {
    /// Who.
    pub initiator: Initiator,
    /// Relative target port identifier, one of `Export::ports`.
    pub port: u16,
}

/// An attached nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NexusId {
    slot: u32,
    /// Counts reuse of the slot.
    serial: u32,
}

/// The role of a nexus in the persistent reservation, or in a future one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not registered.
    Stranger,
    /// Registered.
    Registered,
    /// Holds the reservation.
    Holder,
}

/// An attached nexus and its state.
#[derive(Debug)]
pub(super) struct Attached {
    serial: u32,
    pub nexus: Nexus,
    pub standing: Standing,
    attentions: VecDeque<Code>,
}

/// All attached nexuses.
#[derive(Debug, Default)]
pub(super) struct Nexuses {
    slots: Slab<Attached>,
    serial: u32,
}

impl Nexuses {
    /// A session begins. Its first command gets the unit attention of the power on.
    pub fn attach(&mut self, nexus: Nexus, standing: Standing) -> NexusId {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        let attentions = VecDeque::from([Code::POWER_ON]);
        let slot = self.slots.insert(Attached { serial, nexus, standing, attentions }) as u32;
        NexusId { slot, serial }
    }

    /// The session ended.
    pub fn detach(&mut self, id: NexusId) {
        self.assert_attached(id);
        self.slots.remove(id.slot as usize);
    }

    /// Panics when the nexus is not attached.
    pub fn assert_attached(&self, id: NexusId) {
        self.of(id);
    }

    /// An attached nexus.
    pub fn of(&self, id: NexusId) -> &Attached {
        let attached = self.slots.get(id.slot as usize);
        attached.filter(|nexus| nexus.serial == id.serial).expect("the nexus is attached")
    }

    /// An attached nexus.
    pub fn of_mut(&mut self, id: NexusId) -> &mut Attached {
        let attached = self.slots.get_mut(id.slot as usize);
        attached.filter(|nexus| nexus.serial == id.serial).expect("the nexus is attached")
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (NexusId, &Attached)> {
        self.slots.iter().map(|(slot, attached)| (attached.id(slot), attached))
    }

    /// All of them.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (NexusId, &mut Attached)> {
        self.slots.iter_mut().map(|(slot, attached)| (attached.id(slot), attached))
    }

    /// Every nexus but `except` gets the unit attention `code`.
    pub fn tell_others(&mut self, except: Option<NexusId>, code: Code) {
        for (id, nexus) in self.iter_mut() {
            if Some(id) != except {
                nexus.tell(code);
            }
        }
    }
}

impl Attached {
    fn id(&self, slot: usize) -> NexusId {
        NexusId { slot: slot as u32, serial: self.serial }
    }

    /// A unit attention: once, however often it happened.
    pub fn tell(&mut self, code: Code) {
        if self.attentions.contains(&code) {
            return;
        }
        if self.attentions.len() == ATTENTIONS_MAX {
            self.attentions.clear();
            self.attentions.push_back(Code::POWER_ON);
        }
        self.attentions.push_back(code);
    }

    /// The next unit attention, which this call reports.
    pub fn attention(&mut self) -> Option<Code> {
        self.attentions.pop_front()
    }
}
