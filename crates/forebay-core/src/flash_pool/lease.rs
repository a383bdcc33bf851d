//! Leases: who has each segment of the pool.
//!
//! A page of the lease table holds 168 entries of 24 bytes after the header of a page pair. Entry
//! *i* of page *n* is segment 168 *n* + *i*. Entries past the last segment are zero.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | generation of the disk when it was leased |
//! | 8 | 8 | ordinal: log, its order; cache and index, for their own use |
//! | 16 | 2 | number of the disk |
//! | 18 | 1 | role: 0 free, 1 log, 2 cache, 3 index, 255 metadata of the pool |
//! | 19 | 5 | zero |
//!
//! A lease is durable before anything is written to its segment, and its end before the segment has another.

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::pair::{self, PairInvalid};
use super::superblock::Superblock;
use super::{DiskNumber, PairId, PoolGeometry};
use crate::ids::{Generation, SegmentId};
use crate::sealed::{self, Page};
use crate::write_back::format::COUNT_MAX;
use crate::write_back::format::recover::LeasedSegment;

/// Leases in a page.
pub const PER_PAGE: u32 = 168;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The disk's write log.
    Log,
    /// Slots of the disk's cache.
    Cache,
    /// The disk's index snapshot, its journal, or its write-intent map.
    Index,
}

/// A segment that a disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The disk.
    pub disk: DiskNumber,
    /// What for.
    pub role: Role,
    /// The disk's generation when it got it.
    pub generation: Generation,
    /// Of log segments: their order; never the same twice in a log. Of cache segments: above that of all that came before.
    pub ordinal: u64,
}

/// Who has a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Holder {
    /// Nobody.
    #[default]
    Free,
    /// The pool itself.
    Metadata,
    /// A disk.
    Leased(Lease),
}

/// A segment is not held under the lease that was to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the segment is not held under this lease")]
pub struct NotHeld;

/// All leases of a pool, in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseTable {
    geometry: PoolGeometry,
    holders: Vec<Holder>,
}

impl LeaseTable {
    /// The table of a new pool.
    pub fn new(geometry: PoolGeometry) -> LeaseTable {
        let mut holders = vec![Holder::Free; geometry.segments() as usize];
        holders[..geometry.metadata_segments() as usize].fill(Holder::Metadata);
        LeaseTable { geometry, holders }
    }

    /// Who has `segment`.
    pub fn holder(&self, segment: SegmentId) -> Holder {
        self.holders[segment.0 as usize]
    }

    /// Leases `segment`, or changes the lease of the disk that has it; its page ([`PoolGeometry::lease_pair`]) is to be
    /// written then.
    ///
    /// # Panics
    /// When it is another disk's, or the pool's own.
    pub fn lease(&mut self, segment: SegmentId, lease: Lease) {
        let place = &mut self.holders[segment.0 as usize];
        match *place {
            Holder::Free => {}
            Holder::Leased(old) if old.disk == lease.disk => {}
            old => panic!("{segment:?} from {old:?} to {lease:?}"),
        }
        *place = Holder::Leased(lease);
    }

    /// Frees `segment` if it is held under exactly this lease; its page is to be written then. A lease that was ended
    /// already ends nobody else's.
    ///
    /// # Errors
    /// It is not; nothing was changed.
    pub fn free(&mut self, segment: SegmentId, lease: Lease) -> Result<(), NotHeld> {
        match self.holders.get_mut(segment.0 as usize) {
            Some(place) if *place == Holder::Leased(lease) => {
                *place = Holder::Free;
                Ok(())
            }
            Some(_) | None => Err(NotHeld),
        }
    }

