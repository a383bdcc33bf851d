//! Eviction policies: which cache block leaves when room is needed.
//!
//! One policy is one file, on one small trait, used by the engine's tiers and by `trace simulate`
//! alike. A policy orders the occupied slots of one tier; it knows neither bytes nor I/O. Its
//! memory is allocated when it is made.

use std::fmt;

use crate::ids::SlotId;

/// Orders the occupied slots of one tier. Slots are numbered from 0 to the capacity given when the
/// policy was made.
pub trait Policy: fmt::Debug + Send {
    /// `slot` was filled with a block. `remembered` tells that the tier's ghost memory knows the
    /// block: it left, or was refused, not long ago.
    fn on_insert(&mut self, slot: SlotId, remembered: bool);

    /// The block in `slot` was used.
    fn on_hit(&mut self, slot: SlotId);

    /// The block in `slot` is gone (discarded, or its bytes became wrong).
    fn on_remove(&mut self, slot: SlotId);

    /// Chooses the block to drop and forgets it; `None` when no slot is occupied.
    fn evict(&mut self) -> Option<Victim>;

    /// Bytes of memory that the policy holds.
    fn memory_bytes(&self) -> usize;
}

/// The slot that a policy gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Victim {
    /// The slot.
    pub slot: SlotId,
    /// Whether the block should be remembered as recently dropped.
    pub remember: bool,
}

/// The policies that can be chosen by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Three static queues (Yang et al., SOSP '23).
    S3Fifo,
}
