//! A device without mechanics: every I/O takes a latency, and the device starts so many I/Os per
//! second and moves so many bytes per second, one after the other.

use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;

use super::{Distribution, ModelConfig, ModelOp};
use crate::rng::Rng;

const SECOND: u128 = 1_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct Simple {
    /// Nanoseconds that one I/O keeps the device from starting the next.
    ns_per_io: u64,
    bandwidth: Option<u64>,
    latency_ns: u64,
    distribution: Distribution,
    free_at: Nanos,
    rng: Rng,
}

impl Simple {
    /// The device that `config` describes.
    pub fn new(config: &ModelConfig, rng: Rng) -> Simple {
        Simple {
            ns_per_io: config.iops.map_or(0, |iops| (SECOND / u128::from(iops.max(1))) as u64),
            bandwidth: config.bandwidth,
            latency_ns: config.latency.map_or(0, |latency| latency.0),
            distribution: config.distribution,
            free_at: Nanos(0),
            rng,
        }
    }

    /// Starts an I/O at `now` and says when it completes.
    pub fn submit(&mut self, now: Nanos, op: ModelOp, range: ByteRange) -> Nanos {
        let bytes = match op {
            ModelOp::Read | ModelOp::Write => range.len(),
            ModelOp::Flush | ModelOp::Unmap => 0,
        };
        let transfer = self.bandwidth.map_or(0, |bandwidth| {
            (u128::from(bytes) * SECOND / u128::from(bandwidth.max(1))) as u64
        });
        let start = self.free_at.max(now);
        self.free_at = start.plus(Nanos(self.ns_per_io.max(transfer)));
        start.plus(Nanos(transfer)).plus(Nanos(self.draw_latency()))
    }

    fn draw_latency(&mut self) -> u64 {
        let mean = self.latency_ns as f64;
        match self.distribution {
            Distribution::Fixed => self.latency_ns,
            Distribution::Uniform => (mean * (0.5 + self.rng.unit())) as u64,
            Distribution::Exponential => {
                let draw = -(1.0 - self.rng.unit()).ln();
                (mean * draw.min(10.0)) as u64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(config: ModelConfig) -> Simple {
        Simple::new(&config, Rng::new(1))
    }

    fn read(simple: &mut Simple, now: u64, len: u64) -> u64 {
        simple.submit(Nanos(now), ModelOp::Read, ByteRange::at(0, len)).0
    }

    #[test]
    fn latency_is_paid_in_parallel_and_the_rate_one_by_one() {
        let mut simple = device(ModelConfig {
            iops: Some(1000),
            latency: Some(Nanos::from_millis(5)),
            ..ModelConfig::default()
        });
        let done: Vec<u64> = (0..3).map(|_| read(&mut simple, 0, 4096)).collect();
        assert_eq!(done, [5_000_000, 6_000_000, 7_000_000]);
    }

    #[test]
    fn bandwidth_limits_large_transfers() {
        let mut simple = device(ModelConfig { bandwidth: Some(1 << 20), ..ModelConfig::default() });
        assert_eq!(read(&mut simple, 0, 1 << 20), 1_000_000_000);
        assert_eq!(read(&mut simple, 0, 1 << 19), 1_500_000_000);
        assert_eq!(simple.submit(Nanos(0), ModelOp::Flush, ByteRange::at(0, 0)).0, 1_500_000_000);
    }

    #[test]
    fn drawn_latencies_have_the_mean_that_was_asked_for() {
        for distribution in [Distribution::Uniform, Distribution::Exponential] {
            let mut simple = device(ModelConfig {
                latency: Some(Nanos::from_millis(5)),
                distribution,
                ..ModelConfig::default()
            });
            let sum: u64 = (0..20_000).map(|_| read(&mut simple, 0, 512)).sum();
            let mean = sum / 20_000;
            assert!((4_850_000..5_150_000).contains(&mean), "{distribution:?}: {mean}");
        }
    }
}
