//! Changes of mode under writes: when the log takes over, and when it lets go.

use super::*;
use crate::stats::LogState;

#[test]
fn the_mode_changes_both_ways_with_writes_under_way() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 1);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.write(2, 4096, 4096, 2);
    assert_eq!(rig.engine.mode(), Mode::WriteBack, "not before everything is destaged");
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(rig.has_reply(2));
    assert_eq!((rig.backend[0], rig.backend[4096]), (1, 2));
    rig.write(3, 8192, 4096, 3);
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.write(4, 12288, 4096, 4);
    assert!(!rig.has_reply(4), "it waits for the mode");
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    assert!(rig.has_reply(3) && rig.has_reply(4));
    rig.expect_bytes(8192, 4096, 3);
    rig.expect_bytes(12288, 4096, 4);
}

#[test]
fn writes_held_for_a_mode_that_is_not_wanted_any_more_go_on() {
    let mut config = with_log();
    config.mode = Mode::WriteThrough;
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.grant();
    rig.write(1, 0, 4096, 9);
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.write(2, 65536, 4096, 9);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle();
    assert!(rig.has_reply(1) && rig.has_reply(2));
}

#[test]
fn a_loss_that_was_not_told_is_told_by_the_first_flush_after_the_change_of_mode() {
    let mut config = with_log();
    config.mode = Mode::WriteThrough;
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.grant();
    rig.write(1, 0, 4096, 9);
    rig.settle();
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    rig.submit(2, 0, 0, Op::Flush);
    rig.submit(3, 0, 0, Op::Flush);
    assert_eq!((rig.replied(2).1, rig.replied(3).1), (IoStatus::IoError, IoStatus::Ok));
}

#[test]
fn writes_are_not_held_for_a_mode_that_primary_storage_keeps_from_by_failing_its_flushes() {
    let mut config = with_log();
    config.mode = Mode::WriteThrough;
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.grant();
    rig.write(1, 0, 4096, 9);
    rig.settle();
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    for round in 0..5 {
        rig.write(10 + round, 4096, 4096, round as u8);
        assert!(!rig.has_reply(10 + round), "held while the flush is under way");
        let flush = rig.find("F 0+0");
        rig.complete(flush, IoStatus::IoError);
        rig.write(20 + round, 8192, 4096, round as u8);
        rig.settle();
        assert_eq!(rig.replied(10 + round).1, IoStatus::Ok);
        assert_eq!(rig.replied(20 + round).1, IoStatus::Ok, "in the pause, too");
        let statistics = rig.engine.statistics(rig.now);
        let modes = (statistics.mode, statistics.mode_actual);
        assert_eq!(modes, (Mode::WriteBack, Mode::WriteThrough));
        let state = statistics.log.expect("a log").state;
        assert_eq!(state, LogState::WaitsForFlush);
        rig.tick(60_000);
    }
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    assert_eq!(rig.engine.statistics(rig.now).log.expect("a log").state, LogState::Active);
}
