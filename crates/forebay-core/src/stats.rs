//! What the engine counts.
//!
//! [`Counters`] are plain sums since the engine was made. [`Latency`] is a log-bucketed histogram
//! with two significant digits. [`Statistics`] is the snapshot that is shown and exported; the names
//! in [`VfrcStatistics`] are those that vSphere administrators know, with their meaning there.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::ids::Nanos;

/// Latencies longer than this are counted as this long: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A latency histogram, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
    /// Exact, where the histogram only has the bucket.
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new_with_max(LATENCY_NS_MAX, 2).expect("valid bounds");
        Latency { histogram, sum_ns: 0, max_ns: 0 }
    }
}

impl Latency {
    /// Counts a latency `count` times.
    pub fn record(&mut self, latency: Nanos, count: u64) {
        let value = latency.0.min(LATENCY_NS_MAX);
        self.histogram.record_n(value, count).expect("a value within the bounds");
        self.sum_ns += u128::from(latency.0) * u128::from(count);
        self.max_ns = self.max_ns.max(value);
    }

    /// Adds everything that `other` counted.
    pub fn merge(&mut self, other: &Latency) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Their arithmetic mean, in nanoseconds; `None`: there are none.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum_ns as f64 / self.count() as f64)
    }

    /// What was counted since it was as `earlier`; `None`: it never was so. The longest is that of its bucket.
    pub fn since(&self, earlier: &Latency) -> Option<Latency> {
        let mut since = self.clone();
        since.histogram.subtract(&earlier.histogram).ok()?;
        since.sum_ns = self.sum_ns.checked_sub(earlier.sum_ns)?;
        since.max_ns = since.histogram.max().min(self.max_ns);
        Some(since)
    }

    /// What it counted, to be kept.
    pub fn buckets(&self) -> LatencyBuckets {
        let filled = self.histogram.iter_recorded();
        LatencyBuckets {
            sum_ns: u64::try_from(self.sum_ns).unwrap_or(u64::MAX),
            buckets: filled.map(|at| (at.value_iterated_to(), at.count_at_value())).collect(),
        }
    }

    /// What was kept of one; `None`: it was never kept so.
    pub fn of_buckets(kept: &LatencyBuckets) -> Option<Latency> {
        let mut found = Latency::default();
        let mut counted = 0u64;
        for &(value, count) in &kept.buckets {
            counted = counted.checked_add(count)?;
            found.histogram.record_n(value, count).ok()?;
        }
        found.sum_ns = kept.sum_ns.into();
        found.max_ns = found.histogram.max();
        Some(found)
    }

    /// The usual figures of it.
    pub fn summary(&self) -> LatencySummary {
        let count = self.count();
        if count == 0 {
            return LatencySummary::default();
        }
        // A percentile is the upper edge of its bucket, which may lie above the longest.
        let at = |quantile| self.histogram.value_at_quantile(quantile).min(self.max_ns);
        LatencySummary {
            count,
            mean_ns: (self.sum_ns / u128::from(count)) as u64,
            min_ns: self.histogram.min(),
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p999_ns: at(0.999),
            max_ns: self.max_ns,
        }
    }

    /// Memory of one histogram in bytes, about.
    pub fn memory_bytes(&self) -> usize {
        self.histogram.distinct_values() * size_of::<u64>()
    }
}

/// What a [`Latency`] counted, to be kept in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyBuckets {
    /// All of them together, in nanoseconds.
    pub sum_ns: u64,
    /// At most so many nanoseconds, how many.
    pub buckets: Vec<(u64, u64)>,
}

/// Figures of a latency histogram, in nanoseconds; all 0 when nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// How many.
    pub count: u64,
    /// Arithmetic mean, exact.
    pub mean_ns: u64,
    /// Shortest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90th percentile.
    pub p90_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// Longest.
    pub max_ns: u64,
}

