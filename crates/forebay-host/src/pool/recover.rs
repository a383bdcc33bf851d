//! Opening the log of a disk: what a former run left is found, put in order, and goes on in a fresh segment.
//!
//! ```text
//!   generation + 2 pending ─► recover ─► give back what nothing depends on ─► fresh segments: staged records, and the
//!      end of the log if it is short (`format/reopen.rs` of the core) ─► (engine restores) ─► committed ─► the staging file
//!      may be used again
//! ```
//! Each arrow is durable before the next, so that a crash anywhere finds the same records again.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord};
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::flash_pool::{DiskNumber, PairId, PoolGeometry};
use forebay_core::ids::{Generation, SegmentId, Sequence, Uuid};
use forebay_core::sealed::PAGE_LEN;
use forebay_core::write_back::format::recover::{
    LeasedSegment, LogReader, ReadError, RecordPlace, RecoverError, RecoverInput, RecoveredLog,
    recover,
};
use forebay_core::write_back::format::reopen::{FreshGroup, FreshSegment, Session, Tail, reopen};

use super::file::{PoolFile, PoolPage};
use super::staging::{self, Fault, Left, StagedGroups, Staging};
use super::tables::Tables;
use super::{Pool, host, page_offset};

/// A log that is ready to go on.
#[derive(Debug)]
pub struct OpenedLog {
    /// What was found.
    pub found: RecoveredLog,
    /// Where it goes on.
    pub tail: Tail,
    /// Bytes that it could have the last time that it was more than drained.
    pub bytes_max: u64,
    /// The disk.
    pub disk: Uuid,
    /// The pool, and how it is cut.
    pub pool: Superblock,
    /// The run.
    pub generation: Generation,
    /// In all segments of the run.
    pub nonce: u64,
    /// The version of the progress page.
    pub progress_version: u64,
    /// The staging file, where there can be one.
    pub staging: Option<Staging>,
    /// Records that were taken from the staging file.
    pub adopted: u64,
    /// Set when the staging file of a run that crashed is not what it had.
    pub staging_lost: Option<Fault>,
    /// Where the block grid lies that the records were laid out on.
    pub grid_offset: u64,
}

/// The steps in a row.
#[cfg(test)]
impl Pool {
    pub(crate) fn open_log(
        &mut self,
        number: DiskNumber,
        generation: Generation,
        grid_offset: Option<u64>,
    ) -> Result<OpenedLog> {
        self.open_log_in(staging::folder().as_deref(), number, generation, grid_offset)
    }

    pub(super) fn open_log_in(
        &mut self,
        folder: Option<&Path>,
        number: DiskNumber,
        generation: Generation,
        grid_offset: Option<u64>,
    ) -> Result<OpenedLog> {
        self.begin_log(number)?;
        let found = self.find_log_in(folder, number)?;
        self.go_on_with_log(number, generation, grid_offset, found)
    }
}

/// What was found of a log, and nothing changed yet.
#[derive(Debug)]
pub struct FoundLog {
    log: RecoveredLog,
    staging: Option<Staging>,
    staged: StagedGroups,
    /// The staging file of a run that crashed is not what it had.
    staging_lost: Option<Fault>,
}

impl FoundLog {
    /// See [`RecoveredLog::lacks_what_was_sent`].
    pub fn lacks_what_was_sent(&self) -> bool {
        self.log.lacks_what_was_sent()
    }

    /// See [`RecoveredLog::lacks_what_was_acknowledged`].
    pub fn lacks_what_was_acknowledged(&self) -> bool {
        self.log.lacks_what_was_acknowledged()
    }

    /// Where its pages lie on those of primary storage; `None`: it is empty.
    pub fn phase(&self) -> Option<u64> {
        self.log.records.first().map(|record| record.phase.into())
    }
}

impl OpenedLog {
    /// The segments that it needs.
    pub fn segments(&self) -> Vec<SegmentId> {
        let found = self.found.segments.iter().map(|segment| segment.segment);
        found.chain([self.tail.segment]).collect()
    }

    /// True when it holds what primary storage may not have.
    pub fn is_dirty(&self) -> bool {
        !self.found.records.is_empty()
    }
}

impl Pool {
    /// True when the disk has writes in its log that may not be on primary storage.
    pub fn has_log(&self, number: DiskNumber) -> bool {
        self.tables.log_segments(number) > 0
    }

