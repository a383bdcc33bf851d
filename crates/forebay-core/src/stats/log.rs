//! The write log and its destaging in figures.

use serde::{Deserialize, Serialize};

use super::{DestageLimit, LogState};
use crate::config::DestageOrder;
use crate::status::IoStatus;

/// The write log of a disk and its destaging, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogStatistics {
    /// What it does.
    pub state: LogState,
    /// Why its flash failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<IoStatus>,
    /// Order of destaging.
    pub order: DestageOrder,
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
    pub limited_by: DestageLimit,
    /// What an acknowledgement is delayed by now.
    pub injected_latency_ns: u64,
    /// Writes that wait for room in the log.
    pub writes_waiting: u64,
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
