//! Reads: from RAM at once, else by choosing a source for every granule.
//!
//! ```text
//!  all in RAM, no write in the way ─► reply from the slots, pinned until sent
//!  else: hold the range ─► buffer ─► choose sources, left to right ─► all there ─► install ─► reply
//!                                     RAM: copy   flash: read, check   backend: read
//! ```
//! In a mode with a cache the range is held grown to granules, so nothing changes under the fetch; what arrived in a
//! mode without one holds its logical blocks alone, and looks at no more ([`ReadJob::exact`]). At most
//! [`FETCHES_MAX`] I/Os of one request are under way; the cursor goes on as they complete. A flash error, or bytes
//! whose checksum is wrong, turn into a read of primary storage.

use super::in_log::undestaged;
use crate::action::{Action, Buffer, IoOp, Reply, ReplyData, Source, Target};
use crate::cache::{Found, SlotRun};
use crate::characteristics::Kind;
use crate::cx::io::RequestIo;
use crate::cx::{Cx, Shared};
use crate::engine::Parts;
use crate::geometry::{ByteRange, GranuleMask, REQUEST_MAX};
use crate::ids::BlockIndex;
use crate::misses::Fate;
use crate::request::Request;
use crate::requests::in_flight::{FoundHere, Job, ReadFor, ReadJob};
use crate::requests::ledger::LatencyOf;
use crate::requests::overlap::Access;
use crate::status::IoStatus;
use crate::table::Key;

/// I/Os of one read under way at once.
pub(in crate::engine) const FETCHES_MAX: u32 = 8;

impl Parts {
    /// Answers a read whose every byte is in RAM, straight from the slots.
    pub(in crate::engine) fn read_from_ram(&mut self, request: &Request, cx: &mut Cx<'_>) -> bool {
        let range = request.range;
        if !self.mode.caches() || !self.cache.may_hit(range, &cx.grid) {
            return false;
        }
        if self.requests.overlap.has_writer(range) {
            return false;
        }
        let Some(data) = self.cache.hit(range, cx) else { return false };
        cx.counters.reads += 1;
        cx.counters.read_bytes += range.len();
        cx.counters.ram_read_bytes += range.len();
        cx.counters.read_hits_ram += 1;
        self.requests.ledger.note_answered(cx.now, LatencyOf::Read(Source::Ram));
        let ticket = self.requests.ledger.observer.taken_of(cx.now, Kind::Read, range);
        self.requests.ledger.observer.answered(ticket);
        let (tag, status, submitted) = (request.tag, IoStatus::Ok, cx.now);
        cx.push(Action::Reply(Reply { tag, status, submitted, data }));
        true
    }

    pub(in crate::engine) fn submit_read(
        &mut self,
        request: Request,
        no_admit: bool,
        purpose: ReadFor,
        cx: &mut Cx<'_>,
    ) {
        let range = request.range;
        let is_stream = self.cache.observe_stream(range, &cx.config);
        let bypass =
            is_stream && purpose == ReadFor::Client && self.cache.passes_streams_by(&cx.config);
        let caches = self.mode.caches();
        let passes_by = no_admit || bypass;
        cx.counters.reads_bypassed += u64::from(caches && passes_by);
        let admit = caches && self.mode.keeps_reads() && !passes_by && !cx.is_unsettled;
        let target = match caches {
            true => cx.grid.align_to_granules(range),
            false => cx.align_to_backend(range),
        };
        let job = ReadJob {
            purpose,
            admit,
            is_doubtful: cx.is_unsettled,
            is_stream,
            use_cache: caches,
            // Should it run in a mode with a cache, it does not hold whole granules.
            exact: !caches,
            target,
            cursor: target.start,
            source: Source::Ram,
            found: FoundHere::Nothing,
            partial: None,
            overlay: (target.start, 0),
        };
        let access = Access::Read(self.fetched(&job, range, cx));
        self.enter(request, access, target, Job::Read(job), cx);
    }

    /// What is fetched for a read of `range`: what will not be kept is cut to what the client asked for.
    pub(in crate::engine) fn fetched(
        &self,
        job: &ReadJob,
        range: ByteRange,
        shared: &Shared,
    ) -> ByteRange {
        if job.admit { job.target } else { shared.align_to_backend(range) }
    }

    /// A prefetch is a read that nobody receives. It is advice: what is longer than a request may
    /// be is cut, and a disk that does not cache ignores it.
    pub(in crate::engine) fn submit_prefetch(&mut self, mut request: Request, cx: &mut Cx<'_>) {
        if !self.mode.caches() || (!self.cache.has_ram() && !self.cache.has_flash()) {
            cx.counters.prefetches += 1;
            return self.refuse(request, IoStatus::Ok, cx);
        }
        let range = request.range;
        request.range = ByteRange::at(range.start, range.len().min(REQUEST_MAX));
        self.submit_read(request, false, ReadFor::Cache, cx);
    }

