//! Which records are destaged together, and in which order their pages are written.

use crate::config::DestageOrder;
use crate::cx::Cx;
use crate::geometry::ByteRange;
use crate::ids::{FlushEpoch, Nanos, Sequence};
use crate::journal::{UNFLUSHED, WINDOW_PAGES_MAX, window_pages};
use crate::write_back::WriteBack;
use crate::write_back::format::GROUP_PAGES_MAX;
use crate::write_back::format::index::{PageGrid, PageIndex, Place, SectorMask, ZeroRecord};
use crate::write_back::log::segments::Position;

use super::journal::Way;
use super::{Drive, Mark};

/// Zero records of a batch at most: each is compared with every page.
const ZEROES_MAX: usize = 64;

/// One data page of the log, and which of its sectors are to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub page: PageIndex,
    pub place: Place,
    pub sectors: SectorMask,
    sequence: Sequence,
    /// Primary storage has it.
    is_done: bool,
}

#[cfg(test)]
impl Item {
    pub(super) fn of(page: PageIndex, sectors: SectorMask) -> Item {
        Item { page, place: Place(0), sectors, sequence: Sequence(1), is_done: false }
    }
}

/// Where a batch is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// Primary storage.
    Place,
    /// The journal, before it goes there.
    Journal,
}

/// Records to collect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records {
    /// The first may be here.
    pub from: Position,
    /// They come after this one.
    pub after: Sequence,
    /// Up to this one.
    pub limit: Sequence,
    /// And up to this epoch.
    pub last_epoch: FlushEpoch,
    /// Data pages before them.
    pub pages: u64,
    /// All of them, however many.
    pub all: bool,
}

/// A zero record of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct ZeroItem {
    pub range: ByteRange,
    pub may_unmap: bool,
    sequence: Sequence,
}

/// What a batch is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is none.
    None,
    /// Zeroes, one record after the other.
    Zeroes,
    /// Pages.
    Pages,
}

#[derive(Debug)]
pub(super) struct Batch {
    phase: Phase,
    /// When it began.
    pub(super) began: Nanos,
    items: Items,
    zeroes: Zeroes,
    limit: Sequence,
    /// The newest record that it overwrites something of, as far as the log may still have that.
    pub(super) overwrites: Sequence,
    end: Mark,
    /// It has records of several flush epochs.
    is_mixed: bool,
    failed: bool,
    /// Batches that may be unflushed.
    unflushed: u32,
    count: Count,
}

/// The pages of a batch.
#[derive(Debug)]
struct Items {
    /// Sorted by page.
    list: Vec<Item>,
    next: usize,
    max: usize,
}

/// The zero records of a batch.
#[derive(Debug)]
struct Zeroes {
    list: Vec<ZeroItem>,
    next: usize,
    /// Up to where the zero record under way is done.
    cursor: u64,
}

/// Items of the batch, and how many of them are done.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    ever: u64,
    done: u64,
}

impl Batch {
    /// Of a log with so many pages, whose batches go through a journal.
    pub(super) fn journaled(places: u32) -> Batch {
        let mut batch = Batch { unflushed: UNFLUSHED, ..Batch::new(places) };
        batch.items.max = window_pages(places.into()) as usize;
        batch
    }

    pub(super) fn new(places: u32) -> Batch {
        // A batch is an eighth of the log at most; what is written again after a lost session, a quarter. To collect
        // what a large log has at once would hold up all disks of the shard.
        let again_max = (places as usize / 4).max(16);
        let max = (again_max / 2).min(WINDOW_PAGES_MAX as usize);
        Batch {
            phase: Phase::None,
            began: Nanos(0),
            items: Items {
                // A record is not divided.
                list: Vec::with_capacity(again_max + GROUP_PAGES_MAX as usize),
                next: 0,
                max,
            },
            zeroes: Zeroes { list: Vec::with_capacity(ZEROES_MAX), next: 0, cursor: 0 },
            limit: Sequence(0),
            overwrites: Sequence(0),
            end: Mark::default(),
            is_mixed: false,
            failed: false,
            unflushed: (again_max / max) as u32,
            count: Count::default(),
        }
    }

    /// What is written again at once may have so many zero records.
    pub(super) fn expect_zeroes(&mut self, zeroes: usize) {
        self.zeroes.list.reserve(zeroes);
    }

