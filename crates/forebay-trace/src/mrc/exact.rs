//! Every reuse distance of a trace, or every one among a share of its blocks.
//!
//! A block is found through its *chunk*, neighbouring blocks of 16 granules together. That is one
//! lookup for most of a request, and one cache line for its blocks' last uses. [`Recency`]
//! counts.

use forebay_core::mrc::{Piece, Recency, Sampler, Spread};
use rustc_hash::FxHashMap;

use super::lanes::{Counter, key_of};
use super::{Hits, Point};
use crate::error::{Error, ErrorKind};
use crate::record::Op;
use crate::simulate::Uses;

/// Time of a block that was not used, and need of a granule that was not.
const NEVER: u32 = u32::MAX;
/// Granules of a chunk, unless a block has more.
const CHUNK: u32 = 16;
/// Times that there is room for at the beginning.
const TIMES: u32 = 1 << 14;

/// See the module. One block size's.
#[derive(Debug)]
pub(crate) struct Exact {
    granules_per_block: u32,
    chunk_shift: u32,
    chunks: FxHashMap<(u32, u64), u32>,
    /// The chunk that was found last.
    latest: ((u32, u64), u32),
    /// Last use of each block, chunk after chunk.
    times: Vec<u32>,
    /// Need of each granule, block after block; nothing when a block is one granule, whose need is the block's
    /// distance.
    needs: Vec<u32>,
    recency: Recency,
    sampler: Sampler,
    /// Positions below this are looked at.
    threshold: u64,
    reads: Counts,
    writes: Counts,
    /// Of both, where not all is looked at; needs as those of all blocks.
    spread: Spread,
    /// Greatest need in the request under way.
    request: u32,
}

/// How many uses have which need.
#[derive(Clone, Debug, Default)]
struct Counts {
    granules: Vec<u64>,
    /// A need, and how many uses with it are not counted yet: those of blocks in a row have mostly the same.
    waiting: (u32, u64),
    granules_looked_at: u64,
    granules_all: u64,
    requests: Vec<u64>,
    requests_all: u64,
}

/// Adds to a count; there is none for a need that no cache meets.
#[inline]
fn count(counts: &mut Vec<u64>, need: u32, uses: u64) {
    if need == NEVER {
        return;
    }
    if need as usize >= counts.len() {
        counts.resize((need as usize + 1).next_power_of_two(), 0);
    }
    counts[need as usize] += uses;
}

impl Exact {
    /// For blocks of `granules_per_block`, looking at `share` of them.
    pub fn new(granules_per_block: u32, share: f64) -> Exact {
        Exact {
            granules_per_block,
            chunk_shift: (CHUNK / granules_per_block).max(1).trailing_zeros(),
            chunks: FxHashMap::default(),
            latest: ((0, u64::MAX), 0),
            times: Vec::new(),
            needs: Vec::new(),
            recency: Recency::new(TIMES),
            sampler: Sampler::default(),
            threshold: (share * 2f64.powi(32)).ceil().max(1.0) as u64,
            reads: Counts::default(),
            writes: Counts::default(),
            spread: Spread::default(),
            request: 0,
        }
    }

    /// The share of the blocks that is looked at.
    pub fn share(&self) -> f64 {
        self.threshold as f64 / 2f64.powi(32)
    }

    /// Standard deviation of the miss ratio of a cache of `slots` slots, of which uses were looked at.
    pub fn deviation(&self, slots: u64) -> f64 {
        let uses = (self.reads.granules_all + self.writes.granules_all).max(1) as f64;
        let share = self.share();
        self.spread.deviation(slots) * (1.0 - share).sqrt() / share / uses
    }

    /// How many more or fewer uses were looked at than should be, as a share of them.
    pub fn imbalance(&self) -> f64 {
        let uses = (self.reads.granules_all + self.writes.granules_all).max(1) as f64;
        let looked_at = self.reads.granules_looked_at + self.writes.granules_looked_at;
        (looked_at as f64 / self.share() / uses - 1.0).abs()
    }

    fn is_whole(&self) -> bool {
        self.threshold >> 32 > 0
    }

    /// Where the block's last use is.
    #[inline]
    fn place_of(&mut self, device: u32, block: u64) -> Result<u32, Error> {
        let within = block as u32 & ((1 << self.chunk_shift) - 1);
        let key = (device, block >> self.chunk_shift);
        if self.latest.0 != key {
            let start = self.times.len();
            let chunk = *self.chunks.entry(key).or_insert(start as u32);
            if chunk as usize == start {
                self.add_chunk()?;
            }
            self.latest = (key, chunk);
        }
        Ok(self.latest.1 + within)
    }

    fn add_chunk(&mut self) -> Result<(), Error> {
        let blocks = self.times.len() + (1 << self.chunk_shift);
        if blocks >= NEVER as usize / 2 {
            return Err(Error::new(ErrorKind::Invalid, "the trace touches 2^31 blocks or more"));
        }
        self.times.resize(blocks, NEVER);
        if self.granules_per_block > 1 {
            self.needs.resize(blocks * self.granules_per_block as usize, NEVER);
        }
        Ok(())
    }

