//! A log that is full: who waits for room, and for how long.

use super::*;
use crate::write_back::format::index::ZEROES_MAX;

#[test]
fn a_full_log_makes_writers_wait_and_goes_on_as_it_is_destaged() {
    let mut rig = write_back(with_log());
    for tag in 0..40 {
        rig.write(tag, tag * 8192, 8192, tag as u8 + 1);
        rig.grant();
    }
    let waiting = (0..40).filter(|&tag| !rig.has_reply(tag)).count();
    assert!(waiting > 0, "80 pages do not fit into 64");
    rig.settle_log();
    assert!((0..40).all(|tag| rig.has_reply(tag)), "every writer went on");
}

#[test]
fn a_request_longer_than_the_log_goes_through_it() {
    let mut rig = write_back(with_log());
    rig.write(1, 0, 512 * KIB, 9);
    rig.settle_log();
    assert!(rig.has_reply(1));
    rig.expect_bytes(0, 512 * KIB, 9);
}

#[test]
fn a_writer_that_waits_for_room_waits_as_long_as_primary_storage_is_away() {
    let mut rig = write_back(with_log());
    let mut tag = 0;
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting == 0 {
        rig.write(tag, tag % 200 * 4096, 4096, tag as u8);
        rig.commit();
        tag += 1;
    }
    assert!(!rig.has_reply(tag - 1));
    for _ in 0..10 {
        rig.tick(60_000);
        rig.commit();
    }
    assert!(!rig.has_reply(tag - 1), "it is told nothing while nothing is wrong with it");
    rig.settle_log();
    assert_eq!(rig.replied(tag - 1).1, IoStatus::Ok);
}

#[test]
fn a_writer_that_gets_room_as_its_time_ends_has_all_of_it_to_be_written() {
    let mut config = with_log();
    config.write_log.as_mut().expect("a log").staging = false;
    let mut rig = write_back(config);
    let mut tag = 0;
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting == 0 {
        tag += 1;
        rig.write(tag, tag % 200 * 4096, 4096, tag as u8);
        rig.commit();
    }
    let (waits, behind) = (tag, tag + 1);
    rig.write(behind, waits % 200 * 4096, 4096, 99);
    rig.tick(29_999);
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting > 0 {
        rig.complete(0, IoStatus::Ok);
        rig.grant();
    }
    assert!(rig.drawn().iter().any(|io| io.starts_with("log W")), "{:?}", rig.drawn());
    rig.tick(2_000);
    assert!(!rig.has_reply(waits) && !rig.has_reply(behind), "neither is out of time");
    rig.settle_log();
    assert_eq!((rig.replied(waits).1, rig.replied(behind).1), (IoStatus::Ok, IoStatus::Ok));
    rig.expect_bytes(waits % 200 * 4096, 4096, 99);
}

#[test]
fn a_read_behind_a_writer_that_waited_has_all_of_its_time() {
    let mut rig = write_back(with_log());
    let mut tag = 0;
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting == 0 {
        tag += 1;
        rig.write(tag, tag * 4096, 4096, tag as u8);
        rig.commit();
    }
    let (waits, behind) = (tag, tag + 1);
    // What comes after what is written is on primary storage only.
    rig.read(behind, waits * 4096, 8192);
    rig.tick(29_999);
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting > 0 {
        rig.complete(0, IoStatus::Ok);
        rig.grant();
    }
    assert!(rig.has_reply(waits) && !rig.has_reply(behind));
    rig.tick(2_000);
    assert!(!rig.has_reply(behind), "its read of primary storage is 2 s old");
    rig.settle_log();
    assert_eq!(rig.replied(behind).1, IoStatus::Ok);
    assert!(rig.replied(behind).2[..4096].iter().all(|&byte| byte == waits as u8));
}

#[test]
fn a_read_that_waits_for_the_buffers_of_writers_who_wait_for_room_waits_as_they_do() {
    let mut config = with_log();
    (config.backend.size, config.buffer_bytes) = (64 << 20, 36 << 20);
    let mut rig = write_back(config);
    let mut tag = 0;
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting == 0 {
        tag += 1;
        rig.write(tag, tag * 4096, 4096, tag as u8);
        rig.commit();
    }
    let (long, behind) = (tag + 1, tag + 2);
    rig.write(long, 0, 32 << 20, 99);
    rig.read(behind, 40 << 20, 8 << 20);
    assert_eq!(rig.engine.statistics(rig.now).counters.buffer_waits, 1);
    rig.tick(29_999);
    rig.tick(2_000);
    assert!(!rig.has_reply(long) && !rig.has_reply(behind), "primary storage was asked nothing");
    // Through so small a log the long one would go for ever.
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    rig.settle_log();
    assert_eq!((rig.replied(long).1, rig.replied(behind).1), (IoStatus::Ok, IoStatus::Ok));
}

