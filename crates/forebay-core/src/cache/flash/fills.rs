//! Blocks on their way to flash: copies in staging memory, written run by run, that nobody waits for.
//!
//! ```text
//!  offer ──copy──► staging ──► todo ──write──► writing ──ended well──► valid in the directory
//!                     ▲          │ more granules join while the block is under way
//!                     └──────────┘        a newer write cancels: they never become valid
//! ```
//! A block is under way once at most; what is offered of it meanwhile joins. At most [`WRITES_MAX`] writes are at the
//! device, so that reads of flash do not wait behind a burst of fills. The others wait with their staging, which may take
//! up to half of the request buffers: a burst as large as that is kept, whatever the device bears.
//!
//! **Invariants:** a granule becomes valid after its write ended well and only if nothing newer was written meanwhile.
//! Memory that the device reads from does not change. A fill has one write at the device, or stands in `waiting`.
//! Its slot is taken when its first write begins; while none is free, fills wait for the index to record that some are.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use super::{BlockBytes, Flash};
use crate::action::{Action, Buffer, Event, IoOp, Target};
use crate::cache::lookup::SlotRun;
use crate::cache::streams::Streams;
use crate::cx::io::IoKind;
use crate::cx::{Cx, buffer_span};
use crate::geometry::{GranuleMask, PAGE};
use crate::ids::{BlockIndex, SlotId};
use crate::status::IoStatus;
use crate::table::{Key, Table};

/// Blocks under way at most.
const FILLS_MAX: u32 = 4096;
/// Writes of fills at the device at most.
pub(crate) const WRITES_MAX: u32 = 32;

/// A block on its way to flash, from a copy of its bytes.
#[derive(Clone, Copy, Debug)]
struct FlashFill {
    block: BlockIndex,
    /// Where it goes; none: a new slot, taken when the write begins.
    slot: Option<SlotId>,
    /// Laid out like the block.
    staging: Buffer,
    /// Granules still to write.
    todo: GranuleMask,
    /// Granules being written.
    writing: GranuleMask,
    /// Granules whose bytes became old meanwhile; all: nothing may join any more.
    cancelled: GranuleMask,
    /// The directory does not know the block yet.
    is_new: bool,
}

/// See the module.
#[derive(Debug)]
pub(in crate::cache) struct FlashFills {
    table: Table<FlashFill>,
    of_block: HashMap<BlockIndex, Key, BuildHasherDefault<DefaultHasher>>,
    /// Fills whose next write has no place at the device yet, oldest first.
    waiting: VecDeque<Key>,
    /// Writes at the device.
    writes: u32,
}

impl FlashFills {
    pub(super) fn new() -> FlashFills {
        let places = FILLS_MAX as usize;
        FlashFills {
            table: Table::new(FILLS_MAX),
            // Twice, so that it never grows: what was removed takes room until it is tidied up.
            of_block: HashMap::with_capacity_and_hasher(places * 2, Default::default()),
            waiting: VecDeque::with_capacity(places),
            writes: 0,
        }
    }

    /// Writes at the device.
    pub(in crate::cache) fn writes(&self) -> u32 {
        self.writes
    }

    /// What is under way of the blocks that `is_old` names must not become valid.
    pub(in crate::cache) fn cancel_all(&mut self, is_old: impl Fn(BlockIndex) -> bool) {
        for fill in self.table.iter_mut().filter(|fill| is_old(fill.block)) {
            fill.cancelled = GranuleMask::ALL;
        }
    }

    /// What is under way to slots from `end` on must not become valid.
    pub(in crate::cache) fn cancel_from(&mut self, end: SlotId) {
        let is_leaving = |fill: &&mut FlashFill| fill.slot.is_some_and(|slot| slot >= end);
        for fill in self.table.iter_mut().filter(is_leaving) {
            fill.cancelled = GranuleMask::ALL;
        }
    }

    /// Granules `mask` of `block` are old: what is on its way to flash must not become valid.
    pub(in crate::cache) fn cancel(&mut self, block: BlockIndex, mask: GranuleMask) {
        if let Some(&key) = self.of_block.get(&block) {
            let fill = &mut self.table[key];
            fill.cancelled = fill.cancelled.union(mask);
        }
    }

