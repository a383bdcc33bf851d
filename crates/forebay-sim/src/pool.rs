//! The flash pool behind a write log: segments, leases, notes of progress, staged groups.
//!
//! # Fault model
//! The pool's device has a volatile cache. The loss of power may take back any unflushed sector,
//! each by itself, unless it was written durably. Leases and notes of progress are durable when
//! they are made (a page pair is never torn). When only the process dies, I/Os in flight take
//! effect wholly, in part or not before the next one starts. The memory of the groups is as it
//! was, if the configuration says that staging survives.

use std::collections::BTreeMap;

use forebay_core::action::{LogAction, NoLease, Span, Target};
use forebay_core::config::{DestageOrder, FlushSemantics, WriteLogConfig};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{Generation, Nanos, SegmentId, Sequence, Uuid};
use forebay_core::sealed::Page;
use forebay_core::stats::LogState;
use forebay_core::write_back::format::summary;

use crate::device::Device;
use crate::epochs::Trust;
use crate::planted::Planted;
use crate::rng::Rng;
use crate::setup::Setup;
use crate::world::{Event, World};

pub(crate) const DISK: Uuid = Uuid(*b"a simulated disk");
pub(crate) const NONCE: u64 = 0x5eed;

/// Beyond what the log may take; no restart may need more, whatever was before it.
const SPARE_SEGMENTS: u32 = 6;

/// See the module.
#[derive(Debug)]
pub(crate) struct Pool {
    pub device: Device,
    pub segment_pages: u32,
    free: Vec<SegmentId>,
    pub held: BTreeMap<SegmentId, (Generation, u64)>,
    next_ordinal: u64,
    /// Leased in the life of the process.
    pub leases: u32,
    pub committed: Generation,
    pub pending: Generation,
    /// The last record that an orderly end left, until a start has come to its end.
    pub log_end: Sequence,
    pub disk_size: u64,
    pub planted: Planted,
    /// It is known elsewhere that nothing of it is to be believed.
    pub revoked: bool,
    /// The last note of progress.
    pub has_note_failed: bool,
    /// Steps of the last recovery so far.
    pub steps: u64,
    /// Steps until the recovery under way dies.
    pub dies_after: Option<u64>,
}

/// A group as it stood in memory when the process died: its header page and its data.
pub(crate) type StagedGroup = (Box<Page>, Vec<u8>);

impl Pool {
    pub(crate) fn new(setup: &Setup, planted: Planted, rng: Rng) -> Pool {
        let (pages, segments) = setup
            .config
            .write_log
            .map_or((16, 0), |log| (log.segment_pages, log.segments_max + SPARE_SEGMENTS));
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
            leases: 0,
            committed: Generation(0),
            pending: Generation(0),
            log_end: Sequence(0),
            revoked: false,
            has_note_failed: false,
            steps: 0,
            dies_after: None,
            planted,
            disk_size: setup.config.backend.size,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.device.bytes().len() as u64
    }

    pub(crate) fn lease(&mut self) -> Option<(SegmentId, u64)> {
        let segment = self.free.pop()?;
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        self.held.insert(segment, (self.pending, ordinal));
        Some((segment, ordinal))
    }

    /// Leases a segment anew to the log that has it.
    fn renew(&mut self, segment: SegmentId) -> (SegmentId, u64) {
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        let before = self.held.insert(segment, (self.pending, ordinal));
        assert!(before.is_some(), "{segment:?} was not leased");
        (segment, ordinal)
    }

    /// Now and then a summary rots; recovery then reads the groups.
    pub(crate) fn rot_a_summary(&mut self, rng: &mut Rng) {
        let Some(&segment) = self.held.keys().nth(rng.below(12) as usize) else { return };
        let first = u64::from(segment.0 * self.segment_pages);
        let start = first + u64::from(summary::first_page(self.segment_pages));
        let end = first + u64::from(self.segment_pages);
        self.device.rot_within(ByteRange::new(start * PAGE, end * PAGE));
    }

    pub(crate) fn give_back(&mut self, segment: SegmentId) {
        assert!(self.held.remove(&segment).is_some(), "{segment:?} was not leased");
        self.free.insert(0, segment);
    }
}

