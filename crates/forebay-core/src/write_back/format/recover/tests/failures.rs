//! What `docs/format/protocol.md` argues, case by case.

use super::world::{World, more, write};
use super::*;
use crate::sealed::PAGE_LEN;

fn write_group_of_two() -> [crate::write_back::format::group::Entry; 2] {
    [write(0, 4096), write(8192, 8192)]
}

#[test]
fn a_group_torn_at_any_sector_ends_the_log_cleanly() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let bytes = world.bytes(&write_group_of_two(), Some(1));
    for cut in (0..=bytes.len()).step_by(512) {
        let mut torn = world.clone();
        torn.put(&bytes[..cut]);
        check(&mut torn, if cut == bytes.len() { 1..4 } else { 1..2 });
        // The other way round: the first sectors are missing.
        let mut torn = world.clone();
        let mut missing = bytes.clone();
        missing[..cut].fill(0);
        torn.put(&missing);
        check(&mut torn, if cut == 0 { 1..4 } else { 1..2 });
    }
}

#[test]
fn a_torn_segment_header_is_a_segment_without_groups() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    world.open();
    world.page(1, 0)[64..512].fill(0);
    let log = check(&mut world, 1..2);
    assert_eq!(log.next_ordinal, 2);
    // Its groups are lost with it, unless one of them says that others were durable.
    world.group(&[write(0, 512)], 1);
    check(&mut world, 1..2);
    world.group(&[write(0, 512)], 2);
    let error = world.recover().unwrap_err();
    let RecoverError::Missing { expected: Sequence(2), durable: Sequence(2), .. } = error else {
        panic!("{error}");
    };
}

#[test]
fn later_groups_that_landed_before_an_earlier_one_are_dropped() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let (segment, page) = world.group(&[write(0, 512)], 0);
    world.group(&[write(0, 512)], 0);
    world.page(segment, page).fill(0);
    let log = check(&mut world, 1..2);
    assert_eq!(log.report.end, LogEnd::Tail { segment: SegmentId(0), page });
    // Also when they are in the next segment, whose header landed too.
    world.open();
    world.group(&[write(0, 512)], 0);
    let log = check(&mut world, 1..2);
    assert_eq!(log.report.end, LogEnd::Gap { segment: SegmentId(1) });
    assert_eq!((log.report.groups, log.report.groups_dropped), (2, 1));
    // And when the first segment is gone with its header.
    world.page(0, 0).fill(0);
    let log = check(&mut world, 1..1);
    assert_eq!(log.report.end, LogEnd::Gap { segment: SegmentId(1) });
    assert_eq!(log.next_sequence, Sequence(1));
}

#[test]
fn a_missing_group_in_the_middle_is_an_error_not_a_short_log() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let (segment, page) = world.group(&[write(0, 512)], 1);
    world.group(&[write(0, 512)], 2);
    let mut in_the_last_segment = world.clone();
    world.open();
    world.group(&[write(0, 512)], 3);
    let mut behind_another_segment = world.clone();
    for world in [&mut in_the_last_segment, &mut behind_another_segment] {
        world.page(segment, page)[100] ^= 1;
        let RecoverError::Missing { segment: at, page: at_page, expected, durable, .. } =
            world.recover().unwrap_err()
        else {
            panic!("a short log");
        };
        assert_eq!((at, at_page, expected), (SegmentId(0), page, Sequence(2)));
        assert!(durable >= Sequence(2));
        // An administrator may go on with what is there; then it stays so.
        world.accept_missing = true;
        check(world, 1..2);
        world.restart();
        world.accept_missing = false;
        world.group(&[write(0, 512)], 1);
        check(world, 1..3);
        // Nothing is missing when it is on primary storage.
        world.flushed = 1;
        check(world, 2..3);
    }
    // Needed no more: the segment after it begins with what was not destaged.
    behind_another_segment.restart();
    let text = {
        let mut world = World::new();
        world.open();
        world.group(&[write(0, 512)], 0);
        world.open();
        world.header_durable = 1;
        world.open();
        world.group(&[write(0, 512)], 1);
        world.page(0, 1).fill(0);
        world.recover().unwrap_err().to_string()
    };
    let expect = "records are missing: expected 1 at segment 0 page 1, found 2; records up to 1 were durable";
    assert_eq!(text, expect);
}

