//! Runs: neighbouring pages of a batch that are written with one I/O.
//!
//! ```text
//!  items ─► memory ─► from RAM (a copy), or from the log on flash (checked) ─► write ─► done
//!                     └─ a page in parts, on large logical blocks: what is below, too
//! ```
//! A run is a row of sectors, from one record in each page: of pages between its ends all sectors. A page of several records,
//! or with gaps, is a run by itself: its parts are laid together on one more page of memory, and each row of sectors is a
//! write. On logical blocks larger than a sector such a page is filled from primary storage first, and written whole.
//! Zeroes of the log are no runs (`zeroes.rs`).

use super::batch::To;
use super::row::{Rows, lead_of};
use super::{Beside, Destager};
use crate::action::{Action, DestageFault, IoOp, Span, Target};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, PAGE, SECTOR};
use crate::ids::Nanos;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::format::index::{LayerSource, PageIndex, Place, SectorMask};
use crate::write_back::{DestageIo, LogEvent, WriteBack};

/// Pages of a run at most.
pub(super) const RUN_PAGES_MAX: u32 = 64;
/// Reads of the same place of the log that failed in a row before the dirty bytes count as lost.
const READ_FAILURES_MAX: u32 = 8;

/// A run under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// Where it is written to.
    pub(super) to: To,
    /// Its first page of the destager's memory, and how many.
    pub(super) memory: (u32, u32),
    pub(super) page: PageIndex,
    /// Pages of the disk.
    pub(super) pages: u32,
    /// Its items: the first one, and how many.
    pub(super) items: (usize, u32),
    /// The sectors to write, of a page in parts.
    sectors: SectorMask,
    /// What is written, with one I/O from one record in each page; `None`: a page in parts.
    pub(super) row: Option<ByteRange>,
    /// I/Os under way.
    pub(super) outstanding: u32,
    /// Its bytes are in memory.
    is_read: bool,
    bytes: u64,
    started: Nanos,
    pub(super) failed: Option<(DestageFault, IoStatus)>,
}

impl Run {
    /// So many items, from this one on, each on a page of its own: a piece of the journal.
    pub(super) fn piece(first: (usize, PageIndex), pages: u32, memory: u32, now: Nanos) -> Run {
        Run {
            to: To::Journal,
            memory: (memory, pages),
            page: first.1,
            pages,
            items: (first.0, pages),
            sectors: SectorMask::NONE,
            row: None,
            outstanding: 0,
            is_read: false,
            bytes: u64::from(pages) * PAGE,
            started: now,
            failed: None,
        }
    }
}

impl Destager {
    /// Memory of pages `first..first + pages` of a run.
    pub(super) fn run_memory(&self, run: Key, first: u32, pages: u32) -> Span {
        let place = self.running.runs[run].memory.0 + first;
        Span { offset: self.running.base + u64::from(place) * PAGE, len: pages * PAGE as u32 }
    }

    pub(super) fn end_run(&mut self, run: Key) {
        let run = self.running.runs.remove(run);
        self.running.memory.give(run.memory.0, run.memory.1);
    }
}

impl WriteBack {
    /// Goes on with the batch; true when it has ended.
    pub(super) fn write_batch(&mut self, beside: &mut Beside<'_>, cx: &mut Cx<'_>) -> bool {
        let destager = &mut self.destager;
        if destager.batch.has_failed() {
            if !destager.is_at_rest() || !destager.may_start(cx.now) {
                return false;
            }
            if destager.flushes.redo {
                destager.batch.end_it();
                return true;
            }
            destager.batch.retry();
        }
        while self.destager.batch.has_more() {
            let destager = &mut self.destager;
            // Pieces of the journal count, too: what lies beside primary storage takes its time.
            let under_way = destager.running.runs.len() as u32;
            let allowed = destager.may_start(cx.now)
                && destager.window.next_allowed() <= cx.now
                && under_way < destager.window.limit()
                && !destager.running.runs.is_full();
            if !allowed {
                return false;
            }
            if let Some(zero) = destager.batch.zero() {
                if destager.running.outstanding == 0 {
                    self.start_zero(zero, cx);
                }
                return false;
            }
            if !self.start_run(beside, cx) {
                return false;
            }
            if self.destager.batch.has_failed() {
                return false;
            }
        }
        let destager = &mut self.destager;
        if !destager.is_at_rest() || destager.batch.has_failed() {
            return false;
        }
        let has_caught_up = self.log.reached.durable.sequence <= destager.batch.limit();
        let oldest = match has_caught_up {
            true => Nanos::NEVER,
            false => Nanos(cx.now.0.saturating_sub(self.log.config.destage_yield.0)),
        };
        self.destager.end_batch(oldest, cx);
        true
    }

