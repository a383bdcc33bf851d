//! What is kept of requests beyond their end: latencies, what the disk is asked, the last failure.
//!
//! A latency counts up to the moment that a reply is sent, so replies handed out wait here until
//! [`Ledger::sent`].

use super::in_flight::{InFlight, Job};
use crate::action::Source;
use crate::ids::Nanos;
use crate::observer::Observer;
use crate::stats::{FailedRequest, Latencies, RequestOp};
use crate::status::IoStatus;

/// What a latency is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyOf {
    Read(Source),
    Write,
    CompareAndWrite,
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
    /// The last request that was answered with an error.
    last_failed: Option<FailedRequest>,
}

impl Ledger {
    pub(crate) fn new(observer: Observer) -> Ledger {
        let latencies = Latencies::default();
        Ledger { observer, latencies, answered: Vec::with_capacity(4096), last_failed: None }
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

    /// A request in flight is answered with an error.
    pub(crate) fn note_failed(&mut self, request: &InFlight, status: IoStatus) {
        let operation = match request.job {
            Job::Read(_) => RequestOp::Read,
            Job::Write(_) => RequestOp::Write,
            Job::Zero(_) => RequestOp::Zero,
            Job::Flush => RequestOp::Flush,
            Job::Allocation => RequestOp::Allocation,
        };
        let (offset, length) = (request.range.start, request.range.len());
        self.last_failed = Some(FailedRequest { operation, offset, length, status });
    }

    /// Every reply handed out so far was sent.
    pub(crate) fn sent(&mut self, now: Nanos) {
        self.observer.sent(now);
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
