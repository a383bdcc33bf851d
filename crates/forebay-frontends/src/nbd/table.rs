//! The requests of one connection that were taken and not answered.

use forebay_core::geometry::ByteRange;
use forebay_nbd::flags::CommandFlags;
use forebay_nbd::request::Command;

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The client's name of it.
    pub(crate) cookie: u64,
    pub(crate) command: Command,
    pub(crate) flags: CommandFlags,
    pub(crate) range: ByteRange,
    /// Answers of the engine that are still to come.
    pub(crate) awaited: u8,
}

/// A fixed number of places for requests in flight; all its memory is allocated when it is made.
#[derive(Debug)]
pub(crate) struct Table {
    places: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl Table {
    pub(crate) fn new(places: u32) -> Table {
        Table { places: vec![None; places as usize], free: (0..places).rev().collect() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Takes a place; there must be one.
    pub(crate) fn insert(&mut self, entry: Entry) -> u32 {
        let place = self.free.pop().expect("the caller asked is_full");
        self.places[place as usize] = Some(entry);
        place
    }

    pub(crate) fn entry(&mut self, place: u32) -> &mut Entry {
        self.places[place as usize].as_mut().expect("answers come for requests in flight only")
    }

    pub(crate) fn remove(&mut self, place: u32) -> Entry {
        let entry = self.places[place as usize].take();
        self.free.push(place);
        entry.expect("answers come for requests in flight only")
    }
}
