//! The flash pool of the daemon: a file or device with what outlives the process, locked for this one.
//!
//! ```text
//!   Pool::open ─► find or make a disk's record ─► recover its log ─► leases ─► committed ─► served
//!   (locked)      (record.rs)                     (recover.rs)                             │
//!              shard ──Lease, Renew, Unlease──► owner thread ──answer──► shard             │ (owner.rs)
//!   Pool::close ◄─── owner thread ◄────────────────────────────────────────────────────────┘
//! ```
//! `forebay_core::flash_pool` has the format; this has its I/O. Cache segments are taken from the low end, contiguous for each
//! disk (cache.rs), log segments from the high end. Those of an earlier run are kept for their disk while there is room.
//!
//! **Invariants**
//! - What the tables say is durable before anybody acts on it.
//! - A segment with records that are not on primary storage is given to nobody: not by another size, another
//!   mode or another disk.
//! - After a failed write of the tables nothing is leased any more.
//! - While a disk is served, its leases and record are changed by the owner thread alone, in the order in which that was
//!   asked for. While it is opened, or an administrator decides about it, they are changed by whoever does that, alone.
//! - Nobody who reads or writes much, or waits for primary storage, has the pool locked meanwhile ([`Snapshot`]): disks that are
//!   served wait for segments.
//! - A segment is freed only under the lease that it is held under.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_core::action::NoLease;
use forebay_core::cache_index::survey::CachedGranule;
use forebay_core::flash_pool::lease::{Holder, Lease, Role};
use forebay_core::flash_pool::reservations::STATE_MAX as RESERVATIONS_MAX;
use forebay_core::flash_pool::{DiskNumber, PoolGeometry};
use forebay_core::geometry::PAGE;
use forebay_core::ids::{Generation, SegmentId, Uuid};

mod cache;
pub mod check;
mod contents;
mod file;
pub mod host;
pub mod owner;
mod record;
mod recover;
pub mod report;
pub(crate) mod resolve;
mod ring;
mod room;
pub mod staging;
pub mod survey;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use super::events::Severity;
pub use cache::CacheArea;
use file::PoolFile;
pub use file::{FailedFlushes, LOCK_WAIT, SharedFile};
pub use record::{Dirty, DiskWish, EndOfSession, GOES_WITH_DEVICE};
pub use recover::{FoundLog, OpenedLog};
pub use room::{Share, check_room_at};
use room::{again, bytes, check_room, check_size, create, fits, is_fixed, make_whole};
pub use tables::Held;
use tables::Tables;

/// A contiguous part of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Where it begins in the pool, in bytes.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// An open pool. While it lives, no other process can use its file or device.
#[derive(Clone, Debug)]
pub struct Pool {
    file: Arc<PoolFile>,
    tables: Tables,
    /// The next ordinal of each disk's log, by number.
    next_ordinals: Vec<u64>,
    /// Disks, by number, that have their cache in this run.
    taken: Vec<bool>,
    /// Disks, by number, whose log goes on in this run.
    reopened: Vec<bool>,
    /// Numbers that a disk of this run has, or had: whatever becomes of its record, no other disk gets them.
    admitted: Vec<bool>,
    /// Writing the tables failed.
    pub(crate) has_failed: bool,
    /// How it failed, until that is told.
    failure: Option<String>,
    /// How it was opened, until that is told.
    news: Option<(Severity, String)>,
}

/// A pool that the control plane and its owner thread share.
pub type SharedPool = Arc<Mutex<Pool>>;

/// What a pool says at one time, to be read at leisure: what of a disk that is not served nobody changes meanwhile.
#[derive(Debug)]
pub struct Snapshot(Pool);

impl std::ops::Deref for Snapshot {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        &self.0
    }
}

