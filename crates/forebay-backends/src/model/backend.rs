//! A backend whose bytes are another backend's and whose time is a model's.
//!
//! An I/O goes to the inner backend at once. Its end is held until the model says that it is
//! over. A slower inner backend ends it later: the model cannot make it faster.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use forebay_core::action::{Extent, IoOp};
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_io::reactor::Completion;

use super::{Model, ModelConfig, ModelOp};
use crate::backend::{Backend, BackendEvent, BackendIo, Context, TokenRange, leave_to_inner};

/// See the module.
pub struct ModelBackend {
    inner: Box<dyn Backend>,
    model: Model,
    /// I/Os that the inner backend has not ended, with the model's time.
    running: HashMap<IoId, Nanos>,
    /// I/Os that the inner backend has ended, by the time that the world may know; equal times in
    /// the order in which they ended.
    held: BinaryHeap<Reverse<(Nanos, u64, IoId)>>,
    outcomes: HashMap<IoId, Outcome>,
    ended: u64,
    /// Events of the inner backend, kept for its memory.
    inner_events: Vec<BackendEvent>,
}

enum Outcome {
    Done(IoStatus),
    Extents(Vec<Extent>),
}

impl ModelBackend {
    /// Puts the model that `config` describes in front of `inner`.
    pub fn new(config: &ModelConfig, inner: Box<dyn Backend>) -> ModelBackend {
        ModelBackend {
            model: config.build(inner.properties().size),
            inner,
            running: HashMap::new(),
            held: BinaryHeap::new(),
            outcomes: HashMap::new(),
            ended: 0,
            inner_events: Vec::new(),
        }
    }

    /// Lets the inner backend act, holds what it ended, and releases what is due.
    fn with_inner(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut dyn Backend, &mut Context<'_>),
    ) {
        let events = &mut self.inner_events;
        act(&mut *self.inner, &mut Context { now: cx.now, reactor: cx.reactor, events });
        let mut events = std::mem::take(&mut self.inner_events);
        for event in events.drain(..) {
            match event {
                BackendEvent::Done { id, status } => self.hold(id, Outcome::Done(status)),
                BackendEvent::Extents { id, extents } => self.hold(id, Outcome::Extents(extents)),
                BackendEvent::SessionLost | BackendEvent::SessionRestored => cx.events.push(event),
            }
        }
        self.inner_events = events;
        self.release_due(cx);
    }

    fn hold(&mut self, id: IoId, outcome: Outcome) {
        let completes_at =
            self.running.remove(&id).expect("the inner backend ends what it was given");
        self.ended += 1;
        self.held.push(Reverse((completes_at, self.ended, id)));
        self.outcomes.insert(id, outcome);
    }

    fn release_due(&mut self, cx: &mut Context<'_>) {
        while let Some(Reverse((due, _, id))) = self.held.peek().copied()
            && due <= cx.now
        {
            self.held.pop();
            cx.events.push(match self.outcomes.remove(&id).expect("held with its outcome") {
                Outcome::Done(status) => BackendEvent::Done { id, status },
                Outcome::Extents(extents) => BackendEvent::Extents { id, extents },
            });
        }
    }
}

impl Backend for ModelBackend {
    leave_to_inner!();

    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> std::io::Result<()> {
        self.inner.attach(cx, tokens)
    }

    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        let completes_at = if io.refusal(self.inner.properties()).is_some() {
            cx.now
        } else {
            let op = match io.op {
                IoOp::Read { .. } => ModelOp::Read,
                IoOp::Write { .. } => ModelOp::Write,
                IoOp::Flush => ModelOp::Flush,
                IoOp::Discard
                | IoOp::WriteZeroes { .. }
                | IoOp::Extents
                | IoOp::Progress { .. } => ModelOp::Unmap,
            };
            self.model.submit(cx.now, op, io.range)
        };
        self.running.insert(io.id, completes_at);
        self.with_inner(cx, |inner, cx| inner.submit(cx, io));
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        self.with_inner(cx, |inner, cx| inner.on_completion(cx, completion));
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) {
        self.with_inner(cx, |inner, cx| inner.on_wake(cx));
    }

    fn next_deadline(&self) -> Nanos {
        let due = self.held.peek().map_or(Nanos::NEVER, |Reverse((due, ..))| *due);
        due.min(self.inner.next_deadline())
    }

    fn detach(&mut self, cx: &mut Context<'_>) {
        self.inner.detach(cx);
    }
}

#[cfg(test)]
#[path = "backend_tests.rs"]
mod tests;
