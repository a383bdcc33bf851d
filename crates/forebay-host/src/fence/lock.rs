//! The lock of primary storage that has none of its own that all who use it would meet: an NBD export, or a device that
//! several names lead to. An image file is locked itself.
//!
//! It is a file in the state folder of this host, beside where the sidecar is, and keeps two disks of this host from
//! caching the same bytes. It stays where it is when it is let go of: whoever removed it could remove another one's.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use forebay_io::file::{FileError, FileErrorKind, lock_exclusively, lock_shared};
use rustix::fs::OFlags;

use super::sidecar::SidecarPlace;
use super::words;
use crate::pool::LOCK_WAIT;

/// What keeps other disks of this host from primary storage.
#[derive(Debug)]
pub enum Guard {
    /// It is locked itself, or nobody knows who it is.
    Itself,
    /// A lock in the state folder.
    Locked {
        /// Held until it is dropped.
        _file: File,
    },
    /// Nothing: why, and what to do.
    Missing(String),
}

impl Guard {
    /// Why there is none, for an operator.
    pub fn missing(&self) -> Option<&str> {
        match self {
            Guard::Missing(why) => Some(why),
            Guard::Itself | Guard::Locked { .. } => None,
        }
    }
}

/// Locks what has its sidecar at `place`; others may read it, too, when it is only read.
///
/// # Errors
/// Another process has it.
pub fn lock(place: &SidecarPlace, read_only: bool) -> Result<Guard> {
    if *place == SidecarPlace::NoFolder {
        return Ok(Guard::Missing(words::no_folder()));
    }
    let Some(path) = place.lock_path() else { return Ok(Guard::Itself) };
    match lock_file(place, &path, read_only) {
        Ok(_file) => Ok(Guard::Locked { _file }),
        Err(error) if is_held(&error) => {
            Err(error).context("it is served already, perhaps under another name")
        }
        Err(error) => Ok(Guard::Missing(words::no_lock(&path, &error))),
    }
}

/// Another process has something locked, and may keep it.
pub fn is_in_use(error: &anyhow::Error) -> bool {
    let file = |cause: &FileError| cause.kind() == FileErrorKind::InUse;
    let backend =
        |cause: &forebay_backends::Error| cause.kind() == forebay_backends::ErrorKind::InUse;
    error.chain().any(|cause| {
        cause.downcast_ref().is_some_and(file) || cause.downcast_ref().is_some_and(backend)
    })
}

fn lock_file(place: &SidecarPlace, path: &Path, read_only: bool) -> Result<File> {
    place.make_folder()?;
    lock_at(path, read_only, LOCK_WAIT)
}

/// Locks the file at `path`, which is made where there is none. One that another process has locked is waited for. One that may
/// only be read, as of a daemon that root ran, is as good.
///
/// # Errors
/// Another process has it, or the kernel's.
pub fn lock_at(path: &Path, read_only: bool, lock_wait: Duration) -> Result<File> {
    // Who may write in the folder may have put a link there: it is not followed.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let open = |options: &mut OpenOptions| options.custom_flags(flags).open(path);
    let made = open(File::options().read(true).append(true).create(true));
    let file = made.or_else(|error| open(File::options().read(true)).map_err(|_| error))?;
    let lock = if read_only { lock_shared } else { lock_exclusively };
    lock(&file, path, lock_wait)?;
    Ok(file)
}

fn is_held(error: &anyhow::Error) -> bool {
    error.downcast_ref::<FileError>().is_some_and(|e| e.kind() == FileErrorKind::InUse)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_lock_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let place = SidecarPlace::Apart(folder.path().join("id.forebay"));
        drop(lock(&place, false).unwrap());
        let files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap).collect();
        let [file] = &files[..] else { panic!("{files:?}") };
        std::fs::remove_file(file.path()).unwrap();
        let planted = folder.path().join("planted");
        std::os::unix::fs::symlink(&planted, file.path()).unwrap();
        let guard = lock(&place, false).unwrap();
        assert!(guard.missing().is_some(), "{guard:?}");
        assert!(!planted.exists());
    }

    #[test]
    fn where_there_is_no_lock_that_is_said_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let apart = |folder: &Path| SidecarPlace::Apart(folder.join("state").join("id.forebay"));
        let check = |place: &SidecarPlace, expect: Option<&str>| {
            let guard = lock(place, false).unwrap();
            let said = guard.missing();
            assert_eq!(said.is_some(), expect.is_some(), "{place:?}: {said:?}");
            let said = said.unwrap_or_default();
            assert!(said.contains(expect.unwrap_or_default()), "{said}");
            assert!(expect.is_none() || said.contains("--state-dir"), "{said}");
        };
        check(&SidecarPlace::Nowhere, None);
        check(&SidecarPlace::Beside(folder.path().join("db.raw.forebay")), None);
        check(&apart(folder.path()), None);
        check(&SidecarPlace::NoFolder, Some("HOME"));
        std::fs::write(folder.path().join("file"), "").unwrap();
        check(&apart(&folder.path().join("file")), Some("cannot be locked"));
    }

    #[test]
    fn a_lock_that_another_user_made_counts_as_well() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("id.lock");
        for (path, mode) in [(folder.path(), 0o755), (&path, 0o444)] {
            if path.extension().is_some() {
                File::create(path).unwrap();
            }
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        let lock = || {
            if rustix::process::geteuid().is_root() {
                let other = rustix::process::Uid::from_raw(65534);
                rustix::thread::set_thread_res_uid(other, other, other).unwrap();
            }
            File::options().append(true).open(&path).unwrap_err();
            let held = lock_at(&path, false, Duration::ZERO).unwrap();
            assert!(is_held(&lock_at(&path, true, Duration::ZERO).unwrap_err()));
            drop(held);
            lock_at(&path, true, Duration::ZERO).unwrap();
        };
        std::thread::scope(|scope| scope.spawn(lock).join().unwrap());
    }

    #[test]
    fn one_writer_or_many_readers_have_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let place = SidecarPlace::Apart(folder.path().join("id.forebay"));
        let reader = lock(&place, true).unwrap();
        assert!(matches!(lock(&place, true).unwrap(), Guard::Locked { .. }));
        assert!(lock(&place, false).unwrap_err().to_string().contains("served already"));
        drop(reader);
        let _writer = lock(&place, false).unwrap();
        assert!(lock(&place, true).is_err());
    }
}
