//! Changing a disk's mode with its guest at work: what was asked for, and what is so.
//!
//! ```text
//!  without log ──► hold new writes ─► those under way end ─► flush primary storage ─┬─ ok ─────► with log
//!       ▲                               │ takes too long     │                      └─ failed
//!       └──────────── a pause, in which writes go on without log ◄────────────────────────┘
//!  with log ─────► drain: the throttle tightens ─► nearly clean: hold new writes ─► clean ─► without log
//!                    ▲                                 │ destaging stops, or takes too long
//!                    └──── a pause, writes go on ◄─────┘
//! ```
//! A disk that starts with a clean log enters it the first way: an earlier run may have acknowledged writes
//! that primary storage has and has not flushed. A log that failed is left the second way, for write-through. Held writes wait as for room in the log, and
//! go on in the new mode. Where primary storage keeps failing its flushes they are held for one flush at a time.

use crate::action::Event;
use crate::cache_index::CacheIndex;
use crate::config::{Config, Mode};
use crate::cx::{Cx, Shared};
use crate::engine::{ConfigError, Parts};
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::requests::in_flight::{Job, Stage};
use crate::write_back::WriteBack;

/// A drain holds writers to come to its end when what is dirty will take so long, whatever the size of the log.
const HOLD_TIME: Nanos = Nanos::from_millis(200);
/// The same in pages, where nothing was destaged so far.
const HOLD_PAGES: u64 = 256;
/// Longest that a drain holds writers at a time, whatever was expected, where primary storage is flushed sooner.
const HOLD_MAX: Nanos = Nanos::from_millis(1_000);
/// Flushes that it has time for: one is under way, another one is of what was destaged meanwhile.
const HOLD_FLUSHES: u64 = 3;
/// How long a change of mode lets writers go on that it held for too long.
const HOLD_PAUSE: Nanos = Nanos::from_millis(10_000);
/// The part of a request's time for which a change of mode may hold it: a slow flush ends in it, a hanging one does not.
const HELD_PART: u64 = 4;

/// How far a change of mode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum ModeChange {
    /// The disk is in the mode that it is to be in, as far as the log is concerned.
    Settled,
    /// A mode with a log is wanted: new writes are held until primary storage is flushed. `again`: that failed before.
    Entering { again: bool },
    /// The same, but primary storage failed the flush a moment ago: until then writes go on without the log.
    Blocked { until: Nanos },
    /// The log is emptied for good.
    Draining,
}

/// Whether a change of mode holds writers, so that it comes to its end. Zeroes that wait for the end of others in the log do
/// so as well: under steady writes it would not be empty for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Hold {
    /// Zeroes and a drain do as soon as what is dirty will take but a moment, any other change at once.
    Free,
    /// It does.
    Since(Nanos),
    /// It did for too long.
    NotBefore(Nanos),
}

impl Parts {
    /// See [`Engine::set_mode`](super::Engine::set_mode).
    pub(in crate::engine) fn set_mode(
        &mut self,
        mode: Mode,
        cx: &mut Cx<'_>,
    ) -> Result<(), ConfigError> {
        if mode.logs() && self.write_back.is_none() {
            let text = "this mode needs a write log, and the disk was started without one: start it with \
                        --write-log SIZE (which needs --flash)";
            return Err(ConfigError(text.to_owned()));
        }
        let before = self.mode_change(cx);
        cx.config.mode = mode;
        if before == ModeChange::Settled {
            // Zeroes may have held writers; a change does as it needs to.
            self.hold = Hold::Free;
        }
        let drains = self.is_draining(cx);
        if let Some(write_back) = &mut self.write_back {
            if drains && write_back.pause_destaging(false) {
                cx.event(Event::DestagingResumed);
            }
            // What was held for a change that is not wanted any more goes on.
            write_back.note_room();
        }
        self.run(cx);
        Ok(())
    }

    /// The mode that the disk is to be in: write-through when the log failed.
    fn target_mode(&self, shared: &Shared) -> Mode {
        let failed = self.write_back.as_ref().is_some_and(|log| log.failed().is_some());
        if failed && shared.config.mode.logs() { Mode::WriteThrough } else { shared.config.mode }
    }

    /// How far the change of mode is, if there is one.
    pub(in crate::engine) fn mode_change(&self, shared: &Shared) -> ModeChange {
        let until = self.primary.retry_at();
        match (self.mode.logs(), self.target_mode(shared).logs()) {
            (false, true) if shared.now < until => ModeChange::Blocked { until },
            (false, true) => ModeChange::Entering { again: until > Nanos(0) },
            (true, false) => ModeChange::Draining,
            (true, true) | (false, false) => ModeChange::Settled,
        }
    }

    /// When a change of mode that waits for a flush goes on.
    pub(in crate::engine) fn mode_deadline(&self, shared: &Shared) -> Nanos {
        match (self.mode_change(shared), self.hold) {
            (ModeChange::Blocked { until }, _) => until,
            // Over by now, and nobody has looked since.
            (ModeChange::Entering { .. }, _) if self.primary.retry_at() > self.proceeded => {
                self.primary.retry_at()
            }
            (_, Hold::Free) => Nanos::NEVER,
            (change, Hold::Since(since)) => since.plus(self.hold_max(change, &shared.config)),
            (_, Hold::NotBefore(at)) => at,
        }
    }

    /// True while the log is emptied for good.
    pub(in crate::engine) fn is_draining(&self, shared: &Shared) -> bool {
        self.mode_change(shared) == ModeChange::Draining
    }

