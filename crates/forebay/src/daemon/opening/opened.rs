//! A disk that is open, and what everybody is told of it: its shard, its frontends, an administrator.

use std::sync::{Arc, Weak};

use forebay_backends::{Backend, Probe};
use forebay_core::config::Mode;
use forebay_core::engine::Engine;
use forebay_core::geometry::{ByteRange, SECTOR};
use forebay_core::ids::{Nanos, Uuid};
use forebay_frontends::nbd::Export;
use forebay_frontends::scsi;
use forebay_host::events::Severity;
use forebay_host::fence::{DiskPlace, LastWrite, UnreportedLoss};
use forebay_io::arena::Arena;
use forebay_shard::{FlashShare, JournalShare, LogShare, NewDisk};

use crate::config::DiskSpec;
use crate::daemon::api::DiskInfo;
use crate::daemon::reservations::{KEPT_MAX, Kept};

/// A disk that can be handed to a shard.
pub(in crate::daemon) struct Opened {
    pub(super) backend: Box<dyn Backend>,
    pub(super) engine: Engine,
    pub(super) memory: Arc<Arena>,
    pub(super) on_flash: Option<OnFlash>,
    /// Why nothing keeps other disks of this host from its primary storage.
    pub(super) unguarded: Option<String>,
    /// A loss that a former run has told nobody of.
    pub(super) unreported_loss: UnreportedLoss,
    pub(super) place: Option<DiskPlace>,
    /// Its name for good, where it has flash to keep it.
    pub(super) uuid: Option<Uuid>,
    /// Its reservations, where it has flash to keep them.
    pub(super) reservations: Option<Kept>,
    /// What is worth telling of how it was opened.
    pub(in crate::daemon) notes: Vec<(Severity, String)>,
}

/// What a disk has of a pool.
pub(super) struct OnFlash {
    pub(super) cache: Option<FlashShare>,
    pub(super) is_direct: bool,
    pub(super) log: Option<LogShare>,
    pub(super) journal: Option<JournalShare>,
    pub(super) last_write: Option<Arc<LastWrite>>,
    pub(super) evidence: Option<String>,
}

impl Opened {
    /// Has its RAM cache wait for memory, which is to be given to its disk.
    pub(in crate::daemon) fn wait_for_memory(&mut self) -> Option<(Weak<Arena>, ByteRange)> {
        let place = self.engine.withhold_ram()?;
        Some((Arc::downgrade(&self.memory), place))
    }

    /// Its place on flash, which is to be left when it has ended.
    pub(in crate::daemon) fn take_place(&mut self) -> Option<DiskPlace> {
        self.place.take()
    }

    /// What is told of the disk.
    pub(in crate::daemon) fn info(&self, spec: &DiskSpec, shard: usize) -> DiskInfo {
        let properties = self.backend.properties();
        DiskInfo {
            name: spec.name.to_string(),
            backend: spec.backend.clone(),
            size: properties.size,
            mode: spec.mode.to_string(),
            block_size: spec.block_size,
            ram_bytes: spec.ram_bytes,
            metadata_bytes: self.engine.statistics(Nanos(0)).metadata_bytes,
            memory_bytes: super::memory::size_now(&self.engine),
            flash: spec.flash.as_ref().map(ToString::to_string),
            flash_direct: self.on_flash.as_ref().map(|place| place.is_direct),
            flash_cache_bytes: self.engine.config().flash_bytes,
            flash_cache_max: self.engine.config().flash_room,
            write_log_bytes: spec.write_log.as_ref().map_or(0, |log| log.bytes),
            flushes_deferred: spec.write_log.as_ref().is_some_and(|log| log.flush.0),
            evidence: self.on_flash.as_ref().and_then(|place| place.evidence.clone()),
            unguarded: self.unguarded.clone(),
            read_only: spec.read_only || properties.read_only,
            write_cache: spec.write_cache,
            shard,
            addresses: Vec::new(),
            is_unattached: false,
            vhost_user: spec
                .vhost_user
                .as_ref()
                .map(|device| (device.socket.path.display().to_string(), device.queues)),
        }
    }

    /// The disk as guests see it.
    pub(in crate::daemon) fn device(
        &self,
        spec: &DiskSpec,
        queues: u16,
    ) -> forebay_frontends::vhost_user::Export {
        let export = self.export(spec);
        forebay_frontends::vhost_user::Export {
            serial: spec.name.0.clone(),
            size: export.size,
            read_only: export.read_only,
            write_cache: export.write_cache,
            preferred_block: export.preferred_block,
            discard: export.trim,
            queues,
        }
    }

    /// The disk as clients see it.
    pub(in crate::daemon) fn export(&self, spec: &DiskSpec) -> Export {
        let properties = self.backend.properties();
        let preferred = match spec.mode.0 {
            Mode::WriteThrough | Mode::WriteAround | Mode::WriteBack | Mode::WriteOnly => {
                spec.block_size as u32
            }
            Mode::PassThrough | Mode::Monitor => 4096,
        };
        Export {
            description: format!("Forebay, {} of {}", spec.mode, spec.backend),
            read_only: spec.read_only || properties.read_only,
            write_cache: spec.write_cache,
            preferred_block: preferred.max(properties.logical_block),
            trim: properties.discard,
            fast_zero: properties.write_zeroes,
            ..Export::new(&spec.name.0, properties.size)
        }
    }

    /// The disk as a logical unit; what ports expose it is not said yet.
    pub(in crate::daemon) fn unit(&self, spec: &DiskSpec) -> scsi::Export {
        let properties = self.backend.properties();
        scsi::Export {
            name: spec.name.0.clone(),
            uuid: spec.unit_id.map(|disk| disk.0).or(self.uuid).map(|uuid| uuid.0),
            size: properties.size - properties.size % SECTOR,
            physical_block: properties.logical_block.max(spec.physical_block as u32),
            read_only: spec.read_only || properties.read_only,
            write_cache: spec.write_cache_of_units,
            atomic_write_max: 0,
            store_max: if self.reservations.is_some() { KEPT_MAX } else { 0 },
            ports: Vec::new(),
        }
    }

    /// Looks at primary storage, without its lock.
    pub(in crate::daemon) fn probe(&self) -> Option<Probe> {
        Some(self.backend.probe()?.copy())
    }

    /// Its reservations, where they are kept over a restart.
    pub(in crate::daemon) fn reservations(&self) -> Option<Kept> {
        self.reservations.clone()
    }

    /// The disk for its shard.
    pub(in crate::daemon) fn into_new_disk(self, spec: &DiskSpec) -> NewDisk {
        let on_flash = self
            .on_flash
            .map(|on_flash| (on_flash.cache, on_flash.log, on_flash.journal, on_flash.last_write));
        let (flash, log, journal, last_write) = on_flash.unwrap_or_default();
        let kept = self.reservations.as_ref().map(Kept::access);
        let access = kept.transpose().expect("it was asked before").unwrap_or_default();
        NewDisk {
            name: spec.name.0.as_str().into(),
            engine: self.engine,
            memory: self.memory,
            backend: self.backend,
            flash,
            log,
            journal,
            last_write,
            unreported_loss: self.unreported_loss,
            mode: spec.mode.0,
            is_paused: false,
            access,
        }
    }
}