/// The pool, whoever panicked with it.
pub fn lock(pool: &SharedPool) -> MutexGuard<'_, Pool> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Opens and locks the pool at `path`, with room for these shares; makes it, and its file, where there is none,
    /// and makes it anew where it is too small and holds nothing that is needed.
    ///
    /// # Errors
    /// It is in use, holds somebody's data, is too small, damaged, or cannot be opened.
    pub fn open(path: &Path, shares: &[Share]) -> Result<Pool> {
        let file = PoolFile::open(path, false)?;
        let (tables, news) = match contents::look(&file)?.usable(&file)? {
            None => {
                file.go_if_new();
                let tables = create(&file, shares)?;
                file.stay();
                let news = format!(
                    "the flash {} was blank, and is a pool of {} now",
                    path.display(),
                    rounded(bytes(&tables))
                );
                (tables, Some((Severity::Info, news)))
            }
            Some(superblock) => {
                // What was written by a process that died may not be durable, and is now.
                file.sync().context("cannot flush the flash")?;
                let mut tables = Tables::read(&file, superblock)
                    .with_context(|| format!("the flash {}", path.display()))?;
                let was_cut = make_whole(&file, &mut tables)?.map(|text| (Severity::Warning, text));
                match fits(&tables.geometry(), shares, is_fixed(&file, &tables)) {
                    true => (tables, was_cut),
                    false => {
                        let larger = again(&file, &tables, shares)?;
                        let news = format!(
                            "the pool on {}, of {}, was too small for what is configured and was made anew with {}: nothing is cached there, \
                             and each disk has a new UUID, by which iSCSI initiators know it (unless --unit-id says another)",
                            path.display(),
                            rounded(bytes(&tables)),
                            rounded(bytes(&larger))
                        );
                        (larger, Some((Severity::Warning, news)))
                    }
                }
            }
        };
        Ok(Pool { news, ..Pool::of(file, tables) })
    }

    /// Whether an open pool has room for these shares: with fewer segments the logs of its disks could stand in each
    /// other's way, also when a crash is put in order.
    ///
    /// # Errors
    /// It has not.
    pub fn check_room(&self, shares: &[Share]) -> Result<()> {
        check_room(self.path(), &self.tables.geometry(), shares)
    }

    /// Whether an open pool could be made anew for these shares.
    ///
    /// # Errors
    /// It could not: its device is too small.
    pub fn check_size(&self, shares: &[Share]) -> Result<()> {
        check_size(&self.file, shares)
    }

    /// Opens and locks a pool that is there, to change what it says of a disk that is not served.
    ///
    /// # Errors
    /// There is none, or it is in use, damaged, or cannot be opened.
    pub fn open_existing(path: &Path) -> Result<Pool> {
        ensure!(path.exists(), "there is nothing at {}", path.display());
        let file = PoolFile::open(path, false)?;
        let superblock = contents::look(&file)?.pool(&file)?;
        file.sync().context("cannot flush the flash")?;
        let tables = Tables::read(&file, superblock)
            .with_context(|| format!("the flash {}", path.display()))?;
        Ok(Pool::of(file, tables))
    }

    /// A file that was made with this opening goes with it, unless the session of a disk begins: nobody meant it to be there.
    pub fn go_if_unused(&self) {
        if self.tables.disks().next().is_none() {
            self.file.go_if_new();
        }
    }

    /// What an operator wants to know of how it was opened.
    pub fn take_news(&mut self) -> Option<(Severity, String)> {
        self.news.take()
    }

    fn of(file: PoolFile, tables: Tables) -> Pool {
        let disks = tables.geometry().disks().count();
        Pool {
            file: Arc::new(file),
            tables,
            next_ordinals: vec![0; disks],
            taken: vec![false; disks],
            reopened: vec![false; disks],
            admitted: vec![false; disks],
            has_failed: false,
            failure: None,
            news: None,
        }
    }

    /// What it says now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot(self.clone())
    }

    /// Whether I/O goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Its name for good.
    pub fn uuid(&self) -> Uuid {
        self.tables.superblock.pool
    }

    /// True when it has a disk of this name for good.
    pub fn knows(&self, disk: Uuid) -> bool {
        self.tables.disks().any(|(_, record)| record.uuid == disk)
    }

    /// What the log of a disk holds that primary storage may not have; it is read for that.
    pub fn dirty(&self, disk: DiskNumber) -> Dirty {
        report::dirty(&self.file, &self.tables, disk)
    }

    /// True when the log of a disk can be read, holds records, and lacks nothing that was sent to primary storage.
    pub fn holds_what_was_sent(&self, disk: DiskNumber) -> bool {
        let staged = report::staged(&self.file, &self.tables, disk);
        let found = report::found(&self.file, &self.tables, disk, &staged.groups);
        found.is_ok_and(|log| !log.records.is_empty() && !log.lacks_what_was_sent())
    }

    /// Some granules that the cache of a disk has, as its index says: primary storage must hold the same. None where a start
    /// would not believe the index or the log.
    pub fn sample_cached(&self, disk: DiskNumber) -> Vec<CachedGranule> {
        report::sample_cached(&self.file, &self.tables, disk)
    }

    /// How it is cut.
    pub fn geometry(&self) -> PoolGeometry {
        self.tables.geometry()
    }

    /// Its descriptor, for a reactor.
    pub fn share_file(&self) -> SharedFile {
        self.file.share()
    }

    /// Leases a segment to a disk's log, durably.
    ///
    /// # Errors
    /// There is none now, or the disk was detached; or flash failed, and nothing is leased any more.
    pub fn lease_log(&mut self, disk: DiskNumber) -> Result<Held, NoLease> {
        if self.has_failed {
            return Err(NoLease::Ever);
        }
        if self.tables.disk(disk).is_none() {
            return Err(NoLease::Now);
        }
        let mut segment = self.free_segments().last();
        if segment.is_none() && self.give_up_a_cache() {
            segment = self.free_segments().last();
        }
        let none = if self.has_failed { NoLease::Ever } else { NoLease::Now };
        self.lease_for_log(disk, segment.ok_or(none)?)
    }

    /// Leases a segment that a disk's log has to it anew, durably: what is in it counts no more. At no time is it free.
    ///
    /// # Errors
    /// It is not held so; or flash failed, and nothing is leased any more.
    pub fn renew_log(&mut self, held: Held) -> Result<Held, NoLease> {
        if self.has_failed {
            return Err(NoLease::Ever);
        }
        let (segment, lease) = held;
        if lease.role != Role::Log || !self.log_leases(lease.disk).contains(&held) {
            return Err(NoLease::Now);
        }
        self.lease_for_log(lease.disk, segment)
    }

    fn lease_for_log(&mut self, disk: DiskNumber, segment: SegmentId) -> Result<Held, NoLease> {
        let ordinal = self.next_ordinals[usize::from(disk.0)];
        let generation = self.generation(disk);
        let lease = Lease { disk, role: Role::Log, generation, ordinal };
        let leased = self.tables.lease(&self.file, &[segment], lease);
        self.note(leased).map_err(|_| NoLease::Ever)?;
        self.next_ordinals[usize::from(disk.0)] += 1;
        Ok((segment, lease))
    }

    /// The segments of a disk's log, with their leases.
    pub fn log_leases(&self, disk: DiskNumber) -> Vec<Held> {
        self.tables.leases.of(disk, Role::Log).collect()
    }

    /// The reservations of a disk that outlive a restart, as its frontend wrote them; empty when there are none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn reservations(&self, disk: DiskNumber) -> Result<Vec<u8>> {
        Ok(self.tables.reservations(disk)?.to_vec())
    }

    /// Stores them durably; false when flash fails, or the disk was detached.
    pub fn set_reservations(&mut self, disk: DiskNumber, state: Vec<u8>) -> bool {
        let is_there = self.tables.disk(disk).is_some();
        if self.has_failed || !is_there || state.len() > RESERVATIONS_MAX {
            return false;
        }
        let stored = self.tables.set_reservations(&self.file, disk, state);
        self.note(stored).is_ok()
    }

    /// Takes back what is held under exactly these leases, durably; `None` when flash fails. Segments that are not held so
    /// stay whose they are, and are returned.
    pub fn free(&mut self, leases: &[Held]) -> Option<Vec<SegmentId>> {
        if self.has_failed {
            return None;
        }
        let freed = self.tables.free(&self.file, leases);
        self.note(freed).ok()
    }

    /// Writes leases that changed into their other copy as well; see [`Tables::mirror`].
    pub(super) fn mirror(&mut self) {
        if !self.has_failed {
            let mirrored = self.tables.mirror(&self.file);
            let _ = self.note(mirrored);
        }
    }

    /// Takes back the segments of a disk's log that are `unneeded`, durably.
    ///
    /// # Errors
    /// The medium's.
    fn free_log(&mut self, disk: DiskNumber, unneeded: impl Fn(SegmentId) -> bool) -> Result<()> {
        let mut log = self.log_leases(disk);
        log.retain(|(segment, _)| unneeded(*segment));
        ensure!(self.free(&log).is_some(), "cannot write the tables of the pool");
        Ok(())
    }

    /// Remembers that the tables could not be written.
    fn note<T>(&mut self, result: std::io::Result<T>) -> std::io::Result<T> {
        if let Err(error) = &result
            && !std::mem::replace(&mut self.has_failed, true)
        {
            self.failure = Some(format!(
                "the flash {} cannot be written: {error}; nothing more is leased from it",
                self.file.path().display()
            ));
        }
        result
    }

    fn free_segments(&self) -> impl Iterator<Item = SegmentId> + '_ {
        let free = |(segment, holder)| (holder == Holder::Free).then_some(segment);
        self.tables.leases.iter().filter_map(free)
    }

    fn generation(&self, disk: DiskNumber) -> Generation {
        self.tables.disk(disk).map_or(Generation(0), |record| record.pending)
    }
}

/// Pages of a segment as they lie in the pool.
pub(crate) fn page_offset(geometry: PoolGeometry, segment: SegmentId, page: u32) -> u64 {
    geometry.segment_offset(segment) + u64::from(page) * PAGE
}
