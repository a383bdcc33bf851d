//! The requests of a guest that were taken from its ring, by the heads of their chains.

use vm_memory::GuestAddress;

use super::super::chain::Piece;
use super::super::memory::{self, GuestMap, Map};
use super::super::request::Status;
use super::memories::{Memories, MemoryId};

/// See the module.
#[derive(Debug)]
pub(super) struct Requests {
    slots: Box<[Slot]>,
    in_flight: u32,
    /// The guest's memory, as each of them knows it.
    pub(super) memories: Memories,
}

#[derive(Debug, Default)]
struct Slot {
    is_taken: bool,
    /// Where its data are, or go.
    data: Vec<Piece>,
    status: GuestAddress,
    /// The memory that these belong to.
    memory: MemoryId,
}

impl Requests {
    /// None of a ring of `size` descriptors.
    pub(super) fn new(size: u16, map: Map) -> Requests {
        let slots = (0..size).map(|_| Slot::default()).collect();
        Requests { slots, in_flight: 0, memories: Memories::new(map) }
    }

    /// Those in flight.
    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Takes a request, whose status and data are in the memory of now. False when the chain is in flight already.
    pub(super) fn begin(&mut self, head: u16, status: GuestAddress, data: &mut Vec<Piece>) -> bool {
        let slot = &mut self.slots[usize::from(head)];
        if slot.is_taken {
            return false;
        }
        (slot.is_taken, slot.status, slot.memory) = (true, status, self.memories.hold());
        std::mem::swap(&mut slot.data, data);
        self.in_flight += 1;
        true
    }

    /// Where the data of a request are, or go.
    pub(super) fn data(&self, head: u16) -> (&GuestMap, &[Piece]) {
        let slot = &self.slots[usize::from(head)];
        (self.memories.of(slot.memory), &slot.data)
    }

    /// Writes the status of a request.
    pub(super) fn note_status(&self, head: u16, status: Status) {
        let slot = &self.slots[usize::from(head)];
        let told = memory::write(self.memories.of(slot.memory), status as u8, slot.status);
        debug_assert!(told.is_some(), "the place was checked against this memory");
    }

    /// A request is not in flight any more.
    pub(super) fn end(&mut self, head: u16) {
        let slot = &mut self.slots[usize::from(head)];
        assert!(slot.is_taken, "one reply per request");
        slot.is_taken = false;
        slot.data.clear();
        self.in_flight -= 1;
        self.memories.release(slot.memory);
    }
}
