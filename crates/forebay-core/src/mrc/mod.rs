//! Miss-ratio curves: what share of uses a cache of each size would miss, told from the uses alone.
//!
//! ```text
//! use of a block ─► recency: how many other blocks since its last use ─► curve: that many slots make it a hit
//!                   shards: the same for a sample of the blocks, in memory that is fixed
//! ```
//! The *reuse distance* of a use is the number of distinct other blocks used since that block was used last. An LRU
//! cache of more slots than that has the block (Mattson et al., 1970), so one pass tells about all sizes.
//!
//! A block is in a cache as a whole but is filled by granules: a granule hits if the block stayed since *the
//! granule's* last use. That takes more slots than the longest of the block's distances since then; this is the
//! granule's *need*.
//!
//! No clock, no I/O, nothing allocated per use: [`Shards`] can run beside a live disk, [`Recency`] is also what an
//! exact curve is made with.

mod blocks;
mod curve;
mod recency;
mod shards;
mod spread;

pub use blocks::{Blocks, Piece, granule_size};
pub use curve::Curve;
pub use recency::Recency;
pub use shards::{SAMPLES, Sampler, Shards, Snapshot};
pub use spread::{Differences, Part, Spread};
