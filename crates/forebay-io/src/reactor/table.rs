//! Things that are used by operations in flight: taken away at once, let go of when the last use ends.

use slab::Slab;

/// Things under small numbers.
///
/// **Invariant:** a key is not given out again before its thing was returned by [`Table::remove`] or
/// [`Table::release`].
#[derive(Debug)]
pub(super) struct Table<T> {
    entries: Slab<Entry<T>>,
}

#[derive(Debug)]
struct Entry<T> {
    thing: T,
    uses: u32,
    is_removed: bool,
}

impl<T> Table<T> {
    pub(super) fn new() -> Table<T> {
        Table { entries: Slab::new() }
    }

    pub(super) fn insert(&mut self, thing: T) -> usize {
        self.entries.insert(Entry { thing, uses: 0, is_removed: false })
    }

    /// The thing, unless it was removed.
    pub(super) fn live(&self, key: usize) -> Option<&T> {
        self.entries.get(key).filter(|entry| !entry.is_removed).map(|entry| &entry.thing)
    }

    /// The thing, for an operation that holds it, removed or not.
    pub(super) fn held(&self, key: usize) -> &T {
        &self.entries[key].thing
    }

    /// As `held`, to change it.
    pub(super) fn held_mut(&mut self, key: usize) -> &mut T {
        &mut self.entries[key].thing
    }

    pub(super) fn is_removed(&self, key: usize) -> bool {
        self.entries.get(key).is_none_or(|entry| entry.is_removed)
    }

    /// True while an operation uses it.
    pub(super) fn is_held(&self, key: usize) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.uses > 0)
    }

    /// One more operation uses it.
    pub(super) fn hold(&mut self, key: usize) {
        self.entries[key].uses += 1;
    }

    /// One operation less uses it. The thing, when it was removed and this was the last use.
    pub(super) fn release(&mut self, key: usize) -> Option<T> {
        let entry = &mut self.entries[key];
        assert!(entry.uses > 0, "released more often than held");
        entry.uses -= 1;
        (entry.is_removed && entry.uses == 0).then(|| self.entries.remove(key).thing)
    }

    /// Takes it away. The thing, when no operation uses it. Nothing happens to what is not there.
    pub(super) fn remove(&mut self, key: usize) -> Option<T> {
        let entry = self.entries.get_mut(key)?;
        entry.is_removed = true;
        (entry.uses == 0).then(|| self.entries.remove(key).thing)
    }

    /// The keys of every thing, removed or not.
    pub(super) fn keys(&self) -> impl Iterator<Item = usize> {
        self.entries.iter().map(|(key, _)| key)
    }

    /// Every thing, removed or not.
    pub(super) fn all(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().map(|(_, entry)| &entry.thing)
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn an_unused_thing_is_let_go_of_at_once() {
        let mut table = Table::new();
        let key = table.insert("file");
        assert_eq!(table.live(key), Some(&"file"));
        assert_eq!(table.remove(key), Some("file"));
        assert_eq!(table.live(key), None);
        assert_eq!(table.remove(key), None);
    }

    #[test]
    fn a_used_thing_is_let_go_of_by_its_last_use() {
        let mut table = Table::new();
        let key = table.insert("file");
        table.hold(key);
        table.hold(key);
        assert_eq!(table.remove(key), None);
        assert!(table.is_removed(key));
        assert_eq!(table.live(key), None);
        assert_eq!(table.held(key), &"file");
        assert_ne!(table.insert("other"), key);
        assert_eq!(table.release(key), None);
        assert_eq!(table.release(key), Some("file"));
    }
}
