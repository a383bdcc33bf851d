//! Where a disk has its flash, its fence and the lock of its primary storage, if it has them, as long as it is served.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use forebay_backends::Look;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::ids::Sequence;

use super::revoke::is_not_ours;
use super::{Fence, Guard, LastWrite, words};
use crate::pool::owner::{Close, PoolHandle};
use crate::pool::{Area, EndOfSession, staging};

/// See the module.
#[derive(Debug)]
pub struct DiskPlace {
    pool: Option<(PoolHandle, DiskNumber)>,
    /// Until it is left. Who asks does not wait for flash, as who holds `stay` may.
    last_write: Mutex<Option<Arc<LastWrite>>>,
    stay: Mutex<Stay>,
}

/// How a disk is left.
#[derive(Clone, Copy, Debug)]
pub struct Leaving {
    /// How its session ends.
    pub end: EndOfSession,
    /// Nothing of it is under way on primary storage.
    pub is_quiet: bool,
    /// The last record of its log.
    pub log_end: Option<Sequence>,
}

#[derive(Debug)]
enum Stay {
    Served(Option<Box<Fence>>, Guard),
    /// It was left, or what kept that from being noted.
    Left(Option<String>),
}

impl DiskPlace {
    /// What a disk has while it is served: its number in a pool, its fence, the lock of its primary storage.
    pub fn new(
        pool: Option<(PoolHandle, DiskNumber)>,
        fence: Option<Fence>,
        lock: Guard,
    ) -> DiskPlace {
        let last_write = fence.as_ref().and_then(|fence| fence.last_write.clone());
        DiskPlace {
            pool,
            last_write: Mutex::new(last_write),
            stay: Mutex::new(Stay::Served(fence.map(Box::new), lock)),
        }
    }

