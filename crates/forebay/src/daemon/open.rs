//! One disk made ready: primary storage opened, the cache checked, the write log recovered, memory taken.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_backends::{Backend, OpenOptions, Properties, Uri, Witness};
use forebay_core::config::{BackendTraits, Config, GridOffset, Mode, WriteLogConfig};
use forebay_core::engine::{Engine, metadata_bytes};
use forebay_core::geometry::{PAGE, SECTOR};
use forebay_core::ids::{Generation, Nanos, SegmentId, Uuid};
use forebay_core::pool::DiskNumber;
use forebay_core::warm::{REGIONS_MAX, RingGeometry};
use forebay_frontends::nbd::Export;
use forebay_frontends::scsi;
use forebay_host::events::Severity;
use forebay_host::fence::{self, Alone, Guard, Place, SidecarPlace, Trail, Untold, names};
use forebay_host::pool::owner::PoolHandle;
use forebay_host::pool::report::staging_lost;
use forebay_host::pool::staging::Staging;
use forebay_host::pool::{self, DiskWish, LOCK_WAIT, OpenedLog, SharedPool};
use forebay_host::warm;
use forebay_io::arena::Arena;
use forebay_shard::{FlashShare, LogShare, NewDisk, RingShare};

use super::api::DiskInfo;
use super::raw;
use super::reservations::{KEPT_MAX, Kept};
use crate::config::{DiskSpec, WriteLogSpec};

/// A disk that can be handed to a shard.
pub(super) struct Opened {
    backend: Box<dyn Backend>,
    engine: Engine,
    memory: Arc<Arena>,
    on_flash: Option<OnFlash>,
    /// Why nothing keeps other disks of this host from its primary storage.
    unguarded: Option<String>,
    /// A loss that a former run has told nobody of.
    untold: Untold,
    place: Option<Place>,
    /// Its name for good, where it has flash to keep it.
    uuid: Option<Uuid>,
    /// Its reservations, where it has flash to keep them.
    reservations: Option<Kept>,
    /// What is worth telling of how it was opened.
    pub(super) notes: Vec<(Severity, String)>,
}

/// What a disk has of a pool.
struct OnFlash {
    cache: Option<FlashShare>,
    is_direct: bool,
    log: Option<LogShare>,
    trail: Option<Arc<Trail>>,
    evidence: Option<String>,
}

/// Opens primary storage, recovers the log, makes the engine, and takes the memory.
pub(super) fn open(
    spec: &DiskSpec,
    pool: Option<(SharedPool, PoolHandle)>,
    state: Option<&Path>,
) -> Result<Opened> {
    let unusable = || format!("its primary storage {} cannot be used", spec.backend);
    let uri: Uri = spec.backend.parse().with_context(unusable)?;
    let options = OpenOptions { read_only: spec.read_only, lock_wait: LOCK_WAIT };
    let opened = forebay_backends::open(&uri, options).map_err(|why| raw::explain(spec, &uri, why));
    let mut backend = opened.with_context(unusable)?;
    let witness = backend.witness().map(|witness| names::known(witness, state));
    let place = SidecarPlace::of(witness.as_ref(), state);
    let mut notes = Vec::new();
    notes.extend(raw::check(spec, &uri, witness.as_ref(), state)?);
    let lock = fence::lock(&place, spec.read_only).with_context(unusable)?;
    let mut untold = Untold::find(witness.as_ref());
    if spec.read_only || backend.properties().read_only {
        // Nobody who reads relies on what was lost: the next one who writes is told.
        notes.extend(untold.is_noted().then(fence::untold_later));
        untold = Untold::default();
    }
    notes.extend(untold.is_noted().then(fence::untold));
    notes.extend(untold.obstacle().map(fence::not_noted));
    let unguarded = lock.missing().map(str::to_owned);
    notes.extend(unguarded.iter().map(|why| (Severity::Warning, why.clone())));
    let properties = backend.properties();
    ensure!(properties.size > 0, "its primary storage {} is empty", spec.backend);
    let config = spec.engine_config(traits(spec, properties));
    let Some(pool) = pool else {
        let takes_over = spec.take_over.map(|disk| disk.0);
        let name = &spec.name.0;
        let alone = Alone::begin(witness, place, name, takes_over, state, &mut notes)?;
        hold_changes(backend.as_mut(), alone.is_unanswered, &mut notes);
        let engine = engine(config)?;
        let memory = Arc::new(memory(&engine, None)?);
        return Ok(Opened {
            engine,
            memory,
            backend,
            on_flash: None,
            unguarded,
            untold,
            place: Some(Place::new(None, alone.fence, lock)),
            uuid: None,
            reservations: None,
            notes,
        });
    };
    if let Some(witness) = &witness {
        // Without it another name of the image does not lead here, and nothing else depends on it.
        let _ = names::remember(witness, state);
    }
    // Without it a start with another pool says which this one is, and not where.
    let _ = names::remember_pool(&pool::lock(&pool.0), state);
    let opened = on_flash(spec, config, backend, (witness, place, lock), pool, notes, state)?;
    Ok(Opened { untold, ..opened })
}

