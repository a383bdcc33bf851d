//! Regular files and block devices, opened for direct I/O and locked.
//!
//! The lock (`flock`, and `O_EXCL` on a block device that is written) belongs to the descriptor
//! that does the I/O, on purpose. After a kill the kernel keeps it until the I/O in flight has
//! ended. So the writes of a process cannot overtake its successor. Give [`Options::lock_wait`]
//! for that moment. It is spent only when the holder is no living process (`holder.rs`): a living
//! one would not let go. On a block device that this crate writes it would: udev locks a device while
//! it handles an event of it, and each close of a device that was written is one.
//!
//! **Limits.** The lock is advisory: it keeps out other users of this crate and of `flock`. The
//! calls here block; the data path goes through the reactor.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;

use crate::clock::{nanos_after, now_nanos};
pub use error::{FileError, FileErrorKind};
pub use extents::{FileExtent, extents};

mod error;
mod extents;
mod holder;
#[cfg(test)]
mod tests;

/// The assumed alignment of direct I/O, where the kernel does not give it.
const DIRECT_ALIGN_UNKNOWN: u32 = 4096;
/// The longest unit of direct I/O that users of this crate can keep to: a page. XFS with reflinks or a realtime part has
/// longer ones.
const DIRECT_UNIT_MAX: u32 = 4096;
/// How long to wait at most for someone of whom it is not known whether he is ending.
const UNKNOWN_HOLDER_WAIT_MAX: Duration = Duration::from_secs(3);
/// How long to wait at most for a living process that is about to let go.
const LIVING_HOLDER_WAIT_NS_MAX: u64 = 10_000_000_000;
/// Smallest block of any device.
const SECTOR: u32 = 512;

/// How to open.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only for reading, beside other readers.
    pub read_only: bool,
    /// Through the page cache, even where direct I/O would work.
    pub buffered: bool,
    /// Create the file if it is not there, and give it at least this many bytes, allocated where the file
    /// system can. Block devices are not changed.
    pub allocate: Option<u64>,
    /// How long to wait for a process that has ended, or is ending, to let go of it. A living one that has locked a block
    /// device that nobody else writes is waited for 3 seconds at most.
    pub lock_wait: Duration,
}

/// An open, locked file or block device. The lock ends when every descriptor of it is closed.
#[derive(Debug)]
pub struct OpenFile {
    path: PathBuf,
    fd: OwnedFd,
    size: u64,
    is_block_device: bool,
    logical_block: u32,
    is_direct: bool,
}

impl OpenFile {
    /// Opens and locks what is at `path`.
    ///
    /// # Errors
    /// In words for an operator, with a kind to match on: absent, in use, forbidden, no space,
    /// another type of file.
    pub fn open(path: &Path, options: &Options) -> Result<OpenFile, FileError> {
        let is_there = check_type(path, options)?;
        let is_block_device = is_there && is_block_device(path);
        let (mut fd, mut is_direct) = open_fd(path, options, is_block_device)?;
        let operation = if options.read_only {
            FlockOperation::NonBlockingLockShared
        } else {
            FlockOperation::NonBlockingLockExclusive
        };
        // It is open exclusively here, so nobody else writes it: whoever locks it looks at it, or only reads.
        let passes = is_block_device && !options.read_only;
        lock(fd.as_fd(), path, operation, options.lock_wait, passes)?;
        if let Some(len) = options.allocate.filter(|_| !is_block_device) {
            allocate(&fd, path, len)?;
        }
        let size =
            size(fd.as_fd()).map_err(|error| FileError::new("find the size of", path, error))?;
        let mut block = SECTOR;
        if is_direct {
            let unit = direct_unit(fd.as_fd(), is_block_device);
            match unit.filter(|unit| fits_direct(*unit, size, is_block_device)) {
                Some(unit) => block = unit,
                None => {
                    is_direct = false;
                    clear_direct(&mut fd)
                        .map_err(|error| FileError::new("open for buffered I/O", path, error))?;
                }
            }
        }
        let logical_block = if is_block_device {
            rustix::fs::ioctl_blksszget(&fd)
                .map_err(|error| FileError::new("find the block size of", path, error.into()))?
        } else {
            block
        };
        let path = path.to_owned();
        Ok(OpenFile { path, fd, size, is_block_device, logical_block, is_direct })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes, when it was opened.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether it is a block device.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Offsets and lengths of I/O are multiples of this many bytes, a power of two from 512 on. Of a file at most 4096.
    pub fn logical_block(&self) -> u32 {
        self.logical_block
    }

    /// The descriptor, for helpers that block.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The descriptor, for a reactor. The lock goes with it.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

/// Locks a file that is open already, from `path`, against everybody else; waits as [`Options::lock_wait`] says.
///
/// # Errors
/// It is in use.
pub fn lock_exclusively(file: &File, path: &Path, wait: Duration) -> Result<(), FileError> {
    lock(file.as_fd(), path, FlockOperation::NonBlockingLockExclusive, wait, false)
}

/// The same against who locks it exclusively.
///
/// # Errors
/// It is in use.
pub fn lock_shared(file: &File, path: &Path, wait: Duration) -> Result<(), FileError> {
    lock(file.as_fd(), path, FlockOperation::NonBlockingLockShared, wait, false)
}

/// Bytes of an open file or block device now.
///
/// # Errors
/// The kernel's.
pub fn size(file: BorrowedFd<'_>) -> io::Result<u64> {
    // The end of a block device is its size; its metadata say zero.
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Whether there is a block device at `path` (or where a link there leads).
pub fn is_block_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device())
}

/// Refuses what is neither file nor block device before it is opened: to open a pipe would wait. Whether there
/// is something at all.
fn check_type(path: &Path, options: &Options) -> Result<bool, FileError> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() || found.file_type().is_block_device() => Ok(true),
        Ok(found) => {
            let what = if found.is_dir() { "a directory" } else { "a special file" };
            Err(FileError::wrong_type(path, what))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && options.allocate.is_some() => {
            Ok(false)
        }
        Err(error) => Err(FileError::new("open", path, error)),
    }
}

