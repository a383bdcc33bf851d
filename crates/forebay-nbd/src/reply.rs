//! Replies of the transmission phase, simple and structured.
//!
//! A simple reply is a [`SimpleReply`], followed by the data of a successful read. A structured reply
//! is one or more chunks, the last of which has [`ChunkFlags::DONE`]; a chunk is a [`ChunkHeader`] and
//! as much payload as it says:
//!
//! | kind | payload |
//! |---|---|
//! | `None` | nothing |
//! | `OffsetData` | offset (8 bytes), data |
//! | `OffsetHole` | offset (8), length (4) |
//! | `BlockStatus` | number of the context (4), then length (4) and flags (4) of each extent |
//! | `Error` | error (4), length of the message (2), message |
//! | `ErrorOffset` | as `Error`, then the offset (8) |

use crate::cursor::{Cursor, be16, be32, be64};
use crate::errno::Errno;
use crate::flags::ChunkFlags;
use crate::{Invalid, PAYLOAD_MAX};

const SIMPLE_MAGIC: u32 = 0x6744_6698;
const CHUNK_MAGIC: u32 = 0x668e_33ef;
/// Bit of a chunk's kind that marks errors, also ones that are not known.
const ERROR_BIT: u16 = 1 << 15;

/// A simple reply; the data of a successful read follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// How the request ended.
    pub result: Result<(), Errno>,
    /// The request's cookie.
    pub cookie: u64,
}

impl SimpleReply {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let error = self.result.map_or_else(Errno::wire, |()| 0);
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&SIMPLE_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }
}

/// The kinds of chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChunkKind {
    /// No payload; the request ended well.
    None,
    /// Data that was read.
    OffsetData,
    /// A part of what was read that is all zeroes.
    OffsetHole,
    /// Extents in one meta context.
    BlockStatus,
    /// The request failed.
    Error,
    /// The request failed at an offset.
    ErrorOffset,
    /// Not known; an error when [`ChunkKind::is_error`] says so.
    Other(u16),
}

impl ChunkKind {
    /// Its number on the wire.
    pub const fn wire(self) -> u16 {
        match self {
            ChunkKind::None => 0,
            ChunkKind::OffsetData => 1,
            ChunkKind::OffsetHole => 2,
            ChunkKind::BlockStatus => 5,
            ChunkKind::Error => ERROR_BIT | 1,
            ChunkKind::ErrorOffset => ERROR_BIT | 2,
            ChunkKind::Other(number) => number,
        }
    }

    /// The kind behind a number.
    pub const fn from_wire(number: u16) -> ChunkKind {
        match number {
            0 => ChunkKind::None,
            1 => ChunkKind::OffsetData,
            2 => ChunkKind::OffsetHole,
            5 => ChunkKind::BlockStatus,
            0x8001 => ChunkKind::Error,
            0x8002 => ChunkKind::ErrorOffset,
            other => ChunkKind::Other(other),
        }
    }

    /// True when the request failed, also for kinds that are not known.
    pub const fn is_error(self) -> bool {
        self.wire() & ERROR_BIT != 0
    }
}

/// The start of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// Whether it is the last one.
    pub flags: ChunkFlags,
    /// What the payload is.
    pub kind: ChunkKind,
    /// The request's cookie.
    pub cookie: u64,
    /// Bytes of payload that follow.
    pub len: u32,
}

impl ChunkHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 20;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.wire().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// The start of either kind of reply, as a client meets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// A simple reply, [`SimpleReply::SIZE`] bytes.
    Simple(SimpleReply),
    /// A chunk of a structured reply, [`ChunkHeader::SIZE`] bytes.
    Chunk(ChunkHeader),
}

impl ReplyHeader {
    /// Bytes on the wire.
    pub const fn size(&self) -> usize {
        match self {
            ReplyHeader::Simple(_) => SimpleReply::SIZE,
            ReplyHeader::Chunk(_) => ChunkHeader::SIZE,
        }
    }

    /// Decodes the start of `bytes`; `None`: more are needed. The length of a chunk is at most
    /// [`PAYLOAD_MAX`] and the few bytes that go with it.
    ///
    /// # Errors
    /// A wrong magic or a length out of bounds: the stream cannot be followed any further.
    pub fn decode(bytes: &[u8]) -> Result<Option<ReplyHeader>, Invalid> {
        if bytes.len() < 4 {
            return Ok(None);
        }
        match be32(bytes, 0) {
            SIMPLE_MAGIC if bytes.len() < SimpleReply::SIZE => Ok(None),
            SIMPLE_MAGIC => Ok(Some(ReplyHeader::Simple(SimpleReply {
                result: Errno::from_wire(be32(bytes, 4)),
                cookie: be64(bytes, 8),
            }))),
            CHUNK_MAGIC if bytes.len() < ChunkHeader::SIZE => Ok(None),
            CHUNK_MAGIC => decode_chunk(bytes).map(Some),
            other => Err(Invalid::new("magic of a reply", u64::from(other))),
        }
    }
}

