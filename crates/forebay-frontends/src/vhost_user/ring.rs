//! A split ring: what the guest has made available, what it is answered, who is to be woken.
//!
//! ```text
//!   available ring ─ look ─► head ─ take ─► in flight ─ answer ─► used ring ─ notify ─► call
//!        ▲                                                                              (once a batch)
//!   replayed first: what was in flight when a daemon before us was killed
//! ```
//! Requests are taken in the order in which they were made available, and marked as they are
//! taken. So answered and marked requests together are the start of the available ring. A new
//! daemon goes on at `used index + marked`, whatever base the hypervisor gives it.
//!
//! **Invariant:** a request is marked before it is submitted, and unmarked after its answer is in the used ring.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{Ordering, fence};

use rustix::event::{PollFd, PollFlags, Timespec};
use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use super::chain::{self, Broken, Pieces};
use super::inflight::{Inflight, Region, RegionError};
use super::memory::{self, Map};

/// An entry of the used ring: which chain, and the bytes that were written to it.
const USED_BYTES: u64 = 8;

/// Descriptors of a ring at most.
pub const SIZE_MAX: u16 = 1024;

/// What a ring is made from.
#[derive(Debug)]
pub struct RingSetup {
    /// Which of its device's.
    pub queue: u16,
    /// Descriptors, a power of two.
    pub size: u16,
    /// The table of descriptors.
    pub descriptors: GuestAddress,
    /// The available ring.
    pub available: GuestAddress,
    /// The used ring.
    pub used: GuestAddress,
    /// The next available entry, where nothing is known of requests in flight.
    pub base: u16,
    /// Positions in the ring ask for notifications.
    pub event_index: bool,
    /// The guest's memory.
    pub memory: Map,
    /// Where requests in flight are marked.
    pub inflight: Option<Region>,
    /// Whom to wake; nobody, when the guest looks by itself.
    pub call: Option<OwnedFd>,
}

