//! An export of an NBD server as primary storage: Ceph RBD, qcow2, VMDK, S3 and the rest through
//! nbdkit or qemu-nbd.
//!
//! ```text
//!             open()                  a connection ends, garbage, no answer in time
//! (blocking) ──────► session is up ─────────────────────────────────────────────► settling
//!                         ▲                                                          │ all is settled,
//!                         │ connected, and the old                                   ▼ or fence time over
//!                         │ sockets are drained                     SessionLost; sockets closed
//!                         │                                                          │
//!                    SessionRestored, ◄── helper thread connects ◄── back-off ◄──────┘
//!                    unanswered I/O again       └── fails: longer back-off ──►──┘
//! ```
//! - There are several connections where the server promises that a flush on one covers all. The
//!   loss of any of them is the loss of the session, since nobody knows what the server still
//!   holds.
//! - **Fence**: NBD cannot tell a server to forget a request. A write that the server received
//!   may land late, and must not overtake a newer one. So a session that cannot go on is settled
//!   first: no new request is sent, and until each change of data is settled nothing is sent
//!   again. An answered change is settled. (Working connections are listened to, and not shut
//!   down: QEMU would answer that by closing them before its requests have ended.) A change is
//!   also settled when the end of its connection proves that the server let go of it:
//!
//!   | the connection ended by | proves | |
//!   |---|---|---|
//!   | end or reset, unix socket | the server let go of it | nbdkit closes when the last request has ended, Forebay keeps the order of overlapping writes itself; a process that dies closes after its last system call |
//!   | end or reset, TCP | nothing | a proxy that dies ends its streams, too, while the server behind it goes on; a firewall resets |
//!   | garbage | nothing | it is shut down for sending (between two requests), and read until its end, which proves what it does above |
//!   | silence | nothing | the network is cut, or the server hangs |
//!
//!   Where nothing is proven, the wait lasts until [`fence`](NbdUri::fence) after the loss. Then
//!   the server counts as dead, and the socket goes with the bytes that our kernel has not
//!   delivered.
//! - **Limits** of the fence: whoever forwards a unix socket to another host (`socat`, `ssh -L`) ends it when he dies,
//!   as the server would. QEMU closes a connection when it cannot send an answer, and as nbdkit
//!   does when its client broke the protocol, while other requests of it still run. A server that hangs for longer than `timeout` and
//!   `fence` together and then goes on carries out what it has in its socket.
//! - **A start** after a process that did not get all its answers has no connection to judge by.
//!   Changes of data wait for [`fence`](NbdUri::fence) (`hold.rs`), where somebody remembers how
//!   the process before ended.
//! - **Replay**: an I/O that was answered is never sent again; one that was not is sent on the next
//!   session, after [`BackendEvent::SessionLost`]. A flush that would have covered writes answered
//!   on the lost session fails instead of succeeding without them.
//! - An I/O unanswered for `timeout` ends the session, which is the only way to get its memory
//!   back; a flush, a discard and zeroes have ten times as long. The time of what was sent on a connection after one of these
//!   begins when that was answered.
//! - While there is no session, I/O waits; [`Backend::trouble`] says why. The engine has its own
//!   time-outs. Where it is [told to](Backend::give_up_after), it fails after a while instead.
//! - An export that comes back shorter, or that lost an ability, is refused (`export.rs`), and so is one with other data
//!   (`samples.rs`).
//! - A server without flush gets FUA writes if it takes them; otherwise a flush has nothing to do.

mod arrived;
mod connect;
mod dial;
mod export;
mod hold;
mod receive;
mod requests;
mod samples;
mod session;
#[cfg(test)]
mod tests;

use std::io;

use forebay_core::geometry::ByteRange;
use forebay_core::ids::Nanos;
use forebay_core::journal::Owner;
use forebay_io::reactor::Completion;

use crate::backend::{Backend, BackendEvent, BackendIo, Context, Properties, TokenRange};
use crate::error::Error;
use crate::identity::Identity;
use crate::probe::Probe;
use crate::uri::NbdUri;
use connect::{Connector, NewSession, Unconnected};
use export::Export;
use hold::Hold;
use requests::Requests;
use samples::Samples;
use session::Session;

/// Pause after the second attempt to connect; the first is made at once, later pauses double.
const BACK_OFF_MIN: Nanos = Nanos::from_millis(100);
/// Longest pause.
const BACK_OFF_MAX: Nanos = Nanos::from_millis(5_000);

