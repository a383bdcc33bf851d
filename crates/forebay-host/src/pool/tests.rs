use forebay_core::flash_pool::PairId;
use forebay_core::flash_pool::disk::SessionEnd;

use super::room::SPARE_SEGMENTS;
use super::*;

mod accepted;
mod cache;
mod discarded;
mod faults;
mod file;
mod looked;
mod owner;
mod progress;
mod staged;
mod warm;

const MIB: u64 = 1 << 20;

fn open(path: &Path, shares: &[Share]) -> Result<Pool, String> {
    Pool::open(path, shares).map_err(|error| format!("{error:#}"))
}

fn share(cache: u64, log: u64) -> Share {
    Share { cache: cache * MIB, ring: 0, log: log * MIB }
}

fn wish(name: &str, uri: &str) -> DiskWish {
    DiskWish {
        name: name.to_owned(),
        uri: uri.to_owned(),
        size: 64 * MIB,
        block_size: 8192,
        grid_offset: None,
        mode: "write-back".to_owned(),
        log_bytes: 4 * MIB,
        read_only: false,
        is_deferred: false,
        identity: Uuid::NIL,
        is_staged: false,
        is_exclusive: false,
        takes_over: None,
    }
}

/// Opens the log of a disk that is new or clean, as the daemon does.
fn serve(pool: &mut Pool, wish: &DiskWish) -> (DiskNumber, OpenedLog) {
    let number = pool.admit(wish).unwrap();
    let generation = pool.begin_session(number).unwrap();
    let log = pool.open_log(number, generation, None).unwrap();
    pool.commit_session(number, wish, &log.segments(), Default::default()).unwrap();
    (number, log)
}

#[test]
fn a_pool_is_created_locked_and_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(5, 4)];
    let pool = open(&path, &shares).unwrap();
    let made = pool.tables.superblock;
    assert!(open(&path, &shares).unwrap_err().contains("in use"));
    drop(pool);
    let pool = open(&path, &shares).unwrap();
    assert_eq!(pool.tables.superblock, made);
    let geometry = pool.geometry();
    let size = std::fs::metadata(&path).unwrap().len();
    assert_eq!(size, u64::from(geometry.segments()) * geometry.segment_size());
}

#[test]
fn a_clean_pool_grows_by_being_made_anew_and_a_dirty_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    let made = pool.tables.superblock;
    let (severity, news) = pool.take_news().unwrap();
    assert!(severity == Severity::Info && news.contains("was blank, and is a pool of"), "{news}");
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    drop(pool);
    let error = open(&path, &[share(50, 40)]).unwrap_err();
    assert!(error.contains("'db'") && error.contains("disk flush"), "{error}");
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    assert_eq!(pool.take_news(), None);
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    drop(pool);
    let mut pool = open(&path, &[share(50, 40)]).unwrap();
    assert_ne!(pool.tables.superblock.pool, made.pool);
    let (severity, news) = pool.take_news().unwrap();
    assert!(severity == Severity::Warning && news.contains("made anew"), "{news}");
}

#[test]
fn a_new_disk_takes_the_record_of_the_one_that_was_opened_longest_ago() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let of = |n: u16| wish(&format!("d{n}"), &format!("file:/d{n}"));
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    let numbers: Vec<_> = (0..64).map(|n| pool.admit(&of(n)).unwrap()).collect();
    for (n, number) in numbers.iter().enumerate() {
        let mut record = pool.record(*number);
        record.opened = if n == 40 { 1 } else { 2 };
        pool.tables.set_disk(&pool.file, *number, Some(record)).unwrap();
    }
    let uuids: Vec<_> = numbers.iter().map(|number| pool.record(*number).uuid).collect();
    drop(pool);
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    assert_eq!(pool.admit(&of(64)).unwrap(), numbers[40]);
    for n in (0..64).filter(|n| *n != 40) {
        let number = pool.admit(&of(n)).unwrap();
        assert_eq!(pool.record(number).uuid, uuids[usize::from(n)]);
    }
}

