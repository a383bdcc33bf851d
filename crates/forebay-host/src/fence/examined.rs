//! What is found of primary storage, its sidecar and the pool before a session begins, and what follows from that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, SessionEnd};
use forebay_core::flash_pool::fence::{
    self, Follows, Holdings, Known, Samples, SidecarFound, Timestamp, Verdict, is_claimed, judge,
};
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::ids::{Generation, Uuid};

use super::claims::{check_left_behind, check_readable};
use super::detached::Detached;
use super::journal_named::{self, check_torn};
use super::sidecar::{self, Found, SidecarPlace, identity};
use super::words::{self, Refused};
use super::{Fence, UnreportedLoss, last_write, names, sample};
use crate::events::Severity;
use crate::pool::{DiskWish, Pool};

/// Time that samples may take at start.
const EXAMINE_MAX: Duration = Duration::from_secs(5);

/// What was found before a disk's session begins.
pub struct Examined {
    pub(super) probe: Option<Probe>,
    pub(super) place: SidecarPlace,
    pub(super) look: Look,
    pub(super) verdict: Verdict,
    pub(super) follows: Follows,
    pub(super) is_dirty: bool,
    /// What primary storage was served as before, of a disk that is new.
    pub(super) former: Option<Uuid>,
    pub(super) is_unanswered: bool,
    pub(super) refused: Option<Refused>,
    pub(super) detached: Detached,
    /// The disks whose place it takes.
    pub(super) superseded: Vec<Uuid>,
    /// The sidecar that the disk itself left.
    pub(super) own: Option<Sidecar>,
    /// A sidecar is there that says of no log that it may be dirty.
    pub(super) is_said_clean: bool,
    /// The state folder.
    pub(super) state: Option<PathBuf>,
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
            // One that failed may lack what was sent to primary storage from memory.
            let has_log = || pool.has_log(number) && pool.holds_what_was_sent(number);
            let flushed = UnreportedLoss::flush_first(probe, || probe.flush(), has_log);
            let found = flushed.and_then(|()| probe.look());
            let found = found.context("cannot look at its primary storage")?;
            Look { size: wish.size, ..found }
        }
        None => Look { size: wish.size, modified: None, changed: None },
    };
    let found = sidecar::read(place.path());
    let detached = Detached::of(identity(probe.as_ref()), state);
    // A detach that may not write beside primary storage, or an older sidecar that was put back: this host knows that the disk
    // left nothing.
    let is_over = |there: &Sidecar| {
        there.pool == pool.uuid() && !pool.knows(there.disk) && detached.has(there.disk)
    };
    let claims = |there: &Sidecar| is_claimed(there, Some(record.uuid)) && !is_over(there);
    check_left_behind(probe.as_ref(), wish.takes_over, state, claims)?;
    if let Found::There(there) = &found
        && claims(there)
        && wish.takes_over != Some(there.disk)
    {
        let is_unknown_here = there.pool == pool.uuid() && !pool.knows(there.disk);
        return Err(match is_unknown_here {
            true => words::old_flash(there, pool.path()).into(),
            false => words::claimed(there, &place, state).into(),
        });
    }
    if record.committed == Generation(0) {
        check_readable(&found, &place)?;
    }
    if let Found::There(there) = &found
        && there.disk != record.uuid
    {
        check_torn(there, probe.as_ref(), &place)?;
    }
    let known =
        Known { is_detached: detached.has(record.uuid), ..known(pool, &record, look.modified) };
    let samples = sample::compare(probe.as_ref(), &record, look.size, EXAMINE_MAX);
    let (modified, changed) = (look.modified, look.changed);
    let sidecar = judged(&found, &place, &known);
    // Only an image has a sidecar beside it, which goes where the image goes.
    let is_image = probe.as_ref().is_some_and(|probe| probe.sidecar().is_some());
    let (now, then) = (wish.identity, record.identity);
    let is_elsewhere = is_image && ![now, then].contains(&Uuid::NIL) && now != then;
    let size = look.size;
    let there = fence::Found { size, modified, changed, sidecar, samples, is_elsewhere };
    let mut verdict = judge(&known, &there);
    let is_unresolved = record.flags.has(DiskFlags::UNRESOLVED);
    // A first start that died may have leased segments, and has written nothing there.
    let needs_log = is_unresolved || verdict != Verdict::Strong;
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
/// flash, which died, raises the generation by one, and each other session by two. The flash knows nothing of its end, and that
/// is never one with a dirty log.
fn is_newer(own: &Sidecar, record: &DiskRecord) -> bool {
    let ahead = own.generation.0.saturating_sub(record.pending.0);
    let may_be_dirty = own.state.may_be_dirty();
    let is_end = own.state == SidecarState::Dirty && own.generation > ended(record);
    match record.session {
        SessionEnd::Clean => ahead > 0 && may_be_dirty || is_end,
        SessionEnd::Running => ahead > 1 && may_be_dirty || is_end,
    }
}

/// No session above this one has ended, as far as the record tells.
fn ended(record: &DiskRecord) -> Generation {
    // An administrator's decision is final evidence of a session that was killed.
    let is_running = record.session == SessionEnd::Running && !record.evidence.is_final;
    match is_running {
        true => Generation(record.committed.0.saturating_sub(1)),
        false => record.committed.max(record.evidence.sidecar),
    }
}

/// The disks whose place is taken by one that finds this sidecar, and was told to take over from another one. What they have on
/// flash is of the past.
pub(super) fn superseded(found: &Found, takes_over: Option<Uuid>) -> impl Iterator<Item = Uuid> {
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
    Known {
        disk: record.uuid,
        pool: pool.uuid(),
        is_new: record.committed == Generation(0),
        sidecar: record.evidence.sidecar,
        pending: record.pending,
        ended: ended(record),
        size: record.size,
        times: last_write::times(record, modified),
        is_detached: false,
        is_modified: record.flags.has(DiskFlags::MODIFIED),
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
