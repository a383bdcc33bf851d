//! Starting a cache on flash warm: its ring is found, judged, and taken over by the engine; or it is begun anew.
//!
//! ```text
//!   area kept, header fits, may be kept ─► engine takes over what the ring says ─► warm
//!        └─ no ─┐                             └─ it must not be believed ─┐
//!               └─────────────────────────────────────────────────────────┴─► another nonce, durably ─► cold
//! ```
//! Before this returns, either the ring is the one that the engine goes on with, or it says nothing.

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
use super::pool::{Area, CacheArea, OpenedLog, Pool, host};

/// What is said where a pool has no segments for a ring.
pub const NO_ROOM: &str =
    "the flash has no room to record what the cache holds: it starts empty after each restart";

/// The ring of a disk that is being opened.
pub struct Start {
    area: Area,
    /// What is to be on flash for this cache; its nonce is a new one.
    header: RingHeader,
    /// What is there, and fits.
    found: Option<RingHeader>,
}

impl Start {
    /// Looks at the ring in `area` for a cache of `config`, which is told of it; `None`: there is no room for one.
    ///
    /// # Errors
    /// The medium's.
    pub fn new(
        pool: &Pool,
        number: DiskNumber,
        area: &CacheArea,
        generation: Generation,
        config: &mut Config,
    ) -> Result<Option<Start>> {
        let (block, size) = (config.block_size, config.backend.size);
        let slots = (config.flash_bytes / block) as u32;
        let granules = Grid::new(size, block, 0).granules_per_block();
        let pages = RingGeometry::new(slots.max(1), granules, block, size).pages();
        let room = |ring: &Area| (u64::from(pages) + 1) * PAGE <= ring.len;
        let Some(ring) = area.ring.filter(room).filter(|_| slots > 0) else { return Ok(None) };
        let header = RingHeader {
            disk: pool.disk_uuid(number),
            generation,
            nonce: host::new_nonce().context("no random numbers")?,
            disk_size: size,
            block_size: block as u32,
            slots,
            pages,
        };
        let found = match area.is_kept {
            true => pool.ring_header(ring)?,
            false => None,
        };
        // The disk may have grown since the ring was begun.
        let fits = |found: &RingHeader| {
            let RingHeader { nonce, generation, disk_size, pages, .. } = *found;
            let is_ours = *found == RingHeader { nonce, generation, disk_size, pages, ..header };
            is_ours && disk_size <= size && survey::geometry(found).is_some()
        };
        let found = found.filter(fits);
        config.ring = Some(RingConfig::new(header.disk, generation, header.nonce, pages, size));
        Ok(Some(Start { area: ring, header, found }))
    }

    /// The engine that `make` makes, with what the ring says is on flash if that may be kept.
    ///
    /// # Errors
    /// Those of `make`, or the medium's.
    pub fn engine(
        self,
        pool: &Pool,
        keep: bool,
        mut config: Config,
        log: Option<&OpenedLog>,
        make: impl Fn(Config) -> Result<Engine>,
        notes: &mut Vec<(Severity, String)>,
    ) -> Result<Engine> {
        let begun = config.ring.expect("it was told of the ring");
        if let Some(found) = self.found.filter(|_| keep) {
            let RingHeader { nonce, pages, disk_size, .. } = found;
            config.ring = Some(RingConfig { nonce, pages, disk_size, ..begun });
            let mut engine = make(config)?;
            let records = log.iter().flat_map(|log| &log.found.records);
            let logged = records.map(|record| record.range);
            match pool.restore_cache(self.area, &found, &mut engine, logged) {
                Ok(restored) => {
                    notes.push((Severity::Info, warm(&restored)));
                    return Ok(engine);
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
                Err(cold) => {
                    let text = format!("the cache on flash starts empty: {cold}");
                    notes.push((Severity::Warning, text));
                }
            }
        } else if self.found.is_some() {
            let text = "the cache on flash starts empty: it cannot be proven that it is current";
            notes.push((Severity::Info, text.to_owned()));
        }
        config.ring = Some(begun);
        pool.begin_ring(self.area, &self.header).context("cannot begin the ring of the cache")?;
        make(config)
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
