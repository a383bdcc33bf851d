//! Protocols through which hypervisors attach to Forebay: NBD, iSCSI and vhost-user-blk.
//!
//! ```text
//!  hypervisor                 control plane          shard of the disk
//!  NBD, iSCSI ── socket ────► handshake, login ────► driver ◄──► session ──┐
//!                                                      └ outbox            ├──► engine
//!  vhost-user ── socket ────► device ── orders ────► driver ◄──► ring ─────┘
//!             └─ guest memory ─────────────────────────────────► chain, request
//! ```
//!
//! Every protocol is a folder with the same parts. A handshake and a `session` speak the protocol
//! without I/O: bytes in, bytes and requests out. A `driver` is the [`client::Client`] that
//! connects a session to the shard's reactor, and to the engines of its disks.
//!
//! | module | owns |
//! |---|---|
//! | [`client`] | what the shard knows of every client, whatever its protocol |
//! | [`nbd`] | the NBD server |
//! | [`iscsi`] | the iSCSI target: login, session, tasks |
//! | [`scsi`] | the meaning of SCSI commands, and persistent reservations |
//! | [`vhost_user`] | the vhost-user-blk device: queues in a guest's memory |
//! | `outbox` | bytes on their way to a socket |
//!
//! **Invariant:** input of a client is hostile. It is bounded before it is believed. The worst that
//! a client can do is to lose its own connection, or its own queue.
//!
//! **Limits.** There is no TLS. Each protocol's page names what it leaves out. Listeners, and the
//! threads of the control plane, belong to the daemon.

#![forbid(unsafe_code)]

pub mod client;
pub mod iscsi;
mod link;
pub mod nbd;
mod outbox;
pub mod scsi;
pub mod vhost_user;
