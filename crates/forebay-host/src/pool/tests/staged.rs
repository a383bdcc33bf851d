//! What a killed session had in its staging file, and what became of that.

use forebay_core::geometry::ByteRange;
use forebay_core::ids::{FlushEpoch, GroupNumber, Sequence};
use forebay_core::sealed::{Page, crc32c};
use forebay_core::write_back::format::group::{self, Entry, GroupHeader, RecordKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use super::*;
use crate::pool::staging::{Fault, Staging};

const PAGE: usize = 4096;

/// A pool with a disk whose session was killed.
struct Killed {
    flash: tempfile::TempDir,
    number: DiskNumber,
    disk: Uuid,
}

/// Kills a session with one acknowledged write, which only its staging file has where there is one.
fn killed(is_staged: bool) -> Killed {
    let flash = tempfile::tempdir().unwrap();
    let mut pool = open(&flash.path().join("flash"), &[share(5, 4)]).unwrap();
    let (number, mut log) = serve(&mut pool, &DiskWish { is_staged, ..wish("db", "file:/db") });
    assert_eq!(log.staging_lost, None);
    let staging = log.staging.take().expect("there is a folder on tmpfs");
    let pages = pool.geometry().segment_pages();
    staging.renew(log.disk, log.generation, pages).unwrap();
    if is_staged {
        stage(&staging, &log, 1);
    }
    Killed { flash, number, disk: log.disk }
}

/// Stores a write of this number, one page of sevens, as the shard does in memory.
pub(super) fn stage(staging: &Staging, log: &OpenedLog, number: u64) {
    let mut page: Page = [0; PAGE];
    let header = GroupHeader {
        disk: log.disk,
        generation: log.generation,
        number: GroupNumber(number),
        first_sequence: Sequence(number),
        durable: Sequence(0),
        nonce: log.nonce,
        phase: 0,
    };
    group::begin(&mut page, &header);
    let entry = Entry {
        range: ByteRange { start: 0, end: PAGE as u64 },
        epoch: FlushEpoch(1 << 20),
        kind: RecordKind::Write,
        more: false,
    };
    group::append(&mut page, &entry, &[crc32c(&[7; PAGE])]);
    staging.file().write_all_at(&page, PAGE as u64).unwrap();
    staging.file().write_all_at(&[7; PAGE], 2 * PAGE as u64).unwrap();
}

impl Killed {
    fn path(&self) -> PathBuf {
        staging::folder().unwrap().join(format!("forebay-{}.staging", self.disk))
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.path()).unwrap()
    }

    /// What `pool show` and `pool check` tell, offline.
    fn told(&self) -> Option<String> {
        let path = self.flash.path().join("flash");
        let shown = report::show(&path).unwrap().disks.remove(0).staging_fault;
        let errors = check::check(&path).unwrap().errors;
        let expected: Vec<String> = shown.iter().map(|why| format!("disk 'db': {why}")).collect();
        assert_eq!(errors, expected);
        shown
    }

    /// Starts again, with the staging file in `folder`: what is wrong with it, and how many writes it had.
    fn start_in(&self, folder: Option<&Path>) -> (Option<Fault>, u64) {
        let mut pool = open(&self.flash.path().join("flash"), &[share(5, 4)]).unwrap();
        let generation = pool.begin_session(self.number).unwrap();
        let log = pool.open_log_in(folder, self.number, generation, None).unwrap();
        (log.staging_lost, log.adopted)
    }

    fn start(&self) -> (Option<Fault>, u64) {
        self.start_in(staging::folder().as_deref())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        staging::remove_of(self.disk);
    }
}

#[test]
fn what_a_killed_session_had_staged_goes_on() {
    let killed = killed(true);
    assert_eq!(killed.told(), None);
    assert_eq!(killed.start(), (None, 1));
}

#[test]
fn a_staging_file_that_is_gone_is_missed() {
    let killed = killed(true);
    assert_eq!(killed.start_in(None), (Some(Fault::Missing), 0), "a start without a folder");
    staging::remove_of(killed.disk);
    assert!(killed.told().unwrap().contains("is gone"));
    assert_eq!(killed.start(), (Some(Fault::Missing), 0));
    // That start did not come to its end; it left an empty one.
    assert!(matches!(killed.start(), (Some(Fault::Damaged(_)), 0)));
}

#[test]
fn a_session_without_a_staging_file_misses_none() {
    let killed = killed(false);
    staging::remove_of(killed.disk);
    assert_eq!((killed.told(), killed.start()), (None, (None, 0)));
}

