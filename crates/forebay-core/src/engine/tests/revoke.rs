//! Flash that dies under a write log.

use super::*;
use crate::config::Mode;
use crate::stats::DestageLimit;

/// A disk in write-back with a write that is acknowledged, and one that flash died under.
fn dead() -> Rig {
    let mut rig = Rig::new(with_log());
    rig.tick(0);
    rig.settle_log();
    rig.write(1, 0, 4096, 7);
    assert!(rig.has_reply(1));
    rig.write_with(2, 8192, 4096, 8, true);
    settle(&mut rig);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    rig
}

/// Ends everything under way: what is of flash fails.
fn settle(rig: &mut Rig) {
    while let Some(io) = rig.pending.first() {
        let works = io.target == Target::Backend;
        rig.complete(0, if works { IoStatus::Ok } else { IoStatus::IoError });
    }
}

/// Lets time pass, and everything end that is under way.
fn wait(rig: &mut Rig, times: u32) {
    for _ in 0..times {
        rig.now = rig.now.plus(Nanos::from_millis(11_000));
        rig.tick(0);
        settle(rig);
    }
}

fn answer(rig: &mut Rig, known: bool) {
    rig.engine.revoked(rig.now, known, &mut rig.actions);
    rig.run_actions();
}

fn is_served(rig: &mut Rig) {
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    rig.write(20, 4096, 4096, 9);
    settle(rig);
    assert_eq!(rig.replied(20).1, IoStatus::Ok);
    rig.expect_bytes(0, 4096, 7);
}

#[test]
fn what_memory_has_is_destaged_once_no_later_start_can_go_on_with_the_log() {
    let mut rig = dead();
    assert_eq!(rig.revocations, 1);
    assert!(rig.backend[..4096].iter().all(|&byte| byte == 0), "not before that is known");
    assert_eq!(rig.shown().limited_by, DestageLimit::NoteErrors);
    answer(&mut rig, true);
    assert_ne!(rig.shown().limited_by, DestageLimit::NoteErrors, "nothing is noted any more");
    settle(&mut rig);
    wait(&mut rig, 2);
    assert!(rig.backend[..4096].iter().all(|&byte| byte == 7));
    assert!(rig.events.contains(&Event::LogRevoked));
    is_served(&mut rig);
    assert_eq!(rig.revocations, 1, "asked once");
}

#[test]
fn dirty_bytes_whose_log_may_come_back_to_life_are_not_destaged_without_notes() {
    let mut rig = dead();
    answer(&mut rig, false);
    assert!(rig.events.contains(&Event::LogNotRevoked));
    wait(&mut rig, 20);
    assert!(rig.backend[..4096].iter().all(|&byte| byte == 0));
    rig.read(3, 0, 4096);
    assert_eq!(rig.replied(3).1, IoStatus::IoError, "until an administrator decides");
}

#[test]
fn notes_that_work_again_go_on_although_nothing_else_can_know() {
    let mut rig = dead();
    answer(&mut rig, false);
    rig.tick(11_000);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    rig.tick(11_000);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    assert!(rig.backend[..4096].iter().all(|&byte| byte == 7));
    is_served(&mut rig);
}

#[test]
fn flash_that_hangs_is_as_dead_as_flash_that_fails() {
    let mut rig = Rig::new(with_log());
    rig.tick(0);
    rig.settle_log();
    rig.write_with(1, 0, 4096, 6, true);
    rig.write_with(2, 0, 4096, 7, true);
    rig.settle_until("log P 0+0");
    // The note of the second one hangs.
    assert_eq!(rig.drawn(), ["log P 0+0"]);
    let has_failed = |rig: &Rig| rig.events.iter().any(|e| matches!(e, Event::LogFailed { .. }));
    let latest = rig.now.plus(rig.engine.config().flash_timeout);
    while !has_failed(&rig) {
        rig.now = rig.engine.next_deadline();
        assert!(rig.now <= latest, "the time of flash is over");
        rig.tick(0);
    }
    assert_eq!(rig.revocations, 1);
    answer(&mut rig, true);
    let is_note = |io: &Io| matches!(io.op, IoOp::Progress { .. });
    while let Some(io) = rig.pending.iter().position(|io| !is_note(io)) {
        rig.complete(io, IoStatus::Ok);
    }
    assert!(rig.backend[..4096].iter().all(|&byte| byte == 7));
    // It ends after all, and changes nothing.
    rig.complete(0, IoStatus::Ok);
    is_served(&mut rig);
}

#[test]
fn an_answer_that_nobody_waits_for_is_none() {
    let mut rig = Rig::new(with_log());
    rig.tick(0);
    rig.settle_log();
    answer(&mut rig, true);
    assert!(!rig.events.contains(&Event::LogRevoked));
    rig.write(1, 0, 4096, 7);
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
}

#[test]
fn notes_that_fail_on_take_nothing_from_the_time_that_the_answer_has() {
    let mut rig = dead();
    let until = rig.now.plus(rig.engine.config().backend_timeout);
    let mut notes = 0;
    loop {
        let next = rig.engine.next_deadline().max(rig.now.plus(Nanos::from_millis(1)));
        if next >= until {
            break;
        }
        rig.now = next;
        rig.tick(0);
        notes += rig.pending.len();
        settle(&mut rig);
    }
    assert!(!rig.events.contains(&Event::LogNotRevoked), "not before its time is over");
    assert!(notes >= 8, "{notes}");
    answer(&mut rig, true);
    wait(&mut rig, 2);
    assert!(rig.backend[..4096].iter().all(|&byte| byte == 7));
    is_served(&mut rig);
}

#[test]
fn an_answer_that_comes_late_is_as_good_as_one_in_time() {
    let mut rig = dead();
    assert_eq!(rig.revocations, 1);
    // As long as primary storage may take, and longer.
    wait(&mut rig, 5);
    assert!(rig.events.contains(&Event::LogNotRevoked));
    assert_eq!(rig.backend[0], 0);
    answer(&mut rig, true);
    wait(&mut rig, 2);
    assert!(rig.events.contains(&Event::LogRevoked));
    assert_eq!(rig.backend[0], 7);
    is_served(&mut rig);
}

#[test]
fn a_note_that_hangs_beside_a_log_that_nobody_can_revoke_ends_in_a_loss_that_is_told() {
    let mut rig = Rig::new(with_log());
    rig.tick(0);
    rig.settle_log();
    rig.write(1, 0, 4096, 7);
    rig.write_with(2, 8192, 4096, 8, true);
    let mut is_answered = false;
    for _ in 0..120 {
        let ends = |io: &Io| !matches!(io.op, IoOp::Progress { .. });
        while let Some(at) = rig.pending.iter().position(ends) {
            let works = rig.pending[at].target == Target::Backend;
            rig.complete(at, if works { IoStatus::Ok } else { IoStatus::IoError });
        }
        if rig.revocations == 1 && !std::mem::replace(&mut is_answered, true) {
            answer(&mut rig, false);
            rig.write(3, 65536, 4096, 9);
        }
        rig.tick(1_000);
    }
    assert!(rig.engine.log_is_lost(), "{:?}", rig.events);
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
}
