//! The write log of a disk in a mode that acknowledges writes from it.
//!
//! ```text
//!  write ─► append ─► open group (staged: survives the process) ─► plain write acknowledged
//!                          │ two durable writes at a time, else one I/O
//!                          ▼
//!                    group written ─► (durable: with the write, or by a flush) ─► FUA, FLUSH acknowledged
//!                          │
//!                          ▼
//!                    destager (destage/) ─► primary storage, flushed ─► noted ─► segment free
//! ```
//! Records are appended to the *open* group while those before it are being written: what waits
//! together shares one write and one flush, and nothing waits for a timer. Groups count as written, and
//! are acknowledged, in their order, whichever of two ends first.
//!
//! **Invariants**
//! - A request's bytes are in the index from the moment that they are staged, and its range is held
//!   until it could be acknowledged, so nobody reads bytes that a crash would take back.
//! - A segment is used again only after its records were written to primary storage and flushed there,
//!   and that was noted durably.
//! - The first error of a log write or flush is final: nothing more is appended, what is in the log is
//!   destaged from flash and from the groups in memory.
//!
//! Memory: a segment's summary, three groups (two being written, one open) and a scratch page, behind the RAM slots. Where
//! staged records survive the process, that of the groups does.

mod age;
mod append;
mod commit;
mod fullness;
mod read;
pub(super) use read::hang_at;
pub(crate) use read::hang_time;
pub(super) mod segments;
mod staging;
mod summary;
mod under_way;

use std::collections::VecDeque;

use crate::action::Span;
use crate::config::{Config, WriteLogConfig};
use crate::cx::Shared;
use crate::geometry::PAGE;
use crate::ids::{FlushEpoch, GroupNumber, Nanos, SegmentId, Sequence};
use crate::status::IoStatus;
use crate::table::Key;
use crate::write_back::format::group::GroupLayout;
use crate::write_back::format::index::{LogIndex, PageGrid, Place};
use crate::write_back::format::{GROUP_HEADER_PAGES, GROUPS_IN_MEMORY, group_memory_pages};

pub(crate) use read::OverlayState;
use segments::{Position, Segments};
use under_way::UnderWay;

/// What a group in memory is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    /// Nothing is in it.
    Empty,
    /// Records are appended.
    Open,
    /// It is on its way to flash, or would be, had the log not failed.
    Writing,
}

/// A group in memory.
#[derive(Clone, Copy, Debug)]
struct Group {
    memory: Span,
    state: GroupState,
    number: GroupNumber,
    /// Of its header page.
    position: Position,
    /// It is the first of this segment with this ordinal, whose header is written with it.
    opens_segment: Option<(SegmentId, u64)>,
    layout: GroupLayout,
    /// When it was opened.
    opened: Nanos,
    /// Data pages that there is room for, in the segment and in memory.
    pages_max: u32,
    /// Bytes that there are for it in the segment's summary.
    summary_max: u32,
    last: Sequence,
    /// The last record that no request goes on behind, beyond the group.
    whole: Sequence,
}

impl Group {
    fn empty(memory: Span) -> Group {
        Group {
            memory,
            state: GroupState::Empty,
            number: GroupNumber(0),
            position: Position(0),
            opens_segment: None,
            layout: GroupLayout::default(),
            opened: Nanos(0),
            pages_max: 0,
            summary_max: 0,
            last: Sequence(0),
            whole: Sequence(0),
        }
    }

    fn header(&self) -> Span {
        self.memory.part(PAGE, PAGE)
    }

    fn data(&self, first: u32, pages: u32) -> Span {
        self.memory.part(u64::from(GROUP_HEADER_PAGES + first) * PAGE, u64::from(pages) * PAGE)
    }
}

/// Requests that wait for a group, oldest first.
type Queue = VecDeque<(Key, GroupNumber)>;

/// See the module.
#[derive(Debug)]
pub(super) struct WriteLog {
    pub(in crate::write_back) config: WriteLogConfig,
    pub(in crate::write_back) index: LogIndex,
    pub(in crate::write_back) segments: Segments,
    memory: GroupMemory,
    under_way: UnderWay,
    pub(in crate::write_back) numbers: Numbers,
    pub(in crate::write_back) reached: Reached,
    pub(in crate::write_back) waiting: Waiting,
    pub(in crate::write_back) wants: Wants,
    pub(in crate::write_back) health: Health,
    pub(in crate::write_back) reading: Reading,
    pub(in crate::write_back) told: Told,
}

