//! Write-intent marks in the way of a write beside the log, and how they go again.
//!
//! ```text
//!   write ─► its regions durably marked? ─┬─ yes ─► primary storage
//!                                         └─ no ──► marked, waits for the batch ─► asks again
//!
//!   Idle ─mark─► Gathering ─delay─► turn, writes under way kept ─► Flushing ─a flush that began later─► Recording ─► cleared
//! ```
//! A flush of the guest serves as well as an own one, for which the index waits as long again; at the start of a run
//! it does not wait. A region whose write
//! is under way, also one whose time is over, is marked until the turn after it ended.

use super::marks::Marks;
use super::{CacheIndex, State};
use crate::cache::Cache;
use crate::cx::Cx;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::status::IoStatus;
use crate::table::Key;

/// The flushes of primary storage, as far as the index has to know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrimaryFlushes {
    /// How many were started.
    pub starts: u64,
    /// The number of the last one that succeeded, from 1.
    pub succeeded: u64,
    pub is_in_flight: bool,
    /// When one that nobody waits for may be tried again.
    pub retry_at: Nanos,
}

/// The index asks the flow for this.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexWants {
    Nothing,
    /// A flush of primary storage.
    Flush,
}

/// Marks, and how far they are on their way to be cleared.
#[derive(Debug)]
pub(super) struct Marking {
    pub marks: Marks,
    pub turn: Turn,
}

/// How far marks are on their way to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is marked.
    Idle,
    /// Something is; `None`: the time was not asked yet.
    Gathering(Option<Nanos>),
    /// A flush with this number, or a later one, has to succeed; after this time the index asks for one.
    Flushing(u64, Nanos),
    /// These changes of the cache have to be durable.
    Recording(u64),
}

impl Turn {
    pub(super) fn new(is_marked: bool) -> Turn {
        if is_marked { Turn::Gathering(None) } else { Turn::Idle }
    }

    /// At the start of a run: what is marked was written by a former one, and goes with the first flush.
    pub(super) fn first(is_marked: bool) -> Turn {
        if is_marked { Turn::Flushing(1, Nanos(0)) } else { Turn::Idle }
    }

    pub(super) fn deadline(&self, since: Nanos, flushes: PrimaryFlushes) -> Nanos {
        let later = |time: Nanos| if time > since { time } else { Nanos::NEVER };
        match *self {
            Turn::Idle | Turn::Recording(_) => Nanos::NEVER,
            Turn::Gathering(until) => until.unwrap_or(Nanos::NEVER),
            Turn::Flushing(_, until) if flushes.is_in_flight => later(until),
            Turn::Flushing(_, until) => later(until.max(flushes.retry_at)),
        }
    }
}

impl CacheIndex {
    /// True when a write to `range` may go to primary storage; the request waits otherwise, is woken, and asks again.
    pub(crate) fn intends(&mut self, key: Key, range: ByteRange) -> bool {
        match self.state {
            State::Unnoted { .. } | State::Off => return true,
            State::Active => {
                if self.marking.turn == Turn::Idle {
                    self.marking.turn = Turn::Gathering(None);
                }
                if self.marking.marks.mark(range) {
                    return true;
                }
            }
            State::Voiding { .. } => {}
        }
        self.waiting.push(key);
        false
    }

    /// A request gave up waiting.
    pub(crate) fn leave(&mut self, key: Key) {
        self.waiting.retain(|&waiting| waiting != key);
    }

    /// What a dead process had sent can land no more. A flush that began before says nothing of it.
    pub(crate) fn note_settled(&mut self, flushes: PrimaryFlushes) {
        if let Turn::Flushing(number, _) = &mut self.marking.turn {
            *number = flushes.starts + 1;
        }
    }

    /// Clears marks whose time has come. `writes`: what is being written to primary storage, which stays marked.
    pub(crate) fn advance_marks(
        &mut self,
        flushes: PrimaryFlushes,
        writes: impl Iterator<Item = ByteRange>,
        cache: &Cache,
        cx: &mut Cx<'_>,
    ) -> IndexWants {
        if self.state != State::Active {
            return IndexWants::Nothing;
        }
        if cache.is_misrecorded() {
            self.void(IoStatus::NoSpace, cx);
            return IndexWants::Nothing;
        }
        let delay = self.config.mark_delay;
        let Marking { marks, turn } = &mut self.marking;
        loop {
            match *turn {
                Turn::Idle => break,
                Turn::Gathering(None) => {
                    *turn = Turn::Gathering(Some(cx.now.plus(delay)));
                    break;
                }
                Turn::Gathering(Some(until)) if cx.now >= until => {
                    marks.turn();
                    *turn = Turn::Flushing(flushes.starts + 1, cx.now.plus(delay));
                    writes.for_each(|range| marks.keep(range));
                    break;
                }
                Turn::Gathering(Some(_)) => break,
                Turn::Flushing(number, _) if flushes.succeeded >= number => {
                    // What a dead process had sent may land yet.
                    if cx.is_unsettled {
                        break;
                    }
                    *turn = Turn::Recording(cache.changes());
                }
                Turn::Flushing(_, until) if cx.now >= until => return IndexWants::Flush,
                Turn::Flushing(..) => break,
                Turn::Recording(changes) if self.progress.durable >= changes => {
                    marks.clear_old();
                    *turn = Turn::new(marks.any());
                }
                Turn::Recording(_) => break,
            }
        }
        IndexWants::Nothing
    }
}
