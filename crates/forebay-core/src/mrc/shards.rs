//! A miss-ratio curve of LRU from a sample of the blocks, in memory that is fixed (SHARDS: Waldspurger, Park,
//! Garthwaite, Ahmad, FAST '15).
//!
//! ```text
//! block ─► hash: position ─ below the threshold? ─ no ─► only counted
//!                                  │ yes
//!                 known ───────────┴────────── new ─► a free slot; none: the threshold sinks to the highest position,
//!                   │                                 and whoever is at or above it goes
//!   distance among the sampled / share that is sampled = distance among all
//! ```
//! A block is always sampled or never, so distances among the sampled are those among all, scaled
//! down. It begins with every block, and ends with as many as there are slots, whatever the
//! disk's size. Until there are more blocks than slots it is exact, apart from the curve's steps.
//! Beside a live disk it begins with one in eight. On real traces 8192 samples are within 0.01 of
//! the exact curve on average.
//!
//! **Limits:** positions are 32 bits of the hash and names are 31 others: two sampled blocks are taken for one once
//! in 250,000 new ones. How many *requests* hit wholly it cannot say: it sees some of their blocks.
//!
//! **Time:** a use that is not sampled costs its hash, one that is some 500 instructions. One in as many sampled uses as there are samples costs
//! microseconds: the times are compacted.

use std::collections::BinaryHeap;
use std::ops::Range;

use super::curve::{COUNTS, Curve, step_of};
use super::recency::Recency;
use super::spread::{Part, Spread};
use crate::characteristics::Kind;
use crate::ids::{BlockIndex, SlotId};
use crate::index::{Density, Index};
use crate::splitmix;

/// Samples that make a good curve.
pub const SAMPLES: u32 = 8192;
/// Memory that one beside a live disk takes at most.
const LIVE_BYTES: u64 = 1 << 20;
/// Need of a granule that was not used yet, above every step.
const NEVER: u16 = u16::MAX;
/// A live disk's curve begins with one block in so many. A sampled use costs more than half a
/// RAM hit. Most disks have so many blocks that the share is soon below this in any case.
const LIVE_ONE_IN: u64 = 8;
/// Neighbours are evenly sampled among two to the power of this many blocks.
const REGION_SHIFT: u32 = 10;
/// 2³² by the golden ratio: multiples of it lie as evenly between 0 and 2³² as can be, however many there are.
const GOLDEN: u32 = 0x9E37_79B9;
/// The threshold that has every position below it.
const ALL: u64 = 1 << 32;

/// See the module. One block size's.
#[derive(Debug)]
pub struct Shards {
    sampler: Sampler,
    /// With none sampled.
    first_threshold: u64,
    threshold: u64,
    index: Index,
    /// Highest position first, with the slot.
    positions: BinaryHeap<(u32, u32)>,
    /// Each slot's last use.
    times: Box<[u32]>,
    recency: Recency,
    /// Step of each granule's need, slot after slot.
    needs: Box<[u16]>,
    granules_per_block: u32,
    reads: Curve,
    writes: Curve,
    spread: Spread,
}

/// The order of sampling: hashes of blocks, some of which are below a threshold.
///
/// Every block is as likely to be sampled as any other. Neighbours are evenly so: of 1024 in a
/// row a sample of one in a hundred has ten or eleven. Many blocks are used in runs. With a hash
/// of each block by itself, luck would decide how much of a run is seen. The errors on real
/// traces are about a third of what they would be then.
#[derive(Clone, Debug)]
pub struct Sampler {
    region: u64,
    /// The hash of that region.
    word: u64,
}

impl Default for Sampler {
    fn default() -> Self {
        Sampler { region: 0, word: splitmix::hash(0) }
    }
}

impl Sampler {
    /// Where in the order `key` is: a sample of a share *s* has those below *s* × 2³². It remembers the last region,
    /// for blocks in a row.
    #[inline]
    pub fn position_of(&mut self, key: u64) -> u32 {
        let region = key >> REGION_SHIFT;
        if region != self.region {
            (self.region, self.word) = (region, splitmix::hash(region));
        }
        ((self.word >> 32) as u32).wrapping_add(within(key).wrapping_mul(GOLDEN))
    }

