//! A log that cannot be read, or lacks records, is discarded: that sticks, and a kill leaves nothing half.

use std::os::unix::fs::FileExt;

use forebay_core::flash_pool::disk::Evidence;
use forebay_core::flash_pool::progress::Progress;
use forebay_core::ids::Sequence;
use forebay_core::sealed;

use super::super::file::medium::{self, Fate};
use super::super::resolve::Settled;
use super::faults::{Session, Told, folder};
use super::*;

const SHARES: [Share; 1] = [Share { cache: MIB, ring: 0, log: 3 * MIB }];
const RECORDS: u64 = 8;
/// Records that primary storage may have, of an end that was a kill: the destager had begun.
const THROUGH: Sequence = Sequence(3);

/// How the session before ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// In order, with all of its records in its log.
    Dirty,
    /// It was killed.
    Killed,
}

/// What is wrong with its log then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// Its first segment is one of another version of Forebay.
    Version,
    /// The second record of its first segment is gone. The records after it claim all but the last one.
    Missing,
}

/// A disk with two segments of records: the first one, and the page of its second record.
fn left(path: &Path, end: End) -> (DiskNumber, SegmentId, u32) {
    let mut pool = Pool::open(path, &SHARES).unwrap();
    let mut told = Told::default();
    let mut session = Session::open(&mut pool, &wish("db", "file:/db"), &mut told).unwrap();
    let page = session.log.tail.page + 2;
    for n in 0..RECORDS {
        if n == RECORDS / 2 {
            session.next_segment(&mut pool).unwrap();
        }
        session.append(&pool, &mut told).unwrap();
    }
    let number = session.number;
    match end {
        End::Dirty => {
            pool.set_log_end(number, Sequence(RECORDS)).unwrap();
            pool.close(number, EndOfSession::Dirty, true, None).unwrap();
        }
        End::Killed => {
            let disk = session.log.disk;
            let progress = Progress { disk, flushed: Sequence(0), through: THROUGH };
            pool.tables.set_progress(&pool.file, number, progress).unwrap();
            staging::remove_of(disk);
        }
    }
    (number, session.log.tail.segment, page)
}

/// A page of a log that is not what it was.
struct Damage {
    at: u64,
    was: [u8; 4096],
}

impl Damage {
    fn new(path: &Path, at: u64, wrong: Wrong) -> Damage {
        let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
        let mut was = [0; 4096];
        file.read_exact_at(&mut was, at).unwrap();
        let mut other = was;
        match wrong {
            Wrong::Version => {
                other[12] = 9;
                sealed::seal(&mut other);
            }
            Wrong::Missing => other = [0; 4096],
        }
        file.write_all_at(&other, at).unwrap();
        Damage { at, was }
    }

    fn mend(&self, path: &Path) {
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&self.was, self.at).unwrap();
    }
}

fn settled() -> Settled {
    Settled { size: 64 * MIB, evidence: Evidence::default(), identity: Uuid::NIL }
}

fn discard(pool: &mut Pool, number: DiskNumber) -> Result<()> {
    let undecided = pool.undecided(number);
    pool.discard_log(number, &undecided, settled())
}

fn damaged(path: &Path, end: End, wrong: Wrong) -> (DiskNumber, Damage) {
    let (number, segment, page) = left(path, end);
    let geometry = Pool::open(path, &SHARES).unwrap().geometry();
    let page = if wrong == Wrong::Version { 0 } else { page };
    (number, Damage::new(path, page_offset(geometry, segment, page), wrong))
}

/// The disk is served from an empty log, and goes on in it.
fn is_served_without_it(path: &Path) {
    let wish = wish("db", "file:/db");
    for _ in 0..2 {
        let mut pool = Pool::open(path, &SHARES).unwrap();
        let (number, log) = serve(&mut pool, &wish);
        assert_eq!(log.found.records, []);
        pool.close(number, EndOfSession::Dirty, true, None).unwrap();
    }
}

