//! Bytes on their way into the cache: into RAM by a copy, from there (or from a request's buffer,
//! without a RAM tier) to flash by an I/O that nobody waits for.
//!
//! ```text
//!  fetched or written bytes ──copy──► RAM slot ──evicted──► history? ──copy──► staging ──I/O──► flash slot
//!                                                              └─ no: remembered only
//! ```
//! What is in the log and not on primary storage waits for the destager, which offers it from its own memory
//! (`destage/keep.rs`).
//!
//! **Invariants:** a granule becomes valid only with bytes that are the newest: the caller holds the
//! range in the overlap table, and a write that completes cancels what is on its way to flash. A
//! flash granule becomes valid after its write ended well, never before. At most one fill per block
//! is under way. What finds no slot, no staging buffer or no place in the table is skipped and
//! counted; a reply never waits for any of this.

use super::Engine;
use super::inflight::{FlashFill, IoKind};
use crate::action::{Action, Actions, Buffer, Event, IoOp, Target};
use crate::config::FlashAdmission;
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::{BlockIndex, Nanos, Sequence, SlotId};
use crate::log::index::LogIndex;
use crate::status::IoStatus;
use crate::table::Key;

/// Evictions tried for one fill before it is given up: more than one only when slots are pinned.
const EVICT_TRIES: u32 = 8;

/// Where the bytes of a block are.
#[derive(Clone, Copy)]
pub(super) enum BlockBytes {
    /// In a RAM slot.
    Slot(SlotId),
    /// In a request's buffer.
    Buffer(Buffer),
}

impl Engine {
    /// Puts the granules that `range` covers, fetched into `buffer`, into the cache.
    pub(super) fn install(
        &mut self,
        now: Nanos,
        range: ByteRange,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        for block in self.grid.blocks(range) {
            let covered = self.grid.covered(block, range);
            if covered.is_empty() || self.stale.has(block) {
                continue;
            }
            if self.ram.is_some() {
                self.fill_ram(now, block, covered, buffer, actions);
            } else {
                let bytes = BlockBytes::Buffer(buffer);
                self.offer_to_flash(now, block, covered, false, bytes, actions);
            }
        }
    }

    /// Puts granules of `block` that RAM does not have yet into its slot, a new one if need be.
    fn fill_ram(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        mask: GranuleMask,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        let found = self.ram.as_ref().and_then(|ram| ram.dir.find(block));
        let Some(slot) = found.or_else(|| self.take_ram_slot(now, actions)) else {
            self.counters.ram_fills_skipped += 1;
            return;
        };
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        let missing = match found {
            Some(_) => mask.without(ram.dir.valid(slot)),
            None => mask,
        };
        self.copy_to_ram(block, slot, missing, buffer, actions);
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        match found {
            Some(_) if missing.is_empty() => {}
            Some(_) => ram.dir.validate(slot, missing),
            None => {
                self.counters.ram_filled += 1;
                ram.dir.insert(slot, block, missing);
            }
        }
    }

    /// Copies granules `mask` of `block` from a request's buffer to a RAM slot.
    pub(super) fn copy_to_ram(
        &self,
        block: BlockIndex,
        slot: SlotId,
        mask: GranuleMask,
        buffer: Buffer,
        actions: &mut Actions,
    ) {
        let ram = self.ram.as_ref().expect("there is a RAM tier");
        for (first, end) in runs(mask) {
            let range = self.grid.granule_range(block, first, end);
            let to = ram.memory(slot, self.grid.offset_in_block(range.start), range.len());
            actions.list.push(Action::Copy { from: buffer.at(range), to });
        }
    }

    /// A RAM slot for a new block, evicting when none is free; `None` when all are pinned.
    pub(super) fn take_ram_slot(&mut self, now: Nanos, actions: &mut Actions) -> Option<SlotId> {
        let ram = self.ram.as_mut()?;
        if let Some(slot) = ram.dir.take_free() {
            return Some(slot);
        }
        self.counters.evict_ops += 1;
        for _ in 0..EVICT_TRIES {
            let ram = self.ram.as_mut()?;
            let victim = ram.dir.evict()?;
            self.counters.ram_evicted += 1;
            let bytes = BlockBytes::Slot(victim.slot);
            let (block, valid) = (victim.block, victim.valid);
            self.offer_to_flash(now, block, valid, victim.referenced, bytes, actions);
            let ram = self.ram.as_mut()?;
            if !ram.is_pinned(victim.slot) {
                return Some(victim.slot);
            }
            ram.retire(victim.slot);
        }
        None
    }