#[test]
fn a_new_disk_gets_a_number_with_damaged_reservations_only_when_there_is_no_other() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let geometry = open(&path, &[share(5, 4)]).unwrap().geometry();
    let (damaged, last) = (DiskNumber(0), geometry.disks().last().unwrap());
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for copy in 0..2 {
        let at = geometry.pair_offset(PairId::Reservations(damaged), copy);
        file.write_all_at(&[0x5a; 4096], at).unwrap();
    }
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    for n in 1..=last.0 {
        let number = pool.admit(&wish(&format!("d{n}"), &format!("file:/d{n}"))).unwrap();
        assert_eq!(number, DiskNumber(n));
    }
    assert_eq!(pool.admit(&wish("late", "file:/late")).unwrap(), damaged);
}

#[test]
fn a_pool_full_of_names_gives_nobody_the_number_of_a_disk_that_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let of = |n: u16| wish(&format!("d{n}"), &format!("file:/d{n}"));
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    let room = pool.tables.geometry().disks().count() as u16;
    assert_eq!(room, 64);
    for n in 0..room {
        let number = pool.admit(&of(n)).unwrap();
        pool.close(number, EndOfSession::Clean, true, None).unwrap();
    }
    // In this run each name has its number.
    let error = pool.admit(&wish("one too many", "file:/z")).unwrap_err().to_string();
    assert!(error.contains("64 disks already"), "{error}");
    drop(pool);
    // In another one only those that are served; each new disk takes that of one that is not.
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    let mut numbers = vec![pool.admit(&of(0)).unwrap(), pool.admit(&of(1)).unwrap()];
    for n in room..2 * room - 2 {
        let number = pool.admit(&of(n)).unwrap();
        assert!(!numbers.contains(&number), "{number:?} twice");
        numbers.push(number);
    }
    assert_eq!((pool.find("d0"), pool.find("d1")), (Some(numbers[0]), Some(numbers[1])));
    assert!(pool.admit(&of(2)).is_err());
    // Its record is gone, but something of it may still be under way.
    pool.close(numbers[5], EndOfSession::Detached, true, None).unwrap();
    let error = pool.admit(&of(2)).unwrap_err().to_string();
    assert!(error.contains("was served since") && error.contains("start Forebay again"), "{error}");
}

#[test]
fn a_file_that_was_given_its_size_is_a_pool_of_all_of_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("pool");
    assert!(report::placed_at(&path).is_err());
    std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let share = Share { cache: 1 << 20, ring: 0, log: 0 };
    let pool = Pool::open(&path, &[share]).unwrap();
    assert_eq!(super::bytes(&pool.tables), 64 << 20);
    pool.check_room(&[share; 50]).unwrap();
    drop(pool);
    assert_eq!(report::placed_at(&path).unwrap(), (Vec::new(), 64 << 20));
}

#[test]
fn a_pool_that_is_made_for_many_disks_has_room_for_as_many_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = vec![share(2, 2); 500];
    let of = |n: u16| wish(&format!("d{n}"), &format!("file:/d{n}"));
    let mut pool = open(&path, &shares).unwrap();
    let numbers: Vec<_> = (0..1024).map(|n| pool.admit(&of(n)).unwrap()).collect();
    let error = pool.admit(&of(1024)).unwrap_err().to_string();
    assert!(error.contains("1024 disks already"), "{error}");
    drop(pool);
    // The pool says so itself: who opens it for one disk finds all of them.
    let pool = open(&path, &[share(2, 2)]).unwrap();
    assert_eq!(pool.find("d1023"), Some(numbers[1023]));
}

#[test]
fn a_disk_is_known_by_its_name_and_its_primary_storage() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = open(&folder.path().join("flash"), &[share(5, 4)]).unwrap();
    let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
    let refused = |pool: &mut Pool, wish: &DiskWish| format!("{:#}", pool.admit(wish).unwrap_err());
    let error = refused(&mut pool, &wish("db", "file:/other"));
    assert!(error.contains("file:/db of 64 MiB") && error.contains("disk flush db"), "{error}");
    let error = refused(&mut pool, &wish("web", "file:/db"));
    assert!(error.contains("--name db"), "{error}");
    // Another size of the same one is judged later.
    let smaller = DiskWish { size: 32 * MIB, ..wish("db", "file:/db") };
    assert_eq!(pool.admit(&smaller).unwrap(), number);
    assert_eq!(pool.admit(&wish("db", "file:/db")).unwrap(), number);
    assert_ne!(pool.admit(&wish("web", "file:/web")).unwrap(), number);
    // With nothing in its log it may be another one.
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    assert_eq!(pool.admit(&wish("db", "file:/other")).unwrap(), number);
    assert_ne!(pool.record(number).uuid, log.disk);
}

