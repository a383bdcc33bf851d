//! Order among requests that touch the same bytes.
//!
//! Every request that is not answered at once is registered with its range and its [`Access`]. It
//! may run when no earlier registered one conflicts with it; until then it waits. So overlapping
//! writes run one after the other in the order of arrival, a read that overlaps a write in flight
//! (or an earlier waiting one) waits for it, and of two misses on the same bytes the second finds
//! what the first fetched.
//!
//! The table is small (the requests in flight of one disk), so it is a plain list that is scanned:
//! a comparison costs less than any tree's pointer. [`Overlap::has_writer`] keeps the usual read off
//! even that: it is one test when no write is in flight.

use crate::geometry::ByteRange;
use crate::table::Key;

/// How a request uses its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads, changes nothing.
    Read,
    /// Reads from primary storage into the cache.
    Fill,
    /// Changes the bytes.
    Write,
}

impl Access {
    fn conflicts_with(self, other: Access) -> bool {
        match (self, other) {
            (Access::Write, _) | (_, Access::Write) => true,
            (Access::Fill, Access::Fill) => true,
            (Access::Read, _) | (_, Access::Read) => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Arrival order.
    ticket: u64,
    range: ByteRange,
    access: Access,
    /// Earlier entries that conflict and are still there; 0: running.
    blockers: u32,
    owner: Key,
}

/// The ranges in use, and who waits for whom.
#[derive(Debug)]
pub struct Overlap {
    entries: Vec<Entry>,
    next_ticket: u64,
    writers: u32,
}

impl Overlap {
    /// Room for `capacity` entries.
    pub fn new(capacity: usize) -> Overlap {
        Overlap { entries: Vec::with_capacity(capacity), next_ticket: 0, writers: 0 }
    }

    /// True when a registered write, running or waiting, overlaps `range`.
    pub fn has_writer(&self, range: ByteRange) -> bool {
        self.writers > 0
            && self.entries.iter().any(|e| e.access == Access::Write && e.range.overlaps(range))
    }

    /// True when anything registered, running or waiting, overlaps `range`.
    pub fn touches(&self, range: ByteRange) -> bool {
        self.entries.iter().any(|e| e.range.overlaps(range))
    }

    /// Registers a request; true when it may run at once.
    pub fn enter(&mut self, owner: Key, range: ByteRange, access: Access) -> bool {
        assert!(self.entries.len() < self.entries.capacity(), "more entries than requests");
        let conflicting = |e: &&Entry| e.access.conflicts_with(access) && e.range.overlaps(range);
        let blockers = self.entries.iter().filter(conflicting).count() as u32;
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.writers += u32::from(access == Access::Write);
        self.entries.push(Entry { ticket, range, access, blockers, owner });
        blockers == 0
    }

    /// Takes a request out, if it is in, and appends to `ready` those that may run now, in order of arrival.
    pub fn leave(&mut self, owner: Key, ready: &mut impl Extend<Key>) {
        let Some(position) = self.entries.iter().position(|e| e.owner == owner) else { return };
        // `remove` keeps the order of arrival, so that waiters become ready in that order.
        let left = self.entries.remove(position);
        self.writers -= u32::from(left.access == Access::Write);
        for entry in &mut self.entries[position..] {
            assert!(entry.ticket > left.ticket);
            if entry.access.conflicts_with(left.access) && entry.range.overlaps(left.range) {
                entry.blockers -= 1;
                if entry.blockers == 0 {
                    ready.extend([entry.owner]);
                }
            }
        }
    }

    /// A request that runs needs no more than `range` of its range any more; appends to `ready` those that may run now.
    pub fn narrow(&mut self, owner: Key, range: ByteRange, ready: &mut impl Extend<Key>) {
        let position = self.entries.iter().position(|e| e.owner == owner);
        let position = position.expect("it is registered");
        let before = self.entries[position];
        assert!(before.blockers == 0 && before.range.contains(range));
        self.entries[position].range = range;
        for entry in &mut self.entries[position + 1..] {
            let waited = entry.access.conflicts_with(before.access);
            if waited && entry.range.overlaps(before.range) && !entry.range.overlaps(range) {
                entry.blockers -= 1;
                if entry.blockers == 0 {
                    ready.extend([entry.owner]);
                }
            }
        }
    }

    /// Panics when two running entries conflict or a count is wrong.
    pub fn check_invariants(&self) {
        for (i, entry) in self.entries.iter().enumerate() {
            let blockers = self.entries[..i]
                .iter()
                .filter(|e| e.access.conflicts_with(entry.access) && e.range.overlaps(entry.range))
                .count();
            assert_eq!(blockers as u32, entry.blockers, "{entry:?}");
        }
        let writers = self.entries.iter().filter(|e| e.access == Access::Write).count();
        assert_eq!(writers as u32, self.writers);
    }
}

#[cfg(test)]
mod tests;
