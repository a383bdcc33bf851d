//! The engine of one disk: takes requests, answers with actions.
//!
//! ```text
//!            submit              complete / tick / release
//!              │                          │
//!     RAM hit? ├─ yes ─► Reply(slots)     │
//!              no                         ▼
//!              └─► requests ─► range held ─► buffer ─► a flow runs it ─► Reply
//!                                     flow/: read, write, compare, zero, flush, query
//!                                               │        │
//!                                               └────────┴─► cache, cache index, write log, primary storage
//! ```
//! The state is in *parts* (`Parts`). What belongs to no part, and what a call may use, is the context (`cx.rs`).
//!
//! Every public function takes facts, changes state and appends actions. What became possible by it
//! (a waiting request can go on) is put on the `ready` list and run at the end of the call, so
//! functions never re-enter. What gains by company waits for [`Engine::proceed`], once for all that was
//! told: writes that came together share one group of the log.
//!
//! **Invariants**
//! - Each request gets exactly one reply. Each I/O gets exactly one `complete`.
//! - An I/O in flight owns its memory: a buffer is freed only when no I/O uses it.
//! - Bytes enter the cache only while their range is held in the overlap table, so a fill that races a
//!   write never installs old bytes. The cache updates or drops what a write overlaps, on both
//!   tiers, before its reply.
//! - A slot that a reply refers to does not change until [`Engine::sent`].
//! - Nothing grows: tables and lists have the sizes they were made with.
//!
//! Not here: peers.

mod control;
mod flow;
mod grid;
mod grow;
mod index;
mod memory;
mod resize;
mod schedule;
mod setup;
mod shown;
mod statistics;
mod tune;

use crate::action::{Actions, Buffer, Extent};
use crate::cache::{Cache, SlotRun};
use crate::cache_index::CacheIndex;
pub use crate::cache_index::RestoredCache;
use crate::config::{Config, Mode};

use crate::geometry::Grid;
use crate::ids::{IoId, Nanos};
use crate::primary::Primary;
use crate::request::Request;
use crate::requests::Requests;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::WriteBack;

use crate::cx::io::{IoKind, RequestIo};
use crate::cx::{self, Cx, Shared};
use flow::mode::Hold;
pub use grow::Growth;
pub use setup::{ConfigError, metadata_bytes};

/// All places for requests are taken: the frontend keeps the request and stops reading from its
/// client until something completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy;

/// The caching state machine of one disk.
#[derive(Debug)]
pub struct Engine {
    shared: Shared,
    parts: Parts,
}

/// The state of a disk, by owner.
#[derive(Debug)]
pub(crate) struct Parts {
    requests: Requests,
    cache: Cache,
    cache_index: Option<CacheIndex>,
    write_back: Option<WriteBack>,
    primary: Primary,
    /// The mode that the disk is in; what it is to be in is in `config`.
    mode: Mode,
    hold: Hold,
    /// Something was told since [`Engine::proceed`].
    was_told: bool,
    /// When it proceeded last: nothing that was due before is due any more. Hits in RAM come and go without that.
    proceeded: Nanos,
    /// What every request is answered with: the disk ends, or its dirty bytes are lost.
    refuses: Option<IoStatus>,
}

