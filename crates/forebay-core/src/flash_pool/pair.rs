//! Page pairs: how a page of metadata changes without ever being lost.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | magic `FBMETAPG` |
//! | 8 | 4 | CRC32C of the page |
//! | 12 | 2 | format version, 1 |
//! | 14 | 2 | kind: 1 disk record, 2 progress, 3 leases, 4 reservations |
//! | 16 | 16 | UUID of the pool |
//! | 32 | 4 | place in the table, from 0 |
//! | 36 | 4 | zero |
//! | 40 | 8 | version of the contents, from 1 |
//! | 48 | 16 | zero |
//! | 64 | 4032 | contents, by kind |
//!
//! Version *v* is written to copy *v* mod 2, over version *v* − 2. The valid copy with the higher version counts.
//! Writing *v* may start only when *v* − 1 is durable: otherwise a loss of power could take both. After the pool
//! is opened that needs a flush, since what was read may not have been durable either.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::PairId;
use super::superblock::Superblock;
use crate::sealed::{self, Page};

/// First bytes of a page of the tables.
pub const MAGIC: &[u8; 8] = b"FBMETAPG";
/// Where the contents begin.
pub const CONTENTS: usize = 64;
const FORMAT: u16 = 1;
const VERSION_MAX: u64 = 1 << 62;

/// Why a page pair has no contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairInvalid {
    /// Neither copy is valid.
    #[error("both copies are damaged")]
    Damaged,
    /// A copy is valid but of another format.
    #[error("it has format {0}, this program reads format {FORMAT}")]
    Format(u16),
    /// The contents are impossible although the checksum is right.
    #[error("it has an impossible {0}")]
    Field(&'static str),
}

/// The copy, 0 or 1, that `version` is written to.
pub fn copy_of(version: u64) -> u32 {
    (version % 2) as u32
}

/// Of the two copies of a pair, the page that counts and its version.
///
/// # Errors
/// Neither is valid, or one is of a newer format.
pub fn choose<'a>(
    pool: &Superblock,
    pair: PairId,
    copies: [&'a Page; 2],
) -> Result<(u64, &'a Page), PairInvalid> {
    let mut best = None;
    for (copy, page) in copies.into_iter().enumerate() {
        let Some(version) = version(pool, pair, page)? else { continue };
        let is_in_place = copy_of(version) as usize == copy;
        if is_in_place && best.is_none_or(|(other, _)| version > other) {
            best = Some((version, page));
        }
    }
    best.ok_or(PairInvalid::Damaged)
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: [u8; 8],
    checksum: U32,
    format: U16,
    kind: U16,
    pool: [u8; 16],
    index: U32,
    zero: U32,
    version: U64,
    zeroes: [u8; 16],
}

const _: () = assert!(size_of::<Raw>() == CONTENTS);

/// Fills in the header of a page of the tables around `contents` and seals it.
pub(super) fn encode(
    pool: &Superblock,
    pair: PairId,
    version: u64,
    contents: &(impl ContentsBytes + ?Sized),
    page: &mut Page,
) {
    assert!((1..=VERSION_MAX).contains(&version));
    let raw = Raw {
        magic: *MAGIC,
        checksum: U32::ZERO,
        format: FORMAT.into(),
        kind: kind(pair).into(),
        pool: pool.pool.0,
        index: pool.geometry.place(pair).into(),
        zero: U32::ZERO,
        version: version.into(),
        zeroes: [0; 16],
    };
    page.fill(0);
    sealed::put_record(page, &raw);
    let bytes = contents.as_bytes();
    page[CONTENTS..CONTENTS + bytes.len()].copy_from_slice(bytes);
    sealed::seal(page);
}

/// What can stand in a page.
pub(super) trait ContentsBytes: IntoBytes + Immutable {}
impl<T: IntoBytes + Immutable + ?Sized> ContentsBytes for T {}

/// The contents of a page that [`choose`] gave.
pub(super) fn contents(page: &Page) -> &[u8] {
    &page[CONTENTS..]
}

fn version(pool: &Superblock, pair: PairId, page: &Page) -> Result<Option<u64>, PairInvalid> {
    if !sealed::has_seal(page, MAGIC) {
        return Ok(None);
    }
    let (raw, _) = sealed::record::<Raw>(page);
    let is_this =
        raw.pool == pool.pool.0 && raw.index == pool.geometry.place(pair) && raw.kind == kind(pair);
    let version = raw.version.get();
    // The next one has to be possible, too.
    if !is_this || !(1..VERSION_MAX).contains(&version) {
        return Ok(None);
    }
    if raw.format != FORMAT {
        return Err(PairInvalid::Format(raw.format.get()));
    }
    Ok(Some(version))
}

fn kind(pair: PairId) -> u16 {
    match pair {
        PairId::Disk(_) => 1,
        PairId::Progress(_) => 2,
        PairId::Leases(_) => 3,
        PairId::Reservations(_) => 4,
    }
}
