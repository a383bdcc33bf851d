//! Sampled ranges of primary storage: which, and a hash over what they hold.
//!
//! The first and the last MiB, where partition tables, superblocks and their copies are, and
//! `RANDOM` pages. Those follow from the disk's UUID and the session's generation, so that each
//! session looks at other ones. The hash is eight CRC32C, piece *n* in number *n* mod 8: it tells
//! that something differs, not that somebody who wants to deceive did not.

use crc_fast::{CrcAlgorithm, Digest};

use crate::geometry::{ByteRange, PAGE};
use crate::ids::{Generation, Uuid};
use crate::sealed::u64_at;
use crate::splitmix::Rng;

/// Bytes at each end that are looked at.
const END: u64 = 1 << 20;
/// Largest piece, which is one read.
pub const PIECE_MAX: u64 = 64 << 10;
/// Pages in between.
const RANDOM: u64 = 32;

/// The pieces, in the order in which they are hashed; they may overlap.
pub fn pieces(disk: Uuid, generation: Generation, size: u64) -> Vec<ByteRange> {
    let mut pieces = Vec::new();
    let mut cut = |mut start: u64, end: u64| {
        while start < end {
            let next = (start + PIECE_MAX).min(end);
            pieces.push(ByteRange::new(start, next));
            start = next;
        }
    };
    cut(0, END.min(size));
    cut(size.saturating_sub(END).max(END.min(size)), size);
    let (low, high) = (u64_at(&disk.0, 0), u64_at(&disk.0, 8));
    let mut rng = Rng::new(low ^ high.rotate_left(32) ^ generation.0);
    let pages = size / PAGE;
    for _ in 0..RANDOM.min(pages) {
        let page = rng.next_u64() % pages;
        pieces.push(ByteRange::at(page * PAGE, PAGE));
    }
    pieces
}

/// Hashes pieces in their order.
#[derive(Debug)]
pub struct Sampler {
    lanes: [Digest; 8],
    pieces: usize,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { lanes: std::array::from_fn(|_| Digest::new(CrcAlgorithm::Crc32Iscsi)), pieces: 0 }
    }
}

impl Sampler {
    /// Takes the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        self.lanes[self.pieces % 8].update(bytes);
        self.pieces += 1;
    }

    /// The hash.
    pub fn hash(self) -> [u8; 32] {
        let mut hash = [0; 32];
        for (out, lane) in hash.chunks_exact_mut(4).zip(&self.lanes) {
            out.copy_from_slice(&(lane.finalize() as u32).to_le_bytes());
        }
        hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: Uuid = Uuid(*b"0123456789abcdef");

    fn hash(bytes: &[u8]) -> [u8; 32] {
        let mut sampler = Sampler::default();
        for piece in pieces(DISK, Generation(1), bytes.len() as u64) {
            sampler.add(&bytes[piece.start as usize..piece.end as usize]);
        }
        sampler.hash()
    }

    #[test]
    fn pieces_lie_on_the_disk_and_cover_both_ends() {
        for size in [512, 4096, 4608, END - 512, END, END + 512, 3 * END, 1 << 40] {
            let pieces = pieces(DISK, Generation(3), size);
            assert!(pieces.iter().all(|p| p.start < p.end && p.end <= size), "{size}");
            assert!(pieces.iter().all(|p| p.len() <= PIECE_MAX));
            assert!(pieces.iter().any(|p| p.start == 0) && pieces.iter().any(|p| p.end == size));
            assert!(pieces.len() <= 64 + 2);
        }
    }

    #[test]
    fn sessions_and_disks_look_at_different_pages() {
        let of = |disk, generation| pieces(disk, Generation(generation), 1 << 40);
        assert_eq!(of(DISK, 1), of(DISK, 1));
        assert_ne!(of(DISK, 1), of(DISK, 2));
        assert_ne!(of(DISK, 1), of(Uuid([7; 16]), 1));
    }

    #[test]
    fn a_changed_bit_in_a_piece_changes_the_hash() {
        let mut bytes = vec![0; 5 << 20];
        let before = hash(&bytes);
        for piece in pieces(DISK, Generation(1), bytes.len() as u64) {
            bytes[piece.start as usize + 9] ^= 4;
            assert_ne!(hash(&bytes), before, "{piece:?}");
            bytes[piece.start as usize + 9] ^= 4;
        }
        assert_eq!(hash(&bytes), before);
    }
}
