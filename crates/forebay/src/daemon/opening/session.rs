//! A disk in its pool: its record is found or made, a session begins under a new generation, and is committed.
//!
//! Others who use the pool wait for short steps only: what takes long reads a snapshot.

use std::sync::{Arc, MutexGuard};

use anyhow::Result;
use forebay_backends::Properties;
use forebay_core::config::GridOffset;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::ids::{Generation, SegmentId, Uuid};
use forebay_host::fence::{self, Fence, LastWrite, names};
use forebay_host::pool::owner::PoolHandle;
use forebay_host::pool::staging::Staging;
use forebay_host::pool::{self, DiskWish, OpenedLog, Pool, SharedPool, Snapshot};
use forebay_shard::LogShare;

use super::{Identified, Opening};
use crate::config::DiskSpec;
use crate::daemon::reservations::Kept;

/// An open pool, and the way to its owner.
pub(super) struct PoolDoor {
    pub(super) shared: SharedPool,
    pub(super) owner: PoolHandle,
}

/// A disk that its pool has a record of.
pub(super) struct Admitted {
    pub(super) pool: PoolDoor,
    pub(super) number: DiskNumber,
    /// What its record is to say once the session is committed.
    pub(super) wish: DiskWish,
    pub(super) reservations: Kept,
    /// The pool at that time.
    found: Snapshot,
}

/// A session that has begun, and is not committed.
pub(super) struct Session {
    pub(super) fence: Fence,
    /// The pool as the session began.
    pub(super) begun: Snapshot,
    /// Nothing was written under it yet.
    pub(super) generation: Generation,
    /// May what a former run cached be used, as far as its ring goes?
    pub(super) keeps_cache: bool,
    pub(super) evidence: Option<String>,
    /// Storage may still carry out what a former process sent.
    pub(super) is_unanswered: bool,
    pub(super) disk: Admitted,
}

impl PoolDoor {
    /// The pool, for a short step.
    pub(super) fn lock(&self) -> MutexGuard<'_, Pool> {
        pool::lock(&self.shared)
    }
}

impl Opening<'_> {
    /// Finds or makes the record of the disk.
    ///
    /// # Errors
    /// Another disk has left what must not get lost, its reservations cannot be read, or the medium's.
    pub(super) fn admit(&self, who: &Identified, pool: PoolDoor) -> Result<Admitted> {
        // Without it a start with another pool says which this one is, and not where.
        let (uuid, path) = {
            let pool = pool.lock();
            (pool.uuid(), pool.path().to_owned())
        };
        let _ = names::remember_pool(uuid, &path, self.state);
        let identity = fence::identity(who.probe.as_ref());
        let wish = wish(self.spec, self.backend.properties(), identity);
        let number = pool.lock().admit(&wish)?;
        let found = pool.lock().snapshot();
        let reservations = Kept::find(&found, number, &pool.owner)?;
        Ok(Admitted { pool, number, wish, reservations, found })
    }

    /// Judges whether primary storage is what the disk left, and begins a session under a new generation.
    ///
    /// # Errors
    /// It is not, and an administrator has to decide. Or it cannot be looked at, or the medium's.
    pub(super) fn begin_session(&mut self, disk: Admitted, who: Identified) -> Result<Session> {
        let Admitted { pool, number, wish, reservations, found } = &disk;
        let (number, who) = (*number, (who.probe, who.place));
        let examined = fence::examine(found, number, wish, who, self.state)?;
        let mut examined = examined.note(&mut pool.lock(), number)?;
        // Before the generation: a start that dies meanwhile does it again.
        let before = || pool.lock().begin_repair(number);
        examined.put_journal_in_place(&found.record(number), before, &mut self.notes)?;
        let is_unanswered = examined.is_unanswered();
        self.hold_changes(is_unanswered);
        self.take_samples()?;
        self.notes.extend(examined.notes());
        self.notes.extend(reservations.note());
        let (evidence, keeps_cache) = (examined.evidence(), examined.keeps_cache());
        let generation = examined.begin_session(&mut pool.lock(), number)?;
        let begun = pool.lock().snapshot();
        let may_log = wish.log_bytes > 0;
        let fence = examined.begin(&begun, number, may_log, &mut self.notes)?;
        Ok(Session { fence, begun, generation, keeps_cache, evidence, is_unanswered, disk })
    }

    /// The disk is served from now on: what a former run left, and nobody needs any more, is given up.
    /// Returns the note of the last write, for its shard.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn commit(
        &mut self,
        session: &mut Session,
        log: Option<&OpenedLog>,
    ) -> Result<Option<Arc<LastWrite>>> {
        let Session { fence, begun, disk, .. } = session;
        let needed: Vec<SegmentId> = log.map_or_else(Vec::new, OpenedLog::segments);
        let is_dirty = log.is_some_and(OpenedLog::is_dirty);
        let found = fence.found(&begun.record(disk.number), is_dirty);
        disk.pool.lock().commit_session(disk.number, &disk.wish, &needed, found)?;
        fence.follow(log.is_some(), &mut self.notes)
    }
}

impl Session {
    /// The disk's log, for its shard.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn log_share(&self, log: OpenedLog, staging: Option<Staging>) -> Result<LogShare> {
        let number = self.disk.number;
        Ok(LogShare {
            file: self.begun.share_file(),
            pool: log.pool,
            number,
            disk: log.disk,
            nonce: log.nonce,
            progress_version: log.progress_version,
            leases: self.disk.pool.lock().log_leases(number),
            owner: self.disk.pool.owner.clone(),
            staging,
            revoker: self.fence.revoker(),
        })
    }
}

/// What the pool is told of the disk.
fn wish(spec: &DiskSpec, properties: &Properties, identity: Uuid) -> DiskWish {
    DiskWish {
        name: spec.name.to_string(),
        uri: spec.backend.clone(),
        identity,
        size: properties.size,
        block_size: spec.block_size,
        grid_offset: match spec.grid_offset.0 {
            GridOffset::Fixed(offset) => Some(offset),
            GridOffset::Auto => None,
        },
        mode: spec.mode.to_string(),
        log_bytes: spec.write_log.as_ref().map_or(0, |log| log.bytes),
        read_only: spec.read_only || properties.read_only,
        is_deferred: spec.write_log.as_ref().is_some_and(|log| log.flush.0),
        is_staged: false,
        is_exclusive: spec.backend_exclusive,
        takes_over: spec.take_over.map(|disk| disk.0),
    }
}
