//! Whether figures that come from outside can be those of a replay.
//!
//! What they are added up to, and multiplied by, in a comparison is a number then. Its memory has a bound.

use super::outcome::Outcome;
use super::slices::{SLICES_MAX, Slice};

/// Requests at most. A resample may draw one slice as often as there are slices, and their sum is a number still.
const COUNT_MAX: u64 = 1 << 53;

impl Outcome {
    /// Whether its figures can be; of one that comes from outside.
    pub fn is_sound(&self) -> bool {
        let Outcome { reads, writes, lag, errors, too_long, .. } = self;
        let requests = sum([reads.count, writes.count, *errors, *too_long]);
        let bytes = sum([self.read_bytes, self.written_bytes]);
        let is_rate = |rate: f64| rate.is_finite() && rate >= 0.0;
        let mut shares = self.read_cdf.iter().chain(&self.write_cdf);
        requests.is_some_and(|requests| requests <= COUNT_MAX)
            && bytes.is_some()
            && [reads.mean_ns, writes.mean_ns, lag.mean_ns, self.iops].into_iter().all(is_rate)
            && shares.all(|(_, share)| (0.0..=1.0).contains(share))
            && are_sound(&self.slices, self.slice_ns)
            && self
                .verified
                .as_ref()
                .is_none_or(|of| sum([of.stale, of.lost, of.misplaced, of.torn]).is_some())
    }
}

fn are_sound(slices: &[Slice], width_ns: u64) -> bool {
    let parts = || slices.iter().flat_map(|slice| [&slice.reads, &slice.writes]);
    let counted = sum(parts().map(|part| part.count));
    let in_buckets = sum(parts().flat_map(|part| &part.buckets).map(|(_, count)| *count));
    slices.len() <= SLICES_MAX
        && width_ns.checked_mul(slices.len() as u64).is_some()
        && [counted, in_buckets].into_iter().all(|sum| sum.is_some_and(|sum| sum <= COUNT_MAX))
        && sum(parts().map(|part| part.sum_ns)).is_some()
}

fn sum(all: impl IntoIterator<Item = u64>) -> Option<u64> {
    all.into_iter().try_fold(0u64, u64::checked_add)
}
