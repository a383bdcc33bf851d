//! A ring that is void together with the log, because its pool could not note it.

use super::warm::with_ring;
use super::*;
use crate::action::Voided;

/// A disk in write-back, with a ring that has failed and is to be void, and bytes in its log alone.
fn ring_failed_beside_a_log() -> Rig {
    let Config { flash_bytes, flash_admission, ring, .. } = with_ring(16);
    let mut rig = write_back(Config { flash_bytes, flash_admission, ring, ..with_log() });
    rig.fill(0..8);
    rig.settle_log();
    rig.write(101, 4096, 4096, 0xAA);
    assert_eq!(rig.replied(101).1, IoStatus::Ok);
    for _ in 0..10_000 {
        match rig.drawn().iter().position(|io| io.starts_with("ring")) {
            Some(ring) => {
                rig.complete(ring, IoStatus::IoError);
                break;
            }
            None if rig.pending.is_empty() => rig.tick(1),
            None => rig.complete(0, IoStatus::Ok),
        }
    }
    assert_eq!(rig.voids, 1);
    rig
}

#[test]
fn no_log_is_entered_while_flash_may_take_it_with_the_ring() {
    let Config { flash_bytes, flash_admission, ring, .. } = with_ring(16);
    let log = Config { mode: Mode::WriteThrough, ..with_log() };
    let mut rig = Rig::new(Config { flash_bytes, flash_admission, ring, ..log });
    rig.tick(0);
    rig.settle_log();
    rig.fill(0..8);
    while rig.voids == 0 {
        match rig.drawn().iter().position(|io| io.starts_with("ring")) {
            Some(ring) => rig.complete(ring, IoStatus::IoError),
            None if rig.pending.is_empty() => rig.tick(1),
            None => rig.complete(0, IoStatus::Ok),
        }
    }
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    rig.engine.voided(rig.now, Voided::InPool, &mut rig.actions);
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
}

#[test]
fn a_log_that_no_start_will_believe_is_drained_and_acknowledges_nothing_more() {
    // In time, or when nobody has waited for it any more.
    for is_late in [false, true] {
        let mut rig = ring_failed_beside_a_log();
        if is_late {
            rig.tick(rig.engine.config().flash_timeout.0 / 1_000_000);
            assert!(rig.events.contains(&Event::RingNotVoided));
        }
        rig.engine.voided(rig.now, Voided::WithLog, &mut rig.actions);
        rig.run_actions();
        rig.write_with(102, 8192, 4096, 0xBB, true);
        assert!(!rig.has_reply(102), "the log has it alone");
        rig.settle_log();
        assert_eq!(rig.engine.mode(), Mode::WriteThrough);
        assert!(rig.backend[4096..8192].iter().all(|&byte| byte == 0xAA));
        assert_eq!(rig.replied(102).1, IoStatus::Ok);
        assert!(rig.backend[8192..12288].iter().all(|&byte| byte == 0xBB));
        // A start that finds the log finds nothing in it that is missing on primary storage.
        assert!(rig.engine.log_statistics(rig.now).unwrap().is_clean);
        assert_eq!(rig.revocations, 0, "notes work");
    }
}

#[test]
fn a_flush_is_not_promised_by_a_log_that_no_start_will_believe() {
    // The log fails with the ring, or has failed before it.
    for has_failed in [false, true] {
        let mut rig = ring_failed_beside_a_log();
        rig.submit(102, 0, 0, Op::Flush);
        while let Some(log) = rig.pending.iter().position(|io| io.target != Target::Backend) {
            rig.complete(log, IoStatus::Ok);
        }
        assert_eq!(rig.replied(102).1, IoStatus::Ok);
        if has_failed {
            let (parts, mut cx) = rig.engine.at(rig.now, &mut rig.actions);
            parts.fail_log(IoStatus::IoError, &mut cx);
            rig.run_actions();
            rig.submit(103, 0, 0, Op::Flush);
            assert_eq!(
                rig.replied(103).1,
                IoStatus::Ok,
                "it is all durable, and a start goes on with it"
            );
        }
        assert!(!rig.engine.log_is_revoked());
        rig.engine.voided(rig.now, Voided::WithLog, &mut rig.actions);
        rig.run_actions();
        assert!(rig.engine.log_is_revoked());
        assert!(!rig.engine.log_statistics(rig.now).unwrap().is_clean);
        rig.submit(104, 0, 0, Op::Flush);
        assert_eq!(rig.replied(104).1, IoStatus::IoError);
        rig.settle_log();
        assert!(rig.backend[4096..8192].iter().all(|&byte| byte == 0xAA));
        rig.submit(105, 0, 0, Op::Flush);
        rig.settle_log();
        assert_eq!(rig.replied(105).1, IoStatus::Ok, "primary storage has it");
    }
}

