//! Forebay's caching engine: a deterministic state machine that does no I/O.
//!
//! The caller hands the engine requests, finished I/O and the time. The engine answers with
//! [`action::Actions`] as data. It has no clock, thread, socket, file or source of randomness:
//! the same calls give the same actions. See [`engine::Engine`].

#![forbid(unsafe_code)]

pub mod action;
mod cache;
pub mod cache_index;
pub mod characteristics;
pub mod config;
pub mod engine;
pub mod executor;
pub mod flash_pool;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod geometry;
pub mod ghost;
pub mod ids;
pub mod index;
pub mod list;
pub mod mrc;
pub mod observer;
pub mod policy;
mod primary;
pub mod request;
mod requests;
pub mod sealed;
pub mod splitmix;
pub mod stats;
pub mod status;
mod table;
pub mod write_back;

pub use cache::{alignment, directory};
