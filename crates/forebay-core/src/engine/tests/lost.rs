//! What nobody may see any more: parts of writes and bytes in memory alone, when a log is lost or a disk ends.

use super::warm::with_ring;
use super::*;
use crate::config::OnTimeout;
use crate::stats::LogState;

/// A write of which a part is in the log, and the rest waits for room; a read of that part waits for it.
fn half_a_write(rig: &mut Rig) {
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(1, 0, 512 * KIB, 9);
    rig.grant();
    assert!(!rig.has_reply(1), "128 pages do not fit into 64");
    rig.read(2, 0, 4096);
    assert!(!rig.has_reply(2));
}

#[test]
fn half_a_write_that_the_end_refuses_is_seen_by_nobody() {
    let mut rig = write_back(with_log());
    half_a_write(&mut rig);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::ShuttingDown);
    assert_eq!(rig.replied(2).1, IoStatus::ShuttingDown, "the next start does not find that half");
    assert!(rig.engine.is_idle());
}

/// Reads of the log fail, and so does what else is said.
fn fail_reads_of_the_log(rig: &mut Rig, writes: IoStatus) {
    for _ in 0..40 {
        rig.grant();
        while let Some(io) = rig.pending.first() {
            let status = match (io.target, io.op) {
                (Target::Log, IoOp::Read { .. }) => IoStatus::IoError,
                (Target::Log, IoOp::Write { .. }) => writes,
                _ => IoStatus::Ok,
            };
            rig.complete(0, status);
        }
        rig.tick(10_000);
    }
    let state = rig.engine.statistics(rig.now).log.expect("a log").state;
    assert_eq!(state, LogState::Lost);
}

#[test]
fn half_a_write_is_seen_by_nobody_when_the_log_is_lost() {
    let mut rig = write_back(Config { on_timeout: OnTimeout::Wait, ..with_log() });
    half_a_write(&mut rig);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    fail_reads_of_the_log(&mut rig, IoStatus::Ok);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    rig.sent();
    assert!(rig.engine.is_idle());
}

#[test]
fn what_only_memory_has_is_seen_by_nobody_when_the_log_is_lost() {
    let mut rig = write_back(Config { on_timeout: OnTimeout::Wait, ..with_log() });
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.write_with(2, 8192, 4096, 8, true);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    rig.read(3, 8192, 4096);
    rig.write(4, 8192, 4096, 9);
    assert!(!rig.has_reply(3) && !rig.has_reply(4), "a crash of the host takes it back");
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    fail_reads_of_the_log(&mut rig, IoStatus::IoError);
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
    assert_eq!(rig.replied(4).1, IoStatus::IoError);
    assert!(rig.engine.is_idle());
}

#[test]
fn a_read_that_waits_for_memory_is_refused_when_the_log_is_lost() {
    let mut config = with_log();
    config.on_timeout = OnTimeout::Wait;
    (config.backend.size, config.buffer_bytes) = (64 << 20, 36 << 20);
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    let range = ByteRange::at(0, 32 << 20);
    let buffer = rig.engine.write_buffer(range).expect("a free buffer");
    rig.read(2, 0, 8 << 20);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    fail_reads_of_the_log(&mut rig, IoStatus::Ok);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    rig.engine.release(rig.now, buffer, &mut rig.actions);
    rig.run_actions();
    assert!(rig.engine.is_idle());
}

#[test]
fn a_compare_and_write_does_not_wait_for_room_in_a_log_that_is_lost() {
    let mut rig = write_back(Config { on_timeout: OnTimeout::Wait, ..with_log() });
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.write_with(2, 8192, 4096, 8, true);
    rig.complete(0, IoStatus::IoError);
    rig.tells_comparisons = false;
    rig.compare_and_write(3, 65536, &[16; 4096], 1, true);
    let fetch = rig.find("R 65536+4096");
    rig.complete(fetch, IoStatus::Ok);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    fail_reads_of_the_log(&mut rig, IoStatus::IoError);
    rig.compared();
    rig.run_actions();
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
    assert!(rig.engine.is_idle());
}

/// What is destaged and not noted would be destaged again after a restart, over what was written since.
#[test]
fn notes_that_fail_for_good_stop_the_disk_and_do_not_freeze_it() {
    let mut rig = write_back(Config { on_timeout: OnTimeout::Wait, ..with_log() });
    rig.write_with(1, 0, 4096, 7, true);
    rig.settle_until("F 0+0");
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["log P 0+0"], "it is on primary storage, and flushed there");
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.write(2, 8192, 4096, 8);
    assert!(!rig.has_reply(2), "it is held until the log is left");
    for (tag, status) in [(2, IoStatus::Ok), (3, IoStatus::IoError)] {
        let began = rig.now;
        while !rig.has_reply(tag) {
            match rig.pending.is_empty() {
                true => rig.now = rig.now.max(rig.engine.next_deadline()),
                false => rig.complete(0, IoStatus::IoError),
            }
            rig.tick(0);
            assert!(rig.now.since(began) < Nanos::from_millis(30_000), "writers are held for ever");
        }
        assert_eq!(rig.replied(tag).1, status, "the log takes it while notes are tried again");
        if tag == 2 {
            rig.write_with(3, 16384, 4096, 9, true);
        }
    }
    assert_eq!(rig.engine.mode(), Mode::WriteBack, "it has not left the log");
    // Nobody answers whether the log is revoked, and notes fail on.
    while !rig.engine.log_is_lost() {
        match rig.pending.is_empty() {
            true => rig.now = rig.now.max(rig.engine.next_deadline()),
            false => rig.complete(0, IoStatus::IoError),
        }
        rig.tick(0);
        assert!(rig.now < Nanos::from_millis(300_000), "the loss is never told");
    }
    assert!(rig.engine.is_idle());
}

#[test]
fn half_a_write_that_waits_for_room_goes_on_when_the_log_is_left() {
    let Config { mode, write_log, .. } = with_log();
    let mut rig = write_back(Config { mode, write_log, ..with_ring(4) });
    half_a_write(&mut rig);
    rig.tick(31_000);
    assert!(!rig.has_reply(1), "the time of primary storage does not end it");
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    rig.write(3, 0, 4096, 1);
    rig.settle();
    rig.expect_bytes(0, 4096, 1);
}

#[test]
fn a_read_of_the_log_that_fails_is_remembered_until_primary_storage_has_the_data() {
    let mut rig = write_back(Config { ram_bytes: 0, ..with_log() });
    let failed = |rig: &Rig| rig.engine.log_statistics(rig.now).expect("a log").reads_failed;
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    assert!(!failed(&rig));
    rig.read(2, 0, 4096);
    let read = rig.pending.iter().position(|io| io.target == Target::Log).expect("it is read");
    rig.complete(read, IoStatus::IoError);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    assert!(failed(&rig), "nobody else has it");
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert!(!failed(&rig), "it was read in the end");
}

#[test]
fn what_a_limit_holds_is_refused_when_the_log_is_lost() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.write_with(2, 8192, 4096, 8, true);
    rig.complete(0, IoStatus::IoError);
    rig.tune(|tuning| tuning.limits.bandwidth = Some(1)).unwrap();
    for tag in 3..10 {
        rig.read(tag, 65536, 4096);
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    fail_reads_of_the_log(&mut rig, IoStatus::IoError);
    for tag in 4..10 {
        assert_eq!(rig.replied(tag).1, IoStatus::IoError, "not an hour later");
    }
    assert!(rig.engine.is_idle());
}
