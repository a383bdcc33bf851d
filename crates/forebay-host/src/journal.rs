//! The destage journal of a disk: made, put in place before a session begins, looked at and repaired by hand.
//!
//! ```text
//!   IMAGE.forebay ──nonce──► IMAGE.forebay-journal, or a URI ──whole records──► primary storage
//! ```
//! The sidecar names the journal: its nonce, and where it is. Without that name no record counts. `forebay_core::journal` has
//! the bytes and the order of the steps; this gives it files, devices and exports.

mod primary;

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::size::rounded;
use forebay_backends::{Backend, Blocking, ErrorKind, FileUri, Properties, Uri};
use forebay_core::flash_pool::sidecar::{NamedJournal, Sidecar};
use forebay_core::ids::Uuid;
use forebay_core::journal::repair::{RepairError, look};
use forebay_core::journal::{self, Medium, Owner, Repaired, Shape, Superblock};
use forebay_core::sealed::PAGE_LEN;
use rustix::fs::{AtFlags, Timespec, Timestamps};

use crate::fence::{Guard, SidecarPlace, identity, lock, sync_folder};
use crate::pool::LOCK_WAIT;

pub use primary::Primary;

/// No superblock was written so often.
const VERSION_MAX: u64 = 1 << 60;

/// Where the journal of an image is whose sidecar is there.
pub fn beside(sidecar: &Path) -> PathBuf {
    let mut path = sidecar.as_os_str().to_owned();
    path.push("-journal");
    PathBuf::from(path)
}

/// Where a destage journal is.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalPlace {
    uri: Uri,
    /// As it was written: a path, or a URI.
    text: String,
    /// Nobody else uses a file of that name.
    is_beside: bool,
}

impl fmt::Display for JournalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl JournalPlace {
    /// Beside an image whose sidecar is there.
    ///
    /// # Errors
    /// Its path cannot be made absolute.
    pub fn beside(sidecar: &Path) -> Result<JournalPlace> {
        let path = beside(sidecar);
        Ok(JournalPlace { is_beside: true, ..JournalPlace::file(&path)? })
    }

    /// At a URI, or in a file.
    ///
    /// # Errors
    /// It is neither, or nothing that outlives this process.
    pub fn at(text: &str) -> Result<JournalPlace> {
        let uri = match text.parse() {
            // The sidecar names it for whoever comes from another folder.
            Ok(Uri::File(file)) if file.path.is_relative() => {
                bail!("the path of {text} has to begin with '/'")
            }
            Ok(uri) => uri,
            // What a sidecar names may have any character.
            Err(_) if text.starts_with('/') || !text.contains(':') => {
                return JournalPlace::file(Path::new(text));
            }
            Err(error) => return Err(error.into()),
        };
        match uri {
            Uri::File(_) | Uri::Block(_) | Uri::Nbd(_) => {
                Ok(JournalPlace { uri, text: text.to_owned(), is_beside: false })
            }
            Uri::Mem(_) | Uri::Model { .. } | Uri::Fault { .. } => bail!(
                "{text} would not outlive this process as a destage journal has to: give file:, block: or nbd:"
            ),
        }
    }

    fn file(path: &Path) -> Result<JournalPlace> {
        let path = std::path::absolute(path).context("its path cannot be made absolute")?;
        let text = path.display().to_string();
        // Not by way of its text: what looks like an escape in a name is none.
        let uri = Uri::File(FileUri { path, direct: true, read_only: false });
        Ok(JournalPlace { uri, text, is_beside: false })
    }

    /// Where the journal is that a sidecar at `path` names, if it names one.
    ///
    /// # Errors
    /// It names nothing that can be a journal.
    pub fn named(sidecar: &Sidecar, path: &Path) -> Result<Option<JournalPlace>> {
        let Some(NamedJournal { uri, .. }) = &sidecar.journal else { return Ok(None) };
        match uri {
            Some(uri) => JournalPlace::at(uri).map(Some),
            None => JournalPlace::beside(path).map(Some),
        }
    }

