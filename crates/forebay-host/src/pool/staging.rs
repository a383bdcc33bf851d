//! The staging file of a disk: memory that outlives the process, on tmpfs.
//!
//! It holds the groups of the write log that are not on flash yet, as they lie in the engine's memory: a page for a
//! segment's header, a page for the group's, its data; three times; and a page that does not matter. Behind that is
//! the *stamp*, which says whose groups these are: without it nobody could tell a file that was zeroed or cut short from one whose
//! session had everything on flash.
//!
//! | offset | bytes | field of the stamp |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBSTAGED` |
//! | 8 | 4 | CRC32C of the page |
//! | 12 | 2 | version, 1 |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | generation: no older session has anything in the file |
//!
//! A start stamps the file before it empties it, and commits its generation behind that. So a stamp between *committed* and
//! *pending* is of a start that did not come to its end, and what the session before had staged is in the log.
//!
//! The file is called after the disk's UUID, lies where nobody else can put anything (`tmpfs`), and is locked while it is used.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use forebay_backends::size::rounded;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::ids::{Generation, Uuid};
use forebay_core::sealed::{PAGE_LEN, Page, crc32c, has_seal, seal};
use forebay_core::write_back::format::group::{GroupInvalid, GroupView};
use forebay_core::write_back::format::{GROUPS_IN_MEMORY, first_memory_pages, group_memory_pages};
use forebay_io::arena;
use forebay_io::file::lock_exclusively;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::retry_on_intr;

use super::file::LOCK_WAIT;
use crate::population::check_available;
use crate::tmpfs;
pub use crate::tmpfs::folder;

const MAGIC: &[u8; 8] = b"FBSTAGED";
const VERSION: u16 = 1;

/// An open, locked staging file.
#[derive(Debug)]
pub struct Staging {
    path: PathBuf,
    file: File,
    was_there: bool,
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

/// What a session left in its staging file.
#[derive(Debug, Default)]
pub struct Left {
    /// Its groups; of a file with a fault those that are whole, up to the first that is not.
    pub groups: StagedGroups,
    /// Why there may have been more.
    pub fault: Option<Fault>,
}

/// What is wrong with a staging file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is not there.
    #[error(
        "is gone, or is where this one does not look (another mount of /dev/shm, another user's folder)"
    )]
    Missing,
    /// It is there, and not what the session had.
    #[error("is damaged ({0})")]
    Damaged(&'static str),
}

impl Staging {
    /// Opens or makes the staging file of a disk in [`folder`].
    ///
    /// # Errors
    /// It is in use, belongs to somebody else, or cannot be opened.
    pub fn open(folder: &Path, disk: Uuid) -> Result<Staging> {
        let path = path_in(folder, disk);
        let was_there = path.exists();
        let file = tmpfs::open(&path, OFlags::RDWR | OFlags::CREATE).context("its staging file")?;
        lock_exclusively(&file, &path, LOCK_WAIT).context("its staging file")?;
        Ok(Staging { path, file, was_there })
    }

    /// What the disk's last session left in it, with segments of this many pages.
    ///
    /// # Errors
    /// The kernel's.
    pub fn left(&self, disk: &DiskRecord, segment_pages: u32) -> io::Result<Left> {
        if !self.was_there {
            return Ok(Left::missing());
        }
        let mut bytes = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(Left::of(&bytes, disk, segment_pages))
    }

    /// Empties it for a session of the disk: its memory is zeroes, with space for the first pages of each group. The rest
    /// has space after [`Staging::grow`], and is not to be touched before.
    ///
    /// # Errors
    /// There is not that much space.
    pub fn renew(&self, disk: Uuid, session: Generation, segment_pages: u32) -> Result<()> {
        let memory = memory_len(segment_pages) as u64;
        let len = memory + PAGE_LEN as u64;
        let [group, first] = [group_memory_pages(segment_pages), first_memory_pages(segment_pages)]
            .map(|pages| u64::from(pages) * PAGE_LEN as u64);
        let groups = (0..GROUPS_IN_MEMORY as u64).map(|n| n * group..n * group + first);
        let behind = GROUPS_IN_MEMORY as u64 * group..len;
        let parts: Vec<Range<u64>> = groups.chain([behind]).collect();
        let needed = parts.iter().map(|part| part.end - part.start).sum();
        if self.file.metadata()?.len() != len {
            rustix::fs::ftruncate(&self.file, 0)?;
        }
        let stamped = self.file.write_all_at(&stamp(disk, session), memory);
        stamped.with_context(|| self.cannot_take(needed))?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        retry_on_intr(|| rustix::fs::fallocate(&self.file, hole, 0, memory))?;
        let mut taken = parts.into_iter().map(|part| self.take(part));
        taken.try_for_each(|taken| taken.with_context(|| self.cannot_take(needed)))
    }

    /// Takes memory for all of it.
    ///
    /// # Errors
    /// There is not that much: tmpfs is full, or the host would have too little left for others.
    pub fn grow(&self) -> Result<()> {
        let needed = self.file.metadata()?.len();
        // Where memory is limited the kernel does not refuse. It ends a process.
        if let Err(why) = check_available(&arena::available(), needed) {
            bail!("{}: {why}", self.cannot_take(needed));
        }
        self.take(0..needed).with_context(|| self.cannot_take(needed))
    }

