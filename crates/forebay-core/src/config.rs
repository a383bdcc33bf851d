//! The configuration of a disk's engine, fixed when it is made but for its mode and its [`Tuning`].

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Generation, Nanos, Uuid};
use crate::journal::JournalConfig;
use crate::policy::PolicyKind;
use crate::write_back::format::GROUP_PAGES_FIRST;

/// How a disk uses its cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reads and writes fill the cache; a write is acknowledged when primary storage has it.
    #[default]
    WriteThrough,
    /// Reads fill the cache; writes go to primary storage and drop what they overlap.
    WriteAround,
    /// As write-through, but a write is acknowledged when the write log has it.
    WriteBack,
    /// Write-back whose reads fill nothing.
    WriteOnly,
    /// The cache is not used.
    PassThrough,
    /// Pass-through that observes.
    Monitor,
}

impl Mode {
    /// All modes with their names, for parsing and help.
    pub const ALL: [(Mode, &'static str); 6] = [
        (Mode::WriteThrough, "write-through"),
        (Mode::WriteAround, "write-around"),
        (Mode::WriteBack, "write-back"),
        (Mode::WriteOnly, "write-only"),
        (Mode::PassThrough, "pass-through"),
        (Mode::Monitor, "monitor"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Mode::ALL.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }

    /// True when the mode keeps blocks in the cache.
    pub fn caches(self) -> bool {
        match self {
            Mode::WriteThrough | Mode::WriteAround | Mode::WriteBack | Mode::WriteOnly => true,
            Mode::PassThrough | Mode::Monitor => false,
        }
    }

    /// True when the mode keeps what is read in the cache.
    pub fn keeps_reads(self) -> bool {
        match self {
            Mode::WriteThrough | Mode::WriteAround | Mode::WriteBack => true,
            Mode::WriteOnly | Mode::PassThrough | Mode::Monitor => false,
        }
    }

    /// True when the mode keeps what is written in the cache.
    pub fn keeps_writes(self) -> bool {
        match self {
            Mode::WriteThrough | Mode::WriteBack | Mode::WriteOnly => true,
            Mode::WriteAround | Mode::PassThrough | Mode::Monitor => false,
        }
    }

    /// True when the mode acknowledges writes from the log.
    pub fn logs(self) -> bool {
        match self {
            Mode::WriteBack | Mode::WriteOnly => true,
            Mode::WriteThrough | Mode::WriteAround | Mode::PassThrough | Mode::Monitor => false,
        }
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the grid of cache blocks lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridOffset {
    /// At this byte offset.
    Fixed(u64),
    /// At 0, until the guest's traffic shows a better one before 5 % of the cache is filled. With a write log it stays there.
    Auto,
}

/// Which blocks go to flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAdmission {
    /// Every block that RAM gives up (or that is fetched, or written to primary storage, without a RAM tier).
    Always,
    /// While there are free slots every block; then those that were used again while in RAM, or that come back not long
    /// after they left.
    History,
}

impl FlashAdmission {
    /// Its name in settings and figures.
    pub fn name(self) -> &'static str {
        match self {
            FlashAdmission::Always => "always",
            FlashAdmission::History => "history",
        }
    }
}

/// Which sequential streams pass the cache by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequentialBypass {
    /// Long ones, when the cache is full and their blocks do not come back in time.
    Auto,
    /// Those that are longer than this many bytes.
    Longer(u64),
    /// None.
    Off,
}

/// As in figures: `auto`, `off`, or bytes.
impl fmt::Display for SequentialBypass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SequentialBypass::Auto => f.write_str("auto"),
            SequentialBypass::Longer(bytes) => bytes.fmt(f),
            SequentialBypass::Off => f.write_str("off"),
        }
    }
}

/// The order in which primary storage receives what the log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DestageOrder {
    /// Flush epoch by flush epoch: primary storage alone is a crash-consistent image at every instant.
    #[default]
    Strict,
    /// Several epochs together, newest bytes only: consistent only between windows.
    Window,
    /// No order is promised. Batches still follow each other as in a window.
    Throughput,
    /// As `Window`, and each window is whole in a journal first: primary storage with its journal is a crash-consistent image
    /// at every instant. Without a journal, or where windows gain nothing, as `Strict`.
    Journaled,
}

