//! Changes of mode under writes: when the log takes over, and when it lets go.

use super::*;
use crate::action::Voided;
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
    config.backend.logical_block = 4096;
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
fn writes_held_for_a_log_that_fails_before_its_mode_begins_go_on_without_it() {
    let mut config = with_log();
    config.mode = Mode::WriteThrough;
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.grant();
    rig.write(1, 0, 4096, 9);
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.write(2, 65536, 4096, 9);
    assert!(!rig.has_reply(2), "it waits for the mode");
    rig.engine.voided(rig.now, Voided::WithLog, &mut rig.actions);
    rig.run_actions();
    rig.settle();
    assert!(rig.has_reply(1) && rig.has_reply(2));
    assert_eq!((rig.engine.mode(), rig.backend[65536]), (Mode::WriteThrough, 9));
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
    // A discard of less than a page asks for nothing, and is no flush.
    rig.submit(4, 512, 512, Op::Discard { fua: true });
    rig.log();
    assert!(rig.has_reply(4) && rig.replied(4).1.is_ok());
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

/// Milliseconds that writes waited one after the other, 14 of them; what `hangs` says never ends.
fn waits_behind(rig: &mut Rig, hangs: &str) -> Vec<u64> {
    let mut waits = Vec::new();
    for tag in 10..24 {
        rig.write(tag, 65536, 4096, 8);
        let began = rig.now;
        while !rig.has_reply(tag) {
            while let Some(at) = rig.drawn().iter().position(|io| io != hangs) {
                rig.complete(at, IoStatus::Ok);
            }
            rig.tick(100);
            assert!(rig.now.since(began) < rig.engine.config().backend_timeout, "{waits:?}");
        }
        assert!(rig.replied(tag).1.is_ok());
        waits.push(rig.now.since(began).0 / 1_000_000);
        rig.tick(1_000);
    }
    waits
}

#[test]
fn writes_are_held_for_a_moment_at_a_time_for_a_mode_that_a_hanging_write_or_flush_keeps_from() {
    for hangs in ["W 0+4096", "F 0+0"] {
        let mut rig = Rig::new(Config { mode: Mode::WriteThrough, ..with_log() });
        rig.tick(0);
        rig.grant();
        rig.write(1, 0, 4096, 9);
        if hangs == "F 0+0" {
            rig.settle();
        }
        rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
        rig.run_actions();
        let waits = waits_behind(&mut rig, hangs);
        let held = waits.iter().filter(|&&wait| wait >= 500).count();
        assert!((1..=2).contains(&held), "{hangs}: {waits:?}");
        assert_eq!(rig.engine.mode(), Mode::WriteThrough);
        rig.complete(rig.find(hangs), IoStatus::Ok);
        pass(&mut rig, 22_000, false);
        assert_eq!(rig.engine.mode(), Mode::WriteBack);
    }
}

fn zeroes() -> Op {
    Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false }
}

/// A disk in write-through that may get a log, on primary storage of 8 MiB that is zeroed by writing.
fn zeroed_by_writing() -> Config {
    let mut config = Config { mode: Mode::WriteThrough, ..with_log() };
    config.backend.size = 8 << 20;
    config.backend.write_zeroes = false;
    config
}

#[test]
fn zeroes_that_were_begun_and_wait_for_the_index_go_on_in_the_log() {
    use crate::cache_index::RingGeometry;
    use crate::config::RingConfig;
    use crate::ids::{Generation, Uuid};
    let config = zeroed_by_writing();
    let size = config.backend.size;
    let pages = RingGeometry::new(16, 1, 4 * KIB, size).pages();
    let mut ring = RingConfig::new(Uuid(*b"a disk with ring"), Generation(1), 7, pages, size);
    ring.mark_delay = Nanos::from_millis(1_000);
    let mut rig = Rig::new(Config { flash_bytes: 64 * KIB, ring: Some(ring), ..config });
    rig.tick(0);
    rig.grant();
    rig.settle();
    rig.submit(1, 0, 2 << 20, zeroes());
    rig.settle_until("W 0+1048576");
    rig.read(5, 4 << 20, 4096);
    // A page of the index is under way: the second piece waits for its mark.
    while !rig.drawn().iter().any(|io| io.starts_with("ring")) {
        match rig.drawn().iter().position(|io| io != "W 0+1048576") {
            Some(at) => rig.complete(at, IoStatus::Ok),
            None => rig.tick(300),
        }
    }
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    while let Some(at) = rig.drawn().iter().position(|io| !io.starts_with("ring")) {
        rig.complete(at, IoStatus::Ok);
        rig.grant();
    }
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    assert!(!rig.drawn().iter().any(|io| io.starts_with("W 1048576")), "{:?}", rig.drawn());
    rig.settle_log();
    assert!(rig.replied(1).1.is_ok());
    rig.submit(10, 0, 0, Op::Flush);
    rig.log();
    assert!(rig.replied(10).1.is_ok());
    assert_eq!(rig.engine.statistics(rig.now).unflushed_bytes, 0, "a flush covers both pieces");
    rig.expect_bytes(0, 2 << 20, 0);
}

