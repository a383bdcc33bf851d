//! The real engine over modelled devices, in virtual time: for figures.
//!
//! ```text
//!   caller ──submit──► engine ──actions──► models of primary storage and of flash ──┐
//!     ▲ answers, I/Os that ended     ▲                                              │ when
//!     └──────── step ────────────────┴──────────────── queue ◄──────────────────────┘
//! ```
//! It owns the queue of events and the clock. Simulated what-ifs, the advisor and the experiments
//! of the simulator use it. It passes time the same way on every machine.
//!
//! The flash cache, its ring and the write log share one modelled flash device. Leases of log
//! segments take as long as an I/O of it.
//!
//! **Limits.** It moves no byte, every checksum is the same, and nothing fails. The simulator
//! (`forebay-sim`) has real bytes, faults and crashes.

#![forbid(unsafe_code)]

pub mod queue;

use std::cell::RefCell;
use std::rc::Rc;

use forebay_backends::model::{Distribution, Model, ModelConfig, ModelOp};
use forebay_core::action::{
    Actions, Event, Io, IoOp, LogAction, NoLease, Reply, ReplyData, Span, Target,
};
use forebay_core::config::{Config, Mode};
use forebay_core::engine::{Busy, ConfigError, Engine};
use forebay_core::executor::{self, Executor, Runs};
use forebay_core::geometry::{ByteRange, PAGE, REQUEST_MAX};
use forebay_core::ids::{IoId, Nanos, RequestTag, SegmentId};
use forebay_core::request::{Op, Request};
use forebay_core::status::IoStatus;

use queue::Queue;

/// Of as many pages as an I/O may have; no byte is moved, so all are alike.
static CHECKSUMS: [u32; (REQUEST_MAX / PAGE) as usize] = [0; (REQUEST_MAX / PAGE) as usize];

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A read.
    Read,
    /// A write; with FUA when true.
    Write(bool),
    /// A compare-and-write with FUA, which finds what it expects.
    CompareAndWrite,
    /// A flush.
    Flush,
}

/// A request that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Its tag.
    pub tag: RequestTag,
    /// How long it took.
    pub latency: Nanos,
}

/// An I/O that a device has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The device.
    pub target: Target,
    /// What was done.
    pub op: ModelOp,
    /// Where.
    pub range: ByteRange,
    /// How long it took.
    pub latency: Nanos,
}

/// Bytes that the engine wrote to the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Primary storage.
    pub backend: u64,
    /// The cache on flash.
    pub cache: u64,
    /// The write log.
    pub log: u64,
    /// Notes of how far destaging is, a page each.
    pub notes: u64,
    /// The ring that keeps the cache over a restart.
    pub ring: u64,
    /// The destage journal beside primary storage.
    pub journal: u64,
}

#[derive(Debug)]
enum Due {
    Done(Io, ModelOp, Nanos),
    Lease,
}

/// See the module.
#[derive(Debug)]
pub struct Timed {
    /// The engine.
    pub engine: Engine,
    /// The time.
    pub now: Nanos,
    /// Answers; the caller takes them out.
    pub answers: Vec<Answer>,
    /// I/Os that the devices have done; the caller takes them out.
    pub done: Vec<Done>,
    /// Events of the engine for an operator; the caller takes them out.
    pub noted: Vec<(Nanos, Event)>,
    /// Bytes written since the start.
    pub written: Written,
    actions: Actions,
    /// Memory for the next actions.
    spare: Actions,
    devices: Devices,
    events: Queue<Due>,
    segments: Segments,
    /// Requests that are not answered.
    under_way: u64,
}

/// The devices of the engine. Several disks may share them.
#[derive(Clone, Debug)]
struct Devices {
    san: Rc<RefCell<Model>>,
    flash: Rc<RefCell<Model>>,
}

/// Segments of the log.
#[derive(Debug)]
struct Segments {
    free: Vec<SegmentId>,
    leased_ever: u64,
}

/// Devices take time and have no bytes, so nothing is copied or built.
impl Executor for Timed {
    fn start(&mut self, io: Io) {
        self.submit_io(io);
    }

    fn copy(&mut self, _from: Span, _to: Span) {}

    fn zero(&mut self, _memory: Span) {}

    fn compare(&mut self, id: IoId, _found: Span, _expected: Span) {
        self.engine.compared(self.now, id, None, &mut self.actions);
    }

    fn build(&mut self, _action: LogAction) {}

    fn lease(&mut self) {
        let nothing = ByteRange::at(0, PAGE);
        let at = self.devices.flash.borrow_mut().submit(self.now, ModelOp::Write, nothing);
        self.events.plan(at, Due::Lease);
    }

    fn grow_staging(&mut self) {
        self.engine.staging_grown(self.now, true, &mut self.actions);
    }

    fn unlease(&mut self, segment: SegmentId) {
        self.segments.free.push(segment);
    }