    /// Starts the next run; false when there is no memory for it.
    fn start_run(&mut self, beside: &Beside<'_>, cx: &mut Cx<'_>) -> bool {
        let rows = Rows::new(&cx.config, self.log.index.grid());
        let destager = &mut self.destager;
        let rest = destager.batch.rest();
        let head = rest[0];
        let in_row = rows.len(rest);
        let in_parts = || rest.iter().take_while(|item| item.page == head.page).count() as u32;
        let mut items = if in_row > 0 { in_row } else { in_parts() };
        // The parts of a page are laid together on one more.
        let extra = u32::from(in_row == 0);
        let first = loop {
            match destager.running.memory.take(items + extra) {
                Some(first) => break first,
                None if items > 1 && in_row > 0 => items /= 2,
                None => return false,
            }
        };
        let pages = if in_row > 0 { items } else { 1 };
        let parts = &rest[..items as usize];
        let sectors = parts.iter().fold(SectorMask::NONE, |all, item| all.union(item.sectors));
        let row = (in_row > 0).then(|| rows.range(parts));
        let bytes = match row {
            Some(row) => row.len(),
            None => u64::from(sectors.0.count_ones()) * SECTOR,
        };
        let index = destager.batch.next();
        destager.batch.advance(items as usize);
        destager.window.on_start(cx.now, bytes);
        let run = destager.running.runs.insert(Run {
            to: To::Place,
            memory: (first, items + extra),
            page: head.page,
            pages,
            items: (index, items),
            sectors,
            row,
            outstanding: 0,
            is_read: false,
            bytes,
            started: cx.now,
            failed: None,
        });
        destager.running.unwritten.push_back(run);
        self.read_run(run, beside, cx);
        if self.destager.running.runs[run].outstanding == 0 {
            self.destager.running.runs[run].is_read = true;
            self.write_runs(cx);
        }
        true
    }

    /// Writes the runs that were read, as far as none before them is still being read: sorted is how primary
    /// storage gets them.
    fn write_runs(&mut self, cx: &mut Cx<'_>) {
        while let Some(&run) = self.destager.running.unwritten.front() {
            let destager = &mut self.destager;
            if !destager.running.runs[run].is_read {
                return;
            }
            destager.running.unwritten.pop_front();
            match destager.batch.has_failed() {
                true => self.destager.end_run(run),
                false => self.write_run(run, cx),
            }
        }
    }

    /// Fetches the bytes of a run.
    pub(super) fn read_run(&mut self, run: Key, beside: &Beside<'_>, cx: &mut Cx<'_>) {
        let Run { to: of, items: (index, items), page, sectors, row, .. } =
            self.destager.running.runs[run];
        let mut reading: Option<(u32, Place, u32)> = None;
        for n in 0..items {
            let item = self.destager.batch_of(of).item(index + n as usize);
            let to = self.destager.run_memory(run, n, 1);
            let from = self.page_in_memory((item.page, item.place), beside, cx);
            let log = &self.log;
            let follows = reading.is_some_and(|(first, place, count)| {
                let last = Place(place.0 + count - 1);
                first + count == n && log.segments.are_neighbours(last, item.place)
            });
            match (from, &mut reading) {
                (Some((from, lead)), _) => {
                    let to = to.part(lead, u64::from(from.len));
                    cx.push(Action::Copy { from, to });
                }
                (None, Some((_, _, count))) if follows => *count += 1,
                (None, _) => {
                    let before = reading.replace((n, item.place, 1));
                    self.start_run_read(run, before, cx);
                }
            }
        }
        self.start_run_read(run, reading, cx);
        if of == To::Journal {
            return;
        }
        let grid = self.log.index.grid();
        let below = grid.range_of(page).intersect(cx.config.disk());
        let is_in_parts = row.is_none() && !sectors.contains(grid.sectors(page, below));
        if is_in_parts && u64::from(cx.config.backend.logical_block) > SECTOR {
            let memory =
                self.destager.run_memory(run, items, 1).part(lead_of(grid, below), below.len());
            let kind = IoKind::Destager(DestageIo::Below { run });
            self.destager.running.runs[run].outstanding += 1;
            cx.read_backend(below, memory, kind);
        }
    }

    fn start_run_read(&mut self, run: Key, reading: Option<(u32, Place, u32)>, cx: &mut Cx<'_>) {
        let Some((first, place, pages)) = reading else { return };
        let memory = self.destager.run_memory(run, first, pages);
        let range = self.log.begin_read(place, pages, cx);
        if !self.destager.reads_log() {
            self.destager.stir_reads(cx);
        }
        let running = &mut self.destager.running;
        running.reads += 1;
        running.runs[run].outstanding += 1;
        let kind = IoKind::Destager(DestageIo::Read { run, place, pages });
        cx.start(Target::Log, range, IoOp::Read { memory }, kind);
    }

    /// The bytes of a page of the log, where memory has them: the RAM tier if they are the newest, or
    /// their group; and where in the page they begin.
    fn page_in_memory(
        &self,
        (page, place): (PageIndex, Place),
        beside: &Beside<'_>,
        cx: &Cx<'_>,
    ) -> Option<(Span, u64)> {
        let log = &self.log;
        if let Some(memory) = log.in_memory(place) {
            return Some((memory, 0));
        }
        let grid = log.index.grid();
        let range = grid.range_of(page).intersect(cx.config.disk());
        let memory = beside.in_ram(range, cx)?;
        let all = grid.sectors(page, range);
        let is_newest = log.index.layers(page).single(all) == Some(LayerSource::Place(place));
        is_newest.then(|| (memory, lead_of(grid, range)))
    }

