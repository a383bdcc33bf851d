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

use super::inflight::{IoKind, Job, ReadFor, ReadJob};
use super::{Engine, LatencyOf};
use crate::action::{Action, Actions, Buffer, Event, IoOp, Reply, ReplyData, Source, Target};
use crate::characteristics::Kind;
use crate::config::Mode;
use crate::geometry::{ByteRange, GranuleMask, REQUEST_MAX};
use crate::ids::{BlockIndex, Nanos, SlotId};
use crate::overlap::Access;
use crate::request::Request;
use crate::status::IoStatus;
use crate::table::Key;

/// I/Os of one read under way at once.
pub(super) const FETCHES_MAX: u32 = 8;
/// Slots that one reply refers to; a longer hit is copied together.
const SLICES_MAX: usize = 64;

/// A block's slot in one tier and its valid granules, if it is there.
type InTier = Option<(SlotId, GranuleMask)>;

/// Granules `first..end` of a block in a flash slot.
pub(super) type FlashGranules = (BlockIndex, SlotId, u32, u32);

impl Engine {
    /// Answers a read whose every byte is in RAM, straight from the slots.
    pub(super) fn read_from_ram(
        &mut self,
        now: Nanos,
        request: &Request,
        actions: &mut Actions,
    ) -> bool {
        let range = request.range;
        let caches = self.mode.caches() && !self.touches_stale(range);
        let Some(ram) = self.ram.as_mut().filter(|_| caches) else {
            return false;
        };
        if self.overlap.has_writer(range) {
            return false;
        }
        let first = actions.slices.len();
        let pinned = ram.pinned_len();
        let mut position = range.start;
        while position < range.end {
            let piece = self.grid.piece(position, range.end);
            let found = ram.dir.lookup(piece.block);
            let hit = found.filter(|(_, valid)| valid.contains(piece.touched));
            let Some((slot, _)) = hit.filter(|_| actions.slices.len() - first < SLICES_MAX) else {
                // Not all of it: take back what was said of the blocks before.
                actions.slices.truncate(first);
                ram.unpin_from(pinned);
                return false;
            };
            ram.pin(slot);
            actions.slices.push(ram.memory(slot, piece.offset, piece.len));
            position += piece.len;
        }
        ram.hit_from(pinned);
        self.streams.observe(range);
        if let Some(detector) = &mut self.alignment {
            detector.observe(range);
        }
        self.counters.reads += 1;
        self.counters.read_bytes += range.len();
        self.counters.ram_read_bytes += range.len();
        self.counters.read_hits_ram += 1;
        self.note_answered(now, LatencyOf::Read(Source::Ram));
        let ticket = self.observer.taken_of(now, Kind::Read, range);
        self.observer.answered(ticket);
        let count = (actions.slices.len() - first) as u32;
        actions.list.push(Action::Reply(Reply {
            tag: request.tag,
            status: IoStatus::Ok,
            submitted: now,
            data: ReplyData::Slots { first: first as u32, count },
        }));
        true
    }

    pub(super) fn submit_read(
        &mut self,
        now: Nanos,
        request: Request,
        no_admit: bool,
        purpose: ReadFor,
    ) {
        let range = request.range;
        let run = self.streams.observe(range);
        let is_stream = self.is_stream(run);
        let bypass = is_stream && purpose == ReadFor::Client && self.passes_streams_by();
        let caches = self.mode.caches();
        let refused = no_admit || self.mode == Mode::WriteOnly || bypass;
        let admit = caches && !refused;
        self.counters.reads_bypassed += u64::from(caches && !admit);
        let target = match caches {
            true => self.grid.align_to_granules(range),
            false => self.align_to_backend(range),
        };
        let job = ReadJob {
            purpose,
            admit,
            is_doubtful: false,
            is_stream,
            use_cache: caches,
            // Should it run in a mode with a cache, it does not hold whole granules.
            exact: !caches,
            target,
            cursor: target.start,
            source: Source::Ram,
            any_cached: false,
            partial: None,
            overlay: (target.start, 0),
        };
        let access = Access::Read(self.fetched(&job, range));
        self.enter(now, request, access, target, Job::Read(job));
    }

