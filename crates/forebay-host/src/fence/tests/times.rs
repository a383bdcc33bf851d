//! The time of the last change, as evidence.

use super::*;

#[test]
fn after_a_kill_the_time_lies_within_what_the_disk_wrote() {
    if !has_tmpfs() {
        return;
    }
    let bed = Bed::new();
    let killed = |write: bool| {
        let served = bed.serve();
        if write {
            served.write(&bed, 0);
        }
    };
    killed(false);
    assert_eq!(bed.verdict(), Verdict::Strong);
    killed(true);
    assert_eq!(bed.verdict(), Verdict::Strong);
    // A start that was not committed changes nothing of that.
    assert!(bed.open(3).is_none());
    assert_eq!(bed.verdict(), Verdict::Strong);
    let later = SystemTime::now() + Duration::from_secs(3);
    bed.image().set_modified(later).unwrap();
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::Modified { .. })));
    bed.image().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::RolledBack { .. })));
    // Without any write of ours every later time is somebody else's.
    killed(false);
    bed.image().write_all_at(&[5; 512], 512).unwrap();
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::Modified { .. })));
}

#[test]
fn after_a_loss_of_the_host_evidence_is_weak() {
    let bed = Bed::new();
    let served = bed.serve();
    served.write(&bed, 0);
    served.fence.last_write.as_ref().unwrap().remove();
    drop(served);
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Unseen));
}

#[test]
fn a_time_that_was_set_back_is_caught_by_samples_or_makes_it_weak() {
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Clean);
    let modified = fs::metadata(bed.path("db.raw")).unwrap().modified().unwrap();
    let image = bed.image();
    image.set_modified(modified).unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Touched));
    image.write_all_at(&[7; 512], 7 * MIB + 4096).unwrap();
    image.set_modified(modified).unwrap();
    assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::Content));
}

#[test]
fn a_write_within_the_tick_of_the_last_look_is_caught_by_samples() {
    let bed = Bed::new();
    let served = bed.serve();
    let last = served.fence.last_look().unwrap();
    // As if the clock had not ticked since: same times, other bytes.
    bed.image().write_all_at(&[3; 512], 512).unwrap();
    let look = served.fence.probe.as_ref().unwrap().look().unwrap();
    let last = Evidence { modified: look.modified, changed: look.changed, ..last };
    let mut served = served;
    served.pool.close(served.number, EndOfSession::Clean, true, Some(last)).unwrap();
    drop(served);
    assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::Content));
}

#[test]
fn a_link_that_leads_to_another_image_after_a_loss_of_the_host_is_told() {
    let mut bed = Bed::new();
    let (link, image) = (bed.path("current.raw"), bed.path("db.raw"));
    std::os::unix::fs::symlink(&image, &link).unwrap();
    bed.wish.uri = format!("file:{}", link.display());
    bed.wish.identity = identity(Some(&bed.probe()));
    let served = bed.serve();
    served.fence.last_write.as_ref().unwrap().remove();
    drop(served);
    let leads_to = |bed: &mut Bed, name: &str| {
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(bed.path(name), &link).unwrap();
        bed.wish.identity = identity(Some(&bed.probe()));
    };
    // As long, and newer.
    fs::write(bed.path("other.raw"), vec![2; 8 << 20]).unwrap();
    leads_to(&mut bed, "other.raw");
    assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::Elsewhere));
    // It was moved, and its sidecar with it.
    fs::rename(&image, bed.path("moved.raw")).unwrap();
    fs::write(&image, vec![3; 8 << 20]).unwrap();
    fs::rename(bed.path("db.raw.forebay"), bed.path("moved.raw.forebay")).unwrap();
    leads_to(&mut bed, "moved.raw");
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Unseen));
}

