//! A page of metadata on flash: 4096 bytes that begin with a magic and a checksum of the whole page.
//!
//! ```text
//!    0   8  magic, different for each kind of page
//!    8   4  CRC32C of all 4096 bytes, taken with these four as zeroes
//!   12  …   the kind's own fields, integers little-endian, unused bytes zero
//! ```
//! A page that was torn, rotted or never written fails [`has_seal`], so that decoders look at fields of
//! valid pages only.

use crc_fast::{CrcAlgorithm, Digest};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One page.
pub type Page = [u8; PAGE_LEN];

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;

/// Where the magic ends and the checksum lies.
pub(crate) const CHECKSUM: std::ops::Range<usize> = 8..12;

/// CRC32C of `bytes`, as it stands in every structure on flash.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Puts the checksum of `page` into its place.
pub fn seal(page: &mut Page) {
    let checksum = checksum(page);
    page[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
}

/// True when `page` carries `magic` and its checksum is right.
pub fn has_seal(page: &Page, magic: &[u8; 8]) -> bool {
    page[..8] == magic[..] && page[CHECKSUM] == checksum(page).to_le_bytes()
}

/// True for what nobody has written: zeroes, or the ones that some flash has where it was erased.
pub fn is_erased(page: &Page) -> bool {
    let first = page[0];
    (first == 0 || first == 0xff) && page.iter().all(|byte| *byte == first)
}

/// The record that `bytes` begin with, and what is behind it.
///
/// # Panics
/// The record is longer than `bytes`. Those of this crate are shorter than a page.
pub(crate) fn record<T>(bytes: &[u8]) -> (&T, &[u8])
where
    T: FromBytes + KnownLayout + Immutable + Unaligned,
{
    T::ref_from_prefix(bytes).expect("a record is shorter than a page")
}

/// Lets `bytes` begin with `record`.
///
/// # Panics
/// As [`record`].
pub(crate) fn put_record(bytes: &mut [u8], record: &(impl IntoBytes + Immutable)) {
    record.write_to_prefix(bytes).expect("a record is shorter than a page");
}

/// The `N` bytes at `at`.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut found = [0; N];
    found.copy_from_slice(&bytes[at..at + N]);
    found
}

/// The little-endian integer at `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(bytes, at))
}

/// The same of eight bytes.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(bytes, at))
}

/// CRC32C of a structure that carries it at [`CHECKSUM`]; those bytes count as zeroes.
pub(crate) fn checksum(structure: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&structure[..CHECKSUM.start]);
    digest.update(&[0; 4]);
    digest.update(&structure[CHECKSUM.end..]);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_breaks_the_seal() {
        let mut page: Page = std::array::from_fn(|i| (i * 7) as u8);
        page[..8].copy_from_slice(b"SOMETHIN");
        seal(&mut page);
        assert!(has_seal(&page, b"SOMETHIN"));
        for bit in 0..PAGE_LEN * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert!(!has_seal(&page, b"SOMETHIN"), "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn the_checksum_is_crc32c() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
