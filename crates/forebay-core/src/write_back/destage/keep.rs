//! What was destaged becomes clean cache, if the policy wants it.
//!
//! ```text
//!   run on primary storage ─► its newest pages ─► in RAM? ─┬─ yes: it goes to flash when RAM evicts it
//!                                                          └─ no: history? ─copy─► staging ──I/O──► flash
//! ```
//! Of a disk without RAM, or whose RAM is small, this is the way by which written data come to flash: before they are
//! on primary storage they stand in the log and nowhere else. Only what no later record has overwritten is
//! offered, from the memory of the run; a write that is appended from then on cancels the fill. The record is
//! durable in the log, so a crash finds it there until it is flushed, and drops the granule. Not so while its request is
//! durable in parts only, as one is that is longer than the log has room for: recovery takes nothing of that, and primary
//! storage may lose what it was sent of it. That is not kept.
//!
//! History alone decides (`cache/flash/admission.rs`): all that is ever written passes here, most of it to be read
//! by nobody, and would displace the rest. A block that was on flash when it was overwritten has kept its place there.

use super::row::lead_of;
use super::run::Run;
use crate::action::{Buffer, Span};
use crate::cx::{Cx, Shared};
use crate::geometry::{ByteRange, GranuleMask, PAGE};
use crate::ids::BlockIndex;
use crate::write_back::Beside;
use crate::write_back::WriteBack;
use crate::write_back::format::index::{LayerSource, PageIndex};

impl WriteBack {
    /// Offers the pages of a run, which primary storage has, to flash.
    pub(super) fn keep_destaged(&self, run: &Run, beside: &mut Beside<'_>, cx: &mut Cx<'_>) {
        let destager = &self.destager;
        let Some(written) = run.row.filter(|_| beside.keeps_destaged()) else { return };
        if destager.flushes.redo || destager.batch.has_failed() {
            return;
        }
        let grid = self.log.index.grid();
        let first = grid.range_of(run.page);
        if lead_of(grid, first) != 0 {
            // Cut off by the start of the disk: its first granule is not kept on flash.
            return;
        }
        let window = ByteRange::at(first.start, u64::from(run.pages) * PAGE);
        let offset = destager.running.base + u64::from(run.memory.0) * PAGE;
        let buffer = Buffer { span: Span { offset, len: run.pages * PAGE as u32 }, window };
        for block in cx.grid.blocks(written) {
            let newest = self.newest_granules(run, block, written, cx);
            beside.keep(block, newest, buffer, cx);
        }
    }

    /// Granules of `block` in `written` whose newest bytes are those of the run.
    fn newest_granules(
        &self,
        run: &Run,
        block: BlockIndex,
        written: ByteRange,
        shared: &Shared,
    ) -> GranuleMask {
        let (index, whole) = (&self.log.index, self.log.durable_whole());
        let (batch, grid) = (&self.destager.batch, index.grid());
        let is_newest = |page: PageIndex| {
            let item = batch.item(run.items.0 + (page.0 - run.page.0) as usize);
            let all = grid.sectors(page, shared.config.disk());
            index.layers(page).single(all) == Some(LayerSource::Place(item.place))
                && index.entry(item.place).is_some_and(|entry| entry.sequence <= whole)
        };
        let covered = shared.grid.covered(block, written);
        let mut newest = GranuleMask::NONE;
        for (first, end) in covered.runs() {
            for granule in first..end {
                let range = shared.grid.granule_range(block, granule, granule + 1);
                if grid.pages(range).all(is_newest) {
                    newest = newest.union(GranuleMask::span(granule, granule + 1));
                }
            }
        }
        newest
    }
}
