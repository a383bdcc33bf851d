//! What is in a pool, for an operator: read without changing anything, while nobody uses it.

use std::path::Path;

use anyhow::{Result, bail};
use forebay_core::geometry::PAGE;
use forebay_core::log::recover::{LogEnd, RecordPlace, RecoveredLog, RecoveryReport};
use forebay_core::pool::disk::{DiskFlags, DiskRecord, SessionEnd};
use forebay_core::pool::lease::{Holder, Role};
use forebay_core::pool::superblock::Superblock;
use forebay_core::pool::{DiskNumber, SUPERBLOCKS, pair};
use forebay_core::sealed::{crc32c, has_seal};
use serde::{Deserialize, Serialize};

use super::contents::{self, Contents};
use super::file::{PoolFile, PoolPage};
use super::recover::Reading;
use super::staging::{Fault, Left, StagedGroups};
use super::survey::{self, RingReport};
use super::tables::Tables;
use super::{Dirty, page_offset, recover};

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolReport {
    /// Where it is.
    pub path: String,
    /// Its name for good.
    pub uuid: String,
    /// When it was made, seconds since 1970.
    pub created: u64,
    /// Bytes of a segment.
    pub segment_size: u64,
    /// Segments, by who has them.
    pub segments: SegmentCounts,
    /// Its disks.
    pub disks: Vec<DiskReport>,
}

/// Segments, by who has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCounts {
    /// All.
    pub all: u32,
    /// The pool's own.
    pub metadata: u32,
    /// Nobody's.
    pub free: u32,
    /// Of logs.
    pub log: u32,
    /// Of caches, and of what keeps them over a restart.
    pub cache: u32,
}

/// A disk in a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskReport {
    /// Its name.
    pub name: String,
    /// Its name for good.
    pub uuid: String,
    /// URI of primary storage.
    pub backend: String,
    /// Bytes of primary storage.
    pub size: u64,
    /// The mode that was asked for.
    pub mode: String,
    /// `closed`, or `running or crashed`.
    pub session: String,
    /// When it was last opened, seconds since 1970.
    pub opened: u64,
    /// When it was last closed, seconds since 1970; 0: not since.
    pub closed: u64,
    /// The generation that it was last served under.
    pub generation: u64,
    /// No generation above this one was ever written under.
    pub generation_pending: u64,
    /// Flushes were acknowledged before they were durable.
    pub flushes_deferred: bool,
    /// What speaks for primary storage being what the log belongs to, where that is not strong.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Segments of its log.
    pub log_segments: u32,
    /// Writes that may not be on primary storage.
    pub dirty_records: u64,
    /// Their bytes.
    pub dirty_bytes: u64,
    /// How many of the writes are only in the staging file.
    pub staged_records: u64,
    /// What is wrong with the staging file, where writes may have been in it alone.
    #[serde(default)]
    pub staging_fault: Option<String>,
    /// Why its log cannot be used.
    pub error: Option<String>,
    /// What a start would find of its cache on flash; none: nothing is recorded of one.
    #[serde(default)]
    pub ring: Option<RingReport>,
}

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// Pages of tables that were looked at.
    pub table_pages: u64,
    /// Pages of data in logs whose checksum was compared.
    pub data_pages: u64,
    /// Pages of the indices of caches that were looked at.
    #[serde(default)]
    pub ring_pages: u64,
    /// What does not matter yet: one of two copies.
    pub warnings: Vec<String>,
    /// What is lost or must not be used.
    pub errors: Vec<String>,
}

/// Tells what is in the pool at `path`.
///
/// # Errors
/// There is none, or it is in use or cannot be read.
pub fn show(path: &Path) -> Result<PoolReport> {
    let (file, tables) = open(path)?;
    let mut segments = SegmentCounts { all: tables.geometry().segments(), ..Default::default() };
    for (_, holder) in tables.leases.iter() {
        match holder {
            Holder::Free => segments.free += 1,
            Holder::Metadata => segments.metadata += 1,
            Holder::Leased(lease) if lease.role == Role::Log => segments.log += 1,
            Holder::Leased(_) => segments.cache += 1,
        }
    }
    let disks = tables.disks().map(|(number, record)| disk(&file, &tables, number, record));
    Ok(PoolReport {
        path: path.display().to_string(),
        uuid: tables.superblock.pool.to_string(),
        created: tables.superblock.created,
        segment_size: tables.geometry().segment_size(),
        segments,
        disks: disks.collect(),
    })
}

