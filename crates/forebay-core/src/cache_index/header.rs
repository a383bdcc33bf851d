//! The page before the ring: what it describes, and the nonce of its pages.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBRINGHD` |
//! | 8 | 4 | CRC32C |
//! | 12 | 2 | version, 1 |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | generation of the disk that made it |
//! | 40 | 8 | nonce: random, of this ring |
//! | 48 | 8 | size of the disk |
//! | 56 | 4 | cache block in bytes |
//! | 60 | 4 | slots |
//! | 64 | 4 | pages of the ring |
//!
//! It is written once, durably, before the first page, and before anything is written to primary storage that an
//! older ring in its place does not know of.

use crate::ids::{Generation, Uuid};
use crate::sealed::{Page, bytes_at, has_seal, seal, u32_at, u64_at};

const MAGIC: &[u8; 8] = b"FBRINGHD";
/// The version of everything here.
pub const VERSION: u16 = 1;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingHeader {
    /// The disk.
    pub disk: Uuid,
    /// The run of the disk that made the ring.
    pub generation: Generation,
    /// In each of its pages.
    pub nonce: u64,
    /// Bytes of the disk.
    pub disk_size: u64,
    /// Bytes of a cache block.
    pub block_size: u32,
    /// Slots of the cache.
    pub slots: u32,
    /// Pages of the ring, this one not counted.
    pub pages: u32,
}

impl RingHeader {
    /// Fills `page`.
    pub fn encode(&self, page: &mut Page) {
        page.fill(0);
        page[..8].copy_from_slice(MAGIC);
        page[12..14].copy_from_slice(&VERSION.to_le_bytes());
        page[16..32].copy_from_slice(&self.disk.0);
        page[32..40].copy_from_slice(&self.generation.0.to_le_bytes());
        page[40..48].copy_from_slice(&self.nonce.to_le_bytes());
        page[48..56].copy_from_slice(&self.disk_size.to_le_bytes());
        page[56..60].copy_from_slice(&self.block_size.to_le_bytes());
        page[60..64].copy_from_slice(&self.slots.to_le_bytes());
        page[64..68].copy_from_slice(&self.pages.to_le_bytes());
        seal(page);
    }

    /// The header in `page`; `None` when there is none, or one of another version.
    pub fn decode(page: &Page) -> Option<RingHeader> {
        let (u32_at, u64_at) = (|at| u32_at(page, at), |at| u64_at(page, at));
        let known = has_seal(page, MAGIC) && page[12..14] == VERSION.to_le_bytes();
        known.then(|| RingHeader {
            disk: Uuid(bytes_at(page, 16)),
            generation: Generation(u64_at(32)),
            nonce: u64_at(40),
            disk_size: u64_at(48),
            block_size: u32_at(56),
            slots: u32_at(60),
            pages: u32_at(64),
        })
    }
}
