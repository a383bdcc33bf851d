//! Primary storage, as far as the engine has to remember it: flushes, what they have not covered, what fails.
//!
//! ```text
//!  write ends ─► Unflushed ──flush──► safe
//!                   │ a flush fails, or the session is lost
//!                   └─► at risk: dropped from the cache (by a flow), and reported once (Losses)
//!  I/O fails ─► Errors ─► events
//! ```
//! What was written since the last good flush is remembered. If a flush fails, or the session ends, those bytes may be
//! lost. They may also still be there, and be lost later: only a good flush ends that.
//!
//! A new engine does not know what was written before its time. Until the first good flush everything counts as not
//! flushed.
//!
//! This part knows requests by their keys alone, and answers none of them.

mod errors;
mod flush;
mod losses;
mod unflushed;

use crate::cache_index::PrimaryFlushes;
use crate::cx::Cx;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::table::Key;

pub(crate) use errors::Errors;
use flush::Flushes;
use losses::Losses;
use unflushed::Unflushed;

/// See the module.
#[derive(Debug)]
pub(crate) struct Primary {
    flushes: Flushes,
    losses: Losses,
    former: Former,
    /// Flushes up to this number say nothing of what landed late.
    landed: u64,
    /// Its flushes flush nothing: what a former run wrote may be lost as long as it is served.
    is_read_only: bool,
    /// The disk begins with a flush, and none has ended well yet.
    wants_first_flush: bool,
    /// Written since the flush in flight started.
    since: Unflushed,
    /// Written before it, and not flushed by an earlier one.
    before: Unflushed,
    pub errors: Errors,
}

/// What a former run wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Former {
    /// Perhaps not flushed.
    Unknown,
    /// Perhaps lost, and that was said.
    AtRisk,
    /// Flushed, but for what landed since, and nobody has acknowledged.
    Landed,
    /// Flushed.
    Safe,
}

impl Primary {
    pub(crate) fn new(requests_max: u32, is_read_only: bool) -> Primary {
        Primary {
            is_read_only,
            flushes: Flushes::new(requests_max),
            losses: Losses::default(),
            former: Former::Unknown,
            landed: 0,
            wants_first_flush: false,
            since: Unflushed::default(),
            before: Unflushed::default(),
            errors: Errors::default(),
        }
    }

    /// Bytes were written beside the log.
    pub(crate) fn note_write(&mut self, range: ByteRange) {
        self.since.add(range);
    }

    /// A write was acknowledged without having been flushed.
    pub(crate) fn note_acknowledged(&mut self) {
        self.losses.note_acknowledged();
    }

    pub(crate) fn unflushed_bytes(&self) -> u64 {
        self.since.bytes() + self.before.bytes()
    }

    /// What primary storage may lose: ranges that were written and not flushed.
    pub(crate) fn at_risk(&self) -> impl Iterator<Item = ByteRange> {
        self.before.ranges().iter().chain(self.since.ranges()).copied()
    }

    /// What a dead process had sent can land no more: it may have done so since the last flush.
    pub(crate) fn note_settled(&mut self) {
        self.landed = self.flushes.seen().starts;
        if self.former == Former::Safe {
            self.former = Former::Landed;
        }
    }

    /// True until the first good flush: a former run may have written anything.
    pub(crate) fn is_unknown(&self) -> bool {
        self.former != Former::Safe
    }

    /// True when primary storage may hold bytes that it could still lose.
    pub(crate) fn is_at_risk(&self) -> bool {
        self.is_unknown() || self.unflushed_bytes() > 0
    }

    /// The same, and nobody has acknowledged any of them: what landed late is all.
    pub(crate) fn is_landed_alone(&self) -> bool {
        self.former == Former::Landed && self.unflushed_bytes() == 0
    }

    /// True when it can lose nothing that was written beside the log.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.is_at_risk() && !self.flushes.is_in_flight()
    }

    /// The destager flushed it; without writes beside the log that covers everything.
    pub(crate) fn note_destage_flushed(&mut self) {
        if self.unflushed_bytes() == 0 && !self.flushes.is_in_flight() {
            self.note_flushed(true);
        }
    }

    /// `all`: the flush began after the last of a dead process could land.
    fn note_flushed(&mut self, all: bool) {
        if !self.is_read_only {
            self.former = if all { Former::Safe } else { Former::Landed };
        }
        self.wants_first_flush &= !all;
        self.before.clear();
        self.losses.note_flushed(self.since.bytes() == 0);
    }
}

/// Flushes.
impl Primary {
    /// A flush of a guest begins; false: it fails, because of a loss that no flush has reported.
    pub(crate) fn begin_guest_flush(&mut self) -> bool {
        self.losses.note_asked();
        !self.losses.report()
    }

    /// The request waits for a flush that starts from now on.
    pub(crate) fn join_flush(&mut self, key: Key, cx: &mut Cx<'_>) {
        self.flushes.join(key);
        self.start_flush(cx);
    }

