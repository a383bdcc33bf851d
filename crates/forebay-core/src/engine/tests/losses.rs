//! What primary storage may have lost: flushes that fail, sessions that end, and what a former run left.

use super::*;
use crate::stats::RequestOp;

#[test]
fn a_failed_flush_fails_all_who_wait_and_drops_what_was_not_flushed() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.submit(3, 0, 0, Op::Flush);
    rig.complete(0, IoStatus::IoError);
    assert_eq!((rig.replied(2).1, rig.replied(3).1), (IoStatus::IoError, IoStatus::IoError));
    // The device kept the old bytes.
    rig.backend[..4096].fill(0);
    rig.expect_bytes(0, 4096, 0);
    rig.submit(4, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(4).1, IoStatus::Ok, "told once");
}

#[test]
fn a_lost_session_fails_the_next_flush_once_and_drops_unflushed_writes() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.backend[..4096].fill(0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.expect_bytes(0, 4096, 0);
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    let shown = rig.engine.statistics(rig.now);
    let failed = shown.last_failed_request.expect("the flush");
    assert_eq!((failed.operation, failed.status), (RequestOp::Flush, IoStatus::IoError));
    rig.submit(3, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(3).1, IoStatus::Ok);
}

#[test]
fn a_request_beyond_the_end_is_the_last_that_failed_whatever_its_range_is() {
    let mut rig = Rig::new(config());
    let size = config().backend.size;
    rig.read(1, size - 4096, 8192);
    assert_eq!(rig.replied(1).1, IoStatus::Invalid);
    let shown = rig.engine.statistics(rig.now);
    let failed = shown.last_failed_request.expect("the read");
    assert_eq!(
        (failed.operation, failed.offset, failed.length),
        (RequestOp::Read, size - 4096, 8192)
    );
}

#[test]
fn a_lost_session_fails_the_flush_in_flight_and_those_behind_it() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.submit(3, 0, 0, Op::Flush);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
    // The new session flushes well, but not what the old one had.
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    rig.submit(4, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(4).1, IoStatus::Ok);
}

/// A former run acknowledged writes that were not flushed, and was killed; its guest lives on.
#[test]
fn a_first_flush_that_fails_fails_the_next_flush_of_the_guest_once() {
    let mut rig = Rig::new(config());
    rig.begin();
    assert!(!rig.engine.has_untold_loss());
    rig.complete(0, IoStatus::IoError);
    assert!(rig.engine.has_untold_loss());
    assert_eq!(rig.events.iter().filter(|&&it| it == Event::FormerWritesAtRisk).count(), 1);
    rig.submit(1, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    assert!(!rig.engine.has_untold_loss());
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
}

/// Nobody may come for long, and an opening is refused as long as primary storage fails.
#[test]
fn a_first_flush_that_fails_is_made_again_until_it_ends_well() {
    let mut rig = Rig::new(config());
    rig.begin();
    for _ in 0..3 {
        rig.complete(0, IoStatus::IoError);
        let failed = rig.now;
        while rig.pending.is_empty() {
            rig.now = rig.now.max(rig.engine.next_deadline());
            rig.tick(0);
        }
        assert_eq!(rig.now, failed.plus(Nanos::from_millis(1_000)));
    }
    rig.complete(0, IoStatus::Ok);
    assert!(rig.engine.has_untold_loss(), "nobody was told");
    assert_eq!(rig.events.iter().filter(|&&it| it == Event::FormerWritesAtRisk).count(), 1);
}

/// What a former run wrote may go with the session that it was written in, and no later flush brings it back.
#[test]
fn a_session_that_is_lost_before_the_first_flush_ended_fails_the_next_flush_once() {
    let mut rig = Rig::new(config());
    rig.begin();
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.events.iter().filter(|&&it| it == Event::FormerWritesAtRisk).count(), 1);
    for (tag, status) in [(1, IoStatus::IoError), (2, IoStatus::Ok)] {
        rig.submit(tag, 0, 0, Op::Flush);
        rig.settle();
        assert_eq!(rig.replied(tag).1, status);
    }
}