impl DestageOrder {
    /// All orders with their names, for parsing and help.
    pub const ALL: [(DestageOrder, &'static str); 4] = [
        (DestageOrder::Strict, "strict"),
        (DestageOrder::Window, "window"),
        (DestageOrder::Throughput, "throughput"),
        (DestageOrder::Journaled, "journaled"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        DestageOrder::ALL.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }
}

impl std::fmt::Display for DestageOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The meaning of a guest's flush in a mode with a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushSemantics {
    /// Everything acknowledged before is durable in the log when it is acknowledged.
    Honest,
    /// It is acknowledged at once; a loss of power loses at most this much time, in order.
    Deferred {
        /// Age at which staged data are made durable.
        dirty_age_max: Nanos,
    },
}

/// The write log of a disk and how it is destaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteLogConfig {
    /// Pages of 4 KiB in a segment.
    pub segment_pages: u32,
    /// Segments that the log may take.
    pub segments_max: u32,
    /// Segments that it has at its start. While these are more than it may take, nothing is appended.
    pub segments_found: u32,
    /// The generation under which this engine writes.
    pub generation: Generation,
    /// Staged records survive the process: a plain write is acknowledged when it is staged.
    pub staging: bool,
    /// Data pages of each group that there is memory for from the start, where staged records survive the process.
    pub group_pages_first: u32,
    /// Order of destaging.
    pub order: DestageOrder,
    /// Flush primary storage after each epoch (or window).
    pub barrier: bool,
    /// The destage journal, for `DestageOrder::Journaled`.
    pub journal: Option<JournalConfig>,
    /// The meaning of a guest's flush.
    pub flush: FlushSemantics,
    /// How long the epoch under way is left alone, so that its overwrites coalesce.
    pub destage_delay: Nanos,
    /// How long a record waits when nothing waited before it, so that clients who were just answered are served first.
    pub destage_yield: Nanos,
    /// Bytes per second that destaging may write.
    pub destage_rate_max: Option<u64>,
    /// Percentage of the log that may be dirty before acknowledgements are delayed.
    pub throttle_percent: u32,
}

impl WriteLogConfig {
    /// A log has to have that many segments.
    pub const SEGMENTS_MIN: u32 = 3;

    /// Segments that there has to be a place for.
    pub(crate) fn slots(&self) -> u32 {
        self.segments_max.max(self.segments_found)
    }

    /// Pages of all its segments.
    pub(crate) fn pages(&self) -> u64 {
        u64::from(self.segment_pages) * u64::from(self.slots())
    }

    /// The defaults for a log of `bytes` in segments of `segment` bytes.
    pub fn of_bytes(bytes: u64, segment: u64) -> WriteLogConfig {
        let segments = (bytes / segment).max(Self::SEGMENTS_MIN.into());
        let segments = u32::try_from(segments).unwrap_or(u32::MAX);
        WriteLogConfig::new((segment / PAGE) as u32, segments)
    }

    /// The defaults for a log of `segments_max` segments of `segment_pages`.
    pub fn new(segment_pages: u32, segments_max: u32) -> WriteLogConfig {
        WriteLogConfig {
            segment_pages,
            segments_max,
            segments_found: 0,
            generation: Generation(1),
            staging: true,
            group_pages_first: GROUP_PAGES_FIRST,
            order: DestageOrder::Strict,
            journal: None,
            barrier: false,
            flush: FlushSemantics::Honest,
            destage_delay: Nanos::from_millis(1_000),
            destage_yield: Nanos::from_micros(100),
            destage_rate_max: None,
            throttle_percent: 50,
        }
    }
}

