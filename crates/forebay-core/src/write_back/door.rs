//! What flows ask of the log: appending, reading, waiting for it, and what it tells.

use super::destage::throttle::Aim;
use super::log::{OverlayState, WriteLog};
use super::{LogEvent, WriteBack};
use crate::action::{Buffer, Event, NoLease, Span};
use crate::config::FlushSemantics;
use crate::cx::{Cx, Shared};
use crate::geometry::ByteRange;
use crate::ids::{GroupNumber, Nanos, SegmentId, Sequence};
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::format::GROUPS_IN_MEMORY;
use crate::write_back::format::index::{Layers, PageGrid, PageIndex, Place};

/// What becomes of a flush of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuestFlush {
    /// Everything acknowledged before is durable, or flushes are deferred and the log works.
    Done,
    /// It waits for the last group.
    Waits,
    /// The log cannot make anything durable any more.
    Fails,
}

/// What a write whose last record is appended waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiter {
    /// Nothing: it is staged where it survives the process.
    Nothing,
    /// Its group being on flash.
    Written,
    /// Its group being durable.
    Durable,
}

/// Appending.
impl WriteBack {
    /// The request's range is its own; it is appended when its turn comes.
    pub(crate) fn wait_for_room(&mut self, key: Key) {
        self.log.waiting.room.push_back(key);
        self.log.waiting.room_changed = true;
    }

    /// Room may have come, or what waits for it may go on otherwise.
    pub(crate) fn note_room(&mut self) {
        self.log.waiting.room_changed = true;
    }

    /// True, once, when room may have come since this was asked.
    pub(crate) fn takes_room(&mut self) -> bool {
        std::mem::take(&mut self.log.waiting.room_changed)
    }

    /// The request that waits longest.
    pub(crate) fn first_waiting(&self) -> Option<Key> {
        self.log.waiting.room.front().copied()
    }

    /// True when the log has all zero records that it may have.
    pub(crate) fn zeroes_are_full(&self) -> bool {
        self.log.index.zeroes_are_full()
    }

    /// Takes the request that waits longest.
    pub(crate) fn take_first(&mut self) -> Option<Key> {
        self.log.waiting.room.pop_front()
    }

    /// What is left of it is appended before anything else: its records follow each other.
    pub(crate) fn put_first(&mut self, key: Key) {
        self.log.waiting.room.push_front(key);
    }

    /// Requests that wait for room, oldest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Key> + '_ {
        self.log.waiting.room.iter().copied()
    }

    /// Nobody waits for room any more: those who did.
    pub(crate) fn take_waiting(&mut self) -> impl Iterator<Item = Key> + use<> {
        std::mem::take(&mut self.log.waiting.room).into_iter()
    }

    /// Takes note of whether writers wait for room.
    pub(crate) fn note_waiting(&mut self, now: Nanos) {
        let log = &mut self.log;
        if !log.waiting.room.is_empty() {
            log.waiting.waited_until = Some(Nanos::NEVER);
        } else if log.waiting.waited_until == Some(Nanos::NEVER) {
            log.waiting.waited_until = Some(now);
        }
    }

    /// True while writers wait for room in a log that works, or did so less than `within` ago.
    pub(crate) fn has_waited(&self, now: Nanos, within: Nanos) -> bool {
        let waited_until =
            self.log.waiting.waited_until.filter(|_| self.log.health.failed.is_none());
        waited_until.is_some_and(|at| now < at.plus(within))
    }

    /// Appends as much of a write to `range` as there is room for now, from the buffer; returns up to where.
    pub(crate) fn append_write(
        &mut self,
        range: ByteRange,
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) -> u64 {
        self.log.append_write(range, buffer, cx)
    }

    /// Appends a zero record; false when there is no room now.
    pub(crate) fn append_zero(
        &mut self,
        range: ByteRange,
        may_unmap: bool,
        cx: &mut Cx<'_>,
    ) -> bool {
        self.log.append_zero(range, may_unmap, cx)
    }

    /// The last record that was appended.
    pub(crate) fn last_sequence(&self) -> Sequence {
        self.log.last_sequence()
    }
}

/// Waiting for what is appended.
impl WriteBack {
    /// All of a write is appended; what it waits for, which is noted.
    pub(crate) fn on_appended(&mut self, key: Key, fua: bool) -> Waiter {
        let log = &mut self.log;
        let group = log.last_group();
        if fua && log.config.flush == FlushSemantics::Honest {
            log.waiting.durable.push_back((key, group));
            Waiter::Durable
        } else if log.config.staging {
            Waiter::Nothing
        } else {
            log.waiting.written.push_back((key, group));
            Waiter::Written
        }
    }

    /// What becomes of a flush of the guest that comes now.
    pub(crate) fn guest_flush(&self) -> GuestFlush {
        let deferred = self.log.config.flush != FlushSemantics::Honest;
        if self.log.is_durable() && !self.may_be_revoked() {
            GuestFlush::Done
        } else if self.log.health.failed.is_some() {
            // Deferred or not: nobody knows when it will be durable.
            GuestFlush::Fails
        } else if deferred {
            GuestFlush::Done
        } else {
            GuestFlush::Waits
        }
    }

