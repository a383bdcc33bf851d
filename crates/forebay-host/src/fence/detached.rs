//! Disks that were detached from primary storage, or whose place another disk has taken, as the state folder of this host
//! remembers them.
//!
//! ```text
//!   STATE/IDENTITY.detached    a UUID a line, the newest last, [`KEPT`] at most
//! ```
//! A detach removes the sidecar and the disk's record in its pool. An older copy of the pool still has the record, with a log that
//! primary storage has outlived. A disk that is served again gets a new UUID, so this one tells such a copy. A disk that takes the
//! place of another one, as after `--take-over`, writes over its sidecar, and removes that when it is detached itself.
//!
//! **Limits.** Another host, or this one with another state folder, does not know of the detach. Nor does one whose state folder
//! could not be written.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use forebay_core::ids::Uuid;

use super::sidecar;

/// Disks that are remembered of one primary storage.
const KEPT: usize = 64;

/// True when this host knows that nothing counts any more of what a disk has on flash: it was detached from primary storage
/// of this identity, or another disk has taken its place there. `state`: the state folder, which is read.
pub fn is_of_the_past(identity: Uuid, disk: Uuid, state: Option<&Path>) -> bool {
    Detached::of(identity, state).has(disk)
}

/// Primary storage, and where this host remembers what became of it.
#[derive(Clone, Debug)]
pub(super) struct Detached(Option<PathBuf>);

impl Detached {
    /// Of primary storage with this identity; [`Uuid::NIL`]: nobody knows it.
    pub(super) fn of(identity: Uuid, state: Option<&Path>) -> Detached {
        let state = state.filter(|_| identity != Uuid::NIL);
        Detached(state.map(|state| state.join(format!("{identity}.detached"))))
    }

    /// True when the disk was detached from it.
    pub(super) fn has(&self, disk: Uuid) -> bool {
        self.read().contains(&disk.to_string())
    }

    /// The disk was detached, durably.
    ///
    /// # Errors
    /// The kernel's: an old copy of its pool is not told from a new one then.
    pub(super) fn note(&self, disk: Uuid) -> io::Result<()> {
        let mut disks = self.without(disk);
        disks.push(disk.to_string());
        let first = disks.len().saturating_sub(KEPT);
        self.write(&disks[first..])
    }

    /// The disk is served again, or an administrator has decided about it.
    ///
    /// # Errors
    /// The kernel's: the next start takes its pool for an old copy then.
    pub(super) fn forget(&self, disk: Uuid) -> io::Result<()> {
        match self.has(disk) {
            true => self.write(&self.without(disk)),
            false => Ok(()),
        }
    }

    fn without(&self, disk: Uuid) -> Vec<String> {
        let disk = disk.to_string();
        self.read().into_iter().filter(|other| *other != disk).collect()
    }

    fn read(&self) -> Vec<String> {
        let text = self.0.as_ref().and_then(|path| fs::read_to_string(path).ok());
        text.unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn write(&self, disks: &[String]) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        if disks.is_empty() {
            return sidecar::remove(path);
        }
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let text: String = disks.iter().map(|disk| format!("{disk}\n")).collect();
        sidecar::replace(path, text.as_bytes()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_disks_that_were_detached_are_remembered_until_one_is_served_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let disk = |n: u8| Uuid([n; 16]);
        let here = Detached::of(disk(200), Some(&state));
        for n in 0..100 {
            here.note(disk(n)).unwrap();
            here.note(disk(n)).unwrap();
        }
        let known: Vec<u8> = (0..100).filter(|n| here.has(disk(*n))).collect();
        assert_eq!(known, (36..100).collect::<Vec<u8>>());
        for n in 40..100 {
            here.forget(disk(n)).unwrap();
        }
        assert!(here.has(disk(39)) && !here.has(disk(40)));
        assert!(!Detached::of(disk(201), Some(&state)).has(disk(39)), "another primary storage");
        for n in 0..40 {
            here.forget(disk(n)).unwrap();
        }
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        let nowhere = Detached::of(Uuid::NIL, Some(&state));
        nowhere.note(disk(1)).unwrap();
        assert!(!nowhere.has(disk(1)));
    }
}
