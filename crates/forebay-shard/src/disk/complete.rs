//! The engine is told what has ended: an I/O, what primary storage says, what the owner of the pool has done.

use forebay_backends::{BackendEvent, Context as BackendContext};
use forebay_core::action::Voided;
use forebay_core::ids::Nanos;
use forebay_frontends::client::Port;
use forebay_host::events::Severity;
use forebay_host::pool::owner::Leased;
use forebay_io::reactor::{Completion, Reactor};

use super::ShardDisk;
use super::ending::{Ending, FINAL_FLUSH, FIRST_FLUSH};
use crate::token::Class;

impl ShardDisk {
    /// An operation of this disk has finished.
    pub(crate) fn on_completion(
        &mut self,
        now: Nanos,
        reactor: &mut Reactor,
        class: Class,
        index: u64,
        completion: Completion,
    ) {
        if self.is_done() {
            return;
        }
        match class {
            Class::Client => unreachable!("a client is the shard's"),
            Class::Flash => {
                let flash = self.flash.as_mut().expect("its own token");
                let (io, status, checksums) = flash.finish(index, &completion, &self.port.memory);
                self.port.engine.complete(now, io, status, checksums, &mut self.port.actions);
            }
            Class::Log => {
                let device = &mut self.log.as_mut().expect("its own token").device;
                let (io, status, checksums) = device.finish(index, &completion, &self.port.memory);
                self.port.engine.complete(now, io, status, checksums, &mut self.port.actions);
            }
            Class::Ring => {
                let device = &mut self.ring.as_mut().expect("its own token").device;
                let (io, status, checksums) = device.finish(index, &completion, &self.port.memory);
                self.port.engine.complete(now, io, status, checksums, &mut self.port.actions);
            }
            Class::Progress => {
                let log = self.log.as_mut().expect("its own token");
                let (io, status) = log.noted(&completion);
                self.port.engine.complete(now, io, status, &[], &mut self.port.actions);
            }
            Class::Backend => {
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor, events };
                self.backend.on_completion(&mut cx, completion);
            }
        }
    }

    /// Tells the engine of I/Os that ended without a completion of the reactor.
    pub(super) fn absorb_ended(&mut self, now: Nanos) {
        for (io, status) in self.device_ended.drain(..) {
            self.port.engine.complete(now, io, status, &[], &mut self.port.actions);
        }
        let mut events = std::mem::take(&mut self.backend_events);
        for event in events.drain(..) {
            match event {
                BackendEvent::Done { id: FINAL_FLUSH, status } => {
                    if !status.is_ok() {
                        self.port.engine.on_last_flush_failed();
                        self.follow_loss();
                    }
                    self.ending = Ending::Flushed(status);
                }
                BackendEvent::Done { id: FIRST_FLUSH, status } if !status.is_ok() => {
                    self.unreported_loss.hold(false);
                    let Port { engine, actions, .. } = &mut self.port;
                    engine.on_first_flush_failed(now, status, actions);
                    let text = "primary storage failed the first flush: what a former run wrote may be lost; the next \
                                flush fails";
                    self.report(Severity::Error, text.to_owned());
                }
                BackendEvent::Done { id: FIRST_FLUSH, .. } => self.unreported_loss.hold(false),
                BackendEvent::Done { id, status } => {
                    self.port.engine.complete(now, id, status, &[], &mut self.port.actions);
                }
                BackendEvent::Extents { id, extents } => {
                    self.port.engine.complete_extents(now, id, &extents, &mut self.port.actions);
                }
                BackendEvent::SessionLost => {
                    self.sessions_lost += 1;
                    self.port.engine.on_session_lost(now, &mut self.port.actions);
                    let text = "the connection to primary storage was lost; it is being restored";
                    self.report(Severity::Error, text.to_owned());
                }
                BackendEvent::SessionRestored => {
                    let text = "the connection to primary storage is restored";
                    self.report(Severity::Info, text.to_owned());
                }
            }
        }
        self.backend_events = events;
    }

    /// A segment that was asked for came, or not.
    pub(crate) fn leased(&mut self, now: Nanos, leased: Leased) {
        // What comes to a disk that has ended is given back when its record is closed.
        if !self.is_done() {
            let leased = self.log.as_mut().expect("it asked for a lease").leased(leased);
            self.port.engine.leased(now, leased, &mut self.port.actions);
        }
    }

    /// The ring is durably known not to be believed, or cannot be.
    pub(crate) fn voided(&mut self, now: Nanos, voided: Voided) {
        if !matches!(self.ending, Ending::Done(_)) {
            self.port.engine.voided(now, voided, &mut self.port.actions);
        }
    }

    /// No later start goes on with the log, whose flash is dead; or nobody can know.
    pub(crate) fn revoked(&mut self, now: Nanos, known: bool) {
        if !matches!(self.ending, Ending::Done(_)) {
            self.port.engine.revoked(now, known, &mut self.port.actions);
        }
    }
}
