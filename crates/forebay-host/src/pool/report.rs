//! What is in a pool, for an operator: read without changing anything, while nobody uses it, or told by the daemon that does.
//!
//! Of a disk that is served its shard knows what is dirty and what has failed; of every other one that is read from flash.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, bail, ensure};
use forebay_core::cache_index::survey::CachedGranule;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, SessionEnd};
use forebay_core::flash_pool::lease::{Holder, Role};
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::geometry::PAGE;
use forebay_core::ids::Uuid;
use forebay_core::write_back::format::recover::RecoveredLog;
use serde::{Deserialize, Serialize};

use super::check::damaged_copies;
use super::contents::{self, Contents};
use super::file::PoolFile;
use super::staging::{Fault, Left, StagedGroups};
use super::survey::{self, RingReport};
use super::tables::Tables;
use super::{Dirty, Pool, Snapshot, bytes, recover};
use crate::{fence, folders};

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PoolReport {
    /// Where the pool is.
    pub path: String,
    /// UUID of the pool.
    pub uuid: String,
    /// When the pool was made.
    pub created: u64,
    /// Size of a segment.
    pub segment_size: u64,
    /// The daemon that uses the pool. Null: none does.
    #[serde(default)]
    pub used_by: Option<String>,
    /// The configured pool of several devices that this is one of. Null: none.
    #[serde(default)]
    pub device_of: Option<String>,
    /// What is wrong with the pool. Empty: nothing.
    #[serde(default)]
    pub faults: Vec<String>,
    /// Segments, by who has them.
    pub segments: SegmentCounts,
    /// Disks of the pool.
    pub disks: Vec<DiskReport>,
}

/// Segments, by who has them.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct SegmentCounts {
    /// All segments.
    pub all: u32,
    /// The pool's own.
    pub metadata: u32,
    /// Free segments.
    pub free: u32,
    /// Segments of write logs.
    pub log: u32,
    /// Segments of caches, and of their indexes.
    pub cache: u32,
}

/// How full a pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// Size of a segment.
    pub segment_size: u64,
    /// Segments, by who has them.
    pub segments: SegmentCounts,
    /// Its tables cannot be written: nothing more is leased from it.
    pub has_failed: bool,
}

/// How a disk was left, as its pool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// It ended in order.
    Closed,
    /// It is served.
    Running,
    /// Nobody uses the pool, and it did not end in order.
    RunningOrCrashed,
}

/// A disk in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskReport {
    /// Name of the disk.
    pub name: String,
    /// UUID of the disk.
    pub uuid: String,
    /// URI of primary storage.
    pub backend: String,
    /// Size of primary storage.
    pub size: u64,
    /// The mode that was asked for.
    pub mode: String,
    /// How it was left.
    pub session: SessionState,
    /// When the disk was last opened.
    pub opened: u64,
    /// When the disk was last closed. 0: not since it was opened.
    pub closed: u64,
    /// The generation that the disk was last served under.
    pub generation: u64,
    /// The highest generation that anything was written under, at most.
    pub generation_pending: u64,
    /// Flushes were acknowledged before they were durable.
    pub flushes_deferred: bool,
    /// How sure Forebay is that primary storage is what the log belongs to. Null: nothing speaks against it.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Segments of its write log.
    pub log_segments: u32,
    /// Writes that may not be on primary storage.
    pub dirty_records: u64,
    /// Bytes of those writes.
    pub dirty_bytes: u64,
    /// Writes among them that are only in the staging file.
    pub staged_records: u64,
    /// What is wrong with the staging file, where it may have held the only copy of writes.
    #[serde(default)]
    pub staging_fault: Option<String>,
    /// Why its write log cannot be used. Null: it can.
    pub error: Option<String>,
    /// What is wrong with the flash of the disk. Empty: nothing. Of a disk that is served: since its start.
    #[serde(default)]
    pub faults: Vec<String>,
    /// What a start would find of its cache on flash. Null: nothing is recorded.
    #[serde(default)]
    pub ring: Option<RingReport>,
}

/// A disk that has a record in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its name.
    pub name: String,
    /// URI of primary storage.
    pub uri: String,
    /// UUID of the disk.
    pub disk: Uuid,
    /// Identity of primary storage; [`Uuid::NIL`]: not known.
    pub identity: Uuid,
    /// When it was last opened, seconds since 1970; 0: it was not.
    pub opened: u64,
    /// Its log may hold writes that primary storage does not have.
    pub has_log: bool,
    /// Reservations of initiators are stored for it.
    pub has_reservations: bool,
}

impl Placed {
    /// True when a session began on `other` with the same primary storage: once this one is of the past, the disk went on
    /// there. Which of them began later is not asked, because the clock of the host may have been set back between them.
    pub fn was_served_at(&self, other: &Placed) -> bool {
        other.identity == self.identity && other.opened > 0
    }

