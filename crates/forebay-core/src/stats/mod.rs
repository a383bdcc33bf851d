//! What the engine shows of itself.
//!
//! [`Statistics`] is the snapshot that is shown and exported. The names in [`VfrcStatistics`] are those that vSphere
//! administrators know, with their meaning there.

mod counters;
mod latency;
mod log;
mod state;
mod time;

use serde::{Deserialize, Serialize};

use crate::action::PrimaryOp;
use crate::config::Mode;
use crate::status::IoStatus;

pub use counters::Counters;
pub use latency::{
    LATENCY_STEPS, Latencies, LatenciesInSteps, Latency, LatencyBuckets, LatencyStatistics,
    LatencySteps, LatencySummary,
};
pub use log::{JournalStatistics, LogStatistics};
pub use state::{DestageLimit, IndexState, LogState, RequestOp, TierState};
pub use time::{SlowRequest, TimeSplit, TimeStatistics, Wait, Waited};

/// Everything that is shown of one disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Statistics {
    /// The mode that was asked for.
    pub mode: Mode,
    /// The mode that the disk is in.
    #[serde(default)]
    pub mode_actual: Mode,
    /// The write log. Null without one.
    #[serde(default)]
    pub log: Option<LogStatistics>,
    /// The index that keeps the cache on flash over a restart. Null without one.
    #[serde(default)]
    pub ring: Option<RingStatistics>,
    /// The cache block.
    pub block_size: u64,
    /// The granule: what a block is divided in.
    pub granule_size: u64,
    /// Where the grid of cache blocks begins.
    pub grid_offset: u64,
    /// Size of the disk.
    pub disk_size: u64,
    /// The eviction policy.
    pub policy: String,
    /// Which blocks go to flash: `always` all that may, or `history`, those that come back.
    #[serde(default)]
    pub flash_admission: String,
    /// Which sequential streams pass the cache by: `auto`, `off`, or those that are longer than so many bytes.
    #[serde(default)]
    pub bypass_sequential: String,
    /// Requests in flight, including those that wait.
    pub requests_in_flight: u64,
    /// What fails on primary storage now, an entry for each operation that fails.
    #[serde(default)]
    pub primary_errors: Vec<PrimaryErrors>,
    /// The last request that was answered with an error. Null: none was.
    #[serde(default)]
    pub last_failed_request: Option<FailedRequest>,
    /// Bytes written to primary storage since its last flush, at most.
    pub unflushed_bytes: u64,
    /// RAM for the metadata of the cache, both tiers.
    pub metadata_bytes: u64,
    /// Bytes of request buffers.
    pub buffer_bytes: u64,
    /// Bytes of request buffers that are free.
    pub buffer_bytes_free: u64,
    /// The RAM tier of the cache.
    pub ram: TierStatistics,
    /// The flash tier of the cache.
    pub flash: TierStatistics,
    /// Sums since the disk was opened.
    pub counters: Counters,
    /// Latencies.
    pub latency: LatencyStatistics,
    /// Where the time of requests went.
    #[serde(default)]
    pub time: TimeStatistics,
    /// Why reads missed the cache.
    #[serde(default)]
    pub misses: MissStatistics,
    /// The slowest request of each minute of the last hour in which one was not answered at once, newest first.
    #[serde(default)]
    pub slowest: Vec<SlowRequest>,
    /// Statistics under the names of vFRC.
    pub vfrc: VfrcStatistics,
    /// The flight recorder. Null without one.
    #[serde(default)]
    pub recorder: Option<RecorderStatistics>,
}

/// vFRC's statistics under its names. Both tiers count together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Reads for which primary storage was not asked, of all reads: those from a read in flight count.
    #[serde(rename = "vFlash:cacheHitPercentage")]
    pub cache_hit_percentage: f64,
}

