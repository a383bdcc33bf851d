//! Forebay as a program: the control plane and the command line.
//!
//! ```text
//!   cli ──► command ──► config::DaemonSpec ──► daemon ──(mailbox)──► forebay-shard ──► engine, devices, clients
//!                  │                             └──► forebay-host: pools, fence, events
//!                  └──► control (client) ◄──── unix socket ────► daemon::control
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`cli`] | the options and their help |
//! | [`command`] | what a command does |
//! | [`config`] | a configuration, checked |
//! | [`daemon`] | the control plane: opens disks, lets clients in, answers at the control socket, ends in order |
//! | `messages` | states in words, for people |
//!
//! **Users.** The binary, its tests, and nobody else: no other crate depends on this one. The control plane reaches a disk
//! on its shard through [`forebay_shard::DiskHandle`] alone.

pub mod cli;
pub mod command;
pub mod config;
pub mod daemon;
mod messages;
