//! The fence against stale caches: has somebody else written to primary storage since the disk left it?
//!
//! ```text
//!   start   examine ─► note ── refused: needs `disk resolve` (durably)
//!              │
//!           generation + 1 pending (durable) ─► begin: sidecar ─► … recovery … ─► committed ─► follow: last write
//!   served     shard notes writes, a thread looks at primary storage                  (last_write.rs, daemon/watch.rs)
//!   end     last look and samples ─► record closed (durable) ─► sidecar closed ─► its note removed
//! ```
//! [`forebay_core::flash_pool::fence`] judges without I/O; this gathers what it judges, and keeps the sidecar.
//!
//! **Invariants**
//! - A sidecar never says less than the pool: that the log may be dirty stands there before the first request and
//!   until the pool says durably that it is not.
//! - What a session found and judged is given up (the old note of the last write, the old evidence) only when the session is
//!   committed, so that a start that dies in between is judged from the same facts. A cache that they speak against goes
//!   before ([`Examined::note`]), and the sample of primary storage that is about to be repaired.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, Evidence, SessionEnd};
use forebay_core::flash_pool::fence::{
    self, Follows, Holdings, Known, Samples, SidecarFound, Timestamp, Verdict, is_claimed, judge,
};
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::ids::{Generation, Uuid};
use forebay_core::journal::Medium;

mod alone;
mod claims;
mod detached;
mod disk_place;
mod journal_named;
mod last_write;
mod lock;
pub mod names;
pub mod resolve;
mod revoke;
mod sample;
mod sidecar;
mod unreported_loss;
mod words;

pub use alone::Alone;
pub use disk_place::DiskPlace;
pub use last_write::{LastWrite, StartNote};
pub use lock::{Guard, is_in_use, lock, lock_at};
pub use revoke::Revoker;
pub use unreported_loss::UnreportedLoss;
pub use words::Refused;
pub use words::{held, not_noted, unreported_loss, unreported_loss_later};

use super::events::Severity;
use super::journal::{self, Primary};
use super::pool::{DiskWish, EndOfSession, Pool, host};
use claims::{check_left_behind, check_readable};
use detached::Detached;
use journal_named::check_torn;
pub(crate) use journal_named::is_of_another;
use sidecar::Found;
pub(crate) use sidecar::sync_folder;
pub use sidecar::{SidecarPlace, identity, left_beside, remove, replace};

/// Time that samples may take at start.
const EXAMINE_MAX: Duration = Duration::from_secs(5);
/// Time that the last look at primary storage may take at the end.
const LEAVE_MAX: Duration = Duration::from_secs(5);

/// What was found before a disk's session begins.
pub struct Examined {
    probe: Option<Probe>,
    place: SidecarPlace,
    look: Look,
    verdict: Verdict,
    follows: Follows,
    is_dirty: bool,
    /// What primary storage was served as before, of a disk that is new.
    former: Option<Uuid>,
    is_unanswered: bool,
    refused: Option<Refused>,
    detached: Detached,
    /// The disks whose place it takes.
    superseded: Vec<Uuid>,
    /// The sidecar that the disk itself left.
    own: Option<Sidecar>,
    /// A sidecar is there that says of no log that it may be dirty.
    is_said_clean: bool,
    /// The state folder.
    state: Option<PathBuf>,
}

/// A disk's fence while it is served.
#[derive(Debug)]
pub struct Fence {
    probe: Option<Probe>,
    place: SidecarPlace,
    look: Look,
    disk: Uuid,
    name: String,
    generation: Generation,
    /// The sidecar as it was written last.
    sidecar: Option<SidecarState>,
    /// One is there that says of no log that it may be dirty.
    is_said_clean: bool,
    ahead_ns: i64,
    is_weak: bool,
    last_write: Option<Arc<LastWrite>>,
    /// For whoever finds that flash is dead.
    revoker: Option<Arc<Revoker>>,
    detached: Detached,
}

