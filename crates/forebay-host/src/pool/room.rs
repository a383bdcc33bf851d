//! Room of a pool: what disks want of it, a pool that is made for that, and one that is too small or was cut short.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::flash_pool::{DiskNumber, PoolGeometry};

use super::file::PoolFile;
use super::tables::Tables;
use super::{contents, host};
use crate::shell;

/// Segments beyond those that a log may have, so that what a crash left behind can be put in order when it is full: three
/// for what the staging file holds at most, and one for each of two restarts in a row that do not come to their end,
/// of which the first one's counts until the second one's is durable; and one for the segment where the log goes on.
pub(super) const SPARE_SEGMENTS: u64 = 6;

/// What a disk wants of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Bytes for cached data.
    pub cache: u64,
    /// Bytes for the ring that keeps them over a restart.
    pub ring: u64,
    /// Bytes for the write log.
    pub log: u64,
}

impl Share {
    fn segments(self, size: u64) -> u64 {
        let log = self.log.div_ceil(size);
        let spare = if log > 0 { SPARE_SEGMENTS } else { 0 };
        self.cache.div_ceil(size) + self.ring.div_ceil(size) + log + spare
    }
}

/// Gives a pool file that was cut short its length back. What is missing reads as zeroes, which no cached block is taken for;
/// but a ring whose end is missing says what was cached at some time before. So none of its rings is believed. What is worth
/// telling of it.
///
/// # Errors
/// A write log may have been in what is missing, or it is a device.
pub(super) fn make_whole(file: &PoolFile, tables: &mut Tables) -> Result<Option<String>> {
    let geometry = tables.geometry();
    let whole = u64::from(geometry.segments()) * geometry.segment_size();
    let there = file.size()?;
    if there >= whole {
        return Ok(None);
    }
    let of = tables.disks().filter(|(number, _)| tables.log_segments(*number) > 0);
    let logs: Vec<&str> = of.map(|(_, record)| record.name.as_str()).collect();
    let cut = format!(
        "the flash {} was cut short: it has {} of the {} of its pool",
        file.path().display(),
        rounded(there),
        rounded(whole)
    );
    ensure!(
        logs.is_empty(),
        "{cut}, and the write log of '{}' may be in the rest. Put the whole back. If it is gone for ever, with what only that log \
         held, give --flash another path: the error of that start says how a disk goes on without its log",
        logs.join("', '")
    );
    ensure!(
        !file.is_device(),
        "{cut}. It has no write log: wipe it, and a start makes a new pool there ({})",
        contents::wipe(file)
    );
    // Before: once it has its size again, nothing tells what was missing.
    let disks: Vec<DiskNumber> = tables.disks().map(|(number, _)| number).collect();
    for disk in disks {
        tables.void_ring(file, disk).context("cannot note that what is cached is gone")?;
    }
    file.make_room(whole)?;
    Ok(Some(format!("{cut}, and has its size again; what was cached there is gone")))
}

/// Makes a pool for these shares; of all of a device, and of all of a file that is larger.
pub(super) fn create(file: &PoolFile, shares: &[Share]) -> Result<Tables> {
    let geometry = geometry(file.path(), Some(file), shares)?;
    file.make_room(u64::from(geometry.segments()) * geometry.segment_size())?;
    file.keep_name().with_context(|| format!("cannot make {} durable", file.path().display()))?;
    let pool = host::new_uuid().context("cannot name a new pool")?;
    let superblock = Superblock { pool, geometry, created: host::now() };
    Tables::create(file, superblock)
        .with_context(|| format!("cannot write to the flash {}", file.path().display()))
}

/// What is made at `path`, where `file` is, or is to be.
fn geometry(path: &Path, file: Option<&PoolFile>, shares: &[Share]) -> Result<PoolGeometry> {
    let wanted: u64 = shares.iter().map(|share| share.cache + share.log).sum();
    // A file that is longer than needed was given its size, for disks that are to come.
    let size_given = file.map_or(Ok(0), PoolFile::size)?;
    let is_device = file.is_some_and(PoolFile::is_device);
    let total = if is_device { size_given } else { wanted.max(size_given) };
    let size = forebay_core::flash_pool::segment_size(total, shares.len());
    let all = |shares: &[Share]| -> u64 { shares.iter().map(|share| share.segments(size)).sum() };
    // A device that is just large enough for the rest goes without rings.
    let has_room = !is_device || {
        let needed = all(shares) * size + (4 << 20);
        needed <= total
    };
    let segments = if has_room { all(shares) } else { all(&without_rings(shares)) };
    let disks = forebay_core::flash_pool::disks(total, shares.len()).into();
    let metadata = |segments: u64| {
        let geometry = PoolGeometry::new(size, (segments + 64) * size, disks);
        geometry.map(|geometry| u64::from(geometry.metadata_segments()))
    };
    let needed = (segments + metadata(segments)?).max(metadata(segments)? + 1) * size;
    let given = if is_device { size_given } else { needed.max(size_given) };
    ensure!(
        needed <= given,
        "the flash device {} has {}, the disks' shares need {}",
        path.display(),
        rounded(given),
        rounded(needed)
    );
    Ok(PoolGeometry::new(size, given, disks)?)
}

