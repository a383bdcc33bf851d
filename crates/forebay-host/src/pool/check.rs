//! What is damaged in a pool, for an operator: every checksum is verified, nothing is changed, while nobody uses it.

use std::path::Path;

use anyhow::Result;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::flash_pool::{DiskNumber, PairId, PoolGeometry, SUPERBLOCKS, pair};
use forebay_core::geometry::PAGE;
use forebay_core::sealed::{crc32c, has_seal};
use forebay_core::write_back::format::recover::{
    LogEnd, RecordPlace, RecoveredLog, RecoveryReport,
};
use serde::{Deserialize, Serialize};

use super::file::{PoolFile, PoolPage};
use super::recover::Reading;
use super::report::{found, open, staged, staging_lost};
use super::staging::StagedGroups;
use super::survey;
use super::tables::Tables;
use super::{page_offset, recover};

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

/// Verifies every checksum of the pool at `path` that has one, whatever is damaged.
///
/// # Errors
/// There is no pool, or it is in use or cannot be read at all.
pub fn check(path: &Path) -> Result<CheckReport> {
    let (file, superblock) = open(path)?;
    let (tables, damaged) = Tables::read_what_is_whole(&file, superblock)?;
    let mut report =
        CheckReport { table_pages: pages_of_tables(superblock.geometry), ..Default::default() };
    report.warnings = damaged_copies(&file, superblock.geometry)?;
    let is_damaged = |disk| damaged.iter().any(|it| it.disk == Some(disk));
    report.errors.extend(damaged.iter().map(|it| it.why.clone()));
    if damaged.iter().any(|it| it.disk.is_none()) {
        let text = "the logs and caches of its disks were not checked: it is not known which segments are theirs";
        report.warnings.push(text.to_owned());
        return Ok(report);
    }
    for (number, record) in tables.disks().filter(|(number, _)| !is_damaged(*number)) {
        check_disk(&file, &tables, (number, record), &mut report);
    }
    Ok(report)
}

fn check_disk(
    file: &PoolFile,
    tables: &Tables,
    (number, record): (DiskNumber, &DiskRecord),
    report: &mut CheckReport,
) {
    if let Err(why) = tables.reservations(number) {
        report.errors.push(format!("the reservations of disk '{}': {why}", record.name));
    }
    let staged = staged(file, tables, number);
    if let Some(fault) = staged.fault {
        report.errors.push(format!("disk '{}': {}", record.name, staging_lost(fault)));
    }
    let log = found(file, tables, number, &staged.groups);
    check_ring(file, tables, (number, record), log.as_ref().ok(), report);
    match log {
        Ok(log) => {
            report.warnings.extend(
                describe_end(&log.report)
                    .map(|why| format!("the log of disk '{}' ends at {why}", record.name)),
            );
            check_log(file, tables, record, &log, report);
            check_summaries(file, tables, number, (&log, &staged.groups), report);
        }
        Err(why) => report.errors.push(format!("the log of disk '{}': {why}", record.name)),
    }
}

fn pages_of_tables(geometry: PoolGeometry) -> u64 {
    2 * u64::from(geometry.pairs()) + SUPERBLOCKS.len() as u64
}

/// Copies of superblock and tables that are damaged where the other is not.
///
/// # Errors
/// The medium's.
pub(super) fn damaged_copies(file: &PoolFile, geometry: PoolGeometry) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut page = PoolPage::ZERO;
    for (copy, offset) in SUPERBLOCKS.into_iter().enumerate() {
        file.read_what_can_be_read(offset, std::slice::from_mut(&mut page))?;
        if page.is_unreadable() {
            found.push(format!("superblock {copy} cannot be read; the other one is used"));
        } else if let Err(why) = Superblock::decode(&page.0) {
            found.push(format!("superblock {copy}: {why}; the other one is used"));
        }
    }
    let mut pages = PoolPage::zeroes(2);
    let first = [0, 1].map(|copy| geometry.pair_offset(PairId::Disk(DiskNumber(0)), copy));
    for pair in 0..geometry.pairs() {
        for (page, start) in pages.iter_mut().zip(first) {
            file.read_what_can_be_read(start + u64::from(pair) * PAGE, std::slice::from_mut(page))?;
        }
        // A blank one as well: whoever made the pool wrote both.
        let mut damaged = (0..2).filter(|copy| !has_seal(&pages[*copy].0, pair::MAGIC));
        if let (Some(copy), None) = (damaged.next(), damaged.next()) {
            found.push(format!("copy {copy} of table page {pair} is damaged; the other is used"));
        }
    }
    Ok(found)
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
    let reading = Reading { accepted: recover::accepted(record), walk_all: true };
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
        let action = forebay_core::write_back::format::group::Entry {
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