    pub(super) fn is_active(&self) -> bool {
        self.phase != Phase::None
    }

    pub(super) fn limit(&self) -> Sequence {
        self.limit
    }

    /// True while primary storage may have a part of what several epochs wrote.
    pub(super) fn mixes_epochs(&self) -> bool {
        self.is_active() && self.is_mixed
    }

    /// Where it ends.
    pub(super) fn end(&self) -> Mark {
        self.end
    }

    pub(super) fn fail(&mut self) {
        self.failed |= self.is_active();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Something of it has not been started.
    pub(super) fn has_more(&self) -> bool {
        !self.failed
            && (self.zeroes.next < self.zeroes.list.len()
                || self.items.next < self.items.list.len())
    }

    /// Of the pages from its begin to its end, those that stand for the items that are done.
    pub(super) fn part_done(&self, end: u64, begin: u64) -> u64 {
        let pages = end.saturating_sub(begin);
        (pages * self.count.done).checked_div(self.count.ever).unwrap_or(0)
    }

    /// Items of a batch at most. Where writers wait for room, what is done and not free yet is room, too.
    fn items_max(&self, is_throttled: bool) -> usize {
        if is_throttled { (self.items.max / 2).max(1) } else { self.items.max }
    }

    /// Pages that may be written but not flushed at any time.
    pub(super) fn unflushed_max(&self) -> u64 {
        u64::from(self.unflushed) * self.items.max as u64
    }

    /// The zero records.
    pub(super) fn zeroes(&self) -> &[ZeroItem] {
        &self.zeroes.list
    }

    /// Its pages.
    pub(super) fn len(&self) -> usize {
        self.items.list.len()
    }

    /// So much of it is done that what follows should be there soon.
    pub(super) fn is_half_done(&self) -> bool {
        self.count.done * 2 >= self.count.ever
    }

    /// Pages of a batch, unless one of its records is the last that fits.
    pub(super) fn pages_max(&self) -> u64 {
        self.items.max as u64
    }

    /// The zero record to do now, from where it is to go on.
    pub(super) fn zero(&self) -> Option<(ZeroItem, u64)> {
        let list = (self.phase == Phase::Zeroes).then_some(&self.zeroes.list)?;
        let zero = list.get(self.zeroes.next)?;
        Some((*zero, self.zeroes.cursor.max(zero.range.start)))
    }

    /// The zero record is done up to `cursor`.
    pub(super) fn advance_zero(&mut self, cursor: u64) {
        self.zeroes.cursor = cursor;
        if cursor >= self.zeroes.list[self.zeroes.next].range.end {
            self.zeroes.next += 1;
            self.zeroes.cursor = 0;
        }
        if self.zeroes.next == self.zeroes.list.len() {
            self.phase = Phase::Pages;
        }
    }

    /// The items that are not started.
    pub(super) fn rest(&self) -> &[Item] {
        &self.items.list[self.items.next..]
    }

    pub(super) fn advance(&mut self, items: usize) {
        self.items.next += items;
    }

    pub(super) fn item(&self, index: usize) -> Item {
        self.items.list[index]
    }

    pub(super) fn next(&self) -> usize {
        self.items.next
    }

    pub(super) fn start(&mut self) {
        (self.items.next, self.zeroes.next, self.zeroes.cursor, self.failed) = (0, 0, 0, false);
        (self.count.ever, self.count.done) = (self.items.list.len() as u64, 0);
        self.phase = if self.zeroes.list.is_empty() { Phase::Pages } else { Phase::Zeroes };
    }

    /// Primary storage has these items.
    pub(super) fn note_done(&mut self, (first, count): (usize, u32)) {
        for item in &mut self.items.list[first..first + count as usize] {
            item.is_done = true;
        }
        self.count.done += u64::from(count);
    }

    /// Goes on with what is not done, after an error. No run may be under way.
    pub(super) fn retry(&mut self) {
        self.items.list.retain(|item| !item.is_done);
        (self.items.next, self.failed) = (0, false);
    }

    pub(super) fn end_it(&mut self) {
        self.phase = Phase::None;
        self.failed = false;
        self.items.list.clear();
        self.zeroes.list.clear();
        (self.items.next, self.zeroes.next, self.zeroes.cursor) = (0, 0, 0);
        (self.count.ever, self.count.done) = (0, 0);
    }

    /// Sorts, and keeps of each sector the newest bytes only.
    fn reduce(&mut self, grid: PageGrid) {
        let items = &mut self.items.list;
        items.sort_unstable_by_key(|item| (item.page, std::cmp::Reverse(item.sequence)));
        for zero in &self.zeroes.list {
            let pages = grid.page_of(zero.range.start)..=grid.page_of(zero.range.end - 1);
            let first = items.partition_point(|item| item.page < *pages.start());
            let touched = items[first..].iter_mut().take_while(|item| pages.contains(&item.page));
            for item in touched.filter(|item| item.sequence < zero.sequence) {
                item.sectors = item.sectors.without(grid.sectors(item.page, zero.range));
            }
        }
        let mut seen = (PageIndex(u64::MAX), SectorMask::NONE);
        self.items.list.retain_mut(|item| {
            if seen.0 != item.page {
                seen = (item.page, SectorMask::NONE);
            }
            item.sectors = item.sectors.without(seen.1);
            seen.1 = seen.1.union(item.sectors);
            !item.sectors.is_empty()
        });
    }
}

impl WriteBack {
    /// Begins the next batch; false when there is nothing to destage now.
    pub(super) fn begin_batch(&mut self, drive: Drive, cx: &mut Cx<'_>) -> bool {
        if !self.destager.may_start(cx.now) {
            return false;
        }
        match self.way(cx.now) {
            Way::Journal => return self.begin_from_journal(cx),
            Way::Nowhere => return false,
            Way::Direct => {}
        }
        self.note_direct();
        if self.destager.flushes.redo {
            return self.begin_again(To::Place, cx);
        }
        let destager = &self.destager;
        if destager.is_held(cx.now) {
            return false;
        }
        // What the next epoch writes may outlive a loss of power that takes what the last one wrote.
        let has_to_flush =
            self.log.config.barrier && destager.reached.done > destager.reached.flushed;
        if has_to_flush {
            return false;
        }
        let Some((oldest_epoch, records)) = self.next_records(drive, cx.now) else { return false };
        let last_epoch = match self.log.config.order {
            DestageOrder::Strict | DestageOrder::Journaled => oldest_epoch,
            DestageOrder::Window | DestageOrder::Throughput => FlushEpoch(u64::MAX),
        };
        self.collect(To::Place, Records { last_epoch, ..records }, cx.now);
        true
    }

