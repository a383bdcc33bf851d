//! What the control socket says of a disk's requests: the flight recorder, histograms, curves.

use forebay_trace::characterise::Device;
use forebay_trace::mrc::Curve;
use serde::{Deserialize, Serialize};

/// Requests in one [`Records`] at most.
pub const RECORDS_MAX: u64 = 4096;

/// What the flight recorder has of a disk's requests: a batch of those that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// The process that numbers them, from 0. A disk that is opened again beneath its clients goes on with the numbers.
    pub pid: u32,
    /// Number of the first of `requests`: later than what was asked for when those before were written over.
    pub first: u64,
    /// Number of the oldest that is still there.
    pub oldest: u64,
    /// Number of the next that will come.
    pub next: u64,
    /// How many the recorder holds at most.
    pub capacity: u64,
    /// How many flushes, discards and the like came so far; they have no number.
    pub others: u64,
    /// The clock that `requests` have their times from.
    pub now_ns: u64,
    /// In the order in which they came. They end before one that has no answer yet, as long as it is one of the newer half.
    pub requests: Vec<RecordLine>,
}

/// A request: when it came in ns, whether it is a write, its first byte, its length, ns until its answer was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordLine(pub u64, pub bool, pub u64, pub u64, pub Option<u64>);

/// What a disk was asked since its histograms are counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histograms {
    /// For how long, in ns.
    pub counted_ns: u64,
    /// The disk, as `trace histogram` has a device.
    pub devices: Vec<Device>,
}

/// What is new about the histograms of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramsChange {
    /// They were counted before.
    pub were_counted: bool,
}

/// Cache sizes in one question for a curve at most.
pub const CACHE_SIZES_MAX: usize = 256;

/// A disk's miss-ratio curve, as `trace mrc` has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Curves {
    /// One.
    pub curves: Vec<Curve>,
}