#[test]
fn a_disk_that_is_only_read_begins_without_a_flush_and_loses_nothing() {
    let mut read_only = config();
    read_only.backend.read_only = true;
    let mut rig = Rig::new(read_only);
    rig.begin();
    assert!(rig.pending.is_empty());
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert!(!rig.engine.has_untold_loss() && rig.events.is_empty());
}

/// A former run was killed before it could tell its guest, in either kind of mode.
#[test]
fn a_loss_that_a_former_run_could_not_tell_fails_the_next_flush_once() {
    for config in [config(), with_log()] {
        let mut rig = Rig::new(config);
        let settle = |rig: &mut Rig| match config.write_log {
            Some(_) => rig.settle_log(),
            None => rig.settle(),
        };
        rig.engine.remember_untold_loss();
        rig.begin();
        settle(&mut rig);
        assert!(
            rig.engine.has_untold_loss(),
            "the first flush of primary storage ends well, and is nobody's"
        );
        for (tag, status, flushes) in [(1, IoStatus::IoError, 0), (2, IoStatus::Ok, 1)] {
            rig.submit(tag, 0, 0, Op::Flush);
            settle(&mut rig);
            assert_eq!(rig.replied(tag).1, status);
            assert_eq!((rig.engine.has_untold_loss(), rig.engine.flushes()), (false, flushes));
        }
    }
}

/// The guest lives on when its Forebay has ended, and the next run has to tell.
#[test]
fn a_last_flush_that_fails_is_a_loss_that_nobody_was_told_of() {
    for (writes, flushes, is_loss) in
        [(false, false, false), (true, false, true), (true, true, false)]
    {
        let mut rig = Rig::new(config());
        if writes {
            rig.write(1, 0, 4096, 77);
            rig.settle();
        }
        if flushes {
            rig.submit(2, 0, 0, Op::Flush);
            rig.settle();
        }
        rig.engine.on_last_flush_failed();
        assert_eq!(rig.engine.has_untold_loss(), is_loss, "{writes} {flushes}");
    }
}

#[test]
fn a_first_flush_that_fails_is_told_to_who_waits_for_a_flush() {
    let mut rig = Rig::new(config());
    rig.begin();
    rig.submit(1, 0, 0, Op::Flush);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    assert!(!rig.engine.has_untold_loss());
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
}

#[test]
fn a_loss_that_no_flush_has_told_is_known_until_one_does() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert!(rig.engine.has_untold_loss());
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle();
    assert!(!rig.engine.has_untold_loss());
}

/// Until the answer has arrived a kill must not make everybody forget the loss.
#[test]
fn a_loss_that_a_waiting_flush_hears_of_is_counted_once() {
    let mut rig = Rig::new(config());
    rig.begin();
    rig.settle();
    // Nothing was acknowledged: the flush fails, and nothing is lost.
    rig.submit(1, 0, 0, Op::Flush);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.settle();
    assert_eq!(rig.engine.losses_told(), 0);
    rig.write(2, 0, 4096, 77);
    rig.settle();
    rig.submit(3, 0, 0, Op::Flush);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    assert_eq!((rig.engine.has_untold_loss(), rig.engine.losses_told()), (false, 1));
    rig.settle();
    // Nobody waits: it is told, and counted, later.
    rig.write(4, 0, 4096, 78);
    rig.settle();
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    assert_eq!((rig.engine.has_untold_loss(), rig.engine.losses_told()), (true, 1));
    rig.submit(5, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!((rig.engine.has_untold_loss(), rig.engine.losses_told()), (false, 2));
}

#[test]
fn a_session_lost_with_everything_flushed_is_no_error() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle();
    rig.submit(3, 0, 0, Op::Flush);
    rig.settle();
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.submit(4, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(4).1, IoStatus::Ok);
    rig.expect_bytes(0, 4096, 77);
    assert_eq!(rig.counters().read_hits_ram, 1);
}

