//! What a replay measured.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::slices::Slice;
use super::verify::Verified;
use crate::characterise::Named;

/// Longest time that the histograms tell apart; longer ones count as this.
pub(super) const TIME_NS_MAX: u64 = 600_000_000_000;
/// Steps of a distribution for each halving of what is left.
const CDF_STEPS: u32 = 8;

/// The distribution of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Least.
    pub min_ns: u64,
    /// Half are below.
    pub p50_ns: u64,
    /// 90 % are below.
    pub p90_ns: u64,
    /// 99 % are below.
    pub p99_ns: u64,
    /// 99.9 % are below.
    pub p999_ns: u64,
    /// Greatest.
    pub max_ns: u64,
}

/// What ended a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    /// The end of the trace.
    #[default]
    Trace,
    /// The time allowed.
    Duration,
    /// Whoever watches it.
    Interrupt,
}

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// From the first request to the end of the last.
    pub elapsed_ns: u64,
    /// The trace's own time from its first request to the last one issued.
    pub trace_time_ns: u64,
    /// From the issue of a read to its end.
    pub reads: Latency,
    /// From the issue of a write to its end.
    pub writes: Latency,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests ended per second.
    pub iops: f64,
    /// How long after its own time a request was issued (open loop only).
    pub lag: Latency,
    /// Requests that failed; they are not in the latencies.
    pub errors: u64,
    /// The first of them, in words.
    pub first_error: Option<String>,
    /// Requests folded back into the target.
    pub wrapped: u64,
    /// Requests grown to whole logical blocks of the target.
    pub widened: u64,
    /// Requests left out because they are too long for the target or for a replay.
    pub too_long: u64,
    /// Most requests outstanding at a time.
    pub in_flight_max: u32,
    /// Sessions of the target that ended while it was replayed; what was not flushed may be lost with one.
    pub sessions_lost: u64,
    /// Why it ended; all but the trace leave figures of fewer requests.
    pub ended_by: EndedBy,
    /// Length of a slice.
    pub slice_ns: u64,
    /// Slices of time from the first request on, without gaps.
    pub slices: Vec<Slice>,
    /// Latencies of reads: share that took at most so long, (ns, 0 to 1).
    pub read_cdf: Vec<(u64, f64)>,
    /// The same of writes.
    pub write_cdf: Vec<(u64, f64)>,
    /// The sixteen histograms of vscsiStats, as the target was asked and as it answered.
    pub histograms: Vec<Named>,
    /// The data of reads, where they were looked at.
    pub verified: Option<Verified>,
    /// Bytes that were written before it began, so that no read finds a hole.
    #[serde(default)]
    pub prefilled_bytes: u64,
    /// What it reads and nobody has written, where that is known.
    #[serde(default)]
    pub holes: Option<Holes>,
}

/// Holes of a target among what a trace reads before it writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holes {
    /// Bytes that are holes.
    pub bytes: u64,
    /// Of so many.
    pub of: u64,
}

/// Counts times with three digits of precision.
#[derive(Debug)]
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new() -> Times {
        Times(Histogram::new_with_bounds(1, TIME_NS_MAX, 3).expect("the bounds are in order"))
    }

    pub(super) fn record(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    /// Shares that took at most so long, finer towards the end: (ns, 0 to 1).
    pub(super) fn cdf(&self) -> Vec<(u64, f64)> {
        let steps = self.0.iter_quantiles(CDF_STEPS);
        let shares = steps.map(|step| (step.value_iterated_to(), step.quantile_iterated_to()));
        shares.collect()
    }

    pub(super) fn latency(&self) -> Latency {
        let histogram = &self.0;
        if histogram.is_empty() {
            return Latency::default();
        }
        let at = |quantile: f64| histogram.value_at_quantile(quantile);
        Latency {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            min_ns: histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: histogram.max(),
        }
    }
}

impl Outcome {
    /// Whether something ended it before the trace did.
    pub fn is_cut_short(&self) -> bool {
        self.ended_by != EndedBy::Trace
    }
}
