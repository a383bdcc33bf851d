//! The staging file of a disk: memory that outlives the process, on tmpfs.
//!
//! It holds the groups of the write log that are not on flash yet, as they lie in the engine's memory: a page for a
//! segment's header, a page for the group's, its data; three times; and a page that does not matter. The file is
//! called after the disk's UUID, belongs to this user alone, and is locked while it is used.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use forebay_core::ids::Uuid;
use forebay_core::log::GROUPS_IN_MEMORY;
use forebay_core::log::group::GroupView;
use forebay_core::sealed::{PAGE_LEN, Page};
use forebay_io::file::{OpenFile, Options};
use rustix::fs::FallocateFlags;

use super::file::LOCK_WAIT;

/// tmpfs, by its number in the kernel's `magic.h`.
const TMPFS: u64 = 0x0102_1994;

/// An open, locked staging file.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    file: File,
}

/// Groups that a former run left in its staging file, in order of their numbers.
#[derive(Debug, Default)]
pub struct StagedGroups {
    groups: Vec<StagedGroup>,
}

#[derive(Debug)]
struct StagedGroup {
    number: u64,
    header: Box<Page>,
    data: Vec<u8>,
}

impl Staging {
    /// Opens or makes the staging file of a disk in [`folder`]; whether it was there.
    ///
    /// # Errors
    /// It is in use, belongs to somebody else, or cannot be opened.
    pub fn open(folder: &Path, disk: Uuid) -> Result<(Staging, bool)> {
        let path = path_in(folder, disk);
        let was_there = path.exists();
        let options = Options {
            buffered: true,
            allocate: Some(0),
            lock_wait: LOCK_WAIT,
            ..Options::default()
        };
        let file = File::from(OpenFile::open(&path, &options).context("its staging file")?);
        let metadata = file.metadata()?;
        ensure!(
            metadata.uid() == rustix::process::geteuid().as_raw() && metadata.is_file(),
            "the staging file {} is not ours: remove it",
            path.display()
        );
        Ok((Staging { path, file }, was_there))
    }

    /// The groups in it, for segments of this many pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn groups(&self, segment_pages: u32) -> io::Result<StagedGroups> {
        let mut bytes = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(StagedGroups::of(&bytes, segment_pages))
    }

    /// Makes it `len` zeroes, with space for them.
    ///
    /// # Errors
    /// There is not that much space.
    pub fn renew(&self, len: u64) -> Result<()> {
        rustix::fs::ftruncate(&self.file, 0)?;
        rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len).with_context(|| {
            format!("cannot take {len} bytes for the staging file {}", self.path.display())
        })
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Removes it: nothing in it is needed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

impl StagedGroups {
    /// Those that a disk's staging file has, if it has one; it is not locked.
    pub fn peek(disk: Uuid, segment_pages: u32) -> StagedGroups {
        let bytes = folder().and_then(|folder| std::fs::read(path_in(&folder, disk)).ok());
        StagedGroups::of(&bytes.unwrap_or_default(), segment_pages)
    }

    fn of(bytes: &[u8], segment_pages: u32) -> StagedGroups {
        let group_len = forebay_core::log::group_memory_pages(segment_pages) as usize * PAGE_LEN;
        let mut groups = Vec::new();
        for group in bytes.chunks_exact(group_len).take(GROUPS_IN_MEMORY) {
            let header: &Page = group[PAGE_LEN..2 * PAGE_LEN].try_into().expect("a page");
            let Ok(view) = GroupView::staged(header) else { continue };
            groups.push(StagedGroup {
                number: view.header().number.0,
                header: Box::new(*header),
                data: group[2 * PAGE_LEN..].to_vec(),
            });
        }
        groups.sort_by_key(|group| group.number);
        StagedGroups { groups }
    }

    /// Their header pages.
    pub fn headers(&self) -> Vec<&Page> {
        self.groups.iter().map(|group| &*group.header).collect()
    }

    /// The data of one.
    pub fn data(&self, index: u32) -> &[u8] {
        &self.groups[index as usize].data
    }
}

/// Removes the staging file of a disk, if it is there.
pub fn remove_of(disk: Uuid) {
    if let Some(folder) = folder() {
        let _ = std::fs::remove_file(path_in(&folder, disk));
    }
}

fn path_in(folder: &Path, disk: Uuid) -> PathBuf {
    folder.join(format!("forebay-{disk}.staging"))
}

/// A folder on tmpfs: the shared memory of the host, or this user's runtime folder. `None` where no file outlives the
/// process without being written to a device.
pub(in crate::daemon) fn folder() -> Option<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    [Some(PathBuf::from("/dev/shm")), runtime].into_iter().flatten().find(|folder| {
        rustix::fs::statfs(folder).is_ok_and(|found| found.f_type as u64 == TMPFS)
            && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
    })
}
