//! The summary of a segment: when it is written, and what waits for it.

use super::*;

/// The summary of the first segment, and the first group of the second one, of a page.
const SUMMARY: &str = "log W 61440+4096";
const BEHIND: &str = "log W 65536+12288";

/// Fills the first segment, whose groups are on their way, and leases a second one.
fn fill_a_segment(rig: &mut Rig) {
    rig.write(1, 0, 12 * 4096, 7);
    rig.grant();
    assert_eq!(rig.drawn(), ["log W 0+45056"]);
    rig.complete(0, IoStatus::Ok);
    rig.settle_until("log W 45056+16384");
}

#[test]
fn a_full_segment_gets_its_summary_before_the_next_group() {
    let mut rig = write_back(with_log());
    fill_a_segment(&mut rig);
    rig.write_with(2, 1 << 16, 4096, 8, true);
    rig.complete(rig.find("log W 45056+16384"), IoStatus::Ok);
    rig.settle_until(SUMMARY);
    assert!(!rig.drawn().contains(&BEHIND.to_string()) && !rig.has_reply(2));
    rig.complete(rig.find(SUMMARY), IoStatus::Ok);
    rig.find(BEHIND);
    rig.settle_log();
    rig.expect_bytes(1 << 16, 4096, 8);
}

#[test]
fn a_summary_goes_neither_beside_groups_nor_a_group_beside_it() {
    let mut rig = write_back(with_log());
    rig.grant();
    rig.write_with(1, 0, 4 * 4096, 7, true);
    rig.write_with(2, 1 << 15, 8 * 4096, 8, true);
    rig.write_with(3, 1 << 16, 9 * 4096, 9, true);
    let groups = ["log W 0+24576", "log W 24576+36864"];
    assert_eq!(rig.drawn(), groups);
    rig.complete(1, IoStatus::Ok);
    assert_eq!(rig.drawn(), groups[..1]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(1) && rig.has_reply(2));
    rig.settle_until(SUMMARY);
    assert!(rig.drawn().iter().all(|io| !io.starts_with("log W") || io == SUMMARY));
    rig.settle_log();
    assert!(rig.has_reply(3));
}

#[test]
fn a_summary_that_fails_or_hangs_fails_the_log_and_loses_nothing() {
    for hangs in [false, true] {
        let mut rig = write_back(with_log());
        fill_a_segment(&mut rig);
        rig.settle_until(SUMMARY);
        rig.write_with(2, 1 << 16, 4096, 8, true);
        if hangs {
            rig.tick(5_001);
            assert_eq!(rig.replied(2).1, IoStatus::IoError);
        } else {
            rig.complete(rig.find(SUMMARY), IoStatus::IoError);
        }
        rig.settle_log();
        assert_eq!((rig.replied(2).1, rig.engine.mode()), (IoStatus::IoError, Mode::WriteThrough));
        assert!(rig.backend[..12 * 4096].iter().all(|&b| b == 7));
        assert!(rig.engine.is_idle());
    }
}

#[test]
fn zeroes_that_fill_a_summary_end_the_segment() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    let zeroes = Op::WriteZeroes { may_unmap: false, fast_only: false, fua: false };
    let mut ends = Vec::new();
    for tag in 0..200 {
        let range = ByteRange::at(tag * 512, 512);
        let request = Request { tag: RequestTag(tag), range, op: zeroes };
        rig.engine.submit(rig.now, request, &mut rig.actions).expect("a free place");
        if tag % 20 == 19 {
            rig.run_actions();
            rig.tick(1);
            while !rig.pending.is_empty() {
                rig.grant();
                ends.push(rig.pending[0].range.start);
                rig.complete(0, IoStatus::Ok);
            }
        }
    }
    let summary = ends.iter().position(|&start| start == 15 * 4096).expect("a summary");
    let (groups, behind) = ends.split_at(summary);
    assert!(groups.iter().all(|&start| start < 8 * 4096), "there is room for groups: {groups:?}");
    assert!(!behind[1..].is_empty() && behind[1..].iter().all(|&start| start >= 16 * 4096));
}

#[test]
fn a_segment_stays_leased_while_something_that_hangs_may_land_in_it() {
    for hangs in ["log W 45056+16384", SUMMARY] {
        let mut rig = write_back(with_log());
        fill_a_segment(&mut rig);
        rig.write(2, 1 << 16, 4096, 8);
        rig.settle_until(hangs);
        for _ in 0..100 {
            while let Some(index) = rig.drawn().iter().position(|drawn| drawn != hangs) {
                rig.complete(index, IoStatus::Ok);
            }
            rig.grant();
            rig.tick(1000);
        }
        assert!(rig.backend[..12 * 4096].iter().all(|&b| b == 7), "it was destaged");
        assert!(rig.unleased.is_empty(), "{hangs}");
        rig.complete(rig.find(hangs), IoStatus::Ok);
        rig.settle_log();
        assert_eq!(rig.unleased, [crate::ids::SegmentId(0)], "{hangs}");
    }
}
