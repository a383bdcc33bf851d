//! Who goes on: from a request's arrival to the moment that its flow runs, and what is done once for all that was told.
//!
//! ```text
//!  submit ─► check ─► a flow enters it ─► ready ─► advance ─► the flow runs
//!                                           ▲
//!             completions, ranges let go, buffers given back
//!
//!  proceed: append what waits ─► acknowledge ─► destage ─► commit ─► change the mode ─► record the index ─► again?
//! ```

use super::{Busy, Parts};
use crate::action::{Action, Reply, ReplyData};
use crate::cx::{Cx, Shared};
use crate::geometry::{ByteRange, COMPARE_MAX, REQUEST_MAX, SECTOR};
use crate::request::{Op, Request};
use crate::requests::in_flight::{Job, ReadFor, Stage};
use crate::requests::overlap::Access;
use crate::status::IoStatus;
use crate::table::Key;

impl Parts {
    pub(super) fn submit(&mut self, request: &Request, cx: &mut Cx<'_>) -> Result<(), Busy> {
        let status = self.check(request, cx);
        if !status.is_ok() {
            self.refuse(*request, status, cx);
            return Ok(());
        }
        if matches!(request.op, Op::Read { .. }) && self.read_from_ram(request, cx) {
            return Ok(());
        }
        if self.requests.is_full() {
            return Err(Busy);
        }
        self.start(request, cx);
        Ok(())
    }

    /// Begins a request that is valid, and has a place.
    #[inline(never)]
    pub(super) fn start(&mut self, request: &Request, cx: &mut Cx<'_>) {
        self.observe(request, cx);
        let request = *request;
        match request.op {
            Op::Read { no_admit } => self.submit_read(request, no_admit, ReadFor::Client, cx),
            Op::Prefetch => self.submit_prefetch(request, cx),
            Op::Write { buffer, fua } => self.submit_write(request, buffer, fua, cx),
            Op::CompareAndWrite { buffer, fua } => {
                self.submit_compare(request, buffer, fua, cx);
            }
            Op::Flush => self.submit_flush(request, cx),
            Op::Discard { fua } => self.submit_discard(request, fua, cx),
            Op::WriteZeroes { may_unmap, fast_only, fua } => {
                self.submit_zeroes(request, may_unmap, fast_only, fua, cx);
            }
            Op::Allocation => self.submit_allocation(request, cx),
            Op::CacheState => self.reply_cache_state(request, cx),
        }
        self.run(cx);
    }

    /// What is wrong with a request, if anything.
    pub(super) fn check(&self, request: &Request, shared: &Shared) -> IoStatus {
        if let Some(status) = self.refuses {
            return status;
        }
        let range = request.range;
        if let Some(buffer) = request.op.buffer() {
            assert!(buffer.window.contains(range), "the buffer was made for this range");
        }
        let (changes, len_max) = match request.op {
            Op::Read { .. } => (false, REQUEST_MAX),
            Op::Write { .. } => (true, REQUEST_MAX),
            Op::CompareAndWrite { .. } => (true, COMPARE_MAX),
            Op::Flush => return IoStatus::Ok,
            Op::Discard { .. } | Op::WriteZeroes { .. } => (true, u64::MAX),
            Op::Prefetch | Op::Allocation | Op::CacheState => (false, u64::MAX),
        };
        let fits = range.start < range.end && range.end <= shared.config.backend.size;
        if !fits || !range.is_aligned(SECTOR) || range.len() > len_max {
            IoStatus::Invalid
        } else if changes && shared.config.backend.read_only {
            IoStatus::ReadOnly
        } else {
            IoStatus::Ok
        }
    }

    /// Answers a request that never got in flight.
    pub(super) fn refuse(&mut self, request: Request, status: IoStatus, cx: &mut Cx<'_>) {
        if let Some(buffer) = request.op.buffer() {
            cx.lent -= 1;
            cx.free_buffer(buffer);
        }
        if status.is_failure() {
            cx.counters.requests_failed += 1;
            self.requests.ledger.note_refused(&request, status);
        }
        let (tag, data) = (request.tag, ReplyData::None);
        cx.push(Action::Reply(Reply { tag, status, submitted: cx.now, data }));
        self.run(cx);
    }

