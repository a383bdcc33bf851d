//! Time: what happens to a request, or to flash, that takes too long.
//!
//! A request's time starts anew with every I/O of it that ends. When it is over, the client is
//! answered (or waits, by setting, and for room in the write log in any case), but nothing is taken from
//! the I/O: its buffer stays owned until it ends, and the range of a write stays held, so that a newer
//! write to it cannot be overtaken by the old one; so does a write that is in the log and not safe there
//! yet. A read's range is let go: its bytes will not be installed.
//!
//! Flash that does not answer is given up: reads go on from primary storage with a new buffer, the old
//! one is an *orphan* until its I/Os end.

use super::Engine;
use super::inflight::{IoKind, Job, Orphan, Stage};
use crate::action::{Action, Actions, Event, ReplyData};
use crate::config::OnTimeout;
use crate::ids::{Nanos, SlotId};
use crate::log::index::Place;
use crate::status::IoStatus;
use crate::table::Key;

impl Engine {
    /// Time has passed. Call at [`Engine::next_deadline`] at the latest.
    pub fn tick(&mut self, now: Nanos, actions: &mut Actions) {
        self.now = now;
        if self.flash_deadlines.next() <= now {
            self.fail_flash(now, IoStatus::TimedOut, actions);
            while let Some(io) = self.flash_deadlines.pop_due(now) {
                if let Some(IoKind::FlashRead { request, .. }) = self.ios.find(io).map(|e| e.kind) {
                    self.give_up_buffer(now, request, actions);
                }
            }
        }
        self.note_calm(now, actions);
        self.drop_more(now);
        self.time_out_log(now, actions);
        self.time_out_void(now, actions);
        self.time_out_note(now, actions);
        while let Some(key) = self.request_deadlines.pop_due(now) {
            if self.is_held_up_by_log(now, key) {
                self.request_deadlines.push(key, now.plus(self.config.backend_timeout));
                continue;
            }
            self.counters.requests_timed_out += 1;
            let range = self.requests[key].range;
            actions.list.push(Action::Event(Event::BackendTimedOut { range }));
            match self.config.on_timeout {
                OnTimeout::Wait => {}
                OnTimeout::Fail => self.time_out(key, actions),
            }
        }
        self.run(now, actions);
    }

    /// When `tick` is due, [`Nanos::NEVER`] when nothing is timed.
    pub fn next_deadline(&self) -> Nanos {
        let log = self.log.as_ref().map_or(Nanos::NEVER, |log| log.next_deadline(self.now));
        self.request_deadlines
            .next()
            .min(self.flash_deadlines.next())
            .min(log)
            .min(self.acknowledgement_due())
            .min(self.destage_deadline())
            .min(self.mode_deadline())
            .min(self.ring_deadline())
            .min(self.stale_deadline())
            .min(self.primary.deadline())
    }

    /// True for a request that waits for room in the log, and for one that waits for the range or the buffers of those
    /// that do, or did so until a moment ago: backpressure, however long it takes, for nothing was asked of primary storage for it.
    /// Only what is at fault while there was room all the time is out of time.
    pub(super) fn is_held_up_by_log(&self, now: Nanos, key: Key) -> bool {
        let log = self.log.as_ref().filter(|log| log.failed.is_none());
        let waited_until = log.and_then(|log| log.waited_until);
        let waited = waited_until.is_some_and(|at| now < at.plus(self.config.backend_timeout));
        match self.requests[key].stage {
            Stage::Room => self.mode.logs(),
            Stage::Overlap | Stage::Buffer | Stage::Logged | Stage::Durable | Stage::Throttled => {
                self.mode.logs() && waited
            }
            Stage::Running | Stage::Flush | Stage::Intent => false,
        }
    }

    fn time_out(&mut self, key: Key, actions: &mut Actions) {
        self.answer(key, IoStatus::TimedOut, ReplyData::None, None, actions);
        self.let_go(key);
    }

