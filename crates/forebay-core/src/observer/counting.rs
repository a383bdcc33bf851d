//! The histograms of what a disk is asked, while somebody wants them.
//!
//! They count what comes from when they begin, as those of a trace that begins then: requests of before are not in them, and neither
//! are their answers.

use crate::characteristics::{Characteristics, Kind};
use crate::geometry::ByteRange;
use crate::ids::Nanos;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    /// The histograms.
    pub characteristics: Characteristics,
    /// When they began.
    pub since: Nanos,
    /// Place of the first request among those that came to the recorder.
    pub(super) first: u64,
}

impl Counting {
    /// A request was taken.
    #[cold]
    #[inline(never)]
    pub(super) fn taken(&mut self, now: Nanos, kind: Kind, range: ByteRange) {
        self.characteristics.on_request(now, kind, range, true);
    }

    /// The answer of a request was sent.
    #[cold]
    #[inline(never)]
    pub(super) fn answered(&mut self, sequence: u64, kind: Kind, latency: Nanos) {
        if sequence >= self.first {
            self.characteristics.on_answer(kind, latency);
        }
    }
}
