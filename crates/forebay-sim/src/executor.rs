//! Carries out the engine's actions on real bytes, in order, and checks the rules of doing so.
//!
//! Actions of several engine calls may be carried out together; replies of several rounds may wait until
//! they are sent. Both are legal for a shard, so both happen here.

use forebay_core::action::{
    Action, Actions, Event as EngineEvent, Extent, ExtentState, Io, IoOp, LogAction, Reply, Span,
    Target,
};
use forebay_core::executor::{self, Executor, Runs};
use forebay_core::geometry::{ByteRange, PAGE, SECTOR};
use forebay_core::ids::{IoId, Nanos, SegmentId};
use forebay_core::sealed::crc32c;
use forebay_core::status::IoStatus;

use crate::device::{Effect, changes};
use crate::epochs::Trust;
use crate::memory::Claim;
use crate::oracle::sectors;
use crate::planted::Planted;
use crate::world::{Event, InFlight, World};

impl Executor for World<'_> {
    fn start(&mut self, io: Io) {
        self.start_io(io);
    }

    fn copy(&mut self, from: Span, to: Span) {
        if self.planted == Planted::SkippedCopy && self.rng.chance(20) {
            return;
        }
        self.memory.copy(from, to);
    }

    fn zero(&mut self, memory: Span) {
        self.memory.change(memory).fill(0);
    }

    fn compare(&mut self, id: IoId, found: Span, expected: Span) {
        let difference = self.difference(found, expected);
        self.comparisons.push((id, difference));
    }

    fn build(&mut self, action: LogAction) {
        self.build_log(action);
    }

    fn lease(&mut self) {
        let when = self.now.plus(Nanos(self.rng.skewed(1_000_000)));
        self.queue.plan(when, Event::Lease);
    }

    fn grow_staging(&mut self) {
        let when = self.now.plus(Nanos(self.chance.skewed(100_000)));
        self.queue.plan(when, Event::Staging);
    }

    fn unlease(&mut self, segment: SegmentId) {
        self.pool.give_back(segment);
    }

    fn renew(&mut self, segment: SegmentId) {
        let when = self.now.plus(Nanos(self.rng.skewed(1_000_000)));
        self.queue.plan(when, Event::Renewal(segment));
    }

    fn copy_index(&mut self, memory: Span) {
        self.ring.written += u64::from(memory.len) / PAGE;
        let pages = self.engine.ring_pages().concat();
        self.memory.change(memory).copy_from_slice(&pages);
    }

    fn copy_journal(&mut self, memory: Span) {
        self.copy_to_journal(memory);
    }

    fn revoke_journal(&mut self) {
        let when = self.now.plus(Nanos(self.chance.skewed(5_000_000)));
        self.queue.plan(when, Event::RevokeJournal);
    }

    fn void(&mut self) {
        self.start_void();
    }

    fn revoke(&mut self) {
        self.start_revocation();
    }

    fn reply(&mut self, reply: &Reply, actions: &Actions) {
        self.on_reply(*reply, actions);
    }

    fn event(&mut self, event: EngineEvent) {
        self.coverage.note_event(event);
        if let EngineEvent::RamShrunk { .. } = event {
            self.note_missing();
        }
        if let EngineEvent::FlashShrunk { .. } = event {
            self.on_flash_shrunk();
        }
        let is_right =
            self.flash.has_rotted || !matches!(event, EngineEvent::ChecksumMismatch { .. });
        assert!(is_right, "flash has what was written there: {event:?}");
    }
}

impl Runs for World<'_> {
    fn proceed(&mut self) -> Option<Actions> {
        self.ask_again();
        let goes_on = self.engine.wants_to_proceed() || !self.actions.list.is_empty();
        goes_on.then(|| {
            self.engine.proceed(self.now, &mut self.actions);
            self.take_actions()
        })
    }

    fn carried_out(&mut self, mut actions: Actions) {
        actions.clear();
        self.actions = actions;
        for (id, difference) in std::mem::take(&mut self.comparisons) {
            self.tell_compared(id, difference);
        }
    }
}

