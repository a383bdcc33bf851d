//! A process that died on a host that lives: the staging file has what the log does not.

use super::world::{World, more, write, zero};
use super::*;
use crate::write_back::format::group;

#[test]
fn acknowledged_records_come_from_the_staging_file() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.stage(&[write(512, 512), zero(0, 1 << 20)]);
    world.stage(&[write(4096, 8192)]);
    let log = check(&mut world, 1..5);
    assert_eq!(log.next_sequence, Sequence(2));
    assert_eq!(log.records[3].place, RecordPlace::Staged { group: 1, page: 0 });
    assert_eq!(log.report.records_staged, 3);
}

#[test]
fn a_group_in_both_places_counts_once() {
    let mut world = World::new();
    world.open();
    let bytes = world.stage(&[write(0, 512), write(512, 512)]);
    world.stage(&[write(1024, 512)]);
    let mut page = bytes.clone();
    group::seal((&mut page[..4096]).try_into().unwrap(), Sequence(0));
    world.put(&page);
    let log = check(&mut world, 1..4);
    assert!(!log.lacks_what_was_sent());
    let through = log.next_sequence;
    assert!(RecoveredLog { through, ..log.clone() }.lacks_what_was_sent());
    assert!(matches!(log.records[1].place, RecordPlace::Log { .. }));
    assert!(matches!(log.records[2].place, RecordPlace::Staged { group: 1, page: 0 }));
    // On flash it is torn: the staging file has it whole.
    world.page(0, 2)[0] ^= 1;
    let log = check(&mut world, 1..4);
    assert_eq!(log.report.end, LogEnd::TornData { segment: SegmentId(0), page: 2 });
    assert!(matches!(log.records[0].place, RecordPlace::Staged { group: 0, page: 0 }));
}

#[test]
fn a_request_over_log_and_staging_file_is_whole() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512), more(write(512, 512))], 0);
    world.stage(&[write(1024, 512), more(write(0, 512))]);
    let log = check(&mut world, 1..4);
    assert_eq!((log.next_sequence, log.report.records_dropped), (Sequence(3), 1));
    assert!(log.lacks_what_was_sent(), "its first part may be on primary storage");
    // Without the staging file all of it is left out.
    world.staged.clear();
    let log = check(&mut world, 1..2);
    assert_eq!((log.next_sequence, log.report.records_dropped), (Sequence(2), 1));
}

#[test]
fn what_a_dead_start_left_out_of_a_request_is_not_missed_because_more_of_it_is_staged() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512), more(write(512, 512))], 0);
    world.stage(&[more(write(1024, 512))]);
    for _ in 0..3 {
        world.restart_uncommitted();
        assert_eq!(check(&mut world, 1..2).next_sequence, Sequence(2));
    }
}

#[test]
fn whole_writes_that_are_missed_behind_a_dead_start_are_an_error() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.stage(&[write(512, 512)]);
    world.stage(&[write(1024, 512)]);
    world.restart_uncommitted();
    check(&mut world, 1..4);
    world.staged.remove(0);
    let expected = RecoverError::StagedGap { expected: Sequence(2), found: Sequence(3) };
    assert_eq!(world.recover(), Err(expected));
}

#[test]
fn a_staging_file_of_an_older_session_is_ignored() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.stage(&[write(512, 512)]);
    let staged = world.staged.clone();
    world.staged.clear();
    world.restart();
    world.staged = staged;
    let log = check(&mut world, 1..2);
    assert_eq!(log.report.groups_stale, 1);
}

#[test]
fn a_recovery_that_was_interrupted_finds_the_staging_file_again() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.stage(&[write(512, 512), write(1024, 512)]);
    let (staged, committed) = (world.staged.clone(), world.committed);
    let records: Vec<_> = check(&mut world, 1..4).records.iter().map(|r| r.range).collect();
    // One record is in the log again, the other is not; nothing was committed.
    world.restart();
    (world.staged, world.committed) = (staged, committed);
    let epoch = std::mem::replace(&mut world.epoch, 10);
    world.group(&[write(512, 512)], 1);
    let log = world.recover().unwrap();
    let again: Vec<_> = log.records.iter().map(|r| r.range).collect();
    assert_eq!(again, records);
    assert!(log.next_epoch.0 > epoch);
    assert!(matches!(log.records[1].place, RecordPlace::Log { .. }));
    assert!(matches!(log.records[2].place, RecordPlace::Staged { .. }));
}

#[test]
fn a_hole_between_log_and_staging_file_is_an_error() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.bytes(&[write(0, 512)], None);
    world.stage(&[write(512, 512)]);
    let error = RecoverError::StagedGap { expected: Sequence(2), found: Sequence(3) };
    assert_eq!(world.recover(), Err(error));
}

#[test]
fn a_log_that_is_accepted_ends_at_a_hole_before_the_staging_file() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.bytes(&[write(0, 512)], None);
    world.stage(&[write(512, 512), write(1024, 512)]);
    world.stage(&[write(4096, 512)]);
    world.accept_missing = true;
    let log = check(&mut world, 1..2);
    assert_eq!((log.report.records_staged, log.report.records_lost), (0, 4));
    assert!(log.lacks_what_was_sent(), "primary storage may have what is lost");
    // A start that dies in between finds the same, and the one after it needs no decision any more.
    world.restart_uncommitted();
    check(&mut world, 1..2);
    world.restart();
    world.accept_missing = false;
    world.group(&[write(512, 512)], 1);
    let log = check(&mut world, 1..3);
    assert_eq!(log.report.records_lost, 0);
}

#[test]
fn a_durable_group_that_rotted_before_the_staging_file_costs_what_is_behind_it() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let (segment, page) = world.group(&[write(0, 512)], 1);
    world.group(&[write(8192, 512)], 2);
    world.stage(&[write(512, 512)]);
    world.page(segment, page)[100] ^= 1;
    assert!(matches!(world.recover(), Err(RecoverError::Missing { .. })));
    world.accept_missing = true;
    assert_eq!(check(&mut world, 1..2).report.records_lost, 3);
}

#[test]
fn a_durable_group_that_rotted_is_taken_from_the_staging_file_once_that_is_accepted() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let mut bytes = world.stage(&[write(512, 512)]);
    group::seal((&mut bytes[..4096]).try_into().unwrap(), Sequence(1));
    let (segment, page) = world.put(&bytes);
    world.group(&[write(8192, 512)], 2);
    world.page(segment, page)[100] ^= 1;
    assert!(matches!(world.recover(), Err(RecoverError::Missing { .. })));
    world.accept_missing = true;
    assert_eq!(check(&mut world, 1..3).report.records_lost, 0);
}
