//! The sidecar's file: where it is, read, replaced as a whole, removed.
//!
//! An image file has it beside it. Primary storage that has no such place, a block device or an NBD export, has it in the
//! state folder of this host ([`crate::folders::state_folder`]), under the hash of who it is: evidence of what this
//! host did, and of nothing else.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use forebay_backends::Probe;
use forebay_core::flash_pool::fence::SidecarFound;
use forebay_core::flash_pool::sidecar::{SIDECAR_MAX, Sidecar, SidecarState};
use forebay_core::ids::Uuid;
use sha2::{Digest, Sha256};

use crate::pool::GOES_WITH_DEVICE;

/// Where the sidecar of primary storage has its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SidecarPlace {
    /// Nowhere: nobody knows who primary storage is.
    Nowhere,
    /// Nowhere: this user has no state folder.
    NoFolder,
    /// Beside it: whoever moves, copies or uses it finds it there.
    Beside(PathBuf),
    /// In the state folder of this host, named after who primary storage is.
    Apart(PathBuf),
}

impl SidecarPlace {
    /// The place for what `probe` looks at.
    pub fn of(probe: Option<&Probe>, state: Option<&Path>) -> SidecarPlace {
        if let Some(path) = probe.and_then(Probe::sidecar) {
            return SidecarPlace::Beside(path.to_owned());
        }
        match (identity(probe), state) {
            (Uuid::NIL, _) => SidecarPlace::Nowhere,
            (_, None) => SidecarPlace::NoFolder,
            (identity, Some(folder)) => {
                SidecarPlace::Apart(folder.join(format!("{identity}.forebay")))
            }
        }
    }

    /// The file, where there can be one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            SidecarPlace::Nowhere | SidecarPlace::NoFolder => None,
            SidecarPlace::Beside(path) | SidecarPlace::Apart(path) => Some(path),
        }
    }

    /// The file that is locked for it, where primary storage is not locked itself.
    pub(super) fn lock_path(&self) -> Option<PathBuf> {
        match self {
            SidecarPlace::Apart(path) => Some(path.with_extension("lock")),
            SidecarPlace::Nowhere | SidecarPlace::NoFolder | SidecarPlace::Beside(_) => None,
        }
    }

    /// Makes the state folder, if that is where it is. The folder of an image is not made: its file system may be gone.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn make_folder(&self) -> io::Result<()> {
        match self {
            SidecarPlace::Apart(path) => {
                fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))
            }
            SidecarPlace::Nowhere | SidecarPlace::NoFolder | SidecarPlace::Beside(_) => Ok(()),
        }
    }

    /// True when it is in the state folder.
    pub(super) fn is_apart(&self) -> bool {
        matches!(self, SidecarPlace::Apart(_))
    }

    /// True when the last session of a disk `name` has not ended as far as the state folder knows, at another address of its
    /// server than this one, where `here` was found.
    pub(super) fn is_open_elsewhere(&self, name: &str, here: &Found) -> bool {
        let SidecarPlace::Apart(path) = self else { return false };
        let since = if let Found::There(here) = here { here.date } else { 0 };
        let others = path.parent().and_then(|folder| fs::read_dir(folder).ok());
        let mut others = others.into_iter().flatten().flatten().map(|other| other.path());
        others.any(|other| {
            let is_one = other.extension() == path.extension() && other != *path;
            let there = if is_one { read(Some(&other)) } else { Found::Missing };
            let is_last = |it: &Sidecar| it.name == name && it.date >= since;
            there.is_open() && matches!(&there, Found::There(it) if is_last(it))
        })
    }
}

/// Who primary storage is, as pools and names of files have it; [`Uuid::NIL`]: nobody knows.
pub fn identity(probe: Option<&Probe>) -> Uuid {
    let Some(identity) = probe.and_then(Probe::identity) else { return Uuid::NIL };
    let hash = Sha256::digest(identity.text());
    let mut bytes: [u8; 16] = hash[..16].try_into().expect("sixteen of thirty-two");
    bytes[0] &= !GOES_WITH_DEVICE;
    if identity.is_for_good() {
        bytes[0] |= GOES_WITH_DEVICE;
    }
    Uuid(bytes)
}

/// What is in the place of a sidecar.
#[derive(Clone, Debug)]
pub enum Found {
    /// There is no place.
    NoPlace,
    /// Nothing.
    Missing,
    /// What cannot be read, and why.
    Unreadable(String),
    /// A sidecar.
    There(Sidecar),
}

impl Found {
    /// True when it says that a session did not end, or not in order.
    pub(super) fn is_open(&self) -> bool {
        match self {
            Found::There(sidecar) => !sidecar.state.has_ended(),
            Found::NoPlace | Found::Missing | Found::Unreadable(_) => false,
        }
    }

    /// True when it is of a session that was not left with everything on primary storage.
    pub(super) fn is_not_clean(&self) -> bool {
        matches!(self, Found::There(sidecar) if sidecar.state != SidecarState::Clean)
    }

    /// As the fence judges it.
    pub(super) fn judged(&self) -> SidecarFound<'_> {
        match self {
            Found::NoPlace => SidecarFound::NoPlace,
            Found::Missing => SidecarFound::Missing,
            Found::Unreadable(_) => SidecarFound::Unreadable,
            Found::There(sidecar) => SidecarFound::There(sidecar),
        }
    }
}

