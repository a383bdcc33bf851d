//! Starting a cache on flash warm: its ring is found, judged, and taken over by the engine; or it is begun anew.
//!
//! ```text
//!   ring of this disk, may be kept ─► engine takes over what it says ─┬─ the same slots ► the ring goes on ──► warm
//!        └─ no ─┐                          └─ must not be believed ─┐  └─ more, or fewer ─► another ring ─────► warm
//!               └───────────────────────────────────────────────────┴────────────────────► another ring ─────► cold
//! ```
//! Another ring has another nonce, which is durable before this returns. So either the ring is the one that the engine goes
//! on with, or it says nothing.

use anyhow::{Context, Result};
use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::recover::Cold;
use forebay_core::cache_index::{REGIONS_MAX, RingGeometry, survey};
use forebay_core::config::{Config, GridOffset, RingConfig};
use forebay_core::engine::{Engine, RestoredCache};
use forebay_core::flash_pool::DiskNumber;
use forebay_core::geometry::{Grid, PAGE};
use forebay_core::ids::Generation;

use super::events::Severity;
use super::pool::{self, Area, CacheArea, OpenedLog, Pool, SharedPool, host};

/// What is said where a pool has no segments for a ring.
pub const NO_ROOM: &str =
    "the flash has no room to record what the cache holds: it starts empty after each restart";

/// The ring of a disk that is being opened.
pub struct Start {
    number: DiskNumber,
    config: Config,
    /// What is to be on flash for this cache; its nonce is a new one.
    header: RingHeader,
    /// What a former run left, of this disk and its block size.
    found: Option<(Area, RingHeader)>,
    /// There is flash for every slot that it may say something of. Flash that other disks lent may be theirs again.
    has_its_slots: bool,
}

/// An engine, and the ring that it goes on with.
pub struct Started {
    /// It has its log and its cache.
    pub engine: Engine,
    /// Where its ring is; `None`: what it caches on flash is not recorded.
    pub ring: Option<Area>,
}

impl Start {
    /// Looks at the ring that was in `area`, for a cache of `config`, which is told of its own; `None`: it has no slots.
    /// `is_unanswered`: a former run did not see the end of what it sent to primary storage.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new(
        pool: &Pool,
        number: DiskNumber,
        area: &CacheArea,
        (generation, is_unanswered): (Generation, bool),
        config: &mut Config,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<Option<Start>> {
        let (block, size) = (config.block_size, config.backend.size);
        let room = config.flash_bytes.max(config.flash_room);
        let slots = (room / block) as u32;
        if slots == 0 {
            return Ok(None);
        }
        let granules = Grid::new(size, block, 0).granules_per_block();
        let pages = RingGeometry::new(slots, granules, block, size).pages();
        let header = RingHeader {
            disk: pool.disk_uuid(number),
            generation,
            nonce: host::new_nonce().context("no random numbers")?,
            disk_size: size,
            block_size: block as u32,
            slots,
            pages,
        };
        let read = area.former.map(|ring| pool.ring_header(ring).map(|found| (ring, found)));
        // The cache can be filled again: what cannot be read of it keeps nobody from the disk.
        let read = read.transpose().unwrap_or_else(|error| {
            notes.push((Severity::Warning, cold(&Cold::Unreadable(format!("{error:#}")))));
            None
        });
        let found = read.and_then(|(ring, found)| Some((ring, found?)));
        // The disk may have grown since the ring was begun, and its cache have another size.
        let fits = |(ring, found): &(Area, RingHeader)| {
            let RingHeader { nonce, generation, disk_size, pages, slots, .. } = *found;
            let is_ours =
                *found == RingHeader { nonce, generation, disk_size, pages, slots, ..header };
            let has_room = (u64::from(pages) + 1) * PAGE <= ring.len;
            is_ours
                && has_room
                && pool.has_ring(number, found)
                && disk_size <= size
                && survey::geometry(found).is_some()
        };
        let found = found.filter(fits);
        let ring = RingConfig::new(header.disk, generation, header.nonce, pages, size);
        config.ring = Some(RingConfig { is_unanswered, ..ring });
        let slots = |bytes: u64| bytes / config.block_size;
        let has_its_slots = slots(area.kept.min(room)) <= slots(config.flash_bytes);
        Ok(Some(Start { number, config: *config, header, found, has_its_slots }))
    }

