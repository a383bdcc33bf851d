//! One party changes leases: what disks ask for late, twice or after their end takes nothing from others.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::action::NoLease;
use forebay_core::flash_pool::PairId;
use forebay_core::flash_pool::disk::DiskFlags;
use forebay_core::flash_pool::lease::{Holder, Role};
use forebay_core::flash_pool::progress::Progress;
use forebay_core::ids::Sequence;

use super::super::file::medium::{self, Fate};
use super::super::owner::{Close, PoolHandle, PoolOwner, close};
use super::super::tables::Tables;
use super::super::{Held, SharedPool, lock};
use super::*;
use crate::events::EventSender;
use crate::fence::{DiskPlace, Guard, Leaving};

/// Two disks of one pool, with its owner.
struct Bed {
    pool: SharedPool,
    owner: PoolOwner,
    handle: PoolHandle,
    disks: [DiskNumber; 2],
    events: tokio::sync::mpsc::Receiver<crate::events::EventLine>,
    _folder: tempfile::TempDir,
}

/// A disk that ended so.
fn ended(end: EndOfSession) -> Close {
    Close { end, is_quiet: true, last: None, log_end: None, is_modified: false }
}

impl Bed {
    fn new() -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let mut pool = open(&folder.path().join("flash"), &[share(0, 4), share(0, 4)]).unwrap();
        let names = [("a", "file:/a"), ("b", "file:/b")];
        let disks = names.map(|(name, uri)| serve(&mut pool, &wish(name, uri)).0);
        let pool = Arc::new(Mutex::new(pool));
        let (sender, events) = EventSender::for_test();
        let (owner, handle) = PoolOwner::start(pool.clone(), sender).unwrap();
        Bed { pool, owner, handle, disks, events, _folder: folder }
    }

    /// A lease through the owner, waited for.
    fn lease(&self, disk: DiskNumber) -> Held {
        let (answer, leased) = mpsc::channel();
        self.handle.lease(disk, Box::new(move |leased| answer.send(leased).unwrap()));
        leased.recv().unwrap().unwrap()
    }

    /// Everything that was asked for is done: the pool, and the events.
    fn end(mut self) -> (SharedPool, Vec<String>) {
        self.owner.join();
        for disk in self.disks {
            if let Some(record) = lock(&self.pool).tables.disk(disk) {
                staging::remove_of(record.uuid);
            }
        }
        let events = std::iter::from_fn(|| self.events.try_recv().ok().map(|line| line.text));
        let events = events.collect();
        (self.pool, events)
    }
}

#[test]
fn leases_survive_the_rot_of_either_copy() {
    use std::os::unix::fs::FileExt;
    for copy in 0..2 {
        let mut bed = Bed::new();
        let [first, second] = bed.disks;
        let (held, given_back) = (bed.lease(first), bed.lease(second));
        bed.handle.free(given_back);
        let folder = std::mem::replace(&mut bed._folder, tempfile::tempdir().unwrap());
        let (pool, _) = bed.end();
        let pool = lock(&pool);
        let pair = pool.geometry().lease_pair(held.0);
        let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("flash"));
        let at = pool.geometry().pair_offset(pair, copy) + 90;
        file.unwrap().write_all_at(&[0x5a], at).unwrap();
        let found = Tables::read(&pool.file, pool.tables.superblock).unwrap();
        for disk in [first, second] {
            let leases: Vec<_> = found.leases.of(disk, Role::Log).collect();
            assert_eq!(leases, pool.log_leases(disk), "copy {copy}");
            assert_eq!(leases.contains(&held), disk == first);
            assert!(!leases.contains(&given_back));
        }
    }
}

#[test]
fn a_segment_that_is_given_back_twice_is_not_taken_from_its_next_disk() {
    let bed = Bed::new();
    let [a, b] = bed.disks;
    let old = bed.lease(a);
    bed.handle.free(old);
    let new = bed.lease(b);
    assert_eq!(old.0, new.0, "the segment is used again");
    bed.handle.free(old);
    let another = bed.lease(b);
    assert_ne!(another.0, new.0);
    let (pool, events) = bed.end();
    assert_eq!(lock(&pool).tables.leases.holder(new.0), Holder::Leased(new.1));
    assert!(events.len() == 1 && events[0].contains("it stays whose it is"), "{events:?}");
}

