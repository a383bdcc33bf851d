//! Which record of the pool is a disk's: found by its name, checked against its primary storage.

use anyhow::{Context, Result, bail, ensure};
use forebay_backends::Uri;
use forebay_backends::size::rounded;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, Evidence, SessionEnd};
use forebay_core::flash_pool::progress::Progress;
use forebay_core::ids::{Generation, SegmentId, Sequence, Uuid};

use super::{Pool, host, staging};
use crate::fence::Refused;
use crate::shell::quoted;

/// In the first byte of an identity.
pub const GOES_WITH_DEVICE: u8 = 0x80;

/// A disk as it is configured and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskWish {
    /// Its name.
    pub name: String,
    /// URI of primary storage.
    pub uri: String,
    /// Who that is, however it is spelt; [`Uuid::NIL`]: not known.
    pub identity: Uuid,
    /// Bytes of primary storage.
    pub size: u64,
    /// Cache block in bytes.
    pub block_size: u64,
    /// Byte offset of the block grid, where it is told.
    pub grid_offset: Option<u64>,
    /// The mode, by its name.
    pub mode: String,
    /// Bytes that its write log may have.
    pub log_bytes: u64,
    /// Never written.
    pub read_only: bool,
    /// Flushes are acknowledged before they are durable, and that was agreed to.
    pub is_deferred: bool,
    /// Writes are acknowledged that only the staging file has.
    pub is_staged: bool,
    /// Nobody else writes to primary storage: said by the administrator.
    pub is_exclusive: bool,
    /// The disk whose claim on primary storage the administrator gives up.
    pub takes_over: Option<Uuid>,
}

impl DiskWish {
    /// True when a disk of this record is on the same primary storage.
    fn is_on(&self, record: &DiskRecord) -> bool {
        let (now, then) = (self.identity, record.identity);
        if now != Uuid::NIL && now == then {
            return true;
        }
        let goes_with_device = |identity: Uuid| identity.0[0] & GOES_WITH_DEVICE != 0;
        self.uri == record.uri && !(goes_with_device(now) && goes_with_device(then))
    }

    /// True when a disk of another name may be on the same primary storage. Memory is each disk's own, however it is
    /// written down.
    fn can_be_shared(&self) -> bool {
        self.uri.parse::<Uri>().map_or(true, |uri| uri.outlives_its_opening())
    }
}

/// What a log holds that primary storage may not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Writes.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why the log cannot be read.
    pub error: Option<String>,
}

impl Dirty {
    /// True when something would be lost without the log.
    pub fn is_dirty(&self) -> bool {
        self.records > 0 || self.error.is_some()
    }
}

/// How a disk is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfSession {
    /// Its log is durable and holds what is not on primary storage.
    Dirty,
    /// Primary storage has everything.
    Clean,
    /// It is not to come back: its record goes.
    Detached,
    /// Something failed: as after a crash.
    Failed,
    /// The same, and its log cannot be read, or not be noted as destaged: no session goes on with it before an administrator
    /// has decided.
    Lost,
}

impl Pool {
    /// The number of the disk: of its record, or of a new one. No other disk gets it while this pool is open.
    ///
    /// # Errors
    /// The pool holds writes that are not on primary storage, of a disk that this is not; or it is full.
    pub fn admit(&mut self, wish: &DiskWish) -> Result<DiskNumber> {
        for (number, record) in self.tables.disks() {
            if record.name != wish.name && wish.is_on(record) && wish.can_be_shared() {
                self.check_other(number, record, wish)?;
            }
        }
        let found = self.find(&wish.name);
        if let Some(number) = found {
            if wish.is_on(self.tables.disk(number).expect("it was found")) {
                // Whether it is still what it was, its size too, is the fence's to judge.
                self.admitted[usize::from(number.0)] = true;
                return Ok(number);
            }
            self.check_moved(number, wish)?;
        }
        let Some(number) = found.or_else(|| self.number_for_a_new_disk()) else {
            let (shown, disks) = (self.file.path().display(), self.admitted.len());
            bail!(
                "the flash {shown} holds {disks} disks already: each is served, was served since Forebay opened this flash, or has \
                 writes or reservations of its own. 'forebay pool show {}' lists them. Start one that is not needed and detach \
                 it, give this disk other flash, or start Forebay again: it uses anew what detached disks have left",
                quoted(self.file.path())
            )
        };
        // What a former disk of this number has cached is nobody's.
        self.drop_cache(number)?;
        self.tables.set_disk(&self.file, number, Some(new_record(wish)?))?;
        self.admitted[usize::from(number.0)] = true;
        Ok(number)
    }

