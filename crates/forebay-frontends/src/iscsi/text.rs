//! Keys and values as login and text PDUs carry them: `Key=value`, each ended by a zero byte
//! (RFC 7143, section 6).
//!
//! An initiator's text is bounded before it is looked at: [`TEXT_MAX`] bytes over all PDUs of one
//! exchange, [`KEYS_MAX`] keys, names and values as long as the RFC allows.

/// Bytes of keys in one exchange.
pub const TEXT_MAX: usize = 64 << 10;
/// Keys in one exchange.
pub const KEYS_MAX: usize = 128;
/// Bytes of a key's name (6.1).
const NAME_MAX: usize = 63;
/// Bytes of a value; CHAP's longest binary is 1024 bytes, in hexadecimal.
const VALUE_MAX: usize = 8192;

/// A text that is no list of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadText {
    /// It is too long.
    #[error("more than {TEXT_MAX} bytes of keys")]
    TooLong,
    /// It has too many keys.
    #[error("more than {KEYS_MAX} keys")]
    TooMany,
    /// A key comes again.
    #[error("a key that was said twice")]
    Twice,
    /// A name or a value is not what the protocol allows.
    #[error("a key or a value that the protocol does not allow")]
    Malformed,
}

/// The keys of a whole text, in order.
///
/// # Errors
/// [`BadText`].
pub fn keys(text: &[u8]) -> Result<Vec<(&str, &str)>, BadText> {
    let mut keys = Vec::new();
    for piece in text.split(|byte| *byte == 0).filter(|piece| !piece.is_empty()) {
        let piece = std::str::from_utf8(piece).map_err(|_| BadText::Malformed)?;
        let (name, value) = piece.split_once('=').ok_or(BadText::Malformed)?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(&byte);
        let fits = (1..=NAME_MAX).contains(&name.len()) && value.len() <= VALUE_MAX;
        if !fits || !name.bytes().all(is_name) {
            return Err(BadText::Malformed);
        }
        // Planted: the number of keys is not bounded.
        if keys.len() == KEYS_MAX && !cfg!(feature = "planted-bugs") {
            return Err(BadText::TooMany);
        }
        keys.push((name, value));
    }
    Ok(keys)
}

/// Appends a key.
pub fn put(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(0);
}

/// A number, decimal or hexadecimal.
pub fn number(value: &str) -> Option<u32> {
    match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u32::from_str_radix(hex, 16).ok()
        }
        None if value.bytes().all(|b| b.is_ascii_digit()) => value.parse().ok(),
        _ => None,
    }
}

/// Bytes, in hexadecimal (`0x…`) or base 64 (`0b…`).
pub fn binary(value: &str) -> Option<Vec<u8>> {
    let digits = value.get(2..)?.as_bytes();
    match value.get(..2)? {
        "0x" | "0X" => from_hex(digits),
        "0b" | "0B" => from_base64(digits),
        _ => None,
    }
}

/// Bytes as `0x…`.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(2 + 2 * bytes.len());
    text.push_str("0x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| char::from(digit).to_digit(16).map(|value| value as u8);
    // An odd number of digits lacks the leading zero.
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let first = first.iter().map(|digit| value(*digit));
    let pairs = pairs.chunks(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?));
    first.chain(pairs).collect()
}

fn from_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let end = digits.iter().rposition(|digit| *digit != b'=').map_or(0, |last| last + 1);
    let is_whole = digits.len().is_multiple_of(4) && digits.len() - end <= 2;
    let mut bytes = Vec::with_capacity(end * 3 / 4);
    let (mut bits, mut count) = (0u32, 0);
    for digit in &digits[..end] {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    is_whole.then_some(bytes)
}

/// A text that arrives in several PDUs.
#[derive(Debug, Default)]
pub struct Assembly(Vec<u8>);

impl Assembly {
    /// Takes a piece. `Some` with the whole when it is the last.
    ///
    /// # Errors
    /// The whole is too long.
    pub fn add(&mut self, piece: &[u8], goes_on: bool) -> Result<Option<Vec<u8>>, BadText> {
        if self.0.len() + piece.len() > TEXT_MAX {
            return Err(BadText::TooLong);
        }
        self.0.extend_from_slice(piece);
        Ok((!goes_on).then(|| std::mem::take(&mut self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_lists_of_keys() {
        let check = |text: &str, expect: Result<&[(&str, &str)], BadText>| {
            assert_eq!(keys(text.as_bytes()), expect.map(<[_]>::to_vec), "{text:?}");
        };
        check("", Ok(&[]));
        check("A=1\0B=\0", Ok(&[("A", "1"), ("B", "")]));
        check("A=1=2", Ok(&[("A", "1=2")]));
        check("\0\0A=1\0\0\0", Ok(&[("A", "1")]));
        check("A\0", Err(BadText::Malformed));
        check("=1\0", Err(BadText::Malformed));
        check("A B=1\0", Err(BadText::Malformed));
        check(&format!("{}=1\0", "k".repeat(64)), Err(BadText::Malformed));
        check(&format!("k={}\0", "v".repeat(8193)), Err(BadText::Malformed));
        assert_eq!(keys(b"A=\xff\xfe\0"), Err(BadText::Malformed));
        #[cfg(not(feature = "planted-bugs"))]
        check(&"A=1\0".repeat(129), Err(BadText::TooMany));
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        let check = |text: &str, expect| assert_eq!(number(text), expect, "{text}");
        check("0", Some(0));
        check("262144", Some(262_144));
        check("0x10", Some(16));
        check("4294967296", None);
        check("-1", None);
        check("+1", None);
        check("", None);
        check("0x", None);
        check("1 ", None);
    }

    #[test]
    fn binaries_are_hexadecimal_or_base_64() {
        let check = |text: &str, expect: Option<&[u8]>| {
            assert_eq!(binary(text).as_deref(), expect, "{text}");
        };
        check("0x00ff", Some(&[0, 255]));
        check("0xfff", Some(&[15, 255]));
        check("0x", Some(&[]));
        check("0xg0", None);
        check("0bAAEC", Some(&[0, 1, 2]));
        check("0bAAE=", Some(&[0, 1]));
        check("0bAA==", Some(&[0]));
        check("0bA===", None);
        check("0bAAE", None);
        check("00ff", None);
        check("ö", None);
        assert_eq!(binary(&hex(&[1, 0xab])), Some(vec![1, 0xab]));
    }

    #[test]
    fn a_text_in_pieces_is_bounded_as_a_whole() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.add(b"A=", true), Ok(None));
        assert_eq!(assembly.add(b"1\0", false), Ok(Some(b"A=1\0".to_vec())));
        assert_eq!(assembly.add(&[b'a'; TEXT_MAX], true), Ok(None));
        assert_eq!(assembly.add(b"a", true), Err(BadText::TooLong));
    }
}
