//! A log whose device fails or hangs.

use super::*;
use crate::config::{FlashAdmission, FlushSemantics, OnTimeout};

#[test]
fn a_write_that_ended_beside_one_that_fails_is_kept_in_memory_and_destaged() {
    for first in [0, 1] {
        let mut rig = write_back(with_log());
        rig.write_with(1, 0, 4096, 7, true);
        rig.write_with(2, 8192, 4096, 8, true);
        // Whichever fails, and whether the other one has ended.
        rig.complete(1, if first == 0 { IoStatus::Ok } else { IoStatus::IoError });
        rig.complete(0, if first == 0 { IoStatus::IoError } else { IoStatus::Ok });
        assert_eq!((rig.replied(1).1, rig.replied(2).1), (IoStatus::IoError, IoStatus::IoError));
        rig.pool.fill(0);
        rig.settle_log();
        assert_eq!(rig.engine.mode(), Mode::WriteThrough);
        assert_eq!((rig.backend[0], rig.backend[8192]), (7, 8));
        assert!(rig.engine.is_idle());
    }
}

#[test]
fn a_second_write_that_hangs_fails_the_log() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.tick(1_000);
    rig.write_with(2, 8192, 4096, 8, true);
    rig.complete(0, IoStatus::Ok);
    rig.tick(4_001);
    assert!(!rig.has_reply(2), "its time began when it did");
    rig.tick(1_000);
    assert_eq!((rig.replied(1).1, rig.replied(2).1), (IoStatus::Ok, IoStatus::IoError));
}

#[test]
fn a_log_that_fails_tells_who_waits_and_is_drained_from_memory() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 7);
    rig.write_with(2, 8192, 4096, 8, true);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    assert!(rig.events.iter().any(|event| matches!(event, Event::LogFailed { .. })));
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(rig.backend[..4096].iter().all(|&b| b == 7), "what was acknowledged is there");
    rig.write(3, 4096, 4096, 9);
    rig.settle();
    assert!(rig.backend[4096..8192].iter().all(|&b| b == 9));
}

#[test]
fn a_log_that_fails_while_destaging_is_paused_is_drained_all_the_same() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::IoError);
    assert!(rig.events.contains(&Event::DestagingResumed));
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(2, 65536, 4096, 8);
    assert!(!rig.has_reply(2));
    rig.settle_log();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    assert_eq!((rig.backend[0], rig.backend[65536]), (7, 8));
}

#[test]
fn a_durable_discard_waits_for_the_end_of_a_log_that_fails_however_long_that_takes() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 8192, 7);
    rig.write_with(2, 65536, 4096, 8, true);
    rig.complete(0, IoStatus::IoError);
    rig.submit(3, 131_072, 4096, Op::Discard { fua: true });
    rig.submit(4, 196_608, 4096, Op::Discard { fua: false });
    for _ in 0..40 {
        rig.tick(1_000);
        while let Some(io) = rig.pending.iter().position(|io| io.target == Target::Log) {
            rig.complete(io, IoStatus::Ok);
        }
    }
    assert!(!rig.pending.is_empty() && !rig.has_reply(3), "{:?} {:?}", rig.drawn(), rig.events);
    assert_eq!(rig.replied(4).1, IoStatus::Ok, "advice");
    rig.settle_log();
    assert_eq!((rig.engine.mode(), rig.replied(3).1), (Mode::WriteThrough, IoStatus::Ok));
    assert_eq!((rig.backend[0], rig.backend[65536], rig.backend[131_072]), (7, 8, 0));
}

#[test]
fn dirty_bytes_that_cannot_be_read_stop_the_disk() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.pool.fill(0);
    for _ in 0..20 {
        rig.tick(20_000);
        while !rig.pending.is_empty() {
            rig.complete(0, IoStatus::Ok);
        }
    }
    assert!(rig.backend[..4096].iter().all(|&b| b == 0), "wrong bytes are never destaged");
    rig.read(2, 0, 4096);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
}

#[test]
fn a_read_of_the_log_that_fails_or_brings_wrong_bytes_is_one_error() {
    for status in [IoStatus::IoError, IoStatus::Ok] {
        let mut rig = write_back(with_log());
        rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
        rig.write_with(1, 0, 4096, 7, true);
        rig.settle();
        rig.pool.fill(0);
        rig.read(2, 0, 4096);
        rig.complete(0, status);
        assert_eq!(rig.replied(2).1, IoStatus::IoError);
        assert_eq!(rig.counters().log_errors, 1, "{status:?}");
    }
}

/// Ends what is under way again and again, but for reads of the log page at `damaged`, which fail.
pub(super) fn destage_without(rig: &mut Rig, damaged: u64) {
    for _ in 0..100 {
        rig.tick(20_000);
        while let Some(io) = rig.pending.first() {
            let has_it = io.range.start <= damaged && damaged < io.range.end;
            let fails = io.target == Target::Log && matches!(io.op, IoOp::Read { .. }) && has_it;
            rig.complete(0, if fails { IoStatus::IoError } else { IoStatus::Ok });
        }
    }
}

