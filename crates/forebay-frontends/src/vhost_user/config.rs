//! The configuration space: 60 bytes that a guest reads, and one that it may write.
//!
//! | at | bytes | field | value |
//! |---|---|---|---|
//! | 0 | 8 | capacity | size of the disk in sectors of 512 bytes |
//! | 12 | 4 | seg_max | [`SEGMENTS_MAX`] |
//! | 20 | 4 | blk_size | 512 |
//! | 24 | 1 | physical_block_exp | 3: pages of 4 KiB |
//! | 26 | 2 | min_io_size | one page, in blocks |
//! | 28 | 4 | opt_io_size | the cache block, in blocks |
//! | 32 | 1 | wce | 1: a write cache that is to be flushed; the guest may write 0 or 1 |
//! | 34 | 2 | num_queues | |
//! | 36 | 4 | max_discard_sectors | 1 GiB |
//! | 40 | 4 | max_discard_seg | 1 |
//! | 44 | 4 | discard_sector_alignment | one page |
//! | 48 | 4 | max_write_zeroes_sectors | 1 GiB |
//! | 52 | 4 | max_write_zeroes_seg | 1 |
//! | 56 | 1 | write_zeroes_may_unmap | 1 |
//!
//! The rest is zero: no limit for the size of a segment, no geometry. Source: virtio 1.2, section 5.2.4.

use super::export::Export;
use super::request::SPACE_SECTORS_MAX;

/// Bytes of the space.
pub const BYTES: usize = 60;
/// Where the switch of the write cache is.
pub const WRITE_CACHE_AT: usize = 32;
/// Pieces of data that a request may have: what a ring of 128 takes without indirect descriptors.
pub const SEGMENTS_MAX: u32 = 126;

/// A page in sectors, and that as a power of two.
const PAGE_SECTORS: u32 = 8;
const PAGE_EXPONENT: u8 = 3;

/// The space of `export` while its write cache is on or off.
pub fn space(export: &Export, write_cache: bool) -> [u8; BYTES] {
    let mut space = [0; BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &export.sectors().to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &512_u32.to_le_bytes());
    put(24, &[PAGE_EXPONENT]);
    put(26, &(PAGE_SECTORS as u16).to_le_bytes());
    put(28, &(export.preferred_block / 512).max(PAGE_SECTORS).to_le_bytes());
    put(WRITE_CACHE_AT, &[u8::from(write_cache)]);
    put(34, &export.queues.to_le_bytes());
    if !export.read_only {
        for at in [36, 48] {
            put(at, &SPACE_SECTORS_MAX.to_le_bytes());
            put(at + 4, &1_u32.to_le_bytes());
        }
        put(44, &PAGE_SECTORS.to_le_bytes());
        put(56, &[1]);
    }
    space
}

/// Where a hypervisor reads that asks for `offset`. Cloud Hypervisor before 2026 counts from 0x100 before the space.
pub fn place(offset: u32) -> usize {
    offset.checked_sub(0x100).unwrap_or(offset) as usize
}

/// `len` bytes from `offset` on; beyond the end of the space are zeroes.
pub fn read(space: &[u8; BYTES], offset: usize, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = space.iter().skip(offset).take(len).copied().collect();
    bytes.resize(len, 0);
    bytes
}

/// The write cache after a write of `bytes` at `offset`; `None` when anything else would change.
pub fn written(space: &[u8; BYTES], offset: usize, bytes: &[u8]) -> Option<bool> {
    let mut write_cache = space[WRITE_CACHE_AT] != 0;
    for (index, &byte) in bytes.iter().enumerate() {
        let at = offset.checked_add(index)?;
        match space.get(at) {
            _ if at == WRITE_CACHE_AT && byte <= 1 => write_cache = byte == 1,
            Some(&now) if now == byte => {}
            _ => return None,
        }
    }
    Some(write_cache)
}

#[cfg(test)]
mod tests {
    use super::super::export::example;
    use super::*;

    fn number(space: &[u8], at: usize, len: usize) -> u64 {
        space[at..at + len].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    #[test]
    fn every_field_is_at_its_place() {
        let space = space(&example(), true);
        let expect = [
            (0, 8, (1 << 30) / 512),
            (8, 4, 0),
            (12, 4, 126),
            (16, 4, 0),
            (20, 4, 512),
            (24, 1, 3),
            (25, 1, 0),
            (26, 2, 8),
            (28, 4, 16),
            (32, 1, 1),
            (34, 2, 2),
            (36, 4, 1 << 21),
            (40, 4, 1),
            (44, 4, 8),
            (48, 4, 1 << 21),
            (52, 4, 1),
            (56, 1, 1),
            (57, 3, 0),
        ];
        for (at, len, value) in expect {
            assert_eq!(number(&space, at, len), value, "at {at}");
        }
    }

    #[test]
    fn cloud_hypervisor_reads_the_space_from_0x100_on() {
        assert_eq!([0, 32, 60, 0x100, 0x120].map(place), [0, 32, 60, 0, 32]);
    }

    #[test]
    fn reads_may_go_beyond_the_end() {
        let space = space(&example(), false);
        assert_eq!(read(&space, 32, 4), [0, 0, 2, 0]);
        assert_eq!(read(&space, 0, 96).len(), 96);
        assert_eq!(read(&space, usize::MAX, 2), [0, 0]);
    }

    #[test]
    fn only_the_write_cache_can_be_written() {
        let space = space(&example(), true);
        assert_eq!(written(&space, 32, &[0]), Some(false));
        assert_eq!(written(&space, 32, &[1]), Some(true));
        assert_eq!(written(&space, 32, &[2]), None);
        assert_eq!(written(&space, 0, &[0]), Some(true), "the byte that is there");
        assert_eq!(written(&space, 0, &[9]), None);
        assert_eq!(written(&space, 60, &[0]), None);
        assert_eq!(written(&space, usize::MAX, &[0, 0]), None);
        // A driver may write the whole space back.
        let mut whole = space;
        whole[WRITE_CACHE_AT] = 0;
        assert_eq!(written(&space, 0, &whole), Some(false));
    }
}
