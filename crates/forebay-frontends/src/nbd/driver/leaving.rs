//! A connection leaves: for good, or to another shard.

use forebay_core::request::Op;

use super::{Connection, Phase, Waiting};
use crate::client::{Context, Tokens};

impl Connection {
    /// Takes no further request.
    pub(super) fn drain(&mut self, cx: &mut Context<'_>) {
        if self.phase != Phase::Open {
            return;
        }
        self.phase = Phase::Draining;
        self.drop_unsubmitted(cx);
        if self.is_drained() {
            self.disconnect(cx);
        }
    }

    /// Closes the socket; what is in flight finishes unseen.
    pub(super) fn disconnect(&mut self, cx: &mut Context<'_>) {
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.link.close(cx);
        self.outbox.discard(cx);
        self.drop_unsubmitted(cx);
    }

    /// Gives up what the engine has not been given: a write is whole or it is nothing.
    pub(super) fn drop_unsubmitted(&mut self, cx: &mut Context<'_>) {
        match self.waiting.take() {
            None | Some(Waiting::Room { .. }) => {}
            Some(Waiting::Memory { key, .. }) => self.session.forget(key),
            Some(Waiting::Place { request, second }) => {
                let key = request.tag.0 as u32;
                self.session.forget(key);
                if second.is_some() {
                    self.session.forget(key + 1);
                }
                if let Op::Write { buffer, .. } = request.op {
                    cx.release(self.disk, buffer);
                }
            }
        }
        // A receive in flight may still write to the buffer: its completion comes here again.
        if self.is_receiving {
            return;
        }
        if let Some(incoming) = self.incoming.take() {
            self.session.forget(incoming.key);
            cx.release(self.disk, incoming.buffer);
        }
    }

    /// Lets go of its shard; whether it has.
    pub(super) fn let_go(&mut self, cx: &mut Context<'_>) -> bool {
        if self.phase != Phase::Closed && !self.link.is_away() {
            debug_assert!(self.is_answered() && self.incoming.is_none(), "it is owed something");
            self.link.leave(cx);
        }
        self.link.is_away() && !self.is_receiving && !self.outbox.is_sending()
    }

    /// Goes on with another shard.
    ///
    /// # Errors
    /// The reactor does not take its socket.
    pub(super) fn come_in(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> std::io::Result<()> {
        self.link.enter(cx, id, tokens)?;
        self.outbox.enter(self.link.socket, tokens.send);
        if let Some(Waiting::Place { request, .. }) = &mut self.waiting {
            request.tag = self.link.tag(request.tag.0 as u32);
        }
        self.take_requests(cx);
        Ok(())
    }
}
