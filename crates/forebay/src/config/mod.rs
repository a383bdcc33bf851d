//! What a daemon is told: disks, listeners and shards, from a command line or a file.
//!
//! ```text
//!   forebay run   ── DiskOptions ──┐
//!                                  ├──► DaemonSpec { disks, listeners, … } ──► daemon
//!   forebay serve ── forebay.toml ─┘
//! ```
//!
//! [`DiskOptions`] is both: each of its fields is an option of `run` and a key of a `[[disk]]` table,
//! spelled the same. Defaults are filled in at one place, [`DiskOptions::resolve`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_frontends::vhost_user::export::QUEUES_MAX;

pub mod changes;
pub mod check;
pub mod difference;
mod disk;
mod disk_table;
pub mod file;
pub mod iscsi;
mod merge;
pub mod pools;
pub mod saved;
pub mod schema;
pub mod settings;
pub mod sources;
pub mod values;

pub use disk::{DiskSpec, InVain, Sharing, VhostUserSpec, WriteLogSpec};
use values::{
    Address, Admission, Barrier, Bypass, DestageOrder, DiskId, DriveWrites, Flash, FlushSemantics,
    GridOffset, Mode, Name, OnTimeout, Policy, Reactor, Size, SocketPath, Span, Switch, ValueError,
};

/// Settings of one disk that have a default.
#[derive(
    Clone,
    Debug,
    Default,
    PartialEq,
    clap::Args,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(default, rename_all = "kebab-case", deny_unknown_fields)]
