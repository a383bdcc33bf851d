//! The requests of a disk, observed one by one, in every mode.
//!
//! ```text
//! a read or write is taken ─► taken ─► Ticket, which the request carries ─► answered ─► sent: its latency
//!                               ├──────────► recorder.rs: a ring of the last requests ◄────────┤
//!                               ├──────────► counting.rs: histograms, while they are wanted ◄──┘
//!                               └──────────► uses.rs: the miss-ratio curve
//! ```
//! Time goes on from call to call. A turn has one time for all requests that it takes. A request
//! that it takes after answers were sent counts as taken at the time of those answers. So a trace
//! of the requests says of which was outstanding when another came what was so.
//!
//! **Invariant:** each request that was taken has its latency once its answer is sent. A request
//! that is not taken (refused at once, or busy) is not observed.
//!
//! No clock, no I/O, and nothing is allocated per request once as many answers were between two `sent` as ever will be.
//! Never looks at data.

mod counting;
mod recorder;
mod uses;

pub use counting::Counting;
pub use recorder::{Recorded, Recorder};
pub use uses::Uses;

use crate::characteristics::Kind;
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::request::{Op, Request};

/// Answers between two [`Observer::sent`] before lists grow.
const ANSWERED: usize = 4096;

/// See the module.
#[derive(Debug)]
pub struct Observer {
    /// The last requests.
    pub recorder: Recorder,
    /// The histograms, while they are counted.
    counting: Option<Box<Counting>>,
    /// The uses that make the miss-ratio curve.
    uses: Option<Box<Uses>>,
    /// There is one of the two.
    looks_closer: bool,
    /// Answered, and not sent yet.
    answered: Vec<Ticket>,
    /// Taken, and not answered.
    unanswered: u64,
    /// Requests of other kinds, as far as they were not answered at once: flushes, discards, compare-and-writes and the like.
    others: u64,
    /// The latest time that a caller gave.
    latest: Nanos,
}

/// What goes on when another disk takes the place of one that owes no answer: numbers and histograms.
#[derive(Clone, Debug)]
pub struct Observed {
    next: u64,
    others: u64,
    counting: Option<Box<Counting>>,
    latest: Nanos,
}

/// The observer's part of a taken request, until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    sequence: u64,
    taken: Nanos,
    kind: Kind,
}

impl Observer {
    /// With a ring of so many bytes, and what a curve is made of.
    pub fn new(recorder_bytes: u64, uses: Option<Box<Uses>>) -> Observer {
        Observer {
            recorder: Recorder::new(recorder_bytes),
            counting: None,
            looks_closer: uses.is_some(),
            uses,
            answered: Vec::with_capacity(ANSWERED),
            unanswered: 0,
            others: 0,
            latest: Nanos(0),
        }
    }

    /// What goes on in another one, which takes the place of this one.
    pub fn observed(&self) -> Observed {
        let Observer { ref counting, others, latest, .. } = *self;
        Observed { next: self.recorder.next(), others, counting: counting.clone(), latest }
    }

    /// Goes on where another one stopped, before the first request.
    pub fn go_on(&mut self, from: Observed) {
        self.recorder.number_from(from.next);
        (self.others, self.latest) = (from.others, from.latest);
        self.looks_closer |= from.counting.is_some();
        self.counting = from.counting;
        if let Some(counting) = &mut self.counting {
            // Whatever comes here comes after they began.
            counting.first = 0;
        }
    }

    /// A request is taken; a ticket when it reads or writes.
    #[inline]
    pub fn taken(&mut self, now: Nanos, request: &Request) -> Option<Ticket> {
        match request.op {
            Op::Read { .. } => Some(self.taken_of(now, Kind::Read, request.range)),
            Op::Write { .. } => Some(self.taken_of(now, Kind::Write, request.range)),
            Op::CompareAndWrite { .. }
            | Op::Flush
            | Op::Discard { .. }
            | Op::WriteZeroes { .. }
            | Op::Prefetch
            | Op::Allocation
            | Op::CacheState => {
                self.others += 1;
                None
            }
        }
    }

    /// The same of what is known to be a read or a write.
    #[inline]
    pub fn taken_of(&mut self, now: Nanos, kind: Kind, range: ByteRange) -> Ticket {
        self.latest = self.latest.max(now);
        self.unanswered += 1;
        let sequence = self.recorder.push(self.latest, kind, range);
        if self.looks_closer {
            self.look_closer(kind, range);
        }
        Ticket { sequence, taken: self.latest, kind }
    }

    /// It is answered; the answer is about to be sent.
    #[inline]
    pub fn answered(&mut self, ticket: Ticket) {
        self.unanswered -= 1;
        self.answered.push(ticket);
    }

    /// All answers so far are sent.
    #[inline]
    pub fn sent(&mut self, now: Nanos) {
        self.latest = self.latest.max(now);
        for Ticket { sequence, taken, kind } in self.answered.drain(..) {
            let latency = self.latest.since(taken);
            self.recorder.answer(sequence, latency);
            if let Some(counting) = &mut self.counting {
                counting.answered(sequence, kind, latency);
            }
        }
    }

    /// A function of its own: within `taken_of` it would slow that down where there is neither. Nothing follows the calls of
    /// its branches, so it saves no registers.
    #[inline(never)]
    fn look_closer(&mut self, kind: Kind, range: ByteRange) {
        if self.counting.is_some() {
            return self.count_taken(kind, range);
        }
        if let Some(uses) = &mut self.uses {
            uses.add(kind, range);
        }
    }

    /// The same while histograms are counted; a function of its own for the registers that it saves.
    #[inline(never)]
    fn count_taken(&mut self, kind: Kind, range: ByteRange) {
        if let Some(uses) = &mut self.uses {
            uses.add(kind, range);
        }
        if let Some(counting) = &mut self.counting {
            counting.taken(self.latest, kind, range);
        }
    }

    /// Counts histograms from `now` on, in `counting`, which is new; what was counted before comes back, to be dropped
    /// elsewhere.
    pub fn count(&mut self, now: Nanos, mut counting: Box<Counting>) -> Option<Box<Counting>> {
        (counting.since, counting.first) = (now, self.recorder.came());
        self.looks_closer = true;
        self.counting.replace(counting)
    }

    /// Counts histograms no more.
    pub fn stop_counting(&mut self) -> Option<Box<Counting>> {
        self.looks_closer = self.uses.is_some();
        self.counting.take()
    }

    /// The histograms, while they are counted.
    pub fn counting(&self) -> Option<&Counting> {
        self.counting.as_deref()
    }

    /// The uses that make the miss-ratio curve.
    pub fn uses(&self) -> Option<&Uses> {
        self.uses.as_deref()
    }

    /// The cache's blocks lie elsewhere from now on.
    pub fn move_grid(&mut self, offset: u64) {
        if let Some(uses) = &mut self.uses {
            uses.move_grid(offset);
        }
    }

    /// Panics when what it knows contradicts itself. For tests; slow.
    pub(crate) fn check_invariants(&self) {
        let waiting = self.unanswered + self.answered.len() as u64;
        assert!(self.recorder.without_latency() <= waiting, "an answer was sent and not noted");
    }

    /// Requests that were taken and are not answered.
    pub fn unanswered(&self) -> u64 {
        self.unanswered
    }

    /// Requests of other kinds, as far as they were not answered at once: flushes, discards, compare-and-writes and the like.
    pub fn others(&self) -> u64 {
        self.others
    }
}

#[cfg(test)]
mod tests;
