//! The guest's memory of now, and what requests in flight use of the one before.

use std::collections::VecDeque;

use super::super::memory::Map;
use super::Queue;

/// See the module.
#[derive(Debug)]
pub(super) struct Memories {
    /// The one of now is the last.
    held: VecDeque<Held>,
    /// The number of the first.
    first: u64,
}

#[derive(Debug)]
struct Held {
    map: Map,
    /// Requests in flight that use it.
    users: u32,
}

impl Queue {
    /// Tells that the queue has ended, once it has let go of the guest's memory: whoever hears of that may unmap it, which is
    /// not for the shard to do.
    pub(super) fn tell_of_end(&mut self) {
        self.ring.let_go();
        self.requests.memories = Memories::new(Map::default());
        self.control.tell_of_end(self.ring.position());
    }
}

/// The number of a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemoryId(u64);

impl Memories {
    pub(super) fn new(map: Map) -> Memories {
        Memories { held: VecDeque::from([Held { map, users: 0 }]), first: 0 }
    }

    /// The guest's memory is another one from now on.
    pub(super) fn change(&mut self, map: Map) {
        self.held.push_back(Held { map, users: 0 });
        self.forget();
    }

    /// What it is now.
    pub(super) fn now(&self) -> &Map {
        &self.held.back().expect("there is always one").map
    }

    /// A request uses the memory of now.
    pub(super) fn hold(&mut self) -> MemoryId {
        self.held.back_mut().expect("there is always one").users += 1;
        MemoryId(self.first + self.held.len() as u64 - 1)
    }

    /// The memory that a request uses.
    pub(super) fn of(&self, id: MemoryId) -> &Map {
        &self.held[(id.0 - self.first) as usize].map
    }

    /// A request does not use it any more.
    pub(super) fn release(&mut self, id: MemoryId) {
        self.held[(id.0 - self.first) as usize].users -= 1;
        self.forget();
    }

    /// Whether only the memory of now is used.
    pub(super) fn is_one(&self) -> bool {
        self.held.len() == 1
    }

    /// Lets go of memories that nobody uses, from the oldest on.
    fn forget(&mut self) {
        while self.held.len() > 1 && self.held[0].users == 0 {
            self.held.pop_front();
            self.first += 1;
        }
    }
}
