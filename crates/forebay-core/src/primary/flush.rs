//! Flushes of primary storage: one at a time, shared by all who wait for it.
//!
//! ```text
//!  FLUSH, FUA ─► waiting ─► covered by the flush in flight ─► ended
//!                  └─ the next flush starts when the one in flight ended
//! ```
//! A flush in flight may have passed a write that completed meanwhile. So a request that comes then waits for
//! the next one.

use crate::action::{IoOp, Target};
use crate::cache_index::PrimaryFlushes;
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::table::Key;

/// Pause after a flush that failed and that nobody waited for.
const RETRY: Nanos = Nanos::from_millis(1_000);

/// See the module.
#[derive(Debug)]
pub(super) struct Flushes {
    /// Requests that need a flush not started yet.
    waiting: Vec<Key>,
    /// Requests that the flush in flight will cover.
    covered: Vec<Key>,
    is_in_flight: bool,
    /// Flushes that were started, and the number of the last one that succeeded.
    starts: u64,
    succeeded: u64,
    /// The number of the last flush that failed, or covered what a lost session may have taken.
    failed: u64,
    /// A flush is wanted although no request waits for it.
    is_wanted: bool,
    /// The next flush that nobody waits for is not before this time.
    retry_at: Nanos,
}

impl Flushes {
    pub(super) fn new(requests_max: u32) -> Flushes {
        Flushes {
            waiting: Vec::with_capacity(requests_max as usize),
            covered: Vec::with_capacity(requests_max as usize),
            is_in_flight: false,
            starts: 0,
            succeeded: 0,
            failed: 0,
            is_wanted: false,
            retry_at: Nanos(0),
        }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.is_in_flight
    }

    pub(super) fn retry_at(&self) -> Nanos {
        self.retry_at
    }

    /// What the cache index has to know.
    pub(super) fn seen(&self) -> PrimaryFlushes {
        PrimaryFlushes {
            starts: self.starts,
            succeeded: self.succeeded,
            is_in_flight: self.is_in_flight,
            retry_at: self.retry_at,
        }
    }

    /// The request waits for a flush that starts from now on.
    pub(super) fn join(&mut self, key: Key) {
        self.waiting.push(key);
    }

    /// A request gave up waiting.
    pub(super) fn leave(&mut self, key: Key) {
        self.waiting.retain(|&k| k != key);
        self.covered.retain(|&k| k != key);
    }

    /// A flush is wanted, whoever waits: its number.
    pub(super) fn want(&mut self) -> u64 {
        self.is_wanted = true;
        self.starts + 1
    }

    /// The same, unless one is under way or failed a moment ago; true when it is wanted.
    pub(super) fn want_unasked(&mut self, now: Nanos) -> bool {
        let may_start = !self.is_in_flight && now >= self.retry_at;
        self.is_wanted |= may_start;
        may_start
    }

    /// Starts a flush when one is wanted and none is in flight; true when it did.
    pub(super) fn start(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.is_in_flight || (self.waiting.is_empty() && !self.is_wanted) {
            return false;
        }
        (self.is_in_flight, self.is_wanted) = (true, false);
        self.starts += 1;
        std::mem::swap(&mut self.waiting, &mut self.covered);
        cx.counters.backend_flushes += 1;
        cx.start(Target::Backend, ByteRange::default(), IoOp::Flush, IoKind::PrimaryFlush);
        true
    }

    /// The flush in flight ended well: those whom it covers, to be given back to [`Flushes::recycle`].
    pub(super) fn succeed(&mut self) -> Vec<Key> {
        self.is_in_flight = false;
        self.retry_at = Nanos(0);
        self.succeeded = self.starts;
        std::mem::take(&mut self.covered)
    }

    /// The flush in flight failed.
    pub(super) fn fail(&mut self, now: Nanos) {
        self.is_in_flight = false;
        self.retry_at = now.plus(RETRY);
        self.failed = self.starts;
    }

    /// The session is lost. Whoever asked for a flush asked for what it may have taken, too, and the flush may end well
    /// without that.
    pub(super) fn fail_wanted(&mut self) {
        self.failed = self.starts + u64::from(self.is_wanted);
    }

    /// Everybody who waits, those in front whom the flush in flight would have covered; to be given back.
    pub(super) fn take_all(&mut self) -> Vec<Key> {
        let mut all = std::mem::take(&mut self.covered);
        all.append(&mut self.waiting);
        all
    }

    /// A list that was taken, whose requests were answered: its memory is used again.
    pub(super) fn recycle(&mut self, mut keys: Vec<Key>) {
        keys.clear();
        self.covered = keys;
    }

    /// Whether the flush of that number ended well; `None`: it has not ended.
    pub(super) fn has_ended(&self, number: u64) -> Option<bool> {
        if self.failed >= number { Some(false) } else { (self.succeeded >= number).then_some(true) }
    }

    pub(super) fn check_invariants(&self) {
        assert!(self.is_in_flight || self.covered.is_empty(), "nobody answers who is covered");
        assert!(self.succeeded <= self.starts);
        assert!(self.is_in_flight || self.waiting.is_empty(), "no flush comes for who waits");
    }
}