    /// A flush waits for everything that is appended.
    pub(crate) fn wait_durable(&mut self, key: Key) {
        let group = self.log.last_group();
        self.log.waiting.durable.push_back((key, group));
    }

    /// What is appended from now on belongs to the next epoch.
    pub(crate) fn raise_epoch(&mut self) {
        self.log.raise_epoch();
    }

    /// The next request whose group is written, or durable where it waits for that.
    pub(crate) fn next_satisfied(&mut self) -> Option<Key> {
        let log = &mut self.log;
        if log.waiting.written.front().is_some_and(|w| w.1 <= log.reached.written.group) {
            return log.waiting.written.pop_front().map(|(key, _)| key);
        }
        log.waiting.durable.pop_front_if(|w| w.1 <= log.reached.durable.group).map(|(key, _)| key)
    }

    /// A request gave up waiting.
    pub(crate) fn leave(&mut self, key: Key) {
        self.log.leave(key);
    }
}

/// A log that failed, or ends.
impl WriteBack {
    pub(crate) fn failed(&self) -> Option<IoStatus> {
        self.log.health.failed
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.log.health.is_lost
    }

    /// The log is not written to any more; those who waited for a group, in order of the groups.
    pub(crate) fn fail(&mut self, status: IoStatus, cx: &mut Cx<'_>) -> Vec<(Key, GroupNumber)> {
        self.destager.stir_reads(cx);
        let log = &mut self.log;
        log.stir_reads(cx);
        log.health.failed = Some(status);
        log.give_up_summary();
        log.keep_in_memory();
        self.destager.leave_nothing();
        cx.event(Event::LogFailed { status });
        let mut told: Vec<_> =
            log.waiting.durable.drain(..).chain(log.waiting.written.drain(..)).collect();
        told.sort_unstable_by_key(|&(_, group)| group);
        told
    }

    /// An answered write whose bytes are only in the memory of a log that failed: it keeps its range.
    pub(crate) fn own(&mut self, key: Key) {
        self.log.health.owners.push(key);
    }

    /// A log that failed is empty, or lost: its last writes let their ranges go.
    pub(crate) fn take_owners(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.log.health.owners)
    }

    /// True when writes that only the memory of a log that failed has hold their ranges.
    pub(crate) fn has_owners(&self) -> bool {
        self.log.health.failed.is_some() && !self.log.health.owners.is_empty()
    }

    /// True when no later start may go on with it.
    pub(crate) fn is_revoked(&self) -> bool {
        self.destager.is_revoked() || self.log.health.is_refused
    }

    /// The same, or it is asked, or was in vain: whoever was to note it may have done so.
    fn may_be_revoked(&self) -> bool {
        self.is_revoked() || self.destager.was_asked_to_revoke()
    }

    /// True when a start goes on with what it holds, or primary storage has all of it: it may be acknowledged.
    pub(crate) fn keeps_writes(&self) -> bool {
        !self.is_lost() && (!self.may_be_revoked() || self.is_clean())
    }

    /// The flash as a whole is revoked.
    pub(crate) fn on_flash_revoked(&mut self) {
        self.log.health.is_refused = true;
    }

    /// Dirty bytes cannot be saved any more.
    pub(crate) fn lose(&mut self) {
        self.log.health.is_lost = true;
        self.destager.stop(false);
    }

    /// The disk ends: everything is to become durable. In a log that failed nothing is to be left.
    pub(crate) fn close(&mut self) {
        self.log.close();
        self.end_hold(Nanos(0));
        let health = &self.log.health;
        if health.is_lost {
            self.destager.stop(false);
        } else if health.failed.is_none() && self.log.config.flush == FlushSemantics::Honest {
            self.destager.finish();
        }
    }

    /// What is not destaged stays in the log.
    pub(crate) fn stop_destaging(&mut self, is_away: bool) -> bool {
        self.destager.stop(is_away)
    }

    /// True when no I/O is under way, nor, at the end, needed for what is acknowledged to be durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.log.is_settled()
    }

    /// A log I/O takes too long: its device is not trusted with the next one. In a log that failed, what cannot be destaged
    /// because a read of it hangs is lost.
    pub(crate) fn time_out(&self, shared: &Shared) -> LogEvent {
        let now = shared.now;
        let is_stuck = self.destage_reads_hang_at() <= now;
        let hangs = self.log.hangs(now)
            || shared.hanging.log_reads.next() <= now
            || self.log.lease_hangs_at() <= now;
        match self.log.health.failed {
            None if hangs || is_stuck => LogEvent::Fails(IoStatus::TimedOut),
            Some(_) if is_stuck => LogEvent::Lost,
            _ => LogEvent::Nothing,
        }
    }

    /// When time alone asks for something of the log or of who waits for the throttle.
    pub(crate) fn log_deadline(&self, since: Nanos, aim: Aim, shared: &Shared) -> Nanos {
        // A log that failed has no other way left: it ends in spite of them.
        let has_failed = self.log.health.failed.is_some();
        let guests = if has_failed { Nanos::NEVER } else { shared.hanging.log_reads.next() };
        let reads = self.destage_reads_hang_at().min(self.forgets_at()).min(guests);
        self.log.next_deadline(since).min(self.acknowledgement_due(aim)).min(reads)
    }

    /// When the reads hang that the destager waits for.
    fn destage_reads_hang_at(&self) -> Nanos {
        if self.log.health.is_lost { Nanos::NEVER } else { self.destager.reads_hang_at() }
    }

    /// When a log that failed, and of which primary storage has everything, waits no more for the reads of it that are under
    /// way: they hang, and keep it from its end.
    pub(super) fn forgets_at(&self) -> Nanos {
        let log = &self.log;
        let ends = log.health.failed.is_some() && !log.health.is_lost && !log.index.is_empty();
        if ends && self.forgets_all() && !log.segments.has_no_reader() {
            log.reading.until
        } else {
            Nanos::NEVER
        }
    }

    /// A lease that was asked for came, or not.
    pub(crate) fn on_leased(
        &mut self,
        now: Nanos,
        lease: Result<(SegmentId, u64), NoLease>,
    ) -> LogEvent {
        self.log.segments.on_leased(now, lease.ok());
        self.log.waiting.room_changed = true;
        let fails = lease == Err(NoLease::Ever) && self.log.health.failed.is_none();
        if fails { LogEvent::Fails(IoStatus::IoError) } else { LogEvent::Nothing }
    }

    /// The rest of the groups' memory came, or there is none.
    pub(crate) fn on_staging_grown(&mut self, is_there: bool) {
        self.log.on_staging_grown(is_there);
    }
}

