//! Questions about the disk: what is allocated on primary storage, what is cached.
//!
//! Allocation is the backend's answer; the question waits for writes in flight on the same bytes, so
//! that it is never older than an acknowledged write. A backend that cannot tell, or fails to, gives
//! "allocated". Both answers may cover only the start of the range.

use crate::action::{Action, Actions, Extent, ExtentState, IoOp, Reply, ReplyData, Target};
use crate::cx::Cx;
use crate::cx::io::RequestIo;
use crate::engine::Parts;
use crate::geometry::{ByteRange, GranuleMask};
use crate::ids::Nanos;
use crate::request::Request;
use crate::requests::in_flight::Job;
use crate::requests::overlap::Access;
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::WriteBack;

/// Extents of one answer at most.
const EXTENTS_MAX: usize = 256;
/// Blocks looked at for one answer at most.
const BLOCKS_MAX: u32 = 512;
/// Granules of them while the write log holds something: each is looked up in it.
const LOGGED_GRANULES_MAX: u32 = 1024;
/// Bytes of an answer about allocation; it ends there. Writes to them wait for primary storage's.
const PART_MAX: u64 = 256 << 20;
/// The same while the write log holds something: each page of them is looked up in it.
const LOGGED_PART_MAX: u64 = 64 << 20;

impl Parts {
    pub(in crate::engine) fn submit_allocation(&mut self, request: Request, cx: &mut Cx<'_>) {
        if !cx.config.backend.extents {
            let whole = Extent { len: request.range.len(), state: ExtentState::Allocated };
            return reply_extents(cx.now, request, &[whole], cx.actions);
        }
        let range = ByteRange::at(request.range.start, request.range.len().min(PART_MAX));
        let request = Request { range, ..request };
        self.enter(request, Access::Read(ByteRange::default()), range, Job::Allocation(None), cx);
    }

    pub(in crate::engine) fn run_allocation(&mut self, key: Key, cx: &mut Cx<'_>) {
        let range = cx.align_to_backend(self.requests.table[key].range);
        let log = self.write_back.as_ref().filter(|log| !log.is_empty());
        self.requests.table[key].job = Job::Allocation(log.map(WriteBack::forgotten));
        let io = RequestIo::Extents;
        self.requests.start_io(key, io, Target::Backend, range, IoOp::Extents, cx);
    }

    pub(in crate::engine) fn on_extents(&mut self, key: Key, extents: &[Extent], cx: &mut Cx<'_>) {
        self.requests.end_io(key, IoStatus::Ok, cx);
        let entry = self.requests.table[key];
        if entry.answered {
            return self.requests.forget(key, cx);
        }
        // Bytes may have gone from the log to primary storage after that looked where they are.
        let forgotten = self.write_back.as_ref().map(WriteBack::forgotten);
        let is_old =
            matches!(entry.job, Job::Allocation(then) if then.is_some() && then != forgotten);
        let extents = if is_old { &[] } else { extents };
        // The question was grown to logical blocks; the answer is cut back to the request.
        let mut position = cx.align_to_backend(entry.range).start;
        let first = cx.actions.extents.len();
        let mut compared_max = LOGGED_PART_MAX;
        for extent in extents.iter().filter(|e| e.len > 0) {
            let end = position.saturating_add(extent.len).min(entry.range.end);
            let part = ByteRange { start: position, end: end.max(position) }.intersect(entry.range);
            if !part.is_empty() && cx.actions.extents.len() - first < EXTENTS_MAX {
                // What the log holds is newer than what primary storage says of it.
                let Some(log) = self.write_back.as_ref().filter(|log| !log.is_empty()) else {
                    cx.actions.extents.push(Extent { len: part.len(), state: extent.state });
                    position = end;
                    continue;
                };
                let part = ByteRange::at(part.start, part.len().min(compared_max));
                compared_max -= part.len();
                let logged = log.touches(part);
                let state = if logged { ExtentState::Allocated } else { extent.state };
                cx.actions.extents.push(Extent { len: part.len(), state });
                if compared_max == 0 {
                    break;
                }
            }
            position = end;
        }
        if cx.actions.extents.len() == first {
            let whole = Extent { len: entry.range.len(), state: ExtentState::Allocated };
            cx.actions.extents.push(whole);
        }
        let count = (cx.actions.extents.len() - first) as u32;
        let data = ReplyData::Extents { first: first as u32, count };
        self.requests.answer(key, IoStatus::Ok, data, None, cx);
        self.requests.forget(key, cx);
    }

    /// The backend could not tell.
    pub(in crate::engine) fn on_no_extents(
        &mut self,
        key: Key,
        _status: IoStatus,
        cx: &mut Cx<'_>,
    ) {
        self.on_extents(key, &[], cx);
    }

    pub(in crate::engine) fn reply_cache_state(&mut self, request: Request, cx: &mut Cx<'_>) {
        let range = request.range;
        let first = cx.actions.extents.len();
        let has_log = self.write_back.as_ref().is_some_and(|log| !log.is_empty());
        let blocks_max = match has_log {
            true => (LOGGED_GRANULES_MAX / cx.grid.granules_per_block()).clamp(1, BLOCKS_MAX),
            false => BLOCKS_MAX,
        };
        for block in cx.grid.blocks(range).take(blocks_max as usize) {
            let mut touched = cx.grid.touched(block, range);
            let dirty = self.logged_granules(block, touched, cx);
            let cached = self.cache.lookup(block).granules().union(dirty);
            while let Some((start, _)) = touched.first_run() {
                let is_cached = cached.has(start);
                let is_dirty = dirty.has(start);
                let same = if is_cached { cached } else { GranuleMask(!cached.0) };
                let same = if is_dirty { dirty } else { same.without(dirty) };
                let (_, end) = touched.intersect(same).first_run().expect("it starts in the run");
                touched = touched.without(GranuleMask::span(0, end));
                let part = cx.grid.granule_range(block, start, end).intersect(range);
                let state = match (is_dirty, is_cached) {
                    (true, _) => ExtentState::Dirty,
                    (false, true) => ExtentState::Clean,
                    (false, false) => ExtentState::Uncached,
                };
                match cx.actions.extents[first..].last_mut() {
                    Some(last) if last.state == state => last.len += part.len(),
                    _ => cx.actions.extents.push(Extent { len: part.len(), state }),
                }
            }
            if cx.actions.extents.len() - first >= EXTENTS_MAX {
                break;
            }
        }
        push_reply(cx.now, request, first, cx.actions);
    }
}

fn reply_extents(now: Nanos, request: Request, extents: &[Extent], actions: &mut Actions) {
    let first = actions.extents.len();
    actions.extents.extend_from_slice(extents);
    push_reply(now, request, first, actions);
}

fn push_reply(now: Nanos, request: Request, first: usize, actions: &mut Actions) {
    let count = (actions.extents.len() - first) as u32;
    actions.list.push(Action::Reply(Reply {
        tag: request.tag,
        status: IoStatus::Ok,
        submitted: now,
        data: ReplyData::Extents { first: first as u32, count },
    }));
}