/// Verifies every checksum of the pool at `path` that has one.
///
/// # Errors
/// There is no pool, or it is in use or cannot be read at all.
pub fn check(path: &Path) -> Result<CheckReport> {
    let (file, tables) = open(path)?;
    let mut report = CheckReport::default();
    check_tables(&file, &tables, &mut report)?;
    for (number, record) in tables.disks() {
        if let Err(why) = tables.reservations(number) {
            report.errors.push(format!("the reservations of disk '{}': {why}", record.name));
        }
        let staged = staged(&tables, number);
        if let Some(fault) = staged.fault {
            report.errors.push(format!("disk '{}': {}", record.name, staging_lost(fault)));
        }
        let log = found(&file, &tables, number, &staged.groups);
        check_ring(&file, &tables, (number, record), log.as_ref().ok(), &mut report);
        match log {
            Ok(log) => {
                report.warnings.extend(
                    describe_end(&log.report)
                        .map(|why| format!("the log of disk '{}' ends at {why}", record.name)),
                );
                check_log(&file, &tables, record, &log, &mut report);
                check_summaries(&file, &tables, number, (&log, &staged.groups), &mut report);
            }
            Err(why) => report.errors.push(format!("the log of disk '{}': {why}", record.name)),
        }
    }
    Ok(report)
}

fn open(path: &Path) -> Result<(PoolFile, Tables)> {
    if !path.exists() {
        bail!("there is nothing at {}", path.display());
    }
    let file = PoolFile::open(path, true)?;
    match contents::look(&file)? {
        Contents::Blank => bail!("{} is no pool: it is blank", path.display()),
        Contents::Pool(superblock) => {
            let tables = Tables::read(&file, superblock)?;
            Ok((file, tables))
        }
    }
}