impl World<'_> {
    /// Builds a piece of the log in memory.
    pub(crate) fn build_log(&mut self, action: LogAction) {
        self.log.line(self.now, || format!("log {action:?}"));
        let mut action = action;
        if let LogAction::OpenSegment {
            segment,
            ordinal,
            generation,
            first_sequence,
            ref mut durable,
            ..
        } = action
        {
            assert_eq!(self.pool.held.get(&segment), Some(&(generation, ordinal)));
            if self.planted == Planted::EarlyClaim {
                *durable = Sequence(first_sequence.0 - 1);
            }
        }
        self.builder.build(action, &mut self.memory);
    }

    /// The pool answers.
    pub(crate) fn on_lease(&mut self) {
        let is_alone = |most| self.pool.held.len() < most as usize;
        let leased = if self.setup.leases_max.is_some_and(|max| self.pool.leases >= max) {
            Err(NoLease::Ever)
        } else if self.rng.chance(50) || !self.setup.segments_left.is_none_or(is_alone) {
            // Another disk has them all.
            Err(NoLease::Now)
        } else {
            self.pool.leases += 1;
            self.pool.lease().ok_or(NoLease::Now)
        };
        self.log.line(self.now, || format!("leased {leased:?}"));
        self.engine.leased(self.now, leased, &mut self.actions);
    }

    /// The pool has leased a segment anew.
    pub(crate) fn on_renewal(&mut self, segment: SegmentId) {
        self.coverage.renewals += 1;
        let leased = match self.setup.leases_max.is_some_and(|max| self.pool.leases >= max) {
            true => Err(NoLease::Ever),
            false => {
                self.pool.leases += 1;
                Ok(self.pool.renew(segment))
            }
        };
        self.log.line(self.now, || format!("renewed {leased:?}"));
        self.engine.leased(self.now, leased, &mut self.actions);
    }

    /// Somebody is asked to note that nothing of the pool is to be believed.
    pub(crate) fn start_revocation(&mut self) {
        let when = self.now.plus(Nanos(self.chance.skewed(5_000_000)));
        self.queue.plan(when, Event::Revoke);
    }

    /// It is noted, or cannot be.
    pub(crate) fn on_revocation(&mut self) {
        let known = self.chance.chance(700);
        if known {
            self.note_revoked();
        }
        self.engine.revoked(self.now, known, &mut self.actions);
    }

    /// No later start believes anything of the pool.
    pub(crate) fn note_revoked(&mut self) {
        self.pool.revoked = self.planted != Planted::ForgottenRevocation;
        self.coverage.logs_revoked += 1;
    }

    /// True while memory alone has what was acknowledged: the process must not die, or it is lost.
    pub(crate) fn is_saving(&self) -> bool {
        let log = self.engine.log_statistics(self.now).expect("there is a log");
        self.pool.revoked && self.engine.mode().logs() && log.state != LogState::Lost
    }

    /// A pool that nobody believes is replaced by an empty one; but an administrator has the log of a disk that stopped go on.
    pub(crate) fn replace_revoked(&mut self, staged: &mut Vec<StagedGroup>) {
        if !self.pool.revoked {
            return;
        }
        self.epochs.trust = Trust::Nothing;
        self.pool.revoked = false;
        if !self.engine.mode().logs() {
            self.log.line(self.now, || "another pool".into());
            self.pool = Pool::new(&self.setup, self.planted, self.chance.fork());
            staged.clear();
        }
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
        let has_log = self.setup.config.write_log.is_some();
        let mode = if has_log || !mode.logs() { mode } else { Mode::Monitor };
        self.log.line(self.now, || format!("mode {mode:?}"));
        self.coverage.mode_changes += 1;
        self.epochs.trust = Trust::Nothing;
        self.setup.config.mode = mode;
        self.engine
            .set_mode(self.now, mode, &mut self.actions)
            .expect("it has what the mode needs");
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
            (Box::new(header), self.memory.left(data))
        };
        groups.map(of_group).to_vec()
    }

    /// A flush is acknowledged before anything is durable.
    pub(crate) fn defers_flushes(&self) -> bool {
        let log = self.setup.config.write_log;
        let deferred = log.is_some_and(|log| log.flush != FlushSemantics::Honest);
        deferred && self.engine.mode().logs()
    }

    /// Primary storage is asked for a flush in this mode, or for a discard that is not only advice.
    pub(crate) fn is_followed(&self, is_flush: bool) -> bool {
        match (self.engine.mode().logs(), is_flush) {
            (logs, true) => !logs,
            (true, false) => self.engine.makes_holes(),
            (false, false) => self.setup.config.backend.discard,
        }
    }

    /// Primary storage alone, as far as it is to be trusted.
    pub(crate) fn check_prefix(&mut self) {
        if self.epochs.trust != Trust::Nothing && self.engine.mode().logs() {
            self.check_order();
        }
    }

    /// Destaging keeps order from here on, whatever happened before: primary storage has all that the log had.
    pub(crate) fn begin_order_anew(&mut self) {
        let is_time = self.events.is_multiple_of(16) && self.setup.config.write_log.is_some();
        let is_settled = self.engine.mode() == self.setup.config.mode && self.engine.mode().logs();
        if self.epochs.trust == Trust::Order
            || !is_time
            || !is_settled
            || !self.log_statistics().is_clean
        {
            return;
        }
        if !self.ios.values().any(|io| io.target == Target::Backend) {
            self.coverage.orders_begun_anew += 1;
            self.epochs.begin_anew(self.backend.bytes());
        }
    }

    /// The same, where it is to be trusted. Where the order promises nothing, the engine says whether it is consistent.
    pub(crate) fn check_order(&mut self) {
        let Some(log) = self.setup.config.write_log else { return };
        self.check_still();
        let is_promised = keeps_order(&log) && self.epochs.trust == Trust::Order;
        if is_promised || self.log_statistics().primary_is_consistent {
            self.coverage.prefix_checks += 1;
            self.coverage.words_checks += u64::from(self.epochs.trust == Trust::Words);
            let journal = self.journal.as_ref().map(|journal| journal.device.bytes().into());
            self.check_image(self.backend.bytes().into(), journal);
        }
    }

    /// The same after primary storage lost what was not durable, where it is flushed between epochs or windows.
    pub(crate) fn check_prefix_when_flushed(&mut self) {
        if self.setup.config.write_log.is_some_and(|log| log.barrier && log.journal.is_some()) {
            self.check_prefix();
        }
    }

    /// The same of what a loss of its power leaves, where primary storage is flushed between epochs.
    pub(crate) fn check_prefix_after_loss(&self, rng: &mut Rng) {
        let Some(log) = self.setup.config.write_log else { return };
        if keeps_order(&log) && log.barrier && self.epochs.trust == Trust::Order {
            let image = self.backend.after_loss(rng);
            let journal = self.journal.as_ref().map(|it| it.device.after_loss(rng).into());
            self.check_image(image.into(), journal);
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

/// Primary storage, with its journal if it has one, is a crash-consistent image at every instant.
fn keeps_order(log: &WriteLogConfig) -> bool {
    match log.order {
        DestageOrder::Strict | DestageOrder::Journaled => true,
        DestageOrder::Window | DestageOrder::Throughput => false,
    }
}