    /// Sends granules of `block` to flash if its history says so.
    pub(super) fn offer_to_flash(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        mask: GranuleMask,
        referenced: bool,
        bytes: BlockBytes,
        actions: &mut Actions,
    ) {
        let logged = self.undestaged_granules(block);
        let Some(flash) = self.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        if !mask.is_empty() && logged.contains(mask) {
            // The destager offers it again.
            if referenced && !flash.dir.remembers(block) {
                flash.dir.remember(block);
            }
            return;
        }
        let wanted = referenced || self.config.flash_admission == FlashAdmission::Always;
        self.offer_current(now, block, mask.without(logged), wanted, bytes, actions);
    }

    /// The same for granules of which the log holds nothing that is not on primary storage. `wanted`: whatever the
    /// history of the block on flash says.
    pub(super) fn offer_current(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        mask: GranuleMask,
        wanted: bool,
        bytes: BlockBytes,
        actions: &mut Actions,
    ) {
        let mask = mask.intersect(self.whole_granules(block));
        let Some(flash) = self.flash.as_mut().filter(|flash| flash.failed.is_none()) else {
            return;
        };
        if self.stale.has(block) {
            return;
        }
        let present = flash.find(block);
        let missing = mask.without(present.map_or(GranuleMask::NONE, |(_, valid)| valid));
        if missing.is_empty() {
            return;
        }
        if !wanted && present.is_none() && !flash.dir.remembers(block) {
            flash.dir.remember(block);
            self.counters.flash_refused += 1;
            return;
        }
        if !self.start_flash_fill(now, block, present.map(|p| p.0), missing, bytes, actions) {
            self.counters.flash_fills_skipped += 1;
        }
    }

    /// Granules of `block` of which the log holds something.
    pub(super) fn logged_granules(&self, block: BlockIndex) -> GranuleMask {
        self.granules_in_log(block, |index, range| index.touches(range))
    }

    /// Granules of `block` of which the log holds something that primary storage has not, or of a request that is not
    /// durable to its end: a loss of what is not durable would leave it on flash alone, and the rest may be overwritten
    /// before it is destaged.
    fn undestaged_granules(&self, block: BlockIndex) -> GranuleMask {
        let done = self.destager.as_ref().map_or(Sequence(0), |destager| destager.done());
        let done = self.log.as_ref().map_or(done, |log| done.min(log.durable_whole()));
        self.granules_in_log(block, |index, range| index.touches_after(range, done))
    }

    fn granules_in_log(
        &self,
        block: BlockIndex,
        is_in: impl Fn(&LogIndex, ByteRange) -> bool,
    ) -> GranuleMask {
        let Some(log) = self.log.as_ref().filter(|log| !log.index.is_empty()) else {
            return GranuleMask::NONE;
        };
        let mut mask = GranuleMask::NONE;
        for granule in 0..self.grid.granules_per_block() {
            let range = self.grid.granule_range(block, granule, granule + 1);
            if is_in(&log.index, range) {
                mask = mask.union(GranuleMask::span(granule, granule + 1));
            }
        }
        mask
    }

    /// Granules of `block` that lie wholly on the disk.
    fn whole_granules(&self, block: BlockIndex) -> GranuleMask {
        let range = self.grid.range_of(block);
        let granule = self.grid.granule_size();
        let first = self.grid.offset_in_block(range.start).div_ceil(granule);
        let end = (self.grid.offset_in_block(range.start) + range.len()) / granule;
        GranuleMask::span(first as u32, (end as u32).max(first as u32))
    }

    fn start_flash_fill(
        &mut self,
        now: Nanos,
        block: BlockIndex,
        present: Option<SlotId>,
        wanted: GranuleMask,
        bytes: BlockBytes,
        actions: &mut Actions,
    ) -> bool {
        if self.fills.is_full() || self.fills.iter().any(|(_, fill)| fill.block == block) {
            return false;
        }
        let Some(staging) = self.take_staging(block) else { return false };
        let flash = self.flash.as_mut().expect("there is a flash tier");
        let slot = match present {
            Some(slot) => Some(slot),
            None => {
                let (slot, evicted) = flash.take_slot();
                self.counters.flash_evicted += u64::from(evicted);
                self.counters.evict_ops += u64::from(evicted > 0);
                slot
            }
        };
        let Some(slot) = slot else {
            self.free_buffer(staging);
            return false;
        };
        flash.hold(slot);
        for (first, end) in runs(wanted) {
            let range = self.grid.granule_range(block, first, end);
            let offset = self.grid.offset_in_block(range.start);
            let from = match bytes {
                BlockBytes::Buffer(buffer) => buffer.at(range),
                BlockBytes::Slot(slot) => {
                    let ram = self.ram.as_ref().expect("there is a RAM tier");
                    ram.memory(slot, offset, range.len())
                }
            };
            actions.list.push(Action::Copy { from, to: staging.span.part(offset, range.len()) });
        }
        let (writing, cancelled) = (GranuleMask::NONE, GranuleMask::NONE);
        let fresh = present.is_none();
        let fill = FlashFill { block, slot, staging, todo: wanted, writing, cancelled, fresh };
        let key = self.fills.insert(fill);
        self.counters.flash_admitted += u64::from(present.is_none());
        self.write_next_run(now, key, actions);
        true
    }