/// The same for a disk with flash: what is in the pool comes first. Others who use the pool wait for short steps only.
fn on_flash(
    spec: &DiskSpec,
    mut config: Config,
    mut backend: Box<dyn Backend>,
    (witness, place, lock): (Option<Witness>, SidecarPlace, Guard),
    (shared, owner): (SharedPool, PoolHandle),
    mut notes: Vec<(Severity, String)>,
    state: Option<&Path>,
) -> Result<Opened> {
    let locked = || pool::lock(&shared);
    let mut wish = wish(spec, backend.properties(), fence::identity(witness.as_ref()));
    let number = locked().admit(&wish)?;
    let found = locked().snapshot();
    let reservations = Kept::find(&found, number, &owner)?;
    let examined = fence::examine(&found, number, &wish, (witness, place), &[], state)?;
    let examined = examined.note(&mut locked(), number)?;
    hold_changes(backend.as_mut(), examined.is_unanswered(), &mut notes);
    notes.extend(examined.notes());
    notes.extend(reservations.note());
    let evidence = examined.evidence();
    // May what a former run cached be used, as far as its ring goes?
    let keep = examined.keeps_cache();
    let generation = locked().begin_session(number)?;
    let begun = locked().snapshot();
    let mut fence = examined.begin(&begun, number, &mut notes);
    let mut log = None;
    if spec.write_log.is_some() || begun.has_log(number) {
        let opened = open_log(&shared, number, generation, wish.grid_offset);
        let mut opened = opened.map_err(|why| fence::Refused::log(&why))?;
        notes.extend(describe(&opened));
        prepare_staging(&mut opened, &mut notes);
        wish.is_staged = opened.staging.is_some();
        config.write_log = Some(log_config(spec.write_log.as_ref(), &opened));
        config.grid_offset = GridOffset::Fixed(opened.grid_offset);
        if wish.grid_offset.is_some_and(|wanted| wanted != opened.grid_offset) {
            let text = format!(
                "the block grid is at byte offset {} in this run, where the write log of a former one lies on it: a start that finds the \
                 log empty puts it where it is to be",
                opened.grid_offset
            );
            notes.push((Severity::Warning, text));
        }
        wish.grid_offset = Some(opened.grid_offset);
        if !opened.found.records.is_empty() && !config.mode.logs() {
            // It is drained in a mode with a log; the shard asks for the other one.
            config.mode = Mode::WriteBack;
        }
        log = Some(opened);
    }
    let mut cache = None;
    let mut ring = None;
    if config.flash_bytes > 0 {
        let wanted = config.flash_bytes;
        let area = locked().take_cache(number, wanted, ring_bytes_max(wanted, spec.block_size))?;
        if area.slots.len < wanted {
            let text = format!(
                "the cache on flash has {} instead of {}: the rest is taken by logs that are not destaged",
                rounded(area.slots.len),
                rounded(wanted)
            );
            notes.push((Severity::Warning, text));
        }
        config.flash_bytes = area.slots.len;
        ring = warm::Start::new(&begun, number, &area, generation, &mut config)?;
        if ring.is_none() {
            notes.push((Severity::Warning, warm::NO_ROOM.to_owned()));
        }
        let share = area.ring.filter(|_| ring.is_some()).map(|ring| RingShare {
            offset: ring.offset + PAGE,
            number,
            owner: owner.clone(),
            revoker: fence.revoker(),
        });
        cache =
            Some(FlashShare { file: begun.share_file()?, offset: area.slots.offset, ring: share });
    } else {
        locked().drop_cache(number)?;
    }
    let make = |config: Config| -> Result<Engine> {
        let mut engine = engine(config)?;
        if let Some(log) = &log {
            let restored = engine.restore(&log.found, log.tail).map_err(anyhow::Error::new);
            restored.map_err(|why| fence::Refused::log(&why))?;
        }
        Ok(engine)
    };
    let mut engine = match ring {
        None => make(config)?,
        Some(ring) => ring.engine(&begun, keep, config, log.as_ref(), make, &mut notes)?,
    };
    if log.is_some() && spec.grid_offset.0 == GridOffset::Auto {
        engine.watch_alignment();
    }
    let needed: Vec<SegmentId> = log.as_ref().map_or_else(Vec::new, OpenedLog::segments);
    let staging = log.as_mut().and_then(|log| log.staging.take());
    let memory = Arc::new(memory(&engine, staging.as_ref())?);
    let found = fence.found(&begun.record(number));
    locked().commit_session(number, &wish, &needed, found)?;
    let trail = fence.follow(log.is_some(), &mut notes)?;
    let log = match log {
        None => None,
        Some(log) => Some(LogShare {
            file: begun.share_file()?,
            geometry: log.geometry,
            pool: log.pool,
            number,
            disk: log.disk,
            nonce: log.nonce,
            progress_version: log.progress_version,
            leases: locked().log_leases(number),
            owner: owner.clone(),
            staging,
            revoker: fence.revoker(),
        }),
    };
    let uuid = Some(begun.disk_uuid(number));
    let unguarded = lock.missing().map(str::to_owned);
    let place = Some(Place::new(Some((owner.clone(), number)), Some(fence), lock));
    let on_flash = Some(OnFlash { cache, is_direct: begun.is_direct(), log, trail, evidence });
    let reservations = Some(reservations);
    let untold = Untold::default();
    Ok(Opened {
        engine,
        memory,
        backend,
        on_flash,
        unguarded,
        untold,
        place,
        uuid,
        reservations,
        notes,
    })
}

