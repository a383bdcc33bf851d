//! A trace in hundred parts of as many requests each: what they took, part by part.

use forebay_core::ids::Nanos;

use super::outcome::{Slice, Warm};
use crate::record::Op;

/// Parts.
const COUNT: u64 = 100;

/// What is known of a part.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    pub start: Nanos,
    /// Number and latency of its reads, and of its writes.
    reads: (u64, u64),
    writes: (u64, u64),
    /// Reads answered, and those from the cache, when it began.
    pub answered: (u64, u64),
    /// Requests of earlier parts.
    come: u64,
    /// Bytes that the cache on flash and its index had been written when it began.
    pub cached: u64,
    pub dirty_max: u64,
}

impl Part {
    pub fn add(&mut self, op: Op, latency: Nanos) {
        let (count, sum) = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        };
        *count += 1;
        *sum = sum.saturating_add(latency.0);
    }
}

/// Parts of a trace whose requests come one by one.
#[derive(Debug)]
pub(super) struct Parts {
    requests: u64,
    come: u64,
    all: Vec<Part>,
}

impl Parts {
    pub fn new(requests: u64) -> Parts {
        Parts { requests: requests.max(1), come: 0, all: Vec::with_capacity(COUNT as usize) }
    }

    /// Another request has come; true when it is the first one of a part.
    pub fn next(&mut self, at: Nanos) -> bool {
        let part = u128::from(self.come) * u128::from(COUNT) / u128::from(self.requests);
        let come = self.come;
        self.come += 1;
        let is_first = part as usize >= self.all.len() && self.all.len() < COUNT as usize;
        if is_first {
            self.all.push(Part { start: at, come, ..Part::default() });
        }
        is_first
    }

    /// The part of the last request.
    pub fn number(&self) -> u32 {
        self.all.len() as u32 - 1
    }

    /// A part by its number.
    pub fn at(&mut self, number: u32) -> &mut Part {
        &mut self.all[number as usize]
    }

    /// The first part of the second half, and the share of all requests in that half; `None`: there is no first half.
    pub fn warm(&self) -> Option<(&Part, f64)> {
        let part = self.all.get(self.all.len() / 2).filter(|_| self.all.len() > 1)?;
        Some((part, (self.come - part.come) as f64 / self.come as f64))
    }

    /// The last part, where there is one.
    pub fn last(&mut self) -> Option<&mut Part> {
        self.all.last_mut()
    }
}

/// The parts without and with Forebay, side by side; `end`: reads answered and those from the cache, in all.
pub(super) fn of(before: &Parts, after: &Parts, end: (u64, u64)) -> Vec<Slice> {
    let mean = |(count, sum): (u64, u64)| sum.checked_div(count).unwrap_or(0);
    let ends = after.all.iter().skip(1).map(|part| part.answered).chain([end]);
    let both = before.all.iter().zip(&after.all).zip(ends);
    let slice = |((before, after), end): ((&Part, &Part), (u64, u64))| Slice {
        start_ns: after.start.0,
        reads: after.reads.0,
        writes: after.writes.0,
        answered: end.0 - after.answered.0,
        hits: end.1 - after.answered.1,
        read_ns_before: mean(before.reads),
        read_ns_after: mean(after.reads),
        write_ns_before: mean(before.writes),
        write_ns_after: mean(after.writes),
        dirty_bytes_max: after.dirty_max,
    };
    both.map(slice).collect()
}

/// The second half of them together.
pub(super) fn warm(slices: &[Slice]) -> Warm {
    let half = &slices[slices.len() / 2..];
    let sum = |of: fn(&Slice) -> u64| half.iter().map(of).sum::<u64>();
    let mean = |count: fn(&Slice) -> u64, mean_ns: fn(&Slice) -> u64| {
        let all = |slice: &Slice| u128::from(count(slice)) * u128::from(mean_ns(slice));
        let count = u128::from(sum(count));
        half.iter().map(all).sum::<u128>().checked_div(count).unwrap_or(0) as u64
    };
    Warm {
        reads: sum(|slice| slice.reads),
        hit_ratio: sum(|slice| slice.hits) as f64 / sum(|slice| slice.answered).max(1) as f64,
        read_mean_ns: mean(|slice| slice.reads, |slice| slice.read_ns_after),
        writes: sum(|slice| slice.writes),
        write_mean_ns: mean(|slice| slice.writes, |slice| slice.write_ns_after),
    }
}
