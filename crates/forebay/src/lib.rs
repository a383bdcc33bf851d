//! Forebay as a program: shard threads, the control plane, the command line.
//!
//! ```text
//!   cli ──► command ──► config::DaemonSpec ──► daemon ──(mailbox)──► shard ──► engine, devices, clients
//!                  └──► control (client) ◄──── unix socket ────► daemon::control
//! ```

pub mod cli;
pub mod command;
pub mod config;
pub mod daemon;
mod date;
mod messages;
pub mod shard;
