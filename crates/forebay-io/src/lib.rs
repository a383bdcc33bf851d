//! The ground below a shard: memory, a reactor for files and sockets, a clock, mailboxes.
//!
//! ```text
//!  other threads                 the thread of one shard                    kernel
//!  mailbox::Sender ── command ──► mailbox::Receiver
//!        └── Waker ─────────────► Reactor::wait ◄── completions ─── io_uring, or epoll and
//!                                   │  ▲                            a few threads for files
//!                        start(op)  ▼  │ copies
//!                                 Arena: the memory of all I/O ◄──► files, sockets
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`arena`] | memory that the kernel may write to during an I/O |
//! | [`reactor`] | operations in flight, and the files and sockets that they use |
//! | [`file`](mod@file) | opening and locking files and block devices, their extents |
//! | [`socket`] | unix listeners, and whether the other end is still there |
//! | [`mailbox`] | commands for a shard, from any thread |
//! | [`clock`] | the time of the shards |
//! | [`thread`] | the CPUs of shards, and of the threads beside them |
//!
//! Everything that this crate exports is safe to use. It is one of the two homes of `unsafe`.
//!
//! **Limits.** A reactor belongs to one thread. The crate knows nothing of caching, of disks or of
//! protocols. TLS and timers are not here: a caller gives `wait` its time-out.

#![allow(unsafe_code)]

pub mod arena;
pub mod clock;
pub mod file;
pub mod mailbox;
pub mod reactor;
pub mod socket;
pub mod thread;
