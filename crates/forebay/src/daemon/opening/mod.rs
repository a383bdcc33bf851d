//! Opening a disk: a list of steps, each of which yields what later ones need.
//!
//! | step | yields | dropped, it |
//! |---|---|---|
//! | [`Opening::primary_storage`] | the backend, its lock, who it is | closes and unlocks primary storage |
//! | [`Opening::admit`] | [`Admitted`](session::Admitted): the disk's number in its pool, its reservations | leaves the record to the next start |
//! | [`Opening::begin_session`] | [`Session`](session::Session): a generation that nothing was written under, the fence | leaves the generation unused for good |
//! | [`Opening::recover_log`] | the write log, ready to go on | lets go of the staging file |
//! | [`Opening::make_journal`] | the destage journal, empty, named by the sidecar | leaves it to the next start |
//! | [`Opening::take_cache`] | the disk's part of flash | leaves it to the disk |
//! | [`Opening::make_engine`] | the engine, with the log and what the cache kept | frees its memory |
//! | [`memory`](memory::memory) | the memory for data | frees it |
//! | [`Opening::commit`] | the note of the last write, for the shard | leaves it, as a crash does |
//!
//! A disk without flash needs the first step, the engine and its memory ([`Opening::without_flash`]). When a step fails, what
//! the steps before it have yielded is dropped, the last first.
//!
//! **Invariant:** before the session is committed nothing is given up that a former run left, but a cache, and a sample of primary
//! storage that is repaired. A start that fails or dies at any step is followed by another one that finds the same.

use std::path::Path;

use anyhow::Result;
use forebay_backends::{Backend, Probe};
use forebay_core::config::Config;
use forebay_host::events::Severity;
use forebay_host::fence::{Alone, DiskPlace, Guard, SidecarPlace, UnreportedLoss};
use forebay_host::pool::SharedPool;
use forebay_host::pool::owner::PoolHandle;

use crate::config::DiskSpec;

mod cache;
mod journal;
mod log;
mod memory;
mod opened;
mod primary;
mod session;

pub(super) use memory::{check_memory, check_spec, ram_room};
use opened::OnFlash;
pub(super) use opened::Opened;
use session::PoolDoor;

/// What is worth telling of how a disk was opened.
type Notes = Vec<(Severity, String)>;

/// A disk that is being opened. Its fields are dropped in this order.
struct Opening<'a> {
    spec: &'a DiskSpec,
    /// The state folder.
    state: Option<&'a Path>,
    /// The engine that is to be made; steps change it as they find what it goes on with.
    config: Config,
    notes: Notes,
    /// A loss that a former run has told nobody of.
    unreported_loss: UnreportedLoss,
    /// What keeps other disks of this host from primary storage.
    lock: Guard,
    backend: Box<dyn Backend>,
}

/// Who primary storage is, and where its sidecar is.
struct Identified {
    probe: Option<Probe>,
    place: SidecarPlace,
}

/// Opens a disk; may wait for primary storage and flash.
///
/// # Errors
/// The step that failed, and why.
pub(super) fn open(
    spec: &DiskSpec,
    pool: Option<(SharedPool, PoolHandle)>,
    state: Option<&Path>,
) -> Result<Opened> {
    let (opening, who) = Opening::primary_storage(spec, state)?;
    match pool {
        None => opening.without_flash(who),
        Some((shared, owner)) => opening.on_flash(who, PoolDoor { shared, owner }),
    }
}

impl Opening<'_> {
    fn without_flash(mut self, who: Identified) -> Result<Opened> {
        let engine = memory::engine(self.config)?;
        let memory = memory::memory(&engine, None)?;
        let takes_over = self.spec.take_over.map(|disk| disk.0);
        let (name, Identified { probe, place }) = (&self.spec.name.0, who);
        self.take_samples()?;
        // Nothing fails after this: it may take the place of another disk.
        let alone = Alone::begin(probe, place, name, takes_over, self.state, &mut self.notes)?;
        self.hold_changes(alone.is_unanswered);
        Ok(Opened {
            engine,
            memory,
            backend: self.backend,
            on_flash: None,
            unguarded: self.lock.missing().map(str::to_owned),
            unreported_loss: self.unreported_loss,
            place: Some(DiskPlace::new(None, alone.fence, self.lock)),
            uuid: None,
            reservations: None,
            notes: self.notes,
        })
    }

    fn on_flash(mut self, who: Identified, pool: PoolDoor) -> Result<Opened> {
        let disk = self.admit(&who, pool)?;
        let mut session = self.begin_session(disk, who)?;
        let mut log = self.recover_log(&mut session)?;
        let journal = self.make_journal(&mut session, log.as_ref());
        let cache = self.take_cache(&session)?;
        let (engine, share) = self.make_engine(&session, log.as_ref(), cache)?;
        let staging = log.as_mut().and_then(|log| log.staging.take());
        let memory = memory::memory(&engine, staging.as_ref())?;
        let last_write = self.commit(&mut session, log.as_ref())?;
        let log = log.map(|log| session.log_share(log, staging)).transpose()?;
        let session::Session { fence, begun, evidence, disk, .. } = session;
        let is_direct = begun.is_direct();
        let in_pool = Some((disk.pool.owner, disk.number));
        Ok(Opened {
            engine,
            memory,
            backend: self.backend,
            on_flash: Some(OnFlash { cache: share, is_direct, log, journal, last_write, evidence }),
            unguarded: self.lock.missing().map(str::to_owned),
            unreported_loss: self.unreported_loss,
            place: Some(DiskPlace::new(in_pool, Some(fence), self.lock)),
            uuid: Some(begun.disk_uuid(disk.number)),
            reservations: Some(disk.reservations),
            notes: self.notes,
        })
    }
}
