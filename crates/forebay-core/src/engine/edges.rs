//! Edges of writes: granules that a write covers in part only, and that are not in RAM.
//!
//! ```text
//!   |   granule   |   granule   |   granule   |      write done ─► its edges ─┬─ in the sample ─► left alone
//!        [######### one write ########]                                      └─ worth it? ─► fetched, behind the write
//!        edge          whole      edge
//! ```
//! The cache has no half granules, so a write leaves nothing of its edges behind, although guests often read what they
//! have just written. Guests whose partition is off the grid, and databases with small pages, write little else. So the
//! edges are fetched when the write is done, in the background. That costs a read of primary storage for each, which
//! a redo log that is never read would pay for nothing: whether such granules are read again in time is learned from
//! one in [`ONE_IN`] that are not fetched (`returns.rs`).
//!
//! **Background fetches** are requests that nobody waits for. They hold up nothing: a write to their range makes them
//! void (`Access::Background`). They take no place that a client needs.
//!
//! Limits: with a log and without RAM nothing is fetched, since what is destaged in part is not kept on flash.

use crate::action::Source;
use crate::engine::Parts;
use crate::engine::cx::Cx;
use crate::geometry::ByteRange;
use crate::ids::RequestTag;
use crate::request::{Op, Request};
use crate::requests::in_flight::{Job, ReadFor, ReadJob};
use crate::requests::overlap::Access;

/// Of so many edges one is left alone, to see whether it would have been read.
pub(super) const ONE_IN: u64 = 64;
/// Edges are fetched while so many of a hundred are read again. Each costs primary storage a read that nobody waits for;
/// one that is missing costs the guest a wait.
const RETURNS_PERCENT: u32 = 2;
/// Background fetches under way at most.
const FETCHES_MAX: u32 = 16;
/// What a request has for a tag that nobody asked for.
const NOBODY: RequestTag = RequestTag(u64::MAX);

impl Parts {
    /// A write to `range` is done: fetches its edges, if that is worth it.
    pub(super) fn fetch_edges(&mut self, range: ByteRange, cx: &mut Cx<'_>) {
        let has_place = self.cache.ram.is_some() || self.cache.flash.is_some() && !self.mode.logs();
        if !has_place || !self.mode.keeps_writes() {
            return;
        }
        let granule = |at| cx.grid.align_to_granules(ByteRange::at(at, 1));
        let (head, tail) = (granule(range.start), granule(range.end - 1));
        if !range.contains(head) {
            self.fetch_edge(head, cx);
        }
        if tail != head && !range.contains(tail) {
            self.fetch_edge(tail, cx);
        }
    }

    fn fetch_edge(&mut self, edge: ByteRange, cx: &mut Cx<'_>) {
        let key = edge.start / cx.grid.granule_size();
        let has_room = !self.requests.table.is_full()
            && cx.buffers.pages_free() > cx.buffers.pages() / 2
            && self.requests.overlap.backgrounds() < FETCHES_MAX;
        let Some(returns) = &mut self.cache.edges_returned else { return };
        if self.cache.ram.as_ref().is_some_and(|ram| ram.has(&cx.grid, edge)) {
            // It was there, and has the new bytes by now.
            return;
        }
        if returns.is_sampled(key) {
            returns.settle(key, false);
            returns.expire(|_| false);
            return returns.wait_for(key);
        }
        if !has_room || returns.is_at_least(RETURNS_PERCENT) == Some(false) {
            return;
        }
        cx.counters.edges_fetched += 1;
        let request = Request { tag: NOBODY, range: edge, op: Op::Prefetch };
        let job = ReadJob {
            purpose: ReadFor::Edge,
            admit: true,
            is_doubtful: false,
            is_stream: false,
            use_cache: true,
            exact: false,
            target: edge,
            cursor: edge.start,
            source: Source::Ram,
            any_cached: false,
            partial: None,
            overlay: (edge.start, 0),
        };
        self.enter(request, Access::Background, edge, Job::Read(job), cx);
    }

    /// A client reads `range`, which was not cached.
    pub(super) fn note_edges_read(&mut self, range: ByteRange, cx: &mut Cx<'_>) {
        let granule = cx.grid.granule_size();
        let Some(returns) =
            self.cache.edges_returned.as_mut().filter(|returns| returns.is_waiting())
        else {
            return;
        };
        for key in range.start / granule..range.end.div_ceil(granule) {
            if returns.is_sampled(key) {
                returns.settle(key, true);
            }
        }
    }

    /// Background fetches of what is about to change are void.
    pub(super) fn void_backgrounds(&mut self, range: ByteRange, cx: &mut Cx<'_>) {
        while let Some(key) = self.requests.overlap.background_in(range) {
            self.requests.table[key].answered = true;
            self.requests.deadlines.remove(key);
            self.let_go(key, cx);
        }
    }
}
