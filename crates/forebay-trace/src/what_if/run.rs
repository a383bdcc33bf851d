//! The engine's run: requests go to it when they come, what it tells is added up.

use forebay_core::action::Event;
use forebay_core::config::Config;
use forebay_core::geometry::{ByteRange, PAGE, REQUEST_MAX};
use forebay_core::ids::Nanos;
use forebay_core::stats::Statistics;
use forebay_timed::{Ask, Timed, Written};

use super::arrivals::Arrivals;
use super::outcome::{Answers, Latencies, cache_bytes, reads_answered};
use super::room::RoomWaits;
use super::slices::Parts;
use super::{Pacing, Settings, Survey, refused};
use crate::error::Error;
use crate::record::{Op, Record};

/// No simulation lasts longer than a hundred years, of the five that the clock has.
const TIME_MAX: Nanos = Nanos(100 * 365 * 24 * 3600 * 1_000_000_000);

/// What came of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// Latencies.
    pub answers: Answers,
    /// What the engine counted.
    pub statistics: Statistics,
    /// The writes of devices, counted beside the engine.
    pub written: Written,
    /// The log's fill over time.
    pub filled: Filled,
    /// Requests that took longer than primary storage is given, not for lack of room in the log.
    pub late: u64,
    /// The time of requests, part by part.
    pub parts: Parts,
    /// From the start to the last answer.
    pub duration: Nanos,
    /// From then until primary storage had everything.
    pub drained: Nanos,
}

/// How full the log was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    /// Bytes of the log that were taken at most.
    pub occupied_max: u64,
    /// Bytes that were dirty at most.
    pub dirty_max: u64,
    /// Time in which something was dirty.
    pub dirty_ns: u64,
    /// Time in which writers were slowed.
    pub throttled_ns: u64,
    /// Times that it was full.
    pub times_full: u64,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Asked {
    came: Nanos,
    op: Op,
    /// Of the trace.
    part: u32,
    /// Pieces of it that are not answered.
    pieces: u32,
    /// The log's waits until it came.
    waited_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct WhatIfRun<'a> {
    timed: Timed,
    survey: &'a Survey,
    arrivals: Arrivals,
    /// The time of each request besides its I/Os.
    request: Nanos,
    /// What takes longer is late.
    patience: Nanos,
    durable_writes: bool,
    /// Requests of the trace that have come.
    came: u64,
    asked: Vec<Asked>,
    /// Places in `asked` that are free.
    free: Vec<u32>,
    latencies: Latencies,
    filled: Filled,
    parts: Parts,
    /// When the engine was looked at last, and whether something was dirty then.
    looked: (Nanos, bool),
    room: RoomWaits,
    late: u64,
    started_at: Nanos,
    answered_at: Nanos,
}

