//! A view of primary storage beside its disk's I/O: its size, its times, a place for a sidecar.
//!
//! A probe looks at the same file as the backend that gave it, also when that one is on its shard or has ended, and keeps
//! the lock on it until it is dropped; a copy of a probe does not. It blocks: it is for start, end and threads of the
//! control plane.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::blocking::Blocking;
use crate::format::ImageFormat;
use crate::identity::{self, Identity};
use crate::nbd::NbdBackend;
use crate::uri::NbdUri;
use forebay_core::flash_pool::fence::Timestamp;
use forebay_core::journal::Medium as _;
use rustix::fs::{Advice, AtFlags, StatxFlags, StatxTimestamp};

/// Longest tick of a file system's clock.
const TICK: Duration = Duration::from_millis(10);
/// The same of file systems that tell whole seconds: ext3 one, FAT two.
const WHOLE_SECONDS: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug)]
pub struct Probe {
    of: Of,
    sidecar: Option<PathBuf>,
    identity: Option<Identity>,
    is_read_only: bool,
}

/// What is looked at.
#[derive(Debug)]
enum Of {
    /// A file or block device.
    File {
        /// The times of a device's node say nothing of what is on it.
        has_times: bool,
        /// The descriptor that does the I/O: it has the lock.
        _lock: Option<Arc<OwnedFd>>,
        /// The same file through the page cache.
        file: Arc<File>,
        /// Where an image file was opened; nothing of a device.
        path: Option<PathBuf>,
    },
    /// An NBD export, over connections of its own.
    Export { uri: NbdUri, size: u64 },
}

/// Whether primary storage still is what was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing says otherwise.
    Same,
    /// Another file is at the path.
    Replaced(PathBuf),
    /// Nothing is at the path, nor anywhere else.
    Unlinked(PathBuf),
    /// Nothing is at the path; the file has another name.
    Moved(PathBuf),
    /// It has only so many bytes.
    Short(u64),
    /// It was a device that is gone: the kernel gives what is left of it no bytes.
    Gone,
}

/// Reads what a probe looks at.
pub struct Reader(ReaderOf);

enum ReaderOf {
    File(Arc<File>),
    Export(Box<Blocking>),
}

/// Primary storage at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Bytes.
    pub size: u64,
    /// When it was modified, where it can tell.
    pub modified: Option<Timestamp>,
    /// When its metadata changed, where it can tell.
    pub changed: Option<Timestamp>,
}

impl Probe {
    /// Of an open file; a sidecar has its place beside `path`, which leads there.
    pub(crate) fn of_file(
        locked: &Arc<OwnedFd>,
        file: Arc<File>,
        path: &Path,
        is_read_only: bool,
    ) -> io::Result<Probe> {
        // Whatever links lead there, the image has one sidecar.
        let mut sidecar = path.canonicalize()?.into_os_string();
        sidecar.push(".forebay");
        let sidecar = Some(PathBuf::from(sidecar));
        let identity = Identity::of_file(path);
        let of = Of::file(locked, file, Some(std::path::absolute(path)?));
        Ok(Probe { of, sidecar, identity, is_read_only })
    }

    /// Of an open block device. The sidecar of a loop device is its file's.
    pub(crate) fn of_device(locked: &Arc<OwnedFd>, file: Arc<File>, is_read_only: bool) -> Probe {
        let sidecar = identity::file_of_loop(file.as_fd()).map(|file| {
            let mut sidecar = file.into_os_string();
            sidecar.push(".forebay");
            PathBuf::from(sidecar)
        });
        let identity = Identity::of_device(file.as_fd());
        Probe { of: Of::file(locked, file, None), sidecar, identity, is_read_only }
    }

    /// Of an NBD export.
    pub(crate) fn of_export(
        uri: &NbdUri,
        size: u64,
        is_read_only: bool,
        identity: Option<Identity>,
    ) -> Probe {
        let of = Of::Export { uri: uri.clone(), size };
        Probe { of, sidecar: None, identity, is_read_only }
    }

    /// Its identity, however it is spelt, where that is known.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The common part of all names of an image file: the number of its inode, and its time of
    /// birth where the file system has it. `None`: it is no image file.
    pub fn inode(&self) -> Option<(u64, Option<Timestamp>)> {
        match &self.of {
            Of::File { file, path: Some(_), .. } => {
                Some((file.metadata().ok()?.ino(), self.born()))
            }
            Of::File { path: None, .. } | Of::Export { .. } => None,
        }
    }

