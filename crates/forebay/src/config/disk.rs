//! A disk with every setting decided, and what its engine is told.

use std::time::Duration;

use forebay_backends::size::rounded;
use forebay_core::config::{self as core, BackendTraits, Config, Limits, Tuning, WriteLogConfig};
use forebay_core::ids::Nanos;

use super::values::{
    Admission, Barrier, Bypass, DestageOrder, DiskId, DriveWrites, Flash, FlushSemantics,
    GridOffset, Mode, Name, OnTimeout, Policy, Size, SocketPath,
};

/// One disk, with every setting decided.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSpec {
    /// Its name.
    pub name: Name,
    /// URI of primary storage.
    pub backend: String,
    /// A setting that was given and would change nothing.
    pub in_vain: Option<(&'static str, InVain)>,
    /// Use of the cache.
    pub mode: Mode,
    /// Cache block in bytes.
    pub block_size: u64,
    /// Bytes of RAM for cached data.
    pub ram_bytes: u64,
    /// How it shares RAM with other disks.
    pub ram_sharing: Sharing,
    /// How much of what it has on flash for cached data it shares.
    pub flash_sharing: Sharing,
    /// Its share of flash, for cache and write log.
    pub flash: Option<Flash>,
    /// Why the pool that its flash is to be in has no device for it.
    pub unplaced: Option<String>,
    /// The write log, in modes that need one or when it was asked for.
    pub write_log: Option<WriteLogSpec>,
    /// Where the grid of cache blocks lies.
    pub grid_offset: GridOffset,
    /// Eviction policy.
    pub policy: Policy,
    /// Admission to flash.
    pub flash_admission: Admission,
    /// Drive writes per day that its flash is to bear.
    pub flash_dwpd: Option<DriveWrites>,
    /// Sequential streams that bypass the cache.
    pub bypass_sequential: Bypass,
    /// Most requests per second.
    pub iops_limit: Option<u64>,
    /// Most bytes per second.
    pub bandwidth_limit: Option<Size>,
    /// How far it may be ahead of these.
    pub limit_burst: Duration,
    /// Most bytes of metadata.
    pub metadata_bytes_max: u64,
    /// Bytes for the flight recorder; 0: none.
    pub recorder_bytes: u64,
    /// Whether clients see a volatile write cache.
    pub write_cache: bool,
    /// Whether iSCSI initiators do, who expect none unless it was asked for.
    pub write_cache_of_units: bool,
    /// Refuses writes.
    pub read_only: bool,
    /// Serves the bytes of an image of another format.
    pub raw_anyway: bool,
    /// Nobody else writes to primary storage.
    pub backend_exclusive: bool,
    /// The disk whose claim on primary storage is given up.
    pub take_over: Option<DiskId>,
    /// What a logical unit is named after, in place of what it would be otherwise.
    pub unit_id: Option<DiskId>,
    /// Bytes of a physical block that initiators are told of, where primary storage has none that are larger.
    pub physical_block: u64,
    /// Time for one I/O on primary storage.
    pub backend_timeout: Duration,
    /// What the client gets after that time.
    pub on_timeout: OnTimeout,
    /// Its vhost-user-blk device.
    pub vhost_user: Option<VhostUserSpec>,
}

/// How a disk shares RAM, or flash, with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Bytes that it keeps.
    pub reservation: u64,
    /// Bytes that it has at most.
    pub limit: u64,
    /// What a miss of it counts.
    pub shares: u32,
}

impl Sharing {
    /// Whether a disk that brings so many bytes may have fewer, or more.
    fn lends_or_gets(self, brings: u64) -> bool {
        self.reservation < brings || self.limit > brings
    }
}

/// A vhost-user-blk device.
#[derive(Clone, Debug, PartialEq)]
pub struct VhostUserSpec {
    /// Its socket.
    pub socket: SocketPath,
    /// Its queues.
    pub queues: u16,
}

/// The write log of a disk.
#[derive(Clone, Debug, PartialEq)]
pub struct WriteLogSpec {
    /// Bytes of the disk's flash that it may take.
    pub bytes: u64,
    /// Order of destaging, if one was asked for.
    pub order: Option<DestageOrder>,
    /// Where the destage journal is, if that was said.
    pub journal: Option<String>,
    /// Flush primary storage between flush epochs.
    pub barrier: Barrier,
    /// Most bytes per second.
    pub rate_max: Option<u64>,
    /// Whether a flush waits.
    pub flush: FlushSemantics,
    /// When deferred data become durable.
    pub dirty_age_max: Duration,
    /// The loss that deferred flushes mean was agreed to.
    pub accepts_data_loss: bool,
}

impl WriteLogSpec {
    /// What the disk's engine is told, in a pool with segments of so many bytes.
    pub fn engine_config(&self, segment: u64) -> WriteLogConfig {
        let dirty_age_max = Nanos(self.dirty_age_max.as_nanos() as u64);
        WriteLogConfig {
            order: self.order.map_or(core::DestageOrder::Journaled, |order| order.0),
            barrier: self.barrier.0,
            flush: match self.flush.0 {
                false => core::FlushSemantics::Honest,
                true => core::FlushSemantics::Deferred { dirty_age_max },
            },
            destage_rate_max: self.rate_max,
            ..WriteLogConfig::of_bytes(self.bytes, segment)
        }
    }
}

