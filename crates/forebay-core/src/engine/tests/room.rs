//! A log that is full: who waits for room, and for how long.

use super::*;

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
