//! The destage journal beside an image file: made, put in place before a session begins, looked at and repaired by hand.
//!
//! ```text
//!   IMAGE.forebay ──nonce──► IMAGE.forebay-journal ──whole records──► IMAGE
//! ```
//! The sidecar names the journal's nonce. Without that name no record counts. `forebay_core::journal` has the bytes and
//! the order of the steps; this gives it files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use forebay_core::flash_pool::sidecar::Sidecar;
use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::journal::repair::{RepairError, look};
use forebay_core::journal::{self, Medium, Owner, Repaired, Shape, Superblock};
use forebay_core::sealed::PAGE_LEN;
use forebay_io::clock;
use rustix::fs::{AtFlags, Timespec, Timestamps};

use crate::fence::{LastWrite, sync_folder};

/// Where the journal of an image is whose sidecar is there.
pub fn beside(sidecar: &Path) -> PathBuf {
    let mut path = sidecar.as_os_str().to_owned();
    path.push("-journal");
    PathBuf::from(path)
}

/// A file as [`Medium`].
#[derive(Debug)]
pub struct FileMedium<'a> {
    file: File,
    /// Who is told of writes.
    note: Option<&'a LastWrite>,
}

impl FileMedium<'_> {
    /// A file to read and, unless it is only looked at, to write. Whoever opens it has its lock.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path, is_changed: bool) -> io::Result<FileMedium<'static>> {
        let file = OpenOptions::new().read(true).write(is_changed).open(path)?;
        Ok(FileMedium { file, note: None })
    }

    fn note(&self) {
        if let Some(note) = self.note {
            note.note_write(Nanos(clock::now_nanos()));
        }
    }
}

impl Medium for FileMedium<'_> {
    type Error = io::Error;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.note();
        self.file.write_all_at(bytes, at)
    }

    fn zero(&mut self, range: ByteRange) -> io::Result<()> {
        const PIECE: u64 = 1 << 20;
        let zeroes = vec![0; PIECE.min(range.len()) as usize];
        let mut at = range.start;
        while at < range.end {
            let len = PIECE.min(range.end - at);
            self.note();
            self.file.write_all_at(&zeroes[..len as usize], at)?;
            at += len;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.note();
        Ok(())
    }
}

/// What is beside an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// No journal is named, or the file is gone: the image is what it is.
    None,
    /// A file that is not the named journal: its records are of the past.
    Foreign(Owner),
    /// The journal, as it was found.
    Found(Repaired),
}

/// The owner that a sidecar names.
fn owner(sidecar: &Sidecar) -> Option<Owner> {
    sidecar.journal.map(|nonce| Owner { disk: sidecar.disk, nonce })
}

/// Looks at the journal of an image of `size` bytes.
///
/// # Errors
/// The journal cannot be read, or is damaged.
pub fn check(path: &Path, sidecar: &Sidecar, size: u64) -> Result<Journal> {
    let Some(owner) = owner(sidecar) else { return Ok(Journal::None) };
    let Some(mut journal) = there(open_journal(path, false), path)? else {
        return Ok(Journal::None);
    };
    let came = look::<_, io::Error>(&mut journal, owner, size);
    told(path, came)
}

/// Puts the records of the journal in place that are whole and not retired.
///
/// # Errors
/// The journal is damaged, or either cannot be read or written. To try again does no harm.
pub fn repair(
    path: &Path,
    sidecar: &Sidecar,
    image: &Path,
    size: u64,
    note: Option<&LastWrite>,
) -> Result<Journal> {
    let Some(owner) = owner(sidecar) else { return Ok(Journal::None) };
    let Some(mut journal) = there(open_journal(path, true), path)? else {
        return Ok(Journal::None);
    };
    let opened = FileMedium::open(image, true);
    let opened = opened.with_context(|| format!("cannot open {} to write", image.display()))?;
    let mut primary = FileMedium { note, ..opened };
    told(path, journal::repair(&mut journal, &mut primary, owner, size))
}

/// Opens a journal. What is no file, such as a pipe, could be read for ever.
fn open_journal(path: &Path, is_changed: bool) -> io::Result<FileMedium<'static>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    FileMedium::open(path, is_changed)
}

fn there<T>(opened: io::Result<T>, path: &Path) -> Result<Option<T>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error)
            .with_context(|| format!("cannot open the destage journal {}", path.display())),
    }
}

fn told(path: &Path, came: Result<Repaired, RepairError<io::Error, io::Error>>) -> Result<Journal> {
    match came {
        Ok(repaired) => Ok(Journal::Found(repaired)),
        Err(RepairError::NotItsOwn { found }) => Ok(Journal::Foreign(found)),
        Err(RepairError::Invalid(why)) => {
            bail!("the destage journal {} cannot be used: {why}", path.display())
        }
        Err(other) => Err(other).with_context(|| format!("cannot repair from {}", path.display())),
    }
}

/// Makes an empty journal, in place of what is there.
///
/// # Errors
/// The file system's.
pub fn make(path: &Path, owner: Owner, shape: Shape) -> io::Result<Superblock> {
    let superblock = Superblock::first(owner, shape);
    let mut page = [0; PAGE_LEN];
    superblock.encode(&mut page);
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let mut file = File::create(&new)?;
    let written = file
        .write_all(&[0; PAGE_LEN])
        .and_then(|()| file.write_all(&page))
        // Sparse: it takes as much as is written to it.
        .and_then(|()| file.set_len(shape.size()))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path))
        .and_then(|()| sync_folder(path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written.map(|()| superblock)
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
mod tests;