impl<'a> WhatIfRun<'a> {
    /// An engine that nothing was asked of.
    ///
    /// # Errors
    /// The configuration is refused.
    pub fn new(
        config: Config,
        survey: &'a Survey,
        settings: &Settings,
        pacing: Pacing,
    ) -> Result<WhatIfRun<'a>, Error> {
        let models = &settings.models;
        let timed = Timed::new(config, models.storage, models.flash).map_err(refused)?;
        Ok(WhatIfRun {
            started_at: timed.now,
            answered_at: timed.now,
            looked: (timed.now, false),
            survey,
            arrivals: Arrivals::new(pacing, timed.now),
            request: models.request,
            patience: config.backend_timeout,
            durable_writes: settings.durable_writes,
            came: 0,
            asked: Vec::new(),
            free: Vec::new(),
            latencies: Latencies::default(),
            filled: Filled::default(),
            parts: Parts::new(survey.requests()),
            room: RoomWaits::default(),
            late: 0,
            timed,
        })
    }

    /// Asks all of a trace, and waits until all is answered and destaged.
    ///
    /// # Errors
    /// The trace's own, or it takes longer than [`TIME_MAX`].
    pub fn run(
        mut self,
        records: impl Iterator<Item = Result<Record, Error>>,
    ) -> Result<Ran, Error> {
        for record in records {
            let record = record?;
            self.came += 1;
            let came = self.wait_for(&record)?;
            self.arrivals.came(came);
            self.ask(&record, came)?;
        }
        while self.timed.under_way() > 0 || !self.timed.engine.log_is_clean() {
            self.go_on()?;
        }
        self.filled.throttled_ns = self.room.until(self.timed.now);
        Ok(Ran {
            answers: self.latencies.answers(),
            statistics: self.timed.engine.statistics(self.timed.now),
            written: self.timed.written,
            filled: self.filled,
            late: self.late,
            parts: self.parts,
            duration: self.answered_at.since(self.started_at),
            drained: self.timed.now.since(self.answered_at),
        })
    }

    /// Lets time pass until this request, the next one, comes; returns when that was, which is in the past for one that found no
    /// room.
    fn wait_for(&mut self, record: &Record) -> Result<Nanos, Error> {
        loop {
            let at = self.arrivals.next(record);
            if at <= self.timed.now {
                return Ok(at);
            }
            match at {
                Nanos::NEVER => self.go_on()?,
                at if at > TIME_MAX => return Err(self.out_of_time()),
                at => {
                    self.timed.step(at);
                    self.look();
                }
            }
        }
    }

    fn ask(&mut self, record: &Record, came: Nanos) -> Result<(), Error> {
        let range = self.survey.place(record)?;
        let pieces = range.len().div_ceil(REQUEST_MAX) as u32;
        if self.parts.next(came.since(self.started_at)) {
            let statistics = self.timed.engine.statistics(self.timed.now);
            let number = self.parts.number();
            let part = self.parts.at(number);
            part.answered = reads_answered(&statistics.counters);
            part.cached = cache_bytes(&self.timed.written);
        }
        let (part, waited_ns) = (self.parts.number(), self.room.until_arrival(came));
        let asked = Asked { came, op: record.op, part, pieces, waited_ns };
        let tag = match self.free.pop() {
            Some(place) => {
                self.asked[place as usize] = asked;
                place
            }
            None => {
                self.asked.push(asked);
                self.asked.len() as u32 - 1
            }
        };
        let ask = match record.op {
            Op::Read => Ask::Read,
            Op::Write => Ask::Write(self.durable_writes),
        };
        let mut rest = range;
        while !rest.is_empty() {
            let piece = ByteRange::at(rest.start, rest.len().min(REQUEST_MAX));
            while self.timed.offer(tag.into(), ask, piece).is_err() {
                self.go_on()?;
            }
            rest.start = piece.end;
            self.look();
        }
        Ok(())
    }

    /// The next thing that happens, which there is while something is under way.
    fn go_on(&mut self) -> Result<(), Error> {
        if !self.timed.step(TIME_MAX) {
            return Err(self.out_of_time());
        }
        self.look();
        Ok(())
    }

    fn out_of_time(&self) -> Error {
        refused(format_args!(
            "request {} of the trace comes, or waits, more than a hundred years after the first: look at the trace's times (--time-unit), \
             simulate so many requests at a time (--queue-depth N), or devices that are faster",
            self.came
        ))
    }

    /// Takes note of what has just happened.
    fn look(&mut self) {
        let now = self.timed.now;
        self.timed.done.clear();
        for answer in self.timed.answers.drain(..) {
            let place = answer.tag.0 as u32;
            let asked = &mut self.asked[place as usize];
            asked.pieces -= 1;
            if asked.pieces == 0 {
                let over = now.plus(self.request);
                let took = over.since(asked.came);
                // Wherever it waited: in front of an engine that had no place for it, too.
                let waited_ns = self.room.until(now) - asked.waited_ns;
                self.late += u64::from(took.0.saturating_sub(waited_ns) > self.patience.0);
                self.latencies.of(asked.op).record(took, 1);
                self.parts.at(asked.part).add(asked.op, took);
                self.arrivals.ended(over);
                self.answered_at = over;
                self.free.push(place);
            }
        }
        for (at, event) in self.timed.noted.drain(..) {
            if matches!(event, Event::LogThrottles | Event::LogFull) {
                self.room.begin(at);
                self.filled.times_full += u64::from(event == Event::LogFull);
            } else if event == Event::LogHasRoom {
                self.room.end(at);
            }
        }
        let dirty = self.timed.engine.dirty_bytes();
        let (then, was_dirty) = self.looked;
        if was_dirty {
            self.filled.dirty_ns += now.since(then).0;
        }
        self.looked = (now, dirty > 0);
        if dirty > 0 {
            let log = self.timed.engine.log_statistics(now);
            let occupied = log.map_or(0, |log| log.occupied_bytes);
            self.filled.occupied_max = self.filled.occupied_max.max(occupied);
        }
        self.filled.dirty_max = self.filled.dirty_max.max(dirty);
        if let Some(part) = self.parts.last() {
            part.dirty_max = part.dirty_max.max(dirty);
        }
    }
}

/// Bytes of a write log of this configuration.
pub(super) fn log_bytes(config: &Config) -> u64 {
    config
        .write_log
        .map_or(0, |log| u64::from(log.segment_pages) * u64::from(log.segments_max) * PAGE)
}
