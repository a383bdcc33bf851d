//! Pages that the medium does not give back, in the log and behind its end.

use super::*;

/// Two segments; the first one has a summary or not, the second one ends with a group that nothing claims.
fn two_segments(has_summary: bool) -> World {
    let mut world = World::new();
    world.open();
    for _ in 0..4 {
        world.group(&[write(0, 4096), write(8192, 4096)], world.next_sequence() - 1);
    }
    if has_summary {
        world.summarize();
    }
    world.header_durable = 8;
    world.open();
    world.group(&[write(0, 4096)], 8);
    world.group(&[write(4096, 4096)], 9);
    world
}

/// A log with this page unreadable is refused, and goes up to `end` once that is accepted.
fn check_cut(mut world: World, bad: (u32, u32), end: u64, lost: u64) {
    world.bad_page = Some(bad);
    let error = world.recover().unwrap_err();
    let RecoverError::Read { segment, page, .. } = error else { panic!("{bad:?}: {error}") };
    assert_eq!((segment.0, page), bad);
    world.accept_missing = true;
    let log = check(&mut world, 1..end + 1);
    assert_eq!(log.report.records_lost, lost, "{bad:?}");
    // What follows needs no decision, although the page still cannot be read.
    world.restart();
    keep_what_is_needed(&mut world, &log);
    world.accept_missing = false;
    world.group(&[write(1 << 20, 512)], end);
    check(&mut world, 1..end + 2);
}

/// Gives back what a start does once its header is durable.
fn keep_what_is_needed(world: &mut World, log: &RecoveredLog) {
    let (tail, _) = world.tail();
    let is_kept = |lease: &LeasedSegment| {
        lease.segment.0 == tail || log.segments.iter().any(|kept| kept.segment == lease.segment)
    };
    world.leased.retain(is_kept);
}

#[test]
fn a_log_that_is_accepted_ends_at_a_page_that_cannot_be_read() {
    // The headers of two groups and a page of data in the middle, of which later headers claim all.
    for (page, end) in [(1, 0), (7, 4), (9, 4), (10, 6)] {
        check_cut(two_segments(false), (0, page), end, 9 - end);
    }
    // Header and data of the last two groups; of the last one nobody knows that it was there.
    for (page, end, lost) in [(1, 8, 1), (2, 8, 1), (3, 9, 0), (4, 9, 0)] {
        check_cut(two_segments(true), (1, page), end, lost);
    }
}

#[test]
fn a_page_behind_the_end_of_the_log_that_cannot_be_read_costs_no_record() {
    for page in [5, 6, 40, 64, 65, 200, GROUPS_END - 1] {
        check_cut(two_segments(true), (1, page), 10, 0);
    }
}

#[test]
fn a_header_that_cannot_be_read_is_a_segment_that_is_missing() {
    check_cut(two_segments(true), (1, 0), 8, 1);
    check_cut(two_segments(true), (0, 0), 0, 9);
}

#[test]
fn a_decision_about_a_log_does_not_cover_what_is_lost_after_it() {
    let mut world = two_segments(true);
    world.bad_page = Some((1, 3));
    world.accept_missing = true;
    world.accepted = 9;
    check(&mut world, 1..10);
    world.bad_page = Some((1, 1));
    let missing = world.recover().unwrap_err();
    let RecoverError::Missing { expected, durable, .. } = missing else { panic!("{missing}") };
    assert_eq!((expected, durable), (Sequence(9), Sequence(9)));
}

#[test]
fn what_the_next_header_voids_need_not_be_read() {
    let mut world = two_segments(false);
    for page in 13..20 {
        world.bad_page = Some((0, page));
        check(&mut world, 1..11);
    }
}

#[test]
fn pages_near_one_that_cannot_be_read_are_asked_for_once() {
    let mut world = two_segments(true);
    world.bad_page = Some((1, 40));
    world.accept_missing = true;
    world.reads_failed = 0;
    check(&mut world, 1..11);
    assert_eq!(world.reads_failed, 2, "the window, and the page");
}

