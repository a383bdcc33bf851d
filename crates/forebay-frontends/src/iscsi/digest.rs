//! CRC32C over headers and data (RFC 7143, section 13.1), least significant byte first on the wire.

use crc_fast::CrcAlgorithm;
pub use forebay_core::sealed::crc32c as sum;

/// The sum of `len` bytes with the sum `second` after bytes with the sum `first`.
pub fn join(first: u32, second: u32, len: u64) -> u32 {
    let joined = crc_fast::checksum_combine(
        CrcAlgorithm::Crc32Iscsi,
        u64::from(first),
        u64::from(second),
        len,
    );
    joined as u32
}

/// True when `digest` begins with the digest of `bytes`.
pub fn is_right(bytes: &[u8], digest: &[u8]) -> bool {
    digest.first_chunk() == Some(&sum(bytes).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7143, appendix A.4 (RFC 3720, B.4).
    #[test]
    fn sums_are_those_of_the_protocol() {
        let check = |bytes: [u8; 32], expect: [u8; 4]| {
            assert!(is_right(&bytes, &expect), "{:x?}", sum(&bytes).to_le_bytes());
        };
        check([0; 32], [0xaa, 0x36, 0x91, 0x8a]);
        check([0xff; 32], [0x43, 0xab, 0xa8, 0x62]);
        check(std::array::from_fn(|at| at as u8), [0x4e, 0x79, 0xdd, 0x46]);
        check(std::array::from_fn(|at| 31 - at as u8), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn sums_are_joined() {
        let bytes: Vec<u8> = (0..1000).map(|at| (at * 7) as u8).collect();
        for cut in [0, 1, 512, 999, 1000] {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(join(sum(first), sum(second), second.len() as u64), sum(&bytes));
        }
    }
}
