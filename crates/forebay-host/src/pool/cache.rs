//! Segments for the read cache of a disk: for its slots, and for the ring that keeps them over a restart.
//!
//! ```text
//!   opened ─► kept for the disk that they belong to ─┬─ the disk goes on with them: more are taken, or the last ones given up
//!                                                    ├─ its ring is void or gone ──► free, taken anew
//!                                                    └─ somebody else needs room ──► free
//! ```
//! Slots are in the order in which their segments came, of those that came together from the low end. So a cache that gets
//! more or fewer of them keeps what is in the others. The ring is in one piece. What a log needs goes before caches that
//! nobody has taken over.
//!
//! **Invariants**
//! - Before a disk is served, a ring that it does not go on with is free, void, or has another header: no later run
//!   believes it.
//! - No segment of slots is given up while a ring that may be believed says something of it.

use anyhow::{Context, Result, ensure};
use forebay_core::cache_index::header::RingHeader;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::DiskRecord;
use forebay_core::flash_pool::lease::{Holder, Lease, Role};
use forebay_core::geometry::PAGE;
use forebay_core::ids::SegmentId;

use super::file::PoolPage;
use super::room::SPARE_SEGMENTS;
use super::{Area, Held, Pool, survey};

/// Parts of the pool for a disk's cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheArea {
    /// For its slots, in their order.
    pub slots: Vec<Area>,
    /// Bytes that a former run had for slots: their first ones are the first ones now.
    pub kept: u64,
    /// The ring that it left, which is not void.
    pub former: Option<Area>,
}

impl CacheArea {
    /// Bytes for slots.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|area| area.len).sum()
    }
}

impl Pool {
    /// Takes segments for a disk's cache of `bytes`, beside those that a former run left; fewer than asked for, when logs
    /// are in the way. What it has beyond that stays its own until [`Pool::trim_cache`].
    ///
    /// # Errors
    /// The medium's.
    pub fn take_cache(&mut self, disk: DiskNumber, bytes: u64) -> Result<CacheArea> {
        let wanted = self.segments_for(bytes);
        self.check_tables()?;
        let ring = self.tables.held(disk, Role::Index);
        if self.tables.has_void_ring(disk) || ring.is_empty() || !is_row(&ring) {
            self.drop_cache(disk)?;
        }
        // From here on it is not given up for another one, nor for itself.
        self.taken[usize::from(disk.0)] = true;
        let kept = self.cache_of(disk);
        let mut slots = self.lease_up_to(disk, wanted)?;
        slots.truncate(wanted);
        let former = self.tables.held(disk, Role::Index);
        let former = (!former.is_empty()).then(|| self.areas(&former, u64::MAX).remove(0));
        Ok(CacheArea { slots: self.areas(&slots, bytes), kept, former })
    }

    /// Bytes that a disk has for the slots of its cache.
    pub fn cache_of(&self, disk: DiskNumber) -> u64 {
        self.tables.held(disk, Role::Cache).len() as u64 * self.geometry().segment_size()
    }

    /// Bytes that a cache may begin with, beside a ring of `ring` bytes, and leave to every log what it may take: for disks that
    /// share, of which others may have some of what this one brings.
    pub fn spare_for_cache(&self, ring: u64) -> u64 {
        let claimed = |(number, record): (DiskNumber, &DiskRecord)| {
            let spare = if record.log_max > 0 { SPARE_SEGMENTS as usize } else { 0 };
            let most = self.segments_for(record.log_max) + spare;
            most.saturating_sub(self.tables.log_segments(number))
        };
        let logs: usize = self.tables.disks().map(claimed).sum();
        let spare = self.free_segments().count().saturating_sub(logs + self.segments_for(ring));
        spare as u64 * self.geometry().segment_size()
    }

