//! Local flash: one file or block device, locked for this process, cut into one share per disk.
//!
//! ```text
//!   offset 0        4 KiB              1 MiB
//!   +---------------+------------------+-----------------+-----------------+
//!   | header        | unused           | share of disk 1 | share of disk 2 | …   each from a whole MiB
//!   +---------------+------------------+-----------------+-----------------+
//!
//!   header:  0  8  magic "FOREBAY\0"
//!            8  4  version, little-endian, 1
//!           12 …   zero, to 4 KiB
//! ```
//! The header says that the bytes are ours to overwrite. Anything else that is not blank is refused:
//! a wrong path must not cost anybody a file system. The cache starts empty each time, so nothing
//! else is kept here yet.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::size::rounded;
use forebay_io::file::{OpenFile, Options, is_block_device};

const MAGIC: &[u8; 8] = b"FOREBAY\0";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 4096;
/// Shares begin on multiples of this, the first at one.
const SHARE_ALIGN: u64 = 1 << 20;
/// Time that the kernel has to finish the I/O of a process that was killed.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(30);

/// An open flash file or device; while it lives, no other process can use it as flash.
#[derive(Debug)]
pub struct FlashPool {
    path: PathBuf,
    /// Holds the lock, and so do the shares' copies of it: I/O in flight when the process is killed
    /// keeps the successor out until it has ended.
    data: OwnedFd,
    is_direct: bool,
    next: u64,
    end: u64,
}

/// One disk's share of a pool.
#[derive(Debug)]
pub struct FlashShare {
    /// The file or device.
    pub file: OwnedFd,
    /// Where the share begins.
    pub offset: u64,
}

impl FlashPool {
    /// Opens, locks and, for a file, creates and allocates the flash at `path` for shares of these sizes.
    ///
    /// # Errors
    /// It is in use, holds somebody's data, is too small, or cannot be opened.
    pub fn open(path: &Path, shares: &[u64]) -> Result<FlashPool> {
        let shown = path.display();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!(
                "the folder {} of the flash {shown} does not exist; create it or choose another path",
                folder.display()
            );
        }
        ensure!(
            !path.starts_with("/dev") || path.exists() || path.starts_with("/dev/shm"),
            "the flash device {shown} does not exist; check its name"
        );
        check_contents(path)?;
        let shares = shares.iter().map(|len| len.next_multiple_of(SHARE_ALIGN));
        let end = SHARE_ALIGN + shares.sum::<u64>();
        let options = Options { allocate: Some(end), lock_wait: LOCK_WAIT, ..Options::default() };
        let data = OpenFile::open(path, &options).context("the flash cannot be used")?;
        ensure!(
            end <= data.size(),
            "the flash device {shown} has {}, the disks' shares need {}",
            rounded(data.size()),
            rounded(end)
        );
        write_header(path).with_context(|| format!("cannot write to the flash {shown}"))?;
        let is_direct = data.is_direct();
        let data = data.into_fd();
        Ok(FlashPool { path: path.to_owned(), data, is_direct, next: SHARE_ALIGN, end })
    }

    /// Takes the next share.
    ///
    /// # Errors
    /// No file descriptor is left.
    ///
    /// # Panics
    /// When more is taken than the pool was opened for.
    pub fn take_share(&mut self, len: u64) -> Result<FlashShare> {
        let offset = self.next;
        self.next += len.next_multiple_of(SHARE_ALIGN);
        assert!(self.next <= self.end, "more flash taken than was asked for");
        let file = self.data.try_clone().context("cannot share the flash file")?;
        Ok(FlashShare { file, offset })
    }

    /// Whether I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Refuses a flash that holds anything but Forebay's header or zeroes at its start.
fn check_contents(path: &Path) -> Result<()> {
    if !path.is_file() && !is_block_device(path) {
        return Ok(());
    }
    let file =
        File::open(path).with_context(|| format!("the flash {} cannot be read", path.display()))?;
    let mut start = Vec::new();
    file.take(SHARE_ALIGN).read_to_end(&mut start)?;
    if start.get(..8) == Some(MAGIC) {
        let version =
            start.get(8..12).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4")));
        ensure!(
            version == Some(VERSION),
            "the flash {} was written by another version of Forebay ({version:?}, this one knows \
             {VERSION}); a cache can be given up: zero its first 4 KiB",
            path.display()
        );
        return Ok(());
    }
    if start.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let what = signature(&start).unwrap_or("data that is not Forebay's");
    bail!(
        "the flash {} carries {what}; it would be overwritten. Choose another path, or if nothing on \
         it is needed: `wipefs --all` and `dd if=/dev/zero bs=1M count=1` for a device, remove a file",
        path.display()
    )
}

/// What the first MiB of a device says is on it.
fn signature(start: &[u8]) -> Option<&'static str> {
    const SIGNATURES: [(usize, &[u8], &str); 10] = [
        (512, b"EFI PART", "a GPT partition table"),
        (0x438, &[0x53, 0xef], "an ext2/3/4 file system"),
        (0, b"XFSB", "an XFS file system"),
        (0x1_0040, b"_BHRfS_M", "a btrfs file system"),
        (512, b"LABELONE", "an LVM physical volume"),
        (0, b"LUKS\xba\xbe", "a LUKS volume"),
        (4086, b"SWAPSPACE2", "swap space"),
        (3, b"NTFS    ", "an NTFS file system"),
        (4096, &[0xfc, 0x4e, 0x2b, 0xa9], "a member of a software RAID"),
        (510, &[0x55, 0xaa], "an MBR partition table or a boot sector"),
    ];
    let has = |at: usize, magic: &[u8]| start.get(at..at + magic.len()) == Some(magic);
    SIGNATURES.iter().find(|(at, magic, _)| has(*at, magic)).map(|(_, _, what)| *what)
}

/// Through the page cache, because the header is not aligned as direct I/O wants it.
fn write_header(path: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    let mut header = vec![0; HEADER_LEN];
    header[..8].copy_from_slice(MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    file.write_all(&header)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &Path) -> Result<FlashPool, String> {
        FlashPool::open(path, &[5 << 20]).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_file_is_created_locked_and_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let mut pool = open(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 6 << 20);
        assert_eq!(pool.take_share(5 << 20).unwrap().offset, 1 << 20);
        assert!(open(&path).unwrap_err().contains("in use"));
        drop(pool);
        open(&path).unwrap();
    }

    #[test]
    fn a_folder_that_is_not_there_is_named_and_a_folder_is_no_flash() {
        let folder = tempfile::tempdir().unwrap();
        let error = open(&folder.path().join("deep/flash")).unwrap_err();
        let missing = folder.path().join("deep");
        assert!(error.contains(&format!("the folder {} of", missing.display())), "{error}");
        assert!(error.contains("create it"), "{error}");
        assert!(open(folder.path()).unwrap_err().contains("it is a directory"));
    }

    #[test]
    fn foreign_data_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let check = |at: usize, magic: &[u8], expect: &str| {
            let path = folder.path().join("x");
            let mut bytes = vec![0; 1 << 17];
            bytes[at..at + magic.len()].copy_from_slice(magic);
            std::fs::write(&path, &bytes).unwrap();
            let error = open(&path).unwrap_err();
            assert!(error.contains(expect), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), bytes, "untouched");
        };
        check(0x438, &[0x53, 0xef], "ext2/3/4");
        check(512, b"EFI PART", "GPT");
        check(510, &[0x55, 0xaa], "MBR");
        check(77, b"x", "not Forebay's");
        check(0, b"FOREBAY\0\x09", "another version");
    }
}
