//! Destaging that is held for a moment, with primary storage alone a crash-consistent image: for a snapshot that knows of no
//! journal, or a disk that becomes longer.
//!
//! What has begun is finished: the batch, a window in the journal, what a lost session took. It is flushed, and all records
//! are retired. Then primary storage *stands still*. The guest goes on: its writes go into the log, and wait when it is full.

use super::Destager;
use crate::ids::Nanos;
use crate::write_back::WriteBack;

/// Whether something new may be begun, and whether primary storage stood still meanwhile.
#[derive(Debug, Default)]
pub(in crate::write_back) struct Hold {
    /// By an administrator.
    pub(in crate::write_back) paused: bool,
    /// Nothing before this time.
    pub(super) until: Nanos,
    /// Grows whenever primary storage begins to change, or is allowed to.
    pub(super) stirred: u64,
}

impl Destager {
    /// True while no new batch is begun.
    pub(super) fn is_held(&self, now: Nanos) -> bool {
        now < self.hold.until
    }

    /// True when nothing that was begun is left to do.
    fn has_finished(&self) -> bool {
        let is_flushed =
            self.reached.flushed == self.reached.done && self.flushes.flushing.is_none();
        let is_quiet = !self.batch.is_active() && !self.has_ahead() && self.is_at_rest();
        is_flushed && is_quiet && !self.flushes.redo && self.is_retired()
    }
}

impl WriteBack {
    /// Begins nothing new before that time, nor before one that was given earlier.
    pub(crate) fn hold_destaging(&mut self, until: Nanos) {
        // All writes wait until a log that failed is destaged.
        if self.log.health.failed.is_none() {
            self.destager.hold.until = self.destager.hold.until.max(until);
        }
    }

    /// Goes on; true when it was held.
    pub(crate) fn end_hold(&mut self, now: Nanos) -> bool {
        let was_held = self.destager.is_held(now);
        self.destager.hold.until = Nanos(0);
        self.destager.hold.stirred += 1;
        was_held
    }

    /// True when no journal has anything that somebody would put in place, nor is about to.
    pub(crate) fn journal_is_empty(&self) -> bool {
        self.destager.is_retired() && !self.destager.has_ahead()
    }

    /// While destaging is held and primary storage stands still: alone, it is a crash-consistent image then. The number is the
    /// same as long as it has done so all the time.
    pub(crate) fn stillness(&self, now: Nanos) -> Option<u64> {
        let has_failed = self.log.health.failed.is_some();
        let is_still = !has_failed && self.destager.is_held(now) && self.destager.has_finished();
        is_still.then_some(self.destager.hold.stirred)
    }

    /// True while nothing new is begun.
    pub(crate) fn is_held(&self, now: Nanos) -> bool {
        self.destager.is_held(now)
    }
}
