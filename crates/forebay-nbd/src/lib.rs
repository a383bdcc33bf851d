//! The NBD wire format without I/O, for both ends of a connection.
//!
//! A connection goes through three parts, one module or more each:
//!
//! ```text
//! server                                   client
//!   Greeting            ───────────────►              greeting
//!                       ◄───────────────   ClientFlags
//!   OptionReplyHeader…  ◄─────────────►    OptionHeader…   option, option_reply, info
//!   SimpleReply, chunks ◄─────────────►    RequestHeader   request, reply
//! ```
//!
//! Fixed-size headers are structs with `SIZE`, `to_bytes` (an array, no allocation) and `decode`.
//! `decode` takes the bytes that have arrived so far. It answers `Ok(None)` while they are fewer
//! than `SIZE`. It reports a wrong magic as soon as it can be seen. Bodies of variable length are
//! decoded from exactly their bytes, borrowed, and encoded by appending to the caller's `Vec`.
//!
//! **Invariant:** no decoder panics or allocates, whatever the bytes. A length on the wire is
//! compared with the bytes at hand before it is trusted.
//!
//! **Limits.** TLS, extended headers (64-bit lengths) and the old-style handshake are not here.
//! Strings, options and payloads have the limits below. Source: the NBD protocol document
//! (`doc/proto.md` of the NBD project).

#![forbid(unsafe_code)]

pub mod errno;
pub mod flags;
pub mod greeting;
pub mod info;
pub mod option;
pub mod option_reply;
pub mod reply;
pub mod request;

mod cursor;

#[cfg(test)]
mod tests;

/// Port assigned to NBD over TCP.
pub const PORT: u16 = 10809;
/// Longest export name and other string that the protocol allows.
pub const STRING_MAX: usize = 4096;
/// Longest data of an option that this implementation takes or sends.
pub const OPTION_DATA_MAX: u32 = 64 << 10;
/// Longest payload of a read or write that this implementation takes or asks for.
pub const PAYLOAD_MAX: u32 = 32 << 20;

/// Bytes that break the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("NBD: {what} is {found:#x}")]
pub struct Invalid {
    /// Which field, with what is wrong.
    pub what: &'static str,
    /// What it holds.
    pub found: u64,
}

impl Invalid {
    /// `what` has the forbidden value `found`.
    pub const fn new(what: &'static str, found: u64) -> Invalid {
        Invalid { what, found }
    }
}
