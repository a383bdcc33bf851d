//! The iSCSI target.
//!
//! ```text
//! control plane   Login       bytes ◄──► keys, CHAP, discovery     one per connection
//!     │ socket, Established, leftover bytes
//!     ▼
//! shard           Connection  reactor ◄──► Session ◄──► engine
//!                     │                       └ Device: logical units, shared by all sessions
//!                     └ Outbox  headers, slot memory and buffers on their way to the socket
//! ```
//!
//! [`login`] and [`session`] do no I/O: bytes in, bytes and tasks out. [`crate::scsi`] says what a
//! command means. Everything an initiator sends is hostile: it is bounded before it is believed, and
//! the worst it can do is to lose its own connection.
//!
//! Not here: more than one connection in a session (paths are for multipath), error recovery above
//! level 0, bidirectional commands, ACA, redirection.

pub mod chap;
pub mod codec;
pub mod device;
mod digest;
pub mod driver;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod login;
pub mod negotiate;
mod order;
pub mod pdu_log;
pub mod session;
pub mod target;
pub mod task;
pub mod text;
pub mod text_exchange;

/// Bytes of a logical block.
pub const BLOCK: u32 = forebay_core::geometry::SECTOR as u32;
