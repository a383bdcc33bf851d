//! The backend that applies the rules.
//!
//! ```text
//! submit ──rule──► Error, Drop ────────────────► Done
//!    │              Delay, Hang ──► late ──time──┐
//!    │              SessionLost, PowerCut ──► lose the session
//!    └── none, Torn ──► capture (volatile writes only) ──► inner ──► Done
//!
//! Session: Up ──lost──► Draining ──nothing in flight──► Restoring ──► Down ──time──► Up
//!          what is in flight or arrives meanwhile waits, and is started (again) when Up
//! ```
//! Nothing re-enters: events of the inner backend are queued and worked off by `pump`.
//! It allocates as it goes; it is for tests.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::action::{IoOp, Span};
use forebay_core::geometry::ByteRange;
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_io::arena::Arena;
use forebay_io::reactor::{ArenaId, Completion};

use super::FaultConfig;
use super::rule::{Action, ActiveRule};
use super::volatile::UndoLog;
use crate::backend::{Backend, BackendEvent, BackendIo, Context, TokenRange, leave_to_inner};
use forebay_core::splitmix::Rng;

/// Memory for what is read before a volatile write and written back after a power cut.
const BOUNCE: u64 = 1 << 20;

/// Makes the identifiers of own I/O different from those of a wrapped fault backend.
static INSTANCES: AtomicU64 = AtomicU64::new(0);

/// See the module.
pub struct FaultBackend {
    inner: Box<dyn Backend>,
    rules: Vec<ActiveRule>,
    rng: Rng,
    session: Session,
    /// In flight on the inner backend.
    running: HashMap<IoId, Running>,
    /// Delayed until a time, or hung until [`Nanos::NEVER`].
    late: Vec<(Nanos, BackendIo)>,
    /// To be started when the session is up, in order.
    waiting: VecDeque<BackendIo>,
    undo: Option<UndoLog>,
    captures: Captures,
    own_id: IoId,
    own_in_flight: bool,
    inner_events: Vec<BackendEvent>,
}

/// Volatile writes whose old content is to be read.
#[derive(Default)]
struct Captures {
    waiting: VecDeque<(BackendIo, Running)>,
    /// The first one is being read, from here.
    done: u64,
    bounce: Option<ArenaId>,
}

#[derive(Debug)]
enum Session {
    Up,
    /// Waits for what is in flight.
    Draining {
        time: Nanos,
        cut: bool,
    },
    /// Puts back what the power cut lost.
    Restoring {
        time: Nanos,
        lost: Vec<(u64, Box<[u8]>)>,
    },
    Down {
        until: Nanos,
    },
}

/// An I/O in flight: as it was submitted (a torn write is forwarded shorter), and how it will end.
#[derive(Clone, Copy, Debug)]
struct Running {
    io: BackendIo,
    fails_with: Option<IoStatus>,
    flush_interval: u64,
}

impl Running {
    fn plain(io: BackendIo) -> Running {
        Running { io, fails_with: None, flush_interval: 0 }
    }
}

impl FaultBackend {
    /// `inner` with the faults of `config`.
    pub fn new(config: &FaultConfig, inner: Box<dyn Backend>) -> FaultBackend {
        FaultBackend {
            inner,
            rules: config.rules.iter().copied().map(ActiveRule::new).collect(),
            rng: Rng::new(config.seed),
            session: Session::Up,
            running: HashMap::new(),
            late: Vec::new(),
            waiting: VecDeque::new(),
            undo: config.volatile.then(UndoLog::default),
            captures: Captures::default(),
            own_id: IoId(u64::MAX - INSTANCES.fetch_add(1, Ordering::Relaxed)),
            own_in_flight: false,
            inner_events: Vec::new(),
        }
    }

    /// Meets the rules; what no rule stops goes on.
    fn meet(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        let mut action = None;
        for rule in &mut self.rules {
            action = action.or(rule.meet(&io, &mut self.rng));
        }
        let done = |status| BackendEvent::Done { id: io.id, status };
        match action {
            None => self.start(cx, io, Running::plain(io)),
            Some(Action::Error(status)) => cx.events.push(done(status)),
            Some(Action::Drop) => cx.events.push(done(IoStatus::Ok)),
            Some(Action::Delay(time)) => self.late.push((cx.now.plus(time), io)),
            Some(Action::Hang) => self.late.push((Nanos::NEVER, io)),
            Some(Action::Torn) => self.tear(cx, io),
            Some(Action::SessionLost { time }) => self.lose_session(cx, io, time, false),
            Some(Action::PowerCut { time }) => self.lose_session(cx, io, time, true),
        }
    }

    /// Starts an I/O on the inner backend, a volatile write after its capture.
    fn start(&mut self, cx: &mut Context<'_>, io: BackendIo, mut running: Running) {
        if let Some(undo) = &mut self.undo {
            match io.op {
                IoOp::Write { .. } if io.refusal(self.inner.properties()).is_none() => {
                    self.captures.waiting.push_back((io, running));
                    return self.capture_next(cx);
                }
                IoOp::Flush => running.flush_interval = undo.begin_flush(),
                _ => {}
            }
        }
        self.forward(cx, io, running);
    }

