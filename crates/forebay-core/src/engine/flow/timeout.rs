//! Time: what happens to a request, or to flash, that takes too long.
//!
//! A request's time starts anew with every I/O of it that ends, and when it is over while the one whose range it
//! waits for is in time: a long write of zeroes goes on piece by piece. For a request that waited for a range or a buffer it
//! starts anew when it gets it; for a buffer also when it is over before while one that has one is in time. When it is over
//! otherwise,
//! the client is answered (or waits, by setting, and for room in the write log in any case), but nothing is taken from
//! the I/O: its buffer stays owned until it ends, and the range of a write stays held, so that a newer
//! write to it cannot be overtaken by the old one; so does a write that is in the log and not safe there
//! yet. A read's range is let go: its bytes will not be installed.
//!
//! Flash that does not answer is given up: reads go on from primary storage with a new buffer, the old
//! one is an *orphan* until its I/Os end.

use super::in_log::undestaged;
use crate::action::{Event, ReplyData};
use crate::config::OnTimeout;
use crate::cx::io::{IoKind, RequestIo};
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::ids::{Nanos, SlotId};
use crate::requests::Requests;
use crate::requests::in_flight::{InFlight, Job, Orphan, Stage};
use crate::requests::ledger::LatencyOf;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::format::index::Place;

impl Parts {
    pub(in crate::engine) fn tick(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if cx.hanging.flash.next() <= now {
            self.fail_flash(IoStatus::TimedOut, cx);
            while let Some(io) = cx.hanging.flash.pop_due(now) {
                let kind = cx.ios.find(io).map(|entry| entry.kind);
                if let Some(IoKind::Request(request, RequestIo::Flash { .. })) = kind {
                    self.give_up_buffer(request, cx);
                }
            }
        }
        self.primary.errors.note_calm(cx);
        self.primary.flush_first(cx);
        self.drop_more(cx);
        let Parts { cache, write_back, .. } = self;
        cache.change_more(&undestaged(write_back.as_ref()), cx);
        self.shrink_flash(cx);
        self.release_held(cx);
        self.time_out_log(cx);
        self.time_out_void(cx);
        self.time_out_note(cx);
        self.requests.buffer_queue.end_late_turn(cx.now);
        while let Some(key) = self.requests.deadlines.pop_due(cx.now) {
            if self.is_held_up_by_log(key, cx) {
                if !self.give_up_discard(key, cx) {
                    self.requests.deadlines.push(key, cx.now);
                }
                continue;
            }
            if self.requests.waits_for_progress(key) || self.may_get_buffer(key) {
                self.requests.deadlines.push(key, cx.now);
                continue;
            }
            // What nobody asked for is told of, and fails nobody.
            cx.counters.requests_timed_out += u64::from(!self.requests.is_background(key));
            let InFlight { range, stage, .. } = self.requests.table[key];
            // Primary storage was never asked for what waits for a buffer.
            if stage != Stage::Buffer {
                cx.event(Event::BackendTimedOut { range });
            }
            match cx.config.on_timeout {
                OnTimeout::Wait => {}
                // Its write may be carried out yet. A client that is told to try again would find its own bytes
                // instead of those that it expects, and take them for another host's.
                OnTimeout::Fail if self.requests.latency_of(key) == LatencyOf::CompareAndWrite => {}
                OnTimeout::Fail => self.time_out(key, cx),
            }
        }
        self.run(cx);
    }

    /// When `tick` is due, [`Nanos::NEVER`] when nothing is timed.
    pub(in crate::engine) fn next_deadline(&self, shared: &Shared) -> Nanos {
        let log = self.write_back.as_ref().map_or(Nanos::NEVER, |log| {
            let since = self.proceeded;
            log.log_deadline(since, self.aim(shared), shared).min(log.destage_deadline(since))
        });
        self.requests
            .deadlines
            .next()
            .min(self.requests.limiter.deadline())
            .min(self.requests.buffer_queue.deadline())
            .min(shared.hanging.flash.next())
            .min(log)
            .min(self.mode_deadline(shared))
            .min(self.index_deadline(self.proceeded))
            .min(self.cache.stale_deadline())
            .min(self.cache.change_deadline())
            .min(self.primary.errors.deadline())
            .min(self.primary.first_flush_deadline())
    }

    /// True for a request that waits for room in the log, and for one that waits for the range or the buffers of those
    /// that do, or did so until a moment ago: backpressure, however long it takes, for nothing was asked of primary storage for it.
    /// Only what is at fault while there was room all the time is out of time.
    pub(in crate::engine) fn is_held_up_by_log(&self, key: Key, shared: &Shared) -> bool {
        let within = shared.config.backend_timeout;
        let waited = self.write_back.as_ref().is_some_and(|log| log.has_waited(shared.now, within));
        match self.requests.table[key].stage {
            Stage::Room => self.mode.logs(),
            Stage::Overlap | Stage::Buffer | Stage::Logged | Stage::Durable | Stage::Throttled => {
                self.mode.logs() && waited
            }
            Stage::Running | Stage::Flush | Stage::Intent => false,
        }
    }

