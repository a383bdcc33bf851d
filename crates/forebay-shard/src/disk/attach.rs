//! A disk comes to its shard: everything that it uses is registered with the reactor, or nothing is.

use forebay_backends::TokenRange;
use forebay_core::action::Actions;
use forebay_core::ids::Nanos;
use forebay_frontends::client::Port;
use forebay_host::events::EventSender;
use forebay_io::reactor::Reactor;

use super::answers::Waiting;
use super::detach::Detaching;
use super::device::Device;
use super::ending::Ending;
use super::journal::Journal;
use super::log::Log;
use super::registration::Registration;
use super::ring::Ring;
use super::storage::Storage;
use super::{Holds, ShardDisk, Shown, Turn};
use crate::return_path::ReturnPath;
use crate::token::{Class, token};
use crate::{DiskHandle, NewDisk};

/// Actions that a batch has room for before its lists grow.
const BATCH: usize = 256;

impl ShardDisk {
    /// Registers everything with the shard's reactor; nothing stays there when it fails.
    ///
    /// # Errors
    /// The kernel's or the backend's, or what the mode lacks.
    pub(crate) fn attach(
        new: NewDisk,
        now: Nanos,
        reactor: &mut Reactor,
        events: EventSender,
        (handle, path): (&DiskHandle, ReturnPath),
    ) -> std::io::Result<ShardDisk> {
        let (mode, is_paused, number) = (new.mode, new.is_paused, path.number);
        let mut registered = Registration::default();
        let disk = ShardDisk::register(new, reactor, &mut registered, events, (handle, path));
        let attached = disk.and_then(|mut disk| {
            disk.set_mode(now, mode).map_err(std::io::Error::other)?;
            // Another mode resumes what was paused.
            if is_paused && mode.logs() {
                disk.pause(now, true);
            }
            disk.begin(now, number, reactor)?;
            Ok(disk)
        });
        match attached {
            Ok(mut disk) => {
                disk.storage.registered = registered;
                Ok(disk)
            }
            Err(error) => {
                registered.let_go(reactor);
                Err(error)
            }
        }
    }

    /// Registers everything but primary storage.
    fn register(
        new: NewDisk,
        reactor: &mut Reactor,
        registered: &mut Registration,
        events: EventSender,
        (handle, path): (&DiskHandle, ReturnPath),
    ) -> std::io::Result<ShardDisk> {
        let number = path.number;
        let NewDisk {
            name,
            mut engine,
            memory,
            mut backend,
            last_write,
            unreported_loss,
            access,
            journal,
            ..
        } = new;
        if let Some(last_write) = last_write {
            backend.tell_of_writes(last_write);
        }
        if unreported_loss.is_noted() {
            engine.remember_untold_loss();
        }
        let arena = registered.arena(reactor, memory.clone())?;
        let (is_open, resizes) = (handle.is_open.clone(), handle.resizes.clone());
        let (mut flash, mut ring) = (None, None);
        if let Some(share) = new.flash {
            let file = registered.file(reactor, share.file)?;
            flash = Some(Device::new(file.clone(), &share.parts, Class::Flash, number));
            ring = share.ring.map(|share| Ring::new(share, file, number, path.clone()));
        }
        let of_log = path.clone();
        let log = new.log.map(|share| Log::new(share, number, of_log, reactor, registered));
        let log = log.transpose()?;
        let journal = journal.map(|share| Journal::new(share, path));
        memory.own();
        Ok(ShardDisk {
            id: handle.id,
            name,
            port: Port {
                engine,
                memory,
                arena,
                actions: Actions::with_capacity(BATCH),
                access,
                is_held: false,
                // Who comes from a disk before this one may wait for an answer.
                has_news: true,
            },
            storage: Storage {
                backend,
                said: Vec::with_capacity(BATCH),
                sessions_lost: 0,
                flash,
                ring,
                log,
                journal,
                ended: Vec::new(),
                registered: Registration::default(),
            },
            unreported_loss,
            turn: Turn {
                running: Actions::with_capacity(BATCH),
                has_more: false,
                has_replied: false,
                wrote_log: false,
                buffers_due: Nanos::NEVER,
                gives_ram_back: false,
            },
            ending: Ending::NONE,
            detaching: Detaching::No("nobody asked for it"),
            waiting: Waiting::default(),
            holds: Holds::default(),
            shown: Shown { is_open, resizes },
            events,
        })
    }

    /// Attaches primary storage, after all else that can fail: what is sent to it completes for this number.
    fn begin(&mut self, now: Nanos, number: u32, reactor: &mut Reactor) -> std::io::Result<()> {
        let tokens = TokenRange { base: token(Class::Backend, number, 0).0 };
        if let Some(journal) = &mut self.storage.journal {
            let tokens = TokenRange { base: token(Class::Journal, number, 0).0 };
            let (backend, mut cx) = journal.backend(now, reactor);
            if let Err(error) = backend.attach(&mut cx, tokens) {
                backend.detach(&mut cx);
                return Err(error);
            }
        }
        let (backend, mut cx) = self.storage.primary(now, reactor);
        if let Err(error) = backend.attach(&mut cx, tokens) {
            self.storage.detach(now, reactor);
            return Err(error);
        }
        self.port.engine.set_unsettled(self.storage.backend.holds_changes());
        let Port { engine, actions, .. } = &mut self.port;
        engine.begin(now, actions);
        Ok(())
    }
}