    fn renew(&mut self, segment: SegmentId) {
        self.unlease(segment);
        self.lease();
    }

    fn copy_index(&mut self, _memory: Span) {}

    fn copy_journal(&mut self, _memory: Span) {}

    fn revoke_journal(&mut self) {
        unreachable!("primary storage works");
    }

    fn void(&mut self) {
        unreachable!("flash works");
    }

    fn revoke(&mut self) {
        unreachable!("flash works");
    }

    fn reply(&mut self, reply: &Reply, _actions: &Actions) {
        assert!(reply.status.is_ok(), "nothing fails here: {reply:?}");
        let latency = self.now.since(reply.submitted);
        self.answers.push(Answer { tag: reply.tag, latency });
        self.under_way -= 1;
        if let ReplyData::Buffer { buffer, .. } = reply.data {
            self.engine.release(self.now, buffer, &mut self.actions);
        }
    }

    fn event(&mut self, event: Event) {
        self.noted.push((self.now, event));
    }
}

impl Runs for Timed {
    fn proceed(&mut self) -> Option<Actions> {
        let goes_on = self.engine.wants_to_proceed() || !self.actions.list.is_empty();
        goes_on.then(|| {
            self.engine.proceed(self.now, &mut self.actions);
            std::mem::replace(&mut self.actions, std::mem::take(&mut self.spare))
        })
    }

    fn carried_out(&mut self, mut actions: Actions) {
        actions.clear();
        self.spare = actions;
    }
}

impl Timed {
    /// An engine in its mode, over primary storage and flash.
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn new(config: Config, san: ModelConfig, flash: ModelConfig) -> Result<Timed, ConfigError> {
        let san = Rc::new(RefCell::new(san.build(config.backend.size + journal_size(&config))));
        let flash = Rc::new(RefCell::new(flash.build(1 << 40)));
        Timed::over(config, Devices { san, flash }, Nanos(0))
    }

    /// Another disk of the same pool on the same primary storage. From now on the two have to go on together: step
    /// the one that has something to do before the other, see [`Timed::next`].
    ///
    /// # Errors
    /// The configuration cannot work.
    pub fn beside(&self, config: Config) -> Result<Timed, ConfigError> {
        Timed::over(config, self.devices.clone(), self.now)
    }

    fn over(config: Config, devices: Devices, now: Nanos) -> Result<Timed, ConfigError> {
        let segments = config.write_log.map_or(0, |log| log.segments_max);
        let mut timed = Timed {
            engine: Engine::new(config)?,
            now,
            answers: Vec::new(),
            done: Vec::new(),
            noted: Vec::new(),
            written: Written::default(),
            actions: Actions::default(),
            spare: Actions::default(),
            devices,
            events: Queue::default(),
            segments: Segments {
                free: (0..segments).map(SegmentId).rev().collect(),
                leased_ever: 0,
            },
            under_way: 0,
        };
        timed.engine.begin(timed.now, &mut timed.actions);
        timed.carry_out();
        while timed.engine.mode() != config.mode {
            assert!(timed.step(Nanos::NEVER), "the mode is reached");
        }
        timed.done.clear();
        timed.noted.clear();
        Ok(timed)
    }

    /// Requests that are not answered.
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Asks for something now.
    ///
    /// # Panics
    /// When the engine cannot take it: callers keep few requests under way, or [`Timed::offer`] them.
    pub fn submit(&mut self, tag: u64, ask: Ask, range: ByteRange) {
        self.offer(tag, ask, range).expect("few requests under way");
    }

    /// Asks for something now.
    ///
    /// # Errors
    /// The engine has no place or no memory for it before something else has ended.
    pub fn offer(&mut self, tag: u64, ask: Ask, range: ByteRange) -> Result<(), Busy> {
        let op = match ask {
            Ask::Read => Op::Read { no_admit: false },
            Ask::Flush => Op::Flush,
            Ask::CompareAndWrite => {
                let buffer = self.engine.compare_buffer(range).ok_or(Busy)?;
                Op::CompareAndWrite { buffer, fua: true }
            }
            Ask::Write(fua) => {
                let buffer = self.engine.write_buffer(range).ok_or(Busy)?;
                Op::Write { buffer, fua }
            }
        };
        let request = Request { tag: RequestTag(tag), range, op };
        let taken = self.engine.submit(self.now, request, &mut self.actions);
        if taken.is_ok() {
            self.under_way += 1;
        } else if let Some(buffer) = op.buffer() {
            self.engine.release(self.now, buffer, &mut self.actions);
        }
        self.carry_out();
        taken
    }

    /// Stops destaging, or lets it go on.
    pub fn pause_destaging(&mut self, pause: bool) {
        self.engine.pause_destaging(self.now, pause, &mut self.actions);
        self.carry_out();
    }

    /// Asks for another mode.
    ///
    /// # Panics
    /// The mode needs a log, and there is none.
    pub fn set_mode(&mut self, mode: Mode) {
        self.engine.set_mode(self.now, mode, &mut self.actions).expect("there is a log");
        self.carry_out();
    }