impl Engine {
    /// The parts, and what they may use in a call that begins now.
    #[inline]
    fn at<'a>(&'a mut self, now: Nanos, actions: &'a mut Actions) -> (&'a mut Parts, Cx<'a>) {
        self.shared.now = now;
        (&mut self.parts, Cx { actions, shared: &mut self.shared })
    }

    /// What the engine was made with.
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The grid of cache blocks, as it lies now.
    pub fn grid(&self) -> &Grid {
        &self.shared.grid
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
        if self.parts.requests.limiter.is_on() {
            return self.submit_limited(now, &request, actions);
        }
        let (parts, mut cx) = self.at(now, actions);
        parts.submit(&request, &mut cx)
    }

    /// The same, for a disk with limits.
    #[cold]
    #[inline(never)]
    fn submit_limited(
        &mut self,
        now: Nanos,
        request: &Request,
        actions: &mut Actions,
    ) -> Result<(), Busy> {
        let (parts, mut cx) = self.at(now, actions);
        parts.submit_limited(request, &mut cx)
    }

    /// Requests that begin at these positions, which may be outside the disk, will be submitted soon. It changes nothing but how
    /// long that takes: the memory that they begin with is on its way to the CPU, for all of them at once.
    #[inline]
    pub fn look_ahead(&self, positions: impl Iterator<Item = u64>) {
        let size = self.shared.config.backend.size;
        let on_disk = positions.filter(|position| *position < size);
        let (cache, grid) = (&self.parts.cache, &self.shared.grid);
        let Some(write_back) = &self.parts.write_back else {
            return cache.look_ahead(on_disk, grid);
        };
        let mut peeked = 0;
        cache.look_ahead(on_disk.inspect(|at| peeked ^= write_back.peek(*at)), grid);
        std::hint::black_box(peeked);
    }

    /// An I/O ended. `checksums`: CRC32C of each piece, when the I/O asked for them and ended well. A read, a write or a
    /// flush that is said to be unsupported has failed.
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
        let (parts, mut cx) = self.at(now, actions);
        parts.complete(io, status, checksums, &mut cx);
    }

    /// A query for extents ended well; they cover the start of the range asked for.
    pub fn complete_extents(
        &mut self,
        now: Nanos,
        io: IoId,
        extents: &[Extent],
        actions: &mut Actions,
    ) {
        let (parts, mut cx) = self.at(now, actions);
        let IoKind::Request(request, RequestIo::Extents) = cx.end(io).kind else {
            panic!("extents for an I/O that did not ask for them");
        };
        parts.on_extents(request, extents, &mut cx);
        parts.run(&mut cx);
    }

    /// Two pieces of memory were compared; `difference`: the first byte that differs, from their start.
    ///
    /// Panics when the engine did not ask for it, or was told before.
    pub fn compared(
        &mut self,
        now: Nanos,
        id: IoId,
        difference: Option<u64>,
        actions: &mut Actions,
    ) {
        let (parts, mut cx) = self.at(now, actions);
        parts.compared(id, difference, &mut cx);
    }

    /// Every reply handed out so far has been sent or copied: slots are no longer read, and
    /// latencies are counted up to `now`.
    pub fn sent(&mut self, now: Nanos) {
        self.parts.cache.unpin();
        self.parts.requests.ledger.sent(now);
    }

    /// The executor is done with a buffer: the data of a reply were sent, or a write buffer was not
    /// submitted.
    pub fn release(&mut self, now: Nanos, buffer: Buffer, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        let (first, count) = cx::pages_of(buffer);
        cx.lent -= 1;
        cx.buffers.give(first, count);
        parts.run(&mut cx);
    }

    /// Does, for all that the engine was told since the last call, what is better done together: what waits for the
    /// log is appended and committed, what is in it is acknowledged and destaged.
    ///
    /// The executor calls it before it carries actions out, and again when that gave it more to tell, while
    /// [`Engine::wants_to_proceed`]; it has carried out all actions of a call before the next one. Clients that wait for a
    /// buffer ask again between two calls: at their turn nobody else gets one before the second.
    pub fn proceed(&mut self, now: Nanos, actions: &mut Actions) {
        self.shared.buffers.carried_out();
        self.parts.requests.buffer_queue.begin_proceed(now);
        if self.parts.has_to_proceed() {
            let (parts, mut cx) = self.at(now, actions);
            parts.proceed(&mut cx);
        }
        self.parts.requests.buffer_queue.end_proceed();
        self.shared.buffers.asked();
    }

    /// True when [`Engine::proceed`] has something to do.
    pub fn wants_to_proceed(&self) -> bool {
        let queue = &self.parts.requests.buffer_queue;
        self.parts.was_told || self.shared.buffers.has_spent() || queue.wants_to_proceed()
    }

    /// The disk begins: what a former run left is flushed and destaged, and the mode is entered, whether or not a client
    /// comes. Call it once, before the first request, where a former run may have written. If that flush fails, what the
    /// former run acknowledged may be lost: whoever waits for a flush is told, or else the next flush fails.
    pub fn begin(&mut self, now: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.begin(&mut cx);
    }

    /// Time has passed. Call at [`Engine::next_deadline`] at the latest.
    pub fn tick(&mut self, now: Nanos, actions: &mut Actions) {
        let (parts, mut cx) = self.at(now, actions);
        parts.tick(&mut cx);
    }

    /// When `tick` is due, [`Nanos::NEVER`] when nothing is timed.
    pub fn next_deadline(&self) -> Nanos {
        self.parts.next_deadline(&self.shared)
    }

    /// True when no request and no I/O is in flight and no buffer is lent out.
    pub fn is_idle(&self) -> bool {
        self.parts.is_idle(&self.shared)
    }

    /// True when all of a log that failed is on primary storage, and only dead flash has something to do.
    pub fn waits_for_dead_flash(&self) -> bool {
        let log = self.parts.write_back.as_ref();
        let is_empty = log.is_some_and(|log| log.failed().is_some() && log.is_clean());
        let mut ios = self.shared.ios.iter();
        is_empty && self.owes_nothing() && ios.all(|(_, io)| io.kind.writes_flash())
    }

    /// True while something is written to the disk's flash.
    pub fn writes_flash(&self) -> bool {
        self.shared.ios.iter().any(|(_, io)| io.kind.writes_flash())
    }

    /// What the limits of the disk hold back goes now: whoever takes nothing new waits until all is answered.
    pub fn let_limited_go(&mut self, now: Nanos, actions: &mut Actions) {
        if self.parts.requests.limiter.held() > 0 {
            let (parts, mut cx) = self.at(now, actions);
            parts.release_all_held(&mut cx);
            parts.run(&mut cx);
        }
    }

    /// True when a request would be [`Busy`], unless it is answered at once.
    pub fn is_full(&self) -> bool {
        self.parts.requests.is_full()
    }

    /// True when no client waits for an answer, or has a buffer.
    pub fn owes_nothing(&self) -> bool {
        self.parts.requests.taken() == 0 && self.shared.lent == 0
    }

    /// Panics when the engine's structures contradict each other. For tests; slow.
    pub fn check_invariants(&self) {
        self.parts.check_invariants(&self.shared);
    }
}

