//! The loop of a replay: issue what is due, wait, count what has ended.

use std::sync::Arc;
use std::time::Duration;

use forebay_backends::{Backend, BackendEvent, BackendIo, Context, TokenRange};
use forebay_core::action::{IoOp, Span};
use forebay_core::geometry::{ByteRange, PAGE};
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, Completion, Reactor};

use super::memory::Memory;
use super::outcome::{Outcome, Times};
use super::place::place;
use super::{Pace, Progress, Settings, data};
use crate::error::{Error, ErrorKind};
use crate::record::{Op, Record};

/// How often progress is told.
const PROGRESS_NS: u64 = 100_000_000;
/// A request that is due sooner is waited for without sleeping: a sleep may end this much late.
const SPIN_NS: u64 = 60_000;
/// Number of the flush at the end; requests have lower ones.
const FLUSH: IoId = IoId(u64::MAX);

/// A request on its way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    number: u64,
    op: Op,
    range: ByteRange,
    memory: Span,
    issued: Nanos,
}

/// A replay on its way.
pub(super) struct Run<'a> {
    target: &'a mut dyn Backend,
    reactor: &'a mut Reactor,
    settings: &'a Settings,
    clock: &'a dyn Fn() -> Nanos,
    arena: Arc<Arena>,
    arena_id: ArenaId,
    memory: Memory,
    events: Vec<BackendEvent>,
    completions: Vec<Completion>,
    /// By place; the place is the number of the I/O.
    flights: Vec<Option<Flight>>,
    vacant: Vec<u32>,
    issued: u64,
    ended: u64,
    flushed: Option<IoStatus>,
    last_end: Nanos,
    write_data: Vec<u8>,
    reads: Times,
    writes: Times,
    lag: Times,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    /// Attaches the target.
    pub(super) fn new(
        target: &'a mut dyn Backend,
        reactor: &'a mut Reactor,
        settings: &'a Settings,
        clock: &'a dyn Fn() -> Nanos,
    ) -> Result<Run<'a>, Error> {
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
            Pace::Clock { .. } => settings.in_flight_max,
            Pace::Closed { queue_depth } => queue_depth,
        };
        Ok(Run {
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
            issued: 0,
            ended: 0,
            flushed: None,
            last_end: clock(),
            write_data: Vec::new(),
            reads: Times::new(),
            writes: Times::new(),
            lag: Times::new(),
            outcome: Outcome::empty(),
        })
    }

    /// Replays everything and lets the target go.
    pub(super) fn finish(
        mut self,
        records: impl Iterator<Item = Result<Record, Error>>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Outcome, Error> {
        let result = self.replay(records, progress);
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
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(), Error> {
        let start = (self.clock)();
        let mut told = start;
        let mut next = records.next().transpose()?;
        loop {
            let now = (self.clock)();
            let is_over = self.settings.duration_ns.is_some_and(|most| now.since(start).0 >= most);
            if is_over && next.take().is_some() {
                self.outcome.is_cut_short = true;
            }
            let mut found_no_room_after = None;
            while let Some(record) = next {
                let due = self.due(start, &record);
                if due.is_some_and(|due| due > now) {
                    break;
                }
                if !self.issue(&record, due) {
                    found_no_room_after = Some(self.ended);
                    break;
                }
                // Memory ends a request at once: its latency is not to hold the next ones.
                self.count_events();
                next = records.next().transpose()?;
            }
            if now.since(told).0 >= PROGRESS_NS {
                told = now;
                progress(&self.progress(start, now));
            }
            if next.is_none() && self.in_flight() == 0 {
                break;
            }
            // Without room only an end helps; one that came at once, from memory, has helped already.
            let may_issue = found_no_room_after != Some(self.ended);
            let due = next.filter(|_| may_issue);
            let due = due.map(|record| self.due(start, &record).unwrap_or(now));
            self.wait(now, due)?;
        }
        self.conclude(start);
        progress(&self.progress(start, (self.clock)()));
        self.flush()
    }

    /// When a record is to be issued; `None`: as soon as there is room.
    fn due(&self, start: Nanos, record: &Record) -> Option<Nanos> {
        match self.settings.pace {
            // Saturates for absurd times and speeds.
            Pace::Clock { speed } => {
                Some(start.plus(Nanos((record.time_ns as f64 / speed) as u64)))
            }
            Pace::Closed { .. } => None,
        }
    }

    /// Issues a request; false when there is no room for it now.
    fn issue(&mut self, record: &Record, due: Option<Nanos>) -> bool {
        let properties = self.target.properties();
        let Some(place) = place(record, properties.size, properties.logical_block.into()) else {
            self.outcome.too_long += 1;
            return true;
        };
        let Some(&flight) = self.vacant.last() else { return false };
        let Some(memory) = self.memory.take(place.range.len()) else { return false };
        self.vacant.pop();
        let (number, range) = (self.issued, place.range);
        let op = match record.op {
            Op::Read => IoOp::Read { memory },
            Op::Write => {
                let Run { settings, write_data, arena, .. } = self;
                data::fill(settings.seed, number, range.start, range.len(), write_data);
                arena.write_at(memory.offset, write_data);
                IoOp::Write { memory, durable: false }
            }
        };
        // Filling takes time that is not the target's.
        let issued = (self.clock)();
        if let Some(due) = due {
            self.lag.record(issued.since(due).0);
        }
        self.flights[flight as usize] =
            Some(Flight { number, op: record.op, range, memory, issued });
        self.issued += 1;
        self.outcome.wrapped += u64::from(place.wrapped);
        self.outcome.widened += u64::from(place.widened);
        self.outcome.trace_time_ns = self.outcome.trace_time_ns.max(record.time_ns);
        self.outcome.in_flight_max = self.outcome.in_flight_max.max(self.in_flight());
        self.submit(IoId(flight.into()), range, op);
        true
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

    fn in_flight(&self) -> u32 {
        (self.flights.len() - self.vacant.len()) as u32
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
                BackendEvent::Done { id: FLUSH, status } => self.flushed = Some(status),
                BackendEvent::Done { id, status } => self.count(id, status, now),
                // Extents are not asked for. What a lost session means for requests, their ends say.
                BackendEvent::Extents { .. }
                | BackendEvent::SessionLost
                | BackendEvent::SessionRestored => {}
            }
        }
        self.events = events;
    }

    fn count(&mut self, id: IoId, status: IoStatus, now: Nanos) {
        let flight = self.flights[id.0 as usize].take().expect("the request is on its way");
        self.vacant.push(id.0 as u32);
        self.memory.give(flight.memory);
        self.ended += 1;
        self.last_end = now;
        if !status.is_ok() {
            self.outcome.errors += 1;
            self.outcome.first_error.get_or_insert_with(|| {
                let Flight { number, op, range, .. } = flight;
                let at = range.start;
                format!("request {number}: {op:?} of {} bytes at {at}: {status:?}", range.len())
            });
            return;
        }
        let (times, bytes) = match flight.op {
            Op::Read => (&mut self.reads, &mut self.outcome.read_bytes),
            Op::Write => (&mut self.writes, &mut self.outcome.written_bytes),
        };
        times.record(now.since(flight.issued).0);
        *bytes += flight.range.len();
    }

    fn progress(&self, start: Nanos, now: Nanos) -> Progress {
        Progress {
            elapsed_ns: now.since(start).0,
            issued: self.issued,
            ended: self.ended,
            trace_time_ns: self.outcome.trace_time_ns,
        }
    }

    fn conclude(&mut self, start: Nanos) {
        let elapsed = self.last_end.since(start).0;
        self.outcome.elapsed_ns = elapsed;
        self.outcome.iops =
            if elapsed == 0 { 0.0 } else { self.ended as f64 * 1e9 / elapsed as f64 };
        self.outcome.reads = self.reads.latency();
        self.outcome.writes = self.writes.latency();
        self.outcome.lag = self.lag.latency();
    }

    /// Makes what was written durable, so that nothing is left undone; not part of the figures.
    fn flush(&mut self) -> Result<(), Error> {
        if self.outcome.written_bytes == 0 {
            return Ok(());
        }
        self.last_end = (self.clock)();
        self.submit(FLUSH, ByteRange::at(0, 0), IoOp::Flush);
        loop {
            self.count_events();
            let now = (self.clock)();
            match self.flushed {
                Some(status) if status.is_ok() => return Ok(()),
                Some(status) => {
                    let message = format!("the target failed the flush at the end: {status:?}");
                    return Err(Error::new(ErrorKind::Target, message));
                }
                None if now.since(self.last_end).0 > self.settings.stall_ns_max => {
                    let message = "the target does not end the flush at the end";
                    return Err(Error::new(ErrorKind::Target, message));
                }
                None => self.wait(now, None)?,
            }
        }
    }
}
