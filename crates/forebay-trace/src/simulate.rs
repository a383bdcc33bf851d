//! The effect of a cache on a trace: hits and misses, no data and no time.
//!
//! It runs on the engine's own [`Directory`] and policies, one per trace; several disks of a trace
//! share the cache. What is counted:
//! - A request touches granules of 4 KiB (of a whole block, when blocks are smaller), whole or in
//!   part. A granule hits when it is valid before the request.
//! - Reads and writes both make every touched granule valid, and both use the block once, however
//!   many of its granules they touch. A block that is not there is inserted, and a whole block is
//!   dropped when there is no room.
//! - The read hit ratios count reads only: of granules, and of requests all of whose granules hit.
//!
//! The engine keeps 64 valid bits per block, so its granules grow to 16 KiB in 1 MiB blocks. The
//! simulator keeps a bit per 4 KiB at every block size: published figures are counted that way, and
//! block sizes stay comparable.
//!
//! Its memory grows with the number of distinct blocks of the trace (4 to 150 bytes each, by how close to each other they lie). Belady
//! needs the trace twice and so holds all of it.

mod batch;
mod cache;
mod numbers;

use forebay_core::alignment::AlignmentDetector;
use forebay_core::config::GridOffset;
use forebay_core::directory::Directory;
use forebay_core::geometry::{BLOCK_MAX, ByteRange, SECTOR};
use forebay_core::index::Density;
use forebay_core::list::SLOTS_MAX;
use forebay_core::mrc::{Blocks, Piece, granule_size};
use forebay_core::policy::PolicyKind;
use serde::{Deserialize, Serialize};

use crate::belady::{Belady, next_uses};
use crate::error::{Error, ErrorKind};
use crate::policy;
use crate::record::{Op, Record};

pub(crate) use cache::Cache;
pub(crate) use numbers::Numbers;

use batch::Batch;

/// The policies that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SimulatedPolicy {
    /// One that does not know what comes.
    Online(PolicyKind),
    /// The offline optimum.
    Belady,
}

impl std::fmt::Display for SimulatedPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SimulatedPolicy::Online(kind) => kind.fmt(f),
            SimulatedPolicy::Belady => f.write_str("belady"),
        }
    }
}

impl std::str::FromStr for SimulatedPolicy {
    type Err = Error;

    fn from_str(name: &str) -> Result<SimulatedPolicy, Error> {
        if name == "belady" {
            return Ok(SimulatedPolicy::Belady);
        }
        policy::named(name).map(SimulatedPolicy::Online).ok_or_else(|| {
            let names = policy::ONLINE.map(PolicyKind::name).join(", ");
            let why = format!(
                "unknown policy \"{name}\": use one of {names}, belady (the offline optimum)"
            );
            Error::new(ErrorKind::Invalid, why)
        })
    }
}

/// The cache to simulate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes of data that it holds; a rest below a block is not used.
    pub cache_size: u64,
    /// Bytes of a cache block, a power of two from 512 to 1 MiB.
    pub block_size: u64,
    /// What to drop.
    pub policy: SimulatedPolicy,
    /// Where the grid of blocks lies.
    pub grid_offset: GridOffset,
}

/// Uses of granules and of whole requests of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Number of requests.
    pub requests: u64,
    /// Requests all of whose granules hit.
    pub request_hits: u64,
    /// Number of granules touched.
    pub granules: u64,
    /// Granules that hit.
    pub granule_hits: u64,
}

impl Uses {
    /// Counts a request.
    pub(crate) fn add(&mut self, granules: u64, hits: u64) {
        self.requests += 1;
        self.request_hits += u64::from(hits == granules);
        self.granules += granules;
        self.granule_hits += hits;
    }
}

/// What the cache did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Bytes of data that the cache held.
    pub cache_size: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Bytes of a granule.
    pub granule_size: u64,
    /// Name of the policy.
    pub policy: String,
    /// Byte offset of the grid at the end.
    pub grid_offset: u64,
    /// Requests after which the grid was moved, and the cache started afresh; `None`: it stayed.
    pub grid_moved_after: Option<u64>,
    /// The reads.
    pub reads: Uses,
    /// The writes.
    pub writes: Uses,
    /// Granules read that hit, of all granules read.
    pub read_hit_ratio: f64,
    /// Reads that hit wholly, of all reads.
    pub read_request_hit_ratio: f64,
    /// Granules read or written that did not hit, of all of them.
    pub miss_ratio: f64,
    /// Blocks dropped to make room.
    pub evictions: u64,
    /// Distinct blocks that the trace touched.
    pub blocks_touched: u64,
    /// Blocks in the cache at the end.
    pub blocks_cached: u64,
}

/// Runs a trace through a cache.
///
/// # Errors
/// The settings cannot work, or the trace ends with an error.
pub fn simulate(
    records: impl Iterator<Item = Result<Record, Error>>,
    settings: &Settings,
) -> Result<Outcome, Error> {
    match settings.policy {
        SimulatedPolicy::Online(kind) => {
            let slots = settings.check()?;
            let mut simulator =
                Simulator::new(settings, Directory::new(slots, 1, kind, Density::Fast));
            for record in records {
                simulator.add(&record?)?;
            }
            Ok(simulator.outcome())
        }
        SimulatedPolicy::Belady => {
            simulate_belady(&records.collect::<Result<Vec<_>, _>>()?, settings)
        }
    }
}

