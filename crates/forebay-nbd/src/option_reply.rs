//! Replies to options.
//!
//! Every reply is an [`OptionReplyHeader`] and data. The one exception is the answer to
//! `EXPORT_NAME`, an [`ExportNameReply`] without a header.

use crate::cursor::{Cursor, be16, be32, be64, expect_magic, push_string32};
use crate::flags::TransmissionFlags;
use crate::info::Info;
use crate::{Invalid, OPTION_DATA_MAX};

const MAGIC: u64 = 0x0003_e889_0455_65a9;
const ERROR: u32 = 1 << 31;

/// The kinds of reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum OptionReply {
    /// Done; the last reply of a series.
    Ack = 1,
    /// One export, in answer to `LIST`.
    Server = 2,
    /// One [`Info`].
    Info = 3,
    /// One meta context.
    MetaContext = 4,
    /// Not known or not supported.
    ErrUnsupported = ERROR | 1,
    /// Forbidden.
    ErrPolicy = ERROR | 2,
    /// The option's data makes no sense.
    ErrInvalid = ERROR | 3,
    /// Not on this platform.
    ErrPlatform = ERROR | 4,
    /// Not before TLS.
    ErrTlsRequired = ERROR | 5,
    /// No such export.
    ErrUnknown = ERROR | 6,
    /// The server is shutting down.
    ErrShutdown = ERROR | 7,
    /// The client must honour the block sizes.
    ErrBlockSizeRequired = ERROR | 8,
    /// The request or its answer is too long.
    ErrTooBig = ERROR | 9,
    /// Only with extended headers.
    ErrExtendedHeadersRequired = ERROR | 10,
}

impl OptionReply {
    /// All of them.
    pub const ALL: [OptionReply; 14] = [
        OptionReply::Ack,
        OptionReply::Server,
        OptionReply::Info,
        OptionReply::MetaContext,
        OptionReply::ErrUnsupported,
        OptionReply::ErrPolicy,
        OptionReply::ErrInvalid,
        OptionReply::ErrPlatform,
        OptionReply::ErrTlsRequired,
        OptionReply::ErrUnknown,
        OptionReply::ErrShutdown,
        OptionReply::ErrBlockSizeRequired,
        OptionReply::ErrTooBig,
        OptionReply::ErrExtendedHeadersRequired,
    ];

    /// Its number on the wire.
    pub fn wire(self) -> u32 {
        self as u32
    }

    /// The reply behind a number, `None` when this implementation does not know it.
    pub fn from_wire(number: u32) -> Option<OptionReply> {
        OptionReply::ALL.into_iter().find(|reply| reply.wire() == number)
    }
}

/// The start of a reply to an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that is answered.
    pub option: u32,
    /// The number of the reply; see [`OptionReply::from_wire`].
    pub reply: u32,
    /// Bytes of data that follow, at most [`OPTION_DATA_MAX`].
    pub len: u32,
}

impl OptionReplyHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 20;

    /// True when the reply refuses the option, also for errors that are not known.
    pub fn is_error(&self) -> bool {
        self.reply & ERROR != 0
    }

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.reply.to_be_bytes());
        bytes[16..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    ///
    /// # Errors
    /// A wrong magic, more data than [`OPTION_DATA_MAX`].
    pub fn decode(bytes: &[u8]) -> Result<Option<OptionReplyHeader>, Invalid> {
        expect_magic("magic of an option reply", &MAGIC.to_be_bytes(), bytes)?;
        if bytes.len() < Self::SIZE {
            return Ok(None);
        }
        let len = be32(bytes, 16);
        if len > OPTION_DATA_MAX {
            return Err(Invalid::new("length of an option reply", u64::from(len)));
        }
        Ok(Some(OptionReplyHeader { option: be32(bytes, 8), reply: be32(bytes, 12), len }))
    }
}

/// Appends a reply with the data that `body` appends.
pub fn encode(option: u32, reply: OptionReply, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    let header = OptionReplyHeader { option, reply: reply.wire(), len: 0 };
    out.extend_from_slice(&header.to_bytes());
    body(out);
    let len = (out.len() - start - OptionReplyHeader::SIZE) as u32;
    out[start + 16..start + 20].copy_from_slice(&len.to_be_bytes());
}

/// Appends an acknowledgement.
pub fn encode_ack(option: u32, out: &mut Vec<u8>) {
    encode(option, OptionReply::Ack, out, |_| ());
}

/// Appends a refusal with a message for people.
pub fn encode_error(option: u32, reply: OptionReply, message: &str, out: &mut Vec<u8>) {
    encode(option, reply, out, |out| out.extend_from_slice(message.as_bytes()));
}

/// Appends one piece of information.
pub fn encode_info(option: u32, info: &Info<'_>, out: &mut Vec<u8>) {
    encode(option, OptionReply::Info, out, |out| info.encode(out));
}

/// Appends one export, in answer to `LIST`.
pub fn encode_server(option: u32, name: &str, out: &mut Vec<u8>) {
    encode(option, OptionReply::Server, out, |out| push_string32(name, out));
}

/// Decodes the data of a `SERVER` reply: the name, and what the server adds for people.
///
/// # Errors
/// Lengths that contradict each other, a name that is no UTF-8 or too long.
pub fn decode_server(data: &[u8]) -> Result<(&str, &[u8]), Invalid> {
    let mut cursor = Cursor::new(data);
    let name = cursor.string32("export name")?;
    Ok((name, cursor.rest()))
}

/// Appends one meta context; `id` is 0 in answer to a list.
pub fn encode_meta_context(option: u32, id: u32, name: &str, out: &mut Vec<u8>) {
    encode(option, OptionReply::MetaContext, out, |out| {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(name.as_bytes());
    });
}

/// Decodes the data of a `META_CONTEXT` reply: its number and its name.
///
/// # Errors
/// Too short, a name that is no UTF-8 or too long.
pub fn decode_meta_context(data: &[u8]) -> Result<(u32, &str), Invalid> {
    let mut cursor = Cursor::new(data);
    let id = cursor.u32("number of a meta context")?;
    let name = cursor.string("name of a meta context", cursor.rest().len())?;
    Ok((id, name))
}

/// The answer to `EXPORT_NAME`; 124 zeroes follow unless both sides said `NO_ZEROES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportNameReply {
    /// Bytes of the export.
    pub size: u64,
    /// What it can do.
    pub flags: TransmissionFlags,
}

impl ExportNameReply {
    /// Bytes on the wire, without the zeroes.
    pub const SIZE: usize = 10;
    /// How many zeroes may follow.
    pub const ZEROES: usize = 124;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.size.to_be_bytes());
        bytes[8..].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    pub fn decode(bytes: &[u8]) -> Option<ExportNameReply> {
        if bytes.len() < Self::SIZE {
            return None;
        }
        let flags = TransmissionFlags(be16(bytes, 8));
        Some(ExportNameReply { size: be64(bytes, 0), flags })
    }
}
