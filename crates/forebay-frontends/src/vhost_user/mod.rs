//! A vhost-user-blk device: a virtual machine's disk without a copy through a socket.
//!
//! ```text
//! control socket   Device    features, memory, rings           one thread per device
//!     │ Order, waits until the shard has obeyed
//!     ▼
//! shard            Queue     Ring ◄──► guest memory ◄──► engine    one per ring, a client of the disk
//! ```
//! [`export`], [`config`], [`chain`], [`request`] and [`inflight`] only touch memory that they
//! are given. A request's bytes are copied once: from a cache slot (or the request's buffer) to
//! the guest's memory, or from there to the buffer that the engine writes from.
//!
//! Everything in the guest's memory is hostile: it is read once, checked, and then believed. The
//! worst that a guest can do is to stop its own queue. The owner of the control socket is the
//! guest's hypervisor, and trusted with its memory.
//!
//! Not here: packed rings, live migration (LOG_ALL), the STATUS messages (`vhost` 0.18 does not know them).

pub mod back_channel;
pub mod chain;
pub mod config;
pub mod device;
pub mod driver;
pub mod export;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod inflight;
pub mod memory;
pub mod request;
pub mod ring;

pub use back_channel::BackChannel;
pub use device::{Device, Shard};
pub use driver::{Counters, Order, Orders, Queue, QueueSetup, Report, Weight, queue};
pub use export::Export;
pub use vhost::vhost_user::{BackendReqHandler, Error as SessionError};
