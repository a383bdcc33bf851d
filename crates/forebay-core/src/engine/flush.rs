//! Flushes: one of primary storage at a time, shared by all who wait for it.
//!
//! ```text
//!  FLUSH, FUA ─► waiting ─► covered by the flush in flight ─► reply
//!                  └─ the next flush starts when the one in flight ended
//! ```
//! A flush in flight may have passed a write that completed meanwhile, so who comes then waits for
//! the next one. What was written since the last good flush is remembered: if a flush fails, or the
//! session ends, those bytes may be lost, so they are dropped from the cache, and who waits for a flush
//! is told. A write that was acknowledged after the last of these flushes was asked for is nobody's
//! news yet: then the next flush fails, too, once. What may be lost may also still be there, and be lost
//! later: only a good flush ends that.
//!
//! A new engine does not know what was written before its time: until the first good flush everything
//! counts as not flushed, as far as the cache is concerned. Its executor flushes primary storage at the start; when that
//! fails, what a former run acknowledged may be lost, and the guest that lived on hears of it as after a lost session.
//! It flushes at the end, too: when that fails, the next run has to tell.

use super::inflight::{IoKind, Job, Stage};
use super::{Engine, LatencyOf};
use crate::action::{Action, Actions, Event, IoOp, ReplyData, Target};
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::request::Request;
use crate::status::IoStatus;
use crate::table::Key;
use crate::unflushed::Unflushed;

/// A lost session may drop as many blocks at once as so many other calls: it is rare, and has up to 2,048 ranges.
const AT_RISK_CALLS: u32 = 8;
/// Pause after a flush that failed and that nobody waited for.
const RETRY: Nanos = Nanos::from_millis(1_000);

#[derive(Debug)]
pub(super) struct FlushState {
    /// Requests that need a flush not started yet.
    waiting: Vec<Key>,
    /// Requests that the flush in flight will cover.
    covered: Vec<Key>,
    in_flight: bool,
    /// Flushes that were started, and the number of the last one that succeeded.
    starts: u64,
    succeeded: u64,
    /// The number of the last flush that failed, or covered what a lost session may have taken.
    failed: u64,
    /// Acknowledged writes may be lost, and no flush has failed since: the next one has to.
    untold: bool,
    /// Losses that a flush has told of by failing.
    losses_told: u64,
    /// A write was acknowledged since the last flush was asked for.
    fresh: bool,
    /// A write was acknowledged before that, and was neither flushed nor told to be at risk.
    pending: bool,
    /// No flush has ended well in the life of this engine.
    unknown: bool,
    /// A flush is wanted although no request waits for it.
    wanted: bool,
    /// The next flush that nobody waits for is not before this time.
    retry_at: Nanos,
    /// Written since the flush in flight started.
    since: Unflushed,
    /// Written before it, and not flushed by an earlier one.
    before: Unflushed,
}

impl FlushState {
    pub(super) fn new(requests_max: usize) -> FlushState {
        FlushState {
            waiting: Vec::with_capacity(requests_max),
            covered: Vec::with_capacity(requests_max),
            in_flight: false,
            starts: 0,
            succeeded: 0,
            failed: 0,
            untold: false,
            losses_told: 0,
            fresh: false,
            pending: false,
            unknown: true,
            wanted: false,
            retry_at: Nanos(0),
            since: Unflushed::default(),
            before: Unflushed::default(),
        }
    }

    /// Acknowledged writes may be lost, and nobody was told so far: now somebody is.
    pub(super) fn take_untold(&mut self) -> bool {
        let is_untold = std::mem::take(&mut self.untold);
        self.losses_told += u64::from(is_untold);
        is_untold
    }

    /// Acknowledged writes may be lost, and nobody was told so far.
    pub(super) fn is_untold(&self) -> bool {
        self.untold
    }

    /// When a flush that nobody waits for may be tried again.
    pub(super) fn retry_at(&self) -> Nanos {
        self.retry_at
    }

    /// How many flushes were started.
    pub(super) fn starts(&self) -> u64 {
        self.starts
    }

    /// The number of the last flush that succeeded, from 1.
    pub(super) fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// True when primary storage can lose nothing that was written beside the log.
    pub(super) fn is_flushed(&self) -> bool {
        !self.is_at_risk() && !self.in_flight
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight
    }

    pub(super) fn note_write(&mut self, range: ByteRange) {
        self.since.add(range);
    }

    /// A write was acknowledged without having been flushed.
    pub(super) fn note_acknowledged(&mut self) {
        self.fresh = true;
    }

    pub(super) fn unflushed_bytes(&self) -> u64 {
        self.since.bytes() + self.before.bytes()
    }

