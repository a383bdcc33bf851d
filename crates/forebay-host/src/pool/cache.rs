//! Segments for the read cache of a disk: one area for its slots, one for the ring that keeps them over a restart.
//!
//! ```text
//!   opened ─► kept for the disk that they belong to ─┬─ the disk asks for as much ─► its own again, perhaps warm
//!                                                    ├─ it asks for something else ─► free, taken anew
//!                                                    └─ somebody else needs room ───► free
//! ```
//! Areas are contiguous, from the low end. What a log needs goes before caches that nobody has taken over.
//!
//! **Invariant:** before a disk is served, a ring that it does not go on with is free, void, or has another header: no
//! later run believes it.

use anyhow::{Context, Result, ensure};
use forebay_core::cache_index::header::RingHeader;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::lease::{Holder, Lease, Role};
use forebay_core::geometry::PAGE;
use forebay_core::ids::SegmentId;

use super::file::PoolPage;
use super::tables::VOID;
use super::{Area, Held, Pool};

/// Parts of the pool for a disk's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheArea {
    /// For its slots.
    pub slots: Area,
    /// For its ring, where there was room for one.
    pub ring: Option<Area>,
    /// Both are where they were in a former run, whose ring is not void.
    pub is_kept: bool,
}

impl Pool {
    /// Takes segments for a disk's cache of `bytes` and its ring of `ring_bytes`; fewer than asked for, when logs are
    /// in the way.
    ///
    /// # Errors
    /// None is free, or the medium's.
    pub fn take_cache(
        &mut self,
        disk: DiskNumber,
        bytes: u64,
        ring_bytes: u64,
    ) -> Result<CacheArea> {
        let size = self.geometry().segment_size();
        let wanted = bytes.div_ceil(size) as usize;
        let ring_wanted = ring_bytes.div_ceil(size) as usize;
        let slots = self.tables.held(disk, Role::Cache);
        let ring = self.tables.held(disk, Role::Index);
        let is_as_asked = |held: &[SegmentId], wanted: usize| {
            held.len() == wanted && held.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0)
        };
        let is_void = self.tables.has_void_ring(disk) || self.has_failed;
        if is_as_asked(&slots, wanted) && is_as_asked(&ring, ring_wanted) && !is_void {
            self.taken[usize::from(disk.0)] = true;
            return Ok(CacheArea {
                slots: self.area(&slots, bytes),
                ring: (ring_wanted > 0).then(|| self.area(&ring, ring_bytes)),
                is_kept: true,
            });
        }
        self.drop_cache(disk)?;
        let mut slots = self.lowest_free(wanted);
        while slots.len() < wanted && self.give_up_a_cache() {
            slots = self.lowest_free(wanted);
        }
        ensure!(!slots.is_empty(), "the flash {} has no free segment", self.file.path().display());
        self.lease_area(disk, Role::Cache, &slots)?;
        let mut ring = self.lowest_free(ring_wanted);
        while ring.len() < ring_wanted && self.give_up_a_cache() {
            ring = self.lowest_free(ring_wanted);
        }
        let has_ring = ring.len() == ring_wanted && ring_wanted > 0;
        if has_ring {
            // Before the lease makes it count: an older ring may have left its header in this place.
            let place = self.geometry().segment_offset(ring[0]);
            self.file.write(place, &[PoolPage::ZERO]).and_then(|()| self.file.sync())?;
            self.lease_area(disk, Role::Index, &ring)?;
        }
        self.taken[usize::from(disk.0)] = true;
        Ok(CacheArea {
            slots: self.area(&slots, bytes),
            ring: has_ring.then(|| self.area(&ring, ring_bytes)),
            is_kept: false,
        })
    }

    /// Frees the segments of a disk's cache.
    ///
    /// # Errors
    /// The medium's.
    pub fn drop_cache(&mut self, disk: DiskNumber) -> Result<()> {
        let leases = &self.tables.leases;
        let held: Vec<Held> =
            leases.of(disk, Role::Index).chain(leases.of(disk, Role::Cache)).collect();
        self.tables.free(&self.file, &held).context("cannot write the tables of the pool")?;
        Ok(())
    }

    /// The ring of a disk must not be believed any more, whatever is in it; durably. False when that cannot be noted.
    pub fn void_ring(&mut self, disk: DiskNumber) -> bool {
        if self.has_failed {
            return false;
        }
        let Some(&first) = self.tables.held(disk, Role::Index).first() else { return true };
        let generation = self.generation(disk);
        let lease = Lease { disk, role: Role::Index, generation, ordinal: VOID };
        let noted = self.tables.lease(&self.file, &[first], lease);
        self.note(noted).is_some()
    }

    /// The header of a ring, if one is there.
    ///
    /// # Errors
    /// The medium's.
    pub fn ring_header(&self, ring: Area) -> Result<Option<RingHeader>> {
        let mut page = PoolPage::ZERO;
        self.file.read(ring.offset, std::slice::from_mut(&mut page))?;
        Ok(RingHeader::decode(&page.0))
    }

    /// Begins a ring, durably: what is in its place means nothing any more.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin_ring(&self, ring: Area, header: &RingHeader) -> Result<()> {
        let mut page = PoolPage::ZERO;
        header.encode(&mut page.0);
        self.file.write(ring.offset, std::slice::from_ref(&page))?;
        self.file.sync()?;
        Ok(())
    }

    /// Frees the cache of some disk that did not take it over; false when there is none, or flash fails.
    pub(super) fn give_up_a_cache(&mut self) -> bool {
        let holder = self.tables.leases.iter().find_map(|(_, holder)| match holder {
            Holder::Leased(lease) if lease.role != Role::Log => {
                (!self.taken[usize::from(lease.disk.0)]).then_some(lease.disk)
            }
            Holder::Leased(_) | Holder::Free | Holder::Metadata => None,
        });
        let Some(disk) = holder else { return false };
        let dropped = self.drop_cache(disk);
        dropped.is_ok()
    }

    /// The first `wanted` free segments in a row, or the longest row.
    fn lowest_free(&self, wanted: usize) -> Vec<SegmentId> {
        let free: Vec<SegmentId> = self.free_segments().collect();
        let mut best: &[SegmentId] = &[];
        for row in free.chunk_by(|a, b| a.0 + 1 == b.0) {
            if row.len() > best.len() {
                best = row;
            }
            if best.len() >= wanted {
                break;
            }
        }
        best[..wanted.min(best.len())].to_vec()
    }

    fn lease_area(&mut self, disk: DiskNumber, role: Role, segments: &[SegmentId]) -> Result<()> {
        let generation = self.generation(disk);
        let lease = Lease { disk, role, generation, ordinal: 0 };
        let leased = self.tables.lease(&self.file, segments, lease);
        self.has_failed |= leased.is_err();
        leased.context("cannot lease flash for the cache")
    }

    fn area(&self, segments: &[SegmentId], bytes: u64) -> Area {
        let held = segments.len() as u64 * self.geometry().segment_size();
        let offset = segments.first().map_or(0, |first| self.geometry().segment_offset(*first));
        Area { offset, len: bytes.min(held) & !(PAGE - 1) }
    }
}
