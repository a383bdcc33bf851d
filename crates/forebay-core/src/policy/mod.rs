//! Eviction policies: which cache block leaves when room is needed.
//!
//! ```text
//!            on_insert, on_hit, on_remove, on_move
//!  directory ──────────────────────────────────────► Policy: an order of occupied slots
//!      ▲                                                │
//!      └────────────── Victim ◄────── evict ────────────┘
//! ```
//! One policy is one file, on one small trait. The engine's tiers and `trace simulate` use the same
//! code. A policy orders the occupied slots of one tier. It knows neither bytes nor I/O. Its memory
//! is allocated when it is made, and it takes nothing per request.
//!
//! Here are the policies that a disk can have. Those that they are compared with are in
//! `forebay-trace`, each a [`CustomPolicy`].
//!
//! # Example
//!
//! A policy that drops the block that was used last, which suits a loop longer than the cache.
//!
//! ```
//! use forebay_core::ids::{BlockIndex, SlotId};
//! use forebay_core::index::{Density, Index};
//! use forebay_core::policy::{Policy, Victim};
//!
//! #[derive(Debug)]
//! struct Mru {
//!     /// The block that was used last is at the end.
//!     order: Vec<SlotId>,
//! }
//!
//! impl Policy for Mru {
//!     fn on_insert(&mut self, slot: SlotId, _block: BlockIndex, _remembered: bool) {
//!         self.order.push(slot);
//!     }
//!     fn on_hit(&mut self, slot: SlotId, _index: &Index) {
//!         self.on_remove(slot);
//!         self.order.push(slot);
//!     }
//!     fn on_remove(&mut self, slot: SlotId) {
//!         self.order.retain(|&other| other != slot);
//!     }
//!     fn on_move(&mut self, from: SlotId, to: SlotId) {
//!         let moved = self.order.iter_mut().find(|slot| **slot == from);
//!         *moved.expect("the slot is occupied") = to;
//!     }
//!     fn evict(&mut self, _index: &Index) -> Option<Victim> {
//!         self.order.pop().map(|slot| Victim { slot, remember: true })
//!     }
//!     fn len(&self) -> u32 {
//!         self.order.len() as u32
//!     }
//!     fn check_invariants(&self) {
//!         let mut slots = self.order.clone();
//!         slots.sort();
//!         slots.dedup();
//!         assert_eq!(slots.len(), self.order.len(), "each slot is there once");
//!     }
//!     fn memory_bytes(&self) -> usize {
//!         self.order.capacity() * size_of::<SlotId>()
//!     }
//! }
//!
//! let mut index = Index::new(3, Density::Compact);
//! let mut policy = Mru { order: Vec::with_capacity(3) };
//! for block in [10, 11, 12].map(BlockIndex) {
//!     let slot = index.take_free().expect("a slot is free");
//!     index.insert(slot, block);
//!     policy.on_insert(slot, block, false);
//! }
//! policy.on_hit(index.find(BlockIndex(10)).expect("it is cached"), &index);
//!
//! let victim = policy.evict(&index).expect("three slots are occupied");
//! assert_eq!(index.block_of(victim.slot), Some(BlockIndex(10)));
//! policy.check_invariants();
//! ```
//!
//! A policy for disks is a file here, with a type that implements [`Policy`]. It has a variant of
//! [`PolicyKind`], a line in [`PolicyKind::ALL`], and an arm in each `match` of `PolicyKind`. It keeps
//! its order in [`crate::list`], where a `Vec` would search every slot.

mod auto;
mod fifo;
mod lru;
mod s3fifo;

use std::fmt;
use std::hash::{Hash, Hasher};

pub use auto::Auto;
pub use fifo::Fifo;
pub use lru::Lru;
pub use s3fifo::S3Fifo;

use crate::ids::{BlockIndex, SlotId};
use crate::index::Index;
use crate::list::Links;

/// Blocks that one eviction spares at most, in policies that spare what was used.
pub const LOOKS_MAX: u32 = 256;

/// The block that the occupied `slot` holds.
pub fn block_in(index: &Index, slot: SlotId) -> BlockIndex {
    index.block_of(slot).expect("an occupied slot holds a block")
}

/// Orders the occupied slots of one tier. Slots are numbered from 0 to the capacity given when
/// the policy was made. Most policies order slots whatever is in them. Others count uses of
/// blocks, or have ghosts of their own. They get the block when it comes, and look it up in the
/// tier's index later.
pub trait Policy: fmt::Debug + Send {
    /// `slot` was filled with `block`. `remembered` tells that the tier's ghost memory knows the
    /// block: it left, or was refused, not long ago.
    fn on_insert(&mut self, slot: SlotId, block: BlockIndex, remembered: bool);