    /// A disk at work has segments for a cache of `bytes` from now on: more are taken, all or none, or the last ones given up,
    /// of which nothing may be believed any more. Up to `own` it has a right to what is free, and caches go that nobody has taken
    /// over. Beyond that it takes nothing that logs may need. Where the segments are.
    ///
    /// # Errors
    /// There are not so many, or the medium's.
    pub fn size_cache(&mut self, disk: DiskNumber, bytes: u64, own: u64) -> Result<Vec<Area>> {
        let wanted = self.segments_for(bytes);
        self.check_tables()?;
        ensure!(self.taken[usize::from(disk.0)], "the disk has no cache on flash");
        let more = wanted.saturating_sub(self.tables.held(disk, Role::Cache).len());
        let is_own = bytes <= own;
        let has_room = |pool: &Pool| {
            // A log that has more than it may take claims nothing, and still has to be opened.
            let has_free = || pool.free_but_for_logs() >= more;
            let spare = || pool.spare_for_cache(0) / pool.geometry().segment_size();
            more == 0 || has_free() && (is_own || spare() >= more as u64)
        };
        while is_own && !has_room(self) && self.may_get(more) && self.give_up_a_cache() {}
        ensure!(
            has_room(self),
            "the flash {} has no room for {more} more segments of its cache",
            self.file.path().display(),
        );
        let slots = self.lease_up_to(disk, wanted)?;
        self.trim_cache(disk, bytes)?;
        Ok(self.areas(&slots[..wanted], bytes))
    }

    /// Leases segments for slots until a disk has `wanted`, as far as there are any. All that it has, in the order of its slots.
    fn lease_up_to(&mut self, disk: DiskNumber, wanted: usize) -> Result<Vec<SegmentId>> {
        let held = self.tables.held_under(disk, Role::Cache);
        if held.len() < wanted {
            let more = self.free_for_cache(wanted - held.len());
            let ordinal = held.iter().map(|(_, lease)| lease.ordinal + 1).max().unwrap_or(0);
            self.lease_cache(disk, Role::Cache, &more, ordinal)?;
        }
        Ok(self.tables.held(disk, Role::Cache))
    }

    /// Begins a ring of `bytes` for a disk's cache, durably, in the place of the one that it has: that means nothing any
    /// more. `None`: there is no room, and no ring.
    ///
    /// # Errors
    /// The medium's.
    pub fn begin_ring(
        &mut self,
        disk: DiskNumber,
        bytes: u64,
        header: &RingHeader,
    ) -> Result<Option<Area>> {
        let wanted = self.segments_for(bytes);
        self.check_tables()?;
        let mut ring = self.tables.held(disk, Role::Index);
        if ring.len() != wanted || !is_row(&ring) || self.tables.has_void_ring(disk) {
            self.free_role(disk, Role::Index)?;
            let has_room = |pool: &Pool| {
                let row = pool.lowest_row(wanted).len();
                row == wanted && pool.free_but_for_logs() >= wanted
            };
            while !has_room(self) && self.may_get(wanted) && self.give_up_a_cache() {}
            if !has_room(self) || wanted == 0 {
                return Ok(None);
            }
            ring = self.lowest_row(wanted);
            // Before the lease makes it count: an older ring may have left its header in this place.
            let place = self.geometry().segment_offset(ring[0]);
            self.file.write_durably(place, &[PoolPage::ZERO])?;
            self.lease_cache(disk, Role::Index, &ring, 0)?;
        }
        let area = self.areas(&ring, bytes).remove(0);
        let mut page = PoolPage::ZERO;
        header.encode(&mut page.0);
        self.file.write_durably(area.offset, std::slice::from_ref(&page))?;
        Ok(Some(area))
    }

    /// Gives up what a disk's cache has beyond `bytes`. Its ring must not say anything of that.
    ///
    /// # Errors
    /// The medium's.
    pub fn trim_cache(&mut self, disk: DiskNumber, bytes: u64) -> Result<()> {
        let wanted = self.segments_for(bytes);
        let held = self.tables.held_under(disk, Role::Cache);
        let beyond = held.get(wanted..).unwrap_or_default();
        match beyond.is_empty() {
            true => Ok(()),
            false => self.free_cache(beyond),
        }
    }

    /// Frees the segments of a disk's cache.
    ///
    /// # Errors
    /// The medium's.
    pub fn drop_cache(&mut self, disk: DiskNumber) -> Result<()> {
        // The ring first: it says what is in the slots.
        self.free_role(disk, Role::Index)?;
        self.free_role(disk, Role::Cache)
    }

    fn free_role(&mut self, disk: DiskNumber, role: Role) -> Result<()> {
        let held: Vec<Held> = self.tables.leases.of(disk, role).collect();
        self.free_cache(&held)
    }

    fn free_cache(&mut self, held: &[Held]) -> Result<()> {
        let freed = self.tables.free(&self.file, held);
        self.note(freed).context("cannot write the tables of the pool")?;
        Ok(())
    }

    /// Refuses to go on when the tables say something else in memory than on flash.
    ///
    /// # Errors
    /// They do: a change of them could not be written.
    pub fn check_tables(&self) -> Result<()> {
        ensure!(
            !self.has_failed,
            "the tables of the pool on {} could not be written: start Forebay again when the flash works",
            self.file.path().display()
        );
        Ok(())
    }

