//! The sidecar of a disk that is served, which two threads write: the control plane, and whoever finds that flash is dead.
//!
//! Flash that died under a disk: the sidecar says so, with a generation that the pool on it will never know. Should that flash come back
//! to life, the next start finds the sidecar newer than the pool ([`forebay_core::flash_pool::fence::Change::FlashRolledBack`]): its cache is
//! dropped, and its log refused, both of which are of the past.
//!
//! An image that is replaced while it is served may come with a sidecar of its own, or be served by another disk. That sidecar is not
//! touched: what it says of a dirty log is the only thing that keeps a later start from serving past that log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_core::flash_pool::sidecar::{NamedJournal, Sidecar, SidecarState};
use forebay_core::ids::Generation;

use super::sidecar::{self, Found};
use super::words;
use crate::journal;
use crate::pool::host;

/// See the module. One per session of a disk whose primary storage has a place for a sidecar.
#[derive(Debug)]
pub struct Revoker {
    path: PathBuf,
    written: Mutex<Written>,
}

/// As it was written last, or was to be.
#[derive(Debug)]
struct Written {
    sidecar: Sidecar,
    is_revoked: bool,
    /// It was written by this session: what is there from then on is its own, or was put there by somebody else.
    is_there: bool,
    /// No higher generation was written by this session, nor may have been.
    generation: Generation,
}

/// The sidecar is another one by now; see [`words::not_ours`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NotOurs(String);

/// True when the sidecar was left alone because it is another one by now.
pub(super) fn is_not_ours(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|why| why.is::<NotOurs>())
}

impl Revoker {
    /// Where the sidecar is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn new(path: &Path, sidecar: Sidecar) -> Revoker {
        let generation = sidecar.generation;
        let written = Written { sidecar, is_revoked: false, is_there: false, generation };
        Revoker { path: path.to_owned(), written: Mutex::new(written) }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes it with this state, and the generation that it has by now. How far ahead the clock of its file system is, in ns.
    ///
    /// # Errors
    /// The file system's, or it is another one by now.
    pub(super) fn write(&self, state: SidecarState) -> io::Result<i64> {
        let mut written = self.written();
        written.check(&self.path)?;
        (written.sidecar.state, written.sidecar.date) = (state, host::now());
        if state == SidecarState::Clean {
            // All records of a journal are in place and retired.
            written.sidecar.journal = None;
        }
        let ahead = sidecar::write(&self.path, &written.sidecar)?;
        written.is_there = true;
        Ok(ahead)
    }

    /// Removes it, and the destage journal beside it.
    ///
    /// # Errors
    /// The file system's, or it is another one by now, and so is that journal.
    pub(super) fn remove(&self) -> io::Result<()> {
        let written = self.written();
        written.check(&self.path)?;
        sidecar::remove(&self.path)?;
        // What it has is in place, and no sidecar names it. Not before: a sidecar whose journal is not there says that primary
        // storage may be torn.
        let _ = std::fs::remove_file(journal::beside(&self.path));
        Ok(())
    }

    /// From now on it names this destage journal.
    pub(super) fn name_journal(&self, journal: NamedJournal) {
        self.written().sidecar.journal = Some(journal);
    }

    /// The destage journal does not count any more: true when that is durable. May wait for the folder of the sidecar.
    pub fn revoke_journal(&self) -> bool {
        let mut written = self.written();
        let sidecar = Sidecar { journal: None, date: host::now(), ..written.sidecar.clone() };
        written.replace(&self.path, sidecar)
    }

    /// What is on flash must not be believed any more: true when that is durable. May wait for the folder of the sidecar.
    pub fn revoke(&self) -> bool {
        let mut written = self.written();
        if !written.is_revoked {
            // The state stays: what memory has of a log is not on primary storage yet.
            let sidecar = Sidecar {
                generation: Generation(written.sidecar.generation.0 + 1),
                date: host::now(),
                ..written.sidecar.clone()
            };
            written.is_revoked = written.replace(&self.path, sidecar);
        }
        written.is_revoked
    }
}

impl Written {
    /// Fails when this session has written the sidecar at `path`, and that of another disk or pool, or of a later session, is there
    /// by now.
    fn check(&self, path: &Path) -> io::Result<()> {
        let own = &self.sidecar;
        match sidecar::read(Some(path)) {
            Found::There(there)
                if self.is_there
                    && ((there.disk, there.pool) != (own.disk, own.pool)
                        || there.generation > self.generation) =>
            {
                Err(io::Error::other(NotOurs(words::not_ours(path, own, &there))))
            }
            Found::There(_) | Found::NoPlace | Found::Missing | Found::Unreadable(_) => Ok(()),
        }
    }

    /// Writes this one from now on; true when it is durable.
    fn replace(&mut self, path: &Path, sidecar: Sidecar) -> bool {
        if self.check(path).is_err() {
            return false;
        }
        // A write that fails may have been done all the same.
        self.generation = self.generation.max(sidecar.generation);
        let is_written = sidecar::write(path, &sidecar).is_ok();
        if is_written {
            (self.sidecar, self.is_there) = (sidecar, true);
        }
        is_written
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ids::Uuid;

    use super::super::sidecar::read;
    use super::*;

    #[test]
    fn a_revoked_sidecar_is_of_a_generation_that_no_pool_knows_and_keeps_its_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.raw.forebay");
        for state in [SidecarState::Open, SidecarState::OpenWithLog] {
            let sidecar = Sidecar {
                disk: Uuid([1; 16]),
                pool: Uuid([2; 16]),
                generation: Generation(5),
                state: SidecarState::Open,
                date: 5,
                host: "h".into(),
                name: "db".into(),
                journal: None,
            };
            let revoker = Revoker::new(&path, sidecar);
            let there = || match read(Some(&path)) {
                Found::There(found) => (found.generation, found.state),
                _ => panic!("no sidecar"),
            };
            revoker.write(state).unwrap();
            assert_eq!(there(), (Generation(5), state));
            for _ in 0..2 {
                assert!(revoker.revoke());
                assert_eq!(there(), (Generation(6), state), "a disk without a log claims none");
            }
            // The end does not take it back.
            revoker.write(SidecarState::Clean).unwrap();
            assert_eq!(there(), (Generation(6), SidecarState::Clean));
        }
    }

    #[test]
    fn what_cannot_be_written_is_not_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone/db.raw.forebay");
        let sidecar = Sidecar {
            disk: Uuid([1; 16]),
            pool: Uuid([2; 16]),
            generation: Generation(5),
            state: SidecarState::OpenWithLog,
            date: 5,
            host: "h".into(),
            name: "db".into(),
            journal: None,
        };
        let revoker = Revoker::new(&path, sidecar);
        assert!(!revoker.revoke());
        std::fs::create_dir(path.parent().unwrap()).unwrap();
        assert!(revoker.revoke(), "it is tried again when asked again");
    }
}
