//! Reads of what is in the log, newer than primary storage and than flash.
//!
//! ```text
//!  a page of the disk   wholly from one record  ─► from the group in memory, or from flash (checked)
//!                       zeroed                  ─► zeroes
//!                       in parts                ─► what is below first, then the *overlay*, sector by sector
//! ```
//! Pages in parts are rare (a file system's log, unaligned guests), and read through one page of memory
//! that such reads take in turn. What the log holds may be freed while what is below is fetched: then
//! primary storage has it, and the read begins anew.

use super::read::FETCHES_MAX;
use crate::action::{Action, Buffer, IoOp, Source, Span, Target};
use crate::cx::Cx;
use crate::cx::io::RequestIo;
use crate::engine::Parts;
use crate::geometry::{ByteRange, PAGE, SECTOR};
use crate::requests::in_flight::{FoundHere, Job, ReadJob};
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::WriteBack;
use crate::write_back::format::index::{
    Layer, LayerSource, PageGrid, PageIndex, Place, SectorMask,
};

/// Pages in a row, in the log as on the disk.
#[derive(Clone, Copy)]
struct Run {
    place: Place,
    page: PageIndex,
    pages: u32,
}

impl Parts {
    /// Reads from the cursor on as far as the log matters; false when it does not matter for the
    /// granule at the cursor.
    pub(in crate::engine) fn read_log(
        &mut self,
        key: Key,
        job: &mut ReadJob,
        granule: ByteRange,
        cx: &mut Cx<'_>,
    ) -> bool {
        let wanted = granule.intersect(ByteRange::new(job.cursor, job.target.end));
        let Some(log) = self.write_back.as_ref().filter(|log| log.touches(wanted)) else {
            return false;
        };
        let grid = log.pages();
        let disk = cx.config.disk();
        let mut end = wanted.end;
        let mut run: Option<Run> = None;
        let mut below: Option<ByteRange> = None;
        let mut position = wanted.start;
        job.found = FoundHere::Part;
        job.source = job.source.max(Source::Flash);
        while position < job.target.end {
            let page = grid.page_of(position);
            let bytes = grid.range_of(page).intersect(disk).intersect(job.target);
            let all = grid.sectors(page, bytes);
            let Some(log) = &self.write_back else { break };
            let layers = log.layers(page);
            let single = layers.single(all);
            let goes_on = match (single, &run) {
                (Some(LayerSource::Place(place)), Some(run)) => {
                    let last = Place(run.place.0 + run.pages - 1);
                    log.are_neighbours(last, place) && log.in_memory(place).is_none()
                }
                _ => false,
            };
            // Enough under way: the rest of this granule, and no more.
            let is_enough = self.requests.table[key].outstanding >= FETCHES_MAX;
            if position >= end && (!goes_on || is_enough) {
                break;
            }
            if position >= end {
                let sector = ByteRange::at(position, SECTOR);
                end = cx.grid.align_to_granules(sector).end;
            }
            if !goes_on {
                self.start_log_run(key, run.take(), cx);
            }
            match (single, &mut run) {
                (Some(LayerSource::Place(_)), Some(run)) if goes_on => run.pages += 1,
                (Some(LayerSource::Place(place)), run) => {
                    *run = self.begin_log_run(key, place, page, bytes, cx);
                }
                (Some(LayerSource::Zero), _) => {
                    let memory = self.buffer_of(key).at(bytes);
                    cx.push(Action::Zero { memory });
                }
                (None, _) => {
                    if !layers.sectors().is_empty() {
                        let oldest = job.partial.unwrap_or(layers.oldest);
                        job.partial = Some(oldest.min(layers.oldest));
                        job.overlay = (job.target.start, 0);
                    }
                    if !layers.sectors().contains(all) {
                        match &mut below {
                            Some(range) if range.end == bytes.start => range.end = bytes.end,
                            _ => {
                                let before = below.replace(bytes);
                                self.fetch_below(key, before, cx);
                            }
                        }
                        job.source = Source::Backend;
                    }
                }
            }
            position = bytes.end;
        }
        self.start_log_run(key, run, cx);
        self.fetch_below(key, below, cx);
        job.cursor = position;
        true
    }

    fn buffer_of(&self, key: Key) -> Buffer {
        self.requests.table[key].memory()
    }

    /// A page that lies in the log: copies it if it is in memory still, else begins a run.
    fn begin_log_run(
        &mut self,
        key: Key,
        place: Place,
        page: PageIndex,
        bytes: ByteRange,
        cx: &mut Cx<'_>,
    ) -> Option<Run> {
        let log = self.write_back.as_ref()?;
        let Some(memory) = log.in_memory(place) else {
            return Some(Run { place, page, pages: 1 });
        };
        let lead = bytes.start + PAGE - log.pages().phase();
        let from = memory.part(lead % PAGE, bytes.len());
        cx.push(Action::Copy { from, to: self.buffer_of(key).at(bytes) });
        None
    }

    fn start_log_run(&mut self, key: Key, run: Option<Run>, cx: &mut Cx<'_>) {
        let (Some(Run { place, page, pages }), Some(log)) = (run, &mut self.write_back) else {
            return;
        };
        let start = log.pages().range_of(page);
        let range = log.begin_read(place, pages, cx);
        let memory = whole_pages(self.buffer_of(key), start, pages);
        let io = RequestIo::Log { place, pages };
        self.requests.start_io(key, io, Target::Log, range, IoOp::Read { memory }, cx);
    }

    fn fetch_below(&mut self, key: Key, range: Option<ByteRange>, cx: &mut Cx<'_>) {
        if let Some(range) = range {
            self.fetch_range(key, cx.align_to_backend(range), cx);
        }
    }