    /// The same under another name, with the sidecar and the identity that it has there, if `path` is a name of the same file.
    pub fn known_as(mut self, path: &Path) -> Probe {
        if self.is_named(path) {
            let mut sidecar = path.as_os_str().to_owned();
            sidecar.push(".forebay");
            (self.sidecar, self.identity) = (Some(sidecar.into()), Identity::of_file(path));
        }
        self
    }

    /// True when `path` leads to the same image file.
    pub fn is_named(&self, path: &Path) -> bool {
        match &self.of {
            Of::File { file, path: Some(_), .. } => {
                matches!(stands_at(file, path), Ok((Standing::Same, _)))
            }
            Of::File { path: None, .. } | Of::Export { .. } => false,
        }
    }

    /// The place of a sidecar beside it, where there can be one.
    pub fn sidecar(&self) -> Option<&Path> {
        self.sidecar.as_deref()
    }

    /// True when it must not be changed, nor get a sidecar.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// Looks at it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&self) -> io::Result<Look> {
        let (file, has_times) = match &self.of {
            Of::File { file, has_times, .. } => (file, *has_times),
            Of::Export { size, .. } => {
                return Ok(Look { size: *size, modified: None, changed: None });
            }
        };
        if !has_times {
            let size = forebay_io::file::size(file.as_fd())?;
            return Ok(Look { size, modified: None, changed: None });
        }
        let wanted = StatxFlags::SIZE | StatxFlags::MTIME | StatxFlags::CTIME;
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        let found = rustix::fs::statx(&**file, "", flags, wanted)?;
        let has = |flag: StatxFlags| found.stx_mask & flag.bits() != 0;
        Ok(Look {
            size: found.stx_size,
            modified: has(StatxFlags::MTIME).then(|| timestamp(found.stx_mtime)),
            changed: has(StatxFlags::CTIME).then(|| timestamp(found.stx_ctime)),
        })
    }

    /// Whether it is what was opened, with `size` bytes at least.
    ///
    /// # Errors
    /// The kernel's: nobody knows.
    pub fn standing(&self, size: u64) -> io::Result<Standing> {
        let Of::File { file, path, .. } = &self.of else { return Ok(Standing::Same) };
        Ok(match path {
            Some(path) => match stands_at(file, path)? {
                (Standing::Same, found) if found < size => Standing::Short(found),
                (stands, _) => stands,
            },
            None => device_stands(forebay_io::file::size(file.as_fd())?, size),
        })
    }

    /// Where this process has the file open, for whoever wants to copy it.
    pub fn open_at(&self) -> Option<PathBuf> {
        let Of::File { file, .. } = &self.of else { return None };
        Some(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into())
    }

    /// When the file was made, where its file system tells; a device's node says nothing of what is on it.
    pub fn born(&self) -> Option<Timestamp> {
        let Of::File { file, has_times: true, .. } = &self.of else { return None };
        let found = rustix::fs::statx(&**file, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME).ok()?;
        (found.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| timestamp(found.stx_btime))
    }

    /// The format of an image that its bytes look like; a server knows itself what it serves.
    ///
    /// # Errors
    /// The kernel's.
    pub fn image_format(&self) -> io::Result<Option<ImageFormat>> {
        match &self.of {
            Of::File { file, .. } => ImageFormat::of(file, self.look()?.size),
            Of::Export { .. } => Ok(None),
        }
    }

    /// Looks at it after what it tells was made durable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look_durably(&self) -> io::Result<Look> {
        self.flush()?;
        self.look()
    }

    /// The same, with the size that whoever opens it now sees: a connection to a server tells that of when it was made.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look_anew(&self) -> io::Result<Look> {
        let look = self.look_durably()?;
        Ok(match self.export(false) {
            Ok(Some(export)) => Look { size: export.properties().size, ..look },
            // A server that has no connection to spare says so to whoever opens it.
            Ok(None) | Err(_) => look,
        })
    }

    /// Makes what a look tells durable. The kernel tells of a write that failed once: who opens primary storage after this
    /// hears nothing of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn flush(&self) -> io::Result<()> {
        if let Of::File { file, .. } = &self.of
            && !self.is_read_only
        {
            // A flush for data alone leaves the times behind.
            rustix::fs::fsync(&**file)?;
        }
        Ok(())
    }

    /// Looks at it durably when nobody of ours writes there any more. A later modification has another time, also
    /// where the file system's clock ticks slowly.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look_finally(&self) -> io::Result<Look> {
        let look = self.look_durably()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if let Some((seconds, nanos)) = look.modified
            && let Ok(seconds) = u64::try_from(seconds)
        {
            std::thread::sleep(until_another_time(Duration::new(seconds, nanos), now));
        }
        Ok(look)
    }

    /// What reads it.
    ///
    /// # Errors
    /// The kernel's, or the server's.
    pub fn reader(&self) -> io::Result<Reader> {
        Ok(Reader(match &self.of {
            Of::File { file, .. } => ReaderOf::File(file.clone()),
            Of::Export { uri, .. } => ReaderOf::Export(Box::new(beside(uri, true, false)?)),
        }))
    }

    /// What changes it, over a connection of its own, where it is the export of a server. A file is changed through
    /// [`Probe::open_at`]. `is_unanswered`: a former process may have left requests there.
    ///
    /// # Errors
    /// The server's.
    pub fn export(&self, is_unanswered: bool) -> io::Result<Option<Blocking>> {
        match &self.of {
            Of::File { .. } => Ok(None),
            Of::Export { uri, .. } => Ok(Some(beside(uri, false, is_unanswered)?)),
        }
    }

    /// Another one of the same file, which does not keep the lock.
    pub fn copy(&self) -> Probe {
        let of = match &self.of {
            Of::File { file, has_times, path, .. } => Of::File {
                has_times: *has_times,
                _lock: None,
                file: file.clone(),
                path: path.clone(),
            },
            Of::Export { uri, size } => Of::Export { uri: uri.clone(), size: *size },
        };
        let Probe { sidecar, identity, is_read_only, .. } = self;
        let (sidecar, identity) = (sidecar.clone(), identity.clone());
        Probe { of, sidecar, identity, is_read_only: *is_read_only }
    }
}