    /// Adds granules to a block that is under way.
    fn join(&mut self, key: Key, wanted: GranuleMask, bytes: BlockBytes, cx: &mut Cx<'_>) {
        let fill = &mut self.table[key];
        let current = fill.todo.union(fill.writing).without(fill.cancelled);
        let missing = wanted.without(current);
        // The device still reads old bytes of these.
        let busy = missing.intersect(fill.writing);
        let joins = missing.without(busy);
        if !busy.is_empty() || (fill.cancelled == GranuleMask::ALL && !missing.is_empty()) {
            cx.counters.flash_fills_skipped_busy += 1;
        }
        if fill.cancelled == GranuleMask::ALL || joins.is_empty() {
            return;
        }
        fill.todo = fill.todo.union(joins);
        fill.cancelled = fill.cancelled.without(joins);
        stage(fill.block, fill.staging, joins, bytes, cx);
    }

    fn insert(&mut self, fill: FlashFill) -> Key {
        let key = self.table.insert(fill);
        let before = self.of_block.insert(fill.block, key);
        assert!(before.is_none(), "a block is under way once");
        key
    }

    fn remove(&mut self, key: Key) -> FlashFill {
        let fill = self.table.remove(key);
        self.of_block.remove(&fill.block);
        fill
    }

    pub(super) fn check_invariants(&self) {
        assert_eq!(self.table.len(), self.of_block.len());
        assert_eq!(self.table.len(), self.writes as usize + self.waiting.len());
        assert!(self.writes <= WRITES_MAX);
        for (key, fill) in self.table.iter() {
            assert_eq!(self.of_block.get(&fill.block), Some(&key));
            assert!(fill.todo.intersect(fill.writing).is_empty(), "{fill:?}");
        }
    }
}

impl Flash {
    /// Sends granules `wanted` of `block` here: into its slot `present`, or a new one.
    pub(super) fn fill(
        &mut self,
        block: BlockIndex,
        present: Option<SlotId>,
        wanted: GranuleMask,
        bytes: BlockBytes,
        streams: &mut Streams,
        cx: &mut Cx<'_>,
    ) {
        if let Some(&key) = self.fills.of_block.get(&block) {
            return self.fills.join(key, wanted, bytes, cx);
        }
        if self.fills.table.is_full() {
            cx.counters.flash_fills_skipped_staging += 1;
            return;
        }
        let Some(staging) = take_staging(block, cx) else {
            cx.counters.flash_fills_skipped_staging += 1;
            return;
        };
        if let Some(slot) = present {
            self.tier.hold(slot);
        }
        stage(block, staging, wanted, bytes, cx);
        let key = self.fills.insert(FlashFill {
            block,
            slot: present,
            staging,
            todo: wanted,
            writing: GranuleMask::NONE,
            cancelled: GranuleMask::NONE,
            is_new: present.is_none(),
        });
        self.fills.waiting.push_back(key);
        self.write_waiting(streams, cx);
    }

    /// Starts writes of fills that wait: as many as the device is given at once, and as there are slots for.
    pub(in crate::cache) fn write_waiting(&mut self, streams: &mut Streams, cx: &mut Cx<'_>) {
        while self.fills.writes < WRITES_MAX
            && let Some(&key) = self.fills.waiting.front()
        {
            if !self.write_next_run(key, streams, cx) {
                return;
            }
            self.fills.waiting.pop_front();
        }
    }

    /// Starts the write of the next run of granules, or ends the fill when none is left. False: it waits for a slot.
    fn write_next_run(&mut self, key: Key, streams: &mut Streams, cx: &mut Cx<'_>) -> bool {
        let fill = &mut self.fills.table[key];
        fill.todo = fill.todo.without(fill.cancelled);
        let next = fill.todo.first_run();
        let Some((first, end)) = next.filter(|_| self.is_working()) else {
            self.end_fill(key, cx);
            return true;
        };
        let Some(slot) = self.slot_of_fill(key, streams, cx) else {
            let awaits_slot = self.tier.awaits_slot();
            if !awaits_slot {
                // All slots are in use, or bad: who knows for how long.
                cx.counters.flash_fills_skipped_slots += 1;
                self.end_fill(key, cx);
            }
            return !awaits_slot;
        };
        let fill = &mut self.fills.table[key];
        fill.writing = GranuleMask::span(first, end);
        fill.todo = fill.todo.without(fill.writing);
        let granule = cx.grid.granule_size();
        let range = self.tier.range(slot, first, end, granule);
        let memory = fill.staging.span.part(u64::from(first) * granule, range.len());
        let to = SlotRun { block: fill.block, slot, first, end };
        self.fills.writes += 1;
        cx.counters.flash_writes += 1;
        cx.counters.flash_write_bytes += range.len();
        let op = IoOp::Write { memory, durable: false };
        cx.start(Target::Flash, range, op, IoKind::Fill { fill: key, to });
        true
    }