    /// As a sidecar names it that does not say whose journal it is.
    pub fn name(&self, nonce: u64) -> NamedJournal {
        let uri = (!self.is_beside).then(|| self.text.clone());
        NamedJournal { nonce, uri, identity: Uuid::NIL }
    }

    /// Its file, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match &self.uri {
            Uri::File(file) => Some(&file.path),
            _ => None,
        }
    }

    /// True beside an image, on the same storage.
    pub fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// Keeps everybody else of this host from it, for a disk whose primary storage is `primary`. A file is locked itself when it is
    /// opened. `state` is the state folder.
    ///
    /// # Errors
    /// It is primary storage, somebody has it, or it cannot be opened.
    pub fn lock(&self, primary: Uuid, state: Option<&Path>) -> Result<Guard> {
        if self.path().is_some() {
            return Ok(Guard::Itself);
        }
        let probe = self.backend(true)?.probe();
        let is = identity(probe.as_ref());
        ensure!(is == Uuid::NIL || is != primary, "{self} is primary storage itself");
        let place = SidecarPlace::of(probe.as_ref(), state);
        lock(&place, false).with_context(|| format!("{self} is in use"))
    }

    /// Opens it for a shard. `is_unanswered`: a former process may have left requests there.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn open(&self, is_unanswered: bool) -> Result<Box<dyn Backend>> {
        let mut backend = self.backend(false)?;
        if is_unanswered {
            backend.hold_changes();
        }
        Ok(backend)
    }

    fn backend(&self, read_only: bool) -> Result<Box<dyn Backend>, forebay_backends::Error> {
        let options = forebay_backends::OpenOptions { read_only, lock_wait: LOCK_WAIT };
        forebay_backends::open(&self.uri, options)
    }

    /// Opens it, to look at it or to change it; nothing when there is no such file.
    fn blocking(&self, read_only: bool, is_unanswered: bool) -> Result<Option<Blocking>> {
        let cannot = || format!("cannot open the destage journal {self}");
        match self.backend(read_only) {
            Ok(backend) => Ok(Some(Blocking::new(backend, is_unanswered).with_context(cannot)?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(cannot),
        }
    }
}

/// What there is of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// The file is gone.
    None,
    /// What is there is not the named journal: its records are of the past.
    Foreign(Owner),
    /// The journal, as it was found.
    Found(Repaired),
}

/// The owner that a sidecar names.
pub fn owner(sidecar: &Sidecar) -> Option<Owner> {
    let NamedJournal { nonce, .. } = sidecar.journal.as_ref()?;
    Some(Owner { disk: sidecar.disk, nonce: *nonce })
}

/// Looks at the journal of primary storage of `size` bytes.
///
/// # Errors
/// The journal cannot be read, or is damaged.
pub fn check(place: &JournalPlace, owner: Owner, size: u64) -> Result<Journal> {
    let Some(mut journal) = place.blocking(true, false)? else { return Ok(Journal::None) };
    told(place, look::<_, io::Error>(&mut journal, owner, size))
}

/// Who a journal says that it belongs to.
///
/// # Errors
/// It cannot be read, or is no journal.
pub fn owner_of(place: &JournalPlace) -> Result<Owner> {
    let journal = place.blocking(true, false)?;
    let mut journal = journal.with_context(|| format!("{place} is not there"))?;
    let found = found(&mut journal).with_context(|| format!("cannot read {place}"))?;
    Ok(found.with_context(|| format!("{place} cannot be used"))?.owner)
}

