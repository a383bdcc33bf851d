//! Percent-encoding (RFC 3986 §2.1) of paths and export names.

use std::fmt;

/// Decodes `%XX`; other bytes stand for themselves. `None` when a `%` is not followed by two hex
/// digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        decoded.push((high << 4 | low) as u8);
    }
    Some(decoded)
}

/// Prints bytes so that [`decode`] gives them back and no delimiter of a URI is among them.
pub(super) fn encode(bytes: &[u8]) -> impl fmt::Display {
    fmt::from_fn(move |f| {
        for &byte in bytes {
            match byte {
                b'a'..=b'z'
                | b'A'..=b'Z'
                | b'0'..=b'9'
                | b'/'
                | b'-'
                | b'_'
                | b'.'
                | b'~'
                | b':'
                | b','
                | b'+'
                | b'@' => write!(f, "{}", char::from(byte))?,
                _ => write!(f, "%{byte:02X}")?,
            }
        }
        Ok(())
    })
}