    /// The ring of a disk must not be believed any more, whatever is in it; durably. False when that cannot be noted.
    ///
    /// Tables that could not be written once are tried again for this. The write makes durable, with the page of the ring, a
    /// change that had failed: nobody uses a segment that was leased so, nor needs one that was freed so.
    pub fn void_ring(&mut self, disk: DiskNumber) -> bool {
        let had_failed = self.has_failed;
        if had_failed && self.tables.held(disk, Role::Index).is_empty() {
            // It was freed in memory, and flash may still have it.
            return false;
        }
        let noted = self.tables.void_ring(&self.file, disk);
        if self.note(noted).is_err() {
            return false;
        }
        if had_failed {
            // Nobody mirrors these tables any more: should the copy that says so rot, the other one must not say what was before.
            let _ = self.tables.void_ring(&self.file, disk);
        }
        true
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

    /// Whether a ring that was found is the one that a disk's cache has, and none that was there before.
    pub fn has_ring(&self, disk: DiskNumber, found: &RingHeader) -> bool {
        survey::is_of_lease(found, &self.tables, disk)
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

    /// Free segments, without those that a log needs which does not go on yet: its disk would be refused.
    fn free_but_for_logs(&self) -> usize {
        self.free_segments().count().saturating_sub(self.kept_for_logs())
    }

    fn kept_for_logs(&self) -> usize {
        // One pass: each disk that comes asks several times, and there may be hundreds.
        let mut waits = vec![false; self.reopened.len()];
        for (_, holder) in self.tables.leases.iter() {
            if let Holder::Leased(Lease { role: Role::Log, disk, .. }) = holder {
                let disk = usize::from(disk.0);
                waits[disk] = !self.reopened[disk];
            }
        }
        let logs = self.tables.disks().filter(|(number, _)| waits[usize::from(number.0)]).count();
        logs * SPARE_SEGMENTS as usize
    }

    /// True when a cache gets so many once others have gone, which nobody has taken over.
    fn may_get(&self, wanted: usize) -> bool {
        let is_free = |(_, holder): &(SegmentId, Holder)| match holder {
            Holder::Free => true,
            Holder::Leased(lease) => {
                lease.role != Role::Log && !self.taken[usize::from(lease.disk.0)]
            }
            Holder::Metadata => false,
        };
        let all = self.tables.leases.iter().filter(is_free).count();
        all >= wanted + self.kept_for_logs()
    }

    /// Free segments for slots: in a row where there is one, else from the low end; fewer when there are no more.
    fn free_for_cache(&mut self, wanted: usize) -> Vec<SegmentId> {
        while self.free_but_for_logs() < wanted && self.may_get(1) && self.give_up_a_cache() {}
        let wanted = wanted.min(self.free_but_for_logs());
        let row = self.lowest_row(wanted);
        match row.len() == wanted {
            true => row,
            false => self.free_segments().take(wanted).collect(),
        }
    }

    /// The first `wanted` free segments in a row, or the longest row.
    fn lowest_row(&self, wanted: usize) -> Vec<SegmentId> {
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

    /// `ordinal`: above those of all that the cache has.
    fn lease_cache(
        &mut self,
        disk: DiskNumber,
        role: Role,
        segments: &[SegmentId],
        ordinal: u64,
    ) -> Result<()> {
        let generation = self.generation(disk);
        let lease = Lease { disk, role, generation, ordinal };
        let leased = self.tables.lease(&self.file, segments, lease);
        self.note(leased).context("cannot lease flash for the cache")
    }

    fn segments_for(&self, bytes: u64) -> usize {
        bytes.div_ceil(self.geometry().segment_size()) as usize
    }

    /// Where segments are, of which at most `bytes` are used.
    fn areas(&self, segments: &[SegmentId], bytes: u64) -> Vec<Area> {
        let geometry = self.geometry();
        let mut left = bytes & !(PAGE - 1);
        let rows = segments.chunk_by(|a, b| a.0 + 1 == b.0);
        let area = |row: &[SegmentId]| {
            let len = left.min(row.len() as u64 * geometry.segment_size());
            left -= len;
            Area { offset: geometry.segment_offset(row[0]), len }
        };
        rows.map(area).collect()
    }
}

fn is_row(segments: &[SegmentId]) -> bool {
    segments.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0)
}
