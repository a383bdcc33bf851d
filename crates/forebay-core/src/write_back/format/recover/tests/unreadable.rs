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
    world.leased.retain(|lease| !log.unused.contains(&lease.segment));
    world.accept_missing = false;
    world.group(&[write(1 << 20, 512)], end);
    check(&mut world, 1..end + 2);
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
