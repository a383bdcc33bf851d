//! The ring of the cache on flash, and what a restart makes of it.
//!
//! # Fault model
//! Ring and flash tier have a volatile cache. The loss of power takes back any unflushed sector,
//! each by itself, unless it was written durably. The ring does not rot, and drops no write that
//! it acknowledged. (Flash does both: its granules have checksums.) A void ring is noted
//! elsewhere, at one instant, and no crash loses that note. Flash that died has its old content
//! when it comes back.

use std::collections::BTreeSet;

use forebay_core::action::{Target, Voided};
use forebay_core::cache_index::RingGeometry;
use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::recover::RingReader;
use forebay_core::cache_index::survey::{CachedGranule, Surveyor};
use forebay_core::config::{Config, RingConfig};
use forebay_core::engine::{Engine, RestoredCache};
use forebay_core::geometry::{ByteRange, Grid, PAGE};
use forebay_core::ids::{Generation, Nanos, Uuid};
use forebay_core::sealed::{Page, crc32c};
use forebay_core::write_back::format::recover::RecoveredLog;
use forebay_core::write_back::format::reopen::Tail;

use crate::device::Device;
use crate::planted::Planted;
use crate::rng::Rng;
use crate::world::{Event, World, flash};

const DISK: Uuid = Uuid(*b"a disk with ring");

/// What outlives the engine.
#[derive(Debug)]
pub(crate) struct RingMedium {
    pub device: Device,
    /// The blocks on flash that may be believed.
    header: Option<RingHeader>,
    nonce: u64,
    generation: Generation,
    /// Pages up to this one were made, as far as the run that is over knew.
    pub written: u64,
}

impl RingMedium {
    pub(crate) fn new(rng: Rng) -> RingMedium {
        let device = Device::new(0, true, rng);
        RingMedium { device, header: None, nonce: 0x51a7e, generation: Generation(0), written: 0 }
    }

    /// The ring on flash, if it describes this cache.
    fn fits(&self, config: &Config) -> Option<RingHeader> {
        let header = header(config, self.header?.nonce, self.header?.generation)?;
        self.header.filter(|found| *found == header)
    }

    /// The ring on flash, if it describes this cache with another number of slots.
    fn fits_otherwise(&self, config: &Config) -> Option<RingHeader> {
        let RingHeader { slots, pages, .. } = self.header?;
        let header = header(config, self.header?.nonce, self.header?.generation)?;
        self.header.filter(|found| *found == RingHeader { slots, pages, ..header })
    }
}

/// An administrator's drop of the cache: nothing of before may be there afterwards, after a restart neither.
#[derive(Debug, Default)]
pub(crate) struct Dropped {
    /// He waits.
    is_awaited: bool,
    /// The administrator has heard that it is done.
    is_done: bool,
    /// Slots of flash that were written since he asked.
    written: BTreeSet<u64>,
}

impl Dropped {
    pub(crate) fn ask(&mut self) {
        *self = Dropped { is_awaited: true, ..Dropped::default() };
    }

    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited
    }

    pub(crate) fn end(&mut self) {
        (self.is_awaited, self.is_done) = (false, true);
    }

    pub(crate) fn note_write(&mut self, slot: u64) {
        if self.is_awaited || self.is_done {
            self.written.insert(slot);
        }
    }

    /// A restart found so many blocks.
    fn check(&mut self, found: u64) {
        self.is_awaited = false;
        let written = self.written.len() as u64;
        assert!(!self.is_done || found <= written, "a restart found blocks that were dropped");
    }
}

fn header(config: &Config, nonce: u64, generation: Generation) -> Option<RingHeader> {
    let ring = config.ring?;
    Some(RingHeader {
        disk: DISK,
        generation,
        nonce,
        disk_size: ring.disk_size,
        block_size: config.block_size as u32,
        slots: (config.flash_bytes.max(config.flash_room) / config.block_size) as u32,
        pages: ring.pages,
    })
}

