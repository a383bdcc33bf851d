//! The requests in flight: who waits for what, who holds which range, whose time is over, what was answered.
//!
//! ```text
//!  enter ─► table ─► overlap (the range is held) ─► … a flow runs it … ─► answer ─► forget
//!                       │ in the way of others                 │            │
//!                       └► they wait                           │            └► ledger: latencies, observer
//!                                                              └► I/Os that it owns: start_io, end_io
//! ```
//! This part knows nothing of the cache, of the log or of primary storage. A flow (`engine/flow/`) decides what a
//! request does next.
//!
//! **Invariants**
//! - Each request gets exactly one reply.
//! - A request is forgotten when it is answered and owns no I/O, so its buffer outlives every I/O that uses it.
//! - Who waits for a buffer is in stage [`Stage::Buffer`].

pub(crate) mod buffer_queue;
pub(crate) mod deadlines;
pub(crate) mod in_flight;
pub(crate) mod ledger;
pub(crate) mod limits;
pub(crate) mod overlap;
pub(crate) mod zero_memory;

use crate::action::{Action, IoOp, Reply, ReplyData, Span, Target};
use crate::config::Limits;
use crate::cx::Cx;
use crate::cx::io::{IoKind, RequestIo};
use crate::geometry::ByteRange;
use crate::ids::Nanos;
use crate::observer::Observer;
use crate::request::{Op, Request};
use crate::stats::{Wait, Waited};
use crate::status::IoStatus;
use crate::table::{Key, Table};

use buffer_queue::BufferQueue;
use deadlines::Deadlines;
use in_flight::{InFlight, Job, Orphan, ReadFor, ReadJob, Seen, Stage, WriteJob};
use ledger::{LatencyOf, Ledger};
use limits::Limiter;
use overlap::Overlap;
use zero_memory::ZeroMemory;

/// See the module.
#[derive(Debug)]
pub(crate) struct Requests {
    pub table: Table<InFlight>,
    pub orphans: Table<Orphan>,
    pub overlap: Overlap,
    /// Who waits for a buffer.
    pub buffer_queue: BufferQueue,
    pub zero_memory: ZeroMemory,
    /// When each request that is not answered has waited too long.
    pub deadlines: Deadlines,
    pub ledger: Ledger,
    /// Holds back what the limits of the disk do not allow yet.
    pub limiter: Limiter,
    /// When the request came that is being submitted, if it was held.
    pub came: Option<Nanos>,
}

impl Requests {
    /// `zeroes`: where the memory of [`ZeroMemory`] is.
    pub(crate) fn new(
        requests_max: u32,
        timeout: Nanos,
        observer: Observer,
        zeroes: u64,
    ) -> Requests {
        Requests {
            table: Table::new(requests_max),
            orphans: Table::new(requests_max),
            overlap: Overlap::new(requests_max as usize),
            buffer_queue: BufferQueue::new(requests_max),
            zero_memory: ZeroMemory::new(zeroes, requests_max),
            deadlines: Deadlines::new(requests_max, timeout),
            ledger: Ledger::new(observer),
            limiter: Limiter::default(),
            came: None,
        }
    }