    /// A flush ended well.
    fn note_flushed(&mut self) {
        self.unknown = false;
        self.before.clear();
        let all = self.since.bytes() == 0;
        (self.fresh, self.pending) = (self.fresh && !all, self.pending && !all);
    }

    /// The destager flushed primary storage; without writes beside the log that covers everything.
    pub(super) fn note_destage_flushed(&mut self) {
        if self.unflushed_bytes() == 0 && !self.in_flight {
            self.note_flushed();
        }
    }

    /// True when primary storage may hold bytes that it could still lose.
    fn is_at_risk(&self) -> bool {
        self.unknown || self.unflushed_bytes() > 0
    }

    /// A request gave up waiting.
    pub(super) fn leave(&mut self, key: Key) {
        self.waiting.retain(|&k| k != key);
        self.covered.retain(|&k| k != key);
    }
}

impl Engine {
    pub(super) fn submit_flush(&mut self, now: Nanos, request: Request, actions: &mut Actions) {
        if self.mode.logs() {
            return self.submit_log_flush(now, request, actions);
        }
        self.flush.pending |= std::mem::take(&mut self.flush.fresh);
        if self.flush.take_untold() {
            return self.refuse(now, request, IoStatus::IoError, actions);
        }
        let nothing = ByteRange::default();
        let request = Request { range: nothing, ..request };
        let key = self.insert(now, request, Job::Flush);
        self.join_flush(now, key, actions);
    }

    /// The request is answered when a flush that starts from now on has ended.
    pub(super) fn join_flush(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        self.requests[key].stage = Stage::Flush;
        self.flush.waiting.push(key);
        self.start_flush(now, actions);
    }

    fn start_flush(&mut self, now: Nanos, actions: &mut Actions) {
        if self.flush.in_flight || (self.flush.waiting.is_empty() && !self.flush.wanted) {
            return;
        }
        self.flush.in_flight = true;
        self.flush.starts += 1;
        self.flush.wanted = false;
        std::mem::swap(&mut self.flush.waiting, &mut self.flush.covered);
        let FlushState { before, since, .. } = &mut self.flush;
        before.absorb(since);
        self.counters.backend_flushes += 1;
        let nothing = ByteRange::default();
        self.start_io(now, Target::Backend, nothing, IoOp::Flush, IoKind::Flush, actions);
    }

    /// Flushes primary storage for an administrator; which flush covers everything acknowledged before. `None`: what
    /// is acknowledged is the log's, which flushes what it destages.
    pub fn flush_primary_storage(&mut self, now: Nanos, actions: &mut Actions) -> Option<u64> {
        self.now = now;
        if self.mode.logs() {
            return None;
        }
        let number = self.flush.starts + 1;
        self.flush.wanted = true;
        self.start_flush(now, actions);
        self.run(now, actions);
        Some(number)
    }

    /// Whether the flush of that number ended well; `None`: it has not ended.
    pub fn flushed_primary_storage(&self, number: u64) -> Option<bool> {
        let FlushState { failed, succeeded, .. } = self.flush;
        if failed >= number { Some(false) } else { (succeeded >= number).then_some(true) }
    }

    /// True when nothing that was written beside the log is at risk; flushes otherwise.
    pub(super) fn is_flushed_for_log(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        if !self.flush.is_at_risk() {
            return true;
        }
        self.flush_unasked(now, actions);
        false
    }

    /// Starts a flush that nobody waits for, unless one is under way or failed a moment ago.
    pub(super) fn flush_unasked(&mut self, now: Nanos, actions: &mut Actions) {
        if !self.flush.in_flight && now >= self.flush.retry_at {
            self.flush.wanted = true;
            self.start_flush(now, actions);
        }
    }

    pub(super) fn on_flushed(&mut self, now: Nanos, status: IoStatus, actions: &mut Actions) {
        self.flush.in_flight = false;
        if status.is_ok() {
            let mut covered = std::mem::take(&mut self.flush.covered);
            self.end_flush(&mut covered, status, actions);
            self.flush.covered = covered;
            self.flush.note_flushed();
            self.flush.retry_at = Nanos(0);
            self.flush.succeeded = self.flush.starts;
        } else {
            self.flush.retry_at = now.plus(RETRY);
            self.flush.failed = self.flush.starts;
            if let Some(log) = &mut self.log {
                // Writes that were held for a change of mode go on meanwhile.
                log.room_changed = true;
            }
            // It may have taken what the destager wrote along, and the next flush would not say so.
            self.destage_session_lost();
            self.lose_unflushed(status, actions);
        }
        self.start_flush(now, actions);
    }

