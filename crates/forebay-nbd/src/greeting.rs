//! The first bytes of a connection: the server's greeting and the client's flags.

use crate::Invalid;
use crate::cursor::{be16, be32, expect_magic};
use crate::flags::{ClientFlags, HandshakeFlags};

const NBD_MAGIC: [u8; 8] = *b"NBDMAGIC";
pub(crate) const OPTION_MAGIC: [u8; 8] = *b"IHAVEOPT";

/// The first bytes of a server: `NBDMAGIC`, `IHAVEOPT`, its flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// What the server can do.
    pub flags: HandshakeFlags,
}

impl Greeting {
    /// Bytes on the wire.
    pub const SIZE: usize = 18;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&NBD_MAGIC);
        bytes[8..16].copy_from_slice(&OPTION_MAGIC);
        bytes[16..].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    ///
    /// # Errors
    /// Not a server of the new-style handshake.
    pub fn decode(bytes: &[u8]) -> Result<Option<Greeting>, Invalid> {
        expect_magic("magic of the greeting", &NBD_MAGIC, bytes)?;
        expect_magic("handshake style", &OPTION_MAGIC, bytes.get(8..).unwrap_or_default())?;
        if bytes.len() < Self::SIZE {
            return Ok(None);
        }
        Ok(Some(Greeting { flags: HandshakeFlags(be16(bytes, 16)) }))
    }
}

impl ClientFlags {
    /// Bytes on the wire.
    pub const SIZE: usize = 4;

    /// The bytes to send.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        self.0.to_be_bytes()
    }

    /// Decodes the start of `bytes`; `None`: more are needed.
    ///
    /// # Errors
    /// Flags that the protocol does not have: the connection must be closed.
    pub fn decode(bytes: &[u8]) -> Result<Option<ClientFlags>, Invalid> {
        if bytes.len() < Self::SIZE {
            return Ok(None);
        }
        let flags = ClientFlags(be32(bytes, 0));
        let known = ClientFlags::FIXED_NEWSTYLE.with(ClientFlags::NO_ZEROES);
        if !known.has(flags) {
            return Err(Invalid::new("client flags", u64::from(flags.0)));
        }
        Ok(Some(flags))
    }
}
