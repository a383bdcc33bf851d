//! When a write that is in the log is acknowledged.
//!
//! ```text
//!            ┌─ staged (plain, staging survives the process) ──┐
//!  appended ─┼─ written (plain, otherwise) ────────────────────┼─► throttle ─► reply, range let go
//!            └─ durable (FUA) ─────────────────────────────────┘
//! ```
//! An acknowledged FUA or FLUSH raises the flush epoch.

use crate::action::ReplyData;
use crate::cx::Cx;
use crate::engine::Parts;
use crate::geometry::PAGE;
use crate::requests::in_flight::{Job, Stage};
use crate::requests::ledger::LatencyOf;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::{Acknowledgeable, GuestFlush, LogEvent, LogIo, Waiter, WriteBack};

impl Parts {
    /// Something happened in the log.
    pub(in crate::engine) fn on_log_event(&mut self, event: LogEvent, cx: &mut Cx<'_>) {
        match event {
            LogEvent::Nothing => {}
            LogEvent::Advanced => self.acknowledge_written(cx),
            LogEvent::Fails(status) => self.fail_log(status, cx),
            LogEvent::Lost => self.lose_log(cx),
        }
    }

    /// An I/O of the log ended.
    pub(in crate::engine) fn on_log_io(
        &mut self,
        io: LogIo,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        let Some(write_back) = &mut self.write_back else { return };
        let event = match io {
            LogIo::Write { group } => write_back.on_log_written(group, status, checksums),
            LogIo::Summary => write_back.on_log_summarized(status),
            LogIo::Flush => write_back.on_log_flushed(status),
        };
        self.on_log_event(event, cx);
    }

    /// All of the request is appended.
    pub(super) fn on_appended(&mut self, key: Key, fua: bool, cx: &mut Cx<'_>) {
        if let Some(buffer) = self.requests.table[key].buffer.take() {
            cx.free_buffer(buffer);
        }
        let Some(write_back) = &mut self.write_back else { return };
        let entry = &mut self.requests.table[key];
        match write_back.on_appended(key, fua) {
            Waiter::Durable => entry.enter(Stage::Durable, cx.now),
            Waiter::Written => entry.enter(Stage::Logged, cx.now),
            Waiter::Nothing => self.may_acknowledge(key, cx),
        }
    }

    /// The flush is answered when all that is in the log by now is durable.
    pub(in crate::engine) fn wait_for_log(&mut self, key: Key, cx: &mut Cx<'_>) {
        let Some(write_back) = &mut self.write_back else { return };
        match write_back.guest_flush() {
            GuestFlush::Done => self.answer_log_flush(key, cx),
            GuestFlush::Waits => {
                self.requests.table[key].enter(Stage::Durable, cx.now);
                write_back.wait_durable(key);
            }
            GuestFlush::Fails => {
                self.requests.answer(key, IoStatus::IoError, ReplyData::None, None, cx);
                self.requests.forget(key, cx);
            }
        }
    }

    fn answer_log_flush(&mut self, key: Key, cx: &mut Cx<'_>) {
        if let Some(write_back) = &mut self.write_back {
            write_back.raise_epoch();
        }
        cx.counters.flushes += 1;
        self.requests.answer(key, IoStatus::Ok, ReplyData::None, Some(LatencyOf::Flush), cx);
        self.requests.forget(key, cx);
    }

    /// More is written, or durable: lets those go who waited for it.
    fn acknowledge_written(&mut self, cx: &mut Cx<'_>) {
        while let Some(key) = self.write_back.as_mut().and_then(|log| log.next_satisfied()) {
            match self.requests.table[key].job {
                Job::Flush => self.answer_log_flush(key, cx),
                Job::Read(_) | Job::Write(_) | Job::Zero(_) | Job::Allocation(_) => {
                    self.may_acknowledge(key, cx);
                }
            }
        }
        if let Some(write_back) = &mut self.write_back {
            write_back.note_volatile();
        }
    }

    /// The write may be acknowledged as far as the log is concerned.
    fn may_acknowledge(&mut self, key: Key, cx: &mut Cx<'_>) {
        if self.requests.table[key].answered {
            return self.requests.forget(key, cx);
        }
        let entry = &mut self.requests.table[key];
        entry.enter(Stage::Throttled, cx.now);
        let bytes = match entry.job {
            Job::Write(_) => entry.range.len(),
            // Zeroes cost the destager one I/O, whatever their length.
            Job::Zero(_) | Job::Read(_) | Job::Flush | Job::Allocation(_) => PAGE,
        };
        let at_once = self.requests.latency_of(key) == LatencyOf::CompareAndWrite;
        if let Some(write_back) = &mut self.write_back {
            write_back.may_acknowledge(Acknowledgeable { key, ready: cx.now, bytes, at_once });
        }
    }

    /// Acknowledges what the throttle lets go.
    pub(in crate::engine) fn acknowledge(&mut self, cx: &mut Cx<'_>) {
        let aim = self.aim(cx);
        let Some(write_back) = &mut self.write_back else { return };
        write_back.begin_acknowledging(cx.now);
        while let Some((write, due)) = write_back.next_acknowledgement(aim) {
            let Acknowledgeable { key, ready, .. } = write;
            let is_answered = self.requests.table[key].answered;
            if !write_back.keeps_writes() {
                if !is_answered {
                    self.requests.answer(key, IoStatus::IoError, ReplyData::None, None, cx);
                }
                // It keeps its range, as those who waited for the log when it failed.
                write_back.own(key);
                continue;
            }
            if is_answered {
                self.requests.forget(key, cx);
                continue;
            }
            if ready < cx.now {
                let injected = cx.now.since(ready);
                cx.counters.acknowledgements_delayed += 1;
                cx.counters.injected_latency_ns += injected.0;
            }
            write_back.on_acknowledged(write, due, cx.now);
            let fua = match self.requests.table[key].job {
                Job::Write(job) => {
                    self.requests.count_write(key, cx);
                    job.fua
                }
                other => {
                    cx.counters.discards += 1;
                    other.zero().fua
                }
            };
            if fua {
                write_back.on_durable_acknowledged(cx.now, aim);
            }
            let of = Some(self.requests.latency_of(key));
            self.requests.answer(key, IoStatus::Ok, ReplyData::None, of, cx);
            self.requests.forget(key, cx);
        }
        if self.write_back.as_ref().is_some_and(WriteBack::is_lost) {
            self.release_owners(cx);
        }
    }
}
