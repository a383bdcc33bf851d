//! What a run measured, for people and as JSON.

use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies up to a minute, to three digits.
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Latencies(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds are valid"))
    }
}

impl Latencies {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_nanos() as u64);
    }

    pub(crate) fn reset(&mut self) {
        self.0.reset();
    }

    pub(crate) fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn summary(&self) -> Option<Summary> {
        let us = |ns: f64| (ns / 10.0).round() / 100.0;
        (!self.0.is_empty()).then(|| Summary {
            count: self.0.len(),
            mean_us: us(self.0.mean()),
            p50_us: us(self.0.value_at_quantile(0.50) as f64),
            p99_us: us(self.0.value_at_quantile(0.99) as f64),
            p999_us: us(self.0.value_at_quantile(0.999) as f64),
            max_us: us(self.0.max() as f64),
        })
    }
}

/// Latency of one kind of request, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

/// One run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) seconds: f64,
    pub(crate) iops: f64,
    pub(crate) reads: Option<Summary>,
    pub(crate) writes: Option<Summary>,
    /// CPU time of the servers per request, when their process ids were given.
    pub(crate) server_cpu_us_per_request: Option<f64>,
    pub(crate) client_cpu_us_per_request: f64,
    /// I/Os per second of each connection.
    pub(crate) connections: Vec<f64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} IOPS over {:.2} s", self.iops, self.seconds)?;
        for (name, summary) in [("reads", self.reads), ("writes", self.writes)] {
            if let Some(s) = summary {
                write!(
                    f,
                    "\n{name:6} {} mean {} µs, p50 {}, p99 {}, p99.9 {}, max {}",
                    s.count, s.mean_us, s.p50_us, s.p99_us, s.p999_us, s.max_us
                )?;
            }
        }
        write!(f, "\nCPU per request: client {:.2} µs", self.client_cpu_us_per_request)?;
        match self.server_cpu_us_per_request {
            Some(us) => write!(f, ", server {us:.2} µs"),
            None => Ok(()),
        }
    }
}