/// Sums since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// Read requests answered well.
    pub reads: u64,
    /// Bytes that they asked for.
    pub read_bytes: u64,
    /// Write requests answered well.
    pub writes: u64,
    /// Bytes that they wrote.
    pub write_bytes: u64,
    /// Compare-and-writes that found what they expected, and wrote; not counted as writes.
    pub compare_and_writes: u64,
    /// Compare-and-writes that found something else, and wrote nothing.
    pub miscompares: u64,
    /// Flush requests answered well.
    pub flushes: u64,
    /// Discards and write-zeroes answered well.
    pub discards: u64,
    /// Prefetches answered well.
    pub prefetches: u64,
    /// Group writes of the log.
    pub log_writes: u64,
    /// Bytes that they wrote, headers included.
    pub log_write_bytes: u64,
    /// Flushes of the log.
    pub log_flushes: u64,
    /// Bytes read from the log, for the guest and for destaging.
    pub log_read_bytes: u64,
    /// I/Os of the log that failed or returned wrong bytes.
    pub log_errors: u64,
    /// Writes of the ring that keeps the cache over a restart.
    pub ring_writes: u64,
    /// Bytes that they wrote.
    pub ring_write_bytes: u64,
    /// Flushes of flash before them.
    pub ring_flushes: u64,
    /// Times that a write waited until its region was marked in the ring.
    pub writes_waited_for_marks: u64,
    /// Writes to primary storage that destaged.
    pub destage_writes: u64,
    /// Bytes that they wrote.
    pub destage_write_bytes: u64,
    /// Batches destaged.
    pub destage_batches: u64,
    /// I/Os of destaging that failed; each is tried again.
    pub destage_errors: u64,
    /// Acknowledgements that the throttle delayed.
    pub acknowledgements_delayed: u64,
    /// Time that it added to them, in all.
    pub injected_latency_ns: u64,
    /// Requests answered with an error.
    pub requests_failed: u64,
    /// Requests answered because their time was over.
    pub requests_timed_out: u64,
    /// Reads answered from RAM alone.
    pub read_hits_ram: u64,
    /// Reads answered from the cache with flash taking part.
    pub read_hits_flash: u64,
    /// Reads that took the bytes of an earlier one in flight, in a mode with a cache.
    pub read_hits_joined: u64,
    /// Reads of which a part was in the cache.
    pub read_hits_partial: u64,
    /// Reads of which nothing was in the cache.
    pub read_misses: u64,
    /// Reads of sequential streams, or that asked not to be admitted, and so left nothing behind.
    pub reads_bypassed: u64,
    /// Writes of sequential streams, not admitted.
    pub writes_bypassed: u64,
    /// Edges of writes that were fetched into the cache, in the background.
    pub edges_fetched: u64,
    /// Bytes of reads that came from RAM.
    pub ram_read_bytes: u64,
    /// Bytes read from flash.
    pub flash_read_bytes: u64,
    /// Bytes read from primary storage, fills and read-modify-write included.
    pub backend_read_bytes: u64,
    /// Read I/Os on primary storage.
    pub backend_reads: u64,
    /// Bytes written to primary storage.
    pub backend_write_bytes: u64,
    /// Write I/Os on primary storage.
    pub backend_writes: u64,
    /// Flushes of primary storage.
    pub backend_flushes: u64,
    /// I/Os on primary storage that failed.
    pub backend_errors: u64,
    /// Bytes written to flash.
    pub flash_write_bytes: u64,
    /// Write I/Os on flash.
    pub flash_writes: u64,
    /// Flash I/Os that failed.
    pub flash_errors: u64,
    /// Flash reads whose checksum was wrong; each became a miss.
    pub flash_checksum_errors: u64,
    /// Flash slots not used any more after a failed write.
    pub flash_slots_quarantined: u64,
    /// Blocks admitted to flash.
    pub flash_admitted: u64,
    /// Blocks that were refused on flash, by their history or for the budget of writes.
    pub flash_refused: u64,
    /// Fills of flash that found no memory: too many were under way.
    pub flash_fills_skipped_staging: u64,
    /// Fills of flash that found no slot: all were in use.
    pub flash_fills_skipped_slots: u64,
    /// Fills of flash of granules that were being written with older bytes.
    pub flash_fills_skipped_busy: u64,
    /// Blocks put into RAM.
    pub ram_filled: u64,
    /// Blocks that found no slot in RAM because all were in use.
    pub ram_fills_skipped: u64,
    /// Blocks evicted from RAM.
    pub ram_evicted: u64,
    /// Blocks evicted from flash.
    pub flash_evicted: u64,
    /// Fills and writes that had to evict.
    pub evict_ops: u64,
    /// Cached blocks dropped because primary storage may have lost unflushed writes.
    pub blocks_dropped_at_risk: u64,
    /// Ranges that were too long to be dropped from the cache at once.
    pub drops_in_parts: u64,
    /// Requests that waited for an overlapping one.
    pub overlap_waits: u64,
    /// Requests that waited for a buffer.
    pub buffer_waits: u64,
}

