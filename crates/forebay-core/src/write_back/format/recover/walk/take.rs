//! Takes groups into a [`Walk`], from their headers or from a summary.

use super::super::input::RecoverInput;
use super::super::{RecordPlace, RecoveredRecord};
use super::{Walk, WalkedGroup};
use crate::ids::{FlushEpoch, Sequence};
use crate::sealed::Page;
use crate::write_back::format::COUNT_MAX;
use crate::write_back::format::group::{Entry, GroupInvalid, GroupLayout, GroupView};
use crate::write_back::format::segment::SegmentHeader;
use crate::write_back::format::summary::{self, Summary, SummaryInvalid};

/// Adds the group whose header is `page` to the walk; its first record must be `sequence`.
pub(super) fn take(
    input: &RecoverInput<'_>,
    walk: &mut Walk,
    page: &Page,
    sequence: Sequence,
) -> Result<GroupLayout, GroupInvalid> {
    let view = GroupView::sealed(page)?;
    if view.header().first_sequence != sequence {
        return Err(GroupInvalid::Field("first sequence"));
    }
    let layout = view.layout();
    if !begin_group(input, walk, sequence, layout) {
        return Err(GroupInvalid::Field("length"));
    }
    if needs(input, sequence, layout) {
        walk.checksums.extend((0..layout.data_pages).map(|index| view.checksum(index)));
    }
    for (sequence, first_page, entry) in view.entries() {
        if !add_record(input, walk, sequence, (first_page, entry), view.header().phase) {
            return Err(GroupInvalid::Field("range of an entry: beyond the disk's end"));
        }
    }
    walk.end_page += layout.pages();
    Ok(layout)
}

/// Adds the groups of a summary that are before `next` to the walk.
pub(super) fn take_summary(
    input: &RecoverInput<'_>,
    walk: &mut Walk,
    mut summary: Summary<'_>,
    next: &SegmentHeader,
) -> Result<(), SummaryInvalid> {
    let wrong = Err(SummaryInvalid::Damaged);
    let count = next.first_group.0 - walk.header.first_group.0;
    if count > u64::from(summary.groups()) {
        return wrong;
    }
    let mut sequence = walk.header.first_sequence;
    let mut epoch = FlushEpoch(0);
    for _ in 0..count {
        let group = summary.next_group()?;
        if !begin_group(input, walk, sequence, group.layout) {
            return wrong;
        }
        if needs(input, sequence, group.layout) {
            walk.checksums.extend(group.checksums());
        }
        for record in group.entries() {
            let Some((first_page, entry)) = record else { return wrong };
            let is_in_order = entry.epoch >= epoch && entry.epoch.0 <= COUNT_MAX;
            if !is_in_order || !add_record(input, walk, sequence, (first_page, entry), group.phase)
            {
                return wrong;
            }
            epoch = entry.epoch;
            sequence = sequence.plus(1);
        }
        walk.end_page += group.layout.pages();
    }
    // A restart may have left out its last records, a session never does.
    let is_same = next.generation == walk.header.generation;
    let is_whole = sequence == next.first_sequence || !is_same && sequence > next.first_sequence;
    if is_whole { Ok(()) } else { wrong }
}

/// Whether a group has records that are not destaged, so that its checksums are wanted.
fn needs(input: &RecoverInput<'_>, first: Sequence, layout: GroupLayout) -> bool {
    first.plus(u64::from(layout.entries)) > input.flushed.plus(1)
}

/// Begins a group at the end of the walk; false when it does not fit into the segment.
fn begin_group(
    input: &RecoverInput<'_>,
    walk: &mut Walk,
    sequence: Sequence,
    layout: GroupLayout,
) -> bool {
    walk.groups.push(WalkedGroup {
        page: walk.end_page,
        end_sequence: sequence.plus(u64::from(layout.entries)),
        data_pages: layout.data_pages,
        first_record: walk.records.len(),
        first_checksum: walk.checksums.len(),
    });
    layout.pages() <= summary::first_page(input.segment_pages) - walk.end_page
}

/// Adds a record of the group that was begun last, unless it is destaged; false when it is not on the disk.
fn add_record(
    input: &RecoverInput<'_>,
    walk: &mut Walk,
    sequence: Sequence,
    (first_page, entry): (u32, Entry),
    phase: u16,
) -> bool {
    if sequence <= input.flushed {
        return true;
    }
    let group = walk.groups.last().expect("it was begun");
    walk.records.push(RecoveredRecord {
        sequence,
        epoch: entry.epoch,
        kind: entry.kind,
        more: entry.more,
        range: entry.range,
        phase,
        place: RecordPlace::Log {
            segment: walk.header.segment,
            page: walk.end_page + 1 + first_page,
        },
        first_checksum: group.first_checksum as u32 + first_page,
    });
    input.has(entry.range)
}
