//! Whether a guest has switched the write cache of its device off.
//!
//! The hypervisor goes on showing it off, so that the guest never flushes, also in front of the next daemon. What a hypervisor
//! keeps for requests in flight says so, but it lets go of that whenever the guest begins anew. A file beside the socket says
//! so as well. On `/run` it lives as long as the hypervisor can: both go with the power.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct CacheOff {
    file: PathBuf,
    is_off: bool,
}

impl CacheOff {
    /// As it was left for the device at `socket`.
    pub(super) fn recall(socket: &Path) -> CacheOff {
        let mut file = socket.as_os_str().to_owned();
        file.push(".write-through");
        let file = PathBuf::from(file);
        CacheOff { is_off: file.symlink_metadata().is_ok(), file }
    }

    /// True when it is off.
    pub(super) fn is_off(&self) -> bool {
        self.is_off
    }

    /// Keeps what it is now.
    ///
    /// # Errors
    /// The file cannot be made or removed: the next daemon knows of another state.
    pub(super) fn note(&mut self, is_off: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.is_off, is_off) == is_off {
            return Ok(());
        }
        let (is_done, noted) = match is_off {
            // What somebody else has put there is neither followed nor written to.
            true => {
                let made = OpenOptions::new().write(true).create_new(true).open(&self.file);
                (ErrorKind::AlreadyExists, made.map(drop))
            }
            false => (ErrorKind::NotFound, fs::remove_file(&self.file)),
        };
        noted.or_else(|error| match error.kind() {
            kind if kind == is_done => Ok(()),
            kind => Err(io::Error::new(kind, format!("{}: {error}", self.file.display()))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_daemon_knows_of_a_cache_that_was_switched_off() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("db.vhost");
        let mut cache = CacheOff::recall(&socket);
        assert!(!cache.is_off());
        for is_off in [true, true, false, false, true] {
            cache.note(is_off).unwrap();
            assert!(cache.is_off() == is_off && CacheOff::recall(&socket).is_off() == is_off);
        }
        fs::remove_dir_all(folder.path()).unwrap();
        cache.note(false).unwrap();
        cache.note(true).unwrap_err();
    }
}