    /// The note of the last write of the disk, where it has one, until it is left. Waits for nothing.
    pub fn last_write(&self) -> Option<Arc<LastWrite>> {
        self.last_write.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where the next run looks for the staging file of its write log, as long as it is served.
    pub fn staging_place(&self) -> Option<PathBuf> {
        match &*self.stay.lock().unwrap_or_else(PoisonError::into_inner) {
            Stay::Served(fence, _) => staging::place(fence.as_ref()?.disk),
            Stay::Left(_) => None,
        }
    }

    /// Primary storage became longer and looks so: notes it durably, before anything is written there.
    ///
    /// # Errors
    /// The medium's, or the disk has ended.
    pub fn grow(&self, look: Look) -> Result<()> {
        let mut stay = self.stay.lock().unwrap_or_else(PoisonError::into_inner);
        let Stay::Served(fence, _) = &mut *stay else { bail!("the disk has ended") };
        let Some(fence) = fence else { return Ok(()) };
        let seen = fence.grow(look);
        match &self.pool {
            Some((pool, number)) => pool.grow(*number, seen),
            None => Ok(()),
        }
    }

    /// Notes durably that somebody else has modified primary storage, or that an administrator has dealt with that.
    ///
    /// # Errors
    /// The medium's, or the disk has ended.
    pub fn set_modified(&self, is_modified: bool) -> Result<()> {
        let stay = self.stay.lock().unwrap_or_else(PoisonError::into_inner);
        let Stay::Served(..) = &*stay else { bail!("the disk has ended") };
        match &self.pool {
            Some((pool, number)) => pool.set_modified(*number, is_modified),
            None => Ok(()),
        }
    }

    /// Its cache on flash has room for `bytes` from now on, and nothing beyond may be believed. `own`: what it brings. Where that
    /// is.
    ///
    /// # Errors
    /// There is not so much, or the medium's, or the disk has ended: what it had may be somebody else's by now.
    pub fn size_cache(&self, bytes: u64, own: u64) -> Result<Vec<Area>> {
        let stay = self.stay.lock().unwrap_or_else(PoisonError::into_inner);
        let Stay::Served(..) = &*stay else { bail!("the disk has ended") };
        let (pool, number) = self.pool.as_ref().context("the disk has no flash")?;
        pool.size_cache(*number, bytes, own)
    }

    /// Bytes of a segment of its pool, where it has one.
    pub fn segment_size(&self) -> Option<u64> {
        self.pool.as_ref().map(|(pool, _)| pool.segment_size())
    }

    /// The number of its disk in the pool, where it has one.
    pub fn number(&self) -> Option<DiskNumber> {
        self.pool.as_ref().map(|(_, number)| *number)
    }

    /// The disk is served no more and left so. Lets go of primary storage. Who comes second, as a detach and the daemon's end
    /// may, waits for the first and is told the same. Returns what is worth a warning, once.
    ///
    /// `is_modified` says whether somebody else has modified primary storage, and no administrator has dealt with that. It is
    /// asked after the last look: what is noted of a change after that comes too late here.
    ///
    /// # Errors
    /// The medium's.
    pub fn leave(
        &self,
        leaving: Leaving,
        is_modified: impl FnOnce() -> bool,
    ) -> Result<Option<String>> {
        let mut stay = self.stay.lock().unwrap_or_else(PoisonError::into_inner);
        *self.last_write.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let left = match std::mem::replace(&mut *stay, Stay::Left(None)) {
            Stay::Served(Some(fence), _lock) => self.note(fence, leaving, is_modified),
            Stay::Served(None, _) => Ok(None),
            Stay::Left(None) => Ok(None),
            Stay::Left(Some(why)) => {
                *stay = Stay::Left(Some(why.clone()));
                bail!(why)
            }
        };
        if let Err(error) = &left {
            *stay = Stay::Left(Some(format!("{error:#}")));
        }
        left
    }

    /// Notes in its pool how it was left, where it has one; false when that cannot be written.
    fn close(&self, close: Close) -> Result<bool> {
        self.pool.as_ref().map_or(Ok(true), |(pool, number)| pool.close(*number, close))
    }

    /// Notes how it was left: in the pool, then in the sidecar.
    fn note(
        &self,
        mut fence: Box<Fence>,
        Leaving { end, is_quiet, log_end }: Leaving,
        is_modified: impl FnOnce() -> bool,
    ) -> Result<Option<String>> {
        let can_look = self.pool.is_some()
            && is_quiet
            && matches!(end, EndOfSession::Clean | EndOfSession::Dirty);
        let last = if can_look { fence.last_look() } else { None };
        let looked = last.is_some();
        let is_modified = is_modified();
        if end == EndOfSession::Detached {
            // First an end in order: who dies before the record and the sidecar are gone leaves a disk that may go on in
            // this pool or in another one.
            let clean = EndOfSession::Clean;
            self.close(Close { end: clean, is_quiet, last: None, log_end, is_modified })?;
            let _ = fence.leave(clean, is_quiet, false);
        }
        let is_noted = self.close(Close { end, is_quiet, last, log_end, is_modified })?;
        // A pool that cannot be written does not say what was seen last, nor that its log is what goes on: both stay as while
        // the disk was served.
        let looked = looked && is_noted;
        let end = if end == EndOfSession::Dirty && !is_noted { EndOfSession::Failed } else { end };
        match (fence.leave(end, is_quiet, looked), end) {
            (Ok(()), _) => Ok(None),
            // Nothing of this disk is there, neither to be changed nor to be removed.
            (Err(error), _) if is_not_ours(&error) => Ok(Some(error.to_string())),
            // The pool knows how it was left. What the sidecar said while it was served is never less than that.
            (Err(error), EndOfSession::Clean | EndOfSession::Dirty) => {
                Ok(Some(words::sidecar_left(fence.sidecar.is_some(), &error)))
            }
            (Err(error), EndOfSession::Detached | EndOfSession::Failed | EndOfSession::Lost) => {
                Err(anyhow::Error::new(error).context("cannot remove its sidecar"))
            }
        }
    }
}
