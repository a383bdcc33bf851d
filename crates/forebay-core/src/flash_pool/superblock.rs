//! The superblock: says that the bytes are a pool of ours, and how it is cut. Never changed once written.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FOREBAY\0` |
//! | 8 | 4 | CRC32C of the page |
//! | 12 | 2 | version of the whole pool, 1 |
//! | 14 | 2 | zero |
//! | 16 | 16 | UUID of the pool |
//! | 32 | 8 | bytes of a segment |
//! | 40 | 4 | segments |
//! | 44 | 4 | disks that there is room for, 1 to 1024 |
//! | 48 | 4 | page where the table of page pairs begins, 256 |
//! | 52 | 4 | page pairs in the table |
//! | 56 | 8 | when the pool was made, seconds since 1970 |
//! | 64 | … | zero |

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{GeometryError, PoolGeometry, TABLE};
use crate::ids::Uuid;
use crate::sealed::{self, Page};

/// First bytes of a pool.
pub const MAGIC: &[u8; 8] = b"FOREBAY\0";
/// The version that this code reads and writes.
pub const VERSION: u16 = 1;

/// What a pool is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Names the pool; it stands in every page of its tables.
    pub pool: Uuid,
    /// How it is cut.
    pub geometry: PoolGeometry,
    /// When it was made, seconds since 1970.
    pub created: u64,
}

/// Why a page is no superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockInvalid {
    /// Not ours.
    #[error("this is not a Forebay pool")]
    Foreign,
    /// Ours, but the checksum is wrong.
    #[error("the superblock is damaged")]
    Damaged,
    /// Of another version.
    #[error("the pool has version {0}, this program reads version {VERSION}")]
    Version(u16),
    /// Checksum right, with a field that cannot be.
    #[error("the superblock has an impossible {0}")]
    Field(&'static str),
    /// Both copies are valid and say different things.
    #[error("the two superblocks differ")]
    Differ,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    version: U16,
    zero: U16,
    pool: [u8; 16],
    segment_size: U64,
    segments: U32,
    disks: U32,
    table: U32,
    pairs: U32,
    created: U64,
}

const _: () = assert!(size_of::<Raw>() == 64);

impl Superblock {
    /// The page to write at both places: copy 1 first, copy 0 when all the tables are durable.
    pub fn encode(&self, page: &mut Page) {
        let raw = Raw {
            magic: *MAGIC,
            checksum: U32::ZERO,
            version: VERSION.into(),
            zero: U16::ZERO,
            pool: self.pool.0,
            segment_size: self.geometry.segment_size().into(),
            segments: self.geometry.segments().into(),
            disks: (self.geometry.disks().count() as u32).into(),
            table: (TABLE as u32).into(),
            pairs: self.geometry.pairs().into(),
            created: self.created.into(),
        };
        page.fill(0);
        sealed::put_record(page, &raw);
        sealed::seal(page);
    }

    /// Reads one copy.
    ///
    /// # Errors
    /// It is not one, or not one that this program understands.
    pub fn decode(page: &Page) -> Result<Superblock, SuperblockInvalid> {
        if page[..8] != MAGIC[..] {
            return Err(SuperblockInvalid::Foreign);
        }
        if !sealed::has_seal(page, MAGIC) {
            return Err(SuperblockInvalid::Damaged);
        }
        let (raw, _) = sealed::record::<Raw>(page);
        if raw.version != VERSION {
            return Err(SuperblockInvalid::Version(raw.version.get()));
        }
        let (segment_size, segments) = (raw.segment_size.get(), raw.segments.get());
        let size = segment_size.checked_mul(u64::from(segments));
        let size = size.ok_or(SuperblockInvalid::Field("segment size or count"))?;
        let geometry =
            PoolGeometry::new(segment_size, size, raw.disks.get()).map_err(|why| match why {
                GeometryError::Disks(_) => SuperblockInvalid::Field("number of disks"),
                GeometryError::SegmentSize(_)
                | GeometryError::TooMany(_)
                | GeometryError::TooSmall { .. } => {
                    SuperblockInvalid::Field("segment size or count")
                }
            })?;
        if u64::from(raw.table.get()) != TABLE || raw.pairs.get() != geometry.pairs() {
            return Err(SuperblockInvalid::Field("place of the tables"));
        }
        if raw.pool == Uuid::NIL.0 {
            return Err(SuperblockInvalid::Field("UUID"));
        }
        Ok(Superblock { pool: Uuid(raw.pool), geometry, created: raw.created.get() })
    }

    /// The superblock of the two copies together: one of them is enough.
    ///
    /// Copy 0 decides when both fail; a pool that was not finished has none there, so that it counts as
    /// foreign or blank. Copy 1 alone speaks for a pool whose first page is damaged. It also says that a pool is of another
    /// version, unless another program has written to the first page: nobody may wipe what that version can repair.
    ///
    /// # Errors
    /// Neither copy is valid, or they differ.
    pub fn choose(copies: [&Page; 2]) -> Result<Superblock, SuperblockInvalid> {
        match copies.map(Superblock::decode) {
            [Ok(a), Ok(b)] if a == b => Ok(a),
            [Ok(_), Ok(_)] => Err(SuperblockInvalid::Differ),
            [Ok(one), Err(SuperblockInvalid::Damaged | SuperblockInvalid::Foreign)] => Ok(one),
            [Err(SuperblockInvalid::Damaged), Ok(one)] => Ok(one),
            [Ok(_), Err(error)] => Err(error),
            [Err(SuperblockInvalid::Damaged), Err(version @ SuperblockInvalid::Version(_))] => {
                Err(version)
            }
            [Err(SuperblockInvalid::Foreign), Err(version @ SuperblockInvalid::Version(_))]
                if sealed::is_erased(copies[0]) =>
            {
                Err(version)
            }
            [Err(error), _] => Err(error),
        }
    }
}
