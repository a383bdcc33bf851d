//! Both sides of a disk that is refused, and what an administrator decides about them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::{exact, parse, rounded};
use forebay_backends::{Look, OpenOptions, Uri, Witness};
use forebay_core::pool::DiskNumber;
use forebay_core::pool::disk::{DiskFlags, DiskRecord, Evidence};
use forebay_core::pool::sidecar::{Sidecar, SidecarState};
use forebay_io::file::{FileError, FileErrorKind, OpenFile};
use serde::Serialize;

use super::sidecar::{self, Found, SidecarPlace, identity};
use super::{sample, words};
use crate::daemon::pool::resolve::{Settled, Undecided};
use crate::daemon::pool::{LOCK_WAIT, Pool, host};

/// Time that the look at primary storage may take.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// A disk whose log waits for a decision, locked on both sides.
pub struct Sides {
    pool: Pool,
    number: DiskNumber,
    record: DiskRecord,
    undecided: Undecided,
    witness: Option<Witness>,
    place: SidecarPlace,
    look: Look,
    found: Found,
    _lock: Option<OpenFile>,
}

/// Both sides, as JSON.
#[derive(Debug, Serialize)]
pub struct Shown {
    disk: String,
    pool: String,
    is_unresolved: bool,
    dirty_bytes: u64,
    dirty_records: u64,
    missing_records: u64,
    error: Option<String>,
    opened: u64,
    closed: u64,
    generation: u64,
    backend: String,
    size: u64,
    modified: Option<(i64, u32)>,
    sidecar: String,
}

/// Somebody has it locked.
fn is_in_use(error: &anyhow::Error) -> bool {
    let is_lock = |cause: &FileError| cause.kind() == FileErrorKind::InUse;
    error.chain().any(|cause| cause.downcast_ref::<FileError>().is_some_and(is_lock))
}

/// Gives up the reservations that the pool at `path` stores for its disk `name`; primary storage has no part in that.
///
/// # Errors
/// There is no such disk, or the medium's.
pub fn discard_reservations(path: &Path, name: &str) -> Result<()> {
    let (mut pool, number) = find(path, name)?;
    let stored = pool.set_reservations(number, Vec::new());
    ensure!(stored, "the flash {} cannot be written", path.display());
    Ok(())
}

fn find(path: &Path, name: &str) -> Result<(Pool, DiskNumber)> {
    let pool = Pool::open_existing(path).map_err(|error| match is_in_use(&error) {
        true => error.context("the disk must not be served meanwhile: stop its daemon first"),
        false => error,
    })?;
    let number = pool.find(name).with_context(|| {
        let names = pool.names().join(", ");
        format!("the pool {} has no disk '{name}'; it has: {names}", path.display())
    })?;
    Ok((pool, number))
}

impl Sides {
    /// Opens the pool at `path` and the primary storage of its disk `name`, and looks at both; `state` is the state folder.
    ///
    /// # Errors
    /// One of them cannot be opened, or is in use.
    pub fn open(path: &Path, name: &str, state: Option<&Path>) -> Result<Sides> {
        let (pool, number) = find(path, name)?;
        let record = pool.record(number);
        let uri: Uri = record.uri.parse()?;
        let read_only = record.flags.has(DiskFlags::READ_ONLY);
        let options = OpenOptions { read_only, lock_wait: LOCK_WAIT };
        let backend = forebay_backends::open(&uri, options)
            .with_context(|| format!("its primary storage {} cannot be used", record.uri))?;
        let witness = backend.witness();
        let place = SidecarPlace::of(witness.as_ref(), state);
        let lock = super::lock(&place, read_only, &mut Vec::new())?;
        let look = match &witness {
            Some(witness) => witness.look().context("cannot look at its primary storage")?,
            None => Look { size: backend.properties().size, modified: None, changed: None },
        };
        let look = Look { size: backend.properties().size, ..look };
        let found = sidecar::read(place.path());
        let undecided = pool.undecided(number);
        Ok(Sides { pool, number, record, undecided, witness, place, look, found, _lock: lock })
    }

    /// Both sides for programs.
    pub fn shown(&self) -> Shown {
        let (record, Undecided { dirty, missing, .. }) = (&self.record, &self.undecided);
        Shown {
            disk: record.name.clone(),
            pool: self.pool.path().display().to_string(),
            is_unresolved: record.flags.has(DiskFlags::UNRESOLVED),
            dirty_bytes: dirty.bytes,
            dirty_records: dirty.records,
            missing_records: *missing,
            error: dirty.error.clone(),
            opened: record.opened,
            closed: record.closed,
            generation: record.committed.0,
            backend: record.uri.clone(),
            size: self.look.size,
            modified: self.look.modified,
            sidecar: words::sidecar(&self.found),
        }
    }

