//! Latencies of requests, by the tier that serves them: a mixture of tiers.
//!
//! ```text
//! mean of reads = RAM's share × RAM + flash's share × flash + the rest × primary storage
//! p99           = that of the slowest tier that has more than 1 % of the requests, slower ones counted with it
//! ```
//! Reads that miss are first uses, as far as there are any, and others. A trace with latencies
//! has the time of each (`first.rs`). A read that hits in part waits for primary storage, so
//! shares are of whole requests where they are known. The RAM tier lies over the flash tier. Hits
//! of a cache of RAM's size come from RAM. Further hits of one of the larger size come from
//! flash. There is no queueing: primary storage answers as fast with the cache as without. Load
//! that a cache takes off a busy array is a further gain.

use serde::{Deserialize, Serialize};

/// A tier whose p99 nobody told has this many times its mean.
const P99_OF_MEAN: f64 = 3.0;
/// Slower requests than these are not in the p99.
const TAIL: f64 = 0.01;

/// Nanoseconds of a kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// On average.
    pub mean_ns: f64,
    /// That 99 % do not exceed.
    pub p99_ns: f64,
}

/// Latencies of all tiers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// A hit in RAM.
    pub ram: Latency,
    /// A hit on flash.
    pub flash: Latency,
    /// A durable write into the write log.
    pub flash_write: Latency,
    /// A read of primary storage, of all reads.
    pub backend: Latency,
    /// A read that is the first use of something, so that no cache can have it.
    pub backend_first: Latency,
    /// Any other read, where it misses.
    pub backend_again: Latency,
    /// A read far from those before it, which what misses may be for an array that reads ahead.
    pub backend_far: Latency,
    /// A write to primary storage.
    pub backend_write: Latency,
}

impl Latency {
    /// One of which only the mean is known.
    pub fn of_mean(mean_ns: f64) -> Latency {
        Latency { mean_ns, p99_ns: mean_ns * P99_OF_MEAN }
    }

    /// Requests of several kinds, each with its share of all; shares add up to 1.
    pub fn mixture(kinds: &[(f64, Latency)]) -> Latency {
        let mean_ns = kinds.iter().map(|(share, of)| share * of.mean_ns).sum();
        let mut slowest = kinds.to_vec();
        slowest.sort_by(|(_, one), (_, other)| other.p99_ns.total_cmp(&one.p99_ns));
        let mut slower = 0.0;
        let in_tail = slowest.iter().find(|(share, _)| {
            slower += share;
            slower > TAIL
        });
        Latency { mean_ns, p99_ns: in_tail.map_or(0.0, |(_, of)| of.p99_ns) }
    }
}

impl Latencies {
    /// The same where each read that misses is far from those before it.
    #[must_use]
    pub fn without_read_ahead(self) -> Latencies {
        let far = self.backend_far;
        // Of few reads one that was slow by chance may be of either kind.
        let slower = |of: Latency| Latency {
            mean_ns: of.mean_ns.max(far.mean_ns),
            p99_ns: of.p99_ns.max(far.p99_ns),
        };
        let (backend_first, backend_again) =
            (slower(self.backend_first), slower(self.backend_again));
        Latencies { backend_first, backend_again, ..self }
    }

    /// Reads of which `ram` and `flash` are served by these tiers, and `first` are first uses, as far as they miss.
    pub fn reads(&self, ram: f64, flash: f64, first: f64) -> Latency {
        Latency::mixture(&self.kinds(ram, flash, first))
    }

    /// The same as shares and what they take.
    pub fn kinds(&self, ram: f64, flash: f64, first: f64) -> [(f64, Latency); 4] {
        let missed = (1.0 - ram - flash).max(0.0);
        let first = first.min(missed);
        [
            (ram, self.ram),
            (flash, self.flash),
            (first, self.backend_first),
            (missed - first, self.backend_again),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::{Latencies, Latency};

    #[test]
    fn the_mean_is_weighed_and_the_p99_that_of_whoever_has_the_tail() {
        let [fast, slow] = [10.0, 1000.0].map(Latency::of_mean);
        let check = |missed: f64, mean: f64, p99: f64| {
            let of = Latency::mixture(&[(1.0 - missed, fast), (missed, slow)]);
            assert!((of.mean_ns - mean).abs() < 1e-9 && of.p99_ns == p99, "{of:?}");
        };
        check(0.0, 10.0, 30.0);
        check(0.01, 19.9, 30.0);
        check(0.02, 29.8, 3000.0);
        check(1.0, 1000.0, 3000.0);
    }

    #[test]
    fn without_read_ahead_nothing_is_faster() {
        let of = |mean_ns, p99_ns| Latency { mean_ns, p99_ns };
        let (fast, far) = (of(100.0, 90_000.0), of(500.0, 2_000.0));
        let latencies = Latencies {
            ram: fast,
            flash: fast,
            flash_write: fast,
            backend: fast,
            backend_first: fast,
            backend_again: of(900.0, 1_000.0),
            backend_far: far,
            backend_write: fast,
        };
        let found = latencies.without_read_ahead();
        assert_eq!(found.backend_first, of(500.0, 90_000.0));
        assert_eq!(found.backend_again, of(900.0, 2_000.0));
    }
}
