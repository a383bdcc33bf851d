//! A pool that was put back to an earlier time, and a detach that died halfway, which looks like one from before the disk.

use super::*;

fn refused(bed: &Bed) -> String {
    match bed.examine(&mut bed.pool()) {
        Ok((_, examined)) => panic!("it is served: {:?}", examined.verdict),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_copy_of_flash_from_within_a_session_is_told_by_the_sidecar_of_its_end() {
    for end in [EndOfSession::Clean, EndOfSession::Dirty] {
        let bed = Bed::new();
        let (pool, old) = (bed.path("pool"), bed.path("old"));
        let served = bed.serve();
        fs::copy(&pool, &old).unwrap();
        served.leave(end);
        assert_eq!(bed.verdict(), Verdict::Strong);
        fs::copy(&old, &pool).unwrap();
        let change = fence::Change::FlashRolledBack { sidecar: Generation(2), pool: Generation(2) };
        match (end, bed.examine(&mut bed.pool())) {
            (EndOfSession::Clean, Ok((_, examined))) => {
                assert_eq!(examined.verdict, Verdict::Mismatch(change));
            }
            // The newer one has what primary storage lacks.
            (EndOfSession::Dirty, Err(error)) => {
                assert!(error.to_string().contains("is an old copy"), "{error}");
            }
            (end, examined) => panic!("{end:?}: {:?}", examined.map(|(_, it)| it.verdict)),
        }
    }
}

#[test]
fn a_copy_of_flash_from_before_its_session_was_committed_is_told_by_the_sidecar_of_its_end() {
    for (sessions, steps) in [(0, 1), (0, 3), (1, 1), (1, 3)] {
        for end in [EndOfSession::Clean, EndOfSession::Dirty] {
            let bed = Bed::new();
            for _ in 0..sessions {
                bed.serve().leave(EndOfSession::Clean);
            }
            let (pool, old) = (bed.path("pool"), bed.path("old"));
            let copied = bed.open_and(steps, |bed| {
                fs::copy(bed.path("pool"), bed.path("old")).unwrap();
            });
            copied.leave(end);
            fs::copy(&old, &pool).unwrap();
            match (end, bed.examine(&mut bed.pool())) {
                (EndOfSession::Dirty, Err(error)) => {
                    assert!(error.to_string().contains("is an old copy"), "{error}");
                }
                (EndOfSession::Clean, Ok((_, examined))) if sessions == 0 => {
                    assert_eq!(examined.verdict, Verdict::New);
                }
                (EndOfSession::Clean, Ok((_, examined))) => assert!(
                    matches!(
                        examined.verdict,
                        Verdict::Mismatch(fence::Change::FlashRolledBack { .. })
                    ),
                    "{:?}",
                    examined.verdict
                ),
                (end, examined) => {
                    panic!("{sessions} {steps} {end:?}: {:?}", examined.map(|(_, it)| it.verdict))
                }
            }
        }
    }
}

#[test]
fn an_old_copy_of_flash_with_an_empty_log_is_not_served_past_the_dirty_log_of_the_newer_one() {
    let mut bed = Bed::new();
    let (pool, old) = (bed.path("pool"), bed.path("old"));
    bed.serve().leave(EndOfSession::Clean);
    fs::copy(&pool, &old).unwrap();
    let served = bed.serve();
    let disk = served.log.disk;
    served.leave(EndOfSession::Dirty);
    fs::copy(&old, &pool).unwrap();
    let refused = |bed: &Bed| match bed.examine(&mut bed.pool()) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let why = refused(&bed);
    assert!(
        why.contains("is an old copy") && why.contains(&format!("--take-over {disk}")),
        "{why}"
    );
    assert_eq!(refused(&bed), why, "no start changes that");
    bed.wish.takes_over = Some(disk);
    bed.serve().leave(EndOfSession::Clean);
    bed.wish.takes_over = None;
    assert_eq!(bed.verdict(), Verdict::Strong);
}

#[test]
fn newer_flash_that_comes_back_after_an_old_copy_was_served_is_of_the_past() {
    for (is_apart, sessions) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        let mut bed = Bed::new();
        bed.is_apart = is_apart;
        let (pool, old, new) = (bed.path("pool"), bed.path("old"), bed.path("new"));
        // Copied while the disk is served.
        let served = bed.serve();
        let disk = served.log.disk;
        fs::copy(&pool, &old).unwrap();
        served.leave(EndOfSession::Clean);
        for _ in 0..sessions {
            bed.serve().leave(EndOfSession::Dirty);
        }
        fs::copy(&pool, &new).unwrap();
        fs::copy(&old, &pool).unwrap();
        let error = bed.examine(&mut bed.pool()).err().expect("it is refused").to_string();
        assert!(error.contains("is an old copy"), "{error}");
        bed.wish.takes_over = Some(disk);
        bed.serve().leave(EndOfSession::Clean);
        bed.wish.takes_over = None;
        fs::copy(&new, &pool).unwrap();
        let verdict = bed.verdict();
        let Verdict::Mismatch(fence::Change::FlashRolledBack { pool, .. }) = verdict else {
            panic!("{is_apart}: {verdict:?}");
        };
        assert_eq!(pool, Generation(2 + 2 * sessions));
    }
}

#[test]
fn an_old_copy_of_a_pool_whose_disk_was_detached_is_refused_until_that_is_decided() {
    for has_state in [true, false] {
        let mut bed = Bed::new();
        bed.has_state = has_state;
        let (pool, old) = (bed.path("pool"), bed.path("old"));
        bed.serve().leave(EndOfSession::Clean);
        // Copied while the disk is served.
        let served = bed.serve();
        fs::copy(&pool, &old).unwrap();
        served.leave(EndOfSession::Detached);
        fs::copy(&old, &pool).unwrap();
        let expect = match has_state {
            true => Verdict::Mismatch(fence::Change::Detached),
            false => Verdict::Weak(fence::Doubt::Unseen),
        };
        assert_eq!(bed.verdict(), expect);
        if has_state {
            // Its log is empty, so that nothing keeps the disk from being served again.
            bed.serve().leave(EndOfSession::Clean);
            assert_eq!(bed.verdict(), Verdict::Strong);
        }
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

#[test]
fn an_older_image_with_its_sidecar_is_served_where_this_host_saw_its_disk_leave() {
    for has_state in [true, false] {
        let mut bed = Bed::new();
        bed.has_state = has_state;
        let served = bed.serve();
        let files = ["db.raw", "db.raw.forebay"].map(|name| bed.path(name));
        let old = ["old", "old-sidecar"].map(|name| bed.path(name));
        for (file, old) in files.iter().zip(&old) {
            fs::copy(file, old).unwrap();
        }
        served.leave(EndOfSession::Detached);
        bed.serve().leave(EndOfSession::Clean);
        for (file, old) in files.iter().zip(&old) {
            fs::copy(old, file).unwrap();
        }
        match has_state {
            true => assert!(matches!(bed.verdict(), Verdict::Mismatch(_)), "{:?}", bed.verdict()),
            false => assert!(refused(&bed).contains("an old image"), "{}", refused(&bed)),
        }
    }
}

#[test]
fn no_decision_about_a_disk_of_an_old_pool_takes_the_image_from_the_newer_one() {
    for has_state in [true, false] {
        let mut bed = Bed::new();
        bed.has_state = has_state;
        let (pool, old) = (bed.path("pool"), bed.path("old"));
        bed.serve().leave(EndOfSession::Clean);
        fs::copy(&pool, &old).unwrap();
        bed.serve().leave(EndOfSession::Detached);
        bed.wish.name = "web".into();
        bed.serve().leave(EndOfSession::Dirty);
        bed.wish.name = "db".into();
        fs::copy(&old, &pool).unwrap();
        let before = fs::read(bed.path("db.raw.forebay")).unwrap();
        let decided = resolve::open_pool(&pool).unwrap();
        let state = Some(bed.path("state")).filter(|_| has_state);
        let discards = resolve::Decision::DiscardLog("0".into());
        let _ = resolve::decide(decided, "db", state.as_deref(), &discards);
        assert_eq!(fs::read(bed.path("db.raw.forebay")).unwrap(), before, "{has_state}");
        assert!(refused(&bed).contains("is an old copy"), "{has_state}");
    }
}