impl Counters {
    /// Reads for which primary storage was not asked.
    pub fn read_hits(&self) -> u64 {
        self.read_hits_ram + self.read_hits_flash + self.read_hits_joined
    }

    /// Fills of flash that were skipped, for any reason.
    pub fn flash_fills_skipped(&self) -> u64 {
        self.flash_fills_skipped_staging
            + self.flash_fills_skipped_slots
            + self.flash_fills_skipped_busy
    }
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
    /// `none`, `active`, or `failed: ` and the reason.
    pub state: String,
    /// Slots.
    pub slots: u64,
    /// Slots that hold a block.
    pub slots_used: u64,
    /// RAM for its metadata in bytes.
    pub metadata_bytes: u64,
}

/// Request latencies by kind and by source, and the latencies of the devices themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyStatistics {
    /// All reads.
    pub read: LatencySummary,
    /// Reads answered from RAM alone.
    pub read_ram: LatencySummary,
    /// Reads whose slowest source was flash.
    pub read_flash: LatencySummary,
    /// Reads whose slowest source was primary storage.
    pub read_backend: LatencySummary,
    /// Writes.
    pub write: LatencySummary,
    /// Compare-and-writes, whatever they found.
    #[serde(default)]
    pub compare_and_write: LatencySummary,
    /// Flushes.
    pub flush: LatencySummary,
    /// I/Os on flash.
    pub flash_io: LatencySummary,
    /// I/Os of the write log.
    pub log_io: LatencySummary,
    /// I/Os on primary storage.
    pub backend_io: LatencySummary,
}

/// The write log of a disk and its destaging, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatistics {
    /// `active`, `unused` (a mode without log), `draining`, `paused`; `full: `, `waiting: `, `failed: ` or `lost: ` and the
    /// reason.
    pub state: String,
    /// Order of destaging by its name.
    pub order: String,
    /// Flushes are acknowledged before they are durable, and data are durable after this time; 0: they are not.
    pub deferred_ns: u64,
    /// Bytes that the log may take.
    pub capacity_bytes: u64,
    /// Bytes of segments that it has.
    pub leased_bytes: u64,
    /// Bytes that hold records, destaged ones included until their segment is free.
    pub used_bytes: u64,
    /// Bytes of the disk that primary storage does not have yet, about; those that were written twice count twice.
    pub dirty_bytes: u64,
    /// What they take in the log, with what describes them: what slows writers, beside the capacity.
    pub occupied_bytes: u64,
    /// How long the oldest write that is not destaged has been waiting.
    pub primary_age_ns: u64,
    /// It has been waiting for longer: since a time in an earlier run, which is not known.
    pub primary_age_is_at_least: bool,
    /// Primary storage alone is what a file system can be mounted from now. It is not while a window is being written, nor while what
    /// was written and may not be durable there is written again.
    pub primary_is_consistent: bool,
    /// The last record.
    pub last_sequence: u64,
    /// Records up to this one are durable in the log.
    pub durable_sequence: u64,
    /// Records up to this one, about, are on primary storage, flushed there or not.
    pub destaged_sequence: u64,
    /// Records up to this one are on primary storage and flushed there.
    pub flushed_sequence: u64,
    /// The flush epoch under way.
    pub epoch: u64,
    /// Everything is durable in the log.
    pub is_durable: bool,
    /// Everything is on primary storage, flushed there.
    pub is_clean: bool,
    /// Dirty data cannot be read any more.
    pub is_lost: bool,
    /// Flash has failed to read dirty data.
    #[serde(default)]
    pub reads_failed: bool,
    /// An administrator paused destaging.
    #[serde(default)]
    pub is_paused: bool,
    /// Destage writes under way, and how many may be.
    pub outstanding: u32,
    /// How many destage writes may be under way.
    pub outstanding_limit: u32,
    /// What destaging achieves when it has work, in bytes per second; 0: not known, or nothing was destaged lately.
    pub destage_bytes_per_second: u64,
    /// Mean latency of the latest destage writes.
    pub destage_latency_ns: u64,
    /// Flush epochs (or windows) destaged per second lately.
    pub epochs_per_second: u64,
    /// Mean time that one took.
    pub epoch_ns: u64,
    /// Destage writes per second if no epoch waited for another, as far as known; 0: it is not known that they would be
    /// clearly more than now.
    pub without_order_writes_per_second: u64,
    /// It may be more: primary storage was never given as much as it can take.
    pub without_order_is_at_least: bool,
    /// What limits destaging now.
    pub limited_by: String,
    /// What an acknowledgement is delayed by now.
    pub injected_latency_ns: u64,
    /// Writes that wait for room in the log.
    pub writes_waiting: u64,
}