impl World<'_> {
    /// Carries out everything that the engine asked for.
    pub(crate) fn carry_out(&mut self) {
        executor::run(self);
    }

    /// Carries out the engine's actions, and does not let it proceed with later input.
    pub(crate) fn carry_out_once(&mut self) {
        let actions = self.take_actions();
        actions.carry_out(self);
        self.carried_out(actions);
    }

    /// What the engine asked for, in the order of an executor that is right, or of one with a planted bug.
    fn take_actions(&mut self) -> Actions {
        let mut actions = std::mem::take(&mut self.actions);
        self.log.actions(self.now, &actions);
        if self.planted == Planted::RecordBeforeData {
            actions.list.sort_by_key(|action| !matches!(action, Action::Log(_)));
        }
        if self.planted == Planted::EarlyComparison {
            actions.list.sort_by_key(|action| !matches!(action, Action::Compare { .. }));
        }
        actions
    }

    /// Where what was found is not what was expected.
    fn difference(&mut self, found: Span, expected: Span) -> Option<u64> {
        let pairs = self.memory.at(found).iter().zip(self.memory.at(expected));
        let mut difference = pairs.map(|(a, b)| a == b).position(|same| !same).map(|at| at as u64);
        match self.planted {
            Planted::AlwaysEqual if self.rng.chance(20) => difference = None,
            Planted::MisplacedDifference => {
                let last = u64::from(found.len) - 1;
                difference = difference.map(|at| (at + 1).min(last));
            }
            Planted::StaleComparison => {
                std::mem::swap(&mut difference, &mut self.compared_last);
            }
            _ => {}
        }
        difference
    }

    /// Tells the engine what a comparison found, at once or later.
    fn tell_compared(&mut self, id: IoId, difference: Option<u64>) {
        if self.rng.chance(500) {
            return self.engine.compared(self.now, id, difference, &mut self.actions);
        }
        self.coverage.compares_late += 1;
        let late_max = if self.rng.chance(20) { 300_000_000 } else { 1_000_000 };
        let when = self.now.plus(Nanos(self.rng.skewed(late_max)));
        self.queue.plan(when, Event::Compared(id, difference));
    }

    /// Everything replied so far has left the slots.
    pub(crate) fn send(&mut self) {
        for number in std::mem::take(&mut self.clients.unsent) {
            self.memory.unclaim(Claim::Replied(number));
        }
        self.engine.sent(self.now);
    }

    fn start_io(&mut self, io: Io) {
        self.check_io(&io);
        let number = self.ios_issued;
        self.ios_issued += 1;
        let (mut data, mut checksums) = (Vec::new(), Vec::new());
        match io.op {
            IoOp::Read { memory } => self.memory.claim(memory, Claim::Filling(number)),
            IoOp::Write { memory, .. } => {
                data.extend_from_slice(self.memory.at(memory));
                checksums = checksums_of(&data, io.checksum_piece);
                self.memory.claim(memory, Claim::Draining(number));
            }
            IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents
            | IoOp::Progress { .. } => {}
        }
        let io = match io.target {
            Target::Journal => Io { range: self.misplaced(io.range), ..io },
            _ => io,
        };
        let is_log_write =
            |io: &Io| io.target == Target::Log && matches!(io.op, IoOp::Write { .. });
        if is_log_write(&io) && self.ios.values().any(|other| is_log_write(&other.pending.io)) {
            self.coverage.log_writes_beside += 1;
        }
        if io.target == Target::Flash && !data.is_empty() {
            self.dropped.note_write(io.range.start / self.setup.config.block_size);
        }
        let io = match io.op {
            IoOp::WriteZeroes { may_unmap: true, .. }
                if self.planted == Planted::DiscardedZeroes =>
            {
                Io { op: IoOp::Discard, ..io }
            }
            _ => io,
        };
        match self.holds(&io) {
            true => self.hold(number, io, data, checksums),
            false => self.issue(number, io, data, checksums),
        }
    }

    /// Gives it to its device.
    pub(crate) fn issue(&mut self, number: u64, io: Io, data: Vec<u8>, checksums: Vec<u32>) {
        self.die_with(&io);
        let device = match io.target {
            Target::Backend => &mut self.backend,
            Target::Flash => &mut self.flash,
            Target::Log => &mut self.pool.device,
            Target::Ring => &mut self.ring.device,
            Target::Journal => &mut self.journal.as_mut().expect("it has one").device,
        };
        let (pending, timing) = device.issue(io, data, checksums);
        let (execute, complete) = (self.now.plus(timing.execute), self.now.plus(timing.complete));
        if self.setup.ring_tears && io.target == Target::Ring && self.loses_power(&io) {
            let tears = io.range.len() > PAGE;
            let when = if tears { self.now.plus(Nanos(1)) } else { complete.plus(Nanos(1)) };
            self.queue.plan(when, Event::PowerLoss);
        }
        self.queue.plan(execute, Event::Execute(number, 0));
        self.queue.plan(complete, Event::Complete(number, 0));
        self.ios.insert(number, InFlight { target: io.target, pending, attempt: 0 });
    }

    /// Power fails in the middle of this write of the ring, if it has several pages, or right after it.
    fn loses_power(&mut self, io: &Io) -> bool {
        let is_over = self.clients.made >= self.setup.load.requests;
        let permille = if io.range.len() > PAGE { 500 } else { 200 };
        !is_over && self.chance.chance(permille)
    }

    /// The rules for every I/O.
    fn check_io(&self, io: &Io) {
        let config = &self.setup.config;
        let (size, unit) = match io.target {
            Target::Backend => (config.backend.size, config.backend.logical_block),
            Target::Flash => (self.engine.flash_size(), config.flash_logical_block),
            Target::Log => (self.pool.size(), PAGE as u32),
            Target::Ring => (self.ring.device.bytes().len() as u64, PAGE as u32),
            Target::Journal => {
                let journal = self.journal.as_ref().expect("it has one");
                (journal.device.bytes().len() as u64, PAGE as u32)
            }
        };
        let unit = u64::from(unit);
        assert!(io.range.end <= size && io.range.is_aligned(unit), "{io:?} does not fit");
        let (memory, allowed) = match io.op {
            IoOp::Read { memory } => (Some(memory), true),
            IoOp::Write { memory, durable } => {
                assert!(!durable || matches!(io.target, Target::Log | Target::Ring), "{io:?}");
                (Some(memory), !self.is_read_only(io.target))
            }
            IoOp::Flush => (None, io.target != Target::Ring),
            IoOp::Progress { .. } => (None, io.target == Target::Log),
            IoOp::Discard => (None, config.backend.discard && !self.is_read_only(io.target)),
            IoOp::WriteZeroes { .. } => {
                (None, config.backend.write_zeroes && !self.is_read_only(io.target))
            }
            IoOp::Extents => (None, config.backend.extents),
        };
        assert!(allowed, "{io:?}: the device cannot, or must not");
        let without_range = matches!(io.op, IoOp::Flush | IoOp::Progress { .. });
        assert_eq!(io.range.is_empty(), without_range, "{io:?}");
        if let Some(memory) = memory {
            assert_eq!(u64::from(memory.len), io.range.len(), "{io:?}");
            assert!(memory.offset.is_multiple_of(unit), "{io:?}: memory is not aligned");
        }
    }

    fn is_read_only(&self, target: Target) -> bool {
        target == Target::Backend && self.setup.config.backend.read_only
    }

    /// An I/O takes effect.
    pub(crate) fn execute(&mut self, number: u64, attempt: u32, completes: bool) {
        let Some(in_flight) = self.ios.get_mut(&number) else { return };
        if in_flight.attempt != attempt || in_flight.pending.executed {
            return;
        }
        let is_write = matches!(in_flight.pending.io.op, IoOp::Write { .. });
        if !completes && is_write && self.planted == Planted::EarlyPlace {
            return;
        }
        match &mut in_flight.pending.io.op {
            IoOp::Write { durable, .. }
                if self.planted == Planted::VolatileLog
                    || self.planted == Planted::VolatileRing
                        && in_flight.target == Target::Ring =>
            {
                *durable = false;
            }
            IoOp::Write { .. } if in_flight.target == Target::Journal => {
                let is_superblock = World::is_superblock(in_flight.pending.io.range);
                let is_forgotten = match self.planted {
                    Planted::ForgottenRecord => !is_superblock && self.chance.chance(50),
                    Planted::ForgottenRetirement => is_superblock,
                    _ => false,
                };
                if is_forgotten {
                    in_flight.pending.effect = Effect::Prefix(0);
                }
            }
            IoOp::Progress { .. } if self.planted == Planted::ForgottenNote => {
                in_flight.pending.effect = Effect::Prefix(0);
            }
            _ => {}
        }
        if self.planted == Planted::EarlyFlush && in_flight.pending.io.op == IoOp::Flush {
            in_flight.pending.executed = true;
            return;
        }
        let io = in_flight.pending.io;
        self.points.note(&io);
        match in_flight.target {
            Target::Backend => self.backend.execute(number, &mut in_flight.pending),
            Target::Flash => self.flash.execute(number, &mut in_flight.pending),
            Target::Log => self.pool.device.execute(number, &mut in_flight.pending),
            Target::Ring => self.ring.device.execute(number, &mut in_flight.pending),
            Target::Journal => {
                let journal = self.journal.as_mut().expect("it has one");
                journal.device.execute(number, &mut in_flight.pending);
            }
        }
        if io.target == Target::Backend && changes(&io) {
            self.check_claims(io.range);
        }
    }

    /// An I/O completes.
    pub(crate) fn complete(&mut self, number: u64, attempt: u32) {
        if self.ios.get(&number).is_none_or(|i| i.attempt != attempt) {
            return;
        }
        if self.comes_late(number) {
            return self.complete_before(number);
        }
        self.execute(number, attempt, true);
        let in_flight = self.ios.remove(&number).expect("it is in flight");
        self.points.note(&in_flight.pending.io);
        match in_flight.target {
            Target::Backend => self.backend.complete(number, &in_flight.pending),
            Target::Flash => self.flash.complete(number, &in_flight.pending),
            Target::Log => self.pool.device.complete(number, &in_flight.pending),
            Target::Ring => self.ring.device.complete(number, &in_flight.pending),
            Target::Journal => {
                let journal = self.journal.as_mut().expect("it has one");
                journal.device.complete(number, &in_flight.pending);
            }
        }
        let mut pending = in_flight.pending;
        if self.planted == Planted::UnheardError && !matches!(pending.io.op, IoOp::Read { .. }) {
            pending.status = IoStatus::Ok;
        }
        let (io, status) = (pending.io, pending.status);
        if let IoOp::Progress { .. } = io.op {
            self.pool.has_note_failed = !status.is_ok();
        }
        match io.op {
            IoOp::Read { memory } => {
                self.memory.unclaim(Claim::Filling(number));
                self.memory.change(memory).copy_from_slice(&pending.data);
                pending.checksums = self.checksums_read(&io, &pending.data);
            }
            IoOp::Write { memory, .. } => {
                if io.target == Target::Flash {
                    let pieces = (io.range.start..).step_by(io.checksum_piece as usize);
                    self.trusted.extend(pieces.zip(pending.checksums.iter().copied()));
                }
                self.memory.unclaim(Claim::Draining(number));
                assert!(self.memory.at(memory) == pending.data, "{io:?}: memory changed in flight");
            }
            IoOp::Flush
                if io.target == Target::Backend && !status.is_ok() && self.rng.chance(500) =>
            {
                // What the engine acknowledged before this, clients have heard before this.
                self.carry_out();
                self.lose(false);
            }
            IoOp::Flush
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents
            | IoOp::Progress { .. } => {}
        }
        self.coverage.note_io(&io, status);
        self.log.line(self.now, || format!("complete {:?} {:?} {status:?}", io.id, io.range));
        if io.op == IoOp::Extents && status.is_ok() {
            let extents = self.extents(io.range);
            return self.engine.complete_extents(self.now, io.id, &extents, &mut self.actions);
        }
        let checksums = if status.is_ok() { &pending.checksums[..] } else { &[] };
        self.engine.complete(self.now, io.id, status, checksums, &mut self.actions);
    }

    /// The checksums of what a read returned.
    fn checksums_read(&self, io: &Io, data: &[u8]) -> Vec<u32> {
        if self.planted == Planted::UncheckedFlash && io.target == Target::Flash {
            let pieces = (io.range.start..io.range.end).step_by(io.checksum_piece as usize);
            return pieces.map(|at| self.trusted.get(&at).copied().unwrap_or(0)).collect();
        }
        if self.planted == Planted::UncheckedLog && io.target == Target::Log {
            let pages = (io.range.start..io.range.end).step_by(PAGE as usize);
            let device = self.pool.device.bytes();
            return pages
                .flat_map(|at| checksums_of(&device[at as usize..][..PAGE as usize], PAGE as u32))
                .collect();
        }
        checksums_of(data, io.checksum_piece)
    }

    /// Primary storage's answer about its holes.
    fn extents(&mut self, range: ByteRange) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        for sector in sectors(range) {
            let zero = self.backend.is_zero(sector) && self.rng.chance(900);
            let state = match zero {
                true => self.rng.pick(&[ExtentState::Hole, ExtentState::Hole, ExtentState::Zero]),
                false => ExtentState::Allocated,
            };
            match extents.last_mut() {
                Some(last) if last.state == state => last.len += SECTOR,
                _ => extents.push(Extent { len: SECTOR, state }),
            }
        }
        let kept = self.rng.between(0, extents.len() as u64) as usize;
        if self.rng.chance(300) {
            extents.truncate(kept);
        }
        extents
    }

    /// Primary storage loses what is volatile.
    pub(crate) fn lose(&mut self, all_done: bool) {
        let reverted = self.backend.lose(all_done);
        self.epochs.trust = Trust::Nothing;
        if self.engine.mode().logs() {
            // The log has it, and nobody will see that it was gone.
            return;
        }
        self.log.line(self.now, || format!("primary storage reverts {reverted:?}"));
        self.coverage.sectors_lost += reverted.len() as u64;
        let arrival = self.clients.arrive();
        self.oracle.lose(arrival, reverted).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// CRC32C of each piece of `data`.
pub(crate) fn checksums_of(data: &[u8], piece: u32) -> Vec<u32> {
    if piece == 0 {
        return Vec::new();
    }
    data.chunks(piece as usize).map(crc32c).collect()
}

/// A status that a device, or a time-out, may be the reason of.
pub(crate) fn is_fault(status: IoStatus) -> bool {
    matches!(status, IoStatus::IoError | IoStatus::TimedOut | IoStatus::NoSpace)
}
