//! Block I/O traces: read from files of several tools, run through a simulated cache, or replayed
//! on real storage.
//!
//! ```text
//!  file ──► formats ──► Record, Record …                      workload makes records up
//!                         │
//!       ┌─────────────────┼──────────────────┬─────────────────────┐
//!       ▼                 ▼                  ▼                     ▼
//!  info, characterise   simulate, mrc      what_if               replay ──► results
//!  what it is like      hits of a cache    the engine, in        on a backend, measured
//!                                          virtual time            │
//!                           └───────┬────────┘                     ▼
//!                                 advise                         compare, report
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`formats`] | readers and writers: a file becomes [`record::Record`]s, one at a time |
//! | [`info`], [`characterise`] | the description of a trace, and its histograms |
//! | [`simulate`](mod@simulate), [`mrc`] | one cache with the engine's own policies; caches of all sizes |
//! | [`policy`] | the policies that they are compared with |
//! | [`what_if`] | a whole configuration: its latencies, its wear of flash, its log |
//! | [`advise`] | which cache a disk should have |
//! | [`share`] | RAM that disks share while they work |
//! | [`replay`](mod@replay), [`results`] | sending a trace to a backend, and the figures as a file |
//! | [`compare`], [`report`] | results against each other, and pages of all of these |
//!
//! # Example
//!
//! Read a trace, and ask how many of its reads a cache of 8 KiB would have hit.
//!
//! ```
//! use std::io::Cursor;
//!
//! use forebay_core::config::GridOffset;
//! use forebay_core::policy::PolicyKind;
//! use forebay_trace::formats::{Format, Options, Reader};
//! use forebay_trace::simulate::{Settings, SimulatedPolicy, simulate};
//!
//! // Storage Performance Council: unit, sector, bytes, r or w, seconds.
//! let file = "0,0,4096,r,0.1\n0,8,4096,r,0.2\n0,0,4096,r,0.3\n";
//! let mut reader = Reader::new(Cursor::new(file), "disk.spc", &Options::default())?;
//! assert_eq!(reader.format(), Format::Spc);
//!
//! let records = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
//! assert_eq!((records[1].offset, records[1].len, records[1].time_ns), (4096, 4096, 100_000_000));
//! assert_eq!(reader.counts().records, 3);
//!
//! let settings = Settings {
//!     cache_size: 8192,
//!     block_size: 4096,
//!     policy: SimulatedPolicy::Online(PolicyKind::Lru),
//!     grid_offset: GridOffset::Fixed(0),
//! };
//! let outcome = simulate(records.into_iter().map(Ok), &settings)?;
//! assert_eq!(outcome.reads.request_hits, 1);
//! # Ok::<(), forebay_trace::Error>(())
//! ```
//!
//! **Limits.** A record is a read or a write: readers pass over flushes, discards and other
//! commands, and count them. A trace has no data, so a replay makes its bytes up.

pub mod advise;
pub mod assumed;
pub mod belady;
pub mod characterise;
pub mod compare;
mod error;
pub mod formats;
pub mod info;
pub mod mrc;
pub mod policy;
pub mod record;
pub mod replay;
pub mod report;
pub mod results;
pub mod share;
pub mod simulate;
pub mod what_if;
pub mod workload;

pub use error::{Error, ErrorKind};
