//! The destage journal of a simulated disk: a device beside primary storage, repaired with it before each start.

use std::borrow::Cow;
use std::collections::BTreeMap;

use forebay_core::action::{IoOp, Span, Target};
use forebay_core::config::{DestageOrder, FlushSemantics, Mode};
use forebay_core::geometry::{ByteRange, PAGE, SECTOR};
use forebay_core::ids::{Generation, Nanos};
use forebay_core::journal::{
    self, JournalConfig, Medium, Owner, Repaired, Shape, Superblock, record,
};
use forebay_core::sealed::PAGE_LEN;
use forebay_core::status::IoStatus;

use crate::device::{Device, Faults};
use crate::epochs::Trust;
use crate::memory::Claim;
use crate::oracle::sectors;
use crate::planted::Planted;
use crate::pool::DISK;
use crate::recovery::Died;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::world::{Event, World};

/// A journal, and what its sidecar says of it.
#[derive(Debug)]
pub(crate) struct JournalMedium {
    pub device: Device,
    shape: Shape,
    /// Named beside primary storage.
    nonce: u64,
    /// A journal under that nonce was made.
    is_made: bool,
    /// I/Os of a repair until whoever repairs dies.
    pub dies_after: Option<u64>,
}

impl JournalMedium {
    pub(crate) fn new(setup: &Setup, rng: Rng) -> Option<JournalMedium> {
        let log = setup.config.write_log.filter(|log| log.order == DestageOrder::Journaled)?;
        let pages = u64::from(log.segment_pages) * u64::from(log.segments_max);
        let shape = Shape::for_log(pages);
        let mut device = Device::new(shape.size(), true, rng);
        device.faults = setup.backend;
        device.timeout = setup.config.backend_timeout;
        Some(JournalMedium { device, shape, nonce: 1, is_made: false, dies_after: None })
    }

    fn owner(&self) -> Owner {
        Owner { disk: DISK, nonce: self.nonce }
    }

    /// An empty journal under the nonce that is named beside primary storage.
    fn make(&mut self) {
        let (owner, shape) = (self.owner(), self.shape);
        let superblock = Superblock::first(owner, shape);
        let mut page = [0; PAGE_LEN];
        superblock.encode(&mut page);
        self.device.land(Superblock::place(1).start, &page);
        self.device.land(Superblock::place(0).start, &[0; PAGE_LEN]);
        self.is_made = true;
    }
}

/// Bytes that are read and written at once; whoever does it may die.
struct Direct<'a> {
    device: &'a mut Device,
    dies_after: Option<&'a mut u64>,
    /// What is done to this one does nothing (planted bugs).
    skips_flush: bool,
    skips_writes: bool,
}

impl Direct<'_> {
    fn step(&mut self) -> Result<(), Died> {
        if let Some(left) = &mut self.dies_after {
            **left = left.checked_sub(1).ok_or(Died)?;
        }
        Ok(())
    }
}

impl Medium for Direct<'_> {
    type Error = Died;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Died> {
        bytes.copy_from_slice(&self.device.bytes()[at as usize..][..bytes.len()]);
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Died> {
        self.step()?;
        self.device.settle();
        if !self.skips_writes {
            self.device.overwrite(u64::MAX, at, bytes);
        }
        Ok(())
    }

    fn zero(&mut self, range: ByteRange) -> Result<(), Died> {
        self.step()?;
        self.device.settle();
        self.device.overwrite(u64::MAX, range.start, &vec![0; range.len() as usize]);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Died> {
        self.step()?;
        if !self.skips_flush {
            self.device.flush_all();
        }
        Ok(())
    }
}

/// Bytes to look at, and sectors that were written over them. It is made after every call: a copy of all takes too long.
struct Overlay<'a> {
    under: Cow<'a, [u8]>,
    written: BTreeMap<u64, [u8; SECTOR as usize]>,
}

impl<'a> Overlay<'a> {
    fn new(under: Cow<'a, [u8]>) -> Overlay<'a> {
        Overlay { under, written: BTreeMap::new() }
    }

    fn sectors(&self) -> impl Iterator<Item = &[u8]> {
        let under = self.under.chunks_exact(SECTOR as usize).zip(0..);
        under.map(|(under, sector)| self.written.get(&sector).map_or(under, |it| &it[..]))
    }
}

impl Medium for Overlay<'_> {
    type Error = std::convert::Infallible;