/// The ring that keeps the cache on flash alive over a restart (`cache_index/`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// The disk.
    pub disk: Uuid,
    /// The run of the disk.
    pub generation: Generation,
    /// Of the ring, as in its header.
    pub nonce: u64,
    /// Pages of the ring; [`crate::cache_index::RingGeometry::pages`] at least.
    pub pages: u32,
    /// Bytes of the disk when the ring was begun, which its marks are laid out for; it may have grown since.
    pub disk_size: u64,
    /// A former run did not see the end of what it sent to primary storage: where that is not durable, nobody knows.
    pub is_unanswered: bool,
    /// A change that nobody waits for is recorded after this time.
    pub record_delay: Nanos,
    /// Marks are looked at for what can go after this time, and primary storage is flushed for that after it again.
    pub mark_delay: Nanos,
}

impl RingConfig {
    /// The defaults.
    pub fn new(
        disk: Uuid,
        generation: Generation,
        nonce: u64,
        pages: u32,
        disk_size: u64,
    ) -> RingConfig {
        RingConfig {
            disk,
            generation,
            nonce,
            pages,
            disk_size,
            is_unanswered: false,
            record_delay: Nanos::from_millis(1_000),
            mark_delay: Nanos::from_millis(10_000),
        }
    }
}

/// The answer to a client when primary storage exceeds its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTimeout {
    /// EIO; the I/O stays owned until it completes.
    Fail,
    /// Nothing: the client waits.
    Wait,
}

/// The properties and abilities of primary storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackendTraits {
    /// Size of the disk in bytes, a multiple of `logical_block`.
    pub size: u64,
    /// Smallest unit of its reads and writes, a power of two from 512 to 4096.
    pub logical_block: u32,
    /// Refuses writes.
    pub read_only: bool,
    /// Can discard.
    pub discard: bool,
    /// Can write zeroes without a buffer of them.
    pub write_zeroes: bool,
    /// Can tell holes from data.
    pub extents: bool,
}

/// What a disk may do at most (`requests/limits.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Requests per second: reads, writes, discards and zeroes.
    pub iops: Option<u64>,
    /// Bytes per second that are read and written.
    pub bandwidth: Option<u64>,
    /// Time by which a disk may be ahead of its limits: how much of them it may use at once when it was idle.
    pub burst: Nanos,
}

/// What can change of a disk's configuration while it is at work, beside its mode; see the fields of [`Config`] and
/// [`WriteLogConfig`] with these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Eviction policy of both tiers.
    pub policy: PolicyKind,
    /// Admission to flash.
    pub flash_admission: FlashAdmission,
    /// Bytes that may be written to the disk's flash per day.
    pub flash_bytes_per_day: Option<u64>,
    /// Which sequential streams are not cached.
    pub sequential_bypass: SequentialBypass,
    /// Time for an I/O on primary storage.
    pub backend_timeout: Nanos,
    /// The answer to a client after that.
    pub on_timeout: OnTimeout,
    /// Bytes per second that destaging may write; `None` without a write log.
    pub destage_rate_max: Option<u64>,
    /// What the disk may do at most.
    pub limits: Limits,
}

