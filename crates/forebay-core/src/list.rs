//! Doubly linked lists over slot numbers, without an allocation per node.
//!
//! [`Links`] holds one node per slot, 8 bytes, made once; a [`List`] is a head, a tail and a length
//! over it. Several lists share one `Links` as long as a slot is in at most one of them: a policy's
//! queues are such lists. Slot numbers need 30 bits, so every node has four spare bits, which are
//! offered to the owner as two numbers of 2 bits: [`Links::queue`] and [`Links::count`].
//!
//! **Invariant:** `queue` is 0 exactly while the slot is in no list.

use crate::ids::SlotId;

/// Most slots that links can be made for.
pub const SLOTS_MAX: u32 = NONE - 1;

/// Bits of a link that hold a slot number.
const SLOT_BITS: u32 = 30;
/// The slot number that stands for "no slot".
const NONE: u32 = (1 << SLOT_BITS) - 1;

/// The neighbours of one slot, each with 2 spare bits above the slot number.
#[derive(Clone, Copy, Debug)]
struct Node {
    /// Towards the front; above it the queue number.
    prev: u32,
    /// Towards the back; above it the count.
    next: u32,
}

/// Replaces the slot number of a link and keeps its spare bits.
fn point(link: &mut u32, slot: u32) {
    *link = *link & !NONE | slot;
}

/// The nodes of all slots.
#[derive(Debug)]
pub struct Links {
    nodes: Box<[Node]>,
}

/// One list: newest at the front, oldest at the back, by convention of its users.
#[derive(Debug)]
pub struct List {
    front: u32,
    back: u32,
    len: u32,
    queue: u8,
}

impl List {
    /// An empty list whose members carry the queue number `queue`, 1 to 3.
    pub fn new(queue: u8) -> List {
        assert!((1..=3).contains(&queue));
        List { front: NONE, back: NONE, len: 0, queue }
    }

    /// Number of slots in it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// True when no slot is in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot at the back.
    pub fn back(&self) -> Option<SlotId> {
        (self.back != NONE).then_some(SlotId(self.back))
    }
}

impl Links {
    /// Nodes for slots `0..slots`, all in no list. Panics above [`SLOTS_MAX`].
    pub fn new(slots: u32) -> Links {
        assert!(slots <= SLOTS_MAX);
        Links { nodes: vec![Node { prev: NONE, next: NONE }; slots as usize].into() }
    }

    /// Goes on with nodes for slots `0..slots`. Those that go must be in no list. Panics above [`SLOTS_MAX`].
    pub fn resize(&mut self, slots: u32) {
        assert!(slots <= SLOTS_MAX);
        let is_alone = |node: &Node| node.prev >> SLOT_BITS == 0;
        assert!(self.nodes.iter().skip(slots as usize).all(is_alone), "a slot that goes is listed");
        let mut nodes = std::mem::take(&mut self.nodes).into_vec();
        nodes.resize(slots as usize, Node { prev: NONE, next: NONE });
        self.nodes = nodes.into();
    }

    /// The number of the list that `slot` is in, 0 when it is in none.
    pub fn queue(&self, slot: SlotId) -> u8 {
        (self.nodes[slot.0 as usize].prev >> SLOT_BITS) as u8
    }

    /// The owner's count for `slot`, 0 to 3. Zero when the slot enters a list by `push_front`.
    pub fn count(&self, slot: SlotId) -> u8 {
        (self.nodes[slot.0 as usize].next >> SLOT_BITS) as u8
    }

    /// Sets the owner's count, 0 to 3.
    pub fn set_count(&mut self, slot: SlotId, count: u8) {
        assert!(count < 4);
        let next = &mut self.nodes[slot.0 as usize].next;
        *next = *next & NONE | u32::from(count) << SLOT_BITS;
    }

    /// Puts `slot`, which must be in no list, at the front of `list`.
    pub fn push_front(&mut self, list: &mut List, slot: SlotId) {
        assert_eq!(self.queue(slot), 0, "slot {} is in a list already", slot.0);
        let old = list.front;
        let queue = u32::from(list.queue) << SLOT_BITS;
        self.nodes[slot.0 as usize] = Node { prev: NONE | queue, next: old };
        self.point_prev(list, old, slot.0);
        list.front = slot.0;
        list.len += 1;
    }

    /// Puts `slot`, which must be in no list, at the back of `list`.
    pub fn push_back(&mut self, list: &mut List, slot: SlotId) {
        assert_eq!(self.queue(slot), 0, "slot {} is in a list already", slot.0);
        let old = list.back;
        let queue = u32::from(list.queue) << SLOT_BITS;
        self.nodes[slot.0 as usize] = Node { prev: old | queue, next: NONE };
        self.point_next(list, old, slot.0);
        list.back = slot.0;
        list.len += 1;
    }