    /// The disk's session begins: a log that is empty is not read for what it may have held. The session before may have
    /// been one of this pool, whose shard wrote its progress.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin_log(&mut self, number: DiskNumber) -> Result<()> {
        self.tables.reload_progress(&self.file, number)?;
        match self.has_log(number) {
            true => Ok(()),
            false => self.settle(number),
        }
    }

    /// What the log of a disk holds, once it was begun.
    ///
    /// # Errors
    /// It cannot be read, or must not be used.
    pub fn find_log(&self, number: DiskNumber) -> Result<FoundLog> {
        self.find_log_in(staging::folder().as_deref(), number)
    }

    /// The same with the staging file in `folder`, where there is one.
    pub(super) fn find_log_in(
        &self,
        folder: Option<&Path>,
        number: DiskNumber,
    ) -> Result<FoundLog> {
        let record = self.record(number);
        let staging = folder.map(|folder| Staging::open(folder, record.uuid)).transpose()?;
        let left = match (&staging, self.tables.may_have_staged(number)) {
            (_, false) => Left::default(),
            // In another mount namespace it may still be there.
            (None, true) => Left::missing(),
            (Some(staging), true) => {
                let pages = self.geometry().segment_pages();
                staging.left(&record, pages).context("cannot read the staging file")?
            }
        };
        let staging_lost = left.fault;
        let staged = left.groups;
        let log = find(&self.file, &self.tables, number, &staged)
            .map_err(|error| explain(&error, &record.name, self.file.path()))?;
        Ok(FoundLog { log, staging, staged, staging_lost })
    }

    /// Goes on with a log under a generation that has begun.
    ///
    /// # Errors
    /// The medium's, or there is no room to go on.
    pub fn go_on_with_log(
        &mut self,
        number: DiskNumber,
        generation: Generation,
        grid_offset: Option<u64>,
        found: FoundLog,
    ) -> Result<OpenedLog> {
        let phase = found.phase();
        let FoundLog { log: mut found, staging, staged, staging_lost } = found;
        // Not before the log was found to go with it.
        self.tables.repeat_progress(&self.file, number)?;
        let record = self.record(number);
        let nonce = host::new_nonce().context("no random numbers")?;
        let next = &mut self.next_ordinals[usize::from(number.0)];
        *next = (*next).max(found.next_ordinal);
        let adopted = found.report.records_staged;
        let grid_offset = match phase {
            // The grid may be another one, its pages must lie as they did.
            Some(phase) => match grid_offset.unwrap_or(record.grid_offset.into()) {
                offset if offset % 4096 == phase => offset,
                _ => phase,
            },
            None => grid_offset.unwrap_or(0),
        };
        let phase = (grid_offset % 4096) as u16;
        let session = Session { disk: record.uuid, generation, nonce, phase };
        let tail = self.reopen(number, &session, &mut found, &staged)?;
        self.reopened[usize::from(number.0)] = true;
        Ok(OpenedLog {
            found,
            tail,
            bytes_max: record.log_max,
            disk: record.uuid,
            pool: self.tables.superblock,
            generation,
            nonce,
            progress_version: self.tables.version(PairId::Progress(number)),
            staging,
            adopted,
            staging_lost,
            grid_offset,
        })
    }

    /// Writes what the log goes on in.
    fn reopen(
        &mut self,
        number: DiskNumber,
        session: &Session,
        found: &mut RecoveredLog,
        staged: &StagedGroups,
    ) -> Result<Tail> {
        // A restart that did not come to its end left them.
        let unused = std::mem::take(&mut found.unused);
        self.free_log(number, |segment| unused.contains(&segment))?;
        let plan = reopen(found, self.geometry().segment_pages());
        let mut places = Vec::new();
        for fresh in &plan.segments {
            let place = self.lease_log(number).with_context(|| {
                format!("the log cannot go on on the flash {}", self.file.path().display())
            })?;
            let place = (place.0, place.1.ordinal);
            self.write_fresh(place, session, found, fresh, staged)?;
            places.push(place);
        }
        Ok(plan.apply(found, &places))
    }

    /// Writes a fresh segment: the header counts, and comes when everything else is durable.
    fn write_fresh(
        &self,
        place: (SegmentId, u64),
        session: &Session,
        found: &RecoveredLog,
        fresh: &FreshSegment,
        staged: &StagedGroups,
    ) -> Result<()> {
        let failed = self.file.failed_flushes();
        for group in &fresh.groups {
            let mut pages = PoolPage::zeroes(group.pages() as usize);
            group.encode(found, session, &mut pages[0].0);
            self.read_data(found, group, staged, &mut pages[1..])?;
            let offset = page_offset(self.geometry(), place.0, group.page);
            self.file.write(offset, &pages).context("cannot write the log")?;
        }
        if !fresh.groups.is_empty() {
            self.file.sync_since(failed).context("cannot flush the log")?;
        }
        let mut page = PoolPage::ZERO;
        fresh.header(session, place, found.next_epoch).encode(&mut page.0);
        let offset = self.geometry().segment_offset(place.0);
        self.file.write_durably(offset, std::slice::from_ref(&page)).context("cannot write the log")
    }

    /// The data of a group's records, from where they were found.
    fn read_data(
        &self,
        found: &RecoveredLog,
        group: &FreshGroup,
        staged: &StagedGroups,
        mut out: &mut [PoolPage],
    ) -> Result<()> {
        for record in &found.records[group.records.clone()] {
            let (pages, rest) = out.split_at_mut(record.data_pages() as usize);
            match record.place {
                RecordPlace::Log { segment, page } => {
                    let offset = page_offset(self.geometry(), segment, page);
                    self.file.read(offset, pages).context("cannot read the log")?;
                }
                RecordPlace::Staged { group, page } => {
                    let data = &staged.data(group)[page as usize * PAGE_LEN..];
                    for (page, data) in pages.iter_mut().zip(data.chunks_exact(PAGE_LEN)) {
                        page.0.copy_from_slice(data);
                    }
                }
            }
            out = rest;
        }
        Ok(())
    }
}