/// A disk with little in its log that is to be in write-through, and a new write.
fn drain(fails: bool) -> Rig {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    if !fails {
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        rig.run_actions();
    }
    rig.write(2, 65536, 4096, 8);
    rig
}

/// Lets that many milliseconds pass, in which primary storage works or fails.
fn pass(rig: &mut Rig, milliseconds: u64, fails: bool) {
    let until = rig.now.plus(Nanos::from_millis(milliseconds));
    while rig.now < until {
        rig.grant();
        while !rig.pending.is_empty() {
            let fails = fails && rig.pending[0].target == Target::Backend;
            rig.complete(0, if fails { IoStatus::IoError } else { IoStatus::Ok });
        }
        rig.tick(100);
    }
}

#[test]
fn a_held_destager_stays_held_from_one_mode_with_a_log_to_another() {
    for (to, stays) in [(Mode::WriteOnly, true), (Mode::WriteThrough, false)] {
        let mut rig = write_back(with_log());
        rig.engine.hold_destaging(rig.now, Nanos::from_millis(600_000), &mut rig.actions);
        rig.run_actions();
        rig.engine.set_mode(rig.now, to, &mut rig.actions).expect("possible");
        rig.run_actions();
        rig.settle_log();
        assert_eq!(rig.engine.mode(), to);
        assert_eq!(rig.engine.end_hold(rig.now, &mut rig.actions), stays, "{to:?}");
    }
}

#[test]
fn a_drain_that_primary_storage_keeps_from_its_end_holds_no_writes() {
    let mut rig = drain(true);
    pass(&mut rig, 1_000, true);
    assert!(rig.replied(2).1.is_ok());
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    pass(&mut rig, 60_000, false);
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert_eq!((rig.backend[0], rig.backend[65536]), (7, 8));
}

#[test]
fn a_drain_that_is_paused_or_held_holds_no_writes() {
    for is_held in [false, true] {
        let mut rig = drain(false);
        if is_held {
            let until = rig.now.plus(Nanos::from_millis(600_000));
            rig.engine.hold_destaging(rig.now, until, &mut rig.actions);
            rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
            rig.run_actions();
        }
        assert!(rig.replied(2).1.is_ok());
        for tag in 10..20 {
            rig.write(tag, tag * 4096, 4096, 8);
            rig.log();
            assert!(
                rig.replied(tag).1.is_ok(),
                "nobody slows writers for a drain that stands still"
            );
        }
        match is_held {
            true => assert!(rig.engine.end_hold(rig.now, &mut rig.actions)),
            false => rig.engine.pause_destaging(rig.now, false, &mut rig.actions),
        }
        rig.run_actions();
        pass(&mut rig, 1_000, false);
        assert_eq!(rig.engine.mode(), Mode::WriteThrough);
        assert_eq!((rig.backend[0], rig.backend[65536]), (7, 8));
    }
}

#[test]
fn a_drain_whose_last_writes_hang_holds_new_ones_for_a_second_at_a_time() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.log();
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    assert_eq!(rig.drawn(), ["W 0+4096"]);
    let mut waits = Vec::new();
    for tag in 10..24 {
        rig.write(tag, 65536, 4096, 8);
        let began = rig.now;
        rig.log();
        while !rig.has_reply(tag) {
            rig.tick(100);
            rig.log();
            assert!(rig.now.since(began) < Nanos::from_millis(5_000), "held for ever: {waits:?}");
        }
        waits.push(rig.now.since(began).0 / 1_000_000);
        rig.tick(1_000);
    }
    let held = waits.iter().filter(|&&wait| wait >= 500).count();
    assert!((1..=2).contains(&held), "a second in eleven: {waits:?}");
    rig.complete(rig.find("W 0+4096"), IoStatus::Ok);
    pass(&mut rig, 12_000, false);
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert_eq!(rig.backend[65536], 8);
}

#[test]
fn a_drain_ends_although_each_flush_takes_longer_than_writers_are_held_at_first() {
    let mut config = with_log();
    // Full before that it would hold writers as well.
    config.write_log.as_mut().expect("a log").segments_max = 200;
    let mut rig = write_back(config);
    rig.write_with(1, 0, 4096, 7, true);
    rig.log();
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    let (began, mut flushing) = (rig.now, None);
    for tag in 10.. {
        if rig.engine.mode() == Mode::WriteThrough {
            break;
        }
        assert!(
            rig.now.since(began) < Nanos::from_millis(60_000),
            "it never ends: {:?}",
            rig.drawn()
        );
        if tag % 2 == 0 {
            rig.write(tag, 65536, 4096, 8);
        }
        rig.grant();
        rig.log();
        while let Some(at) = rig.pending.iter().position(|io| io.op != IoOp::Flush) {
            rig.complete(at, IoStatus::Ok);
        }
        rig.tick(100);
        // One at a time, each of a second and a half.
        let since = *flushing.get_or_insert(rig.now);
        match rig.pending.is_empty() {
            true => flushing = None,
            false if rig.now.since(since) >= Nanos::from_millis(1_500) => {
                rig.complete(0, IoStatus::Ok);
                flushing = None;
            }
            false => {}
        }
    }
}