#[test]
fn a_lease_that_is_not_to_be_had_is_asked_for_again_after_a_pause() {
    let mut rig = Rig::new(with_log());
    rig.tick(0);
    assert_eq!(std::mem::take(&mut rig.leases.0), 1);
    rig.engine.leased(rig.now, Err(NoLease::Now), &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.leases.0, 0);
    assert!(rig.engine.next_deadline() > rig.now);
    rig.tick(101);
    assert_eq!(rig.leases.0, 1);
}

#[test]
fn a_pool_without_a_free_segment_leaves_the_log_full_also_while_it_is_asked_again() {
    let mut rig = write_back(with_log());
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.write(1, 0, 512 * KIB, 9);
    // One more is asked for, and never to be had.
    for _ in 0..20 {
        while std::mem::take(&mut rig.leases.0) > 0 {
            rig.engine.leased(rig.now, Err(NoLease::Now), &mut rig.actions);
            rig.run_actions();
        }
        rig.settle();
        rig.tick(101);
    }
    let of = |event| rig.events.iter().filter(|it| **it == event).count();
    assert_eq!((of(Event::LogFull), of(Event::LogHasRoom)), (1, 0), "{:?}", rig.events);
}

#[test]
fn at_the_end_nothing_waits_for_room() {
    let mut config = with_log();
    config.backend.size = 16 << 20;
    let mut rig = write_back(config);
    rig.write(1, 0, 2 << 20, 9);
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.replied(1).1, IoStatus::ShuttingDown);
    rig.settle();
    assert!(rig.engine.is_idle());
}

/// A log of more than one segment, all of it on primary storage, of which request 100 reads what is at `start` from flash.
fn with_a_read_under_way(start: u64) -> Rig {
    let mut rig = write_back(with_log());
    for tag in 1..=5 {
        rig.write_with(tag, tag * 16 * KIB, 16 * KIB, tag as u8, true);
        rig.commit();
    }
    rig.read(100, start, 4096);
    let reads: Vec<_> = rig.pending.extract_if(.., |io| io.target == Target::Log).collect();
    rig.settle_log();
    rig.pending = reads;
    assert!(rig.drawn()[0].starts_with("log R"));
    rig
}

impl Rig {
    /// Reads that begin before the last one ends, over and over; true when each delivered `byte`.
    fn read_without_a_pause(&mut self, start: u64, byte: u8) -> bool {
        for tag in 101..110 {
            self.read(tag, start + tag % 2 * 4096, 4096);
            self.complete(0, IoStatus::Ok);
        }
        (100..109).all(|tag| self.replied(tag).2.iter().all(|&found| found == byte))
    }
}

#[test]
fn reads_without_a_pause_do_not_keep_what_primary_storage_has_in_the_log() {
    let mut rig = with_a_read_under_way(16 * KIB);
    assert!(rig.unleased.is_empty(), "it is read");
    assert!(rig.read_without_a_pause(16 * KIB, 1));
    assert!(!rig.unleased.is_empty(), "its segment is free: {:?}", rig.drawn());
}

#[test]
fn reads_without_a_pause_do_not_keep_a_disk_in_write_back() {
    let mut rig = with_a_read_under_way(80 * KIB);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    assert!(rig.read_without_a_pause(80 * KIB, 5));
    assert_eq!(rig.engine.mode(), Mode::WriteThrough, "{:?}", rig.drawn());
}

#[test]
fn reads_of_what_primary_storage_lacks_come_from_the_log_while_older_ones_wait_to_be_freed() {
    let mut rig = with_a_read_under_way(16 * KIB);
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    rig.run_actions();
    let under_way = rig.pending.remove(0);
    // Half of a page: the other half is older, and on primary storage.
    rig.write(6, 16 * KIB + 4096, 2048, 6);
    rig.commit();
    rig.read(101, 16 * KIB, 8192);
    rig.settle();
    let (_, status, bytes) = rig.replied(101);
    assert_eq!(
        (*status, &bytes[..4096], &bytes[6144..]),
        (IoStatus::Ok, &[1; 4096][..], &[1; 2048][..])
    );
    assert_eq!(bytes[4096..6144], [6; 2048]);
    rig.pending.push(under_way);
    assert!(rig.unleased.is_empty(), "it is read still");
}

/// Fills the list of zero records while nothing is destaged; the next tag.
fn fill_with_zeroes(rig: &mut Rig) -> u64 {
    let mut tag = 1;
    while rig.engine.statistics(rig.now).log.expect("a log").writes_waiting == 0 {
        rig.submit(tag, tag * 4096 % (1 << 20), 512, zeroes());
        rig.commit();
        tag += 1;
    }
    assert!(tag > ZEROES_MAX as u64 && !rig.has_reply(tag - 1));
    tag
}

fn zeroes() -> Op {
    Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false }
}

