//! For tests: a shard that cannot attach primary storage of the first disks that it is handed, and one that hangs.
//!
//! No feature hides it: with one, the tests and the programs would each compile this crate and what depends on it. A
//! program calls none of it, so the linker leaves it out.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, Weak};

use forebay_backends::{Backend, BackendIo, Context, Properties, TokenRange};
use forebay_core::ids::Nanos;
use forebay_frontends::client::DiskId;
use forebay_io::arena::Arena;
use forebay_io::mailbox;
use forebay_io::reactor::{Completion, Reactor};

use super::mailbox::{Command, Home};
use super::{DiskHandle, MAILBOX_MAX, ShardSender};

/// Stands between whoever hands disks over and a shard.
pub struct FailingShard {
    /// The way to hand disks over.
    pub sender: ShardSender,
    /// Memory of the disks that could not be taken.
    memory: Arc<Mutex<Vec<Weak<Arena>>>>,
}

impl FailingShard {
    /// Fails so many times, and takes two disks then.
    pub fn start(shard: ShardSender, fails: usize) -> FailingShard {
        let memory = Arc::<Mutex<Vec<_>>>::default();
        let (wakers, waker) = std::sync::mpsc::channel();
        let (receivers, receiver) = std::sync::mpsc::channel();
        let seen = memory.clone();
        std::thread::spawn(move || {
            let mut reactor = Reactor::new(8, None).expect("a reactor");
            wakers.send(reactor.waker()).expect("it is waited for");
            let mailbox: mailbox::Receiver<Command> = receiver.recv().expect("it comes");
            let mut handed = 0;
            while handed < fails + 2 {
                let Some(command) = mailbox.receive() else {
                    reactor.wait(None, &mut Vec::new()).expect("it waits");
                    continue;
                };
                let Command::Add(mut new, _, answer) = command else { unreachable!() };
                if handed < fails {
                    seen.lock().unwrap().push(Arc::downgrade(&new.memory));
                    new.backend = Box::new(Unattachable(new.backend));
                }
                shard.0.send(Command::Add(new, shard.0.clone(), answer)).expect("it has room");
                handed += 1;
            }
        });
        let (sender, mailbox) = mailbox::channel(MAILBOX_MAX, waker.recv().expect("it comes"));
        receivers.send(mailbox).expect("it is waited for");
        FailingShard { sender: ShardSender(sender), memory }
    }

    /// How many disks could not be taken; panics when the shard still has memory of one.
    pub fn failed(&self) -> usize {
        let memory = self.memory.lock().unwrap();
        assert!(memory.iter().all(|it| it.strong_count() == 0), "the shard holds memory");
        memory.len()
    }
}

/// A disk of so many bytes on a shard that takes commands, as long as the second is there, and does nothing.
pub fn hung(size: u64) -> (DiskHandle, impl Sized) {
    hung_as(0, size)
}

/// The same with an id.
pub fn hung_as(id: u32, size: u64) -> (DiskHandle, impl Sized) {
    let reactor = Reactor::new(8, None).expect("a reactor");
    let (sender, mailbox) = mailbox::channel(MAILBOX_MAX, reactor.waker());
    let (size, is_open) = (Arc::new(AtomicU64::new(size)), Arc::new(AtomicBool::new(true)));
    let home = Home::new(sender);
    let disk = DiskHandle { home, id: DiskId(id), size, is_open, resizes: Arc::default() };
    (disk, (reactor, mailbox))
}

/// Primary storage that the reactor does not take.
pub(crate) struct Unattachable(pub(crate) Box<dyn Backend>);

impl Backend for Unattachable {
    fn properties(&self) -> &Properties {
        self.0.properties()
    }

    fn attach(&mut self, _: &mut Context<'_>, _: TokenRange) -> std::io::Result<()> {
        Err(std::io::Error::other("no threads for the I/O of a file"))
    }

    fn lengthen(&mut self, _: u64) {
        unreachable!("it was not attached")
    }

    fn submit(&mut self, _: &mut Context<'_>, _: BackendIo) {
        unreachable!("it was not attached")
    }

    fn on_completion(&mut self, _: &mut Context<'_>, _: Completion) {
        unreachable!("it was not attached")
    }

    fn on_wake(&mut self, _: &mut Context<'_>) {
        unreachable!("it was not attached")
    }

    fn next_deadline(&self) -> Nanos {
        Nanos::NEVER
    }
}
