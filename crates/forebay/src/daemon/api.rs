//! What the control socket says, as types: JSON on the wire, shared by the daemon and `forebay stats`.
//!
//! ```text
//!   GET /v1/daemon                 DaemonInfo
//!   GET /v1/pools                  [PoolReport]: the flash that it uses
//!   GET /v1/stats                  AllStats: of every disk; ?brief=true: with BriefStats
//!   GET /v1/disks                  [DiskInfo]
//!   GET /v1/disks/NAME             DiskInfo
//!   GET /v1/disks/NAME/stats       DiskStats
//!   GET /v1/disks/NAME/history     [Minute]: those with requests of the last hours, oldest first
//!   GET /v1/config                 ConfigInfo: the configuration file, and what was changed since
//!   POST /v1/disks/NAME/…          set, add with a table of settings, reset?keys=K,…, each ?dry_run=true: Reloaded
//!   GET /v1/disks/NAME/settings    [SettingInfo]
//!   POST /v1/disks/NAME/…          pause, resume, detach: DiskStats; remove; drop-cache: Dropped;
//!                                  resize: Resized; quiesce?for_ms=N&timeout_ms=N, quiesce/end: Quiesced;
//!                                  move-shard[?to=N]: MovedShard;
//!                                  flush: {}, when primary storage is flushed (in a mode with log, at once)
//!   GET /v1/disks/NAME/sides       Sides: of a disk that is refused, the log in its pool and primary storage
//!   POST /v1/disks/NAME/resolve    [?use_log=true, discard_log=AMOUNT, discard_reservations=true]: Resolved; it is decided
//!                                  about a disk that is refused, and it is served
//!   POST /v1/disks/NAME/open       Resolved; the same without a decision
//!   GET /v1/disks/NAME/records     Records[?from=N&max=N&unanswered=true]: requests from number N on, at most RECORDS_MAX
//!   GET /v1/disks/NAME/histograms  Histograms; POST …/start, reset, stop: HistogramsChange
//!   GET /v1/disks/NAME/mrc         Curves[?sizes=BYTES,…]: at most CACHE_SIZES_MAX of them
//!   GET /v1/disks/NAME/advice      AdviceInfo: the advice that was kept, and what came of it; POST with a Prediction keeps
//!                                  that one instead, POST …/forget none
//!   GET /v1/events[?disk=NAME]     [EventLine]
//! ```
//! Errors are `{"error": "…"}` with the HTTP status.

use forebay_core::config::Mode;
use forebay_core::stats::{LogStatistics, MissStatistics, Statistics, TimeSplit};
use forebay_shard::DiskStatus;
pub use forebay_shard::{Dropped, PrimaryState};
use forebay_trace::advise::{Judgement, Prediction};
use serde::{Deserialize, Serialize};

use forebay_host::fence::resolve::Shown;

mod configuration;
mod observed;

pub use configuration::{
    Change, ConfigInfo, DeviceChange, Origin, Overridden, Reloaded, Removed, SettingInfo,
};
pub use observed::{
    CACHE_SIZES_MAX, Curves, Histograms, HistogramsChange, RECORDS_MAX, RecordLine, Records,
};

/// What the daemon is and serves; also the start-up summary of `--json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DaemonInfo {
    /// Name of the daemon.
    pub name: String,
    /// Version of Forebay.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Kernel interface of the shards: `io_uring` or `epoll`.
    pub reactor: String,
    /// Why the kernel interface is not io_uring, where that was wanted.
    pub reactor_fallback: Option<String>,
    /// Shard threads.
    pub shards: usize,
    /// The control socket.
    pub control: String,
    /// The configuration file, which it reads again when it is asked to. Null: it has none.
    #[serde(default)]
    pub file: Option<String>,
    /// The HTTP port, `IP:PORT`, which has `/metrics`. Null: there is none.
    #[serde(default)]
    pub http: Option<String>,
    /// The disks.
    pub disks: Vec<DiskInfo>,
    /// The listeners.
    pub listeners: Vec<ListenerInfo>,
    /// Disks that are configured and not served, until an administrator decides about them.
    #[serde(default)]
    pub refused: Vec<RefusedDisk>,
    /// Disks that are configured and were detached. They are served again after a restart, or when they are opened.
    #[serde(default)]
    pub detached: Vec<String>,
    /// Disks that are being opened. The daemon starts, and answers nothing else.
    #[serde(default)]
    pub starting: Vec<String>,
}

/// A disk that is configured and not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RefusedDisk {
    /// Name of the disk.
    pub name: String,
    /// URI of primary storage.
    pub backend: String,
    /// Why it is not served.
    pub reason: String,
    /// The flash that has its write log. Null: none has.
    #[serde(default)]
    pub pool: Option<String>,
    /// The daemon tries again by itself, every 10 s.
    #[serde(default)]
    pub is_tried_again: bool,
}

/// Both sides of a disk that is refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sides {
    /// For programs.
    pub shown: Shown,
    /// For people.
    pub text: String,
}

/// A disk that was refused is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// What was decided about it; `None`: there was nothing to decide.
    pub decided: Option<String>,
    /// What is not as it should be.
    pub warnings: Vec<String>,
}