    /// What may be destaged now, behind all that is in a batch, if anything, and the epoch that comes first.
    pub(super) fn next_records(
        &mut self,
        drive: Drive,
        now: Nanos,
    ) -> Option<(FlushEpoch, Records)> {
        let (destager, log) = (&self.destager, &self.log);
        let (after, pages) = destager.taken();
        let from = destager.reached.cursor;
        let taken = from.0.saturating_sub(destager.reached.tail.position.0);
        let unflushed = if destager.batch.is_active() { taken } else { destager.unflushed_pages() };
        let too_much = unflushed + destager.batch.items.max as u64 > destager.batch.unflushed_max();
        if after >= log.reached.written.sequence || too_much {
            return None;
        }
        let oldest_epoch = log.first_epoch_after(from, after)?;
        if !self.may_destage(oldest_epoch, drive, now) {
            return None;
        }
        let limit = self.log.reached.durable.sequence;
        if limit <= after {
            // What is not durable in the log must not be on primary storage: a loss of power would leave
            // it there alone.
            self.log.wants.durable = true;
            return None;
        }
        let last_epoch = FlushEpoch(u64::MAX);
        Some((oldest_epoch, Records { from, after, limit, last_epoch, pages, all: false }))
    }

    /// The epoch under way is left alone for a while, unless the log is filling.
    fn may_destage(&mut self, epoch: FlushEpoch, drive: Drive, now: Nanos) -> bool {
        let log = &self.log;
        let has_ended = epoch < log.epoch() || !log.epoch_is_used();
        let fill = self.fill();
        let is_filling = fill.dirty * 8 >= fill.capacity;
        let is_full = log.index.zeroes_are_full();
        let is_ending = drive.is_draining || drive.is_ending;
        let is_urgent = is_filling || is_full || is_ending || log.health.failed.is_some();
        let (delay, yields) = (log.config.destage_delay, log.config.destage_yield);
        let destager = &mut self.destager;
        if destager.reached.oldest == Nanos::NEVER {
            destager.reached.oldest = now;
        }
        let waited = |time: Nanos| destager.reached.oldest.plus(time) <= now;
        is_urgent || waited(delay) || has_ended && waited(yields)
    }