    /// A number without record, or of the disk that was opened longest ago of those that have left nothing but what they have
    /// cached: one that is opened in a moment keeps its record. A number whose reservations cannot be read comes last: its disk
    /// is refused.
    fn number_for_a_new_disk(&self) -> Option<DiskNumber> {
        let geometry = self.tables.geometry();
        let free = || geometry.disks().filter(|n| !self.admitted[usize::from(n.0)]);
        let is_needed =
            |number| self.tables.log_segments(number) > 0 || self.tables.has_reservations(number);
        let has_none = |number: &DiskNumber| self.tables.disk(*number).is_none();
        let is_whole = |number: &DiskNumber| self.tables.reservations(*number).is_ok();
        let whole = free().filter(has_none).find(is_whole);
        let of_nobody = || {
            let of_nobody = free().filter(|number| !is_needed(*number));
            of_nobody.min_by_key(|number| self.tables.disk(*number).map(|disk| disk.opened))
        };
        whole.or_else(of_nobody).or_else(|| free().find(has_none))
    }

    /// Another disk has been on the primary storage that is wished for: nothing of it may be passed by.
    fn check_other(&self, number: DiskNumber, record: &DiskRecord, wish: &DiskWish) -> Result<()> {
        let shown = self.file.path().display();
        if self.has_log(number) {
            return Err(Refused::other_disk(format!(
                "the flash {shown} holds writes that are not on {} yet, under the name '{}': start it with --name {1}",
                record.uri, record.name
            ))
            .into());
        }
        if self.tables.has_reservations(number) {
            let what = format!(
                "'{}', which is on the same primary storage as '{}'",
                record.name, wish.name
            );
            let instead = format!("start it with --name {}", record.name);
            return Err(
                Refused::passed_by(&what, &record.name, &shown.to_string(), &instead).into()
            );
        }
        Ok(())
    }

    /// A disk is to be on another primary storage: nothing that it left on the former one may be lost.
    fn check_moved(&self, number: DiskNumber, wish: &DiskWish) -> Result<()> {
        let shown = self.file.path().display();
        let record = self.record(number);
        let to = match record.uri == wish.uri {
            true => "another device of that name".to_owned(),
            false => wish.uri.clone(),
        };
        if self.has_log(number) {
            return Err(Refused::other_disk(format!(
            "the flash {shown} holds writes of the disk '{}' that are not on its primary storage, {} of \
             {}; but '{}' is now to be on {to} of {}. Start it on the former one and let it be destaged \
             ('forebay disk flush {0}'), give this disk another name, or decide: 'forebay disk resolve {0} --pool {5}'",
            record.name,
            record.uri,
            rounded(record.size),
            wish.name,
            rounded(wish.size),
            quoted(self.file.path())
            ))
            .into());
        }
        if self.tables.has_reservations(number) {
            let what = format!("'{}' on {}, and it is now to be on {to}", record.name, record.uri);
            let instead = "start it on the former one, or give this disk another name";
            return Err(Refused::passed_by(&what, &record.name, &shown.to_string(), instead).into());
        }
        Ok(())
    }

    /// The name for good of a disk that was admitted.
    pub fn disk_uuid(&self, number: DiskNumber) -> Uuid {
        self.record(number).uuid
    }