#[test]
fn a_pool_that_failed_keeps_nobody_from_the_sidecar_of_a_disk_that_somebody_modified() {
    let check = |has_failed: bool, end: EndOfSession| {
        let bed = Bed::new();
        let [a, _] = bed.disks;
        let mut pool = lock(&bed.pool);
        pool.has_failed = has_failed;
        medium::arm(&[(1, Fate::Dies)]);
        let closed = close(&mut pool, a, Close { is_modified: true, ..ended(end) });
        medium::disarm(pool.path(), None);
        drop(pool);
        bed.end();
        closed
    };
    for (has_failed, end) in [(true, EndOfSession::Dirty), (false, EndOfSession::Failed)] {
        assert!(!check(has_failed, end).unwrap(), "{has_failed} {end:?}");
    }
    assert!(check(false, EndOfSession::Dirty).is_err(), "flash works");
}

#[test]
fn a_disk_that_ends_takes_along_that_its_cache_was_dropped() {
    let bed = Bed::new();
    let [a, _] = bed.disks;
    let is_modified = || lock(&bed.pool).record(a).flags.has(DiskFlags::MODIFIED);
    for expect in [true, false] {
        let how = Close { is_modified: expect, ..ended(EndOfSession::Clean) };
        bed.handle.close(a, how).unwrap();
        assert_eq!(is_modified(), expect);
    }
    bed.end();
}

/// As when a disk is detached while the owner waits for flash: its wishes stand in the queue when its record is closed.
#[test]
fn a_disk_is_closed_behind_what_it_has_asked_for() {
    for end in [EndOfSession::Clean, EndOfSession::Detached] {
        let bed = Bed::new();
        let [a, b] = bed.disks;
        let (first, second) = (bed.lease(a), bed.lease(a));
        let held_up = lock(&bed.pool);
        bed.handle.free(first);
        let (answer, leased) = mpsc::channel();
        bed.handle.lease(b, Box::new(move |leased| answer.send(leased).unwrap()));
        bed.handle.free(second);
        // Was asked for before the disk ended, and is answered to nobody.
        bed.handle.lease(a, Box::new(drop));
        let handle = bed.handle.clone();
        let closing = std::thread::spawn(move || handle.close(a, ended(end)).unwrap());
        drop(held_up);
        closing.join().unwrap();
        let of_b = leased.recv().unwrap().unwrap();
        let more_of_b = bed.lease(b);
        assert_ne!(of_b.0, more_of_b.0);
        let (pool, events) = bed.end();
        let pool = lock(&pool);
        assert_eq!(pool.tables.log_segments(a), 0);
        for (segment, lease) in [of_b, more_of_b] {
            assert_eq!(pool.tables.leases.holder(segment), Holder::Leased(lease));
        }
        assert!(events.is_empty(), "{events:?}");
    }
}

#[test]
fn a_disk_that_was_detached_gets_nothing() {
    let bed = Bed::new();
    let a = bed.disks[0];
    bed.handle.close(a, ended(EndOfSession::Detached)).unwrap();
    let mut pool = lock(&bed.pool);
    assert_eq!(pool.lease_log(a), Err(NoLease::Now));
    assert!(!pool.set_reservations(a, vec![1; 40]));
    assert_eq!(pool.tables.log_segments(a), 0);
    drop(pool);
    bed.end();
}

#[test]
fn answers_are_given_without_the_lock() {
    let bed = Bed::new();
    let (answer, free) = mpsc::channel();
    let look = || {
        let (pool, answer) = (bed.pool.clone(), answer.clone());
        move || answer.send(pool.try_lock().is_ok()).unwrap()
    };
    let (leased, voided, stored) = (look(), look(), look());
    bed.handle.lease(bed.disks[0], Box::new(move |_| leased()));
    bed.handle.void(bed.disks[0], Box::new(move |_| voided()));
    bed.handle.reserve(bed.disks[0], vec![1; 40], Box::new(move |_| stored()));
    assert_eq!([(); 3].map(|()| free.recv().unwrap()), [true; 3]);
    bed.end();
}