/// Reads what is at `path`.
pub(super) fn read(path: Option<&Path>) -> Found {
    let Some(path) = path else { return Found::NoPlace };
    let mut bytes = Vec::new();
    // A byte more than it may have: what is too long is not a sidecar.
    let limit = SIDECAR_MAX as u64 + 1;
    match File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
        Ok(_) => match Sidecar::decode(&bytes) {
            Ok(sidecar) => Found::There(sidecar),
            Err(why) => Found::Unreadable(why.to_string()),
        },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Found::Missing,
            _ => Found::Unreadable(error.to_string()),
        },
    }
}

/// The sidecar of primary storage, if there is one.
///
/// # Errors
/// It cannot be read.
pub fn left_beside(place: &SidecarPlace) -> anyhow::Result<Option<Sidecar>> {
    match read(place.path()) {
        Found::There(sidecar) => Ok(Some(sidecar)),
        Found::NoPlace | Found::Missing => Ok(None),
        Found::Unreadable(why) => {
            let path = place.path().unwrap_or(Path::new("")).display();
            anyhow::bail!("the sidecar {path} cannot be read: {why}")
        }
    }
}

/// Replaces what is at `path`, durably; how far the clock of the medium is ahead of ours, in nanoseconds.
///
/// # Errors
/// The kernel's; the old one is there then, or the new one.
pub(super) fn write(path: &Path, sidecar: &Sidecar) -> io::Result<i64> {
    replace(path, &sidecar.encode())
}

/// The same of any bytes.
///
/// # Errors
/// The kernel's; the old ones are there then, or the new ones.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<i64> {
    let new = new_path(path);
    // Who may write in the folder may have put a link there: it is neither followed nor written to.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&new)?;
    let before = SystemTime::now();
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    let ahead = ahead(file.metadata()?.modified()?, before, SystemTime::now());
    fs::rename(&new, path)?;
    sync_folder(path)?;
    Ok(ahead)
}

/// How far the clock of the file system with this sidecar is ahead of ours, in nanoseconds; none where that took so long that
/// the answer is not sure.
///
/// # Errors
/// The kernel's: no file can be made there.
pub(super) fn clock_ahead(path: &Path) -> io::Result<Option<i64>> {
    const SURE_WITHIN: Duration = Duration::from_millis(750);
    let mut clock = path.as_os_str().to_owned();
    clock.push(".clock");
    match fs::remove_file(&clock) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::create_new(&clock)?;
    let (begun, before) = (Instant::now(), SystemTime::now());
    let modified = file
        .write_all(b"clock")
        .and_then(|()| file.sync_all())
        .and_then(|()| file.metadata()?.modified());
    let (took, after) = (begun.elapsed(), SystemTime::now());
    fs::remove_file(&clock)?;
    let ahead = ahead(modified?, before, after);
    Ok((took < SURE_WITHIN).then_some(ahead))
}

/// Removes it, durably.
///
/// # Errors
/// The kernel's.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(()) => sync_folder(path),
    }
}

fn new_path(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    PathBuf::from(new)
}

/// Makes durable what was made, renamed or removed at `path`.
pub(crate) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// How much later than between `before` and `after` something was modified; less than a tenth of a second is nothing.
fn ahead(modified: SystemTime, before: SystemTime, after: SystemTime) -> i64 {
    const TICKS: i64 = 100_000_000;
    let nanos = |time: SystemTime| {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    };
    let (modified, before, after) = (nanos(modified), nanos(before), nanos(after));
    if modified < before - TICKS {
        modified - before
    } else if modified > after + TICKS {
        modified - after
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::ids::Generation;

    use super::*;

    #[test]
    fn it_is_replaced_as_a_whole_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db.raw.forebay");
        assert!(matches!(read(None), Found::NoPlace));
        assert!(matches!(read(Some(&path)), Found::Missing));
        for generation in [1, 2] {
            let sidecar = Sidecar {
                disk: Uuid([1; 16]),
                pool: Uuid([2; 16]),
                generation: Generation(generation),
                state: SidecarState::Open,
                date: 5,
                host: "h".into(),
                name: "db".into(),
                journal: None,
            };
            assert_eq!(write(&path, &sidecar).unwrap(), 0, "the same clock");
            assert!(matches!(read(Some(&path)), Found::There(found) if found == sidecar));
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        fs::write(&path, "Forebay sidecar 1\n").unwrap();
        assert!(matches!(read(Some(&path)), Found::Unreadable(_)));
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(matches!(read(Some(&path)), Found::Missing));
    }

    #[test]
    fn a_link_that_somebody_put_in_its_way_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (path, precious) = (folder.path().join("db.raw.forebay"), folder.path().join("pool"));
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, new_path(&path)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&precious).unwrap(), b"precious");
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(!new_path(&path).is_symlink());
    }

    #[test]
    fn another_clock_is_told_from_a_slow_tick() {
        let at = |ms: u64| UNIX_EPOCH + Duration::from_millis(ms);
        assert_eq!(ahead(at(996), at(1000), at(1010)), 0);
        assert_eq!(ahead(at(61_010), at(1000), at(1010)), 60_000_000_000);
        assert_eq!(ahead(at(0), at(60_000), at(60_010)), -60_000_000_000);
    }
}
