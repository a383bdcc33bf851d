//! A damaged log that an administrator accepts: it goes on up to the damage, and nothing behind that is used.

use forebay_core::flash_pool::disk::{DiskFlags, Evidence};
use forebay_core::ids::Sequence;
use std::os::unix::fs::FileExt;

use super::super::file::medium;
use super::super::resolve::{Settled, Undecided};
use super::faults::{Session, Told};
use super::staged::stage;
use super::*;

/// What a session left that was killed: its groups of one write each lie one behind the other.
struct Left {
    flash: tempfile::TempDir,
    number: DiskNumber,
    disk: Uuid,
    /// Where its first group is.
    first: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        staging::remove_of(self.disk);
    }
}

/// A session with so many groups on flash, and one behind them in its staging file.
fn left(groups: u64, is_staged: bool) -> Left {
    let flash = tempfile::tempdir().unwrap();
    let mut pool = open(&flash.path().join("flash"), &[share(5, 4)]).unwrap();
    let wish = DiskWish { is_staged, ..wish("db", "file:/db") };
    let mut told = Told::default();
    let mut session = Session::open(&mut pool, &wish, &mut told).unwrap();
    let staging = session.log.staging.take().expect("there is a folder on tmpfs");
    staging
        .renew(session.log.disk, session.log.generation, pool.geometry().segment_pages())
        .unwrap();
    for _ in 0..groups {
        session.append(&pool, &mut told).unwrap();
    }
    if is_staged {
        stage(&staging, &session.log, groups + 1);
    }
    let (number, log) = (session.number, &session.log);
    let first = page_offset(pool.geometry(), log.tail.segment, log.tail.page);
    Left { number, disk: log.disk, first, flash }
}

impl Left {
    fn path(&self) -> std::path::PathBuf {
        self.flash.path().join("flash")
    }

    fn pool(&self) -> Pool {
        open(&self.path(), &[share(5, 4)]).unwrap()
    }

    /// Where the header of a group is, counted from one.
    fn group(&self, number: u64) -> u64 {
        self.first + (number - 1) * 2 * PAGE
    }

    /// A group is not there any more.
    fn rot(&self, number: u64) {
        let file = std::fs::File::options().write(true).open(self.path()).unwrap();
        file.write_all_at(&[0; 4096], self.group(number)).unwrap();
    }

    /// Its log is refused, and shown with so many writes that can be used, and others that are lost.
    fn check_cut(&self, pool: &mut Pool, why: &str, records: u64, missing: u64) -> Undecided {
        let generation = pool.begin_session(self.number).unwrap();
        let refused = pool.open_log(self.number, generation, None).unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("disk resolve"), "{refused}");
        let undecided = pool.undecided(self.number);
        assert_eq!(undecided.dirty.error, None);
        assert_eq!((undecided.dirty.records, undecided.missing), (records, missing));
        assert!(undecided.cut.is_some());
        undecided
    }

    /// It is used, and goes on with so many writes of it, also after starts that died.
    fn check_used(&self, pool: &mut Pool, undecided: &Undecided, records: usize) {
        pool.use_log(self.number, undecided, settled()).unwrap();
        for is_last in [false, false, true] {
            let generation = pool.begin_session(self.number).unwrap();
            let log = pool.open_log(self.number, generation, None).unwrap();
            assert_eq!(log.found.records.len(), records);
            if is_last {
                let wish = wish("db", "file:/db");
                pool.commit_session(self.number, &wish, &log.segments(), Default::default())
                    .unwrap();
            }
        }
        let after = pool.undecided(self.number);
        assert_eq!((after.cut, after.dirty.records), (None, records as u64));
    }

    /// It is discarded, and nothing of it comes back.
    fn check_discarded(&self, pool: &mut Pool, undecided: &Undecided) {
        pool.discard_log(self.number, undecided, settled()).unwrap();
        let generation = pool.begin_session(self.number).unwrap();
        let log = pool.open_log(self.number, generation, None).unwrap();
        assert_eq!((log.found.records.len(), log.adopted, log.staging_lost), (0, 0, None));
    }
}

fn settled() -> Settled {
    Settled { size: 64 * MIB, evidence: Evidence::default(), identity: Uuid::NIL }
}

