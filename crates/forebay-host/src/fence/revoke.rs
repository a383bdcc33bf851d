//! The sidecar of a disk that is served, which two threads write: the control plane, and whoever finds that flash is dead.
//!
//! Flash that died under a disk: the sidecar says so, with a generation that the pool on it will never know. Should that flash come back
//! to life, the next start finds the sidecar newer than the pool ([`forebay_core::flash_pool::fence::Change::FlashRolledBack`]): its cache is
//! dropped, and its log refused, both of which are of the past.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use forebay_core::flash_pool::sidecar::{NamedJournal, Sidecar, SidecarState};
use forebay_core::ids::Generation;

use super::sidecar;
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
}

impl Revoker {
    /// Where the sidecar is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn new(path: &Path, sidecar: Sidecar) -> Revoker {
        Revoker {
            path: path.to_owned(),
            written: Mutex::new(Written { sidecar, is_revoked: false }),
        }
    }

    /// Writes it with this state, and the generation that it has by now. How far ahead the clock of its file system is, in ns.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn write(&self, state: SidecarState) -> io::Result<i64> {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        (written.sidecar.state, written.sidecar.date) = (state, host::now());
        if state == SidecarState::Clean {
            // All records of a journal are in place and retired.
            written.sidecar.journal = None;
        }
        sidecar::write(&self.path, &written.sidecar)
    }

    /// From now on it names this destage journal.
    pub(super) fn name_journal(&self, journal: NamedJournal) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.sidecar.journal = Some(journal);
    }

    /// The destage journal does not count any more: true when that is durable. May wait for the folder of the sidecar.
    pub fn revoke_journal(&self) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let sidecar = Sidecar { journal: None, date: host::now(), ..written.sidecar.clone() };
        let is_written = sidecar::write(&self.path, &sidecar).is_ok();
        if is_written {
            written.sidecar = sidecar;
        }
        is_written
    }

    /// What is on flash must not be believed any more: true when that is durable. May wait for the folder of the sidecar.
    pub fn revoke(&self) -> bool {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if !written.is_revoked {
            // The state stays: what memory has of a log is not on primary storage yet.
            let sidecar = Sidecar {
                generation: Generation(written.sidecar.generation.0 + 1),
                date: host::now(),
                ..written.sidecar.clone()
            };
            if sidecar::write(&self.path, &sidecar).is_ok() {
                *written = Written { sidecar, is_revoked: true };
            }
        }
        written.is_revoked
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ids::Uuid;

    use super::super::sidecar::{Found, read};
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
