//! The names of an image: a file with several (hard links) has its sidecar beside one of them.
//!
//! ```text
//!   STATE/INODE-BORN.image ──link──► /images/db.raw     beside which the sidecar lies
//!   /images/copy.raw, the same file without a sidecar beside it, is known as /images/db.raw
//! ```
//! So whichever name a start is given, it finds the same sidecar and the same identity. A name that has a sidecar beside it
//! is not asked about. An image that was renamed away from its sidecar is known by the link as well (`left_behind`).
//!
//! So are pools, for whoever is told that the write log of a disk is in another one:
//!
//! ```text
//!   STATE/POOL.pool ──link──► /var/lib/forebay/flash
//! ```
//!
//! The link is named after the inode and the time when it was made: the number of an image that was removed is given again.
//!
//! **Limits.** Another host, or this one with another state folder, does not know the first name.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use forebay_backends::Probe;
use forebay_core::flash_pool::fence::Timestamp;
use forebay_core::flash_pool::sidecar::Sidecar;
use forebay_core::ids::Uuid;

use super::sidecar;

/// `probe` under the name that its image is known by, as far as this host's `state` folder tells.
pub fn known(probe: Probe, state: Option<&Path>) -> Probe {
    match known_path(&probe, state) {
        Some(path) => probe.known_as(&path),
        None => probe,
    }
}

fn known_path(probe: &Probe, state: Option<&Path>) -> Option<PathBuf> {
    if is_there(probe.sidecar()?) {
        return None;
    }
    let path = fs::read_link(link(probe, state?)?).ok()?;
    is_there(&beside(&path)).then_some(path)
}

/// The name that an image had when a disk with flash was served from it last, where it leads elsewhere or nowhere by now, with
/// the sidecar that lies beside that name. `None` where that name was taken over by another image which a disk is known to
/// have been served from, or where the file system does not tell when a file was made: its number may be another's then.
pub(super) fn left_behind(probe: &Probe, state: Option<&Path>) -> Option<(PathBuf, Sidecar)> {
    let state = state?;
    let here = probe.sidecar()?.with_extension("");
    let (_, Some(_)) = probe.inode()? else { return None };
    let path = fs::read_link(link(probe, state)?).ok()?;
    let owner = path.metadata().ok().and_then(|there| link_of(&there, state));
    let is_anothers =
        || owner.is_some_and(|owner| fs::read_link(owner).is_ok_and(|name| name == path));
    if path == here || probe.is_named(&path) && !is_there(probe.sidecar()?) {
        return None;
    }
    match sidecar::read(Some(&beside(&path))) {
        sidecar::Found::There(there) if probe.is_named(&path) || !is_anothers() => {
            Some((path, there))
        }
        _ => None,
    }
}

/// Remembers by which name the image is known, durably.
///
/// # Errors
/// The kernel's: its other names do not lead to its sidecar then.
pub fn remember(probe: &Probe, state: Option<&Path>) -> io::Result<()> {
    let Some((state, sidecar)) = state.zip(probe.sidecar()) else { return Ok(()) };
    let Some(link) = link(probe, state) else { return Ok(()) };
    put(state, &link, &sidecar.with_extension(""))
}

/// Remembers where a pool is, durably.
///
/// # Errors
/// The kernel's: nobody is told where it is then.
pub fn remember_pool(pool: Uuid, path: &Path, state: Option<&Path>) -> io::Result<()> {
    let Some(state) = state else { return Ok(()) };
    put(state, &pool_link(pool, state), &std::path::absolute(path)?)
}

/// Where the pool is, or was last, as far as this host's `state` folder tells.
pub(super) fn pool_path(pool: Uuid, state: Option<&Path>) -> Option<PathBuf> {
    fs::read_link(pool_link(pool, state?)).ok()
}

fn pool_link(pool: Uuid, state: &Path) -> PathBuf {
    state.join(format!("{pool}.pool"))
}

fn put(state: &Path, link: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|known| known == target) {
        return Ok(());
    }
    fs::create_dir_all(state)?;
    let new = link.with_extension("new");
    let _ = fs::remove_file(&new);
    symlink(target, &new)?;
    fs::rename(&new, link)?;
    sidecar::sync_folder(link)
}

fn link(probe: &Probe, state: &Path) -> Option<PathBuf> {
    let (inode, born) = probe.inode()?;
    Some(named(state, inode, born.unwrap_or_default()))
}

/// The link that the file with these metadata has, where its file system tells when it was made.
fn link_of(file: &fs::Metadata, state: &Path) -> Option<PathBuf> {
    let born = file.created().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(named(state, file.ino(), (born.as_secs() as i64, born.subsec_nanos())))
}

fn named(state: &Path, inode: u64, (seconds, nanos): Timestamp) -> PathBuf {
    state.join(format!("{inode:x}-{seconds:x}.{nanos:x}.image"))
}

