//! Protocols through which hypervisors attach to Forebay.
//!
//! Every protocol is a folder with the same parts: `handshake` and `session` speak the protocol
//! without I/O, `driver` is the [`client::Client`] that connects a session to the shard's reactor and to the engines of
//! its disks. What they share: [`client`], and the outbox of those that answer on a socket.

#![forbid(unsafe_code)]

pub mod client;
pub mod iscsi;
pub mod nbd;
mod outbox;
pub mod scsi;
pub mod vhost_user;
