use super::*;

#[test]
fn the_note_bounds_the_time_of_the_last_write() {
    let disk = crate::pool::host::new_uuid().unwrap();
    let seen = (1_000, 7);
    let Some(last_write) = LastWrite::begin(disk, Generation(3), seen, 0).unwrap() else {
        return;
    };
    let (from, to) = (seen, seen);
    let expected = Left { generation: Generation(3), seen, from, to, by: Writer::Session };
    assert_eq!(left(disk), Some(expected));
    assert!(!last_write.note_seen((1_000, 8), Instant::now()), "nothing of ours was written");
    last_write.note_at(Nanos(1));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let to = left(disk).unwrap().to;
    assert!((now..now + 3).contains(&to.0), "{to:?}");
    assert!(last_write.note_seen((1_000, 8), Instant::now()));
    assert_eq!(left(disk).unwrap().from, (1_000, 8));
    assert!(
        !last_write.note_seen((to.0, to.1 + 1), Instant::now()),
        "later than any write of ours"
    );
    assert_eq!(left(disk).unwrap().from, (1_000, 8));
    // Within the same 50 ms nothing is stored.
    last_write.note_at(Nanos(50_000_000));
    assert_eq!(left(disk).unwrap().to, to);
    last_write.remove();
    assert_eq!(left(disk), None);
}

#[test]
fn a_write_that_takes_long_explains_any_time_until_it_has_ended() {
    let disk = crate::pool::host::new_uuid().unwrap();
    let Some(last_write) = LastWrite::begin(disk, Generation(1), (1_000, 0), 0).unwrap() else {
        return;
    };
    last_write.begins();
    let to = left(disk).unwrap().to;
    let late = (to.0 + 60, 0);
    assert!(last_write.note_seen(late, Instant::now()), "it may have waited for a thread");
    last_write.ended();
    assert!(
        !last_write.note_seen((late.0 + 60, 0), Instant::now()),
        "nothing of ours is under way"
    );
    last_write.remove();
}

#[test]
fn a_time_that_was_accepted_explains_none_that_is_found_after_it() {
    let disk = crate::pool::host::new_uuid().unwrap();
    let Some(last_write) = LastWrite::begin(disk, Generation(1), (1_000, 0), 0).unwrap() else {
        return;
    };
    let (before, now) = (Instant::now(), timestamp(now_there(0)));
    // Such as of a copy from a host whose clock is ahead.
    let ahead = (now.0 + 3_600, 0);
    last_write.accept(ahead, Instant::now());
    assert!(last_write.note_seen(now, before), "it was seen before");
    assert!(last_write.note_seen(ahead, Instant::now()));
    assert!(!last_write.note_seen((now.0 + 2, 0), Instant::now()), "that is somebody else's");
    last_write.remove();
}

#[test]
fn a_time_in_the_future_is_no_lower_bound_once_the_disk_has_written() {
    let disk = crate::pool::host::new_uuid().unwrap();
    let before = timestamp(now_there(0));
    let seen = (before.0 + 3_600, 0);
    let Some(last_write) = LastWrite::begin(disk, Generation(1), seen, 0).unwrap() else {
        return;
    };
    assert!(last_write.note_seen(seen, Instant::now()));
    let untouched = Times::Between { from: seen, to: seen };
    assert_eq!(left(disk).unwrap().times(Some(seen)), untouched);
    last_write.note_at(Nanos(1));
    let now = timestamp(now_there(0));
    let Times::Between { from, to } = left(disk).unwrap().times(Some(now)) else { panic!() };
    assert!(from <= before && before.0 - from.0 <= 1, "{from:?} {before:?}");
    assert!(now <= to && to < seen, "{to:?}");
    assert_eq!(left(disk).unwrap().times(Some(seen)), untouched, "the write did not get there");
    assert!(last_write.note_seen(now, Instant::now()), "the write took it back");
    assert_eq!(left(disk).unwrap().seen, now);
    last_write.remove();
}

#[test]
fn a_write_of_ours_is_known_after_a_clock_was_set() {
    let folder = tempfile::tempdir().unwrap();
    let sidecar = folder.path().join("db.raw.forebay");
    let disk = crate::pool::host::new_uuid().unwrap();
    let minute = 60_000_000_000;
    for set_by in [minute, -minute] {
        // As if this host's clock had been set since the session began.
        let begun = LastWrite::begin(disk, Generation(1), (1_000, 0), set_by).unwrap();
        let Some(last_write) = begun.map(|note| note.beside(Some(&sidecar))) else { return };
        last_write.note_write();
        let seen = timestamp(now_there(0));
        assert_eq!(last_write.note_seen(seen, Instant::now()), set_by > 0);
        assert_eq!(last_write.is_beyond(seen), set_by < 0);
        assert!(last_write.clock_was_set() && !last_write.clock_was_set());
        assert!(!last_write.is_beyond(seen));
        assert!(last_write.note_seen(seen, Instant::now()), "it is ours");
        assert!(!last_write.note_seen((seen.0 + 3, 0), Instant::now()), "that one is not");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        last_write.remove();
    }
}

#[test]
fn a_clock_of_this_host_that_was_set_back_explains_no_write_of_others() {
    let disk = crate::pool::host::new_uuid().unwrap();
    let minute = 60_000_000_000;
    for was_noted_before in [true, false] {
        let Some(last_write) = LastWrite::begin(disk, Generation(1), (1_000, 0), 0).unwrap() else {
            return;
        };
        // As if the clock of this host had been right, a minute ahead of where it is now.
        if was_noted_before {
            last_write.ahead_ns.store(minute, Ordering::Relaxed);
        }
        last_write.note_write();
        last_write.ahead_ns.store(0, Ordering::Relaxed);
        assert!(last_write.set_clock(minute));
        let ours = timestamp(now_there(minute));
        assert!(!last_write.note_seen((ours.0 + 30, 0), Instant::now()), "{was_noted_before}");
        assert!(last_write.note_seen(ours, Instant::now()), "{was_noted_before}");
        last_write.remove();
    }
    // Where nothing was noted nothing is explained.
    let last_write = LastWrite::begin(disk, Generation(1), (1_000, 0), 0).unwrap().unwrap();
    assert!(
        last_write.set_clock(minute)
            && !last_write.note_seen(timestamp(now_there(minute)), Instant::now())
    );
    last_write.remove();
}

#[test]
fn the_clock_of_primary_storage_counts() {
    let disk = crate::pool::host::new_uuid().unwrap();
    let hour = 3_600_000_000_000;
    let Some(last_write) = LastWrite::begin(disk, Generation(1), (0, 0), hour).unwrap() else {
        return;
    };
    last_write.note_at(Nanos(5));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    assert!((3600..3603).contains(&(left(disk).unwrap().to.0 - now)));
    last_write.remove();
}
