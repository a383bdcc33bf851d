//! Where the time of requests goes.
//!
//! ```text
//!   submitted ─ limit ─ queue ─ flash, log, room, primary storage ─ throttle ─ answered ─ sent
//!               └────────────── what a request in flight waits for ──────────┘
//! ```
//! A request waits for one thing at a time. A read counts the time of its I/Os for the slowest source that it has. What is
//! left of a latency is spent in the engine, on copies from RAM, and until the client has its reply.

use serde::{Deserialize, Serialize};

use super::RequestOp;
use crate::ids::Nanos;

/// What a request in flight waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The limits of the disk.
    Limit,
    /// An earlier request on the same bytes, or a buffer.
    Queue,
    /// Flash, of the cache or of its index.
    Flash,
    /// The write log.
    Log,
    /// Room in the write log, or a mode that is about to change.
    Room,
    /// Primary storage.
    PrimaryStorage,
    /// The throttle of write-back.
    Throttle,
}

/// The time that a request has waited, or many have. A sum stops at 584 years: a thousand requests that wait all the time
/// reach that within months.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited([u64; 7]);

impl Waited {
    /// It waited for `wait` so long.
    #[inline]
    pub fn add(&mut self, wait: Wait, time: Nanos) {
        let waited = &mut self.0[wait as usize];
        *waited = waited.saturating_add(time.0);
    }

    /// Another one waited, too.
    pub fn add_all(&mut self, other: &Waited) {
        for (all, one) in self.0.iter_mut().zip(other.0) {
            *all = all.saturating_add(one);
        }
    }

    /// All of it as shown, of requests that took `total_ns`.
    pub fn of(&self, total_ns: u64) -> TimeSplit {
        let [limit_ns, queue_ns, flash_ns, log_ns, room_ns, primary_ns, throttle_ns] = self.0;
        let waited = self.0.iter().fold(0, |all: u64, one| all.saturating_add(*one));
        TimeSplit {
            total_ns,
            limit_ns,
            queue_ns,
            flash_ns,
            log_ns,
            room_ns,
            primary_ns,
            throttle_ns,
            rest_ns: total_ns.saturating_sub(waited),
        }
    }
}

/// Where the time of requests went: sums over all of them, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TimeSplit {
    /// Their latencies together.
    pub total_ns: u64,
    /// Held back by the limits of the disk.
    pub limit_ns: u64,
    /// Waiting for earlier requests on the same bytes, or for a buffer.
    pub queue_ns: u64,
    /// Waiting for flash, of the cache or of its index.
    pub flash_ns: u64,
    /// Waiting for the write log.
    pub log_ns: u64,
    /// Waiting for room in the write log, or for a mode that changes.
    pub room_ns: u64,
    /// Waiting for primary storage.
    pub primary_ns: u64,
    /// Held back by the throttle of write-back.
    pub throttle_ns: u64,
    /// The rest: the engine, copies from RAM, and sending the reply.
    pub rest_ns: u64,
}

impl TimeSplit {
    /// Each part with its name, in the order in which a request comes to them.
    pub fn parts(&self) -> [(&'static str, u64); 8] {
        [
            ("limit", self.limit_ns),
            ("queue", self.queue_ns),
            ("flash", self.flash_ns),
            ("log", self.log_ns),
            ("room", self.room_ns),
            ("primary", self.primary_ns),
            ("throttle", self.throttle_ns),
            ("rest", self.rest_ns),
        ]
    }

    /// What came since it was as `earlier`.
    pub fn since(&self, earlier: &TimeSplit) -> TimeSplit {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        TimeSplit {
            total_ns: less(self.total_ns, earlier.total_ns),
            limit_ns: less(self.limit_ns, earlier.limit_ns),
            queue_ns: less(self.queue_ns, earlier.queue_ns),
            flash_ns: less(self.flash_ns, earlier.flash_ns),
            log_ns: less(self.log_ns, earlier.log_ns),
            room_ns: less(self.room_ns, earlier.room_ns),
            primary_ns: less(self.primary_ns, earlier.primary_ns),
            throttle_ns: less(self.throttle_ns, earlier.throttle_ns),
            rest_ns: less(self.rest_ns, earlier.rest_ns),
        }
    }
}

/// Where the time of requests went, by kind. Of requests that were answered well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TimeStatistics {
    /// Reads.
    pub read: TimeSplit,
    /// Writes, without compare-and-writes.
    pub write: TimeSplit,
    /// Flushes.
    pub flush: TimeSplit,
}

/// A request that took long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SlowRequest {
    /// What it asked for.
    pub operation: RequestOp,
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// Time since its answer.
    pub ago_ns: u64,
    /// Where its time went until it was answered.
    pub time: TimeSplit,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_many_requests_over_many_months_stops_at_the_largest_figure() {
        let mut all = Waited::default();
        for wait in [Wait::Limit, Wait::Limit, Wait::Room] {
            all.add(wait, Nanos(u64::MAX - 1));
            all.add_all(&all.clone());
        }
        let split = all.of(u64::MAX);
        assert_eq!((split.limit_ns, split.room_ns, split.rest_ns), (u64::MAX, u64::MAX, 0));
    }
}