    /// Takes a request that is answered out of everything but what its I/Os own.
    pub(super) fn let_go(&mut self, key: Key) {
        let entry = self.requests[key];
        match entry.stage {
            Stage::Overlap => {}
            Stage::Buffer => self.buffer_waiters.retain(|&waiter| waiter != key),
            Stage::Flush => self.flush.leave(key),
            Stage::Intent => self.ring.as_mut().expect("it waits for the ring").leave(key),
            Stage::Room | Stage::Logged | Stage::Durable | Stage::Throttled => {
                if self.is_in_log(key) {
                    // Bytes that a crash could take back must not be seen, nor overwritten, before they
                    // are safe: it stays, with its range.
                    return;
                }
                self.log.as_mut().expect("it waits for the log").leave(key);
            }
            Stage::Running => match entry.job {
                Job::Read(_) | Job::Allocation => {
                    self.leave_overlay(key);
                    self.overlap.leave(key, &mut self.ready);
                }
                Job::Write(_) | Job::Zero(_) | Job::Flush => {}
            },
        }
        if entry.outstanding == 0 {
            self.forget(key);
        }
    }

    /// True when the request, or a part of it, is in the log already.
    pub(super) fn is_in_log(&self, key: Key) -> bool {
        let entry = &self.requests[key];
        match (entry.job, entry.stage) {
            (Job::Write(job), Stage::Room) => job.cursor > entry.range.start,
            (Job::Write(_) | Job::Zero(_), Stage::Logged | Stage::Durable | Stage::Throttled) => {
                true
            }
            _ => false,
        }
    }

    /// Takes the buffer from a read whose flash I/O hangs, and starts the read anew without it.
    fn give_up_buffer(&mut self, now: Nanos, request: Key, actions: &mut Actions) {
        let entry = &mut self.requests[request];
        if entry.answered {
            return;
        }
        let buffer = entry.buffer.take().expect("a running read has a buffer");
        let orphan = self.orphans.insert(Orphan { buffer, outstanding: entry.outstanding });
        entry.outstanding = 0;
        if let Job::Read(job) = &mut entry.job {
            (job.cursor, job.partial) = (job.target.start, None);
        }
        for io in self.ios.iter_mut() {
            let (flash_slot, log_place) = match io.kind {
                IoKind::FlashRead { request: r, slot, .. } if r == request => (Some(slot), None),
                IoKind::LogRead { request: r, place, .. } if r == request => (None, Some(place)),
                IoKind::BackendRead { request: r } if r == request => (None, None),
                _ => continue,
            };
            io.kind = IoKind::Orphan { orphan, flash_slot, log_place };
        }
        // A compare-and-write has memory, and so waits for none.
        let entry = &self.requests[request];
        if entry.brought.is_some() {
            let again = self.take_buffer(entry.range);
            self.requests[request].buffer = again;
            if again.is_none() {
                self.answer(request, IoStatus::TimedOut, ReplyData::None, None, actions);
                return self.forget(request);
            }
        }
        self.request_deadlines.push(request, now.plus(self.config.backend_timeout));
        self.ready.push_back(request);
    }

    /// An I/O of a buffer that was given up ended after all.
    pub(super) fn on_orphan(
        &mut self,
        key: Key,
        flash_slot: Option<SlotId>,
        log_place: Option<Place>,
    ) {
        if let (Some(place), Some(log)) = (log_place, &mut self.log) {
            log.segments.unhold(place);
        }
        if let (Some(slot), Some(flash)) = (flash_slot, &mut self.flash) {
            flash.unhold(slot);
        }
        let orphan = &mut self.orphans[key];
        orphan.outstanding -= 1;
        if orphan.outstanding == 0 {
            let orphan = self.orphans.remove(key).expect("the orphan is there");
            self.free_buffer(orphan.buffer);
        }
    }

    /// Gives the flash tier up: what it holds is forgotten, RAM or no cache goes on.
    pub(super) fn fail_flash(&mut self, now: Nanos, status: IoStatus, actions: &mut Actions) {
        self.void_ring(now, status, actions);
        let Some(flash) = self.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        // What it holds is not looked at any more.
        flash.failed = Some(status);
        self.end_waiting_fills();
        actions.list.push(Action::Event(Event::FlashFailed { status }));
    }
}