/// Opens the log of a disk under a generation that has begun; others wait while it goes on, not while it is read.
fn open_log(
    shared: &SharedPool,
    number: DiskNumber,
    generation: Generation,
    grid_offset: Option<u64>,
) -> Result<OpenedLog> {
    pool::lock(shared).begin_log(number)?;
    let begun = pool::lock(shared).snapshot();
    let found = begun.find_log(number)?;
    pool::lock(shared).go_on_with_log(number, generation, grid_offset, found)
}

/// Lets changes of primary storage wait when it may still carry out what a former process sent.
fn hold_changes(
    backend: &mut dyn Backend,
    is_unanswered: bool,
    notes: &mut Vec<(Severity, String)>,
) {
    if is_unanswered && let Some(time) = backend.hold_changes() {
        notes.push((Severity::Warning, fence::held(time)));
    }
}

/// Bytes that the ring of a cache needs, whatever the size of the disk.
pub(super) fn ring_bytes_max(cache: u64, block_size: u64) -> u64 {
    let slots = u32::try_from(cache / block_size).unwrap_or(u32::MAX);
    if slots == 0 {
        return 0;
    }
    let granules = (block_size / (block_size / 64).max(PAGE)) as u32;
    let geometry = RingGeometry { slots, granules, regions: REGIONS_MAX as u32 };
    (u64::from(geometry.pages()) + 1) * PAGE
}

