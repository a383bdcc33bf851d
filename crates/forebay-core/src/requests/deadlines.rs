//! Deadlines: entries that all get the same time allowance, so arrival order is due order.

use crate::ids::Nanos;
use crate::table::Key;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    due: Nanos,
    prev: u32,
    next: u32,
    listed: bool,
}

/// A queue of deadlines with removal from anywhere; entries are known by the position of their key.
#[derive(Debug)]
pub(crate) struct Deadlines {
    nodes: Vec<Node>,
    head: u32,
    tail: u32,
}

impl Deadlines {
    /// For the keys of a table of `capacity`.
    pub(crate) fn new(capacity: u32) -> Deadlines {
        let empty = Node { key: Key(0), due: Nanos::NEVER, prev: NONE, next: NONE, listed: false };
        Deadlines { nodes: vec![empty; capacity as usize], head: NONE, tail: NONE }
    }

    /// Puts `key` at the end, due at `due`, which no listed entry exceeds. Listed already: it is moved.
    pub(crate) fn push(&mut self, key: Key, due: Nanos) {
        self.remove(key);
        let position = key.position() as u32;
        if self.tail != NONE {
            assert!(self.nodes[self.tail as usize].due <= due, "time does not run backwards");
            self.nodes[self.tail as usize].next = position;
        } else {
            self.head = position;
        }
        self.nodes[key.position()] = Node { key, due, prev: self.tail, next: NONE, listed: true };
        self.tail = position;
    }

    /// Takes `key` out, if it is listed.
    pub(crate) fn remove(&mut self, key: Key) {
        let node = self.nodes[key.position()];
        if !node.listed {
            return;
        }
        assert_eq!(node.key, key);
        match node.prev {
            NONE => self.head = node.next,
            prev => self.nodes[prev as usize].next = node.next,
        }
        match node.next {
            NONE => self.tail = node.prev,
            next => self.nodes[next as usize].prev = node.prev,
        }
        self.nodes[key.position()].listed = false;
    }

    /// When the first entry is due.
    pub(crate) fn next(&self) -> Nanos {
        match self.head {
            NONE => Nanos::NEVER,
            head => self.nodes[head as usize].due,
        }
    }

    /// Takes out the first entry if it is due.
    pub(crate) fn pop_due(&mut self, now: Nanos) -> Option<Key> {
        if self.next() > now || self.head == NONE {
            return None;
        }
        let key = self.nodes[self.head as usize].key;
        self.remove(key);
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_due_in_order_and_can_leave_or_move() {
        let mut deadlines = Deadlines::new(4);
        for i in 0..4 {
            deadlines.push(Key(i), Nanos(10 + i));
        }
        deadlines.remove(Key(1));
        deadlines.push(Key(0), Nanos(20));
        assert_eq!(deadlines.next(), Nanos(12));
        assert_eq!(deadlines.pop_due(Nanos(11)), None);
        assert_eq!(deadlines.pop_due(Nanos(13)), Some(Key(2)));
        assert_eq!(deadlines.pop_due(Nanos(13)), Some(Key(3)));
        assert_eq!(deadlines.pop_due(Nanos(13)), None);
        assert_eq!(deadlines.pop_due(Nanos(20)), Some(Key(0)));
        assert_eq!(deadlines.next(), Nanos::NEVER);
    }
}
