//! When what was destaged is flushed and noted, and what a lost session means for it.

use super::*;

/// Without end there is something to destage, and little of the log becomes free: a process that is killed after
/// some seconds has noted what it did.
#[test]
fn what_is_done_is_flushed_and_noted_after_a_second() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.write_with(2, 65536, 4096, 2, true);
    rig.log();
    rig.complete(0, IoStatus::Ok);
    rig.log();
    rig.tick(999);
    assert_eq!(rig.drawn(), ["W 65536+4096"]);
    rig.tick(1);
    assert_eq!(rig.drawn(), ["W 65536+4096", "F 0+0"]);
    // One that takes half a second is not asked for each second.
    rig.tick(500);
    rig.complete(1, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 65536+4096", "log P 0+0"]);
    rig.log();
    rig.write_with(3, 131072, 4096, 3, true);
    rig.log();
    rig.complete(0, IoStatus::Ok);
    rig.log();
    rig.tick(7_999);
    assert_eq!(rig.drawn(), ["W 131072+4096"]);
    assert_eq!(rig.engine.next_deadline(), rig.now.plus(Nanos::from_millis(1)));
    rig.tick(1);
    assert_eq!(rig.drawn(), ["W 131072+4096", "F 0+0"]);
    rig.settle_log();
    assert!(rig.engine.log_is_clean());
}

#[test]
fn what_was_sent_and_not_noted_is_written_again_after_a_lost_session() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    rig.complete(0, IoStatus::IoError);
    rig.backend[..4096].fill(0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.tick(1_000);
    // Several epochs may be in it by now: this is noted first.
    assert_eq!(rig.drawn(), ["log P 0+0"]);
    rig.settle_log();
    assert!(rig.backend[..4096].iter().all(|&b| b == 1));
}

#[test]
fn a_loss_is_noted_before_primary_storage_answers_again() {
    let mut config = with_log();
    let log = WriteLogConfig::new(SEGMENT_PAGES, 16);
    config.write_log = Some(WriteLogConfig { destage_yield: Nanos(0), ..log });
    let mut rig = write_back(config);
    for n in 1..=3 {
        rig.write_with(n, n * 65536, 4096, 1, true);
        rig.log();
        assert_eq!(rig.drawn(), [format!("W {}+4096", n * 65536)]);
        rig.complete(0, IoStatus::Ok);
    }
    rig.write_with(4, 0, 4096, 1, true);
    rig.log();
    assert_eq!(rig.drawn(), ["W 0+4096"], "it overwrites nothing");
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.drawn(), ["W 0+4096", "log P 0+0"], "while the write waits for a session");
}

#[test]
fn one_who_waits_for_each_write_has_many_flushed_and_noted_together() {
    let mut config = with_log();
    let log = WriteLogConfig::new(SEGMENT_PAGES, 16);
    config.write_log = Some(WriteLogConfig { destage_yield: Nanos(0), ..log });
    let mut rig = write_back(config);
    for n in 0..4 {
        rig.write_with(n, n * 65536, 4096, 1, true);
        rig.log();
        assert_eq!(rig.drawn(), [format!("W {}+4096", n * 65536)]);
        rig.complete(0, IoStatus::Ok);
        assert!(rig.drawn().is_empty(), "{:?}", rig.drawn());
        rig.tick(4);
    }
    let rests = rig.engine.next_deadline();
    assert_eq!(rests, rig.now.plus(Nanos::from_millis(4)), "20 ms after the first");
    rig.tick(4);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["log P 0+0"]);
    rig.log();
    assert!(rig.engine.log_is_clean());
}

#[test]
fn who_waits_for_the_end_of_the_log_has_it_flushed_at_once() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["F 0+0"]);
}

#[test]
fn records_are_kept_until_a_flush_of_the_same_session_succeeded() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.complete(0, IoStatus::Ok);
    rig.tick(20);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    // The server restarts and forgets what it answered.
    rig.backend[..4096].fill(0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.complete(0, IoStatus::IoError);
    rig.expect_bytes(0, 4096, 1);
    rig.settle_log();
    assert!(rig.backend[..4096].iter().all(|&b| b == 1), "written again");
}

#[test]
fn a_flush_that_ends_after_its_session_frees_nothing() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.complete(0, IoStatus::Ok);
    rig.tick(20);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.backend[..4096].fill(0);
    let flush = rig.find("F 0+0");
    rig.complete(flush, IoStatus::Ok);
    rig.settle_log();
    assert!(rig.backend[..4096].iter().all(|&b| b == 1), "written again");
}

#[test]
fn a_flush_of_an_earlier_session_that_fails_late_has_everything_written_again() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.log();
    rig.complete(0, IoStatus::Ok);
    rig.tick(20);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.log();
    // Written again, while the flush, sent again, is under way; then it fails and takes that along.
    let write = rig.find("W 0+4096");
    rig.complete(write, IoStatus::Ok);
    let flush = rig.find("F 0+0");
    rig.backend[..4096].fill(0);
    rig.complete(flush, IoStatus::IoError);
    rig.settle_log();
    assert!(rig.backend[..4096].iter().all(|&b| b == 1), "written again");
}

/// To forget what is in a segment takes long, and other disks of the shard wait.
#[test]
fn a_flush_that_frees_much_of_the_log_frees_it_in_parts() {
    const MIB: u64 = 1 << 20;
    let mut config = Config { write_log: Some(WriteLogConfig::new(1024, 64)), ..with_log() };
    config.backend.size = 16 * MIB;
    let mut rig = write_back(config);
    rig.pool.resize(POOL_SEGMENTS as usize * 1024 * 4096, 0);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for n in 0..48 {
        rig.write_with(n, n % 16 * MIB, MIB, n as u8, true);
        rig.settle_log();
        assert!(rig.replied(n).1.is_ok());
    }
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    let mut most = 0;
    while !rig.engine.log_is_clean() || rig.engine.next_deadline() != Nanos::NEVER {
        let before = rig.unleased.len();
        // A flush takes as long as all that is destaged meanwhile.
        let next = rig.drawn().iter().position(|io| io != "F 0+0");
        match next.or(Some(0).filter(|_| !rig.pending.is_empty())) {
            None => {
                rig.now = rig.now.max(rig.engine.next_deadline());
                rig.tick(0);
            }
            Some(at) => rig.complete(at, IoStatus::Ok),
        }
        most = most.max(rig.unleased.len() - before);
    }
    assert!((1..=4).contains(&most) && rig.unleased.len() > 8, "{most}, {:?}", rig.unleased);
}
