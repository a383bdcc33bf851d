//! Slows a disk's writers to the speed of its destager, before the log is full.

use crate::ids::Nanos;

/// Bytes of a page, the unit of [`Destaging::ns_per_page`].
pub const PAGE: u64 = 4096;

/// What the destager achieves; [`super::window::DestageWindow::destaging`] measures it.
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
    /// Bytes that primary storage has not acknowledged yet. Leave out what it has acknowledged and a
    /// flush has not freed: that goes in large steps, which writers would feel.
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

/// Paces the acknowledgements of one disk's writes. The engine keeps the writes that could be
/// acknowledged in a queue, in order of arrival, and asks for its head only: whenever something
/// changed (time, completions), `while due(head) <= now { acknowledge; on_acknowledged }`; the head's
/// `due` is the engine's next deadline. So a lower occupancy takes effect at once, for all that wait.
#[derive(Clone, Debug)]
pub struct Throttle {
    config: ThrottleConfig,
    /// Where the next acknowledgement's spacing starts.
    paced_from: Nanos,
}

impl Throttle {
    /// A throttle that has delayed nothing yet.
    pub fn new(config: ThrottleConfig) -> Throttle {
        Throttle { config, paced_from: Nanos(0) }
    }

    /// When a write of `bytes` that could be acknowledged since `ready` may be; `ready` when nothing
    /// is to be delayed. Never later than `ready` + `delay_max`.
    pub fn due(
        &self,
        ready: Nanos,
        bytes: u64,
        fill: Fill,
        aim: Aim,
        destaging: &Destaging,
    ) -> Nanos {
        let _ = (bytes, fill, aim, destaging, self.paced_from, self.config);
        ready
    }

    /// Takes note that the write that was `due` then is acknowledged `now`.
    pub fn on_acknowledged(&mut self, now: Nanos, due: Nanos) {
        let _ = (now, due);
    }
}