/// Why a ring cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// The addresses or the size cannot be right.
    #[error(
        "queue {queue}: a ring of {size} descriptors at {descriptors:#x}, {available:#x}, {used:#x} is none"
    )]
    Setup {
        /// Which.
        queue: u16,
        /// Descriptors.
        size: u16,
        /// Their table.
        descriptors: u64,
        /// The available ring.
        available: u64,
        /// The used ring.
        used: u64,
    },
    /// The descriptor that the guest kicks.
    #[error("queue {queue}: {error}")]
    Kick {
        /// Which.
        queue: u16,
        /// The kernel's reason.
        error: std::io::Error,
    },
    /// The memory for requests in flight.
    #[error("queue {queue}: {error}")]
    Inflight {
        /// Which.
        queue: u16,
        /// What is wrong with it.
        error: RegionError,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Ring {
    queue: Queue,
    memory: Map,
    inflight: Option<Inflight>,
    /// To be submitted again, in this order.
    replay: VecDeque<u16>,
    /// Entries of the available ring up to here were seen.
    seen: u16,
    call: Option<Call>,
    /// Answers since the guest was asked whether it wants to know.
    unannounced: u16,
    /// The guest was not woken yet.
    is_new: bool,
}

impl Ring {
    /// Takes a ring over, where it is.
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn open(setup: RingSetup) -> Result<Ring, RingError> {
        let RingSetup { queue: number, size, descriptors, available, used, .. } = setup;
        let invalid = || RingError::Setup {
            queue: number,
            size,
            descriptors: descriptors.0,
            available: available.0,
            used: used.0,
        };
        let memory = setup.memory;
        let mut queue = Queue::new(SIZE_MAX).map_err(|_| invalid())?;
        queue.try_set_size(size).map_err(|_| invalid())?;
        queue.try_set_desc_table_address(descriptors).map_err(|_| invalid())?;
        queue.try_set_avail_ring_address(available).map_err(|_| invalid())?;
        queue.try_set_used_ring_address(used).map_err(|_| invalid())?;
        queue.set_event_idx(setup.event_index);
        queue.set_ready(true);
        if !queue.is_valid(&**memory) {
            return Err(invalid());
        }
        let used = queue.used_idx(&**memory, Ordering::Acquire).map_err(|_| invalid())?.0;
        let offered = queue.avail_idx(&**memory, Ordering::Acquire).map_err(|_| invalid())?.0;
        queue.set_next_used(used);
        let (mut inflight, mut replay, mut next) = (None, Vec::new(), setup.base);
        if let Some(region) = setup.inflight {
            let (marks, mut marked) = Inflight::open(&region, number, size, used)
                .map_err(|error| RingError::Inflight { queue: number, error })?;
            // More marks than requests that are not answered: they are of another life of the ring.
            if usize::from(offered.wrapping_sub(used)) < marked.len() {
                marked.drain(..).for_each(|head| marks.answered(head, used));
            }
            next = used.wrapping_add(marked.len() as u16);
            (inflight, replay) = (Some(marks), marked);
        }
        queue.set_next_avail(next);
        let (call, replay) = (setup.call.map(Call), replay.into());
        Ok(Ring { queue, memory, inflight, replay, seen: next, call, unannounced: 0, is_new: true })
    }

    /// Descriptors.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// The next entry of the available ring.
    pub fn position(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Whether a daemon after this one learns what was in flight.
    pub fn survives(&self) -> bool {
        self.inflight.is_some()
    }

    /// The guest's memory changed. False: the ring is not in it. It stays where it was, so that what is in flight can be
    /// answered; nothing is to be taken from it, for the chains are in other memory than it is.
    #[must_use]
    pub fn set_memory(&mut self, memory: Map) -> bool {
        let has_ring = self.queue.is_valid(&**memory);
        if has_ring {
            self.memory = memory;
        }
        has_ring
    }

    /// Lets go of the guest's memory.
    pub fn let_go(&mut self) {
        self.memory = Map::default();
    }

    /// Somebody else is to be woken. He may have missed what went before.
    pub fn set_call(&mut self, call: Option<OwnedFd>) {
        self.call = call.map(Call);
        self.call.as_ref().map(Call::wake);
    }

    /// Looks at the request behind the next `ahead` ones: the head of its chain. `None`: there is none by now.
    ///
    /// # Errors
    /// The ring says what cannot be.
    pub fn look(&mut self, ahead: u16) -> Result<Option<u16>, Broken> {
        let Some(ahead) = usize::from(ahead).checked_sub(self.replay.len()) else {
            return Ok(Some(self.replay[usize::from(ahead)]));
        };
        let next = self.queue.next_avail();
        let position = next.wrapping_add(ahead as u16);
        if position == self.seen {
            let offered = self.offered()?;
            let ready = offered.wrapping_sub(next);
            // It goes on, and never back.
            if ready > self.queue.size() || usize::from(ready) < ahead {
                return Err(Broken::Available);
            }
            self.seen = offered;
            if offered == position {
                return Ok(None);
            }
        }
        let head = self.head_at(position)?;
        if head >= self.queue.size() {
            return Err(Broken::Index(head));
        }
        Ok(Some(head))
    }

    /// Takes the next request, which was looked at.
    pub fn advance(&mut self) {
        if self.replay.pop_front().is_none() {
            self.queue.set_next_avail(self.queue.next_avail().wrapping_add(1));
        }
    }

    /// Reads the chain of a request.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn walk(&self, head: u16, pieces: &mut Pieces) -> Result<(), Broken> {
        let table = GuestAddress(self.queue.desc_table());
        chain::walk(&self.memory, table, self.queue.size(), head, pieces)
    }

    /// Marks a request, before it is submitted. Whether it was marked already, by a daemon before this one.
    pub fn take(&mut self, head: u16) -> bool {
        self.inflight.as_mut().is_some_and(|inflight| inflight.take(head))
    }

    /// Puts the request back that was taken last, and was not submitted: it is the next one again. `is_replay`: it was marked
    /// before, and is done by whoever comes next if not by us.
    pub fn put_back(&mut self, head: u16, is_replay: bool) {
        if is_replay {
            self.replay.push_front(head);
            return;
        }
        self.queue.set_next_avail(self.queue.next_avail().wrapping_sub(1));
        if let Some(inflight) = &self.inflight {
            inflight.put_back(head);
        }
    }

    /// Answers a request, of which `len` bytes were written for the guest.
    ///
    /// # Errors
    /// The used ring is not the guest's memory any more.
    pub fn answer(&mut self, head: u16, len: u32) -> Result<(), Broken> {
        if let Some(inflight) = &self.inflight {
            inflight.answering(head);
        }
        let next = self.queue.next_used();
        let place = 4 + USED_BYTES * u64::from(next % self.queue.size());
        let used = u64::from(head).to_le() | (u64::from(len) << 32).to_le();
        memory::write(&self.memory, used, GuestAddress(self.queue.used_ring() + place))
            .ok_or(Broken::Used)?;
        let next = next.wrapping_add(1);
        self.queue.set_next_used(next);
        let index = GuestAddress(self.queue.used_ring() + 2);
        memory::store(&self.memory, next.to_le(), index).ok_or(Broken::Used)?;
        if let Some(inflight) = &self.inflight {
            inflight.answered(head, self.queue.next_used());
        }
        self.unannounced = self.unannounced.saturating_add(1);
        Ok(())
    }

    /// Wakes the guest, if there are answers and it wants to know of them. Whether it was woken.
    pub fn notify(&mut self) -> bool {
        // Who answered last may have been killed before it could tell: a guest that nobody wakes waits for ever.
        let is_new = std::mem::take(&mut self.is_new);
        let answers = std::mem::take(&mut self.unannounced);
        (answers > 0 && self.wants_call(answers) || is_new)
            && self.call.as_ref().is_some_and(Call::wake)
    }

    /// Asks the guest to kick when it makes requests available. True when there are some already.
    ///
    /// # Errors
    /// As for [`Ring::look`].
    pub fn arm(&mut self) -> Result<bool, Broken> {
        self.queue.enable_notification(&**self.memory).map_err(|_| Broken::Used)
    }

    /// Spares the guest the kicks, as far as the ring can say so. Where positions ask for
    /// notifications, only the next one comes.
    pub fn disarm(&mut self) {
        // A ring that cannot be written is found broken elsewhere.
        let _ = self.queue.disable_notification(&**self.memory);
    }

    /// Answers that the guest was not told of.
    pub fn unannounced(&self) -> u16 {
        self.unannounced
    }

    /// True when there is a request to be taken, as far as can be told without taking it.
    pub fn has_next(&self) -> bool {
        !self.replay.is_empty() || self.offered().is_ok_and(|at| at != self.queue.next_avail())
    }

    /// Whether the guest wants to hear of the last `answers`. A ring that cannot be read is found broken elsewhere.
    fn wants_call(&self, answers: u16) -> bool {
        // What was answered is seen before what the guest wishes is looked at; it does so the other way round.
        fence(Ordering::SeqCst);
        let at = match self.queue.event_idx_enabled() {
            true => 4 + 2 * u64::from(self.queue.size()),
            false => 0,
        };
        let wish = memory::load(&self.memory, GuestAddress(self.queue.avail_ring() + at));
        match wish.map(u16::from_le) {
            // It names the answer that it waits for (virtio 1.2, section 2.7.10).
            Some(event) if self.queue.event_idx_enabled() => {
                self.queue.next_used().wrapping_sub(event).wrapping_sub(1) < answers
            }
            Some(flags) => u32::from(flags) & VRING_AVAIL_F_NO_INTERRUPT == 0,
            None => false,
        }
    }

    /// The entry at a position of the available ring.
    fn head_at(&self, position: u16) -> Result<u16, Broken> {
        let place = u64::from(position % self.queue.size());
        let address = self.queue.avail_ring() + 4 + 2 * place;
        let head = memory::load(&self.memory, GuestAddress(address));
        head.map(u16::from_le).ok_or(Broken::Address { address, len: 2 })
    }

    fn offered(&self) -> Result<u16, Broken> {
        let address = self.queue.avail_ring();
        let offered = memory::load(&self.memory, GuestAddress(address + 2));
        offered.map(u16::from_le).ok_or(Broken::Address { address, len: 4 })
    }
}

/// What wakes the guest.
#[derive(Debug)]
struct Call(OwnedFd);

impl Call {
    /// Signals it. One that cannot be signalled is its owner's matter: it was signalled often enough, or is none. A signal more
    /// than it takes may wait for its owner, who can change its mode whenever he likes: it is always asked for room.
    fn wake(&self) -> bool {
        self.has_room() && rustix::io::write(&self.0, &1_u64.to_ne_bytes()).is_ok()
    }

    fn has_room(&self) -> bool {
        let mut one = [PollFd::new(&self.0, PollFlags::OUT)];
        let polled = rustix::event::poll(&mut one, Some(&Timespec::default()));
        polled.is_ok() && one[0].revents().contains(PollFlags::OUT)
    }
}

#[cfg(test)]
mod tests;