impl LogStatistics {
    /// Primary storage is not there, as those know who talk to it: that is what limits destaging, unless something
    /// else keeps it from the start.
    pub fn note_primary_storage_lost(&mut self) {
        let by_itself = self.is_paused || self.limited_by == "the log is lost";
        if self.is_clean || by_itself {
            return;
        }
        self.limited_by = "primary storage is lost".into();
        if self.state.starts_with("full: ") {
            self.state = format!("full: writers wait, {}", self.limited_by);
        }
    }
}

/// The ring that keeps the cache on flash over a restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RingStatistics {
    /// `recorded`, `given up`, `not recorded` or `closed`.
    pub state: String,
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

/// Everything that is shown of one disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Mode by its name, as asked for.
    pub mode: String,
    /// The mode that the disk is in.
    #[serde(default)]
    pub mode_actual: String,
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

/// I/Os on primary storage that fail.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrimaryErrors {
    /// `reads`, `writes` or `flushes`.
    pub operation: String,
    /// The last error.
    pub status: String,
    /// Where the last one failed.
    pub last_offset: u64,
    /// How many failed since all went well.
    pub failed: u64,
}

/// A request that was answered with an error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// What was asked.
    pub operation: String,
    /// Its first byte.
    pub offset: u64,
    /// Its bytes.
    pub length: u64,
    /// The error.
    pub status: String,
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

/// The histograms behind [`LatencyStatistics`].
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    /// Reads by slowest source: RAM, flash, primary storage.
    pub read: [Latency; 3],
    /// Writes.
    pub write: Latency,
    /// Compare-and-writes, whatever they found.
    pub compare_and_write: Latency,
    /// Flushes.
    pub flush: Latency,
    /// I/Os on flash.
    pub flash_io: Latency,
    /// I/Os of the write log.
    pub log_io: Latency,
    /// I/Os on primary storage.
    pub backend_io: Latency,
}

impl Latencies {
    /// Their figures.
    pub fn summary(&self) -> LatencyStatistics {
        let mut read = Latency::default();
        for source in &self.read {
            read.merge(source);
        }
        LatencyStatistics {
            read: read.summary(),
            read_ram: self.read[0].summary(),
            read_flash: self.read[1].summary(),
            read_backend: self.read[2].summary(),
            write: self.write.summary(),
            compare_and_write: self.compare_and_write.summary(),
            flush: self.flush.summary(),
            flash_io: self.flash_io.summary(),
            log_io: self.log_io.summary(),
            backend_io: self.backend_io.summary(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_within_two_digits_of_the_truth() {
        let mut latency = Latency::default();
        for i in 1..=1000u64 {
            latency.record(Nanos(i * 1000), 1);
        }
        let summary = latency.summary();
        assert_eq!(summary.count, 1000);
        assert_eq!(summary.mean_ns, 500_500);
        assert!((495_000..=505_000).contains(&summary.p50_ns), "{summary:?}");
        assert!((985_000..=1_000_000).contains(&summary.p99_ns), "{summary:?}");
    }

    #[test]
    fn what_came_since_is_told_and_can_be_kept() {
        let mut latency = Latency::default();
        latency.record(Nanos(5_000_000), 7);
        let before = latency.clone();
        for i in 1..=1000u64 {
            latency.record(Nanos(i * 1000), 1);
        }
        let since = latency.since(&before).unwrap();
        assert_eq!((since.count(), since.mean_ns()), (1000, Some(500_500.0)));
        assert!(since.summary().max_ns < 1_010_000, "{:?}", since.summary());
        assert!(before.since(&latency).is_none(), "it went backwards");
        let again = Latency::of_buckets(&since.buckets()).unwrap();
        assert_eq!((again.count(), again.mean_ns()), (1000, Some(500_500.0)));
        assert_eq!(again.summary().p99_ns, since.summary().p99_ns);
        let wrong = |buckets| Latency::of_buckets(&LatencyBuckets { sum_ns: 1, buckets });
        assert!(wrong(vec![(LATENCY_NS_MAX * 8, 1)]).is_none());
        assert!(wrong(vec![(1, u64::MAX), (2, 1)]).is_none());
    }

    #[test]
    fn a_latency_of_years_is_counted_as_the_longest() {
        let mut latency = Latency::default();
        latency.record(Nanos::NEVER, 1);
        assert_eq!(latency.count(), 1);
    }
}
