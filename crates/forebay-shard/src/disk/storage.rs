//! What a disk's engine does I/O on: primary storage, and on flash its cache, the cache's index and its log.

use forebay_backends::{Backend, BackendEvent, BackendIo, Context as BackendContext};
use forebay_core::action::{Io, Target};
use forebay_core::ids::{IoId, Nanos};
use forebay_core::status::IoStatus;
use forebay_frontends::client::Port;
use forebay_io::arena::Arena;
use forebay_io::reactor::{Completion, Reactor};

use super::device::Device;
use super::journal::Journal;
use super::log::Log;
use super::registration::Registration;
use super::ring::Ring;
use crate::token::Class;

/// See the module. The engine has a tier, a log, an index only where there is one here.
pub(super) struct Storage {
    pub(super) backend: Box<dyn Backend>,
    /// What primary storage said, for the engine.
    pub(super) said: Vec<BackendEvent>,
    /// Sessions with primary storage that were lost.
    pub(super) sessions_lost: u64,
    pub(super) flash: Option<Device>,
    pub(super) ring: Option<Ring>,
    pub(super) log: Option<Log>,
    pub(super) journal: Option<Journal>,
    /// I/Os of flash and log that ended as they were started.
    pub(super) ended: Vec<(IoId, IoStatus)>,
    /// What the reactor has of it, until the disk has ended.
    pub(super) registered: Registration,
}

impl Storage {
    /// The backend, and what it is called with.
    pub(super) fn primary<'a>(
        &'a mut self,
        now: Nanos,
        reactor: &'a mut Reactor,
    ) -> (&'a mut dyn Backend, BackendContext<'a>) {
        (&mut *self.backend, BackendContext { now, reactor, events: &mut self.said })
    }

    /// Starts an I/O of the engine, whose memory is the port's.
    pub(super) fn start(&mut self, now: Nanos, reactor: &mut Reactor, io: Io, port: &Port) {
        let (arena, memory) = (port.arena, &port.memory);
        let ended = match io.target {
            Target::Backend => {
                let (backend, mut cx) = self.primary(now, reactor);
                backend.submit(&mut cx, BackendIo { id: io.id, range: io.range, op: io.op, arena });
                None
            }
            Target::Flash => self.flash().start(io, reactor, arena, memory),
            Target::Ring => self.ring().start(io, reactor, arena, memory),
            Target::Log => self.log().start(io, reactor, arena, memory),
            Target::Journal => {
                self.journal().start(now, reactor, io, (arena, memory));
                None
            }
        };
        self.ended.extend(ended.map(|status| (io.id, status)));
    }

    /// An I/O on flash ended: which, how, its checksums.
    pub(super) fn finish(
        &mut self,
        class: Class,
        index: u64,
        completion: &Completion,
        memory: &Arena,
    ) -> (IoId, IoStatus, &[u32]) {
        match class {
            Class::Flash => self.flash().finish(index, completion, memory),
            Class::Log => self.log().device.finish(index, completion, memory),
            Class::Ring => self.ring().device.finish(index, completion, memory),
            Class::Progress => {
                let (io, status) = self.log().noted(completion);
                (io, status, &[])
            }
            Class::Client | Class::Backend | Class::Journal => unreachable!("no I/O on flash"),
        }
    }

    /// True when something ended that the engine was not told of.
    pub(super) fn has_news(&self) -> bool {
        let has_said = self.journal.as_ref().is_some_and(|journal| !journal.said.is_empty());
        !self.said.is_empty() || !self.ended.is_empty() || has_said
    }

    /// Nothing is started any more: memory and flash are free as soon as nothing under way uses them. The journal is free if it
    /// `is_quiet`: what is under way there may yet arrive.
    pub(super) fn let_go(&mut self, reactor: &mut Reactor, is_quiet: bool) {
        (self.flash, self.ring, self.log) = (None, None, None);
        if is_quiet && let Some(journal) = &mut self.journal {
            journal.let_go();
        }
        std::mem::take(&mut self.registered).let_go(reactor);
    }

    /// Time has passed.
    pub(super) fn wake(&mut self, now: Nanos, reactor: &mut Reactor) {
        let (backend, mut cx) = self.primary(now, reactor);
        backend.on_wake(&mut cx);
        if let Some(journal) = &mut self.journal {
            let (backend, mut cx) = journal.backend(now, reactor);
            backend.on_wake(&mut cx);
        }
    }

    /// When primary storage or its journal is to be woken at the latest.
    pub(super) fn next_deadline(&self) -> Nanos {
        let journal = self.journal.as_ref().map_or(Nanos::NEVER, Journal::next_deadline);
        self.backend.next_deadline().min(journal)
    }

    /// Lets go of primary storage and its journal.
    pub(super) fn detach(&mut self, now: Nanos, reactor: &mut Reactor) {
        let (backend, mut cx) = self.primary(now, reactor);
        backend.detach(&mut cx);
        if let Some(journal) = &mut self.journal {
            let (backend, mut cx) = journal.backend(now, reactor);
            backend.detach(&mut cx);
        }
    }

    fn flash(&mut self) -> &mut Device {
        self.flash.as_mut().expect("the engine has a flash tier only with flash")
    }

    pub(super) fn ring(&mut self) -> &mut Ring {
        self.ring.as_mut().expect("the engine has an index only with one")
    }

    pub(super) fn journal(&mut self) -> &mut Journal {
        self.journal.as_mut().expect("the engine has a journal only with one")
    }

    pub(super) fn log(&mut self) -> &mut Log {
        self.log.as_mut().expect("the engine has a log only with one")
    }
}
