//! The superblock of a journal: whose it is, how it is cut, and which records are retired.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBJRNLSB` |
//! | 8 | 4 | CRC32C of the page |
//! | 12 | 2 | format, 1 |
//! | 14 | 2 | zero |
//! | 16 | 16 | UUID of the disk |
//! | 32 | 8 | nonce |
//! | 40 | 4 | slots |
//! | 44 | 4 | pages of payload of a slot |
//! | 48 | 8 | version of this page, from 1 |
//! | 56 | 8 | retired: records of windows up to this one are in place for good |
//! | 64 | 8 | date, seconds since 1970; zero in those of the start. Nobody reads it |
//! | 72 | … | zero |
//!
//! Version *v* is written to page *v* mod 2, over version *v* − 2, when version *v* − 1 is durable. The valid copy with the
//! higher version counts.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Owner, Shape};
use crate::geometry::{ByteRange, PAGE};
use crate::ids::Uuid;
use crate::sealed::{self, Page};

const MAGIC: &[u8; 8] = b"FBJRNLSB";
const FORMAT: u16 = 1;
/// No version and no window has a number from here on.
pub(super) const NUMBER_MAX: u64 = 1 << 62;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Whose journal it is.
    pub owner: Owner,
    /// How it is cut.
    pub shape: Shape,
    /// Its version.
    pub version: u64,
    /// Records of windows up to this one are in place for good.
    pub retired: u64,
}

/// Why two pages are no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// Neither copy is one.
    #[error("it is no destage journal, or both copies of its first page are damaged")]
    Damaged,
    /// A copy is of another format.
    #[error("it has format {0}, this program reads format {FORMAT}")]
    Format(u16),
    /// The contents are impossible although the checksum is right.
    #[error("its first page has an impossible {0}")]
    Field(&'static str),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    format: U16,
    zero: U16,
    disk: [u8; 16],
    nonce: U64,
    slots: U32,
    capacity: U32,
    version: U64,
    retired: U64,
}

const _: () = assert!(size_of::<Raw>() == 64);

impl Superblock {
    /// Of a new journal.
    pub fn first(owner: Owner, shape: Shape) -> Superblock {
        Superblock { owner, shape, version: 1, retired: 0 }
    }

    /// Its page.
    pub fn encode(&self, page: &mut Page) {
        let raw = Raw {
            magic: *MAGIC,
            checksum: U32::ZERO,
            format: FORMAT.into(),
            zero: U16::ZERO,
            disk: self.owner.disk.0,
            nonce: self.owner.nonce.into(),
            slots: self.shape.slots().into(),
            capacity: self.shape.capacity().into(),
            version: self.version.into(),
            retired: self.retired.into(),
        };
        page.fill(0);
        sealed::put_record(page, &raw);
        sealed::seal(page);
    }

    /// Where the page of `version` goes.
    pub fn place(version: u64) -> ByteRange {
        ByteRange::at(version % 2 * PAGE, PAGE)
    }

    /// The one of the two copies that counts.
    ///
    /// # Errors
    /// Neither is valid, or one is of another format.
    pub fn choose(copies: [&Page; 2]) -> Result<Superblock, Invalid> {
        let mut best: Option<Superblock> = None;
        for (copy, page) in copies.into_iter().enumerate() {
            if let Some(found) = decode(page)?
                && found.version % 2 == copy as u64
                && best.is_none_or(|other| found.version > other.version)
            {
                best = Some(found);
            }
        }
        best.ok_or(Invalid::Damaged)
    }
}

fn decode(page: &Page) -> Result<Option<Superblock>, Invalid> {
    if !sealed::has_seal(page, MAGIC) {
        return Ok(None);
    }
    let (raw, _) = sealed::record::<Raw>(page);
    if raw.format != FORMAT {
        return Err(Invalid::Format(raw.format.get()));
    }
    let shape = Shape::new(raw.slots.get(), raw.capacity.get()).ok_or(Invalid::Field("shape"))?;
    let (version, retired) = (raw.version.get(), raw.retired.get());
    if version == 0 || version >= NUMBER_MAX || retired >= NUMBER_MAX {
        return Err(Invalid::Field("number"));
    }
    let owner = Owner { disk: Uuid(raw.disk), nonce: raw.nonce.get() };
    Ok(Some(Superblock { owner, shape, version, retired }))
}
