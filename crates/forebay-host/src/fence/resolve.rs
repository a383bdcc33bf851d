//! Both sides of a disk that is refused, and what an administrator decides about them.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::{exact, parse, rounded};
use forebay_backends::{Look, OpenOptions, Probe, Uri};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, Evidence};
use forebay_core::flash_pool::fence::is_claimed;
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use serde::{Deserialize, Serialize};

use super::detached::Detached;
use super::journal_named::check_torn;
use super::sidecar::{self, Found, SidecarPlace, identity};
use super::{Guard, last_write, names, sample, words};
use crate::fence::is_in_use;
use crate::pool::resolve::{Settled, Undecided};
use crate::pool::{self, Dirty, LOCK_WAIT, Pool, SharedPool, host};

/// Time that the look at primary storage may take.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// A disk whose log waits for a decision. It is not served; its primary storage is locked, and its part of the pool is
/// nobody else's: the pool is locked against other processes, and who opens disks of this one waits.
pub struct Sides {
    pool: SharedPool,
    number: DiskNumber,
    record: DiskRecord,
    undecided: Undecided,
    probe: Option<Probe>,
    place: SidecarPlace,
    look: Look,
    found: Found,
    notes: Vec<String>,
    detached: Detached,
    _lock: Guard,
}

/// Both sides, as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shown {
    /// Its name.
    pub disk: String,
    pool: String,
    is_unresolved: bool,
    dirty_bytes: u64,
    dirty_records: u64,
    missing_records: u64,
    /// Why the log cannot be used whole, only as far as the figures above say.
    #[serde(default)]
    damage: Option<String>,
    error: Option<String>,
    /// Without the log primary storage may be torn.
    #[serde(default)]
    image_may_be_torn: bool,
    /// With what is left of the log it may be torn, too.
    #[serde(default)]
    image_may_be_torn_with_log: bool,
    opened: u64,
    closed: u64,
    generation: u64,
    backend: String,
    size: u64,
    modified: Option<(i64, u32)>,
    sidecar: String,
    /// What is not as it should be with this look.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// What an administrator decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The log goes on.
    UseLog,
    /// The log, of this amount, is given up.
    DiscardLog(String),
    /// The reservations are given up.
    DiscardReservations,
}

impl Decision {
    /// As it is told to programs.
    pub fn name(&self) -> &'static str {
        match self {
            Decision::UseLog => "use-log",
            Decision::DiscardLog(_) => "discard-log",
            Decision::DiscardReservations => "discard-reservations",
        }
    }

    /// What became so.
    pub fn done(&self) -> &'static str {
        match self {
            Decision::UseLog => "the log goes on",
            Decision::DiscardLog(_) => "the log was discarded",
            Decision::DiscardReservations => "its persistent reservations are given up",
        }
    }
}

/// Opens and locks the pool at `path`, of which no daemon serves a disk.
///
/// # Errors
/// There is none, or a daemon has it.
pub fn open_pool(path: &Path) -> Result<SharedPool> {
    let pool = Pool::open_existing(path).map_err(|error| match is_in_use(&error) {
        true => error.context(
            "the disk must not be served meanwhile: stop its daemon first. About a disk that its daemon has refused that one \
             decides: leave --pool out, or give its --control",
        ),
        false => error,
    })?;
    Ok(Arc::new(Mutex::new(pool)))
}

/// What the log of the disk `name` of a pool holds that primary storage may not have.
pub fn undestaged(pool: &SharedPool, name: &str) -> Option<Dirty> {
    let pool = pool::lock(pool).snapshot();
    let number = find(&pool, name).ok()?;
    Some(pool.dirty(number)).filter(Dirty::is_dirty)
}

