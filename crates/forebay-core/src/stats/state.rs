//! States by their codes: what decides and what programs read. A person reads sentences that are made from them elsewhere.

use serde::{Deserialize, Serialize};

/// State of one tier of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum TierState {
    /// The disk has no such tier.
    #[default]
    None,
    /// It caches.
    Active,
    /// It was given up after errors of its device; the disk goes on without it.
    Failed,
}

/// State of the write log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum LogState {
    /// The disk is in a mode that does not write to it.
    #[default]
    Unused,
    /// Writes go to it and are destaged.
    Active,
    /// An administrator paused destaging.
    Paused,
    /// It is emptied for a mode without log.
    Draining,
    /// Writes do not go to it yet, because primary storage fails its flushes.
    WaitsForFlush,
    /// Writes wait until something is destaged.
    Full,
    /// Its flash failed: nothing more is written to it, and it is drained.
    Failed,
    /// Dirty data cannot be read, or not be noted as destaged.
    Lost,
}

impl LogState {
    /// True when its flash failed, whatever became of it then.
    pub fn has_failed(self) -> bool {
        matches!(self, LogState::Failed | LogState::Lost)
    }
}

/// What limits destaging: the one reason that an administrator can do most about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DestageLimit {
    /// Primary storage has everything.
    #[default]
    Nothing,
    /// The log is lost.
    LogLost,
    /// An administrator paused it.
    Paused,
    /// An administrator holds it for a moment, for a snapshot of primary storage.
    Held,
    /// Primary storage is not there.
    PrimaryLost,
    /// Primary storage answers with errors.
    PrimaryErrors,
    /// The log cannot be read.
    LogReadErrors,
    /// Progress cannot be noted on flash.
    NoteErrors,
    /// The destage journal cannot be written.
    JournalErrors,
    /// The destage journal is written, or flushed.
    Journal,
    /// An error of a moment ago: it is tried again after a pause.
    RetryPause,
    /// A flush of primary storage is under way, or is due.
    PrimaryFlush,
    /// Primary storage takes no more at a time.
    PrimaryStorage,
    /// What is destaged next is not durable in the log yet.
    LogCommit,
    /// The epoch under way is left alone for a moment, as more may be written to the same places.
    OpenEpoch,
    /// Each epoch waits for the one before it.
    EpochOrder,
    /// Reads of the guest come first.
    GuestReads,
    /// The rate that was configured.
    RateLimit,
}

/// State of what keeps the cache on flash over a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum IndexState {
    /// It is written as the cache changes.
    #[default]
    Recorded,
    /// It was given up, because it cannot be written: the next start begins with an empty cache.
    GivenUp,
    /// It was written for the last time.
    Closed,
}

/// What a request that failed had asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RequestOp {
    /// A read.
    #[default]
    Read,
    /// A write, or a compare-and-write.
    Write,
    /// A discard, or a write of zeroes.
    Zero,
    /// A flush.
    Flush,
    /// A query which parts of a range are allocated.
    Allocation,
}
