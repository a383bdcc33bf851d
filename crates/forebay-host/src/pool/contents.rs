//! What is on a flash file or device before it is used: a pool of ours, nothing, or somebody's data.
//!
//! The first MiB tells a pool and most file systems. What is blank there is looked at further on: all that a file has, or
//! samples of a device or a large file. Holes, zeroes, and the ones of erased flash are nothing.
//!
//! **Limit.** Samples may miss data in the middle of a device, or of a file with more than [`READ_MAX`].

use std::ops::Range;

use anyhow::{Context, Result, bail};
use forebay_core::flash_pool::SUPERBLOCKS;
use forebay_core::flash_pool::superblock::{MAGIC, Superblock, SuperblockInvalid};
use forebay_core::geometry::PAGE;
use forebay_core::sealed::is_erased;

use super::file::{PoolFile, PoolPage};
use super::tables::Tables;
use crate::shell::quoted;

/// Bytes looked at for a pool, and at either end for anything.
const START: u64 = 1 << 20;
/// Beyond the start so much is read whole; of more than that, samples.
const READ_MAX: u64 = 64 << 20;
/// Bytes of a read.
const PIECE: u64 = 64 << 10;
/// Samples of what is too much to read.
const SAMPLES: u64 = 256;
/// Pieces of a file that are told apart as data or holes; what is beyond them counts as data.
const EXTENTS_MAX: usize = 4096;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Nothing, or what may be overwritten: a pool that was never finished.
    Blank,
    /// A pool.
    Pool(Superblock),
    /// What is not ours.
    Foreign(String),
}

impl Contents {
    /// The pool that was found on `file`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn pool(self, file: &PoolFile) -> Result<Superblock> {
        let shown = file.path().display();
        match self {
            Contents::Pool(superblock) => Ok(superblock),
            Contents::Blank => bail!("{shown} is no pool: it is blank"),
            Contents::Foreign(what) => bail!("{shown} is no pool: it carries {what}"),
        }
    }

    /// The pool that was found on `file`; `None`: one may be made there.
    ///
    /// # Errors
    /// It carries what is not ours.
    pub(super) fn usable(self, file: &PoolFile) -> Result<Option<Superblock>> {
        match self {
            Contents::Pool(superblock) => Ok(Some(superblock)),
            Contents::Blank => Ok(None),
            Contents::Foreign(what) => bail!(
                "the flash {} carries {what}; it would be overwritten. Choose another path, or if nothing on it is needed: {}",
                file.path().display(),
                wipe(file)
            ),
        }
    }
}

/// How to empty flash that nobody needs, as a command line.
pub(super) fn wipe(file: &PoolFile) -> String {
    let path = quoted(file.path());
    match file.is_device() {
        true => format!(
            "'wipefs --all {path}', then 'blkdiscard {path}', or 'blkdiscard --zeroout {path}' where it cannot discard"
        ),
        false => format!("'truncate -s 0 {path}', or remove the file"),
    }
}

const UNKNOWN: &str = "data that is not Forebay's";