#[test]
fn records_beyond_a_gap_never_revive_after_a_second_crash() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let (segment, page) = world.group(&[write(4096, 512)], 1);
    world.group(&[write(8192, 512)], 1);
    world.open();
    world.group(&[write(12288, 512)], 1);
    // Power fails: group 2 is lost, 3 and 4 landed.
    let lost = *world.page(segment, page);
    world.page(segment, page).fill(0);
    world.restart();
    world.group(&[write(1 << 20, 512)], 1);
    let first = check(&mut world, 1..3);
    // Group 2 of the old session may even be there after all.
    *world.page(segment, page) = lost;
    assert_eq!(check(&mut world, 1..3).records, first.records);
    // A second crash loses the new session's record: the old ones with its number stay dead.
    let (segment, page) = (world.tail().0, 1);
    world.page(segment, page).fill(0);
    check(&mut world, 1..2);
    world.restart();
    check(&mut world, 1..2);
    world.group(&[write(2 << 20, 512)], 1);
    check(&mut world, 1..3);
}

#[test]
fn a_crash_in_recovery_repeats_it() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    // The new segment is leased, its header torn, never written, or there without groups.
    for _ in 0..3 {
        world.restart();
        let segment = world.tail().0;
        check(&mut world, 1..2);
        world.page(segment, 0)[10] ^= 1;
        check(&mut world, 1..2);
    }
    world.restart();
    world.group(&[write(0, 512)], 1);
    check(&mut world, 1..3);
}

#[test]
fn a_segment_given_back_and_leased_again_shows_nothing_old() {
    let mut world = World::new();
    world.open();
    for _ in 0..20 {
        world.group(&[write(0, 4096)], 0);
    }
    world.open();
    world.group(&[write(0, 4096)], 20);
    // Segment 0 is destaged, given back, and leased again at once in the same session.
    world.flushed = 21;
    world.leased[0].ordinal = 5;
    check(&mut world, 1..1);
    world.open_leased(0);
    check(&mut world, 1..1);
    world.group(&[write(1 << 20, 512)], 21);
    // What follows on the medium are old groups, whole, of the same session.
    let log = check(&mut world, 22..23);
    assert_eq!(log.report.end, LogEnd::Tail { segment: SegmentId(0), page: 3 });
}

#[test]
fn a_lease_that_was_not_given_back_durably_brings_nothing_back() {
    let mut world = World::new();
    for _ in 0..2 {
        world.open();
        world.group(&[write(0, 4096)], 0);
    }
    world.flushed = 1;
    check(&mut world, 2..3);
    // The same without the progress is an error, not a log with a hole.
    world.flushed = 0;
    world.leased.remove(0);
    world.change_header(1, |header| header.durable = Sequence(1));
    assert!(matches!(world.recover(), Err(RecoverError::Missing { .. })));
}

#[test]
fn half_a_request_is_left_out_and_stays_out() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512), more(write(0, 512))], 0);
    world.group(&[more(write(512, 512))], 1);
    let log = check(&mut world, 1..2);
    assert_eq!((log.report.records_dropped, log.next_sequence), (2, Sequence(2)));
    // The next session uses the numbers again; the groups of the old one are still there.
    world.restart();
    check(&mut world, 1..2);
    world.group(&[write(1024, 512)], 1);
    check(&mut world, 1..3);
    world.open();
    world.group(&[more(write(512, 512)), write(512, 512)], 1);
    check(&mut world, 1..5);
}

#[test]
fn starts_that_die_after_an_orderly_end_with_half_a_request_find_the_same_again() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512), write(512, 512), more(write(0, 512))], 0);
    world.log_end = 3;
    check(&mut world, 1..3);
    for _ in 0..3 {
        world.restart_uncommitted();
        assert_eq!(check(&mut world, 1..3).next_sequence, Sequence(3));
    }
    // Of what the dead starts took over, the end still vouches for every record.
    let last = world.leased.len() as u32 - 1;
    world.image(0)[PAGE_LEN..].fill(0);
    let missing = world.recover().unwrap_err();
    assert!(matches!(missing, RecoverError::Missing { durable: Sequence(2), .. }), "{missing}");
    // Without them it vouches for the half, too.
    for segment in 1..=last {
        world.image(segment).fill(0);
    }
    let missing = world.recover().unwrap_err();
    assert!(matches!(missing, RecoverError::Missing { durable: Sequence(3), .. }), "{missing}");
}