    /// What is fetched for a read of `range`: what will not be kept is cut to what the client asked for.
    pub(super) fn fetched(&self, job: &ReadJob, range: ByteRange) -> ByteRange {
        if job.admit { job.target } else { self.align_to_backend(range) }
    }

    /// A prefetch is a read that nobody receives. It is advice: what is longer than a request may
    /// be is cut, and a disk that does not cache ignores it.
    pub(super) fn submit_prefetch(
        &mut self,
        now: Nanos,
        mut request: Request,
        actions: &mut Actions,
    ) {
        if !self.mode.caches() || (self.ram.is_none() && self.flash.is_none()) {
            self.counters.prefetches += 1;
            return self.refuse(now, request, IoStatus::Ok, actions);
        }
        let range = request.range;
        request.range = ByteRange::at(range.start, range.len().min(REQUEST_MAX));
        self.submit_read(now, request, false, ReadFor::Cache);
    }

    pub(super) fn run_read(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        self.lay_out_again(key);
        if !self.ensure_buffer(key) {
            return;
        }
        self.choose_sources(now, key, actions);
        let entry = &self.requests[key];
        let Job::Read(job) = entry.job else { unreachable!("a read") };
        let chosen = job.cursor >= job.target.end || entry.failed.is_some() || entry.answered;
        if !chosen || entry.outstanding > 0 {
            return;
        }
        let mut job = job;
        if job.partial.is_some() && entry.failed.is_none() && !entry.answered {
            let is_done = self.run_overlay(now, key, &mut job, actions);
            self.requests[key].job = Job::Read(job);
            if !is_done {
                return;
            }
        }
        self.finish_read(now, key, job, actions);
    }

    /// Lays a read out that waited, if what it was laid out on may have changed.
    fn lay_out_again(&mut self, key: Key) {
        // With a log the grid does not move, and what waited with a buffer may still be in another mode.
        if self.requests[key].buffer.is_none() || (self.log.is_some() && !self.has_begun(key)) {
            self.lay_out(key);
        }
    }

    /// True when a source was chosen for some of a read.
    fn has_begun(&self, key: Key) -> bool {
        let entry = &self.requests[key];
        let Job::Read(job) = entry.job else { unreachable!("a read") };
        job.cursor > job.target.start || entry.outstanding > 0
    }

    /// Lays a read out on the grid as it is, in the mode as it is: both may have changed while it waited.
    pub(super) fn lay_out(&mut self, key: Key) {
        let range = self.requests[key].range;
        let caches = self.mode.caches();
        let Job::Read(ReadJob { exact, .. }) = self.requests[key].job else {
            unreachable!("a read")
        };
        let target = match caches && !exact {
            true => self.grid.align_to_granules(range),
            false => self.align_to_backend(range),
        };
        let Job::Read(job) = &mut self.requests[key].job else { unreachable!("a read") };
        job.use_cache = caches;
        job.admit &= caches;
        (job.target, job.cursor, job.overlay) = (target, target.start, (target.start, 0));
    }

    /// Goes on from the cursor until everything has a source or enough I/Os are under way.
    fn choose_sources(&mut self, now: Nanos, key: Key, actions: &mut Actions) {
        loop {
            let entry = &self.requests[key];
            let Job::Read(mut job) = entry.job else { unreachable!("a read") };
            let stop = entry.failed.is_some() || entry.answered || entry.outstanding >= FETCHES_MAX;
            if stop || job.cursor >= job.target.end {
                return;
            }
            if !job.use_cache {
                let end = job.target.end;
                self.fetch(now, key, &mut job, end, actions);
            } else {
                self.choose_source(now, key, &mut job, actions);
            }
            self.requests[key].job = Job::Read(job);
        }
    }

