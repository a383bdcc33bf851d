//! Memory for I/O: one large, page-aligned, pre-faulted area per disk.

use std::io;

/// Flat memory that lives outside of Rust's aliasing rules: the kernel may write to it while an I/O
/// is in flight, so it is only reached through copies, never through references.
#[derive(Debug)]
pub struct Arena {}

/// A piece of a registered arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The arena, as the reactor knows it.
    pub arena: super::reactor::ArenaId,
    /// Bytes from its start.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
}

impl Arena {
    /// Maps `len` bytes (rounded up to whole pages), on huge pages where there are any, and touches
    /// them all, so that no I/O pays for a first touch. The memory reads as zeroes.
    ///
    /// # Errors
    /// The kernel's, when it does not give the memory.
    pub fn new(len: usize) -> io::Result<Arena> {
        let _ = len;
        todo!()
    }
    /// Length in bytes.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// Bytes of it that are on huge pages, as far as the kernel tells.
    pub fn huge_bytes(&self) -> usize {
        todo!()
    }
    /// Copies `bytes` to `offset`. Panics when out of bounds (as all of these do).
    pub fn write_at(&self, offset: u64, bytes: &[u8]) {
        let _ = (offset, bytes);
        todo!()
    }
    /// Copies from `offset` into `bytes`.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) {
        let _ = (offset, bytes);
        todo!()
    }
    /// Copies `len` bytes within the arena; the two pieces do not overlap.
    pub fn copy_within(&self, from: u64, to: u64, len: u32) {
        let _ = (from, to, len);
        todo!()
    }
    /// Fills a piece with zeroes.
    pub fn zero(&self, offset: u64, len: u32) {
        let _ = (offset, len);
        todo!()
    }
    /// CRC32C (Castagnoli) of a piece.
    pub fn crc32c(&self, offset: u64, len: u32) -> u32 {
        let _ = (offset, len);
        todo!()
    }
    /// Appends a piece to `out`.
    pub fn append_to(&self, offset: u64, len: u32, out: &mut Vec<u8>) {
        let _ = (offset, len, out);
        todo!()
    }
}
