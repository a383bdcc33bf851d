//! Is primary storage alone a crash-consistent image? Checks the promise of strict destaging, by
//! epochs.
//!
//! Every write has an epoch, known up to an interval: the one current when it was asked for, to the one current
//! when it was acknowledged. An image is legal if there is an epoch *k* with all of the epochs
//! before it, nothing of those after it, and any part of *k* itself. So with
//! ```text
//! A = the latest epoch, at least, of anything that the image shows
//! B = the earliest epoch, at most, of anything acknowledged that it lacks
//! ```
//! it is legal when A ≤ B. Zeroes are written many times and prove nothing; they are left out.

use forebay_core::geometry::{ByteRange, SECTOR};

use crate::oracle::sectors;
use crate::stamp::{self, Version};

#[derive(Clone, Copy, Debug)]
struct Written {
    arrival: u64,
    version: Version,
    earliest: u64,
    latest: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Epochs {
    now: u64,
    sectors: Vec<Vec<Written>>,
    /// What holds since the log was empty.
    pub trust: Trust,
}

/// When primary storage is one of the images that it could be after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trust {
    /// Nobody knows.
    Nothing,
    /// It lost something. It is one whenever the engine says so.
    Words,
    /// Nothing was lost that destaging alone cannot make good at once. It is one as far as the order of destaging promises it,
    /// and whenever the engine says so.
    Order,
}

impl Epochs {
    pub(crate) fn new(size: u64, version: Version) -> Epochs {
        let first = Written { arrival: 0, version, earliest: 0, latest: 0 };
        Epochs { now: 1, sectors: vec![vec![first]; (size / SECTOR) as usize], trust: Trust::Order }
    }

    /// All that was acknowledged is on primary storage, and what is there counts, whatever happened before. Writes that were
    /// not acknowledged yet may still come.
    pub(crate) fn begin_anew(&mut self, image: &[u8]) {
        for (index, bytes) in image.chunks_exact(SECTOR as usize).enumerate() {
            let version = stamp::read(bytes, index as u64).expect("somebody's bytes");
            let history = &mut self.sectors[index];
            history.retain(|written| written.latest == u64::MAX && written.version != version);
            history.insert(0, Written { arrival: 0, version, earliest: 0, latest: 0 });
        }
        self.trust = Trust::Order;
    }

    /// A write arrived.
    pub(crate) fn begin(&mut self, arrival: u64, version: Version, range: ByteRange) {
        let (earliest, latest) = (self.now, u64::MAX);
        for sector in sectors(range) {
            let written = Written { arrival, version, earliest, latest };
            self.sectors[sector as usize].push(written);
        }
    }

    /// It was acknowledged.
    pub(crate) fn acknowledge(&mut self, arrival: u64, range: ByteRange) {
        for sector in sectors(range) {
            for written in &mut self.sectors[sector as usize] {
                if written.arrival == arrival {
                    written.latest = self.now;
                }
            }
        }
    }

    /// A flush or a FUA was acknowledged.
    pub(crate) fn raise(&mut self) {
        self.now += 1;
    }

    /// Panics when an image of these sectors is not what the disk could look like after a crash.
    pub(crate) fn check<'a>(&self, image: impl Iterator<Item = &'a [u8]>) {
        let (mut shown, mut lacking) = ((0, 0, 0), (u64::MAX, 0, 0));
        for (index, bytes) in image.enumerate() {
            let version = stamp::read(bytes, index as u64).expect("somebody's bytes");
            let history = &self.sectors[index];
            if version == stamp::ZEROES {
                continue;
            }
            let place = history.iter().rposition(|written| written.version == version);
            let place = place.unwrap_or_else(|| panic!("sector {index} has nobody's {version}"));
            shown = shown.max((history[place].earliest, index, version));
            for later in &history[place + 1..] {
                if later.version != stamp::ZEROES {
                    lacking = lacking.min((later.latest, index, later.version));
                }
            }
        }
        assert!(
            shown.0 <= lacking.0,
            "primary storage shows epoch {} (sector {}, version {}) and lacks epoch {} (sector {}, version {})",
            shown.0,
            shown.1,
            shown.2,
            lacking.0,
            lacking.1,
            lacking.2
        );
    }
}
