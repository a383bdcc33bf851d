//! The cache of a disk that is opened, and its engine: warm with what flash kept over a restart, or cold.

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_core::config::{Config, GridOffset};
use forebay_core::engine::Engine;
use forebay_core::geometry::PAGE;
use forebay_host::events::Severity;
use forebay_host::fence;
use forebay_host::pool::{CacheArea, OpenedLog};
use forebay_host::warm;
use forebay_shard::{FlashShare, RingShare};

use super::Opening;
use super::memory::engine;
use super::session::Session;

/// What a disk has of flash for cached data.
#[derive(Default)]
pub(super) struct Cache {
    pub(super) share: Option<FlashShare>,
    pub(super) ring: Option<warm::Start>,
}

impl Opening<'_> {
    /// Takes the disk's part of flash for cached data, where it is to have one. The engine is to use what was free.
    ///
    /// # Errors
    /// None is free, or the medium's.
    pub(super) fn take_cache(&mut self, session: &Session) -> Result<Cache> {
        let number = session.disk.number;
        let wanted = self.config.flash_bytes;
        if wanted == 0 {
            session.disk.pool.lock().drop_cache(number)?;
            return Ok(Cache::default());
        }
        let ring_bytes = warm::ring_bytes_max(wanted, self.spec.block_size);
        let area = session.disk.pool.lock().take_cache(number, wanted, ring_bytes)?;
        if area.slots.len < wanted {
            let text = format!(
                "the cache on flash has {} instead of {}: the rest is taken by logs that are not destaged",
                rounded(area.slots.len),
                rounded(wanted)
            );
            self.notes.push((Severity::Warning, text));
        }
        self.config.flash_bytes = area.slots.len;
        let (begun, generation) = (&session.begun, session.generation);
        let ring = warm::Start::new(begun, number, &area, generation, &mut self.config)?;
        if ring.is_none() {
            self.notes.push((Severity::Warning, warm::NO_ROOM.to_owned()));
        }
        let kept = ring.as_ref().and(session.ring_share(&area));
        let file = begun.share_file();
        let share = FlashShare { file, offset: area.slots.offset, ring: kept };
        Ok(Cache { share: Some(share), ring })
    }

    /// Makes the engine: it goes on with the log, and with what the cache kept if that may be used.
    ///
    /// # Errors
    /// It needs too much memory, the log must not be used, or the medium's.
    pub(super) fn make_engine(
        &mut self,
        session: &Session,
        log: Option<&OpenedLog>,
        ring: Option<warm::Start>,
    ) -> Result<Engine> {
        let make = |config: Config| -> Result<Engine> {
            let mut engine = engine(config)?;
            if let Some(log) = log {
                let restored = engine.restore(&log.found, log.tail).map_err(anyhow::Error::new);
                restored.map_err(|why| fence::Refused::log(&why))?;
            }
            Ok(engine)
        };
        let (begun, keep, config) = (&session.begun, session.keeps_cache, self.config);
        let mut engine = match ring {
            None => make(config)?,
            Some(ring) => ring.engine(begun, keep, config, log, make, &mut self.notes)?,
        };
        if log.is_some() && self.spec.grid_offset.0 == GridOffset::Auto {
            engine.watch_alignment();
        }
        Ok(engine)
    }
}

impl Session {
    /// The ring of the disk's cache in `area`, for its shard.
    fn ring_share(&self, area: &CacheArea) -> Option<RingShare> {
        area.ring.map(|ring| RingShare {
            offset: ring.offset + PAGE,
            number: self.disk.number,
            owner: self.disk.pool.owner.clone(),
            revoker: self.fence.revoker(),
        })
    }
}