/// What the engine is told of primary storage.
fn traits(spec: &DiskSpec, properties: &Properties) -> BackendTraits {
    BackendTraits {
        size: properties.size,
        logical_block: properties.logical_block,
        read_only: properties.read_only || spec.read_only,
        discard: properties.discard,
        write_zeroes: properties.write_zeroes,
        extents: properties.extents,
    }
}

/// What the pool is told of the disk.
fn wish(spec: &DiskSpec, properties: &Properties, identity: Uuid) -> DiskWish {
    DiskWish {
        name: spec.name.to_string(),
        uri: spec.backend.clone(),
        identity,
        size: properties.size,
        block_size: spec.block_size,
        grid_offset: match spec.grid_offset.0 {
            GridOffset::Fixed(offset) => Some(offset),
            GridOffset::Auto => None,
        },
        mode: spec.mode.to_string(),
        log_bytes: spec.write_log.as_ref().map_or(0, |log| log.bytes),
        read_only: spec.read_only,
        is_deferred: spec.write_log.as_ref().is_some_and(|log| log.flush.0),
        is_staged: false,
        is_exclusive: spec.backend_exclusive,
        takes_over: spec.take_over.map(|disk| disk.0),
    }
}

/// The log as the engine is to use it: as configured, or just to be drained.
fn log_config(spec: Option<&WriteLogSpec>, log: &OpenedLog) -> WriteLogConfig {
    let size = log.geometry.segment_size();
    let config = match spec {
        Some(spec) => spec.engine_config(size),
        None => WriteLogConfig::of_bytes(log.bytes_max, size),
    };
    WriteLogConfig {
        generation: log.generation,
        staging: log.staging.is_some(),
        // What was found has to have a place, with what it goes on in.
        segments_found: log.found.segments.len() as u32 + 1,
        ..config
    }
}

/// Empties the staging file, whose groups are in the log by now, for this run; without space for it there is none.
fn prepare_staging(log: &mut OpenedLog, notes: &mut Vec<(Severity, String)>) {
    let Some(staging) = &log.staging else {
        let text = "there is no folder on tmpfs for a staging file: each write is acknowledged when it is on flash";
        return notes.push((Severity::Info, text.to_owned()));
    };
    if let Err(error) = staging.renew(log.disk, log.generation, log.geometry.segment_pages()) {
        let text = format!("{error:#}: each write is acknowledged when it is on flash");
        notes.push((Severity::Warning, text));
        log.staging = None;
    }
}

/// What recovery did, in words.
fn describe(log: &OpenedLog) -> Vec<(Severity, String)> {
    let mut notes = Vec::new();
    let records = log.found.records.len();
    if records > 0 {
        let pages = log.found.checksums.len() as u64;
        let text = format!(
            "the write log of a former run goes on: {records} writes ({}) are to be destaged, {} of them from the \
             staging file",
            rounded(pages * PAGE),
            log.adopted
        );
        notes.push((Severity::Info, text));
    }
    let damaged = log.found.report.summaries_damaged;
    if damaged > 0 {
        let text = format!(
            "{damaged} segments of the write log were read whole: their summaries are torn or rotten"
        );
        notes.push((Severity::Info, text));
    }
    let unreadable = log.found.report.summaries_unreadable;
    if unreadable > 0 {
        let text = format!(
            "{unreadable} segments of the write log were read whole: flash does not read their summaries"
        );
        notes.push((Severity::Warning, text));
    }
    notes.extend(log.staging_lost.map(|fault| (Severity::Error, staging_lost(fault))));
    notes
}

