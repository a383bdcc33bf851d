//! The clients: they make requests, keep what they asked for, and check every reply.
//!
//! A client that is refused (busy, no buffer) goes on later. One that found no buffer for its write asks for it again between
//! the rounds of the executor, as those of a shard do. Some hold write buffers for long, or give them back unused; some
//! take long to send what a reply refers to.

use std::collections::BTreeMap;

use forebay_core::action::{Actions, Buffer, Extent, ExtentState, Reply, ReplyData};
use forebay_core::geometry::{ByteRange, PAGE, SECTOR};
use forebay_core::ids::{Nanos, RequestTag};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;

use crate::executor::is_fault;
use crate::memory::Claim;
use crate::oracle::Oracle;
use crate::planted::Planted;
use crate::stamp::{self, Version};
use crate::workload::{Kind, Workload};
use crate::world::{Event, World};

/// A request that is not answered.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    kind: Kind,
    range: ByteRange,
    op: Op,
    /// What a flush has to cover.
    mark: u64,
    /// The bytes that a compare-and-write expects.
    expected: Vec<u8>,
    /// A discard that is done, and not only advice that nobody follows, or a flush of primary storage, in the mode that it came in.
    is_followed: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) workload: Workload,
    /// Requests made so far.
    pub made: u64,
    /// Unanswered requests by arrival, which is their tag.
    pub asked: BTreeMap<u64, Asked>,
    arrivals: u64,
    versions: Version,
    /// Replies whose slots were not sent yet.
    pub unsent: Vec<u64>,
    /// Buffers of replies that clients still read.
    reading: BTreeMap<u64, Buffer>,
    /// Write buffers that clients hold without doing anything.
    held: Vec<(u64, Buffer)>,
    /// What the last write is to change that found no buffer.
    refused: Option<ByteRange>,
    /// They ask for nothing at the moment.
    pub are_away: bool,
}

impl Clients {
    pub(crate) fn new(workload: Workload) -> Clients {
        Clients {
            workload,
            made: 0,
            asked: BTreeMap::new(),
            arrivals: 0,
            versions: stamp::INITIAL,
            unsent: Vec::new(),
            reading: BTreeMap::new(),
            held: Vec::new(),
            refused: None,
            are_away: false,
        }
    }

    /// The next number in the order of arrival.
    pub(crate) fn arrive(&mut self) -> u64 {
        self.arrivals += 1;
        self.arrivals
    }

    /// The engine that knew of them is gone.
    pub(crate) fn forget_all(&mut self, oracle: &mut Oracle) {
        for (arrival, asked) in std::mem::take(&mut self.asked) {
            if asked.kind == Kind::Zeroes {
                oracle.settle(arrival, asked.range);
            }
        }
        self.unsent.clear();
        self.reading.clear();
        self.held.clear();
        self.refused = None;
    }
}