#[test]
fn one_page_that_cannot_be_read_beside_others_that_can_stops_the_disk() {
    // The second page of a row, which is not beside the first one in the log.
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    for (tag, offset) in [(1, 4 * 4096), (2, 0), (3, 5 * 4096)] {
        rig.write(tag, offset, 4096, 0x70);
    }
    rig.submit(4, 0, 0, Op::Flush);
    let damaged = rig.pending[0].range.end - 4096;
    rig.settle();
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    destage_without(&mut rig, damaged);
    assert_eq!(rig.backend[0], 0x70, "the row before is destaged");
    assert!(rig.backend[4 * 4096..6 * 4096].iter().all(|&byte| byte != 0x70));
    rig.read(9, 4 * 4096, 4096);
    assert_eq!(rig.replied(9).1, IoStatus::IoError);
    assert!(rig.engine.log_statistics(rig.now).unwrap().is_lost);
}

#[test]
fn a_read_whose_flash_hangs_begins_anew_without_the_log_pages_it_waits_for() {
    let flash_admission = FlashAdmission::Always;
    let mut rig = write_back(Config { flash_bytes: 256 * KIB, flash_admission, ..with_log() });
    rig.read(1, 0, 4096);
    rig.settle();
    rig.write(2, 4096, 4096, 0x77);
    rig.tick(1);
    let write = rig.find("log W 0+12288");
    rig.complete(write, IoStatus::Ok);
    rig.submit(3, 0, 12288, Op::Read { no_admit: true });
    let below = rig.find("R 8192+4096");
    rig.complete(below, IoStatus::Ok);
    rig.tick(5_000);
    let log = rig.find("log R 8192+4096");
    rig.complete(log, IoStatus::IoError);
    assert!(!rig.has_reply(3), "its other pages are still fetched");
    let counters = rig.counters();
    assert_eq!((counters.log_errors, counters.backend_errors), (1, 0), "it was the log's");
    while let Some(at) = rig.drawn().iter().rposition(|io| !io.starts_with("r ")) {
        rig.complete(at, IoStatus::Ok);
    }
    let bytes = &rig.replied(3).2;
    assert_eq!((bytes[0], bytes[4096], bytes[8192]), (0, 0x77, 2));
}

#[test]
fn deferred_flushes_are_due_in_the_future_also_when_the_log_fails() {
    let mut config = with_log();
    let dirty_age_max = Nanos::from_millis(1_000);
    config.write_log.as_mut().expect("a log").flush = FlushSemantics::Deferred { dirty_age_max };
    let mut rig = write_back(config);
    rig.write(1, 0, 4096, 1);
    rig.submit(2, 0, 0, Op::Flush);
    assert!(rig.has_reply(2), "at once");
    rig.tick(1);
    let write = rig.find("log W 0+12288");
    rig.complete(write, IoStatus::Ok);
    rig.tick(600);
    let flush = rig.find("log F 0+0");
    assert!(rig.engine.next_deadline() > rig.now);
    rig.complete(flush, IoStatus::IoError);
    rig.tick(1);
    assert!(rig.engine.next_deadline() > rig.now);
}

#[test]
fn a_log_device_that_is_dead_stops_the_disk_without_a_storm() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 4096, 9);
    let mut ios = 0;
    for _ in 0..100 {
        rig.tick(10_000);
        while !rig.pending.is_empty() {
            let log = rig.pending[0].target == Target::Log;
            ios += u32::from(log);
            rig.complete(0, if log { IoStatus::IoError } else { IoStatus::Ok });
        }
    }
    assert!(ios < 50, "{ios} I/Os on a dead device");
    rig.read(2, 0, 4096);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
}

#[test]
fn a_log_device_that_hangs_fails_the_log() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 9, true);
    rig.tick(5_001);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    assert!(rig.events.iter().any(|event| matches!(event, Event::LogFailed { .. })));
    rig.complete(0, IoStatus::Ok);
    rig.settle_log();
    assert_eq!(rig.backend[0], 9);
}

#[test]
fn a_disk_whose_log_failed_ends_although_nobody_may_see_what_is_in_its_memory() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    let note = rig.find("log P 0+0");
    rig.complete(note, IoStatus::IoError);
    rig.read(2, 0, 4096);
    assert!(!rig.has_reply(2), "the bytes may be gone after the end");
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.replied(2).1, IoStatus::ShuttingDown);
    assert!(rig.engine.is_idle());
}

