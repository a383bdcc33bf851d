//! Breaks Forebay's engine, or fails to: simulated devices, clients and disasters on the real engine
//! of `forebay-core`, in virtual time, from one seed.
//!
//! ```text
//!  seed ─► setup ─► world: clients ─► engine ─► executor ─► devices ─► engine ─► replies ─► oracle
//! ```
//! [`run_seed`] runs one seed to its end: configuration, requests, faults and disasters all follow from
//! it. It checks
//! - every read against the [`oracle`]: never stale, never torn within a sector, never going back;
//! - flushes: what was acknowledged before survives any loss, and a loss is told, once;
//! - the rules between engine and executor: memory in flight, slots of replies, alignment ([`memory`]);
//! - the engine's own invariants, after every event (less often with large caches);
//! - progress: each request is answered once, and when the devices have answered the engine is idle,
//!   with every buffer free;
//! - at the end, every byte, read through the engine and behind its back.
//!
//! The same seed gives the same run: [`Outcome::trace_hash`] covers all actions. What can go wrong with
//! devices is said in [`device`]. [`sweep`] and [`burst`] are something else: figures in virtual time ([`forebay_timed`]).

#![forbid(unsafe_code)]

pub mod actions;
pub mod burst;
mod client;
pub mod coverage;
pub mod device;
mod disaster;
mod epochs;
mod executor;
pub mod kind;
pub mod log;
pub mod memory;
pub mod oracle;
pub mod planted;
mod pool;
mod recovery;
pub mod rng;
pub mod run;
pub mod setup;
pub mod short;
pub mod stamp;
pub mod sweep;
pub mod trace;
mod warm;
pub mod workload;
mod world;

pub use coverage::Coverage;
pub use planted::Planted;
pub use run::{Failure, Outcome, run_seed};