#[test]
fn a_log_with_a_hole_before_its_staging_file_is_used_up_to_the_hole() {
    // Of four groups the last one on flash claims the one before it; with two nothing claims the last one.
    for (groups, gone, why) in
        [(3, 2, "records up to 2 were durable"), (2, 2, "nor in the staging file")]
    {
        let lost = groups + 1 - (gone - 1);
        let left = left(groups, true);
        left.rot(gone);
        let mut pool = left.pool();
        let undecided = left.check_cut(&mut pool, why, gone - 1, lost);
        left.check_used(&mut pool, &undecided, (gone - 1) as usize);
        let left = self::left(groups, true);
        left.rot(gone);
        let mut pool = left.pool();
        let undecided = left.check_cut(&mut pool, why, gone - 1, lost);
        left.check_discarded(&mut pool, &undecided);
    }
}

#[test]
fn a_log_with_a_page_that_cannot_be_read_is_used_up_to_there() {
    // The header of the third group, its data, and a page behind the end.
    for (page, records, missing) in [(4, 2, 1), (5, 2, 1), (8, 4, 0), (20, 4, 0)] {
        let left = left(4, false);
        let mut pool = left.pool();
        medium::spoil(&[left.first + page * PAGE]);
        let undecided = left.check_cut(&mut pool, "cannot read segment", records, missing);
        left.check_used(&mut pool, &undecided, records as usize);
        medium::disarm(&left.path(), None);
    }
}

#[test]
fn a_flash_that_reads_worse_after_the_decision_needs_another_one() {
    let left = left(4, false);
    let mut pool = left.pool();
    medium::spoil(&[left.group(3)]);
    let undecided = left.check_cut(&mut pool, "cannot read segment", 2, 1);
    pool.use_log(left.number, &undecided, settled()).unwrap();
    assert_eq!(pool.record(left.number).log_end, Sequence(2));
    medium::disarm(&left.path(), None);
    medium::spoil(&[left.group(2)]);
    let again = left.check_cut(&mut pool, "records up to 2 were durable", 1, 2);
    left.check_used(&mut pool, &again, 1);
    medium::disarm(&left.path(), None);
}

#[test]
fn a_decision_about_a_log_that_is_whole_again_takes_the_one_before_back() {
    let left = left(4, false);
    let mut pool = left.pool();
    medium::spoil(&[left.group(3)]);
    let undecided = left.check_cut(&mut pool, "cannot read segment", 2, 1);
    pool.use_log(left.number, &undecided, settled()).unwrap();
    medium::disarm(&left.path(), None);
    let whole = pool.undecided(left.number);
    assert_eq!((&whole.cut, whole.dirty.records), (&None, 4));
    pool.use_log(left.number, &whole, settled()).unwrap();
    assert_eq!(pool.record(left.number).log_end, Sequence(4));
    medium::spoil(&[left.group(3)]);
    let again = left.check_cut(&mut pool, "cannot read segment", 2, 2);
    left.check_used(&mut pool, &again, 2);
    medium::disarm(&left.path(), None);
}

#[test]
fn a_decision_of_a_former_version_is_about_missing_records_alone() {
    let decide = |pool: &mut Pool, left: &Left| {
        let mut record = pool.record(left.number);
        record.flags.0 |= DiskFlags::ACCEPT_MISSING.0;
        record.log_end = Sequence(0);
        pool.tables.set_disk(&pool.file, left.number, Some(record)).unwrap();
    };
    let left = left(4, false);
    let mut pool = left.pool();
    decide(&mut pool, &left);
    medium::spoil(&[left.group(3)]);
    let undecided = left.check_cut(&mut pool, "cannot read segment", 2, 1);
    left.check_used(&mut pool, &undecided, 2);
    medium::disarm(&left.path(), None);
    let left = self::left(4, false);
    let mut pool = left.pool();
    decide(&mut pool, &left);
    left.rot(2);
    let generation = pool.begin_session(left.number).unwrap();
    let log = pool.open_log(left.number, generation, None).unwrap();
    assert_eq!(log.found.records.len(), 1);
}

#[test]
fn a_log_of_which_nothing_can_be_read_is_not_used() {
    let left = left(4, false);
    let mut pool = left.pool();
    medium::spoil(&[left.group(1)]);
    let undecided = left.check_cut(&mut pool, "cannot read segment", 0, 3);
    assert!(undecided.leaves_nothing() && undecided.is_unreadable);
    medium::disarm(&left.path(), None);
    left.check_discarded(&mut pool, &undecided);
}
