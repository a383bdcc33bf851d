//! Instruction counts of RAM hits and durable writes; see `benches/`.
//!
//! | file | |
//! |---|---|
//! | `limit.rs` | how a count is taken, and what it may be |
//! | `load.rs` | the hits, and how a client asks for them |
//! | `engine.rs` | asks the engine itself |
//! | `shard.rs` | a shard with one disk, for one client |
//! | `socket.rs` | a client at the other end of a socket, with `nbd.rs` and `iscsi.rs` |
//! | `vhost_user.rs` | a guest that has a queue |
//! | `writes.rs` | durable writes, asked of the engine itself |

pub mod engine;
pub mod iscsi;
pub mod limit;
pub mod load;
pub mod nbd;
pub mod shard;
pub mod socket;
pub mod vhost_user;
pub mod writes;

#[path = "../../../crates/forebay-core/tests/common/mod.rs"]
mod common;