#[test]
fn zeroes_that_take_long_count_in_a_drain() {
    let mut config = with_log();
    config.backend.size = 64 << 20;
    config.backend.write_zeroes = false;
    let mut rig = write_back(config);
    rig.submit(1, 0, 64 << 20, zeroes());
    rig.log();
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.write(2, 0, 4096, 8);
    rig.log();
    rig.tick(500);
    assert!(rig.has_reply(2), "64 MiB are yet to be written: {:?}", rig.drawn());
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert_eq!((rig.backend[0], rig.backend[4096]), (8, 0));
}

#[test]
fn a_drain_that_is_called_off_leaves_the_log_to_answer_reads() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 1, true);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle_log();
    assert_eq!((rig.engine.mode(), rig.backend[0]), (Mode::WriteBack, 1));
    rig.read(2, 0, 4096);
    assert!(rig.drawn()[0].starts_with("log R"), "{:?}", rig.drawn());
    rig.settle();
}

#[test]
fn a_discard_that_meets_a_log_is_not_written_as_zeroes() {
    for fua in [false, true] {
        let mut rig = Rig::new(zeroed_by_writing());
        rig.tick(0);
        rig.grant();
        rig.write(1, 0, 4096, 9);
        rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
        rig.run_actions();
        rig.submit(2, 0, 8 << 20, Op::Discard { fua });
        assert!(!rig.has_reply(2), "it waits for the mode");
        rig.settle_log();
        assert_eq!((rig.engine.mode(), rig.replied(2).1), (Mode::WriteBack, IoStatus::Ok));
        assert_eq!(rig.counters().backend_write_bytes, 4096, "nothing but the write");
        rig.expect_bytes(0, 4096, 9);
        rig.write(3, 0, 4096, 7);
        rig.log();
        assert!(rig.has_reply(3), "its range is free");
    }
}

/// A log would take zeroes of any alignment at once. Without one the ends of these are read and written.
#[test]
fn zeroes_that_must_be_fast_change_nothing_when_the_log_that_would_take_them_goes() {
    let mut config = with_log();
    config.backend.logical_block = 4096;
    config.backend.write_zeroes = true;
    let mut rig = write_back(config);
    rig.write(1, 0, 4096, 9);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.submit(2, 4608, 16384, Op::WriteZeroes { may_unmap: false, fast_only: true, fua: false });
    assert!(!rig.has_reply(2), "it waits for the mode");
    rig.settle_log();
    assert_eq!((rig.engine.mode(), rig.replied(2).1), (Mode::WriteThrough, IoStatus::Unsupported));
    rig.expect_bytes(4608, 3584, 1);
    rig.expect_bytes(16384, 4096, 4);
}

#[test]
fn a_read_that_got_its_memory_in_another_mode_works_on_no_more_than_it_holds() {
    let mut config = with_log();
    config.mode = Mode::WriteThrough;
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.grant();
    rig.write(1, 0, 4096, 9);
    rig.settle();
    let sectors = ByteRange::at(4608, 512);
    let buffer = rig.engine.write_buffer(sectors).expect("a free buffer");
    let mut taken = Vec::new();
    for len in [65536, 4096] {
        while let Some(buffer) = rig.engine.write_buffer(ByteRange::at(0, len)) {
            taken.push(buffer);
        }
    }
    rig.read(2, sectors.start, 512);
    assert!(rig.pending.is_empty(), "it waits for memory");
    for mode in [Mode::PassThrough, Mode::WriteBack] {
        rig.engine.set_mode(rig.now, mode, &mut rig.actions).expect("possible");
        rig.run_actions();
    }
    assert_eq!(rig.engine.mode(), Mode::PassThrough, "primary storage is flushed first");
    rig.slice(buffer.at(sectors)).fill(7);
    rig.submit(3, sectors.start, 512, Op::Write { buffer, fua: false });
    for buffer in taken {
        rig.engine.release(rig.now, buffer, &mut rig.actions);
    }
    rig.tick(0);
    assert!(!rig.has_reply(2) && !rig.has_reply(3), "both wait for the mode");
    while !rig.has_reply(2) {
        assert_ne!((rig.pending.len(), rig.leases.0), (0, 0));
        rig.grant();
        if !rig.pending.is_empty() {
            rig.complete(0, IoStatus::Ok);
        }
    }
    assert_eq!(rig.replied(2).2, [7; 512]);
}
