//! Parts of the pool for caches, and the places of their rings.

use forebay_core::cache_index::header::RingHeader;

use super::super::file::medium::{self, Fate};
use super::*;

/// The header of a ring for `slots` blocks of 8 KiB of a disk.
pub(super) fn ring_header(pool: &Pool, number: DiskNumber, slots: u32) -> RingHeader {
    RingHeader {
        disk: pool.disk_uuid(number),
        generation: Generation(1),
        nonce: 5,
        disk_size: 64 * MIB,
        block_size: 8192,
        slots,
        pages: 200,
    }
}

#[test]
fn a_cache_is_where_it_was_until_its_ring_is_void_or_somebody_needs_the_room() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 5 * MIB, ring: 2 * MIB, log: 4 * MIB }];
    let mut pool = open(&path, &shares).unwrap();
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    let first = pool.take_cache(number, 5 * MIB).unwrap();
    assert_eq!(first.former, None);
    let header = ring_header(&pool, number, 640);
    let begin = |pool: &mut Pool| pool.begin_ring(number, 2 * MIB, &header).unwrap();
    let ring = begin(&mut pool);
    let reopen = |pool: Pool| {
        drop(pool);
        open(&path, &shares).unwrap()
    };
    pool = reopen(pool);
    let again = pool.take_cache(number, 5 * MIB).unwrap();
    assert_eq!(again, CacheArea { kept: 5 * MIB, former: ring, ..first });
    assert!(pool.void_ring(number));
    pool = reopen(pool);
    assert_eq!(pool.take_cache(number, 5 * MIB).unwrap().former, None);
    begin(&mut pool);
    pool = reopen(pool);
    assert!(pool.take_cache(number, 5 * MIB).unwrap().former.is_some());
    // A disk without a cache leaves no ring behind.
    pool.drop_cache(number).unwrap();
    pool = reopen(pool);
    assert_eq!(pool.take_cache(number, 4 * MIB).unwrap().former, None);
    begin(&mut pool);
    // Another disk needs the room. The log of this one is empty.
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    pool = reopen(pool);
    let (other, _) = serve(&mut pool, &wish("web", "file:/web"));
    assert_eq!(pool.take_cache(other, 9 * MIB).unwrap().bytes(), 9 * MIB);
    assert!(pool.begin_ring(other, 2 * MIB, &header).unwrap().is_some());
    assert!(!pool.take_cache(number, 4 * MIB).is_ok_and(|area| area.former.is_some()));
}

#[test]
fn no_ring_of_a_pool_that_was_cut_short_is_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 5 * MIB, ring: 2 * MIB, log: 4 * MIB }];
    let mut pool = open(&path, &shares).unwrap();
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    pool.take_cache(number, 5 * MIB).unwrap();
    let header = ring_header(&pool, number, 640);
    assert!(pool.begin_ring(number, 2 * MIB, &header).unwrap().is_some());
    pool.close(number, EndOfSession::Clean, true, None).unwrap();
    drop(pool);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len(path.metadata().unwrap().len() - MIB).unwrap();
    let mut pool = open(&path, &shares).unwrap();
    assert!(pool.tables.has_void_ring(number));
    assert_eq!(pool.take_cache(number, 5 * MIB).unwrap().former, None, "its end may be missing");
}