impl World<'_> {
    /// A burst of requests.
    pub(crate) fn on_clients(&mut self) {
        if self.is_ending {
            // They come again when the disk does.
            return self.queue.plan(self.now.plus(Nanos(10_000_000)), Event::Clients);
        }
        if self.clients.made >= self.setup.load.requests || self.clients.are_away {
            return;
        }
        self.hold_buffers();
        for _ in 0..self.rng.between(1, self.setup.load.burst_max) {
            let kind = self.clients.workload.kind();
            let range = self.clients.workload.range(kind);
            if !self.ask(kind, range) {
                // Refused: something has to end before it is worth another try.
                let pause = Nanos(self.rng.between(20_000, 400_000));
                return self.queue.plan(self.now.plus(pause), Event::Clients);
            }
        }
        let pause = Nanos(self.rng.skewed(self.setup.load.pause_max.0));
        self.queue.plan(self.now.plus(pause), Event::Clients);
    }

    /// Makes one request; false: the engine refused it.
    fn ask(&mut self, kind: Kind, range: ByteRange) -> bool {
        let rng = self.clients.workload.rng();
        let fua = rng.chance(self.setup.load.fua);
        let op = match kind {
            Kind::Read => Op::Read { no_admit: rng.chance(100) },
            Kind::Flush => Op::Flush,
            Kind::Discard => Op::Discard { fua },
            Kind::Zeroes => {
                Op::WriteZeroes { may_unmap: rng.chance(500), fast_only: rng.chance(200), fua }
            }
            Kind::Prefetch => Op::Prefetch,
            Kind::Allocation => Op::Allocation,
            Kind::CacheState => Op::CacheState,
            Kind::Nonsense => rng.pick(&[
                Op::Read { no_admit: false },
                Op::Discard { fua },
                Op::Prefetch,
                Op::Allocation,
                Op::CacheState,
            ]),
            Kind::Write => match self.write_buffer(range) {
                Some(buffer) => Op::Write { buffer, fua },
                None => return false,
            },
            Kind::Compare => match self.engine.compare_buffer(range) {
                Some(buffer) => {
                    self.memory.spoil(buffer.span);
                    Op::CompareAndWrite { buffer, fua }
                }
                None => {
                    self.coverage.no_buffer += 1;
                    return false;
                }
            },
        };
        let version = self.clients.versions + 1;
        let mut expected = Vec::new();
        if let Some(buffer) = op.buffer() {
            if self.rng.chance(30) {
                self.coverage.buffers_unused += 1;
                self.engine.release(self.now, buffer, &mut self.actions);
                return true;
            }
            let sector = range.start / SECTOR;
            stamp::write(self.memory.change(buffer.at(range)), sector, version);
            if kind == Kind::Compare {
                expected = self.expect(range);
                self.memory.change(buffer.expected(range)).copy_from_slice(&expected);
            }
        }
        let mark = self.oracle.flush_mark();
        let is_followed = self.is_followed(kind == Kind::Flush);
        self.submit(Asked { kind, range, op, mark, expected, is_followed }, version)
    }

    /// A client's idea of the bytes in `range`: right, from before another write, or with a byte
    /// that was never there.
    fn expect(&mut self, range: ByteRange) -> Vec<u8> {
        let mut bytes = vec![0; range.len() as usize];
        let about_to = self.rng.chance(600);
        let sectors = range.start / SECTOR..range.end / SECTOR;
        for (sector, bytes) in sectors.zip(bytes.chunks_exact_mut(SECTOR as usize)) {
            let version = self.oracle.guess(sector, about_to);
            stamp::write(bytes, sector, version);
        }
        if self.rng.chance(150) {
            let at = self.rng.below(range.len()) as usize;
            bytes[at] ^= 0x40;
        }
        bytes
    }

    fn write_buffer(&mut self, range: ByteRange) -> Option<Buffer> {
        if self.planted == Planted::EarlyReuse {
            // Twice without carrying anything out in between: the engine takes the copies as made.
            self.engine.proceed(self.now, &mut self.actions);
            self.engine.proceed(self.now, &mut self.actions);
        }
        let Some(buffer) = self.engine.write_buffer(range) else {
            self.coverage.no_buffer += 1;
            self.clients.refused = Some(range);
            return None;
        };
        // It is filled at once, while copies from before may still have to be made.
        self.memory.spoil(buffer.span);
        Some(buffer)
    }

    /// The client whose write found no buffer asks for one again.
    pub(crate) fn ask_again(&mut self) {
        let is_there = !self.is_ending && !self.clients.are_away;
        let Some(range) = self.clients.refused.take().filter(|_| is_there) else { return };
        let Some(buffer) = self.write_buffer(range) else { return };
        self.coverage.writes_waited += 1;
        let version = self.clients.versions + 1;
        stamp::write(self.memory.change(buffer.at(range)), range.start / SECTOR, version);
        let (kind, op) = (Kind::Write, Op::Write { buffer, fua: false });
        let (mark, expected) = (self.oracle.flush_mark(), Vec::new());
        self.submit(Asked { kind, range, op, mark, expected, is_followed: false }, version);
    }

    fn submit(&mut self, asked: Asked, version: Version) -> bool {
        let arrival = self.clients.arrive();
        let request = Request { tag: RequestTag(arrival), range: asked.range, op: asked.op };
        self.log.line(self.now, || format!("submit {request:?} version {version}"));
        if self.engine.submit(self.now, request, &mut self.actions).is_err() {
            self.coverage.busy += 1;
            if let Some(buffer) = asked.op.buffer() {
                self.engine.release(self.now, buffer, &mut self.actions);
            }
            return false;
        }
        self.clients.asked.insert(arrival, asked.clone());
        self.clients.made += 1;
        self.coverage.requests += 1;
        match asked.kind {
            Kind::Write | Kind::Compare => {
                self.clients.versions = version;
                self.oracle.begin(arrival, version, asked.range, false);
                self.epochs.begin(arrival, version, asked.range);
            }
            Kind::Zeroes => self.oracle.begin(arrival, stamp::ZEROES, asked.range, true),
            Kind::Discard => {
                self.oracle.begin(arrival, stamp::ZEROES, self.discarded(asked.range), false);
            }
            Kind::Read
            | Kind::Flush
            | Kind::Prefetch
            | Kind::Allocation
            | Kind::CacheState
            | Kind::Nonsense => {}
        }
        true
    }

    /// The logical blocks within a discarded range.
    fn discarded(&self, range: ByteRange) -> ByteRange {
        let backend = self.setup.config.backend;
        let unit = u64::from(backend.logical_block);
        let start = range.start.next_multiple_of(unit);
        let followed = backend.discard || (backend.write_zeroes && self.engine.mode().logs());
        let end = if followed { range.end / unit * unit } else { start };
        ByteRange::new(start, end.max(start))
    }

    /// The engine answered.
    pub(crate) fn on_reply(&mut self, reply: Reply, actions: &Actions) {
        let arrival = reply.tag.0;
        let Some(asked) = self.clients.asked.remove(&arrival) else {
            panic!("{reply:?} to nobody, or the second one");
        };
        if self.planted == Planted::SecondReply && self.rng.chance(1) {
            self.planted = Planted::Nothing;
            return self.on_reply(reply, actions);
        }
        assert!(reply.submitted <= self.now);
        self.check_status(&asked, reply.status);
        match asked.kind {
            Kind::Read if reply.status.is_ok() => {
                self.on_read(arrival, asked.range, reply.data, actions);
            }
            Kind::Compare => self.on_compared(arrival, &asked, &reply),
            Kind::Write | Kind::Zeroes => self.on_changed(arrival, &asked, reply.status),
            Kind::Discard if reply.status == IoStatus::ReadOnly => {
                self.oracle.withdraw(arrival, asked.range);
            }
            Kind::Discard
                // One that is not followed waits for nothing that was not acknowledged before it.
                if reply.status.is_ok()
                    && asked.op == (Op::Discard { fua: true })
                    && asked.is_followed
                    && !self.defers_flushes() =>
            {
                self.oracle.discarded_durably(arrival, self.discarded(asked.range));
            }
            Kind::Flush if reply.status.is_ok() => {
                if !self.defers_flushes() {
                    let flushed = self.oracle.flushed(asked.mark, !asked.is_followed);
                    flushed.unwrap_or_else(|wrong| panic!("{wrong}"));
                }
                self.epochs.raise();
            }
            Kind::Flush => {
                let in_time = reply.status != IoStatus::TimedOut;
                self.oracle.flush_failed(asked.mark, in_time);
            }
            Kind::Allocation | Kind::CacheState if reply.status.is_ok() => {
                self.on_extents(arrival, &asked, reply.data, actions);
            }
            Kind::Read
            | Kind::Discard
            | Kind::Prefetch
            | Kind::Allocation
            | Kind::CacheState
            | Kind::Nonsense => assert_eq!(reply.data, ReplyData::None),
        }
    }

    /// Errors must have a reason.
    fn check_status(&self, asked: &Asked, status: IoStatus) {
        let read_only = self.setup.config.backend.read_only;
        let fast_only = matches!(asked.op, Op::WriteZeroes { fast_only: true, .. });
        let quiet = self.setup.quiet;
        let may = match asked.kind {
            // A disk that has lost dirty bytes answers nothing.
            Kind::Nonsense | Kind::CacheState if self.setup.log_dies && is_fault(status) => true,
            Kind::Nonsense => status == IoStatus::Invalid,
            Kind::Write | Kind::Compare | Kind::Zeroes | Kind::Discard if read_only => {
                status == IoStatus::ReadOnly
            }
            Kind::Zeroes if status == IoStatus::Unsupported => fast_only,
            Kind::CacheState => status.is_ok(),
            Kind::Compare if status == IoStatus::Miscompare => true,
            Kind::Read
            | Kind::Write
            | Kind::Compare
            | Kind::Flush
            | Kind::Zeroes
            | Kind::Discard
            | Kind::Prefetch
            | Kind::Allocation => {
                let ends = self.clients.are_away && status == IoStatus::ShuttingDown;
                status.is_ok() || ends || (is_fault(status) && !quiet)
            }
        };
        assert!(may, "{asked:?} was answered with {status:?}");
    }

    fn on_compared(&mut self, arrival: u64, asked: &Asked, reply: &Reply) {
        let difference = match (reply.status, reply.data) {
            (IoStatus::Ok, ReplyData::None) => None,
            (IoStatus::Miscompare, ReplyData::Difference { offset }) => Some(offset),
            (status, ReplyData::None) => return self.on_changed(arrival, asked, status),
            _ => panic!("{reply:?} to a compare-and-write"),
        };
        let found = self.oracle.compared(arrival, asked.range, &asked.expected, difference);
        found.unwrap_or_else(|wrong| panic!("compare-and-write {arrival}: {wrong}"));
        match difference {
            None => self.on_changed(arrival, asked, IoStatus::Ok),
            Some(_) => self.oracle.withdraw(arrival, asked.range),
        }
    }

    fn on_changed(&mut self, arrival: u64, asked: &Asked, status: IoStatus) {
        let fua = match asked.op {
            Op::Write { fua, .. }
            | Op::CompareAndWrite { fua, .. }
            | Op::WriteZeroes { fua, .. } => fua,
            _ => unreachable!("only these change bytes"),
        };
        match status {
            IoStatus::Ok => {
                let durable = fua && !self.defers_flushes();
                self.oracle.acknowledge(arrival, asked.range, durable);
                self.epochs.acknowledge(arrival, asked.range);
                if fua {
                    self.epochs.raise();
                }
            }
            IoStatus::ReadOnly | IoStatus::Unsupported => {
                self.oracle.withdraw(arrival, asked.range);
            }
            // Done or not: the oracle leaves it open.
            IoStatus::IoError | IoStatus::TimedOut | IoStatus::NoSpace | IoStatus::ShuttingDown => {
                self.oracle.settle(arrival, asked.range);
            }
            IoStatus::Invalid | IoStatus::Miscompare => unreachable!("checked before"),
            IoStatus::Reserved => unreachable!("frontends say so, the engine never"),
        }
    }

    fn on_read(&mut self, arrival: u64, range: ByteRange, data: ReplyData, actions: &Actions) {
        let claim = Claim::Replied(arrival);
        let mut bytes = Vec::new();
        match data {
            ReplyData::Slots { first, count } => {
                let early = self.planted == Planted::EarlySent;
                for slice in &actions.slices[first as usize..(first + count) as usize] {
                    bytes.extend_from_slice(self.memory.at(*slice));
                    self.memory.claim(*slice, claim);
                }
                self.clients.unsent.push(arrival);
                if early {
                    self.engine.sent(self.now);
                }
            }
            ReplyData::Buffer { data, buffer } => {
                assert!(buffer.at(range) == data);
                bytes.extend_from_slice(self.memory.at(data));
                self.memory.claim(buffer.span, claim);
                self.clients.reading.insert(arrival, buffer);
                let when = self.now.plus(Nanos(self.rng.skewed(2_000_000)));
                self.queue.plan(when, Event::Release(arrival));
            }
            ReplyData::None | ReplyData::Extents { .. } | ReplyData::Difference { .. } => {
                panic!("a read without data")
            }
        }
        assert_eq!(bytes.len() as u64, range.len(), "a read of another length");
        self.coverage.reads_unsettled += u64::from(self.engine.is_unsettled());
        let seen = self.oracle.observe(arrival, range, &bytes);
        seen.unwrap_or_else(|wrong| panic!("read {arrival} of {range:?}: {wrong}"));
    }

    /// A client has read the buffer of a reply.
    pub(crate) fn on_release(&mut self, arrival: u64) {
        let buffer = self.clients.reading.remove(&arrival).expect("it is read once");
        self.memory.unclaim(Claim::Replied(arrival));
        self.memory.spoil(buffer.span);
        self.engine.release(self.now, buffer, &mut self.actions);
    }

    fn on_extents(&mut self, arrival: u64, asked: &Asked, data: ReplyData, actions: &Actions) {
        let ReplyData::Extents { first, count } = data else { panic!("an answer without extents") };
        assert!(count > 0, "an answer that says nothing");
        let mut start = asked.range.start;
        for &Extent { len, state } in &actions.extents[first as usize..(first + count) as usize] {
            let part = ByteRange::at(start, len);
            start = part.end;
            assert!(len > 0 && asked.range.contains(part), "{part:?} is not in {asked:?}");
            match (asked.kind, state) {
                (Kind::Allocation, ExtentState::Allocated)
                | (Kind::CacheState, ExtentState::Uncached | ExtentState::Clean) => {}
                (Kind::CacheState, ExtentState::Dirty) => {
                    assert!(self.setup.config.write_log.is_some(), "there is no log");
                }
                (Kind::Allocation, ExtentState::Hole | ExtentState::Zero) => assert!(
                    self.oracle.may_be_zero(arrival, part),
                    "{part:?} is said to be {state:?}"
                ),
                other => panic!("an answer that does not fit the question: {other:?}"),
            }
        }
    }

    /// Idle clients take write buffers until few pages are left, and now and then give some back.
    fn hold_buffers(&mut self) {
        let Some(left) = self.setup.load.pages_left else { return };
        if !self.clients.held.is_empty() || !self.rng.chance(100) {
            if self.rng.chance(20) {
                self.give_back_held_buffers();
            }
            return;
        }
        self.carry_out();
        let disk = self.setup.config.backend.size;
        let mut pages = self.engine.statistics(self.now).buffer_bytes_free / PAGE;
        while pages > left {
            let wanted = ((pages - left) * PAGE).min(disk / PAGE * PAGE).min(32 << 20);
            let range = ByteRange::at(0, wanted.max(SECTOR));
            let Some(buffer) = self.engine.write_buffer(range) else { break };
            let number = self.clients.arrive();
            self.memory.claim(buffer.span, Claim::Replied(number));
            self.clients.held.push((number, buffer));
            let taken = u64::from(buffer.span.len) / PAGE;
            pages = pages.saturating_sub(taken);
        }
    }

    /// Idle clients give up.
    pub(crate) fn give_back_held_buffers(&mut self) {
        for (number, buffer) in std::mem::take(&mut self.clients.held) {
            self.memory.unclaim(Claim::Replied(number));
            self.engine.release(self.now, buffer, &mut self.actions);
        }
    }

    /// Reads `range` and waits for the reply.
    pub(crate) fn read_now(&mut self, range: ByteRange) {
        let op = Op::Read { no_admit: false };
        let (kind, mark, expected) = (Kind::Read, 0, Vec::new());
        let asked = Asked { kind, range, op, mark, expected, is_followed: false };
        assert!(self.submit(asked, 0), "an idle engine is not busy");
        self.carry_out();
        while !self.clients.asked.is_empty() {
            assert!(self.step(), "a read without end");
        }
    }
}