/// Bytes of a pool.
pub(super) fn bytes(tables: &Tables) -> u64 {
    u64::from(tables.geometry().segments()) * tables.geometry().segment_size()
}

/// The same without what keeps caches over a restart.
fn without_rings(shares: &[Share]) -> Vec<Share> {
    shares.iter().map(|share| Share { ring: 0, ..*share }).collect()
}

/// True when the pool has room for these shares; one that is `fixed` may have none for their rings.
pub(super) fn fits(geometry: &PoolGeometry, shares: &[Share], fixed: bool) -> bool {
    let room = u64::from(geometry.segments() - geometry.metadata_segments());
    let has_room = |shares: &[Share]| {
        let needed = shares.iter().map(|share| share.segments(geometry.segment_size()));
        needed.sum::<u64>() <= room
    };
    has_room(shares) || fixed && has_room(&without_rings(shares))
}

/// Whether a pool that is not open would have room for these shares when it is opened for those of the `first` disks, be it
/// that it is made for them, or made anew.
///
/// # Errors
/// It would not, or cannot be used.
pub fn check_room_at(path: &Path, first: &[Share], shares: &[Share]) -> Result<()> {
    PoolFile::check_place(path)?;
    let opened = match path.exists() {
        true => geometry_at(path, first)?,
        false => geometry(path, None, first)?,
    };
    check_room(path, &opened, shares)
}

/// What a pool is once it is opened for these shares.
fn geometry_at(path: &Path, shares: &[Share]) -> Result<PoolGeometry> {
    let file = PoolFile::open(path, true)?;
    if let Some(superblock) = contents::look(&file)?.usable(&file)? {
        let tables = Tables::read(&file, superblock)
            .with_context(|| format!("the flash {}", path.display()))?;
        if fits(&tables.geometry(), shares, is_fixed(&file, &tables)) {
            return Ok(tables.geometry());
        }
        check_again(&file, &tables)?;
    }
    geometry(path, Some(&file), shares)
}

/// Whether a pool that is open has room for these shares.
pub(super) fn check_room(path: &Path, pool: &PoolGeometry, shares: &[Share]) -> Result<()> {
    ensure!(
        fits(pool, shares, true),
        "the pool on {}, of {}, has no room for its share, and does not grow while it is in use. Give it other flash; or \
         let all disks be destaged and start the daemon again, which makes a larger pool, with nothing cached",
        path.display(),
        rounded(u64::from(pool.segments()) * pool.segment_size())
    );
    Ok(())
}

/// A pool of before rings, that cannot be made anew, goes on without.
pub(super) fn is_fixed(file: &PoolFile, tables: &Tables) -> bool {
    file.is_device() || tables.disks().any(|(number, _)| tables.log_segments(number) > 0)
}

/// Makes the pool anew, larger, when it holds nothing that is needed.
pub(super) fn again(file: &PoolFile, tables: &Tables, shares: &[Share]) -> Result<Tables> {
    check_again(file, tables)?;
    create(file, shares)
}

/// Whether it holds nothing that is needed.
fn check_again(file: &PoolFile, tables: &Tables) -> Result<()> {
    let dirty: Vec<&str> = tables
        .disks()
        .filter(|(number, _)| tables.log_segments(*number) > 0)
        .map(|(_, record)| record.name.as_str())
        .collect();
    let size = bytes(tables);
    ensure!(
        dirty.is_empty(),
        "the flash {} is a pool of {}, too small for what is configured, and it holds writes of '{}' that are not \
         on primary storage: start with the former sizes, let them be destaged ('forebay disk flush'), stop, and \
         start again",
        file.path().display(),
        rounded(size),
        dirty.join("', '")
    );
    let reserved: Vec<&str> = tables
        .disks()
        .filter(|(number, _)| tables.has_reservations(*number))
        .map(|(_, record)| record.name.as_str())
        .collect();
    ensure!(
        reserved.is_empty(),
        "the flash {} is a pool of {}, too small for what is configured, and it holds persistent reservations of SCSI \
         initiators for '{}': start with the former sizes, let the initiators clear them, or give them up ('forebay disk \
         resolve {} --pool {} --discard-reservations'), and start again",
        file.path().display(),
        rounded(size),
        reserved.join("', '"),
        reserved[0],
        shell::quoted(file.path())
    );
    Ok(())
}

/// Whether a pool for these shares can be made there.
pub(super) fn check_size(file: &PoolFile, shares: &[Share]) -> Result<()> {
    geometry(file.path(), Some(file), shares).map(drop)
}