impl Of {
    fn file(locked: &Arc<OwnedFd>, file: Arc<File>, path: Option<PathBuf>) -> Of {
        Of::File { has_times: path.is_some(), _lock: Some(locked.clone()), file, path }
    }
}

/// Whether a file is at `path`, and its size.
fn stands_at(file: &File, path: &Path) -> io::Result<(Standing, u64)> {
    let is = file.metadata()?;
    let stands = match path.metadata() {
        Ok(there) if (there.dev(), there.ino()) == (is.dev(), is.ino()) => Standing::Same,
        Ok(_) => Standing::Replaced(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_gone = is.nlink() == 0 || is_removed_on_nfs(file);
            let path = path.to_owned();
            if is_gone { Standing::Unlinked(path) } else { Standing::Moved(path) }
        }
        Err(error) => return Err(error),
    };
    Ok((stands, is.len()))
}

/// Whether a device of which so many bytes are `found` is what it was with `size` bytes.
fn device_stands(found: u64, size: u64) -> Standing {
    match found {
        0 if size > 0 => Standing::Gone,
        _ if found < size => Standing::Short(found),
        _ => Standing::Same,
    }
}

/// NFS renames a file that is removed while it is open, and removes it when it is closed.
fn is_removed_on_nfs(file: &File) -> bool {
    let name = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let name = name.as_deref().ok().and_then(Path::file_name);
    name.is_some_and(|name| name.as_bytes().starts_with(b".nfs"))
}

impl Reader {
    /// Fills `bytes` with what is there from `offset` on; whole logical blocks, at most 1 MiB.
    ///
    /// # Errors
    /// The kernel's, or the server's.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        match &mut self.0 {
            ReaderOf::File(file) => {
                // Not what was read before: what is there.
                let len = std::num::NonZero::new(bytes.len() as u64);
                rustix::fs::fadvise(&**file, offset, len, Advice::DontNeed)?;
                file.read_exact_at(bytes, offset)
            }
            ReaderOf::Export(reader) => reader.read(offset, bytes),
        }
    }
}

/// The export of a server, over a connection beside its disk's.
fn beside(uri: &NbdUri, read_only: bool, is_unanswered: bool) -> io::Result<Blocking> {
    let uri = NbdUri { connections: 1, ..uri.clone() };
    let backend = NbdBackend::connect(&uri, read_only).map_err(io::Error::other)?;
    Blocking::new(Box::new(backend), is_unanswered)
}

fn timestamp(time: StatxTimestamp) -> Timestamp {
    (time.tv_sec, time.tv_nsec)
}

/// How long a modification may still get the time of one at `modified`. Some file systems tell whole seconds alone, or even ones.
fn until_another_time(modified: Duration, now: Duration) -> Duration {
    if modified.subsec_nanos() == 0 && now >= modified {
        return (modified + WHOLE_SECONDS + 2 * TICK).saturating_sub(now);
    }
    if now.abs_diff(modified) < 2 * TICK { 2 * TICK } else { Duration::ZERO }
}

#[cfg(test)]
mod tests;