    pub(in crate::engine) fn run_read(&mut self, key: Key, cx: &mut Cx<'_>) {
        self.lay_out_again(key, cx);
        if !self.ensure_buffer(key, cx) {
            return;
        }
        self.choose_sources(key, cx);
        let entry = &self.requests.table[key];
        let job = entry.job.read();
        let chosen = job.cursor >= job.target.end || entry.failed.is_some() || entry.answered;
        if !chosen || entry.outstanding > 0 {
            return;
        }
        let mut job = job;
        if job.partial.is_some() && entry.failed.is_none() && !entry.answered {
            let is_done = self.run_overlay(key, &mut job, cx);
            self.requests.table[key].job = Job::Read(job);
            if !is_done {
                return;
            }
        }
        self.finish_read(key, job, cx);
    }

    /// Lays a read out that waited, if what it was laid out on may have changed.
    fn lay_out_again(&mut self, key: Key, cx: &mut Cx<'_>) {
        // With a log the grid does not move, and what waited with a buffer may still be in another mode.
        if self.requests.table[key].buffer.is_none()
            || (self.write_back.is_some() && !self.has_begun(key))
        {
            self.lay_out(key, cx);
        }
    }

    /// True when a source was chosen for some of a read.
    fn has_begun(&self, key: Key) -> bool {
        let entry = &self.requests.table[key];
        let job = entry.job.read();
        job.cursor > job.target.start || entry.outstanding > 0
    }

    /// Lays a read out on the grid as it is, in the mode as it is: both may have changed while it waited.
    pub(in crate::engine) fn lay_out(&mut self, key: Key, cx: &mut Cx<'_>) {
        let range = self.requests.table[key].range;
        let caches = self.mode.caches();
        let ReadJob { exact, .. } = self.requests.table[key].job.read();
        let target = match caches && !exact {
            true => cx.grid.align_to_granules(range),
            false => cx.align_to_backend(range),
        };
        let job = self.requests.table[key].job.read_mut();
        job.use_cache = caches;
        job.admit &= caches;
        // It may hold no more than that from now on, whatever the mode becomes.
        job.exact |= !caches;
        (job.target, job.cursor, job.overlay) = (target, target.start, (target.start, 0));
    }

    /// Goes on from the cursor until everything has a source or enough I/Os are under way.
    fn choose_sources(&mut self, key: Key, cx: &mut Cx<'_>) {
        loop {
            let entry = &self.requests.table[key];
            let mut job = entry.job.read();
            let stop = entry.failed.is_some() || entry.answered || entry.outstanding >= FETCHES_MAX;
            if stop || job.cursor >= job.target.end {
                return;
            }
            if !job.use_cache {
                let end = job.target.end;
                self.fetch(key, &mut job, end, cx);
            } else {
                self.choose_source(key, &mut job, cx);
            }
            self.requests.table[key].job = Job::Read(job);
        }
    }

    /// Chooses the source of the bytes at the cursor, for as far as it is the same.
    fn choose_source(&mut self, key: Key, job: &mut ReadJob, cx: &mut Cx<'_>) {
        let block = cx.grid.block_of(job.cursor);
        let rest = ByteRange::new(job.cursor, job.target.end);
        let wanted = cx.grid.touched(block, rest);
        let (first, _) = wanted.first_run().expect("the cursor is in the block");
        let found = self.usable(block, job);
        if let Some((slot, valid)) = found.ram
            && valid.has(first)
        {
            let end = run_end(valid.intersect(wanted), first);
            return self.copy_from_ram(key, job, SlotRun { block, slot, first, end }, cx);
        }
        let granule = cx.grid.granule_range(block, first, first + 1);
        if let Some(end) = self.end_of_left(job, granule, cx) {
            return self.fetch(key, job, end, cx);
        }
        if self.read_log(key, job, granule, cx) {
            return;
        }
        if let Some((slot, valid)) = found.flash
            && valid.has(first)
        {
            let valid = valid.intersect(wanted).without(found.in_ram());
            let end = run_end(valid.without(self.logged_granules(block, valid, cx)), first);
            return self.read_flash(key, job, SlotRun { block, slot, first, end }, cx);
        }
        // An exact read may begin within a granule of which the log has other sectors.
        let end = match job.exact {
            true => granule.end.min(job.target.end),
            false => self.end_of_miss(job, cx),
        };
        self.fetch(key, job, end, cx);
    }

    /// What the cache has of `block`, as far as a read may use it.
    fn usable(&self, block: BlockIndex, job: &ReadJob) -> Found {
        let found = self.cache.lookup(block);
        Found { flash: found.flash.filter(|_| !job.exact), ..found }
    }

