//! The loop of a replay: issue what is due, wait, count what has ended.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use forebay_backends::{Backend, BackendEvent, BackendIo, Context, TokenRange};
use forebay_core::action::{Extent, IoOp, Span};
use forebay_core::characteristics::Characteristics;
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::memory::Memory;
use super::outcome::{EndedBy, Outcome, Times};
use super::pacing::{Pacing, Turn};
use super::place::place;
use super::slices::Slices;
use super::verify::Verifier;
use super::{Asked, Pace, Progress, Settings, pattern};
use crate::characterise::{kind_of, named};
use crate::error::{Error, ErrorKind};
use crate::record::{Op, Record};

/// How often progress is reported.
const PROGRESS_NS: u64 = 100_000_000;
/// Requests that are issued before progress and the time are looked at again. A target that ends
/// them at once, such as memory, always has room for the next.
const BATCH: u32 = 256;
/// A request that is due sooner is waited for without sleeping: a sleep may end this much late.
const SPIN_NS: u64 = 60_000;
/// Numbers of I/Os that nothing goes beside are greater than this one, and those of requests less.
const ALONE: IoId = IoId(1 << 32);

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    op: Op,
    range: ByteRange,
    memory: Span,
    issued: Nanos,
    /// As [`Pacing`] knows it.
    key: (u64, u64),
}

/// A replay on its way.
pub(super) struct ReplayRun<'a> {
    pub(super) target: &'a mut dyn Backend,
    reactor: &'a mut Reactor,
    pub(super) settings: &'a Settings,
    clock: &'a dyn Fn() -> Nanos,
    arena: Arc<Arena>,
    arena_id: ArenaId,
    memory: Memory,
    events: Vec<BackendEvent>,
    completions: Vec<Completion>,
    /// By place; the place is the number of the I/O.
    flights: Vec<Option<Flight>>,
    vacant: Vec<u32>,
    start: Nanos,
    issued: u64,
    ended: u64,
    /// The last I/O that nothing goes beside. One before may end yet, and nobody waits for it.
    alone_id: IoId,
    /// How it ended, and the extents that it told.
    alone: Option<(IoStatus, Vec<Extent>)>,
    last_end: Nanos,
    write_data: Vec<u8>,
    reads: Times,
    writes: Times,
    lag: Times,
    slices: Slices,
    characteristics: Characteristics,
    pacing: Pacing,
    pub(super) verifier: Option<Verifier>,
    /// The trace has not begun, or is over: not part of the figures.
    is_beside: bool,
    outcome: Outcome,
}