fn engine(config: Config) -> Result<Engine> {
    let (needed, limit) = (metadata_bytes(&config), config.metadata_bytes_max);
    ensure!(
        needed <= limit,
        "the cache needs {} for metadata, limit {}: use a larger block size, a smaller cache, or a \
         higher metadata-limit",
        rounded(needed),
        rounded(limit)
    );
    check_memory(needed + config.ram_bytes, false)?;
    let engine = Engine::new(config).map_err(anyhow::Error::new)?;
    check_memory(engine.memory_size(), false)?;
    Ok(engine)
}

/// The engine's memory, of which the end is the staging file.
fn memory(engine: &Engine, staging: Option<&Staging>) -> Result<Arena> {
    let size = engine.memory_size();
    let tail = engine.staging_start() as usize;
    match staging {
        None => Arena::new(size as usize),
        Some(staging) => Arena::with_tail(size as usize, tail, staging.file().as_fd()),
    }
    .with_context(|| format!("cannot take {} of memory", rounded(size)))
}

/// Refuses to take more memory than the machine can give: it is touched at once, and being killed for
/// it would be a bad way to learn. `of_all`: of what the machine has, and not of what is available now.
pub(super) fn check_memory(needed: u64, of_all: bool) -> Result<()> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let (name, is) = if of_all { ("MemTotal:", "in all") } else { ("MemAvailable:", "available") };
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    if let Some(there) = kib.map(|kib| kib << 10) {
        ensure!(
            needed <= there,
            "it needs {} of memory, the machine has {} {is}; choose a smaller --ram",
            rounded(needed),
            rounded(there)
        );
    }
    Ok(())
}

impl Opened {
    /// Its place on flash, which is to be left when it has ended.
    pub(super) fn take_place(&mut self) -> Option<Place> {
        self.place.take()
    }

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
            metadata_bytes: self.engine.statistics(Nanos(0)).metadata_bytes,
            memory_bytes: self.memory.len() as u64,
            memory_huge_bytes: self.memory.huge_bytes() as u64,
            flash: spec.flash.as_ref().map(ToString::to_string),
            flash_direct: self.on_flash.as_ref().map(|place| place.is_direct),
            write_log_bytes: spec.write_log.as_ref().map_or(0, |log| log.bytes),
            flushes_deferred: spec.write_log.as_ref().is_some_and(|log| log.flush.0),
            evidence: self.on_flash.as_ref().and_then(|place| place.evidence.clone()),
            unguarded: self.unguarded.clone(),
            read_only: spec.read_only || properties.read_only,
            write_cache: spec.write_cache,
            shard,
            addresses: Vec::new(),
            vhost_user: spec
                .vhost_user
                .as_ref()
                .map(|device| (device.socket.path.display().to_string(), device.queues)),
        }
    }

    /// The disk as guests see it.
    pub(super) fn device(
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
    pub(super) fn export(&self, spec: &DiskSpec) -> Export {
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
    pub(super) fn unit(&self, spec: &DiskSpec) -> scsi::Export {
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
    pub(super) fn witness(&self) -> Option<Witness> {
        self.backend.witness()?.copy().ok()
    }

    /// Its reservations, where they are kept over a restart.
    pub(super) fn reservations(&self) -> Option<Kept> {
        self.reservations.clone()
    }

    /// The disk for its shard.
    pub(super) fn into_new_disk(self, spec: &DiskSpec) -> NewDisk {
        let on_flash = self.on_flash.map(|on_flash| (on_flash.cache, on_flash.log, on_flash.trail));
        let (flash, log, trail) = on_flash.unwrap_or_default();
        let kept = self.reservations.as_ref().map(Kept::access);
        let access = kept.transpose().expect("it was asked before").unwrap_or_default();
        NewDisk {
            name: spec.name.0.as_str().into(),
            engine: self.engine,
            memory: self.memory,
            backend: self.backend,
            flash,
            log,
            trail,
            untold: self.untold,
            mode: spec.mode.0,
            access,
        }
    }
}
