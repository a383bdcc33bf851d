//! The next window: collected, written into the journal, and put in place when its turn comes.

use super::{Doing, Journal, PIECE_PAGES, PIECES_MAX, Stage, Way};
use crate::action::{Action, DestageFault, IoOp, Target};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, PAGE};
use crate::journal::JournalConfig;
use crate::journal::record::{Entry, Head};
use crate::sealed::PAGE_LEN;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::destage::batch::To;
use crate::write_back::destage::run::Run;
use crate::write_back::destage::{Beside, Drive};
use crate::write_back::format::index::{PageIndex, SectorMask};
use crate::write_back::{DestageIo, WriteBack};

impl WriteBack {
    pub(super) fn stage(&self) -> Stage {
        self.destager.journal.as_ref().map_or(Stage::None, |journal| journal.ahead.stage)
    }

    /// Collects the next window; false when there is none, or it does not go through the journal.
    pub(super) fn begin_window(&mut self, drive: Drive, cx: &mut Cx<'_>) -> bool {
        let destager = &self.destager;
        let is_retiring = destager.journal.as_ref().is_some_and(Journal::is_retiring);
        let is_held = destager.is_held(cx.now) && !destager.flushes.redo;
        if is_retiring || is_held || self.way(cx.now) != Way::Journal || !self.may_be_recorded() {
            return false;
        }
        let again = self.destager.flushes.redo;
        let from = if again {
            if self.destager.batch.is_active() || !self.begin_again(To::Journal, cx) {
                return false;
            }
            self.destager.reached.tail.position
        } else {
            let batch = &self.destager.batch;
            let has_enough = self.log.end().0.saturating_sub(self.destager.reached.cursor.0)
                >= batch.pages_max();
            if batch.is_active() && !batch.is_half_done() && !has_enough {
                // It gathers company as long as the one before takes.
                return false;
            }
            let Some((_, records)) = self.next_records(drive, cx.now) else { return false };
            self.collect(To::Journal, records, cx.now);
            records.from
        };
        let Some(journal) = &mut self.destager.journal else { return false };
        let window = journal.window();
        let ahead = &mut journal.ahead;
        ahead.window = window;
        (ahead.from, ahead.again) = (from, again);
        ahead.stage = Stage::Payload;
        // A record of this number that was given up may be durable; this one is not.
        journal.reached.durable = journal.reached.durable.min(window - 1);
        ahead.contents.zeroes.clear();
        ahead.contents.zeroes.extend(ahead.batch.zeroes().iter().map(|zero| zero.range));
        let nothing = Entry { page: PageIndex(0), sectors: SectorMask::NONE, checksum: 0 };
        ahead.contents.pages.clear();
        ahead.contents.pages.resize(ahead.batch.len(), nothing);
        let has_room = ahead.batch.len() <= journal.config.shape.capacity() as usize
            && ahead.contents.zeroes.len() <= journal.zeroes_max();
        assert!(has_room, "a window, and what is written again, fits into a slot");
        true
    }

    /// Writes what is left of the payload; true when all of it is there.
    pub(super) fn write_payload(&mut self, beside: &Beside<'_>, cx: &mut Cx<'_>) -> bool {
        loop {
            let destager = &mut self.destager;
            let is_full = destager.running.runs.is_full();
            let Some(journal) = &mut destager.journal else { return false };
            let ahead = &mut journal.ahead;
            let rest = ahead.batch.rest();
            if rest.is_empty() {
                if ahead.pieces == 0 && !ahead.failed {
                    ahead.stage = Stage::Header;
                    return true;
                }
                return false;
            }
            if is_full || ahead.failed || ahead.pieces >= PIECES_MAX {
                return false;
            }
            let pages = PIECE_PAGES.min(rest.len() as u32);
            let Some(memory) = destager.running.memory.take(pages) else { return false };
            let first = (ahead.batch.next(), rest[0].page);
            ahead.batch.advance(pages as usize);
            ahead.pieces += 1;
            let run = destager.running.runs.insert(Run::piece(first, pages, memory, cx.now));
            self.read_run(run, beside, cx);
            if self.destager.running.runs[run].outstanding == 0 {
                self.on_piece_read(run, None, cx);
            }
        }
    }