/// Judges whether primary storage is what the disk left.
///
/// # Errors
/// The disk must not be served: primary storage belongs to another disk. That it must not because primary storage was
/// changed and the log is dirty is told by [`Examined::note`].
pub fn examine(
    pool: &Pool,
    number: DiskNumber,
    wish: &DiskWish,
    (probe, place): (Option<Probe>, SidecarPlace),
    state: Option<&Path>,
) -> Result<Examined> {
    let record = pool.record(number);
    let look = match &probe {
        Some(probe) => {
            let found = probe.look_durably().context("cannot look at its primary storage")?;
            Look { size: wish.size, ..found }
        }
        None => Look { size: wish.size, modified: None, changed: None },
    };
    let found = sidecar::read(place.path());
    let claims = |there: &Sidecar| {
        is_claimed(there, Some(record.uuid), Some(pool.uuid()), |disk| pool.knows(disk))
    };
    check_left_behind(probe.as_ref(), wish.takes_over, state, claims)?;
    if let Found::There(there) = &found
        && claims(there)
        && wish.takes_over != Some(there.disk)
    {
        return Err(words::claimed(there, &place, state).into());
    }
    if record.committed == Generation(0) {
        check_readable(&found, &place)?;
    }
    if let Found::There(there) = &found
        && there.disk != record.uuid
    {
        check_torn(there, probe.as_ref(), &place)?;
    }
    let detached = Detached::of(identity(probe.as_ref()), state);
    let known =
        Known { is_detached: detached.has(record.uuid), ..known(pool, &record, look.modified) };
    let samples = sample::compare(probe.as_ref(), &record, look.size, EXAMINE_MAX);
    let (modified, changed) = (look.modified, look.changed);
    let sidecar = judged(&found, &place, &known);
    let there = fence::Found { size: look.size, modified, changed, sidecar, samples };
    let mut verdict = judge(&known, &there);
    let is_unresolved = record.flags.has(DiskFlags::UNRESOLVED);
    let needs_log = is_unresolved || !matches!(verdict, Verdict::New | Verdict::Strong);
    let is_dirty = pool.has_log(number) && (!needs_log || pool.dirty(number).is_dirty());
    let own = match &found {
        Found::There(there) if there.disk == record.uuid => Some(there.clone()),
        _ => None,
    };
    let is_whole =
        || own.as_ref().is_none_or(|own| !journal_named::is_torn(own, probe.as_ref(), &place));
    if matches!(verdict, Verdict::Weak(_)) && (wish.is_exclusive || is_dirty) && is_whole() {
        // Log or cache would be used without proof.
        let differ_min = if is_dirty { sample::DIFFER_MIN } else { 1 };
        let samples =
            sample::compare_cached(probe.as_ref(), (pool, number), differ_min, EXAMINE_MAX);
        if samples == Samples::Differ {
            verdict = judge(&known, &fence::Found { samples, ..there });
        }
    }
    let holdings = Holdings { is_dirty, is_unresolved, is_exclusive: wish.is_exclusive };
    let follows = verdict.follows(holdings);
    let is_refused = follows == Follows::Refuse;
    let refused = is_refused.then(|| words::refused(pool, number, verdict, &look, &found));
    // A start that died before it was committed has left a sidecar of this very disk.
    let is_other = |there: &Sidecar| verdict == Verdict::New && there.disk != record.uuid;
    let former = match &found {
        Found::There(there) if is_other(there) => Some(there.disk),
        _ => None,
    };
    let superseded = superseded(&found, wish.takes_over).filter(|other| *other != record.uuid);
    let is_unanswered = record.flags.has(DiskFlags::UNANSWERED) || found.is_open();
    if let Some(own) = &own
        && !is_refused
        && !is_dirty
        && !journal_named::is_put_in_place(verdict, probe.as_ref())
    {
        // Neither the journal nor the log makes it whole.
        check_torn(own, probe.as_ref(), &place)?;
    }
    if let Some(own) = &own
        && !is_dirty
        && is_newer(own, &record)
        && wish.takes_over != Some(record.uuid)
    {
        return Err(words::old_flash(own, pool.path()).into());
    }
    let is_said_clean = matches!(&found, Found::There(there) if !there.state.may_be_dirty());
    let state = state.map(Path::to_owned);
    Ok(Examined {
        probe,
        place,
        look,
        verdict,
        follows,
        is_dirty,
        former,
        is_unanswered,
        refused,
        detached,
        superseded: superseded.collect(),
        own,
        is_said_clean,
        state,
    })
}