    /// Gives the disk another size of its RAM cache, whose memory is there at once.
    ///
    /// # Panics
    /// It has no room for that, or no RAM cache.
    pub fn resize_ram(&mut self, bytes: u64) {
        let missing = self.engine.resize_ram(self.now, bytes, &mut self.actions);
        if let Some(missing) = missing.expect("there is room") {
            self.engine.have_memory(missing.end);
        }
        self.carry_out();
    }

    /// Goes on with a flash cache of `bytes`, of flash that it has; false: not now, it is becoming smaller still.
    pub fn resize_flash(&mut self, bytes: u64) -> bool {
        let is_resized = self.engine.resize_flash(self.now, bytes, &mut self.actions).is_ok();
        self.carry_out();
        is_resized
    }

    /// When the next thing happens.
    pub fn next(&self) -> Nanos {
        self.events.next().min(self.engine.next_deadline())
    }

    /// Goes to the next thing that happens and lets it happen; false, with the time at `until`, when that is
    /// later.
    pub fn step(&mut self, until: Nanos) -> bool {
        let (event, deadline) = (self.events.next(), self.engine.next_deadline());
        if event.min(deadline) > until || event.min(deadline) == Nanos::NEVER {
            self.now = self.now.max(until);
            return false;
        }
        if deadline < event {
            self.now = self.now.max(deadline);
            self.engine.tick(self.now, &mut self.actions);
            self.carry_out();
            return true;
        }
        let (now, event) = self.events.pop().expect("looked at");
        self.now = now;
        match event {
            Due::Done(io, op, issued) => {
                let latency = now.since(issued);
                self.done.push(Done { target: io.target, op, range: io.range, latency });
                let pieces = io.range.len().checked_div(u64::from(io.checksum_piece)).unwrap_or(0);
                let checksums = &CHECKSUMS[..pieces as usize];
                self.engine.complete(now, io.id, IoStatus::Ok, checksums, &mut self.actions);
            }
            Due::Lease => {
                let Segments { free, leased_ever } = &mut self.segments;
                let ordinal = *leased_ever;
                *leased_ever += 1;
                let segment = free.pop().map(|id| (id, ordinal)).ok_or(NoLease::Now);
                self.engine.leased(now, segment, &mut self.actions);
            }
        }
        self.carry_out();
        true
    }

    fn carry_out(&mut self) {
        executor::run(self);
        self.engine.sent(self.now);
    }

    fn submit_io(&mut self, io: Io) {
        let op = match io.op {
            IoOp::Read { .. } => ModelOp::Read,
            IoOp::Write { .. } | IoOp::Progress { .. } => ModelOp::Write,
            IoOp::Flush => ModelOp::Flush,
            IoOp::Discard | IoOp::WriteZeroes { .. } | IoOp::Extents => ModelOp::Unmap,
        };
        self.count(&io);
        let device = match io.target {
            Target::Backend | Target::Journal => &self.devices.san,
            Target::Flash | Target::Log | Target::Ring => &self.devices.flash,
        };
        let range = match io.target {
            // Behind the disk.
            Target::Journal => {
                let size = self.engine.config().backend.size;
                ByteRange::at(size + io.range.start, io.range.len())
            }
            _ => io.range,
        };
        let at = device.borrow_mut().submit(self.now, op, range);
        self.events.plan(at, Due::Done(io, op, self.now));
    }

    fn count(&mut self, io: &Io) {
        let written = &mut self.written;
        match (io.op, io.target) {
            (IoOp::Progress { .. }, _) => written.notes += PAGE,
            (IoOp::Write { .. }, Target::Backend) => written.backend += io.range.len(),
            (IoOp::Write { .. }, Target::Flash) => written.cache += io.range.len(),
            (IoOp::Write { .. }, Target::Log) => written.log += io.range.len(),
            (IoOp::Write { .. }, Target::Ring) => written.ring += io.range.len(),
            (IoOp::Write { .. }, Target::Journal) => written.journal += io.range.len(),
            (
                IoOp::Read { .. }
                | IoOp::Flush
                | IoOp::Discard
                | IoOp::WriteZeroes { .. }
                | IoOp::Extents,
                _,
            ) => {}
        }
    }
}

/// Bytes of the destage journal, which is behind the disk.
fn journal_size(config: &Config) -> u64 {
    config.write_log.and_then(|log| log.journal).map_or(0, |journal| journal.shape.size())
}

/// A modelled flash device. A durable 4 KiB write takes 90 µs on average, from half to one and a
/// half times that. 32 of them together take 60 µs more.
pub fn flash() -> ModelConfig {
    ModelConfig {
        latency: Some(Nanos::from_micros(88)),
        bandwidth: Some(2_000_000_000),
        distribution: Distribution::Uniform,
        ..ModelConfig::default()
    }
}