fn beside(image: &Path) -> PathBuf {
    let mut sidecar = image.as_os_str().to_owned();
    sidecar.push(".forebay");
    sidecar.into()
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

#[cfg(test)]
mod tests {
    use forebay_backends::{OpenOptions, Uri};

    use super::*;
    use crate::pool::Pool;

    struct Bed(tempfile::TempDir);

    impl Bed {
        fn new() -> Bed {
            let bed = Bed(tempfile::tempdir().unwrap());
            fs::write(bed.at("one.raw"), vec![1; 65536]).unwrap();
            bed
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn probe(&self, name: &str) -> Probe {
            let uri: Uri = format!("file:{}", self.at(name).display()).parse().unwrap();
            let backend = forebay_backends::open(&uri, OpenOptions::default()).unwrap();
            known(backend.probe().unwrap(), Some(&self.at("state")))
        }

        fn remember(&self, name: &str) {
            remember(&self.probe(name), Some(&self.at("state"))).unwrap();
        }

        /// Which image the one called so is known as.
        fn known_as(&self, name: &str) -> String {
            let probe = self.probe(name);
            let image = probe.sidecar().unwrap().with_extension("");
            let identity = probe.identity().unwrap().text().to_owned();
            assert!(identity.ends_with(image.to_str().unwrap()), "{identity}");
            image.file_name().unwrap().to_str().unwrap().to_owned()
        }
    }

    #[test]
    fn an_image_has_one_sidecar_and_one_identity_under_all_its_names() {
        let bed = Bed::new();
        bed.remember("one.raw");
        fs::hard_link(bed.at("one.raw"), bed.at("two.raw")).unwrap();
        assert_eq!(bed.known_as("two.raw"), "two.raw", "the first name has no sidecar yet");
        fs::write(bed.at("one.raw.forebay"), "").unwrap();
        assert_eq!(bed.known_as("two.raw"), "one.raw");
        // A start under the second name forgets nothing.
        bed.remember("two.raw");
        assert_eq!(bed.known_as("two.raw"), "one.raw");
        assert_eq!(bed.known_as("one.raw"), "one.raw");
        assert_eq!(fs::read_dir(bed.at("state")).unwrap().count(), 1);
        fs::write(bed.at("two.raw.forebay"), "").unwrap();
        assert_eq!(bed.known_as("two.raw"), "two.raw", "it has one of its own");
    }

    #[test]
    fn a_name_that_leads_to_another_file_by_now_is_none_of_the_image() {
        let bed = Bed::new();
        bed.remember("one.raw");
        fs::write(bed.at("one.raw.forebay"), "").unwrap();
        fs::hard_link(bed.at("one.raw"), bed.at("two.raw")).unwrap();
        fs::remove_file(bed.at("one.raw")).unwrap();
        assert_eq!(bed.known_as("two.raw"), "two.raw", "the first name is gone");
        fs::write(bed.at("one.raw"), vec![2; 65536]).unwrap();
        assert_eq!(bed.known_as("two.raw"), "two.raw");
        fs::copy(bed.at("two.raw"), bed.at("three.raw")).unwrap();
        assert_eq!(bed.known_as("three.raw"), "three.raw");
    }

    #[test]
    fn a_renamed_image_is_known_by_the_sidecar_that_it_left_behind() {
        let bed = Bed::new();
        let state = bed.at("state");
        let left = |name: &str| left_behind(&bed.probe(name), Some(&state)).map(|(path, _)| path);
        let sidecar = Sidecar {
            disk: Uuid([1; 16]),
            pool: Uuid([2; 16]),
            generation: forebay_core::ids::Generation(1),
            state: forebay_core::flash_pool::sidecar::SidecarState::Dirty,
            date: 5,
            host: "h".into(),
            name: "db".into(),
            journal: None,
        };
        bed.remember("one.raw");
        fs::write(bed.at("one.raw.forebay"), sidecar.encode()).unwrap();
        assert_eq!(left("one.raw"), None, "it has its name");
        fs::hard_link(bed.at("one.raw"), bed.at("two.raw")).unwrap();
        assert_eq!(left("two.raw"), None, "it is known under its first name");
        fs::write(bed.at("two.raw.forebay"), "").unwrap();
        assert_eq!(left("two.raw"), Some(bed.at("one.raw")), "a sidecar beside it changes nothing");
        fs::remove_file(bed.at("two.raw.forebay")).unwrap();
        fs::remove_file(bed.at("one.raw")).unwrap();
        assert_eq!(left("two.raw"), Some(bed.at("one.raw")), "it was renamed");
        // Another file has its first name: a disk may have been served from it since, or not.
        fs::write(bed.at("one.raw"), vec![2; 65536]).unwrap();
        assert_eq!(left("two.raw"), Some(bed.at("one.raw")));
        assert_eq!(left("one.raw"), None, "it was never known otherwise");
        bed.remember("one.raw");
        assert_eq!(left("two.raw"), None, "the sidecar is the other one's");
        fs::remove_file(bed.at("one.raw")).unwrap();
        fs::remove_file(bed.at("one.raw.forebay")).unwrap();
        assert_eq!(left("two.raw"), None, "nothing is left of it");
    }

    #[test]
    fn a_pool_that_moved_is_known_where_it_was_last() {
        let bed = Bed::new();
        let state = bed.at("state");
        let shares = [crate::pool::Share { cache: 1 << 20, ring: 0, log: 0 }];
        let remember = |name: &str| {
            let pool = Pool::open(&bed.at(name), &shares).unwrap();
            remember_pool(pool.uuid(), pool.path(), Some(&state)).unwrap();
            assert_eq!(pool_path(pool.uuid(), Some(&state)), Some(bed.at(name)));
            pool.uuid()
        };
        let first = remember("pool");
        fs::rename(bed.at("pool"), bed.at("moved")).unwrap();
        let other = remember("pool");
        assert_ne!(first, other);
        assert_eq!(remember("moved"), first);
        assert_eq!(pool_path(other, None), None);
    }
}
