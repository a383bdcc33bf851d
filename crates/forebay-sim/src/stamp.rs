//! The bytes of a simulated client: every sector names its write and its place.

use forebay_core::geometry::SECTOR;

use crate::rng::mix;

/// Which write a sector's bytes are from: its number, or [`ZEROES`].
pub type Version = u32;

/// All bytes are 0.
pub const ZEROES: Version = 0;
/// The first content of primary storage, when that is not zeroes.
pub const INITIAL: Version = 1;

const SECTOR_BYTES: usize = SECTOR as usize;

/// Fills `bytes`, whole sectors from `sector` on, as write `version` does.
pub fn write(bytes: &mut [u8], sector: u64, version: Version) {
    for (place, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).zip(sector..) {
        if version == ZEROES {
            place.fill(0);
            continue;
        }
        let base = mix(sector << 32 | u64::from(version));
        for (word, at) in place.as_chunks_mut::<8>().0.iter_mut().zip(0..) {
            *word = word_at(at, base, version).to_le_bytes();
        }
    }
}

/// Whose bytes a sector holds; `None`: nobody's, or torn inside, or of another sector.
pub fn read(bytes: &[u8], sector: u64) -> Option<Version> {
    let first = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
    if first == 0 {
        return (bytes == [0; SECTOR_BYTES]).then_some(ZEROES);
    }
    let version = (first >> 32) as Version;
    let base = mix(sector << 32 | u64::from(version));
    // It compares all words without a branch: most sectors are somebody's.
    let words = bytes.as_chunks::<8>().0.iter().zip(0..);
    let difference = words
        .fold(0, |all, (&word, at)| all | (u64::from_le_bytes(word) ^ word_at(at, base, version)));
    (bytes.len() == SECTOR_BYTES && difference == 0).then_some(version)
}

/// The first byte of a sector's bytes that is not as write `version` leaves it.
pub fn differs(bytes: &[u8], sector: u64, version: Version) -> Option<u64> {
    let mut written = [0; SECTOR_BYTES];
    write(&mut written, sector, version);
    bytes.iter().zip(&written).position(|(a, b)| a != b).map(|at| at as u64)
}

/// Word `at` of the 64 of a sector; the first names the version in its upper half.
fn word_at(at: u64, base: u64, version: Version) -> u64 {
    match at {
        0 => u64::from(version) << 32 | base >> 32,
        _ => base.wrapping_add(at << 56 | at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_its_version_and_only_in_its_place() {
        let mut bytes = vec![0; 3 * SECTOR_BYTES];
        write(&mut bytes, 7, 42);
        assert_eq!(read(&bytes[SECTOR_BYTES..2 * SECTOR_BYTES], 8), Some(42));
        assert_eq!(read(&bytes[SECTOR_BYTES..2 * SECTOR_BYTES], 9), None);
        bytes[700] ^= 1;
        assert_eq!(read(&bytes[SECTOR_BYTES..2 * SECTOR_BYTES], 8), None);
        write(&mut bytes, 7, ZEROES);
        assert_eq!(read(&bytes[..SECTOR_BYTES], 7), Some(ZEROES));
    }

    #[test]
    fn one_byte_that_differs_makes_a_sector_nobodys() {
        for version in [ZEROES, 42] {
            let mut bytes = [0; SECTOR_BYTES];
            write(&mut bytes, 7, version);
            for at in 0..SECTOR_BYTES {
                bytes[at] ^= 0x80;
                assert_eq!(read(&bytes, 7), None, "byte {at} of version {version}");
                bytes[at] ^= 0x80;
            }
            assert_eq!(read(&bytes, 7), Some(version));
        }
    }
}