    fn forward(&mut self, cx: &mut Context<'_>, io: BackendIo, running: Running) {
        let before = self.running.insert(io.id, running);
        assert!(before.is_none(), "an IoId is used twice at the same time");
        self.call_inner(cx, |inner, cx| inner.submit(cx, io));
    }

    /// Writes a part of a write from its start, in whole blocks and never all of it, then fails it.
    fn tear(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        let block = u64::from(self.inner.properties().logical_block);
        let IoOp::Write { memory, durable } = io.op else {
            unreachable!("the rule looks at writes only")
        };
        let written = self.rng.below((io.range.len() / block).max(1)) * block;
        if written == 0 {
            let status = IoStatus::IoError;
            return cx.events.push(BackendEvent::Done { id: io.id, status });
        }
        let part = BackendIo {
            range: ByteRange::at(io.range.start, written),
            op: IoOp::Write { memory: memory.part(0, written), durable },
            ..io
        };
        self.start(cx, part, Running { fails_with: Some(IoStatus::IoError), ..Running::plain(io) });
    }

    fn lose_session(&mut self, cx: &mut Context<'_>, io: BackendIo, time: Nanos, cut: bool) {
        cx.events.push(BackendEvent::SessionLost);
        self.session = Session::Draining { time, cut };
        self.replay_later(cx, io);
        let hung: Vec<_> = self.late.extract_if(.., |(due, _)| *due == Nanos::NEVER).collect();
        for (_, io) in hung {
            self.replay_later(cx, io);
        }
        self.advance_session(cx);
    }

    /// I/Os without an answer when the session ended start again on the next one. But a flush
    /// must not succeed there for writes that were lost here.
    fn replay_later(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        match io.op {
            IoOp::Flush => {
                let status = IoStatus::IoError;
                cx.events.push(BackendEvent::Done { id: io.id, status });
            }
            IoOp::Read { .. }
            | IoOp::Write { .. }
            | IoOp::Discard
            | IoOp::WriteZeroes { .. }
            | IoOp::Extents
            | IoOp::Progress { .. } => self.waiting.push_back(io),
        }
    }

    /// Takes the session as far as it goes now.
    fn advance_session(&mut self, cx: &mut Context<'_>) {
        loop {
            match &mut self.session {
                Session::Up => return,
                Session::Draining { time, cut } => {
                    if !self.running.is_empty() || self.own_in_flight {
                        return;
                    }
                    let lost = match &mut self.undo {
                        Some(undo) if *cut => undo.cut(&mut self.rng),
                        Some(_) | None => Vec::new(),
                    };
                    self.waiting
                        .extend(self.captures.waiting.drain(..).map(|(_, running)| running.io));
                    self.session = Session::Restoring { time: *time, lost };
                }
                Session::Restoring { time, lost } => {
                    if self.own_in_flight {
                        return;
                    }
                    let Some((position, old)) = lost.pop() else {
                        self.session = Session::Down { until: cx.now.plus(*time) };
                        continue;
                    };
                    let bounce = self.captures.bounce.expect("attached");
                    cx.reactor.arena(bounce).write_at(0, &old);
                    let memory = Span { offset: 0, len: old.len() as u32 };
                    let range = ByteRange::at(position, old.len() as u64);
                    self.start_own(cx, range, IoOp::Write { memory, durable: false });
                }
                Session::Down { until } => {
                    if cx.now < *until {
                        return;
                    }
                    self.session = Session::Up;
                    cx.events.push(BackendEvent::SessionRestored);
                    // Without the rules: what ended the session must not end the next one too.
                    for io in std::mem::take(&mut self.waiting) {
                        self.start_when_up(cx, io);
                    }
                }
            }
        }
    }

    fn start_when_up(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        match self.session {
            Session::Up => self.start(cx, io, Running::plain(io)),
            Session::Draining { .. } | Session::Restoring { .. } | Session::Down { .. } => {
                self.waiting.push_back(io);
            }
        }
    }

    /// Reads the next piece of the old content of the first captured write, or starts that write.
    fn capture_next(&mut self, cx: &mut Context<'_>) {
        if self.own_in_flight || !matches!(self.session, Session::Up) {
            return;
        }
        let Some((io, running)) = self.captures.waiting.front().copied() else { return };
        let left = io.range.len() - self.captures.done;
        if left == 0 {
            self.captures.waiting.pop_front();
            self.captures.done = 0;
            self.forward(cx, io, running);
            return self.capture_next(cx);
        }
        let len = left.min(BOUNCE);
        let memory = Span { offset: 0, len: len as u32 };
        let range = ByteRange::at(io.range.start + self.captures.done, len);
        self.start_own(cx, range, IoOp::Read { memory });
    }

