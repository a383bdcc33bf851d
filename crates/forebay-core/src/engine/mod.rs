//! The engine of one disk: takes requests, answers with actions.
//!
//! ```text
//!            submit              complete / tick / release
//!              │                          │
//!     RAM hit? ├─ yes ─► Reply(slots)     │
//!              no                         ▼
//!              └─► in flight ─► overlap ─► buffer ─► run ─► Reply
//!                  (inflight.rs)            read.rs  write.rs  compare.rs  zero.rs  flush.rs  query.rs
//!                                             │        │
//!                                             └─ fill.rs: RAM slots, flash slots ─┘
//! ```
//! Every public function takes facts, changes state and appends actions; what became possible by it
//! (a waiting request can go on) is put on the `ready` list and run at the end of the call, so
//! functions never re-enter. What gains by company waits for [`Engine::proceed`], once for all that was
//! told: writes that came together share one group of the log.
//!
//! **Invariants**
//! - Each request gets exactly one reply. Each I/O gets exactly one `complete`.
//! - An I/O in flight owns its memory: a buffer is freed only when no I/O uses it.
//! - Bytes enter the cache only while their range is held in [`Overlap`], so a fill that races a
//!   write never installs old bytes; what a write overlaps in the cache is updated or dropped, on both
//!   tiers, before its reply.
//! - A slot that a reply refers to does not change until [`Engine::sent`].
//! - Nothing grows: tables and lists have the sizes they were made with.
//!
//! The write log is in `log/`, what carries it to primary storage in `destage/`, what changes between modes
//! with and without it in `mode.rs`.
//!
//! What keeps the flash tier alive over a restart is in `warm/`.
//!
//! Not here: peers.

mod admission;
mod bypass;
mod compare;
mod destage;
mod drop_cache;
mod edges;
mod fill;
mod flash;
mod flash_fill;
mod flush;
mod grid;
mod grow;
mod inflight;
mod invalidate;
mod log;
mod memory;
mod mode;
mod primary;
mod query;
mod ram;
mod read;
mod setup;
mod stale;
mod statistics;
mod timeout;
mod warm;
mod write;
mod zero;

use std::collections::VecDeque;

use crate::action::{
    Action, Actions, DestageFault, Extent, Io, IoOp, Reply, ReplyData, Source, Target,
};
use crate::alignment::AlignmentDetector;
use crate::buffers::BufferPool;
use crate::config::{Config, FlushSemantics, Mode};
use crate::deadlines::Deadlines;
use crate::geometry::{ByteRange, COMPARE_MAX, Grid, PAGE, REQUEST_MAX, SECTOR};
use crate::ids::{IoId, Nanos, SegmentId};
use crate::observer::Observer;
use crate::overlap::{Access, Overlap};
use crate::request::{Op, Request};
use crate::returns::Returns;
use crate::sequential::SequentialStreams;
use crate::stats::{Counters, Latencies};
use crate::status::IoStatus;
use crate::table::{Key, Table};

use admission::Admission;
use destage::Destager;
use drop_cache::Dropping;
use flash::FlashTier;
use flash_fill::FlashFills;
use flush::FlushState;
pub use grow::Growth;
use inflight::{InFlight, IoEntry, IoKind, Job, Orphan, ReadFor, Stage};
use log::WriteLog;
use log::acknowledge::Acknowledgeable;
use primary::Primary;
use ram::RamTier;
pub use setup::{ConfigError, metadata_bytes};
use stale::Stale;
pub use warm::RestoredCache;
use warm::Ring;

