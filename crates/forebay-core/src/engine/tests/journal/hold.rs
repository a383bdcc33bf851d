//! Destaging that is held for a snapshot, or for a disk that grows.

use super::*;
use crate::stats::DestageLimit;

#[test]
fn what_is_held_finishes_and_leaves_an_empty_journal() {
    let mut rig = with_epochs(journaled(false), 16);
    assert_eq!(rig.drawn(), [payload(1, 8)]);
    let until = rig.now.plus(Nanos::from_millis(30_000));
    rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.shown().limited_by, DestageLimit::Held);
    while !rig.pending.is_empty() {
        assert!(!rig.engine.stands_still(rig.now), "{:?}", rig.drawn());
        rig.settle_until_one_ends();
    }
    assert!(rig.engine.stands_still(rig.now) && !rig.engine.log_is_clean());
    let there: [u8; 16] = rig.places();
    assert!(there[7] == 108 && there[8] != 109, "one window had begun");
    assert_eq!(rig.superblock().map(|superblock| superblock.retired), Some(1));
    rig.write_with(99, 0, 4096, 7, true);
    rig.log();
    rig.tick(29_999);
    assert!(rig.engine.stands_still(rig.now) && rig.backend[0] == 101, "{:?}", rig.drawn());
    rig.settle_log();
    assert!(rig.engine.log_is_clean() && !rig.engine.stands_still(rig.now));
    assert_eq!((rig.backend[0], rig.places::<16>()[15]), (7, 116));
}

#[test]
fn a_hold_ends_when_it_is_taken_back_and_when_the_disk_ends() {
    for ends in [false, true] {
        let mut rig = with_epochs(journaled(false), 16);
        let until = rig.now.plus(Nanos::from_millis(30_000));
        rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
        rig.run_actions();
        if ends {
            rig.engine.shut_down(rig.now, &mut rig.actions);
        } else {
            assert!(rig.engine.end_hold(rig.now, &mut rig.actions));
        }
        rig.run_actions();
        rig.settle_log();
        assert!(rig.now < until, "{ends}");
        assert_eq!(rig.engine.log_is_clean(), !ends);
    }
}

#[test]
fn what_a_lost_session_took_is_written_again_while_destaging_is_held() {
    let mut rig = with_epochs(journaled(false), 4);
    rig.end_all(Target::Journal);
    let until = rig.now.plus(Nanos::from_millis(30_000));
    rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
    rig.lose_session();
    while !rig.engine.stands_still(rig.now) {
        rig.settle_until_one_ends();
    }
    assert_eq!(rig.places(), [101, 102, 103, 104]);
}

#[test]
fn a_disk_grows_when_its_journal_is_empty() {
    let mut rig = with_epochs(journaled(false), 16);
    rig.end_all(Target::Journal);
    let size = rig.engine.config().backend.size + 65536;
    let mut asked = 0;
    while rig.engine.grow(rig.now, size, &mut rig.actions) == Ok(Growth::Busy) {
        rig.run_actions();
        rig.settle_until_one_ends();
        asked += 1;
    }
    assert!(asked > 2 && rig.superblock().is_some_and(|superblock| superblock.retired >= 2));
    rig.backend.resize(size as usize, 0);
    rig.settle_log();
    assert!(rig.engine.log_is_clean(), "destaging goes on");
}

#[test]
fn a_log_that_fails_ends_the_hold_and_primary_storage_stands_still_no_more() {
    let mut rig = with_epochs(journaled(false), 16);
    let until = rig.now.plus(Nanos::from_millis(600_000));
    rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
    rig.run_actions();
    while !rig.engine.stands_still(rig.now) {
        rig.settle_until_one_ends();
    }
    rig.write_with(99, 0, 4096, 7, true);
    let write = rig.pending.iter().position(|io| io.target == Target::Log).expect("of the log");
    rig.complete(write, IoStatus::IoError);
    assert!(!rig.engine.stands_still(rig.now) && !rig.engine.is_held(rig.now));
    rig.settle_log();
    assert_eq!(rig.backend[0], 7, "it is carried to primary storage from memory at once");
}

#[test]
fn a_mode_without_the_log_ends_the_hold() {
    let mut rig = with_epochs(journaled(false), 0);
    let until = rig.now.plus(Nanos::from_millis(600_000));
    rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
    assert!(rig.engine.stands_still(rig.now));
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("it is possible");
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(!rig.engine.stands_still(rig.now) && !rig.engine.is_held(rig.now));
}

#[test]
fn a_later_hold_does_not_stand_for_one_that_ended_before() {
    let mut rig = with_epochs(journaled(false), 16);
    let hold = |rig: &mut Rig, ms| {
        let until = rig.now.plus(Nanos::from_millis(ms));
        rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
        while !rig.engine.stands_still(rig.now) {
            rig.settle_until_one_ends();
        }
        rig.engine.stillness(rig.now).expect("it stands still")
    };
    let first = hold(&mut rig, 30_000);
    rig.tick(29_000);
    assert_eq!(rig.engine.stillness(rig.now), Some(first), "nothing has changed");
    rig.tick(1_001);
    // Destaging went on for a moment, as after the time of a snapshot was over. A disk that grows holds it, too.
    let second = hold(&mut rig, 30_000);
    assert_ne!(second, first);
    // A mode without the log lets guests write past it.
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        rig.engine.set_mode(rig.now, mode, &mut rig.actions).expect("it is possible");
        rig.run_actions();
        rig.settle_log();
    }
    assert!(![Some(first), Some(second)].contains(&Some(hold(&mut rig, 30_000))));
}