    /// The part of a sample of all below `threshold` that the key belongs to which was asked for last, and is at `position`.
    #[inline]
    pub fn part_of(&self, position: u32, threshold: u64) -> Part {
        Part::of(self.word, position, threshold)
    }

    /// The name among the sampled of the key that was asked for last.
    fn name_of(&self, key: u64) -> BlockIndex {
        BlockIndex((self.word as u32).wrapping_add(within(key)) & (u32::MAX >> 1))
    }
}

/// Place of a block in its region.
#[inline]
fn within(key: u64) -> u32 {
    key as u32 & ((1 << REGION_SHIFT) - 1)
}

/// A sample's knowledge at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The reads.
    pub reads: Curve,
    /// The writes.
    pub writes: Curve,
    /// How far chance may have moved both together.
    pub spread: Spread,
    /// The share of the blocks that is sampled.
    pub share: f64,
    /// How many blocks were used, as far as is known.
    pub blocks: f64,
    /// How many granules were used, as far as is known.
    pub granules: f64,
}

impl Shards {
    /// With `samples` blocks of `granules_per_block` granules at most.
    pub fn new(samples: u32, granules_per_block: u32) -> Shards {
        Shards::below(ALL, samples, granules_per_block)
    }

    fn below(threshold: u64, samples: u32, granules_per_block: u32) -> Shards {
        assert!(samples > 0 && granules_per_block > 0);
        Shards {
            sampler: Sampler::default(),
            first_threshold: threshold,
            threshold,
            index: Index::new(samples, Density::Compact),
            positions: BinaryHeap::with_capacity(samples as usize),
            times: vec![0; samples as usize].into(),
            recency: Recency::new(2 * samples),
            needs: vec![NEVER; samples as usize * granules_per_block as usize].into(),
            granules_per_block,
            reads: Curve::default(),
            writes: Curve::default(),
            spread: Spread::default(),
        }
    }

    /// One for a live disk, with as many of [`SAMPLES`] as go into 1 MiB, of one block in eight at most.
    pub fn for_disk(granules_per_block: u32) -> Shards {
        let mut samples = SAMPLES;
        while Self::memory_bytes_for(samples, granules_per_block) > LIVE_BYTES {
            samples /= 2;
        }
        Shards::below(ALL / LIVE_ONE_IN, samples, granules_per_block)
    }

    /// Bytes of memory that one takes; they do not change.
    pub fn memory_bytes_for(samples: u32, granules_per_block: u32) -> u64 {
        let slot = (size_of::<(u32, u32)>() + size_of::<u32>()) as u64
            + u64::from(granules_per_block) * size_of::<u16>() as u64;
        u64::from(samples) * slot
            + Index::memory_bytes_for(samples, Density::Compact)
            + Recency::memory_bytes_for(2 * samples)
            + (2 * COUNTS * size_of::<f64>() + Spread::BYTES) as u64
    }

    /// `granules` of the block that is called `key` are used.
    #[inline]
    pub fn on_use(&mut self, kind: Kind, key: u64, granules: Range<u32>) {
        if !self.count_unsampled(kind, key, granules.end - granules.start) {
            self.sample(kind, key, granules);
        }
    }

    /// Counts a use of so many granules if the block is not sampled. False: it is, and nothing was counted.
    #[inline]
    pub fn count_unsampled(&mut self, kind: Kind, key: u64, granules: u32) -> bool {
        if u64::from(self.sampler.position_of(key)) < self.threshold {
            return false;
        }
        self.curve(kind).on_uses(granules);
        true
    }

