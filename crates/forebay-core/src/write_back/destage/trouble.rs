//! What the destager does about errors and lost sessions: a pause that grows, then again what is not done.

use std::collections::BTreeMap;

use super::{Destager, RETRY_MAX, RETRY_MIN};
use crate::action::{DestageFault, Event};
use crate::cx::Cx;
use crate::ids::Nanos;
use crate::status::IoStatus;
use crate::write_back::format::index::Place;

/// What went wrong.
#[derive(Debug)]
pub(super) struct Trouble {
    /// Not before this time: an error is a moment ago.
    pub(super) retry_at: Nanos,
    pub(super) pause: Nanos,
    /// What failed last, until it succeeds.
    pub(super) fault: Option<DestageFault>,
    /// Where a read of the log failed the last time, and how often in a row.
    pub(super) unread: BTreeMap<Place, u32>,
}

impl Destager {
    /// What keeps destaging up. An event tells when that is something else than before.
    pub(super) fn note_fault(&mut self, fault: DestageFault, status: IoStatus, cx: &mut Cx<'_>) {
        let before = self.trouble.fault.replace(fault);
        // Errors of primary storage are told where each of its I/Os is noted.
        if before != Some(fault) && fault != DestageFault::PrimaryStorage {
            cx.event(Event::DestageFailed { fault, status });
        }
    }

    /// Primary storage took what was written. That says nothing of notes, which go to flash.
    pub(super) fn note_success(&mut self) {
        self.trouble.fault.take_if(|fault| *fault != DestageFault::Note);
        if self.trouble.fault.is_none() {
            self.trouble.pause = RETRY_MIN;
        }
    }

    /// After an error: not before a pause that grows.
    pub(super) fn pause(&mut self, now: Nanos) {
        self.trouble.retry_at = now.plus(self.trouble.pause);
        self.trouble.pause = Nanos(self.trouble.pause.0 * 2).min(RETRY_MAX);
    }

    /// An I/O of a batch failed: what is not done is tried again after a pause.
    pub(super) fn fail_batch(&mut self, fault: DestageFault, status: IoStatus, cx: &mut Cx<'_>) {
        cx.counters.destage_errors += 1;
        self.window.on_error(cx.now);
        self.note_fault(fault, status, cx);
        self.batch.fail();
        self.pause(cx.now);
    }

    /// The session of primary storage ended: what was not flushed is written again.
    pub(super) fn on_session_lost(&mut self) {
        self.flushes.session += 1;
        self.flushes.flushing = None;
        self.flushes.redo = self.perhaps_there() > self.reached.flushed;
        self.batch.fail();
    }
}
