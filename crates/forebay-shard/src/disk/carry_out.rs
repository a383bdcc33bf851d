//! What a disk's engine asks for is carried out: memory is changed at once, I/O is started, events are reported.
//!
//! The loop is `forebay_core::executor`'s, which the simulator runs, too. Replies are the shard's, which has the
//! clients (`run.rs`).

use std::time::Duration;

use forebay_core::action::{Actions, Event, Io, IoOp, LogAction, Reply, ReplyData, Span, Target};
use forebay_core::executor::Executor;
use forebay_core::ids::{IoId, Nanos, SegmentId};
use forebay_frontends::client::{Answer, Context};
use forebay_host::events::Severity;
use forebay_io::reactor::Reactor;

use super::ShardDisk;
use super::journal::Journal;
use super::ring::Ring;
use crate::client::Clients;
use crate::event;
use crate::roster::Roster;

/// Carries out what the engine of one disk asks for, in a turn of its shard.
pub(crate) struct Execution<'a> {
    pub now: Nanos,
    pub reactor: &'a mut Reactor,
    pub disks: &'a mut Roster,
    /// Which of them.
    pub place: usize,
    pub clients: &'a mut Clients,
}

impl Execution<'_> {
    fn disk(&mut self) -> &mut ShardDisk {
        self.disks.disk(self.place)
    }

    fn context(&mut self) -> Context<'_> {
        Context { now: self.now, reactor: self.reactor, disks: self.disks }
    }
}

impl Executor for Execution<'_> {
    fn start(&mut self, io: Io) {
        let disk = self.disks.disk(self.place);
        disk.turn.wrote_log |= io.target == Target::Log && matches!(io.op, IoOp::Write { .. });
        disk.storage.start(self.now, self.reactor, io, &disk.port);
    }

    fn copy(&mut self, from: Span, to: Span) {
        self.disk().port.memory.copy_within(from.offset, to.offset, from.len);
    }

    fn zero(&mut self, memory: Span) {
        self.disk().port.memory.zero(memory.offset, memory.len);
    }

    fn compare(&mut self, id: IoId, found: Span, expected: Span) {
        let now = self.now;
        let port = &mut self.disk().port;
        let difference = port.memory.first_difference(found.offset, expected.offset, found.len);
        port.engine.compared(now, id, difference, &mut port.actions);
    }

    fn build(&mut self, action: LogAction) {
        let disk = self.disk();
        disk.storage.log().build(action, &disk.port.memory);
    }

    fn lease(&mut self) {
        self.disk().storage.log().lease();
    }

    fn grow_staging(&mut self) {
        let now = self.now;
        let disk = self.disk();
        let grown = disk.storage.log().grow_staging();
        if let Err(error) = &grown {
            let text = format!("{error:#}: until the next start writes to the log are small");
            disk.report(Severity::Warning, text);
        }
        let port = &mut disk.port;
        if grown.is_ok() {
            port.memory.have_whole_tail();
        }
        port.engine.staging_grown(now, grown.is_ok(), &mut port.actions);
    }

    fn unlease(&mut self, segment: SegmentId) {
        let disk = self.disk();
        if !disk.storage.log().unlease(segment) {
            let text = format!("it gave back segment {} of the flash twice", segment.0);
            disk.report(Severity::Error, text);
        }
    }

    fn renew(&mut self, segment: SegmentId) {
        self.disk().storage.log().renew(segment);
    }

    fn copy_index(&mut self, memory: Span) {
        let port = &self.disk().port;
        Ring::copy(port.engine.ring_pages(), memory, &port.memory);
    }

    fn copy_journal(&mut self, memory: Span) {
        let port = &self.disk().port;
        Journal::copy(port.engine.journal_bytes(), memory, &port.memory);
    }

    fn revoke_journal(&mut self) {
        let now = self.now;
        let disk = self.disk();
        if !disk.storage.journal().revoke() {
            disk.journal_revoked(now, false);
        }
    }

    fn void(&mut self) {
        let now = self.now;
        let disk = self.disk();
        let engine = &disk.port.engine;
        let is_needed = engine.mode().logs()
            || engine.config().mode.logs()
            || engine.log_statistics(now).is_some_and(|log| !log.is_clean);
        let half = Duration::from_nanos(engine.config().flash_timeout.0 / 2);
        disk.storage.ring().void((!is_needed).then_some(half));
    }

    fn revoke(&mut self) {
        let now = self.now;
        let disk = self.disk();
        if !disk.storage.log().revoke() {
            disk.revoked(now, false);
        }
    }

    fn reply(&mut self, reply: &Reply, actions: &Actions) {
        let disk = self.disk();
        disk.turn.has_replied = true;
        let disk = disk.id;
        let answer = Answer { disk, reply, slices: &actions.slices, extents: &actions.extents };
        let mut cx = Context { now: self.now, reactor: self.reactor, disks: self.disks };
        if !self.clients.on_reply(&mut cx, answer) {
            debug_assert!(false, "a reply to nobody: {reply:?}");
            if let ReplyData::Buffer { buffer, .. } = reply.data {
                self.context().release(disk, buffer);
            }
        }
    }

    fn event(&mut self, event: Event) {
        let disk = self.disk();
        if let Event::RamShrunk { .. } = event {
            disk.give_ram_back();
        }
        let (kind, text) = event::describe(event);
        disk.report(kind, text);
    }
}
