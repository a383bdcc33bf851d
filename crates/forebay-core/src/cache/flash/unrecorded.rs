//! What of the flash tier is not recorded yet, as the cache index sees it.

use super::changes::Changes;
use super::tier::BusySlot;
use crate::cache::directory::Directory;
use crate::cache::stale::Stale;
use crate::geometry::GranuleMask;
use crate::ids::{BlockIndex, SlotId};

/// See the module.
pub(crate) struct Unrecorded<'a> {
    pub(super) dir: &'a mut Directory,
    pub(super) checksums: &'a [u32],
    pub(super) granules: u32,
    pub(super) busy: &'a [BusySlot],
    pub(super) changes: &'a mut Changes,
    pub(super) stale: &'a Stale,
    /// Slots that are to be empty ahead.
    pub(super) reserve: u32,
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    pub block: BlockIndex,
    /// Not none.
    pub valid: GranuleMask,
    /// It was used since it came.
    pub referenced: bool,
    /// Of all granules of the slot.
    pub checksums: &'a [u32],
}

impl Unrecorded<'_> {
    /// Bytes of memory for the list of changed slots.
    pub(crate) fn memory_bytes() -> u64 {
        Changes::memory_bytes()
    }

    /// Changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.count
    }

    /// How many of them are made.
    pub(crate) fn recordable(&self) -> u64 {
        self.stale.recordable(self.changes.count)
    }

    /// True while blocks are stale: more changes will come.
    pub(crate) fn has_stale(&self) -> bool {
        !self.stale.is_empty()
    }

    /// True when a slot that lost its block is not recorded.
    pub(crate) fn has_retired(&self) -> bool {
        self.dir.has_retired()
    }

    /// True when a slot is listed as changed.
    pub(crate) fn has_changed(&self) -> bool {
        self.changes.first().is_some()
    }

    /// True when the list of changed slots should not become longer.
    pub(crate) fn are_many(&self) -> bool {
        self.changes.are_many()
    }

    /// True when fills will soon find no slot that is known to be empty.
    pub(crate) fn is_short_of_slots(&self) -> bool {
        self.dir.spare().0 * 2 <= self.reserve && self.has_retired()
    }

    /// Granules of a block.
    pub(crate) fn granules(&self) -> u32 {
        self.granules
    }

    /// True when every slot is empty, which one record can say of all of them: then they are recorded.
    pub(crate) fn take_emptied(&mut self) -> bool {
        let was_emptied = std::mem::take(&mut self.changes.emptied);
        let is_empty = was_emptied || self.dir.is_empty() && self.dir.has_retired();
        if is_empty {
            self.dir.record_all_retired();
        }
        is_empty
    }

    /// Slots that lost their block and are read or written.
    pub(crate) fn homeless(&self) -> impl Iterator<Item = SlotId> {
        let homeless = |busy: &&BusySlot| self.dir.block_of(busy.slot).is_none();
        self.busy.iter().filter(homeless).map(|busy| busy.slot)
    }

    /// The next slot that lost its block, to record.
    pub(crate) fn next_retired(&mut self) -> Option<SlotId> {
        self.dir.record_retired()
    }

    /// The next slot that changed, and how many granules it holds; it stays listed.
    pub(crate) fn first_changed(&self) -> Option<(SlotId, u32)> {
        let slot = self.changes.first()?;
        Some((slot, self.dir.valid(slot).count()))
    }

    /// The next slot that changed is recorded.
    pub(crate) fn pass_changed(&mut self) {
        self.changes.next();
    }

    /// What a slot holds, if anything: of a hollow block nothing. There may be fewer slots than the index has places for.
    pub(crate) fn held(&self, slot: SlotId) -> Option<Held<'_>> {
        if slot.0 >= self.dir.slots() {
            return None;
        }
        let valid = self.dir.valid(slot);
        let block = self.dir.block_of(slot).filter(|_| !valid.is_empty())?;
        let base = slot.0 as usize * self.granules as usize;
        let checksums = &self.checksums[base..base + self.granules as usize];
        Some(Held { block, valid, referenced: self.dir.is_referenced(slot), checksums })
    }
}