    /// A piece of payload is in memory, or cannot be read.
    pub(in crate::write_back::destage) fn on_piece_read(
        &mut self,
        run: Key,
        failed: Option<(DestageFault, IoStatus)>,
        cx: &mut Cx<'_>,
    ) {
        let destager = &mut self.destager;
        let Some(journal) = &mut destager.journal else { return };
        if failed.is_some() || journal.ahead.failed {
            journal.ahead.pieces -= 1;
            destager.end_run(run);
            if let Some((fault, status)) = failed {
                destager.fail_journal(fault, status, cx);
            }
            return;
        }
        let (window, shape) = (journal.ahead.window, journal.config.shape);
        let entry = &mut destager.running.runs[run];
        entry.outstanding += 1;
        let (first, pages) = entry.items;
        let range = shape.payload(window, first as u32, pages);
        cx.counters.journal_bytes += range.len();
        cx.counters.journal_writes += 1;
        let memory = destager.run_memory(run, 0, pages);
        let op = IoOp::Write { memory, durable: false };
        cx.start(Target::Journal, range, op, IoKind::Destager(DestageIo::Piece { run }));
    }

    /// A piece of payload is in the journal, or not.
    pub(crate) fn on_piece(
        &mut self,
        run: Key,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        let destager = &mut self.destager;
        let (first, pages) = destager.running.runs[run].items;
        destager.end_run(run);
        let Some(journal) = &mut destager.journal else { return };
        let ahead = &mut journal.ahead;
        ahead.pieces -= 1;
        if !status.is_ok() {
            return destager.fail_journal(DestageFault::Journal, status, cx);
        }
        assert_eq!(checksums.len(), pages as usize, "one for each page");
        for (n, &checksum) in checksums.iter().enumerate() {
            let item = ahead.batch.item(first + n);
            let (page, sectors) = (item.page, item.sectors);
            ahead.contents.pages[first + n] = Entry { page, sectors, checksum };
        }
    }

    /// Writes the header of the next window, once it is noted.
    pub(super) fn write_header(&mut self, beside: &mut Beside<'_>, cx: &mut Cx<'_>) -> bool {
        let is_idle = self.destager.journal.as_ref().is_some_and(Journal::is_at_rest);
        if !is_idle || !self.note_progress(To::Journal, beside, cx) {
            return false;
        }
        let phase = self.log.index.grid().phase() as u16;
        let destager = &mut self.destager;
        let Some(journal) = &mut destager.journal else { return false };
        let pages = journal.ahead.contents.header_pages();
        let Some(first) = destager.running.memory.take(pages) else { return false };
        let memory = (first, pages);
        let window = journal.ahead.window;
        let JournalConfig { owner, generation, shape, .. } = journal.config;
        let through = journal.ahead.batch.limit();
        let head = Head::new(owner, generation, window, through).on_pages_from(phase);
        journal.prepared.resize(pages as usize * PAGE_LEN, 0);
        journal.ahead.contents.encode(head, &mut journal.prepared);
        journal.reached.issued = window;
        journal.doing = Some(Doing::Header { memory });
        let place = shape.header(window);
        let range = ByteRange::at(place.start, u64::from(pages) * PAGE);
        self.write_prepared(memory, range, cx);
        false
    }

    pub(super) fn write_prepared(&mut self, memory: (u32, u32), range: ByteRange, cx: &mut Cx<'_>) {
        let memory = self.destager.memory(memory);
        cx.counters.journal_bytes += range.len();
        cx.counters.journal_writes += 1;
        cx.push(Action::Journal { memory });
        let op = IoOp::Write { memory, durable: false };
        cx.start(Target::Journal, range, op, IoKind::Destager(DestageIo::Journal));
    }

    /// Makes the record of the next window durable, where primary storage is flushed between windows, or does not lose what the
    /// journal may lose; true when it is whole.
    pub(super) fn flush_ahead(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(journal) = &mut self.destager.journal else { return false };
        let is_flushed = self.log.config.barrier || !journal.config.is_beside;
        let window = journal.ahead.window;
        if !is_flushed || journal.reached.durable >= window {
            (journal.ahead.stage, journal.unread.windows) = (Stage::Whole, 0);
            return true;
        }
        if journal.doing.is_none() {
            self.start_journal_flush(Doing::Flush { window }, cx);
        }
        false
    }

    /// The next window goes in place, when its record is whole and the one before is complete.
    pub(in crate::write_back::destage) fn begin_from_journal(&mut self, cx: &mut Cx<'_>) -> bool {
        let destager = &mut self.destager;
        let is_flushed = destager.reached.flushed >= destager.reached.done;
        let has_to_flush = self.log.config.barrier && !is_flushed;
        let redo = destager.flushes.redo;
        let Some(journal) = &mut destager.journal else { return false };
        let ahead = &mut journal.ahead;
        if ahead.stage != Stage::Whole || ahead.failed || has_to_flush || redo {
            return false;
        }
        destager.hold.stirred += 1;
        std::mem::swap(&mut destager.batch, &mut ahead.batch);
        destager.batch.start();
        ahead.stage = Stage::None;
        (journal.reached.placed, journal.is_recorded) = (ahead.window, true);
        cx.counters.journal_windows += 1;
        true
    }
}