    /// True for a request that waits for a buffer while one that has a buffer is in time. What a request holds that is out of
    /// time may never come back.
    fn may_get_buffer(&self, key: Key) -> bool {
        let Requests { table, deadlines, .. } = &self.requests;
        let comes_back =
            |(key, holder): (Key, &InFlight)| holder.buffer.is_some() && deadlines.has(key);
        table[key].stage == Stage::Buffer && table.iter().any(comes_back)
    }

    fn time_out(&mut self, key: Key, cx: &mut Cx<'_>) {
        self.requests.answer(key, IoStatus::TimedOut, ReplyData::None, None, cx);
        self.let_go(key, cx);
    }

    /// Takes a request that is answered out of everything but what its I/Os own.
    pub(in crate::engine) fn let_go(&mut self, key: Key, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        match entry.stage {
            Stage::Overlap => {}
            Stage::Buffer => self.requests.buffer_queue.leave(key),
            Stage::Flush => self.primary.leave(key),
            Stage::Intent => {
                if let Some(index) = &mut self.cache_index {
                    index.leave(key);
                }
            }
            Stage::Room | Stage::Logged | Stage::Durable | Stage::Throttled => {
                if self.is_in_log(key) {
                    // Bytes that a crash could take back must not be seen, nor overwritten, before they
                    // are safe: it stays, with its range.
                    return;
                }
                if let Some(write_back) = &mut self.write_back {
                    write_back.leave(key);
                }
            }
            Stage::Running => match entry.job {
                Job::Read(_) | Job::Allocation(_) => {
                    self.leave_overlay(key);
                    self.requests.overlap.leave(key, &mut cx.ready);
                }
                Job::Write(_) | Job::Zero(_) | Job::Flush => {}
            },
        }
        if entry.outstanding == 0 {
            self.requests.forget(key, cx);
        }
    }

    /// True when the request, or a part of it, is in the log already.
    pub(in crate::engine) fn is_in_log(&self, key: Key) -> bool {
        let entry = &self.requests.table[key];
        match (entry.job, entry.stage) {
            (Job::Write(job), Stage::Room) => job.cursor > entry.range.start,
            (Job::Write(_) | Job::Zero(_), Stage::Logged | Stage::Durable | Stage::Throttled) => {
                true
            }
            _ => false,
        }
    }

    /// Takes the buffer from a read whose flash I/O hangs, and starts the read anew without it.
    fn give_up_buffer(&mut self, request: Key, cx: &mut Cx<'_>) {
        let entry = &mut self.requests.table[request];
        let Some(buffer) = entry.buffer.take_if(|_| !entry.answered) else { return };
        let orphan =
            self.requests.orphans.insert(Orphan { buffer, outstanding: entry.outstanding });
        entry.outstanding = 0;
        if let Job::Read(job) = &mut entry.job {
            (job.cursor, job.partial) = (job.target.start, None);
        }
        for io in cx.ios.iter_mut() {
            let IoKind::Request(owner, of) = io.kind else { continue };
            let (flash_slot, log_place) = match of {
                _ if owner != request => continue,
                RequestIo::Flash { at, .. } => (Some(at.slot), None),
                RequestIo::Log { place, .. } => (None, Some(place)),
                RequestIo::Fetch => (None, None),
                // What goes through other memory than its buffer.
                RequestIo::Overlay { .. } | RequestIo::Edge | RequestIo::Write => continue,
                RequestIo::Zero | RequestIo::Extents | RequestIo::Compare { .. } => continue,
            };
            io.kind = IoKind::Orphan { orphan, flash_slot, log_place };
        }
        // A compare-and-write has memory, and so waits for none.
        let entry = &self.requests.table[request];
        if entry.brought.is_some() {
            let again = cx.take_buffer(entry.range);
            self.requests.table[request].buffer = again;
            if again.is_none() {
                self.requests.answer(request, IoStatus::TimedOut, ReplyData::None, None, cx);
                return self.requests.forget(request, cx);
            }
        }
        self.requests.deadlines.push(request, cx.now);
        cx.ready.push_back(request);
    }

    /// An I/O of a buffer that was given up ended after all.
    pub(in crate::engine) fn on_orphan(
        &mut self,
        key: Key,
        flash_slot: Option<SlotId>,
        log_place: Option<Place>,
        cx: &mut Cx<'_>,
    ) {
        if let (Some(place), Some(log)) = (log_place, &mut self.write_back) {
            log.give_up_read(place);
        }
        if let Some(slot) = flash_slot {
            self.cache.abandon_flash_read(slot);
        }
        let orphan = &mut self.requests.orphans[key];
        orphan.outstanding -= 1;
        if orphan.outstanding == 0 {
            let orphan = self.requests.orphans.remove(key);
            cx.free_buffer(orphan.buffer);
        }
    }

    /// Gives the flash tier up: what it holds is forgotten, RAM or no cache goes on.
    pub(in crate::engine) fn fail_flash(&mut self, status: IoStatus, cx: &mut Cx<'_>) {
        self.void_index(status, cx);
        self.cache.fail_flash(status, cx);
    }
}
