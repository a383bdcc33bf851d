//! Who gets the next buffer: requests and clients take turns.
//!
//! ```text
//!  ensure_buffer ─► [ request, request │ the clients │ request, request ]      a buffer goes to the first that waits
//!                                      ▲
//!                 a client found none: the clients wait behind all requests that waited by then
//! ```
//! The engine does not know its clients: it lends one a buffer when that one asks. So the clients have one place in the
//! queue. At their turn each that asks gets a buffer while there is memory, and nobody else does. The turn ends
//! with the call of `Engine::proceed` that comes after one of these:
//! - A client got a buffer. Whoever got none waits behind the requests that wait by then.
//! - No client has asked since the last such call: those who waited have gone, or are held.
//!
//! Clients ask between two such calls whenever something happened, as a shard has them do. While one asks and
//! finds no memory, the turn goes on: what came later must not take the memory piece by piece. What is in use comes back,
//! unless primary storage hangs. Then the first request behind the clients ends their turn when its time is over.
//!
//! **Invariant.** Where nobody waits, whoever asks takes what there is.

use std::collections::VecDeque;

use crate::table::Key;

/// See the module.
#[derive(Debug)]
pub(crate) struct BufferQueue {
    /// Oldest first.
    requests: VecDeque<Key>,
    /// So many of them come before the clients, if a client waits.
    before_clients: Option<usize>,
    turn: Turn,
}

/// What the clients did at their turn since the last `Engine::proceed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It began, or one was refused.
    GoesOn,
    /// None has asked.
    Unused,
    /// One got a buffer.
    Used,
}

impl BufferQueue {
    /// Nobody waits; there are at most `requests_max` requests.
    pub(crate) fn new(requests_max: u32) -> BufferQueue {
        let requests = VecDeque::with_capacity(requests_max as usize);
        BufferQueue { requests, before_clients: None, turn: Turn::GoesOn }
    }

    /// True when neither a request nor a client waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.before_clients.is_none()
    }

    /// True when a request waits.
    pub(crate) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The requests that wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Key> {
        self.requests.iter().copied()
    }

    /// A request waits from now on.
    pub(crate) fn join(&mut self, key: Key) {
        self.requests.push_back(key);
    }

    /// The request whose turn it is.
    pub(crate) fn first(&self) -> Option<Key> {
        if self.is_turn_of_clients() { None } else { self.requests.front().copied() }
    }

    /// A request has its buffer, or does without.
    pub(crate) fn leave(&mut self, key: Key) {
        let place = self.requests.iter().position(|waiter| *waiter == key);
        let place = place.expect("who leaves has waited");
        self.requests.remove(place);
        if let Some(before) = &mut self.before_clients {
            *before -= usize::from(place < *before);
        }
    }

    /// No request waits any more.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        self.before_clients = self.before_clients.map(|_| 0);
    }

    /// True when a client that asks may take what there is.
    pub(crate) fn admits_clients(&self) -> bool {
        self.is_turn_of_clients() || self.is_empty()
    }

    /// A client asked, and got a buffer or not.
    pub(crate) fn note_client(&mut self, has_buffer: bool) {
        match (self.before_clients, has_buffer) {
            (None, true) => {}
            (None, false) => {
                (self.before_clients, self.turn) = (Some(self.requests.len()), Turn::GoesOn);
            }
            (Some(0), true) if self.requests.is_empty() => self.before_clients = None,
            (Some(0), true) => self.turn = Turn::Used,
            (Some(0), false) if self.turn == Turn::Unused => self.turn = Turn::GoesOn,
            (Some(_), _) => {}
        }
    }

    /// The engine is to proceed: clients have had the time since the last time.
    pub(crate) fn begin_proceed(&mut self) {
        if self.is_turn_of_clients() && self.turn != Turn::GoesOn {
            self.before_clients = None;
        }
    }

    /// The engine has proceeded, and clients may ask.
    pub(crate) fn end_proceed(&mut self) {
        if self.is_turn_of_clients() {
            self.turn = Turn::Unused;
        }
    }

    /// True when requests go on with the next `Engine::proceed`, should no client ask before.
    pub(crate) fn wants_to_proceed(&self) -> bool {
        self.is_turn_of_clients() && self.turn != Turn::GoesOn && self.has_requests()
    }

    /// Ends the turn of the clients, whatever they ask for; false when it is not their turn.
    pub(crate) fn end_turn_of_clients(&mut self) -> bool {
        let ends = self.is_turn_of_clients();
        if ends {
            self.before_clients = None;
        }
        ends
    }

    fn is_turn_of_clients(&self) -> bool {
        self.before_clients == Some(0)
    }

    /// Panics when the queue contradicts itself.
    pub(crate) fn check_invariants(&self) {
        assert!(self.before_clients.is_none_or(|before| before <= self.requests.len()));
    }
}
