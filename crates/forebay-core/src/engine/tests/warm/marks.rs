//! Marks of regions that writes may have changed.

use super::*;

#[test]
fn a_write_waits_until_its_region_is_durably_marked() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(1, 4096, 4096, 0xAA);
    assert!(rig.drawn()[0].starts_with("ring W"), "{:?}", rig.drawn());
    assert_eq!(rig.pending.len(), 1);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 4096+4096"]);
    // The next one in the region does not wait.
    rig.write(2, 8192, 4096, 0xBB);
    assert_eq!(rig.drawn(), ["W 4096+4096", "W 8192+4096"]);
    let (_, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.found, restored.kept), (8, 0), "all of them lie in one region");
}

#[test]
fn after_a_restart_each_write_waits_for_a_mark_of_its_own() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    let (mut next, _) = rig.restarted().expect("warm");
    next.write(1, 0, 4096, 0x11);
    let at = next.drawn().iter().position(|io| io.starts_with("ring W")).expect("a mark");
    // The batch is made: it says nothing of this one's region.
    next.write(2, 512 * KIB, 4096, 0x22);
    next.complete(at, IoStatus::Ok);
    next.find("W 0+4096");
    assert!(!next.drawn().iter().any(|io| io == "W 524288+4096"), "{:?}", next.drawn());
    next.settle();
    assert!(next.has_reply(1) && next.has_reply(2));
}

#[test]
fn a_mark_goes_only_after_a_flush_that_began_after_the_write() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(1, 15 * 4096, 4096, 0xAA);
    rig.complete(0, IoStatus::Ok);
    // The write is under way when marks take their turn: what follows does not cover it.
    for _ in 0..4 {
        rig.tick(1_000);
        while let Some(at) = rig.drawn().iter().position(|io| !io.starts_with('W')) {
            rig.complete(at, IoStatus::Ok);
        }
    }
    assert_eq!(rig.restarted().expect("warm").1.kept, 0);
    rig.settle();
    rig.settle_ring();
    // What was written is cached, too.
    assert_eq!(rig.restarted().expect("warm").1.kept, 9);
}

#[test]
fn a_failed_flush_clears_no_mark() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(1, 15 * 4096, 4096, 0xAA);
    rig.settle();
    let mut failures = 0;
    while failures < 3 {
        rig.tick(1_000);
        while !rig.pending.is_empty() {
            let fails = rig.drawn()[0] == "F 0+0";
            failures += u32::from(fails);
            rig.complete(0, if fails { IoStatus::IoError } else { IoStatus::Ok });
        }
        assert_eq!(rig.restarted().expect("warm").1.kept, 0);
    }
    rig.settle_ring();
    let (_, restored) = rig.restarted().expect("warm");
    assert_eq!(restored.kept, 8);
}

#[test]
fn a_read_only_run_clears_no_mark_of_the_one_before() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(900, 0, 4096, 7);
    while !rig.has_reply(900) {
        rig.complete(0, IoStatus::Ok);
    }
    // It is killed before primary storage is flushed.
    let mut config = *rig.engine.config();
    config.backend.read_only = true;
    let (mut shown, _) = rig.restarted_as(config, &[]).expect("warm");
    let marked = |rig: &Rig| rig.engine.statistics(rig.now).ring.expect("a ring").regions_marked;
    assert!(marked(&shown) > 0);
    shown.expect_bytes(0, 4096, 7);
    shown.settle_ring();
    shown.tick(10_000);
    shown.settle_ring();
    assert!(marked(&shown) > 0);
    shown.engine.shut_down(shown.now, &mut shown.actions);
    shown.run_actions();
    shown.settle();
    shown.engine.close_ring(shown.now, true, &mut shown.actions);
    shown.run_actions();
    shown.settle_ring();
    // Power took what was not flushed, after all.
    let config = Config { ..*rig.engine.config() };
    let (next, _) = shown.restarted_as(config, &[]).expect("warm");
    assert!(marked(&next) > 0);
}

#[test]
fn what_a_dead_process_wrote_stays_marked_until_a_flush_after_the_last_of_it_can_land() {
    let marked = |rig: &Rig| rig.engine.statistics(rig.now).ring.expect("a ring").regions_marked;
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(900, 0, 4096, 7);
    rig.settle_until("W 0+4096");
    let restart = || {
        let (mut next, _) = rig.restarted().expect("warm");
        next.engine.set_unsettled(true);
        next.tick(0);
        next
    };
    // A flush that ended before, and one that is under way then.
    for is_under_way in [false, true] {
        let mut next = restart();
        next.find("F 0+0");
        if !is_under_way {
            next.settle_ring();
        }
        assert!(marked(&next) > 0);
        next.engine.set_unsettled(false);
        while let Some(at) = next.drawn().iter().position(|io| io == "F 0+0") {
            next.complete(at, IoStatus::Ok);
            if is_under_way {
                assert!(marked(&next) > 0, "it says nothing of what landed meanwhile");
                break;
            }
        }
        next.tick(1_000);
        next.settle_ring();
        assert_eq!(marked(&next), 0);
    }
    // An end before that leaves the marks to the next start.
    let mut ended = restart();
    ended.engine.shut_down(ended.now, &mut ended.actions);
    ended.run_actions();
    ended.settle_ring();
    ended.engine.close_ring(ended.now, true, &mut ended.actions);
    ended.run_actions();
    ended.settle_ring();
    assert!(marked(&ended.restarted().expect("warm").0) > 0);
}

#[test]
fn a_ring_that_begins_in_a_read_only_run_marks_what_a_former_run_may_not_have_flushed() {
    for is_unanswered in [false, true] {
        let mut config = with_ring(16);
        config.backend.read_only = true;
        config.ring.as_mut().expect("a ring").is_unanswered = is_unanswered;
        let mut shown = Rig::new(config);
        shown.fill(0..8);
        shown.settle_ring();
        let kept = if is_unanswered { 0 } else { 8 };
        let (_, killed) = shown.restarted().expect("a ring");
        assert_eq!((killed.found, killed.kept), (8, kept));
        shown.engine.close_ring(shown.now, true, &mut shown.actions);
        shown.run_actions();
        shown.settle_ring();
        config.backend.read_only = false;
        let (_, ended) = shown.restarted_as(config, &[]).expect("a ring");
        assert_eq!((ended.found, ended.kept, ended.closed), (8, kept, true));
    }
}

#[test]
fn a_ring_that_begins_in_a_read_only_run_goes_by_the_marks_that_it_finds() {
    for is_flushed in [false, true] {
        let mut rig = Rig::new(with_ring(16));
        rig.fill(0..8);
        rig.settle_ring();
        rig.write(900, 0, 4096, 7);
        while !rig.has_reply(900) {
            rig.complete(0, IoStatus::Ok);
        }
        if is_flushed {
            rig.settle();
            rig.settle_ring();
        }
        // It is killed. The next run has another ring, and takes over what this one says.
        let mut config = *rig.engine.config();
        config.backend.read_only = true;
        let ring = config.ring.as_mut().expect("a ring");
        (ring.nonce, ring.is_unanswered) = (NONCE + 1, true);
        let (shown, restored) = rig.restarted_as(config, &[]).expect("warm");
        let marked = shown.engine.statistics(shown.now).ring.expect("a ring").regions_marked;
        assert_eq!((restored.kept > 0, marked == 0), (is_flushed, is_flushed));
    }
}