    /// True when something of the disk may be nowhere else.
    pub fn is_needed(&self) -> bool {
        self.has_log || self.has_reservations
    }

    /// True when the disk is known, by the state folder, to have left this pool: it was detached, or went on elsewhere.
    pub fn is_of_the_past(&self, state: Option<&Path>) -> bool {
        fence::is_of_the_past(self.identity, self.disk, state)
    }
}

/// The disks of an open pool, and the bytes that it has; reads nothing.
pub fn placed(pool: &Pool) -> (Vec<Placed>, u64) {
    (placed_in(&pool.tables), bytes(&pool.tables))
}

/// The disks of the pool at `path`, where there is one, and the bytes that a pool can have there: all of a device, or of
/// a file that was given its size.
///
/// # Errors
/// There is nothing, it is in use, carries somebody's data, or cannot be read.
pub fn placed_at(path: &Path) -> Result<(Vec<Placed>, u64)> {
    const NEEDED: &str =
        "needed is a block device, or a file that has its size ('truncate -s 200G PATH' makes one)";
    ensure!(path.exists(), "there is nothing there; {NEEDED}");
    let file = PoolFile::open(path, true)?;
    let room = file.size()?;
    ensure!(room > 0, "it has no bytes; {NEEDED}");
    match contents::look(&file)? {
        Contents::Pool(superblock) => {
            let tables = Tables::read(&file, superblock)?;
            Ok((placed_in(&tables), bytes(&tables)))
        }
        Contents::Blank => Ok((Vec::new(), room)),
        Contents::Foreign(what) => bail!("it carries {what}"),
    }
}

fn placed_in(tables: &Tables) -> Vec<Placed> {
    let placed = |(number, record): (DiskNumber, &DiskRecord)| Placed {
        name: record.name.clone(),
        uri: record.uri.clone(),
        disk: record.uuid,
        identity: record.identity,
        opened: record.opened,
        has_log: tables.log_segments(number) > 0,
        has_reservations: tables.has_reservations(number),
    };
    tables.disks().map(placed).collect()
}

/// Tells what is in the pool at `path`.
///
/// # Errors
/// There is none, or it is in use or cannot be read.
pub fn show(path: &Path) -> Result<PoolReport> {
    let (file, superblock) = open(path)?;
    let tables = Tables::read(&file, superblock)?;
    let faults = damaged_copies(&file, superblock.geometry)?;
    let disks = tables.disks().map(|(number, record)| disk(&file, &tables, number, record));
    Ok(PoolReport { faults, disks: disks.collect(), ..report(path, &tables) })
}

/// Tells what is in a pool of this process; `served` are its disks that are served. `tell` adds to what the pool has of one
/// what its shard knows.
pub fn show_used<T>(
    pool: &Snapshot,
    served: &[(DiskNumber, T)],
    tell: impl Fn(DiskReport, &T) -> DiskReport,
) -> PoolReport {
    let (file, tables) = (&pool.file, &pool.tables);
    let disks = tables.disks().map(|(number, record)| {
        match served.iter().find(|(known, _)| *known == number) {
            Some((_, now)) => {
                let recorded = recorded(tables, number, record);
                tell(DiskReport { session: SessionState::Running, ..recorded }, now)
            }
            None => disk(file, tables, number, record),
        }
    });
    let failed = "its tables cannot be written: nothing more is leased from it".to_owned();
    let faults = pool.has_failed.then_some(failed).into_iter().collect();
    PoolReport { faults, disks: disks.collect(), ..report(pool.path(), tables) }
}

/// How full an open pool is; reads nothing.
pub fn usage(pool: &Pool) -> PoolUsage {
    let (segments, segment_size) = (segments(&pool.tables), pool.geometry().segment_size());
    PoolUsage { segment_size, segments, has_failed: pool.has_failed }
}

fn segments(tables: &Tables) -> SegmentCounts {
    let mut segments = SegmentCounts { all: tables.geometry().segments(), ..Default::default() };
    for (_, holder) in tables.leases.iter() {
        match holder {
            Holder::Free => segments.free += 1,
            Holder::Metadata => segments.metadata += 1,
            Holder::Leased(lease) if lease.role == Role::Log => segments.log += 1,
            Holder::Leased(_) => segments.cache += 1,
        }
    }
    segments
}

/// Tells what an open pool is, and not what is in it; reads nothing.
pub fn outline(pool: &Pool) -> PoolReport {
    report(pool.file.path(), &pool.tables)
}

/// A pool, without what is wrong with it and its disks.
fn report(path: &Path, tables: &Tables) -> PoolReport {
    PoolReport {
        path: path.display().to_string(),
        uuid: tables.superblock.pool.to_string(),
        created: tables.superblock.created,
        segment_size: tables.geometry().segment_size(),
        used_by: None,
        device_of: None,
        faults: Vec::new(),
        segments: segments(tables),
        disks: Vec::new(),
    }
}

