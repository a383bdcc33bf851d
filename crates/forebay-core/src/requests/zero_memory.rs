//! Memory that zeroes are written from, of their own.
//!
//! ```text
//!   a piece is to be written ─► one of TURNS turns ─► (part of a block: read) ─► written ─► the next one's turn
//!                                └─ none free ─► waits, with its range
//! ```
//! A request that writes zeroes keeps its range from arrival to end, because what comes later must not be
//! overwritten by it, also when nobody waits for it any more. So it must not wait for lent memory: who
//! has that may wait for its range. Whole blocks are written from bytes that are zero for all. For a
//! part of a block each turn has a page. Who has a turn waits for nobody that waits for one, and so many pieces are under way
//! at most: reads of others do not come behind all of them.
//!
//! **Invariant.** Where a turn is free, nobody waits.

use std::collections::VecDeque;

use crate::action::{Action, Span};
use crate::cx::Cx;
use crate::geometry::PAGE;
use crate::table::Key;

/// Longest piece that is written.
pub(crate) const PIECE_MAX: u64 = 1 << 20;
/// Pieces under way at most. One that hangs takes one of them.
const TURNS: usize = 32;

/// See the module.
#[derive(Debug)]
pub(crate) struct ZeroMemory {
    offset: u64,
    /// The bytes for whole blocks are zero, and nobody changes them any more.
    is_zero: bool,
    turns: [Option<Key>; TURNS],
    /// Oldest first.
    waiting: VecDeque<Key>,
}

impl ZeroMemory {
    pub(crate) const BYTES: u64 = PIECE_MAX + TURNS as u64 * PAGE;

    /// [`ZeroMemory::BYTES`] of the disk's memory from `offset` on; there are at most `requests_max` requests.
    pub(crate) fn new(offset: u64, requests_max: u32) -> ZeroMemory {
        let waiting = VecDeque::with_capacity(requests_max as usize);
        ZeroMemory { offset, is_zero: false, turns: [None; TURNS], waiting }
    }

    /// Zeroes to write `len` bytes from.
    pub(crate) fn zeroes(&mut self, len: u64, cx: &mut Cx<'_>) -> Span {
        let all = Span { offset: self.offset, len: PIECE_MAX as u32 };
        if !std::mem::replace(&mut self.is_zero, true) {
            cx.push(Action::Zero { memory: all });
        }
        all.part(0, len)
    }

    /// The page of a request whose turn it is; `None`: it waits, and runs again when it is.
    pub(crate) fn turn(&mut self, key: Key) -> Option<Span> {
        let own = self.place(Some(key));
        let Some(turn) = own.or_else(|| self.place(None)) else {
            self.waiting.push_back(key);
            return None;
        };
        self.turns[turn] = Some(key);
        let offset = self.offset + PIECE_MAX + turn as u64 * PAGE;
        Some(Span { offset, len: PAGE as u32 })
    }

    fn place(&self, of: Option<Key>) -> Option<usize> {
        self.turns.iter().position(|holder| *holder == of)
    }

    /// A request neither has a turn nor waits for one from now on; whose turn it is then.
    pub(crate) fn leave(&mut self, key: Key) -> Option<Key> {
        let Some(turn) = self.place(Some(key)) else {
            self.waiting.retain(|waiter| *waiter != key);
            return None;
        };
        self.turns[turn] = self.waiting.pop_front();
        self.turns[turn]
    }

    /// True for a request that waits for its turn.
    pub(crate) fn is_waiting(&self, key: Key) -> bool {
        self.waiting.contains(&key)
    }

    /// Those whose turn it is.
    pub(crate) fn holders(&self) -> impl Iterator<Item = Key> {
        self.turns.iter().flatten().copied()
    }

    /// Those who wait for one.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Key> {
        self.waiting.iter().copied()
    }
}