/// Why reads missed the cache, in cache blocks that primary storage was asked for; estimates where a disk has many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct MissStatistics {
    /// Blocks that were never read or written since the disk was opened.
    pub cold: u64,
    /// Blocks that had lost their place to others.
    pub evicted: u64,
    /// Blocks that had passed the cache by: of a sequential stream, in a mode that keeps nothing of reads or of writes,
    /// written in part of a granule, or before there was memory.
    pub bypassed: u64,
    /// Blocks that flash had not taken when they left RAM.
    pub not_admitted: u64,
    /// Blocks of which another part was cached.
    pub partial: u64,
    /// Blocks that a write had made wrong, that flash gave back wrong or not at all, or that were dropped.
    pub invalidated: u64,
}

impl MissStatistics {
    /// Each reason with its name.
    pub fn reasons(&self) -> [(&'static str, u64); 6] {
        [
            ("cold", self.cold),
            ("evicted", self.evicted),
            ("bypassed", self.bypassed),
            ("not-admitted", self.not_admitted),
            ("partial", self.partial),
            ("invalidated", self.invalidated),
        ]
    }

    /// What came since it was as `earlier`.
    pub fn since(&self, earlier: &MissStatistics) -> MissStatistics {
        let less = |now: u64, before: u64| now.saturating_sub(before);
        MissStatistics {
            cold: less(self.cold, earlier.cold),
            evicted: less(self.evicted, earlier.evicted),
            bypassed: less(self.bypassed, earlier.bypassed),
            not_admitted: less(self.not_admitted, earlier.not_admitted),
            partial: less(self.partial, earlier.partial),
            invalidated: less(self.invalidated, earlier.invalidated),
        }
    }
}

/// One tier of the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TierStatistics {
    /// What the tier does.
    #[serde(default)]
    pub state: TierState,
    /// Why the tier failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<IoStatus>,
    /// Blocks that the tier can hold.
    pub slots: u64,
    /// Blocks that it has room for by now: RAM gets its memory after the disk begins to serve.
    #[serde(default)]
    pub slots_ready: u64,
    /// Blocks that the tier holds.
    pub slots_used: u64,
    /// Blocks that the tier could hold and does not, so that the next fills need not wait.
    #[serde(default)]
    pub slots_kept_empty: u64,
    /// RAM for the metadata of the tier.
    pub metadata_bytes: u64,
}

impl TierStatistics {
    /// It holds hardly less than it ever will.
    pub fn is_full(&self) -> bool {
        let fills = self.slots.saturating_sub(self.slots_kept_empty);
        self.slots > 0 && self.slots_used >= fills - fills / 100
    }
}

/// The index that keeps the cache on flash over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct RingStatistics {
    /// What the index does.
    pub state: IndexState,
    /// Pages of 4 KiB that the index has.
    pub pages: u64,
    /// The last page of the index that is durable.
    pub last_page: u64,
    /// Regions that the disk is divided in for write-intent marks.
    pub regions: u64,
    /// Regions that are marked.
    pub regions_marked: u64,
    /// Size of a region.
    pub region_bytes: u64,
    /// The cache was taken over from a former run.
    pub is_warm: bool,
    /// Cache blocks that the former run left.
    pub blocks_found: u64,
    /// Blocks of the former run that were proven current, and are in the cache.
    pub blocks_kept: u64,
    /// Memory of the index.
    pub memory_bytes: u64,
}

/// I/Os on primary storage that fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PrimaryErrors {
    /// What primary storage was asked for.
    pub operation: PrimaryOp,
    /// The last error.
    pub status: IoStatus,
    /// Where the last I/O failed.
    pub last_offset: u64,
    /// I/Os that failed since all went well.
    pub failed: u64,
}

/// A request that was answered with an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FailedRequest {
    /// What the request asked for.
    pub operation: RequestOp,
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// The error.
    pub status: IoStatus,
}

/// The flight recorder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RecorderStatistics {
    /// Memory of the recorder.
    pub bytes: u64,
    /// Requests that the recorder has.
    pub requests: u64,
    /// Time from the first of them to the last, as in a trace of them.
    pub span_ns: u64,
    /// Time since the last of them.
    #[serde(default)]
    pub idle_ns: u64,
    /// Reads and writes that came since the disk was opened.
    pub observed: u64,
}