#[test]
fn a_log_that_cannot_be_read_is_discarded_for_good() {
    for end in [End::Dirty, End::Killed] {
        let folder = folder();
        let path = folder.path().join("flash");
        let (number, _) = damaged(&path, end, Wrong::Version);
        let mut pool = Pool::open(&path, &SHARES).unwrap();
        assert!(pool.undecided(number).dirty.error.unwrap().contains("version"));
        discard(&mut pool, number).unwrap();
        assert_eq!(pool.undecided(number).missing, 0, "{end:?}");
        drop(pool);
        is_served_without_it(&path);
    }
}

#[test]
fn an_orderly_end_says_which_numbers_the_discarded_records_had() {
    let folder = folder();
    let path = folder.path().join("flash");
    let (number, _) = damaged(&path, End::Dirty, Wrong::Version);
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    discard(&mut pool, number).unwrap();
    let (_, log) = serve(&mut pool, &wish("db", "file:/db"));
    assert_eq!(log.found.next_sequence, Sequence(RECORDS + 1), "a number is used twice");
    staging::remove_of(log.disk);
}

/// What a start finds after a kill: all of the log or nothing of it, also when it can be read again.
fn is_refused_or_discarded_whenever_a_kill_comes(wrong: Wrong) {
    for (end, power) in [End::Dirty, End::Killed].into_iter().flat_map(|e| [(e, false), (e, true)])
    {
        let (mut refused, mut discarded) = (0, 0);
        for nth in 1.. {
            let folder = folder();
            let path = folder.path().join("flash");
            let (number, damage) = damaged(&path, end, wrong);
            let mut pool = Pool::open(&path, &SHARES).unwrap();
            let undecided = pool.undecided(number);
            medium::arm(&[(nth, Fate::Dies)]);
            let done = pool.discard_log(number, &undecided, settled());
            drop(pool);
            let is_struck = medium::disarm(&path, power.then_some(nth));
            assert_eq!(is_struck, done.is_err());
            let pool = Pool::open(&path, &SHARES).unwrap();
            let left = pool.undecided(number);
            let is_refused = left.dirty.error.is_some() || left.missing > 0;
            drop(pool);
            if is_refused {
                refused += 1;
                let again = folder.path().join("again");
                std::fs::copy(&path, &again).unwrap();
                damage.mend(&again);
                let pool = Pool::open(&again, &SHARES).unwrap();
                let records = pool.undecided(number).dirty.records;
                let all_or_nothing = [0, RECORDS].contains(&records);
                assert!(all_or_nothing, "{records} records, {end:?}, I/O {nth}");
                drop(pool);
                discard(&mut Pool::open(&path, &SHARES).unwrap(), number).unwrap();
            } else {
                discarded += 1;
            }
            is_served_without_it(&path);
            if !is_struck {
                break;
            }
        }
        // Nothing is missing any more once the progress is at the end that was noted.
        let refused_min = if (wrong, end) == (Wrong::Missing, End::Dirty) { 1 } else { 2 };
        let is_tried = refused >= refused_min && discarded >= 3;
        assert!(is_tried, "{end:?}: {refused} and {discarded}");
    }
}

#[test]
fn whenever_a_kill_comes_an_unreadable_log_is_refused_or_discarded() {
    is_refused_or_discarded_whenever_a_kill_comes(Wrong::Version);
}

#[test]
fn whenever_a_kill_comes_a_log_that_lacks_records_is_refused_or_discarded() {
    is_refused_or_discarded_whenever_a_kill_comes(Wrong::Missing);
}

/// Those that nobody has claimed lie after what the decision knows of.
#[test]
fn a_log_that_lacks_records_is_discarded_with_those_after_the_gap() {
    for end in [End::Dirty, End::Killed] {
        let folder = folder();
        let path = folder.path().join("flash");
        let (number, _) = damaged(&path, end, Wrong::Missing);
        let mut pool = Pool::open(&path, &SHARES).unwrap();
        let undecided = pool.undecided(number);
        assert_eq!((undecided.dirty.records, undecided.missing > 0), (1, true), "{end:?}");
        discard(&mut pool, number).unwrap();
        assert_eq!(pool.undecided(number).missing, 0, "{end:?}");
        drop(pool);
        is_served_without_it(&path);
    }
}
