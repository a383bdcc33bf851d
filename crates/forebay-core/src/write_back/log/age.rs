//! When records were appended, roughly: how old what primary storage lacks is.

use std::collections::VecDeque;

use crate::ids::{Nanos, Sequence};

/// Times that are kept; more are left out, which makes what comes later look older.
const SAMPLES_MAX: usize = 4096;
/// Time between two of them.
const SAMPLE_EVERY: Nanos = Nanos::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(in crate::write_back) struct Ages {
    /// The first records of spans of time, in order.
    samples: VecDeque<(Sequence, Nanos)>,
}

impl Ages {
    pub(in crate::write_back) fn new() -> Ages {
        Ages { samples: VecDeque::with_capacity(SAMPLES_MAX) }
    }

    /// A record is appended.
    pub(in crate::write_back) fn on_append(&mut self, now: Nanos, record: Sequence) {
        let is_due = self.samples.back().is_none_or(|(_, at)| now.since(*at) >= SAMPLE_EVERY);
        if is_due && self.samples.len() < SAMPLES_MAX {
            self.samples.push_back((record, now));
        }
    }

    /// Records up to this one are on primary storage; `last` is the last one of all.
    pub(in crate::write_back) fn on_flushed(&mut self, flushed: Sequence, last: Sequence) {
        if flushed >= last {
            return self.samples.clear();
        }
        while self.samples.get(1).is_some_and(|(next, _)| *next <= flushed.plus(1)) {
            self.samples.pop_front();
        }
    }

    /// When a record was appended that primary storage may lack, or a moment before.
    pub(in crate::write_back) fn of(&self, record: Sequence) -> Option<Nanos> {
        let later = self.samples.partition_point(|(first, _)| *first <= record);
        self.samples.get(later.checked_sub(1)?).map(|(_, at)| *at)
    }

    /// When the oldest record that primary storage lacks was appended, or a moment before.
    pub(in crate::write_back) fn oldest(&self) -> Option<Nanos> {
        self.samples.front().map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_record_that_is_missing_has_its_age() {
        let mut ages = Ages::new();
        assert_eq!(ages.oldest(), None);
        for n in 0..100 {
            ages.on_append(Nanos::from_millis(10 * n), Sequence(n + 1));
        }
        assert_eq!(ages.oldest(), Some(Nanos(0)));
        let of = |n| ages.of(Sequence(n)).map(|at| at.0 / 1_000_000);
        assert_eq!([of(1), of(5), of(6), of(100)], [0, 0, 50, 950].map(Some));
        ages.on_flushed(Sequence(49), Sequence(100));
        assert_eq!(ages.oldest(), Some(Nanos::from_millis(450)));
        ages.on_flushed(Sequence(50), Sequence(100));
        assert_eq!(ages.oldest(), Some(Nanos::from_millis(500)));
        ages.on_flushed(Sequence(100), Sequence(100));
        assert_eq!(ages.oldest(), None);
    }
}