#[test]
fn a_session_that_ended_in_order_needs_none() {
    let killed = killed(true);
    let mut pool = open(&killed.flash.path().join("flash"), &[share(5, 4)]).unwrap();
    pool.admit(&wish("db", "file:/db")).unwrap();
    pool.close(killed.number, EndOfSession::Clean, true, None).unwrap();
    drop(pool);
    assert_eq!((killed.told(), killed.start()), (None, (None, 0)));
}

/// The start tells of a staging file that was treated like this, and uses so many writes of it.
fn check_damaged(what: &str, left: u64, damage: impl FnOnce(&Killed)) {
    let killed = killed(true);
    damage(&killed);
    let told = killed.told().unwrap_or_default();
    assert!(told.contains("is damaged") && told.contains("may be lost"), "{what}: {told}");
    let (fault, adopted) = killed.start();
    assert!(matches!(fault, Some(Fault::Damaged(_))), "{what}: {fault:?}");
    assert_eq!(adopted, left, "{what}");
}

#[test]
fn a_staging_file_that_is_not_what_the_session_had_is_told_of() {
    check_damaged("emptied", 0, |killed| killed.file().set_len(0).unwrap());
    check_damaged("cut short", 1, |killed| {
        let len = killed.file().metadata().unwrap().len();
        killed.file().set_len(len - 1).unwrap();
    });
    check_damaged("zeroed", 0, |killed| {
        let len = killed.file().metadata().unwrap().len() as usize;
        killed.file().write_all_at(&vec![0; len], 0).unwrap();
    });
    check_damaged("another file", 0, |killed| {
        let len = killed.file().metadata().unwrap().len() as usize;
        std::fs::remove_file(killed.path()).unwrap();
        std::fs::write(killed.path(), vec![b'x'; len]).unwrap();
    });
    check_damaged("bytes of a record changed", 0, |killed| {
        killed.file().write_all_at(&[8], 2 * PAGE as u64 + 100).unwrap();
    });
    check_damaged("an impossible header", 0, |killed| {
        killed.file().write_all_at(&[255], PAGE as u64 + 12).unwrap();
    });
}

#[test]
fn a_staging_file_of_another_disk_or_session_is_told_of() {
    let stamp = |killed: &Killed, disk: Uuid, generation: u64| {
        let staging = Staging::open(&staging::folder().unwrap(), killed.disk).unwrap();
        staging.renew(disk, Generation(generation), 4096).unwrap();
    };
    check_damaged("another disk", 0, |killed| stamp(killed, Uuid([9; 16]), 1));
    check_damaged("an older session", 0, |killed| stamp(killed, killed.disk, 0));
    check_damaged("a later session", 0, |killed| stamp(killed, killed.disk, 9));
}

#[test]
fn a_start_that_had_emptied_the_file_and_was_killed_is_none_to_tell_of() {
    let killed = killed(true);
    let mut pool = open(&killed.flash.path().join("flash"), &[share(5, 4)]).unwrap();
    let generation = pool.begin_session(killed.number).unwrap();
    let log = pool.open_log(killed.number, generation, None).unwrap();
    assert_eq!(log.adopted, 1);
    let staging = log.staging.as_ref().unwrap();
    staging.renew(log.disk, generation, pool.geometry().segment_pages()).unwrap();
    drop((log, pool));
    assert_eq!(killed.told(), None);
    let mut pool = open(&killed.flash.path().join("flash"), &[share(5, 4)]).unwrap();
    let generation = pool.begin_session(killed.number).unwrap();
    let log = pool.open_log(killed.number, generation, None).unwrap();
    assert_eq!((log.staging_lost, log.found.records.len()), (None, 1), "it is in the log");
}

#[test]
fn a_staging_file_takes_memory_for_small_groups_until_it_grows() {
    let folder = staging::folder().expect("there is a folder on tmpfs");
    let disk = Uuid(crate::pool::host::random().unwrap());
    let staging = Staging::open(&folder, disk).unwrap();
    let memory = || staging.file().metadata().unwrap().blocks() * 512;
    for generation in 1..3 {
        staging.renew(disk, Generation(generation), 4096).unwrap();
        // 32 pages for each of three groups, the page that does not matter, and the stamp.
        assert_eq!(memory(), (3 * 32 + 2) * PAGE as u64);
        staging.grow().unwrap();
        assert_eq!(memory(), (3 * 258 + 2) * PAGE as u64);
    }
    staging.remove().unwrap();
}