fn found(
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
pub(super) fn staged(tables: &Tables, number: DiskNumber) -> Left {
    let record = tables.disk(number).expect("there is such a disk");
    match tables.may_have_staged(number) {
        true => Left::peek(record, tables.geometry().segment_pages()),
        false => Left::default(),
    }
}

/// What the log of a disk holds that primary storage may not have.
pub(super) fn dirty(file: &PoolFile, tables: &Tables, number: DiskNumber) -> Dirty {
    match found(file, tables, number, &staged(tables, number).groups) {
        Ok(log) => Dirty {
            records: log.records.len() as u64,
            bytes: log.checksums.len() as u64 * PAGE,
            error: None,
        },
        Err(why) => Dirty { error: Some(why), ..Dirty::default() },
    }
}

fn disk(file: &PoolFile, tables: &Tables, number: DiskNumber, record: &DiskRecord) -> DiskReport {
    let staged = staged(tables, number);
    let found = found(file, tables, number, &staged.groups);
    let ring = survey::ring(file, tables, number, found.as_ref().ok());
    let (log, error) = match found {
        Ok(log) => (log, None),
        Err(why) => (RecoveredLog::default(), Some(why)),
    };
    let has = |flags| record.flags.has(flags);
    DiskReport {
        name: record.name.clone(),
        uuid: record.uuid.to_string(),
        backend: record.uri.clone(),
        size: record.size,
        mode: record.mode.clone(),
        session: match record.session {
            SessionEnd::Clean => "closed".to_owned(),
            SessionEnd::Running => "running or crashed".to_owned(),
        },
        opened: record.opened,
        closed: record.closed,
        generation: record.committed.0,
        generation_pending: record.pending.0,
        flushes_deferred: has(DiskFlags::DEFERRED),
        evidence: if has(DiskFlags::UNRESOLVED) {
            Some("mismatch: needs 'forebay disk resolve'".to_owned())
        } else {
            has(DiskFlags::WEAK).then(|| "weak at the last start".to_owned())
        },
        log_segments: tables.log_segments(number) as u32,
        dirty_records: log.records.len() as u64,
        dirty_bytes: log.checksums.len() as u64 * PAGE,
        staged_records: log.report.records_staged,
        staging_fault: staged.fault.map(staging_lost),
        error,
        ring,
    }
}

fn check_tables(file: &PoolFile, tables: &Tables, report: &mut CheckReport) -> Result<()> {
    let mut page = PoolPage::ZERO;
    for (copy, offset) in SUPERBLOCKS.into_iter().enumerate() {
        file.read(offset, std::slice::from_mut(&mut page))?;
        report.table_pages += 1;
        if let Err(why) = Superblock::decode(&page.0) {
            report.warnings.push(format!("superblock {copy}: {why}; the other one is used"));
        }
    }
    let geometry = tables.geometry();
    let first = forebay_core::pool::PairId::Disk(DiskNumber(0));
    for copy in 0..2 {
        let start = geometry.pair_offset(first, copy);
        for pair in 0..geometry.pairs() {
            file.read(start + u64::from(pair) * PAGE, std::slice::from_mut(&mut page))?;
            report.table_pages += 1;
            let is_blank = page.0.iter().all(|byte| *byte == 0);
            if !is_blank && !has_seal(&page.0, pair::MAGIC) {
                let text =
                    format!("copy {copy} of table page {pair} is damaged; the other is used");
                report.warnings.push(text);
            }
        }
    }
    Ok(())
}

/// Reads the index of a disk's cache as a start would.
fn check_ring(
    file: &PoolFile,
    tables: &Tables,
    (number, record): (DiskNumber, &DiskRecord),
    log: Option<&RecoveredLog>,
    report: &mut CheckReport,
) {
    let Some(ring) = survey::ring(file, tables, number, log) else { return };
    report.ring_pages += ring.pages;
    if let Some(why) = &ring.cold {
        let text = format!("the cache of disk '{}' starts empty: {why}", record.name);
        let place = if ring.is_damaged { &mut report.errors } else { &mut report.warnings };
        place.push(text);
    }
}

/// What is odd about where a log ends. A crash leaves that behind, and rot in what was not known to be durable.
fn describe_end(report: &RecoveryReport) -> Option<String> {
    match report.end {
        LogEnd::Empty | LogEnd::Tail { .. } => None,
        LogEnd::TornData { segment, page } => Some(format!(
            "segment {} page {page}: its data are torn, and were not known to be durable",
            segment.0
        )),
        LogEnd::Gap { segment } => Some(format!(
            "a gap before segment {}: what is missing was not known to be durable",
            segment.0
        )),
    }
}

/// Compares what the summaries of segments say with their groups.
fn check_summaries(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    (log, staged): (&RecoveredLog, &StagedGroups),
    report: &mut CheckReport,
) {
    let record = tables.disk(number).expect("there is such a disk");
    let name = &record.name;
    let damaged = log.report.summaries_damaged;
    if damaged > 0 {
        report.warnings.push(format!(
            "the log of disk '{name}': {damaged} damaged summaries; their segments are read whole"
        ));
    }
    let unreadable = log.report.summaries_unreadable;
    if unreadable > 0 {
        report
            .errors
            .push(format!("the log of disk '{name}': {unreadable} summaries cannot be read"));
    }
    let accept_missing = record.flags.has(DiskFlags::ACCEPT_MISSING);
    let reading = Reading { accept_missing, walk_all: true };
    match recover::find_by(file, tables, number, staged, reading) {
        Ok(walked) if walked.records == log.records && walked.checksums == log.checksums => {}
        Ok(_) => report.errors.push(format!(
            "the log of disk '{name}': the summaries of its segments say something else than their groups"
        )),
        Err(why) => report.errors.push(format!(
            "the log of disk '{name}' can only be read by the summaries of its segments: {why}"
        )),
    }
}

/// Compares the checksums of the data that are not on primary storage.
fn check_log(
    file: &PoolFile,
    tables: &Tables,
    record: &DiskRecord,
    log: &RecoveredLog,
    report: &mut CheckReport,
) {
    for entry in &log.records {
        let RecordPlace::Log { segment, page } = entry.place else { continue };
        let action = forebay_core::log::group::Entry {
            range: entry.range,
            epoch: entry.epoch,
            kind: entry.kind,
            more: entry.more,
        };
        let count = action.data_pages(entry.phase) as usize;
        let mut pages = PoolPage::zeroes(count);
        let offset = page_offset(tables.geometry(), segment, page);
        let first = entry.first_checksum as usize;
        let expected = &log.checksums[first..first + count];
        let range = entry.range;
        let place = format!(
            "disk '{}': bytes {}..{} in segment {} page {page}",
            record.name, range.start, range.end, segment.0
        );
        if count == 0 {
            continue;
        }
        if let Err(error) = file.read(offset, &mut pages) {
            report.errors.push(format!("{place} cannot be read: {error}"));
            continue;
        }
        report.data_pages += count as u64;
        let is_whole = |(page, expected): (&PoolPage, &u32)| crc32c(&page.0) == *expected;
        if !pages.iter().zip(expected).all(is_whole) {
            report.errors.push(format!("{place} have a wrong checksum"));
        }
    }
}