/// Pages of the ring of a cache of `bytes`.
fn ring_pages(bytes: u64, block_size: u64, disk_size: u64) -> u32 {
    let granules = Grid::new(disk_size, block_size, 0).granules_per_block();
    RingGeometry::new((bytes / block_size) as u32, granules, block_size, disk_size).pages()
}

/// Perhaps the cache has a ring.
pub(crate) fn ring(rng: &mut Rng, config: &mut Config) {
    config.ring = None;
    if config.flash_bytes == 0 || !rng.chance(800) {
        return;
    }
    let size = config.backend.size;
    let room = config.flash_bytes.max(config.flash_room);
    let pages = ring_pages(room, config.block_size, size);
    let mut ring = RingConfig::new(DISK, Generation(0), 0, pages, size);
    ring.record_delay = Nanos::from_micros(rng.pick(&[50, 500, 5_000, 100_000]));
    ring.mark_delay = Nanos::from_micros(rng.pick(&[100, 2_000, 20_000, 500_000]));
    config.ring = Some(ring);
}

struct Reader<'a> {
    bytes: &'a [u8],
    first: u32,
}

impl RingReader for Reader<'_> {
    fn load(&mut self, first: u32, _: u32, _: Option<(u32, u32)>) -> Result<(), String> {
        self.first = first;
        Ok(())
    }

    fn page(&self, index: u32) -> &Page {
        let at = u64::from(self.first + index) * PAGE;
        self.bytes[at as usize..][..PAGE as usize].try_into().expect("a page")
    }
}