/// Reading.
impl WriteBack {
    /// Reads the memory that a request at `position` begins with. The value says nothing.
    pub(crate) fn peek(&self, position: u64) -> u64 {
        let index = &self.log.index;
        index.peek(index.grid().page_of(position))
    }

    /// True when the log holds something of `range`.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        self.log.index.touches(range)
    }

    /// The same, of records that primary storage has not, or of a request that is not durable to its end: a loss of what
    /// is not durable would leave it on flash alone, and the rest may be overwritten before it is destaged.
    pub(crate) fn is_undestaged(&self, range: ByteRange) -> bool {
        let done = self.destager.done().min(self.log.durable_whole());
        self.log.index.touches_after(range, done)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.log.index.is_empty()
    }

    pub(crate) fn pages(&self) -> PageGrid {
        self.log.index.grid()
    }

    pub(crate) fn layers(&self, page: PageIndex) -> Layers {
        self.log.index.layers(page)
    }

    /// The memory of a data page whose group is not on flash yet.
    pub(crate) fn in_memory(&self, place: Place) -> Option<Span> {
        self.log.in_memory(place)
    }

    /// True when the second page follows the first one on flash.
    pub(crate) fn are_neighbours(&self, a: Place, b: Place) -> bool {
        self.log.segments.are_neighbours(a, b)
    }

    /// The newest record that was taken out of the log.
    pub(crate) fn forgotten(&self) -> Sequence {
        self.log.reading.forgotten
    }

    /// The page of the disk that is at a place that is held.
    pub(crate) fn page_at(&self, place: Place) -> Option<PageIndex> {
        self.log.index.entry(place).map(|entry| entry.page)
    }

    /// Pages of the log are being read: they stay. Where they lie.
    pub(crate) fn begin_read(
        &mut self,
        place: Place,
        pages: u32,
        shared: &mut Shared,
    ) -> ByteRange {
        self.log.begin_read(place, pages, shared)
    }

    /// Pages that were being read need not stay.
    pub(crate) fn give_up_read(&mut self, place: Place) {
        self.log.segments.unhold(place);
    }

    /// Pages of the log were read; an error when they are not what was written, or the log has not waited for them.
    pub(crate) fn end_read(
        &mut self,
        (place, pages): (Place, u32),
        status: IoStatus,
        checksums: &[u32],
        cx: &mut Cx<'_>,
    ) -> IoStatus {
        self.log.end_read((place, pages), status, checksums, cx)
    }

    /// The page that pages in parts are read through, one read at a time.
    pub(crate) fn overlay(&mut self) -> &mut OverlayState {
        &mut self.log.reading.overlay
    }

    /// True when flash has failed to read something that is not on primary storage since.
    pub(crate) fn reads_failed(&self) -> bool {
        self.destager.flushed() < self.log.reading.unread
    }
}

/// What others see.
impl WriteBack {
    /// Memory of the groups, in which staged records survive.
    pub(crate) fn groups(&self) -> [Span; GROUPS_IN_MEMORY] {
        WriteLog::group_memory(&self.log)
    }
}
