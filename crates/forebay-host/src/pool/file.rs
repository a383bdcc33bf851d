//! The bytes of a pool: whole pages, read and written past the page cache where that works.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::size::rounded;
use forebay_core::flash_pool::superblock::MAGIC;
use forebay_core::geometry::PAGE;
use forebay_core::sealed::{PAGE_LEN, Page};
use forebay_io::file::{FileErrorKind, OpenFile, Options};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, Stat};

#[cfg(test)]
pub(super) mod medium;

/// Time that the kernel has to finish the I/O of a process that was killed; unit tests kill none.
pub const LOCK_WAIT: Duration = Duration::from_millis(if cfg!(test) { 2_000 } else { 30_000 });
/// Time that bad pages of one read may take. A device that dies takes many seconds for each, and has only such.
const UNREADABLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Pages moved by one call to the kernel.
const PAGES_PER_CALL: usize = 256;

/// A page in memory where direct I/O can reach it.
#[derive(Clone)]
#[repr(C, align(4096))]
pub struct PoolPage(pub Page);

impl PoolPage {
    /// A page of zeroes.
    pub const ZERO: PoolPage = PoolPage([0; PAGE_LEN]);

    /// What stands for a page that cannot be read: a damaged superblock, and a damaged page of any table.
    const UNREADABLE: PoolPage = {
        let mut page = [0xee; PAGE_LEN];
        let mut at = 0;
        while at < MAGIC.len() {
            page[at] = MAGIC[at];
            at += 1;
        }
        PoolPage(page)
    };

    /// Whether it could not be read.
    pub fn is_unreadable(&self) -> bool {
        self.0 == PoolPage::UNREADABLE.0
    }

    /// `count` pages of zeroes.
    pub fn zeroes(count: usize) -> Vec<PoolPage> {
        vec![PoolPage::ZERO; count]
    }
}

/// The descriptor of a pool's file, for who reads and writes it without the pool.
#[derive(Clone, Debug)]
pub struct SharedFile {
    /// The lock lives as long as anybody has it.
    pub fd: Arc<OwnedFd>,
    /// Of all who have it.
    pub failed_flushes: Arc<FailedFlushes>,
}

/// How often a flush of a file has failed. The kernel, or the device, tells one of those who have the file open together, and
/// what it could not write counts as written from then on: the next flush of another one looks good.
#[derive(Debug, Default)]
pub struct FailedFlushes(AtomicU64);

impl FailedFlushes {
    /// One more has failed.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// How often.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// An open, locked file or block device.
#[derive(Debug)]
pub struct PoolFile {
    path: PathBuf,
    fd: Arc<OwnedFd>,
    failed_flushes: Arc<FailedFlushes>,
    is_direct: bool,
    is_device: bool,
    /// Where it was made, if there was nothing before it was opened.
    made: Option<Made>,
    /// It is removed when it is closed.
    is_provisional: AtomicBool,
}

/// Where a file was made: a symbolic link may have led there.
#[derive(Debug)]
struct Made {
    path: PathBuf,
    /// Another file system may hide it since.
    folder: OwnedFd,
}

impl Made {
    fn at(path: &Path) -> io::Result<Made> {
        let path = std::fs::canonicalize(path)?;
        let folder = folder_of(&path);
        let folder = rustix::fs::open(folder, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Made { path, folder })
    }
}

impl PoolFile {
    /// Opens and locks what is at `path`; creates a file unless `read_only`.
    ///
    /// # Errors
    /// It is in use, or cannot be opened.
    pub fn open(path: &Path, read_only: bool) -> Result<PoolFile> {
        PoolFile::check_place(path)?;
        // Who had it locked may have removed it, as a start that failed does: what is in it then has no name.
        loop {
            let file = PoolFile::open_once(path, read_only)?;
            if file.is_at_its_path() {
                return Ok(file);
            }
            ensure!(path.exists() || !read_only, "there is nothing at {} any more", path.display());
        }
    }