#[test]
fn a_thread_that_panics_is_noticed_and_keeps_nobody_waiting() {
    let mut bed = Bed::new();
    bed.handle.lease(bed.disks[0], Box::new(|_| panic!("planted")));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(bed.owner.ended());
    let error = bed.handle.close(bed.disks[0], ended(EndOfSession::Clean)).unwrap_err();
    assert!(format!("{error:#}").contains("owns the pool has ended"), "{error:#}");
    bed.end();
}

#[test]
fn reservations_are_refused_by_an_owner_that_has_ended() {
    let bed = Bed::new();
    let (disk, handle) = (bed.disks[0], bed.handle.clone());
    let (answer, stored) = mpsc::channel();
    let reserve = || {
        let answer = answer.clone();
        let stored = Box::new(move |is_stored| answer.send(is_stored).unwrap());
        handle.reserve(disk, vec![1; 40], stored);
    };
    // One waits in the queue when the thread panics, another one comes later.
    let held_up = lock(&bed.pool);
    handle.lease(disk, Box::new(|_| panic!("planted")));
    reserve();
    drop(held_up);
    assert_eq!(stored.recv_timeout(Duration::from_secs(10)), Ok(false));
    bed.end();
    reserve();
    assert_eq!(stored.recv_timeout(Duration::from_secs(10)), Ok(false));
}

/// A loss of power may take some of the pages that say which segments are free: what is left of the log must not look
/// like one that has lost its beginning.
#[test]
fn progress_has_the_whole_of_a_clean_log_before_any_of_it_is_let_go_of() {
    let bed = Bed::new();
    let [a, b] = bed.disks;
    let close = Close { log_end: Some(Sequence(10)), ..ended(EndOfSession::Clean) };
    bed.handle.close(a, close).unwrap();
    let dirty = Close { log_end: Some(Sequence(10)), ..ended(EndOfSession::Dirty) };
    bed.handle.close(b, dirty).unwrap();
    let pool = lock(&bed.pool);
    let progress = |number| {
        let progress = pool.tables.progress(number);
        (progress.flushed, progress.through)
    };
    assert_eq!(progress(a), (Sequence(10), Sequence(10)));
    assert_eq!(progress(b), (Sequence(0), Sequence(0)), "it is not of this record");
}

#[test]
fn a_file_that_no_disk_came_to_use_goes_with_its_owner_whoever_has_the_pool() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let pool = open(&path, &[share(0, 4)]).unwrap();
    pool.go_if_unused();
    let pool = Arc::new(Mutex::new(pool));
    let (owner, _handle) = PoolOwner::start(pool.clone(), EventSender::for_test().0).unwrap();
    assert!(path.exists());
    owner.join();
    assert!(!path.exists());
    // The next start's is not removed by those who still have this one.
    std::fs::write(&path, "").unwrap();
    drop(pool);
    assert!(path.exists());
}

#[test]
fn a_session_after_another_one_of_the_same_pool_knows_the_progress_that_its_shard_wrote() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let mut pool = open(&folder.path().join("flash"), &[share(5, 4)]).unwrap();
    let db = wish("db", "file:/db");
    let (number, log) = serve(&mut pool, &db);
    let mut progress = Progress { disk: log.disk, flushed: Sequence(7), through: Sequence(9) };
    let mut of_shard = Tables::read(&pool.file, pool.tables.superblock).unwrap();
    // Whoever tells of the disk before it is served again judges its log by that, however it ended.
    for end in [EndOfSession::Failed, EndOfSession::Dirty] {
        progress.through = progress.through.plus(1);
        of_shard.set_progress(&pool.file, number, progress).unwrap();
        pool.close(number, end, true, None).unwrap();
        assert_eq!(pool.tables.progress(number), progress, "{end:?}");
    }
    assert_eq!(pool.admit(&db).unwrap(), number);
    pool.begin_session(number).unwrap();
    pool.begin_log(number).unwrap();
    assert_eq!(pool.tables.progress(number), progress);
    let pair = PairId::Progress(number);
    assert_eq!(pool.tables.version(pair), of_shard.version(pair));
    // Once its log was found, both copies say that.
    let found = pool.find_log(number).unwrap();
    pool.go_on_with_log(number, Generation(9), None, found).unwrap();
    assert_eq!(pool.tables.version(pair), of_shard.version(pair) + 1);
    for rotten in 0..2 {
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(folder.path().join("flash"))
            .unwrap();
        let place = pool.geometry().pair_offset(pair, rotten);
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, place).unwrap();
        file.write_all_at(&[0xEE; 4096], place).unwrap();
        let tables = Tables::read(&pool.file, pool.tables.superblock).unwrap();
        assert_eq!(tables.progress(number), progress, "without copy {rotten}");
        file.write_all_at(&page, place).unwrap();
    }
}

