//! Flash that died under a disk: the sidecar says so, with a generation that the pool on it will never know.
//!
//! Should that flash come back to life, the next start finds the sidecar newer than the pool
//! ([`forebay_core::pool::fence::Change::FlashRolledBack`]): its cache is dropped, and its log refused, both of which are of the past.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use forebay_core::ids::Generation;
use forebay_core::pool::sidecar::{Sidecar, SidecarState};

use super::sidecar;
use crate::daemon::pool::host;

/// See the module. One per session of a disk whose primary storage has a place for a sidecar.
#[derive(Debug)]
pub struct Revoker {
    path: PathBuf,
    /// As the session wrote it, but for state and date.
    sidecar: Sidecar,
    revoked: Mutex<bool>,
}

impl Revoker {
    pub(super) fn new(path: PathBuf, sidecar: Sidecar) -> Revoker {
        Revoker { path, sidecar, revoked: Mutex::new(false) }
    }

    /// What is on flash must not be believed any more: true when that is durable. May wait for the folder of the sidecar.
    pub fn revoke(&self) -> bool {
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        *revoked = *revoked || sidecar::write(&self.path, &self.revoked_sidecar()).is_ok();
        *revoked
    }

    /// The generation that the sidecar has from now on, and whether it is revoked.
    pub(super) fn generation(&self) -> (Generation, bool) {
        let revoked = *self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        let sidecar = if revoked { self.revoked_sidecar() } else { self.sidecar.clone() };
        (sidecar.generation, revoked)
    }

    fn revoked_sidecar(&self) -> Sidecar {
        Sidecar {
            generation: Generation(self.sidecar.generation.0 + 1),
            // What memory has is not on primary storage yet.
            state: SidecarState::OpenWithLog,
            date: host::now(),
            ..self.sidecar.clone()
        }
    }
}