/// Configuration of one disk's engine. [`Config::for_disk`] has the defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Primary storage.
    pub backend: BackendTraits,
    /// Use of the cache.
    pub mode: Mode,
    /// Cache block in bytes, a power of two from 4 KiB to 1 MiB.
    pub block_size: u64,
    /// Where the block grid lies.
    pub grid_offset: GridOffset,
    /// Bytes of RAM for cached data; 0: no RAM tier.
    pub ram_bytes: u64,
    /// Bytes of the disk's memory that RAM slots have a place in, so that there can be more of them while the disk is at work;
    /// less than `ram_bytes`: as many.
    pub ram_room: u64,
    /// Bytes of flash for cached data; 0: no flash tier.
    pub flash_bytes: u64,
    /// Bytes of flash that the cache index has places for, so that there can be more slots while the disk is at work; less than
    /// `flash_bytes`: as many.
    pub flash_room: u64,
    /// Smallest unit of flash I/O, a power of two from 512 to 4096.
    pub flash_logical_block: u32,
    /// Eviction policy of both tiers.
    pub policy: PolicyKind,
    /// Admission to flash.
    pub flash_admission: FlashAdmission,
    /// Bytes that may be written to the disk's flash per day, log included; `None`: as many as there are.
    pub flash_bytes_per_day: Option<u64>,
    /// Which sequential streams are not cached.
    pub sequential_bypass: SequentialBypass,
    /// What the disk may do at most.
    pub limits: Limits,
    /// Requests in flight, waiting ones included; one more is refused as busy.
    pub requests_max: u32,
    /// Bytes of memory for request buffers.
    pub buffer_bytes: u64,
    /// Bytes of metadata that the caches may need; more is refused when the engine is made.
    pub metadata_bytes_max: u64,
    /// Time for an I/O on primary storage.
    pub backend_timeout: Nanos,
    /// Time for an I/O on flash.
    pub flash_timeout: Nanos,
    /// The answer to a client after `backend_timeout`.
    pub on_timeout: OnTimeout,
    /// The write log; `None`: the disk cannot be in a mode that needs one.
    pub write_log: Option<WriteLogConfig>,
    /// Keeps the flash tier alive over a restart; `None`: it starts empty the next time.
    pub ring: Option<RingConfig>,
    /// Bytes for the flight recorder, the ring of the last requests; 0: none.
    pub recorder_bytes: u64,
    /// Keep a miss-ratio curve, which takes 1 MiB at most.
    pub curve: bool,
    /// A number that clients do not know: where the indexes keep a block follows from it, and it changes nothing else. Whoever
    /// knew it could choose blocks that are all kept in one place, so that each look at them takes long.
    pub index_salt: u64,
}

impl Config {
    /// The defaults for a disk: write-through, 8 KiB blocks, no tier.
    pub fn for_disk(backend: BackendTraits) -> Config {
        Config {
            backend,
            mode: Mode::WriteThrough,
            block_size: 8 << 10,
            grid_offset: GridOffset::Auto,
            ram_bytes: 0,
            ram_room: 0,
            flash_bytes: 0,
            flash_room: 0,
            flash_logical_block: PAGE as u32,
            policy: PolicyKind::Auto,
            flash_admission: FlashAdmission::Always,
            flash_bytes_per_day: None,
            sequential_bypass: SequentialBypass::Auto,
            limits: Limits::default(),
            requests_max: 1024,
            buffer_bytes: 72 << 20,
            metadata_bytes_max: 1 << 30,
            backend_timeout: Nanos::from_millis(30_000),
            flash_timeout: Nanos::from_millis(5_000),
            on_timeout: OnTimeout::Fail,
            write_log: None,
            ring: None,
            recorder_bytes: 0,
            curve: false,
            index_salt: 0,
        }
    }

    /// What can change of it while the disk is at work.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            policy: self.policy,
            flash_admission: self.flash_admission,
            flash_bytes_per_day: self.flash_bytes_per_day,
            sequential_bypass: self.sequential_bypass,
            backend_timeout: self.backend_timeout,
            on_timeout: self.on_timeout,
            destage_rate_max: self.write_log.and_then(|log| log.destage_rate_max),
            limits: self.limits,
        }
    }

    /// The same configuration with other settings of these. Without a write log there is no rate of destaging to set.
    pub fn tuned(self, tuning: &Tuning) -> Config {
        let Tuning { policy, flash_admission, flash_bytes_per_day, .. } = *tuning;
        let Tuning { sequential_bypass, backend_timeout, on_timeout, .. } = *tuning;
        let Tuning { destage_rate_max, limits, .. } = *tuning;
        Config {
            policy,
            flash_admission,
            flash_bytes_per_day,
            sequential_bypass,
            backend_timeout,
            on_timeout,
            limits,
            write_log: self.write_log.map(|log| WriteLogConfig { destage_rate_max, ..log }),
            ..self
        }
    }

    /// The whole disk.
    pub fn disk(&self) -> ByteRange {
        ByteRange::at(0, self.backend.size)
    }
}
