//! Group commit: the open group goes to flash when somebody waits for it and no log I/O is in its way.
//!
//! ```text
//!            somebody waits for durability?     everything before durable, or about to be?
//!  open ──┬─ no ─── gathered enough, or [`GATHER_MAX`] ───────► write ─────────► written
//!         └─ yes ─┬─ yes ─► durable write ────────────────────────────────────► written, durable
//!                 └─ no ──► write ─► flush ───────────────────────────────────► durable
//! ```
//! A segment that is full gets its summary before the next group is written (`summary.rs`).
//! A durable write says nothing of the writes before it, hence the second question.
//!
//! **Two at a time.** A durable write may go beside another one (`under_way.rs`), so that what comes while a group is on
//! its way does not wait for it. It brings at least as many pages as that one, or is full: many small groups would
//! cost more than the wait. In strict order each group acknowledged by itself is an epoch by itself, so there
//! groups go one by one as soon as destaging does not keep up.
//!
//! **Gathering.** Where staged records survive the process, a plain write is acknowledged before it is on flash, so
//! that nobody waits for its group: it stays open for company. It is written at once when a FUA, a FLUSH, the
//! destager or the end of the disk wants it durable, or a write finds no room in it.

use super::{GroupState, WriteLog, hang_at};
use crate::action::{Action, IoOp, LogAction, Target};
use crate::config::{DestageOrder, FlushSemantics};
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::{GroupNumber, Nanos};
use crate::status::IoStatus;
use crate::write_back::format::index::Place;
use crate::write_back::{LogEvent, LogIo, WriteBack};

/// How long a group that nobody waits for stays open. Not longer, because nothing of it is destaged meanwhile.
const GATHER_MAX: Nanos = Nanos::from_millis(1);
/// Data pages of a group that is worth a write.
const GATHER_PAGES: u32 = 64;
/// Part of the log that may be dirty, in strict order, while groups go two at a time.
const BACKLOG_PART: u64 = 64;

impl WriteLog {
    /// Until when the open group may wait for company; none is open, or it is written: never.
    fn gathers_until(&self) -> Nanos {
        let group = &self.memory.groups[self.memory.open];
        let is_open = group.state == GroupState::Open && group.layout.entries > 0;
        if is_open && self.under_way.is_none() {
            group.opened.plus(GATHER_MAX)
        } else {
            Nanos::NEVER
        }
    }

    /// True when nobody waits for the open group and it may gather more.
    fn gathers(&self, now: Nanos) -> bool {
        let group = &self.memory.groups[self.memory.open];
        self.config.staging
            && !self.has_writers_waiting()
            && group.layout.data_pages < GATHER_PAGES.min(group.pages_max)
            && !self.wants_durable(now, group.number)
            && now < self.gathers_until()
    }

    /// True when the open group, which has records, is to be written now.
    fn may_write(&self, now: Nanos, two_at_a_time: bool) -> bool {
        if self.summary_due().is_some() {
            return false;
        }
        if self.under_way.is_none() {
            return !self.gathers(now);
        }
        let group = &self.memory.groups[self.memory.open];
        let is_full = self.has_writers_waiting();
        let is_worth_it = |pages: u32| is_full || group.layout.pages() >= pages;
        two_at_a_time
            && self.under_way.may_be_joined().is_some_and(is_worth_it)
            && self.wants_durable(now, group.number)
    }

    /// True when everything is to become durable, whoever waits for it.
    fn wants_all_durable(&self, now: Nanos) -> bool {
        let overdue = match self.config.flush {
            FlushSemantics::Honest => false,
            FlushSemantics::Deferred { .. } => self.volatile_until() <= now,
        };
        self.wants.closing || overdue || self.wants.durable
    }

    /// True when a flush is wanted for what is written. It goes before what came later, or writers that do
    /// not stop would keep it waiting.
    fn wants_flush(&self, now: Nanos) -> bool {
        let waits = || {
            self.waiting
                .durable
                .front()
                .is_some_and(|&(_, group)| group <= self.reached.written.group)
        };
        self.reached.durable.group < self.reached.written.group
            && (self.wants_all_durable(now) || waits())
    }

