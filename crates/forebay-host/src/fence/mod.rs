//! The fence against stale caches: has somebody else written to primary storage since the disk left it?
//!
//! ```text
//!   start   examine ─► note ── refused: needs `disk resolve` (durably)
//!              │
//!           generation + 2 pending (durable) ─► begin: sidecar ─► … recovery … ─► committed ─► follow: last write
//!   served     shard notes writes, a thread looks at primary storage                  (last_write.rs, daemon/watch.rs)
//!   end     last look and samples ─► record closed (durable) ─► sidecar closed ─► its note removed
//! ```
//! [`forebay_core::flash_pool::fence`] judges without I/O; `examined.rs` gathers what it judges, and this keeps the sidecar.
//!
//! **Invariants**
//! - A sidecar never says less than the pool: that the log may be dirty stands there before the first request and
//!   until the pool says durably that it is not.
//! - What a session found and judged is given up (the old note of the last write, the old evidence) only when the session is
//!   committed, so that a start that dies in between is judged from the same facts. A cache that they speak against goes
//!   before ([`Examined::note`]), and the sample of primary storage that is about to be repaired.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forebay_backends::{Look, Probe};
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, Evidence};
use forebay_core::flash_pool::sidecar::{Sidecar, SidecarState};
use forebay_core::ids::{Generation, Uuid};
use forebay_core::journal::Medium;

mod alone;
mod claims;
mod detached;
mod disk_place;
mod examined;
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
pub use detached::is_of_the_past;
pub use disk_place::{DiskPlace, Leaving};
pub use examined::{Examined, examine};
pub use last_write::{LastWrite, StartNote};
pub use lock::{Guard, is_in_use, lock, lock_at};
pub use revoke::Revoker;
pub use unreported_loss::UnreportedLoss;
pub use words::Refused;
pub use words::{held, not_noted, unreported_loss, unreported_loss_later};

use super::events::Severity;
use super::journal::Primary;
use super::pool::{EndOfSession, host};
use detached::Detached;
pub(crate) use journal_named::is_of_another;
pub(crate) use sidecar::sync_folder;
pub use sidecar::{SidecarPlace, identity, left_beside, remove, replace};

/// Time that the last look at primary storage may take at the end.
const LEAVE_MAX: Duration = Duration::from_secs(5);

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

    /// Makes durable what a former run has sent there, and what of that can still arrive. Memory has nothing of it. `has_log`: a
    /// log has all that was acknowledged.
    ///
    /// # Errors
    /// It cannot be opened, or fails the flush.
    pub fn flush_primary(&self, is_unanswered: bool, has_log: bool) -> Result<()> {
        let Some(probe) = &self.probe else { return Ok(()) };
        let primary = Primary::of(probe, None, is_unanswered);
        let mut primary = primary.context("cannot open primary storage to flush it")?;
        primary.settle();
        let flushed = UnreportedLoss::flush_first(probe, || primary.flush(), || has_log);
        flushed.context("primary storage fails a flush")
    }

    /// What the pool notes when the session is committed: how it found primary storage, and whether a log that `is_dirty`
    /// goes on on weak evidence.
    pub fn found(&self, record: &DiskRecord, is_dirty: bool) -> (Evidence, bool) {
        let written = self.sidecar.map(|_| self.generation);
        // That nobody wrote since proves nothing of the time before.
        let is_still_weak = is_dirty && record.flags.has(DiskFlags::WEAK);
        let evidence = self.seen(written.unwrap_or(record.evidence.sidecar));
        (evidence, self.is_weak || is_still_weak)
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
            let sidecar = self.revoker.as_ref().map(|revoker| revoker.path());
            self.last_write = last_write.map(|note| Arc::new(note.beside(sidecar)));
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
            last_write.accept(modified, Instant::now());
        }
        self.seen(self.generation)
    }

    /// The disk is served no more, nothing of it is under way: a last look, for the next start.
    fn last_look(&self) -> Option<Evidence> {
        let session = (self.disk, self.generation);
        sample::last_look(self.probe.as_ref()?, session, self.look.size, LEAVE_MAX)
    }

    /// The pool says durably how the disk was left; now the sidecar does, if it still is this session's.
    fn leave(&mut self, end: EndOfSession, is_quiet: bool, looked: bool) -> std::io::Result<()> {
        if looked && let Some(last_write) = self.last_write.take() {
            last_write.remove();
        }
        // What may still be carried out is not over.
        if self.place.is_apart() && !is_quiet {
            return Ok(());
        }
        if matches!(end, EndOfSession::Detached) {
            // Without it an old copy of the pool is not told from a new one, and nothing else depends on it.
            let _ = self.detached.note(self.disk);
        }
        if self.place.is_apart() && self.sidecar.is_none() {
            return Ok(());
        }
        match end {
            EndOfSession::Clean => self.write_sidecar(SidecarState::Clean),
            EndOfSession::Dirty => self.write_sidecar(SidecarState::Dirty),
            EndOfSession::Failed | EndOfSession::Lost => Ok(()),
            EndOfSession::Detached => {
                if let Some(last_write) = self.last_write.take() {
                    last_write.remove();
                }
                self.revoker.as_ref().map_or(Ok(()), |revoker| revoker.remove())
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