    /// The log delivered pages of a read, or not.
    pub(in crate::engine) fn on_log_read(
        &mut self,
        key: Key,
        read: (Place, u32),
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        let Some(log) = &mut self.write_back else { return };
        let status = log.end_read(read, status, checksums, cx);
        self.requests.end_io(key, status, cx);
        cx.wake(key);
    }

    /// Lays the log's sectors over pages that it holds in parts; true when all are done.
    pub(in crate::engine) fn run_overlay(
        &mut self,
        key: Key,
        job: &mut ReadJob,
        cx: &mut Cx<'_>,
    ) -> bool {
        let forgotten = self.write_back.as_ref().map(WriteBack::forgotten);
        if job.partial <= forgotten {
            // What was seen may be on primary storage by now, and newer than what was fetched.
            (job.cursor, job.partial) = (job.target.start, None);
            cx.wake(key);
            return false;
        }
        let (mut position, mut first) = job.overlay;
        while let Some(log) = self.write_back.as_ref().filter(|_| position < job.target.end) {
            let grid = log.pages();
            let page = grid.page_of(position);
            let bytes = grid.range_of(page).intersect(cx.config.disk()).intersect(job.target);
            let layers = log.layers(page);
            let wanted = grid.sectors(page, bytes);
            let is_whole = layers.single(wanted).is_some();
            // Others may write to the rest of the page, which is not held: that puts layers in and takes layers out, of
            // which none may be counted.
            let layers = layers.iter().filter(|layer| !layer.sectors.intersect(wanted).is_empty());
            for (n, layer) in layers.enumerate().skip(first).filter(|_| !is_whole) {
                if !self.lay(key, page, layer, bytes, cx) {
                    job.overlay = (position, n);
                    return false;
                }
            }
            (position, first) = (bytes.end, 0);
        }
        job.partial = None;
        true
    }

    /// Puts one layer in place; false when it has to be read, or its turn to be read has to come.
    fn lay(
        &mut self,
        key: Key,
        page: PageIndex,
        layer: Layer,
        bytes: ByteRange,
        cx: &mut Cx<'_>,
    ) -> bool {
        let Some(log) = &mut self.write_back else { return true };
        let place = match layer.source {
            LayerSource::Zero => {
                let grid = log.pages();
                for (first, end) in layer.sectors.runs() {
                    let part = grid.sector_range(page, first, end).intersect(bytes);
                    if !part.is_empty() {
                        let memory = self.buffer_of(key).at(part);
                        cx.push(Action::Zero { memory });
                    }
                }
                return true;
            }
            LayerSource::Place(place) => place,
        };
        if let Some(memory) = log.in_memory(place) {
            let grid = log.pages();
            self.lay_sectors(key, grid, (page, layer.sectors), memory, bytes, cx);
            return true;
        }
        let Some(memory) = log.overlay().take(key) else { return false };
        let range = log.begin_read(place, 1, cx);
        let io = RequestIo::Overlay { place };
        self.requests.start_io(key, io, Target::Log, range, IoOp::Read { memory }, cx);
        false
    }

    fn lay_sectors(
        &self,
        key: Key,
        grid: PageGrid,
        (page, sectors): (PageIndex, SectorMask),
        from: Span,
        bytes: ByteRange,
        cx: &mut Cx<'_>,
    ) {
        for (first, end) in sectors.runs() {
            let part = grid.sector_range(page, first, end).intersect(bytes);
            if part.is_empty() {
                continue;
            }
            let lead = (part.start + PAGE - grid.phase()) % PAGE;
            let to = self.buffer_of(key).at(part);
            cx.push(Action::Copy { from: from.part(lead, part.len()), to });
        }
    }

    /// A page of an overlay was read, or not.
    pub(in crate::engine) fn on_log_overlay(
        &mut self,
        key: Key,
        place: Place,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        let Some(log) = &mut self.write_back else { return };
        let status = log.end_read((place, 1), status, checksums, cx);
        self.requests.end_io(key, status, cx);
        let scratch = log.overlay().give(cx);
        let grid = log.pages();
        let Some(page) = log.page_at(place) else { return cx.wake(key) };
        let layers = log.layers(page);
        let entry = &mut self.requests.table[key];
        if status.is_ok()
            && !entry.answered
            && let Job::Read(job) = &mut entry.job
        {
            job.overlay.1 += 1;
            let bytes = grid.range_of(page).intersect(cx.config.disk()).intersect(job.target);
            let layer = layers.iter().find(|layer| layer.source == LayerSource::Place(place));
            // Freed meanwhile: the read begins anew, and finds it where it is now.
            if let Some(layer) = layer {
                self.lay_sectors(key, grid, (page, layer.sectors), scratch, bytes, cx);
            }
        }
        cx.wake(key);
    }

    /// A read that waits for its turn went away.
    pub(in crate::engine) fn leave_overlay(&mut self, key: Key) {
        if let Some(log) = &mut self.write_back {
            log.overlay().leave(key);
        }
    }
}

/// Memory of `pages` whole pages of a buffer from the page of `start` on, which the disk's start may cut.
pub(in crate::engine) fn whole_pages(buffer: Buffer, start: ByteRange, pages: u32) -> Span {
    let lead = PAGE - start.len();
    let skip = start.start - buffer.window.start;
    let offset = buffer.span.offset + skip - lead;
    assert!(offset.is_multiple_of(PAGE), "granules meet pages in memory");
    Span { offset, len: pages * PAGE as u32 }
}