    /// Pages of the log were read for a run: what came of it, and of the log. Dirty bytes that cannot be read are lost.
    pub(crate) fn check_destage_read(
        &mut self,
        read: (Place, u32),
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) -> (IoStatus, LogEvent) {
        self.destager.running.reads -= 1;
        self.destager.stir_reads(cx);
        let status = self.log.end_read(read, status, checksums, cx);
        // Others that can be read say nothing of this one. Flash may fail many at a time, and each of them another time not.
        let unread = &mut self.destager.trouble.unread;
        if status.is_ok() {
            unread.remove(&read.0);
            return (status, LogEvent::Nothing);
        }
        let failures = unread.entry(read.0).or_default();
        *failures += 1;
        let is_lost = *failures >= READ_FAILURES_MAX;
        (status, if is_lost { LogEvent::Lost } else { LogEvent::Nothing })
    }

    /// The log, or what is below a page in parts, was read for a run; or not, which is the fault of `of`.
    pub(crate) fn on_destage_read(
        &mut self,
        run: Key,
        (of, status): (DestageFault, IoStatus),
        cx: &mut Cx<'_>,
    ) {
        let entry = &mut self.destager.running.runs[run];
        entry.outstanding -= 1;
        if !status.is_ok() {
            entry.failed.get_or_insert((of, status));
        }
        if entry.outstanding > 0 {
            return;
        }
        entry.is_read = true;
        let (to, failed) = (entry.to, entry.failed);
        if to == To::Journal {
            return self.on_piece_read(run, failed, cx);
        }
        if let Some((fault, status)) = failed {
            self.destager.fail_batch(fault, status, cx);
        }
        self.write_runs(cx);
    }

    fn write_run(&mut self, run: Key, cx: &mut Cx<'_>) {
        let Run { page, pages, items: (index, items), sectors, row, .. } =
            self.destager.running.runs[run];
        let grid = self.log.index.grid();
        self.destager.running.runs[run].started = cx.now;
        if let Some(row) = row {
            let memory =
                self.destager.run_memory(run, 0, pages).part(lead_of(grid, row), row.len());
            return self.start_run_write(run, row, memory, cx);
        }
        let all = grid.range_of(page).intersect(cx.config.disk());
        let together = self.destager.run_memory(run, items, 1);
        for n in 0..items {
            let from = self.destager.run_memory(run, n, 1);
            let item = self.destager.batch.item(index + n as usize);
            for (first, end) in item.sectors.runs() {
                let (skip, len) = (u64::from(first) * SECTOR, u64::from(end - first) * SECTOR);
                let (from, to) = (from.part(skip, len), together.part(skip, len));
                cx.push(Action::Copy { from, to });
            }
        }
        let large = u64::from(cx.config.backend.logical_block) > SECTOR;
        if large || sectors.contains(grid.sectors(page, all)) {
            let memory = together.part(lead_of(grid, all), all.len());
            return self.start_run_write(run, all, memory, cx);
        }
        for (first, end) in sectors.runs() {
            let part = grid.sector_range(page, first, end);
            let memory = together.part(u64::from(first) * SECTOR, part.len());
            self.start_run_write(run, part, memory, cx);
        }
    }

    fn start_run_write(&mut self, run: Key, range: ByteRange, memory: Span, cx: &mut Cx<'_>) {
        let destager = &mut self.destager;
        destager.running.outstanding += 1;
        destager.running.runs[run].outstanding += 1;
        let op = IoOp::Write { memory, durable: false };
        let kind = IoKind::Destager(DestageIo::Write { run });
        cx.start(Target::Backend, range, op, kind);
    }

    /// A write of a run is on primary storage, or not.
    pub(crate) fn on_destage_write(
        &mut self,
        (run, range): (Key, ByteRange),
        status: IoStatus,
        beside: &mut Beside<'_>,
        cx: &mut Cx<'_>,
    ) {
        let destager = &mut self.destager;
        let under_way = destager.running.runs.len() as u32;
        destager.running.outstanding -= 1;
        let entry = &mut destager.running.runs[run];
        entry.outstanding -= 1;
        if status.is_ok() {
            cx.counters.destage_writes += 1;
            cx.counters.destage_write_bytes += range.len();
        } else {
            entry.failed.get_or_insert((DestageFault::PrimaryStorage, status));
        }
        if entry.outstanding > 0 {
            return;
        }
        let entry = *entry;
        let Run { failed, started, bytes, items, .. } = entry;
        match failed {
            None => {
                self.keep_destaged(&entry, beside, cx);
                let destager = &mut self.destager;
                destager.window.on_write(cx.now, cx.now.since(started), bytes, under_way);
                destager.batch.note_done(items);
                destager.note_success();
                self.destager.end_run(run);
            }
            Some((fault, status)) => {
                self.destager.end_run(run);
                self.destager.fail_batch(fault, status, cx);
            }
        }
    }
}