    fn take(&self, part: Range<u64>) -> rustix::io::Result<()> {
        let (start, len) = (part.start, part.end - part.start);
        retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), start, len))
    }

    fn cannot_take(&self, len: u64) -> String {
        format!("cannot take {} for the staging file {}", rounded(len), self.path.display())
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

impl Left {
    /// As [`Staging::left`] finds it, of a file that is not locked, and that this user has or one of `owners`.
    pub fn peek(disk: &DiskRecord, segment_pages: u32, owners: impl Iterator<Item = u32>) -> Left {
        let name = name(disk.uuid);
        let us = rustix::process::geteuid().as_raw();
        let users = [us].into_iter().chain(owners);
        let lefts = users.filter_map(|user| tmpfs::read_of(user, &name)).map(|file| {
            // A byte more than it may have: what is too long is none.
            let limit = (memory_len(segment_pages) + PAGE_LEN + 1) as u64;
            let mut bytes = Vec::new();
            match file.take(limit).read_to_end(&mut bytes) {
                Ok(_) => Left::of(&bytes, disk, segment_pages),
                Err(_) => Left::missing(),
            }
        });
        // One that counts, else what is wrong with the first.
        let better = |first: Left, next: Left| match (first.fault, next.fault) {
            (Some(_), None) => next,
            _ => first,
        };
        lefts.reduce(better).unwrap_or_else(Left::missing)
    }

    /// That there is no file.
    pub fn missing() -> Left {
        Left { fault: Some(Fault::Missing), ..Left::default() }
    }

    fn of(bytes: &[u8], disk: &DiskRecord, segment_pages: u32) -> Left {
        let stamped = stamped(bytes, disk.uuid, segment_pages);
        if stamped.is_ok_and(|session| session > disk.committed && session <= disk.pending) {
            return Left::default();
        }
        let whose = stamped.and_then(|session| match session == disk.committed {
            true => Ok(()),
            false => Err("it is of another session"),
        });
        let (groups, is_whole) = StagedGroups::of(bytes, segment_pages);
        let why = whose.err().or((!is_whole).then_some("a group in it is not whole"));
        Left { groups, fault: why.map(Fault::Damaged) }
    }
}

impl StagedGroups {
    /// Those that begin and end in `bytes`, and whether all that were begun are whole.
    fn of(bytes: &[u8], segment_pages: u32) -> (StagedGroups, bool) {
        let group_len = group_memory_pages(segment_pages) as usize * PAGE_LEN;
        let mut groups = Vec::new();
        let mut broken = u64::MAX;
        for group in bytes.chunks_exact(group_len).take(GROUPS_IN_MEMORY) {
            let header: &Page = group[PAGE_LEN..2 * PAGE_LEN].try_into().expect("a page");
            let data = &group[2 * PAGE_LEN..];
            match GroupView::staged(header) {
                Ok(view) if is_whole(&view, data) => groups.push(StagedGroup {
                    number: view.header().number.0,
                    header: Box::new(*header),
                    data: data.to_vec(),
                }),
                Ok(view) => broken = broken.min(view.header().number.0),
                Err(GroupInvalid::Absent) => {}
                Err(GroupInvalid::Field(_)) => broken = 0,
            }
        }
        groups.retain(|group| group.number < broken);
        groups.sort_by_key(|group| group.number);
        (StagedGroups { groups }, broken == u64::MAX)
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

/// True when the data of a group's records are those that were stored.
fn is_whole(view: &GroupView<'_>, data: &[u8]) -> bool {
    let pages = view.layout().data_pages;
    let mut data = data.chunks_exact(PAGE_LEN);
    (0..pages).all(|page| data.next().is_some_and(|data| crc32c(data) == view.checksum(page)))
}

/// Bytes of the part that a session has as its memory.
fn memory_len(segment_pages: u32) -> usize {
    (GROUPS_IN_MEMORY * group_memory_pages(segment_pages) as usize + 1) * PAGE_LEN
}

fn stamp(disk: Uuid, session: Generation) -> Page {
    let mut page = [0; PAGE_LEN];
    page[..8].copy_from_slice(MAGIC);
    page[12..14].copy_from_slice(&VERSION.to_le_bytes());
    page[16..32].copy_from_slice(&disk.0);
    page[32..40].copy_from_slice(&session.0.to_le_bytes());
    seal(&mut page);
    page
}

/// The session that a staging file is stamped for, or what is wrong with it.
fn stamped(bytes: &[u8], disk: Uuid, segment_pages: u32) -> Result<Generation, &'static str> {
    let memory = memory_len(segment_pages);
    if bytes.len() != memory + PAGE_LEN {
        return Err("it has another length");
    }
    let page: &Page = bytes[memory..].try_into().expect("a page");
    if !has_seal(page, MAGIC) {
        return Err("nothing says whose it is");
    }
    if page[12..14] != VERSION.to_le_bytes() {
        return Err("it is of another version of Forebay");
    }
    if page[16..32] != disk.0 {
        return Err("it is of another disk");
    }
    Ok(Generation(u64::from_le_bytes(page[32..40].try_into().expect("8 bytes"))))
}

/// Where the next run looks for the staging file of a disk.
pub fn place(disk: Uuid) -> Option<PathBuf> {
    Some(path_in(&folder()?, disk))
}

/// Removes the staging file of a disk, if it is there.
pub fn remove_of(disk: Uuid) {
    if let Some(folder) = folder() {
        let _ = std::fs::remove_file(path_in(&folder, disk));
    }
}

fn path_in(folder: &Path, disk: Uuid) -> PathBuf {
    tmpfs::place(folder, &name(disk))
}

fn name(disk: Uuid) -> String {
    format!("forebay-{disk}.staging")
}