    /// Whether there can be a pool at `path`.
    ///
    /// # Errors
    /// Its folder, or its device, is not there.
    pub(super) fn check_place(path: &Path) -> Result<()> {
        let folder = folder_of(path);
        if !folder.is_dir() {
            bail!(
                "the folder {} of the flash {} does not exist; create it or choose another path",
                folder.display(),
                path.display()
            );
        }
        ensure!(
            !path.starts_with("/dev") || path.exists() || path.starts_with("/dev/shm"),
            "the flash device {} does not exist; check its name",
            path.display()
        );
        Ok(())
    }

    fn open_once(path: &Path, read_only: bool) -> Result<PoolFile> {
        let is_new = !path.exists();
        let allocate = (!read_only).then_some(0);
        let options = Options { read_only, allocate, lock_wait: LOCK_WAIT, ..Options::default() };
        let file = match OpenFile::open(path, &options) {
            Err(error) if error.kind() == FileErrorKind::Denied => {
                let needed = if read_only { "read" } else { "read and write" };
                bail!(
                    "the flash {} cannot be used: {}; run as a user who may {needed} it, or choose another path",
                    path.display(),
                    error.why()
                )
            }
            opened => opened.context("the flash cannot be used")?,
        };
        let (is_direct, is_device) = (file.is_direct(), file.is_block_device());
        let made = if is_new { Made::at(path).ok() } else { None };
        let (path, fd) = (path.to_owned(), file.into_fd());
        let is_provisional = AtomicBool::new(false);
        let (fd, failed_flushes) = (Arc::new(fd), Arc::default());
        Ok(PoolFile { path, fd, failed_flushes, is_direct, is_device, made, is_provisional })
    }

    /// True when who opens the same path finds this file.
    pub fn is_at_its_path(&self) -> bool {
        self.is_it(rustix::fs::stat(&self.path))
    }

    fn is_it(&self, there: rustix::io::Result<Stat>) -> bool {
        let this = rustix::fs::fstat(&self.fd);
        this.is_ok_and(|this| {
            there.is_ok_and(|there| (this.st_dev, this.st_ino) == (there.st_dev, there.st_ino))
        })
    }

    /// A file that was made with this opening is removed when it is closed, until it is told to stay.
    pub fn go_if_new(&self) {
        self.is_provisional.store(self.made.is_some(), Ordering::Relaxed);
    }

    /// A file that was made with this opening is there after a loss of power as well.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep_name(&self) -> io::Result<()> {
        let Some(made) = &self.made else { return Ok(()) };
        match crate::fence::sync_folder(&made.path) {
            // A folder that may be written and not be read cannot be asked for that.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        }
    }

    /// It stays: there is something in it.
    pub fn stay(&self) {
        self.is_provisional.store(false, Ordering::Relaxed);
    }

    /// It is removed, unless it was to stay.
    pub fn go(&self) {
        // Still locked: it is nobody else's. Once only: the next of this name may be. In the folder where it was made: what is at its
        // path by now may be a pool with data, on a file system that was mounted late.
        if self.is_provisional.swap(false, Ordering::Relaxed)
            && let Some(Made { path, folder }) = &self.made
            && let Some(name) = path.file_name()
            && self.is_it(rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW))
        {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Whether it is a block device, whose size is given.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Bytes that are there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn size(&self) -> io::Result<u64> {
        forebay_io::file::size(self.fd.as_fd())
    }

    /// The number of the user to whom it belongs.
    ///
    /// # Errors
    /// The kernel's.
    pub fn owner(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(&self.fd)?.st_uid)
    }

    /// Its descriptor, for a reactor.
    pub fn share(&self) -> SharedFile {
        SharedFile { fd: self.fd.clone(), failed_flushes: self.failed_flushes.clone() }
    }