    /// The block at `place` is used; returns its distance.
    #[inline]
    fn use_now(&mut self, place: u32) -> u32 {
        if self.recency.is_full() {
            self.make_room();
        }
        let time = self.times[place as usize];
        let (distance, time) = match time {
            NEVER => (NEVER, self.recency.use_first(place)),
            _ => self.recency.use_again(place, time),
        };
        self.times[place as usize] = time;
        distance
    }

    #[cold]
    fn make_room(&mut self) {
        let times = &mut self.times;
        self.recency.compact(|place, time| times[place as usize] = time);
        if let Some(more) = self.recency.live().checked_mul(4) {
            self.recency.grow(more);
        }
    }

    /// Distinct granules so far.
    pub fn granules(&self) -> u64 {
        match self.granules_per_block {
            1 => self.blocks(),
            _ => {
                let used = self.needs.iter().filter(|&&need| need != NEVER).count();
                (used as f64 / self.share()) as u64
            }
        }
    }

    /// The result of a cache of `slots` slots.
    pub fn point(&self, slots: u64, block_size: u64) -> Point {
        if self.is_whole() {
            let [reads, writes] = [&self.reads, &self.writes].map(|counts| counts.uses(slots));
            return Point::counted(slots.saturating_mul(block_size), reads, writes);
        }
        let share = self.share();
        let hits = |counts: &Counts| {
            let slots = (slots as f64 * share).ceil() as u64;
            let looked_at = counts.granules_looked_at as f64 / share;
            let in_all_caches = counts.granules_all as f64 - looked_at;
            hits_of(&counts.granules, slots) as f64 / share + in_all_caches
        };
        let hits = Hits {
            reads: self.reads.granules_all as f64,
            read_hits: hits(&self.reads).max(0.0),
            writes: self.writes.granules_all as f64,
            write_hits: hits(&self.writes).max(0.0),
        };
        Point::estimated(slots.saturating_mul(block_size), hits)
    }
}

impl Counts {
    #[inline]
    fn on_use(&mut self, need: u32) {
        if self.waiting.0 != need {
            self.count_waiting();
            self.waiting.0 = need;
        }
        self.waiting.1 += 1;
    }

    fn count_waiting(&mut self) {
        let (need, uses) = std::mem::take(&mut self.waiting);
        if uses > 0 {
            count(&mut self.granules, need, uses);
        }
    }

    fn uses(&self, slots: u64) -> Uses {
        Uses {
            requests: self.requests_all,
            request_hits: hits_of(&self.requests, slots),
            granules: self.granules_all,
            granule_hits: hits_of(&self.granules, slots),
        }
    }
}

/// How many needs `slots` slots meet.
fn hits_of(counts: &[u64], slots: u64) -> u64 {
    counts.iter().take(slots.try_into().unwrap_or(usize::MAX)).sum()
}

impl Counter for Exact {
    #[inline]
    fn touch(&mut self, op: Op, device: u32, piece: Piece) -> Result<(), Error> {
        let Piece { block, granules } = piece;
        let mut part = None;
        if !self.is_whole() {
            let position = self.sampler.position_of(key_of(device, block));
            if u64::from(position) >= self.threshold {
                return Ok(());
            }
            part = Some(self.sampler.part_of(position, self.threshold));
        }
        let place = self.place_of(device, block)?;
        let distance = self.use_now(place);
        let share = self.share();
        let mut spread = |need: u32| {
            if let Some(part) = part {
                let need = (need != NEVER).then_some((f64::from(need) / share) as u64);
                self.spread.add(part, need, 1.0);
            }
        };
        let counts = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        };
        counts.granules_looked_at += granules.len() as u64;
        if self.granules_per_block == 1 {
            counts.on_use(distance);
            spread(distance);
            self.request = self.request.max(distance);
            return Ok(());
        }
        let block_needs = place as usize * self.granules_per_block as usize;
        let needs = &mut self.needs[block_needs..][..self.granules_per_block as usize];
        // A first use of the block finds no granule that was used.
        if distance != NEVER {
            needs.iter_mut().for_each(|need| *need = distance.max(*need));
        }
        for need in &mut needs[granules.start as usize..granules.end as usize] {
            counts.on_use(*need);
            spread(*need);
            self.request = self.request.max(*need);
            *need = 0;
        }
        Ok(())
    }

    fn end_request(&mut self, op: Op, granules: u64) {
        let is_whole = self.is_whole();
        let counts = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
        };
        counts.count_waiting();
        counts.granules_all += granules;
        counts.requests_all += 1;
        if is_whole {
            count(&mut counts.requests, self.request, 1);
        }
        self.request = 0;
    }

    fn blocks(&self) -> u64 {
        (f64::from(self.recency.live()) / self.share()) as u64
    }

    fn split(&mut self, _slots: u64) -> Exact {
        // All distances so far are below `slots`: the counts are the same for every larger cache.
        Exact {
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            spread: self.spread.clone(),
            threshold: self.threshold,
            ..Exact::new(self.granules_per_block, 1.0)
        }
    }
}
