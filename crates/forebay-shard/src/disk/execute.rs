//! What a disk's engine asks for is carried out: memory is changed at once, I/O is started, events are reported.
//!
//! Replies are the shard's, which has the clients (`run.rs`).

use forebay_backends::{BackendIo, Context as BackendContext};
use forebay_core::action::{Action, Actions, Io, IoOp, Target};
use forebay_core::ids::Nanos;
use forebay_host::events::Severity;
use forebay_io::reactor::Reactor;

use super::ShardDisk;
use super::ring::Ring;
use crate::event;

impl ShardDisk {
    /// Carries out one action; replies are the shard's.
    pub(crate) fn carry_out(
        &mut self,
        now: Nanos,
        reactor: &mut Reactor,
        actions: &Actions,
        action: Action,
    ) {
        match action {
            Action::Io(io) => self.start_io(now, reactor, io),
            Action::Copy { from, to } => {
                self.port.memory.copy_within(from.offset, to.offset, from.len);
            }
            Action::Zero { memory } => self.port.memory.zero(memory.offset, memory.len),
            Action::Compare { id, found, expected } => {
                let (found, expected, len) = (found.offset, expected.offset, found.len);
                let difference = self.port.memory.first_difference(found, expected, len);
                self.port.engine.compared(now, id, difference, &mut self.port.actions);
            }
            Action::Log(index) => {
                let log = self.log.as_mut().expect("the engine has a log only with one");
                log.build(actions.log[index as usize], &self.port.memory);
            }
            Action::Lease => self.log.as_ref().expect("as above").lease(),
            Action::Unlease(segment) => {
                if !self.log.as_mut().expect("as above").unlease(segment) {
                    let text = format!("it gave back segment {} of the flash twice", segment.0);
                    self.report(Severity::Error, text);
                }
            }
            Action::Ring { memory } => {
                Ring::copy(self.port.engine.ring_pages(), memory, &self.port.memory);
            }
            Action::Revoke => {
                if !self.log.as_ref().expect("as above").revoke() {
                    self.revoked(now, false);
                }
            }
            Action::Void => {
                self.ring.as_ref().expect("the engine has a ring only with one").void();
            }
            Action::Event(event) => {
                let (severity, text) = event::describe(event);
                self.report(severity, text);
            }
            Action::Reply(_) => self.has_replied = true,
        }
    }

    fn start_io(&mut self, now: Nanos, reactor: &mut Reactor, io: Io) {
        match io.target {
            Target::Backend => {
                let events = &mut self.backend_events;
                let mut cx = BackendContext { now, reactor, events };
                let io =
                    BackendIo { id: io.id, range: io.range, op: io.op, arena: self.port.arena };
                self.backend.submit(&mut cx, io);
            }
            Target::Flash => {
                let flash =
                    self.flash.as_mut().expect("the engine has a flash tier only with flash");
                if let Some(status) = flash.start(io, reactor, self.port.arena, &self.port.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
            Target::Ring => {
                let ring = self.ring.as_mut().expect("the engine has a ring only with one");
                if let Some(status) = ring.start(io, reactor, self.port.arena, &self.port.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
            Target::Log => {
                self.wrote_log |= matches!(io.op, IoOp::Write { .. });
                let log = self.log.as_mut().expect("the engine has a log only with one");
                if let Some(status) = log.start(io, reactor, self.port.arena, &self.port.memory) {
                    self.device_ended.push((io.id, status));
                }
            }
        }
    }
}
