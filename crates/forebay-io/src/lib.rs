//! What a shard stands on: memory, a reactor for files and sockets, a clock, mailboxes.
//!
//! This crate knows nothing of caching. It is one of the two homes of `unsafe`; everything it
//! exports is safe to use.

#![allow(unsafe_code)]

pub mod arena;
pub mod clock;
pub mod file;
pub mod mailbox;
pub mod reactor;
pub mod socket;