    /// Chooses the source of the bytes at the cursor, for as far as it is the same.
    fn choose_source(&mut self, now: Nanos, key: Key, job: &mut ReadJob, actions: &mut Actions) {
        let block = self.grid.block_of(job.cursor);
        let rest = ByteRange::new(job.cursor, job.target.end);
        let wanted = self.grid.touched(block, rest);
        let (first, _) = wanted.first_run().expect("the cursor is in the block");
        let (ram, flash) = self.lookup(block, job);
        if let Some((slot, valid)) = ram
            && valid.has(first)
        {
            let end = run_end(valid.intersect(wanted), first);
            return self.copy_from_ram(key, job, (block, slot, first, end), actions);
        }
        let granule = self.grid.granule_range(block, first, first + 1);
        if self.read_log(now, key, job, granule, actions) {
            return;
        }
        let in_ram = ram.map_or(GranuleMask::NONE, |(_, valid)| valid);
        if let Some((slot, valid)) = flash
            && valid.has(first)
        {
            let valid = valid.without(in_ram).without(self.logged_granules(block));
            let end = run_end(valid.intersect(wanted), first);
            return self.read_flash(now, key, job, (block, slot, first, end), actions);
        }
        // An exact read may begin within a granule of which the log has other sectors.
        let end = match job.exact {
            true => granule.end.min(job.target.end),
            false => self.end_of_miss(job),
        };
        self.fetch(now, key, job, end, actions);
    }

    /// The slot and the valid granules of `block` in RAM and on flash, as far as a read may use them.
    fn lookup(&self, block: BlockIndex, job: &ReadJob) -> (InTier, InTier) {
        if self.stale.has(block) {
            return (None, None);
        }
        let ram = self.ram.as_ref().and_then(|ram| {
            let slot = ram.dir.find(block)?;
            Some((slot, ram.dir.valid(slot)))
        });
        let flash = self.flash.as_ref().filter(|_| !job.exact);
        let flash = flash.and_then(|flash| flash.find(block));
        (ram, flash)
    }

    /// How far from the cursor on nothing is cached: neighbouring blocks are fetched in one I/O.
    fn end_of_miss(&self, job: &ReadJob) -> u64 {
        let rest = ByteRange::new(job.cursor, job.target.end);
        for block in self.grid.blocks(rest) {
            let (ram, flash) = self.lookup(block, job);
            let valid =
                |tier: Option<(SlotId, GranuleMask)>| tier.map_or(GranuleMask::NONE, |t| t.1);
            let cached = valid(ram).union(valid(flash)).union(self.logged_granules(block));
            let cached = cached.intersect(self.grid.touched(block, rest));
            if let Some((first, _)) = cached.first_run() {
                return self.grid.granule_range(block, first, first + 1).start;
            }
        }
        job.target.end
    }

    fn copy_from_ram(
        &mut self,
        key: Key,
        job: &mut ReadJob,
        (block, slot, first, end): FlashGranules,
        actions: &mut Actions,
    ) {
        let range = self.grid.granule_range(block, first, end);
        let buffer = self.requests[key].buffer.expect("a running read has a buffer");
        let ram = self.ram.as_mut().expect("there is a RAM tier");
        ram.dir.hit(slot);
        let from = ram.memory(slot, self.grid.offset_in_block(range.start), range.len());
        actions.list.push(Action::Copy { from, to: buffer.at(range) });
        self.counters.ram_read_bytes += range.len();
        job.any_cached = true;
        job.cursor = range.end;
    }

