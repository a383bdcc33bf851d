//! Where a disk has its flash, and its fence, as long as it is served.

use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use forebay_core::pool::DiskNumber;

use super::Fence;
use super::watch::Watched;
use crate::daemon::pool::{self, EndOfSession, SharedPool};

/// See the module.
#[derive(Debug)]
pub(in crate::daemon) struct Place {
    pool: SharedPool,
    number: DiskNumber,
    /// Until it is left.
    fence: Mutex<Option<Fence>>,
}

impl Place {
    pub(in crate::daemon) fn new(pool: SharedPool, number: DiskNumber, fence: Fence) -> Place {
        Place { pool, number, fence: Mutex::new(Some(fence)) }
    }

    /// What watches the disk's primary storage, where that tells anything.
    pub(in crate::daemon) fn watched(&self) -> Option<Watched> {
        self.fence.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.watched()
    }

    /// The disk is served no more and left so; `is_quiet` when nothing of it is under way on primary storage. Lets go of
    /// primary storage.
    ///
    /// # Errors
    /// The medium's.
    pub(in crate::daemon) fn leave(&self, end: EndOfSession, is_quiet: bool) -> Result<()> {
        let fence = self.fence.lock().unwrap_or_else(PoisonError::into_inner).take();
        let can_look = is_quiet && matches!(end, EndOfSession::Clean | EndOfSession::Dirty);
        let last = fence.as_ref().filter(|_| can_look).and_then(Fence::last_look);
        let looked = last.is_some();
        pool::lock(&self.pool).close(self.number, end, last)?;
        match fence {
            None => Ok(()),
            Some(mut fence) => fence.leave(end, looked).context("cannot write its sidecar"),
        }
    }
}