fn who(name: &str, uri: &str, identity: u8) -> DiskWish {
    DiskWish { identity: Uuid([identity; 16]), ..wish(name, uri) }
}

#[test]
fn a_disk_is_known_by_who_its_primary_storage_is_however_that_is_spelt() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = open(&folder.path().join("flash"), &[share(5, 4)]).unwrap();
    let (number, log) = serve(&mut pool, &who("x", "nbd://a/", 1));
    let refused = |pool: &mut Pool, wish: &DiskWish| format!("{:#}", pool.admit(wish).unwrap_err());
    let spelt = who("x", "nbd://a/?connections=2", 1);
    let other_name = DiskWish { name: "y".into(), ..spelt.clone() };
    assert!(refused(&mut pool, &other_name).contains("--name x"));
    // Also a name that is known already.
    let (second, _) = serve(&mut pool, &who("y", "nbd://b/", 2));
    pool.close(second, EndOfSession::Clean, true, None).unwrap();
    assert!(refused(&mut pool, &other_name).contains("--name x"));
    assert!(pool.set_reservations(number, vec![7; 40]));
    assert_eq!(pool.admit(&spelt).unwrap(), number, "dirty");
    let log_segments = log.segments();
    pool.begin_session(number).unwrap();
    pool.commit_session(number, &spelt, &log_segments, Default::default()).unwrap();
    assert_eq!(pool.record(number).uri, spelt.uri);
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    assert_eq!(pool.admit(&spelt).unwrap(), number, "clean");
    assert_eq!(
        (pool.disk_uuid(number), pool.reservations(number).unwrap()),
        (log.disk, vec![7; 40])
    );
    // Reservations are neither lost nor passed by.
    assert!(refused(&mut pool, &who("x", "nbd://c/", 3)).contains("resolve x"));
    assert!(refused(&mut pool, &other_name).contains("start it with --name x"));
    assert_eq!(pool.reservations(number).unwrap(), vec![7; 40]);
    assert!(pool.set_reservations(number, Vec::new()));
    assert_eq!(pool.admit(&who("x", "nbd://c/", 3)).unwrap(), number);
    assert_ne!(pool.disk_uuid(number), log.disk);
}

#[test]
fn memory_of_one_disk_is_not_the_primary_storage_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = open(&folder.path().join("flash"), &[share(5, 4)]).unwrap();
    let (number, _) = serve(&mut pool, &wish("db", "mem:64MiB"));
    assert!(pool.has_log(number));
    assert_ne!(pool.admit(&wish("web", "mem:64MiB")).unwrap(), number);
    assert_eq!(pool.admit(&wish("db", "mem:64MiB")).unwrap(), number);
}

#[test]
fn a_server_may_move_but_a_device_that_is_another_one_is_not_the_disks() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = open(&folder.path().join("flash"), &[share(5, 4)]).unwrap();
    let (number, _) = serve(&mut pool, &who("x", "nbd://a/", 1));
    assert_eq!(pool.admit(&who("x", "nbd://a/", 2)).unwrap(), number);
    assert_eq!(pool.admit(&who("x", "nbd://a/", 0)).unwrap(), number, "nobody knows");
    let (device, _) = serve(&mut pool, &who("d", "block:/dev/sdb", 0x81));
    assert_eq!(pool.admit(&who("d", "block:/dev/sdc", 0x81)).unwrap(), device);
    let error = format!("{:#}", pool.admit(&who("d", "block:/dev/sdb", 0x82)).unwrap_err());
    assert!(
        error.contains("another device of that name") && error.contains("resolve d"),
        "{error}"
    );
    assert_eq!(pool.admit(&who("d", "block:/dev/sdb", 3)).unwrap(), device, "it does not tell");
}

/// Damages a copy of the reservations of the first disk, in a pool that nobody uses.
fn rot_reservations(path: &Path, geometry: PoolGeometry, copy: u32) {
    use std::os::unix::fs::FileExt;
    let pair = forebay_core::flash_pool::PairId::Reservations(DiskNumber(0));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0x5a], geometry.pair_offset(pair, copy) + 90).unwrap();
}