impl<'a> ReplayRun<'a> {
    /// Attaches the target.
    pub(super) fn new(
        target: &'a mut dyn Backend,
        reactor: &'a mut Reactor,
        settings: &'a Settings,
        clock: &'a dyn Fn() -> Nanos,
    ) -> Result<ReplayRun<'a>, Error> {
        let memory_len = settings.memory_bytes / PAGE * PAGE;
        let arena = Arena::new(memory_len as usize);
        let arena = Arc::new(arena.map_err(|e| Error::io("memory for the replay", e))?);
        let arena_id = reactor
            .add_arena(Arc::clone(&arena))
            .map_err(|e| Error::io("memory for the replay", e))?;
        let mut events = Vec::new();
        let mut context = Context { now: clock(), reactor, events: &mut events };
        target
            .attach(&mut context, TokenRange { base: 1 << 40 })
            .map_err(|e| Error::io("attach the target", e))?;
        let places = match settings.pace {
            Pace::Clock { .. } | Pace::Dependent { .. } => settings.in_flight_max,
            Pace::Closed { queue_depth } => queue_depth,
        };
        let start = clock();
        Ok(ReplayRun {
            target,
            reactor,
            settings,
            clock,
            arena,
            arena_id,
            memory: Memory::new(memory_len),
            events,
            completions: Vec::new(),
            flights: vec![None; places as usize],
            vacant: (0..places).rev().collect(),
            start,
            issued: 0,
            ended: 0,
            alone_id: ALONE,
            alone: None,
            last_end: start,
            write_data: Vec::new(),
            reads: Times::new(),
            writes: Times::new(),
            lag: Times::new(),
            slices: Slices::new(),
            characteristics: Characteristics::default(),
            pacing: Pacing::new(settings.pace, start),
            verifier: settings.verify.then(|| Verifier::new(settings.seed)),
            is_beside: false,
            outcome: Outcome::default(),
        })
    }

    /// Replays everything and lets the target go.
    pub(super) fn finish(
        mut self,
        records: impl Iterator<Item = Result<Record, Error>>,
        asked: &Asked<'_>,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Outcome, Error> {
        let mut result = self.prepare(asked, progress);
        if result.is_ok() && self.outcome.ended_by != EndedBy::Interrupt {
            result = self.replay(records, progress);
        }
        if self.in_flight() == 0 {
            let mut context =
                Context { now: (self.clock)(), reactor: self.reactor, events: &mut self.events };
            self.target.detach(&mut context);
        }
        self.reactor.remove_arena(self.arena_id);
        result.map(|()| self.outcome)
    }

    fn replay(
        &mut self,
        mut records: impl Iterator<Item = Result<Record, Error>>,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut next = records.next().transpose()?;
        self.start = (self.clock)();
        self.pacing = Pacing::new(self.settings.pace, self.start);
        let mut told = self.start;
        loop {
            let now = (self.clock)();
            let elapsed = now.since(self.start).0;
            if self.settings.duration_ns.is_some_and(|most| elapsed >= most) && next.is_some() {
                next = None;
                self.outcome.ended_by = EndedBy::Duration;
            }
            let mut due = None;
            let mut batch = 0..BATCH;
            while let Some(record) = next {
                if batch.next().is_none() {
                    due = Some(now);
                    break;
                }
                let turn = self.pacing.turn(&record);
                if let Turn::At(at) = turn
                    && at > now
                {
                    due = Some(at);
                    break;
                }
                // Without room, too, only an end helps.
                if turn == Turn::AfterAnEnd || !self.issue(&record, turn)? {
                    break;
                }
                // Memory ends a request at once: its latency is not to hold the next ones.
                self.count_events();
                next = records.next().transpose()?;
            }
            if now.since(told).0 >= PROGRESS_NS {
                told = now;
                if progress(&self.progress(now)).is_break() && next.take().is_some() {
                    self.outcome.ended_by = EndedBy::Interrupt;
                }
            }
            if next.is_none() && self.in_flight() == 0 {
                break;
            }
            self.wait(now, due.filter(|_| next.is_some()))?;
        }
        self.conclude();
        let _ = progress(&self.progress((self.clock)()));
        self.make_durable()?;
        self.read_back(progress)
    }

    /// Issues a request; false when there is no room for it now.
    fn issue(&mut self, record: &Record, turn: Turn) -> Result<bool, Error> {
        let properties = self.target.properties();
        let Some(place) = place(record, properties.size, properties.logical_block.into()) else {
            self.outcome.too_long += 1;
            return Ok(true);
        };
        let Some(&flight) = self.vacant.last() else { return Ok(false) };
        let Some(memory) = self.memory.take(place.range.len()) else { return Ok(false) };
        let key = self.pacing.issued(self.issued, record)?;
        self.vacant.pop();
        let (number, range) = (self.issued, place.range);
        let op = match record.op {
            Op::Read => IoOp::Read { memory },
            Op::Write => {
                let ReplayRun { settings, write_data, arena, .. } = self;
                pattern::fill(settings.seed, number + 1, range.start, range.len(), write_data);
                arena.write_at(memory.offset, write_data);
                IoOp::Write { memory, durable: false }
            }
        };
        // Filling takes time that is not the target's.
        let issued = (self.clock)();
        if let Turn::At(due) = turn {
            self.lag.record(issued.since(due).0);
        }
        self.characteristics.on_request(issued, kind_of(record.op), range, true);
        self.begin(flight, Flight { number, op: record.op, range, memory, issued, key }, op);
        self.issued += 1;
        self.outcome.wrapped += u64::from(place.wrapped);
        self.outcome.widened += u64::from(place.widened);
        self.outcome.trace_time_ns = self.outcome.trace_time_ns.max(record.time_ns);
        self.outcome.in_flight_max = self.outcome.in_flight_max.max(self.in_flight());
        Ok(true)
    }

    /// Reads or writes a piece beside the figures, unless there is no room for it now.
    pub(super) fn beside(&mut self, op: Op, range: ByteRange) -> bool {
        let Some(&flight) = self.vacant.last() else { return false };
        let Some(memory) = self.memory.take(range.len()) else { return false };
        self.vacant.pop();
        self.is_beside = true;
        let io = match op {
            Op::Read => IoOp::Read { memory },
            Op::Write => {
                let ReplayRun { settings, write_data, arena, .. } = self;
                pattern::fill(!settings.seed, 0, range.start, range.len(), write_data);
                arena.write_at(memory.offset, write_data);
                IoOp::Write { memory, durable: false }
            }
        };
        let (issued, number) = ((self.clock)(), self.issued);
        let of = Flight { number, op, range, memory, issued, key: (0, number) };
        self.begin(flight, of, io);
        self.count_events();
        true
    }

    /// The following requests are part of the figures.
    pub(super) fn is_measured_from_now_on(&mut self) {
        self.is_beside = false;
    }

    /// The request in the place `flight`, which is no more vacant, begins.
    fn begin(&mut self, flight: u32, of: Flight, op: IoOp) {
        self.flights[flight as usize] = Some(of);
        if let Some(verifier) = &mut self.verifier {
            match of.op {
                Op::Read => verifier.read_began(flight, of.range),
                Op::Write => verifier.write_began(flight, of.range, of.number + 1),
            }
        }
        self.submit(IoId(flight.into()), of.range, op);
    }

    fn submit(&mut self, id: IoId, range: ByteRange, op: IoOp) {
        let io = BackendIo { id, range, op, arena: self.arena_id };
        let now = (self.clock)();
        if self.in_flight() == 1 {
            self.last_end = now;
        }
        let mut context = Context { now, reactor: self.reactor, events: &mut self.events };
        self.target.submit(&mut context, io);
    }

    /// An I/O that nothing goes beside, to its end; `None`: the target did not end it in time.
    pub(super) fn alone(
        &mut self,
        range: ByteRange,
        op: IoOp,
    ) -> Result<Option<(IoStatus, Vec<Extent>)>, Error> {
        self.last_end = (self.clock)();
        self.alone_id.0 += 1;
        // The one before may have been answered since it was given up.
        self.alone = None;
        self.submit(self.alone_id, range, op);
        loop {
            self.count_events();
            if let Some(end) = self.alone.take() {
                return Ok(Some(end));
            }
            let now = (self.clock)();
            if now.since(self.last_end).0 > self.settings.stall_ns_max {
                return Ok(None);
            }
            self.wait(now, None)?;
        }
    }

    fn end_alone(&mut self, id: IoId, status: IoStatus, extents: Vec<Extent>) {
        if id == self.alone_id {
            self.alone = Some((status, extents));
        }
    }

    pub(super) fn in_flight(&self) -> u32 {
        (self.flights.len() - self.vacant.len()) as u32
    }

    pub(super) fn outcome(&mut self) -> &mut Outcome {
        &mut self.outcome
    }

    /// Waits until something ends.
    pub(super) fn wait_for_an_end(&mut self) -> Result<(), Error> {
        self.wait((self.clock)(), None)
    }

    /// Waits until something ends, the next request is due, or progress is to be told.
    fn wait(&mut self, now: Nanos, due: Option<Nanos>) -> Result<(), Error> {
        if self.in_flight() > 0 && now.since(self.last_end).0 > self.settings.stall_ns_max {
            let message = format!(
                "the target has ended none of {} requests for {} s: {}",
                self.in_flight(),
                self.settings.stall_ns_max / 1_000_000_000,
                self.target.trouble().unwrap_or("it does not say why")
            );
            return Err(Error::new(ErrorKind::Target, message));
        }
        let mut timeout = PROGRESS_NS;
        if let Some(due) = due {
            let left = due.since(now).0;
            timeout = timeout.min(if left < SPIN_NS { 0 } else { left - SPIN_NS / 2 });
        }
        timeout = timeout.min(self.target.next_deadline().since(now).0);
        if !self.events.is_empty() {
            timeout = 0;
        }
        self.completions.clear();
        self.reactor
            .wait(Some(Duration::from_nanos(timeout)), &mut self.completions)
            .map_err(|e| Error::io("wait for the target", e))?;
        let now = (self.clock)();
        let woken = self.completions.is_empty() || self.target.next_deadline() <= now;
        let mut context = Context { now, reactor: self.reactor, events: &mut self.events };
        for completion in self.completions.drain(..) {
            self.target.on_completion(&mut context, completion);
        }
        if woken {
            self.target.on_wake(&mut context);
        }
        self.count_events();
        Ok(())
    }

    fn count_events(&mut self) {
        if self.events.is_empty() {
            return;
        }
        let now = (self.clock)();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                BackendEvent::Done { id, status } if id < ALONE => self.count(id, status, now),
                BackendEvent::Done { id, status } => self.end_alone(id, status, Vec::new()),
                BackendEvent::Extents { id, extents } => {
                    self.end_alone(id, IoStatus::Ok, extents);
                }
                // What it means for requests, their ends say.
                BackendEvent::SessionLost => self.outcome.sessions_lost += 1,
                BackendEvent::SessionRestored => {}
            }
        }
        self.events = events;
    }

    fn count(&mut self, id: IoId, status: IoStatus, now: Nanos) {
        let flight = self.flights[id.0 as usize].take().expect("the request is on its way");
        self.verify(id.0 as u32, &flight, status);
        self.vacant.push(id.0 as u32);
        self.memory.give(flight.memory);
        self.last_end = now;
        if !status.is_ok() {
            self.outcome.errors += 1;
            self.outcome.first_error.get_or_insert_with(|| {
                let Flight { number, op, range, .. } = flight;
                let at = range.start;
                format!("request {number}: {op:?} of {} bytes at {at}: {status:?}", range.len())
            });
        }
        if self.is_beside {
            return;
        }
        self.ended += 1;
        self.pacing.ended(flight.key, now);
        let latency = now.since(flight.issued);
        self.characteristics.on_answer(kind_of(flight.op), latency);
        if !status.is_ok() {
            return;
        }
        let (times, bytes) = match flight.op {
            Op::Read => (&mut self.reads, &mut self.outcome.read_bytes),
            Op::Write => (&mut self.writes, &mut self.outcome.written_bytes),
        };
        times.record(latency.0);
        *bytes += flight.range.len();
        let at = flight.issued.since(self.start).0;
        self.slices.add(at, flight.op, flight.range.len(), latency.0);
    }

    fn verify(&mut self, place: u32, flight: &Flight, status: IoStatus) {
        let Some(verifier) = &mut self.verifier else { return };
        let Span { offset, len } = flight.memory;
        let number = Some(flight.number).filter(|_| !self.is_beside);
        match (flight.op, status.is_ok()) {
            (Op::Write, is_done) => verifier.write_ended(place, is_done),
            (Op::Read, false) => verifier.read_ended(place, number, None),
            (Op::Read, true) => self.arena.look(offset, len, |bytes| {
                verifier.read_ended(place, number, Some(bytes));
            }),
        }
    }

    fn progress(&self, now: Nanos) -> Progress {
        Progress {
            elapsed_ns: now.since(self.start).0,
            issued: self.issued,
            ended: self.ended,
            trace_time_ns: self.outcome.trace_time_ns,
            prefilling: None,
            reading_back: None,
        }
    }

    fn conclude(&mut self) {
        let elapsed = self.last_end.since(self.start).0;
        let outcome = &mut self.outcome;
        outcome.elapsed_ns = elapsed;
        outcome.iops = if elapsed == 0 { 0.0 } else { self.ended as f64 * 1e9 / elapsed as f64 };
        outcome.reads = self.reads.latency();
        outcome.writes = self.writes.latency();
        outcome.lag = self.lag.latency();
        outcome.slice_ns = self.slices.width_ns();
        outcome.slices = self.slices.told();
        outcome.read_cdf = self.reads.cdf();
        outcome.write_cdf = self.writes.cdf();
        outcome.histograms = named(&self.characteristics);
    }

    /// Tells that so many of so many bytes were written beforehand.
    pub(super) fn progress_of_prefilling(&self, done: u64, all: u64) -> Progress {
        Progress { prefilling: Some((done, all)), ..self.progress((self.clock)()) }
    }

    /// Tells that so many of so many bytes were looked at again.
    pub(super) fn progress_of_reading_back(&self, done: u64, all: u64) -> Progress {
        Progress { reading_back: Some((done, all)), ..self.progress((self.clock)()) }
    }
}
