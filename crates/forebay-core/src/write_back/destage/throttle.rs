//! Slows a disk's writers to the speed of its destager, before the log is full.
//!
//! # The law
//! Acknowledgements are *spaced*: the next one is due a while after the one before. That while is
//! the time that the destager takes for the bytes of the write, times a factor of how full the
//! log is. The factor is 0 up to the threshold. Then it rises with the square of the excess: 1
//! half way between threshold and full, 4 when full. So
//! - where the factor is 1, writers are exactly as fast as the destager: with the default
//!   threshold the log settles at 75 %, whatever the demand. Below that it fills, above it
//!   empties. This is a first-order system: it does not swing, as long as the destager's measured
//!   speed lags by less than the log takes to fill;
//! - spacing holds for all writers together. One writer waits for its next turn, 128 writers for
//!   128 turns: the delay is time per page × outstanding writes without anybody counting them;
//! - the factor starts at 0 with slope 0, so nothing jumps at the threshold. It is convex, so a
//!   measured speed that is wrong by up to four times still finds a place below full;
//! - a write that came later than its turn is not delayed: a guest's own pauses count;
//! - each write is delayed by the destager's own latency times that factor, at most once that: while the log
//!   fills, latency grows with it. Spacing alone would do nothing until it is the guest's own pace, and
//!   then hold up all that is outstanding. Few writers settle below 75 % by it;
//! - who lets some go together before their turns pays for all of them afterwards.
//!
//! Spacing the wake-ups rather than delaying each writer by itself is what OpenZFS's write throttle
//! does; scaling the time by distance from a set point is Linux's `balance_dirty_pages`. Unlike
//! OpenZFS's hyperbola the factor stays finite at full, where writers wait for room anyway.
//!
//! Draining ([`Aim::Empty`]): writers get at most half of the destager's speed. As the log
//! empties they get one write per two destage latencies, so that it is empty some of the time.
//!
//! # Limits
//! Where primary storage has stopped, the speed measured last goes on to count, and the log fills
//! to the end. The time to settle is the time to fill: a log of seconds settles in seconds.

use crate::ids::Nanos;

/// Between threshold and full, the place where writers are as fast as the destager.
const EQUILIBRIUM: f64 = 0.5;
/// While draining, acknowledgements take this many times as long as destaging what they bring.
const DRAIN: f64 = 2.0;
const UNMEASURED_NS_PER_PAGE: u64 = 100_000;
/// A timer may be this late without lowering the rate.
const LATE_MAX: Nanos = Nanos::from_millis(10);
/// Acknowledgements that are due this much later may go together with one that is due.
pub const TOGETHER: Nanos = Nanos::from_millis(40);

/// Bytes of a page, the unit of [`Destaging::ns_per_page`].
pub const PAGE: u64 = 4096;

/// The speed that the destager achieves; [`super::window::DestageWindow::destaging`] measures it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destaging {
    /// Time per destaged page of 4 KiB, over all that is outstanding, in nanoseconds.
    pub ns_per_page: u64,
    /// From the start of a destage write to its completion.
    pub latency: Nanos,
}

/// How full a log is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes that primary storage has not acknowledged yet. Leave out what it has acknowledged and
    /// a flush has not freed: that goes in large steps, which writers would feel.
    pub dirty: u64,
    /// Bytes that the log can hold.
    pub capacity: u64,
}

/// What the throttle aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// A log that is not full.
    Room,
    /// Nothing dirty, so that the mode can change (a downgrade drains).
    Empty,
}

/// Settings of a [`Throttle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleConfig {
    /// Below this much of the log nothing is delayed.
    pub threshold_percent: u32,
    /// No acknowledgement is delayed longer: half of the I/O time-out.
    pub delay_max: Nanos,
}

impl Default for ThrottleConfig {
    fn default() -> Self {
        ThrottleConfig { threshold_percent: 50, delay_max: Nanos::from_millis(15_000) }
    }
}

/// The time that an acknowledgement is delayed at most, where primary storage has so much for an I/O.
pub(super) fn delay_max(backend_timeout: Nanos) -> Nanos {
    Nanos(backend_timeout.0 / 2)
}

