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
//! a sample that is not fetched (`cache/edges.rs`).
//!
//! **Background fetches** are requests that nobody waits for. They hold up nothing: a write to their range makes them
//! void (`Access::Background`). They take no place that a client needs.
//!
//! Limits: with a log and without RAM nothing is fetched, since what is destaged in part is not kept on flash.

use crate::action::Source;
use crate::cx::Cx;
use crate::engine::Parts;
use crate::geometry::ByteRange;
use crate::ids::RequestTag;
use crate::request::{Op, Request};
use crate::requests::in_flight::{FoundHere, Job, ReadFor, ReadJob};
use crate::requests::overlap::Access;

/// Background fetches under way at most.
const FETCHES_MAX: u32 = 16;
/// What a request has for a tag that nobody asked for.
const NOBODY: RequestTag = RequestTag(u64::MAX);

impl Parts {
    /// A write to `range` is done: fetches its edges, if that is worth it.
    pub(in crate::engine) fn fetch_edges(&mut self, range: ByteRange, cx: &mut Cx<'_>) {
        let has_place = self.cache.has_ram() || self.cache.has_flash() && !self.mode.logs();
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
        let has_room = !self.requests.is_full()
            && cx.buffers.pages_free() > cx.buffers.pages() / 2
            && self.requests.overlap.backgrounds() < FETCHES_MAX;
        if !self.cache.wants_edge(edge, &cx.grid) || !has_room || cx.is_unsettled {
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
            found: FoundHere::Nothing,
            partial: None,
            overlay: (edge.start, 0),
        };
        self.enter(request, Access::Background, edge, Job::Read(job), cx);
    }

    /// Background fetches of what is about to change are void.
    pub(in crate::engine) fn void_backgrounds(&mut self, range: ByteRange, cx: &mut Cx<'_>) {
        while let Some(key) = self.requests.overlap.background_in(range) {
            self.requests.table[key].answered = true;
            self.requests.deadlines.remove(key);
            self.let_go(key, cx);
        }
    }
}