pub struct DiskOptions {
    /// Use of the cache: write-through, write-around, write-back, write-only (write-back that fills nothing on read), pass-through or monitor [default: write-through]
    #[arg(long, value_name = "MODE", help_heading = "Cache")]
    pub mode: Option<Mode>,
    /// Cache block: the unit of caching and eviction, a power of two from 4KiB to 1MiB [default: 8KiB]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub block_size: Option<Size>,
    /// RAM for cached data, taken at start; 0 for none. Modes without a cache have none [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub ram: Option<Size>,
    /// RAM that the disk keeps, whoever needs more: the rest of its --ram other disks may have that gain from it [default: all of
    /// its --ram]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub ram_reservation: Option<Size>,
    /// RAM that the disk has at most, when it gains from what other disks do not need [default: its --ram]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub ram_limit: Option<Size>,
    /// What a miss of the disk counts when disks share RAM: with twice as many it counts twice [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Cache")]
    #[schemars(range(min = 1, max = SHARES_MAX))]
    pub ram_shares: Option<u32>,
    /// Flash for cached data: a file (created), a block device or, in a configuration file, the name of a pool; and how much of it [default: none]
    #[arg(long, value_name = "PATH:SIZE", help_heading = "Cache")]
    pub flash: Option<Flash>,
    /// Flash that the disk keeps for cached data, whoever needs more: the rest other disks on the same flash may have that gain
    /// from it [default: all of its --flash but the --write-log]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub flash_reservation: Option<Size>,
    /// Flash that the disk has for cached data at most, when it gains from what other disks on the same flash do not need
    /// [default: its --flash but the --write-log]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub flash_limit: Option<Size>,
    /// What a miss of the disk counts when disks share flash: with twice as many it counts twice [default: 1000]
    #[arg(long, value_name = "N", help_heading = "Cache")]
    #[schemars(range(min = 1, max = SHARES_MAX))]
    pub flash_shares: Option<u32>,
    /// Byte offset of the grid of cache blocks, or auto: found from the traffic [default: auto]
    #[arg(long, value_name = "BYTES", help_heading = "Cache")]
    pub grid_offset: Option<GridOffset>,
    /// Eviction policy: auto, s3fifo, lru or fifo [default: auto]
    #[arg(long, value_name = "POLICY", help_heading = "Cache")]
    pub policy: Option<Policy>,
    /// Blocks that go to flash: always, or by history (when flash is full, only those used again) [default: always]
    #[arg(long, value_name = "WHICH", help_heading = "Cache")]
    pub flash_admission: Option<Admission>,
    /// Drive writes per day that the flash may take: as they run short, fewer new blocks go there; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", help_heading = "Cache")]
    pub flash_dwpd: Option<DriveWrites>,
    /// Sequential streams that are not cached: auto (those that do not come back in time), those longer than SIZE, or off [default: auto]
    #[arg(long, value_name = "auto|SIZE|off", help_heading = "Cache")]
    pub bypass_sequential: Option<Bypass>,
    /// Most RAM that the cache's metadata may need, checked before start [default: 1GiB]
    #[arg(long, value_name = "SIZE", help_heading = "Cache")]
    pub metadata_limit: Option<Size>,
    /// Part of the flash for the write log [default: a quarter, in write-back and write-only]
    #[arg(long, value_name = "SIZE", help_heading = "Write-back")]
    pub write_log: Option<Size>,
    /// Order of destaging: strict (primary storage alone is always crash-consistent), journaled (with IMAGE.forebay-journal it is), window (only between windows) or throughput (never) [default: journaled, where there is a place for the journal; else strict]
    #[arg(long, value_name = "ORDER", help_heading = "Write-back")]
    pub destage_order: Option<DestageOrder>,
    /// Where the destage journal is: a file, block: or nbd: URI on storage that lives as long as primary storage [default: beside an image file; none for block: and nbd:]
    #[arg(long, value_name = "URI", help_heading = "Write-back")]
    pub destage_journal: Option<String>,
    /// Flush primary storage between flush epochs (flush) or not (none); flush is for storage that may lose power at the same time; strict and journaled also flush what a crash of this host may lose out of order [default: none]
    #[arg(long, value_name = "flush|none", help_heading = "Write-back")]
    pub destage_barrier: Option<Barrier>,
    /// Most bytes per second that are destaged; 0 for no limit [default: 0]
    #[arg(long, value_name = "SIZE", help_heading = "Write-back")]
    pub max_destage_rate: Option<Size>,
    /// A guest's flush waits until its data are durable (honest), or not (deferred). With deferred a loss of power loses up to --max-dirty-age [default: honest]
    #[arg(long, value_name = "honest|deferred", help_heading = "Write-back")]
    pub flush_semantics: Option<FlushSemantics>,
    /// With deferred flushes: time after which data are durable [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = "Write-back")]
    pub max_dirty_age: Option<Span>,
    /// Agree to deferred flushes: a loss of power loses writes that were acknowledged and flushed
    #[arg(long, help_heading = "Write-back")]
    pub accept_data_loss: bool,
    /// Most requests per second: reads, writes, discards and zeroes, in hits and misses alike; 0 for no limit [default: 0]
    #[arg(long, value_name = "N", help_heading = "Limits", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub iops_limit: Option<u64>,
    /// Most bytes per second that are read and written together; 0 for no limit [default: 0]
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    pub bandwidth_limit: Option<Size>,
    /// How far a disk may be ahead of its limits after a pause: with 1s it may do at once what its limits allow in a second, with
    /// 0s its requests are spaced evenly [default: 100ms]
    #[arg(long, value_name = "TIME", help_heading = "Limits")]
    pub limit_burst: Option<Span>,
    /// Memory for the flight recorder, which has the last requests ('forebay trace record'); 0 for none [default: 8MiB]
    #[arg(long, value_name = "SIZE", help_heading = "Disk")]
    pub recorder: Option<Size>,
    /// Clients see a volatile write cache and flush it (on), or each write is durable (off) [default: on; off over iSCSI]
    #[arg(long, value_name = "on|off", help_heading = "Disk")]
    pub write_cache: Option<Switch>,
    /// Refuse writes, and open primary storage without the right to write
    #[arg(long, help_heading = "Disk")]
    pub read_only: bool,
    /// Serve an image as raw bytes, although it is a qcow2, VMDK, VHDX, VHD, VDI or QED image, or a flash pool
    #[arg(long, help_heading = "Disk")]
    pub raw_anyway: bool,
    /// Declare that nobody else writes to primary storage, also while the disk is stopped. After a restart the disk then uses
    /// its cache without proof, unless something speaks against it
    #[arg(long, help_heading = "Disk")]
    pub backend_exclusive: bool,
    /// Use primary storage, and give up newer data that the write log of the disk with this UUID may hold
    #[arg(long, value_name = "UUID", help_heading = "Disk")]
    pub take_over: Option<DiskId>,
    /// Identity of the disk for iSCSI initiators: Forebay makes its NAA name and serial number of this UUID [default: the one
    /// that the disk has in its flash pool; without flash Forebay takes its name]
    #[arg(long, value_name = "UUID", help_heading = "Disk")]
    pub unit_id: Option<DiskId>,
    /// Physical block that iSCSI initiators see: 4KiB, or 512B for initiators that refuse 4 KiB, such as ESXi before 6.5
    /// [default: 4KiB]
    #[arg(long, value_name = "SIZE", help_heading = "Disk")]
    pub physical_block: Option<Size>,
    /// Time that primary storage has for one I/O [default: 30s]
    #[arg(long, value_name = "TIME", help_heading = "Disk")]
    pub backend_timeout: Option<Span>,
    /// What the client gets after that time: fail (an I/O error) or wait [default: fail]
    #[arg(long, value_name = "fail|wait", help_heading = "Disk")]
    pub on_timeout: Option<OnTimeout>,
    /// Where clients attach over NBD: HOST:PORT or unix:PATH[?mode=0660&group=NAME]; may be given several times. Forebay makes a
    /// missing folder. Without mode only the user who runs Forebay may attach
    #[arg(long, value_name = "ADDRESS", help_heading = "Disk")]
    pub nbd: Vec<Address>,
    /// Where a hypervisor finds the disk as a vhost-user-blk device: a unix socket, PATH[?mode=0660&group=NAME]. Forebay makes a
    /// missing folder
    #[arg(long, value_name = "PATH", help_heading = "Disk")]
    pub vhost_user: Option<SocketPath>,
    /// Queues of the vhost-user-blk device, 1 to 16 [default: 1]
    #[arg(long, value_name = "N", help_heading = "Disk", requires = "vhost_user")]
    #[schemars(range(min = 1, max = QUEUES_MAX))]
    pub queues: Option<u16>,
}

