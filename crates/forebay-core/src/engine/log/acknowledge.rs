//! When a write that is in the log is acknowledged.
//!
//! ```text
//!            ┌─ staged (plain, staging survives the process) ──┐
//!  appended ─┼─ written (plain, otherwise) ────────────────────┼─► throttle ─► reply, range let go
//!            └─ durable (FUA) ─────────────────────────────────┘
//! ```
//! The throttle delays acknowledgements, in order, as the log fills (`destage/throttle.rs`). An
//! acknowledged FUA or FLUSH raises the flush epoch; in `strict` order those that are due one after the other are
//! therefore let go together, so that what they make room for shares an epoch.

use crate::action::ReplyData;
use crate::config::{DestageOrder, FlushSemantics};
use crate::destage::throttle::TOGETHER;
use crate::engine::Parts;
use crate::engine::cx::{Cx, Shared};
use crate::ids::{GroupNumber, Nanos};
use crate::request::Request;
use crate::requests::in_flight::{Job, Stage};
use crate::requests::ledger::LatencyOf;
use crate::status::IoStatus;
use crate::table::Key;

/// A write that could be acknowledged.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Acknowledgeable {
    pub key: Key,
    pub ready: Nanos,
    pub bytes: u64,
    /// A compare-and-write: not throttled.
    pub at_once: bool,
}

impl Parts {
    /// All of the request is appended, up to this group.
    pub(in crate::engine) fn on_appended(
        &mut self,
        key: Key,
        fua: bool,
        group: GroupNumber,
        cx: &mut Cx<'_>,
    ) {
        if let Some(buffer) = self.requests.table[key].buffer.take() {
            cx.free_buffer(buffer);
        }
        let entry = &mut self.requests.table[key];
        let log = self.log.as_mut().expect("there is a log");
        let deferred = log.config.flush != FlushSemantics::Honest;
        let staging = log.config.staging;
        if fua && !deferred {
            entry.stage = Stage::Durable;
            log.wait_durable.push_back((key, group));
        } else if staging {
            self.may_acknowledge(key, cx);
        } else {
            entry.stage = Stage::Logged;
            log.wait_written.push_back((key, group));
        }
    }

    /// A flush of the guest: answered when everything acknowledged before is durable in the log.
    pub(in crate::engine) fn submit_log_flush(&mut self, request: Request, cx: &mut Cx<'_>) {
        if self.primary.flush.take_untold() {
            // From before the mode changed.
            return self.refuse(request, IoStatus::IoError, cx);
        }
        let key = self.requests.insert(request, Job::Flush, cx);
        let log = self.log.as_mut().expect("the mode has a log");
        let deferred = log.config.flush != FlushSemantics::Honest;
        if log.is_durable() || deferred {
            return self.answer_log_flush(key, cx);
        }
        if log.failed.is_some() {
            self.requests.answer(key, IoStatus::IoError, ReplyData::None, None, cx);
            return self.requests.forget(key, cx);
        }
        self.requests.table[key].stage = Stage::Durable;
        let group = log.last_group();
        log.wait_durable.push_back((key, group));
    }

    fn answer_log_flush(&mut self, key: Key, cx: &mut Cx<'_>) {
        self.log.as_mut().expect("there is a log").raise_epoch();
        cx.counters.flushes += 1;
        self.requests.answer(key, IoStatus::Ok, ReplyData::None, Some(LatencyOf::Flush), cx);
        self.requests.forget(key, cx);
    }

    /// More is written, or durable: lets those go who waited for it.
    pub(super) fn acknowledge_written(&mut self, cx: &mut Cx<'_>) {
        loop {
            let log = self.log.as_mut().expect("there is a log");
            if let Some(&(key, _)) = log.wait_written.front().filter(|w| w.1 <= log.written) {
                log.wait_written.pop_front();
                self.may_acknowledge(key, cx);
            } else if let Some(&(key, _)) = log.wait_durable.front().filter(|w| w.1 <= log.durable)
            {
                log.wait_durable.pop_front();
                match self.requests.table[key].job {
                    Job::Flush => self.answer_log_flush(key, cx),
                    Job::Read(_) | Job::Write(_) | Job::Zero(_) | Job::Allocation => {
                        self.may_acknowledge(key, cx);
                    }
                }
            } else {
                break;
            }
        }
        let log = self.log.as_mut().expect("there is a log");
        if log.is_durable() {
            log.oldest_volatile = Nanos::NEVER;
        } else if log.durable == log.written {
            let volatile = log.groups.iter().filter(|group| group.number > log.durable);
            let opened = volatile.map(|group| group.opened).min();
            log.oldest_volatile = opened.expect("a group that is not durable is in memory");
        }
    }

    /// The write may be acknowledged as far as the log is concerned.
    fn may_acknowledge(&mut self, key: Key, cx: &mut Cx<'_>) {
        if self.requests.table[key].answered {
            return self.requests.forget(key, cx);
        }
        let entry = &mut self.requests.table[key];
        entry.stage = Stage::Throttled;
        let bytes = match entry.job {
            Job::Write(_) => entry.range.len(),
            // Zeroes cost the destager one I/O, whatever their length.
            Job::Zero(_) | Job::Read(_) | Job::Flush | Job::Allocation => crate::geometry::PAGE,
        };
        let at_once = self.requests.latency_of(key) == LatencyOf::CompareAndWrite;
        let acknowledgeable = Acknowledgeable { key, ready: cx.now, bytes, at_once };
        match at_once {
            true => self.acknowledgeable.push_front(acknowledgeable),
            false => self.acknowledgeable.push_back(acknowledgeable),
        }
    }

    /// Acknowledges what the throttle lets go.
    pub(in crate::engine) fn acknowledge(&mut self, cx: &mut Cx<'_>) {
        let log = self.log.as_ref().expect("there is a log");
        // In strict order what one acknowledgement follows upon another is another epoch, which costs the
        // destager a round trip of its own.
        let joins = log.config.order == DestageOrder::Strict && !self.is_draining(cx);
        let mut joined = cx.now;
        while let Some(&Acknowledgeable { key, ready, at_once, .. }) = self.acknowledgeable.front()
        {
            let due = self.acknowledgement_due(cx);
            if due > joined {
                return;
            }
            self.acknowledgeable.pop_front();
            if self.requests.table[key].answered {
                self.requests.forget(key, cx);
                continue;
            }
            if ready < cx.now {
                let injected = cx.now.since(ready);
                cx.counters.acknowledgements_delayed += 1;
                cx.counters.injected_latency_ns += injected.0;
            }
            if !at_once {
                self.note_throttled(due, cx);
            }
            let fua = match self.requests.table[key].job {
                Job::Write(job) => {
                    self.count_write(key, cx);
                    job.fua
                }
                Job::Zero(job) => {
                    cx.counters.discards += 1;
                    job.fua
                }
                Job::Read(_) | Job::Flush | Job::Allocation => unreachable!("a write"),
            };
            if fua && let Some(log) = &mut self.log {
                log.raise_epoch();
                joined = if joins { cx.now.plus(TOGETHER) } else { cx.now };
            }
            let of = Some(self.requests.latency_of(key));
            self.requests.answer(key, IoStatus::Ok, ReplyData::None, of, cx);
            self.requests.forget(key, cx);
        }
    }

    /// When the next write is acknowledged that could be.
    pub(in crate::engine) fn acknowledgement_due(&self, shared: &Shared) -> Nanos {
        match self.acknowledgeable.front() {
            None => Nanos::NEVER,
            Some(first) if first.at_once => first.ready,
            Some(first) => self.throttle_due(first.ready, first.bytes, shared),
        }
    }
}
