//! A table of bounded size whose keys count reuse: a stale key never finds a newer entry.

/// Key of a [`Table`] entry: position in the lower half, how often it was reused in the upper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

impl Key {
    /// Position in the table, below its capacity; the same for an entry as long as it lives.
    pub fn position(self) -> usize {
        self.0 as u32 as usize
    }
}

#[derive(Debug)]
struct Place<T> {
    reuse: u32,
    entry: Option<T>,
}

/// Entries under generational keys. Its memory is allocated when it is made, and touched when it is used.
#[derive(Debug)]
pub struct Table<T> {
    /// The places that ever had an entry.
    places: Vec<Place<T>>,
    /// Those of them that have none.
    free: Vec<u32>,
    capacity: u32,
}

impl<T> Table<T> {
    /// A table for at most `capacity` entries.
    pub fn new(capacity: u32) -> Table<T> {
        let places = Vec::with_capacity(capacity as usize);
        Table { places, free: Vec::with_capacity(capacity as usize), capacity }
    }

    /// Entries in it.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Entries that it may have.
    pub fn capacity(&self) -> usize {
        self.capacity as usize
    }

    /// True without entries.
    pub fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    /// True when no entry can be added.
    pub fn is_full(&self) -> bool {
        self.len() == self.capacity()
    }

    /// Adds an entry; panics when full.
    pub fn insert(&mut self, entry: T) -> Key {
        assert!(!self.is_full(), "a full table is backpressure, not growth");
        let position = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { reuse: 0, entry: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[position as usize];
        assert!(place.entry.is_none());
        place.entry = Some(entry);
        Key(u64::from(place.reuse) << 32 | u64::from(position))
    }

    /// Takes an entry out; panics when the key is stale.
    pub fn remove(&mut self, key: Key) -> T {
        let place = self.places.get_mut(key.position());
        let place = place.filter(|place| u64::from(place.reuse) == key.0 >> 32);
        let taken = place.and_then(|place| {
            let entry = place.entry.take()?;
            place.reuse = place.reuse.wrapping_add(1);
            Some(entry)
        });
        let entry = taken.expect("the key names a living entry");
        self.free.push(key.position() as u32);
        entry
    }

    /// The entry of a key; `None` when the key is stale.
    pub fn find(&self, key: Key) -> Option<&T> {
        let place = self.places.get(key.position())?;
        place.entry.as_ref().filter(|_| u64::from(place.reuse) == key.0 >> 32)
    }

    /// The entry of a key; `None` when the key is stale.
    pub fn find_mut(&mut self, key: Key) -> Option<&mut T> {
        let place = self.places.get_mut(key.position())?;
        let reuse = place.reuse;
        place.entry.as_mut().filter(|_| u64::from(reuse) == key.0 >> 32)
    }

    /// All entries with their keys, by position.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.places.iter().enumerate().filter_map(|(position, place)| {
            let key = Key(u64::from(place.reuse) << 32 | position as u64);
            place.entry.as_ref().map(|entry| (key, entry))
        })
    }

    /// All entries, by position.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.entry.as_mut())
    }
}

impl<T> std::ops::Index<Key> for Table<T> {
    type Output = T;

    fn index(&self, key: Key) -> &T {
        self.find(key).expect("the key names a living entry")
    }
}

impl<T> std::ops::IndexMut<Key> for Table<T> {
    fn index_mut(&mut self, key: Key) -> &mut T {
        self.find_mut(key).expect("the key names a living entry")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut table = Table::new(1);
        let first = table.insert('a');
        assert!(table.is_full());
        assert_eq!(table.remove(first), 'a');
        let second = table.insert('b');
        assert_eq!(first.position(), second.position());
        assert_eq!(table.find(first), None);
        assert_eq!(table[second], 'b');
        assert_eq!(table.len(), 1);
    }

    #[test]
    #[should_panic(expected = "a living entry")]
    fn an_entry_is_taken_out_once() {
        let mut table = Table::new(1);
        let first = table.insert('a');
        table.remove(first);
        table.insert('b');
        table.remove(first);
    }
}
