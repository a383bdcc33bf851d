//! One disk made ready: primary storage opened, the cache checked, memory taken.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_backends::{Backend, OpenOptions, Uri};
use forebay_core::config::{BackendTraits, Mode};
use forebay_core::engine::{Engine, metadata_bytes};
use forebay_frontends::nbd::Export;
use forebay_io::arena::Arena;

use super::api::DiskInfo;
use super::flash::{FlashPool, FlashShare, LOCK_WAIT};
use crate::config::DiskSpec;
use crate::shard::NewDisk;

/// A disk that can be handed to a shard.
pub(super) struct Opened {
    backend: Box<dyn Backend>,
    engine: Engine,
    memory: Arc<Arena>,
    flash: Option<FlashShare>,
    flash_direct: Option<bool>,
}

/// Opens primary storage, makes the engine, and takes the memory.
pub(super) fn open(spec: &DiskSpec, pools: &mut BTreeMap<PathBuf, FlashPool>) -> Result<Opened> {
    let unusable = || format!("its primary storage {} cannot be used", spec.backend);
    let uri: Uri = spec.backend.parse().with_context(unusable)?;
    let options = OpenOptions { read_only: spec.read_only, lock_wait: LOCK_WAIT };
    let backend = forebay_backends::open(&uri, options).with_context(unusable)?;
    let properties = backend.properties();
    let traits = BackendTraits {
        size: properties.size,
        logical_block: properties.logical_block,
        read_only: properties.read_only || spec.read_only,
        discard: properties.discard,
        write_zeroes: properties.write_zeroes,
        extents: properties.extents,
    };
    let config = spec.engine_config(traits);
    let (needed, limit) = (metadata_bytes(&config), config.metadata_bytes_max);
    ensure!(
        needed <= limit,
        "the cache needs {} for metadata, limit {}: use a larger block size, a smaller cache, or a \
         higher metadata-limit",
        rounded(needed),
        rounded(limit)
    );
    check_memory(needed + spec.ram_bytes)?;
    let engine = Engine::new(config).map_err(anyhow::Error::new)?;
    check_memory(engine.memory_size())?;
    let memory = Arena::new(engine.memory_size() as usize)
        .with_context(|| format!("cannot take {} of memory", rounded(engine.memory_size())))?;
    let mut flash = None;
    let mut flash_direct = None;
    if let Some(wanted) = &spec.flash {
        assert!(engine.flash_size() <= wanted.bytes);
        let pool = pools.get_mut(&wanted.path).expect("each flash path was opened");
        flash = Some(pool.take_share(wanted.bytes)?);
        flash_direct = Some(pool.is_direct());
    }
    Ok(Opened { backend, engine, memory: Arc::new(memory), flash, flash_direct })
}

/// Finds combinations that cannot work with what was opened.
pub(super) fn check(spec: &DiskSpec, opened: &Opened) -> Result<()> {
    let size = opened.backend.properties().size;
    ensure!(size > 0, "its primary storage {} is empty", spec.backend);
    Ok(())
}

/// Refuses to take more memory than the machine can give: it is touched at once, and being killed for
/// it would be a bad way to learn.
fn check_memory(needed: u64) -> Result<()> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    if let Some(available) = kib.map(|kib| kib << 10) {
        ensure!(
            needed <= available,
            "it needs {} of memory, the machine has {} available; choose a smaller --ram",
            rounded(needed),
            rounded(available)
        );
    }
    Ok(())
}

impl Opened {
    /// What is told of the disk.
    pub(super) fn info(&self, spec: &DiskSpec, shard: usize) -> DiskInfo {
        let properties = self.backend.properties();
        DiskInfo {
            name: spec.name.to_string(),
            backend: spec.backend.clone(),
            size: properties.size,
            mode: spec.mode.to_string(),
            block_size: spec.block_size,
            ram_bytes: spec.ram_bytes,
            metadata_bytes: self.engine.statistics().metadata_bytes,
            memory_bytes: self.memory.len() as u64,
            memory_huge_bytes: self.memory.huge_bytes() as u64,
            flash: spec.flash.as_ref().map(ToString::to_string),
            flash_direct: self.flash_direct,
            read_only: spec.read_only || properties.read_only,
            write_cache: spec.write_cache,
            shard,
            addresses: Vec::new(),
        }
    }

    /// The disk as clients see it.
    pub(super) fn export(&self, spec: &DiskSpec) -> Export {
        let properties = self.backend.properties();
        let preferred = match spec.mode.0 {
            Mode::WriteThrough | Mode::WriteAround => spec.block_size as u32,
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

    /// The disk for its shard.
    pub(super) fn into_new_disk(self, spec: &DiskSpec) -> NewDisk {
        NewDisk {
            name: spec.name.0.as_str().into(),
            engine: self.engine,
            memory: self.memory,
            backend: self.backend,
            flash: self.flash,
        }
    }
}