#[test]
fn reservations_are_kept_for_their_disk_and_survive_the_rot_of_either_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    for copy in 0..2 {
        let mut pool = open(&path, &[share(5, 4)]).unwrap();
        let geometry = pool.geometry();
        let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
        assert_eq!(number, DiskNumber(0));
        assert!(pool.set_reservations(number, vec![1; 40]));
        assert!(pool.set_reservations(number, vec![2 + copy as u8; 4008]));
        pool.close(number, EndOfSession::Clean, true, None).unwrap();
        drop(pool);
        rot_reservations(&path, geometry, copy);
        assert_eq!(check::check(&path).unwrap().warnings.len(), 1);
        let mut pool = open(&path, &[share(5, 4)]).unwrap();
        assert_eq!(pool.reservations(number).unwrap(), vec![2 + copy as u8; 4008]);
        assert!(!pool.set_reservations(number, vec![1; 4009]), "no room");
        // They are in the way of a pool that would be made anew.
        drop(pool);
        let error = open(&path, &[share(50, 40)]).unwrap_err();
        assert!(error.contains("'db'") && error.contains("--discard-reservations"), "{error}");
        pool = open(&path, &[share(5, 4)]).unwrap();
        // Another primary storage under its name would pass them by.
        let refused = pool.admit(&wish("db", "file:/other")).unwrap_err();
        assert!(refused.is::<crate::fence::Refused>(), "{refused:#}");
        assert!(pool.set_reservations(number, Vec::new()));
        let other = pool.admit(&wish("db", "file:/other")).unwrap();
        assert_eq!((other, pool.reservations(other).unwrap()), (number, vec![]));
        let back = pool.admit(&wish("db", "file:/db")).unwrap();
        assert!(pool.reservations(back).unwrap().is_empty());
    }
}

#[test]
fn reservations_that_are_lost_are_not_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    let geometry = pool.geometry();
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    assert!(pool.set_reservations(number, vec![1; 40]));
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    drop(pool);
    for copy in 0..2 {
        rot_reservations(&path, geometry, copy);
    }
    let errors = check::check(&path).unwrap().errors;
    assert!(errors.len() == 1 && errors[0].contains("reservations of disk 'db'"), "{errors:?}");
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    assert!(pool.reservations(number).is_err());
    assert!(pool.set_reservations(number, Vec::new()));
    assert!(pool.reservations(number).unwrap().is_empty());
    drop(pool);
    let pool = open(&path, &[share(5, 4)]).unwrap();
    assert!(pool.reservations(number).unwrap().is_empty());
}

#[test]
fn a_session_steps_the_generation_and_its_end_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(0, 4)]).unwrap();
    let wish = wish("db", "file:/db");
    let (number, log) = serve(&mut pool, &wish);
    assert_eq!((log.generation, log.found.records.len()), (Generation(2), 0));
    let record = pool.record(number);
    assert_eq!((record.committed, record.session), (Generation(2), SessionEnd::Running));
    drop((pool, log));
    let mut pool = open(&path, &[share(0, 4)]).unwrap();
    assert!(pool.has_log(number), "as after a crash");
    let (again, log) = serve(&mut pool, &wish);
    assert_eq!((again, log.generation), (number, Generation(4)));
    assert_eq!(pool.tables.log_segments(number), 1, "the segment of the first run is free");
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    assert!(!pool.has_log(number));
    assert_eq!(pool.record(number).session, SessionEnd::Clean);
    pool.close(number, EndOfSession::Detached, true, None).unwrap();
    assert!(pool.tables.disk(number).is_none());
}

#[test]
fn segments_are_leased_from_the_end_and_caches_are_in_one_piece_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
    let geometry = pool.geometry();
    assert_eq!(log.tail.segment, SegmentId(geometry.segments() - 1));
    let cache = pool.take_cache(number, 5 * MIB).unwrap();
    let metadata = u64::from(geometry.metadata_segments()) * geometry.segment_size();
    let slots = vec![Area { offset: metadata, len: 5 * MIB }];
    assert_eq!(cache, CacheArea { slots, kept: 0, former: None });
    let mut ordinals = Vec::new();
    while let Ok((_, lease)) = pool.lease_log(number) {
        ordinals.push(lease.ordinal);
    }
    assert!(ordinals.windows(2).all(|pair| pair[0] < pair[1]), "{ordinals:?}");
    assert_eq!(ordinals.len() as u64, 3 + SPARE_SEGMENTS);
    pool.free_log(number, |segment| segment == log.tail.segment).unwrap();
    assert!(pool.lease_log(number).is_ok());
    drop(pool);
    // In the next run the cache is kept, until a log needs room.
    let mut pool = open(&path, &[share(5, 4)]).unwrap();
    assert_eq!(pool.free_segments().count(), 0);
    assert!(pool.lease_log(number).is_ok());
    assert_eq!(pool.free_segments().count(), 4);
}