/// The groups in memory, and the summary that they are gathered for.
#[derive(Debug)]
struct GroupMemory {
    groups: [Group; GROUPS_IN_MEMORY],
    /// The group that is open, or will be.
    open: usize,
    usable: staging::Usable,
    summary: summary::Gathered,
}

/// What comes next.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(in crate::write_back) next_group: GroupNumber,
    pub(in crate::write_back) next_sequence: Sequence,
    pub(in crate::write_back) epoch: FlushEpoch,
    /// The epoch has records.
    epoch_is_used: bool,
    /// The first record of the request whose next one is to come.
    goes_on_from: Option<Sequence>,
}

/// How far the log is on flash.
#[derive(Debug)]
pub(super) struct Reached {
    pub(in crate::write_back) written: UpTo,
    pub(in crate::write_back) durable: UpTo,
    /// Behind the last written group.
    pub(in crate::write_back) end: Position,
}

/// The last group, and its last record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UpTo {
    pub(in crate::write_back) group: GroupNumber,
    pub(in crate::write_back) sequence: Sequence,
    /// Up to here no request is there in parts: of one that is, recovery takes nothing.
    pub(in crate::write_back) whole: Sequence,
}

/// Who waits for the log.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(in crate::write_back) written: Queue,
    pub(in crate::write_back) durable: Queue,
    /// Writes and zeroes that found no room, oldest first.
    pub(in crate::write_back) room: VecDeque<Key>,
    /// When writers last waited for room, [`Nanos::NEVER`] while they do.
    pub(in crate::write_back) waited_until: Option<Nanos>,
    /// Room may have come since they were last tried.
    pub(in crate::write_back) room_changed: bool,
}

/// What is wanted of the log, whoever waits.
#[derive(Debug)]
pub(super) struct Wants {
    /// The destager waits for what is written to become durable.
    pub(in crate::write_back) durable: bool,
    /// Oldest staged record that is not durable, when flushes are deferred.
    oldest_volatile: Nanos,
    /// The index is to be emptied as soon as primary storage has everything.
    pub(in crate::write_back) forgets_when_clean: bool,
    /// Everything is to become durable: the disk is shutting down.
    closing: bool,
}

/// What is wrong with the log.
#[derive(Debug)]
pub(super) struct Health {
    pub(in crate::write_back) failed: Option<IoStatus>,
    /// What is on flash is revoked, and the log with it: no later start goes on with it. Notes of what is destaged still work.
    pub(in crate::write_back) is_refused: bool,
    /// Answered writes whose bytes are only in the memory of a log that failed.
    pub(in crate::write_back) owners: Vec<Key>,
    /// Dirty bytes could not be read any more: nothing is served until somebody decides.
    pub(in crate::write_back) is_lost: bool,
}

/// What reads of the log have to know.
#[derive(Debug)]
pub(super) struct Reading {
    pub(in crate::write_back) overlay: OverlayState,
    /// Records up to this one were taken out of the index.
    pub(in crate::write_back) forgotten: Sequence,
    /// Of what is up to here flash has failed to read something; zero: of nothing.
    pub(in crate::write_back) unread: Sequence,
    /// When the reads under way hang, unless one of them ends.
    pub(in crate::write_back) until: Nanos,
}

/// What operators see of it over time.
#[derive(Debug)]
pub(super) struct Told {
    pub(in crate::write_back) ages: age::Ages,
    /// How full it is, as it was told.
    fullness: fullness::Fullness,
}

impl WriteLog {
    /// Pages of memory that a log needs for its groups.
    pub(super) fn memory_pages(config: &WriteLogConfig) -> u64 {
        GROUPS_IN_MEMORY as u64 * u64::from(group_memory_pages(config.segment_pages)) + 1
    }

    fn group_pages(config: &WriteLogConfig) -> u32 {
        group_memory_pages(config.segment_pages) - GROUP_HEADER_PAGES
    }