#[test]
fn a_cache_of_another_size_keeps_its_first_slots_wherever_the_others_come_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 12 * MIB, ring: 2 * MIB, log: 0 }; 2];
    let mut pool = open(&path, &shares).unwrap();
    let [db, web] = ["db", "web"].map(|name| {
        let wish = wish(name, &format!("file:/{name}"));
        pool.admit(&wish).unwrap()
    });
    let first = pool.take_cache(db, 4 * MIB).unwrap();
    let header = ring_header(&pool, db, 512);
    assert!(pool.begin_ring(db, MIB, &header).unwrap().is_some());
    pool.take_cache(web, 4 * MIB).unwrap();
    drop(pool);
    let mut pool = open(&path, &shares).unwrap();
    pool.take_cache(web, 4 * MIB).unwrap();
    // The segments behind it are another disk's.
    let grown = pool.take_cache(db, 9 * MIB).unwrap();
    assert_eq!((grown.bytes(), grown.kept), (9 * MIB, 4 * MIB));
    assert!(grown.slots.len() > 1 && grown.slots[0] == first.slots[0], "{grown:?}");
    let all: Vec<Area> = grown.slots.clone();
    drop(pool);
    // The next run finds them in the same order, and a smaller cache the first ones.
    let mut pool = open(&path, &shares).unwrap();
    let again = pool.take_cache(db, 9 * MIB).unwrap();
    assert_eq!((&again.slots, again.kept), (&all, 9 * MIB));
    let shrunk = pool.take_cache(db, 3 * MIB).unwrap();
    assert_eq!(shrunk.slots, [Area { len: 3 * MIB, ..first.slots[0] }]);
    assert_eq!(shrunk.kept, 9 * MIB);
    // What is beyond is free only when it is said to be.
    let free = pool.free_segments().count() as u64;
    pool.trim_cache(db, 3 * MIB).unwrap();
    let size = pool.geometry().segment_size();
    assert_eq!(pool.free_segments().count() as u64, free + 6 * MIB / size);
    assert_eq!(pool.take_cache(db, 3 * MIB).unwrap().kept, 3 * MIB);
    // Another length of the ring is another place, without what was there.
    let larger = pool.begin_ring(db, 2 * MIB, &header).unwrap().unwrap();
    assert_eq!((larger.len, pool.ring_header(larger).unwrap()), (2 * MIB, Some(header)));
    assert_eq!(pool.tables.held(db, Role::Index).len() as u64, 2 * MIB / size);
}

#[test]
fn a_cache_that_grows_takes_room_from_caches_that_nobody_has_and_not_from_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 8 * MIB, ring: MIB, log: 4 * MIB }; 2];
    let mut pool = open(&path, &shares).unwrap();
    let [db, web] = ["db", "web"].map(|name| {
        let wish = wish(name, &format!("file:/{name}"));
        pool.admit(&wish).unwrap()
    });
    pool.take_cache(db, 4 * MIB).unwrap();
    let header = ring_header(&pool, db, 512);
    pool.begin_ring(db, MIB, &header).unwrap().unwrap();
    let free = pool.free_segments().count() as u64;
    // The other disk has all the rest, but one.
    pool.take_cache(web, (free - 2) * MIB).unwrap();
    let of_web = ring_header(&pool, web, 512);
    pool.begin_ring(web, MIB, &of_web).unwrap().unwrap();
    drop(pool);
    let mut pool = open(&path, &shares).unwrap();
    let grown = pool.take_cache(db, 9 * MIB).unwrap();
    assert_eq!((grown.bytes(), grown.kept), (9 * MIB, 4 * MIB));
    assert!(grown.former.is_some());
    let held = pool.tables.held(db, Role::Cache);
    let distinct: std::collections::BTreeSet<_> = held.iter().collect();
    assert_eq!((held.len(), distinct.len()), (9, 9));
    assert!(pool.tables.held(web, Role::Cache).is_empty() && !pool.taken[usize::from(web.0)]);
    // When nobody has anything to give, it has less than it asked for.
    let most = pool.take_cache(db, 1000 * MIB).unwrap();
    assert_eq!(pool.free_segments().count(), 0);
    assert_eq!(most.bytes(), pool.tables.held(db, Role::Cache).len() as u64 * MIB);
    assert_eq!(most.slots[0].offset, grown.slots[0].offset);
}