/// True when a session of the disk may have left a dirty log of which this pool knows nothing. A session that goes on without its
/// flash, which died, raises the generation by one. The flash knows nothing of its end, and that is never one with a dirty log.
fn is_newer(own: &Sidecar, record: &DiskRecord) -> bool {
    let ahead = own.generation.0.saturating_sub(record.pending.0);
    let has_ended = own.state == SidecarState::Dirty && own.generation >= record.committed;
    match record.session {
        SessionEnd::Clean => ahead > 0 && own.state.may_be_dirty(),
        SessionEnd::Running => {
            ahead > 1 && own.state.may_be_dirty() || has_ended && !record.evidence.is_final
        }
    }
}

/// The disks whose place is taken by one that finds this sidecar, and was told to take over from another one. What they have on
/// flash is of the past.
fn superseded(found: &Found, takes_over: Option<Uuid>) -> impl Iterator<Item = Uuid> {
    let there = match found {
        // A disk without flash has nothing, and another name each time.
        Found::There(there) if there.pool != Uuid::NIL => Some(there.disk),
        _ => None,
    };
    takes_over.into_iter().chain(there)
}

/// The sidecar as the fence judges it. An old one in the state folder tells that the folder was put back, not primary
/// storage.
fn judged<'a>(found: &'a Found, place: &SidecarPlace, known: &Known) -> SidecarFound<'a> {
    match found {
        Found::There(there)
            if place.is_apart()
                && (there.disk, there.pool) == (known.disk, known.pool)
                && there.generation < known.sidecar =>
        {
            SidecarFound::Missing
        }
        _ => found.judged(),
    }
}

/// What the pool knows of the disk, and tmpfs.
fn known(pool: &Pool, record: &DiskRecord, modified: Option<Timestamp>) -> Known {
    // An administrator's decision is final evidence of a session that was killed.
    let is_running = record.session == SessionEnd::Running && !record.evidence.is_final;
    Known {
        disk: record.uuid,
        pool: pool.uuid(),
        is_new: record.committed == Generation(0),
        sidecar: record.evidence.sidecar,
        pending: record.pending,
        running: is_running.then_some(record.committed),
        size: record.size,
        times: last_write::times(record, modified),
        is_detached: false,
    }
}

impl Examined {
    /// Notes in the pool what was found, so that no later start forgets it.
    ///
    /// # Errors
    /// Primary storage was changed and the log is dirty: the disk must not be served. Or the medium's.
    pub fn note(mut self, pool: &mut Pool, number: DiskNumber) -> Result<Examined> {
        if let Some(refused) = self.refused.take() {
            pool.set_unresolved(number)?;
            return Err(refused.into());
        }
        // The session takes over what speaks against the cache: its generation, its sidecar. If this start dies, the next one
        // finds nothing of that.
        if !self.keeps_cache() {
            ensure!(
                pool.void_ring(number),
                "that nobody may believe the disk's cache any more cannot be written to its pool: start Forebay again when the \
                 flash works"
            );
        }
        Ok(self)
    }

    /// True when cached data of a former session may be used.
    pub fn keeps_cache(&self) -> bool {
        matches!(self.follows, Follows::Serve { keeps_cache: true, .. })
    }

    /// True when primary storage may still carry out what a former process sent.
    pub fn is_unanswered(&self) -> bool {
        self.is_unanswered
    }