#[test]
fn a_write_acknowledged_after_the_flush_that_fails_makes_the_next_one_fail_too() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.write(3, 8192, 4096, 78);
    rig.complete(1, IoStatus::Ok);
    assert_eq!(rig.replied(3).1, IoStatus::Ok);
    rig.complete(0, IoStatus::IoError);
    for (tag, status) in [(4, IoStatus::IoError), (5, IoStatus::Ok)] {
        rig.submit(tag, 0, 0, Op::Flush);
        rig.settle();
        assert_eq!(rig.replied(tag).1, status);
    }
}

#[test]
fn a_flush_that_fails_after_the_session_was_lost_tells_of_what_was_written_since() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.replied(2).1, IoStatus::IoError, "told at once");
    rig.write_with(3, 0, 4096, 78, true);
    rig.complete(1, IoStatus::Ok);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(3).1, IoStatus::IoError);
}

#[test]
fn what_a_failed_flush_left_on_primary_storage_may_be_lost_later() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 77);
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.complete(0, IoStatus::IoError);
    rig.expect_bytes(0, 4096, 77);
    rig.backend[..4096].fill(0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.expect_bytes(0, 4096, 0);
    rig.submit(3, 0, 0, Op::Flush);
    rig.settle();
    assert_eq!(rig.replied(3).1, IoStatus::Ok, "told before");
}

#[test]
fn what_an_earlier_engine_wrote_may_be_lost_until_the_first_good_flush() {
    for flushes in [false, true] {
        let mut rig = Rig::new(config());
        rig.expect_bytes(4096, 4096, 1);
        if flushes {
            rig.submit(2, 0, 0, Op::Flush);
            rig.settle();
        }
        rig.backend[4096..8192].fill(0);
        rig.engine.on_session_lost(rig.now, &mut rig.actions);
        rig.run_actions();
        rig.expect_bytes(4096, 4096, u8::from(flushes));
        assert_eq!(rig.counters().flushes, u64::from(flushes));
    }
}

/// What the run before wrote, and did not flush, is read, and cached.
#[test]
fn what_a_dead_process_wrote_late_may_be_lost_until_a_flush_after_it_and_fails_no_flush() {
    let mut rig = Rig::new(config());
    rig.engine.set_unsettled(true);
    rig.begin();
    rig.settle();
    // It lands now, and nobody has acknowledged it.
    rig.backend[..4096].fill(9);
    rig.engine.set_unsettled(false);
    rig.expect_bytes(0, 4096, 9);
    assert!(rig.engine.next_deadline() <= rig.now, "an idle disk is flushed, too");
    rig.tick(0);
    rig.find("F 0+0");
    rig.submit(1, 0, 0, Op::Flush);
    rig.backend[..4096].fill(0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    assert!(!rig.events.contains(&Event::FormerWritesAtRisk), "{:?}", rig.events);
    rig.expect_bytes(0, 4096, 0);
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::Ok, "flushes go on in the next session");
    // From then on nothing is lost.
    rig.settle_ring();
    rig.expect_bytes(4096, 4096, 1);
    rig.backend[4096..8192].fill(2);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.expect_bytes(4096, 4096, 1);
}

#[test]
fn a_flush_of_a_disk_that_is_only_read_makes_nothing_safe() {
    let mut read_only = config();
    read_only.backend.read_only = true;
    let mut rig = Rig::new(read_only);
    rig.begin();
    rig.backend[..4096].fill(7);
    rig.expect_bytes(0, 4096, 7);
    rig.submit(1, 0, 0, Op::Flush);
    rig.settle();
    // The server goes down, and has lost it.
    rig.backend[..4096].fill(0);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.expect_bytes(0, 4096, 0);
}
