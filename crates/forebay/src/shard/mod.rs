//! Shards: threads that own disks, each with one reactor, and the handles to talk to them.
//!
//! ```text
//!   control plane                        shard thread
//!   ShardHandle ──Command, mailbox──►  loop {
//!                                        wait        reactor: completions, a wake-up, or a deadline
//!                                        dispatch    each completion to its disk's client, flash or backend
//!                                        turn        each disk: run its actions until none is left,
//!                                                    send, tell the engine, resume clients that wait
//!                                        commands    from the mailbox
//!                                      }
//! ```
//! **Invariants.** A disk, its engine, its memory's bookkeeping and its connections are touched by one
//! thread only. The shard never waits but in the reactor. Nothing is allocated per I/O once the lists
//! have grown to the largest batch.
//!
//! Limits: [`MAILBOX_MAX`] commands may wait; a full mailbox refuses the connection that wanted in.

use std::sync::Arc;
use std::thread::JoinHandle;

use forebay_backends::Backend;
use forebay_core::engine::Engine;
use forebay_core::status::IoStatus;
use forebay_frontends::nbd::{Export, Negotiated};
use forebay_io::arena::Arena;
use forebay_io::mailbox::Sender;
use forebay_io::reactor::ReactorKind;
use tokio::sync::oneshot;

use crate::daemon::api::DiskStats;
use crate::daemon::events::EventSender;
use crate::daemon::flash::FlashShare;

mod client;
mod disk;
mod event;
mod flash;
mod run;
mod thread;
mod token;

/// Commands that may wait for a shard.
pub const MAILBOX_MAX: usize = 1024;

/// What the control plane asks of a shard.
pub(crate) enum Command {
    /// Take a disk; answered with its number on this shard.
    Add(Box<NewDisk>, oneshot::Sender<Result<u32, String>>),
    /// Take a client of a disk.
    Connect(u32, Box<NewClient>),
    /// Tell how a disk is.
    Stats(u32, oneshot::Sender<DiskStats>),
    /// Finish what is in flight, flush primary storage of every disk, and end; answered at the end.
    Drain(oneshot::Sender<Vec<Drained>>),
    /// End at once.
    Stop,
}

/// A disk that is ready to be served.
pub struct NewDisk {
    /// Its name, for events.
    pub name: Arc<str>,
    /// Its engine.
    pub engine: Engine,
    /// Memory of [`Engine::memory_size`] bytes.
    pub memory: Arc<Arena>,
    /// Primary storage.
    pub backend: Box<dyn Backend>,
    /// Its share of flash.
    pub flash: Option<FlashShare>,
}

/// A client whose handshake is over.
pub struct NewClient {
    /// The socket.
    pub socket: std::os::fd::OwnedFd,
    /// The exports of its listener.
    pub exports: Arc<[Export]>,
    /// Which of them it chose.
    pub export: usize,
    /// What was agreed on.
    pub negotiated: Negotiated,
    /// What it sent after its handshake.
    pub leftover: Vec<u8>,
    /// Dropped when the connection ends.
    pub guard: Box<dyn Send>,
}

/// How a disk ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Its name.
    pub name: String,
    /// How the last flush of primary storage ended.
    pub status: IoStatus,
}

/// The shard has ended, or its mailbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// A running shard thread. Dropping it ends the thread at once.
#[derive(Debug)]
pub struct ShardHandle {
    sender: Sender<Command>,
    thread: Option<JoinHandle<()>>,
    ended: Option<oneshot::Receiver<String>>,
    /// What its reactor runs on.
    pub kind: ReactorKind,
    /// Why that is not io_uring.
    pub fallback_reason: Option<String>,
}

/// A disk on a shard.
#[derive(Clone, Debug)]
pub struct DiskHandle {
    sender: Sender<Command>,
    number: u32,
}

impl ShardHandle {
    /// Starts shard `index` of `count`.
    ///
    /// # Errors
    /// The kernel gives no thread or no reactor.
    pub fn start(
        index: usize,
        count: usize,
        kind: Option<ReactorKind>,
        events: EventSender,
    ) -> anyhow::Result<ShardHandle> {
        thread::start(index, count, kind, events)
    }

    /// Hands a disk over.
    ///
    /// # Errors
    /// What the kernel or the backend said.
    pub async fn add(&self, disk: NewDisk) -> anyhow::Result<DiskHandle> {
        let (answer, receiver) = oneshot::channel();
        self.send(Command::Add(Box::new(disk), answer))?;
        let number = receiver.await.map_err(|_| Gone)?.map_err(anyhow::Error::msg)?;
        Ok(DiskHandle { sender: self.sender.clone(), number })
    }

    /// Tells it to finish what is in flight and to flush; the thread ends, and its answer comes then.
    ///
    /// # Errors
    /// It ended before.
    pub fn drain(&self) -> Result<oneshot::Receiver<Vec<Drained>>, Gone> {
        let (answer, receiver) = oneshot::channel();
        self.send(Command::Drain(answer))?;
        Ok(receiver)
    }

    /// Waits for the thread to end by itself, which it only does when it fails: why.
    pub async fn failed(&mut self) -> String {
        match &mut self.ended {
            Some(ended) => (&mut *ended).await.unwrap_or_else(|_| "it panicked".to_owned()),
            None => std::future::pending().await,
        }
    }

    fn send(&self, command: Command) -> Result<(), Gone> {
        self.sender.send(command).map_err(|_| Gone)
    }
}

impl Drop for ShardHandle {
    fn drop(&mut self) {
        let _ = self.send(Command::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl DiskHandle {
    /// Hands a client over.
    ///
    /// # Errors
    /// [`Gone`]: the client is dropped, and so closed.
    pub fn connect(&self, client: NewClient) -> Result<(), Gone> {
        let command = Command::Connect(self.number, Box::new(client));
        self.sender.send(command).map_err(|_| Gone)
    }

    /// How the disk is.
    ///
    /// # Errors
    /// The shard has ended.
    pub async fn stats(&self) -> Result<DiskStats, Gone> {
        let (answer, receiver) = oneshot::channel();
        self.sender.send(Command::Stats(self.number, answer)).map_err(|_| Gone)?;
        receiver.await.map_err(|_| Gone)
    }
}

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the shard has ended or is overloaded")
    }
}

impl std::error::Error for Gone {}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Command::Add(..) => "Add",
            Command::Connect(..) => "Connect",
            Command::Stats(..) => "Stats",
            Command::Drain(..) => "Drain",
            Command::Stop => "Stop",
        })
    }
}