/// Paces the acknowledgements of one disk's writes. The engine keeps the writes that could be
/// acknowledged in a queue, in order of arrival, and asks for its head only. Whenever something
/// changed (time, completions) it runs `while due(head) <= now { acknowledge; on_acknowledged }`.
/// The head's `due` is the engine's next deadline. So a lower occupancy takes effect at once, for
/// all that wait.
#[derive(Clone, Debug)]
pub struct Throttle {
    config: ThrottleConfig,
    /// Where the next acknowledgement's spacing starts.
    paced_from: Nanos,
}

impl Throttle {
    /// A throttle that has delayed nothing yet.
    ///
    /// # Panics
    /// When the threshold is not below 100 %.
    pub fn new(config: ThrottleConfig) -> Throttle {
        assert!(
            config.threshold_percent < 100,
            "a threshold of 100 % leaves nothing to throttle in"
        );
        Throttle { config, paced_from: Nanos(0) }
    }

    /// From now on no acknowledgement is delayed longer than this.
    pub fn limit_delay(&mut self, delay_max: Nanos) {
        self.config.delay_max = delay_max;
    }

    /// How far the log is filled beyond the threshold: 0 at or below it, 1 when full.
    pub fn excess(&self, fill: Fill) -> f64 {
        let threshold = f64::from(self.config.threshold_percent) / 100.0;
        let occupancy = fill.dirty as f64 / fill.capacity.max(1) as f64;
        ((occupancy - threshold) / (1.0 - threshold)).clamp(0.0, 1.0)
    }

    /// When a write of `bytes` that could be acknowledged since `ready` may be; `ready` when
    /// nothing is to be delayed. Never later than `ready` + `delay_max`.
    pub fn due(
        &self,
        ready: Nanos,
        bytes: u64,
        fill: Fill,
        aim: Aim,
        destaging: &Destaging,
    ) -> Nanos {
        let spacing = self.spacing(bytes, fill, aim, destaging);
        if spacing == Nanos(0) {
            return ready;
        }
        let delay = match aim {
            Aim::Room => destaging.latency.0 as f64 * self.factor(fill).min(1.0),
            Aim::Empty => 0.0,
        };
        let due = self.paced_from.plus(spacing).max(ready.plus(Nanos(delay as u64)));
        due.min(ready.plus(self.config.delay_max))
    }

    /// 0 up to the threshold, 1 where writers are as fast as the destager.
    fn factor(&self, fill: Fill) -> f64 {
        let excess = self.excess(fill) / EQUILIBRIUM;
        excess * excess
    }

    /// Takes note that the write that was `due` then is acknowledged `now`, which may be [`TOGETHER`] early.
    pub fn on_acknowledged(&mut self, now: Nanos, due: Nanos) {
        // From when it was due, so that a late timer does not lower the rate, nor an early one raise it; not
        // from long ago.
        self.paced_from = due.clamp(Nanos(now.0.saturating_sub(LATE_MAX.0)), now.plus(TOGETHER));
    }

    /// The time between the acknowledgement of a write of `bytes` and the one before it.
    fn spacing(&self, bytes: u64, fill: Fill, aim: Aim, destaging: &Destaging) -> Nanos {
        let ns_per_page = match destaging.ns_per_page {
            0 => UNMEASURED_NS_PER_PAGE,
            measured => measured,
        } as f64;
        let room = self.factor(fill);
        let destage_ns = ns_per_page * bytes as f64 / PAGE as f64;
        let spacing_ns = match aim {
            Aim::Room => destage_ns * room,
            Aim::Empty => {
                // What is under way at that rate. With no more than that left, one at a time.
                let latency_ns = destaging.latency.0 as f64;
                let under_way = 4.0 * latency_ns / ns_per_page * PAGE as f64;
                let nearly = under_way / (under_way + fill.dirty as f64).max(1.0);
                destage_ns * room.max(DRAIN) + DRAIN * latency_ns * nearly
            }
        };
        Nanos(spacing_ns as u64)
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