/// Carries out a decision about the disk `name` of a pool, which is not served; `state` is the state folder. What is not as
/// it should be.
///
/// # Errors
/// There is no such disk, the decision is not possible, or a medium's.
pub fn decide(
    pool: SharedPool,
    name: &str,
    state: Option<&Path>,
    decision: &Decision,
) -> Result<Vec<String>> {
    if *decision == Decision::DiscardReservations {
        // Primary storage has no part in that.
        let mut pool = pool::lock(&pool);
        let number = find(&pool, name)?;
        let stored = pool.set_reservations(number, Vec::new());
        ensure!(stored, "the flash {} cannot be written", pool.path().display());
        return Ok(Vec::new());
    }
    let sides = Sides::open(pool, name, state)?;
    let mut notes = sides.notes.clone();
    match decision {
        Decision::DiscardLog(amount) => {
            // From then on the pool does not know it any more.
            notes.extend(
                sides.undecided.is_torn_without.then(|| words::TORN_WITHOUT_LOG.to_owned()),
            );
            sides.discard_log(amount)?;
        }
        Decision::UseLog | Decision::DiscardReservations => {
            notes.extend(
                sides.undecided.is_torn_with_rest.then(|| words::TORN_WITH_REST.to_owned()),
            );
            sides.use_log()?;
        }
    }
    Ok(notes)
}

fn find(pool: &Pool, name: &str) -> Result<DiskNumber> {
    pool.find(name).with_context(|| {
        let names = pool.names().join(", ");
        format!("the pool {} has no disk '{name}'; it has: {names}", pool.path().display())
    })
}

impl Sides {
    /// Opens the primary storage of the disk `name` of a pool, and looks at both; `state` is the state folder.
    ///
    /// # Errors
    /// There is no such disk, or its primary storage cannot be opened or is in use.
    pub fn open(shared: SharedPool, name: &str, state: Option<&Path>) -> Result<Sides> {
        let pool = pool::lock(&shared).snapshot();
        let number = find(&pool, name)?;
        let record = pool.record(number);
        let uri: Uri = record.uri.parse()?;
        let read_only = record.flags.has(DiskFlags::READ_ONLY);
        let options = OpenOptions { read_only, lock_wait: LOCK_WAIT };
        let backend = forebay_backends::open(&uri, options)
            .with_context(|| format!("its primary storage {} cannot be used", record.uri))?;
        let probe = backend.probe().map(|probe| names::known(probe, state));
        let place = SidecarPlace::of(probe.as_ref(), state);
        let lock = super::lock(&place, read_only)
            .with_context(|| format!("its primary storage {} cannot be used", record.uri))?;
        let notes = lock.missing().map(str::to_owned).into_iter().collect();
        let look = match &probe {
            Some(probe) => probe.look().context("cannot look at its primary storage")?,
            None => Look { size: backend.properties().size, modified: None, changed: None },
        };
        let look = Look { size: backend.properties().size, ..look };
        let found = sidecar::read(place.path());
        let undecided = pool.undecided(number);
        let (pool, _lock) = (shared, lock);
        let detached = Detached::of(identity(probe.as_ref()), state);
        Ok(Sides {
            pool,
            number,
            record,
            undecided,
            probe,
            place,
            look,
            found,
            notes,
            detached,
            _lock,
        })
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        pool::lock(&self.pool)
    }

    /// Both sides for programs.
    pub fn shown(&self) -> Shown {
        let record = &self.record;
        let Undecided { dirty, cut, missing, is_torn_without, is_torn_with_rest, .. } =
            &self.undecided;
        Shown {
            disk: record.name.clone(),
            pool: self.pool().path().display().to_string(),
            is_unresolved: record.flags.has(DiskFlags::UNRESOLVED),
            dirty_bytes: dirty.bytes,
            dirty_records: dirty.records,
            missing_records: *missing,
            damage: cut.clone(),
            error: dirty.error.clone(),
            image_may_be_torn: *is_torn_without,
            image_may_be_torn_with_log: *is_torn_with_rest,
            opened: record.opened,
            closed: record.closed,
            generation: record.committed.0,
            backend: record.uri.clone(),
            size: self.look.size,
            modified: self.look.modified,
            sidecar: words::sidecar(&self.found),
            warnings: self.notes.clone(),
        }
    }

