//! LRU by reuse distances: all of them, those of a share of the blocks, or those of a sample of fixed size.

use forebay_core::characteristics::Kind;
use forebay_core::mrc::{Piece, SAMPLES, Shards, granule_size};

use super::bound::Sampled;
use super::exact::Exact;
use super::lanes::{Counter, Lanes, key_of};
use super::{Method, Point, Sample, imbalance, with_bound};
use crate::error::Error;
use crate::record::Op;

/// See the module.
#[derive(Debug)]
pub(crate) enum Lru {
    Exact(Box<Exact>),
    Shards(Box<Shards>),
}

impl Lru {
    pub fn new(sample: Sample, block_size: u64) -> Lru {
        let granules = (block_size / granule_size(block_size)) as u32;
        match sample {
            Sample::Auto => Lru::Shards(Box::new(Shards::new(SAMPLES, granules))),
            Sample::Share(share) => Lru::Exact(Box::new(Exact::new(granules, share))),
            Sample::Exact => Lru::Exact(Box::new(Exact::new(granules, 1.0))),
        }
    }

    /// The source of its points.
    fn sampled(&self, slots: u64) -> Sampled {
        let (deviation, imbalance, share) = match self {
            Lru::Exact(exact) => (exact.deviation(slots), exact.imbalance(), exact.share()),
            Lru::Shards(shards) => {
                let uses = (shards.reads().uses() + shards.writes().uses()).max(1) as f64;
                let imbalance = imbalance(shards.reads(), shards.writes());
                (shards.spread().deviation(slots) / uses, imbalance, shards.share())
            }
        };
        Sampled { deviation, imbalance, blocks: slots as f64 * share, is_simulated: false }
    }

    fn point(&self, slots: u64, block_size: u64) -> Point {
        match self {
            Lru::Exact(exact) => exact.point(slots, block_size),
            Lru::Shards(shards) => {
                Point::sampled(slots, block_size, shards.reads(), shards.writes())
            }
        }
    }
}

impl Lanes<Lru> {
    /// The results of caches of these sizes.
    pub fn points(&self, sizes: &[u64]) -> Vec<Point> {
        let (_, share) = self.method();
        let point = |size: &u64| {
            let slots = size / self.block_size();
            let of_slots = |slots| self.of(slots).point(slots, self.block_size());
            with_bound(self.of(slots).sampled(slots), slots, share, of_slots)
        };
        sizes.iter().map(point).collect()
    }

    /// Distinct granules, as caches see them that hold them all.
    pub fn granules(&self) -> u64 {
        match self.whole() {
            Lru::Exact(exact) => exact.granules(),
            Lru::Shards(shards) => shards.granules().round() as u64,
        }
    }

    /// How they are known, and the share that was looked at.
    pub fn method(&self) -> (Method, f64) {
        match self.whole() {
            Lru::Exact(exact) if exact.share() < 1.0 => (Method::Shards, exact.share()),
            Lru::Exact(_) => (Method::Exact, 1.0),
            Lru::Shards(shards) => (Method::Shards, shards.share()),
        }
    }
}

impl Counter for Lru {
    #[inline]
    fn touch(&mut self, op: Op, device: u32, piece: Piece) -> Result<(), Error> {
        match self {
            Lru::Exact(exact) => exact.touch(op, device, piece)?,
            Lru::Shards(shards) => {
                let kind = match op {
                    Op::Read => Kind::Read,
                    Op::Write => Kind::Write,
                };
                shards.on_use(kind, key_of(device, piece.block), piece.granules);
            }
        }
        Ok(())
    }

    #[inline]
    fn end_request(&mut self, op: Op, granules: u64) {
        match self {
            Lru::Exact(exact) => exact.end_request(op, granules),
            Lru::Shards(_) => {}
        }
    }

    fn blocks(&self) -> u64 {
        match self {
            Lru::Exact(exact) => exact.blocks(),
            Lru::Shards(shards) => shards.blocks().round() as u64,
        }
    }

    fn split(&mut self, slots: u64) -> Lru {
        match self {
            Lru::Exact(exact) => Lru::Exact(Box::new(exact.split(slots))),
            Lru::Shards(shards) => Lru::Shards(Box::new(shards.emptied())),
        }
    }
}