    /// How far from the cursor on primary storage is read for the log, which has the same bytes; `None` when it is not.
    fn end_of_left(&self, job: &ReadJob, granule: ByteRange, shared: &Shared) -> Option<u64> {
        let log = self.write_back.as_ref()?;
        let rest = ByteRange::new(job.cursor, job.target.end);
        let size = shared.grid.granule_size();
        let next = |range: &ByteRange| Some(ByteRange::at(range.end, size).intersect(rest));
        let granules = std::iter::successors(Some(granule.intersect(rest)), next);
        let left = granules.take_while(|&range| log.is_left_to_storage(range));
        left.last().map(|range| range.end)
    }

    /// How far from the cursor on nothing is cached: neighbouring blocks are fetched in one I/O.
    fn end_of_miss(&self, job: &ReadJob, shared: &Shared) -> u64 {
        let rest = ByteRange::new(job.cursor, job.target.end);
        for block in shared.grid.blocks(rest) {
            let touched = shared.grid.touched(block, rest);
            let cached = self.usable(block, job).granules().intersect(touched);
            let cached = cached.union(self.logged_granules(block, touched, shared));
            if let Some((first, _)) = cached.first_run() {
                return shared.grid.granule_range(block, first, first + 1).start;
            }
        }
        job.target.end
    }

    fn copy_from_ram(&mut self, key: Key, job: &mut ReadJob, at: SlotRun, cx: &mut Cx<'_>) {
        let range = cx.grid.granule_range(at.block, at.first, at.end);
        let buffer = self.requests.table[key].memory();
        let from = self.cache.use_ram(at, &cx.grid);
        // An exact read may have a buffer for no more than that.
        let wanted = range.intersect(job.target);
        let from = from.part(wanted.start - range.start, wanted.len());
        cx.push(Action::Copy { from, to: buffer.at(wanted) });
        cx.counters.ram_read_bytes += wanted.len();
        job.found = FoundHere::Part;
        job.cursor = range.end;
    }

    fn read_flash(&mut self, key: Key, job: &mut ReadJob, at: SlotRun, cx: &mut Cx<'_>) {
        let bytes = cx.grid.granule_range(at.block, at.first, at.end);
        let buffer = self.requests.table[key].memory();
        let place = self.cache.begin_flash_read(at, &cx.grid);
        let op = IoOp::Read { memory: buffer.at(bytes) };
        let io = RequestIo::Flash { at, bytes };
        cx.counters.flash_read_bytes += place.len();
        self.requests.start_io(key, io, Target::Flash, place, op, cx);
        job.source = job.source.max(Source::Flash);
        job.cursor = bytes.end;
    }

    /// Reads from the cursor to `end` from primary storage. What will not be kept is cut to what the
    /// client asked for.
    fn fetch(&mut self, key: Key, job: &mut ReadJob, end: u64, cx: &mut Cx<'_>) {
        let range = ByteRange::new(job.cursor, end);
        job.cursor = end;
        job.source = Source::Backend;
        let range = range.intersect(self.fetched(job, self.requests.table[key].range, cx));
        if !range.is_empty() {
            self.note_fetched(job, range, cx);
            self.fetch_range(key, range, cx);
        }
    }

    /// The cache did not have `range` of a read.
    fn note_fetched(&mut self, job: &ReadJob, range: ByteRange, cx: &mut Cx<'_>) {
        if job.use_cache && job.purpose != ReadFor::Edge {
            let fate = if job.admit { Fate::Kept } else { Fate::Bypassed };
            self.cache.note_fetched(range, job.is_stream, fate, cx);
        }
    }

    pub(in crate::engine) fn fetch_range(&mut self, key: Key, range: ByteRange, cx: &mut Cx<'_>) {
        let buffer = self.requests.table[key].memory();
        if let Some(write_back) = &mut self.write_back {
            write_back.note_guest_read_start(cx.now);
        }
        self.requests.read_backend(key, RequestIo::Fetch, range, buffer.at(range), cx);
    }

    /// Primary storage delivered, or failed.
    pub(in crate::engine) fn on_fetched(&mut self, key: Key, status: IoStatus, cx: &mut Cx<'_>) {
        self.requests.end_io(key, status, cx);
        cx.ready.push_back(key);
    }

    /// Flash delivered, or failed: then primary storage is asked.
    pub(in crate::engine) fn on_flash_read(
        &mut self,
        key: Key,
        at: SlotRun,
        bytes: ByteRange,
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) {
        self.requests.end_io(key, IoStatus::Ok, cx);
        if self.requests.table[key].answered {
            // Its range was free since, and its slot may have had newer bytes.
            self.cache.abandon_flash_read(at.slot);
            cx.ready.push_back(key);
            return;
        }
        let is_right = self.cache.end_flash_read(at, status, checksums, cx);
        let entry = &mut self.requests.table[key];
        let range = entry.range;
        let job = entry.job.read_mut();
        if is_right {
            job.found = FoundHere::Part;
        } else {
            job.source = Source::Backend;
            let job = *job;
            self.note_fetched(&job, bytes.intersect(self.fetched(&job, range, cx)), cx);
            self.fetch_range(key, bytes, cx);
        }
        cx.ready.push_back(key);
    }

