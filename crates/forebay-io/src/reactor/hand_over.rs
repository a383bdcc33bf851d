//! What one reactor has goes to another one. Both have the same descriptor until the first has let go of it: a process
//! without a spare one hands over as well.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{EventId, Reactor, SocketId};

impl Reactor {
    /// Lets go of a socket without a word to its peer, for another reactor to have it. What is in flight on it ends as far as
    /// it has come, or with `ECANCELED`: no byte is lost in either direction. Whoever has the socket waits for that.
    ///
    /// # Errors
    /// There is no such socket.
    pub fn take_socket(&mut self, id: SocketId) -> io::Result<Arc<OwnedFd>> {
        let live = self.shared.sockets.live(id.0 as usize);
        let taken = live.ok_or_else(|| no_such("socket"))?.fd.clone();
        let in_flight = self.shared.on_socket(id);
        self.shared.forget_socket(id.0 as usize);
        let (driver, shared) = self.parts();
        for key in in_flight.into_iter().flatten() {
            driver.cancel(shared, id, key);
        }
        self.drop_freed();
        Ok(taken)
    }

    /// An event, for another reactor to watch, too: that sees all signals up to then.
    ///
    /// # Errors
    /// There is no such event.
    pub fn share_event(&self, id: EventId) -> io::Result<Arc<OwnedFd>> {
        let live = self.shared.events.live(id.0 as usize);
        Ok(live.ok_or_else(|| no_such("event"))?.fd.clone())
    }
}

fn no_such(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the reactor has no such {what}"))
}