/// All places for requests are taken: the frontend keeps the request and stops reading from its
/// client until something completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The caching state machine of one disk.
#[derive(Debug)]
pub struct Engine {
    config: Config,
    grid: Grid,
    ram: Option<RamTier>,
    flash: Option<FlashTier>,
    ring: Option<Ring>,
    buffers: BufferPool,
    /// Buffers in the hands of the executor.
    lent: u32,
    requests: Table<InFlight>,
    ios: Table<IoEntry>,
    admission: Admission,
    fills: FlashFills,
    orphans: Table<Orphan>,
    overlap: Overlap,
    /// Requests that may go on; run at the end of each public call.
    ready: VecDeque<Key>,
    /// Something was told since [`Engine::proceed`].
    was_told: bool,
    /// Requests that wait for a buffer, oldest first.
    buffer_waiters: VecDeque<Key>,
    flush: FlushState,
    /// The mode that the disk is in; what it is to be in is in `config`.
    mode: Mode,
    log: Option<WriteLog>,
    destager: Option<Destager>,
    /// Writes in the log that could be acknowledged, in order.
    acknowledgeable: VecDeque<Acknowledgeable>,
    /// The time of the last call.
    now: Nanos,
    /// What fails.
    primary: Primary,
    stale: Stale,
    dropping: Dropping,
    /// When each request that is not answered has waited too long.
    request_deadlines: Deadlines,
    /// When each flash I/O has taken too long.
    flash_deadlines: Deadlines,
    streams: SequentialStreams,
    /// Whether blocks of streams come back in time; none without a cache.
    streams_returned: Option<Returns>,
    /// Whether edges of writes are read before they would have left the cache; none without a cache.
    edges_returned: Option<Returns>,
    /// Observes until the grid is settled.
    alignment: Option<AlignmentDetector>,
    counters: Counters,
    latencies: Latencies,
    observer: Observer,
    /// Replies handed out since `sent`, whose latency is not counted yet.
    answered: Vec<Answered>,
    /// What every request is answered with: the disk ends, or its dirty bytes are lost.
    refuses: Option<IoStatus>,
}

/// What a latency is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LatencyOf {
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

impl Engine {
    /// What the engine was made with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The grid of cache blocks, as it lies now.
    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    /// What it observed of its requests.
    pub fn observer(&self) -> &Observer {
        &self.observer
    }

    /// The same, to begin anew with some of it; nothing else depends on it.
    pub fn observer_mut(&mut self) -> &mut Observer {
        &mut self.observer
    }

    /// Takes a request; it will be answered by exactly one reply, perhaps at once. An invalid
    /// request is answered, not refused.
    ///
    /// # Errors
    /// [`Busy`]: nothing happened; the caller still owns the request and its buffer.
    pub fn submit(
        &mut self,
        now: Nanos,
        request: Request,
        actions: &mut Actions,
    ) -> Result<(), Busy> {
        let status = self.check(&request);
        if !status.is_ok() {
            self.refuse(now, request, status, actions);
            return Ok(());
        }
        self.now = now;
        if matches!(request.op, Op::Read { .. }) && self.read_from_ram(now, &request, actions) {
            return Ok(());
        }
        if self.requests.is_full() {
            return Err(Busy);
        }
        self.observe(&request, actions);
        match request.op {
            Op::Read { no_admit } => self.submit_read(now, request, no_admit, ReadFor::Client),
            Op::Prefetch => self.submit_prefetch(now, request, actions),
            Op::Write { buffer, fua } => self.submit_write(now, request, buffer, fua),
            Op::CompareAndWrite { fua, .. } => self.submit_compare(now, request, fua),
            Op::Flush => self.submit_flush(now, request, actions),
            Op::Discard { fua } => self.submit_discard(now, request, fua, actions),
            Op::WriteZeroes { may_unmap, fast_only, fua } => {
                self.submit_zeroes(now, request, may_unmap, fast_only, fua, actions);
            }
            Op::Allocation => self.submit_allocation(now, request, actions),
            Op::CacheState => self.reply_cache_state(now, request, actions),
        }
        self.run(now, actions);
        Ok(())
    }