/// The first pass, with any policy, finds out which blocks are used in which order. (The grid may
/// move, but only while nothing has been dropped yet, so at the same place whatever the policy.)
fn simulate_belady(records: &[Record], settings: &Settings) -> Result<Outcome, Error> {
    let slots = settings.check()?;
    let mut first =
        Simulator::new(settings, Directory::new(slots, 1, PolicyKind::Fifo, Density::Fast));
    first.uses = Some(Vec::new());
    for record in records {
        first.add(record)?;
    }
    let belady = Belady::new(slots, next_uses(&first.uses.unwrap_or_default()));
    let directory = Directory::with_policy(slots, 1, Box::new(belady), Density::Fast);
    let mut second = Simulator::new(settings, directory);
    for record in records {
        second.add(record)?;
    }
    Ok(second.outcome())
}

impl Settings {
    /// Number of blocks that the cache holds.
    ///
    /// # Errors
    /// The setting that cannot work, and the allowed values.
    pub(crate) fn check(&self) -> Result<u32, Error> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        let Settings { cache_size, block_size, .. } = *self;
        if !block_size.is_power_of_two() || !(SECTOR..=BLOCK_MAX).contains(&block_size) {
            let message = format!("block size {block_size}: use a power of two from 512 to 1 MiB");
            return invalid(message);
        }
        let slots = cache_size / block_size;
        if slots == 0 {
            let message = format!("cache size {cache_size} is below the block size {block_size}");
            return invalid(message);
        }
        if slots > u64::from(SLOTS_MAX) {
            let message = format!(
                "cache size {cache_size} is more than {SLOTS_MAX} blocks of {block_size} bytes"
            );
            return invalid(message);
        }
        match self.grid_offset {
            GridOffset::Fixed(offset) if offset >= block_size || offset % SECTOR != 0 => {
                invalid(format!("grid offset {offset}: use a multiple of 512 below the block size"))
            }
            GridOffset::Fixed(_) | GridOffset::Auto => Ok(slots as u32),
        }
    }
}

/// A cache that is being simulated.
#[derive(Debug)]
struct Simulator {
    settings: Settings,
    cache: Cache,
    grid_offset: u64,
    grid_moved_after: Option<u64>,
    /// The grid does not move any more.
    is_settled: bool,
    detector: AlignmentDetector,
    numbers: Numbers,
    batch: Batch,
    reads: Uses,
    writes: Uses,
    /// The block of every use, when asked for.
    uses: Option<Vec<u32>>,
}

/// A grid moves only while less than one in this many blocks of a cache is filled.
pub(crate) const FILLED_MAX: u64 = 20;

impl Simulator {
    fn new(settings: &Settings, directory: Directory) -> Simulator {
        let granules_per_block = settings.block_size / granule_size(settings.block_size);
        Simulator {
            settings: *settings,
            cache: Cache::new(directory, granules_per_block),
            grid_offset: match settings.grid_offset {
                GridOffset::Fixed(offset) => offset,
                GridOffset::Auto => 0,
            },
            grid_moved_after: None,
            is_settled: settings.grid_offset != GridOffset::Auto,
            detector: AlignmentDetector::default(),
            numbers: Numbers::default(),
            batch: Batch::default(),
            reads: Uses::default(),
            writes: Uses::default(),
            uses: None,
        }
    }

    fn add(&mut self, record: &Record) -> Result<(), Error> {
        if !self.is_settled {
            self.look_at_alignment(record);
        }
        let grid = Blocks::new(self.settings.block_size, self.grid_offset);
        for Piece { block, granules } in grid.pieces(record.range()) {
            let number = self.numbers.of(record.device, block)?;
            if let Some(uses) = &mut self.uses {
                uses.push(number.0);
            }
            self.batch.add(number, granules);
        }
        self.batch.end_request(record.op, grid.granules_of(record.range()));
        if self.batch.is_full() {
            self.touch_all();
        }
        Ok(())
    }

    /// Uses everything that was gathered.
    fn touch_all(&mut self) {
        let (reads, writes) = (&mut self.reads, &mut self.writes);
        self.batch.touch(&mut self.cache, |op, granules, hits| {
            let uses = match op {
                Op::Read => &mut *reads,
                Op::Write => &mut *writes,
            };
            uses.add(granules, hits);
        });
    }

    /// Moves the grid once, as the engine does: when the requests agree on another place, and less
    /// than 5 % of the cache is filled.
    fn look_at_alignment(&mut self, record: &Record) {
        self.touch_all();
        if u64::from(self.cache.len()) * FILLED_MAX >= u64::from(self.cache.slots()) {
            self.is_settled = true;
            return;
        }
        self.detector.observe(ByteRange::at(record.offset, u64::from(record.len)));
        let Some(offset) = self.detector.verdict() else { return };
        if offset != self.grid_offset && offset < self.settings.block_size {
            self.is_settled = true;
            self.grid_offset = offset;
            self.grid_moved_after = Some(self.reads.requests + self.writes.requests);
            self.cache.clear();
            self.numbers.clear();
        }
    }

    fn outcome(&mut self) -> Outcome {
        self.touch_all();
        let ratio = |part: u64, all: u64| if all == 0 { 0.0 } else { part as f64 / all as f64 };
        let (reads, writes) = (self.reads, self.writes);
        let granules = reads.granules + writes.granules;
        let misses = granules - reads.granule_hits - writes.granule_hits;
        Outcome {
            cache_size: u64::from(self.cache.slots()) * self.settings.block_size,
            block_size: self.settings.block_size,
            granule_size: granule_size(self.settings.block_size),
            policy: self.settings.policy.to_string(),
            grid_offset: self.grid_offset,
            grid_moved_after: self.grid_moved_after,
            reads,
            writes,
            read_hit_ratio: ratio(reads.granule_hits, reads.granules),
            read_request_hit_ratio: ratio(reads.request_hits, reads.requests),
            miss_ratio: ratio(misses, granules),
            evictions: self.cache.evictions(),
            blocks_touched: self.numbers.len(),
            blocks_cached: u64::from(self.cache.len()),
        }
    }
}

#[cfg(test)]
mod tests;
