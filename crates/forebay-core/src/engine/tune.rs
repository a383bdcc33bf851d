//! Settings that change while the disk is at work: from one call to the next, but for the policy, to which the blocks go
//! over bit by bit (`cache/changes.rs`).
//!
//! Nothing is dropped for that. What is in flight counts by the new settings, too: requests have the new time from when
//! they came, or their last I/O ended.

use super::{ConfigError, Engine, Parts, setup};
use crate::action::Actions;
use crate::config::{OnTimeout, Tuning};
use crate::cx::Cx;
use crate::ids::Nanos;

impl Engine {
    /// The disk goes on with these settings; nothing happens when it has them.
    ///
    /// # Errors
    /// A sentence that names the setting and what is allowed. Nothing has changed.
    pub fn tune(
        &mut self,
        now: Nanos,
        tuning: Tuning,
        actions: &mut Actions,
    ) -> Result<(), ConfigError> {
        if tuning == self.shared.config.tuning() {
            return Ok(());
        }
        let (parts, mut cx) = self.at(now, actions);
        parts.tune(&tuning, &mut cx)
    }
}

impl Parts {
    fn tune(&mut self, tuning: &Tuning, cx: &mut Cx<'_>) -> Result<(), ConfigError> {
        let config = cx.config.tuned(tuning);
        if tuning.backend_timeout == Nanos(0) {
            return Err(ConfigError("a backend time-out of 0: use at least 1 ms".to_owned()));
        }
        if config.tuning() != *tuning {
            let text =
                "a rate of destaging needs a write log, and the disk was started without one";
            return Err(ConfigError(text.to_owned()));
        }
        setup::check_metadata(&config)?;
        let before = cx.config.limits;
        let waits = cx.config.on_timeout == OnTimeout::Wait;
        cx.config = config;
        self.requests.deadlines.allow(config.backend_timeout);
        if waits && config.on_timeout == OnTimeout::Fail {
            self.end_endless_waits(cx.now);
        }
        if let Some(write_back) = &mut self.write_back {
            write_back.tune(cx.now, &config);
        }
        self.cache.tune(cx);
        if config.limits != before {
            self.requests.set_limits(config.limits);
            self.release_held(cx);
        }
        self.run(cx);
        Ok(())
    }

    /// Requests that were out of time, and whose clients were to wait, have all of their time once more. Then they fail.
    fn end_endless_waits(&mut self, now: Nanos) {
        for (key, request) in self.requests.table.iter() {
            if !request.answered && !self.requests.deadlines.has(key) {
                self.requests.deadlines.push(key, now);
            }
        }
    }
}
