//! Meta contexts: what a client may ask of a range with `BLOCK_STATUS`.
//!
//! | context | number | flags |
//! |---|---|---|
//! | `base:allocation` | 1 | 1 hole, 2 reads as zeroes |
//! | `forebay:state` | 2 | 1 in the cache or the write log, 2 newer than primary storage: 0, 1 or 3 |

use forebay_core::action::ExtentState;
use forebay_core::request::Op;
use forebay_nbd::flags::AllocationFlags;

/// One of the two contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaContext {
    Allocation,
    State,
}

impl MetaContext {
    pub(crate) const ALL: [MetaContext; 2] = [MetaContext::Allocation, MetaContext::State];

    pub(crate) fn name(self) -> &'static str {
        match self {
            MetaContext::Allocation => "base:allocation",
            MetaContext::State => "forebay:state",
        }
    }

    /// Its number on every connection.
    pub(crate) fn id(self) -> u32 {
        match self {
            MetaContext::Allocation => 1,
            MetaContext::State => 2,
        }
    }

    /// What the engine is asked.
    pub(crate) fn op(self) -> Op {
        match self {
            MetaContext::Allocation => Op::Allocation,
            MetaContext::State => Op::CacheState,
        }
    }

    /// True when `query` names this context; a list also takes the bare namespace.
    pub(crate) fn matches(self, query: &str, is_list: bool) -> bool {
        let namespace = query.ends_with(':') && self.name().starts_with(query);
        query == self.name() || (is_list && namespace)
    }
}

/// A set of meta contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts {
    /// `base:allocation`.
    pub allocation: bool,
    /// `forebay:state`.
    pub state: bool,
}

impl Contexts {
    pub(crate) fn insert(&mut self, context: MetaContext) {
        match context {
            MetaContext::Allocation => self.allocation = true,
            MetaContext::State => self.state = true,
        }
    }

    pub(crate) fn has(self, context: MetaContext) -> bool {
        match context {
            MetaContext::Allocation => self.allocation,
            MetaContext::State => self.state,
        }
    }
}

/// The flags that stand for a state in its context.
pub(crate) fn state_flags(state: ExtentState) -> u32 {
    match state {
        ExtentState::Allocated | ExtentState::Uncached => 0,
        ExtentState::Hole => AllocationFlags::HOLE.with(AllocationFlags::ZERO).0,
        ExtentState::Zero => AllocationFlags::ZERO.0,
        ExtentState::Clean => 1,
        ExtentState::Dirty => 3,
    }
}