    /// Every segment with its holder.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentId, Holder)> + '_ {
        (0..).map(SegmentId).zip(self.holders.iter().copied())
    }

    /// The segments that a disk has in a role, in order of place, with their leases.
    pub fn of(
        &self,
        disk: DiskNumber,
        role: Role,
    ) -> impl Iterator<Item = (SegmentId, Lease)> + '_ {
        self.iter().filter_map(move |(segment, holder)| match holder {
            Holder::Leased(lease) if lease.disk == disk && lease.role == role => {
                Some((segment, lease))
            }
            Holder::Free | Holder::Metadata | Holder::Leased(_) => None,
        })
    }

    /// The segments of a disk's log, as recovery wants them.
    pub fn log_of(&self, disk: DiskNumber) -> impl Iterator<Item = LeasedSegment> + '_ {
        let leased = self.of(disk, Role::Log);
        leased.map(|(segment, Lease { generation, ordinal, .. })| LeasedSegment {
            segment,
            generation,
            ordinal,
        })
    }

    /// The page `number` of the table, as version `version` of its pair.
    pub fn encode(&self, pool: &Superblock, number: u32, version: u64, page: &mut Page) {
        let mut raw = RawPage::new_zeroed();
        let from = (number * PER_PAGE) as usize;
        for (entry, holder) in raw.entries.iter_mut().zip(&self.holders[from..]) {
            *entry = RawLease::from(*holder);
        }
        pair::encode(pool, PairId::Leases(number), version, &raw, page);
    }

    /// Reads page `number` into the table and returns its version.
    ///
    /// # Errors
    /// Neither copy is valid, or an entry makes no sense.
    pub fn decode(
        &mut self,
        pool: &Superblock,
        number: u32,
        copies: [&Page; 2],
    ) -> Result<u64, PairInvalid> {
        let (version, page) = pair::choose(pool, PairId::Leases(number), copies)?;
        let (raw, _) = sealed::record::<RawPage>(pair::contents(page));
        let metadata = self.geometry.metadata_segments();
        for (segment, entry) in (number * PER_PAGE..).zip(&raw.entries) {
            let holder = entry.decode(self.geometry).ok_or(PairInvalid::Field("lease"))?;
            let is_metadata = segment < metadata;
            if is_metadata != (holder == Holder::Metadata) {
                return Err(PairInvalid::Field("lease of the pool's own segments"));
            }
            match self.holders.get_mut(segment as usize) {
                Some(place) => *place = holder,
                None if holder == Holder::Free => {}
                None => return Err(PairInvalid::Field("lease of a segment that is not there")),
            }
        }
        Ok(version)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPage {
    entries: [RawLease; PER_PAGE as usize],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawLease {
    generation: U64,
    ordinal: U64,
    disk: U16,
    role: u8,
    zero: [u8; 5],
}

const _: () = assert!(size_of::<RawPage>() + pair::CONTENTS == crate::sealed::PAGE_LEN);

impl From<Holder> for RawLease {
    fn from(holder: Holder) -> RawLease {
        let mut raw = RawLease::new_zeroed();
        match holder {
            Holder::Free => {}
            Holder::Metadata => raw.role = 255,
            Holder::Leased(lease) => {
                raw.generation = lease.generation.0.into();
                raw.ordinal = lease.ordinal.into();
                raw.disk = lease.disk.0.into();
                raw.role = match lease.role {
                    Role::Log => 1,
                    Role::Cache => 2,
                    Role::Index => 3,
                };
            }
        }
        raw
    }
}

impl RawLease {
    fn decode(&self, geometry: PoolGeometry) -> Option<Holder> {
        let lease = |role| {
            let lease = Lease {
                disk: DiskNumber(self.disk.get()),
                role,
                generation: Generation(self.generation.get()),
                ordinal: self.ordinal.get(),
            };
            // The next one has to be possible, too; that of a ring has a meaning of its own.
            let ordinal_max = if role == Role::Index { COUNT_MAX } else { COUNT_MAX - 1 };
            let is_sane = geometry.has(lease.disk)
                && lease.generation.0 <= COUNT_MAX
                && lease.ordinal <= ordinal_max;
            is_sane.then_some(Holder::Leased(lease))
        };
        match self.role {
            0 => Some(Holder::Free),
            1 => lease(Role::Log),
            2 => lease(Role::Cache),
            3 => lease(Role::Index),
            255 => Some(Holder::Metadata),
            _ => None,
        }
    }
}