    /// Takes note that a session begins. What the disk writes from now on is above all that a newer copy of its flash knows.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin_session(&self, pool: &mut Pool, number: DiskNumber) -> Result<Generation> {
        if let Some(own) = &self.own {
            pool.pass_generation(number, own.generation)?;
        }
        pool.begin_session(number)
    }

    /// The evidence, for `disk show`.
    pub fn evidence(&self) -> Option<String> {
        words::evidence(self.verdict)
    }

    /// What is worth telling of it.
    pub fn notes(&self) -> Option<(Severity, String)> {
        let former = self.former.map(words::former);
        former.or_else(|| words::note(self.verdict, self.is_dirty, self.keeps_cache()))
    }

    /// The session begins, whose generation is durable as pending in the pool: the sidecar says so from now on, and the
    /// state folder where it is. `may_log` when its log may become dirty.
    ///
    /// # Errors
    /// The sidecar says that nothing is dirty, and cannot be replaced.
    pub fn begin(
        self,
        pool: &Pool,
        number: DiskNumber,
        may_log: bool,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<Fence> {
        if let Some(probe) = &self.probe {
            // Without it another name of the image does not lead here, and nothing else depends on it.
            let _ = names::remember(probe, self.state.as_deref());
        }
        let record = pool.record(number);
        let is_weak = matches!(self.follows, Follows::Serve { is_weak: true, .. });
        let mut fence = Fence {
            probe: self.probe,
            place: self.place,
            look: self.look,
            disk: record.uuid,
            name: record.name,
            generation: record.pending,
            sidecar: None,
            is_said_clean: self.is_said_clean,
            ahead_ns: 0,
            is_weak,
            last_write: None,
            revoker: None,
            detached: self.detached,
        };
        fence.supersede(self.superseded, notes);
        fence.set_writer(pool.uuid());
        let state =
            if pool.has_log(number) { SidecarState::OpenWithLog } else { SidecarState::Open };
        if let Err(error) = fence.write_sidecar(state) {
            fence.check_not_needed(may_log, &error)?;
            notes.push((Severity::Warning, words::no_sidecar(&fence.place, &error)));
        }
        Ok(fence)
    }
}

impl Fence {
    /// From now on what these disks have on flash is of the past. Their sidecars are written over, and go with a detach.
    fn supersede(
        &self,
        disks: impl IntoIterator<Item = Uuid>,
        notes: &mut Vec<(Severity, String)>,
    ) {
        if self.probe.as_ref().is_none_or(Probe::is_read_only) {
            return;
        }
        for disk in disks {
            if let Err(error) = self.detached.note(disk) {
                notes.push((Severity::Warning, words::not_superseded(&error)));
            }
        }
    }