/// A listener and the disks that clients find there.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerSpec {
    /// Where.
    pub address: Address,
    /// Names of the disks, in the order that clients see them listed; the first is the default export.
    pub disks: Vec<Name>,
    /// Connections that may be open at a time.
    pub connections_max: u32,
}

impl ListenerSpec {
    /// What no other listener may use.
    pub(crate) fn place(&self) -> String {
        match &self.address {
            Address::Unix(path, _) => path.display().to_string(),
            Address::Tcp(address) => address.clone(),
        }
    }
}

/// Everything a daemon does.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonSpec {
    /// Its name: that of its only disk, or of its configuration file.
    pub name: Name,
    /// Its disks.
    pub disks: Vec<DiskSpec>,
    /// Its pools of several devices.
    pub pools: Vec<pools::PoolSpec>,
    /// Its listeners.
    pub listeners: Vec<ListenerSpec>,
    /// Its iSCSI targets.
    pub targets: Vec<iscsi::IscsiSpec>,
    /// Number of shard threads.
    pub shards: usize,
    /// The number that was asked for; none: it follows from the disks.
    pub shards_asked: Option<usize>,
    /// The kernel interface of the shards.
    pub reactor: Reactor,
    /// The control socket, where it is not the default one.
    pub control: Option<PathBuf>,
    /// The state folder, where it is not the default one.
    pub state_dir: Option<PathBuf>,
    /// What says all this, to be read again or changed.
    pub sources: Option<sources::Sources>,
    /// Where the HTTP port is, if there is one.
    pub http: Option<String>,
}

impl DaemonSpec {
    /// The configuration file.
    pub fn file(&self) -> Option<&Path> {
        self.sources.as_ref()?.file.as_deref()
    }