/// Puts the records of the journal in place that are whole and not retired.
///
/// # Errors
/// The journal is damaged, somebody else writes it, or either cannot be read or written. To try again does no harm.
pub fn repair<'a>(
    place: &JournalPlace,
    owner: Owner,
    primary: impl Fn() -> io::Result<Primary<'a>>,
    size: u64,
    is_unanswered: bool,
) -> Result<Journal> {
    let Some(mut journal) = place.blocking(false, is_unanswered)? else {
        return Ok(Journal::None);
    };
    let look = |journal: &mut Blocking| told(place, look::<_, io::Error>(journal, owner, size));
    let open = || {
        primary().context(
            "cannot open primary storage to write (an NBD server has to allow one connection more than its disk has: qemu-nbd \
             --shared 2)",
        )
    };
    // A server that takes no more connections than the disk has is not asked for one without need. Who waits for late writes
    // to primary storage does so while the journal waits for its own.
    let early = has_records(&look(&mut journal)?).then(open).transpose()?;
    // A record that a late write is about to change looks whole until then.
    journal.settle();
    let found = look(&mut journal)?;
    if early.is_none() && !has_records(&found) {
        return Ok(found);
    }
    let mut primary = early.map_or_else(open, Ok)?;
    told(place, journal::repair(&mut journal, &mut primary, owner, size))
}

/// True when there is something to put in place, or to retire.
fn has_records(found: &Journal) -> bool {
    matches!(found, Journal::Found(found) if found.windows > 0 || found.ignored > 0)
}

fn told(
    place: &JournalPlace,
    came: Result<Repaired, RepairError<io::Error, io::Error>>,
) -> Result<Journal> {
    match came {
        Ok(repaired) => Ok(Journal::Found(repaired)),
        Err(RepairError::NotItsOwn { found }) => Ok(Journal::Foreign(found)),
        Err(RepairError::Invalid(why)) => {
            bail!("the destage journal {place} cannot be used: {why}")
        }
        Err(other) => Err(other).with_context(|| format!("cannot repair from {place}")),
    }
}

fn found(journal: &mut Blocking) -> io::Result<Result<Superblock, journal::superblock::Invalid>> {
    let mut copies = [[0; PAGE_LEN]; 2];
    for (copy, page) in copies.iter_mut().enumerate() {
        journal.read((copy * PAGE_LEN) as u64, page)?;
    }
    Ok(Superblock::choose([&copies[0], &copies[1]]))
}

/// Makes an empty journal, in place of an older one of its disk. A file is made if there is none. What is there is looked at
/// before anything of it changes.
///
/// # Errors
/// It cannot be written, it is too small, or it holds what is not this disk's.
pub fn make(place: &JournalPlace, owner: Owner, shape: Shape) -> Result<Superblock> {
    let is_file = place.path().is_some();
    if let (true, Some(path)) = (place.is_beside, place.path()) {
        refuse_link(path)?;
    }
    let is_new =
        |path: &Path| path.metadata().is_ok_and(|there| there.is_file() && there.len() == 0);
    let version = match place.blocking(true, false) {
        _ if place.path().is_some_and(is_new) => 0,
        Ok(None) if is_file => 0,
        Ok(there) => {
            let mut there = there.with_context(|| format!("{place} is not there"))?;
            former_version(place, &mut there, owner, shape)?
        }
        Err(error) => return Err(error),
    };
    if let Some(path) = place.path() {
        make_file(path, shape.size())?;
    }
    let journal = place.blocking(false, false)?;
    let mut journal = journal.with_context(|| format!("{place} is not there"))?;
    let Properties { size, read_only, .. } = *journal.properties();
    ensure!(!read_only, "{place} is read-only, and a journal is written: make it writable");
    ensure!(
        size >= shape.size(),
        "{place} has {}, and the journal of this write log needs {}: make it larger, or --write-log smaller",
        rounded(size),
        rounded(shape.size())
    );
    // Both copies, one after the other: at every instant one of them says what is so. A superblock of a former process that
    // lands late has a lower version than the second.
    let mut superblock = Superblock::first(owner, shape);
    for version in [version + 1, version + 2] {
        superblock.version = version;
        let mut page = [0; PAGE_LEN];
        superblock.encode(&mut page);
        journal.write(Superblock::place(version).start, &page)?;
        journal.flush()?;
    }
    Ok(superblock)
}

