//! Dropping everything that is cached, because an administrator says so or the disk does not cache any more.
//!
//! ```text
//!   asked ─► sweeping: every block is stale (`stale.rs`) ─► swept ─► the ring knows durably ─► done
//! ```
//! Requests that arrive after it was asked for are not answered from what was there, nor is it kept by those under
//! way. When it is done a restart does not find it either. What is dirty stays in the log.

use super::stale::PartNumber;
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::requests::in_flight::Job;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Dropping {
    /// Nobody asked for it, or it is done.
    #[default]
    No,
    /// This part has to end; so many blocks had been dropped before.
    Sweeping(PartNumber, u64),
    /// Everything is empty. The ring has to know of these changes; so many blocks were dropped.
    Swept(u64, u64),
}

impl Parts {
    /// Begins to drop everything that is cached; [`Engine::dropped`] tells when that is done.
    pub(in crate::engine) fn drop_cache(&mut self, cx: &mut Cx<'_>) {
        let part = self.begin_drop(false, cx);
        self.cache.dropping = Dropping::Sweeping(part, self.cache.stale.dropped());
        self.run(cx);
    }

    /// The same for who is running, and waits for nothing.
    pub(super) fn begin_drop(&mut self, at_risk: bool, cx: &mut Cx<'_>) -> PartNumber {
        for request in self.requests.table.iter_mut() {
            if let Job::Read(job) = &mut request.job {
                // It may hold bytes of before.
                job.admit = false;
            }
        }
        let last = cx.grid.block_of(cx.config.disk().end - 1);
        self.begin_stale((0, last.0 + 1), at_risk, cx)
    }

    /// How many blocks were dropped, once, when everything is.
    pub(in crate::engine) fn dropped(&mut self) -> Option<u64> {
        let Dropping::Swept(changes, blocks) = self.cache.dropping else { return None };
        if !self.index_has_recorded(changes) {
            return None;
        }
        self.cache.dropping = Dropping::No;
        Some(blocks)
    }

    /// More was dropped.
    pub(super) fn note_dropped(&mut self) {
        if let Dropping::Sweeping(part, before) = self.cache.dropping
            && self.cache.stale.has_ended(part)
        {
            let changes = self.cache.changes();
            self.cache.dropping = Dropping::Swept(changes, self.cache.stale.dropped() - before);
            // It is asked to record that.
            self.index_has_recorded(changes);
        }
    }

    /// True when the index knows of so many changes durably, or is not believed; it is asked to otherwise.
    fn index_has_recorded(&mut self, changes: u64) -> bool {
        self.cache_index.as_mut().is_none_or(|index| index.is_recorded(changes))
    }
}
