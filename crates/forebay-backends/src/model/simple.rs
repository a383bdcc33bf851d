//! A device without mechanics: every I/O takes a latency. The device starts so many I/Os per
//! second, and moves so many bytes per second, one after the other.

use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;

use super::{Distribution, ModelConfig, ModelOp};
use forebay_core::splitmix::Rng;

const SECOND: u128 = 1_000_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub struct Simple {
    /// Nanoseconds that one I/O keeps the device from starting the next.
    ns_per_io: u64,
    bandwidth: Option<u64>,
    read_ns: u64,
    write_ns: u64,
    flush_ns: u64,
    distribution: Distribution,
    free_at: Nanos,
    rng: Rng,
}

impl Simple {
    /// The device that `config` describes.
    pub fn new(config: &ModelConfig, rng: Rng) -> Simple {
        let read = config.latency.unwrap_or_default();
        let write = config.write_latency.unwrap_or(read);
        Simple {
            ns_per_io: config.iops.map_or(0, |iops| (SECOND / u128::from(iops.max(1))) as u64),
            bandwidth: config.bandwidth,
            read_ns: read.0,
            write_ns: write.0,
            flush_ns: config.flush_latency.unwrap_or(write).0,
            distribution: config.distribution,
            free_at: Nanos(0),
            rng,
        }
    }

    /// Starts an I/O at `now` and says when it completes.
    pub fn submit(&mut self, now: Nanos, op: ModelOp, range: ByteRange) -> Nanos {
        let (bytes, mean) = match op {
            ModelOp::Read => (range.len(), self.read_ns),
            ModelOp::Write => (range.len(), self.write_ns),
            ModelOp::Flush => (0, self.flush_ns),
            ModelOp::Unmap => (0, self.write_ns),
        };
        let transfer = self.bandwidth.map_or(0, |bandwidth| {
            (u128::from(bytes) * SECOND / u128::from(bandwidth.max(1))) as u64
        });
        let start = self.free_at.max(now);
        self.free_at = start.plus(Nanos(self.ns_per_io.max(transfer)));
        start.plus(Nanos(transfer)).plus(Nanos(self.draw_latency(mean)))
    }

    fn draw_latency(&mut self, mean: u64) -> u64 {
        match self.distribution {
            Distribution::Fixed => mean,
            Distribution::Uniform => (mean as f64 * (0.5 + self.rng.unit())) as u64,
            Distribution::Exponential => {
                let draw = -(1.0 - self.rng.unit()).ln();
                (mean as f64 * draw.min(10.0)) as u64
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
    fn writes_and_flushes_may_take_another_time_than_reads() {
        let mut simple = device(ModelConfig {
            latency: Some(Nanos(5000)),
            write_latency: Some(Nanos(700)),
            flush_latency: Some(Nanos(20)),
            ..ModelConfig::default()
        });
        let mut at = |op| simple.submit(Nanos(0), op, ByteRange::at(0, 4096)).0;
        let all = [ModelOp::Read, ModelOp::Write, ModelOp::Unmap, ModelOp::Flush];
        assert_eq!(all.map(&mut at), [5000, 700, 700, 20]);
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