    /// An I/O ended. `checksums`: CRC32C of each piece, when the I/O asked for them and ended well.
    ///
    /// Panics when the engine did not ask for the I/O or was told of its end before.
    pub fn complete(
        &mut self,
        now: Nanos,
        io: IoId,
        status: IoStatus,
        checksums: &[u32],
        actions: &mut Actions,
    ) {
        self.now = now;
        let key = Key(io.0);
        let entry = self.ios.remove(key).expect("an I/O that the engine asked for, ending once");
        self.note_io(now, &entry, status, actions);
        match entry.kind {
            IoKind::BackendRead { request } => self.on_fetched(now, request, status),
            IoKind::FlashRead { request, block, slot, first, end, bytes } => {
                self.flash_deadlines.remove(key);
                let granules = (block, slot, first, end);
                let places = (entry.range, bytes);
                self.on_flash_read(now, request, granules, places, status, checksums, actions);
            }
            IoKind::EdgeRead { request } => self.on_edge_read(now, request, status, actions),
            IoKind::Write { request } => self.on_written(now, request, status, actions),
            IoKind::Zero { request } => self.on_zeroed(now, request, status, actions),
            IoKind::Extents { request } => self.on_no_extents(now, request, status, actions),
            IoKind::Compare { .. } => panic!("a comparison ends with `compared`"),
            IoKind::Flush => self.on_flushed(now, status, actions),
            IoKind::LogWrite { group } => {
                self.on_log_written(now, group, status, checksums, actions);
            }
            IoKind::LogSummary => self.on_log_summarized(status, actions),
            IoKind::LogFlush => self.on_log_flushed(now, status, actions),
            IoKind::LogRead { request, place, pages } => {
                self.on_log_read(now, request, (place, pages), status, checksums, actions);
            }
            IoKind::LogOverlay { request, place } => {
                self.on_log_overlay(now, request, place, status, checksums, actions);
            }
            IoKind::DestageRead { run, place, pages } => {
                let status = self.check_log_pages(place, pages, status, checksums, actions);
                self.note_destage_read(status, actions);
                self.on_destage_read(now, run, (DestageFault::LogRead, status), actions);
            }
            IoKind::DestageBelow { run } => {
                self.on_destage_read(now, run, (DestageFault::PrimaryStorage, status), actions);
            }
            IoKind::DestageWrite { run } => self.on_destage_write(now, run, status, actions),
            IoKind::DestageZero { end, memory } => {
                self.on_destage_zero(now, end, memory, status, actions);
            }
            IoKind::DestageZeroEdge { end, memory } => {
                self.on_destage_zero_edge(now, (entry.range, end), memory, status, actions);
            }
            IoKind::DestageFlush { session } => {
                self.on_destage_flushed(now, session, status);
            }
            IoKind::DestageNote => self.on_destage_noted(now, status, actions),
            IoKind::RingFlush => {
                self.flash_deadlines.remove(key);
                self.on_ring_flushed(now, status, actions);
            }
            IoKind::RingWrite => {
                self.flash_deadlines.remove(key);
                self.on_ring_written(now, status, actions);
            }
            IoKind::FlashFill { fill } => {
                self.flash_deadlines.remove(key);
                self.on_flash_fill(now, fill, status, checksums, actions);
            }
            IoKind::Orphan { orphan, flash_slot, log_place } => {
                if flash_slot.is_some() {
                    self.flash_deadlines.remove(key);
                }
                self.on_orphan(orphan, flash_slot, log_place);
            }
        }
        self.run(now, actions);
    }

    /// A query for extents ended well; they cover the start of the range asked for.
    pub fn complete_extents(
        &mut self,
        now: Nanos,
        io: IoId,
        extents: &[Extent],
        actions: &mut Actions,
    ) {
        self.now = now;
        let entry =
            self.ios.remove(Key(io.0)).expect("an I/O that the engine asked for, ending once");
        let IoKind::Extents { request } = entry.kind else {
            panic!("extents for an I/O that did not ask for them");
        };
        self.on_extents(now, request, extents, actions);
        self.run(now, actions);
    }

