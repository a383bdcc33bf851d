//! What a host keeps for its disks: the flash pool, the fence against stale caches, staging files,
//! the event log.
//!
//! ```text
//!   control plane ─► pool ── begin_session, take_cache, commit_session ─► flash
//!        │            ▲
//!        │            └── owner (its thread) ◄── lease, free, void, reserve ── shards
//!        ├─► fence ── sidecar, lock, last write ─► beside primary storage, state folder, tmpfs
//!        └─► events ◄── report ── everybody
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`pool`] | the I/O of the flash pool: records, leases, recovery of logs, staging files, reports |
//! | [`fence`] | who owns primary storage, how it was left, whether it changed since |
//! | [`image`] | an image without its daemon: whole or torn, and repaired |
//! | [`journal`] | the destage journal beside an image: made, put in place, looked at |
//! | [`warm`] | the start of a cache that flash kept over a restart |
//! | [`population`] | memory for caches that are served already |
//! | [`events`] | what an operator wants to know |
//! | [`folders`], `tmpfs` | where this host keeps sockets, state, and what a kill must not lose |
//! | [`date`], [`shell`] | dates as people read them, words as a shell does |
//!
//! **Users.** The control plane opens, serves and closes disks with all of it. A shard uses four
//! small things only: the way to a pool's owner ([`pool::owner::PoolHandle`]), the staging file,
//! the fence's notes ([`fence::LastWrite`], [`fence::UnreportedLoss`], [`fence::Revoker`]) and the
//! event log. This crate knows neither shards nor the control plane.
//!
//! **Limits.** It may wait for flash and for primary storage, so that no shard thread calls it for
//! that. A pool has at most [`DISKS_MAX`](forebay_core::flash_pool::DISKS_MAX) disks; the event log keeps
//! [`events::KEPT`] lines.

pub mod date;
pub mod events;
pub mod fence;
pub mod folders;
pub mod image;
pub mod journal;
pub mod pool;
pub mod population;
pub mod shell;
pub mod tmpfs;
pub mod warm;
