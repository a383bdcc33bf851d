//! The bytes that replayed writes carry: they depend on the seed, the request's number and the
//! address only, differ from sector to sector, and do not compress.

/// Unit in which the bytes differ.
const SECTOR: u64 = 512;

/// Appends `len` bytes (a multiple of 512) for the disk position `offset` to `out`.
pub(super) fn fill(seed: u64, request: u64, offset: u64, len: u64, out: &mut Vec<u8>) {
    out.clear();
    for sector in 0..len / SECTOR {
        let mut state = mix(seed ^ mix(request) ^ mix(offset + sector * SECTOR).rotate_left(32));
        for _ in 0..SECTOR / 8 {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            out.extend_from_slice(&mix(state).to_le_bytes());
        }
    }
}

/// The finishing step of SplitMix64.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::fill;

    fn bytes(seed: u64, request: u64, offset: u64) -> Vec<u8> {
        let mut out = vec![7];
        fill(seed, request, offset, 1024, &mut out);
        assert_eq!(out.len(), 1024);
        out
    }

    #[test]
    fn the_same_write_carries_the_same_bytes_and_another_one_others() {
        assert_eq!(bytes(1, 2, 512), bytes(1, 2, 512));
        for other in [bytes(2, 2, 512), bytes(1, 3, 512), bytes(1, 2, 1536)] {
            assert_ne!(bytes(1, 2, 512), other);
        }
        assert_eq!(bytes(1, 2, 512)[512..], bytes(1, 2, 1024)[..512]);
    }
}