#[test]
fn a_ring_that_is_leased_anew_has_no_header_of_an_older_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[Share { cache: MIB, ring: MIB, log: 0 }]).unwrap();
    let number = pool.admit(&wish("db", "file:/db")).unwrap();
    pool.take_cache(number, MIB).unwrap();
    let header = ring_header(&pool, number, 128);
    let ring = pool.begin_ring(number, MIB, &header).unwrap().unwrap();
    assert_eq!(pool.ring_header(ring).unwrap(), Some(header));
    drop(pool);
    let newer = RingHeader { nonce: 6, ..header };
    for io in 1.. {
        let mut pool = open(&path, &[Share { cache: MIB, ring: MIB, log: 0 }]).unwrap();
        pool.drop_cache(number).unwrap();
        medium::arm(&[(io, Fate::Dies)]);
        let taken = pool.take_cache(number, MIB);
        let begun = taken.and_then(|_| pool.begin_ring(number, MIB, &newer));
        medium::disarm(&path, Some(io));
        drop(pool);
        let mut pool = open(&path, &[Share { cache: MIB, ring: MIB, log: 0 }]).unwrap();
        let former = pool.take_cache(number, MIB).unwrap().former;
        let found = former.and_then(|former| pool.ring_header(former).unwrap());
        assert_ne!(found, Some(header), "after I/O {io}");
        if begun.is_ok() {
            assert_eq!(found, Some(newer));
            assert!(io > 4, "it took {io} I/Os");
            break;
        }
    }
}

#[test]
fn a_ring_of_an_older_session_is_not_the_one_of_a_place_that_was_leased_since() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[Share { cache: MIB, ring: MIB, log: 0 }]).unwrap();
    let number = pool.admit(&wish("db", "file:/db")).unwrap();
    let session = |pool: &mut Pool| {
        pool.begin_session(number).unwrap();
        let header =
            RingHeader { generation: pool.generation(number), ..ring_header(pool, number, 128) };
        pool.take_cache(number, MIB).unwrap();
        pool.begin_ring(number, MIB, &header).unwrap().unwrap();
        header
    };
    let first = session(&mut pool);
    assert!(pool.has_ring(number, &first));
    let second = session(&mut pool);
    assert!(pool.has_ring(number, &first), "it is where it was");
    // A crash may leave a part of the new place, at whose begin the old ring still is.
    pool.drop_cache(number).unwrap();
    let third = session(&mut pool);
    assert!(pool.has_ring(number, &third));
    assert!(!pool.has_ring(number, &first) && !pool.has_ring(number, &second));
}

#[test]
fn a_cache_at_work_gets_more_segments_all_or_none_and_gives_the_last_ones_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 8 * MIB, ring: MIB, log: 0 }; 2];
    let mut pool = open(&path, &shares).unwrap();
    let [db, web] = ["db", "web"].map(|name| {
        let wish = DiskWish { log_bytes: 0, ..wish(name, &format!("file:/{name}")) };
        pool.admit(&wish).unwrap()
    });
    let first = pool.take_cache(db, 4 * MIB).unwrap();
    pool.take_cache(web, 4 * MIB).unwrap();
    let grown = pool.size_cache(db, 8 * MIB, 0).unwrap();
    assert_eq!(grown.iter().map(|area| area.len).sum::<u64>(), 8 * MIB);
    assert_eq!(grown[0], first.slots[0]);
    // What is not there is not taken in part.
    let free = pool.free_segments().count();
    let error = pool.size_cache(web, 100 * MIB, 0).unwrap_err().to_string();
    assert!(error.contains("no room for"), "{error}");
    assert_eq!(pool.free_segments().count(), free);
    let shrunk = pool.size_cache(db, 2 * MIB, 0).unwrap();
    assert_eq!(pool.free_segments().count(), free + 6);
    assert_eq!(shrunk.iter().map(|area| area.len).sum::<u64>(), 2 * MIB);
    // A restart finds it so.
    drop(pool);
    let pool = open(&path, &shares).unwrap();
    assert_eq!((pool.cache_of(db), pool.cache_of(web)), (2 * MIB, 4 * MIB));
}

