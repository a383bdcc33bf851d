//! Block I/O traces: what a virtual disk was asked, read from files of several tools, run through a
//! simulated cache or replayed on real storage.
//!
//! [`formats`] turns a file into [`record::Record`]s, one at a time; [`workload`] makes records up;
//! [`characterise`] and [`info`] tell what they are like; [`simulate`] tells what a cache would have done to them, with the engine's own
//! eviction policies, [`mrc`] what caches of all sizes would, and [`what_if`] what a whole configuration would have done to their latencies;
//! [`replay`] sends them to a backend and measures it, and [`results`] are what it measured, as a file;
//! [`advise`] says from these which cache a disk should have; [`compare`] holds results against each other, and [`report`] makes pages of all of these.

pub mod advise;
pub mod assumed;
pub mod belady;
pub mod characterise;
pub mod compare;
mod error;
pub mod formats;
pub mod info;
pub mod mrc;
pub mod record;
pub mod replay;
pub mod report;
pub mod results;
pub mod simulate;
pub mod what_if;
pub mod workload;

pub use error::{Error, ErrorKind};