    /// The slot of a fill, a new one if it has none; `None`: none is free now.
    fn slot_of_fill(&mut self, key: Key, streams: &mut Streams, cx: &mut Cx<'_>) -> Option<SlotId> {
        let fill = &mut self.fills.table[key];
        if fill.slot.is_none() {
            let (slot, evicted) = self.tier.take_slot(|victim| streams.note_left(&victim));
            cx.counters.flash_evicted += u64::from(evicted);
            cx.counters.evict_ops += u64::from(evicted > 0);
            cx.counters.flash_admitted += u64::from(slot.is_some());
            fill.slot = slot;
            self.tier.hold(slot?);
        }
        fill.slot
    }

    fn end_fill(&mut self, key: Key, cx: &mut Cx<'_>) {
        let fill = self.fills.remove(key);
        if let Some(slot) = fill.slot {
            self.tier.unhold(slot);
        }
        cx.free_buffer(fill.staging);
    }

    /// A run of granules was written, or not.
    pub(in crate::cache) fn end_write(
        &mut self,
        (key, to): (Key, SlotRun),
        status: IoStatus,
        checksums: &[u32],
        streams: &mut Streams,
        cx: &mut Cx<'_>,
    ) {
        let SlotRun { block, slot, first, end } = to;
        self.fills.writes -= 1;
        let fill = &mut self.fills.table[key];
        if !status.is_ok() {
            (fill.todo, fill.cancelled) = (GranuleMask::NONE, GranuleMask::ALL);
            self.tier.mark_bad(slot);
            cx.counters.flash_slots_quarantined += 1;
            let offset = u64::from(slot.0) * cx.grid.block_size();
            cx.event(Event::SlotQuarantined { offset });
        } else if self.tier.failed.is_none() {
            assert_eq!(checksums.len() as u32, end - first, "one checksum per granule");
            for (granule, &checksum) in (first..end).zip(checksums) {
                self.tier.store_checksum(slot, granule, checksum);
            }
            let valid = fill.writing.without(fill.cancelled);
            // Its slot may have been evicted, and its block may even be in another slot by now.
            match self.tier.dir.find(block) {
                _ if valid.is_empty() => {}
                Some(found) if found == slot => {
                    self.tier.dir.validate(slot, valid);
                    self.tier.note_claim(slot);
                }
                None if fill.is_new => {
                    self.tier.dir.insert(slot, block, valid);
                    self.tier.note_claim(slot);
                    fill.is_new = false;
                }
                Some(_) | None => fill.todo = GranuleMask::NONE,
            }
        }
        fill.writing = GranuleMask::NONE;
        self.fills.waiting.push_back(key);
        self.write_waiting(streams, cx);
    }

    /// Ends the fills that wait: the tier is given up, or nothing is recorded any more.
    pub(in crate::cache) fn end_waiting(&mut self, cx: &mut Cx<'_>) {
        while let Some(key) = self.fills.waiting.pop_front() {
            self.end_fill(key, cx);
        }
    }
}

/// Copies granules of a block into staging memory.
fn stage(
    block: BlockIndex,
    staging: Buffer,
    mask: GranuleMask,
    bytes: BlockBytes,
    cx: &mut Cx<'_>,
) {
    for (first, end) in mask.runs() {
        let range = cx.grid.granule_range(block, first, end);
        let offset = cx.grid.offset_in_block(range.start);
        let from = bytes.at(range, offset);
        cx.push(Action::Copy { from, to: staging.span.part(offset, range.len()) });
    }
}

/// Memory laid out like `block`, within the share of the buffers that fills may use.
fn take_staging(block: BlockIndex, cx: &mut Cx<'_>) -> Option<Buffer> {
    let pages = (cx.grid.block_size() / PAGE) as u32;
    if cx.buffers.pages_free() < cx.buffers.pages() / 2 + pages {
        return None;
    }
    let first = cx.buffers.take(pages)?;
    let span = buffer_span(first, cx.grid.block_size());
    Some(Buffer { span, window: cx.grid.range_of(block) })
}