    fn end_flush(&mut self, keys: &mut Vec<Key>, status: IoStatus, actions: &mut Actions) {
        // A disk may have become write-back while they waited.
        if let Some(log) = self.log.as_mut().filter(|_| status.is_ok()) {
            log.raise_epoch();
        }
        for key in keys.drain(..) {
            let of = self.latency_of(key);
            self.counters.flushes += u64::from(of == LatencyOf::Flush && status.is_ok());
            self.answer(key, status, ReplyData::None, Some(of), actions);
            self.forget(key);
        }
    }

    /// The session of primary storage ended: writes since the last flush may be lost. Whoever waits
    /// for a flush of them is told; if nobody does, the next flush fails.
    pub fn on_session_lost(&mut self, now: Nanos, actions: &mut Actions) {
        self.now = now;
        self.destage_session_lost();
        if self.flush.is_at_risk() {
            // Whoever asked for a flush asked for those writes, too, and it may end well without them.
            self.flush.failed = self.flush.starts + u64::from(self.flush.wanted);
            self.lose_unflushed(IoStatus::IoError, actions);
        }
        self.run(now, actions);
    }

    /// The flush of primary storage that its executor began the disk with has failed: what a former run acknowledged may
    /// be lost. Whoever waits for a flush is told; if nobody does, the next flush fails.
    pub fn on_first_flush_failed(&mut self, now: Nanos, status: IoStatus, actions: &mut Actions) {
        self.now = now;
        assert!(!status.is_ok());
        self.destage_session_lost();
        self.flush.pending = true;
        self.lose_unflushed(status, actions);
        self.run(now, actions);
    }

    /// The flush of primary storage that its executor ends the disk with has failed: what was acknowledged and nobody has
    /// flushed may be lost, and no flush of this life can tell. What the cache holds of it is [`Engine::close_ring`]'s
    /// matter.
    pub fn on_last_flush_failed(&mut self) {
        let FlushState { fresh, pending, .. } = &mut self.flush;
        let is_loss = std::mem::take(fresh) | std::mem::take(pending);
        self.flush.untold |= is_loss;
    }

    /// True when acknowledged writes may be lost and no flush has told so yet: the next one fails.
    pub fn has_untold_loss(&self) -> bool {
        self.flush.is_untold()
    }

    /// Losses that flushes have told of by failing; whether the answer has arrived nobody knows.
    pub fn losses_told(&self) -> u64 {
        self.flush.losses_told
    }

    /// A former run knew of such a loss and could tell nobody: the next flush fails.
    pub fn remember_untold_loss(&mut self) {
        self.flush.untold = true;
    }

    /// Flushes of clients that ended well.
    pub fn flushes(&self) -> u64 {
        self.counters.flushes
    }

    /// Flushes of clients that were asked for, and have not ended.
    pub fn flushes_under_way(&self) -> u64 {
        self.requests.iter().filter(|(_, entry)| matches!(entry.job, Job::Flush)).count() as u64
    }

    /// What was not flushed may be lost: drops it from the cache, and tells who waits for a flush, or
    /// will.
    fn lose_unflushed(&mut self, status: IoStatus, actions: &mut Actions) {
        let mut told = std::mem::take(&mut self.flush.covered);
        told.append(&mut self.flush.waiting);
        let is_flush = |&key: &Key| matches!(self.requests[key].job, Job::Flush);
        let heard = told.iter().any(is_flush);
        let FlushState { untold, losses_told, fresh, pending, .. } = &mut self.flush;
        *untold |= *fresh || (*pending && !heard);
        *losses_told += u64::from(*pending && heard);
        (*fresh, *pending) = (false, false);
        self.drop_unflushed(actions);
        self.end_flush(&mut told, status, actions);
        self.flush.covered = told;
    }

    /// Drops from the cache what primary storage may not have kept.
    fn drop_unflushed(&mut self, actions: &mut Actions) {
        let bytes = self.flush.unflushed_bytes();
        for request in self.requests.iter_mut() {
            match &mut request.job {
                // A read under way may already hold bytes that are gone by now.
                Job::Read(job) => (job.admit, job.is_doubtful) = (false, true),
                // Some of its zeroes may be gone.
                Job::Zero(job) if job.cursor > request.range.start => {
                    request.failed.get_or_insert(IoStatus::IoError);
                }
                Job::Zero(_) | Job::Write(_) | Job::Flush | Job::Allocation => {}
            }
        }
        let mut visits = self.visits_max() * AT_RISK_CALLS;
        if self.flush.unknown {
            self.invalidate_within(self.config.disk(), &mut visits, true);
        }
        let (before, since) =
            (std::mem::take(&mut self.flush.before), std::mem::take(&mut self.flush.since));
        for &range in before.ranges().iter().chain(since.ranges()) {
            self.invalidate_within(range, &mut visits, true);
        }
        (self.flush.before, self.flush.since) = (before, since);
        if bytes > 0 {
            actions.list.push(Action::Event(Event::UnflushedWritesAtRisk { bytes }));
        }
    }
}
