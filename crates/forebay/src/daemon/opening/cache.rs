//! The cache of a disk that is opened, and its engine: warm with what flash kept over a restart, or cold.

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_core::config::{Config, GridOffset};
use forebay_core::engine::Engine;
use forebay_core::geometry::PAGE;
use forebay_host::events::Severity;
use forebay_host::fence;
use forebay_host::pool::{Area, CacheArea, OpenedLog};
use forebay_host::warm::{self, Started};
use forebay_shard::{FlashShare, RingShare};

use super::Opening;
use super::memory::{check_engine, engine};
use super::session::Session;

/// What a disk has of flash for cached data.
#[derive(Default)]
pub(super) struct Cache {
    area: Option<CacheArea>,
    ring: Option<warm::Start>,
}

impl Opening<'_> {
    /// Takes the disk's part of flash for cached data, where it is to have one. The engine is to use what was free.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn take_cache(&mut self, session: &Session) -> Result<Cache> {
        let number = session.disk.number;
        if self.config.flash_bytes == 0 {
            self.config.flash_room = 0;
            session.disk.pool.lock().drop_cache(number)?;
            return Ok(Cache::default());
        }
        let whole = u64::from(session.begun.geometry().segments())
            * session.begun.geometry().segment_size();
        self.config.flash_room = self.config.flash_room.min(whole);
        if self.spec.shares_flash() {
            self.config.flash_bytes = self.shared_cache(session);
        }
        let wanted = self.config.flash_bytes;
        let area = session.disk.pool.lock().take_cache(number, wanted)?;
        let segment = session.begun.geometry().segment_size();
        if area.bytes().min(segment) < self.spec.block_size {
            // A block lies in one segment.
            session.disk.pool.lock().drop_cache(number)?;
            (self.config.flash_bytes, self.config.flash_room) = (0, 0);
            let text = match area.bytes() {
                0 => "there is no cache on flash: all of it is taken, or kept for logs that are not destaged".to_owned(),
                _ => format!(
                    "there is no cache on flash: its segments of {} have no room for a block",
                    rounded(segment)
                ),
            };
            self.notes.push((Severity::Warning, text));
            return Ok(Cache::default());
        }
        if area.bytes() < wanted {
            let text = format!(
                "the cache on flash has {} instead of {}: the rest is taken by logs that are not destaged",
                rounded(area.bytes()),
                rounded(wanted)
            );
            self.notes.push((Severity::Warning, text));
        }
        self.config.flash_bytes = area.bytes();
        let run = (session.generation, session.is_unanswered);
        let (config, notes) = (&mut self.config, &mut self.notes);
        let ring = warm::Start::new(&session.begun, number, &area, run, config, notes)?;
        Ok(Cache { area: Some(area), ring })
    }

    /// Bytes that a disk which shares flash begins with: what it had, as others may have the rest of what it brings, or it some
    /// of theirs. One that had nothing takes what is free.
    fn shared_cache(&self, session: &Session) -> u64 {
        let Config { flash_bytes: brings, flash_room: room, block_size, .. } = self.config;
        let had = session.disk.pool.lock().cache_of(session.disk.number).min(room);
        if had >= block_size {
            let as_before = Config { flash_bytes: had, ..self.config };
            let fits = had <= brings || check_engine(&as_before).is_ok();
            return if fits { had } else { brings };
        }
        let ring = warm::ring_bytes_max(room, block_size);
        let spare = session.disk.pool.lock().spare_for_cache(ring);
        spare.clamp(self.spec.flash_sharing.reservation.min(brings), brings)
    }

    /// Makes the engine: it goes on with the log, and with what the cache kept if that may be used. Beside it what its
    /// shard gets of flash.
    ///
    /// # Errors
    /// It needs too much memory, the log must not be used, or the medium's.
    pub(super) fn make_engine(
        &mut self,
        session: &Session,
        log: Option<&OpenedLog>,
        cache: Cache,
    ) -> Result<(Engine, Option<FlashShare>)> {
        let make = |config: Config| -> Result<Engine> {
            let mut engine = engine(config)?;
            if let Some(log) = log {
                let restored = engine.restore(&log.found, log.tail).map_err(anyhow::Error::new);
                restored.map_err(|why| fence::Refused::log(&why))?;
            }
            Ok(engine)
        };
        let (begun, keep, config) = (&session.begun, session.keeps_cache, self.config);
        let pool = &session.disk.pool;
        let Started { mut engine, ring } = match cache.ring {
            None => Started { engine: make(config)?, ring: None },
            Some(ring) => {
                let notes = &mut self.notes;
                ring.engine(&pool.shared, begun, keep, log, make, notes)?
            }
        };
        if log.is_some() && self.spec.grid_offset.0 == GridOffset::Auto {
            engine.watch_alignment();
        }
        let share = cache.area.map(|area| FlashShare {
            file: begun.share_file(),
            parts: area.slots.iter().map(|part| (part.offset, part.len)).collect(),
            ring: ring.map(|ring| session.ring_share(ring)),
        });
        if share.is_some() {
            // Its ring says nothing of what is beyond.
            pool.lock().trim_cache(session.disk.number, config.flash_bytes)?;
        }
        Ok((engine, share))
    }
}

impl Session {
    /// The ring of the disk's cache, for its shard.
    fn ring_share(&self, ring: Area) -> RingShare {
        RingShare {
            offset: ring.offset + PAGE,
            number: self.disk.number,
            owner: self.disk.pool.owner.clone(),
            revoker: self.fence.revoker(),
        }
    }
}