/// Opens, with direct I/O where that is wanted and the file system has it: true then.
fn open_fd(
    path: &Path,
    options: &Options,
    is_block_device: bool,
) -> Result<(OwnedFd, bool), FileError> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY;
    flags |= if options.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if is_block_device && !options.read_only {
        flags |= OFlags::EXCL;
    } else if !is_block_device && options.allocate.is_some() {
        flags |= OFlags::CREATE;
    }
    let mode = Mode::RUSR | Mode::WUSR;
    // Who else has a device open exclusively is not to be found out.
    let wait = options.lock_wait.min(UNKNOWN_HOLDER_WAIT_MAX);
    let open = |flags| {
        let ends = || true;
        patiently(wait, ends, || rustix::fs::open(path, flags, mode))
    };
    let failed = |error: Errno| FileError::new("open", path, error.into());
    if !options.buffered {
        match open(flags | OFlags::DIRECT) {
            // Its file system has no direct I/O.
            Err(Errno::INVAL) => {}
            opened => return opened.map(|fd| (fd, true)).map_err(failed),
        }
    }
    open(flags).map(|fd| (fd, false)).map_err(failed)
}

/// Locks the file, waiting at most `wait` for a process that is ending, and for a living one whose lock `passes`.
fn lock(
    fd: BorrowedFd<'_>,
    path: &Path,
    operation: FlockOperation,
    wait: Duration,
    passes: bool,
) -> Result<(), FileError> {
    let mut living = None;
    let start = now_nanos();
    let ends = || {
        living = holder::living_holder(fd);
        match living {
            None => true,
            // A reactor of this process may have been dropped: its ring is taken apart by and by.
            Some(process) if process == std::process::id() => {
                now_nanos() - start < LIVING_HOLDER_WAIT_NS_MAX
            }
            // Others may have to wait meanwhile: it is tried again later.
            Some(_) if passes => now_nanos() - start < UNKNOWN_HOLDER_WAIT_MAX.as_nanos() as u64,
            Some(_) => false,
        }
    };
    let locked = patiently(wait, ends, || rustix::fs::flock(fd, operation));
    locked.map_err(|error| match (error, living) {
        (Errno::WOULDBLOCK, Some(_)) => FileError::held_by(path, living, passes),
        (Errno::WOULDBLOCK, None) if passes => FileError::held_by(path, None, passes),
        (error, _) => FileError::new("lock", path, error.into()),
    })
}

/// Tries again for a while as long as someone is in the way who `ends`.
fn patiently<T>(
    wait: Duration,
    mut ends: impl FnMut() -> bool,
    mut attempt: impl FnMut() -> rustix::io::Result<T>,
) -> rustix::io::Result<T> {
    let end = nanos_after(wait);
    loop {
        match attempt() {
            Err(Errno::WOULDBLOCK | Errno::BUSY) if ends() && now_nanos() < end => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Gives a file at least `len` bytes.
fn allocate(fd: &OwnedFd, path: &Path, len: u64) -> Result<(), FileError> {
    let failed = |error: Errno| FileError::new("allocate the space of", path, error.into());
    match rustix::fs::fallocate(fd, FallocateFlags::KEEP_SIZE, 0, len.max(1)) {
        // Where the file system cannot allocate ahead, writes find out whether there is space.
        Ok(()) | Err(Errno::OPNOTSUPP) => {}
        Err(error) => return Err(failed(error)),
    }
    let size = size(fd.as_fd()).map_err(|error| FileError::new("find the size of", path, error))?;
    if size < len {
        rustix::fs::ftruncate(fd, len).map_err(failed)?;
    }
    Ok(())
}

/// Whether a file of `size` bytes can be used with direct I/O in units of `unit` bytes.
fn fits_direct(unit: u32, size: u64, is_block_device: bool) -> bool {
    // The sectors of a device are as long through the page cache, too.
    size.is_multiple_of(unit.into()) && (unit <= DIRECT_UNIT_MAX || is_block_device)
}

/// The unit of direct I/O on a file, in bytes. `None` when the file has none.
fn direct_unit(fd: BorrowedFd<'_>, is_block_device: bool) -> Option<u32> {
    let told = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|found| found.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    match told {
        Some(found) if found.stx_dio_offset_align > 0 => {
            Some(found.stx_dio_offset_align.max(SECTOR))
        }
        Some(_) if !is_block_device => None,
        Some(_) | None => Some(match rustix::fs::ioctl_blksszget(fd) {
            Ok(block) if is_block_device => block,
            Ok(_) | Err(_) => DIRECT_ALIGN_UNKNOWN,
        }),
    }
}

/// Tells a block device that a range is needed no more: whole blocks of it. Waits for the device.
///
/// # Errors
/// The kernel's; not supported where the device discards nothing.
pub fn discard(device: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    // `BLKDISCARD` of the kernel's `fs.h`.
    const DISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: the kernel reads two numbers of 64 bits there, and nothing else.
    let request = unsafe { rustix::ioctl::Setter::<DISCARD, [u64; 2]>::new([offset, len]) };
    // SAFETY: the device's memory is none of this process.
    Ok(unsafe { rustix::ioctl::ioctl(device, request) }?)
}

fn clear_direct(fd: &mut OwnedFd) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(&*fd)?;
    Ok(rustix::fs::fcntl_setfl(fd, flags - OFlags::DIRECT)?)
}
