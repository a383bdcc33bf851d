//! Write-intent marks in the way of a write beside the log, and how they go again.
//!
//! ```text
//!   write ─► its regions durably marked? ─┬─ yes ─► primary storage
//!                                         └─ no ──► marked, waits for the batch ─► asks again
//!
//!   Idle ─mark─► Gathering ─delay─► turn, writes under way kept ─► Flushing ─a flush that began later─► Recording ─► cleared
//! ```
//! A flush of the guest serves as well as an own one, for which the ring waits as long again; at the start of a run
//! it does not wait. A region whose write
//! is under way, also one whose time is over, is marked until the turn after it ended.

use super::State;
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::engine::flush::FlushState;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::requests::in_flight::{Job, Stage};
use crate::table::Key;

/// How far marks are on their way to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing is marked.
    Idle,
    /// Something is; `None`: the time was not asked yet.
    Gathering(Option<Nanos>),
    /// A flush with this number, or a later one, has to succeed; after this time the ring asks for one.
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

    pub(super) fn deadline(&self, now: Nanos, flush: &FlushState) -> Nanos {
        let later = |time: Nanos| if time > now { time } else { Nanos::NEVER };
        match *self {
            Turn::Idle | Turn::Recording(_) => Nanos::NEVER,
            Turn::Gathering(until) => until.unwrap_or(Nanos::NEVER),
            Turn::Flushing(_, until) if flush.is_in_flight() => later(until),
            Turn::Flushing(_, until) => later(until.max(flush.retry_at())),
        }
    }
}

impl Parts {
    /// True when a write to `range` may go to primary storage; it waits otherwise, and asks again.
    pub(in crate::engine) fn intend(
        &mut self,
        key: Key,
        range: ByteRange,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(ring) = &mut self.cache_index else { return true };
        match ring.state {
            State::Off => return true,
            State::Active => {
                if ring.turn == Turn::Idle {
                    ring.turn = Turn::Gathering(None);
                }
                if ring.marks.mark(range) {
                    return true;
                }
            }
            State::Voiding => {}
        }
        ring.waiting.push(key);
        self.requests.table[key].stage = Stage::Intent;
        cx.counters.writes_waited_for_marks += 1;
        false
    }

    /// Clears marks whose time has come.
    pub(super) fn advance_marks(&mut self, cx: &mut Cx<'_>) {
        let changes = self.cache_changes();
        let ring = self.cache_index.as_mut().expect("there is a ring");
        let delay = ring.config.mark_delay;
        match ring.turn {
            Turn::Idle => {}
            Turn::Gathering(None) => ring.turn = Turn::Gathering(Some(cx.now.plus(delay))),
            Turn::Gathering(Some(until)) if cx.now >= until => {
                ring.marks.turn();
                ring.turn = Turn::Flushing(self.primary.flush.starts() + 1, cx.now.plus(delay));
                self.keep_marks_of_writes(cx);
            }
            Turn::Gathering(Some(_)) => {}
            Turn::Flushing(number, until) => {
                if self.primary.flush.succeeded() >= number {
                    ring.turn = Turn::Recording(changes);
                    return self.advance_marks(cx);
                }
                if cx.now >= until {
                    self.flush_unasked(cx);
                }
            }
            Turn::Recording(changes) => {
                if ring.durable >= changes {
                    ring.marks.clear_old();
                    ring.turn = Turn::new(ring.marks.any());
                    if ring.turn != Turn::Idle {
                        self.advance_marks(cx);
                    }
                }
            }
        }
    }

    /// What is being written stays marked.
    fn keep_marks_of_writes(&mut self, cx: &mut Cx<'_>) {
        let logical = u64::from(cx.config.backend.logical_block);
        let ring = self.cache_index.as_mut().expect("there is a ring");
        for (_, request) in self.requests.table.iter() {
            let may_write = match request.stage {
                Stage::Running | Stage::Flush | Stage::Intent | Stage::Buffer => true,
                Stage::Overlap | Stage::Room => false,
                Stage::Logged | Stage::Durable | Stage::Throttled => false,
            };
            let changes = matches!(request.job, Job::Write(_) | Job::Zero(_));
            if changes && may_write {
                ring.marks.keep(request.range.align_out(logical));
            }
        }
    }
}