    /// True when new writes wait for the mode to change, or for the log to be empty, so that it has room for zeroes.
    pub(in crate::engine) fn holds_writes(&self, shared: &Shared) -> bool {
        match self.mode_change(shared) {
            ModeChange::Settled => matches!(self.hold, Hold::Since(_)),
            ModeChange::Blocked { .. } => false,
            ModeChange::Entering { .. } => !matches!(self.hold, Hold::NotBefore(_)),
            ModeChange::Draining => {
                let failed = self.write_back.as_ref().is_some_and(|log| log.failed().is_some());
                failed || matches!(self.hold, Hold::Since(_))
            }
        }
    }

    /// Decides whether the change of mode, or zeroes that wait, hold writers from now on; true when those who were held go
    /// on.
    fn hold_for_change(&mut self, change: ModeChange, shared: &Shared) -> bool {
        let before = self.hold;
        let is_nearly_drained = || {
            let log = self.write_back.as_ref();
            log.is_some_and(|log| is_nearly_drained(log, shared))
        };
        let is_near = match change {
            ModeChange::Blocked { .. } => false,
            ModeChange::Entering { .. } => true,
            ModeChange::Settled => self.zeroes_wait() && is_nearly_drained(),
            ModeChange::Draining => is_nearly_drained(),
        };
        self.hold = match before {
            Hold::NotBefore(at) if shared.now < at => before,
            _ if !is_near => Hold::Free,
            Hold::Since(since)
                if shared.now >= since.plus(self.hold_max(change, &shared.config)) =>
            {
                Hold::NotBefore(shared.now.plus(HOLD_PAUSE))
            }
            Hold::Since(_) => before,
            Hold::Free | Hold::NotBefore(_) => Hold::Since(shared.now),
        };
        let holds = |hold| matches!(hold, Hold::Since(_));
        holds(before) && !holds(self.hold)
    }

    /// How long a change of mode holds writers at a time.
    fn hold_max(&self, change: ModeChange, config: &Config) -> Nanos {
        let part = Nanos(config.backend_timeout.0 / HELD_PART);
        let flush = self.write_back.as_ref().map_or(Nanos(0), WriteBack::flush_took);
        match change {
            ModeChange::Entering { .. } => part,
            ModeChange::Settled | ModeChange::Blocked { .. } | ModeChange::Draining => {
                HOLD_MAX.max(part.min(Nanos(flush.0.saturating_mul(HOLD_FLUSHES))))
            }
        }
    }

    /// Changes the mode when everything is ready for it; true when it did.
    pub(in crate::engine) fn advance_mode(&mut self, cx: &mut Cx<'_>) -> bool {
        let lets_go = self.hold_for_change(self.mode_change(cx), cx);
        if let Some(write_back) = self.write_back.as_mut().filter(|_| lets_go) {
            write_back.note_room();
        }
        let target = self.target_mode(cx);
        let change = self.mode_change(cx);
        let stays = change == ModeChange::Settled && target.logs();
        if let Some(write_back) = self.write_back.as_mut().filter(|_| stays) {
            // It may have drained for a mode that is not wanted any more.
            write_back.forget_when_clean(false);
        }
        if self.mode == target {
            return false;
        }
        let is_ready = match change {
            ModeChange::Settled => true,
            ModeChange::Draining => self.write_back.as_mut().is_none_or(|write_back| {
                write_back.forget_when_clean(true);
                write_back.free_log(cx);
                write_back.is_left()
            }),
            ModeChange::Entering { .. } | ModeChange::Blocked { .. } => {
                // Flash that cannot note that its index is void may take the log with it.
                let is_voiding = self.cache_index.as_ref().is_some_and(CacheIndex::is_voiding);
                !is_voiding && !self.has_writes_beside_log() && self.is_flushed_for_log(cx)
            }
        };
        if !is_ready {
            return false;
        }
        let goes_on = self.mode.logs() && target.logs();
        self.mode = target;
        // The next change holds writers as it needs to, whatever this one did.
        self.hold = Hold::Free;
        self.release_owners(cx);
        if !target.caches() {
            self.leave_cache(cx);
        }
        if let Some(write_back) = &mut self.write_back {
            if matches!(change, ModeChange::Entering { .. } | ModeChange::Blocked { .. }) {
                write_back.forget_when_clean(false);
            }
            if !goes_on {
                // From now on guests write past it, or did until now.
                write_back.end_hold(cx.now);
            }
            write_back.note_room();
        }
        cx.event(Event::ModeChanged { mode: target });
        true
    }

    /// True when nothing that was written beside the log is at risk; flushes otherwise.
    fn is_flushed_for_log(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_safe = cx.config.backend.read_only || !self.primary.is_at_risk();
        if !is_safe {
            self.primary.flush_unasked(cx);
        }
        is_safe
    }

    /// True while a write is under way that did not go into the log, or one that did without a mode for it.
    fn has_writes_beside_log(&self) -> bool {
        self.requests.table.iter().any(|(_, request)| match request.stage {
            // Each looks at the mode again when its turn comes; what it wrote before is flushed.
            Stage::Overlap | Stage::Room | Stage::Intent | Stage::Buffer => false,
            Stage::Running | Stage::Flush => {
                matches!(request.job, Job::Write(_) | Job::Zero(_))
            }
            Stage::Logged | Stage::Durable | Stage::Throttled => true,
        })
    }
}

/// What is dirty will be destaged in a moment, as fast as it went lately.
fn is_nearly_drained(log: &WriteBack, shared: &Shared) -> bool {
    let pages = log.dirty_bytes() / PAGE + log.zero_pages_left(shared);
    log.makes_progress(shared.now)
        && match log.ns_per_page() {
            0 => pages <= HOLD_PAGES,
            ns_per_page => pages.saturating_mul(ns_per_page) <= HOLD_TIME.0,
        }
}
