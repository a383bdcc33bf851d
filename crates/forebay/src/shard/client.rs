//! The clients of one disk: their connections, who is to be flushed, who waits for its turn.

use std::collections::VecDeque;

use forebay_core::ids::Nanos;
use forebay_frontends::nbd::{Connection, Context, Tokens};
use forebay_io::reactor::Completion;
use slab::Slab;

use super::NewClient;
use super::token::{Class, token};

/// See the module.
pub(crate) struct Clients {
    slots: Slab<Client>,
    /// Those with something to send, each once.
    touched: Vec<usize>,
    /// Those whose next request waits, each once, first come first served.
    waiting: VecDeque<usize>,
    deadline: Nanos,
    disk: u32,
}

struct Client {
    connection: Connection,
    is_touched: bool,
    is_waiting: bool,
    _guard: Box<dyn Send>,
}

impl Clients {
    pub(crate) fn new(disk: u32) -> Clients {
        Clients {
            slots: Slab::new(),
            touched: Vec::new(),
            waiting: VecDeque::new(),
            deadline: Nanos::NEVER,
            disk,
        }
    }

    /// Takes a client over.
    pub(crate) fn add(&mut self, cx: &mut Context<'_>, new: NewClient) -> std::io::Result<()> {
        let socket = cx.reactor.add_socket(new.socket)?;
        let entry = self.slots.vacant_entry();
        let key = entry.key();
        let tokens = Tokens {
            recv: token(Class::Connection, self.disk, 2 * key as u64),
            send: token(Class::Connection, self.disk, 2 * key as u64 + 1),
        };
        let export = &new.exports[new.export];
        let connection = Connection::start(
            cx,
            socket,
            export,
            new.negotiated,
            &new.leftover,
            key as u32,
            tokens,
        );
        entry.insert(Client {
            connection,
            is_touched: false,
            is_waiting: false,
            _guard: new.guard,
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
        if let Some(client) = self.slots.get_mut(key) {
            client.connection.on_completion(cx, completion);
            self.touch(key);
        }
    }

    /// The connection that a reply belongs to.
    pub(crate) fn of_reply(
        &mut self,
        tag: forebay_core::ids::RequestTag,
    ) -> Option<&mut Connection> {
        let key = (tag.0 >> 32) as usize;
        if !self.slots.contains(key) {
            return None;
        }
        self.touch(key);
        Some(&mut self.slots[key].connection)
    }

    /// Sends what is queued on every connection that was touched, and forgets those that are done.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        let mut touched = std::mem::take(&mut self.touched);
        for key in touched.drain(..) {
            let client = &mut self.slots[key];
            client.is_touched = false;
            client.connection.flush(cx);
            if client.connection.is_done() {
                // A key that still waits is skipped when its turn comes.
                self.slots.remove(key);
            } else if client.connection.wants_resume() && !client.is_waiting {
                client.is_waiting = true;
                self.waiting.push_back(key);
            }
        }
        // Flushing never touches, so the list that was lent out is the only one.
        debug_assert!(self.touched.is_empty());
        self.touched = touched;
        let deadlines = self.slots.iter().map(|(_, client)| client.connection.next_deadline());
        self.deadline = deadlines.min().unwrap_or(Nanos::NEVER);
    }

    /// Lets each client that waits try once, in the order in which they began to wait. Those that have
    /// to wait on are left alone until the next turn, or the turn would not end.
    pub(crate) fn resume(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.waiting.len() {
            let Some(key) = self.waiting.pop_front() else { return };
            let Some(client) = self.slots.get_mut(key).filter(|client| client.is_waiting) else {
                continue;
            };
            if client.connection.resume(cx) {
                client.is_waiting = false;
                self.touch(key);
            } else if client.connection.wants_resume() {
                self.waiting.push_back(key);
            } else {
                client.is_waiting = false;
            }
        }
    }

    /// Tells connections whose time has come.
    pub(crate) fn tick(&mut self, cx: &mut Context<'_>) {
        if self.deadline > cx.now {
            return;
        }
        for key in 0..self.slots.capacity() {
            let Some(client) = self.slots.get_mut(key) else { continue };
            if client.connection.next_deadline() <= cx.now {
                client.connection.tick(cx);
                self.touch(key);
            }
        }
    }

    /// Answers what is in flight, takes nothing new, then closes.
    pub(crate) fn close(&mut self, cx: &mut Context<'_>) {
        for key in 0..self.slots.capacity() {
            let Some(client) = self.slots.get_mut(key) else { continue };
            client.connection.close(cx);
            self.touch(key);
        }
    }

    /// Closes those that were asked to close and do not take their last answers.
    pub(crate) fn give_up(&mut self, cx: &mut Context<'_>) {
        for key in 0..self.slots.capacity() {
            let Some(client) = self.slots.get_mut(key) else { continue };
            client.connection.give_up(cx);
            self.touch(key);
        }
    }

    /// When [`Clients::tick`] is due.
    pub(crate) fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// How many wait for room in the engine.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// True when none has anything to send.
    pub(crate) fn is_flushed(&self) -> bool {
        self.touched.is_empty()
    }

    fn touch(&mut self, key: usize) {
        let client = &mut self.slots[key];
        if !client.is_touched {
            client.is_touched = true;
            self.touched.push(key);
        }
    }
}