    /// `slot` has the `block` that it had before a restart, used longer ago than all that are here; `referenced`
    /// tells that it was used since it came.
    fn on_restore(&mut self, slot: SlotId, block: BlockIndex, referenced: bool) {
        let _ = referenced;
        self.on_insert(slot, block, false);
    }

    /// Whether blocks that left longer ago ([`crate::ghost::Age::Old`]) are remembered ones to it, too.
    fn looks_far_back(&self) -> bool {
        false
    }

    /// The block in `slot`, which `index` has, was used.
    fn on_hit(&mut self, slot: SlotId, index: &Index);

    /// The block in `slot` is gone (discarded, or its bytes became wrong).
    fn on_remove(&mut self, slot: SlotId);

    /// The block in `from` lies in `to` from now on; its place in the order stays.
    fn on_move(&mut self, from: SlotId, to: SlotId);

    /// Orders slots `0..slots` from now on; nothing is in those that go. A policy that no disk has needs none of this.
    fn resize(&mut self, slots: u32) {
        let _ = slots;
    }

    /// Chooses the block to drop, which `index` still has, and forgets it; `None` when no slot is occupied.
    fn evict(&mut self, index: &Index) -> Option<Victim>;

    /// Blocks that evictions have spared so far. A policy that no disk has needs none of this.
    fn spared(&self) -> u64 {
        0
    }

    /// Forgets whatever it knows of blocks that are in no slot.
    fn forget(&mut self) {}

    /// Many slots are free that were not to be had until now.
    fn have_room(&mut self) {}

    /// Number of slots that it orders.
    fn len(&self) -> u32;

    /// True when it orders none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Panics when its structures contradict each other. Slow.
    fn check_invariants(&self);

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

/// The policies that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PolicyKind {
    /// S3-FIFO's queues, divided as small copies of the cache say.
    Auto,
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Three static queues (Yang et al., SOSP '23).
    S3Fifo,
    /// One that is made elsewhere.
    Custom(&'static CustomPolicy),
}

/// A policy that is made elsewhere. Two of them are the same when their names are.
#[derive(Clone, Copy, Debug)]
pub struct CustomPolicy {
    /// Its name, another one than those of [`PolicyKind::ALL`].
    pub name: &'static str,
    /// Makes one for so many slots, all of its memory allocated.
    pub build: fn(slots: u32) -> Box<dyn Policy>,
    /// What [`Policy::memory_bytes`] will be for so many slots.
    pub memory_bytes_for: fn(slots: u32) -> u64,
}

impl PartialEq for CustomPolicy {
    fn eq(&self, other: &CustomPolicy) -> bool {
        self.name == other.name
    }
}

impl Eq for CustomPolicy {}

impl Hash for CustomPolicy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PolicyKind {
    /// All policies that a disk can have, with their names.
    pub const ALL: [(PolicyKind, &'static str); 4] = [
        (PolicyKind::Auto, "auto"),
        (PolicyKind::Fifo, "fifo"),
        (PolicyKind::Lru, "lru"),
        (PolicyKind::S3Fifo, "s3fifo"),
    ];

    /// The one of [`PolicyKind::ALL`] with this name.
    pub fn named(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|(_, known)| *known == name).map(|(kind, _)| kind)
    }

    /// A policy for `slots` slots, all of its memory allocated.
    pub fn build(self, slots: u32) -> Box<dyn Policy> {
        match self {
            PolicyKind::Auto => Box::new(Auto::new(slots)),
            PolicyKind::Fifo => Box::new(Fifo::new(slots)),
            PolicyKind::Lru => Box::new(Lru::new(slots)),
            PolicyKind::S3Fifo => Box::new(S3Fifo::new(slots)),
            PolicyKind::Custom(policy) => (policy.build)(slots),
        }
    }

    /// What [`Policy::memory_bytes`] will be for `slots` slots.
    pub fn memory_bytes_for(self, slots: u32) -> u64 {
        match self {
            PolicyKind::Fifo | PolicyKind::Lru | PolicyKind::S3Fifo => {
                Links::memory_bytes_for(slots)
            }
            PolicyKind::Auto => Auto::memory_bytes_for(slots),
            PolicyKind::Custom(policy) => (policy.memory_bytes_for)(slots),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Auto => "auto",
            PolicyKind::Fifo => "fifo",
            PolicyKind::Lru => "lru",
            PolicyKind::S3Fifo => "s3fifo",
            PolicyKind::Custom(policy) => policy.name,
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
