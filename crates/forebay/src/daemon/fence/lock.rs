//! The lock of primary storage that has none of its own that all who use it would meet: an NBD export, or a device that
//! several names lead to. An image file is locked itself.
//!
//! It is a file in the state folder of this host, beside where the sidecar is, and keeps two disks of this host from
//! caching the same bytes. It stays where it is when it is let go of: whoever removed it could remove another one's.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use forebay_io::file::{FileError, FileErrorKind, OpenFile, Options};

use super::sidecar::SidecarPlace;
use super::words;
use crate::daemon::events::Severity;
use crate::daemon::pool::LOCK_WAIT;

/// Locks what has its sidecar at `place`; others may read it, too, when it is only read. `None`: it is locked itself, there is
/// no place for a lock (nobody knows who it is, or this user has no state folder), or there is and it cannot be locked,
/// which `notes` tells of.
///
/// # Errors
/// Another process has it.
pub(in crate::daemon) fn lock(
    place: &SidecarPlace,
    read_only: bool,
    notes: &mut Vec<(Severity, String)>,
) -> Result<Option<OpenFile>> {
    let Some(path) = place.lock_path() else { return Ok(None) };
    match lock_file(place, &path, read_only) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if is_held(&error) => {
            Err(error).context("it is served already, perhaps under another name")
        }
        Err(error) => {
            notes.push((Severity::Warning, words::no_lock(&path, &error)));
            Ok(None)
        }
    }
}

fn lock_file(place: &SidecarPlace, path: &Path, read_only: bool) -> Result<OpenFile> {
    place.make_folder()?;
    // Who only reads makes none.
    File::options().create(true).append(true).open(path)?;
    let options = Options { read_only, buffered: true, lock_wait: LOCK_WAIT, ..Options::default() };
    Ok(OpenFile::open(path, &options)?)
}

fn is_held(error: &anyhow::Error) -> bool {
    error.downcast_ref::<FileError>().is_some_and(|e| e.kind() == FileErrorKind::InUse)
}
