//! Finds out where the guest's data are aligned, from its requests.
//!
//! A guest whose partition starts at sector 63 sends pages that start 3584 bytes behind a page
//! boundary of the disk. On a grid from byte 0 every such request straddles two granules. The
//! detector counts at which multiple of 512 within a page whole-page requests start.

use crate::geometry::{ByteRange, PAGE, SECTOR};

const PHASES: usize = (PAGE / SECTOR) as usize;
/// Requests to see before saying anything.
const SAMPLES_MIN: u32 = 256;
/// Share of the requests, in per cent, that must agree.
const AGREE_PERCENT: u32 = 60;

/// Counts of the requests' phases.
#[derive(Clone, Debug, Default)]
pub struct AlignmentDetector {
    phases: [u32; PHASES],
    samples: u32,
}

impl AlignmentDetector {
    /// Takes note of a request. Requests of broken pages say nothing and are passed over.
    pub fn observe(&mut self, range: ByteRange) {
        if !range.len().is_multiple_of(PAGE) || range.is_empty() || self.samples == u32::MAX {
            return;
        }
        self.phases[(range.start % PAGE / SECTOR) as usize] += 1;
        self.samples += 1;
    }

    /// The byte offset (below a page) that most requests agree on; `None` while they do not, or
    /// while too few were seen.
    pub fn verdict(&self) -> Option<u64> {
        if self.samples < SAMPLES_MIN {
            return None;
        }
        let (offset, count) = self.most();
        let agrees = u64::from(count) * 100 >= u64::from(self.samples) * u64::from(AGREE_PERCENT);
        agrees.then_some(offset)
    }

    /// The byte offset that more requests have than any other, and how many.
    pub fn most(&self) -> (u64, u32) {
        let phases = (0..).step_by(SECTOR as usize).zip(self.phases);
        phases.fold((0, 0), |most, phase| if phase.1 >= most.1 { phase } else { most })
    }

    /// Whole-page requests seen.
    pub fn samples(&self) -> u32 {
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_at_sector_63_is_found() {
        let mut detector = AlignmentDetector::default();
        for i in 0..300u64 {
            // Four of five requests are pages of the guest, the rest its partition table and such.
            let start = if i % 5 == 0 { i * 512 } else { (63 + i * 8) * SECTOR };
            detector.observe(ByteRange::at(start, PAGE));
        }
        assert_eq!(detector.verdict(), Some(3584));
    }

    #[test]
    fn mixed_traffic_gives_no_verdict() {
        let mut detector = AlignmentDetector::default();
        for i in 0..1000u64 {
            detector.observe(ByteRange::at(i * SECTOR, PAGE));
        }
        assert_eq!(detector.verdict(), None);
    }

    #[test]
    fn a_few_requests_say_nothing() {
        let mut detector = AlignmentDetector::default();
        for _ in 0..255 {
            detector.observe(ByteRange::at(0, PAGE));
        }
        assert_eq!(detector.verdict(), None);
        detector.observe(ByteRange::at(0, SECTOR));
        assert_eq!(detector.verdict(), None);
        detector.observe(ByteRange::at(0, PAGE));
        assert_eq!(detector.verdict(), Some(0));
    }
}
