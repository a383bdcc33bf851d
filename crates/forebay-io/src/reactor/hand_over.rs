//! What one reactor has goes to another one.

use std::io;
use std::os::fd::OwnedFd;

use super::{EventId, Reactor, SocketId};

impl Reactor {
    /// Lets go of a socket without a word to its peer, for another reactor to have it. What is in flight on it ends as far as
    /// it has come, or with `ECANCELED`: no byte is lost in either direction. Whoever has the socket waits for that.
    ///
    /// # Errors
    /// There is no such socket, or the kernel has no descriptor; then nothing has changed.
    pub fn take_socket(&mut self, id: SocketId) -> io::Result<OwnedFd> {
        let live = self.shared.sockets.live(id.0 as usize);
        let taken = live.ok_or_else(|| no_such("socket"))?.fd.try_clone()?;
        let in_flight = self.shared.on_socket(id);
        self.shared.forget_socket(id.0 as usize);
        let (driver, shared) = self.parts();
        for key in in_flight.into_iter().flatten() {
            driver.cancel(shared, id, key);
        }
        self.drop_freed();
        Ok(taken)
    }

    /// A descriptor of an event, for another reactor to watch: that sees all signals up to then.
    ///
    /// # Errors
    /// There is no such event, or the kernel has no descriptor.
    pub fn copy_event(&mut self, id: EventId) -> io::Result<OwnedFd> {
        let live = self.shared.events.live(id.0 as usize);
        live.ok_or_else(|| no_such("event"))?.fd.try_clone()
    }
}

fn no_such(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the reactor has no such {what}"))
}