    fn read_flash(
        &mut self,
        now: Nanos,
        key: Key,
        job: &mut ReadJob,
        (block, slot, first, end): FlashGranules,
        actions: &mut Actions,
    ) {
        let range = self.grid.granule_range(block, first, end);
        let buffer = self.requests[key].buffer.expect("a running read has a buffer");
        let flash = self.flash.as_mut().expect("there is a flash tier");
        flash.dir.hit(slot);
        flash.hold(slot);
        let place = flash.range(slot, first, end, self.grid.granule_size());
        let op = IoOp::Read { memory: buffer.at(range) };
        let bytes = range;
        let kind = IoKind::FlashRead { request: key, block, slot, first, end, bytes };
        self.counters.flash_read_bytes += place.len();
        self.start_io(now, Target::Flash, place, op, kind, actions);
        job.any_cached = true;
        job.source = job.source.max(Source::Flash);
        job.cursor = range.end;
    }

    /// Reads from the cursor to `end` from primary storage. What will not be kept is cut to what the
    /// client asked for.
    fn fetch(&mut self, now: Nanos, key: Key, job: &mut ReadJob, end: u64, actions: &mut Actions) {
        let range = ByteRange::new(job.cursor, end);
        job.cursor = end;
        job.source = Source::Backend;
        let range = range.intersect(self.fetched(job, self.requests[key].range));
        if !range.is_empty() {
            if job.use_cache && job.purpose != ReadFor::Edge {
                self.note_fetched(range, job.is_stream);
            }
            self.fetch_range(now, key, range, actions);
        }
    }

    pub(super) fn fetch_range(
        &mut self,
        now: Nanos,
        key: Key,
        range: ByteRange,
        actions: &mut Actions,
    ) {
        let buffer = self.requests[key].buffer.expect("a running read has a buffer");
        let op = IoOp::Read { memory: buffer.at(range) };
        let kind = IoKind::BackendRead { request: key };
        self.counters.backend_reads += 1;
        self.counters.backend_read_bytes += range.len();
        self.start_io(now, Target::Backend, range, op, kind, actions);
    }

    /// Primary storage delivered, or failed.
    pub(super) fn on_fetched(&mut self, now: Nanos, key: Key, status: IoStatus) {
        self.end_request_io(now, key, status);
        self.ready.push_back(key);
    }

    /// Flash delivered, or failed: then primary storage is asked.
    #[expect(clippy::too_many_arguments, reason = "the facts of one completion")]
    pub(super) fn on_flash_read(
        &mut self,
        now: Nanos,
        key: Key,
        (block, slot, first, end): FlashGranules,
        (place, bytes): (ByteRange, ByteRange),
        status: IoStatus,
        checksums: &[u32],
        actions: &mut Actions,
    ) {
        self.end_request_io(now, key, IoStatus::Ok);
        let flash = self.flash.as_mut().expect("there is a flash tier");
        let right = status.is_ok() && flash.checksums(slot, first, end) == checksums;
        if status.is_ok() && !right {
            self.counters.flash_checksum_errors += 1;
            actions.list.push(Action::Event(Event::ChecksumMismatch { offset: place.start }));
        }
        if !right && flash.dir.find(block) == Some(slot) {
            flash.invalidate(block, GranuleMask::span(first, end));
        }
        flash.unhold(slot);
        if !right && !self.requests[key].answered {
            if let Job::Read(job) = &mut self.requests[key].job {
                job.source = Source::Backend;
            }
            self.fetch_range(now, key, bytes, actions);
        }
        self.ready.push_back(key);
    }