    /// Puts a request in flight. It runs when nothing before it is in its way.
    pub(super) fn enter(
        &mut self,
        request: Request,
        access: Access,
        held: ByteRange,
        job: Job,
        cx: &mut Cx<'_>,
    ) {
        if access == Access::Write {
            self.void_backgrounds(held, cx);
        }
        let key = self.requests.insert(request, job, cx);
        if self.requests.overlap.enter(key, held, access) {
            cx.wake(key);
        } else {
            cx.counters.overlap_waits += 1;
        }
    }

    /// Runs the requests that became possible; the rest of what did is left to [`Parts::proceed`].
    pub(super) fn run(&mut self, cx: &mut Cx<'_>) {
        self.run_ready(cx);
        self.was_told = true;
    }

    /// Something was told since the last [`Parts::proceed`], or a buffer may have become free.
    pub(super) fn has_to_proceed(&self) -> bool {
        self.was_told || self.requests.buffer_queue.has_requests()
    }

    /// See [`Engine::proceed`](super::Engine::proceed).
    pub(super) fn proceed(&mut self, cx: &mut Cx<'_>) {
        (self.was_told, self.proceeded) = (false, cx.now);
        loop {
            self.run_ready(cx);
            self.advance_index(cx);
            if cx.ready.is_empty() {
                break;
            }
        }
        if self.write_back.is_some() {
            self.proceed_with_log(cx);
        } else if self.advance_mode(cx) {
            self.run_ready(cx);
        }
        self.primary.note_sent();
    }

    fn proceed_with_log(&mut self, cx: &mut Cx<'_>) {
        self.append_waiting(cx);
        loop {
            // An acknowledgement may end an epoch, which may then be destaged.
            self.acknowledge(cx);
            self.destage(cx);
            if let Some(write_back) = &mut self.write_back {
                write_back.commit(cx);
            }
            let changed = self.advance_mode(cx);
            self.advance_index(cx);
            let moved = self.append_waiting(cx) || changed || !cx.ready.is_empty();
            if !moved && !self.refuse_at_the_end(cx) {
                return self.note_fullness(cx);
            }
            self.run_ready(cx);
        }
    }

    /// Runs the requests that may go on.
    fn run_ready(&mut self, cx: &mut Cx<'_>) {
        loop {
            if let Some(key) = cx.ready.pop_front() {
                self.advance(key, cx);
            } else if let Some(key) = self.requests.buffer_queue.first() {
                let range = self.requests.table[key].range;
                let Some(buffer) = cx.take_buffer(range) else { return };
                self.requests.buffer_queue.leave(key);
                let entry = &mut self.requests.table[key];
                entry.buffer = Some(buffer);
                entry.enter(Stage::Overlap, cx.now);
                // Primary storage has all of its time.
                self.requests.deadlines.push(key, cx.now);
                self.lay_out(key, cx);
                let (held, access) = self.held(key, cx);
                if self.requests.overlap.enter(key, held, access) {
                    self.advance(key, cx);
                }
            } else {
                return;
            }
        }
    }

    fn advance(&mut self, key: Key, cx: &mut Cx<'_>) {
        if self.requests.table.find_mut(key).is_none() {
            return;
        }
        let entry = &self.requests.table[key];
        if entry.since < cx.now {
            let waited_for_range = entry.stage == Stage::Overlap && !entry.answered;
            if waited_for_range || self.is_held_up_by_log(key, cx) {
                // Primary storage has all of its time.
                self.requests.deadlines.push(key, cx.now);
            }
        }
        let entry = &mut self.requests.table[key];
        entry.enter(Stage::Running, cx.now);
        match entry.job {
            Job::Read(_) => self.run_read(key, cx),
            Job::Write(_) => self.run_write(key, cx),
            Job::Zero(_) => self.run_zero(key, cx),
            Job::Allocation(_) => self.run_allocation(key, cx),
            Job::Flush => unreachable!("a flush waits for no range and no buffer"),
        }
    }

    /// The range that a request which had to wait for its buffer holds while it runs, and how.
    fn held(&self, key: Key, shared: &Shared) -> (ByteRange, Access) {
        let entry = &self.requests.table[key];
        match entry.job {
            Job::Read(job) if job.purpose == ReadFor::Edge => (job.target, Access::Background),
            Job::Read(job) => (job.target, Access::Read(self.fetched(&job, entry.range, shared))),
            Job::Write(_) | Job::Zero(_) | Job::Flush | Job::Allocation(_) => {
                unreachable!("a write comes with its buffer, the others need none")
            }
        }
    }
}
