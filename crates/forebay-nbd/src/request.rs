//! Requests of the transmission phase.

use crate::Invalid;
use crate::cursor::{be16, be32, be64, expect_magic};
use crate::flags::CommandFlags;

const MAGIC: u32 = 0x2560_9513;

/// The commands that this implementation knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Command {
    /// Read bytes.
    Read = 0,
    /// Write the payload that follows the header.
    Write = 1,
    /// The client is leaving; not answered.
    Disconnect = 2,
    /// Make every answered write durable.
    Flush = 3,
    /// The range is no longer needed.
    Trim = 4,
    /// Fetch the range into the cache.
    Cache = 5,
    /// The range reads as zeroes afterwards.
    WriteZeroes = 6,
    /// State of the range in the selected meta contexts.
    BlockStatus = 7,
}

impl Command {
    /// Its number on the wire.
    pub const fn wire(self) -> u16 {
        self as u16
    }

    /// The command behind a number, `None` when this implementation does not know it.
    pub const fn from_wire(number: u16) -> Option<Command> {
        match number {
            0 => Some(Command::Read),
            1 => Some(Command::Write),
            2 => Some(Command::Disconnect),
            3 => Some(Command::Flush),
            4 => Some(Command::Trim),
            5 => Some(Command::Cache),
            6 => Some(Command::WriteZeroes),
            7 => Some(Command::BlockStatus),
            _ => None,
        }
    }
}

/// A request, without the payload of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// How to carry it out.
    pub flags: CommandFlags,
    /// The command's number; see [`Command::from_wire`].
    pub command: u16,
    /// The client's name of it, returned in the reply.
    pub cookie: u64,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; not yet compared with any limit.
    pub len: u32,
}

impl RequestHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 28;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    ///
    /// # Errors
    /// A wrong magic: the stream cannot be followed any further.
    pub fn decode(bytes: &[u8]) -> Result<Option<RequestHeader>, Invalid> {
        let Some(bytes) = bytes.first_chunk::<{ Self::SIZE }>() else {
            expect_magic("magic of a request", &MAGIC.to_be_bytes(), bytes)?;
            return Ok(None);
        };
        if be32(bytes, 0) != MAGIC {
            return Err(Invalid::new("magic of a request", u64::from(be32(bytes, 0))));
        }
        Ok(Some(RequestHeader {
            flags: CommandFlags(be16(bytes, 4)),
            command: be16(bytes, 6),
            cookie: be64(bytes, 8),
            offset: be64(bytes, 16),
            len: be32(bytes, 24),
        }))
    }
}