#[test]
fn a_disk_that_ends_leaves_nothing_in_a_log_that_failed() {
    for fails_at_the_end in [false, true] {
        let mut rig = write_back(with_log());
        rig.write(1, 0, 4096, 7);
        assert!(rig.replied(1).1.is_ok());
        let fails = |rig: &mut Rig| {
            rig.tick(1);
            let write = rig.find("log W 0+12288");
            rig.complete(write, IoStatus::IoError);
        };
        if !fails_at_the_end {
            fails(&mut rig);
        }
        rig.engine.shut_down(rig.now, &mut rig.actions);
        rig.run_actions();
        if fails_at_the_end {
            fails(&mut rig);
        }
        assert!(rig.engine.destages_at_end());
        rig.pool.fill(0);
        rig.settle_log();
        assert_eq!((rig.backend[0], rig.engine.mode()), (7, Mode::WriteThrough));
        assert!(!rig.engine.destages_at_end() && rig.engine.is_idle());
    }
}

#[test]
fn a_deferred_flush_is_not_promised_by_a_log_that_failed() {
    let mut config = with_log();
    let dirty_age_max = Nanos::from_millis(60_000);
    config.write_log.as_mut().expect("a log").flush = FlushSemantics::Deferred { dirty_age_max };
    let mut rig = write_back(config);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(1, 0, 4096, 1);
    rig.tick(1);
    let write = rig.find("log W 0+12288");
    rig.complete(write, IoStatus::IoError);
    rig.submit(2, 0, 0, Op::Flush);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
}

/// Flash that dies under a write, of whose I/O what `hangs` never ends. It is known that the log is of the past.
fn dead_flash(hangs: fn(&Io) -> bool) -> Rig {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.tick(5_001);
    let mut is_answered = false;
    for n in 0..60 {
        let ends = |io: &Io| io.target == Target::Backend || !hangs(io);
        while let Some(at) = rig.pending.iter().position(ends) {
            let works = rig.pending[at].target == Target::Backend;
            rig.complete(at, if works { IoStatus::Ok } else { IoStatus::IoError });
        }
        if rig.revocations == 1 && !std::mem::replace(&mut is_answered, true) {
            rig.engine.revoked(rig.now, true, &mut rig.actions);
            rig.run_actions();
        }
        if n == 10 {
            rig.write(2, 65536, 4096, 8);
        }
        rig.tick(1_000);
    }
    rig
}

#[test]
fn an_io_that_never_ends_keeps_no_disk_from_leaving_its_log() {
    let hanging: [fn(&Io) -> bool; 2] = [|io| matches!(io.op, IoOp::Write { .. }), |_| true];
    for hangs in hanging {
        let mut rig = dead_flash(hangs);
        assert_eq!(rig.replied(1).1, IoStatus::IoError);
        assert!(rig.replied(2).1.is_ok(), "{:?}", rig.events);
        assert_eq!(rig.engine.mode(), Mode::WriteThrough);
        assert_eq!((rig.backend[0], rig.backend[65536]), (7, 8));
        assert_eq!(rig.unleased, [], "what hangs may land in it");
        // It ends after all, and nothing comes of it.
        while !rig.pending.is_empty() {
            rig.complete(0, IoStatus::Ok);
        }
        rig.engine.check_invariants();
        rig.expect_bytes(0, 4096, 7);
    }
}

/// Ends what is under way again and again, as far as it is not on flash, until nothing more happens in so many seconds.
fn wait_without_flash(rig: &mut Rig, seconds: u64) {
    for _ in 0..seconds {
        rig.tick(1_000);
        while let Some(io) = rig.pending.iter().position(|io| io.target == Target::Backend) {
            rig.complete(io, IoStatus::Ok);
        }
        if std::mem::take(&mut rig.revocations) > 0 {
            rig.engine.revoked(rig.now, true, &mut rig.actions);
            rig.run_actions();
        }
    }
}

#[test]
fn a_destage_read_that_never_ends_stops_the_disk_instead_of_holding_its_writers() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.settle_until("log R 8192+4096");
    rig.write_with(2, 65536, 4096, 8, true);
    wait_without_flash(&mut rig, 6);
    assert_eq!(rig.replied(2).1, IoStatus::IoError, "the log failed");
    rig.write(3, 131_072, 4096, 9);
    wait_without_flash(&mut rig, 20);
    assert!(!rig.has_reply(3));
    // Somebody who asks for the same again and again changes nothing.
    rig.read(4, 0, 4096);
    wait_without_flash(&mut rig, 10);
    rig.read(5, 0, 4096);
    wait_without_flash(&mut rig, 15);
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
    assert!(rig.engine.log_statistics(rig.now).unwrap().is_lost);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    rig.engine.check_invariants();
}