/// The version of the superblock that is there; 0 where there is nothing.
///
/// # Errors
/// There is something that is not this disk's.
fn former_version(
    place: &JournalPlace,
    there: &mut Blocking,
    owner: Owner,
    shape: Shape,
) -> Result<u64> {
    let has_superblocks = there.properties().size >= 2 * PAGE_LEN as u64;
    let superblock = has_superblocks.then(|| found(there)).transpose()?;
    let (version, known) = match superblock {
        Some(Ok(found)) if found.version > VERSION_MAX => bail!("{place} is damaged"),
        Some(Ok(found)) if place.is_beside => return Ok(found.version),
        Some(Ok(found)) if found.owner.disk == owner.disk => (found.version, found.shape.size()),
        Some(Ok(found)) => bail!(
            "{place} is the destage journal of another disk, {}: give each disk its own. If that disk is gone for good, fill \
             the first {} of {place} with zeroes",
            found.owner.disk,
            rounded(shape.size().max(found.shape.size()))
        ),
        Some(Err(_)) | None if place.is_beside => return Ok(0),
        Some(Err(_)) | None => (0, 0),
    };
    ensure!(
        is_blank(there, known, shape.size())?,
        "{place} holds something that is no destage journal, and it would be written over: give another place, or, if \
         nobody needs what is there, zero its first {}",
        rounded(shape.size())
    );
    Ok(version)
}

/// True when nothing is found between `from` and `to`, where a journal would be: all of the first MiB and the very end is looked
/// at, and a part of each other MiB.
fn is_blank(there: &mut Blocking, from: u64, to: u64) -> io::Result<bool> {
    const MIB: u64 = 1 << 20;
    const PART: u64 = 64 << 10;
    let size = there.properties().size;
    let starts = (from..to.min(from + MIB)).step_by(PART as usize);
    let starts = starts.chain((from + MIB..to).step_by(MIB as usize));
    let end = (from < to).then_some(size.saturating_sub(PART));
    let mut bytes = vec![0; PART as usize];
    for start in starts.chain(end).filter(|start| *start < size) {
        let part = &mut bytes[..PART.min(size - start) as usize];
        there.read(start, part)?;
        if part.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A journal beside an image has its name from that, and whoever may write in the folder could have put a link there: the
/// file that it leads to would be written over.
fn refuse_link(path: &Path) -> Result<()> {
    let is_link = path.symlink_metadata().is_ok_and(|there| there.is_symlink());
    ensure!(
        !is_link,
        "{} is a link, and a journal beside an image is a file of its own: remove it, or name another place with --destage-journal",
        path.display()
    );
    Ok(())
}

/// A file of that size at least; what it has stays. Sparse, and for its owner alone: it gets what guests write.
fn make_file(path: &Path, size: u64) -> Result<()> {
    let cannot = || format!("cannot make {}", path.display());
    if path.metadata().is_ok_and(|there| !there.is_file()) {
        bail!("{} is no regular file", path.display());
    }
    // Nothing is made where a link leads to nothing: who may write in the folder may have put it there.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let file = match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            OpenOptions::new().write(true).open(path)
        }
        made => made,
    };
    let file = file.with_context(cannot)?;
    if file.metadata().with_context(cannot)?.len() < size {
        file.set_len(size).with_context(cannot)?;
    }
    // Whoever made it may have died before its name was durable.
    file.sync_all().and_then(|()| sync_folder(path)).with_context(cannot)
}

/// Gives a file the modification time back that it had, after its bytes became what its disk had written.
///
/// # Errors
/// The kernel's.
pub fn keep_time(path: &Path, modified: (i64, u32)) -> io::Result<()> {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps {
        last_access: time(0, rustix::fs::UTIME_OMIT),
        last_modification: time(modified.0, i64::from(modified.1)),
    };
    Ok(rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())?)
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
