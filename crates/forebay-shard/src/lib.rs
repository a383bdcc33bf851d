//! Shards: threads that own disks, each with one reactor, and the handles to talk to them.
//!
//! ```text
//!   control plane                        shard thread
//!   ShardHandle ──Command, mailbox──►  loop {
//!   DiskHandle    (closures)             wait        reactor: completions, a wake-up, or a deadline
//!                                        dispatch    each completion to a client, or a disk's flash, log, backend
//!                                        commands    from the mailbox
//!                                        turn        run the disks' actions until none is left,
//!                                                    send, tell the engines, resume clients that wait
//!                                        answer      those who wait for a disk
//!                                      }
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `handle.rs`, `disk_handle.rs` | the public door: a shard, and a disk on it |
//! | `mailbox.rs`, `return_path.rs` | what a shard is asked; what a disk on it has asked for |
//! | `run.rs`, `thread.rs` | the loop, and its thread |
//! | `time.rs` | what time it is for the shard, also after its process was stopped |
//! | `roster.rs` | the disks, and which of them a turn asks |
//! | `disk/` | one disk: its engine, what that does I/O on, how it ends |
//! | `client.rs` | the clients of the shard: who sends, who waits |
//! | `token.rs` | who gets a completion |
//! | `event.rs` | the engine's events in words |
//!
//! **Invariants.** A disk, its engine, its memory's bookkeeping and its clients are touched by one
//! thread only. The shard never waits but in the reactor. Nothing is allocated per I/O once the
//! lists have grown to the largest batch.
//!
//! **Users.** The control plane, through [`ShardHandle`] and [`DiskHandle`]. This crate knows
//! nothing of the control plane. Of the host it uses the event log, the way to a pool's owner, the
//! staging file and the fence's notes.
//!
//! **Limits.** [`MAILBOX_MAX`] commands may wait. A client that wants in waits for room,
//! [`HAND_OVER_MAX`] at most. Answers of a pool's owner are beside them, as many as the disks have
//! asked for: a segment and a void ring for each, and its reservations.

pub use disk::{EndedHold, FlashUse, LogShare, Missing};
pub use disk_handle::{DiskHandle, HAND_OVER_MAX, Resized};
pub use handle::{ShardHandle, ShardSender};
pub use new_disk::{FlashShare, JournalShare, NewDisk, RingShare};
pub use status::{DiskFigures, DiskStatus, Drained, Dropped, LogEnd, PrimaryState};

mod client;
mod disk;
mod disk_handle;
pub mod event;
mod handle;
mod mailbox;
mod new_disk;
mod return_path;
mod roster;
mod run;
mod status;
pub mod testing;
#[cfg(test)]
mod tests;
mod thread;
mod time;
mod token;

/// Commands that may wait for a shard.
pub const MAILBOX_MAX: usize = 1024;

/// The disk or its shard has ended, or the shard's mailbox is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl std::fmt::Display for Gone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the disk or its shard has ended, or the shard is overloaded")
    }
}

impl std::error::Error for Gone {}