#[test]
fn reads_that_flash_never_answers_are_refused_when_the_log_is_lost() {
    let mut rig = write_back(Config { on_timeout: OnTimeout::Wait, ..with_log() });
    rig.write_with(1, 512, 1024, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.write_with(2, 8192, 4096, 8, true);
    rig.settle_until("log R 8192+4096");
    // One has the page that parts are read through, one waits for it, one reads a page, and one is compared.
    rig.read(3, 0, 4096);
    rig.read(4, 0, 4096);
    rig.read(5, 8192, 4096);
    rig.compare_and_write(6, 8192, &[8; 4096], 1, true);
    rig.read(7, 8192, 4096);
    wait_without_flash(&mut rig, 120);
    assert!(rig.engine.log_statistics(rig.now).unwrap().is_lost);
    for tag in 3..8 {
        assert_eq!(rig.replied(tag).1, IoStatus::IoError, "{tag}");
    }
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    rig.engine.check_invariants();
    rig.sent();
    assert!(rig.engine.is_idle());
}

#[test]
fn a_destage_read_that_never_ends_fails_a_log_that_nobody_writes_to() {
    let mut rig = write_back(with_log());
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.settle_until("log R 8192+4096");
    wait_without_flash(&mut rig, 30);
    assert!(rig.engine.log_statistics(rig.now).unwrap().failure.is_none());
    wait_without_flash(&mut rig, 20);
    assert!(rig.engine.log_statistics(rig.now).unwrap().failure.is_some());
    wait_without_flash(&mut rig, 40);
    assert!(rig.engine.log_statistics(rig.now).unwrap().is_lost);
}

#[test]
fn a_guests_read_that_never_ends_keeps_no_disk_from_leaving_a_log_that_failed() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 0, 4096, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.read(2, 0, 4096);
    let read = rig.find("log R 8192+4096");
    let read = rig.pending.remove(read);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.tick(1_000);
    rig.settle();
    assert_eq!(rig.backend[0], 7);
    rig.write_with(3, 65536, 4096, 8, true);
    let write = rig.find("log W 12288+8192");
    rig.complete(write, IoStatus::IoError);
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
    rig.write(4, 131_072, 4096, 9);
    rig.settle_log();
    assert_eq!(rig.replied(4).1, IoStatus::Ok);
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    rig.expect_bytes(0, 4096, 7);
    rig.engine.complete(rig.now, read.id, IoStatus::Ok, &[0], &mut rig.actions);
    rig.run_actions();
    assert_ne!(rig.replied(2).1, IoStatus::Ok, "what it is to be compared with is forgotten");
    rig.engine.check_invariants();
}

#[test]
fn a_guests_read_that_never_ends_fails_the_log_that_it_keeps_and_wakes_who_waits_for_its_page() {
    let mut rig = write_back(Config { on_timeout: OnTimeout::Wait, ..with_log() });
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write_with(1, 512, 1024, 7, true);
    rig.complete(0, IoStatus::Ok);
    rig.write_with(2, 8192 + 512, 1024, 8, true);
    rig.complete(0, IoStatus::Ok);
    // The first has the page that parts are read through, the second waits for it.
    rig.read(3, 0, 4096);
    rig.read(4, 8192, 4096);
    wait_without_flash(&mut rig, 6);
    let hangs = rig.find("log R 8192+4096");
    let hangs = rig.pending.remove(hangs);
    assert!(rig.pending.is_empty() && !rig.has_reply(4), "{:?}", rig.drawn());
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    // Reads of the log that end in time, as of other pages, say nothing of the one that does not.
    let has_failed = |rig: &Rig| rig.engine.log_statistics(rig.now).unwrap().failure.is_some();
    for n in 0..50 {
        assert_eq!(has_failed(&rig), n > 34, "{n}");
        rig.tick(1_000);
        rig.settle();
    }
    assert!(has_failed(&rig));
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(rig.replied(4).1.is_ok());
    rig.expect_bytes(8192 + 512, 1024, 8);
    rig.engine.complete(rig.now, hangs.id, IoStatus::Ok, &[0], &mut rig.actions);
    rig.run_actions();
    rig.expect_bytes(512, 1024, 7);
    rig.engine.check_invariants();
}

#[test]
fn a_pool_that_can_lease_nothing_any_more_stops_no_guest() {
    let mut rig = write_back(with_log());
    for n in 0..200 {
        rig.write(n, (n % 64) * 16384, 16384, 7);
        while !rig.has_reply(n) {
            while std::mem::take(&mut rig.leases.0) > 0 {
                rig.engine.leased(rig.now, Err(NoLease::Ever), &mut rig.actions);
                rig.run_actions();
            }
            assert!(rig.now < Nanos::from_millis(60_000), "write {n} waits: {:?}", rig.events);
            if rig.pending.is_empty() { rig.tick(1_000) } else { rig.complete(0, IoStatus::Ok) }
        }
    }
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(rig.backend.iter().all(|&byte| byte == 7));
}
