//! Somebody else has modified primary storage: whether that was found, who has dealt with it, and what the next start has to know.

use std::time::Instant;

use anyhow::Result;
use forebay_backends::Probe;
use forebay_core::flash_pool::fence::Timestamp;

use super::{ServedDisk, lock};

/// What is known of others who modified primary storage.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Modified {
    /// How often that was found.
    found: u32,
    /// So many of these an administrator has dealt with.
    dealt_with: u32,
    /// The time of primary storage when one began with that, and when it was seen: whoever had left it is dealt with as well.
    accepted: Option<(Timestamp, Instant)>,
}

/// What is said of primary storage that somebody else has modified.
pub(in crate::daemon) const MODIFIED: &str = "primary storage was modified while no write of this disk was under way: if somebody else writes \
    there, what is cached is wrong";

impl ServedDisk {
    /// Somebody has modified primary storage, and no administrator has dealt with it yet.
    pub(in crate::daemon) fn is_modified(&self) -> bool {
        let Modified { found, dealt_with, .. } = *lock(&self.modified);
        found > dealt_with
    }

    /// Somebody has modified primary storage, which has this time since. Notes that for the next start; may wait for flash.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(in crate::daemon) fn note_modified(&self, at: Timestamp) -> Result<()> {
        {
            let mut modified = lock(&self.modified);
            if modified.accepted.is_some_and(|(accepted, _)| accepted == at) {
                return Ok(());
            }
            modified.found += 1;
        }
        self.keep_modified()
    }

    /// Somebody has cut primary storage short, which loses what was behind its end, however long it is after that. Notes that for
    /// the next start; may wait for flash.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(in crate::daemon) fn note_cut_short(&self) -> Result<()> {
        lock(&self.modified).found += 1;
        self.keep_modified()
    }

    /// An administrator begins to deal with everything that others have done to primary storage up to now: how often that was
    /// found.
    pub(in crate::daemon) async fn modified_up_to_now(&self) -> u32 {
        let look = self.look(Probe::look).await.ok();
        let mut modified = lock(&self.modified);
        modified.accepted = look.and_then(|look| Some((look.modified?, Instant::now())));
        modified.found
    }

    /// The time of primary storage that an administrator has dealt with.
    pub(in crate::daemon) fn accepted(&self) -> Option<Timestamp> {
        lock(&self.modified).accepted.map(|(at, _)| at)
    }

    /// An administrator has dealt with what was found so often; what came after that counts. Notes that for the next start; may
    /// wait for flash.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(in crate::daemon) fn deal_with_modified(&self, found: u32) -> Result<()> {
        let accepted = {
            let mut modified = lock(&self.modified);
            modified.dealt_with = modified.dealt_with.max(found);
            modified.accepted
        };
        // What dies before the disk writes again has to leave that, too.
        if let (Some(last_write), Some((at, looked))) = (self.last_write(), accepted) {
            last_write.accept(at, looked);
        }
        self.keep_modified()
    }

    /// Has the pool say whether somebody has modified primary storage.
    ///
    /// # Errors
    /// It cannot be noted.
    pub(in crate::daemon) fn keep_modified(&self) -> Result<()> {
        // Who comes second notes what is so by then.
        let mut noted = lock(&self.is_noted_modified);
        let is_modified = self.is_modified();
        if let Some(place) = self.place.as_ref().filter(|_| *noted != is_modified) {
            place.set_modified(is_modified)?;
            *noted = is_modified;
        }
        Ok(())
    }

    /// It is the same disk as this one, which has ended and was opened again. What others had done to primary storage before is
    /// over where the pool knew of it: nothing of the cache that was there then is believed any more. True when the pool did
    /// not, which is this disk's to [keep](Self::keep_modified) from now on.
    pub(in crate::daemon) fn take_modified_over(&self, before: &ServedDisk) -> bool {
        let mut noted = lock(&before.is_noted_modified);
        let is_taken = before.is_modified() && !*noted;
        if is_taken {
            lock(&self.modified).found += 1;
            *noted = true;
        }
        is_taken
    }

    /// What is said when flash cannot note that somebody has modified primary storage.
    pub(in crate::daemon) fn not_noted(&self, error: &anyhow::Error) -> String {
        format!(
            "its flash cannot note that somebody modified primary storage ({error:#}): the next start may use what is cached. \
             Give 'forebay disk drop-cache {}' before this run ends",
            self.name()
        )
    }
}
