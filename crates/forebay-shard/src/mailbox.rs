//! What a shard is asked, and how an operation of the control plane meets its disk.
//!
//! ```text
//!   DiskHandle::ask(closure) ──Command::Disk──► mailbox ──► shard: closure(Visit { disk, now, clients })
//!        ▲                                                        │
//!        └───────────────────── oneshot ◄── answer ───────────────┘  at once, or turns later (disk/answers.rs)
//! ```
//! A disk may go to another shard (`ShardSender::take_clients`). Whoever has its handle finds it there.
//!
//! An operation on a disk is one closure: what it does, and what it answers, stand in one method of
//! [`DiskHandle`]. It runs between two turns of its shard, where nothing else touches the disk, and must not take long.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use forebay_core::ids::Nanos;
use forebay_frontends::client::{DiskId, Moved, Newcomer, Permission};
use forebay_io::mailbox::Sender;
use tokio::sync::oneshot;

use super::client::Clients;
use super::disk::ShardDisk;
use super::{DiskHandle, Drained, NewDisk};

/// What a shard is asked.
pub(crate) enum Command {
    /// Take a disk.
    Add(Box<NewDisk>, Sender<Command>, oneshot::Sender<Result<DiskHandle, String>>),
    /// Take a disk in the place of one that has ended beneath its clients, here or on another shard.
    Replace(DiskHandle, Box<NewDisk>, Sender<Command>, oneshot::Sender<Result<u64, String>>),
    /// Have the clients of disks that have ended beneath them leave for another shard, where others have taken their place.
    /// False: that takes longer; ask again.
    Leave(Vec<DiskHandle>, Sender<Command>, oneshot::Sender<Result<bool, String>>),
    /// Take the clients that have left; the disks go on, with what reservations leave to others.
    Arrive(Vec<(DiskId, Permission)>, Vec<Leaver>),
    /// Forget a disk that has ended, and is on another shard.
    Forget(DiskHandle, Sender<Command>),
    /// Close the clients of a disk that has ended beneath them, whose place no other one takes; true: they have gone. Asked
    /// again, and `late`, no answer of theirs is waited for.
    Dismiss { disk: DiskId, late: bool, answer: oneshot::Sender<Result<bool, String>> },
    /// Take a client; the second is dropped when it is gone.
    Connect(Box<dyn Newcomer>, Box<dyn Send>),
    /// Something that clients of a disk may have waited for has happened.
    Wake(DiskId),
    /// Do this with a disk.
    Disk(DiskId, Operation),
    /// Do this with the disk of this number, which has asked for it.
    Asked(u32, Operation),
    /// Say that it has come round to its mailbox, and the CPU time of its thread so far.
    Turn(oneshot::Sender<Duration>),
    /// Finish what is in flight, flush primary storage of every disk, and end; answered at the end.
    Drain(oneshot::Sender<Vec<Drained>>),
    /// Say how those ended that have by now.
    Ended(oneshot::Sender<Vec<Drained>>),
    /// End at once.
    Stop,
}

/// The id of a disk that comes: no other disk of this process has it.
pub(crate) fn next_id() -> DiskId {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    DiskId(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A client that has left its shard, and what is to be dropped when it is gone.
pub(crate) type Leaver = (Moved, Box<dyn Send>);

/// The mailbox of the shard that a disk is on.
#[derive(Clone, Debug)]
pub(crate) struct Home(Arc<Mutex<Sender<Command>>>);

impl Home {
    pub(crate) fn new(shard: Sender<Command>) -> Home {
        Home(Arc::new(Mutex::new(shard)))
    }

    /// That of now.
    pub(crate) fn shard(&self) -> Sender<Command> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// It has gone to another shard.
    pub(crate) fn move_to(&self, shard: Sender<Command>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = shard;
    }

    /// Tells whether anybody has a handle of the disk.
    pub(crate) fn trail(&self) -> Trail {
        Trail(Arc::downgrade(&self.0))
    }
}

/// What a disk leaves behind on a shard that it was on.
#[derive(Clone, Debug)]
pub(crate) struct Trail(Weak<Mutex<Sender<Command>>>);

impl Trail {
    /// True while somebody has a handle of the disk, and may send something for it.
    pub(crate) fn is_used(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// What is to be done with a disk on its shard.
pub(crate) type Operation = Box<dyn FnOnce(&mut Visit<'_>) + Send>;

/// A disk as an operation finds it.
pub(crate) struct Visit<'a> {
    pub(crate) now: Nanos,
    pub(crate) disk: &'a mut ShardDisk,
    /// Of the whole shard.
    pub(super) all_clients: &'a Clients,
}

impl Visit<'_> {
    /// How many clients use the disk.
    pub(crate) fn clients(&self) -> usize {
        self.all_clients.count_of(self.disk.id())
    }

    /// How many of those wait for room in its tables.
    pub(crate) fn clients_waiting(&self) -> usize {
        self.all_clients.waiting_of(self.disk.id())
    }
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Command::Add(..) => "Add",
            Command::Replace(..) => "Replace",
            Command::Leave(..) => "Leave",
            Command::Arrive(..) => "Arrive",
            Command::Forget(..) => "Forget",
            Command::Dismiss { .. } => "Dismiss",
            Command::Connect(..) => "Connect",
            Command::Wake(..) => "Wake",
            Command::Disk(..) => "Disk",
            Command::Asked(..) => "Asked",
            Command::Turn(..) => "Turn",
            Command::Drain(..) => "Drain",
            Command::Ended(..) => "Ended",
            Command::Stop => "Stop",
        })
    }
}