/// Opens the pool at `path` to read it.
///
/// # Errors
/// There is none, or it is in use or cannot be read.
pub(super) fn open(path: &Path) -> Result<(PoolFile, Superblock)> {
    if !path.exists() {
        bail!("there is nothing at {}", path.display());
    }
    let file = PoolFile::open(path, true)?;
    let superblock = contents::look(&file)?.pool(&file)?;
    Ok((file, superblock))
}

pub(super) fn found(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    staged: &StagedGroups,
) -> Result<RecoveredLog, String> {
    recover::find(file, tables, number, staged).map_err(|error| error.to_string())
}

/// What the staging file of a session that was killed is not any more, in words.
pub fn staging_lost(fault: Fault) -> String {
    format!(
        "a former run crashed and its staging file {fault}: writes that were acknowledged after the last flush may be lost"
    )
}

/// What stands in the staging file of a disk, if that counts.
pub(super) fn staged(file: &PoolFile, tables: &Tables, number: DiskNumber) -> Left {
    let record = tables.disk(number).expect("there is such a disk");
    if !tables.may_have_staged(number) {
        return Left::default();
    }
    // Root looks at what the user of a service has left. That user has the pool or, beside a device, the state folder.
    let of_state = folders::state_folder().and_then(|folder| fs::metadata(folder).ok());
    let owners = file.owner().ok().into_iter().chain(of_state.map(|found| found.uid()));
    Left::peek(record, tables.geometry().segment_pages(), owners)
}

/// What the log of a disk holds that primary storage may not have.
pub(super) fn dirty(file: &PoolFile, tables: &Tables, number: DiskNumber) -> Dirty {
    match found(file, tables, number, &staged(file, tables, number).groups) {
        Ok(log) => Dirty {
            records: log.records.len() as u64,
            bytes: log.checksums.len() as u64 * PAGE,
            error: None,
        },
        Err(why) => Dirty { error: Some(why), ..Dirty::default() },
    }
}

/// Some of what primary storage of a disk must hold, as the index of its cache says.
pub(super) fn sample_cached(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
) -> Vec<CachedGranule> {
    let log = found(file, tables, number, &staged(file, tables, number).groups);
    log.map_or_else(|_| Vec::new(), |log| survey::sample(file, tables, number, &log))
}

fn disk(file: &PoolFile, tables: &Tables, number: DiskNumber, record: &DiskRecord) -> DiskReport {
    let staged = staged(file, tables, number);
    let found = found(file, tables, number, &staged.groups);
    let ring = survey::ring(file, tables, number, found.as_ref().ok());
    let mut faults = Vec::new();
    let (log, error) = match found {
        Ok(log) => (log, None),
        Err(why) => (RecoveredLog::default(), Some(why)),
    };
    if error.is_some() {
        faults.push("its write log cannot be used".to_owned());
    }
    match (log.report.summaries_damaged, log.report.summaries_unreadable) {
        (0, 0) => {}
        (damaged, unreadable) => faults.push(format!(
            "{} summaries of its write log are damaged: their segments are read whole",
            damaged + unreadable
        )),
    }
    if staged.fault.is_some() {
        faults.push("its staging file is lost".to_owned());
    }
    if tables.reservations(number).is_err() {
        faults.push("its persistent reservations cannot be read".to_owned());
    }
    if ring.as_ref().is_some_and(|ring| ring.is_damaged) {
        faults.push("the index of its cache is damaged".to_owned());
    }
    DiskReport {
        dirty_records: log.records.len() as u64,
        dirty_bytes: log.checksums.len() as u64 * PAGE,
        staged_records: log.report.records_staged,
        staging_fault: staged.fault.map(staging_lost),
        error,
        faults,
        ring,
        ..recorded(tables, number, record)
    }
}

/// What the tables say of a disk.
fn recorded(tables: &Tables, number: DiskNumber, record: &DiskRecord) -> DiskReport {
    let has = |flags| record.flags.has(flags);
    DiskReport {
        name: record.name.clone(),
        uuid: record.uuid.to_string(),
        backend: record.uri.clone(),
        size: record.size,
        mode: record.mode.clone(),
        session: match record.session {
            SessionEnd::Clean => SessionState::Closed,
            SessionEnd::Running => SessionState::RunningOrCrashed,
        },
        opened: record.opened,
        closed: record.closed,
        generation: record.committed.0,
        generation_pending: record.pending.0,
        flushes_deferred: has(DiskFlags::DEFERRED),
        evidence: if has(DiskFlags::UNRESOLVED) {
            Some("not enough: needs 'forebay disk resolve'".to_owned())
        } else {
            has(DiskFlags::WEAK).then(|| "weak when its log went on".to_owned())
        },
        log_segments: tables.log_segments(number) as u32,
        dirty_records: 0,
        dirty_bytes: 0,
        staged_records: 0,
        staging_fault: None,
        error: None,
        faults: Vec::new(),
        ring: None,
    }
}