#[test]
fn writes_pass_zeroes_that_wait_for_their_list() {
    let mut rig = write_back(Config { requests_max: 1024, ..with_log() });
    let next = fill_with_zeroes(&mut rig);
    let (waits, write) = (next - 1, next);
    rig.write(write, 2048, 1024, 5);
    rig.commit();
    assert!(!rig.has_reply(write), "the log may be about to be empty");
    rig.tick(1_000);
    rig.commit();
    assert_eq!(rig.replied(write).1, IoStatus::Ok, "it was not");
    for n in 1..4 {
        rig.write(write + n, n * 8192 + 2048, 1024, 5);
        rig.commit();
        assert_eq!(rig.replied(write + n).1, IoStatus::Ok, "there is room for it");
    }
    rig.tick(60_000);
    assert!(!rig.has_reply(waits), "zeroes wait as long as primary storage is away");
    rig.settle_log();
    assert_eq!(rig.replied(waits).1, IoStatus::Ok);
    rig.expect_bytes(waits * 4096 % (1 << 20), 512, 0);
    rig.expect_bytes(2048, 1024, 5);
}

#[test]
fn zeroes_that_wait_for_their_list_get_room_under_steady_writes() {
    let mut rig = write_back(Config { requests_max: 1024, ..with_log() });
    let next = fill_with_zeroes(&mut rig);
    let waits = next - 1;
    let (start, mut tag) = (rig.now, next);
    while !rig.has_reply(waits) {
        rig.write(tag, 512 * KIB + tag % 8 * 4096, 4096, 5);
        for _ in 0..4 {
            if !rig.pending.is_empty() {
                rig.complete(0, IoStatus::Ok);
            }
        }
        rig.grant();
        rig.tick(1);
        tag += 1;
        assert!(rig.now.since(start) < Nanos::from_millis(3_000), "{:?}", rig.drawn());
    }
    rig.settle_log();
    assert!((next..tag).all(|tag| rig.replied(tag).1 == IoStatus::Ok));
}

#[test]
fn a_discard_waits_for_the_list_of_zeroes_no_longer_than_for_primary_storage() {
    let mut rig = write_back(Config { requests_max: 1024, ..with_log() });
    let next = fill_with_zeroes(&mut rig);
    for (tag, fua) in [(next, false), (next + 1, true)] {
        rig.submit(tag, 256 * KIB + (tag - next) * 64 * KIB, 64 * KIB, Op::Discard { fua });
        rig.commit();
        assert!(!rig.has_reply(tag));
    }
    rig.tick(31_000);
    rig.commit();
    assert_eq!((rig.replied(next).1, rig.replied(next + 1).1), (IoStatus::Ok, IoStatus::Ok));
    assert!(!rig.has_reply(next - 1), "written zeroes are no advice");
    rig.write(next + 2, 256 * KIB, 4096, 7);
    rig.commit();
    assert_eq!(rig.replied(next + 2).1, IoStatus::Ok, "their range is free");
    rig.settle_log();
    rig.expect_bytes(256 * KIB, 4096, 7);
}

/// Request 1 is half done beside the log, in a mode that is about to get one, whose list of zeroes is full.
fn half_done_beside_the_log(op: Op) -> Rig {
    const MIB: u64 = 1 << 20;
    let mut config = Config { mode: Mode::WriteThrough, requests_max: 1024, ..with_log() };
    config.backend.size = 80 * MIB;
    let mut rig = Rig::new(config);
    rig.tick(0);
    rig.settle_log();
    rig.submit(1, 0, 65 * MIB, op);
    rig.engine.set_mode(rig.now, Mode::WriteBack, &mut rig.actions).expect("possible");
    rig.run_actions();
    for tag in 2..2 + ZEROES_MAX as u64 {
        rig.submit(tag, 66 * MIB + tag * 8192, 4096, zeroes());
    }
    rig.complete(0, IoStatus::Ok);
    assert!(!rig.has_reply(1), "it waits for the mode, and then for the list of zeroes");
    rig
}

#[test]
fn a_flush_that_fails_beside_a_log_takes_nothing_that_was_flushed_before() {
    let mut rig = half_done_beside_the_log(zeroes());
    rig.settle_until("F 0+0");
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    while rig.engine.mode() != Mode::WriteBack {
        rig.complete(0, IoStatus::Ok);
    }
    // As the cache index does, for marks of writes from before the log.
    let (parts, mut cx) = rig.engine.at(rig.now, &mut rig.actions);
    parts.primary.flush_unasked(&mut cx);
    rig.run_actions();
    let flush = rig.find("F 0+0");
    rig.complete(flush, IoStatus::IoError);
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    rig.submit(1000, 0, 0, Op::Flush);
    rig.settle_log();
    assert_eq!(rig.replied(1000).1, IoStatus::Ok);
}

#[test]
fn a_discard_that_has_waited_too_long_tells_that_what_was_done_of_it_is_lost() {
    let mut rig = half_done_beside_the_log(Op::Discard { fua: true });
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.settle_until("F 0+0");
    rig.engine.pause_destaging(rig.now, true, &mut rig.actions);
    while rig.engine.mode() != Mode::WriteBack {
        rig.complete(0, IoStatus::Ok);
    }
    for _ in 0..8 {
        rig.grant();
        rig.commit();
        rig.tick(1);
    }
    assert!(!rig.has_reply(1), "{:?}", rig.drawn());
    rig.tick(31_000);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
}
