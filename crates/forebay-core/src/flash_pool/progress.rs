//! The progress of a disk's destager: the page that lets segments of the log go.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 64 | header of a page pair |
//! | 64 | 16 | UUID of the disk |
//! | 80 | 8 | flushed: records up to this sequence are on primary storage and were flushed there |
//! | 88 | 8 | through: no record after this sequence was ever sent to primary storage that overwrites one after flushed |
//! | 96 | … | zero |
//!
//! `flushed` is durable before a segment that it frees is given back. `through` is durable before a record after
//! it is sent that overwrites another one after `flushed`, so that it is raised in strides. A log is discarded by raising both to its last record.

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pair::{self, PairInvalid};
use super::superblock::Superblock;
use super::{DiskNumber, PairId};
use crate::ids::{Sequence, Uuid};
use crate::sealed::{self, Page};
use crate::write_back::format::COUNT_MAX;

/// How far a disk's log is on primary storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The disk. Another one's progress in this place must not be believed.
    pub disk: Uuid,
    /// Records up to this one are on primary storage and were flushed there.
    pub flushed: Sequence,
    /// No record after this one was ever sent to primary storage that overwrites one after `flushed`; those between may be
    /// there or not.
    pub through: Sequence,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    disk: [u8; 16],
    flushed: U64,
    through: U64,
}

impl Progress {
    /// The page for version `version` of the pair.
    pub fn encode(&self, pool: &Superblock, number: DiskNumber, version: u64, page: &mut Page) {
        assert!(self.flushed <= self.through, "{self:?}");
        let raw = Raw {
            disk: self.disk.0,
            flushed: self.flushed.0.into(),
            through: self.through.0.into(),
        };
        pair::encode(pool, PairId::Progress(number), version, &raw, page);
    }

    /// The progress and its version.
    ///
    /// # Errors
    /// Neither copy is valid, or the newer one makes no sense.
    pub fn decode(
        pool: &Superblock,
        number: DiskNumber,
        copies: [&Page; 2],
    ) -> Result<(u64, Progress), PairInvalid> {
        let (version, page) = pair::choose(pool, PairId::Progress(number), copies)?;
        let (raw, _) = sealed::record::<Raw>(pair::contents(page));
        let progress = Progress {
            disk: Uuid(raw.disk),
            flushed: Sequence(raw.flushed.get()),
            through: Sequence(raw.through.get()),
        };
        if progress.flushed > progress.through || progress.through.0 > COUNT_MAX {
            return Err(PairInvalid::Field("progress"));
        }
        Ok((version, progress))
    }
}
