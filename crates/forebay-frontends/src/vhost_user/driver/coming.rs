//! The requests that come next: several are read together, so that the engine is told of all of them, and taken one by one.
//!
//! Reading a request changes nothing, in the ring or elsewhere. So what was read may be forgotten, and read again from other
//! memory.

use vm_memory::GuestAddress;

use super::super::chain::{Broken, Pieces};
use super::super::memory::GuestMap;
use super::super::request::{self, Asked, Discards};
use super::super::ring::Ring;

/// Requests that are read together at most.
const TOGETHER: u16 = 32;

/// A request that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The head of its chain.
    pub(super) head: u16,
    pub(super) asked: Asked,
    /// Where its status goes.
    pub(super) status: GuestAddress,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Coming {
    /// In their order; behind what cannot be read there is nothing.
    found: Vec<Result<Found, Broken>>,
    /// Their data, and room for those of more.
    pieces: Box<[Pieces]>,
    /// The first that was not taken.
    next: usize,
}

impl Coming {
    pub(super) fn new() -> Coming {
        let pieces = (0..TOGETHER).map(|_| Pieces::default()).collect();
        Coming { found: Vec::with_capacity(TOGETHER.into()), pieces, next: 0 }
    }

    /// Reads the next requests of the ring; where those begin that transfer something.
    pub(super) fn read(
        &mut self,
        ring: &mut Ring,
        map: &GuestMap,
        discards: Discards,
    ) -> impl Iterator<Item = u64> {
        self.forget();
        while self.found.len() < self.pieces.len() {
            let ahead = self.found.len();
            let found = match ring.look(ahead as u16) {
                Ok(None) => break,
                Ok(Some(head)) => read(ring, map, discards, head, &mut self.pieces[ahead]),
                Err(broken) => Err(broken),
            };
            self.found.push(found);
            if found.is_err() {
                break;
            }
        }
        self.found.iter().flatten().filter_map(|found| match found.asked {
            Asked::Read(range) | Asked::Write(range) => Some(range.start),
            Asked::Flush
            | Asked::Serial
            | Asked::Discard(_)
            | Asked::WriteZeroes { .. }
            | Asked::Refused(_) => None,
        })
    }

    /// True when all that were read were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.found.len()
    }

    /// The next of those that were read, with its data. It is to be taken from the ring.
    pub(super) fn next(&mut self) -> Option<(Result<Found, Broken>, &mut Pieces)> {
        let found = *self.found.get(self.next)?;
        let pieces = &mut self.pieces[self.next];
        self.next += 1;
        Some((found, pieces))
    }

    /// None was read.
    pub(super) fn forget(&mut self) {
        self.found.clear();
        self.next = 0;
    }
}

fn read(
    ring: &Ring,
    map: &GuestMap,
    discards: Discards,
    head: u16,
    pieces: &mut Pieces,
) -> Result<Found, Broken> {
    ring.walk(head, pieces)?;
    let (asked, status) = request::parse(map, discards, pieces)?;
    Ok(Found { head, asked, status })
}
