//! The engine is told what has ended: an I/O, what primary storage says, what the owner of the pool has done.

use forebay_backends::BackendEvent;
use forebay_core::action::Voided;
use forebay_core::ids::Nanos;
use forebay_frontends::client::Port;
use forebay_host::events::Severity;
use forebay_host::pool::owner::Leased;
use forebay_io::reactor::{Completion, Reactor};

use super::ShardDisk;
use super::ending::{FINAL_FLUSH, Stage};
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
            Class::Backend => {
                let (backend, mut cx) = self.storage.primary(now, reactor);
                backend.on_completion(&mut cx, completion);
            }
            Class::Journal => {
                let (backend, mut cx) = self.storage.journal().backend(now, reactor);
                backend.on_completion(&mut cx, completion);
            }
            Class::Flash | Class::Log | Class::Ring | Class::Progress => {
                let Port { engine, actions, memory, .. } = &mut self.port;
                let (io, status, checksums) =
                    self.storage.finish(class, index, &completion, memory);
                engine.complete(now, io, status, checksums, actions);
            }
        }
    }

    /// Tells the engine of I/Os that ended without a completion of the reactor.
    pub(super) fn absorb_ended(&mut self, now: Nanos) {
        for (io, status) in self.storage.ended.drain(..) {
            self.port.engine.complete(now, io, status, &[], &mut self.port.actions);
        }
        self.absorb_journal(now);
        let mut events = std::mem::take(&mut self.storage.said);
        for event in events.drain(..) {
            match event {
                BackendEvent::Done { id: FINAL_FLUSH, status } => {
                    if !status.is_ok() {
                        self.port.engine.on_last_flush_failed();
                        self.follow_loss();
                    }
                    self.ending.stage = Stage::Flushed(status);
                }
                BackendEvent::Done { id, status } => {
                    self.port.engine.complete(now, id, status, &[], &mut self.port.actions);
                }
                BackendEvent::Extents { id, extents } => {
                    self.port.engine.complete_extents(now, id, &extents, &mut self.port.actions);
                }
                BackendEvent::SessionLost => {
                    self.storage.sessions_lost += 1;
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
        self.storage.said = events;
    }

    /// Tells the engine what the destage journal said.
    fn absorb_journal(&mut self, now: Nanos) {
        let Some(journal) = &mut self.storage.journal else { return };
        let Port { engine, actions, .. } = &mut self.port;
        for event in std::mem::take(&mut journal.said) {
            match event {
                BackendEvent::Done { id, status } => {
                    let checksums = journal.take_checksums(id);
                    let checksums = if status.is_ok() { &checksums[..] } else { &[] };
                    engine.complete(now, id, status, checksums, actions);
                }
                BackendEvent::SessionLost => {
                    engine.on_journal_session_lost(now, actions);
                    let text = "the connection to the destage journal was lost; it is being restored. If that fails, \
                                destaging goes on without the journal";
                    self.events.report(Some(&self.name), Severity::Warning, text.to_owned());
                }
                BackendEvent::SessionRestored => {
                    let text = "the connection to the destage journal is restored";
                    self.events.report(Some(&self.name), Severity::Info, text.to_owned());
                }
                BackendEvent::Extents { .. } => {}
            }
        }
    }

    /// That the destage journal does not count is durably known, or cannot be.
    pub(crate) fn journal_revoked(&mut self, now: Nanos, known: bool) {
        if !self.is_done() {
            self.port.engine.journal_revoked(now, known, &mut self.port.actions);
        }
    }

    /// A segment that was asked for came, or not.
    pub(crate) fn leased(&mut self, now: Nanos, leased: Leased) {
        // What comes to a disk that has ended is given back when its record is closed.
        if !self.is_done() {
            let leased = self.storage.log().leased(leased);
            self.port.engine.leased(now, leased, &mut self.port.actions);
        }
    }

    /// The ring is durably known not to be believed, or cannot be.
    pub(crate) fn voided(&mut self, now: Nanos, voided: Voided) {
        if !self.is_done() {
            self.port.engine.voided(now, voided, &mut self.port.actions);
        }
    }

    /// No later start goes on with the log, whose flash is dead; or nobody can know.
    pub(crate) fn revoked(&mut self, now: Nanos, known: bool) {
        if !self.is_done() {
            self.port.engine.revoked(now, known, &mut self.port.actions);
        }
    }
}
