//! A cache for every size, all of one policy and block size, fed with a share of the blocks and made as many times
//! smaller.
//!
//! The sample stands for everything. The number of uses that a share of the blocks should have is
//! known. A sample with more of them has blocks that are used all the time, which would hit in
//! every cache. One with fewer lacks such blocks. So misses are related to the number that should
//! be there, as with [`forebay_core::mrc::Curve`].
//!
//! Uses are put off, and then each cache sees all of them before the next one does: the memory of one cache at a
//! time is near the CPU.

use forebay_core::directory::Directory;
use forebay_core::ids::BlockIndex;
use forebay_core::index::Density;
use forebay_core::mrc::{Differences, Part, Piece, Sampler, granule_size};

use super::bound::{Sampled, between};
use super::lanes::{Counter, Lanes, key_of};
use super::{Hits, Method, Point};
use crate::belady::{Belady, next_uses};
use crate::error::Error;
use crate::record::Op;
use crate::simulate::{Cache, Numbers, SimulatedPolicy, Uses};

/// See the module.
#[derive(Debug)]
pub(super) struct Miniatures {
    policy: SimulatedPolicy,
    block_size: u64,
    share: f64,
    threshold: u64,
    sampler: Sampler,
    numbers: Numbers,
    caches: Vec<Miniature>,
    /// What the caches have not seen yet; everything, where the policy has to know the future.
    log: Log,
    /// All granules used.
    reads: u64,
    writes: u64,
}

/// One size.
#[derive(Debug)]
struct Miniature {
    /// Slots of the cache that this one stands for.
    slots: u64,
    /// None where the future decides: it runs at the end.
    cache: Option<Cache>,
    tally: Tally,
}

/// What a cache did.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    reads: Uses,
    writes: Uses,
    /// Granules of the request under way, and how many hit.
    granules: u64,
    hits: u64,
    /// Misses of the parts of the sample.
    misses: Differences,
}

impl Tally {
    /// The cache sees a use.
    fn touch(&mut self, cache: &mut Cache, touch: &Touch) {
        let granules = u32::from(touch.start)..u32::from(touch.end);
        let count = granules.len() as u64;
        let hits = cache.touch(BlockIndex(touch.block), granules);
        self.misses.add(touch.part, (count - hits) as f64);
        self.granules += count;
        self.hits += hits;
        if touch.is_last {
            let (granules, hits) = (self.granules, self.hits);
            (self.granules, self.hits) = (0, 0);
            match touch.op {
                Op::Read => self.reads.add(granules, hits),
                Op::Write => self.writes.add(granules, hits),
            }
        }
    }
}

/// What was looked at, in order.
#[derive(Clone, Debug, Default)]
struct Log {
    touches: Vec<Touch>,
    /// The cache was emptied before this one.
    emptied_at: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Touch {
    block: u32,
    start: u16,
    end: u16,
    op: Op,
    part: Part,
    /// The last one of its request.
    is_last: bool,
}

impl Miniatures {
    /// Caches of this policy and these sizes in blocks of `block_size`, looking at `share` of a trace of about `blocks`.
    pub fn new(
        policy: SimulatedPolicy,
        sizes: &[u64],
        block_size: u64,
        (share, blocks): (f64, u64),
    ) -> Miniatures {
        let threshold = (share * 2f64.powi(32)).ceil().max(1.0) as u64;
        let cache = |size: &u64| {
            let slots = size / block_size;
            // What is far beyond the trace's blocks is never filled.
            let scaled = (slots.min(2 * blocks + 1024) as f64 * share).round().max(1.0) as u32;
            let cache = match policy {
                SimulatedPolicy::Online(kind) => {
                    let directory = Directory::new(scaled, 1, kind, Density::Fast);
                    Some(Cache::new(directory, block_size / granule_size(block_size)))
                }
                SimulatedPolicy::Belady => None,
            };
            Miniature { slots, cache, tally: Tally::default() }
        };
        Miniatures {
            policy,
            block_size,
            share: threshold as f64 / 2f64.powi(32),
            threshold,
            sampler: Sampler::default(),
            numbers: Numbers::default(),
            log: Log::default(),
            caches: sizes.iter().map(cache).collect(),
            reads: 0,
            writes: 0,
        }
    }