    fn sample(&mut self, kind: Kind, key: u64, granules: Range<u32>) {
        let (position, name) = (self.sampler.position_of(key), self.sampler.name_of(key));
        self.curve(kind).on_uses(granules.end - granules.start);
        let weight = 1.0 / self.share();
        let part = self.sampler.part_of(position, self.threshold);
        let spread = weight * (1.0 - self.share()).sqrt();
        let Some(slot) = self.index.find(name) else {
            (0..granules.len()).for_each(|_| self.curve(kind).add(None, weight));
            self.spread.add_step(part, None, spread * granules.len() as f64);
            self.insert(position, name, granules);
            return;
        };
        self.make_room();
        let (since, time) = self.recency.use_again(slot.0, self.times[slot.0 as usize]);
        self.times[slot.0 as usize] = time;
        let distance = f64::from(since) * weight;
        let step = step_of(distance as u64);
        let curve = match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        };
        let needs = needs_of(&mut self.needs, slot, self.granules_per_block);
        for need in needs.iter_mut() {
            *need = step.max(*need);
        }
        for need in &mut needs[granules.start as usize..granules.end as usize] {
            let step = (*need != NEVER).then_some(*need);
            curve.add(step, weight);
            self.spread.add_step(part, step, spread);
            *need = 0;
        }
    }

    fn insert(&mut self, position: u32, name: BlockIndex, granules: Range<u32>) {
        let slot = loop {
            if u64::from(position) >= self.threshold {
                return;
            }
            match self.index.take_free() {
                Some(slot) => break slot,
                None => self.sink(),
            }
        };
        self.index.insert(slot, name);
        self.positions.push((position, slot.0));
        let needs = needs_of(&mut self.needs, slot, self.granules_per_block);
        needs.fill(NEVER);
        needs[granules.start as usize..granules.end as usize].fill(0);
        self.make_room();
        self.times[slot.0 as usize] = self.recency.use_first(slot.0);
    }

    /// Lowers the threshold until a slot is free.
    fn sink(&mut self) {
        let &(highest, _) = self.positions.peek().expect("slots that are not free have a block");
        self.threshold = highest.into();
        while let Some(&(position, slot)) = self.positions.peek()
            && position >= highest
        {
            self.positions.pop();
            self.recency.forget(self.times[slot as usize]);
            self.index.remove(SlotId(slot));
            self.index.release(SlotId(slot));
        }
    }

    fn make_room(&mut self) {
        if self.recency.is_full() {
            let times = &mut self.times;
            self.recency.compact(|slot, time| times[slot as usize] = time);
        }
    }

    #[inline]
    fn curve(&mut self, kind: Kind) -> &mut Curve {
        match kind {
            Kind::Read => &mut self.reads,
            Kind::Write => &mut self.writes,
        }
    }

    /// The reads.
    pub fn reads(&self) -> &Curve {
        &self.reads
    }

    /// The writes.
    pub fn writes(&self) -> &Curve {
        &self.writes
    }

    /// How far chance may have moved both together.
    pub fn spread(&self) -> &Spread {
        &self.spread
    }

    /// The share of the blocks that is sampled now.
    pub fn share(&self) -> f64 {
        self.threshold as f64 / ALL as f64
    }

    /// Blocks that are sampled now.
    pub fn samples(&self) -> u32 {
        self.index.len()
    }

    /// How many blocks were used, as far as is known.
    pub fn blocks(&self) -> f64 {
        f64::from(self.samples()) / self.share()
    }

    /// How many granules were used, as far as is known. Slow.
    pub fn granules(&self) -> f64 {
        let slots = self.positions.iter().map(|&(_, slot)| slot as usize);
        let of = |slot: usize| {
            let needs = &self.needs[slot * self.granules_per_block as usize..];
            let needs = &needs[..self.granules_per_block as usize];
            needs.iter().filter(|&&need| need != NEVER).count() as u64
        };
        slots.map(of).sum::<u64>() as f64 / self.share()
    }

    /// What is known by now. Slow, as [`Shards::granules`].
    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            spread: self.spread.clone(),
            share: self.share(),
            blocks: self.blocks(),
            granules: self.granules(),
        }
    }

    /// One that knows the same uses but no block, like a cache that was emptied.
    pub fn emptied(&self) -> Shards {
        let (reads, writes, spread) =
            (self.reads.clone(), self.writes.clone(), self.spread.clone());
        let (slots, granules) = (self.index.slots(), self.granules_per_block);
        Shards { reads, writes, spread, ..Shards::below(self.first_threshold, slots, granules) }
    }
}

/// The needs of a slot's granules.
fn needs_of(needs: &mut [u16], slot: SlotId, granules_per_block: u32) -> &mut [u16] {
    let granules = granules_per_block as usize;
    &mut needs[slot.0 as usize * granules..][..granules]
}

#[cfg(test)]
mod tests;
