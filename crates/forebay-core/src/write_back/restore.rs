//! Taking over the log that an earlier run left.

use crate::engine::ConfigError;
use crate::geometry::ByteRange;
use crate::ids::{GroupNumber, Sequence};
use crate::write_back::WriteBack;
use crate::write_back::format::group::RecordKind;
use crate::write_back::format::index::{LogIndex, PageGrid, Place, ZeroRecord};
use crate::write_back::format::recover::{RecordPlace, RecoveredLog, RecoveredRecord};
use crate::write_back::format::reopen::Tail;

impl WriteBack {
    /// See [`Engine::restore`](crate::engine::Engine::restore).
    pub(crate) fn restore(&mut self, found: &RecoveredLog, tail: Tail) -> Result<(), ConfigError> {
        let log = &mut self.log;
        let is_last = found.segments.last().is_some_and(|last| last.segment == tail.segment);
        let needed = found.segments.len() + usize::from(!is_last);
        if needed > log.config.slots() as usize {
            return Err(ConfigError(format!(
                "the write log holds {needed} segments from before, this disk may have {}: give it more",
                log.config.slots()
            )));
        }
        if let Some(record) =
            found.records.iter().find(|r| u64::from(r.phase) != log.index.grid().phase())
        {
            return Err(ConfigError(format!(
                "the write log was laid out with blocks at byte {} of a page: set the grid offset accordingly",
                record.phase
            )));
        }
        assert!(found.next_sequence > found.flushed, "a sequence is never used twice");
        for segment in &found.segments {
            let last = Sequence(segment.end_sequence.0 - 1);
            log.segments.restore(segment.segment, last);
        }
        restore_records(&mut log.index, found, log.config.segment_pages);
        if !is_last {
            log.segments.restore(tail.segment, Sequence(found.next_sequence.0 - 1));
        }
        log.segments.go_on(tail.page);
        log.numbers.next_group = found.next_group;
        log.numbers.next_sequence = found.next_sequence;
        let last = GroupNumber(found.next_group.0 - 1);
        (log.reached.written.group, log.reached.durable.group) = (last, last);
        let last = Sequence(found.next_sequence.0 - 1);
        (log.reached.written.sequence, log.reached.durable.sequence) = (last, last);
        (log.reached.written.whole, log.reached.durable.whole) = (last, last);
        log.reached.end = log.segments.head();
        log.numbers.epoch = found.next_epoch;
        let again = found.flushed.plus(1)..=found.through;
        let again = found
            .records
            .iter()
            .filter(|record| record.kind == RecordKind::Write && again.contains(&record.sequence));
        let again = again.map(|record| log.index.grid().pages(record.range).count() as u64).sum();
        self.destager.restore(found, log.index.zeroes().count(), again);
        Ok(())
    }
}

/// Records that are taken in together, so that the CPU waits for their places in the index at the same time.
const COMPANY: usize = 64;

fn restore_records(index: &mut LogIndex, found: &RecoveredLog, segment_pages: u32) {
    let grid: PageGrid = index.grid();
    // Slots are taken in order, so a segment's slot is its place in the list; records are in the same order.
    let mut slot = 0;
    for records in found.records.chunks(COMPANY) {
        index.prefetch(records.iter().flat_map(|record| match record.kind {
            RecordKind::Write => grid.pages(record.range).take(COMPANY),
            RecordKind::Zero => grid.pages(ByteRange::default()).take(COMPANY),
        }));
        for record in records {
            let RecordPlace::Log { segment, page } = record.place else { continue };
            while found.segments[slot].segment != segment {
                slot += 1;
            }
            restore_record(index, found, record, slot as u32 * segment_pages + page);
        }
    }
}

fn restore_record(index: &mut LogIndex, found: &RecoveredLog, record: &RecoveredRecord, at: u32) {
    let (sequence, epoch, range) = (record.sequence, record.epoch, record.range);
    if record.kind == RecordKind::Zero {
        // The log does not keep which it was. Most are discards: as written zeroes they would take the space that they freed.
        return index.restore_zero(ZeroRecord { sequence, epoch, range, may_unmap: true });
    }
    let grid: PageGrid = index.grid();
    let first = grid.page_of(range.start).0;
    for (n, disk_page) in grid.pages(range).enumerate() {
        debug_assert_eq!(disk_page.0, first + n as u64);
        let place = Place(at + n as u32);
        index.insert(place, disk_page, grid.sectors(disk_page, range), sequence, epoch);
        index.store_checksum(place, found.checksums[record.first_checksum as usize + n]);
    }
}