    fn finish_read(&mut self, key: Key, job: ReadJob, cx: &mut Cx<'_>) {
        let entry = self.requests.table[key];
        if entry.answered {
            return self.requests.forget(key, cx);
        }
        if let Some(status) = entry.failed {
            self.requests.answer(key, status, ReplyData::None, None, cx);
            return self.requests.forget(key, cx);
        }
        let buffer = entry.memory();
        if job.admit {
            let Parts { cache, write_back, .. } = self;
            let undestaged = undestaged(write_back.as_ref());
            if job.purpose == ReadFor::Edge {
                let blocks = cx.grid.blocks(job.target);
                blocks.for_each(|block| cx.misses.note_written(block, Fate::Kept));
            }
            cache.install(job.target, buffer, &undestaged, cx);
        }
        self.hand_over(key, job, buffer, cx);
        match job.purpose {
            ReadFor::Edge => {
                self.requests.answer(key, IoStatus::Ok, ReplyData::None, None, cx);
                return self.requests.forget(key, cx);
            }
            ReadFor::Client => {}
            ReadFor::Cache => {
                cx.counters.prefetches += 1;
                self.requests.answer(key, IoStatus::Ok, ReplyData::None, None, cx);
                return self.requests.forget(key, cx);
            }
            ReadFor::Compare { fua } => return self.compare(key, buffer, fua, cx),
        }
        self.count_read(&job, entry.range.len(), cx);
        cx.lent += 1;
        self.requests.table[key].buffer = None;
        let data = ReplyData::Buffer { data: buffer.at(entry.range), buffer };
        let of = LatencyOf::Read(job.source);
        self.requests.answer(key, IoStatus::Ok, data, Some(of), cx);
        self.requests.forget(key, cx);
    }

    /// Gives what was read to the reads that wait for it alone.
    fn hand_over(&mut self, key: Key, job: ReadJob, buffer: Buffer, cx: &mut Cx<'_>) {
        if job.is_doubtful || matches!(job.purpose, ReadFor::Compare { .. }) {
            return;
        }
        let bytes = self.fetched(&job, self.requests.table[key].range, cx);
        let mut place = 0;
        while let Some((next, waiter)) = self.requests.overlap.next_waiter(key, place) {
            place = next;
            self.take_over(waiter, (bytes, job.source), buffer, cx);
        }
    }

    /// The read `key`, which waits, takes its bytes from `buffer` if that has them all. It goes on when its range is free.
    fn take_over(
        &mut self,
        key: Key,
        (bytes, source): (ByteRange, Source),
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) {
        if !matches!(self.requests.table[key].job, Job::Read(_))
            || self.requests.table[key].answered
        {
            return;
        }
        self.lay_out_again(key, cx);
        let entry = self.requests.table[key];
        let mut job = entry.job.read();
        let wanted = self.fetched(&job, entry.range, cx);
        if !bytes.contains(wanted) {
            return;
        }
        let own = match entry.buffer {
            None if self.requests.buffer_queue.is_empty() => cx.take_buffer(entry.range),
            buffer => buffer.filter(|buffer| buffer.window.contains(wanted)),
        };
        let Some(own) = own else { return };
        cx.push(Action::Copy { from: buffer.at(wanted), to: own.at(wanted) });
        job.cursor = job.target.end;
        job.source = source;
        if job.use_cache {
            job.found = FoundHere::Joined;
            self.cache.note_use(job.target, &cx.grid);
        }
        (self.requests.table[key].job, self.requests.table[key].buffer) =
            (Job::Read(job), Some(own));
    }

    fn count_read(&mut self, job: &ReadJob, len: u64, cx: &mut Cx<'_>) {
        cx.counters.reads += 1;
        cx.counters.read_bytes += len;
        let counter = match job.source {
            Source::Ram => &mut cx.counters.read_hits_ram,
            Source::Flash => &mut cx.counters.read_hits_flash,
            Source::Backend => match job.found {
                FoundHere::Joined => &mut cx.counters.read_hits_joined,
                FoundHere::Part => &mut cx.counters.read_hits_partial,
                FoundHere::Nothing => &mut cx.counters.read_misses,
            },
        };
        *counter += 1;
    }
}

/// The end of the run of `mask` that `first` belongs to.
fn run_end(mask: GranuleMask, first: u32) -> u32 {
    let from_first = mask.without(GranuleMask::span(0, first));
    from_first.first_run().map_or(first, |(_, end)| end)
}
