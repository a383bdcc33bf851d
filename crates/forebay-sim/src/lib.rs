//! Tries to break Forebay's engine: simulated devices, clients and disasters around the real engine
//! of `forebay-core`, in virtual time, from one seed.
//!
//! ```text
//!  seed ─► setup ─► world: clients ─► engine ─► executor ─► devices ─► engine ─► replies ─► oracle
//! ```
//! The seed decides everything: configuration, requests, faults and disasters. [`run_seed`] runs one
//! seed to its end, and checks
//! - every read against the [`oracle`]: no stale bytes, no torn sector, no step back;
//! - flushes: acknowledged data survive any loss. The engine reports a loss once;
//! - the rules between engine and executor: memory in flight, slots of replies, alignment
//!   ([`memory`]);
//! - the engine's own invariants, after every event (less often with large caches);
//! - progress: each request is answered once. When the devices have answered, the engine is idle,
//!   with every buffer free;
//! - at the end, every byte, read through the engine and behind its back.
//!
//! # Example
//!
//! The same seed gives the same run. A bug planted in the executor is found.
//!
//! ```
//! use forebay_sim::{Planted, run_seed};
//!
//! let outcome = run_seed(7, Planted::Nothing).expect("no rule is broken");
//! let again = run_seed(7, Planted::Nothing).expect("no rule is broken");
//! assert_eq!(outcome.trace_hash, again.trace_hash); // covers all actions of the engine
//!
//! let found = (0..100).find_map(|seed| run_seed(seed, Planted::SecondReply).err());
//! let failure = found.expect("a second answer to a request breaks a rule");
//! println!("seed {}: {}", failure.seed, failure.message);
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`setup`] | the kinds of runs, each from a number of seeds on |
//! | [`device`] | simulated devices; the fault model stands at its top |
//! | [`short`] | short runs, crashed at every point |
//! | [`actions`] | what an administrator does, with each of its I/Os failing |
//! | [`planted`] | bugs that the oracle must find |
//! | [`kind`], [`trace`] | runs by name, and the trace of actions that survives renames |
//! | [`sweep`], [`burst`] | something else: figures in virtual time ([`forebay_timed`]) |
//!
//! **Limits.** Misdirected writes are not modelled. `docs/internals/simulation.md` has the whole list.

#![forbid(unsafe_code)]

pub mod actions;
mod administrator;
mod buffers;
pub mod burst;
mod client;
pub mod coverage;
pub mod device;
mod disaster;
mod epochs;
mod executor;
mod journal;
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
mod tuning;
mod unsettled;
mod warm;
pub mod workload;
mod world;

pub use coverage::Coverage;
pub use planted::Planted;
pub use run::{Failure, Outcome, run_seed};
