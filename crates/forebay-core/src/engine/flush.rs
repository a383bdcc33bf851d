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

use crate::action::{Event, IoOp, ReplyData, Target};
use crate::cache_index::PrimaryFlushes;
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::engine::io::IoKind;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::request::Request;
use crate::requests::in_flight::{Job, Stage};
use crate::requests::ledger::LatencyOf;
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

    /// What the cache index has to know.
    pub(super) fn seen(&self) -> PrimaryFlushes {
        PrimaryFlushes {
            starts: self.starts,
            succeeded: self.succeeded,
            is_in_flight: self.in_flight,
            retry_at: self.retry_at,
        }
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

    /// Whether the flush of that number ended well; `None`: it has not ended.
    pub(super) fn has_ended(&self, number: u64) -> Option<bool> {
        if self.failed >= number { Some(false) } else { (self.succeeded >= number).then_some(true) }
    }

    /// The flush that the disk ends with has failed: no flush of this life can tell.
    pub(super) fn on_last_failed(&mut self) {
        let is_loss = std::mem::take(&mut self.fresh) | std::mem::take(&mut self.pending);
        self.untold |= is_loss;
    }

    /// A former run knew of a loss and could tell nobody.
    pub(super) fn remember_untold(&mut self) {
        self.untold = true;
    }

    /// Losses that flushes have told of by failing.
    pub(super) fn losses_told(&self) -> u64 {
        self.losses_told
    }

    /// A request gave up waiting.
    pub(super) fn leave(&mut self, key: Key) {
        self.waiting.retain(|&k| k != key);
        self.covered.retain(|&k| k != key);
    }
}

impl Parts {
    pub(super) fn submit_flush(&mut self, request: Request, cx: &mut Cx<'_>) {
        if self.mode.logs() {
            return self.submit_log_flush(request, cx);
        }
        self.primary.flush.pending |= std::mem::take(&mut self.primary.flush.fresh);
        if self.primary.flush.take_untold() {
            return self.refuse(request, IoStatus::IoError, cx);
        }
        let nothing = ByteRange::default();
        let request = Request { range: nothing, ..request };
        let key = self.requests.insert(request, Job::Flush, cx);
        self.join_flush(key, cx);
    }

    /// The request is answered when a flush that starts from now on has ended.
    pub(super) fn join_flush(&mut self, key: Key, cx: &mut Cx<'_>) {
        self.requests.table[key].stage = Stage::Flush;
        self.primary.flush.waiting.push(key);
        self.start_flush(cx);
    }

    fn start_flush(&mut self, cx: &mut Cx<'_>) {
        if self.primary.flush.in_flight
            || (self.primary.flush.waiting.is_empty() && !self.primary.flush.wanted)
        {
            return;
        }
        self.primary.flush.in_flight = true;
        self.primary.flush.starts += 1;
        self.primary.flush.wanted = false;
        std::mem::swap(&mut self.primary.flush.waiting, &mut self.primary.flush.covered);
        let FlushState { before, since, .. } = &mut self.primary.flush;
        before.absorb(since);
        cx.counters.backend_flushes += 1;
        let nothing = ByteRange::default();
        cx.start(Target::Backend, nothing, IoOp::Flush, IoKind::Flush);
    }

    pub(in crate::engine) fn flush_primary_storage(&mut self, cx: &mut Cx<'_>) -> Option<u64> {
        if self.mode.logs() {
            return None;
        }
        let number = self.primary.flush.starts + 1;
        self.primary.flush.wanted = true;
        self.start_flush(cx);
        self.run(cx);
        Some(number)
    }

    /// True when nothing that was written beside the log is at risk; flushes otherwise.
    pub(super) fn is_flushed_for_log(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.primary.flush.is_at_risk() {
            return true;
        }
        self.flush_unasked(cx);
        false
    }

    /// Starts a flush that nobody waits for, unless one is under way or failed a moment ago.
    pub(super) fn flush_unasked(&mut self, cx: &mut Cx<'_>) {
        if !self.primary.flush.in_flight && cx.now >= self.primary.flush.retry_at {
            self.primary.flush.wanted = true;
            self.start_flush(cx);
        }
    }

