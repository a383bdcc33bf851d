//! Whether writes should be acknowledged by a log on flash.
//!
//! A log helps when flash is faster than primary storage and when primary storage keeps up in the
//! long run: bursts wait in the log, a load that never ends fills it. The capacity of primary
//! storage is reckoned as [`QUEUE_DEPTH`] writes at once of its latency. The log is twice as
//! large as the largest backlog, since acknowledgements are delayed above half of it.

use serde::Serialize;

use super::certainty::REQUESTS_MIN;
use super::{Latencies, Latency};
use crate::info::Info;

/// Writes that destaging has under way.
const QUEUE_DEPTH: f64 = 16.0;
/// Share of what primary storage takes that writes may need in the long run.
const LOAD_MAX: f64 = 0.8;
/// Writes of all requests, and gain in their latency, below which a log is not worth it.
const WRITES_MIN: f64 = 0.01;
const GAIN_MIN: f64 = 0.1;
/// Smallest log.
const LOG_MIN: u64 = 64 << 20;
/// Flash that a log is advised of at least: it takes half.
pub(super) const FLASH_MIN: u64 = 2 * LOG_MIN;
/// A record has a page at least.
const RECORD_MIN: f64 = 4096.0;

/// What to do with writes, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Writes {
    /// A log on flash.
    Log {
        /// Bytes of it.
        bytes: u64,
    },
    /// None: there are hardly any writes.
    Few,
    /// None: there are too few to tell how often they come.
    TooLittle {
        /// Writes that it takes.
        wanted: u64,
    },
    /// None: there is no flash, or too little for a log.
    NoFlash,
    /// None: flash is hardly faster than primary storage.
    NoGain,
    /// None: the trace has no times, so that it is not known whether primary storage keeps up.
    NoTimes,
    /// None: primary storage does not keep up in the long run.
    TooMany,
    /// None: bursts need a larger log than half of the flash.
    NoRoom {
        /// Bytes of log that they need.
        needed: u64,
    },
    /// None: its flash gains more as read cache, or a cache without it does better.
    CacheGainsMore,
    /// None: one would fill, or be slow, if the load were several times as high.
    NoReserve,
    /// None: it may have helped, and the engine made too little of the best one.
    Disproved {
        /// The mean time of writes with it.
        mean_ns: u64,
        /// It was full, or slowed its writers.
        is_full: bool,
    },
}

impl Writes {
    /// Bytes of the log, 0 for none.
    pub fn log_bytes(&self) -> u64 {
        match *self {
            Writes::Log { bytes } => bytes,
            Writes::Few
            | Writes::TooLittle { .. }
            | Writes::NoFlash
            | Writes::NoGain
            | Writes::NoTimes
            | Writes::TooMany
            | Writes::NoRoom { .. }
            | Writes::CacheGainsMore
            | Writes::NoReserve
            | Writes::Disproved { .. } => 0,
        }
    }

    /// Bytes of a log that the engine should be tried with; 0: none could help.
    pub(super) fn log_to_try(&self, flash: u64) -> u64 {
        let log = match *self {
            Writes::Log { bytes } => bytes,
            // Curves of requests over time know nothing of writes that coalesce, and of how destaging orders them.
            Writes::TooMany | Writes::NoRoom { .. } | Writes::CacheGainsMore => LOG_MIN,
            Writes::Few
            | Writes::TooLittle { .. }
            | Writes::NoFlash
            | Writes::NoGain
            | Writes::NoTimes
            | Writes::NoReserve
            | Writes::Disproved { .. } => 0,
        };
        if log.saturating_mul(2) <= flash { log } else { 0 }
    }

    pub(super) fn latency(&self, latencies: &Latencies) -> Latency {
        if self.log_bytes() > 0 { latencies.flash_write } else { latencies.backend_write }
    }
}

/// For a disk that may have `flash` bytes for all.
pub(super) fn of(info: &Info, latencies: &Latencies, flash: u64) -> Writes {
    let summary = &info.summary;
    let requests = summary.reads + summary.writes;
    let (writes, duration) = (summary.writes as f64, summary.duration_ns as f64);
    let slow = latencies.backend_write.mean_ns;
    if writes < requests as f64 * WRITES_MIN || requests == 0 {
        return Writes::Few;
    }
    if summary.writes < REQUESTS_MIN {
        return Writes::TooLittle { wanted: REQUESTS_MIN };
    }
    if flash < FLASH_MIN {
        return Writes::NoFlash;
    }
    if latencies.flash_write.mean_ns > slow * (1.0 - GAIN_MIN) {
        return Writes::NoGain;
    }
    if summary.duration_ns == 0 {
        return Writes::NoTimes;
    }
    let taken_per_ns = QUEUE_DEPTH / slow;
    if writes / duration > taken_per_ns * LOAD_MAX {
        return Writes::TooMany;
    }
    let (mut backlog, mut largest) = (0.0f64, 0.0f64);
    for window in &info.windows {
        backlog += window.writes as f64 - taken_per_ns * info.window_ns as f64;
        backlog = backlog.max(0.0);
        largest = largest.max(backlog);
    }
    let record = (summary.written_bytes as f64 / writes).max(RECORD_MIN);
    let bytes = ((2.0 * largest * record) as u64).max(LOG_MIN).next_power_of_two();
    if bytes > flash / 2 { Writes::NoRoom { needed: bytes } } else { Writes::Log { bytes } }
}