    /// The disk may do as much from now on.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limiter.set(limits, self.table.capacity());
    }

    /// Places that are taken, or kept for a request that is held.
    pub(crate) fn taken(&self) -> usize {
        self.table.len() + self.limiter.held() as usize
    }

    /// True when there is no other place.
    pub(crate) fn is_full(&self) -> bool {
        self.taken() >= self.table.capacity()
    }

    /// Takes a request in; it holds no range yet.
    pub(crate) fn insert(&mut self, request: Request, job: Job, cx: &mut Cx<'_>) -> Key {
        let buffer = request.op.buffer();
        cx.lent -= u32::from(buffer.is_some());
        let (brought, buffer) = match (request.op, buffer) {
            (Op::CompareAndWrite { .. }, Some(buffer)) => {
                let (brought, fetched) = in_flight::split(buffer);
                (Some(brought), Some(fetched))
            }
            _ => (None, buffer),
        };
        // What nobody asked for is not among what the disk is asked.
        let is_asked = !matches!(job, Job::Read(ReadJob { purpose: ReadFor::Edge, .. }));
        let ticket = is_asked.then(|| self.ledger.observer.taken(cx.now, &request)).flatten();
        let submitted = self.came.unwrap_or(cx.now);
        let mut waited = Waited::default();
        waited.add(Wait::Limit, cx.now.since(submitted));
        let key = self.table.insert(InFlight {
            tag: request.tag,
            range: request.range,
            seen: Seen { submitted, ticket },
            stage: Stage::Overlap,
            since: cx.now,
            waited,
            outstanding: 0,
            failed: None,
            answered: false,
            buffer,
            brought,
            job,
        });
        self.deadlines.push(key, cx.now);
        key
    }

    /// Asks the executor for an I/O of a request, which owns it until it ends.
    pub(crate) fn start_io(
        &mut self,
        request: Key,
        io: RequestIo,
        target: Target,
        range: ByteRange,
        op: IoOp,
        cx: &mut Cx<'_>,
    ) {
        self.table[request].outstanding += 1;
        cx.start(target, range, op, IoKind::Request(request, io));
    }

    /// The same for a read of primary storage.
    pub(crate) fn read_backend(
        &mut self,
        request: Key,
        io: RequestIo,
        range: ByteRange,
        memory: Span,
        cx: &mut Cx<'_>,
    ) {
        self.table[request].outstanding += 1;
        cx.read_backend(range, memory, IoKind::Request(request, io));
    }

    /// Takes note that an I/O of a request ended; the request's time starts anew.
    pub(crate) fn end_io(&mut self, key: Key, status: IoStatus, cx: &mut Cx<'_>) {
        let entry = &mut self.table[key];
        entry.outstanding -= 1;
        if !status.is_ok() && entry.failed.is_none() {
            entry.failed = Some(status);
        }
        if !entry.answered {
            self.deadlines.push(key, cx.now);
        }
    }

    /// True for a request that waits for the range, or the turn, of one that is in time: that one is due later, so it came, or an I/O
    /// of it ended, since the time of this one began. Who waits as well counts only when this one waits for none that
    /// runs: else each of those behind one that hangs would give the next one more time.
    pub(crate) fn waits_for_progress(&self, key: Key) -> bool {
        let runs = |earlier: Key| self.table[earlier].stage != Stage::Overlap;
        let is_in_time = |earlier: Key| self.deadlines.has(earlier);
        if self.zero_memory.is_waiting(key) {
            return self.zero_memory.holders().any(is_in_time);
        }
        let overlap = &self.overlap;
        !runs(key)
            && match overlap.waits_for(key, runs) {
                true => overlap.waits_for(key, |earlier| runs(earlier) && is_in_time(earlier)),
                false => overlap.waits_for(key, is_in_time),
            }
    }

    /// Sends the reply of a request in flight, which may stay as the owner of its I/Os.
    pub(crate) fn answer(
        &mut self,
        key: Key,
        status: IoStatus,
        data: ReplyData,
        of: Option<LatencyOf>,
        cx: &mut Cx<'_>,
    ) {
        let entry = &mut self.table[key];
        assert!(!entry.answered, "one reply per request");
        entry.answered = true;
        self.deadlines.remove(key);
        if self.is_background(key) {
            return;
        }
        let entry = &mut self.table[key];
        entry.enter(entry.stage, cx.now);
        let (tag, submitted) = (entry.tag, entry.seen.submitted);
        if let Some(ticket) = entry.seen.ticket {
            self.ledger.observer.answered(ticket);
        }
        let is_failure = status.is_failure();
        match of {
            Some(of) if !is_failure => {
                self.ledger.note_waited(&self.table[key], of, cx.now);
                self.ledger.note_answered(submitted, of);
            }
            _ if !is_failure => {}
            _ => {
                cx.counters.requests_failed += 1;
                self.ledger.note_failed(&self.table[key], status);
            }
        }
        cx.push(Action::Reply(Reply { tag, status, submitted, data }));
    }

    /// Forgets a request that is answered and has no I/O under way.
    pub(crate) fn forget(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.table.remove(key);
        assert!(entry.answered && entry.outstanding == 0, "{entry:?}");
        self.overlap.leave(key, &mut cx.ready);
        if matches!(entry.job, Job::Zero(_)) {
            self.end_zero_turn(key, cx);
        }
        self.deadlines.remove(key);
        for buffer in [entry.buffer, entry.brought].into_iter().flatten() {
            cx.free_buffer(buffer);
        }
    }

    /// A request that zeroes has written a piece, or writes none. Primary storage has all of its time for the next one's.
    pub(crate) fn end_zero_turn(&mut self, key: Key, cx: &mut Cx<'_>) {
        if let Some(next) = self.zero_memory.leave(key) {
            self.deadlines.push(next, cx.now);
            cx.wake(next);
        }
    }

    /// Whether nobody waits for a request.
    pub(crate) fn is_background(&self, key: Key) -> bool {
        matches!(self.table[key].job, Job::Read(ReadJob { purpose: ReadFor::Edge, .. }))
    }

    /// What the latency of a request counts as that wrote something.
    pub(crate) fn latency_of(&self, key: Key) -> LatencyOf {
        match self.table[key].job {
            Job::Write(WriteJob { compared: true, .. }) => LatencyOf::CompareAndWrite,
            Job::Flush => LatencyOf::Flush,
            Job::Zero(_) => LatencyOf::Zero,
            Job::Write(_) | Job::Read(_) | Job::Allocation(_) => LatencyOf::Write,
        }
    }

    /// The ranges that may be being written to primary storage.
    pub(crate) fn writing(&self) -> impl Iterator<Item = ByteRange> {
        let may_write = |request: &InFlight| match request.stage {
            Stage::Running | Stage::Flush | Stage::Intent => {
                matches!(request.job, Job::Write(_) | Job::Zero(_))
            }
            Stage::Overlap | Stage::Room | Stage::Buffer => false,
            Stage::Logged | Stage::Durable | Stage::Throttled => false,
        };
        let writes = self.table.iter().filter(move |(_, request)| may_write(request));
        writes.map(|(_, request)| request.range)
    }

    /// A write, or a compare-and-write, did what it was to do.
    pub(crate) fn count_write(&self, key: Key, cx: &mut Cx<'_>) {
        if self.latency_of(key) == LatencyOf::CompareAndWrite {
            cx.counters.compare_and_writes += 1;
        } else {
            cx.counters.writes += 1;
            cx.counters.write_bytes += self.table[key].range.len();
        }
    }

    /// Flushes of clients that have not ended.
    pub(crate) fn flushes(&self) -> u64 {
        self.table.iter().filter(|(_, entry)| matches!(entry.job, Job::Flush)).count() as u64
    }

    /// I/Os under way that a request owns, or a buffer that its request gave up.
    pub(crate) fn outstanding(&self) -> u32 {
        self.table.iter().map(|(_, r)| r.outstanding).sum::<u32>()
            + self.orphans.iter().map(|(_, o)| o.outstanding).sum::<u32>()
    }

    /// Panics when the part contradicts itself. For tests; slow.
    pub(crate) fn check_invariants(&self) {
        self.overlap.check_invariants();
        let observed =
            |(_, request): (_, &InFlight)| request.seen.ticket.is_some() && !request.answered;
        let unanswered = self.table.iter().filter(|request| observed(*request)).count() as u64;
        self.ledger.check_invariants(unanswered);
        assert!(self.taken() <= self.table.capacity());
        self.buffer_queue.check_invariants();
        for waiter in self.buffer_queue.iter() {
            assert_eq!(self.table[waiter].stage, Stage::Buffer);
        }
        for (key, request) in self.table.iter() {
            if let Job::Read(job) = request.job
                && request.outstanding > 0
                && !request.answered
            {
                // Neighbours may write to what it does not hold.
                assert!(self.overlap.holds(key, job.target), "{request:?}");
            }
        }
        for key in self.zero_memory.holders().chain(self.zero_memory.waiting()) {
            assert!(matches!(self.table[key].job, Job::Zero(_)));
        }
        for key in self.zero_memory.waiting() {
            let request = &self.table[key];
            assert!(request.outstanding == 0 && !request.answered);
        }
        let waits = |(_, request): &(_, &InFlight)| request.stage == Stage::Buffer;
        assert_eq!(self.table.iter().filter(waits).count(), self.buffer_queue.iter().count());
    }
}

#[cfg(test)]
mod tests;