    fn finish_read(&mut self, now: Nanos, key: Key, job: ReadJob, actions: &mut Actions) {
        let entry = self.requests[key];
        if entry.answered {
            return self.forget(key);
        }
        if let Some(status) = entry.failed {
            self.answer(key, status, ReplyData::None, None, actions);
            return self.forget(key);
        }
        let buffer = entry.buffer.expect("a running read has a buffer");
        if job.admit {
            self.install(now, job.target, buffer, actions);
        }
        self.hand_over(key, job, buffer, actions);
        match job.purpose {
            ReadFor::Edge => {
                self.answer(key, IoStatus::Ok, ReplyData::None, None, actions);
                return self.forget(key);
            }
            ReadFor::Client => {}
            ReadFor::Cache => {
                self.counters.prefetches += 1;
                self.answer(key, IoStatus::Ok, ReplyData::None, None, actions);
                return self.forget(key);
            }
            ReadFor::Compare { .. } => return self.compare(now, key, actions),
        }
        self.count_read(&job, entry.range.len());
        self.lent += 1;
        self.requests[key].buffer = None;
        let data = ReplyData::Buffer { data: buffer.at(entry.range), buffer };
        // Who joined waited for primary storage as well.
        let slowest = if job.source == Source::Joined { Source::Backend } else { job.source };
        let of = LatencyOf::Read(slowest);
        self.answer(key, IoStatus::Ok, data, Some(of), actions);
        self.forget(key);
    }

    /// Gives what was read to the reads that wait for it alone.
    fn hand_over(&mut self, key: Key, job: ReadJob, buffer: Buffer, actions: &mut Actions) {
        if job.is_doubtful || matches!(job.purpose, ReadFor::Compare { .. }) {
            return;
        }
        let bytes = self.fetched(&job, self.requests[key].range);
        let mut place = 0;
        while let Some((next, waiter)) = self.overlap.next_waiter(key, place) {
            place = next;
            self.take_over(waiter, bytes, buffer, actions);
        }
    }

    /// The read `key`, which waits, takes its bytes from `buffer` if that has them all. It goes on when its range is free.
    fn take_over(&mut self, key: Key, bytes: ByteRange, buffer: Buffer, actions: &mut Actions) {
        if !matches!(self.requests[key].job, Job::Read(_)) || self.requests[key].answered {
            return;
        }
        self.lay_out_again(key);
        let entry = self.requests[key];
        let Job::Read(mut job) = entry.job else { unreachable!("a read") };
        let wanted = self.fetched(&job, entry.range);
        if !bytes.contains(wanted) {
            return;
        }
        let own = match entry.buffer {
            None if self.buffer_waiters.is_empty() => self.take_buffer(entry.range),
            buffer => buffer.filter(|buffer| buffer.window.contains(wanted)),
        };
        let Some(own) = own else { return };
        actions.list.push(Action::Copy { from: buffer.at(wanted), to: own.at(wanted) });
        job.cursor = job.target.end;
        if job.use_cache {
            (job.source, job.any_cached) = (Source::Joined, true);
            self.note_use(job.target);
        } else {
            job.source = Source::Backend;
        }
        (self.requests[key].job, self.requests[key].buffer) = (Job::Read(job), Some(own));
    }

    /// The blocks of `range` that are cached were used.
    fn note_use(&mut self, range: ByteRange) {
        for block in self.grid.blocks(range) {
            if let Some(ram) = &mut self.ram
                && let Some(slot) = ram.dir.find(block)
            {
                ram.dir.hit(slot);
            } else if let Some(flash) = &mut self.flash
                && let Some((slot, _)) = flash.find(block)
            {
                flash.dir.hit(slot);
            }
        }
    }

    fn count_read(&mut self, job: &ReadJob, len: u64) {
        self.counters.reads += 1;
        self.counters.read_bytes += len;
        let counter = match job.source {
            Source::Ram => &mut self.counters.read_hits_ram,
            Source::Flash => &mut self.counters.read_hits_flash,
            Source::Joined => &mut self.counters.read_hits_joined,
            Source::Backend if job.any_cached => &mut self.counters.read_hits_partial,
            Source::Backend => &mut self.counters.read_misses,
        };
        *counter += 1;
    }
}

/// The end of the run of `mask` that `first` belongs to.
fn run_end(mask: GranuleMask, first: u32) -> u32 {
    let from_first = mask.without(GranuleMask::span(0, first));
    from_first.first_run().map_or(first, |(_, end)| end)
}