    /// True when the group is to be durable as soon as it is written.
    fn wants_durable(&self, now: Nanos, group: GroupNumber) -> bool {
        let waits = || self.waiting.durable.back().is_some_and(|&(_, waits)| waits >= group);
        self.wants_all_durable(now) || waits()
    }

    /// When time alone asks for something.
    pub(crate) fn next_deadline(&self, since: Nanos) -> Nanos {
        let io = match self.under_way.is_none() {
            true if self.config.staging => self.volatile_until().min(self.gathers_until()),
            true => self.volatile_until(),
            false => self.under_way.until(),
        };
        let next = io.min(self.segments.lease_deadline(since)).min(self.lease_hangs_at());
        if self.health.failed.is_some() { Nanos::NEVER } else { next }
    }

    /// This group, and all before it, are on flash.
    fn note_written(&mut self, number: usize, durable: bool) {
        let group = self.memory.groups[number];
        assert_eq!(group.number.0, self.reached.written.group.0 + 1, "groups count in their order");
        self.memory.groups[number].state = GroupState::Empty;
        self.reached.end = group.position.plus(group.layout.pages());
        (self.reached.written.group, self.reached.written.sequence) = (group.number, group.last);
        self.reached.written.whole = group.whole;
        self.waiting.room_changed = true;
        if durable {
            self.wants.durable = false;
            (self.reached.durable.group, self.reached.durable.sequence) =
                (group.number, group.last);
            self.reached.durable.whole = group.whole;
        }
    }

    /// What is not on flash stays in the groups' memory, and is destaged from there.
    pub(in crate::write_back) fn keep_in_memory(&mut self) {
        let open = &mut self.memory.groups[self.memory.open];
        if open.state == GroupState::Open && open.layout.entries > 0 {
            open.state = GroupState::Writing;
            let (position, last, pages) = (open.position, open.last, open.layout.pages());
            self.segments.take_pages(pages);
            self.segments.note_last(position, last);
        }
        for group in self.memory.groups.iter().filter(|group| group.state == GroupState::Writing) {
            self.reached.end = self.reached.end.max(group.position.plus(group.layout.pages()));
        }
        self.reached.written.sequence = self.last_sequence();
        self.reached.durable.sequence = self.last_sequence();
        // There is no ring any more that a restart could believe.
        self.reached.durable.whole = self.last_sequence();
        self.wants.oldest_volatile = Nanos::NEVER;
    }

    /// When what is staged has to become durable although nobody asked.
    pub(crate) fn volatile_until(&self) -> Nanos {
        match self.config.flush {
            FlushSemantics::Honest => Nanos::NEVER,
            // The flush itself takes a part of the time.
            FlushSemantics::Deferred { dirty_age_max } => {
                self.wants.oldest_volatile.plus(Nanos(dirty_age_max.0 / 2))
            }
        }
    }
}

impl WriteBack {
    /// Starts the next log I/O, if there is a reason and none is in its way.
    pub(crate) fn commit(&mut self, cx: &mut Cx<'_>) {
        let until = cx.now.plus(cx.config.flash_timeout);
        let dirty = self.occupied_bytes();
        let log = &mut self.log;
        let keeps_up = dirty * BACKLOG_PART <= log.segments.pages_max() * PAGE;
        let two_at_a_time = keeps_up || log.config.order != DestageOrder::Strict;
        if log.health.failed.is_some() {
            return;
        }
        if log.segments.wants_lease(cx.now) {
            log.segments.begin_lease(hang_at(cx));
            cx.push(Action::Lease);
        }
        let group = &log.memory.groups[log.memory.open];
        let has_records = group.state == GroupState::Open && group.layout.entries > 0;
        if log.under_way.is_none() && log.wants_flush(cx.now) {
            log.under_way.start_flush(until, log.reached.written.group);
            cx.counters.log_flushes += 1;
            let nothing = ByteRange::default();
            cx.start(Target::Log, nothing, IoOp::Flush, IoKind::Log(LogIo::Flush));
        } else if log.under_way.is_none()
            && let Some(place) = log.summary_due()
        {
            self.write_summary(place, until, cx);
        } else if has_records && log.may_write(cx.now, two_at_a_time) {
            self.write_group(until, cx);
        }
    }

