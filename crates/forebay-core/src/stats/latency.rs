//! Latencies: histograms, their figures, and which of them an engine keeps.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// Latencies longer than this are counted as this long: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A latency histogram, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
    /// Exact, where the histogram only has the bucket.
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LATENCY_NS_MAX, 2).expect("valid bounds");
        Latency { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Latency {
    /// Counts a latency `count` times.
    pub fn record(&mut self, latency: Nanos, count: u64) {
        let value = latency.0.min(LATENCY_NS_MAX);
        self.histogram.record_n(value, count).expect("a value within the bounds");
        self.sum_ns += u128::from(latency.0) * u128::from(count);
        self.max_ns = self.max_ns.max(value);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their arithmetic mean, in nanoseconds; `None`: there are none.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// The counts since it was as `earlier`; `None`: it never was so. The longest is that of its
    /// bucket.
    pub fn since(&self, earlier: &Latency) -> Option<Latency> {
        let mut since = self.clone();
        since.histogram.subtract(&earlier.histogram).ok()?;
        since.sum_ns = self.sum_ns.checked_sub(earlier.sum_ns)?;
        since.max_ns = since.histogram.max().min(self.max_ns);
        Some(since)
    }

    /// What it counted, to be kept.
    pub fn buckets(&self) -> LatencyBuckets {
        let filled = self.histogram.iter_recorded();
        LatencyBuckets {
            sum_ns: self.sum_ns(),
            buckets: filled.map(|at| (at.value_iterated_to(), at.count_at_value())).collect(),
        }
    }

    /// Makes one from kept buckets; `None`: no latency keeps such ones.
    pub fn of_buckets(kept: &LatencyBuckets) -> Option<Latency> {
        let mut found = Latency::default();
        let mut counted = 0u64;
        for &(value, count) in &kept.buckets {
            counted = counted.checked_add(count)?;
            found.histogram.record_n(value, count).ok()?;
        }
        found.sum_ns = kept.sum_ns.into();
        found.max_ns = found.histogram.max();
        Some(found)
    }

    /// What it counted, in the coarse steps that a monitoring system keeps.
    pub fn steps(&self) -> LatencySteps {
        let mut steps = LatencySteps { sum_ns: self.sum_ns(), ..LatencySteps::default() };
        if self.count() == 0 {
            return steps;
        }
        let (mut first, mut left) = (0, self.count());
        for (Nanos(bound), count) in LATENCY_STEPS.iter().zip(&mut steps.counts) {
            *count = self.histogram.count_between(first, *bound);
            first = self.histogram.next_non_equivalent(*bound);
            left -= *count;
        }
        steps.counts[LATENCY_STEPS.len()] = left;
        steps
    }

    /// All of them together, in nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        u64::try_from(self.sum_ns).unwrap_or(u64::MAX)
    }

    /// The usual figures of it.
    pub fn summary(&self) -> LatencySummary {
        let count = self.count();
        if count == 0 {
            return LatencySummary::default();
        }
        // A percentile is the upper edge of its bucket, which may lie above the longest.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max_ns);
        LatencySummary {
            count,
            sum_ns: self.sum_ns(),
            mean_ns: (self.sum_ns / u128::from(count)) as u64,
            min_ns: self.histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.max_ns,
        }
    }

    /// Memory of one histogram in bytes, about.
    pub fn memory_bytes(&self) -> usize {
        self.histogram.distinct_values() * size_of::<u64>()
    }
}

/// The counts of a [`Latency`], to be kept in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBuckets {
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// At most so many nanoseconds, how many.
    pub buckets: Vec<(u64, u64)>,
}

/// Upper bounds of [`LatencySteps`], from what RAM takes to what an operator calls an outage.
pub const LATENCY_STEPS: [Nanos; 17] = {
    const US: u64 = 1000;
    const MS: u64 = 1000 * US;
    [
        Nanos(25 * US),
        Nanos(50 * US),
        Nanos(100 * US),
        Nanos(250 * US),
        Nanos(500 * US),
        Nanos(MS),
        Nanos(2500 * US),
        Nanos(5 * MS),
        Nanos(10 * MS),
        Nanos(25 * MS),
        Nanos(50 * MS),
        Nanos(100 * MS),
        Nanos(250 * MS),
        Nanos(500 * MS),
        Nanos(1000 * MS),
        Nanos(2500 * MS),
        Nanos(10_000 * MS),
    ]
};

/// A latency in coarse steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencySteps {
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// How many ended within each bound of [`LATENCY_STEPS`] and not within the one before; the last: later. A bound takes
    /// what the histogram does not tell from it, which is at most one per cent longer.
    pub counts: [u64; LATENCY_STEPS.len() + 1],
}

/// Figures of a latency; all 0 when nothing was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencySummary {
    /// How many were measured.
    pub count: u64,
    /// All of them together, exact. Two readings give the mean of what came between them.
    #[serde(default)]
    pub sum_ns: u64,
    /// Arithmetic mean, exact.
    pub mean_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Latencies of requests by kind and by source, and of the devices themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LatencyStatistics {
    /// All reads.
    pub read: LatencySummary,
    /// Reads answered from RAM alone.
    pub read_ram: LatencySummary,
    /// Reads whose slowest source was flash.
    pub read_flash: LatencySummary,
    /// Reads whose slowest source was primary storage.
    pub read_backend: LatencySummary,
    /// Writes, without compare-and-writes.
    pub write: LatencySummary,
    /// Compare-and-writes, successful or not.
    #[serde(default)]
    pub compare_and_write: LatencySummary,
    /// Discards and writes of zeroes.
    #[serde(default)]
    pub zero: LatencySummary,
    /// Flushes.
    pub flush: LatencySummary,
    /// I/Os on flash.
    pub flash_io: LatencySummary,
    /// I/Os of the write log.
    pub log_io: LatencySummary,
    /// I/Os on primary storage.
    pub backend_io: LatencySummary,
}

