//! What an administrator decides about a log that is not used by itself: it goes on as far as it goes, or it is
//! discarded. The disk is not served meanwhile.

use anyhow::{Context, Result};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, Evidence, SessionEnd};
use forebay_core::flash_pool::progress::Progress;
use forebay_core::ids::{Generation, Sequence, Uuid};
use forebay_core::write_back::format::recover::{RecoverError, RecoveredLog};

use super::recover::{Accepted, Reading};
use super::{Dirty, Pool, host, recover, report, staging};
use forebay_core::geometry::PAGE;

/// A log that needs a decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Undecided {
    /// What it holds, as far as it goes.
    pub dirty: Dirty,
    /// Why it cannot be used whole, but as far as that.
    pub cut: Option<String>,
    /// A page cannot be read, which may be read again, or from a copy.
    pub is_unreadable: bool,
    /// Writes that are lost then: they were durable or staged, and are not there any more, or come after one that is not.
    pub missing: u64,
    /// Some of it may be on primary storage already, which is whole with the rest of it only.
    pub is_torn_without: bool,
    /// The same of what is behind the damage: primary storage may be torn also with the log as far as it goes.
    pub is_torn_with_rest: bool,
    /// The end of the highest byte that it writes.
    pub end: u64,
    /// The highest sequence that was in it, as far as that is known.
    last: Sequence,
    /// The last one on flash that can be used.
    usable: Sequence,
    /// It cannot be read, or lacks records, and no orderly end has noted where it ends.
    may_go_on: bool,
}

/// Primary storage as an administrator takes it.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    /// Its bytes.
    pub size: u64,
    /// What it looks like.
    pub evidence: Evidence,
    /// Who it is.
    pub identity: Uuid,
}

impl Pool {
    /// The number of the disk of this name.
    pub fn find(&self, name: &str) -> Option<DiskNumber> {
        self.tables.disks().find(|(_, record)| record.name == name).map(|(number, _)| number)
    }

    /// The names of its disks.
    pub fn names(&self) -> Vec<&str> {
        self.tables.disks().map(|(_, record)| record.name.as_str()).collect()
    }

    /// What the log of a disk holds, as far as it goes.
    pub fn undecided(&self, number: DiskNumber) -> Undecided {
        let staged = report::staged(&self.file, &self.tables, number).groups;
        let read = |accepted| {
            let reading = Reading { accepted, walk_all: false };
            recover::find_by(&self.file, &self.tables, number, &staged, reading)
        };
        let record = self.record(number);
        let noted = record.log_end;
        // A decision has noted how far it goes, not where it ends.
        let may_go_on = noted == Sequence(0) || record.flags.has(DiskFlags::ACCEPT_MISSING);
        let Progress { flushed, through, .. } = self.tables.progress(number);
        let last = through.max(noted);
        // An empty log was destaged, however far its progress was noted.
        let is_torn_without = through > flushed && self.has_log(number);
        let mut undecided = Undecided { last, is_torn_without, ..Default::default() };
        let found = read(None).or_else(|why| {
            undecided.last = undecided.last.max(newest(&why));
            // Nobody has claimed the newest ones.
            undecided.may_go_on = may_go_on;
            let accepted = read(Some(Accepted::Any))?;
            undecided.is_unreadable = matches!(why, RecoverError::Read { .. });
            undecided.cut = Some(why.to_string());
            Ok(accepted)
        });
        match found {
            Ok(log) => {
                undecided.take(&log);
                let is_cut = undecided.cut.is_some();
                undecided.is_torn_with_rest =
                    is_torn_without && is_cut && undecided.usable < through;
            }
            Err(why) => undecided.dirty.error = Some(RecoverError::to_string(&why)),
        }
        undecided
    }