/// A disk, as configured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskInfo {
    /// Name of the disk.
    pub name: String,
    /// URI of primary storage.
    pub backend: String,
    /// Size of the disk.
    pub size: u64,
    /// The mode.
    pub mode: String,
    /// The cache block.
    pub block_size: u64,
    /// RAM for cached data.
    pub ram_bytes: u64,
    /// RAM for the cache's metadata.
    pub metadata_bytes: u64,
    /// All memory for I/O, at most: request buffers and cached data.
    pub memory_bytes: u64,
    /// Its flash: path and share.
    pub flash: Option<String>,
    /// Flash I/O goes past the page cache.
    pub flash_direct: Option<bool>,
    /// Flash for cached data.
    #[serde(default)]
    pub flash_cache_bytes: u64,
    /// That at most, until the disk is opened again.
    #[serde(default)]
    pub flash_cache_max: u64,
    /// Flash that the write log may take. 0: there is none.
    #[serde(default)]
    pub write_log_bytes: u64,
    /// Flushes are acknowledged before they are durable.
    #[serde(default)]
    pub flushes_deferred: bool,
    /// How sure Forebay was at the start that nobody else had changed primary storage. Null: the disk has no flash, or
    /// is new.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Why nothing keeps other disks of this host from the same primary storage. Null: something does.
    #[serde(default)]
    pub unguarded: Option<String>,
    /// The disk refuses writes.
    pub read_only: bool,
    /// Clients see a volatile write cache.
    pub write_cache: bool,
    /// The shard that it lives on.
    pub shard: usize,
    /// Where clients find it.
    pub addresses: Vec<String>,
    /// They do not find it at each place that the configuration names: an event says why, and that is tried again.
    #[serde(default)]
    pub is_unattached: bool,
    /// The socket of its vhost-user-blk device, and the number of its queues. Null: it has none.
    #[serde(default)]
    pub vhost_user: Option<(String, u16)>,
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ListenerInfo {
    /// Its address: `unix:PATH` or `IP:PORT`.
    pub address: String,
    /// The disks that clients find there. The first is the default export.
    pub disks: Vec<String>,
    /// Connections that are open, including those in handshake.
    pub connections: u32,
    /// Connections that may be open.
    pub connections_max: u32,
    /// Connections accepted so far.
    pub accepted: u64,
    /// Connections closed at once, because too many were open.
    pub refused: u64,
    /// Connections that ended before their handshake did.
    pub handshakes_failed: u64,
}

/// A vhost-user-blk device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct VhostUserInfo {
    /// Socket of the device.
    pub socket: String,
    /// Queues of the device.
    pub queues: u16,
    /// A hypervisor is attached.
    pub is_connected: bool,
    /// Hypervisors that came so far.
    pub sessions: u64,
    /// Requests taken from rings.
    pub requests: u64,
    /// Requests among them that were in flight when an earlier run was killed.
    pub replayed: u64,
    /// Times that guests announced requests.
    pub kicks: u64,
    /// Times that Forebay announced answers to guests.
    pub calls: u64,
    /// Rings that were found broken, and stopped.
    pub broken: u64,
}

/// A disk, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct DiskStats {
    /// Name of the disk.
    pub name: String,
    /// The shard that it is on, counted from 0.
    #[serde(default)]
    pub shard: usize,
    /// When the disk was opened, in milliseconds since 1970.
    #[serde(default)]
    pub opened_ms: u64,
    /// Time from then until these figures were taken, whatever the clock did, in nanoseconds.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// Clients that are attached.
    pub connections: u32,
    /// Clients whose next request waits for room in the disk's tables.
    pub connections_waiting: u32,
    /// How primary storage is.
    pub primary_storage: PrimaryState,
    /// Why primary storage is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary_trouble: Option<String>,
    /// Sessions with primary storage that were lost so far.
    pub sessions_lost: u64,
    /// The disk is being detached: no client may attach, and it ends when everything is destaged.
    #[serde(default)]
    pub is_detaching: bool,
    /// The vhost-user-blk device of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<VhostUserInfo>,
    /// How sure Forebay was at the start that nobody else had changed primary storage. Null: the disk has no flash, or
    /// is new.
    #[serde(default)]
    pub evidence: Option<String>,
    /// Why nothing keeps other disks of this host from the same primary storage. Null: something does.
    #[serde(default)]
    pub unguarded: Option<String>,
    /// What has become of primary storage since it was opened, where it changed under the disk.
    #[serde(default)]
    pub storage_changed: Option<String>,
    /// What the engine counts.
    #[serde(flatten)]
    pub engine: Statistics,
}

impl From<DiskStatus> for DiskStats {
    /// As its shard knows it; what others know of it is missing.
    fn from(on_shard: DiskStatus) -> DiskStats {
        DiskStats {
            name: on_shard.name,
            shard: 0,
            opened_ms: 0,
            elapsed_ns: 0,
            connections: on_shard.connections,
            connections_waiting: on_shard.connections_waiting,
            primary_storage: on_shard.primary_storage,
            primary_trouble: on_shard.primary_trouble,
            sessions_lost: on_shard.sessions_lost,
            is_detaching: on_shard.is_detaching,
            vhost_user: None,
            evidence: None,
            unguarded: None,
            storage_changed: None,
            engine: on_shard.engine,
        }
    }
}

