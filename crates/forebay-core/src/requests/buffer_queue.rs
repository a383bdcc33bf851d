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
//! finds too little memory, the turn goes on as long as memory comes back: requests that came later do not take it piece by
//! piece. When none came back for [`PATIENCE`], as while a log that is full holds it, the turn ends, and for a while
//! nobody waits for clients.
//!
//! **Invariant.** Where nobody waits, whoever asks takes what there is.

use std::collections::VecDeque;

use crate::ids::Nanos;
use crate::table::Key;

/// Clients have their turn so long without any memory that comes back.
const PATIENCE: Nanos = Nanos::from_millis(500);
/// No client waits.
const NOBODY: u32 = u32::MAX;
/// After that they have none for so long.
const PAUSE: Nanos = Nanos::from_millis(2_000);

/// See the module.
#[derive(Debug)]
pub(crate) struct BufferQueue {
    /// Oldest first.
    requests: VecDeque<Key>,
    /// So many of them come before the clients; [`NOBODY`]: no client waits. Looked at with each write.
    before_clients: u32,
    turn: Turn,
    /// When their turn ends although they ask and requests wait; never while it is not theirs.
    ends_at: Nanos,
    /// That is to be so much later: with the next `Engine::proceed`, which knows the time.
    has_hope: bool,
    /// None begins before.
    none_before: Nanos,
    /// The most pages that were free when a client was refused in this turn.
    free: u32,
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
        let (turn, ends_at, none_before) = (Turn::GoesOn, Nanos::NEVER, Nanos(0));
        BufferQueue {
            requests,
            before_clients: NOBODY,
            turn,
            ends_at,
            has_hope: false,
            none_before,
            free: 0,
        }
    }

    /// True when neither a request nor a client waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.before_clients == NOBODY
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
        if self.before_clients != NOBODY {
            self.before_clients -= u32::from(place < self.before_clients as usize);
        }
    }

    /// No request waits any more.
    pub(crate) fn clear(&mut self) {
        self.requests.clear();
        if self.before_clients != NOBODY {
            self.before_clients = 0;
        }
    }

    /// True when a client that asks may take what there is.
    pub(crate) fn admits_clients(&self) -> bool {
        self.is_turn_of_clients() || self.is_empty()
    }

    /// A client asked, and got a buffer.
    pub(crate) fn note_lent(&mut self) {
        if self.is_turn_of_clients() {
            match self.requests.is_empty() {
                true => (self.before_clients, self.ends_at) = (NOBODY, Nanos::NEVER),
                false => self.turn = Turn::Used,
            }
        }
    }

    /// A client asked, and got none; so many pages are free.
    pub(crate) fn note_refused(&mut self, now: Nanos, free: u32) {
        match self.before_clients {
            NOBODY if now < self.none_before => {}
            NOBODY => {
                (self.before_clients, self.turn) = (self.requests.len() as u32, Turn::GoesOn);
                (self.free, self.has_hope) = (free, false);
            }
            0 => {
                if self.turn == Turn::Unused {
                    self.turn = Turn::GoesOn;
                }
                // Alone they hold nobody up.
                if !self.requests.is_empty() {
                    self.has_hope |= self.ends_at == Nanos::NEVER || free > self.free;
                    self.free = self.free.max(free);
                }
            }
            _ => {}
        }
    }

    /// The engine is to proceed: clients have had the time since the last time.
    pub(crate) fn begin_proceed(&mut self, now: Nanos) {
        if !self.is_turn_of_clients() {
            return;
        }
        if self.turn != Turn::GoesOn {
            (self.before_clients, self.ends_at) = (NOBODY, Nanos::NEVER);
        } else if self.has_hope {
            self.ends_at = now.plus(PATIENCE);
        }
        self.has_hope = false;
    }

    /// When the turn of the clients ends although they ask.
    pub(crate) fn deadline(&self) -> Nanos {
        self.ends_at
    }

    /// Ends it, when that is due.
    pub(crate) fn end_late_turn(&mut self, now: Nanos) {
        if self.ends_at <= now {
            self.ends_at = Nanos::NEVER;
            if self.has_requests() {
                (self.before_clients, self.none_before) = (NOBODY, now.plus(PAUSE));
            }
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
        self.is_turn_of_clients()
            && (self.has_hope || self.turn != Turn::GoesOn && self.has_requests())
    }

    fn is_turn_of_clients(&self) -> bool {
        self.before_clients == 0
    }

    /// Panics when the queue contradicts itself.
    pub(crate) fn check_invariants(&self) {
        let waits = self.before_clients != NOBODY;
        assert!(self.ends_at == Nanos::NEVER || self.is_turn_of_clients());
        assert!(!waits || self.before_clients as usize <= self.requests.len());
    }
}