/// The histograms behind [`LatencyStatistics`].
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Reads by slowest source: RAM, flash, primary storage.
    pub read: [Latency; 3],
    /// Writes, without compare-and-writes.
    pub write: Latency,
    /// Compare-and-writes, whatever they found.
    pub compare_and_write: Latency,
    /// Discards and writes of zeroes.
    pub zero: Latency,
    /// Flushes.
    pub flush: Latency,
    /// I/Os on flash.
    pub flash_io: Latency,
    /// I/Os of the write log.
    pub log_io: Latency,
    /// I/Os on primary storage.
    pub backend_io: Latency,
}

/// [`Latencies`] in coarse steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatenciesInSteps {
    /// Reads by slowest source: RAM, flash, primary storage.
    pub read: [LatencySteps; 3],
    /// Writes, without compare-and-writes.
    pub write: LatencySteps,
    /// Compare-and-writes, whatever they found.
    pub compare_and_write: LatencySteps,
    /// Discards and writes of zeroes.
    pub zero: LatencySteps,
    /// Flushes.
    pub flush: LatencySteps,
    /// I/Os on flash.
    pub flash_io: LatencySteps,
    /// I/Os of the write log.
    pub log_io: LatencySteps,
    /// I/Os on primary storage.
    pub backend_io: LatencySteps,
}

impl Latencies {
    /// Them in coarse steps.
    pub fn steps(&self) -> LatenciesInSteps {
        LatenciesInSteps {
            read: self.read.each_ref().map(Latency::steps),
            write: self.write.steps(),
            compare_and_write: self.compare_and_write.steps(),
            zero: self.zero.steps(),
            flush: self.flush.steps(),
            flash_io: self.flash_io.steps(),
            log_io: self.log_io.steps(),
            backend_io: self.backend_io.steps(),
        }
    }

    /// Their figures.
    pub fn summary(&self) -> LatencyStatistics {
        let mut read = Latency::default();
        for source in &self.read {
            read.merge(source);
        }
        LatencyStatistics {
            read: read.summary(),
            read_ram: self.read[0].summary(),
            read_flash: self.read[1].summary(),
            read_backend: self.read[2].summary(),
            write: self.write.summary(),
            compare_and_write: self.compare_and_write.summary(),
            zero: self.zero.summary(),
            flush: self.flush.summary(),
            flash_io: self.flash_io.summary(),
            log_io: self.log_io.summary(),
            backend_io: self.backend_io.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_within_two_digits_of_the_truth() {
        let mut latency = Latency::default();
        for i in 1..=1000u64 {
            latency.record(Nanos(i * 1000), 1);
        }
        let summary = latency.summary();
        assert_eq!(summary.count, 1000);
        assert_eq!(summary.mean_ns, 500_500);
        assert!((495_000..=505_000).contains(&summary.p50_ns), "{summary:?}");
        assert!((985_000..=1_000_000).contains(&summary.p99_ns), "{summary:?}");
    }

    #[test]
    fn what_came_since_is_told_and_can_be_kept() {
        let mut latency = Latency::default();
        latency.record(Nanos(5_000_000), 7);
        let before = latency.clone();
        for i in 1..=1000u64 {
            latency.record(Nanos(i * 1000), 1);
        }
        let since = latency.since(&before).unwrap();
        assert_eq!((since.count(), since.mean_ns()), (1000, Some(500_500.0)));
        assert!(since.summary().max_ns < 1_010_000, "{:?}", since.summary());
        assert!(before.since(&latency).is_none(), "it went backwards");
        let again = Latency::of_buckets(&since.buckets()).unwrap();
        assert_eq!((again.count(), again.mean_ns()), (1000, Some(500_500.0)));
        assert_eq!(again.summary().p99_ns, since.summary().p99_ns);
        let wrong = |buckets| Latency::of_buckets(&LatencyBuckets { sum_ns: 1, buckets });
        assert!(wrong(vec![(LATENCY_NS_MAX * 8, 1)]).is_none());
        assert!(wrong(vec![(1, u64::MAX), (2, 1)]).is_none());
    }

    #[test]
    fn steps_count_what_ended_within_each_bound() {
        let mut latency = Latency::default();
        for (millis, count) in [(0, 3), (4, 2), (90, 5), (60_000, 1)] {
            latency.record(Nanos(millis * 1_000_000), count);
        }
        let steps = latency.steps();
        let within = |millis: u64| {
            let ends = LATENCY_STEPS.iter().position(|it| it.0 == millis * 1_000_000).unwrap();
            steps.counts[..=ends].iter().sum::<u64>()
        };
        assert_eq!([1, 5, 50, 100].map(within), [3, 5, 5, 10]);
        assert_eq!(steps.counts.iter().sum::<u64>(), latency.count());
        assert_eq!(steps.counts[LATENCY_STEPS.len()], 1, "what took longer than every bound");
        assert_eq!(steps.sum_ns, 60_458_000_000);
        assert_eq!(latency.summary().sum_ns, steps.sum_ns);
    }

    #[test]
    fn a_latency_of_years_is_counted_as_the_longest() {
        let mut latency = Latency::default();
        latency.record(Nanos::NEVER, 1);
        assert_eq!(latency.count(), 1);
    }
}