impl Parts {
    fn complete(&mut self, io: IoId, status: IoStatus, checksums: &[u32], cx: &mut Cx<'_>) {
        let entry = cx.end(io);
        let status = entry.status(status);
        self.note_io(&entry, status, cx);
        match entry.kind {
            IoKind::Request(request, io) => self.on_request_io(request, io, status, checksums, cx),
            IoKind::Orphan { orphan, flash_slot, log_place } => {
                self.on_orphan(orphan, flash_slot, log_place, cx);
            }
            IoKind::Fill { fill, to } => self.on_fill(fill, to, status, checksums, cx),
            IoKind::Index => self.on_index_io(status, cx),
            IoKind::Log(io) => self.on_log_io(io, status, checksums, cx),
            IoKind::Destager(io) => self.on_destage_io(io, entry.range, status, checksums, cx),
            IoKind::PrimaryFlush => self.on_flushed(status, cx),
        }
        self.run(cx);
    }

    fn on_request_io(
        &mut self,
        request: Key,
        io: RequestIo,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        match io {
            RequestIo::Fetch => self.on_fetched(request, status, cx),
            RequestIo::Flash { at, bytes } => {
                self.on_flash_read(request, at, bytes, status, checksums, cx);
            }
            RequestIo::Log { place, pages } => {
                self.on_log_read(request, (place, pages), status, checksums, cx);
            }
            RequestIo::Overlay { place } => {
                self.on_log_overlay(request, place, status, checksums, cx);
            }
            RequestIo::Edge => self.on_edge_read(request, status, cx),
            RequestIo::Write => self.on_written(request, status, cx),
            RequestIo::Zero => self.on_zeroed(request, status, cx),
            RequestIo::Extents => self.on_no_extents(request, status, cx),
            RequestIo::Compare { .. } => panic!("a comparison ends with `compared`"),
        }
    }

    fn on_fill(
        &mut self,
        fill: Key,
        to: SlotRun,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        if let Some(index) = &mut self.cache_index {
            index.note_fill();
        }
        self.cache.on_fill(fill, to, status, checksums, cx);
    }

    fn is_idle(&self, shared: &Shared) -> bool {
        let settled = self.write_back.as_ref().is_none_or(WriteBack::is_settled);
        let settled = settled && self.cache_index.as_ref().is_none_or(CacheIndex::is_settled);
        let settled = settled && !self.settles_at_end();
        settled && self.requests.taken() == 0 && shared.ios.is_empty() && shared.lent == 0
    }

    fn check_invariants(&self, shared: &Shared) {
        self.requests.check_invariants();
        self.primary.check_invariants();
        self.cache.check_invariants();
        if let Some(index) = &self.cache_index {
            index.check_invariants();
        }
        let flushes = usize::from(self.primary.is_flush_in_flight());
        let others = shared.ios.iter().filter(|(_, io)| match io.kind {
            IoKind::Log(_) | IoKind::Destager(_) | IoKind::Index => true,
            IoKind::Request(..) | IoKind::Orphan { .. } => false,
            IoKind::Fill { .. } | IoKind::PrimaryFlush => false,
        });
        let fills = self.cache.fills_at_device() as usize;
        let outstanding = self.requests.outstanding() as usize;
        assert_eq!(shared.ios.len(), outstanding + fills + flushes + others.count());
        if let Some(write_back) = &self.write_back {
            write_back.check_invariants();
        }
        for (key, request) in self.requests.table.iter() {
            let is_owner = request.outstanding > 0 || self.is_in_log(key);
            assert!(!request.answered || is_owner, "{request:?}");
        }
    }
}

#[cfg(test)]
mod tests;