    /// Makes sure that `len` bytes are there: allocated in a file, given on a device.
    ///
    /// # Errors
    /// There is not that much space.
    pub fn make_room(&self, len: u64) -> Result<()> {
        let shown = self.path.display();
        if self.is_device {
            let size = self.size()?;
            ensure!(
                len <= size,
                "the flash device {shown} has {}, the disks' shares need {}",
                rounded(size),
                rounded(len)
            );
            return Ok(());
        }
        self.check_free(len)?;
        let size = self.size()?;
        match rustix::fs::fallocate(&self.fd, FallocateFlags::empty(), 0, len) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                // As on some FUSE file systems. Where the size is given, as a file of nbdfuse has it, it may do.
                if self.size().is_ok_and(|size| size >= len) {
                    return Ok(());
                }
                rustix::fs::ftruncate(&self.fd, len).with_context(|| {
                    format!(
                        "the file system of the flash {shown} can neither allocate nor grow a file (to {}); put it on \
                         another file system, or make it a block device",
                        rounded(len)
                    )
                })
            }
            Err(error) => {
                // What the kernel allocated before it failed would leave others without space.
                let _ = rustix::fs::ftruncate(&self.fd, size);
                let what = format!("cannot allocate {} for the flash {shown}", rounded(len));
                Err(anyhow::Error::new(error).context(what))
            }
        }
    }

    /// Whether its file system has the space that the file would take beyond what it has. Some that are not local do not say.
    fn check_free(&self, len: u64) -> Result<()> {
        let Ok(found) = rustix::fs::fstatvfs(&self.fd) else { return Ok(()) };
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        let has = rustix::fs::fstat(&self.fd)?.st_blocks as u64 * 512;
        ensure!(
            found.f_blocks == 0 || len <= has.saturating_add(free),
            "the flash {} is to have {}, and its file system has {} free; make the disks' shares smaller, or put it on \
             another file system",
            self.path.display(),
            rounded(len),
            rounded(free)
        );
        Ok(())
    }

    /// Fills `pages` from byte `offset` on.
    ///
    /// # Errors
    /// The kernel's; `UnexpectedEof` when it is too short.
    pub fn read(&self, offset: u64, pages: &mut [PoolPage]) -> io::Result<()> {
        #[cfg(test)]
        medium::on_read(offset, pages.len())?;
        self.read_pages(offset, pages)
    }

    /// The same page by page where that fails: a few bad sectors are not to take the rest with them. Pages that cannot be read
    /// count as damaged; the error of the last one.
    ///
    /// # Errors
    /// `UnexpectedEof` when it is too short, and the kernel's when that takes too long: a page that was not tried is not
    /// damaged.
    pub fn read_what_can_be_read(
        &self,
        offset: u64,
        pages: &mut [PoolPage],
    ) -> io::Result<Option<io::Error>> {
        if self.read(offset, pages).is_ok() {
            return Ok(None);
        }
        let (mut last, begun) = (None, Instant::now());
        for (page, at) in pages.iter_mut().zip((offset..).step_by(PAGE_LEN)) {
            match self.read(at, std::slice::from_mut(page)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(error),
                Err(error) if begun.elapsed() > UNREADABLE_TIME_MAX => return Err(error),
                Err(error) => {
                    *page = PoolPage::UNREADABLE;
                    last = Some(error);
                }
            }
        }
        Ok(last)
    }

    /// Fills `pages` from byte `offset` on with what is there: the rest stays as it is.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read_what_is_there(&self, offset: u64, pages: &mut [PoolPage]) -> io::Result<()> {
        #[cfg(test)]
        medium::on_read(offset, pages.len())?;
        let mut slices: Vec<_> =
            pages.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
        let (mut at, mut rest) = (offset, &mut slices[..]);
        while !rest.is_empty() {
            let read = rustix::io::preadv(&self.fd, rest, at)?;
            at += read as u64;
            // The last sectors of a file or device need not fill a page.
            if read % PAGE_LEN != 0 || read == 0 {
                break;
            }
            IoSliceMut::advance_slices(&mut rest, read);
        }
        Ok(())
    }

    /// The parts of `start..end` that may hold data, in order: a hole of a file holds none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn extents(&self, start: u64, end: u64, count_max: usize) -> io::Result<Vec<Range<u64>>> {
        let len = end.saturating_sub(start);
        let found = forebay_io::file::extents(self.fd.as_fd(), start, len, count_max)?;
        let told = found.last().map_or(start, |last| last.offset + last.len);
        let data = found.iter().filter(|extent| extent.is_data);
        let mut data: Vec<_> = data.map(|it| it.offset..it.offset + it.len).collect();
        data.extend((told < end).then_some(told..end));
        Ok(data)
    }

    fn read_pages(&self, offset: u64, pages: &mut [PoolPage]) -> io::Result<()> {
        for (n, chunk) in pages.chunks_mut(PAGES_PER_CALL).enumerate() {
            let mut at = offset + (n * PAGES_PER_CALL) as u64 * PAGE;
            let mut slices: Vec<_> =
                chunk.iter_mut().map(|page| IoSliceMut::new(&mut page.0)).collect();
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                let read = rustix::io::preadv(&self.fd, rest, at)?;
                if read == 0 || read % PAGE_LEN != 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                at += read as u64;
                IoSliceMut::advance_slices(&mut rest, read);
            }
        }
        Ok(())
    }

    /// Writes `pages` from byte `offset` on; durable after [`PoolFile::sync`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, offset: u64, pages: &[PoolPage]) -> io::Result<()> {
        #[cfg(test)]
        medium::on_write(self, offset, pages)?;
        self.write_pages(offset, pages)
    }

    fn write_pages(&self, offset: u64, pages: &[PoolPage]) -> io::Result<()> {
        for (n, chunk) in pages.chunks(PAGES_PER_CALL).enumerate() {
            let mut at = offset + (n * PAGES_PER_CALL) as u64 * PAGE;
            let mut slices: Vec<_> = chunk.iter().map(|page| IoSlice::new(&page.0)).collect();
            let mut rest = &mut slices[..];
            while !rest.is_empty() {
                let written = rustix::io::pwritev(&self.fd, rest, at)?;
                if written == 0 || written % PAGE_LEN != 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                at += written as u64;
                IoSlice::advance_slices(&mut rest, written);
            }
        }
        Ok(())
    }

    /// Writes `pages` from byte `offset` on, durably.
    ///
    /// # Errors
    /// The kernel's, also one that it told somebody else of.
    pub fn write_durably(&self, offset: u64, pages: &[PoolPage]) -> io::Result<()> {
        let failed = self.failed_flushes();
        self.write(offset, pages)?;
        self.sync_since(failed)
    }

    /// How often a flush has failed, for [`PoolFile::sync_since`]. Ask before the first write that is to be durable.
    pub fn failed_flushes(&self) -> u64 {
        self.failed_flushes.count()
    }

    /// Makes durable what was written since so many flushes had failed. The flush of a shard may have failed meanwhile; then
    /// it was told of pages that were written here, and this flush looks good.
    ///
    /// # Errors
    /// The kernel's, also one that it told somebody else of.
    pub fn sync_since(&self, failed: u64) -> io::Result<()> {
        self.sync()?;
        if self.failed_flushes() != failed {
            return Err(io::Error::other("a flush that a disk asked for failed meanwhile"));
        }
        Ok(())
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// The kernel's.
    pub fn sync(&self) -> io::Result<()> {
        let synced = self.flush();
        if synced.is_err() {
            self.failed_flushes.note();
        }
        synced
    }

    fn flush(&self) -> io::Result<()> {
        #[cfg(test)]
        medium::on_sync(self)?;
        Ok(rustix::fs::fdatasync(&self.fd)?)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Drop for PoolFile {
    fn drop(&mut self) {
        self.go();
    }
}