    fn read(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Self::Error> {
        let range = ByteRange::at(at, bytes.len() as u64);
        assert!(range.is_aligned(SECTOR), "{range:?}");
        bytes.copy_from_slice(&self.under[range.start as usize..range.end as usize]);
        for (sector, written) in self.written.range(sectors(range)) {
            bytes[(sector * SECTOR - at) as usize..][..written.len()].copy_from_slice(written);
        }
        Ok(())
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Self::Error> {
        let range = ByteRange::at(at, bytes.len() as u64);
        assert!(range.is_aligned(SECTOR) && range.end <= self.under.len() as u64, "{range:?}");
        self.written.extend(sectors(range).zip(bytes.as_chunks().0.iter().copied()));
        Ok(())
    }

    fn zero(&mut self, range: ByteRange) -> Result<(), Self::Error> {
        assert!(range.is_aligned(SECTOR) && range.end <= self.under.len() as u64, "{range:?}");
        self.written.extend(sectors(range).map(|sector| (sector, [0; SECTOR as usize])));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// Many small epochs, in windows, through a journal.
pub(crate) fn windows(rng: &mut Rng, setup: &mut Setup) {
    let config = &mut setup.config;
    config.backend.size = rng.between(256 << 10, 4 << 20) & !(PAGE - 1);
    config.backend.read_only = false;
    crate::setup::write_log(rng, config);
    config.mode = rng.pick(&[Mode::WriteBack, Mode::WriteBack, Mode::WriteOnly]);
    if let Some(log) = &mut config.write_log {
        log.order = DestageOrder::Journaled;
        log.barrier = rng.chance(500);
        log.flush = FlushSemantics::Honest;
        log.destage_delay = Nanos::from_micros(rng.pick(&[0, 100, 10_000]));
        log.destage_yield = log.destage_yield.min(log.destage_delay);
    }
    setup.quiet = false;
    setup.backend.hangs /= 4;
    setup.mode_changes = if rng.chance(200) { rng.between(1, 6) as u32 } else { 0 };
    setup.disasters = rng.between(1, 12) as u32;
    setup.log = Faults::default();
    let size = config.backend.size;
    let load = &mut setup.load;
    load.requests = rng.between(100, 600);
    load.weights[1] = rng.between(40, 100);
    load.weights[2] = rng.pick(&[2, 10, 40]);
    load.weights[4] = rng.below(4);
    load.fua = rng.pick(&[0, 100, 900]);
    load.length_max = rng.pick(&[PAGE, 4 * PAGE, 64 << 10]);
    load.spots = (0..rng.between(2, 40)).map(|_| rng.below(size / PAGE) * PAGE).collect();
}

impl World<'_> {
    /// Puts what the journal has in place, and opens it for the next engine.
    pub(crate) fn open_journal(&mut self) -> Result<(), Died> {
        let generation = Generation(self.pool.pending.0 + 1);
        let planted = self.planted;
        let Some(medium) = &mut self.journal else { return Ok(()) };
        if !medium.is_made {
            medium.make();
        }
        let (owner, size) = (medium.owner(), self.setup.config.backend.size);
        let JournalMedium { device, dies_after, .. } = medium;
        let mut dies = *dies_after;
        let repaired = {
            let mut left = dies.unwrap_or(u64::MAX);
            let mut shared = left;
            let mut journal = Direct {
                device,
                dies_after: Some(&mut left),
                skips_flush: false,
                skips_writes: false,
            };
            let skips_flush = planted == Planted::RetiredBeforeFlush;
            let skips_writes = planted == Planted::ForgottenRepair;
            let mut primary = Direct {
                device: &mut self.backend,
                dies_after: Some(&mut shared),
                skips_flush,
                skips_writes,
            };
            let came = journal::repair(&mut journal, &mut primary, owner, size);
            dies = dies.map(|_| left.min(shared));
            came
        };
        *dies_after = dies;
        let repaired = match repaired {
            Ok(repaired) => repaired,
            Err(
                journal::repair::RepairError::Journal(died)
                | journal::repair::RepairError::Primary(died),
            ) => {
                return Err(died);
            }
            Err(other) => panic!("the journal was made: {other:?}"),
        };
        self.note_repaired(&repaired, generation);
        Ok(())
    }

    fn note_repaired(&mut self, repaired: &Repaired, generation: Generation) {
        self.log.line(self.now, || format!("journal: {repaired:?}"));
        self.coverage.windows_repaired += u64::from(repaired.windows);
        self.coverage.records_torn += u64::from(repaired.ignored);
        let mut journal = JournalConfig::new(repaired.superblock, generation);
        if self.chance.chance(700) {
            // Runs are short.
            journal.patience = Nanos(0);
        }
        if self.chance.chance(500) {
            // The destager changes its mind more often.
            journal.epoch_pages = self.chance.between(2, 64);
        }
        self.setup.config.write_log.as_mut().expect("a journal needs a log").journal =
            Some(journal);
    }

    /// Panics when primary storage, with its journal if it has one, is not what the disk could look like after a crash.
    pub(crate) fn check_image(&self, image: Cow<'_, [u8]>, journal: Option<Cow<'_, [u8]>>) {
        let mut image = Overlay::new(image);
        if let Some((medium, journal)) = self.journal.as_ref().zip(journal) {
            self.repair(&mut image, journal, medium);
        }
        self.epochs.check(image.sectors());
    }

    /// What primary storage and its journal are together, after a loss of power or not.
    fn repair(&self, image: &mut Overlay<'_>, journal: Cow<'_, [u8]>, medium: &JournalMedium) {
        let mut journal = Overlay::new(journal);
        let size = self.setup.config.backend.size;
        let came = journal::repair(&mut journal, image, medium.owner(), size);
        came.unwrap_or_else(|error| panic!("the journal cannot be repaired: {error}"));
    }

    /// Bytes for the journal, dated.
    pub(crate) fn copy_to_journal(&mut self, memory: Span) {
        let bytes = self.memory.change(memory);
        bytes.copy_from_slice(self.engine.journal_bytes());
        record::date(bytes.first_chunk_mut().expect("a page"), self.now.0 / 1_000_000_000);
        self.coverage.journal_writes += 1;
    }

    /// Another nonce is named beside primary storage, or cannot be, or nobody knows whether it is.
    pub(crate) fn on_journal_revocation(&mut self) {
        let known = self.chance.chance(800);
        let is_gone = known || self.chance.chance(500);
        // What a former run left is written again, without a record of it.
        if is_gone && !self.log_statistics().primary_is_consistent {
            self.epochs.trust = Trust::Nothing;
        }
        if let Some(medium) = self.journal.as_mut().filter(|_| is_gone) {
            (medium.nonce, medium.is_made) = (medium.nonce + 1, false);
            self.coverage.journals_revoked += 1;
            // What shows no whole image from now on is what strict order shows.
            medium.make();
        }
        self.engine.journal_revoked(self.now, known, &mut self.actions);
    }

    /// An administrator has destaging held for a moment, whatever comes next.
    pub(crate) fn hold_at_times(&mut self) {
        if self.setup.config.write_log.is_some() && self.chance.chance(400) {
            let until = self.now.plus(Nanos(self.chance.between(1, 200_000_000)));
            self.log.line(self.now, || format!("destaging is held until {until:?}"));
            self.engine.hold_destaging(self.now, until, &mut self.actions);
        }
    }

    /// Where destaging is held and has finished, primary storage alone is an image, whatever the order.
    pub(crate) fn check_still(&mut self) {
        if self.engine.stands_still(self.now) {
            self.coverage.stood_still += 1;
            self.epochs.check(self.backend.bytes().chunks_exact(SECTOR as usize));
        }
    }

    /// The slot that an executor with a planted bug writes everything to.
    pub(crate) fn misplaced(&self, range: ByteRange) -> ByteRange {
        let Some(medium) = &self.journal else { return range };
        let first = medium.shape.header(0).start;
        let slot = medium.shape.header(1).start - first;
        if self.planted == Planted::OneSlot && range.start >= first + slot {
            return ByteRange::at(range.start - slot, range.len());
        }
        range
    }

    /// True for what the journal says of what is retired.
    pub(crate) fn is_superblock(range: ByteRange) -> bool {
        range.end <= 2 * PAGE
    }

    /// True when a write in place is reported before it is made (planted bug).
    pub(crate) fn comes_late(&mut self, number: u64) -> bool {
        let Some(in_flight) = self.ios.get(&number) else { return false };
        let pending = &in_flight.pending;
        self.planted == Planted::EarlyPlace
            && in_flight.target == Target::Backend
            && !pending.executed
            && pending.status.is_ok()
            && matches!(pending.io.op, IoOp::Write { .. })
            && self.chance.chance(300)
    }

    /// Reports a write that is made later.
    pub(crate) fn complete_before(&mut self, number: u64) {
        let in_flight = self.ios.remove(&number).expect("it is in flight");
        self.memory.unclaim(Claim::Draining(number));
        let when = self.now.plus(Nanos(self.chance.between(1, 2_000_000)));
        self.queue.plan(when, Event::Late(number));
        let io = in_flight.pending.io.id;
        self.late.insert(number, in_flight.pending);
        self.engine.complete(self.now, io, IoStatus::Ok, &[], &mut self.actions);
    }

    /// It is made now.
    pub(crate) fn land_late(&mut self, number: u64) {
        if let Some(mut pending) = self.late.remove(&number) {
            self.backend.execute(number, &mut pending);
            self.backend.complete(number, &pending);
        }
    }
}
