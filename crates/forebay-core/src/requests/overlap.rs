//! Order among requests that touch the same bytes.
//!
//! Every request that is not answered at once is registered with its range and its [`Access`]. It
//! may run when no earlier registered one conflicts with it; until then it waits. So overlapping
//! writes run one after the other, in the order of arrival. A read that overlaps a write in
//! flight (or an earlier waiting one) waits for it. A read of bytes that an earlier one *brings*
//! takes them from it. A read that wants more than that does not wait. Neighbours of a guest
//! whose partition is off the grid share a granule: one after the other they would be slower than
//! without a cache. Both fetch the same bytes, since no write runs meanwhile.
//!
//! The table is small (the requests in flight of one disk), so it is a plain list that is
//! scanned. A comparison costs less than any tree's pointer. [`Overlap::has_writer`] spares the
//! usual read even that: it is one test when no write is in flight.

use crate::geometry::ByteRange;
use crate::table::Key;

/// How a request uses its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Reads, changes nothing; the part of its range that it brings to whoever asks for it meanwhile.
    Read(ByteRange),
    /// Reads, holds up nobody, and is void when the bytes change.
    Background,
    /// Changes the bytes.
    Write,
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

impl Entry {
    /// True when `other` came after it and has to wait for it.
    fn blocks_later(&self, other: &Entry) -> bool {
        self.ticket < other.ticket && self.blocks(other)
    }

    /// True when `later`, which came after it, has to wait for it.
    fn blocks(&self, later: &Entry) -> bool {
        // First what is false for almost all: this is asked of each request in flight.
        self.range.overlaps(later.range)
            && match (self.access, later.access) {
                (Access::Background, _) | (Access::Read(_), Access::Background) => false,
                (Access::Write, _) | (_, Access::Write) => true,
                (Access::Read(brings), Access::Read(wants)) => {
                    !wants.is_empty() && brings.contains(wants)
                }
            }
    }
}

/// The ranges in use, and who waits for whom.
#[derive(Debug)]
pub(crate) struct Overlap {
    entries: Vec<Entry>,
    next_ticket: u64,
    writers: u32,
    backgrounds: u32,
}

impl Overlap {
    /// Room for `capacity` entries.
    pub(crate) fn new(capacity: usize) -> Overlap {
        Overlap {
            entries: Vec::with_capacity(capacity),
            next_ticket: 0,
            writers: 0,
            backgrounds: 0,
        }
    }

    /// True when a registered write, running or waiting, overlaps `range`.
    pub(crate) fn has_writer(&self, range: ByteRange) -> bool {
        self.writers > 0
            && self.entries.iter().any(|e| e.access == Access::Write && e.range.overlaps(range))
    }

    /// True when anything registered, running or waiting, overlaps `range`.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        self.entries.iter().any(|e| e.range.overlaps(range))
    }

    /// How many background reads are registered.
    pub(crate) fn backgrounds(&self) -> u32 {
        self.backgrounds
    }

    /// A background read that overlaps `range`.
    pub(crate) fn background_in(&self, range: ByteRange) -> Option<Key> {
        let is_one = |e: &&Entry| e.access == Access::Background && e.range.overlaps(range);
        self.entries.iter().filter(|_| self.backgrounds > 0).find(is_one).map(|entry| entry.owner)
    }

    /// Registers a request; true when it may run at once.
    pub(crate) fn enter(&mut self, owner: Key, range: ByteRange, access: Access) -> bool {
        assert!(self.entries.len() < self.entries.capacity(), "more entries than requests");
        let mut entry = Entry { ticket: self.next_ticket, range, access, blockers: 0, owner };
        entry.blockers = self.entries.iter().filter(|e| e.blocks(&entry)).count() as u32;
        self.next_ticket += 1;
        self.writers += u32::from(access == Access::Write);
        self.backgrounds += u32::from(access == Access::Background);
        self.entries.push(entry);
        entry.blockers == 0
    }

    /// The first request after place `after` of the list that only waits for `owner`, and its place.
    pub(crate) fn next_waiter(&self, owner: Key, after: usize) -> Option<(usize, Key)> {
        let entry = self.entries.iter().find(|e| e.owner == owner)?;
        let mut waiters = self.entries.iter().enumerate().skip(after + 1);
        let (place, waiter) = waiters.find(|(_, e)| e.blockers == 1 && entry.blocks_later(e))?;
        Some((place, waiter.owner))
    }

    /// Whether an earlier request that `owner` waits for `is_so`.
    pub(crate) fn waits_for(&self, owner: Key, is_so: impl Fn(Key) -> bool) -> bool {
        let Some(entry) = self.entries.iter().find(|e| e.owner == owner) else { return false };
        self.entries.iter().any(|e| e.blocks_later(entry) && is_so(e.owner))
    }

    /// Takes a request out, if it is in, and appends to `ready` those that may run now, in order of arrival.
    pub(crate) fn leave(&mut self, owner: Key, ready: &mut impl Extend<Key>) {
        let Some(position) = self.entries.iter().position(|e| e.owner == owner) else { return };
        // `remove` keeps the order of arrival, so that waiters become ready in that order.
        let left = self.entries.remove(position);
        self.writers -= u32::from(left.access == Access::Write);
        self.backgrounds -= u32::from(left.access == Access::Background);
        for entry in &mut self.entries[position..] {
            assert!(entry.ticket > left.ticket);
            if left.blocks(entry) {
                entry.blockers -= 1;
                if entry.blockers == 0 {
                    ready.extend([entry.owner]);
                }
            }
        }
    }

    /// A request that runs needs no more than `range` of its range any more; appends to `ready` those that may run now.
    pub(crate) fn narrow(&mut self, owner: Key, range: ByteRange, ready: &mut impl Extend<Key>) {
        let position = self.entries.iter().position(|e| e.owner == owner);
        let position = position.expect("it is registered");
        let before = self.entries[position];
        assert!(before.blockers == 0 && before.range.contains(range));
        let after = Entry { range, ..before };
        self.entries[position] = after;
        for entry in &mut self.entries[position + 1..] {
            if before.blocks(entry) && !after.blocks(entry) {
                entry.blockers -= 1;
                if entry.blockers == 0 {
                    ready.extend([entry.owner]);
                }
            }
        }
    }

    /// True when `owner` holds or waits for all of `range`. For tests; slow.
    pub(crate) fn holds(&self, owner: Key, range: ByteRange) -> bool {
        self.entries.iter().any(|entry| entry.owner == owner && entry.range.contains(range))
    }

    /// Panics when two running entries conflict or a count is wrong.
    pub(crate) fn check_invariants(&self) {
        for (i, entry) in self.entries.iter().enumerate() {
            let blockers = self.entries[..i].iter().filter(|e| e.blocks(entry)).count();
            assert_eq!(blockers as u32, entry.blockers, "{entry:?}");
        }
        let writers = self.entries.iter().filter(|e| e.access == Access::Write).count();
        assert_eq!(writers as u32, self.writers);
    }
}

#[cfg(test)]
mod tests;
