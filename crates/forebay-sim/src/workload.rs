//! The requests of the clients: ranges and operations by chance, shaped by [`Load`].

use forebay_core::geometry::{ByteRange, COMPARE_MAX, PAGE, REQUEST_MAX, SECTOR};
use forebay_core::ids::Nanos;

use crate::rng::Rng;

/// How the clients behave.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests to make.
    pub requests: u64,
    /// Longest pause between two bursts.
    pub pause_max: Nanos,
    /// Requests made at once at most.
    pub burst_max: u64,
    /// Weights of read, write, flush, discard, zeroes, prefetch, allocation, cache state, nonsense.
    pub weights: [u64; 9],
    /// Compare-and-writes instead of these, per 1000.
    pub compares: u32,
    /// Longest request.
    pub length_max: u64,
    /// Requests that start at a hot place, per 1000.
    pub hot: u32,
    /// Requests that continue the last one, per 1000.
    pub sequential: u32,
    /// Requests that are whole pages from this phase on, per 1000.
    pub paged: u32,
    /// Where pages start.
    pub phase: u64,
    /// Hot places.
    pub spots: Vec<u64>,
    /// Writes with FUA, per 1000.
    pub fua: u32,
    /// Replies leave after each engine call, else with this chance per 1000.
    pub send: u32,
    /// Actions are carried out after each engine call, else with this chance per 1000.
    pub carry_out: u32,
    /// Pages of the buffer pool that idle clients leave free; `None`: they hold nothing.
    pub pages_left: Option<u64>,
}

/// The kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read; `no_admit` by chance.
    Read,
    /// Write.
    Write,
    /// Flush.
    Flush,
    /// Discard.
    Discard,
    /// Write zeroes.
    Zeroes,
    /// Prefetch.
    Prefetch,
    /// Which parts are allocated?
    Allocation,
    /// Which parts are cached?
    CacheState,
    /// A read that no disk can answer.
    Nonsense,
    /// Compare and write.
    Compare,
}

const KINDS: [Kind; 9] = [
    Kind::Read,
    Kind::Write,
    Kind::Flush,
    Kind::Discard,
    Kind::Zeroes,
    Kind::Prefetch,
    Kind::Allocation,
    Kind::CacheState,
    Kind::Nonsense,
];

/// Makes requests.
#[derive(Debug)]
pub struct Workload {
    /// The shape.
    pub load: Load,
    size: u64,
    last: ByteRange,
    rng: Rng,
}

impl Workload {
    /// For a disk of `size` bytes.
    pub fn new(load: Load, size: u64, rng: Rng) -> Workload {
        Workload { load, size, last: ByteRange::default(), rng }
    }

    /// The disk has become longer.
    pub fn grow(&mut self, size: u64) {
        self.size = size;
    }

    /// The next kind of request.
    pub fn kind(&mut self) -> Kind {
        if self.load.compares > 0 && self.rng.chance(self.load.compares) {
            return Kind::Compare;
        }
        let weights = self.load.weights;
        let mut at = self.rng.below(weights.iter().sum());
        for (kind, weight) in KINDS.into_iter().zip(weights) {
            if at < weight {
                return kind;
            }
            at -= weight;
        }
        unreachable!("the weights add up")
    }

    /// The next range.
    pub fn range(&mut self, kind: Kind) -> ByteRange {
        if kind == Kind::Nonsense {
            return self.nonsense();
        }
        let rng = &mut self.rng;
        let long = matches!(kind, Kind::Discard | Kind::Zeroes | Kind::Prefetch) && rng.chance(100);
        let length_max = if long { self.size } else { self.load.length_max.min(REQUEST_MAX) };
        // Mostly one sector of few.
        let small = kind == Kind::Compare && rng.chance(800);
        let length_max = match kind {
            Kind::Compare if small => SECTOR,
            Kind::Compare => length_max.min(COMPARE_MAX),
            _ => length_max,
        };
        let paged = !small && rng.chance(self.load.paged);
        let unit = if paged { PAGE } else { SECTOR };
        let phase = if paged { self.load.phase } else { 0 };
        if self.size < phase + unit {
            return ByteRange::at(0, SECTOR);
        }
        let len = (1 + rng.skewed(length_max / unit)) * unit;
        let start = if rng.chance(self.load.sequential) {
            self.last.end
        } else if rng.chance(self.load.hot) {
            let spot = rng.pick(&self.load.spots) / unit * unit;
            spot + rng.skewed(16) * unit + phase
        } else {
            rng.below(self.size / unit) * unit + phase
        };
        let len = len.min(self.size - phase).min(length_max.max(unit)) / unit * unit;
        let len = if kind == Kind::Compare { len.min(COMPARE_MAX) } else { len };
        let start = start.min(self.size - len) / SECTOR * SECTOR;
        self.last = ByteRange::at(start, len);
        self.last
    }

    fn nonsense(&mut self) -> ByteRange {
        let start = self.rng.below(self.size);
        match self.rng.below(4) {
            0 => ByteRange::at(start, 0),
            1 => ByteRange::at(self.size, SECTOR),
            2 => ByteRange::at(u64::MAX - SECTOR, SECTOR),
            _ => ByteRange::at(start | 1, SECTOR),
        }
    }

    /// The clients' chance.
    pub fn rng(&mut self) -> &mut Rng {
        &mut self.rng
    }
}