/// Why a setting would change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InVain {
    /// The disk has no write log.
    WithoutLog,
    /// Flushes are not deferred.
    WithHonestFlushes,
}

impl DiskSpec {
    /// Bytes of flash for cached data: what the write log leaves.
    pub fn flash_cache_bytes(&self) -> u64 {
        let flash = self.flash.as_ref().map_or(0, |flash| flash.bytes);
        flash_for_cache(flash, self.write_log.as_ref(), self.block_size)
    }

    /// How it is cached, for a report: `write-back, RAM 1 GiB, 8 KiB blocks, policy auto`.
    pub fn in_words(&self) -> String {
        if !self.mode.0.caches() {
            return format!("{}, no cache", self.mode);
        }
        let mut words = format!("{}, RAM {}", self.mode, rounded(self.ram_bytes));
        if let Some(flash) = &self.flash {
            words += &format!(", flash {}", rounded(flash.bytes));
        }
        if let Some(log) = &self.write_log {
            words += &format!(" with a write log of {}", rounded(log.bytes));
        }
        words + &format!(", {} blocks, policy {}", rounded(self.block_size), self.policy)
    }

    /// True when its mode wants a cache and it has room for none. Of `write-only` a write log is all that is wanted.
    pub fn caches_nothing(&self) -> bool {
        let is_log_wanted = self.mode.0 == core::Mode::WriteOnly && self.write_log.is_some();
        let has_room = self.ram_bytes > 0 || self.flash_cache_bytes() > 0;
        self.mode.0.caches() && !has_room && !is_log_wanted
    }

    /// The mode for a disk that caches nothing: that of its write log, if it writes to one.
    pub fn mode_without_cache(&self) -> Mode {
        let logs = self.mode.0.logs() && self.write_log.is_some();
        Mode(if logs { core::Mode::WriteOnly } else { core::Mode::PassThrough })
    }

    /// Bytes that may be written to its flash in a day.
    pub fn flash_bytes_per_day(&self) -> Option<u64> {
        let flash = self.flash.as_ref()?;
        self.flash_dwpd.map(|DriveWrites(writes)| (flash.bytes as f64 * writes) as u64)
    }

    /// Whether other disks may get RAM of it, or it of theirs.
    pub fn shares_ram(&self) -> bool {
        self.ram_sharing.lends_or_gets(self.ram_bytes)
    }

    /// Whether other disks on the same flash may get some of what it has there for cached data, or it of theirs.
    pub fn shares_flash(&self) -> bool {
        self.flash_cache_bytes() > 0 && self.flash_sharing.lends_or_gets(self.flash_cache_bytes())
    }

    /// What it may do at most.
    fn limits(&self) -> Limits {
        Limits {
            iops: self.iops_limit,
            bandwidth: self.bandwidth_limit.map(|size| size.0),
            burst: Nanos(self.limit_burst.as_nanos() as u64),
        }
    }

    /// What of it a disk at work can take over, of an engine that was told the rest.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            policy: self.policy.0,
            flash_admission: self.flash_admission.0,
            flash_bytes_per_day: self.flash_bytes_per_day(),
            sequential_bypass: self.bypass_sequential.0,
            backend_timeout: Nanos(self.backend_timeout.as_nanos() as u64),
            on_timeout: self.on_timeout.0,
            destage_rate_max: self.write_log.as_ref().and_then(|log| log.rate_max),
            limits: self.limits(),
        }
    }

    /// What the disk's engine is told, on primary storage that is `backend`.
    pub fn engine_config(&self, backend: BackendTraits) -> Config {
        Config {
            mode: self.mode.0,
            block_size: self.block_size,
            grid_offset: self.grid_offset.0,
            ram_bytes: self.ram_bytes,
            flash_bytes: self.flash_cache_bytes(),
            flash_room: self.flash_sharing.limit,
            policy: self.policy.0,
            flash_admission: self.flash_admission.0,
            flash_bytes_per_day: self.flash_bytes_per_day(),
            sequential_bypass: self.bypass_sequential.0,
            limits: self.limits(),
            metadata_bytes_max: self.metadata_bytes_max,
            backend_timeout: Nanos(self.backend_timeout.as_nanos() as u64),
            on_timeout: self.on_timeout.0,
            recorder_bytes: self.recorder_bytes,
            curve: true,
            ..Config::for_disk(backend)
        }
    }
}

/// What is left of so much flash for cached data beside a write log, in blocks of this size.
pub(super) fn flash_for_cache(flash: u64, log: Option<&WriteLogSpec>, block_size: u64) -> u64 {
    let cache = flash.saturating_sub(log.map_or(0, |log| log.bytes));
    if cache < block_size { 0 } else { cache }
}