    /// Both sides for people, and what each choice does.
    pub fn describe(&self) -> String {
        let Undecided { dirty, cut, missing, is_unreadable, .. } = &self.undecided;
        let state = match self.record.flags.has(DiskFlags::UNRESOLVED) {
            true => "its write log was refused: decide about it",
            false if cut.is_some() || dirty.error.is_some() => {
                "its write log cannot be used as it is: decide about it"
            }
            false => {
                "its write log was not refused: there is nothing to decide, unless its last end said that the log was lost"
            }
        };
        let pool = self.pool().snapshot();
        let reservations = match pool.reservations(self.number) {
            Ok(state) if state.is_empty() => String::new(),
            Ok(_) => "  persistent reservations of SCSI initiators are stored for it\n".to_owned(),
            Err(why) => format!("  its persistent reservations cannot be read: {why}\n"),
        };
        let mut text = format!(
            "disk {}: {state}\n{}{reservations}",
            self.record.name,
            words::sides(pool.path(), &self.record, dirty, &self.look, &self.found)
        );
        for note in &self.notes {
            text += &format!("  warning: {note}\n");
        }
        if let Some(error) = &dirty.error {
            text += &format!("  the log cannot be read: {error}\n");
        }
        if let Some(why) = cut {
            text += &format!("  {}\n", words::cut(why, *missing, *is_unreadable));
        }
        if self.undecided.is_torn_without {
            text += &format!("  {}\n", words::TORN_WITHOUT_LOG);
        }
        if self.undecided.is_torn_with_rest {
            text += &format!("  {}\n", words::TORN_WITH_REST);
        }
        text += &format!(
            "--use-log: primary storage is taken as it is, and the log ({}) is written over it when the disk is \
             served; what others wrote elsewhere stays\n--discard-log {}: the log is given up{}, primary storage stays as \
             it is\n",
            rounded(dirty.bytes),
            self.amount(),
            if cut.is_some() { ", also what is left of it" } else { "" },
        );
        text
    }

    /// What has to be typed to discard the log.
    fn amount(&self) -> String {
        amount(&self.undecided.dirty)
    }

    /// Takes primary storage as it is; the log is written over it when the disk is served.
    ///
    /// # Errors
    /// The log cannot be read or does not fit, or a medium's.
    fn use_log(mut self) -> Result<()> {
        if let Some(error) = &self.undecided.dirty.error {
            anyhow::bail!("the log cannot be used: {error}. Only --discard-log is possible");
        }
        ensure!(
            !self.undecided.leaves_nothing(),
            "nothing of the log can be read: {}. Copy the flash, and try that copy. Otherwise only --discard-log is possible",
            self.undecided.cut.as_deref().unwrap_or_default()
        );
        ensure!(
            self.undecided.end <= self.look.size,
            "primary storage has {} ({} bytes), the log writes up to byte {}: make it that long first",
            rounded(self.look.size),
            self.look.size,
            self.undecided.end
        );
        if let (true, Found::There(there)) = (self.is_anothers(), &self.found) {
            anyhow::bail!(
                "its primary storage belongs to the disk '{}' now ({}), as {} says: the log would be written over what that disk \
                 wrote. Only --discard-log is possible",
                there.name,
                there.disk,
                self.place.path().unwrap_or(Path::new("")).display()
            );
        }
        // Not `dirty`: that would be the end of a session, of which the pool does not know.
        let noted = self.settle(SidecarState::OpenWithLog)?;
        self.pool().use_log(self.number, &self.undecided, noted)?;
        last_write::forget(self.record.uuid);
        Ok(())
    }

    /// Gives the log up; `amount` is how much that is.
    ///
    /// # Errors
    /// The amount is another one, or a medium's.
    fn discard_log(mut self, amount: &str) -> Result<()> {
        let bytes = self.undecided.dirty.bytes;
        let is_known = self.undecided.dirty.error.is_none();
        let words: String = amount.split_whitespace().collect();
        let as_shown: String = rounded(bytes).to_string().split_whitespace().collect();
        let is_right = match is_known {
            true => parse(amount) == Ok(bytes) || words == as_shown,
            false => words == "all",
        };
        ensure!(
            is_right,
            "'{amount}' is not what the log of disk '{}' holds: {} ({} bytes in {}) would be lost. If that is \
             agreed to: --discard-log {}",
            self.record.name,
            rounded(bytes),
            bytes,
            words::writes(self.undecided.dirty.records),
            self.amount()
        );
        let noted = self.settle(SidecarState::OpenWithLog)?;
        self.pool().discard_log(self.number, &self.undecided, noted)?;
        last_write::forget(self.record.uuid);
        // Now nothing is dirty any more.
        self.write_sidecar(SidecarState::Clean).map(drop)
    }

