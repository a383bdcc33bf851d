//! Protocols through which hypervisors attach to Forebay.
//!
//! Every protocol is a folder with the same parts: `handshake` and `session` speak the protocol
//! without I/O, `driver` connects a session to the shard's reactor and to the disk's engine.

#![forbid(unsafe_code)]

pub mod nbd;
pub mod scsi;