/// Looks at the start of `file`.
///
/// # Errors
/// It holds a pool that this program cannot use.
pub fn look(file: &PoolFile) -> Result<Contents> {
    let shown = file.path().display();
    let size = file.size()?;
    if (1..PAGE).contains(&size) {
        return Ok(Contents::Foreign(UNKNOWN.to_owned()));
    }
    let pages = size.min(START).div_ceil(PAGE) as usize;
    let mut start = PoolPage::zeroes(pages.max(1));
    let unread = file.read_what_is_there(0, &mut start).err();
    if unread.is_some() {
        // Whatever else cannot be read there: a superblock tells a pool.
        for offset in SUPERBLOCKS {
            if let Some(page) = start.get_mut((offset / PAGE) as usize) {
                file.read_what_can_be_read(offset, std::slice::from_mut(page))?;
            }
        }
    }
    let mut copies = [&PoolPage::ZERO; 2];
    for (copy, offset) in copies.iter_mut().zip(SUPERBLOCKS) {
        if let Some(page) = start.get((offset / PAGE) as usize) {
            *copy = page;
        }
    }
    match Superblock::choose([&copies[0].0, &copies[1].0]) {
        Ok(superblock) => return Ok(Contents::Pool(superblock)),
        Err(_) if let Some(error) = unread => {
            return Err(error).with_context(|| format!("cannot read the flash {shown}"));
        }
        Err(SuperblockInvalid::Foreign) => {}
        Err(SuperblockInvalid::Damaged) if is_old_header(&copies[0].0) => {
            return Ok(Contents::Blank);
        }
        Err(SuperblockInvalid::Version(version)) => bail!(
            "the flash {shown} was made by another version of Forebay: it has format {version}, this one \
             knows 1. Use that version to start and detach its disks, then remove the file, or wipe the device ('blkdiscard')"
        ),
        Err(other) => bail!(
            "the flash {shown} cannot be used: {other}. Nothing was changed. Copy it, and put back what was there if a copy of that \
             is left. If it is gone for ever, with what only its write logs held, empty the flash ({}). The error of the next \
             start says how a disk whose log was there goes on without it",
            wipe(file)
        ),
    }
    let is_blank = |page: &PoolPage| page.0.iter().all(|byte| *byte == 0);
    let second = Superblock::decode(&copies[1].0);
    if let Ok(superblock) = second
        && is_blank(copies[0])
    {
        // The first copy is written last when a pool is made: one with disks was finished, and has lost it.
        return Ok(match Tables::have_disks(file, superblock)? {
            true => Contents::Pool(superblock),
            false => Contents::Blank,
        });
    }
    if start.iter().all(is_blank) {
        return Ok(match data_further_on(file)? {
            Some(offset) => Contents::Foreign(format!("{UNKNOWN} at byte {offset}")),
            None => Contents::Blank,
        });
    }
    if matches!(second, Ok(_) | Err(SuperblockInvalid::Version(_))) {
        bail!(
            "the start of the flash {shown} was overwritten: it carries data that is not Forebay's, but the second superblock of a \
             pool is behind it, and the pool may hold writes that are not on primary storage. If nobody needs what is at its \
             start, zero that ('dd if=/dev/zero of={0} bs=4K count=1 conv=notrunc'), and 'forebay pool show {0}' tells what the pool has",
            quoted(file.path())
        );
    }
    let bytes: Vec<u8> = start.iter().flat_map(|page| page.0).collect();
    Ok(Contents::Foreign(signature(&bytes).unwrap_or(UNKNOWN).to_owned()))
}

/// Where data is behind the first MiB, as far as anybody looks.
///
/// # Errors
/// The medium's.
fn data_further_on(file: &PoolFile) -> Result<Option<u64>> {
    let size = file.size()?;
    let extents = file.extents(START.min(size), size, EXTENTS_MAX)?;
    let mut pages = PoolPage::zeroes((PIECE / PAGE) as usize);
    for offset in pieces(&extents, size) {
        pages.fill(PoolPage::ZERO);
        file.read_what_is_there(offset, &mut pages)?;
        if let Some(page) = pages.iter().position(|page| !is_erased(&page.0)) {
            return Ok(Some(offset + page as u64 * PAGE));
        }
    }
    Ok(None)
}

/// Where to read what may be data: everywhere, or, where that is too much, in places and at the end.
fn pieces(extents: &[Range<u64>], size: u64) -> Vec<u64> {
    let total: u64 = extents.iter().map(|it| it.end - it.start).sum();
    let all = |from: u64, extents: &[Range<u64>]| -> Vec<u64> {
        let pieces = extents.iter().flat_map(|it| {
            let start = it.start.max(from);
            (start - start % PAGE..it.end).step_by(PIECE as usize)
        });
        pieces.collect()
    };
    if total <= READ_MAX {
        return all(0, extents);
    }
    let sample = |n: u64| {
        let mut at = total / SAMPLES * n;
        let extent = extents.iter().find(|it| {
            let len = it.end - it.start;
            let is_in = at < len;
            at -= if is_in { 0 } else { len };
            is_in
        });
        extent.map(|it| (it.start + at) / PAGE * PAGE)
    };
    let mut found: Vec<u64> = (0..SAMPLES).filter_map(sample).collect();
    found.extend(all(size.saturating_sub(START), extents));
    found
}

/// True for the header of a cache without a log, as it was before pools: nothing in it outlived its process.
fn is_old_header(page: &[u8]) -> bool {
    page[..8] == MAGIC[..] && page[8..12] == [1, 0, 0, 0] && page[12..].iter().all(|b| *b == 0)
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