    /// An empty log whose memory begins at `base`, with that of the summary.
    pub(super) fn new(
        config: WriteLogConfig,
        base: u64,
        grid: PageGrid,
        of_disk: &Config,
    ) -> WriteLog {
        let group_len = u64::from(group_memory_pages(config.segment_pages)) * PAGE;
        let summary = Span { offset: base, len: (Self::summary_pages(&config) * PAGE) as u32 };
        let base = base + u64::from(summary.len);
        let memory = |n: usize| Span { offset: base + n as u64 * group_len, len: group_len as u32 };
        let scratch = Span { offset: base + GROUPS_IN_MEMORY as u64 * group_len, len: PAGE as u32 };
        let places = of_disk.requests_max as usize;
        let index = LogIndex::new(config.segment_pages * config.slots(), grid);
        WriteLog {
            index: index.salted(of_disk.index_salt),
            segments: Segments::new(&config),
            memory: GroupMemory {
                groups: std::array::from_fn(|n| Group::empty(memory(n))),
                open: 0,
                usable: staging::Usable::at_first(&config),
                summary: summary::Gathered::new(summary),
            },
            under_way: UnderWay::default(),
            numbers: Numbers {
                next_group: GroupNumber(1),
                next_sequence: Sequence(1),
                epoch: FlushEpoch(1),
                epoch_is_used: false,
                goes_on_from: None,
            },
            reached: Reached {
                written: UpTo::default(),
                durable: UpTo::default(),
                end: Position(0),
            },
            waiting: Waiting {
                written: VecDeque::with_capacity(places),
                durable: VecDeque::with_capacity(places),
                room: VecDeque::with_capacity(places),
                waited_until: None,
                room_changed: false,
            },
            wants: Wants {
                durable: false,
                oldest_volatile: Nanos::NEVER,
                forgets_when_clean: false,
                closing: false,
            },
            health: Health {
                failed: None,
                is_refused: false,
                owners: Vec::with_capacity(places),
                is_lost: false,
            },
            reading: Reading {
                overlay: OverlayState::new(scratch, of_disk.requests_max),
                forgotten: Sequence::default(),
                unread: Sequence(0),
                until: Nanos::NEVER,
            },
            told: Told { ages: age::Ages::new(), fullness: fullness::Fullness::default() },
            config,
        }
    }

    /// Metadata that a log needs, in bytes.
    pub(super) fn metadata_bytes_for(config: &WriteLogConfig) -> u64 {
        LogIndex::memory_bytes_for(config.pages())
    }

    /// The memory of the groups: a page for a segment's header, the group's header, its data.
    pub(super) fn group_memory(&self) -> [Span; GROUPS_IN_MEMORY] {
        self.memory.groups.map(|group| group.memory)
    }

    /// The memory of a data page whose group is not on flash yet.
    pub(super) fn in_memory(&self, place: Place) -> Option<Span> {
        // A group of a log that failed stays, and its segment may be free before it.
        let oldest = self.segments.oldest();
        let is_there =
            |group: &&Group| group.state != GroupState::Empty && group.position >= oldest;
        self.memory.groups.iter().filter(is_there).find_map(|group| {
            let first = self.segments.place(group.position).0 + 1;
            (first..first + group.layout.data_pages)
                .contains(&place.0)
                .then(|| group.data(place.0 - first, 1))
        })
    }

    /// The last group with records; durable when this one is.
    pub(super) fn last_group(&self) -> GroupNumber {
        GroupNumber(self.numbers.next_group.0 - 1)
    }

    /// True when no record is staged that is not on flash and durable.
    pub(super) fn is_durable(&self) -> bool {
        self.reached.durable.group == self.last_group()
    }

    /// True when no I/O is under way, nor, at the end, needed for what is acknowledged to be durable.
    pub(super) fn is_settled(&self) -> bool {
        let must_commit = self.wants.closing && self.health.failed.is_none();
        self.under_way.is_none() && (!must_commit || self.is_durable())
    }

    /// Records up to this one are durable.
    pub(super) fn durable_sequence(&self) -> Sequence {
        self.reached.durable.sequence
    }

    /// Records up to this one are durable, and so is all of their requests: no crash takes one back.
    pub(super) fn durable_whole(&self) -> Sequence {
        self.reached.durable.whole
    }

    /// The last record that was appended.
    pub(super) fn last_sequence(&self) -> Sequence {
        Sequence(self.numbers.next_sequence.0 - 1)
    }

    /// Behind the last written group.
    pub(super) fn end(&self) -> Position {
        self.reached.end
    }

    /// The epoch of the first written record after `after`, whose page is not before `from`.
    pub(super) fn first_epoch_after(&self, from: Position, after: Sequence) -> Option<FlushEpoch> {
        let zero = self.index.zeroes().find(|zero| zero.sequence > after);
        let zero = zero.filter(|zero| zero.sequence <= self.reached.written.sequence);
        let mut position = from.max(self.segments.oldest());
        let mut first = zero.map(|zero| zero.epoch);
        while position < self.reached.end {
            let entry = self.index.entry(self.segments.place(position));
            if let Some(entry) = entry.filter(|entry| entry.sequence > after) {
                first = Some(first.map_or(entry.epoch, |epoch| epoch.min(entry.epoch)));
                break;
            }
            position = position.plus(1);
        }
        first
    }

