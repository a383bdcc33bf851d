//! The end of a disk in order: what is destaged, flushed and noted first.

use super::*;
use crate::config::FlushSemantics;

fn deferred() -> Config {
    let mut config = with_log();
    let dirty_age_max = Nanos::from_millis(10_000);
    config.write_log.as_mut().expect("a log").flush = FlushSemantics::Deferred { dirty_age_max };
    config
}

#[test]
fn a_disk_with_deferred_flushes_destages_before_it_ends() {
    let mut rig = write_back(deferred());
    rig.write(1, 0, 4096, 7);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    assert!(rig.engine.destages_at_end());
    rig.settle_log();
    assert!(!rig.engine.destages_at_end() && rig.engine.is_idle());
    assert!(rig.engine.statistics(rig.now).log.expect("a log").is_clean);
    assert_eq!(rig.backend[0], 7);
}

#[test]
fn a_disk_with_deferred_flushes_keeps_its_log_when_primary_storage_is_away_at_the_end() {
    let mut rig = write_back(deferred());
    rig.write(1, 0, 4096, 7);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.engine.stop_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert!(!rig.engine.destages_at_end() && rig.engine.is_idle());
    let log = rig.engine.statistics(rig.now).log.expect("a log");
    assert!(log.is_durable && !log.is_clean);
    assert_ne!(rig.backend[0], 7);
}

/// Three epochs of one write each: the first is on primary storage, not flushed there, the second under way.
fn one_of_three_destaged() -> Rig {
    let mut rig = write_back(with_log());
    for n in 1..=3 {
        rig.write_with(n, n * 65536, 4096, n as u8, true);
        rig.log();
    }
    rig.complete(rig.find("W 65536+4096"), IoStatus::Ok);
    rig.log();
    assert_eq!(rig.drawn(), ["W 131072+4096"]);
    rig
}

#[test]
fn an_end_in_order_notes_what_is_destaged() {
    let mut rig = one_of_three_destaged();
    assert_eq!(rig.engine.dirty_bytes(), 2 * 4096);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    assert!(!rig.engine.is_idle());
    rig.complete(rig.find("W 131072+4096"), IoStatus::Ok);
    assert_eq!(rig.drawn(), ["F 0+0"], "with what was under way, once; and nothing new is written");
    rig.complete(0, IoStatus::Ok);
    assert!(rig.engine.settles_at_end());
    assert_eq!(rig.drawn(), ["log P 0+0"]);
    assert!(!rig.engine.is_idle());
    rig.complete(0, IoStatus::Ok);
    assert!(rig.engine.is_idle());
    assert_eq!(rig.engine.dirty_bytes(), 4096);
}

#[test]
fn an_end_in_order_does_not_insist_where_primary_storage_or_the_log_fails() {
    for (fails, last) in [("F 0+0", 0), ("log P 0+0", 1)] {
        let mut rig = one_of_three_destaged();
        rig.engine.shut_down(rig.now, &mut rig.actions);
        rig.run_actions();
        rig.complete(rig.find("W 131072+4096"), IoStatus::Ok);
        for _ in 0..last {
            rig.complete(0, IoStatus::Ok);
        }
        rig.complete(rig.find(fails), IoStatus::IoError);
        if fails == "F 0+0" {
            assert_eq!(rig.drawn(), ["log P 0+0"], "what the flush may have lost");
            rig.complete(0, IoStatus::Ok);
        }
        assert!(rig.engine.is_idle(), "{fails}: {:?}", rig.drawn());
    }
    // Nor where it takes too long.
    let mut rig = one_of_three_destaged();
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.engine.stop_destaging(rig.now, false, &mut rig.actions);
    rig.complete(rig.find("W 131072+4096"), IoStatus::Ok);
    assert!(rig.engine.is_idle(), "{:?}", rig.drawn());
}

#[test]
fn a_loss_that_comes_after_destaging_was_stopped_is_noted_before() {
    let mut rig = one_of_three_destaged();
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.engine.stop_destaging(rig.now, true, &mut rig.actions);
    assert!(rig.engine.settles_at_end(), "before the note is begun, too");
    rig.run_actions();
    rig.engine.stop_destaging(rig.now, true, &mut rig.actions);
    assert!(!rig.engine.wants_to_proceed(), "who asks again has nothing new to do");
    assert_eq!(rig.drawn(), ["W 131072+4096", "log P 0+0"]);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.complete(rig.find("W 131072+4096"), IoStatus::IoError);
    assert!(
        !rig.engine.is_idle() && rig.engine.settles_at_end(),
        "also who would not wait for the write"
    );
    // One that fails is not tried again.
    rig.complete(rig.find("log P 0+0"), IoStatus::IoError);
    assert!(rig.engine.is_idle(), "{:?}", rig.drawn());
}