    /// `HOST:PORT` of the listeners and portals of disks.
    pub fn tcp_addresses(&self) -> impl Iterator<Item = &String> {
        let of_listeners = self.listeners.iter().filter_map(|listener| match &listener.address {
            Address::Tcp(address) => Some(address),
            Address::Unix(..) => None,
        });
        let of_portals = self.targets.iter().flat_map(|target| &target.portals);
        of_listeners.chain(of_portals.map(|portal| &portal.0))
    }
}

/// Connections that a listener has open at a time, unless told otherwise.
pub const CONNECTIONS_MAX: u32 = 128;

impl DiskOptions {
    /// The disk that these options describe: defaults filled in.
    pub fn resolve(self, name: Name, backend: String) -> DiskSpec {
        let mode = self.mode.unwrap_or(Mode(forebay_core::config::Mode::WriteThrough));
        let ram_default = if mode.0.caches() { 1 << 30 } else { 0 };
        let write_log = self.write_log();
        let ram_bytes = self.ram.map_or(ram_default, |size| size.0);
        // A disk whose mode has no cache brings nothing, and keeps the settings for another mode.
        let shares_ram = |_: &Size| self.ram.is_some() || mode.0.caches();
        let block_size = self.block_size.map_or(8 << 10, |size| size.0);
        let flash = self.flash.as_ref().map_or(0, |flash| flash.bytes);
        let cached = disk::flash_for_cache(flash, write_log.as_ref(), block_size);
        let is_on_flash = |_: &Size| cached > 0;
        DiskSpec {
            in_vain: self.in_vain(write_log.as_ref()),
            write_log,
            name,
            backend,
            mode,
            block_size,
            ram_bytes,
            ram_sharing: Sharing {
                reservation: self.ram_reservation.filter(shares_ram).map_or(ram_bytes, |it| it.0),
                limit: self.ram_limit.filter(shares_ram).map_or(ram_bytes, |it| it.0),
                shares: self.ram_shares.unwrap_or(SHARES),
            },
            flash_sharing: Sharing {
                reservation: self.flash_reservation.filter(is_on_flash).map_or(cached, |it| it.0),
                limit: self.flash_limit.filter(is_on_flash).map_or(cached, |it| it.0),
                shares: self.flash_shares.unwrap_or(SHARES),
            },
            flash: self.flash,
            unplaced: None,
            grid_offset: self
                .grid_offset
                .unwrap_or(GridOffset(forebay_core::config::GridOffset::Auto)),
            policy: self.policy.unwrap_or(Policy(forebay_core::policy::PolicyKind::Auto)),
            flash_admission: self
                .flash_admission
                .unwrap_or(Admission(forebay_core::config::FlashAdmission::Always)),
            flash_dwpd: self.flash_dwpd.filter(|writes| writes.0 > 0.0),
            bypass_sequential: self
                .bypass_sequential
                .unwrap_or(Bypass(forebay_core::config::SequentialBypass::Auto)),
            iops_limit: self.iops_limit.filter(|limit| *limit > 0),
            bandwidth_limit: self.bandwidth_limit.filter(|limit| limit.0 > 0),
            limit_burst: self.limit_burst.map_or(LIMIT_BURST, |span| span.0),
            metadata_bytes_max: self.metadata_limit.map_or(1 << 30, |size| size.0),
            recorder_bytes: self.recorder.map_or(RECORDER_BYTES, |size| size.0),
            write_cache: self.write_cache.is_none_or(|switch| switch.0),
            write_cache_of_units: self.write_cache.is_some_and(|switch| switch.0),
            read_only: self.read_only,
            raw_anyway: self.raw_anyway,
            backend_exclusive: self.backend_exclusive,
            take_over: self.take_over,
            unit_id: self.unit_id,
            physical_block: self.physical_block.map_or(4 << 10, |size| size.0),
            backend_timeout: self.backend_timeout.map_or(Duration::from_secs(30), |span| span.0),
            on_timeout: self.on_timeout.unwrap_or(OnTimeout(forebay_core::config::OnTimeout::Fail)),
            vhost_user: self
                .vhost_user
                .map(|socket| VhostUserSpec { socket, queues: self.queues.unwrap_or(1) }),
        }
    }
}

