mod failures;
mod random;
mod staged;
mod summaries;
mod unreadable;
mod world;

use super::*;
use crate::ids::{Generation, Uuid};
use crate::sealed::PAGE_LEN;
use world::{GROUPS_END, PAGES, World, write, zero};

/// Recovers and checks that the records are those numbered `expect`, as they were written.
#[track_caller]
fn check(world: &mut World, expect: std::ops::Range<u64>) -> RecoveredLog {
    let log = world.recover().unwrap();
    let found: Vec<u64> = log.records.iter().map(|record| record.sequence.0).collect();
    assert_eq!(found, expect.collect::<Vec<_>>());
    world.check_records(&log);
    log
}

#[test]
fn an_empty_log_begins_after_what_was_flushed() {
    let mut world = World::new();
    world.flushed = 41;
    let log = check(&mut world, 1..1);
    assert_eq!(log.next_sequence, Sequence(42));
    assert_eq!(log.report.end, LogEnd::Empty);
    // A segment that was leased, but whose header was never written.
    world.lease();
    assert_eq!(check(&mut world, 1..1).next_sequence, Sequence(42));
}

#[test]
fn records_are_found_over_all_segments_in_order() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 4096), write(512, 512), zero(1 << 20, 1 << 30)], 0);
    world.group(&[write(8192, 8192)], 3);
    world.open();
    world.group(&[write(0, 512)], 4);
    let log = check(&mut world, 1..6);
    assert_eq!(log.next_group, GroupNumber(4));
    assert_eq!(log.next_sequence, Sequence(6));
    assert_eq!(log.next_ordinal, 2);
    assert_eq!(log.next_epoch, FlushEpoch(world.epoch + 1));
    let ends: Vec<_> = log.segments.iter().map(|s| (s.segment.0, s.end_sequence.0)).collect();
    assert_eq!(ends, [(0, 5), (1, 6)]);
    let counts = (log.report.groups, log.report.records, log.report.groups_dropped);
    assert_eq!(counts, (3, 5, 0));
    assert_eq!(log.report.end, LogEnd::Tail { segment: SegmentId(1), page: 3 });
    // Group 3 is not known to be durable, so that its page was looked at, and only that one.
    assert_eq!(log.report.pages_verified, 1);
}

#[test]
fn what_was_flushed_is_left_out_and_its_segments_are_free() {
    let mut world = World::new();
    for _ in 0..3 {
        world.open();
        world.group(&[write(0, 4096), write(4096, 4096)], world.next_sequence() - 1);
    }
    let free = |log: &RecoveredLog| log.segments.iter().map(|s| s.segment.0).collect::<Vec<_>>();
    let table = [(0, 1, vec![0, 1, 2]), (1, 2, vec![0, 1, 2]), (2, 3, vec![1, 2])];
    for (flushed, first, segments) in table {
        world.flushed = flushed;
        assert_eq!(free(&check(&mut world, first..7)), segments, "{flushed}");
    }
    world.flushed = 6;
    let log = check(&mut world, 7..7);
    assert_eq!((free(&log), log.next_sequence), (vec![], Sequence(7)));
    // Segments that are not needed are not read: the first two can rot.
    world.flushed = 4;
    world.image(0).fill(0xaa);
    world.image(1).fill(0xaa);
    check(&mut world, 5..7);
    // Progress beyond the end of the log: what was lost is on primary storage.
    world.flushed = 20;
    assert_eq!(check(&mut world, 21..21).next_sequence, Sequence(21));
}

#[test]
fn a_group_may_end_with_its_segment() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, u64::from(GROUPS_END - 2) * 4096)], 0);
    world.open();
    world.group(&[write(0, 512)], 1);
    check(&mut world, 1..3);
}

#[test]
fn tables_that_contradict_themselves_are_refused() {
    let refused = |change: &dyn Fn(&mut World), expect: &str| {
        let mut world = World::new();
        world.open();
        world.group(&[write(0, 512)], 0);
        world.open();
        change(&mut world);
        assert_eq!(world.recover().unwrap_err().to_string(), expect);
    };
    let tables = "the tables of the pool have an impossible ";
    let say = |what: &str| format!("{tables}{what}");
    refused(&|w| w.leased[1].ordinal = 0, &say("lease: two segments have the same ordinal"));
    refused(&|w| w.leased[1].segment = SegmentId(0), &say("list of segments: one is there twice"));
    refused(&|w| w.leased[0].generation = Generation(2), &say("lease: generations go backwards"));
    refused(
        &|w| w.leased[1].generation = Generation(9),
        &say("lease: a generation from the future"),
    );
    refused(&|w| w.leased[1].ordinal = u64::MAX, &say("lease: ordinal"));
    refused(&|w| w.flushed = u64::MAX, &say("progress"));
    refused(&|w| w.segment_pages = 1, &say("segment size"));
    refused(&|w| w.segment_pages = u32::MAX, &say("segment size"));
    refused(&|w| w.disk_size = u64::MAX, &say("disk size"));
    refused(
        &|w| w.disk_size = 0,
        "segment 0 page 1: the group header has an impossible range of an entry: beyond the \
         disk's end",
    );
    refused(&|w| w.broken = Some(1), "cannot read segment 1 page 0: broken");
}

#[test]
fn a_segment_of_another_disk_or_lease_is_not_ours() {
    for change in [
        |h: &mut segment::SegmentHeader| h.disk = Uuid([9; 16]),
        |h: &mut segment::SegmentHeader| h.generation = Generation(0),
        |h: &mut segment::SegmentHeader| h.ordinal = 7,
        |h: &mut segment::SegmentHeader| h.segment = SegmentId(7),
    ] {
        let mut world = World::new();
        world.open();
        world.group(&[write(0, 512)], 0);
        world.change_header(0, change);
        check(&mut world, 1..1);
    }
}

use crate::write_back::format::segment;

#[test]
fn recovery_reads_what_is_dirty_not_the_whole_log() {
    let mut world = World::new();
    let (segments, groups) = (40, u64::from((GROUPS_END - 1) / 2));
    for _ in 0..segments {
        world.open();
        for _ in 0..groups {
            world.group(&[write(0, 4096)], world.next_sequence() - 1);
        }
    }
    let segment = PAGES as usize * PAGE_LEN;
    for dirty in [0, 1, 5, 20, 40] {
        world.flushed = groups * (segments - dirty);
        world.bytes_read = 0;
        let expect = world.flushed + 1..groups * segments + 1;
        check(&mut world, expect);
        // A header of each segment, and what is dirty, from the beginning of a segment on.
        let bound = (segments as usize) * PAGE_LEN + (dirty as usize + 1) * segment;
        assert!(world.bytes_read <= bound, "{dirty} dirty: {} of {bound}", world.bytes_read);
    }
}