    /// Makes primary storage the disk's own again: no generation that its sidecar had is used again, the sidecar is ours,
    /// and what it looks like now is what the next start compares with.
    ///
    /// # Errors
    /// It is torn, or a medium's.
    fn settle(&mut self, state: SidecarState) -> Result<Settled> {
        if let (false, Found::There(sidecar)) = (self.is_anothers(), &self.found) {
            // The sidecar will not name the journal any more.
            check_torn(sidecar, self.probe.as_ref(), &self.place)?;
        }
        let record = {
            let mut pool = self.pool();
            // What is written from here on keeps no start from log and cache any more: this does, until the decision is there.
            pool.set_unresolved(self.number)?;
            ensure!(
                pool.void_ring(self.number),
                "cannot note on flash that its cache is of the past"
            );
            if let Found::There(found) = &self.found
                && found.disk == self.record.uuid
            {
                pool.pass_generation(self.number, found.generation)?;
            }
            pool.record(self.number)
        };
        self.record = record;
        let sidecar = match (self.write_sidecar(state)?, &self.found) {
            (true, _) => self.record.pending,
            // A disk that only reads writes none: the one that is there is taken as it is.
            (false, Found::There(own)) if own.disk == self.record.uuid => own.generation,
            (false, _) => self.record.evidence.sidecar,
        };
        let forgotten = self.detached.forget(self.record.uuid);
        forgotten
            .context("cannot write the state folder, which says that the disk was detached")?;
        let session = (self.record.uuid, self.record.committed);
        let size = self.look.size;
        let last =
            self.probe.as_ref().and_then(|probe| sample::last_look(probe, session, size, LOOK_MAX));
        let looked = last.unwrap_or(Evidence {
            size: Some(size),
            is_final: self.probe.is_none(),
            ..Evidence::default()
        });
        let evidence = Evidence { sidecar, ..looked };
        Ok(Settled { size, evidence, identity: identity(self.probe.as_ref()) })
    }

    /// True when the sidecar is that of another disk, whose log may hold newer data. Not of one that this very pool does not
    /// know, and that left, as far as can be known: its detach says so, or the sidecar is in a state folder, which may be
    /// another one than the disk's own.
    fn is_anothers(&self) -> bool {
        let is_unknown_here = |there: &Sidecar| {
            let pool = self.pool();
            let is_unknown = there.pool == pool.uuid() && !pool.knows(there.disk);
            is_unknown && (self.place.is_apart() || self.detached.has(there.disk))
        };
        match &self.found {
            Found::There(there) => {
                is_claimed(there, Some(self.record.uuid)) && !is_unknown_here(there)
            }
            Found::NoPlace | Found::Missing | Found::Unreadable(_) => false,
        }
    }

    /// Writes the disk's sidecar, unless the disk only reads or primary storage belongs to another one. True when it did.
    fn write_sidecar(&self, state: SidecarState) -> Result<bool> {
        let is_written = self.probe.as_ref().is_some_and(|probe| !probe.is_read_only());
        let is_written = is_written && !self.is_anothers();
        let Some(path) = self.place.path().filter(|_| is_written) else { return Ok(false) };
        let sidecar = Sidecar {
            disk: self.record.uuid,
            pool: self.pool().uuid(),
            generation: self.record.pending,
            state,
            date: host::now(),
            host: host::name(),
            name: self.record.name.clone(),
            // None of its records is left to be put in place.
            journal: None,
        };
        let written = sidecar::write(path, &sidecar);
        written
            .map(|_| true)
            .with_context(|| format!("cannot write its sidecar {}", path.display()))
    }
}

/// What has to be typed to discard a log.
pub(super) fn amount(dirty: &Dirty) -> String {
    match dirty.error {
        Some(_) => "all".to_owned(),
        None => exact(dirty.bytes).to_string(),
    }
}