#[test]
fn what_an_orderly_end_left_in_the_log_must_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(5, 4)];
    let mut pool = open(&path, &shares).unwrap();
    let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
    // The log has no record of that number.
    let last = log.found.next_sequence;
    pool.set_log_end(number, last).unwrap();
    pool.close(number, EndOfSession::Dirty, true, None).unwrap();
    drop(pool);
    let mut pool = open(&path, &shares).unwrap();
    assert_eq!(pool.undecided(number).missing, 1);
    let error = format!("{:#}", pool.open_log(number, Generation(2), None).unwrap_err());
    assert!(error.contains("missing"), "{error}");
    // Nobody asks for it any more, once it was closed with everything on primary storage.
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    assert_eq!(pool.undecided(number).missing, 0);
}

#[test]
fn a_clean_shutdown_does_not_come_back_dirty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let wish = wish("db", "file:/db");
    for _ in 0..3 {
        let mut pool = open(&path, &[share(0, 4)]).unwrap();
        let (number, log) = serve(&mut pool, &wish);
        assert_eq!((log.found.records.len(), log.adopted), (0, 0));
        pool.close(number, EndOfSession::Clean, true, None).unwrap();
        assert!(!pool.has_log(number));
    }
}

#[test]
fn starts_that_never_come_to_their_end_do_not_take_segment_after_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let wish = wish("db", "file:/db");
    for _ in 0..50 {
        let mut pool = open(&path, &[share(0, 4)]).unwrap();
        let number = pool.admit(&wish).unwrap();
        let generation = pool.begin_session(number).unwrap();
        pool.open_log(number, generation, None).unwrap();
        // It dies before the session is committed.
        assert!(pool.tables.log_segments(number) <= 2);
    }
    let mut pool = open(&path, &[share(0, 4)]).unwrap();
    let (number, _) = serve(&mut pool, &wish);
    assert_eq!(pool.tables.log_segments(number), 1);
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
}

#[test]
fn room_is_told_before_a_pool_is_opened_as_the_opening_finds_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let check = |path: &Path, first: &[Share], shares: &[Share], expect: &str| {
        let found = check_room_at(path, first, shares).map_err(|error| format!("{error:#}"));
        match found {
            Ok(()) => assert_eq!(expect, "", "{}", path.display()),
            Err(why) => assert!(!expect.is_empty() && why.contains(expect), "{why}"),
        }
    };
    let (one, two) = ([share(60, 4)], [share(60, 4); 2]);
    std::fs::write(at("data"), vec![7; 1 << 20]).unwrap();
    check(&at("data"), &one, &one, "it would be overwritten");
    check(&at("missing/pool"), &one, &one, "does not exist");
    std::fs::File::create(at("given")).unwrap().set_len(90 * MIB).unwrap();
    let pool = at("pool");
    for path in [at("new"), at("given"), pool.clone()] {
        // It is made for the first disk, and does not grow for the second one.
        check(&path, &one, &one, "");
        check(&path, &two, &two, "");
        check(&path, &one, &two, "has no room for its share");
        assert_eq!(path.exists(), path != at("new"), "nothing is made");
        drop(open(&pool, &one).unwrap());
    }
    let opened = open(&pool, &one).unwrap();
    assert!(opened.check_room(&one).is_ok() && opened.check_room(&two).is_err());
    check(&pool, &one, &one, "in use");
    drop(opened);
    let mut opened = open(&pool, &one).unwrap();
    let (number, _) = serve(&mut opened, &wish("db", "file:/db"));
    opened.lease_log(number).unwrap();
    drop(opened);
    check(&pool, &two, &two, "holds writes of 'db'");
}
