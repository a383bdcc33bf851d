//! A hostile sidecar: what is taken for one is, byte for byte, what would be written.

use crate::flash_pool::disk::NAME_MAX;
use crate::flash_pool::sidecar::{HOST_MAX, Sidecar};
use crate::sealed::crc32c;

/// A file beside an image; where its first byte is odd, the rest is the text to which a checksum that is right is added.
pub fn sidecar(data: &[u8]) {
    let Some((kind, text)) = data.split_first() else { return };
    let mut bytes = text.to_vec();
    if kind & 1 == 1 {
        bytes.extend_from_slice(format!("crc32c {:08x}\n", crc32c(text)).as_bytes());
    }
    let Ok(sidecar) = Sidecar::decode(&bytes) else { return };
    for shown in [&sidecar.host, &sidecar.name] {
        assert!(!shown.chars().any(char::is_control), "it would write to somebody's terminal");
    }
    assert!(sidecar.host.len() <= HOST_MAX && sidecar.name.len() <= NAME_MAX);
    assert_eq!(sidecar.encode(), bytes, "two files say the same");
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "Forebay sidecar 1\ndisk d1d1d1d1-d1d1-d1d1-d1d1-d1d1d1d1d1d1\n\
        pool b0b0b0b0-b0b0-b0b0-b0b0-b0b0b0b0b0b0\ngeneration 7\nstate dirty\ndate 1700000000\n\
        host esx7.example\nname db 1\n";

    fn sealed(body: &[u8]) -> Vec<u8> {
        [b"\x01", body].concat()
    }

    #[cfg(not(feature = "planted-bugs"))]
    proptest::proptest! {
        #[test]
        fn a_hostile_sidecar_is_taken_as_it_would_be_written_or_not_at_all(
            changes in proptest::collection::vec((0..BODY.len(), 0..3_u8, 0..128_u8), 0..6),
        ) {
            let mut body = BODY.as_bytes().to_vec();
            for (at, kind, byte) in changes {
                let at = at % body.len();
                match kind {
                    0 => body[at] = byte,
                    1 => body.insert(at, byte),
                    _ => drop(body.remove(at)),
                }
            }
            sidecar(&sealed(&body));
        }
    }

    /// Another way to write a number.
    fn odd() -> Vec<u8> {
        sealed(BODY.replace("generation 7", "generation 07").as_bytes())
    }

    #[cfg(not(feature = "planted-bugs"))]
    #[test]
    fn what_is_not_written_as_we_write_it_is_refused() {
        sidecar(&sealed(BODY.as_bytes()));
        sidecar(&odd());
        sidecar(&sealed(BODY.replace("db 1", "db\u{1b}[2J").as_bytes()));
        sidecar(&sealed(BODY.replace("name db 1\n", "name db 1\r\n").as_bytes()));
    }

    #[cfg(feature = "planted-bugs")]
    #[test]
    #[should_panic(expected = "two files say the same")]
    fn the_planted_bug_is_found() {
        sidecar(&odd());
    }
}