    fn start_own(&mut self, cx: &mut Context<'_>, range: ByteRange, op: IoOp) {
        assert!(!self.own_in_flight);
        self.own_in_flight = true;
        let arena = self.captures.bounce.expect("attached");
        let io = BackendIo { id: self.own_id, range, op, arena };
        self.call_inner(cx, |inner, cx| inner.submit(cx, io));
    }

    fn on_own_done(&mut self, cx: &mut Context<'_>, status: IoStatus) {
        self.own_in_flight = false;
        if let Session::Up = self.session {
            self.on_captured(cx, status);
        } else {
            // A capture that was under way starts again with its write; a lost block that could not
            // be put back was not lost.
            self.captures.done = 0;
        }
    }

    fn on_captured(&mut self, cx: &mut Context<'_>, status: IoStatus) {
        let (io, _) = *self.captures.waiting.front().expect("a capture is under way");
        if !status.is_ok() {
            self.captures.waiting.pop_front();
            self.captures.done = 0;
            cx.events.push(BackendEvent::Done { id: io.id, status });
            return self.capture_next(cx);
        }
        let block = u64::from(self.inner.properties().logical_block);
        let len = (io.range.len() - self.captures.done).min(BOUNCE);
        let arena = cx.reactor.arena(self.captures.bounce.expect("attached"));
        let undo = self.undo.as_mut().expect("captures are for volatile backends");
        let mut old = vec![0; block as usize];
        for offset in (0..len).step_by(block as usize) {
            arena.read_at(offset, &mut old);
            undo.remember(io.range.start + self.captures.done + offset, &old);
        }
        self.captures.done += len;
        self.capture_next(cx);
    }

    fn on_inner_event(&mut self, cx: &mut Context<'_>, event: BackendEvent) {
        let id = match &event {
            BackendEvent::Done { id, status } if *id == self.own_id => {
                return self.on_own_done(cx, *status);
            }
            BackendEvent::Done { id, .. } | BackendEvent::Extents { id, .. } => *id,
            BackendEvent::SessionLost | BackendEvent::SessionRestored => {
                return cx.events.push(event);
            }
        };
        let running = self.running.remove(&id).expect("the inner backend ends what it was given");
        if let Session::Draining { .. } = self.session {
            // The answer is lost with the session.
            return self.replay_later(cx, running.io);
        }
        match event {
            BackendEvent::Done { status: IoStatus::Ok, .. } => {
                if let (IoOp::Flush, Some(undo)) = (running.io.op, &mut self.undo) {
                    undo.flushed(running.flush_interval);
                }
                let status = running.fails_with.unwrap_or(IoStatus::Ok);
                cx.events.push(BackendEvent::Done { id, status });
            }
            other => cx.events.push(other),
        }
    }

    fn call_inner(
        &mut self,
        cx: &mut Context<'_>,
        act: impl FnOnce(&mut dyn Backend, &mut Context<'_>),
    ) {
        let events = &mut self.inner_events;
        act(&mut *self.inner, &mut Context { now: cx.now, reactor: cx.reactor, events });
    }

    /// Works off what the inner backend has told, and what follows from it.
    fn pump(&mut self, cx: &mut Context<'_>) {
        while !self.inner_events.is_empty() {
            for event in std::mem::take(&mut self.inner_events) {
                self.on_inner_event(cx, event);
            }
            self.advance_session(cx);
        }
    }
}

impl Backend for FaultBackend {
    leave_to_inner!();

    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> std::io::Result<()> {
        if self.undo.is_some() {
            let arena = Arc::new(Arena::new(BOUNCE as usize)?);
            self.captures.bounce = Some(cx.reactor.add_arena(arena)?);
        }
        self.inner.attach(cx, tokens)
    }

    fn submit(&mut self, cx: &mut Context<'_>, io: BackendIo) {
        match self.session {
            Session::Up => self.meet(cx, io),
            Session::Draining { .. } | Session::Restoring { .. } | Session::Down { .. } => {
                self.waiting.push_back(io);
            }
        }
        self.pump(cx);
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        self.call_inner(cx, |inner, cx| inner.on_completion(cx, completion));
        self.pump(cx);
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) {
        self.call_inner(cx, |inner, cx| inner.on_wake(cx));
        let now = cx.now;
        let due: Vec<_> = self.late.extract_if(.., |(due, _)| *due <= now).collect();
        for (_, io) in due {
            self.start_when_up(cx, io);
        }
        self.advance_session(cx);
        self.pump(cx);
    }

    fn next_deadline(&self) -> Nanos {
        let late = self.late.iter().map(|(due, _)| *due).min().unwrap_or(Nanos::NEVER);
        let session = match self.session {
            Session::Down { until } => until,
            Session::Up | Session::Draining { .. } | Session::Restoring { .. } => Nanos::NEVER,
        };
        late.min(session).min(self.inner.next_deadline())
    }

    fn detach(&mut self, cx: &mut Context<'_>) {
        if let Some(bounce) = self.captures.bounce.take() {
            cx.reactor.remove_arena(bounce);
        }
        self.inner.detach(cx);
    }
}
