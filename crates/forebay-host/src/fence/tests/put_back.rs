//! A pool that was put back to a time before it had the disk, and a detach that died halfway, which looks alike.

use super::*;

fn refused(bed: &Bed) -> String {
    match bed.examine(&mut bed.pool()) {
        Ok((_, examined)) => panic!("it is served: {:?}", examined.verdict),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_pool_from_before_the_disk_is_not_served_past_the_log_of_the_newer_one() {
    for is_killed in [false, true] {
        let mut bed = Bed::new();
        let (pool, old, new) = (bed.path("pool"), bed.path("old"), bed.path("new"));
        drop(bed.pool());
        fs::copy(&pool, &old).unwrap();
        let served = bed.serve();
        let disk = served.log.disk;
        match is_killed {
            true => drop(served),
            false => served.leave(EndOfSession::Dirty),
        }
        fs::copy(&pool, &new).unwrap();
        fs::copy(&old, &pool).unwrap();
        let why = refused(&bed);
        let way_out = format!("--take-over {disk}");
        assert!(why.contains("is an old copy") && why.contains(&way_out), "{why}");
        assert_eq!(refused(&bed), why, "no start changes that");
        fs::copy(&new, &pool).unwrap();
        assert!(!matches!(bed.verdict(), Verdict::New | Verdict::Mismatch(_)), "{is_killed}");
        fs::copy(&old, &pool).unwrap();
        bed.wish.takes_over = Some(disk);
        bed.serve().leave(EndOfSession::Clean);
        bed.wish.takes_over = None;
        assert_eq!(bed.verdict(), Verdict::Strong);
    }
}

/// Another disk of that pool has the image, and no log of its own.
#[test]
fn a_disk_of_an_old_pool_is_not_served_past_the_log_of_one_that_the_pool_does_not_know() {
    let mut bed = Bed::new();
    let (pool, old) = (bed.path("pool"), bed.path("old"));
    bed.serve().leave(EndOfSession::Clean);
    fs::copy(&pool, &old).unwrap();
    bed.serve().leave(EndOfSession::Detached);
    bed.wish.name = "web".into();
    bed.serve().leave(EndOfSession::Dirty);
    bed.wish.name = "db".into();
    fs::copy(&old, &pool).unwrap();
    let why = refused(&bed);
    assert!(why.contains("is an old copy"), "{why}");
}

#[test]
fn a_detach_that_dies_at_any_step_leaves_a_disk_that_is_served_again() {
    for steps in 1..4 {
        let bed = Bed::new();
        dies_in_detach(&bed, [true, steps > 1, steps > 2]);
        bed.serve().leave(EndOfSession::Clean);
        assert_eq!(bed.verdict(), Verdict::Strong, "died after {steps} steps");
    }
}

#[test]
fn a_detach_that_dies_and_could_not_write_the_sidecar_leaves_a_disk_that_can_be_taken_over() {
    let mut bed = Bed::new();
    let disk = dies_in_detach(&bed, [true, false, true]);
    let why = refused(&bed);
    assert!(why.contains(&format!("--take-over {disk}")), "{why}");
    bed.wish.takes_over = Some(disk);
    bed.serve().leave(EndOfSession::Clean);
    bed.wish.takes_over = None;
    assert_eq!(bed.verdict(), Verdict::Strong);
}

/// A disk whose detach did these steps: the pool says that it is clean, the sidecar does, the record is gone.
fn dies_in_detach(bed: &Bed, [is_clean, is_said, is_gone]: [bool; 3]) -> Uuid {
    let Served { mut pool, number, mut fence, log, _staged } = bed.serve();
    if is_clean {
        pool.close(number, EndOfSession::Clean, true, None).unwrap();
    }
    if is_said {
        fence.leave(EndOfSession::Clean, true, false).unwrap();
    }
    if is_gone {
        pool.close(number, EndOfSession::Detached, true, None).unwrap();
    }
    log.disk
}
