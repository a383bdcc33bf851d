//! The client's side of the NBD handshake, as far as a load generator needs it: fixed newstyle,
//! GO, simple replies.

use std::io::{Read, Write};

use anyhow::{Context, bail, ensure};

const GREETING: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
/// Longest option reply that is read; a server's error text is shorter.
const REPLY_MAX: u32 = 64 << 10;

/// What the server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) size: u64,
}

/// Chooses `export`; afterwards the stream is in the transmission phase.
///
/// # Errors
/// The server does not speak fixed newstyle, or does not have the export.
pub(crate) fn connect(stream: &mut (impl Read + Write), export: &str) -> anyhow::Result<Export> {
    ensure!(read_u64(stream)? == GREETING, "the server does not speak NBD");
    ensure!(read_u64(stream)? == OPTION, "the server speaks only the oldstyle handshake");
    let flags = read_u16(stream)?;
    ensure!(flags & FIXED_NEWSTYLE != 0, "the server does not know fixed newstyle");
    let mut hello = u32::from(flags & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes().to_vec();
    hello.extend(OPTION.to_be_bytes());
    hello.extend(OPT_GO.to_be_bytes());
    hello.extend((export.len() as u32 + 6).to_be_bytes());
    hello.extend((export.len() as u32).to_be_bytes());
    hello.extend(export.as_bytes());
    hello.extend(0u16.to_be_bytes());
    stream.write_all(&hello)?;

    let mut size = None;
    loop {
        ensure!(read_u64(stream)? == OPTION_REPLY, "bad magic in an option reply");
        ensure!(read_u32(stream)? == OPT_GO, "a reply to another option");
        let kind = read_u32(stream)?;
        let length = read_u32(stream)?;
        ensure!(length <= REPLY_MAX, "an option reply of {length} bytes");
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        match kind {
            REP_ACK => {
                let size = size.context("the server did not tell the export's size")?;
                return Ok(Export { size });
            }
            REP_INFO if data.len() == 12 && data[..2] == INFO_EXPORT.to_be_bytes() => {
                let bytes = data[2..10].try_into().expect("eight bytes");
                size = Some(u64::from_be_bytes(bytes));
            }
            REP_INFO => {}
            kind if kind & REP_ERROR != 0 => {
                bail!("the server refuses export {export:?}: {}", String::from_utf8_lossy(&data))
            }
            kind => bail!("unexpected option reply {kind}"),
        }
    }
}

fn read_u16(stream: &mut impl Read) -> anyhow::Result<u16> {
    let mut bytes = [0; 2];
    stream.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

fn read_u32(stream: &mut impl Read) -> anyhow::Result<u32> {
    let mut bytes = [0; 4];
    stream.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_u64(stream: &mut impl Read) -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    stream.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}
