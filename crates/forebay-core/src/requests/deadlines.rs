//! Deadlines: entries that all get the same time allowance, so arrival order is due order.
//!
//! An entry keeps when it came, and not when it is due. So another allowance counts for those that are listed, too.

use crate::ids::Nanos;
use crate::table::Key;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Node {
    key: Key,
    since: Nanos,
    prev: u32,
    next: u32,
    listed: bool,
}

const UNLISTED: Node = Node { key: Key(0), since: Nanos(0), prev: NONE, next: NONE, listed: false };

/// A queue of deadlines with removal from anywhere; entries are known by the position of their key.
#[derive(Debug)]
pub(crate) struct Deadlines {
    allowance: Nanos,
    /// Of all positions up to the highest that was ever listed: memory is touched when it is used.
    nodes: Vec<Node>,
    head: u32,
    tail: u32,
}

impl Deadlines {
    /// For the keys of a table of `capacity`, each of which is due `allowance` after it came.
    pub(crate) fn new(capacity: u32, allowance: Nanos) -> Deadlines {
        let nodes = Vec::with_capacity(capacity as usize);
        Deadlines { allowance, nodes, head: NONE, tail: NONE }
    }

    /// Every entry has so much time from now on, also those that are listed.
    pub(crate) fn allow(&mut self, allowance: Nanos) {
        self.allowance = allowance;
    }

    /// Puts `key` at the end: it comes `now`, which is not before any listed entry came. Listed already: it is moved.
    pub(crate) fn push(&mut self, key: Key, now: Nanos) {
        self.remove(key);
        let position = key.position() as u32;
        assert!(key.position() < self.nodes.capacity(), "a key of its table");
        if self.nodes.len() <= key.position() {
            self.nodes.resize(key.position() + 1, UNLISTED);
        }
        if self.tail != NONE {
            assert!(self.nodes[self.tail as usize].since <= now, "time does not run backwards");
            self.nodes[self.tail as usize].next = position;
        } else {
            self.head = position;
        }
        self.nodes[key.position()] =
            Node { key, since: now, prev: self.tail, next: NONE, listed: true };
        self.tail = position;
    }

    /// Takes `key` out, if it is listed.
    pub(crate) fn remove(&mut self, key: Key) {
        let Some(node) = self.nodes.get(key.position()).copied().filter(|node| node.listed) else {
            return;
        };
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

    /// True when `key` is listed.
    pub(crate) fn has(&self, key: Key) -> bool {
        self.nodes.get(key.position()).is_some_and(|node| node.listed)
    }

    /// When the first entry is due.
    pub(crate) fn next(&self) -> Nanos {
        match self.head {
            NONE => Nanos::NEVER,
            head => self.nodes[head as usize].since.plus(self.allowance),
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
        let mut deadlines = Deadlines::new(4, Nanos(10));
        for i in 0..4 {
            deadlines.push(Key(i), Nanos(i));
        }
        deadlines.remove(Key(1));
        deadlines.push(Key(0), Nanos(10));
        assert_eq!(deadlines.next(), Nanos(12));
        assert_eq!(deadlines.pop_due(Nanos(11)), None);
        assert_eq!(deadlines.pop_due(Nanos(13)), Some(Key(2)));
        assert_eq!(deadlines.pop_due(Nanos(13)), Some(Key(3)));
        assert_eq!(deadlines.pop_due(Nanos(13)), None);
        assert_eq!(deadlines.pop_due(Nanos(20)), Some(Key(0)));
        assert_eq!(deadlines.next(), Nanos::NEVER);
    }

    #[test]
    fn another_allowance_counts_for_those_that_are_listed() {
        let mut deadlines = Deadlines::new(4, Nanos(100));
        deadlines.push(Key(0), Nanos(0));
        deadlines.push(Key(1), Nanos(50));
        deadlines.allow(Nanos(20));
        deadlines.push(Key(2), Nanos(60));
        assert_eq!(deadlines.next(), Nanos(20));
        assert_eq!(deadlines.pop_due(Nanos(60)), Some(Key(0)));
        assert_eq!(deadlines.pop_due(Nanos(60)), None);
        deadlines.allow(Nanos(1000));
        assert_eq!(deadlines.next(), Nanos(1050));
        assert!(deadlines.has(Key(1)) && !deadlines.has(Key(0)));
        deadlines.allow(Nanos::NEVER);
        assert_eq!(deadlines.next(), Nanos::NEVER);
        assert_eq!(deadlines.pop_due(Nanos(u64::MAX - 1)), None);
    }
}