    pub(super) fn on_flushed(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        self.primary.flush.in_flight = false;
        if status.is_ok() {
            let mut covered = std::mem::take(&mut self.primary.flush.covered);
            self.end_flush(&mut covered, status, cx);
            self.primary.flush.covered = covered;
            self.primary.flush.note_flushed();
            self.primary.flush.retry_at = Nanos(0);
            self.primary.flush.succeeded = self.primary.flush.starts;
        } else {
            self.primary.flush.retry_at = cx.now.plus(RETRY);
            self.primary.flush.failed = self.primary.flush.starts;
            if let Some(write_back) = &mut self.write_back {
                // Writes that were held for a change of mode go on meanwhile.
                write_back.note_room();
            }
            // It may have taken what the destager wrote along, and the next flush would not say so.
            self.on_destage_session_lost();
            self.lose_unflushed(status, cx);
        }
        self.start_flush(cx);
    }

    fn end_flush(&mut self, keys: &mut Vec<Key>, status: IoStatus, cx: &mut Cx<'_>) {
        // A disk may have become write-back while they waited.
        if let Some(log) = self.write_back.as_mut().filter(|_| status.is_ok()) {
            log.raise_epoch();
        }
        for key in keys.drain(..) {
            let of = self.requests.latency_of(key);
            cx.counters.flushes += u64::from(of == LatencyOf::Flush && status.is_ok());
            self.requests.answer(key, status, ReplyData::None, Some(of), cx);
            self.requests.forget(key, cx);
        }
    }

    pub(in crate::engine) fn on_session_lost(&mut self, cx: &mut Cx<'_>) {
        self.on_destage_session_lost();
        if self.primary.flush.is_at_risk() {
            // Whoever asked for a flush asked for those writes, too, and it may end well without them.
            self.primary.flush.failed =
                self.primary.flush.starts + u64::from(self.primary.flush.wanted);
            self.lose_unflushed(IoStatus::IoError, cx);
        }
        self.run(cx);
    }

    pub(in crate::engine) fn on_first_flush_failed(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        assert!(!status.is_ok());
        self.on_destage_session_lost();
        self.primary.flush.pending = true;
        self.lose_unflushed(status, cx);
        self.run(cx);
    }

    /// What was not flushed may be lost: drops it from the cache, and tells who waits for a flush, or
    /// will.
    fn lose_unflushed(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        let mut told = std::mem::take(&mut self.primary.flush.covered);
        told.append(&mut self.primary.flush.waiting);
        let is_flush = |&key: &Key| matches!(self.requests.table[key].job, Job::Flush);
        let heard = told.iter().any(is_flush);
        let FlushState { untold, losses_told, fresh, pending, .. } = &mut self.primary.flush;
        *untold |= *fresh || (*pending && !heard);
        *losses_told += u64::from(*pending && heard);
        (*fresh, *pending) = (false, false);
        self.drop_unflushed(cx);
        self.end_flush(&mut told, status, cx);
        self.primary.flush.covered = told;
    }

    /// Drops from the cache what primary storage may not have kept.
    fn drop_unflushed(&mut self, cx: &mut Cx<'_>) {
        let bytes = self.primary.flush.unflushed_bytes();
        for request in self.requests.table.iter_mut() {
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
        let mut visits = self.cache.visits_max() * AT_RISK_CALLS;
        if self.primary.flush.unknown {
            self.cache.invalidate_within(cx.config.disk(), &mut visits, true, cx);
        }
        let (before, since) = (
            std::mem::take(&mut self.primary.flush.before),
            std::mem::take(&mut self.primary.flush.since),
        );
        for &range in before.ranges().iter().chain(since.ranges()) {
            self.cache.invalidate_within(range, &mut visits, true, cx);
        }
        (self.primary.flush.before, self.primary.flush.since) = (before, since);
        if bytes > 0 {
            cx.event(Event::UnflushedWritesAtRisk { bytes });
        }
    }
}