    /// Takes `slot`, which must be in `list`, out of it.
    pub fn remove(&mut self, list: &mut List, slot: SlotId) {
        assert_eq!(self.queue(slot), list.queue, "slot {} is not in this list", slot.0);
        let Node { prev, next } = self.nodes[slot.0 as usize];
        self.point_next(list, prev & NONE, next & NONE);
        self.point_prev(list, next & NONE, prev & NONE);
        self.nodes[slot.0 as usize] = Node { prev: NONE, next: NONE };
        list.len -= 1;
    }

    /// The slot that is next to `slot` towards the front of its list.
    pub fn newer(&self, slot: SlotId) -> Option<SlotId> {
        let prev = self.nodes[slot.0 as usize].prev & NONE;
        (prev != NONE).then_some(SlotId(prev))
    }

    /// Turns `list` until `slot`, which must be in it, is at the back: what was behind it comes to the front.
    pub fn turn_to_back(&mut self, list: &mut List, slot: SlotId) {
        assert_eq!(self.queue(slot), list.queue, "slot {} is not in this list", slot.0);
        let behind = self.nodes[slot.0 as usize].next & NONE;
        if behind == NONE {
            return;
        }
        let (front, back) = (list.front, list.back);
        self.point_next(list, back, front);
        self.point_prev(list, front, back);
        self.point_next(list, slot.0, NONE);
        self.point_prev(list, behind, NONE);
        (list.front, list.back) = (behind, slot.0);
    }

    /// Takes the slot at the back.
    pub fn pop_back(&mut self, list: &mut List) -> Option<SlotId> {
        let slot = list.back()?;
        self.remove(list, slot);
        Some(slot)
    }

    /// Moves `slot`, which must be in `list`, to its front, count kept.
    pub fn move_to_front(&mut self, list: &mut List, slot: SlotId) {
        if list.front == slot.0 {
            assert_eq!(self.queue(slot), list.queue);
            return;
        }
        let count = self.count(slot);
        self.remove(list, slot);
        self.push_front(list, slot);
        self.set_count(slot, count);
    }

    /// Puts `new`, which must be in no list, at the place of `old`, count included; `old` leaves.
    pub fn replace(&mut self, list: &mut List, old: SlotId, new: SlotId) {
        assert_eq!(self.queue(old), list.queue, "slot {} is not in this list", old.0);
        assert_eq!(self.queue(new), 0, "slot {} is in a list already", new.0);
        let node = self.nodes[old.0 as usize];
        self.nodes[new.0 as usize] = node;
        self.nodes[old.0 as usize] = Node { prev: NONE, next: NONE };
        self.point_next(list, node.prev & NONE, new.0);
        self.point_prev(list, node.next & NONE, new.0);
    }

    /// The slots of `list` from front to back.
    pub fn iter<'a>(&'a self, list: &List) -> impl Iterator<Item = SlotId> + use<'a> {
        let mut at = list.front;
        std::iter::from_fn(move || {
            let slot = (at != NONE).then_some(SlotId(at))?;
            at = self.nodes[at as usize].next & NONE;
            Some(slot)
        })
    }

    /// Panics when the links of `list` contradict each other. Slow.
    pub fn check_invariants(&self, list: &List) {
        let (mut len, mut before) = (0, NONE);
        for slot in self.iter(list) {
            assert_eq!(self.queue(slot), list.queue);
            assert_eq!(self.nodes[slot.0 as usize].prev & NONE, before);
            before = slot.0;
            len += 1;
            assert!(len <= list.len, "more members than the list counts, or a loop");
        }
        assert_eq!((len, before), (list.len, list.back));
    }

    /// Bytes of memory that the nodes take.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(&*self.nodes)
    }

    /// What [`Links::memory_bytes`] will be for `slots` slots.
    pub fn memory_bytes_for(slots: u32) -> u64 {
        u64::from(slots) * size_of::<Node>() as u64
    }

    /// Makes `next` the successor of `slot`, or the front when there is no `slot`.
    fn point_next(&mut self, list: &mut List, slot: u32, next: u32) {
        match slot {
            NONE => list.front = next,
            _ => point(&mut self.nodes[slot as usize].next, next),
        }
    }

    /// Makes `prev` the predecessor of `slot`, or the back when there is no `slot`.
    fn point_prev(&mut self, list: &mut List, slot: u32, prev: u32) {
        match slot {
            NONE => list.back = prev,
            _ => point(&mut self.nodes[slot as usize].prev, prev),
        }
    }
}

#[cfg(test)]
mod tests;
