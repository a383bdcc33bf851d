//! The requests of a guest that were taken from its ring, by the heads of their chains.
//!
//! A transfer that is longer than one request to the engine may be is carried out in *parts*, one after the other.

use forebay_core::geometry::{ByteRange, REQUEST_MAX};
use vm_memory::GuestAddress;

use super::super::chain::Piece;
use super::super::config::SEGMENTS_MAX;
use super::super::memory::{self, GuestMap, Map};
use super::super::request::{Asked, Status};
use super::memories::{Memories, MemoryId};

/// Pieces that a slot keeps memory for: no guest that obeys what it is told of has more.
const PIECES_KEPT: usize = 2 * SEGMENTS_MAX as usize;

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
    /// Of a transfer in parts.
    parts: Option<Box<Parts>>,
}

/// A transfer in parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// All of it.
    asked: Asked,
    /// Bytes of the parts that are done.
    done: u64,
}

impl Parts {
    /// Bytes of a read that are in the guest's memory, of the parts that are done.
    pub(super) fn bytes_read(&self) -> u64 {
        if matches!(self.asked, Asked::Read(_)) { self.done } else { 0 }
    }

    /// The part that is to be carried out, or is being carried out.
    fn range(&self, whole: ByteRange) -> ByteRange {
        let start = whole.start + self.done;
        ByteRange::at(start, (whole.end - start).min(REQUEST_MAX))
    }
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
        slot.parts = None;
        std::mem::swap(&mut slot.data, data);
        self.in_flight += 1;
        true
    }

    /// Where the data of a request are, or go, and how far it is, if it is a transfer in parts.
    pub(super) fn data(&self, head: u16) -> (&GuestMap, &[Piece], Option<&Parts>) {
        let slot = &self.slots[usize::from(head)];
        (self.memories.of(slot.memory), &slot.data, slot.parts.as_deref())
    }

    /// The next part of a transfer in parts. The first time `asked` is all of it.
    pub(super) fn part(&mut self, head: u16, asked: Option<Asked>) -> Asked {
        let slot = &mut self.slots[usize::from(head)];
        if let Some(asked) = asked {
            slot.parts = Some(Box::new(Parts { asked, done: 0 }));
        }
        let parts = slot.parts.as_ref().expect("a transfer in parts");
        match parts.asked {
            Asked::Read(whole) => Asked::Read(parts.range(whole)),
            Asked::Write(whole) => Asked::Write(parts.range(whole)),
            other => other,
        }
    }

    /// Bytes of a transfer that are done, before the part that is being carried out.
    pub(super) fn done(&self, head: u16) -> u64 {
        self.slots[usize::from(head)].parts.as_ref().map_or(0, |parts| parts.done)
    }

    /// A request to the engine succeeded; true when there are more parts.
    pub(super) fn part_ended(&mut self, head: u16) -> bool {
        let Some(parts) = &mut self.slots[usize::from(head)].parts else { return false };
        parts.done = parts.asked.data_len().min(parts.done + REQUEST_MAX);
        parts.done < parts.asked.data_len()
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
        if slot.data.capacity() > PIECES_KEPT {
            slot.data = Vec::new();
        }
        self.in_flight -= 1;
        self.memories.release(slot.memory);
    }
}