    /// Everything that may be on primary storage and was not flushed, as one batch.
    pub(super) fn begin_again(&mut self, to: To, cx: &mut Cx<'_>) -> bool {
        let destager = &mut self.destager;
        if !destager.is_at_rest() || destager.hides_a_loss() {
            return false;
        }
        destager.flushes.redo = false;
        destager.flushes.unflushed_since = Nanos::NEVER;
        let (tail, after) = (destager.reached.tail, destager.reached.flushed);
        let limit = destager.perhaps_there();
        let log = &self.log;
        let limit = limit.min(log.reached.durable.sequence);
        if limit <= after {
            return false;
        }
        let destager = &mut self.destager;
        (destager.reached.done, destager.reached.done_mark, destager.reached.cursor) =
            (after, tail, tail.position);
        let (from, pages, last_epoch) = (tail.position, tail.pages, FlushEpoch(u64::MAX));
        self.collect(to, Records { from, after, limit, last_epoch, pages, all: true }, cx.now);
        true
    }

    /// Collects records.
    pub(super) fn collect(&mut self, to: To, records: Records, now: Nanos) {
        let Records { from, after, limit, last_epoch, mut pages, all } = records;
        let is_throttled = self.is_throttled();
        let log = &self.log;
        let destager = &mut self.destager;
        let batch = match to {
            To::Place => &mut destager.batch,
            To::Journal => destager.journal.as_mut().expect("there is one").ahead(),
        };
        batch.end_it();
        destager.hold.stirred += 1;
        batch.began = now;
        // What was sent is written again at once: in parts it would take primary storage back.
        let items_max = if all { usize::MAX } else { batch.items_max(is_throttled) };
        let (mut position, end) = (from.max(log.segments.oldest()), log.end());
        let mut stop = Sequence(u64::MAX);
        let (mut taken, mut overwrites) = (after, Sequence(0));
        let (mut first_epoch, mut newest_epoch) = (FlushEpoch(u64::MAX), FlushEpoch(0));
        let mut note_epoch = |epoch: FlushEpoch| {
            (first_epoch, newest_epoch) = (first_epoch.min(epoch), newest_epoch.max(epoch));
        };
        let is_in = |zero: &&ZeroRecord| zero.sequence > after && zero.sequence <= limit;
        if !all && let Some(zero) = log.index.zeroes().filter(is_in).nth(ZEROES_MAX) {
            stop = zero.sequence;
        }
        while position < end {
            let place = log.segments.place(position);
            if let Some(entry) = log.index.entry(place).filter(|e| e.sequence > after) {
                let fits = batch.items.list.len() < items_max || entry.sequence == taken;
                if entry.sequence > limit.min(stop) || entry.epoch > last_epoch || !fits {
                    stop = stop.min(entry.sequence);
                    break;
                }
                taken = entry.sequence;
                overwrites = overwrites.max(entry.overwrites().unwrap_or_default());
                let (page, sectors, sequence) = (entry.page, entry.sectors, entry.sequence);
                batch.items.list.push(Item { page, place, sectors, sequence, is_done: false });
                pages += 1;
                note_epoch(entry.epoch);
            }
            position = position.plus(1);
        }
        for zero in log.index.zeroes().filter(is_in) {
            if zero.sequence < stop && zero.epoch <= last_epoch {
                taken = taken.max(zero.sequence);
                note_epoch(zero.epoch);
                let (range, may_unmap, sequence) = (zero.range, zero.may_unmap, zero.sequence);
                batch.zeroes.list.push(ZeroItem { range, may_unmap, sequence });
            }
        }
        // Pages and zeroes are not told apart: what is neither before nor after a zero record overwrites it.
        let zeroes = log.index.zeroes().take_while(|zero| zero.sequence <= taken);
        overwrites = overwrites.max(zeroes.last().map_or(Sequence(0), |zero| zero.sequence));
        batch.reduce(log.index.grid());
        (batch.limit, batch.end) = (taken, Mark { position, pages });
        batch.is_mixed = first_epoch < newest_epoch;
        // What is written again are several epochs, of which only the newest bytes are.
        batch.overwrites = if all { taken } else { overwrites };
        batch.start();
        destager.reached.cursor = position;
    }
}