    /// Makes durable what a former run has sent there, and what of that can still arrive. Memory has nothing of it.
    ///
    /// # Errors
    /// It cannot be opened, or fails the flush.
    pub fn flush_primary(&self, is_unanswered: bool) -> Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let primary = Primary::of(probe, None, is_unanswered);
        let mut primary = primary.context("cannot open primary storage to flush it")?;
        primary.settle();
        primary.flush().context("primary storage fails a flush")
    }

    /// What the pool notes when the session is committed: how it found primary storage, and whether a dirty log goes on
    /// on weak evidence.
    pub fn found(&self, record: &DiskRecord) -> (Evidence, bool) {
        let written = self.sidecar.map(|_| self.generation);
        (self.seen(written.unwrap_or(record.evidence.sidecar)), self.is_weak)
    }

    /// What primary storage looked like when it was looked at.
    fn seen(&self, sidecar: Generation) -> Evidence {
        Evidence {
            size: Some(self.look.size),
            // After a loss of the host nothing says whether a write of ours took a time in the future back.
            modified: self.look.modified.map(|seen| last_write::not_ahead(seen, self.ahead_ns)),
            changed: self.look.changed,
            sample: None,
            is_final: false,
            sidecar,
        }
    }

    /// The session is committed and requests are to come: `has_log` when the log may become dirty. Returns the note of the
    /// last write, for the shard.
    ///
    /// # Errors
    /// The sidecar cannot say what it has to.
    pub fn follow(
        &mut self,
        has_log: bool,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<Option<Arc<LastWrite>>> {
        if has_log
            && self.is_said_clean
            && let Err(error) = self.write_sidecar(SidecarState::OpenWithLog)
        {
            self.check_not_needed(true, &error)?;
            notes.push((Severity::Warning, words::no_sidecar(&self.place, &error)));
        }
        // It lives again: a pool with it was an old copy, and is not any more.
        if let Err(error) = self.detached.forget(self.disk) {
            notes.push((Severity::Warning, words::detach_not_forgotten(&error)));
        }
        if let Some(modified) = self.look.modified
            && let Ok(last_write) =
                LastWrite::begin(self.disk, self.generation, modified, self.ahead_ns)
        {
            self.last_write = last_write.map(Arc::new);
        }
        Ok(self.last_write.clone())
    }

    /// The sidecar could not be written. None is as good as one that cannot be written, but beside an image none may say that
    /// nothing is dirty while the log `may_log`.
    ///
    /// # Errors
    /// The disk must not be served.
    fn check_not_needed(&self, may_log: bool, error: &std::io::Error) -> Result<()> {
        match may_log && self.is_said_clean && !self.place.is_apart() {
            true => Err(words::not_replaced(&self.place, error).into()),
            false => Ok(()),
        }
    }

    /// For whoever finds that flash is dead, where the sidecar can say so.
    pub fn revoker(&self) -> Option<Arc<Revoker>> {
        self.revoker.clone()
    }

    /// An administrator made primary storage longer, which changed what it looks like: what is to be noted of that.
    fn grow(&mut self, look: Look) -> Evidence {
        self.look = look;
        if let (Some(last_write), Some(modified)) = (&self.last_write, look.modified) {
            last_write.accept(modified);
        }
        self.seen(self.generation)
    }

    /// The disk is served no more, nothing of it is under way: a last look, for the next start.
    fn last_look(&self) -> Option<Evidence> {
        let session = (self.disk, self.generation);
        sample::last_look(self.probe.as_ref()?, session, self.look.size, LEAVE_MAX)
    }

    /// The pool says durably how the disk was left; now the sidecar does.
    fn leave(&mut self, end: EndOfSession, is_quiet: bool, looked: bool) -> std::io::Result<()> {
        if looked && let Some(last_write) = self.last_write.take() {
            last_write.remove();
        }
        // What may still be carried out is not over.
        if self.place.is_apart() && (!is_quiet || self.sidecar.is_none()) {
            return Ok(());
        }
        match end {
            EndOfSession::Clean => self.write_sidecar(SidecarState::Clean),
            EndOfSession::Dirty => self.write_sidecar(SidecarState::Dirty),
            EndOfSession::Failed => Ok(()),
            EndOfSession::Detached => {
                if let Some(last_write) = self.last_write.take() {
                    last_write.remove();
                }
                // Without it an old copy of the pool is not told from a new one, and nothing else depends on it.
                let _ = self.detached.note(self.disk);
                match self.written_at() {
                    Some(path) => {
                        sidecar::remove(path)?;
                        // What it has is in place, and no sidecar names it. Not before: a sidecar whose journal is not there
                        // says that primary storage may be torn.
                        let _ = std::fs::remove_file(journal::beside(path));
                        Ok(())
                    }
                    None => Ok(()),
                }
            }
        }
    }

    /// From now on there is somebody who writes the sidecar, where there is a place for one.
    fn set_writer(&mut self, pool: Uuid) {
        let sidecar = Sidecar {
            disk: self.disk,
            pool,
            generation: self.generation,
            state: SidecarState::Open,
            date: host::now(),
            host: host::name(),
            name: self.name.clone(),
            journal: None,
        };
        self.revoker = self.written_at().map(|path| Arc::new(Revoker::new(path, sidecar)));
    }

    /// Where the sidecar is to be written.
    fn written_at(&self) -> Option<&Path> {
        self.probe.as_ref().filter(|probe| !probe.is_read_only())?;
        self.place.path()
    }

    fn write_sidecar(&mut self, state: SidecarState) -> std::io::Result<()> {
        let Some(revoker) = &self.revoker else { return Ok(()) };
        self.place.make_folder()?;
        self.ahead_ns = revoker.write(state)?;
        self.sidecar = Some(state);
        self.is_said_clean = !state.may_be_dirty();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