impl DiskOptions {
    /// The write log, where the mode needs one or it was asked for.
    fn write_log(&self) -> Option<WriteLogSpec> {
        let logs = self.mode.is_some_and(|mode| mode.0.logs());
        let quarter = || logs.then(|| self.flash.as_ref().map_or(0, |flash| flash.bytes / 4));
        let bytes = self.write_log.map(|size| size.0).or_else(quarter)?;
        Some(WriteLogSpec {
            bytes,
            order: self.destage_order,
            journal: self.destage_journal.clone(),
            barrier: self.destage_barrier.unwrap_or(Barrier(false)),
            rate_max: self.max_destage_rate.map(|size| size.0).filter(|rate| *rate > 0),
            flush: self.flush_semantics.unwrap_or(FlushSemantics(false)),
            dirty_age_max: self.max_dirty_age.map_or(Duration::from_secs(10), |span| span.0),
            accepts_data_loss: self.accept_data_loss,
        })
    }
}

impl DiskOptions {
    /// Settings that were given and would change nothing.
    fn in_vain(&self, log: Option<&WriteLogSpec>) -> Option<(&'static str, InVain)> {
        let of_log = [
            ("destage-order", self.destage_order.is_some()),
            ("destage-journal", self.destage_journal.is_some()),
            ("destage-barrier", self.destage_barrier.is_some()),
            ("max-destage-rate", self.max_destage_rate.is_some()),
            ("flush-semantics", self.flush_semantics.is_some()),
        ];
        let of_deferred = [
            ("max-dirty-age", self.max_dirty_age.is_some()),
            ("accept-data-loss", self.accept_data_loss),
        ];
        let first = |settings: &[(&'static str, bool)]| {
            settings.iter().find(|(_, is_given)| *is_given).map(|(name, _)| *name)
        };
        let without_log = first(&of_log).or(first(&of_deferred)).filter(|_| log.is_none());
        let is_honest = log.is_none_or(|log| !log.flush.0);
        match without_log {
            Some(name) => Some((name, InVain::WithoutLog)),
            None => Some((first(&of_deferred).filter(|_| is_honest)?, InVain::WithHonestFlushes)),
        }
    }
}

/// What a miss counts unless told otherwise.
const SHARES: u32 = 1000;
/// What a miss counts at most.
pub const SHARES_MAX: u32 = 1_000_000;
/// How far a disk may be ahead of its limits unless told otherwise.
const LIMIT_BURST: Duration = Duration::from_millis(100);
/// Memory for the flight recorder unless told otherwise.
const RECORDER_BYTES: u64 = 8 << 20;

/// A name for a disk that was given none: the last part of its URI's path, cleaned; `disk` when
/// nothing is left of it.
pub fn name_from_backend(uri: &str) -> Name {
    let inner = uri.rsplit_once("inner=").map_or(uri, |(_, inner)| inner);
    if inner.starts_with("mem:") {
        return Name("mem".to_owned());
    }
    let path = inner.split('?').next().unwrap_or(inner);
    let path = path.split_once(':').map_or(path, |(_, path)| path);
    let last = path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("");
    let stem = last.split_once('.').map_or(last, |(stem, _)| stem);
    stem.parse().unwrap_or(Name("disk".to_owned()))
}

/// Shard threads at most.
const SHARDS_MAX: usize = 64;

/// The number of shard threads: what was asked for, else one per disk and at most one per CPU.
///
/// # Errors
/// A number that cannot work.
pub fn shards(asked: Option<usize>, disks: usize) -> Result<usize, ValueError> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match asked {
        Some(count @ 1..=SHARDS_MAX) => Ok(count),
        Some(count) => Err(ValueError(format!(
            "{count} shards cannot work; allowed: 1 to {SHARDS_MAX} (--shards)"
        ))),
        None => Ok(disks.clamp(1, cpus.min(SHARDS_MAX))),
    }
}
