//! The flash pool behind a write log: segments, leases, notes of progress, staged groups, recovery.
//!
//! # Fault model
//! The pool's device has a volatile cache: the loss of power may bring any sector back that was written
//! and not flushed, each by itself, unless it was written durably. Leases and notes of progress are durable when
//! they are made (a page pair is never torn). When only the process dies, I/Os in flight take effect
//! wholly, in part or not before the next one starts, and the memory of the groups is as it was, if the
//! configuration says that staging survives.

use std::collections::BTreeMap;

use forebay_core::action::{LogAction, Span};
use forebay_core::config::FlushSemantics;
use forebay_core::engine::Engine;
use forebay_core::geometry::{PAGE, SECTOR};
use forebay_core::ids::{Generation, SegmentId, Uuid};
use forebay_core::log::adopt;
use forebay_core::log::group::{self, GroupHeader, GroupView};
use forebay_core::log::recover::{
    LeasedSegment, LogReader, ReadError, RecordPlace, RecoverInput, RecoveredLog, recover,
};
use forebay_core::log::segment::SegmentHeader;
use forebay_core::sealed::Page;

use crate::device::Device;
use crate::executor::checksums_of;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::stamp;
use crate::world::World;

const DISK: Uuid = Uuid(*b"a simulated disk");
const NONCE: u64 = 0x5eed;
/// I/Os of recovery, which no engine asked for.
const RECOVERY_IO: u64 = u64::MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    pub device: Device,
    segment_pages: u32,
    free: Vec<SegmentId>,
    held: BTreeMap<SegmentId, (Generation, u64)>,
    next_ordinal: u64,
    committed: Generation,
    pending: Generation,
    disk_size: u64,
}

/// A group as it stood in memory when the process died: its header page and its data.
type StagedGroup = (Box<Page>, Vec<u8>);

impl Pool {
    pub(crate) fn new(setup: &Setup, rng: Rng) -> Pool {
        // Two more than the log may take: a restart needs some before it gives others back.
        let (pages, segments) =
            setup.config.write_log.map_or((16, 0), |log| (log.segment_pages, log.segments_max + 8));
        let size = u64::from(pages) * u64::from(segments) * PAGE;
        let mut device = Device::new(size, true, rng);
        device.faults = setup.log;
        device.latency_max = forebay_core::ids::Nanos::from_micros(200);
        device.timeout = setup.config.flash_timeout;
        Pool {
            device,
            segment_pages: pages,
            free: (0..segments).map(SegmentId).collect(),
            held: BTreeMap::new(),
            next_ordinal: 1,
            committed: Generation(0),
            pending: Generation(0),
            disk_size: setup.config.backend.size,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.device.bytes().len() as u64
    }

    fn lease(&mut self) -> Option<(SegmentId, u64)> {
        let segment = self.free.pop()?;
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        self.held.insert(segment, (self.pending, ordinal));
        Some((segment, ordinal))
    }

    pub(crate) fn give_back(&mut self, segment: SegmentId) {
        assert!(self.held.remove(&segment).is_some(), "{segment:?} was not leased");
        self.free.insert(0, segment);
    }

    fn recover(&mut self, staged: &[StagedGroup]) -> RecoveredLog {
        let held = self.held.iter();
        let segments: Vec<_> = held
            .map(|(&segment, &(generation, ordinal))| LeasedSegment {
                segment,
                generation,
                ordinal,
            })
            .collect();
        let mut headers: Vec<&Page> = staged.iter().map(|(header, _)| &**header).collect();
        headers.sort_by_key(|page| GroupView::staged(page).map_or(0, |v| v.header().number.0));
        let (flushed, through) = self.device.progress;
        let input = RecoverInput {
            disk: DISK,
            disk_size: self.disk_size,
            segment_pages: self.segment_pages,
            segments: &segments,
            flushed,
            through,
            committed: self.committed,
            pending: self.pending,
            staged: &headers,
            accept_missing: false,
        };
        let mut reader = Reader { device: &self.device, pages: self.segment_pages };
        recover(&input, &mut reader).unwrap_or_else(|error| panic!("recovery: {error}"))
    }

    fn header(
        &self,
        found: &RecoveredLog,
        (segment, ordinal): (SegmentId, u64),
        phase: u16,
    ) -> SegmentHeader {
        SegmentHeader {
            disk: DISK,
            generation: self.pending,
            ordinal,
            first_group: found.next_group,
            first_sequence: found.next_sequence,
            durable: forebay_core::ids::Sequence(found.next_sequence.0 - 1),
            epoch: found.next_epoch,
            nonce: NONCE,
            segment,
            phase,
        }
    }

    fn write(&mut self, segment: SegmentId, page: u32, bytes: &[u8]) {
        let start = (u64::from(segment.0 * self.segment_pages) + u64::from(page)) * PAGE;
        self.device.overwrite(RECOVERY_IO, start, bytes);
    }

    /// Writes a segment's header.
    fn open(&mut self, header: &SegmentHeader) {
        let mut page = [0; PAGE as usize];
        header.encode(&mut page);
        self.write(header.segment, 0, &page);
    }
}

struct Reader<'a> {
    device: &'a Device,
    pages: u32,
}

