//! iSCSI PDUs: the 48-byte header of what initiators send, and of what a target answers (RFC 7143,
//! section 11).
//!
//! ```text
//! 0 opcode, I  1 F and flags  4 words of AHS  5..8 length of the data  8..16 LUN  16..20 task tag
//! 20.. depends on the opcode; 24 CmdSN or StatSN, 28 ExpStatSN or ExpCmdSN, 32 MaxCmdSN
//! header │ AHS │ header digest │ data │ padding to 4 │ data digest
//! ```
//! Numbers are big-endian, digests little-endian. A decoded PDU says what the bytes say; whether that
//! makes sense is the session's business.

mod answer;
mod request;

pub use answer::{Answer, Numbers, Residual};
pub use request::{Command, LoginRequest, Pdu, Request};

/// Bytes of a header without what may follow it.
pub const HEADER: usize = 48;
/// Bytes of a digest.
pub const DIGEST: usize = 4;
/// The tag that names no task.
pub const NO_TAG: u32 = u32::MAX;

const IMMEDIATE: u8 = 0x40;
const FINAL: u8 = 0x80;

/// Bytes that follow `len` bytes of data to make them a multiple of four.
pub fn padding(len: usize) -> usize {
    len.wrapping_neg() & 3
}

fn word(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_be_bytes(piece(bytes, at))
}

fn piece<const N: usize>(bytes: &[u8; HEADER], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the length is in the type")
}

fn put(bytes: &mut [u8; HEADER], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
