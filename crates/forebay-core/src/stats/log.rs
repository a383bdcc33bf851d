//! The write log and its destaging in figures.

use serde::{Deserialize, Serialize};

use super::{DestageLimit, LogState};
use crate::config::DestageOrder;
use crate::status::IoStatus;

/// The write log of a disk and its destaging, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LogStatistics {
    /// What the log does.
    pub state: LogState,
    /// Why the flash of the log failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<IoStatus>,
    /// Order of destaging.
    pub order: DestageOrder,
    /// With deferred flushes: the time after which data are durable. 0 with honest flushes.
    pub deferred_ns: u64,
    /// Bytes that the log may take.
    pub capacity_bytes: u64,
    /// Bytes of the segments that the log has.
    pub leased_bytes: u64,
    /// Bytes that hold records. Destaged records count until their segment is free.
    pub used_bytes: u64,
    /// Bytes of the disk that primary storage does not have yet, about. Bytes that were written twice count twice.
    pub dirty_bytes: u64,
    /// Bytes that dirty data take in the log with their headers. As they near the capacity, writers slow down.
    pub occupied_bytes: u64,
    /// How long the oldest write that is not destaged has been waiting.
    pub primary_age_ns: u64,
    /// The oldest write has been waiting for longer than that: since a time in an earlier run.
    pub primary_age_is_at_least: bool,
    /// A file system could be mounted from primary storage alone now. It could not while a window is being written, nor
    /// while writes that may have been lost there are repeated.
    pub primary_is_consistent: bool,
    /// The destage journal beside primary storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<JournalStatistics>,
    /// The last record.
    pub last_sequence: u64,
    /// The last record up to which all are durable in the log.
    pub durable_sequence: u64,
    /// The last record, about, up to which all are on primary storage, flushed there or not.
    pub destaged_sequence: u64,
    /// The last record up to which all are on primary storage and flushed there.
    pub flushed_sequence: u64,
    /// The flush epoch under way.
    pub epoch: u64,
    /// Everything is durable in the log.
    pub is_durable: bool,
    /// Everything is on primary storage and flushed there.
    pub is_clean: bool,
    /// Dirty data cannot be read any more.
    pub is_lost: bool,
    /// Flash has failed to read dirty data.
    #[serde(default)]
    pub reads_failed: bool,
    /// An administrator paused destaging.
    #[serde(default)]
    pub is_paused: bool,
    /// Destage writes under way.
    pub outstanding: u32,
    /// Destage writes that may be under way.
    pub outstanding_limit: u32,
    /// What destaging achieves when it has work. 0: not known, or nothing was destaged lately.
    pub destage_bytes_per_second: u64,
    /// Mean latency of the latest destage writes.
    pub destage_latency_ns: u64,
    /// Flush epochs, or windows, destaged per second lately.
    pub epochs_per_second: u64,
    /// Mean time to destage one epoch, or one window.
    pub epoch_ns: u64,
    /// Destage writes per second if no epoch waited for another, as far as known. 0: they would not clearly be more
    /// than now.
    pub without_order_writes_per_second: u64,
    /// It may be more: primary storage was never given as much as it can take.
    pub without_order_is_at_least: bool,
    /// What limits destaging now.
    pub limited_by: DestageLimit,
    /// What delays each acknowledgement now.
    pub injected_latency_ns: u64,
    /// Writes and zeroes that wait for room in the log.
    pub writes_waiting: u64,
}

/// The destage journal of a disk, as it is now. The counters say what was written to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct JournalStatistics {
    /// Windows may go through it. It is not used any more after it could not be written.
    pub is_used: bool,
    /// It has what primary storage may lack in part: only with it primary storage is a crash-consistent image.
    pub is_needed: bool,
    /// Bytes that it may take.
    pub size_bytes: u64,
}

impl LogStatistics {
    /// Primary storage is not there, as those know who talk to it: that is what limits destaging, unless something
    /// else keeps it from the start.
    pub fn note_primary_storage_lost(&mut self) {
        let by_itself = self.is_paused || self.limited_by == DestageLimit::LogLost;
        if !self.is_clean && !by_itself {
            self.limited_by = DestageLimit::PrimaryLost;
        }
    }
}
