//! Changing a disk's mode with its guest at work: what was asked for, and what is so.
//!
//! ```text
//!  without log ──► hold new writes ─► those under way end ─► flush primary storage ─┬─ ok ─────► with log
//!       ▲                                                                           └─ failed
//!       └──────────── a pause, in which writes go on without log ◄────────────────────────┘
//!  with log ─────► drain: the throttle tightens ─► nearly clean: hold new writes ─► clean ─► without log
//! ```
//! A disk that starts with a clean log enters it the first way: an earlier run may have acknowledged writes
//! that primary storage has and has not flushed. A log that failed is left the second way, for write-through. Held writes wait as for room in the log, and
//! go on in the new mode. Where primary storage keeps failing its flushes they are held for one flush at a time.

use crate::action::Event;
use crate::config::Mode;
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};
use crate::geometry::PAGE;
use crate::ids::Nanos;
use crate::requests::in_flight::{Job, Stage};

/// A drain holds writers to come to its end when what is dirty will take so long, whatever the size of the log.
const HOLD_TIME: Nanos = Nanos::from_millis(200);
/// The same in pages, where nothing was destaged so far.
const HOLD_PAGES: u64 = 256;

impl Parts {
    /// Asks for a mode; [`Engine::mode`] is it some time later. One without log needs everything destaged: if that
    /// was paused, it goes on.
    ///
    /// # Errors
    /// The mode needs a write log and the disk has none.
    pub(in crate::engine) fn set_mode(
        &mut self,
        mode: Mode,
        cx: &mut Cx<'_>,
    ) -> Result<(), super::ConfigError> {
        if mode.logs() && self.log.is_none() {
            let text = "this mode needs a write log, and the disk was started without one: start it with \
                        --write-log SIZE (which needs --flash)";
            return Err(super::ConfigError(text.to_owned()));
        }
        cx.config.mode = mode;
        if self.is_draining(cx)
            && let Some(destager) = self.destager.as_mut().filter(|destager| destager.paused)
        {
            destager.paused = false;
            cx.event(Event::DestagingResumed);
        }
        if let Some(log) = &mut self.log {
            // What was held for a change that is not wanted any more goes on.
            log.room_changed = true;
        }
        self.run(cx);
        Ok(())
    }

    /// The mode that the disk is to be in: write-through when the log failed.
    fn target_mode(&self, shared: &Shared) -> Mode {
        let failed = self.log.as_ref().is_some_and(|log| log.failed.is_some());
        if failed && shared.config.mode.logs() { Mode::WriteThrough } else { shared.config.mode }
    }

    /// When a change of mode that waits for a flush goes on.
    pub(super) fn mode_deadline(&self, shared: &Shared) -> Nanos {
        let waits = !self.mode.logs() && self.target_mode(shared).logs();
        let retry_at = self.primary.flush.retry_at();
        if waits && retry_at > shared.now { retry_at } else { Nanos::NEVER }
    }

    /// True while a mode with a log is wanted, and primary storage fails the flush that has to be first.
    pub(super) fn is_kept_from_log(&self, shared: &Shared) -> bool {
        !self.mode.logs()
            && self.target_mode(shared).logs()
            && self.primary.flush.retry_at() > Nanos(0)
    }

    /// True while the log is emptied for good.
    pub(super) fn is_draining(&self, shared: &Shared) -> bool {
        self.mode.logs() && !self.target_mode(shared).logs()
    }

    /// True when new writes wait for the mode to change.
    pub(super) fn holds_writes(&self, shared: &Shared) -> bool {
        let target = self.target_mode(shared);
        match (self.mode.logs(), target.logs()) {
            (false, true) => shared.now >= self.primary.flush.retry_at(),
            (true, false) => {
                let log = self.log.as_ref().expect("the mode has a log");
                log.failed.is_some() || self.is_nearly_drained()
            }
            (true, true) | (false, false) => false,
        }
    }

    /// What is dirty will be destaged in a moment, as fast as it went lately.
    fn is_nearly_drained(&self) -> bool {
        let pages = self.dirty_bytes() / PAGE;
        let destager = self.destager.as_ref().expect("a log has a destager");
        match destager.window.destaging().ns_per_page {
            0 => pages <= HOLD_PAGES,
            ns_per_page => pages.saturating_mul(ns_per_page) <= HOLD_TIME.0,
        }
    }

    /// Changes the mode when everything is ready for it; true when it did.
    pub(super) fn advance_mode(&mut self, cx: &mut Cx<'_>) -> bool {
        let target = self.target_mode(cx);
        if self.mode == target {
            return false;
        }
        match (self.mode.logs(), target.logs()) {
            (true, false) => {
                let log = self.log.as_mut().expect("the mode has a log");
                log.forgets_when_clean = true;
                self.free_log(cx);
                let log = self.log.as_mut().expect("the mode has a log");
                let is_quiet = log.is_quiet() && log.index.is_empty();
                if !self.log_is_clean() || !is_quiet || !self.acknowledgeable.is_empty() {
                    return false;
                }
            }
            (false, true) => {
                let writes = self.requests.table.iter().any(|(_, request)| match request.stage {
                    Stage::Overlap | Stage::Room | Stage::Intent => false,
                    Stage::Running | Stage::Flush | Stage::Buffer => {
                        matches!(request.job, Job::Write(_) | Job::Zero(_))
                    }
                    Stage::Logged | Stage::Durable | Stage::Throttled => true,
                });
                if writes || !self.is_flushed_for_log(cx) {
                    return false;
                }
                let log = self.log.as_mut().expect("checked when it was asked for");
                log.forgets_when_clean = false;
            }
            (true, true) | (false, false) => {}
        }
        self.mode = target;
        self.release_owners(cx);
        if !target.caches() {
            self.leave_cache(cx);
        }
        if let Some(log) = &mut self.log {
            log.room_changed = true;
        }
        cx.event(Event::ModeChanged { mode: target });
        true
    }
}
