//! The summary of the segment that groups are appended to: gathered as they are sealed, written when the segment is full.
//!
//! ```text
//!  none ──first group sealed──► gathering ──sealed a group, full──► due ──no log I/O under way──► being written ──► none
//! ```
//! It goes before the next group, which begins the next one in the same memory; a flush that somebody waits for goes
//! before it. Nothing depends on it: a segment without one is walked by recovery, as is the one that a restart began. So the
//! write is not a durable one.
//!
//! **Invariant:** the segment is in use until its summary is written, or given up with the log.

use super::{Group, WriteLog};
use crate::action::{IoOp, LogAction, Span, Target};
use crate::config::WriteLogConfig;
use crate::cx::Cx;
use crate::cx::io::IoKind;
use crate::geometry::PAGE;
use crate::ids::{GroupNumber, Nanos, SegmentId, Sequence};
use crate::status::IoStatus;
use crate::write_back::format::group::GroupLayout;
use crate::write_back::format::index::Place;
use crate::write_back::format::summary::{self, GROUP_BYTES_MIN, GROUPS};
use crate::write_back::{LogEvent, LogIo, WriteBack};

/// See the module.
#[derive(Debug)]
pub(super) struct Gathered {
    memory: Span,
    segment: Option<Opened>,
    bytes: u32,
    groups: u32,
    /// Where it goes, when the segment is full.
    due: Option<Place>,
}

/// A segment that this run began.
#[derive(Clone, Copy, Debug)]
struct Opened {
    segment: SegmentId,
    ordinal: u64,
    first_group: GroupNumber,
    first_sequence: Sequence,
}

impl Gathered {
    pub(super) fn new(memory: Span) -> Gathered {
        Gathered { memory, segment: None, bytes: GROUPS, groups: 0, due: None }
    }

    /// Bytes that an empty one has room for.
    fn room_max(&self) -> u32 {
        self.memory.len - GROUPS
    }

    /// Bytes that there is room for; any number in a segment that gets none.
    fn room(&self) -> u32 {
        self.segment.map_or(u32::MAX, |_| self.memory.len - self.bytes)
    }

    /// Where the next group goes.
    fn add(&mut self, layout: GroupLayout) -> Option<Span> {
        self.segment?;
        let len = summary::group_bytes(layout);
        let place = self.memory.part(self.bytes.into(), len.into());
        self.bytes += len;
        self.groups += 1;
        Some(place)
    }
}

impl Group {
    /// Whether a record with `pages` fits into its header, and into the summary of its segment.
    pub(super) fn fits(&self, pages: u32) -> bool {
        let GroupLayout { entries, data_pages } = self.layout;
        let layout = GroupLayout { entries: entries + 1, data_pages: data_pages + pages };
        self.layout.fits(1, pages) && summary::group_bytes(layout) <= self.summary_max
    }
}

impl WriteLog {
    /// Pages of memory for a summary.
    pub(crate) fn summary_pages(config: &WriteLogConfig) -> u64 {
        summary::pages(config.segment_pages).into()
    }

    /// True when no further group is to be begun in the last segment.
    pub(super) fn segment_is_full(&self) -> bool {
        self.segments.pages_left() < 2 || self.memory.summary.room() < GROUP_BYTES_MIN
    }

    /// Bytes that a group may take of the summary, which opens its segment, or goes on in it.
    pub(super) fn summary_max(&self, opens_segment: bool) -> u32 {
        if opens_segment { self.memory.summary.room_max() } else { self.memory.summary.room() }
    }

    /// Takes in a group that is being sealed: where it goes; nowhere in a segment without a summary.
    pub(super) fn summarize(&mut self, group: &Group) -> Option<Span> {
        if let Some((segment, ordinal)) = group.opens_segment {
            assert!(self.memory.summary.due.is_none(), "the last one is written first");
            let first_sequence = Sequence(group.last.0 + 1 - u64::from(group.layout.entries));
            let first_group = group.number;
            let opened = Opened { segment, ordinal, first_group, first_sequence };
            self.memory.summary =
                Gathered { segment: Some(opened), ..Gathered::new(self.memory.summary.memory) };
        }
        let place = self.memory.summary.add(group.layout)?;
        if self.segment_is_full() {
            // Also where only the summary is full.
            self.segments.end_last();
            let due = self.segments.summary_place(self.segments.place(group.position));
            self.segments.begin_write(due);
            self.memory.summary.due = Some(due);
        }
        Some(place)
    }

    pub(super) fn summary_due(&self) -> Option<Place> {
        self.memory.summary.due
    }

    /// Nothing more is written to the log.
    pub(in crate::write_back) fn give_up_summary(&mut self) {
        self.memory.summary.segment = None;
        if let Some(due) = self.memory.summary.due.take() {
            self.segments.end_write(due);
        }
    }
}

impl WriteBack {
    /// Writes the summary that is due, to `place`.
    pub(super) fn write_summary(&mut self, place: Place, until: Nanos, cx: &mut Cx<'_>) {
        let log = &mut self.log;
        log.memory.summary.due = None;
        let Gathered { memory, segment, bytes, groups, .. } = log.memory.summary;
        let Opened { segment, ordinal, first_group, first_sequence } =
            segment.expect("it has been gathered");
        log.memory.summary.segment = None;
        let pages = u64::from(bytes).div_ceil(PAGE);
        let memory = memory.part(0, pages * PAGE);
        cx.actions.push_log(LogAction::SealSegment {
            memory,
            segment,
            ordinal,
            generation: log.config.generation,
            first_group,
            first_sequence,
            groups,
            bytes,
        });
        log.under_way.start_summary(until, place);
        let range = log.segments.bytes(place, pages as u32);
        cx.counters.log_write_bytes += range.len();
        let op = IoOp::Write { memory, durable: false };
        cx.start(Target::Log, range, op, IoKind::Log(LogIo::Summary));
    }

    /// A summary is on flash, or not.
    pub(crate) fn on_log_summarized(&mut self, status: IoStatus) -> LogEvent {
        let log = &mut self.log;
        let place = log.under_way.end_summary();
        log.segments.end_write(place);
        match log.health.failed {
            None if !status.is_ok() => LogEvent::Fails(status),
            None | Some(_) => LogEvent::Nothing,
        }
    }
}