#[test]
fn a_log_that_was_lost_is_left_to_an_administrator() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = open(&folder.path().join("flash"), &[share(5, 4)]).unwrap();
    for (end, is_unresolved) in [(EndOfSession::Failed, false), (EndOfSession::Lost, true)] {
        let (number, _log) = serve(&mut pool, &wish("db", "file:/db"));
        assert!(!pool.close(number, end, true, None).unwrap(), "as after a crash");
        let tables = Tables::read(&pool.file, pool.tables.superblock).unwrap();
        let record = tables.disk(number).unwrap();
        assert_eq!(record.flags.has(DiskFlags::UNRESOLVED), is_unresolved, "{end:?}");
        assert_eq!(record.session, SessionEnd::Running);
    }
}

/// Flash that failed a write of a table may work by now.
#[test]
fn a_log_that_was_lost_is_left_to_an_administrator_in_a_pool_that_failed_before() {
    // The note itself may hear of a flush of somebody else that failed.
    for heard in [None, Some((1, Fate::Fails)), Some((2, Fate::Fails))] {
        lost_in_a_failed_pool(heard);
    }
}

fn lost_in_a_failed_pool(heard: Option<(u64, Fate)>) {
    let bed = Bed::new();
    let [a, _] = bed.disks;
    let lost = ended(EndOfSession::Lost);
    let mut pool = lock(&bed.pool);
    // A write of the leases, or its flush.
    medium::arm(&[(1, Fate::Fails)]);
    assert!(pool.lease_log(a).is_err() && pool.has_failed);
    medium::disarm(pool.path(), None);
    let is_unresolved = |pool: &Pool, rotten: Option<u32>| {
        let place = |copy| pool.geometry().pair_offset(PairId::Disk(a), copy);
        medium::spoil(rotten.map(place).as_slice());
        let tables = Tables::read(&pool.file, pool.tables.superblock).unwrap();
        medium::disarm(pool.path(), None);
        tables.disk(a).unwrap().flags.has(DiskFlags::UNRESOLVED)
    };
    assert!(!is_unresolved(&pool, None));
    medium::arm(&[(1, Fate::Dies)]);
    let error = format!("{:#}", close(&mut pool, a, lost).unwrap_err());
    medium::disarm(pool.path(), None);
    assert!(
        error.contains("that the write log was lost") && error.contains("disk resolve"),
        "{error}"
    );
    medium::arm(heard.as_slice());
    assert!(!close(&mut pool, a, lost).unwrap(), "as after a crash");
    medium::disarm(pool.path(), None);
    // Nobody mirrors these tables any more.
    for rotten in [None, Some(0), Some(1)] {
        assert!(is_unresolved(&pool, rotten), "without copy {rotten:?}");
    }
    drop(pool);
    bed.end();
}

#[test]
fn a_late_change_of_a_cache_takes_nothing_of_the_disk_that_was_opened_again() {
    let bed = Bed::new();
    let [disk, _] = bed.disks;
    let place = || DiskPlace::new(Some((bed.handle.clone(), disk)), None, Guard::Itself);
    let held = || lock(&bed.pool).cache_of(disk);
    lock(&bed.pool).take_cache(disk, 2 * MIB).unwrap();
    let before = place();
    assert_eq!(
        before.size_cache(3 * MIB, 3 * MIB).unwrap().iter().map(|it| it.len).sum::<u64>(),
        3 * MIB
    );
    let end = EndOfSession::Clean;
    before.leave(Leaving { end, is_quiet: true, log_end: None }, || false).unwrap();
    let again = place();
    let size = held();
    // It would free segments that are in use, or lease some for nobody.
    for bytes in [MIB, 4 * MIB] {
        let error = before.size_cache(bytes, 4 * MIB).unwrap_err().to_string();
        assert!(error.contains("has ended"), "{error}");
        assert_eq!(held(), size);
    }
    again.size_cache(MIB, MIB).unwrap();
    assert_eq!(held(), MIB);
    drop((before, again));
    bed.end();
}
