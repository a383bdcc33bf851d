//! Dropping everything that is cached (`cache/dropping.rs`).
//!
//! Requests that arrive after it was asked for are not answered from what was there, nor is it kept by those under
//! way. When it is done a restart does not find it either. What is dirty stays in the log.

use crate::cx::Cx;
use crate::engine::Parts;
use crate::requests::in_flight::Job;

impl Parts {
    /// Begins to drop everything that is cached; [`Engine::dropped`](super::Engine::dropped) tells when that is done.
    pub(in crate::engine) fn drop_cache(&mut self, cx: &mut Cx<'_>) {
        self.forbid_admission();
        self.cache.begin_drop(cx);
        self.run(cx);
    }

    /// The disk does not cache any more.
    pub(in crate::engine) fn leave_cache(&mut self, cx: &mut Cx<'_>) {
        self.forbid_admission();
        self.cache.drop_all(cx);
    }

    /// Reads under way may hold bytes of before: they put nothing into the cache, and give nothing to those that came later
    /// and wait for them.
    fn forbid_admission(&mut self) {
        for request in self.requests.table.iter_mut() {
            if let Job::Read(job) = &mut request.job {
                (job.admit, job.is_doubtful) = (false, true);
            }
        }
    }

    /// How many blocks were dropped, once, when everything is.
    pub(in crate::engine) fn dropped(&mut self) -> Option<u64> {
        let changes = self.cache.swept()?;
        self.is_recorded(changes).then(|| self.cache.end_drop())
    }

    /// Drops more of what is stale.
    pub(in crate::engine) fn drop_more(&mut self, cx: &mut Cx<'_>) {
        if let Some(changes) = self.cache.drop_more(cx) {
            // The index is asked to record that.
            self.is_recorded(changes);
        }
    }
}
