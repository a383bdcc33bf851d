//! Summaries: believed where a later header claims what they say, and nowhere else.

use super::*;
use world::GROUPS_END;

/// Three segments of two groups each, all durable but the last group, with summaries of the first two.
fn summarized() -> World {
    let mut world = World::new();
    for _ in 0..3 {
        world.summarize_if_open();
        world.header_durable = world.next_sequence() - 1;
        world.open();
        world.group(&[write(0, 4096), zero(8192, 512)], world.header_durable);
        world.group(&[write(512, 512)], world.next_sequence() - 1);
    }
    world
}

fn damage_groups(world: &mut World, segment: u32) {
    let at = PAGE_LEN..GROUPS_END as usize * PAGE_LEN;
    world.image(segment)[at].fill(0xaa);
}

#[track_caller]
fn summaries(log: &RecoveredLog, good: u32, damaged: u32) {
    let report = &log.report;
    assert_eq!((report.segments_summarized, report.summaries_damaged), (good, damaged));
}

#[test]
fn a_segment_that_is_claimed_is_read_from_its_summary_alone() {
    let mut world = summarized();
    let log = check(&mut world, 1..10);
    summaries(&log, 2, 0);
    world.walk_all = true;
    let walked = check(&mut world, 1..10);
    summaries(&walked, 0, 0);
    assert_eq!(RecoveredLog { report: log.report.clone(), ..walked }, log);
    world.walk_all = false;
    damage_groups(&mut world, 0);
    damage_groups(&mut world, 1);
    assert_eq!(world.recover().unwrap(), log);
}

#[test]
fn a_summary_that_nothing_claims_is_not_believed() {
    let mut world = summarized();
    // The header of the third segment, and what is in it, say nothing of the last group of the second.
    world.change_header(2, |header| header.durable = Sequence(5));
    for page in [1, 3] {
        world.page(2, page).fill(0);
    }
    summaries(&check(&mut world, 1..7), 1, 0);
    world.page(1, 3).fill(0);
    let log = check(&mut world, 1..6);
    assert_eq!(log.report.end, LogEnd::Gap { segment: SegmentId(2) });
}

#[test]
fn what_a_later_session_replaced_does_not_come_back_with_the_summary() {
    let mut world = summarized();
    world.change_header(2, |header| header.durable = Sequence(5));
    for page in [1, 3] {
        world.page(2, page).fill(0);
    }
    // Power fails: the last group of the second segment is lost, its summary is not.
    world.page(1, 3).fill(0);
    world.restart();
    world.group(&[write(1 << 20, 4096)], 5);
    world.group(&[write(1 << 21, 4096)], 6);
    let log = check(&mut world, 1..8);
    summaries(&log, 2, 0);
    assert_eq!(log.records[5].range, ByteRange::at(1 << 20, 4096));
}

#[test]
fn a_summary_that_is_torn_or_rotten_is_walked_instead_and_counted() {
    let last = summarized().summary_len(0) - 1;
    for at in [12, 80, 97, 120, last] {
        let mut world = summarized();
        world.image(0)[GROUPS_END as usize * PAGE_LEN + at] ^= 4;
        // Where it does not say whose it is, it is none.
        summaries(&check(&mut world, 1..10), 1, u32::from(at > 75));
    }
    let mut world = summarized();
    world.image(0)[GROUPS_END as usize * PAGE_LEN..].fill(0);
    summaries(&check(&mut world, 1..10), 1, 0);
    // Without the groups they are missing, as ever.
    damage_groups(&mut world, 0);
    assert!(matches!(world.recover(), Err(RecoverError::Missing { .. })));
}

#[test]
fn a_summary_that_cannot_be_read_is_walked_instead() {
    let mut world = summarized();
    world.broken_summary = Some(0);
    let log = check(&mut world, 1..10);
    summaries(&log, 1, 0);
    assert_eq!(log.report.summaries_unreadable, 1);
    // Nor is what nobody asked for read with the groups of the last segment.
    world.broken_summary = Some(2);
    check(&mut world, 1..10);
}

#[test]
fn the_summary_of_an_earlier_use_of_the_segment_is_none() {
    for change in [
        |h: &mut segment::SegmentHeader| h.ordinal = 7,
        |h: &mut segment::SegmentHeader| h.generation = Generation(0),
        |h: &mut segment::SegmentHeader| h.nonce = 7,
        |h: &mut segment::SegmentHeader| h.disk = Uuid([9; 16]),
        |h: &mut segment::SegmentHeader| h.first_sequence = Sequence(7),
        |h: &mut segment::SegmentHeader| h.first_group = GroupNumber(0),
    ] {
        let mut world = summarized();
        let header = *world.page(0, 0);
        world.change_header(0, change);
        world.reseal_summary(0);
        *world.page(0, 0) = header;
        summaries(&check(&mut world, 1..10), 1, 0);
    }
}

#[test]
fn a_summary_that_says_what_cannot_be_is_walked_instead() {
    // Entries, data pages, phase; start, length, epoch, first page, kind of an entry.
    for at in [96, 98, 100, 104, 112, 120, 128, 130] {
        let mut world = summarized();
        world.image(0)[GROUPS_END as usize * PAGE_LEN + at] ^= 0x81;
        world.reseal_summary(0);
        summaries(&check(&mut world, 1..10), 1, 1);
    }
}
