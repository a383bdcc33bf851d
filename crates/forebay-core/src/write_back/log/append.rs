//! Appending records to the open group.
//!
//! A write's data pages mirror the disk: whole pages of the request's buffer are copied, of which the
//! record's sectors count. A write that does not fit into the open group is cut into several records,
//! each but the last marked as going on.

use super::{Group, GroupState, WriteLog};
use crate::action::{Action, Buffer, LogAction, Span};
use crate::cx::Cx;
use crate::geometry::{ByteRange, PAGE};
use crate::ids::Sequence;
use crate::write_back::format::group::{Entry, GroupLayout, RecordKind};
use crate::write_back::format::index::{PageIndex, Place, ZeroRecord};

impl WriteLog {
    /// Appends as much of a write to `range` as there is room for now, from the buffer; returns up to
    /// where.
    pub(in crate::write_back) fn append_write(
        &mut self,
        range: ByteRange,
        buffer: Buffer,
        cx: &mut Cx<'_>,
    ) -> u64 {
        let mut start = range.start;
        while start < range.end {
            let grid = self.index.grid();
            let first = grid.page_of(start);
            let wanted = (grid.page_of(range.end - 1).0 - first.0 + 1) as u32;
            if self.waits_for_memory(wanted, cx) || !self.ensure_open(cx) {
                break;
            }
            let group = self.memory.groups[self.memory.open];
            let room = wanted.min(group.pages_max - group.layout.data_pages);
            let Some(pages) = (1..=room).rev().find(|&pages| group.fits(pages)) else {
                break;
            };
            let last = PageIndex(first.0 + u64::from(pages) - 1);
            let piece = ByteRange::new(start, grid.range_of(last).end.min(range.end));
            let data = group.data(group.layout.data_pages, pages);
            // Where the piece begins within its first page.
            let lead = (start + (PAGE - grid.phase()) % PAGE) % PAGE;
            let to = data.part(lead, piece.len());
            cx.push(Action::Copy { from: buffer.at(piece), to });
            let more = piece.end < range.end;
            let kind = RecordKind::Write;
            let record = Entry { range: piece, epoch: self.numbers.epoch, kind, more };
            let place = self.segments.place(group.position.plus(group.layout.pages()));
            let sequence = self.stage(record, data, pages, cx);
            for (n, page) in (first.0..=last.0).map(PageIndex).enumerate() {
                let sectors = grid.sectors(page, piece);
                let place = Place(place.0 + n as u32);
                self.index.insert(place, page, sectors, sequence, self.numbers.epoch);
            }
            start = piece.end;
        }
        start
    }

    /// Appends a zero record; false when there is no room now.
    pub(in crate::write_back) fn append_zero(
        &mut self,
        range: ByteRange,
        may_unmap: bool,
        cx: &mut Cx<'_>,
    ) -> bool {
        if self.index.zeroes_are_full() || !self.ensure_open(cx) {
            return false;
        }
        let group = self.memory.groups[self.memory.open];
        if !group.fits(0) {
            return false;
        }
        let kind = RecordKind::Zero;
        let record = Entry { range, epoch: self.numbers.epoch, kind, more: false };
        let data = Span { offset: group.memory.offset, len: 0 };
        let sequence = self.stage(record, data, 0, cx);
        let epoch = record.epoch;
        self.index.insert_zero(ZeroRecord { sequence, epoch, range, may_unmap });
        true
    }

    fn stage(&mut self, record: Entry, data: Span, pages: u32, cx: &mut Cx<'_>) -> Sequence {
        let sequence = self.numbers.next_sequence;
        self.numbers.next_sequence.0 += 1;
        self.numbers.epoch_is_used = true;
        self.told.ages.on_append(cx.now, sequence);
        self.wants.oldest_volatile = self.wants.oldest_volatile.min(cx.now);
        let group = &mut self.memory.groups[self.memory.open];
        let memory = group.header();
        cx.actions.push_log(LogAction::Stage { memory, data, record });
        group.layout.add(pages);
        group.last = sequence;
        let first = self.numbers.goes_on_from.unwrap_or(sequence);
        self.numbers.goes_on_from = Some(first).filter(|_| record.more);
        group.whole = if record.more { Sequence(first.0 - 1) } else { sequence };
        sequence
    }

    /// Makes sure that a group is open; false when none can be: both are in use, or no segment is leased.
    fn ensure_open(&mut self, cx: &mut Cx<'_>) -> bool {
        match self.memory.groups[self.memory.open].state {
            GroupState::Open => return true,
            GroupState::Writing => return false,
            GroupState::Empty => {}
        }
        if self.health.failed.is_some() {
            return false;
        }
        let mut segment = None;
        if self.segment_is_full() {
            self.segments.end_last();
            segment = self.segments.begin();
            if segment.is_none() {
                return false;
            }
            self.segments.take_pages(1);
        }
        let pages_max = self.group_pages_now();
        let phase = self.index.grid().phase() as u16;
        let generation = self.config.generation;
        let (number, first_sequence) = (self.numbers.next_group, self.numbers.next_sequence);
        self.numbers.next_group.0 += 1;
        let memory = self.memory.groups[self.memory.open].memory;
        let group = Group {
            memory,
            state: GroupState::Open,
            number,
            position: self.segments.head(),
            opens_segment: segment,
            layout: GroupLayout::default(),
            opened: cx.now,
            pages_max,
            summary_max: self.summary_max(segment.is_some()),
            last: Sequence(0),
            whole: Sequence(0),
        };
        // The group takes its pages when it is written; until then it is the only open one.
        self.memory.groups[self.memory.open] = group;
        if let Some((segment, ordinal)) = segment {
            let memory = memory.part(0, PAGE);
            let first_group = number;
            cx.actions.push_log(LogAction::OpenSegment {
                memory,
                segment,
                ordinal,
                generation,
                first_group,
                first_sequence,
                durable: self.reached.durable.sequence,
                epoch: self.numbers.epoch,
                phase,
            });
        }
        let memory = group.header();
        cx.actions.push_log(LogAction::OpenGroup {
            memory,
            number,
            generation,
            first_sequence,
            phase,
        });
        true
    }

    /// Memory of the open group that is to be written, and how many pages it is.
    pub(super) fn written_span(group: &Group) -> Span {
        let skipped = if group.opens_segment.is_some() { 0 } else { 1 };
        let pages = 1 + group.layout.pages() - skipped;
        group.memory.part(u64::from(skipped) * PAGE, u64::from(pages) * PAGE)
    }
}