/// See the module.
#[derive(Debug)]
pub struct NbdBackend {
    uri: NbdUri,
    properties: Properties,
    identity: Option<Identity>,
    /// What is used of the server's offer.
    export: Export,
    /// What it held, where that was [asked for](Backend::take_samples), or [whose journal](Backend::expect_journal) it is.
    samples: Samples,
    tokens: Option<TokenRange>,
    requests: Requests,
    hold: Hold,
    /// Up, being settled, or closed and being drained.
    session: Option<Session>,
    /// Ends of reads whose memory the closed session may still be receiving into.
    held: Vec<BackendEvent>,
    state: State,
    loss: Loss,
    due: Due,
}

/// What is to be done.
#[derive(Debug)]
struct Due {
    /// Something was queued after the last send.
    is_send: bool,
    /// When the I/O that has waited longest may be out of time.
    check_at: Nanos,
}

/// The loss of a session, and what follows.
#[derive(Debug)]
struct Loss {
    /// Why, in words for an operator.
    trouble: Option<String>,
    /// When.
    at: Option<Nanos>,
    /// Longest time that I/O waits for a session.
    patience: Nanos,
    /// When the session began.
    up_since: Nanos,
    /// Sessions in a row that were lost soon.
    in_a_row: u32,
}

#[derive(Debug)]
enum State {
    /// Connected by `open`, not attached yet, or ready to go on once the old session has drained.
    Connected(NewSession),
    Up,
    /// The session cannot go on, but the server may still change data for it.
    Settling {
        /// When it counts as dead.
        until: Nanos,
        why: String,
    },
    BackOff {
        until: Nanos,
        attempt: u32,
    },
    Connecting {
        connector: Connector,
        attempt: u32,
    },
    Detached,
}

impl NbdBackend {
    /// Connects; blocks until that has succeeded or failed.
    ///
    /// # Errors
    /// Nothing listens, no such export, the server wants or offers what cannot be used.
    pub fn connect(uri: &NbdUri, read_only: bool) -> Result<NbdBackend, Error> {
        let new = connect::open_session(uri)?;
        let export = new.export;
        let identity = Identity::of_export(uri, new.peer());
        let properties = export.properties(read_only || uri.read_only, new.host_loses());
        Ok(NbdBackend {
            uri: uri.clone(),
            properties,
            identity,
            export,
            samples: Samples::none(export.size),
            tokens: None,
            requests: Requests::new(export.len_max(), export.block_min.into()),
            hold: Hold::Off,
            session: None,
            held: Vec::new(),
            state: State::Connected(new),
            loss: Loss {
                trouble: None,
                at: None,
                patience: Nanos::NEVER,
                up_since: Nanos(0),
                in_a_row: 0,
            },
            due: Due { is_send: false, check_at: Nanos::NEVER },
        })
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        self.due.is_send = false;
        if !matches!(self.state, State::Up) {
            return;
        }
        let session = self.session.as_mut().expect("up");
        if let Err(why) = session.send(cx, &mut self.requests) {
            return self.settle_session(cx, why);
        }
        if self.requests.in_flight() > 0 {
            self.due.check_at = self.due.check_at.min(cx.now.plus(self.uri.timeout));
        }
    }

    /// The session cannot go on; it is lost when nothing of it can change data any more.
    fn settle_session(&mut self, cx: &mut Context<'_>, why: String) {
        self.due.check_at = Nanos::NEVER;
        let wait = "waiting until the server is done with what it was sent";
        self.loss.trouble = Some(format!("{}: {why}; {wait}", self.uri));
        self.state = State::Settling { until: cx.now.plus(self.uri.fence), why };
        self.check_settled(cx);
    }

    fn check_settled(&mut self, cx: &mut Context<'_>) {
        let State::Settling { until, why } = &mut self.state else { return };
        let session = self.session.as_mut().expect("it is not lost yet");
        // A connection that takes no more says so to its receive.
        let _ = session.finish_messages(cx.reactor);
        if session.is_settled(&self.requests) || *until <= cx.now {
            let why = std::mem::take(why);
            self.lose_session(cx, &why);
        }
    }

    /// The session is over; the next attempt to connect is made at once, unless it had only begun.
    fn lose_session(&mut self, cx: &mut Context<'_>, why: &str) {
        self.session.as_mut().expect("it was up").close(cx.reactor);
        let was_short = cx.now.since(self.loss.up_since) < BACK_OFF_MAX;
        self.loss.in_a_row = if was_short { self.loss.in_a_row.saturating_add(1) } else { 0 };
        match self.loss.in_a_row.checked_sub(1) {
            Some(attempt) => self.back_off(cx.now, attempt, why),
            None => self.state = State::BackOff { until: cx.now, attempt: 0 },
        }
        self.loss.at.get_or_insert(cx.now);
        self.loss.trouble = Some(format!("{}: {why}; reconnecting", self.uri));
        cx.events.push(BackendEvent::SessionLost);
        self.requests.session_lost(cx.events, &mut self.held);
        self.tell_held(cx);
    }

