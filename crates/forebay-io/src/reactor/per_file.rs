//! What a driver keeps of each file. A file that is registered several times, as a pool is by each of its disks, has it once.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use slab::Slab;

/// See the module.
#[derive(Debug)]
pub(super) struct PerFile<T> {
    /// By the keys of registrations.
    places: Vec<usize>,
    files: Slab<Known<T>>,
}

#[derive(Debug)]
struct Known<T> {
    file: Arc<OwnedFd>,
    /// Registrations of it.
    users: u32,
    kept: T,
}

impl<T> PerFile<T> {
    pub(super) fn new() -> PerFile<T> {
        PerFile { places: Vec::new(), files: Slab::new() }
    }

    /// A file is registered under `key`; for a new one, `make` makes what is kept.
    ///
    /// # Errors
    /// That of `make`; nothing is registered then.
    pub(super) fn register(
        &mut self,
        key: usize,
        file: &Arc<OwnedFd>,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<()> {
        let known = self.files.iter().find(|(_, known)| Arc::ptr_eq(&known.file, file));
        let place = match known.map(|(place, _)| place) {
            Some(place) => place,
            None => self.files.insert(Known { file: Arc::clone(file), users: 0, kept: make()? }),
        };
        self.files[place].users += 1;
        if self.places.len() <= key {
            self.places.resize(key + 1, usize::MAX);
        }
        self.places[key] = place;
        Ok(())
    }

    /// A registration is gone. What is kept goes with the last one of its file.
    pub(super) fn forget(&mut self, key: usize) {
        let place = self.places[key];
        self.files[place].users -= 1;
        if self.files[place].users == 0 {
            self.files.remove(place);
        }
    }

    /// What is kept of a registered file.
    pub(super) fn of(&mut self, key: usize) -> &mut T {
        &mut self.files[self.places[key]].kept
    }

    /// What is kept of each file.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut T> {
        self.files.iter_mut().map(|(_, known)| &mut known.kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_registered_twice_is_kept_once_until_both_are_gone() {
        let file = || Arc::new(OwnedFd::from(tempfile::tempfile().unwrap()));
        let (pool, other) = (file(), file());
        let mut kept = PerFile::new();
        kept.register(0, &pool, || Ok("pool")).unwrap();
        kept.register(1, &pool, || unreachable!("it is kept")).unwrap();
        kept.register(2, &other, || Ok("other")).unwrap();
        assert_eq!(kept.all().collect::<Vec<_>>(), [&"pool", &"other"]);
        kept.forget(0);
        assert_eq!((*kept.of(1), *kept.of(2)), ("pool", "other"));
        kept.register(0, &other, || unreachable!("it is kept")).unwrap();
        kept.forget(1);
        assert_eq!(Arc::strong_count(&pool), 1, "nobody has it any more");
        assert_eq!(kept.all().collect::<Vec<_>>(), [&"other"]);
        kept.forget(2);
        assert_eq!(*kept.of(0), "other");
        assert!(kept.register(1, &pool, || Err(io::ErrorKind::OutOfMemory.into())).is_err());
        assert_eq!(Arc::strong_count(&pool), 1);
    }
}