fn decode_chunk(bytes: &[u8]) -> Result<ReplyHeader, Invalid> {
    let len = be32(bytes, 16);
    if len > PAYLOAD_MAX + OffsetData::SIZE as u32 {
        return Err(Invalid::new("length of a chunk", u64::from(len)));
    }
    Ok(ReplyHeader::Chunk(ChunkHeader {
        flags: ChunkFlags(be16(bytes, 4)),
        kind: ChunkKind::from_wire(be16(bytes, 6)),
        cookie: be64(bytes, 8),
        len,
    }))
}

/// The start of the payload of `OffsetData`; the data follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetData {
    /// Where on the export the data lies.
    pub offset: u64,
}

impl OffsetData {
    /// Bytes on the wire.
    pub const SIZE: usize = 8;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        self.offset.to_be_bytes()
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    pub fn decode(bytes: &[u8]) -> Option<OffsetData> {
        (bytes.len() >= Self::SIZE).then(|| OffsetData { offset: be64(bytes, 0) })
    }
}

/// The payload of `OffsetHole`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetHole {
    /// Where on the export the hole starts.
    pub offset: u64,
    /// Bytes of zeroes.
    pub len: u32,
}

impl OffsetHole {
    /// Bytes on the wire.
    pub const SIZE: usize = 12;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decodes the whole payload.
    ///
    /// # Errors
    /// Not as long as it should be.
    pub fn decode(payload: &[u8]) -> Result<OffsetHole, Invalid> {
        if payload.len() != Self::SIZE {
            return Err(Invalid::new("length of a hole chunk", payload.len() as u64));
        }
        Ok(OffsetHole { offset: be64(payload, 0), len: be32(payload, 8) })
    }
}

/// One extent of a `BlockStatus` chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusExtent {
    /// Length in bytes.
    pub len: u32,
    /// State, as the context defines it.
    pub flags: u32,
}

impl StatusExtent {
    /// Bytes on the wire.
    pub const SIZE: usize = 8;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.len.to_be_bytes());
        bytes[4..].copy_from_slice(&self.flags.to_be_bytes());
        bytes
    }
}

/// The payload of a `BlockStatus` chunk.
#[derive(Clone, Copy, Debug)]
pub struct BlockStatus<'a> {
    /// Number of the meta context.
    pub context: u32,
    extents: &'a [u8],
}

impl<'a> BlockStatus<'a> {
    /// Decodes the whole payload.
    ///
    /// # Errors
    /// No extent, a cut one, or an empty one.
    pub fn decode(payload: &'a [u8]) -> Result<BlockStatus<'a>, Invalid> {
        let mut cursor = Cursor::new(payload);
        let context = cursor.u32("number of a meta context")?;
        let extents = cursor.rest();
        if extents.is_empty() || !extents.len().is_multiple_of(StatusExtent::SIZE) {
            return Err(Invalid::new("length of a block status", payload.len() as u64));
        }
        let status = BlockStatus { context, extents };
        if status.extents().any(|extent| extent.len == 0) {
            return Err(Invalid::new("length of an extent", 0));
        }
        Ok(status)
    }

    /// The extents, in order.
    pub fn extents(&self) -> impl Iterator<Item = StatusExtent> + use<'a> {
        self.extents
            .chunks_exact(StatusExtent::SIZE)
            .map(|bytes| StatusExtent { len: be32(bytes, 0), flags: be32(bytes, 4) })
    }
}

/// The payload of an `Error` or `ErrorOffset` chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorChunk<'a> {
    /// Why.
    pub errno: Errno,
    /// For people; what is not UTF-8 is left out.
    pub message: &'a str,
    /// Where, when the server said so.
    pub offset: Option<u64>,
}

impl<'a> ErrorChunk<'a> {
    /// Bytes of the payload without message and offset.
    pub const SIZE: usize = 6;

    /// The payload of an error without message and offset.
    pub fn bare(errno: Errno) -> [u8; 6] {
        let [a, b, c, d] = errno.wire().to_be_bytes();
        [a, b, c, d, 0, 0]
    }

    /// Decodes the whole payload of a chunk of `kind`, which is an error. An error without a number
    /// is [`Errno::Inval`].
    ///
    /// # Errors
    /// Lengths that contradict each other.
    pub fn decode(kind: ChunkKind, payload: &'a [u8]) -> Result<ErrorChunk<'a>, Invalid> {
        let mut cursor = Cursor::new(payload);
        let number = cursor.u32("error number")?;
        let errno = Errno::from_wire(number).err().unwrap_or(Errno::Inval);
        let len = cursor.u16("length of an error message")?;
        let message = cursor.bytes("error message", usize::from(len))?;
        let message = std::str::from_utf8(message).unwrap_or_default();
        let mut offset = None;
        if kind == ChunkKind::ErrorOffset {
            offset = Some(cursor.u64("offset of an error")?);
        }
        if !matches!(kind, ChunkKind::Other(_)) {
            cursor.end("bytes after an error")?;
        }
        Ok(ErrorChunk { errno, message, offset })
    }
}
