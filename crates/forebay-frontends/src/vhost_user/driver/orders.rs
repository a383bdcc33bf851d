//! How the control socket's thread reaches a queue on its shard: orders through a channel, and a bell that the shard's
//! reactor watches. Each order is waited for.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};

use rustix::event::{EventfdFlags, eventfd};

use super::super::memory::Map;
use super::{Known, Queue, QueueSetup};
use crate::client::{Client, Context, DiskId, Newcomer, Tokens};

/// The control socket's orders to a queue. Each is answered with the ring's position once it is
/// so.
#[derive(Debug)]
pub enum Order {
    /// Answer what was taken, take nothing more, end.
    Stop,
    /// The guest's memory is another one. With `true` it is so only when no request uses the old one. A ring that is not in
    /// the new one waits for one that has it.
    Memory(Map, bool),
    /// Somebody else is to be woken.
    Call(Option<OwnedFd>),
    /// Whether every write is durable before it is answered.
    Durable(bool),
}

/// An order and where its answer goes, which is dropped when the queue is gone.
type Ordered = (Order, SyncSender<u16>);

/// A queue as the control socket has it.
#[derive(Debug)]
pub struct Orders {
    sender: Sender<Ordered>,
    bell: OwnedFd,
    ended_at: EndedAt,
}

/// The position of a ring that was let go of; beyond all positions before.
type EndedAt = Arc<AtomicU32>;

impl Orders {
    /// Gives an order and waits until it is obeyed, or the queue is gone: the ring's position, if that is known.
    pub fn give(&self, order: Order) -> Option<u16> {
        let (done, answer) = std::sync::mpsc::sync_channel(1);
        let obeyed = match self.sender.send((order, done)) {
            Ok(()) => {
                // A bell that is full has rung.
                let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
                answer.recv().ok()
            }
            Err(_) => None,
        };
        obeyed.or_else(|| u16::try_from(self.ended_at.load(Ordering::Acquire)).ok())
    }
}

/// A queue's end of it.
#[derive(Debug)]
pub(super) struct Control {
    orders: Receiver<Ordered>,
    ended_at: EndedAt,
    /// The orders that wait until only the present memory is used.
    waits_for_memory: Vec<SyncSender<u16>>,
    /// Who waits for the end.
    waits_for_end: Vec<SyncSender<u16>>,
}

impl Control {
    /// The next order, if there is one.
    pub(super) fn next(&self) -> Option<Ordered> {
        self.orders.try_recv().ok()
    }

    /// Tells when only the memory of now is used.
    pub(super) fn wait_for_memory(&mut self, done: SyncSender<u16>) {
        self.waits_for_memory.push(done);
    }

    pub(super) fn is_memory_awaited(&self) -> bool {
        !self.waits_for_memory.is_empty()
    }

    /// Only the memory of now is used.
    pub(super) fn tell_of_memory(&mut self, position: u16) {
        tell(&mut self.waits_for_memory, position);
    }

    /// Tells when the queue has ended.
    pub(super) fn wait_for_end(&mut self, done: SyncSender<u16>) {
        self.waits_for_end.push(done);
    }

    /// The queue has ended.
    pub(super) fn tell_of_end(&mut self, position: u16) {
        self.ended_at.store(position.into(), Ordering::Release);
        tell(&mut self.waits_for_end, position);
        tell(&mut self.waits_for_memory, position);
    }
}

/// Whoever asked may have given up.
fn tell(who: &mut Vec<SyncSender<u16>>, position: u16) {
    for done in who.drain(..) {
        let _ = done.try_send(position);
    }
}

/// A queue on its way to the shard.
#[derive(Debug)]
pub struct NewQueue {
    disk: DiskId,
    setup: QueueSetup,
    control: Control,
    bell: OwnedFd,
    started: SyncSender<Result<(), String>>,
}

/// Reports how a start went; disconnected when the shard did not take the queue.
pub type Started = Receiver<Result<(), String>>;

/// A queue for the shard of `disk`, and what the control socket keeps of it.
///
/// # Errors
/// The kernel has no eventfd for it.
pub fn queue(
    disk: DiskId,
    setup: QueueSetup,
) -> std::io::Result<(Box<dyn Newcomer>, Orders, Started)> {
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let ours = bell.try_clone()?;
    let (sender, orders) = channel();
    let (started, result) = std::sync::mpsc::sync_channel(1);
    let ended_at = Arc::new(AtomicU32::new(u32::MAX));
    let (waits_for_memory, waits_for_end) = Default::default();
    let control = Control { orders, ended_at: ended_at.clone(), waits_for_memory, waits_for_end };
    let new = NewQueue { disk, setup, control, bell: ours, started };
    Ok((Box::new(new), Orders { sender, bell, ended_at }, result))
}

impl Newcomer for NewQueue {
    fn disks(&self) -> &[DiskId] {
        std::slice::from_ref(&self.disk)
    }

    fn start(
        self: Box<Self>,
        cx: &mut Context<'_>,
        id: u32,
        tokens: Tokens,
    ) -> std::io::Result<Box<dyn Client>> {
        let NewQueue { disk, setup, control, bell, started } = *self;
        let known = Known { id, disk, tokens };
        let result = Queue::start(cx, known, setup, (control, bell));
        // Whoever asked may have given up.
        let told = |result| drop(started.try_send(result));
        match result {
            Ok(queue) => {
                told(Ok(()));
                Ok(Box::new(queue))
            }
            Err(error) => {
                told(Err(error.to_string()));
                Err(std::io::Error::other(error))
            }
        }
    }
}
