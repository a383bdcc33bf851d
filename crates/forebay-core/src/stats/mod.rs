//! What the engine shows of itself.
//!
//! [`Statistics`] is the snapshot that is shown and exported. The names in [`VfrcStatistics`] are those that vSphere
//! administrators know, with their meaning there.

mod counters;
mod latency;
mod log;
mod state;

use serde::{Deserialize, Serialize};

use crate::action::PrimaryOp;
use crate::config::Mode;
use crate::status::IoStatus;

pub use counters::Counters;
pub use latency::{Latencies, Latency, LatencyBuckets, LatencyStatistics, LatencySummary};
pub use log::LogStatistics;
pub use state::{DestageLimit, IndexState, LogState, RequestOp, TierState};

/// Everything that is shown of one disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// The mode that was asked for.
    pub mode: Mode,
    /// The mode that the disk is in.
    #[serde(default)]
    pub mode_actual: Mode,
    /// The write log; `None`: it has none.
    #[serde(default)]
    pub log: Option<LogStatistics>,
    /// What keeps the cache on flash over a restart; `None`: nothing does.
    #[serde(default)]
    pub ring: Option<RingStatistics>,
    /// Cache block in bytes.
    pub block_size: u64,
    /// Granule in bytes.
    pub granule_size: u64,
    /// Byte offset of the block grid.
    pub grid_offset: u64,
    /// Size of the disk in bytes.
    pub disk_size: u64,
    /// Eviction policy by its name.
    pub policy: String,
    /// Requests in flight, waiting ones included.
    pub requests_in_flight: u64,
    /// What fails on primary storage now; of reads, writes and flushes those that do.
    #[serde(default)]
    pub primary_errors: Vec<PrimaryErrors>,
    /// The last request that was answered with an error.
    #[serde(default)]
    pub last_failed_request: Option<FailedRequest>,
    /// Bytes written to primary storage since its last flush, at most.
    pub unflushed_bytes: u64,
    /// RAM for cache metadata in bytes, both tiers.
    pub metadata_bytes: u64,
    /// Bytes of request buffers, and how many are free.
    pub buffer_bytes: u64,
    /// Bytes of request buffers that are free.
    pub buffer_bytes_free: u64,
    /// RAM tier.
    pub ram: TierStatistics,
    /// Flash tier.
    pub flash: TierStatistics,
    /// Sums.
    pub counters: Counters,
    /// Latencies.
    pub latency: LatencyStatistics,
    /// vFRC's names.
    pub vfrc: VfrcStatistics,
    /// The flight recorder; `None`: there is none.
    #[serde(default)]
    pub recorder: Option<RecorderStatistics>,
}

/// vFRC's statistics, by its names. Both tiers count together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VfrcStatistics {
    /// Cache blocks that the cache can hold.
    #[serde(rename = "numBlocks")]
    pub num_blocks: u64,
    /// Cache blocks that it holds.
    #[serde(rename = "numBlocksCurrentlyCached")]
    pub num_blocks_currently_cached: u64,
    /// Blocks evicted per operation that had to evict.
    #[serde(rename = "Evict:avgNumBlocksPerOp")]
    pub evict_avg_num_blocks_per_op: f64,
    /// Reads answered wholly from the cache, per cent of all reads.
    #[serde(rename = "vFlash:cacheHitPercentage")]
    pub cache_hit_percentage: f64,
}

/// State of one tier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierStatistics {
    /// What it does.
    #[serde(default)]
    pub state: TierState,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<IoStatus>,
    /// Slots.
    pub slots: u64,
    /// Slots that hold a block.
    pub slots_used: u64,
    /// RAM for its metadata in bytes.
    pub metadata_bytes: u64,
}

/// The ring that keeps the cache on flash over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingStatistics {
    /// What it does.
    pub state: IndexState,
    /// Pages of 4 KiB that it has.
    pub pages: u64,
    /// The number of the last page that is durable.
    pub last_page: u64,
    /// Regions that the disk is divided in for write-intent marks.
    pub regions: u64,
    /// How many are marked.
    pub regions_marked: u64,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// The cache was taken over from a former run.
    pub is_warm: bool,
    /// Cache blocks that the former run left.
    pub blocks_found: u64,
    /// How many of them could be proven current, and are in the cache.
    pub blocks_kept: u64,
    /// Memory that it takes.
    pub memory_bytes: u64,
}

/// I/Os on primary storage that fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryErrors {
    /// What was asked of it.
    pub operation: PrimaryOp,
    /// The last error.
    pub status: IoStatus,
    /// Where the last one failed.
    pub last_offset: u64,
    /// How many failed since all went well.
    pub failed: u64,
}

/// A request that was answered with an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// What was asked.
    pub operation: RequestOp,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// The error.
    pub status: IoStatus,
}

/// The flight recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecorderStatistics {
    /// Its memory.
    pub bytes: u64,
    /// Requests that it has.
    pub requests: u64,
    /// From the first of them to the last, as in a trace of them.
    pub span_ns: u64,
    /// Since the last of them.
    #[serde(default)]
    pub idle_ns: u64,
    /// Reads and writes that came so far.
    pub observed: u64,
}