    /// The result of a cache, and its source.
    fn point(&self, slots: u64) -> (Point, Sampled) {
        let of = self.caches.iter().find(|of| of.slots == slots).expect("it was asked for");
        let Tally { reads, writes, misses, .. } = match of.cache {
            Some(_) => {
                debug_assert!(self.log.touches.is_empty(), "uses are put off");
                of.tally
            }
            None => self.with_the_future(slots),
        };
        let uses = (self.reads + self.writes).max(1) as f64;
        let sampled = Sampled {
            deviation: misses.deviation() * (1.0 - self.share).sqrt() / self.share / uses,
            imbalance: ((reads.granules + writes.granules) as f64 / self.share / uses - 1.0).abs(),
            blocks: slots as f64 * self.share,
            is_simulated: true,
        };
        if self.share == 1.0 {
            return (Point::counted(slots.saturating_mul(self.block_size), reads, writes), sampled);
        }
        let hits = |uses: Uses, all: u64| {
            let misses = (uses.granules - uses.granule_hits) as f64 / self.share;
            (all as f64 - misses).max(0.0)
        };
        let hits = Hits {
            reads: self.reads as f64,
            read_hits: hits(reads, self.reads),
            writes: self.writes as f64,
            write_hits: hits(writes, self.writes),
        };
        (Point::estimated(slots.saturating_mul(self.block_size), hits), sampled)
    }

    /// The result of the offline optimum in a cache that stands for one of `slots` slots.
    fn with_the_future(&self, slots: u64) -> Tally {
        let log = &self.log;
        let blocks: Vec<u32> = log.touches.iter().map(|touch| touch.block).collect();
        let scaled = (slots as f64 * self.share).round().clamp(1.0, blocks.len().max(1) as f64);
        let policy = Box::new(Belady::new(scaled as u32, next_uses(&blocks)));
        let directory = Directory::with_policy(scaled as u32, 1, policy, Density::Fast);
        let mut cache = Cache::new(directory, self.block_size / granule_size(self.block_size));
        let mut tally = Tally::default();
        for (at, touch) in log.touches.iter().enumerate() {
            if log.emptied_at == Some(at) {
                cache.clear();
            }
            tally.touch(&mut cache, touch);
        }
        tally
    }
}

impl Counter for Miniatures {
    #[inline]
    fn touch(&mut self, op: Op, device: u32, piece: Piece) -> Result<(), Error> {
        let Piece { block, granules } = piece;
        let position = self.sampler.position_of(key_of(device, block));
        if u64::from(position) >= self.threshold {
            return Ok(());
        }
        let part = self.sampler.part_of(position, self.threshold);
        let number = self.numbers.of(device, block)?;
        let (start, end) = (granules.start as u16, granules.end as u16);
        self.log.touches.push(Touch { block: number.0, start, end, op, part, is_last: false });
        Ok(())
    }

    fn end_request(&mut self, op: Op, granules: u64) {
        match op {
            Op::Read => self.reads += granules,
            Op::Write => self.writes += granules,
        }
        if let Some(touch) = self.log.touches.last_mut() {
            touch.is_last = true;
        }
    }

    fn settle(&mut self) {
        for Miniature { cache, tally, .. } in &mut self.caches {
            if let Some(cache) = cache {
                self.log.touches.iter().for_each(|touch| tally.touch(cache, touch));
            }
        }
        if self.policy != SimulatedPolicy::Belady {
            self.log.touches.clear();
        }
    }

    fn blocks(&self) -> u64 {
        (self.numbers.len() as f64 / self.share) as u64
    }

    fn split(&mut self, slots: u64) -> Miniatures {
        self.settle();
        let (kept, mut split) =
            std::mem::take(&mut self.caches).into_iter().partition(|of| of.slots <= slots);
        self.caches = kept;
        for Miniature { cache, .. } in &mut split {
            cache.iter_mut().for_each(Cache::clear);
        }
        let touches = self.log.touches.clone();
        let log = Log { emptied_at: Some(touches.len()), touches };
        let (numbers, sampler) = (self.numbers.cleared(), self.sampler.clone());
        Miniatures { sampler, numbers, caches: split, log, ..*self }
    }
}

impl Lanes<Miniatures> {
    pub fn policy(&self) -> SimulatedPolicy {
        self.whole().policy
    }

    /// The results of caches of these sizes.
    pub fn points(&self, sizes: &[u64]) -> Vec<Point> {
        let slots = sizes.iter().map(|size| size / self.block_size());
        let points: Vec<(Point, Sampled)> =
            slots.map(|slots| self.of(slots).point(slots)).collect();
        let mut curve: Vec<(u64, f64)> =
            points.iter().map(|(point, _)| (point.cache_size, point.miss_ratio)).collect();
        curve.sort_by_key(|&(size, _)| size);
        curve.dedup_by_key(|&mut (size, _)| size);
        let is_sampled = self.whole().share < 1.0;
        let with_bound = |(point, sampled): (Point, Sampled)| {
            let near = |times: f64| between(&curve, point.cache_size as f64 * times);
            Point { bound: is_sampled.then(|| sampled.bound(near)), ..point }
        };
        points.into_iter().map(with_bound).collect()
    }

    /// How they are known, and the share that was looked at.
    pub fn method(&self) -> (Method, f64) {
        match self.whole().share {
            1.0 => (Method::Simulation, 1.0),
            share => (Method::Miniature, share),
        }
    }
}
