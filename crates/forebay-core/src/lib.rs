//! Forebay's caching engine: a deterministic state machine that does no I/O.
//!
//! ```text
//!   requests, finished I/O, time                        Actions (data)
//!  ───────────────────────────► engine::Engine ────────────────────────► executor::Executor
//!                                  │ parts                                 a shard, or the simulator
//!         ┌──────────┬─────────┬───┴───────┬────────────┬─────────┐
//!      requests    cache   cache_index  write_back   primary    observer
//!                              │            │
//!                           flash_pool: the bytes of the pool that all of it lies in
//! ```
//! The engine is told of requests, of finished I/O and of the time. It answers with [`action::Actions`] as data.
//! It has no clock, thread, socket, file or source of randomness: the same calls give the same actions.
//!
//! | part | owns |
//! |---|---|
//! | [`engine`] | the parts of one disk, and the flows that need several of them |
//! | `requests` | the requests in flight: ranges, buffers, time-outs, replies |
//! | `cache` | the blocks that RAM and flash hold |
//! | [`cache_index`] | what keeps the flash cache over a restart |
//! | [`write_back`] | the write log, the destager, and the bytes of the log |
//! | `primary` | flushes of primary storage, and what they have not covered |
//! | [`policy`] | which block leaves |
//! | [`observer`], [`mrc`] | what a disk is asked, and the miss-ratio curve of it |
//! | [`flash_pool`] | the bytes of the pool's tables, and leases of its segments |
//!
//! # Limits
//! No unsafe code. Tables and lists have the sizes of the configuration, and grow only when a cache is given another size,
//! or flash fails to read the log.
//!
//! # Drive an engine
//! A disk of 1 MiB with a RAM cache. The first read asks primary storage, the second is answered from RAM.
//! ```
//! use forebay_core::action::{Action, Actions, ReplyData};
//! use forebay_core::config::{BackendTraits, Config};
//! use forebay_core::engine::Engine;
//! use forebay_core::geometry::ByteRange;
//! use forebay_core::ids::{Nanos, RequestTag};
//! use forebay_core::request::{Op, Request};
//! use forebay_core::status::IoStatus;
//!
//! let backend = BackendTraits {
//!     size: 1 << 20,
//!     logical_block: 512,
//!     read_only: false,
//!     discard: false,
//!     write_zeroes: false,
//!     extents: false,
//! };
//! let config = Config { ram_bytes: 1 << 19, ..Config::for_disk(backend) };
//! let mut engine = Engine::new(config)?;
//! let mut actions = Actions::with_capacity(16);
//! let read = |tag| Request {
//!     tag: RequestTag(tag),
//!     range: ByteRange::at(0, 4096),
//!     op: Op::Read { no_admit: false },
//! };
//!
//! engine.submit(Nanos(0), read(1), &mut actions).expect("a free place");
//! engine.proceed(Nanos(0), &mut actions);
//! let Some(Action::Io(io)) = actions.list.first().copied() else { panic!("a read of primary storage") };
//! actions.clear();
//!
//! // Primary storage has delivered.
//! engine.complete(Nanos(5_000), io.id, IoStatus::Ok, &[], &mut actions);
//! engine.proceed(Nanos(5_000), &mut actions);
//! for action in std::mem::take(&mut actions.list) {
//!     if let Action::Reply(reply) = action
//!         && let ReplyData::Buffer { buffer, .. } = reply.data
//!     {
//!         engine.release(Nanos(5_000), buffer, &mut actions);
//!     }
//! }
//! engine.sent(Nanos(5_000));
//!
//! engine.submit(Nanos(6_000), read(2), &mut actions).expect("a free place");
//! let Some(Action::Reply(reply)) = actions.list.last() else { panic!("a hit is answered at once") };
//! assert!(matches!(reply.data, ReplyData::Slots { .. }));
//! # Ok::<(), forebay_core::engine::ConfigError>(())
//! ```

#![forbid(unsafe_code)]

pub mod action;
mod cache;
pub mod cache_index;
pub mod characteristics;
pub mod config;
mod cx;
pub mod engine;
pub mod executor;
pub mod flash_pool;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod geometry;
pub mod ghost;
pub mod ids;
pub mod index;
pub mod journal;
pub mod list;
mod misses;
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
