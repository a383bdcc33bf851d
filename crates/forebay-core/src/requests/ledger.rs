//! What is kept of requests beyond their end: latencies, what the disk is asked, the last failure.
//!
//! A latency counts up to the moment that a reply is sent, so replies handed out wait here until
//! [`Ledger::sent`].

use std::collections::VecDeque;

use super::in_flight::{InFlight, Job};
use crate::action::Source;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::observer::Observer;
use crate::request::{Op, Request};
use crate::stats::{
    FailedRequest, Latencies, Latency, RequestOp, SlowRequest, TimeStatistics, Waited,
};
use crate::status::IoStatus;

/// A slow request is kept for each.
const MINUTE: Nanos = Nanos::from_millis(60_000);
/// So many of them.
const MINUTES_MAX: usize = 60;

/// What a latency is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyOf {
    Read(Source),
    Write,
    CompareAndWrite,
    /// A discard, or a write of zeroes.
    Zero,
    Flush,
}

#[derive(Clone, Copy, Debug)]
struct Answered {
    submitted: Nanos,
    of: LatencyOf,
    /// Replies in a row that are alike: those of one batch of hits.
    count: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub observer: Observer,
    pub latencies: Latencies,
    /// Replies handed out since `sent`, whose latency is not counted yet.
    answered: Vec<Answered>,
    /// What reads, writes and flushes waited for that were in flight.
    waited: [Waited; 3],
    /// The same of those whose latency is not counted yet.
    unsent: Option<[Waited; 3]>,
    slowest: Slowest,
    /// The last request that was answered with an error.
    last_failed: Option<FailedRequest>,
}

/// The slowest request of each minute that had one in flight, oldest first.
#[derive(Debug)]
struct Slowest {
    minutes: VecDeque<Slow>,
}

#[derive(Clone, Copy, Debug)]
struct Slow {
    operation: RequestOp,
    range: ByteRange,
    answered: Nanos,
    latency: Nanos,
    waited: Waited,
}

impl Slowest {
    /// A request was answered `now`.
    fn note(&mut self, request: &InFlight, now: Nanos) {
        let latency = now.since(request.seen.submitted);
        let minute = |time: Nanos| time.0 / MINUTE.0;
        let last = self.minutes.back().filter(|last| minute(last.answered) == minute(now));
        let is_new = last.is_none();
        if last.is_some_and(|last| last.latency >= latency) {
            return;
        }
        let slow = Slow {
            operation: operation(&request.job),
            range: request.range,
            answered: now,
            latency,
            waited: request.waited,
        };
        if !is_new {
            self.minutes.pop_back();
        } else if self.minutes.len() == MINUTES_MAX {
            self.minutes.pop_front();
        }
        self.minutes.push_back(slow);
    }

    /// Newest first; those of the last hour.
    fn shown(&self, now: Nanos) -> Vec<SlowRequest> {
        let hour = MINUTE.0 * MINUTES_MAX as u64;
        let recent = self.minutes.iter().rev().filter(|slow| now.since(slow.answered).0 < hour);
        let shown = recent.map(|slow| SlowRequest {
            operation: slow.operation,
            offset: slow.range.start,
            length: slow.range.len(),
            ago_ns: now.since(slow.answered).0,
            time: slow.waited.of(slow.latency.0),
        });
        shown.collect()
    }
}

fn operation(job: &Job) -> RequestOp {
    match job {
        Job::Read(_) => RequestOp::Read,
        Job::Write(_) => RequestOp::Write,
        Job::Zero(_) => RequestOp::Zero,
        Job::Flush => RequestOp::Flush,
        Job::Allocation(_) => RequestOp::Allocation,
    }
}

impl Ledger {
    pub(crate) fn new(observer: Observer) -> Ledger {
        let latencies = Latencies::default();
        Ledger {
            observer,
            latencies,
            answered: Vec::with_capacity(4096),
            waited: [Waited::default(); 3],
            unsent: None,
            slowest: Slowest { minutes: VecDeque::with_capacity(MINUTES_MAX) },
            last_failed: None,
        }
    }

