//! Reads big-endian fields off the front of a slice, never past its end.

use crate::{Invalid, STRING_MAX};

/// The rest of a body, to be decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], Invalid> {
        let too_short = Invalid::new(what, self.rest.len() as u64);
        let (head, tail) = self.rest.split_at_checked(len).ok_or(too_short)?;
        self.rest = tail;
        Ok(head)
    }

    pub(crate) fn u16(&mut self, what: &'static str) -> Result<u16, Invalid> {
        self.bytes(what, 2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, Invalid> {
        self.bytes(what, 4).map(|b| be32(b, 0))
    }

    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, Invalid> {
        self.bytes(what, 8).map(|b| be64(b, 0))
    }

    /// A string with its length as 32 bits before it.
    pub(crate) fn string32(&mut self, what: &'static str) -> Result<&'a str, Invalid> {
        let len = self.u32(what)?;
        self.string(what, len as usize)
    }

    /// A string of `len` bytes.
    pub(crate) fn string(&mut self, what: &'static str, len: usize) -> Result<&'a str, Invalid> {
        if len > STRING_MAX {
            return Err(Invalid::new(what, len as u64));
        }
        text(what, self.bytes(what, len)?)
    }

    /// Nothing may follow.
    pub(crate) fn end(self, what: &'static str) -> Result<(), Invalid> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(Invalid::new(what, extra as u64)),
        }
    }
}

/// `bytes` as a string.
pub(crate) fn text<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, Invalid> {
    std::str::from_utf8(bytes).map_err(|e| Invalid::new(what, e.valid_up_to() as u64))
}

/// The 16 bits at `at`; the caller knows that they are there.
#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(part(bytes, at))
}

/// The 32 bits at `at`; the caller knows that they are there.
#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(part(bytes, at))
}

/// The 64 bits at `at`; the caller knows that they are there.
#[inline]
pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(part(bytes, at))
}

#[inline]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("they are there")
}

/// Checks the magic at the start of `bytes`, as far as it has arrived. So a peer that speaks
/// something else is noticed before a whole header is there.
pub(crate) fn expect_magic(what: &'static str, magic: &[u8], bytes: &[u8]) -> Result<(), Invalid> {
    let seen = magic.len().min(bytes.len());
    if bytes[..seen] == magic[..seen] {
        return Ok(());
    }
    let found = bytes[..seen].iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    Err(Invalid::new(what, found))
}

/// Appends a string with its length as 32 bits before it.
pub(crate) fn push_string32(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
