//! The counters of an engine, since it was made.

use serde::{Deserialize, Serialize};

/// Sums since the disk was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Counters {
    /// Read requests that succeeded.
    pub reads: u64,
    /// Bytes of reads that succeeded.
    pub read_bytes: u64,
    /// Write requests that succeeded, without compare-and-writes.
    pub writes: u64,
    /// Bytes of writes that succeeded.
    pub write_bytes: u64,
    /// Compare-and-writes that found what they expected, and wrote.
    pub compare_and_writes: u64,
    /// Compare-and-writes that found other bytes, and wrote nothing.
    pub miscompares: u64,
    /// Flush requests that succeeded.
    pub flushes: u64,
    /// Discards and writes of zeroes that succeeded.
    pub discards: u64,
    /// Prefetches that succeeded.
    pub prefetches: u64,
    /// Group writes to the write log.
    pub log_writes: u64,
    /// Bytes of group writes to the write log, headers included.
    pub log_write_bytes: u64,
    /// Bytes of notes of what was destaged.
    pub note_write_bytes: u64,
    /// Flushes of the write log.
    pub log_flushes: u64,
    /// Bytes read from the write log, for the guest and for destaging.
    pub log_read_bytes: u64,
    /// I/Os of the write log that failed or returned wrong bytes.
    pub log_errors: u64,
    /// Writes of the index that keeps the cache over a restart.
    pub ring_writes: u64,
    /// Bytes of writes of that index.
    pub ring_write_bytes: u64,
    /// Flushes of flash before writes of that index.
    pub ring_flushes: u64,
    /// Times that a write waited until its region was marked in that index.
    pub writes_waited_for_marks: u64,
    /// Writes of destaging that are on primary storage.
    pub destage_writes: u64,
    /// Bytes that were destaged to primary storage.
    pub destage_write_bytes: u64,
    /// Batches that were destaged.
    pub destage_batches: u64,
    /// Windows that were put in place from the destage journal.
    pub journal_windows: u64,
    /// Bytes that were written to the destage journal.
    pub journal_bytes: u64,
    /// Writes of the destage journal.
    pub journal_writes: u64,
    /// I/Os of destaging that failed. Each is tried again.
    pub destage_errors: u64,
    /// Acknowledgements of writes that the throttle delayed.
    pub acknowledgements_delayed: u64,
    /// Time by which the throttle delayed acknowledgements, in all.
    pub injected_latency_ns: u64,
    /// Requests answered with an error.
    pub requests_failed: u64,
    /// Requests that took longer than the backend timeout: answered with an error, unless clients are to wait, or it is a compare-and-write.
    pub requests_timed_out: u64,
    /// Reads answered from RAM alone.
    pub read_hits_ram: u64,
    /// Reads answered from the cache, with flash taking part.
    pub read_hits_flash: u64,
    /// Reads that took the bytes of an earlier read of primary storage in flight, in a mode with a cache.
    pub read_hits_joined: u64,
    /// Reads that found a part in the cache.
    pub read_hits_partial: u64,
    /// Reads that found nothing in the cache.
    pub read_misses: u64,
    /// Reads that put nothing into the cache: those of sequential streams, and those that asked for it.
    pub reads_bypassed: u64,
    /// Writes of sequential streams that put nothing into the cache.
    pub writes_bypassed: u64,
    /// Edges of writes that were fetched into the cache in the background.
    pub edges_fetched: u64,
    /// Bytes of reads that came from RAM.
    pub ram_read_bytes: u64,
    /// Bytes read from flash.
    pub flash_read_bytes: u64,
    /// Bytes read from primary storage, fills and read-modify-write included.
    pub backend_read_bytes: u64,
    /// Read I/Os on primary storage.
    pub backend_reads: u64,
    /// Bytes written to primary storage, without those of destaging.
    pub backend_write_bytes: u64,
    /// Write I/Os on primary storage, without those of destaging.
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
    /// Flash reads whose checksum was wrong. Primary storage answered instead.
    pub flash_checksum_errors: u64,
    /// Flash slots that are out of use after a failed write.
    pub flash_slots_quarantined: u64,
    /// Blocks admitted to flash.
    pub flash_admitted: u64,
    /// Blocks that flash refused, for their history or for the budget of writes.
    pub flash_refused: u64,
    /// Fills of flash that found no memory, because too many were under way.
    pub flash_fills_skipped_staging: u64,
    /// Fills of flash that found no slot, because all were in use.
    pub flash_fills_skipped_slots: u64,
    /// Fills of flash whose granules were being written with older bytes.
    pub flash_fills_skipped_busy: u64,
    /// Blocks put into RAM.
    pub ram_filled: u64,
    /// Blocks that found no slot in RAM, because all were in use.
    pub ram_fills_skipped: u64,
    /// Blocks evicted from RAM.
    pub ram_evicted: u64,
    /// Blocks evicted from flash.
    pub flash_evicted: u64,
    /// Fills and writes that had to evict blocks.
    pub evict_ops: u64,
    /// Cached blocks dropped because primary storage may have lost unflushed writes.
    pub blocks_dropped_at_risk: u64,
    /// Ranges that were too long to drop from the cache at once.
    pub drops_in_parts: u64,
    /// Requests that waited for the limits of the disk.
    pub requests_limited: u64,
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