/// Every disk of a daemon, as it is now: as much of each as its reader wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllStats<T = DiskStats> {
    /// The disks that are served, as each answered last.
    pub disks: Vec<T>,
    /// Names of those that did not answer in time.
    pub silent: Vec<String>,
    /// The disks that are configured and not served.
    pub refused: Vec<RefusedDisk>,
    /// The shards, by their numbers.
    #[serde(default)]
    pub shards: Vec<ShardLoad>,
}

impl<T> Default for AllStats<T> {
    fn default() -> AllStats<T> {
        let (disks, silent, refused, shards) = Default::default();
        AllStats { disks, silent, refused, shards }
    }
}

/// What a shard has to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardLoad {
    /// Disks on it.
    pub disks: usize,
    /// The part of a CPU that its thread took in the last seconds, 0 to 1. Null: it does not answer.
    pub busy: Option<f64>,
    /// CPU time that its thread took so far, in seconds.
    pub cpu_seconds: f64,
}

/// What a disk did in a minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Minute {
    /// Its end, in milliseconds since 1970.
    pub end_ms: u64,
    /// Its length: a busy host may be late.
    pub length_ms: u64,
    /// Reads that succeeded.
    pub reads: u64,
    /// Reads that primary storage was not asked for.
    pub read_hits: u64,
    /// Writes that succeeded.
    pub writes: u64,
    /// Requests that were answered with an error.
    pub failed: u64,
    /// Where the time of reads went.
    pub read_time: TimeSplit,
    /// Where the time of writes went.
    pub write_time: TimeSplit,
    /// Why reads missed.
    pub misses: MissStatistics,
}

/// What a list of disks shows of one. To write and read all statistics of hundreds takes several times as long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BriefStats {
    /// Name of the disk.
    pub name: String,
    /// How primary storage is.
    pub primary_storage: PrimaryState,
    /// The disk is being detached.
    pub is_detaching: bool,
    /// The mode that was asked for.
    pub mode: Mode,
    /// The mode that the disk is in.
    pub mode_actual: Mode,
    /// The write log. Null without one.
    pub log: Option<LogStatistics>,
    /// What has become of primary storage since it was opened, where it changed under the disk.
    #[serde(default)]
    pub storage_changed: Option<String>,
}

impl From<&DiskStatus> for BriefStats {
    /// As its shard knows it; what others know of it is missing.
    fn from(on_shard: &DiskStatus) -> BriefStats {
        BriefStats {
            name: on_shard.name.clone(),
            primary_storage: on_shard.primary_storage,
            is_detaching: on_shard.is_detaching,
            mode: on_shard.engine.mode,
            mode_actual: on_shard.engine.mode_actual,
            log: on_shard.engine.log.clone(),
            storage_changed: None,
        }
    }
}

/// What `resize` did, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resized {
    /// Size of the disk before.
    pub before: u64,
    /// Size of the disk now.
    pub after: u64,
}

/// What `move-shard` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MovedShard {
    /// The disks that were moved: all of its iSCSI target.
    pub disks: Vec<String>,
    /// The shard that they were on.
    pub from: usize,
    /// The shard that they are on.
    pub to: usize,
    /// How long their clients waited.
    pub waited_ms: u64,
}

/// Destaging of a disk was held for a snapshot of primary storage, or goes on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Quiesced {
    /// Destaging is held, or was until now. False: the disk is in a mode without log, where primary storage has every write
    /// that was answered.
    pub held: bool,
    /// The number of the hold; 0 if there is none.
    #[serde(default)]
    pub hold: u64,
    /// How old primary storage was as an image.
    pub primary_age_ns: u64,
    /// Destaging is paused as well, and stays so when the hold has ended.
    #[serde(default)]
    pub paused: bool,
}

/// The advice that was kept for a disk, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AdviceInfo {
    /// It, and what came of it.
    pub kept: Option<KeptAdvice>,
    /// Why what was kept cannot be read or written.
    pub trouble: Option<String>,
}

/// A kept advice, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptAdvice {
    /// What it expects.
    pub prediction: Prediction,
    /// Whether reads count for it now.
    pub stage: AdviceStage,
    /// Since when reads count, in milliseconds since 1970; `None`: none did yet.
    pub since_ms: Option<u64>,
    /// What those did that count.
    pub judgement: Judgement,
}

/// Whether reads of a disk count for its kept advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum AdviceStage {
    /// No: the disk is not configured as advised.
    NotInForce {
        /// How it is, and how it was advised to be.
        difference: String,
    },
    /// Not yet: the cache is not full, and has not seen as many reads as the advice is from.
    WarmingUp {
        /// Reads that it has seen.
        reads: u64,
        /// Reads that the advice is from.
        of: u64,
    },
    /// Yes.
    Counting,
}

/// An answer that is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// What is wrong.
    pub error: String,
}
