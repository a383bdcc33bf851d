//! The figures of a replay, by slices of time.
//!
//! The length of a replay is known only at its end. Slices are a millisecond long at first. When
//! there would be more than 128, each two become one, twice as long. A request belongs to the
//! slice in which it was issued. So in two replays of a trace on its clock the same requests are
//! in the same slice.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::outcome::TIME_NS_MAX;
use crate::record::Op;

/// Slices at most; at the end there are more than half as many, unless the replay is short.
pub const SLICES_MAX: usize = 128;
/// Length of a slice at first.
const FIRST_NS: u64 = 1_000_000;

/// The figures of one slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// When it begins, from the first request.
    pub start_ns: u64,
    /// Reads issued in it.
    pub reads: Part,
    /// Writes issued in it.
    pub writes: Part,
}

/// Requests of one kind that were answered well.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// How many.
    pub count: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Their latencies together.
    pub sum_ns: u64,
    /// The greatest latency.
    pub max_ns: u64,
    /// Latencies that are at most so long, and longer than the one before, 16 steps for each doubling: (ns, how many).
    pub buckets: Vec<(u64, u64)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slices {
    width_ns: u64,
    slices: Vec<[Filling; 2]>,
}

#[derive(Debug)]
struct Filling {
    bytes: u64,
    sum_ns: u64,
    max_ns: u64,
    latencies: Histogram<u32>,
}

impl Default for Filling {
    fn default() -> Self {
        let latencies = Histogram::new(1).expect("one digit is possible");
        Filling { bytes: 0, sum_ns: 0, max_ns: 0, latencies }
    }
}

impl Slices {
    pub(super) fn new() -> Slices {
        Slices { width_ns: FIRST_NS, slices: Vec::new() }
    }

    /// A request that was issued `at_ns` after the first has ended.
    pub(super) fn add(&mut self, at_ns: u64, op: Op, bytes: u64, latency_ns: u64) {
        while at_ns / self.width_ns >= SLICES_MAX as u64 {
            self.widen();
        }
        let at = (at_ns / self.width_ns) as usize;
        if at >= self.slices.len() {
            self.slices.resize_with(at + 1, Default::default);
        }
        let part = match op {
            Op::Read => 0,
            Op::Write => 1,
        };
        let filling = &mut self.slices[at][part];
        filling.bytes += bytes;
        filling.sum_ns += latency_ns;
        filling.max_ns = filling.max_ns.max(latency_ns);
        filling.latencies.record(latency_ns.min(TIME_NS_MAX)).expect("it grows");
    }

    fn widen(&mut self) {
        self.width_ns *= 2;
        let mut slices = std::mem::take(&mut self.slices).into_iter();
        while let Some(mut slice) = slices.next() {
            for (part, later) in slice.iter_mut().zip(slices.next().into_iter().flatten()) {
                part.join(&later);
            }
            self.slices.push(slice);
        }
    }

    pub(super) fn width_ns(&self) -> u64 {
        self.width_ns
    }

    pub(super) fn told(&self) -> Vec<Slice> {
        let told = |(n, [reads, writes]): (u64, &[Filling; 2])| Slice {
            start_ns: n * self.width_ns,
            reads: reads.told(),
            writes: writes.told(),
        };
        (0..).zip(&self.slices).map(told).collect()
    }
}

impl Filling {
    fn join(&mut self, later: &Filling) {
        self.bytes += later.bytes;
        self.sum_ns += later.sum_ns;
        self.max_ns = self.max_ns.max(later.max_ns);
        self.latencies.add(&later.latencies).expect("it grows");
    }

    fn told(&self) -> Part {
        let buckets = self.latencies.iter_recorded();
        Part {
            count: self.latencies.len(),
            bytes: self.bytes,
            sum_ns: self.sum_ns,
            max_ns: self.max_ns,
            buckets: buckets
                .map(|step| (step.value_iterated_to(), step.count_at_value().into()))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_grow_with_the_replay_and_nothing_is_lost() {
        let mut slices = Slices::new();
        for n in 0..10_000u64 {
            let op = if n % 3 == 0 { Op::Write } else { Op::Read };
            slices.add(n * 300_000, op, 512, 1000 + n % 7 * 1000);
        }
        let told = slices.told();
        assert!((64..=128).contains(&told.len()), "{}", told.len());
        assert_eq!(slices.width_ns(), 32_000_000);
        let parts = || told.iter().flat_map(|slice| [&slice.reads, &slice.writes]);
        assert_eq!(parts().map(|part| part.count).sum::<u64>(), 10_000);
        assert_eq!(parts().map(|part| part.bytes).sum::<u64>(), 5_120_000);
        for part in parts() {
            assert_eq!(part.buckets.iter().map(|(_, count)| count).sum::<u64>(), part.count);
            assert!(part.buckets.is_sorted());
            let (last, _) = *part.buckets.last().unwrap();
            assert!(last >= part.max_ns && last < part.max_ns * 17 / 16);
        }
        assert_eq!(told[3].start_ns, 96_000_000);
        let within = (96_000_000u64..128_000_000).filter(|at| at % 300_000 == 0).count() as u64;
        assert_eq!(told[3].reads.count + told[3].writes.count, within);
    }
}