impl World<'_> {
    /// Makes the engine for the configuration, with the log that was recovered and with the cache that is on flash, if
    /// it may be believed.
    pub(crate) fn make_engine(&mut self, log: Option<(&RecoveredLog, Tail)>) {
        self.dropped.is_awaited = false;
        self.asked_flush = None;
        if self.planted != Planted::RevivedPages {
            self.ring.generation.0 += 1;
        }
        self.flash.flush_all();
        self.ring.device.flush_all();
        self.resize_flash();
        let config = &self.setup.config;
        let goes_on = self.ring.fits(config).is_some();
        let found = self.ring.fits(config).or_else(|| self.ring.fits_otherwise(config));
        let is_proven = self.is_proven_current();
        if let Some(header) = found.filter(|_| is_proven) {
            self.begin(if goes_on { header.nonce } else { self.ring.nonce + 1 }, log);
            let mut reader = Reader { bytes: self.ring.device.bytes(), first: 0 };
            let records = log.iter().flat_map(|(log, _)| log.records.iter());
            let logged = records.map(|record| record.range);
            let surveyor = Surveyor {
                header: &header,
                disk_size: self.setup.config.backend.size,
                pending: self.ring.generation,
            };
            let seen = surveyor.survey(&mut reader, logged.clone());
            // Few pages at times, as of a large cache.
            let pages_max = self.ring.generation.0 % 5 * 3 + 1;
            let sample = surveyor.sample(&mut reader, logged.clone(), (pages_max, 64));
            match self.engine.restore_cache(&header, &mut reader, logged) {
                Ok(restored) => {
                    let seen = seen.expect("what a restart believes, an operator is told of");
                    let RestoredCache { found, kept, closed, .. } = restored;
                    let is_shorter = self.engine.flash_size() < self.flash.bytes().len() as u64;
                    assert_eq!((seen.found, seen.closed), (found, closed));
                    assert!(seen.kept == kept || is_shorter && kept < seen.kept);
                    let sample = sample.expect("some of the same pages");
                    self.coverage.granules_sampled += sample.len() as u64;
                    self.check_sample(&sample);
                    self.log.line(self.now, || format!("warm: {restored:?}"));
                    self.dropped.check(restored.found);
                    match goes_on {
                        true => {
                            self.fit_flash();
                            self.check_last_page();
                        }
                        false => self.begin_ring(),
                    }
                    self.coverage.resized_warm += u64::from(!goes_on && kept > 0);
                    self.coverage.warm_restarts += 1;
                    self.coverage.warm_unsettled +=
                        u64::from(self.backend.is_unsettled() && kept > 0);
                    self.coverage.blocks_kept += restored.kept;
                    self.coverage.blocks_dropped += restored.found - restored.kept;
                    return;
                }
                Err(cold) => {
                    self.coverage.rings_refused += 1;
                    self.log.line(self.now, || format!("cold: {cold}"));
                }
            }
        }
        self.begin(self.ring.nonce + 1, log);
        self.begin_ring();
    }

    /// What the fence says of primary storage. With chance of its own: all else goes on as it did.
    fn is_proven_current(&self) -> bool {
        !Rng::new(self.setup.seed ^ self.events).chance(self.setup.cold_starts)
    }

    /// What a start compares with primary storage is the same there while nobody else writes: else it would refuse a good log.
    fn check_sample(&self, sample: &[CachedGranule]) {
        for granule in sample {
            let ByteRange { start, end } = granule.range;
            let bytes = &self.backend.bytes()[start as usize..end as usize];
            assert_eq!(crc32c(bytes), granule.checksum, "{:?} is another one", granule.range);
        }
    }

    /// A write to primary storage has taken effect. What a start would believe of the ring after a loss of power now is what
    /// primary storage holds there: what was written to is durably marked, or nothing is claimed of it.
    pub(crate) fn check_claims(&mut self, written: ByteRange) {
        // Where there is a log, a start leaves out what it has records of.
        let has_log = self.setup.config.write_log.is_some();
        let Some(header) = self.ring.header.filter(|_| !has_log) else { return };
        // It takes long where a ring has much to say.
        let often = if header.slots > 256 { 50 } else { 1000 };
        if !Rng::new(self.setup.seed ^ self.events).chance(often) {
            return;
        }
        let mut reader = Reader { bytes: self.ring.device.durable(), first: 0 };
        let surveyor = Surveyor {
            header: &header,
            disk_size: self.setup.config.backend.size,
            pending: self.ring.generation,
        };
        let all = (u64::MAX, usize::MAX);
        let Ok(mut believed) = surveyor.sample(&mut reader, std::iter::empty(), all) else {
            return;
        };
        believed.retain(|granule| !granule.range.intersect(written).is_empty());
        self.check_sample(&believed);
        self.coverage.claims_checked += 1;
    }

    /// The engine's ring is on flash, durably, and says nothing yet.
    fn begin_ring(&mut self) {
        let config = &self.setup.config;
        (self.ring.nonce, self.ring.written) = (self.ring.nonce + 1, 0);
        self.ring.header = header(config, self.ring.nonce, self.ring.generation);
        let size = config.ring.map_or(0, |ring| u64::from(ring.pages) * PAGE);
        if self.ring.device.bytes().len() as u64 != size {
            // What an action's N-th I/O is to meet waits for it on the new device.
            let fate = self.ring.device.fate;
            self.ring.device = Device::new(size, true, self.chance.fork());
            self.ring.device.fate = fate;
            self.ring.device.faults = self.setup.log;
            self.ring.device.timeout = config.flash_timeout;
            self.ring.device.latency_max = self.setup.ring_latency_max;
        }
        self.fit_flash();
    }

    /// Flash is as large as the engine has it.
    fn fit_flash(&mut self) {
        let flash_size = self.engine.flash_size();
        if self.flash.bytes().len() as u64 == flash_size {
            return;
        }
        if self.flash.bytes().is_empty() {
            let fate = self.flash.fate;
            self.flash = flash(&self.setup, &self.engine, self.chance.fork());
            self.flash.fate = fate;
        } else {
            // What is there stays, as on any device: nobody may believe it unless a ring says so.
            self.flash.resize(flash_size);
            self.trusted.split_off(&flash_size);
        }
    }

    /// The cache has the flash that it had, or perhaps the administrator has given it another size since.
    fn resize_flash(&mut self) {
        if self.setup.config.flash_room > 0 && !self.flash.bytes().is_empty() {
            self.setup.config.flash_bytes = self.flash.bytes().len() as u64;
        }
        let Some(max) = self.setup.flash_max else { return };
        let config = &mut self.setup.config;
        // The first start finds it as it was configured.
        if self.ring.header.is_none() || !self.chance.chance(500) {
            return;
        }
        let slots = self.chance.between(1, (max / config.block_size).max(1));
        config.flash_bytes = slots * config.block_size;
        if let Some(ring) = &mut config.ring {
            ring.pages = ring_pages(config.flash_bytes, config.block_size, config.backend.size);
        }
    }

    /// Nothing counts that an earlier run wrote behind the end that the last one knew of.
    fn check_last_page(&mut self) {
        let ring = self.engine.statistics(self.now).ring.expect("it was restored from a ring");
        let (found, written) = (ring.last_page, self.ring.written);
        assert!(found <= written, "page {found} of the ring counts again, {written} were written");
        self.ring.written = found;
    }

    fn begin(&mut self, nonce: u64, log: Option<(&RecoveredLog, Tail)>) {
        if let Some(ring) = &mut self.setup.config.ring {
            (ring.nonce, ring.generation) = (nonce, self.ring.generation);
            ring.is_unanswered = self.former.is_unanswered;
        }
        self.engine = Engine::new(self.setup.config).expect("a configuration that works");
        if let Some((found, tail)) = log {
            self.engine.restore(found, tail).expect("the log fits");
        }
    }

    /// The ring is to be believed no more, which takes its time.
    pub(crate) fn start_void(&mut self) {
        let when = self.now.plus(Nanos(self.chance.skewed(5_000_000)));
        self.queue.plan(when, Event::Void);
    }

    /// It is.
    pub(crate) fn on_void(&mut self) {
        self.coverage.rings_voided += 1;
        if self.planted != Planted::ForgottenVoid {
            self.ring.header = None;
        }
        let is_in_pool = self.setup.config.write_log.is_none() || !self.chance.chance(300);
        let voided = if is_in_pool { Voided::InPool } else { Voided::WithLog };
        if voided == Voided::WithLog {
            self.note_revoked();
        }
        self.engine.voided(self.now, voided, &mut self.actions);
    }

    /// Power fails; of pages of the ring that are on their way all but the first one are there.
    pub(crate) fn tear_ring(&mut self) {
        for in_flight in self.ios.values_mut().filter(|io| io.target == Target::Ring) {
            let pending = &mut in_flight.pending;
            if !pending.executed && pending.io.range.len() > PAGE {
                pending.executed = true;
                let behind = pending.io.range.start + PAGE;
                self.ring.device.land(behind, &pending.data[PAGE as usize..]);
                self.coverage.rings_torn += 1;
            }
        }
        self.crash(true);
    }

    /// Power takes from flash what was not flushed.
    pub(crate) fn flash_loses_power(&mut self) {
        self.flash.lose_power();
        self.ring.device.lose_power();
    }

    /// Ends in order and starts again; perhaps the host is off in between.
    pub(crate) fn restart_in_order(&mut self) {
        self.engine.shut_down(self.now, &mut self.actions);
        self.drain();
        let flushed = !self.engine.mode().logs();
        if flushed {
            self.backend.flush_all();
        }
        self.engine.close_ring(self.now, flushed, &mut self.actions);
        self.drain();
        if self.engine.log_statistics(self.now).is_some_and(|log| log.is_durable) {
            self.pool.log_end = self.engine.log_end().expect("there is a log");
        }
        self.coverage.restarts_in_order += 1;
        self.former.has_ended = self.engine.is_idle();
        let power = self.chance.chance(500);
        self.crash(power);
        self.begin_memory();
    }
}