    /// Takes note that a session of the disk begins: nothing was written under the generation returned, and
    /// nobody else may use it. A file that was made for the pool stays: primary storage will name it.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin_session(&mut self, number: DiskNumber) -> Result<Generation> {
        self.file.stay();
        let mut record = self.record(number);
        // One that is one ahead is that of a session which went on without its flash: a sidecar tells the two apart.
        record.pending.0 += 2;
        let generation = record.pending;
        self.tables.set_disk(&self.file, number, Some(record))?;
        Ok(generation)
    }

    /// The disk is served from now on, from primary storage that was found like this, perhaps on weak evidence; log segments
    /// that nobody needs any more are free.
    ///
    /// # Errors
    /// The medium's.
    pub fn commit_session(
        &mut self,
        number: DiskNumber,
        wish: &DiskWish,
        log: &[SegmentId],
        (evidence, is_weak): (Evidence, bool),
    ) -> Result<()> {
        let mut record = self.record(number);
        record.size = wish.size;
        record.evidence = evidence;
        let grid_offset = wish.grid_offset.unwrap_or(record.grid_offset.into());
        record.committed = record.pending;
        record.session = SessionEnd::Running;
        record.boot = host::boot();
        record.block_size = wish.block_size as u32;
        record.grid_offset = if grid_offset < wish.block_size { grid_offset as u32 } else { 0 };
        if wish.log_bytes > 0 || log.is_empty() {
            // A log that is drained without being wanted keeps its limit.
            record.log_max = wish.log_bytes;
        }
        record.mode = wish.mode.clone();
        (record.uri, record.identity) = (wish.uri.clone(), wish.identity);
        // What an earlier session sent is not answered by one that only reads.
        let was_unanswered = record.flags.has(DiskFlags::UNANSWERED);
        record.flags = flags(wish);
        if !wish.read_only || was_unanswered {
            record.flags.0 |= DiskFlags::UNANSWERED.0;
        }
        if is_weak {
            record.flags.0 |= DiskFlags::WEAK.0;
        }
        (record.opened, record.closed, record.log_end) = (host::now(), 0, Sequence(0));
        self.tables.set_disk(&self.file, number, Some(record))?;
        self.free_log(number, |segment| !log.contains(&segment))
    }

    /// The disk has become longer, its primary storage looks so.
    ///
    /// # Errors
    /// The medium's; it may be noted all the same.
    pub fn grow(&mut self, number: DiskNumber, seen: Evidence) -> Result<()> {
        let mut record = self.record(number);
        record.size = seen.size.unwrap_or(record.size);
        record.evidence = Evidence { sidecar: record.evidence.sidecar, ..seen };
        self.tables.set_disk(&self.file, number, Some(record))
    }

    /// The disk is not served any more; `is_quiet` when nothing of it is under way on primary storage, and `last` the
    /// last look at that. False when the pool does not say so: it is as after a kill.
    ///
    /// # Errors
    /// The medium's.
    pub fn close(
        &mut self,
        number: DiskNumber,
        end: EndOfSession,
        is_quiet: bool,
        last: Option<Evidence>,
    ) -> Result<bool> {
        ensure!(
            end != EndOfSession::Detached || !self.has_failed,
            "the flash {} cannot be written, and still has the disk",
            self.file.path().display()
        );
        // Its shard has written it, if it had a log. Whoever looks at the log from now on judges it by that.
        let reloaded = match self.reopened[usize::from(number.0)] {
            true => self.tables.reload_progress(&self.file, number),
            false => Ok(()),
        };
        if end == EndOfSession::Lost {
            self.set_lost(number)?;
        }
        if matches!(end, EndOfSession::Failed | EndOfSession::Lost) || self.has_failed {
            return Ok(false);
        }
        reloaded?;
        let mut record = self.record(number);
        if end != EndOfSession::Dirty {
            self.settle(number)?;
            self.free_log(number, |_| true)?;
            record.log_end = Sequence(0);
            // Nothing in it counts any more.
            staging::remove_of(record.uuid);
        }
        let disk = record.uuid;
        record.session = SessionEnd::Clean;
        record.closed = host::now();
        if is_quiet && !record.flags.has(DiskFlags::READ_ONLY) {
            record.flags.0 &= !DiskFlags::UNANSWERED.0;
        }
        if let Some(last) = last {
            record.evidence = Evidence { sidecar: record.evidence.sidecar, ..last };
        }
        if end == EndOfSession::Detached {
            self.drop_cache(number)?;
        }
        let record = (end != EndOfSession::Detached).then_some(record);
        self.tables.set_disk(&self.file, number, record)?;
        // The log is durable, or empty, and the record says so. Before, a start would miss the file.
        staging::remove_of(disk);
        Ok(true)
    }

    /// Primary storage has, durably, everything of the disk's log up to this record: its progress says so before any
    /// of the log is let go of. The destager's own note may be behind.
    ///
    /// # Errors
    /// The medium's.
    pub fn settle_up_to(&mut self, number: DiskNumber, record: Sequence) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        self.tables.reload_progress(&self.file, number)?;
        let Progress { disk, flushed, through } = self.tables.progress(number);
        if flushed < record {
            let progress = Progress { disk, flushed: record, through: through.max(record) };
            self.tables
                .set_progress(&self.file, number, progress)
                .context("cannot write the disk's progress")?;
        }
        Ok(())
    }

    /// The disk's log holds, durably, its records up to this one: a start that does not find them refuses it.
    ///
    /// # Errors
    /// The medium's.
    pub fn set_log_end(&mut self, number: DiskNumber, last: Sequence) -> Result<()> {
        if self.has_failed {
            return Ok(());
        }
        let record = DiskRecord { log_end: last, ..self.record(number) };
        self.tables.set_disk(&self.file, number, Some(record))
    }

    /// Nothing of the disk's log is missing on primary storage: its progress says so.
    pub(super) fn settle(&mut self, number: DiskNumber) -> Result<()> {
        let Progress { disk, flushed, through } = self.tables.progress(number);
        if flushed != through {
            let progress = Progress { disk, flushed: through, through };
            self.tables
                .set_progress(&self.file, number, progress)
                .context("cannot write the disk's progress")?;
        }
        Ok(())
    }

    /// The log of a disk is refused until an administrator has decided; durably. Tables that could not be written once are tried
    /// again for this.
    ///
    /// # Errors
    /// The medium's.
    pub fn set_unresolved(&mut self, number: DiskNumber) -> Result<()> {
        let mut record = self.record(number);
        if record.flags.has(DiskFlags::UNRESOLVED) {
            return Ok(());
        }
        record.flags.0 |= DiskFlags::UNRESOLVED.0;
        // Nobody mirrors the tables of a pool that has failed: should the copy that says so rot, the other one must not say what
        // was before. And one attempt may hear of a flush of somebody else that has failed.
        let copies = if self.has_failed { 2 } else { 1 };
        let (mut written, mut failed) = (0, None);
        for _ in 0..=copies {
            match self.tables.set_disk(&self.file, number, Some(record.clone())) {
                Ok(()) => written += 1,
                Err(error) => failed = Some(error),
            }
            if written == copies {
                break;
            }
        }
        match failed {
            Some(error) if written == 0 => Err(error),
            Some(_) | None => Ok(()),
        }
    }

    /// The log of a disk is lost: no start goes on with it before an administrator has decided; durably.
    ///
    /// # Errors
    /// The medium's, with what is to be done then.
    pub(super) fn set_lost(&mut self, number: DiskNumber) -> Result<()> {
        self.set_unresolved(number).with_context(|| {
            format!(
                "it cannot be noted on flash that the write log was lost: the next start may go on behind it. Copy the flash, and \
                 decide before that start, with no daemon on it: forebay disk resolve {} --pool {}",
                self.record(number).name,
                quoted(self.file.path())
            )
        })
    }

    /// Somebody else has modified the primary storage of the disk while it is served, or an administrator has dealt with that;
    /// durably.
    ///
    /// # Errors
    /// The medium's.
    pub fn set_modified(&mut self, number: DiskNumber, is_modified: bool) -> Result<()> {
        let mut record = self.record(number);
        if record.flags.has(DiskFlags::MODIFIED) == is_modified {
            return Ok(());
        }
        record.flags.0 ^= DiskFlags::MODIFIED.0;
        self.tables.set_disk(&self.file, number, Some(record))
    }

    /// Primary storage is about to be changed before a session begins. Should this process die: what it sends may still be
    /// carried out after that, and a sample of before is of the past.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin_repair(&mut self, number: DiskNumber) -> Result<()> {
        let mut record = self.record(number);
        record.flags.0 |= DiskFlags::UNANSWERED.0;
        record.evidence.sample = None;
        self.tables.set_disk(&self.file, number, Some(record))
    }

    /// The record of a disk that was admitted.
    pub fn record(&self, number: DiskNumber) -> DiskRecord {
        self.tables.disk(number).expect("the disk was admitted").clone()
    }
}

fn flags(wish: &DiskWish) -> DiskFlags {
    let mut flags = DiskFlags::default();
    if wish.read_only {
        flags.0 |= DiskFlags::READ_ONLY.0;
    }
    if wish.is_deferred {
        flags.0 |= DiskFlags::DEFERRED.0;
    }
    if wish.is_staged {
        flags.0 |= DiskFlags::STAGED.0;
    }
    if wish.is_exclusive {
        flags.0 |= DiskFlags::EXCLUSIVE.0;
    }
    flags
}

fn new_record(wish: &DiskWish) -> Result<DiskRecord> {
    Ok(DiskRecord {
        uuid: host::new_uuid().context("cannot name a new disk")?,
        boot: Uuid::NIL,
        committed: Generation(0),
        pending: Generation(0),
        size: wish.size,
        block_size: wish.block_size as u32,
        grid_offset: 0,
        log_reserved: 0,
        log_max: wish.log_bytes,
        opened: 0,
        closed: 0,
        flags: flags(wish),
        session: SessionEnd::Clean,
        evidence: Evidence::default(),
        mode: wish.mode.clone(),
        name: wish.name.clone(),
        uri: wish.uri.clone(),
        identity: wish.identity,
        log_end: Sequence(0),
    })
}