    /// Writes the open group; the next one opens with the next record.
    fn write_group(&mut self, until: Nanos, cx: &mut Cx<'_>) {
        let log = &mut self.log;
        let number = log.memory.open;
        let group = log.memory.groups[number];
        let joins = u64::from(!log.under_way.is_none());
        let before_is_durable = log.reached.durable.group.0 + joins + 1 == group.number.0;
        let durable = before_is_durable && log.wants_durable(cx.now, group.number);
        log.under_way.start_write(until, number, group.layout.pages(), durable);
        log.memory.groups[number].state = GroupState::Writing;
        log.memory.open = (number + 1) % log.memory.groups.len();
        log.waiting.room_changed = true;
        log.segments.take_pages(group.layout.pages());
        log.segments.note_last(group.position, group.last);
        let durable_now = log.reached.durable.sequence;
        let header = group.header();
        let summary = log.summarize(&group);
        cx.actions.push_log(LogAction::SealGroup { memory: header, durable: durable_now, summary });
        let memory = WriteLog::written_span(&group);
        let mut place = log.segments.place(group.position);
        log.segments.begin_write(place);
        if group.opens_segment.is_some() {
            place = Place(place.0 - 1);
        }
        let pages = memory.len / PAGE as u32;
        let range = log.segments.bytes(place, pages);
        cx.counters.log_writes += 1;
        cx.counters.log_write_bytes += range.len();
        let op = IoOp::Write { memory, durable };
        let kind = IoKind::Log(LogIo::Write { group: number });
        cx.start(Target::Log, range, op, kind);
    }

    /// A group is on flash, or not.
    pub(crate) fn on_log_written(
        &mut self,
        number: usize,
        status: IoStatus,
        checksums: &[u32],
    ) -> LogEvent {
        let log = &mut self.log;
        log.under_way.end_write(number);
        // Until now its segment could not be given to somebody else.
        log.segments.end_write(log.segments.place(log.memory.groups[number].position));
        if log.health.failed.is_some() || !status.is_ok() {
            // What was written stays in memory, whether another one was too late or this one failed.
            while log.under_way.take_ended().is_some() {}
            return match log.health.failed {
                Some(_) => LogEvent::Nothing,
                None => LogEvent::Fails(status),
            };
        }
        let group = log.memory.groups[number];
        let data = &checksums[checksums.len() - group.layout.data_pages as usize..];
        let first = log.segments.place(group.position).0 + 1;
        for (n, &checksum) in data.iter().enumerate() {
            log.index.store_checksum(Place(first + n as u32), checksum);
        }
        while let Some((number, durable)) = log.under_way.take_ended() {
            log.note_written(number, durable);
        }
        LogEvent::Advanced
    }

    /// What was written is durable, or not.
    pub(crate) fn on_log_flushed(&mut self, status: IoStatus) -> LogEvent {
        let log = &mut self.log;
        let covers = log.under_way.end_flush();
        if log.health.failed.is_some() {
            return LogEvent::Nothing;
        }
        if !status.is_ok() {
            return LogEvent::Fails(status);
        }
        // Nothing was written meanwhile: nothing goes beside a flush.
        assert_eq!(covers, log.reached.written.group);
        log.wants.durable = false;
        (log.reached.durable.group, log.reached.durable.sequence) =
            (covers, log.reached.written.sequence);
        log.reached.durable.whole = log.reached.written.whole;
        LogEvent::Advanced
    }

    /// Everybody whose group is written, or durable, was let go: since when the oldest record is not durable.
    pub(crate) fn note_volatile(&mut self) {
        let log = &mut self.log;
        if log.is_durable() {
            log.wants.oldest_volatile = Nanos::NEVER;
        } else if log.reached.durable.group == log.reached.written.group {
            let volatile =
                log.memory.groups.iter().filter(|group| group.number > log.reached.durable.group);
            log.wants.oldest_volatile =
                volatile.map(|group| group.opened).fold(Nanos::NEVER, Nanos::min);
        }
    }
}
