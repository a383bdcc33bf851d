//! Percent-encoding (RFC 3986 §2.1) of paths and export names.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// All that is written as `%XX`: what is no letter, no digit, and may be a delimiter of a URI.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':')
    .remove(b',')
    .remove(b'+')
    .remove(b'@');

/// Decodes `%XX`; other bytes stand for themselves. `None` when a `%` is not followed by two hex
/// digits.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let is_encoded = |rest: &str| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    // The library takes such a `%` for itself.
    text.split('%').skip(1).all(is_encoded).then(|| percent_decode_str(text).collect())
}

/// Prints bytes so that [`decode`] gives them back and no delimiter of a URI is among them.
pub(super) fn encode(bytes: &[u8]) -> impl fmt::Display {
    percent_encode(bytes, ENCODED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded_and_half_an_encoding_is_refused() {
        assert_eq!(
            encode(b"/a b?c=%\xff&d~e:f,g+h@i").to_string(),
            "/a%20b%3Fc%3D%25%FF%26d~e:f,g+h@i"
        );
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all).to_string()).as_ref(), Some(&all));
        assert_eq!(decode("%4a%4A"), Some(b"JJ".to_vec()));
        for refused in ["%", "%4", "a%4", "%%41", "%4%31", "%4g", "%-1", "%é"] {
            assert_eq!(decode(refused), None, "{refused}");
        }
    }
}