    /// A request gave up waiting.
    pub(crate) fn leave(&mut self, key: Key) {
        self.flushes.leave(key);
    }

    /// Starts a flush, whoever waits: its number.
    pub(crate) fn flush(&mut self, cx: &mut Cx<'_>) -> u64 {
        let number = self.flushes.want();
        self.start_flush(cx);
        number
    }

    /// Starts a flush that nobody waits for, unless one is under way or failed a moment ago.
    pub(crate) fn flush_unasked(&mut self, cx: &mut Cx<'_>) {
        if self.flushes.want_unasked(cx.now) {
            self.start_flush(cx);
        }
    }

    /// The disk begins with a flush.
    pub(crate) fn want_first_flush(&mut self) {
        self.wants_first_flush = true;
    }

    /// The disk ends, which has a flush of its own.
    pub(crate) fn flush_first_no_more(&mut self) {
        self.wants_first_flush = false;
    }

    /// Starts the flush that the disk begins with, until one has ended well.
    pub(crate) fn flush_first(&mut self, cx: &mut Cx<'_>) {
        if self.wants_first_flush {
            self.flush_unasked(cx);
        }
    }

    /// When that flush is tried again.
    pub(crate) fn first_flush_deadline(&self) -> Nanos {
        match self.wants_first_flush && !self.flushes.is_in_flight() {
            true => self.flushes.retry_at(),
            false => Nanos::NEVER,
        }
    }

    /// Starts the flush that somebody waits for, when none is in flight.
    pub(crate) fn start_flush(&mut self, cx: &mut Cx<'_>) {
        if self.flushes.start(cx) {
            self.before.absorb(&mut self.since);
        }
    }

    /// The flush in flight ended well: those whom it covers, to be given back to [`Primary::recycle`].
    pub(crate) fn on_flushed(&mut self) -> Vec<Key> {
        let covered = self.flushes.succeed();
        self.note_flushed(self.flushes.seen().succeeded > self.landed);
        covered
    }

    /// The flush in flight failed.
    pub(crate) fn on_flush_failed(&mut self, now: Nanos) {
        self.flushes.fail(now);
    }

    /// The session is lost, with what was not flushed: flushes that were asked for have failed.
    pub(crate) fn on_session_lost(&mut self) {
        self.flushes.fail_wanted();
    }

    /// A flush failed, or the session is lost. True when writes that a former run acknowledged may be lost with it, and
    /// that was not said yet.
    pub(crate) fn lose_former(&mut self) -> bool {
        let is_news = self.former == Former::Unknown;
        if is_news {
            self.former = Former::AtRisk;
            self.losses.note_former();
        }
        is_news
    }

    /// The flush that the disk ends with has failed: no flush of this life can report it.
    pub(crate) fn on_last_flush_failed(&mut self) {
        self.losses.lose_at_end();
    }

    /// What was not flushed may be lost: everybody who waits for a flush, to be given back. `is_guest`: whether a request
    /// is a flush of a guest.
    pub(crate) fn lose_unflushed(&mut self, is_guest: impl Fn(Key) -> bool) -> Vec<Key> {
        let waited = self.flushes.take_all();
        // In a mode with a log a flush may fail that had nothing to make durable.
        if self.is_at_risk() {
            self.losses.lose(waited.iter().any(|&key| is_guest(key)));
        }
        waited
    }

    /// A list that was taken, whose requests were answered: its memory is used again.
    pub(crate) fn recycle(&mut self, keys: Vec<Key>) {
        self.flushes.recycle(keys);
    }

    pub(crate) fn is_flush_in_flight(&self) -> bool {
        self.flushes.is_in_flight()
    }

    /// When a flush that nobody waits for may be tried again; 0 unless the last one failed.
    pub(crate) fn retry_at(&self) -> Nanos {
        self.flushes.retry_at()
    }

    /// What the cache index has to know of flushes.
    pub(crate) fn flushes(&self) -> PrimaryFlushes {
        self.flushes.seen()
    }

    /// Whether the flush of that number ended well; `None`: it has not ended.
    pub(crate) fn has_flushed(&self, number: u64) -> Option<bool> {
        self.flushes.has_ended(number)
    }

    /// Acknowledged writes may be lost and no flush has reported it: the next one fails.
    pub(crate) fn has_unreported_loss(&self) -> bool {
        self.losses.is_unreported()
    }

    /// What was acknowledged is on its way to the guests.
    pub(crate) fn note_sent(&mut self) {
        self.losses.note_sent();
    }

    /// Losses that flushes have reported by failing.
    pub(crate) fn losses_reported(&self) -> u64 {
        self.losses.reported()
    }

    /// A former run knew of a loss and could report it to nobody.
    pub(crate) fn remember_unreported_loss(&mut self) {
        self.losses.remember();
    }

    /// Panics when the part contradicts itself. For tests; slow.
    pub(crate) fn check_invariants(&self) {
        self.flushes.check_invariants();
    }
}
