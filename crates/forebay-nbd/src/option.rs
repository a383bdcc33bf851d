//! Options: what a client asks for before the transmission phase.
//!
//! An option is an [`OptionHeader`] and as many bytes of data as it says. The data of `INFO` and
//! `GO` is an [`InfoRequest`], of the meta context options a [`MetaContextRequest`], of `EXPORT_NAME`
//! the bare name; the others have none.

use crate::Invalid;
use crate::cursor::{Cursor, be32, expect_magic, push_string32};
use crate::greeting::OPTION_MAGIC;
use crate::info::InfoKind;

/// The options that this implementation knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum OptionKind {
    /// Go to the transmission phase with the named export; no way to refuse but to close.
    ExportName = 1,
    /// The client is leaving.
    Abort = 2,
    /// Which exports are there.
    List = 3,
    /// Switch to TLS.
    StartTls = 5,
    /// What is said of an export.
    Info = 6,
    /// As `Info`, then the transmission phase.
    Go = 7,
    /// Structured replies from now on.
    StructuredReply = 8,
    /// Which meta contexts are there.
    ListMetaContext = 9,
    /// Select meta contexts.
    SetMetaContext = 10,
    /// 64-bit headers from now on.
    ExtendedHeaders = 11,
}

impl OptionKind {
    /// All of them.
    pub const ALL: [OptionKind; 10] = [
        OptionKind::ExportName,
        OptionKind::Abort,
        OptionKind::List,
        OptionKind::StartTls,
        OptionKind::Info,
        OptionKind::Go,
        OptionKind::StructuredReply,
        OptionKind::ListMetaContext,
        OptionKind::SetMetaContext,
        OptionKind::ExtendedHeaders,
    ];

    /// Its number on the wire.
    pub fn wire(self) -> u32 {
        self as u32
    }

    /// The option behind a number, `None` when this implementation does not know it.
    pub fn from_wire(number: u32) -> Option<OptionKind> {
        OptionKind::ALL.into_iter().find(|kind| kind.wire() == number)
    }
}

/// The start of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionHeader {
    /// Its number; see [`OptionKind::from_wire`].
    pub option: u32,
    /// Bytes of data that follow; not yet compared with any limit.
    pub len: u32,
}

impl OptionHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = 16;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&OPTION_MAGIC);
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    ///
    /// # Errors
    /// A wrong magic.
    pub fn decode(bytes: &[u8]) -> Result<Option<OptionHeader>, Invalid> {
        expect_magic("magic of an option", &OPTION_MAGIC, bytes)?;
        if bytes.len() < Self::SIZE {
            return Ok(None);
        }
        Ok(Some(OptionHeader { option: be32(bytes, 8), len: be32(bytes, 12) }))
    }
}

/// Appends an option without data.
pub fn encode_bare(option: OptionKind, out: &mut Vec<u8>) {
    out.extend_from_slice(&OptionHeader { option: option.wire(), len: 0 }.to_bytes());
}

/// Appends `EXPORT_NAME`.
pub fn encode_export_name(name: &str, out: &mut Vec<u8>) {
    with_header(OptionKind::ExportName, out, |out| out.extend_from_slice(name.as_bytes()));
}

/// Decodes the data of `EXPORT_NAME`.
///
/// # Errors
/// Too long, or not UTF-8.
pub fn decode_export_name(data: &[u8]) -> Result<&str, Invalid> {
    Cursor::new(data).string("export name", data.len())
}

/// Data of `INFO` and `GO`.
#[derive(Clone, Copy, Debug)]
pub struct InfoRequest<'a> {
    /// Name of the export, empty for the default one.
    pub name: &'a str,
    wanted: &'a [u8],
}

impl<'a> InfoRequest<'a> {
    /// Decodes the whole data of an option.
    ///
    /// # Errors
    /// Lengths that contradict each other, a name that is no UTF-8 or too long.
    pub fn decode(data: &'a [u8]) -> Result<InfoRequest<'a>, Invalid> {
        let mut cursor = Cursor::new(data);
        let name = cursor.string32("export name")?;
        let count = cursor.u16("number of information requests")?;
        let wanted = cursor.bytes("information requests", 2 * usize::from(count))?;
        cursor.end("bytes after the information requests")?;
        Ok(InfoRequest { name, wanted })
    }

    /// The client's requests by number, unknown kinds included.
    pub fn wanted(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.wanted.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
    }

    /// True when the client asked for `kind`.
    pub fn wants(&self, kind: InfoKind) -> bool {
        self.wanted().any(|wanted| wanted == kind.wire())
    }

    /// Appends the option (`INFO` or `GO`) for export `name`.
    pub fn encode(option: OptionKind, name: &str, wanted: &[InfoKind], out: &mut Vec<u8>) {
        with_header(option, out, |out| {
            push_string32(name, out);
            out.extend_from_slice(&(wanted.len() as u16).to_be_bytes());
            for kind in wanted {
                out.extend_from_slice(&kind.wire().to_be_bytes());
            }
        });
    }
}

/// Data of `LIST_META_CONTEXT` and `SET_META_CONTEXT`.
#[derive(Clone, Copy, Debug)]
pub struct MetaContextRequest<'a> {
    /// Name of the export, empty for the default one.
    pub name: &'a str,
    count: u32,
    queries: &'a [u8],
}

impl<'a> MetaContextRequest<'a> {
    /// Decodes the whole data of an option.
    ///
    /// # Errors
    /// Lengths that contradict each other, strings that are no UTF-8 or too long.
    pub fn decode(data: &'a [u8]) -> Result<MetaContextRequest<'a>, Invalid> {
        let mut cursor = Cursor::new(data);
        let name = cursor.string32("export name")?;
        let count = cursor.u32("number of queries")?;
        let queries = cursor.rest();
        for _ in 0..count {
            cursor.string32("meta context query")?;
        }
        cursor.end("bytes after the queries")?;
        Ok(MetaContextRequest { name, count, queries })
    }

    /// How many queries there are.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// True when there is no query: for a list, everything is wanted; for a selection, nothing.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The queries, in order.
    pub fn queries(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut cursor = Cursor::new(self.queries);
        // `decode` has walked the same bytes without an error.
        (0..self.count).map_while(move |_| cursor.string32("meta context query").ok())
    }

    /// Appends the option (`LIST_META_CONTEXT` or `SET_META_CONTEXT`) for export `name`.
    pub fn encode(option: OptionKind, name: &str, queries: &[&str], out: &mut Vec<u8>) {
        with_header(option, out, |out| {
            push_string32(name, out);
            out.extend_from_slice(&(queries.len() as u32).to_be_bytes());
            for query in queries {
                push_string32(query, out);
            }
        });
    }
}

/// Appends an option whose data `body` appends.
fn with_header(option: OptionKind, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    encode_bare(option, out);
    body(out);
    let len = (out.len() - start - OptionHeader::SIZE) as u32;
    out[start + 12..start + 16].copy_from_slice(&len.to_be_bytes());
}