    /// The engine that `make` makes, with what the ring says is on flash if that may be kept.
    ///
    /// # Errors
    /// Those of `make`, or the medium's.
    pub fn engine(
        self,
        pool: &SharedPool,
        begun: &Pool,
        keep: bool,
        log: Option<&OpenedLog>,
        make: impl Fn(Config) -> Result<Engine>,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<Started> {
        let mut config = self.config;
        let own = config.ring.expect("it was told of the ring");
        let mut warm_engine = None;
        if let Some((area, found)) = self.found.filter(|_| keep) {
            let goes_on = found.slots == self.header.slots && self.has_its_slots;
            if goes_on {
                let RingHeader { nonce, pages, disk_size, .. } = found;
                config.ring = Some(RingConfig { nonce, pages, disk_size, ..own });
            }
            let mut engine = make(config)?;
            let records = log.iter().flat_map(|log| &log.found.records);
            let logged = records.map(|record| record.range);
            match begun.restore_cache(area, &found, &mut engine, logged) {
                Ok(restored) => {
                    notes.push((Severity::Info, warm(&restored)));
                    if goes_on {
                        return Ok(Started { engine, ring: Some(area) });
                    }
                    warm_engine = Some(engine);
                }
                Err(Cold::OtherGrid(was)) => {
                    let is = match config.grid_offset {
                        GridOffset::Fixed(is) => is,
                        GridOffset::Auto => 0,
                    };
                    let text = format!(
                        "the cache on flash starts empty: the block grid has changed from byte offset {was} to {is}"
                    );
                    notes.push((Severity::Info, text));
                }
                Err(why) => notes.push((Severity::Warning, cold(&why))),
            }
        } else if self.found.is_some() {
            let text = "the cache on flash starts empty: it cannot be proven that it is current";
            notes.push((Severity::Info, text.to_owned()));
        }
        config.ring = Some(own);
        // Before what a former run left is written over: one that cannot be made leaves the cache as it is.
        let mut engine = warm_engine.map_or_else(|| make(config), Ok)?;
        let bytes = (u64::from(self.header.pages) + 1) * PAGE;
        let room = config.flash_bytes.max(config.flash_room);
        let bytes = bytes.max(ring_bytes_max(room, config.block_size));
        let begins = pool::lock(pool).begin_ring(self.number, bytes, &self.header);
        let ring = begins.context("cannot begin the ring of the cache")?;
        if ring.is_none() {
            notes.push((Severity::Warning, NO_ROOM.to_owned()));
            config.ring = None;
            drop(engine);
            engine = make(config)?;
        }
        Ok(Started { engine, ring })
    }
}

/// Bytes that the ring of a cache needs, whatever the size of the disk.
pub fn ring_bytes_max(cache: u64, block_size: u64) -> u64 {
    let slots = u32::try_from(cache / block_size).unwrap_or(u32::MAX);
    if slots == 0 {
        return 0;
    }
    let granules = (block_size / (block_size / 64).max(PAGE)) as u32;
    let geometry = RingGeometry { slots, granules, regions: REGIONS_MAX as u32 };
    (u64::from(geometry.pages()) + 1) * PAGE
}

/// Why nothing came back, in words.
fn cold(why: &Cold) -> String {
    format!("the cache on flash starts empty: {why}")
}

/// What came back, in words.
fn warm(restored: &RestoredCache) -> String {
    let RestoredCache { found, kept, closed, .. } = *restored;
    let end = if closed { "an end in order" } else { "a crash" };
    if found == 0 {
        return format!("the cache on flash starts empty: it was empty before {end}");
    }
    if kept == 0 {
        return format!(
            "the cache on flash starts empty: none of {found} blocks is kept after {end}"
        );
    }
    let share = kept * 100 / found;
    format!("the cache on flash is warm: {kept} of {found} blocks ({share} %) are kept after {end}")
}