    /// Forgets the records of the oldest segment, which ends with `last`: so many pages.
    pub(super) fn forget_segment(&mut self, last: Sequence) -> u32 {
        let oldest = self.segments.oldest();
        for n in 0..self.config.segment_pages {
            self.index.remove(self.segments.place(oldest.plus(n)));
        }
        self.index.remove_zeroes(last);
        // All may be forgotten already, and the segment be freed only now.
        self.reading.forgotten = self.reading.forgotten.max(last);
        self.waiting.room_changed = true;
        self.config.segment_pages
    }

    /// Forgets everything; primary storage has it.
    pub(super) fn forget_all(&mut self, shared: &mut Shared) {
        assert!(self.is_quiet());
        if self.health.failed.is_some() {
            self.memory.groups.iter_mut().for_each(|group| group.state = GroupState::Empty);
        }
        let mut position = self.segments.oldest();
        while position < self.segments.head() {
            self.index.remove(self.segments.place(position));
            position = position.plus(1);
        }
        self.reading.forgotten = self.last_sequence();
        self.index.remove_zeroes(self.reading.forgotten);
        self.reading.overlay.end(shared);
        self.waiting.room_changed = true;
        assert!(self.index.is_empty());
    }

    /// The epoch of the next record.
    pub(super) fn epoch(&self) -> FlushEpoch {
        self.numbers.epoch
    }

    /// True when the epoch under way has records.
    pub(super) fn epoch_is_used(&self) -> bool {
        self.numbers.epoch_is_used
    }

    /// An acknowledgement promised durability: what is appended from now on is newer.
    pub(super) fn raise_epoch(&mut self) {
        if std::mem::take(&mut self.numbers.epoch_is_used) {
            self.numbers.epoch.0 += 1;
        }
    }

    /// Everything is to become durable.
    pub(super) fn close(&mut self) {
        self.wants.closing = true;
    }

    /// True when it works, and the disk does not end.
    fn goes_on(&self) -> bool {
        !self.wants.closing && self.health.failed.is_none()
    }

    /// True when the pool has no segment for what comes next, so that one that is freed is leased anew.
    pub(super) fn renews(&self) -> bool {
        self.segments.needs_own() && self.goes_on() && !self.wants.forgets_when_clean
    }

    /// True when no group is under way, in memory or to flash. What a log that failed has under way may never end, and
    /// is waited for by nobody.
    pub(super) fn is_quiet(&self) -> bool {
        let is_empty = |group: &Group| match group.state {
            GroupState::Empty => true,
            GroupState::Open => group.layout.entries == 0,
            // What is stuck in a failed log was destaged from memory.
            GroupState::Writing => self.health.failed.is_some(),
        };
        let has_failed = self.health.failed.is_some();
        (has_failed || self.under_way.is_none()) && self.memory.groups.iter().all(is_empty)
    }

    /// When a segment that writers wait for does not come.
    pub(super) fn lease_hangs_at(&self) -> Nanos {
        match self.waiting.room.is_empty() {
            true => Nanos::NEVER,
            false => self.segments.lease_hangs_at(),
        }
    }

    /// True when a log I/O takes too long.
    pub(super) fn hangs(&self, now: Nanos) -> bool {
        self.under_way.until() <= now
    }

    /// Panics when the log contradicts itself. For tests; slow.
    pub(super) fn check_invariants(&self) {
        self.index.check_invariants();
        self.check_group_memory();
        assert!(
            self.reached.durable.group <= self.reached.written.group
                && self.reached.written.group <= self.last_group()
        );
        assert!(
            self.reached.durable.sequence <= self.reached.written.sequence
                || self.health.failed.is_some()
        );
        assert!(self.reached.durable.whole <= self.reached.durable.sequence);
        let waits_in_order = |queue: &Queue| queue.iter().is_sorted_by_key(|&(_, group)| group);
        assert!(waits_in_order(&self.waiting.written) && waits_in_order(&self.waiting.durable));
    }

    /// A request gave up waiting.
    pub(super) fn leave(&mut self, key: Key) {
        self.waiting.room.retain(|&k| k != key);
        self.waiting.written.retain(|&(k, _)| k != key);
        self.waiting.durable.retain(|&(k, _)| k != key);
    }
}
