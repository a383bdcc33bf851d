//! Eviction policies to compare with: the classics, beside those that a disk can have.
//!
//! Each is one file on the engine's trait [`Policy`], and a [`CustomPolicy`] with a name. So the
//! simulator runs it in the same directory, and `what_if` in the same engine. `forebay run` takes
//! none of them. ARC, LIRS and W-TinyLFU remember more of the blocks that left than the budget of
//! 26 bytes a slot allows (their headers have the figures).
//!
//! [`Policy`]: forebay_core::policy::Policy

mod arc;
mod clock;
mod lirs;
mod sieve;
mod wtinylfu;

use forebay_core::list::Links;
use forebay_core::policy::{CustomPolicy, PolicyKind};

pub use arc::Arc;
pub use clock::Clock;
pub use lirs::Lirs;
pub use sieve::Sieve;
pub use wtinylfu::WTinyLfu;

/// Second chance (Corbató, 1968).
pub const CLOCK: PolicyKind = PolicyKind::Custom(&CustomPolicy {
    name: "clock",
    build: |slots| Box::new(Clock::new(slots)),
    memory_bytes_for: Links::memory_bytes_for,
});

/// A hand that leaves what was used where it is (Zhang et al., NSDI '24).
pub const SIEVE: PolicyKind = PolicyKind::Custom(&CustomPolicy {
    name: "sieve",
    build: |slots| Box::new(Sieve::new(slots)),
    memory_bytes_for: Links::memory_bytes_for,
});

/// Recent and frequent blocks, balanced by their ghosts (Megiddo and Modha, FAST '03).
pub const ARC: PolicyKind = PolicyKind::Custom(&CustomPolicy {
    name: "arc",
    build: |slots| Box::new(Arc::new(slots)),
    memory_bytes_for: Arc::memory_bytes_for,
});

/// By the time between a block's last two uses (Jiang and Zhang, SIGMETRICS '02).
pub const LIRS: PolicyKind = PolicyKind::Custom(&CustomPolicy {
    name: "lirs",
    build: |slots| Box::new(Lirs::new(slots)),
    memory_bytes_for: Lirs::memory_bytes_for,
});

/// A window, and behind it whoever was used more often (Einziger et al., TOS 2017).
pub const W_TINY_LFU: PolicyKind = PolicyKind::Custom(&CustomPolicy {
    name: "wtinylfu",
    build: |slots| Box::new(WTinyLfu::new(slots)),
    memory_bytes_for: WTinyLfu::memory_bytes_for,
});

/// All policies that do not know the future, as messages list them.
pub const ONLINE: [PolicyKind; 9] = [
    PolicyKind::Auto,
    PolicyKind::Fifo,
    PolicyKind::Lru,
    CLOCK,
    SIEVE,
    PolicyKind::S3Fifo,
    ARC,
    LIRS,
    W_TINY_LFU,
];

/// The one of [`ONLINE`] with this name.
pub fn named(name: &str) -> Option<PolicyKind> {
    ONLINE.into_iter().find(|kind| kind.name() == name)
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