#[test]
fn a_log_goes_on_beside_a_ring_that_is_void_in_the_pool() {
    let mut rig = ring_failed_beside_a_log();
    rig.engine.voided(rig.now, Voided::InPool, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
}

/// A disk in write-back whose throttle holds a plain write and a durable one that the log has: requests 50 and 51.
fn with_throttled_writes() -> Rig {
    let mut rig = throttled(with_log());
    rig.write(50, 0, 4096, 8);
    rig.write_with(51, 4096, 4096, 9, true);
    rig.commit();
    assert!(!rig.has_reply(50) && !rig.has_reply(51));
    rig
}

/// Lets time pass until both are answered.
fn wait_for_both(rig: &mut Rig) -> (IoStatus, IoStatus) {
    let after = rig.now.plus(Nanos::from_millis(60_000));
    while !(rig.has_reply(50) && rig.has_reply(51)) && rig.now < after {
        rig.tick(10);
    }
    (rig.replied(50).1, rig.replied(51).1)
}

/// Nobody sees the bytes of both before primary storage has them.
fn expect_them_hidden_until_drained(rig: &mut Rig) {
    rig.read(52, 4096, 4096);
    assert!(!rig.has_reply(52), "a crash would take them back");
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(rig.replied(52).2.iter().all(|&byte| byte == 9));
    rig.expect_bytes(0, 4096, 8);
}

#[test]
fn what_the_throttle_holds_is_not_promised_by_a_log_that_no_start_will_believe() {
    let mut rig = with_throttled_writes();
    rig.engine.voided(rig.now, Voided::WithLog, &mut rig.actions);
    rig.run_actions();
    assert_eq!(wait_for_both(&mut rig), (IoStatus::IoError, IoStatus::IoError));
    expect_them_hidden_until_drained(&mut rig);
}

#[test]
fn what_timed_out_in_the_throttle_is_seen_by_nobody_before_primary_storage_has_it() {
    let mut rig = with_throttled_writes();
    rig.engine.voided(rig.now, Voided::WithLog, &mut rig.actions);
    rig.run_actions();
    rig.tick(60_000);
    assert_eq!(wait_for_both(&mut rig), (IoStatus::TimedOut, IoStatus::TimedOut));
    rig.tick(60_000);
    expect_them_hidden_until_drained(&mut rig);
}

#[test]
fn nothing_is_promised_while_it_is_asked_whether_the_log_is_revoked() {
    for is_late in [false, true] {
        let mut rig = with_throttled_writes();
        let (parts, mut cx) = rig.engine.at(rig.now, &mut rig.actions);
        parts.fail_log(IoStatus::IoError, &mut cx);
        parts.write_back.as_mut().expect("a log").ask_to_revoke(&mut cx);
        rig.run_actions();
        assert_eq!(rig.revocations, 1);
        if is_late {
            rig.engine.revoked(rig.now, false, &mut rig.actions);
            rig.run_actions();
        }
        rig.submit(53, 0, 0, Op::Flush);
        assert_eq!(rig.replied(53).1, IoStatus::IoError, "its sidecar may say by now that it is");
        assert_eq!(wait_for_both(&mut rig), (IoStatus::IoError, IoStatus::IoError));
        rig.engine.revoked(rig.now, true, &mut rig.actions);
        rig.run_actions();
        expect_them_hidden_until_drained(&mut rig);
    }
}

#[test]
fn what_the_throttle_holds_when_the_log_is_lost_has_failed() {
    let mut rig = with_throttled_writes();
    let (parts, mut cx) = rig.engine.at(rig.now, &mut rig.actions);
    parts.fail_log(IoStatus::IoError, &mut cx);
    parts.lose_log(&mut cx);
    rig.run_actions();
    rig.tick(0);
    assert_eq!((rig.replied(50).1, rig.replied(51).1), (IoStatus::IoError, IoStatus::IoError));
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    assert!(rig.engine.is_idle());
}

#[test]
fn a_ring_that_could_not_be_voided_is_voided_as_soon_as_that_can_be_noted() {
    for is_late in [false, true] {
        let mut rig = ring_failed_beside_a_log();
        let timeout = rig.engine.config().flash_timeout.0 / 1_000_000;
        if is_late {
            rig.tick(timeout);
            rig.tick(60_000);
            assert_eq!(rig.voids, 1, "the answer is yet to come");
        }
        for voids in 1..=3 {
            assert_eq!(rig.voids, voids);
            rig.engine.voided(rig.now, Voided::Nowhere, &mut rig.actions);
            rig.run_actions();
            rig.tick(10_000);
        }
        let told = rig.events.iter().filter(|event| **event == Event::RingNotVoided);
        assert_eq!((rig.voids, told.count()), (4, 1));
        rig.engine.voided(rig.now, Voided::InPool, &mut rig.actions);
        rig.run_actions();
        rig.tick(60_000);
        assert_eq!(rig.voids, 4);
        rig.engine.check_invariants();
    }
}