#[test]
fn bytes_that_contradict_themselves_under_a_right_checksum_are_refused() {
    let refused = |change: &dyn Fn(&mut World), expect: &str| {
        let mut world = World::new();
        world.open();
        world.group(&[write(0, 512)], 0);
        world.open();
        world.group(&[write(0, 512)], 0);
        change(&mut world);
        assert_eq!(world.recover().unwrap_err().to_string(), expect);
    };
    let reseal = |world: &mut World, segment: u32, page: u32, at: usize, byte: u8| {
        world.page(segment, page)[at] = byte;
        crate::sealed::seal(world.page(segment, page));
    };
    let group = |what: &str| format!("the group header has an impossible {what}");
    refused(&|w| reseal(w, 1, 1, 48, 9), &format!("segment 1 page 1: {}", group("first sequence")));
    refused(
        &|w| reseal(w, 1, 1, 112, 1),
        &format!("segment 1 page 1: {}", group("epoch of an entry")),
    );
    refused(
        &|w| {
            w.open();
            w.change_header(2, |h| h.first_sequence.0 = 5);
        },
        "segment 2: the segment header has an impossible first sequence",
    );
    refused(
        &|w| w.change_header(0, |h| h.first_group.0 = 5),
        "segment 1: the segment header has an impossible first group: it goes back",
    );
    refused(
        &|w| reseal(w, 1, 0, 12, 2),
        "segment 1: the segment has version 2, this program reads version 1",
    );
    // A group that would reach beyond its segment.
    refused(
        &|w| {
            let bytes = w.bytes(&[write(0, 256 * 4096)], Some(0));
            w.put(&bytes[..PAGE_LEN]);
        },
        &format!("segment 1 page 3: {}", group("length")),
    );
}

#[test]
fn what_a_guest_writes_does_not_pass_for_a_group() {
    // A page with everything right but the nonce, which no guest knows.
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    let mut forged = world.bytes(&[write(0, 512)], Some(1));
    forged[64] ^= 1;
    let page: &mut crate::sealed::Page = (&mut forged[..PAGE_LEN]).try_into().unwrap();
    crate::sealed::seal(page);
    world.put(&forged);
    check(&mut world, 1..2);
}

#[test]
fn what_a_guest_left_in_a_segment_does_not_pass_for_a_claim_of_the_log() {
    let mut world = World::new();
    world.open();
    world.group(&[write(0, 512)], 0);
    // It was cache before it was leased. The guest knows the disk, and can guess everything but the nonce.
    let mut forged = world.clone();
    let segment = forged.lease();
    let mut bytes = forged.bytes(&[write(0, 512)], None);
    bytes[48..56].copy_from_slice(&(1u64 << 61 | 1).to_le_bytes());
    bytes[64] ^= 1;
    let page = forged.page(segment, 1);
    page.copy_from_slice(&bytes[..PAGE_LEN]);
    crate::write_back::format::group::seal(page, Sequence(1 << 61));
    check(&mut forged, 1..2);
    // The nonce makes it a group whose segment has lost its header.
    forged.page(segment, 1)[64] ^= 1;
    crate::sealed::seal(forged.page(segment, 1));
    let missing = forged.recover().unwrap_err();
    assert!(matches!(missing, RecoverError::Missing { .. }), "{missing}");
}

#[test]
fn a_header_of_another_version_is_refused_where_it_is_the_leases_own() {
    let (version, disk, phase) = (12, 16, 14);
    for at in [version, phase] {
        let mut world = World::new();
        world.open();
        world.group(&[write(0, 512)], 0);
        world.open();
        world.page(1, 0)[at] = 2;
        crate::sealed::seal(world.page(1, 0));
        assert!(matches!(world.recover(), Err(RecoverError::Segment { .. })));
        // What a guest had there, or the log of another disk.
        for differs in [disk, 32, 40, 88] {
            let mut other = world.clone();
            other.page(1, 0)[differs] ^= 1;
            crate::sealed::seal(other.page(1, 0));
            check(&mut other, 1..2);
        }
    }
}
