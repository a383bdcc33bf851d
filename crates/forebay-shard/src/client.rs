//! The clients of a shard: who is to be flushed, who waits for its turn.

use std::collections::VecDeque;

use forebay_core::ids::Nanos;
use forebay_frontends::client::{Answer, Client, Context, DiskId, Moved, Newcomer, Tokens};
use forebay_io::reactor::{Completion, Lookout};
use slab::Slab;

use super::mailbox::Leaver;
use super::token::{Class, token};

/// See the module.
pub(crate) struct Clients {
    slots: Slab<Attached>,
    /// Those with something to send, each once.
    touched: Vec<usize>,
    /// Those whose next request waits, each once, first come first served.
    waiting: VecDeque<usize>,
    /// Those that are looked at, each once.
    looking: Vec<usize>,
    /// No client wants its time before. That of one that wants it later by now is found out then.
    deadline: Nanos,
}

/// The tokens of a client's operations.
fn tokens(key: usize) -> Tokens {
    Tokens {
        recv: token(Class::Client, 0, 2 * key as u64),
        send: token(Class::Client, 0, 2 * key as u64 + 1),
    }
}

struct Attached {
    client: Box<dyn Client>,
    is_touched: bool,
    is_waiting: bool,
    is_looking: bool,
    /// Dropped when the client is gone.
    guard: Box<dyn Send>,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients {
            slots: Slab::new(),
            touched: Vec::new(),
            waiting: VecDeque::new(),
            looking: Vec::new(),
            deadline: Nanos::NEVER,
        }
    }

    /// Takes a client over.
    pub(crate) fn add(
        &mut self,
        cx: &mut Context<'_>,
        new: Box<dyn Newcomer>,
        guard: Box<dyn Send>,
    ) -> std::io::Result<()> {
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let client = new.start(cx, key as u32, tokens(key))?;
        entry.insert(Attached {
            client,
            is_touched: false,
            is_waiting: false,
            is_looking: false,
            guard,
        });
        self.touch(key);
        Ok(())
    }

    /// A completion with one of the tokens made by [`Clients::add`].
    pub(crate) fn on_completion(
        &mut self,
        cx: &mut Context<'_>,
        index: u64,
        completion: Completion,
    ) {
        let key = (index / 2) as usize;
        if let Some(attached) = self.slots.get_mut(key) {
            attached.client.on_completion(cx, completion);
            self.touch(key);
        }
    }

    /// An engine answered a request of a client; false when there is no such client.
    pub(crate) fn on_reply(&mut self, cx: &mut Context<'_>, answer: Answer<'_>) -> bool {
        let key = (answer.reply.tag.0 >> 32) as usize;
        let Some(attached) = self.slots.get_mut(key) else { return false };
        attached.client.on_reply(cx, answer);
        self.touch(key);
        true
    }

    /// Sends what is queued for every client that was touched, and forgets those that are done.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let attached = &mut self.slots[key];
            attached.is_touched = false;
            attached.client.flush(cx);
            if attached.client.is_done() {
                // A key that still waits is skipped when its turn comes.
                if self.slots.remove(key).is_looking {
                    self.looking.retain(|it| *it != key);
                }
                continue;
            }
            self.deadline = self.deadline.min(attached.client.next_deadline());
            if attached.client.wants_resume() && !attached.is_waiting {
                attached.is_waiting = true;
                self.waiting.push_back(key);
            }
            if attached.client.looks_out() && !attached.is_looking {
                attached.is_looking = true;
                self.looking.push(key);
            }
        }
        // Flushing never touches, so the list that was lent out is the only one.
        debug_assert!(self.touched.is_empty());
        self.touched = touched;
    }

    /// The earliest that any client wants.
    fn earliest(&self) -> Nanos {
        let deadlines = self.slots.iter().map(|(_, attached)| attached.client.next_deadline());
        deadlines.min().unwrap_or(Nanos::NEVER)
    }

    /// Lets each client that waits try once, in the order in which they began to wait. Those that have
    /// to wait on are left alone until the next turn, or the turn would not end.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { return };
            let Some(attached) = self.slots.get_mut(key).filter(|attached| attached.is_waiting)
            else {
                continue;
            };
            if attached.client.resume(cx) {
                attached.is_waiting = false;
                self.touch(key);
            } else if attached.client.wants_resume() {
                self.waiting.push_back(key);
            } else {
                attached.is_waiting = false;
            }
        }
    }

    /// Asks each client that is looked at whether there is work; those that have some wait for their turn.
    fn each_looking(&mut self, mut has_work: impl FnMut(&mut dyn Client) -> bool) -> bool {
        let before = self.waiting.len();
        let (slots, waiting) = (&mut self.slots, &mut self.waiting);
        self.looking.retain(|key| {
            let Some(attached) = slots.get_mut(*key) else { return false };
            if has_work(attached.client.as_mut()) && !attached.is_waiting {
                attached.is_waiting = true;
                waiting.push_back(*key);
            }
            attached.is_looking = attached.client.looks_out();
            attached.is_looking
        });
        self.waiting.len() > before
    }

    /// Tells clients whose time has come.
    pub(crate) fn tick(&mut self, cx: &mut Context<'_>) {
        if self.deadline > cx.now {
            return;
        }
        for key in 0..self.slots.capacity() {
            let Some(attached) = self.slots.get_mut(key) else { continue };
            if attached.client.next_deadline() <= cx.now {
                attached.client.tick(cx);
                self.touch(key);
            }
        }
        self.deadline = self.earliest();
    }

    /// Lets the clients of a disk finish what is in flight, take nothing new, and close.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>, disk: DiskId) {
        self.each_of(disk, |client| client.close(cx));
    }

    /// Has all that use one of these disks leave for another shard; whether all have.
    pub(crate) fn leave(&mut self, cx: &mut Context<'_>, disks: &[DiskId]) -> bool {
        let mut have_left = true;
        for (_, attached) in &mut self.slots {
            if disks.iter().any(|disk| attached.uses(*disk)) {
                have_left &= attached.client.leave(cx);
            }
        }
        have_left
    }

    /// Those that use one of these disks, all of which have left.
    pub(crate) fn take_out(&mut self, disks: &[DiskId]) -> Vec<Leaver> {
        let uses = |attached: &Attached| disks.iter().any(|disk| attached.uses(*disk));
        let those = self.slots.iter().filter(|(_, attached)| uses(attached));
        let keys: Vec<usize> = those.map(|(key, _)| key).collect();
        // They are in order.
        let stays = |key: &usize| keys.binary_search(key).is_err();
        self.touched.retain(stays);
        self.looking.retain(stays);
        self.waiting.retain(stays);
        let fetched = keys.into_iter().map(|key| self.slots.remove(key));
        fetched.map(|attached| (Moved(attached.client), attached.guard)).collect()
    }

    /// Closes clients of a disk that were asked to close and do not take their last answers.
    pub(crate) fn give_up(&mut self, cx: &mut Context<'_>, disk: DiskId) {
        self.each_of(disk, |client| client.give_up(cx));
    }

    /// Tells the clients of a disk that something has happened which they may have waited for. Twice: what one finds may
    /// be for one that was told before.
    pub(crate) fn wake(&mut self, cx: &mut Context<'_>, disk: DiskId) {
        for _ in 0..2 {
            self.each_of(disk, |client| client.wake(cx));
        }
    }

    /// When [`Clients::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    /// How many use a disk.
    pub(crate) fn count_of(&self, disk: DiskId) -> usize {
        self.slots.iter().filter(|(_, attached)| attached.uses(disk)).count()
    }

    /// How many of those wait for room in the engine.
    pub(crate) fn waiting_of(&self, disk: DiskId) -> usize {
        let waits = |(_, attached): &(usize, &Attached)| attached.is_waiting && attached.uses(disk);
        self.slots.iter().filter(waits).count()
    }

    /// True when none has anything to send.
    pub(crate) fn is_flushed(&self) -> bool {
        self.touched.is_empty()
    }

    /// True when none of those who use a disk has anything to send.
    pub(crate) fn is_flushed_for(&self, disk: DiskId) -> bool {
        !self.touched.iter().any(|key| self.slots[*key].uses(disk))
    }

    fn each_of(&mut self, disk: DiskId, mut call: impl FnMut(&mut dyn Client)) {
        for key in 0..self.slots.capacity() {
            let Some(attached) = self.slots.get_mut(key) else { continue };
            if attached.uses(disk) {
                call(attached.client.as_mut());
                self.touch(key);
            }
        }
    }

    fn touch(&mut self, key: usize) {
        let attached = &mut self.slots[key];
        if !attached.is_touched {
            attached.is_touched = true;
            self.touched.push(key);
        }
    }
}

impl Lookout for Clients {
    fn is_on(&self) -> bool {
        !self.looking.is_empty()
    }

    fn has_work(&mut self) -> bool {
        self.each_looking(|client| client.look())
    }

    fn rest(&mut self) -> bool {
        self.each_looking(|client| client.rest())
    }
}

impl Attached {
    fn uses(&self, disk: DiskId) -> bool {
        self.client.disks().contains(&disk)
    }
}

#[cfg(test)]
pub(crate) mod tests;