    /// The log goes on at the next start, over primary storage that looks like this.
    ///
    /// # Errors
    /// The medium's.
    pub fn use_log(
        &mut self,
        number: DiskNumber,
        undecided: &Undecided,
        settled: Settled,
    ) -> Result<()> {
        self.drop_cache(number)?;
        let mut record = self.record(number);
        let was_accepted = record.flags.has(DiskFlags::ACCEPT_MISSING);
        let decided = DiskFlags::UNRESOLVED.0 | DiskFlags::ACCEPT_MISSING.0 | DiskFlags::MODIFIED.0;
        record.flags.0 &= !(decided | DiskFlags::WEAK.0);
        if undecided.cut.is_some() {
            record.flags.0 |= DiskFlags::ACCEPT_MISSING.0;
        }
        if undecided.cut.is_some() || was_accepted {
            // What is in the staging file may go with the host until the disk is served.
            record.log_end = undecided.usable;
        }
        settled.note(&mut record);
        self.tables.set_disk(&self.file, number, Some(record))
    }

    /// What is in the log is given up. Until the last step the disk is refused as before, or its log is empty.
    ///
    /// # Errors
    /// The medium's; it can be done again then.
    pub fn discard_log(
        &mut self,
        number: DiskNumber,
        undecided: &Undecided,
        settled: Settled,
    ) -> Result<()> {
        self.drop_cache(number)?;
        let mut record = self.record(number);
        let (disk, last) = (record.uuid, undecided.last);
        if undecided.may_go_on {
            // Raising the progress to what is known of it would leave the rest of its records.
            self.set_unresolved(number)?;
            self.free_log(number, |_| true)?;
        }
        let progress = Progress { disk, flushed: last, through: last };
        self.tables
            .set_progress(&self.file, number, progress)
            .context("cannot write the disk's progress")?;
        self.free_log(number, |_| true)?;
        staging::remove_of(disk);
        let decided = DiskFlags::UNRESOLVED.0 | DiskFlags::ACCEPT_MISSING.0;
        record.flags.0 &= !(decided | DiskFlags::WEAK.0 | DiskFlags::MODIFIED.0);
        settled.note(&mut record);
        record.log_end = Sequence(0);
        record.session = SessionEnd::Clean;
        record.closed = host::now();
        self.tables.set_disk(&self.file, number, Some(record))
    }

    /// No generation up to `seen` is used again.
    ///
    /// # Errors
    /// The medium's.
    pub fn pass_generation(&mut self, number: DiskNumber, seen: Generation) -> Result<()> {
        let mut record = self.record(number);
        if seen <= record.pending {
            return Ok(());
        }
        record.pending = seen;
        self.tables.set_disk(&self.file, number, Some(record))
    }
}

impl Settled {
    fn note(self, record: &mut DiskRecord) {
        record.size = self.size;
        record.evidence = self.evidence;
        record.identity = self.identity;
    }
}

/// The highest sequence that this error knows to have been there.
fn newest(why: &RecoverError) -> Sequence {
    match why {
        RecoverError::Missing { durable, .. } => *durable,
        RecoverError::StagedGap { found, .. } => *found,
        RecoverError::Input(_)
        | RecoverError::Read { .. }
        | RecoverError::Segment { .. }
        | RecoverError::Group { .. }
        | RecoverError::Staged { .. } => Sequence(0),
    }
}

impl Undecided {
    /// Nothing on flash is left before the first page that cannot be read. A decision to use that looks like one of a former
    /// version, which was never about such pages, and a start refuses it.
    pub fn leaves_nothing(&self) -> bool {
        self.is_unreadable && self.usable == Sequence(0)
    }

    fn take(&mut self, log: &RecoveredLog) {
        self.dirty.records = log.records.len() as u64;
        self.dirty.bytes = log.checksums.len() as u64 * PAGE;
        self.end = log.records.iter().map(|record| record.range.end).max().unwrap_or(0);
        let last = log.records.last().map_or(log.flushed, |record| record.sequence);
        self.missing = log.report.records_lost;
        self.last = self.last.max(last.plus(self.missing));
        self.usable = Sequence(log.next_sequence.0 - 1);
    }
}