    /// Every reply handed out so far has been sent or copied: slots are no longer read, and
    /// latencies are counted up to `now`.
    pub fn sent(&mut self, now: Nanos) {
        if let Some(ram) = &mut self.ram {
            ram.unpin_all();
        }
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

    /// Counts a good reply's latency at the next [`Engine::sent`].
    fn note_answered(&mut self, submitted: Nanos, of: LatencyOf) {
        match self.answered.last_mut() {
            Some(last) if last.submitted == submitted && last.of == of => last.count += 1,
            _ => self.answered.push(Answered { submitted, of, count: 1 }),
        }
    }

    /// From now on new requests are answered with [`IoStatus::ShuttingDown`]; what is in flight
    /// finishes.
    ///
    /// What is in the log is made durable and stays there, but for what is destaged already: that is flushed and noted. What
    /// waits for room is answered so, too. Where flushes are deferred all is destaged first. Neither is begun after
    /// [`Engine::stop_destaging`].
    pub fn shut_down(&mut self, now: Nanos, actions: &mut Actions) {
        self.now = now;
        self.refuses = Some(IoStatus::ShuttingDown);
        if let (Some(log), Some(destager)) = (&mut self.log, &mut self.destager) {
            log.close();
            if log.is_lost {
                destager.stop();
            } else if log.config.flush == FlushSemantics::Honest {
                destager.finish();
            }
            self.refuse_waiting(IoStatus::ShuttingDown, actions);
        }
        self.run(now, actions);
    }

    /// True while a disk that is shut down carries its log to primary storage.
    pub fn destages_at_end(&self) -> bool {
        let goes_on = self.destager.as_ref().is_some_and(|destager| destager.goes_on());
        self.refuses == Some(IoStatus::ShuttingDown) && goes_on && !self.log_is_clean()
    }

    /// What is not destaged stays in the log.
    pub fn stop_destaging(&mut self, now: Nanos, actions: &mut Actions) {
        self.now = now;
        if let Some(destager) = &mut self.destager {
            destager.stop();
            self.run(now, actions);
        }
    }

    /// A lease that was asked for came, with its ordinal; or there is none to be had now: it is asked for
    /// again after a moment.
    pub fn leased(&mut self, now: Nanos, segment: Option<(SegmentId, u64)>, actions: &mut Actions) {
        self.now = now;
        let log = self.log.as_mut().expect("it asked for a lease");
        log.segments.on_leased(now, segment);
        log.room_changed = true;
        self.run(now, actions);
    }

    /// Destages nothing until told to go on, or goes on.
    pub fn pause_destaging(&mut self, now: Nanos, pause: bool, actions: &mut Actions) {
        self.now = now;
        if let Some(destager) = &mut self.destager {
            destager.paused = pause;
            self.run(now, actions);
        }
    }

    /// True when no request and no I/O is in flight and no buffer is lent out.
    pub fn is_idle(&self) -> bool {
        let settled = self.log.as_ref().is_none_or(WriteLog::is_settled);
        let settled = settled && self.ring_is_settled();
        let settled = settled && !self.settles_at_end();
        self.requests.is_empty() && self.ios.is_empty() && self.lent == 0 && settled
    }

    /// What is wrong with a request, if anything.
    fn check(&self, request: &Request) -> IoStatus {
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
        let fits = range.start < range.end && range.end <= self.config.backend.size;
        if !fits || !range.is_aligned(SECTOR) || range.len() > len_max {
            IoStatus::Invalid
        } else if changes && self.config.backend.read_only {
            IoStatus::ReadOnly
        } else {
            IoStatus::Ok
        }
    }

    /// Answers a request that never got in flight.
    fn refuse(&mut self, now: Nanos, request: Request, status: IoStatus, actions: &mut Actions) {
        if let Some(buffer) = request.op.buffer() {
            self.lent -= 1;
            self.free_buffer(buffer);
        }
        self.counters.requests_failed += u64::from(!status.is_ok());
        let (tag, data) = (request.tag, ReplyData::None);
        actions.list.push(Action::Reply(Reply { tag, status, submitted: now, data }));
        self.run(now, actions);
    }

    /// Puts a request in flight. It runs when nothing before it is in its way.
    fn enter(&mut self, now: Nanos, request: Request, access: Access, held: ByteRange, job: Job) {
        if access == Access::Write {
            self.void_backgrounds(held);
        }
        let key = self.insert(now, request, job);
        if self.overlap.enter(key, held, access) {
            self.ready.push_back(key);
        } else {
            self.counters.overlap_waits += 1;
        }
    }

    fn insert(&mut self, now: Nanos, request: Request, job: Job) -> Key {
        let buffer = request.op.buffer();
        self.lent -= u32::from(buffer.is_some());
        let (brought, buffer) = match (request.op, buffer) {
            (Op::CompareAndWrite { .. }, Some(buffer)) => {
                let (brought, fetched) = compare::split(buffer);
                (Some(brought), Some(fetched))
            }
            _ => (None, buffer),
        };
        // What nobody asked for is not among what the disk is asked.
        let is_asked = !matches!(job, Job::Read(inflight::ReadJob { purpose: ReadFor::Edge, .. }));
        let ticket = is_asked.then(|| self.observer.taken(now, &request)).flatten();
        let key = self.requests.insert(InFlight {
            tag: request.tag,
            range: request.range,
            submitted: now,
            ticket,
            stage: Stage::Overlap,
            outstanding: 0,
            failed: None,
            answered: false,
            buffer,
            brought,
            job,
        });
        self.request_deadlines.push(key, now.plus(self.config.backend_timeout));
        key
    }

    /// Runs the requests that became possible; the rest of what did is left to [`Engine::proceed`].
    fn run(&mut self, now: Nanos, actions: &mut Actions) {
        self.now = now;
        self.run_ready(now, actions);
        self.was_told = true;
    }

    /// Does, for all that the engine was told since the last call, what is better done together: what waits for the log is
    /// appended and committed, what is in it is acknowledged and destaged.
    ///
    /// The executor calls it before it carries actions out, and again when that gave it more to tell, while
    /// [`Engine::wants_to_proceed`]; it has carried out all actions of a call before the next one.
    pub fn proceed(&mut self, now: Nanos, actions: &mut Actions) {
        self.buffers.carried_out();
        if std::mem::take(&mut self.was_told) || !self.buffer_waiters.is_empty() {
            self.now = now;
            loop {
                self.run_ready(now, actions);
                self.advance_ring(now, actions);
                if self.ready.is_empty() {
                    break;
                }
            }
            if self.log.is_some() {
                self.proceed_with_log(now, actions);
            } else if self.advance_mode(now, actions) {
                self.run_ready(now, actions);
            }
        }
        self.buffers.asked();
    }

    /// True when [`Engine::proceed`] has something to do.
    pub fn wants_to_proceed(&self) -> bool {
        self.was_told || self.buffers.has_spent()
    }

    fn proceed_with_log(&mut self, now: Nanos, actions: &mut Actions) {
        self.append_waiting(now, actions);
        loop {
            // An acknowledgement may end an epoch, which may then be destaged.
            self.acknowledge(now, actions);
            self.destage(now, actions);
            self.commit(now, actions);
            let changed = self.advance_mode(now, actions);
            self.advance_ring(now, actions);
            let moved = self.append_waiting(now, actions) || changed || !self.ready.is_empty();
            if !moved && !self.refuse_at_the_end(actions) {
                return self.note_fullness(actions);
            }
            self.run_ready(now, actions);
        }
    }

    /// Runs the requests that may go on.
    fn run_ready(&mut self, now: Nanos, actions: &mut Actions) {
        loop {
            if let Some(key) = self.ready.pop_front() {
                self.advance(now, key, actions);
            } else if let Some(&key) = self.buffer_waiters.front() {
                let Some(buffer) = self.take_buffer(self.buffer_range(key)) else { return };
                self.buffer_waiters.pop_front();
                let entry = &mut self.requests[key];
                entry.buffer = Some(buffer);
                entry.stage = Stage::Overlap;
                if let Job::Read(_) = entry.job {
                    self.lay_out(key);
                }
                let (held, access) = self.held(key);
                if access == Access::Write {
                    self.void_backgrounds(held);
                }
                if self.overlap.enter(key, held, access) {
                    self.advance(now, key, actions);
                }
            } else {
                return;
            }
        }
    }

    fn advance(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        if self.requests.find_mut(key).is_none() {
            return;
        }
        if self.is_held_up_by_log(now, key) {
            // Primary storage has all of its time.
            self.request_deadlines.push(key, now.plus(self.config.backend_timeout));
        }
        let entry = &mut self.requests[key];
        entry.stage = Stage::Running;
        match entry.job {
            Job::Read(_) => self.run_read(now, key, actions),
            Job::Write(_) => self.run_write(now, key, actions),
            Job::Zero(_) => self.run_zero(now, key, actions),
            Job::Allocation => self.run_allocation(now, key, actions),
            Job::Flush => unreachable!("a flush waits for no range and no buffer"),
        }
    }

    /// The range that a request which had to wait for its buffer holds while it runs, and how.
    fn held(&self, key: Key) -> (ByteRange, Access) {
        let entry = &self.requests[key];
        match entry.job {
            Job::Read(job) if job.purpose == ReadFor::Edge => (job.target, Access::Background),
            Job::Read(job) => (job.target, Access::Read(self.fetched(&job, entry.range))),
            Job::Zero(job) => {
                let rest = ByteRange::new(job.cursor, entry.range.end);
                (self.align_to_backend(rest), Access::Write)
            }
            Job::Write(_) | Job::Flush | Job::Allocation => {
                unreachable!("a write comes with its buffer, the others need none")
            }
        }
    }

    /// Asks the executor for an I/O. One that belongs to a request counts as outstanding there.
    fn start_io(
        &mut self,
        now: Nanos,
        target: Target,
        range: ByteRange,
        op: IoOp,
        kind: IoKind,
        actions: &mut Actions,
    ) {
        if let Some(request) = kind.request() {
            self.requests[request].outstanding += 1;
        }
        if let (IoKind::BackendRead { .. }, Some(destager)) = (kind, &mut self.destager) {
            destager.window.on_guest_read_start(now);
        }
        let key = self.ios.insert(IoEntry { issued: now, range, kind });
        let checksum_piece = match target {
            Target::Flash | Target::Ring => {
                self.flash_deadlines.push(key, now.plus(self.config.flash_timeout));
                if kind.is_of_ring() { 0 } else { self.grid.granule_size() as u32 }
            }
            Target::Backend => 0,
            Target::Log if matches!(kind, IoKind::LogSummary) => 0,
            Target::Log if matches!(op, IoOp::Read { .. } | IoOp::Write { .. }) => PAGE as u32,
            Target::Log => 0,
        };
        actions.list.push(Action::Io(Io { id: IoId(key.0), target, range, op, checksum_piece }));
    }

    /// Takes note that an I/O of a request ended; the request's time starts anew.
    fn end_request_io(&mut self, now: Nanos, key: Key, status: IoStatus) {
        let entry = &mut self.requests[key];
        entry.outstanding -= 1;
        if !status.is_ok() && entry.failed.is_none() {
            entry.failed = Some(status);
        }
        if !entry.answered {
            self.request_deadlines.push(key, now.plus(self.config.backend_timeout));
        }
    }

    /// Sends the reply of a request in flight, which may stay as the owner of its I/Os.
    fn answer(
        &mut self,
        key: Key,
        status: IoStatus,
        data: ReplyData,
        of: Option<LatencyOf>,
        actions: &mut Actions,
    ) {
        let entry = &mut self.requests[key];
        assert!(!entry.answered, "one reply per request");
        entry.answered = true;
        if self.is_background(key) {
            return self.request_deadlines.remove(key);
        }
        let entry = &self.requests[key];
        let (tag, submitted) = (entry.tag, entry.submitted);
        if let Some(ticket) = entry.ticket {
            self.observer.answered(ticket);
        }
        self.request_deadlines.remove(key);
        let is_good = status.is_ok() || status == IoStatus::Miscompare;
        match of {
            Some(of) if is_good => self.note_answered(submitted, of),
            _ if is_good => {}
            _ => {
                self.counters.requests_failed += 1;
                self.note_failed_request(key, status);
            }
        }
        actions.list.push(Action::Reply(Reply { tag, status, submitted, data }));
    }

    /// Forgets a request that is answered and has no I/O under way.
    fn forget(&mut self, key: Key) {
        let entry = self.requests.remove(key).expect("the request is there");
        assert!(entry.answered && entry.outstanding == 0, "{entry:?}");
        self.overlap.leave(key, &mut self.ready);
        self.request_deadlines.remove(key);
        for buffer in [entry.buffer, entry.brought].into_iter().flatten() {
            self.free_buffer(buffer);
        }
    }

    /// `range` grown to the backend's logical blocks.
    fn align_to_backend(&self, range: ByteRange) -> ByteRange {
        range.align_out(u64::from(self.config.backend.logical_block))
    }

    /// Panics when the engine's structures contradict each other. For tests; slow.
    pub fn check_invariants(&self) {
        self.overlap.check_invariants();
        if let Some(ram) = &self.ram {
            ram.check_invariants();
        }
        if let Some(flash) = &self.flash {
            flash.check_invariants();
        }
        let outstanding: u32 = self.requests.iter().map(|(_, r)| r.outstanding).sum::<u32>()
            + self.orphans.iter().map(|(_, o)| o.outstanding).sum::<u32>();
        let flushes = usize::from(self.flush.is_in_flight());
        let log = self.ios.iter().filter(|(_, io)| io.kind.is_of_log()).count();
        let ring = self.ios.iter().filter(|(_, io)| io.kind.is_of_ring()).count();
        self.fills.check_invariants();
        let fills = self.fills.writes() as usize;
        assert_eq!(self.ios.len(), outstanding as usize + fills + flushes + log + ring);
        if let Some(log) = &self.log {
            log.index.check_invariants();
        }
        for (key, request) in self.requests.iter() {
            let is_owner = request.outstanding > 0 || self.is_in_log(key);
            assert!(!request.answered || is_owner, "{request:?}");
        }
        let observed = |(_, request): (_, &InFlight)| request.ticket.is_some() && !request.answered;
        let unanswered = self.requests.iter().filter(|request| observed(*request)).count() as u64;
        assert_eq!(self.observer.unanswered(), unanswered);
        self.observer.check_invariants();
        for waiter in &self.buffer_waiters {
            assert_eq!(self.requests[*waiter].stage, Stage::Buffer);
        }
    }
}

#[cfg(test)]
mod tests;