impl LogReader for Reader<'_> {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        let start = (u64::from(segment.0 * self.pages) + u64::from(page)) * PAGE;
        out.copy_from_slice(&self.device.bytes()[start as usize..][..out.len()]);
        Ok(())
    }
}

fn page(bytes: &mut [u8]) -> &mut Page {
    bytes.try_into().expect("a page")
}

impl World<'_> {
    /// Builds a piece of the log in memory.
    pub(crate) fn build_log(&mut self, action: LogAction) {
        self.log.line(self.now, || format!("log {action:?}"));
        match action {
            LogAction::OpenSegment {
                memory,
                segment,
                ordinal,
                generation,
                first_group,
                first_sequence,
                durable,
                epoch,
                phase,
            } => {
                let header = SegmentHeader {
                    disk: DISK,
                    generation,
                    ordinal,
                    first_group,
                    first_sequence,
                    durable,
                    epoch,
                    nonce: NONCE,
                    segment,
                    phase,
                };
                assert_eq!(self.pool.held.get(&segment), Some(&(generation, ordinal)));
                header.encode(page(self.memory.change(memory)));
            }
            LogAction::OpenGroup { memory, number, generation, first_sequence, phase } => {
                let header = GroupHeader {
                    disk: DISK,
                    generation,
                    number,
                    first_sequence,
                    durable: forebay_core::ids::Sequence(0),
                    nonce: NONCE,
                    phase,
                };
                group::begin(page(self.memory.change(memory)), &header);
            }
            LogAction::Stage { memory, data, record } => {
                let checksums = match data.len {
                    0 => Vec::new(),
                    _ => checksums_of(self.memory.at(data), PAGE as u32),
                };
                group::append(page(self.memory.change(memory)), &record, &checksums);
            }
            LogAction::SealGroup { memory, durable } => {
                group::seal(page(self.memory.change(memory)), durable);
            }
        }
    }

    /// The pool answers.
    pub(crate) fn on_lease(&mut self) {
        // Now and then another disk has them all.
        let leased = if self.rng.chance(50) { None } else { self.pool.lease() };
        self.log.line(self.now, || format!("leased {leased:?}"));
        self.engine.leased(self.now, leased, &mut self.actions);
    }

    /// An administrator changes the mode.
    pub(crate) fn on_mode(&mut self) {
        use forebay_core::config::Mode;
        let mode = self.rng.pick(&[
            Mode::WriteBack,
            Mode::WriteBack,
            Mode::WriteThrough,
            Mode::WriteAround,
            Mode::WriteOnly,
            Mode::PassThrough,
        ]);
        self.log.line(self.now, || format!("mode {mode:?}"));
        self.coverage.mode_changes += 1;
        self.setup.config.mode = mode;
        self.engine.set_mode(self.now, mode, &mut self.actions).expect("there is a log");
    }

    /// The memory of the groups, as the process leaves it behind.
    pub(crate) fn staged_groups(&self) -> Vec<StagedGroup> {
        let staging = self.setup.config.write_log.is_some_and(|log| log.staging);
        let Some(groups) = self.engine.staged_groups().filter(|_| staging) else {
            return Vec::new();
        };
        let of_group = |group: Span| {
            let header: Page = self.memory.at(group.part(PAGE, PAGE)).try_into().expect("a page");
            let data = group.part(2 * PAGE, u64::from(group.len) - 2 * PAGE);
            (Box::new(header), self.memory.at(data).to_vec())
        };
        groups.map(of_group).to_vec()
    }

    /// Recovers the log for a new engine and opens it.
    pub(crate) fn recover_log(&mut self, staged: &[StagedGroup]) {
        let Some(log) = &mut self.setup.config.write_log else { return };
        self.pool.pending = Generation(self.pool.pending.0 + 1);
        log.generation = self.pool.pending;
        let mut found = self.pool.recover(staged);
        self.log.line(self.now, || format!("recovered {:?}", found.report));
        let groups = adopt::adopted(&found);
        if !groups.is_empty() {
            self.adopt(&found, &groups, staged);
            self.pool.device.flush_all();
            found = self.pool.recover(&[]);
            assert!(adopt::adopted(&found).is_empty());
        }
        self.coverage.records_recovered += found.records.len() as u64;
        self.coverage.records_staged += groups.len() as u64;
        // What stays in use, and nothing else.
        self.pool.device.flush_all();
        let phase = found.records.first().map(|record| record.phase);
        let config = &mut self.setup.config;
        if let Some(phase) = phase {
            let offset = u64::from(phase);
            config.grid_offset = forebay_core::config::GridOffset::Fixed(offset);
        }
        let log = config.write_log.as_mut().expect("there is a log");
        log.segments_max = log.segments_max.max(found.segments.len() as u32 + 2);
        self.engine = Engine::new(*config).expect("a configuration that works");
        let first = self.pool.lease().expect("the pool has room for a restart");
        let phase = phase.unwrap_or_else(|| (self.engine.grid().offset() % PAGE) as u16);
        let header = self.pool.header(&found, first, phase);
        self.pool.open(&header);
        self.pool.device.flush_all();
        let keep: Vec<SegmentId> =
            found.segments.iter().map(|s| s.segment).chain([first.0]).collect();
        for segment in self.pool.held.keys().copied().collect::<Vec<_>>() {
            if !keep.contains(&segment) {
                self.pool.give_back(segment);
            }
        }
        self.pool.committed = self.pool.pending;
        self.engine.restore(&found, first.0).expect("the log fits");
    }

    /// Writes staged groups into fresh segments.
    fn adopt(&mut self, found: &RecoveredLog, groups: &[adopt::Adopted], staged: &[StagedGroup]) {
        let mut order: Vec<usize> = (0..staged.len()).collect();
        order.sort_by_key(|&n| GroupView::staged(&staged[n].0).map_or(0, |v| v.header().number.0));
        let phase = found.records[0].phase;
        let mut number = found.next_group;
        let mut found = found.clone();
        for adopted in groups {
            let (header_page, data) = &staged[order[adopted.group as usize]];
            found.next_group = number;
            let view = GroupView::staged(header_page).expect("recovery read it");
            found.next_sequence = view.header().first_sequence;
            let segment = self.pool.lease().expect("the pool has room for a restart");
            let header = self.pool.header(&found, segment, phase);
            self.pool.open(&header);
            let mut page = [0; PAGE as usize];
            adopt::encode(&found, header_page, &header, number, &mut page);
            self.pool.write(segment.0, 1, &page);
            let len = u64::from(adopted.data_pages) * PAGE;
            self.pool.write(segment.0, 2, &data[..len as usize]);
            number.0 += 1;
        }
    }

    /// A flush is acknowledged before anything is durable.
    pub(crate) fn defers_flushes(&self) -> bool {
        let log = self.setup.config.write_log;
        let deferred = log.is_some_and(|log| log.flush != FlushSemantics::Honest);
        deferred && self.engine.mode().logs()
    }

    /// Primary storage alone, while everything that strict destaging asks for holds.
    pub(crate) fn check_prefix(&mut self) {
        let Some(log) = self.setup.config.write_log else { return };
        let strict = log.order == forebay_core::config::DestageOrder::Strict;
        let holds = self.epochs.holds && self.coverage.mode_changes == 0;
        if strict && holds && self.engine.mode().logs() {
            self.coverage.prefix_checks += 1;
            self.epochs.check(self.backend.bytes());
        }
    }

    /// After a loss of power the disk is what the log lays over primary storage.
    pub(crate) fn compare_after_power_loss(&mut self, in_order: bool) {
        let found = self.pool.recover(&[]);
        let mut image = self.backend.bytes().to_vec();
        for record in &found.records {
            let place = record.range.start as usize..record.range.end as usize;
            let RecordPlace::Log { segment, page } = record.place else {
                panic!("all is on flash")
            };
            if record.kind == group::RecordKind::Zero {
                image[place].fill(0);
                continue;
            }
            let first = u64::from(segment.0 * self.pool.segment_pages + page) * PAGE;
            let shift = (PAGE - u64::from(record.phase)) % PAGE;
            let start = (first + (record.range.start + shift) % PAGE) as usize;
            let len = record.range.len() as usize;
            image[place].copy_from_slice(&self.pool.device.bytes()[start..start + len]);
        }
        if in_order {
            // Whatever was lost, no epoch is there without all of the earlier ones.
            self.epochs.check(&image);
        }
        let versions = image.chunks_exact(SECTOR as usize).zip(0..);
        let all: Vec<_> =
            versions.map(|(bytes, sector)| (sector, stamp::read(bytes, sector))).collect();
        let changed = self.oracle.changed(&all);
        self.coverage.sectors_lost += changed.len() as u64;
        self.log.line(self.now, || format!("power loss reverts {changed:?}"));
        let arrival = self.clients.arrive();
        self.oracle.lose(arrival, changed).unwrap_or_else(|wrong| panic!("{wrong}"));
        self.oracle.new_life();
    }

    /// Opens the log of the first engine.
    pub(crate) fn open_log(&mut self) {
        if self.setup.config.write_log.is_some() {
            self.recover_log(&[]);
            self.memory = crate::memory::Memory::new(self.engine.memory_size());
        }
    }

    /// Carries everything to primary storage, so that it can be compared.
    pub(crate) fn check_destaged(&mut self) {
        if self.setup.config.write_log.is_none() {
            return;
        }
        let mode = forebay_core::config::Mode::WriteThrough;
        self.engine.set_mode(self.now, mode, &mut self.actions).expect("no log is needed");
        self.drain();
        assert_eq!(self.engine.mode(), mode, "the log was not drained: {:?}", self.engine);
    }
}