    /// Both sides for people, and what each choice does.
    pub fn describe(&self) -> String {
        let Undecided { dirty, missing, .. } = &self.undecided;
        let state = match self.record.flags.has(DiskFlags::UNRESOLVED) {
            true => "its write log was refused: decide about it",
            false => {
                "its write log was not refused; there is nothing to decide, unless it cannot be used"
            }
        };
        let reservations = match self.pool.reservations(self.number) {
            Ok(state) if state.is_empty() => String::new(),
            Ok(_) => "  persistent reservations of SCSI initiators are stored for it\n".to_owned(),
            Err(why) => format!("  its persistent reservations cannot be read: {why}\n"),
        };
        let mut text = format!(
            "disk {}: {state}\n{}{reservations}",
            self.record.name,
            words::sides(self.pool.path(), &self.record, dirty, &self.look, &self.found)
        );
        if let Some(error) = &dirty.error {
            text += &format!("  the log cannot be read: {error}\n");
        }
        if *missing > 0 {
            text += &format!(
                "  {missing} writes that were durable are missing from the log; what is told of it goes as far as it goes\n"
            );
        }
        text += &format!(
            "--use-log: primary storage is taken as it is, and the log ({}) is written over it when the disk is \
             started; what others wrote elsewhere stays\n--discard-log {}: the log is given up, primary storage stays as \
             it is\n",
            rounded(dirty.bytes),
            self.amount()
        );
        text
    }

    /// What has to be typed to discard the log.
    pub fn amount(&self) -> String {
        match &self.undecided.dirty.error {
            Some(_) => "all".to_owned(),
            None => exact(self.undecided.dirty.bytes).to_string(),
        }
    }

    /// Takes primary storage as it is; the log is written over it when the disk is started.
    ///
    /// # Errors
    /// The log cannot be read or does not fit, or a medium's.
    pub fn use_log(mut self) -> Result<()> {
        if let Some(error) = &self.undecided.dirty.error {
            anyhow::bail!("the log cannot be used: {error}. Only --discard-log is possible");
        }
        ensure!(
            self.undecided.end <= self.look.size,
            "primary storage has {} ({} bytes), the log writes up to byte {}: make it that long first",
            rounded(self.look.size),
            self.look.size,
            self.undecided.end
        );
        let noted = self.settle(SidecarState::Dirty)?;
        self.pool.use_log(self.number, &self.undecided, noted)
    }

    /// Gives the log up; `amount` is how much that is.
    ///
    /// # Errors
    /// The amount is another one, or a medium's.
    pub fn discard_log(mut self, amount: &str) -> Result<()> {
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
            "'{amount}' is not what the log of disk '{}' holds: {} ({} bytes in {} writes) would be lost. If that is \
             agreed to: --discard-log {}",
            self.record.name,
            rounded(bytes),
            bytes,
            self.undecided.dirty.records,
            self.amount()
        );
        let noted = self.settle(SidecarState::Dirty)?;
        self.pool.discard_log(self.number, &self.undecided, noted)?;
        // Now nothing is dirty any more.
        self.write_sidecar(SidecarState::Clean)
    }

    /// Makes primary storage the disk's own again: no generation that its sidecar had is used again, the sidecar is ours,
    /// and what it looks like now is what the next start compares with.
    fn settle(&mut self, state: SidecarState) -> Result<Settled> {
        if let Found::There(found) = &self.found
            && found.disk == self.record.uuid
        {
            let seen = found.generation;
            self.pool.pass_generation(self.number, seen)?;
        }
        self.record = self.pool.record(self.number);
        self.write_sidecar(state)?;
        let session = (self.record.uuid, self.record.committed);
        let size = self.look.size;
        let last = self
            .witness
            .as_ref()
            .and_then(|witness| sample::last_look(witness, session, size, LOOK_MAX));
        let looked = last.unwrap_or(Evidence {
            size: Some(size),
            is_final: self.witness.is_none(),
            ..Evidence::default()
        });
        let evidence = Evidence { sidecar: self.record.pending, ..looked };
        Ok(Settled { size, evidence, identity: identity(self.witness.as_ref()) })
    }

    fn write_sidecar(&self, state: SidecarState) -> Result<()> {
        let is_written = self.witness.as_ref().is_some_and(|witness| !witness.is_read_only());
        let Some(path) = self.place.path().filter(|_| is_written) else { return Ok(()) };
        let sidecar = Sidecar {
            disk: self.record.uuid,
            pool: self.pool.uuid(),
            generation: self.record.pending,
            state,
            date: host::now(),
            host: host::name(),
            name: self.record.name.clone(),
        };
        sidecar::write(path, &sidecar).map(|_| ()).context("cannot write its sidecar")
    }
}