    /// Tells the ends of reads that the session took with it, once nobody writes to their memory.
    fn tell_held(&mut self, cx: &mut Context<'_>) {
        if self.session.as_ref().is_none_or(Session::is_drained) {
            cx.events.append(&mut self.held);
        }
    }

    /// When what waits for a session has waited long enough.
    fn give_up_at(&self) -> Nanos {
        let Some(lost_at) = self.loss.at else { return Nanos::NEVER };
        let is_drained = self.session.as_ref().is_none_or(Session::is_drained);
        match is_drained && self.requests.has_next() {
            true => lost_at.plus(self.loss.patience),
            false => Nanos::NEVER,
        }
    }

    /// Fails what has waited too long for a session. Nothing of it can change data any more, nor does anybody use its memory.
    fn give_up(&mut self, cx: &mut Context<'_>) {
        if self.give_up_at() <= cx.now {
            self.requests.fail(cx.events);
        }
    }

    /// Takes the way back to a session as far as it goes now.
    fn reconnect(&mut self, cx: &mut Context<'_>) {
        if let State::BackOff { until, attempt } = self.state
            && until <= cx.now
        {
            match Connector::start(&self.uri, self.samples.clone(), attempt, cx.reactor.waker()) {
                Ok(connector) => self.state = State::Connecting { connector, attempt },
                Err(error) => self.back_off(cx.now, attempt, &error.to_string()),
            }
        }
        if let State::Connecting { connector, attempt } = &self.state
            && let Some(result) = connector.result()
        {
            let attempt = *attempt;
            match self.connected(result).and_then(|new| self.accept(new)) {
                Ok(new) => self.state = State::Connected(new),
                Err(why) => self.back_off(cx.now, attempt, &why),
            }
        }
        if matches!(self.state, State::Connected(_)) {
            self.resume(cx);
        }
    }

    /// What came of an attempt to connect, in words where it was in vain.
    fn connected(&mut self, came: Result<NewSession, Unconnected>) -> Result<NewSession, String> {
        came.map_err(|Unconnected { why, hung }| {
            self.samples.forget(hung.unwrap_or_default());
            why.to_string()
        })
    }

    /// A new session must offer what the first one did, and no fewer bytes. One that became longer is used when the disk
    /// is to be.
    fn accept(&mut self, mut new: NewSession) -> Result<NewSession, String> {
        if new.export.size < self.properties.size {
            return Err(format!(
                "the export came back with {} bytes instead of {}: give it its size back",
                new.export.size, self.properties.size
            ));
        }
        let renewed =
            self.export.renewed(new.export, self.properties.read_only).map_err(|how| {
                format!("the export came back {how}: serve it as before, or restart the disk")
            })?;
        (self.export, new.export) = (renewed, renewed);
        Ok(new)
    }

    fn back_off(&mut self, now: Nanos, attempt: u32, why: &str) {
        let pause = BACK_OFF_MIN.0 << attempt.min(16);
        let until = now.plus(Nanos(pause.min(BACK_OFF_MAX.0)));
        self.state = State::BackOff { until, attempt: attempt.saturating_add(1) };
        self.loss.trouble = Some(format!("{}: {why}; trying again", self.uri));
    }

    /// Starts the new session, once the kernel has let go of the memory of the old one's I/O.
    fn resume(&mut self, cx: &mut Context<'_>) {
        if self.session.as_ref().is_some_and(|session| !session.is_drained()) {
            return;
        }
        let tokens = self.tokens.expect("attached");
        let up = std::mem::replace(&mut self.state, State::Up);
        let State::Connected(new) = up else { unreachable!("only when connected") };
        let (session, started) = Session::start(new, tokens, cx.reactor);
        self.session = Some(session);
        match started {
            Ok(()) => {
                self.loss.trouble = None;
                self.loss.at = None;
                self.loss.up_since = cx.now;
                cx.events.push(BackendEvent::SessionRestored);
            }
            Err(error) => self.back_off(cx.now, 0, &error.to_string()),
        }
    }

    /// Ends the session when an I/O has waited too long.
    fn check_time(&mut self, cx: &mut Context<'_>) {
        if cx.now < self.due.check_at {
            return;
        }
        let first = self.requests.due(self.uri.timeout);
        self.due.check_at = first.map_or(Nanos::NEVER, |(at, _)| at);
        if let Some((_, time)) = first.filter(|(at, _)| *at <= cx.now) {
            let time = crate::duration::exact(time);
            self.settle_session(cx, format!("no answer within {time}"));
        }
    }
}

