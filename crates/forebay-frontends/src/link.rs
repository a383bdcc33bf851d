//! The socket of a client, and how its shard knows it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_core::ids::RequestTag;
use forebay_io::reactor::SocketId;

use crate::client::{Context, Tokens};

/// See the module.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) id: u32,
    pub(crate) tokens: Tokens,
    pub(crate) socket: SocketId,
    /// The socket while it is away, or about to be: what is in flight has to end first.
    taken: Option<Arc<OwnedFd>>,
}

impl Link {
    pub(crate) fn new(id: u32, tokens: Tokens, socket: SocketId) -> Link {
        Link { id, tokens, socket, taken: None }
    }

    /// The tag of a request.
    pub(crate) fn tag(&self, key: u32) -> RequestTag {
        RequestTag(u64::from(self.id) << 32 | u64::from(key))
    }

    /// True when the socket is of no reactor, or about to be.
    pub(crate) fn is_away(&self) -> bool {
        self.taken.is_some()
    }

    /// Takes the socket from the reactor, for another one; whether it is away, as it is unless it was closed.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>) -> bool {
        if self.taken.is_none() {
            self.taken = cx.reactor.take_socket(self.socket).ok();
        }
        self.taken.is_some()
    }

    /// Goes on with another reactor.
    ///
    /// # Errors
    /// It does not take the socket, which is closed.
    pub(crate) fn enter(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> io::Result<()> {
        let taken = self.taken.take().expect("it has left");
        self.socket = cx.reactor.add_socket(taken)?;
        (self.id, self.tokens) = (id, tokens);
        Ok(())
    }

    /// Closes the socket.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>) {
        // One that is away has no socket here.
        if self.taken.take().is_none() {
            cx.reactor.remove_socket(self.socket);
        }
    }
}