    pub(crate) fn last_failed(&self) -> Option<FailedRequest> {
        self.last_failed.clone()
    }

    /// Counts a good reply's latency at the next [`Ledger::sent`].
    #[inline]
    pub(crate) fn note_answered(&mut self, submitted: Nanos, of: LatencyOf) {
        match self.answered.last_mut() {
            Some(last) if last.submitted == submitted && last.of == of => last.count += 1,
            _ => self.answered.push(Answered { submitted, of, count: 1 }),
        }
    }

    /// A request in flight is answered well `now`: what it waited for.
    pub(crate) fn note_waited(&mut self, request: &InFlight, of: LatencyOf, now: Nanos) {
        let kind = match of {
            LatencyOf::Read(_) => 0,
            LatencyOf::Write => 1,
            LatencyOf::Flush => 2,
            // Their times differ so much from a write's that a sum of both says nothing.
            LatencyOf::CompareAndWrite | LatencyOf::Zero => {
                return self.slowest.note(request, now);
            }
        };
        self.unsent.get_or_insert_default()[kind].add_all(&request.waited);
        self.slowest.note(request, now);
    }

    /// Where the time of requests went.
    pub(crate) fn time(&self) -> TimeStatistics {
        let [read, write, flush] = &self.waited;
        let Latencies { read: reads, write: writes, flush: flushes, .. } = &self.latencies;
        let all_reads = reads.iter().map(Latency::sum_ns).fold(0, u64::saturating_add);
        TimeStatistics {
            read: read.of(all_reads),
            write: write.of(writes.sum_ns()),
            flush: flush.of(flushes.sum_ns()),
        }
    }

    /// The slowest requests of the last hour.
    pub(crate) fn slowest(&self, now: Nanos) -> Vec<SlowRequest> {
        self.slowest.shown(now)
    }

    /// A request in flight is answered with an error.
    pub(crate) fn note_failed(&mut self, request: &InFlight, status: IoStatus) {
        let operation = operation(&request.job);
        let (offset, length) = (request.range.start, request.range.len());
        self.last_failed = Some(FailedRequest { operation, offset, length, status });
    }

    /// A request is answered with an error before it was in flight. Its range may be anything.
    pub(crate) fn note_refused(&mut self, request: &Request, status: IoStatus) {
        let operation = match request.op {
            Op::Read { .. } | Op::Prefetch => RequestOp::Read,
            Op::Write { .. } | Op::CompareAndWrite { .. } => RequestOp::Write,
            Op::Discard { .. } | Op::WriteZeroes { .. } => RequestOp::Zero,
            Op::Flush => RequestOp::Flush,
            Op::Allocation | Op::CacheState => RequestOp::Allocation,
        };
        let ByteRange { start: offset, end } = request.range;
        let length = end.saturating_sub(offset);
        self.last_failed = Some(FailedRequest { operation, offset, length, status });
    }

    /// Every reply handed out so far was sent.
    pub(crate) fn sent(&mut self, now: Nanos) {
        self.observer.sent(now);
        for (waited, unsent) in self.waited.iter_mut().zip(self.unsent.take().into_iter().flatten())
        {
            waited.add_all(&unsent);
        }
        for Answered { submitted, of, count } in self.answered.drain(..) {
            let latency = now.since(submitted);
            match of {
                LatencyOf::Read(source) => {
                    self.latencies.read[source as usize].record(latency, count);
                }
                LatencyOf::Write => self.latencies.write.record(latency, count),
                LatencyOf::CompareAndWrite => {
                    self.latencies.compare_and_write.record(latency, count);
                }
                LatencyOf::Zero => self.latencies.zero.record(latency, count),
                LatencyOf::Flush => self.latencies.flush.record(latency, count),
            }
        }
    }

    /// Panics when the part contradicts itself, with so many requests in flight that are observed and not answered.
    pub(crate) fn check_invariants(&self, unanswered: u64) {
        assert_eq!(self.observer.unanswered(), unanswered);
        self.observer.check_invariants();
    }
}
