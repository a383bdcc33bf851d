//! A connection on its shard: socket, session and engine.

use forebay_core::action::{Actions, Extent, Reply, Span};
use forebay_core::engine::Engine;
use forebay_core::ids::Nanos;
use forebay_io::reactor::{ArenaId, Completion, Reactor, SocketId, Token};

use super::export::Export;
use super::handshake::Negotiated;

/// What a connection works with during one call.
#[derive(Debug)]
pub struct Context<'a> {
    /// The shard's clock.
    pub now: Nanos,
    /// The disk's engine.
    pub engine: &'a mut Engine,
    /// The shard's reactor.
    pub reactor: &'a mut Reactor,
    /// The disk's memory.
    pub arena: ArenaId,
    /// Where the engine appends; the shard carries out what is in it after the call.
    pub actions: &'a mut Actions,
}

/// The tokens under which a connection's operations complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// For what is received.
    pub recv: Token,
    /// For what is sent.
    pub send: Token,
}

/// One client of one disk in its transmission phase.
///
/// The shard's loop: [`on_completion`](Connection::on_completion) for completions with one of its
/// tokens, carry out the actions, [`on_reply`](Connection::on_reply) for replies with its id, then
/// [`flush`](Connection::flush), then `Engine::sent`; [`resume`](Connection::resume) when
/// [`wants_resume`](Connection::wants_resume) says so; [`tick`](Connection::tick) at
/// [`next_deadline`](Connection::next_deadline); forget it when [`is_done`](Connection::is_done).
#[derive(Debug)]
pub struct Connection {}

impl Connection {
    /// Takes over `socket`, of a client that negotiated `negotiated` for `export` and has sent
    /// `leftover` already. Replies come back with `id` in the upper half of their tag.
    pub fn start(
        cx: &mut Context<'_>,
        socket: SocketId,
        export: &Export,
        negotiated: Negotiated,
        leftover: &[u8],
        id: u32,
        tokens: Tokens,
    ) -> Connection {
        let _ = (cx, socket, export, negotiated, leftover, id, tokens);
        todo!()
    }

    /// An operation with one of the connection's tokens has finished.
    pub fn on_completion(&mut self, cx: &mut Context<'_>, completion: Completion) {
        let _ = (cx, completion);
        todo!()
    }

    /// The engine answered a request. `slices` and `extents` are the whole lists of the actions that
    /// the reply came in. Nothing is sent before [`Connection::flush`].
    pub fn on_reply(
        &mut self,
        cx: &mut Context<'_>,
        reply: &Reply,
        slices: &[Span],
        extents: &[Extent],
    ) {
        let _ = (cx, reply, slices, extents);
        todo!()
    }

    /// Sends what is queued, and copies what the socket does not take: afterwards no slot memory is
    /// referred to any more, and the shard may call `Engine::sent`.
    pub fn flush(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
        todo!()
    }

    /// True when there are requests waiting that can be tried (again): the engine was busy or had no
    /// memory, or a limit of the connection was reached and no longer is. Try after completions.
    pub fn wants_resume(&self) -> bool {
        todo!()
    }

    /// Goes on with what waits.
    pub fn resume(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
        todo!()
    }

    /// Finishes the requests in flight, answers them, then closes. New ones are not taken.
    pub fn close(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
        todo!()
    }

    /// When [`Connection::tick`] is due, [`Nanos::NEVER`] when nothing is timed.
    pub fn next_deadline(&self) -> Nanos {
        todo!()
    }

    /// Time has passed: a client that makes no progress is closed.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
        todo!()
    }

    /// True when the socket is closed, no operation is in flight and every request was answered.
    pub fn is_done(&self) -> bool {
        todo!()
    }
}
