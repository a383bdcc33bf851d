//! A server's information on an export, in answer to `INFO` and `GO`.

use crate::Invalid;
use crate::cursor::Cursor;
use crate::flags::TransmissionFlags;

/// The kinds of information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum InfoKind {
    /// Size and flags; always sent.
    Export = 0,
    /// The export's own name.
    Name = 1,
    /// A description for people.
    Description = 2,
    /// Block size constraints.
    BlockSize = 3,
}

impl InfoKind {
    /// All of them.
    pub const ALL: [InfoKind; 4] =
        [InfoKind::Export, InfoKind::Name, InfoKind::Description, InfoKind::BlockSize];

    /// Its number on the wire.
    pub fn wire(self) -> u16 {
        self as u16
    }
}

/// Which lengths and offsets an export takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSizes {
    /// Every offset and length is a multiple of this; a power of two.
    pub minimum: u32,
    /// Requests of this size and alignment are served well; a power of two.
    pub preferred: u32,
    /// Longest payload of a read or write.
    pub maximum: u32,
}

/// One piece of information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Info<'a> {
    /// Size and flags.
    Export {
        /// Bytes of the export.
        size: u64,
        /// What it can do.
        flags: TransmissionFlags,
    },
    /// The export's own name.
    Name(&'a str),
    /// A description for people.
    Description(&'a str),
    /// Block size constraints.
    BlockSize(BlockSizes),
    /// A kind that this implementation does not know: to be ignored.
    Other(u16),
}

impl<'a> Info<'a> {
    /// Decodes the whole data of an `INFO` reply.
    ///
    /// # Errors
    /// Too short or too long, no UTF-8, block sizes that contradict each other.
    pub fn decode(data: &'a [u8]) -> Result<Info<'a>, Invalid> {
        let mut cursor = Cursor::new(data);
        let number = cursor.u16("kind of information")?;
        let Some(kind) = InfoKind::ALL.into_iter().find(|kind| kind.wire() == number) else {
            return Ok(Info::Other(number));
        };
        let info = match kind {
            InfoKind::Export => Info::Export {
                size: cursor.u64("size of the export")?,
                flags: TransmissionFlags(cursor.u16("transmission flags")?),
            },
            InfoKind::Name => {
                return rest_as_string("export name", cursor).map(Info::Name);
            }
            InfoKind::Description => {
                return rest_as_string("export description", cursor).map(Info::Description);
            }
            InfoKind::BlockSize => Info::BlockSize(decode_block_sizes(&mut cursor)?),
        };
        cursor.end("bytes after the information")?;
        Ok(info)
    }

    /// Appends the data of an `INFO` reply.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Info::Export { size, flags } => {
                out.extend_from_slice(&InfoKind::Export.wire().to_be_bytes());
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(&flags.0.to_be_bytes());
            }
            Info::Name(name) => {
                out.extend_from_slice(&InfoKind::Name.wire().to_be_bytes());
                out.extend_from_slice(name.as_bytes());
            }
            Info::Description(description) => {
                out.extend_from_slice(&InfoKind::Description.wire().to_be_bytes());
                out.extend_from_slice(description.as_bytes());
            }
            Info::BlockSize(sizes) => {
                out.extend_from_slice(&InfoKind::BlockSize.wire().to_be_bytes());
                for size in [sizes.minimum, sizes.preferred, sizes.maximum] {
                    out.extend_from_slice(&size.to_be_bytes());
                }
            }
            Info::Other(kind) => out.extend_from_slice(&kind.to_be_bytes()),
        }
    }
}

fn rest_as_string<'a>(what: &'static str, mut cursor: Cursor<'a>) -> Result<&'a str, Invalid> {
    cursor.string(what, cursor.rest().len())
}

fn decode_block_sizes(cursor: &mut Cursor<'_>) -> Result<BlockSizes, Invalid> {
    let minimum = cursor.u32("minimum block size")?;
    let preferred = cursor.u32("preferred block size")?;
    let maximum = cursor.u32("maximum block size")?;
    if !minimum.is_power_of_two() {
        return Err(Invalid::new("minimum block size", u64::from(minimum)));
    }
    if !preferred.is_power_of_two() || preferred < minimum {
        return Err(Invalid::new("preferred block size", u64::from(preferred)));
    }
    if maximum < minimum {
        return Err(Invalid::new("maximum block size", u64::from(maximum)));
    }
    Ok(BlockSizes { minimum, preferred, maximum })
}