impl Backend for NbdBackend {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The server's error when the last connection was made.
    fn length(&self) -> Option<u64> {
        Some(self.export.size)
    }

    fn lengthen(&mut self, size: u64) {
        self.properties.size = self.properties.size.max(size);
    }

    fn attach(&mut self, cx: &mut Context<'_>, tokens: TokenRange) -> io::Result<()> {
        self.tokens = Some(tokens);
        let connected = std::mem::replace(&mut self.state, State::Up);
        let State::Connected(new) = connected else { unreachable!("attached once, after open") };
        self.hold.begin(cx.now);
        self.loss.up_since = cx.now;
        let (session, started) = Session::start(new, tokens, cx.reactor);
        self.session = Some(session);
        if started.is_err() {
            self.state = State::Detached;
        }
        started
    }

    fn submit(&mut self, cx: &mut Context<'_>, mut io: BackendIo) {
        if let Some(status) = self.export.answer_here(&mut io, &self.properties) {
            return cx.events.push(BackendEvent::Done { id: io.id, status });
        }
        if io.changes_data() {
            self.samples.forget(io.range);
        }
        if self.hold.takes(&io) {
            return;
        }
        self.requests.submit(io);
        // On an idle session at once; otherwise with what else the shard submits in this turn.
        if self.requests.in_flight() == 0 {
            self.send(cx);
        } else {
            self.due.is_send = true;
        }
        self.give_up(cx);
    }

    fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        let session = self.session.as_mut().expect("its sockets complete");
        let result = session.on_completion(cx, completion, &mut self.requests);
        if let (State::Up, Err(why)) = (&self.state, result) {
            self.settle_session(cx, why);
        }
        if !self.held.is_empty() {
            self.tell_held(cx);
        }
        self.on_wake(cx);
    }

    fn on_wake(&mut self, cx: &mut Context<'_>) {
        for io in self.hold.end(cx.now) {
            self.requests.submit(io);
        }
        match self.state {
            State::Up => self.check_time(cx),
            State::Settling { .. } => self.check_settled(cx),
            State::BackOff { .. } | State::Connecting { .. } | State::Connected(_) => {
                self.reconnect(cx);
            }
            State::Detached => return,
        }
        self.send(cx);
        self.give_up(cx);
    }

    fn next_deadline(&self) -> Nanos {
        let held = self.hold.deadline();
        let session = match self.state {
            State::Up if self.due.is_send => Nanos(0),
            State::Up => self.due.check_at,
            State::Settling { until, .. } | State::BackOff { until, .. } => until,
            State::Connecting { .. } | State::Connected(_) | State::Detached => Nanos::NEVER,
        };
        session.min(held).min(self.give_up_at())
    }

    fn take_samples(&mut self) -> io::Result<()> {
        let State::Connected(new) = &self.state else { unreachable!("before it is attached") };
        // What a former process sent may still change any page.
        if matches!(self.hold, Hold::Wanted(_)) {
            return Ok(());
        }
        // The session will find that it has ended, and there will be another.
        self.samples.take(new).inspect_err(|_| new.shut_down())
    }

    fn expect_journal(&mut self, owner: Owner) -> io::Result<()> {
        let State::Connected(new) = &self.state else { unreachable!("before it is attached") };
        self.samples.expect_journal(new, owner)
    }

    fn forget_samples(&mut self) {
        self.samples.forget(ByteRange::new(0, u64::MAX));
    }

    fn give_up_after(&mut self, patience: Nanos) {
        self.loss.patience = patience;
    }

    fn trouble(&self) -> Option<&str> {
        self.loss.trouble.as_deref()
    }

    fn probe(&self) -> Option<Probe> {
        let Properties { size, read_only, .. } = self.properties;
        Some(Probe::of_export(&self.uri, size, read_only, self.identity.clone()))
    }

    fn hold_changes(&mut self) -> Option<Nanos> {
        if self.uri.fence == Nanos(0) || self.properties.read_only {
            return None;
        }
        self.hold = Hold::Wanted(self.uri.fence);
        self.forget_samples();
        Some(self.uri.fence)
    }

    fn holds_changes(&self) -> bool {
        self.hold.deadline() != Nanos::NEVER
    }

    fn detach(&mut self, cx: &mut Context<'_>) {
        match (&self.state, &mut self.session) {
            (State::Up, Some(session)) => session.leave(cx.reactor, &self.requests),
            (_, Some(session)) => session.close(cx.reactor),
            (_, None) => {}
        }
        self.state = State::Detached;
    }
}