/// A session whose last group is torn after three whole ones of six records in all, and the session behind it with the same
/// numbers in so many groups. The second one's header has rotted, or cannot be read.
fn torn_and_restarted(groups: u64, is_rotten: bool) -> World {
    let mut world = World::new();
    world.open();
    for _ in 0..3 {
        world.group(&[write(0, 4096), write(8192, 4096)], world.next_sequence() - 1);
    }
    let (segment, page) = world.group(&[write(0, 4096), write(4096, 4096), write(8192, 4096)], 6);
    world.page(segment, page + 2)[0] ^= 1;
    let log = world.restart();
    assert_eq!((log.next_sequence, log.next_group), (Sequence(7), GroupNumber(4)));
    for _ in 0..groups {
        world.group(&[write(1 << 20, 4096)], world.next_sequence() - 1);
    }
    match is_rotten {
        true => world.page(1, 0)[100] ^= 1,
        false => world.bad_page = Some((1, 0)),
    }
    world.accept_missing = true;
    world
}

#[test]
fn what_a_header_had_voided_stays_void_when_it_cannot_be_read() {
    for is_rotten in [false, true] {
        for (groups, staged) in [(5, 0), (5, 3), (2, 0), (2, 3), (1, 1)] {
            let mut world = torn_and_restarted(groups, is_rotten);
            for _ in 0..staged {
                world.stage(&[write(2 << 20, 4096)]);
            }
            let log = check(&mut world, 1..7);
            assert_eq!(log.report.records_staged, 0);
            assert!(staged == 0 || log.report.records_lost == groups + staged, "{groups} {staged}");
            // A start that dies sees the same once more, although its own header is there.
            assert_eq!(log.unused, []);
            world.restart_uncommitted();
            check(&mut world, 1..7);
            let log = world.restart();
            keep_what_is_needed(&mut world, &log);
            world.accept_missing = false;
            world.group(&[write(512, 512)], 6);
            check(&mut world, 1..8);
        }
    }
}

#[test]
fn what_is_staged_does_not_follow_what_a_lost_header_has_voided() {
    // Nothing of the second session is on flash, and the staging file goes on behind the numbers of the torn group.
    let mut world = torn_and_restarted(0, false);
    world.bytes(&[write(0, 512), write(0, 512), write(0, 512)], None);
    world.stage(&[write(2 << 20, 4096)]);
    assert_eq!(check(&mut world, 1..7).report.records_lost, 4);
    // Even when the old group is whole.
    world.page(0, 12)[0] ^= 1;
    assert_eq!(world.recover().unwrap().report.records_staged, 0);
}

#[test]
fn a_later_header_of_the_session_proves_nothing_of_what_is_before_a_lost_one() {
    for has_summary in [false, true] {
        let mut world = torn_and_restarted(0, false);
        // As many records as the torn group has: the next segment seems to follow that.
        world.group(&[write(0, 512), write(512, 512), write(1024, 512)], 6);
        if has_summary {
            world.summarize();
        }
        world.header_durable = 9;
        world.open();
        world.group(&[write(0, 4096)], 9);
        check(&mut world, 1..7);
    }
}

#[test]
fn what_is_staged_follows_its_own_session_when_the_header_behind_cannot_be_read() {
    let mut world = two_segments(true);
    world.stage(&[write(0, 4096)]);
    world.lease();
    world.bad_page = Some((2, 0));
    world.accept_missing = true;
    assert_eq!(check(&mut world, 1..12).report.records_lost, 0);
}

#[test]
fn a_log_goes_on_that_a_dead_start_has_copied_into_a_segment_without_a_header() {
    let mut world = two_segments(true);
    world.restart_uncommitted();
    let (next, group) = (world.next_sequence(), world.tail());
    assert_eq!((next, group), (11, (2, 1)));
    world.bad_page = Some((2, 0));
    world.accept_missing = true;
    check(&mut world, 1..11);
}
