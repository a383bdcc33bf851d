//! Lost sessions, and what may count although it failed.

use super::*;

#[test]
fn what_a_lost_session_took_goes_through_the_journal_again() {
    for done in [0, 2, 4] {
        let mut rig = with_epochs(journaled(false), 4);
        rig.end_all(Target::Journal);
        for _ in 0..done {
            rig.end_one(Target::Backend, IoStatus::Ok);
        }
        rig.lose_session();
        for n in 0..4 {
            rig.backend[n * PIECE as usize..][..4096].fill(0);
        }
        while let Some(index) = rig.pending.iter().position(|io| io.target == Target::Backend) {
            rig.complete(index, IoStatus::IoError);
        }
        rig.log();
        while rig.record(2).is_none() {
            assert!(rig.of(Target::Backend).is_empty(), "after {done} writes: {:?}", rig.drawn());
            let shown = rig.engine.log_statistics(rig.now).expect("a log");
            assert!(done == 0 || !shown.primary_is_consistent, "after {done} writes");
            rig.settle_until_one_ends();
        }
        rig.settle_log();
        assert_eq!(rig.places(), [101, 102, 103, 104], "after {done} writes");
        assert!(rig.engine.log_is_clean());
    }
}

#[test]
fn a_window_under_way_to_the_journal_is_given_up_when_a_session_is_lost() {
    let mut rig = with_epochs(journaled(false), 16);
    rig.journal_until(&header(1));
    rig.end_one(Target::Journal, IoStatus::Ok);
    rig.journal_until(&payload(2, 8));
    rig.lose_session();
    rig.end_one(Target::Journal, IoStatus::Ok);
    assert!(rig.of(Target::Journal).is_empty(), "{:?}", rig.drawn());
    assert!(rig.record(2).is_none());
    rig.settle_log();
    assert_eq!(rig.places(), std::array::from_fn::<u8, 16, _>(|n| 101 + n as u8));
    assert!(rig.engine.log_is_clean());
}

#[test]
fn nothing_of_a_record_is_in_place_that_the_journal_may_have_lost() {
    for (ended, under_way) in [(1, header(1)), (2, "journal F 0+0".to_owned())] {
        let mut rig = with_epochs(journaled(true), 4);
        for _ in 0..ended {
            rig.end_one(Target::Journal, IoStatus::Ok);
        }
        assert_eq!(rig.drawn().join(", "), under_way);
        rig.lose_journal_session();
        rig.end_one(Target::Journal, IoStatus::Ok);
        rig.journal.fill(0);
        while rig.of(Target::Backend).is_empty() {
            assert_eq!(rig.counters().journal_windows, 0);
            rig.settle_until_one_ends();
        }
        let retired = rig.superblock().map(|superblock| superblock.retired);
        assert!(retired == Some(1) || rig.record(2).is_some(), "after {under_way}");
        rig.settle_log();
        assert_eq!(rig.places(), [101, 102, 103, 104]);
        assert!(rig.engine.log_is_clean());
    }
}

/// A flush of the journal says nothing of it any more.
#[test]
fn a_record_that_the_journal_may_have_lost_is_retired_before_the_next_one() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.end_all(Target::Journal);
    rig.lose_journal_session();
    rig.journal.fill(0);
    for n in 4..8 {
        rig.write_with(n, n * PIECE, 4096, 101 + n as u8, true);
        rig.log();
    }
    rig.end_all(Target::Backend);
    while rig.superblock().is_none() {
        let retire = "journal W 0+4096";
        assert!(rig.drawn().iter().all(|io| io == retire), "{:?}", rig.drawn());
        rig.settle_until_one_ends();
    }
    assert_eq!(rig.drawn(), ["journal F 0+0"]);
    rig.settle_log();
    assert_eq!(rig.places(), [101, 102, 103, 104, 105, 106, 107, 108]);
    assert!(rig.engine.log_is_clean());
}

#[test]
fn a_paused_destager_writes_nothing_to_the_journal() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.end_all(Target::Journal);
    assert!(rig.drawn().is_empty() && rig.record(1).is_none(), "{:?}", rig.drawn());
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.places(), [101, 102, 103, 104]);
}

#[test]
fn a_disk_that_ends_does_not_leave_a_window_half_way() {
    let mut rig = with_epochs(journaled(false), 12);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert!(rig.engine.is_idle());
}