#[test]
fn beyond_what_it_brings_a_cache_at_work_takes_nothing_of_logs_and_nobody_elses_cache_goes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 8 * MIB, ring: MIB, log: 4 * MIB }; 2];
    let mut pool = open(&path, &shares).unwrap();
    let [db, web] =
        ["db", "web"].map(|name| serve(&mut pool, &wish(name, &format!("file:/{name}"))).0);
    let all = pool.spare_for_cache(0);
    pool.take_cache(web, all - 2 * MIB).unwrap();
    pool.take_cache(db, 2 * MIB).unwrap();
    assert!(pool.free_segments().count() > 0 && pool.spare_for_cache(0) == 0);
    assert!(pool.size_cache(db, 3 * MIB, 0).is_err());
    // The other one is not opened any more.
    drop(pool);
    let mut pool = open(&path, &shares).unwrap();
    let (db, _) = serve(&mut pool, &wish("db", "file:/db"));
    pool.take_cache(db, 2 * MIB).unwrap();
    let size = pool.geometry().segment_size();
    let own = (pool.free_segments().count() as u64 + 3) * size;
    assert!(pool.size_cache(db, own + size, own).is_err());
    assert_eq!(pool.cache_of(web), all - 2 * MIB);
    pool.size_cache(db, own, own).unwrap();
    assert_eq!((pool.cache_of(db), pool.cache_of(web)), (own, 0));
}

#[test]
fn a_cache_that_begins_leaves_to_logs_what_they_may_take() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [Share { cache: 8 * MIB, ring: 0, log: 4 * MIB }];
    let mut pool = open(&path, &shares).unwrap();
    let free = pool.free_segments().count() as u64;
    let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
    let size = pool.geometry().segment_size();
    let log = 4 * MIB / size + SPARE_SEGMENTS;
    assert_eq!(pool.spare_for_cache(0), (free - log) * size);
    assert_eq!(pool.spare_for_cache(size), (free - log - 1) * size);
    pool.take_cache(number, pool.spare_for_cache(0)).unwrap();
    assert_eq!(pool.spare_for_cache(0), 0);
}

/// A log that had more segments than it is given now, and primary storage was away: all of it is dirty.
#[test]
fn a_cache_that_is_taken_first_leaves_room_for_a_log_that_is_opened_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let mut pool = open(&path, &[share(2, 20), share(2, 4)]).unwrap();
    let (db, _) = serve(&mut pool, &wish("db", "file:/db"));
    let (web, _) = serve(&mut pool, &wish("web", "file:/web"));
    for _ in 1..20 {
        pool.lease_log(db).unwrap();
    }
    drop(pool);
    let shares = [share(2, 1), Share { ring: MIB, ..share(20, 4) }];
    let mut pool = open(&path, &shares).unwrap();
    serve(&mut pool, &wish("web", "file:/web"));
    let cache = pool.take_cache(web, 20 * MIB).unwrap();
    assert!(cache.bytes() < 20 * MIB, "{cache:?}");
    let header = ring_header(&pool, web, 64);
    assert_eq!(pool.begin_ring(web, MIB, &header).unwrap(), None);
    assert_eq!(pool.free_segments().count() as u64, SPARE_SEGMENTS);
    serve(&mut pool, &wish("db", "file:/db"));
    // From now on the log gets what there is as it needs it.
    assert!(pool.take_cache(web, 20 * MIB).unwrap().bytes() > cache.bytes());
}

#[test]
fn a_cache_at_work_leaves_room_for_an_overlong_log_that_is_opened_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let shares = [share(20, 20), share(20, 0)];
    let mut pool = open(&path, &shares).unwrap();
    let (db, _) = serve(&mut pool, &wish("db", "file:/db"));
    let size = pool.geometry().segment_size();
    // Of what it may have nothing is left to claim.
    while pool.spare_for_cache(0) < pool.free_segments().count() as u64 * size {
        pool.lease_log(db).unwrap();
    }
    drop(pool);
    let mut pool = open(&path, &shares).unwrap();
    let web = DiskWish { log_bytes: 0, ..wish("web", "file:/web") };
    let web = pool.admit(&web).unwrap();
    pool.take_cache(web, 2 * MIB).unwrap();
    let held = pool.cache_of(web);
    let free = pool.free_segments().count() as u64;
    let wish_of = |segments: u64| held + segments * size;
    assert!(pool.size_cache(web, wish_of(free - SPARE_SEGMENTS + 1), 0).is_err());
    assert_eq!((pool.cache_of(web), pool.free_segments().count() as u64), (held, free));
    pool.size_cache(web, wish_of(free - SPARE_SEGMENTS), 0).unwrap();
    serve(&mut pool, &wish("db", "file:/db"));
}