#[test]
fn a_change_that_a_session_saw_speaks_against_what_it_cached_and_not_what_the_next_one_caches() {
    if !has_tmpfs() {
        return;
    }
    let mut bed = Bed::new();
    let seen = Verdict::Mismatch(fence::Change::WhileServed);
    for (is_exclusive, is_killed) in [(false, false), (true, false), (false, true), (true, true)] {
        bed.wish.is_exclusive = is_exclusive;
        let mut served = bed.serve();
        served.pool.set_modified(served.number, true).unwrap();
        // What it writes after that explains how primary storage looks.
        served.write(&bed, 0);
        match is_killed {
            true => drop(served),
            false => served.leave(EndOfSession::Clean),
        }
        {
            let (_, examined) = bed.examine(&mut bed.pool()).unwrap();
            assert_eq!((examined.verdict, examined.keeps_cache()), (seen, false), "{is_killed}");
        }
        // A start that dies before it is committed changes nothing of that.
        assert!(bed.open(2).is_none());
        assert_eq!(bed.verdict(), seen);
        bed.serve().leave(EndOfSession::Clean);
        assert_eq!(bed.verdict(), Verdict::Strong);
    }
    let mut served = bed.serve();
    for is_modified in [true, false] {
        served.pool.set_modified(served.number, is_modified).unwrap();
    }
    served.leave(EndOfSession::Clean);
    assert_eq!(bed.verdict(), Verdict::Strong, "an administrator has dealt with it");
}

#[tokio::test]
async fn a_disk_that_ends_takes_along_that_somebody_else_modified_its_primary_storage() {
    let bed = Bed::new();
    for end in [EndOfSession::Clean, EndOfSession::Detached] {
        let Served { pool, number, fence, log, _staged } = bed.serve();
        drop(log);
        let (_events, sender) = EventLog::start(None).unwrap();
        let (owner, handle) = PoolOwner::start(Arc::new(Mutex::new(pool)), sender).unwrap();
        let place = DiskPlace::new(Some((handle, number)), Some(fence), Guard::Itself);
        place.leave(leaving(end), || true).unwrap();
        drop(place);
        owner.join();
        match end {
            EndOfSession::Detached => assert_eq!(bed.verdict(), Verdict::New),
            _ => assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::WhileServed)),
        }
    }
}

/// The control plane asks, on the one thread that serves everybody.
#[tokio::test]
async fn who_asks_for_the_last_write_does_not_wait_for_a_disk_that_ends() {
    if !has_tmpfs() {
        return;
    }
    let bed = Bed::new();
    let Served { pool, number, fence, log, _staged } = bed.serve();
    drop(log);
    let (_events, sender) = EventLog::start(None).unwrap();
    let (owner, handle) = PoolOwner::start(Arc::new(Mutex::new(pool)), sender).unwrap();
    let place = Arc::new(DiskPlace::new(Some((handle, number)), Some(fence), Guard::Itself));
    assert!(place.last_write().is_some());
    let asking = place.clone();
    let mut is_over = None;
    let ask = || {
        let (sender, answer) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(asking.last_write().is_none()));
        is_over = answer.recv_timeout(std::time::Duration::from_secs(10)).ok();
        false
    };
    place.leave(leaving(EndOfSession::Clean), ask).unwrap();
    assert_eq!(is_over, Some(true));
    drop(place);
    owner.join();
}

#[test]
fn evidence_stays_weak_as_long_as_the_log_that_went_on_is_dirty() {
    if !has_tmpfs() {
        return;
    }
    let bed = Bed::new();
    let is_weak = || {
        let pool = bed.pool();
        pool.record(pool.find("db").unwrap()).flags.has(DiskFlags::WEAK)
    };
    let served = bed.serve();
    served.append(1);
    served.leave(EndOfSession::Dirty);
    let modified = fs::metadata(bed.path("db.raw")).unwrap().modified().unwrap();
    bed.image().set_modified(modified).unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Touched));
    bed.serve().leave(EndOfSession::Dirty);
    assert!(is_weak());
    // Nobody wrote since, which proves nothing of the time before.
    for _ in 0..2 {
        assert_eq!(bed.verdict(), Verdict::Strong);
        bed.serve().leave(EndOfSession::Dirty);
        assert!(is_weak(), "the same writes are still in the log");
    }
    bed.serve().leave(EndOfSession::Clean);
    bed.serve().leave(EndOfSession::Dirty);
    assert!(!is_weak(), "nothing of that log was left");
}