/// It waits until the batch has ended that it was under way with, and nobody asks for anything meanwhile.
#[test]
fn what_a_lost_session_took_is_written_again_though_nobody_asks_for_anything() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.end_all(Target::Journal);
    rig.tick(5_000);
    rig.lose_session();
    while let Some(index) = rig.pending.iter().position(|io| io.target == Target::Backend) {
        rig.complete(index, IoStatus::IoError);
    }
    rig.settle_log();
    assert_eq!(rig.places(), [101, 102, 103, 104]);
    assert!(rig.engine.log_is_clean());
}

/// As many zeroes as the log takes are in it, and some of them are to be written again.
#[test]
fn what_a_lost_session_took_is_written_again_though_the_log_is_full_of_zeroes() {
    let mut config = journaled(false);
    config.write_log.as_mut().expect("a log").segments_max = POOL_SEGMENTS;
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    let op = Op::WriteZeroes { may_unmap: true, fua: true, fast_only: false };
    for n in 0..256 {
        rig.submit(n, n * 4096, 512, op);
        rig.log();
        assert!(rig.has_reply(n), "{n}");
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.log();
    rig.end_all(Target::Journal);
    assert_eq!(rig.counters().journal_windows, 1, "{:?}", rig.drawn());
    rig.lose_session();
    rig.settle_log();
    assert!(rig.engine.log_is_clean());
}

#[test]
fn a_journal_whose_session_was_lost_while_it_was_empty_is_used_again() {
    let mut rig = write_back(journaled(false));
    rig.lose_journal_session();
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for n in 0..4 {
        rig.write_with(n, n * PIECE, 4096, 101 + n as u8, true);
        rig.log();
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.places(), [101, 102, 103, 104]);
    assert_eq!(rig.counters().journal_windows, 1);
}

/// The superblock may say so of a window whose header failed, although that could not be made durable for sure.
#[test]
fn no_window_goes_in_place_from_a_record_that_may_count_as_retired() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.journal_until(&header(1));
    rig.end_one(Target::Journal, IoStatus::IoError);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.tick(1_000);
    rig.journal_until("journal F 0+0");
    rig.end_one(Target::Journal, IoStatus::IoError);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.tick(1_000);
    while rig.of(Target::Backend).is_empty() {
        rig.settle_until_one_ends();
    }
    let retired = rig.superblock().expect("it was written").retired;
    let newest = (1..8).rev().find(|&window| rig.record(window).is_some());
    assert!(newest > Some(retired), "{newest:?} goes in place, those up to {retired} are retired");
}

/// The second record has the number of the first, which was durable, and its slot.
#[test]
fn a_record_that_is_written_again_under_its_number_is_flushed_again() {
    let mut rig = with_epochs(journaled(true), 16);
    rig.journal_until("journal F 0+0");
    rig.end_one(Target::Journal, IoStatus::Ok);
    rig.journal_until("journal F 0+0");
    rig.end_one(Target::Journal, IoStatus::Ok);
    assert!(rig.record(2).is_some(), "{:?}", rig.drawn());
    rig.lose_session();
    while let Some(index) = rig.pending.iter().position(|io| io.target == Target::Backend) {
        rig.complete(index, IoStatus::IoError);
        rig.log();
    }
    rig.tick(10_000);
    rig.log();
    rig.journal_until(&header(2));
    rig.end_one(Target::Journal, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["journal F 0+0"], "before anything of it is in place");
}

#[test]
fn a_journal_whose_flushes_alone_fail_is_revoked() {
    // Also when all has to be written again meanwhile.
    for loses_session in [false, true] {
        let mut rig = with_epochs(journaled(true), 4);
        for round in 0..100 {
            while let Some(io) = rig.of(Target::Journal).first() {
                let fails = io == "journal F 0+0" && (round > 0 || !loses_session);
                rig.end_one(Target::Journal, if fails { IoStatus::IoError } else { IoStatus::Ok });
            }
            if loses_session && round == 0 {
                rig.end_one(Target::Backend, IoStatus::Ok);
                rig.lose_session();
                while rig.end_one(Target::Backend, IoStatus::IoError) {}
            }
            rig.end_all(Target::Backend);
            rig.tick(10_000);
            rig.log();
            if rig.journal_revocations > 0 {
                break;
            }
        }
        assert_eq!(rig.journal_revocations, 1, "{loses_session}");
        rig.answer_revocation(true);
        rig.settle_log();
        assert_eq!(rig.places(), [101, 102, 103, 104]);
        assert!(rig.engine.log_is_clean());
    }
}