/// What the log of a disk holds; nothing is changed.
///
/// # Errors
/// It cannot be read, or must not be used.
pub(super) fn find(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    staged: &StagedGroups,
) -> Result<RecoveredLog, RecoverError> {
    let record = tables.disk(number).expect("there is such a disk");
    let reading = Reading { accepted: accepted(record), walk_all: false };
    find_by(file, tables, number, staged, reading)
}

/// What an administrator has accepted of a log; see [`Pool::use_log`].
pub(super) fn accepted(record: &DiskRecord) -> Option<Accepted> {
    let accepted = match record.log_end {
        Sequence(0) => Accepted::Missing,
        end => Accepted::UpTo(end),
    };
    record.flags.has(DiskFlags::ACCEPT_MISSING).then_some(accepted)
}

/// The damage that a log is used with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accepted {
    /// Any: it is shown for a decision.
    Any,
    /// Records are missing. The decision may be one of a former version, which noted no end of its own and was never about
    /// pages that cannot be read.
    Missing,
    /// Any, but the log goes up to this record at least.
    UpTo(Sequence),
}

/// How a log is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// As far as it goes, with such damage.
    pub accepted: Option<Accepted>,
    /// The groups of all segments, also of those with a summary.
    pub walk_all: bool,
}

/// As [`find`], read in this way.
pub(super) fn find_by(
    file: &PoolFile,
    tables: &Tables,
    number: DiskNumber,
    staged: &StagedGroups,
    Reading { accepted, walk_all }: Reading,
) -> Result<RecoveredLog, RecoverError> {
    let record = tables.disk(number).expect("there is such a disk");
    let segments: Vec<LeasedSegment> = tables.leases.log_of(number).collect();
    let progress = tables.progress(number);
    let mut input = RecoverInput {
        disk: record.uuid,
        disk_size: record.size,
        segment_pages: tables.geometry().segment_pages(),
        segments: &segments,
        flushed: progress.flushed,
        through: progress.through,
        durable: record.log_end,
        committed: record.committed,
        pending: record.pending,
        staged: &staged.headers(),
        accept_missing: match accepted {
            None | Some(Accepted::Missing) => None,
            Some(Accepted::Any) => Some(Sequence(0)),
            Some(Accepted::UpTo(end)) => Some(end),
        },
        walk_all,
    };
    let mut reader = Reader::new(file, tables.geometry());
    match (recover(&input, &mut reader), accepted) {
        (
            Err(RecoverError::Missing { .. } | RecoverError::StagedGap { .. }),
            Some(Accepted::Missing),
        ) => {
            input.accept_missing = Some(Sequence(0));
            recover(&input, &mut reader)
        }
        (read, _) => read,
    }
}

fn explain(error: &RecoverError, name: &str, path: &Path) -> anyhow::Error {
    let shown = path.display();
    anyhow!(
        "the write log of disk '{name}' cannot be used: {error}. Nothing was changed. Primary storage alone is older \
         than what the guest has written. Copy the flash, then see what can be done: forebay disk resolve {name} --pool \
         {shown}"
    )
}

/// Reads segments of a pool.
struct Reader<'a> {
    file: &'a PoolFile,
    geometry: PoolGeometry,
    pages: Vec<PoolPage>,
}

impl<'a> Reader<'a> {
    fn new(file: &'a PoolFile, geometry: PoolGeometry) -> Reader<'a> {
        Reader { file, geometry, pages: Vec::new() }
    }
}

impl LogReader for Reader<'_> {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        self.pages.resize(out.len() / PAGE_LEN, PoolPage::ZERO);
        let offset = page_offset(self.geometry, segment, page);
        self.file.read(offset, &mut self.pages).map_err(|error| ReadError(error.to_string()))?;
        for (page, out) in self.pages.iter().zip(out.chunks_exact_mut(PAGE_LEN)) {
            out.copy_from_slice(&page.0);
        }
        Ok(())
    }
}
