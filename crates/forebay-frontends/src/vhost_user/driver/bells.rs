//! The eventfds of a queue that the reactor watches: of its guest, which kicks, and of the control socket, which rings when it
//! has given an order.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use forebay_io::reactor::EventId;

use crate::client::{Context, Tokens};

/// See the module.
#[derive(Debug)]
pub(super) struct Bells {
    kick: EventId,
    orders: EventId,
    /// Both, while the queue is away from its shard.
    away: Option<[Arc<OwnedFd>; 2]>,
}

impl Bells {
    /// Has both watched.
    ///
    /// # Errors
    /// The reactor does not take one; it has none then.
    pub(super) fn watch(
        cx: &mut Context<'_>,
        [kick, orders]: [Arc<OwnedFd>; 2],
        tokens: Tokens,
    ) -> io::Result<Bells> {
        let kick = cx.reactor.add_event(kick, tokens.recv)?;
        match cx.reactor.add_event(orders, tokens.send) {
            Ok(orders) => Ok(Bells { kick, orders, away: None }),
            Err(error) => {
                cx.reactor.remove_event(kick);
                Err(error)
            }
        }
    }

    /// True when nobody watches them.
    pub(super) fn are_away(&self) -> bool {
        self.away.is_some()
    }

    /// Takes them from the reactor, for another one.
    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
        let both = [self.kick, self.orders].map(|event| cx.reactor.share_event(event).ok());
        if let [Some(kick), Some(orders)] = both {
            self.remove(cx);
            self.away = Some([kick, orders]);
        }
    }

    /// Has them watched by another reactor.
    ///
    /// # Errors
    /// It does not take them: they are gone.
    pub(super) fn enter(&mut self, cx: &mut Context<'_>, tokens: Tokens) -> io::Result<()> {
        let away = self.away.take().expect("they have left");
        *self = Bells::watch(cx, away, tokens)?;
        Ok(())
    }

    /// Nobody watches them any more.
    pub(super) fn close(&mut self, cx: &mut Context<'_>) {
        if self.away.take().is_none() {
            self.remove(cx);
        }
    }

    fn remove(&self, cx: &mut Context<'_>) {
        cx.reactor.remove_event(self.kick);
        cx.reactor.remove_event(self.orders);
    }
}