    /// Memory laid out like `block`, within the share of the buffers that fills may use.
    fn take_staging(&mut self, block: BlockIndex) -> Option<Buffer> {
        let pages = (self.grid.block_size() / crate::geometry::PAGE) as u32;
        if self.buffers.pages_free() < self.buffers.pages() / 2 + pages {
            return None;
        }
        let first = self.buffers.take(pages)?;
        let span = super::memory::buffer_span(first, self.grid.block_size());
        Some(Buffer { span, window: self.grid.range_of(block) })
    }

    /// Starts the write of the next run of granules, or ends the fill when none is left.
    fn write_next_run(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        let fill = &mut self.fills[key];
        fill.todo = fill.todo.without(fill.cancelled);
        let flash = self.flash.as_mut().expect("there is a flash tier");
        let run = fill.todo.first_run().filter(|_| flash.failed.is_none());
        let Some((first, end)) = run else {
            let fill = self.fills.remove(key).expect("the fill is there");
            flash.unhold(fill.slot);
            self.free_buffer(fill.staging);
            return;
        };
        fill.writing = GranuleMask::span(first, end);
        fill.todo = fill.todo.without(fill.writing);
        let granule = self.grid.granule_size();
        let range = flash.range(fill.slot, first, end, granule);
        let memory = fill.staging.span.part(u64::from(first) * granule, range.len());
        self.counters.flash_writes += 1;
        self.counters.flash_write_bytes += range.len();
        let kind = IoKind::FlashFill { fill: key };
        self.start_io(
            now,
            Target::Flash,
            range,
            IoOp::Write { memory, durable: false },
            kind,
            actions,
        );
    }

    /// A run of granules is on flash, or not.
    pub(super) fn on_flash_fill(
        &mut self,
        now: Nanos,
        key: Key,
        status: IoStatus,
        checksums: &[u32],
        actions: &mut Actions,
    ) {
        let fill = &mut self.fills[key];
        let flash = self.flash.as_mut().expect("there is a flash tier");
        if let Some(ring) = &mut self.ring {
            ring.note_fill();
        }
        if !status.is_ok() {
            fill.todo = GranuleMask::NONE;
            let slot = fill.slot;
            flash.mark_bad(slot);
            self.counters.flash_slots_quarantined += 1;
            let offset = u64::from(slot.0) * self.grid.block_size();
            actions.list.push(Action::Event(Event::SlotQuarantined { offset }));
        } else if flash.failed.is_none() {
            let (first, end) = fill.writing.first_run().expect("a run was written");
            assert_eq!(checksums.len() as u32, end - first, "one checksum per granule");
            for (granule, &checksum) in (first..end).zip(checksums) {
                flash.store_checksum(fill.slot, granule, checksum);
            }
            let valid = fill.writing.without(fill.cancelled);
            // Its slot may have been evicted, and its block may even be in another slot by now.
            match flash.dir.find(fill.block) {
                _ if valid.is_empty() => {}
                Some(slot) if slot == fill.slot => {
                    flash.dir.validate(slot, valid);
                    flash.note_claim(slot);
                }
                Some(_) => fill.todo = GranuleMask::NONE,
                None if fill.fresh => {
                    flash.dir.insert(fill.slot, fill.block, valid);
                    flash.note_claim(fill.slot);
                    fill.fresh = false;
                }
                None => fill.todo = GranuleMask::NONE,
            }
        }
        self.write_next_run(now, key, actions);
    }

    /// Granules `mask` of `block` are old: what is on its way to flash must not become valid.
    pub(super) fn cancel_fills(&mut self, block: BlockIndex, mask: GranuleMask) {
        for fill in self.fills.iter_mut().filter(|fill| fill.block == block) {
            fill.cancelled = fill.cancelled.union(mask);
        }
    }
}

/// The runs of neighbouring granules of a mask, lowest first.
pub(super) fn runs(mut mask: GranuleMask) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        let (first, end) = mask.first_run()?;
        mask = mask.without(GranuleMask::span(first, end));
        Some((first, end))
    })
}
