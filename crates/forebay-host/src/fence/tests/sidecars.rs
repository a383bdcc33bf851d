//! Sidecars that cannot be read or replaced, or are another disk's.

use super::*;
use crate::pool::Dirty;

#[test]
fn a_sidecar_that_cannot_be_read_refuses_who_knows_nothing_of_primary_storage() {
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Dirty);
    let path = bed.path("db.raw.forebay");
    let mut spoilt = fs::read(&path).unwrap();
    spoilt.push(b'\n');
    fs::write(&path, &spoilt).unwrap();
    fs::rename(bed.path("pool"), bed.path("away")).unwrap();
    let error = bed.examine(&mut bed.pool()).err().expect("it may be another's").to_string();
    assert!(error.contains("cannot be read") && error.contains("db.raw.forebay"), "{error}");
    assert!(check_claim(None, &bed.place(), None, None).is_err(), "without flash neither");
    assert_eq!(fs::read(&path).unwrap(), spoilt);
    fs::remove_file(bed.path("pool")).unwrap();
    fs::rename(bed.path("away"), bed.path("pool")).unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Sidecar), "its own disk knows more");
}

#[test]
fn a_log_does_not_become_dirty_beside_a_sidecar_that_says_that_nothing_is() {
    let begin = |bed: &Bed| {
        // Where the new sidecar would be made there is a folder.
        fs::create_dir(bed.path("db.raw.forebay.new")).unwrap();
        let mut pool = bed.pool();
        let (number, examined) = bed.examine(&mut pool).unwrap();
        pool.begin_session(number).unwrap();
        let mut notes = Vec::new();
        let mut fence = match examined.begin(&pool, number, true, &mut notes) {
            Ok(fence) => fence,
            Err(error) => {
                assert!(error.is::<Refused>(), "other disks are served: {error}");
                return false;
            }
        };
        fence.follow(true, &mut notes).unwrap();
        assert_eq!(notes.len(), 1, "{notes:?}");
        true
    };
    let bed = Bed::new();
    assert!(begin(&bed), "no sidecar says nothing");
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Clean);
    assert!(!begin(&bed));
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Dirty);
    assert!(begin(&bed), "it says already that the log may be dirty");
}

#[test]
fn a_decision_about_a_disk_leaves_primary_storage_to_the_disk_that_has_it_by_now() {
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Dirty);
    let path = bed.path("db.raw.forebay");
    let own = bed.sidecar();
    let stranger = Sidecar { disk: Uuid([8; 16]), pool: Uuid([9; 16]), ..own };
    sidecar::write(&path, &stranger).unwrap();
    let decide = |decision| {
        let pool = resolve::open_pool(&bed.path("pool")).unwrap();
        resolve::decide(pool, "db", None, &decision)
    };
    let error = decide(resolve::Decision::UseLog).unwrap_err().to_string();
    assert!(error.contains("belongs to the disk 'db' now"), "{error}");
    assert_eq!(bed.sidecar(), stranger);
    decide(resolve::Decision::DiscardLog("0".into())).unwrap();
    assert_eq!(bed.sidecar(), stranger);
    fs::remove_file(&path).unwrap();
    decide(resolve::Decision::UseLog).unwrap();
}

/// Nothing is written beside its image, so the sidecar stays that of a session before.
#[test]
fn a_decision_about_a_disk_that_only_reads_takes_the_sidecar_that_is_there() {
    for is_put_back in [false, true] {
        let mut bed = Bed::new();
        bed.serve().leave(EndOfSession::Dirty);
        let first = bed.sidecar();
        bed.serve().leave(EndOfSession::Dirty);
        bed.wish.read_only = true;
        bed.serve().leave(EndOfSession::Dirty);
        assert_eq!((bed.sidecar().generation, bed.verdict()), (Generation(4), Verdict::Strong));
        match is_put_back {
            true => drop(sidecar::write(&bed.path("db.raw.forebay"), &first).unwrap()),
            false => bed.image().set_modified(SystemTime::UNIX_EPOCH).unwrap(),
        }
        assert!(matches!(bed.verdict(), Verdict::Mismatch(_)));
        let there = bed.sidecar();
        let pool = resolve::open_pool(&bed.path("pool")).unwrap();
        resolve::decide(pool, "db", None, &resolve::Decision::UseLog).unwrap();
        assert_eq!(bed.sidecar(), there);
        for read_only in [true, false] {
            bed.wish.read_only = read_only;
            assert_eq!(bed.verdict(), Verdict::Strong, "{is_put_back} {read_only}");
        }
    }
}

#[test]
fn other_sidecars_claim_or_contradict() {
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Clean);
    let path = bed.path("db.raw.forebay");
    let own = bed.sidecar();
    let put = |sidecar: &Sidecar| sidecar::write(&path, sidecar).map(|_| ()).unwrap();
    put(&Sidecar { generation: Generation(9), ..own.clone() });
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::FlashRolledBack { .. })));
    put(&Sidecar { generation: Generation(0), ..own.clone() });
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::SidecarRolledBack { .. })));
    let stranger = Sidecar { disk: Uuid([8; 16]), pool: Uuid([9; 16]), ..own.clone() };
    put(&stranger);
    assert_eq!(bed.verdict(), Verdict::Mismatch(fence::Change::OtherDisk));
    put(&Sidecar { state: SidecarState::Dirty, ..stranger.clone() });
    let state = bed.path("state");
    let error = || check_claim(None, &bed.place(), None, Some(&state)).unwrap_err().to_string();
    assert!(error().contains("this host does not know where its pool is"), "{}", error());
    let link = state.join(format!("{}.pool", stranger.pool));
    fs::create_dir_all(&state).unwrap();
    std::os::unix::fs::symlink("/srv/flash", link).unwrap();
    assert!(error().contains("its pool was at /srv/flash last"), "{}", error());
    let error = bed.examine(&mut bed.pool()).err().expect("it is another's").to_string();
    assert!(
        error.contains("disk 'db' of another pool") && error.contains("--take-over"),
        "{error}"
    );
    assert!(check_claim(None, &bed.place(), None, None).is_err());
    assert!(check_claim(None, &bed.place(), Some(stranger.disk), None).is_ok());
    fs::remove_file(&path).unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Sidecar));
    fs::write(&path, "something else").unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Sidecar));
}

/// Whoever made the sidecar or the pool, an administrator is told of it.
#[test]
fn a_date_beyond_all_calendars_is_told() {
    let bed = Bed::new();
    bed.serve().leave(EndOfSession::Dirty);
    let path = bed.path("db.raw.forebay");
    let far = Sidecar { date: u64::MAX, disk: Uuid([8; 16]), ..bed.sidecar() };
    for pool in [far.pool, Uuid([9; 16])] {
        sidecar::write(&path, &Sidecar { pool, ..far.clone() }).unwrap();
        let error = bed.examine(&mut bed.pool()).err().expect("it is another's").to_string();
        assert!(error.contains("9999-12-31"), "{error}");
    }
    let found = sidecar::read(Some(&path));
    let pool = bed.pool();
    let record = pool.record(pool.find("db").unwrap());
    let at = Some((i64::MAX, 999_999_999));
    let evidence = Evidence { modified: at, ..record.evidence };
    let (opened, closed) = (u64::MAX, u64::MAX);
    let record = DiskRecord { opened, closed, evidence, ..record };
    let look = Look { size: 0, modified: at, changed: None };
    let told = words::sides(pool.path(), &record, &Dirty::default(), &look, &found);
    assert_eq!(told.matches("9999-12-31").count(), 5, "{told}");
}
