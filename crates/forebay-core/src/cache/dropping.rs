//! Dropping everything that is cached, because an administrator says so or the disk does not cache any more.
//!
//! ```text
//!   asked ─► sweeping: every block is stale (`stale.rs`) ─► swept ─► the index knows durably ─► done
//! ```
//! A flow asks the cache index whether it knows ([`Cache::swept`] has the changes). When it does, a restart does not
//! find what was dropped either.

use super::Cache;
use super::stale::PartNumber;
use crate::cx::Shared;

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropping {
    /// Nobody asked for it, or it is done.
    No,
    /// This part has to end; so many blocks had been dropped before.
    Sweeping(PartNumber, u64),
    /// Everything is empty. The index has to know of these changes; so many blocks were dropped.
    Swept(u64, u64),
}

impl Cache {
    /// Begins to drop everything; [`Cache::end_drop`] tells how much it was.
    pub(crate) fn begin_drop(&mut self, shared: &mut Shared) {
        let part = self.make_all_stale(shared);
        self.dropping = Dropping::Sweeping(part, self.stale.dropped());
    }

    /// The same for who waits for nothing.
    pub(crate) fn drop_all(&mut self, shared: &mut Shared) {
        self.make_all_stale(shared);
    }

    fn make_all_stale(&mut self, shared: &mut Shared) -> PartNumber {
        let last = shared.grid.block_of(shared.config.disk().end - 1);
        self.begin_stale((0, last.0 + 1), false, shared)
    }

    /// More was dropped; changes that the index is to know of now.
    pub(super) fn note_dropped(&mut self) -> Option<u64> {
        let Dropping::Sweeping(part, before) = self.dropping else { return None };
        if !self.stale.has_ended(part) {
            return None;
        }
        let changes = self.changes();
        self.dropping = Dropping::Swept(changes, self.stale.dropped() - before);
        Some(changes)
    }

    /// Everything was dropped when these changes are recorded; `None`: not everything was, or nobody asked.
    pub(crate) fn swept(&self) -> Option<u64> {
        match self.dropping {
            Dropping::No | Dropping::Sweeping(..) => None,
            Dropping::Swept(changes, _) => Some(changes),
        }
    }

    /// They are recorded: how many blocks were dropped.
    pub(crate) fn end_drop(&mut self) -> u64 {
        match std::mem::replace(&mut self.dropping, Dropping::No) {
            Dropping::No | Dropping::Sweeping(..) => 0,
            Dropping::Swept(_, blocks) => blocks,
        }
    }
}
