//! What a shard says of a disk: how it is now, what was dropped from its cache, how it has ended.

use forebay_core::ids::Sequence;
use forebay_core::stats::{LatenciesInSteps, Statistics};
use forebay_core::status::IoStatus;
use forebay_frontends::client::DiskId;
use serde::{Deserialize, Serialize};

/// How primary storage of a disk is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PrimaryState {
    /// It serves.
    #[default]
    Connected,
    /// It serves, but for writes: they wait until what a former run sent can land no more.
    HoldsWrites,
    /// It serves, and answers some I/Os with errors.
    Fails,
    /// It is not there; I/O waits.
    Lost,
}

/// A disk on its shard, as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskStatus {
    /// Its name.
    pub name: String,
    /// Clients attached.
    pub connections: u32,
    /// Clients whose next request waits for room in the disk's tables.
    pub connections_waiting: u32,
    /// How primary storage is.
    pub primary_storage: PrimaryState,
    /// Why it is lost.
    pub primary_trouble: Option<String>,
    /// Sessions with primary storage that were lost so far.
    pub sessions_lost: u64,
    /// It is being detached: it is destaged, no client may attach, and it ends then.
    pub is_detaching: bool,
    /// What the engine counts.
    pub engine: Statistics,
}

/// A disk in figures, for a monitoring system.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFigures {
    /// How it is.
    pub status: DiskStatus,
    /// What its requests and its devices took.
    pub latencies: LatenciesInSteps,
}

/// What a disk had cached when its cache was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Cache blocks that held something.
    pub blocks: u64,
    /// Bytes of a block.
    pub block_size: u64,
}

/// How a disk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Which of its shard's, of all that have had its name.
    pub id: DiskId,
    /// Its name.
    pub name: String,
    /// How the last flush of primary storage ended.
    pub status: IoStatus,
    /// Bytes that were written to primary storage since the guest's last flush of it ended well, about.
    pub unflushed_bytes: u64,
    /// Primary storage may have lost acknowledged writes, and no flush has told a guest.
    pub has_unreported_loss: bool,
    /// The last record of its log.
    pub log_end: Option<Sequence>,
    /// How its write log was left.
    pub log: Option<LogEnd>,
    /// It was being detached.
    pub is_detaching: bool,
    /// Nothing of it is under way on primary storage, nor of a process before it.
    pub is_quiet: bool,
}

/// How a write log was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// What it holds is durable.
    pub is_durable: bool,
    /// Primary storage has all of it.
    pub is_clean: bool,
    /// What primary storage does not have cannot be read any more.
    pub is_lost: bool,
    /// It failed, and no later start may go on with it.
    pub is_revoked: bool,
    /// Flash has failed to read something of what primary storage does not have.
    pub reads_failed: bool,
    /// Bytes that primary storage does not have, about.
    pub dirty_bytes: u64,
}
