//! The bytes that replayed writes carry: each sector says what it is.
//!
//! | offset | length | field |
//! |---:|---:|---|
//! | 0 | 8 | tag: the seed of the replay, mixed |
//! | 8 | 8 | the sector's byte address on the target |
//! | 16 | 8 | the version: the number of the write, from 1 |
//! | 24 | 488 | what follows from these three, and does not compress |
//!
//! So a sector that comes back tells which write it is of, for which place, and whether it is whole. Little-endian.

use forebay_core::geometry::SECTOR;
use forebay_core::splitmix::Rng;

/// Bytes of a sector.
const LEN: usize = SECTOR as usize;

/// What a sector is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sector {
    /// Whole, and of this replay.
    Whole {
        /// Where it was written to.
        address: u64,
        /// By which write.
        version: u64,
    },
    /// It begins as one of this replay, and goes on as something else.
    Torn {
        /// Where it was written to.
        address: u64,
        /// By which write, at its beginning.
        version: u64,
    },
    /// Not of this replay.
    Foreign,
}

/// Appends `len` bytes (whole sectors) of the write `version` at the disk position `offset` to `out`, which is cleared.
pub(super) fn fill(seed: u64, version: u64, offset: u64, len: u64, out: &mut Vec<u8>) {
    out.clear();
    for address in (offset..offset + len).step_by(LEN) {
        words(mix(seed), address, version)
            .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
    }
}

/// Looks at one sector.
pub(super) fn look(seed: u64, sector: &[u8]) -> Sector {
    let mut found = sector
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")));
    let mut next = || found.next().expect("a sector has three words");
    let (tag, address, version) = (next(), next(), next());
    if tag != mix(seed) {
        return Sector::Foreign;
    }
    match words(tag, address, version).skip(3).eq(found) {
        true => Sector::Whole { address, version },
        false => Sector::Torn { address, version },
    }
}

/// The words of a sector.
fn words(tag: u64, address: u64, version: u64) -> impl Iterator<Item = u64> {
    let mut random = Rng::new(tag ^ mix(version) ^ mix(address).rotate_left(32));
    let body = std::iter::repeat_with(move || random.next_u64());
    [tag, address, version].into_iter().chain(body).take(LEN / 8)
}

/// A word that has nothing to do with its neighbours'.
fn mix(word: u64) -> u64 {
    Rng::new(word).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(seed: u64, version: u64, offset: u64) -> Vec<u8> {
        let mut out = vec![7];
        fill(seed, version, offset, 1024, &mut out);
        assert_eq!(out.len(), 1024);
        out
    }

    #[test]
    fn the_same_write_carries_the_same_bytes_and_another_one_others() {
        assert_eq!(bytes(1, 2, 512), bytes(1, 2, 512));
        for other in [bytes(2, 2, 512), bytes(1, 3, 512), bytes(1, 2, 1536)] {
            let same = other.iter().zip(bytes(1, 2, 512)).filter(|(a, b)| **a == *b).count();
            assert!(same < 64, "{same} of 1024 bytes are the same");
        }
        assert_eq!(bytes(1, 2, 512)[512..], bytes(1, 2, 1024)[..512]);
    }

    #[test]
    fn a_sector_tells_what_it_is_and_whether_it_is_whole() {
        let written = bytes(1, 2, 1536);
        assert_eq!(look(1, &written[512..]), Sector::Whole { address: 2048, version: 2 });
        assert_eq!(look(3, &written[512..]), Sector::Foreign);
        assert_eq!(look(1, &[0; 512]), Sector::Foreign);
        for at in [24, 100, 511] {
            let mut torn = written[..512].to_vec();
            torn[at] ^= 1;
            assert_eq!(look(1, &torn), Sector::Torn { address: 1536, version: 2 });
        }
        // The first half of another write.
        let torn = [&bytes(1, 7, 1536)[..256], &written[256..512]].concat();
        assert_eq!(look(1, &torn), Sector::Torn { address: 1536, version: 7 });
    }
}
