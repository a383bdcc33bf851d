//! A pool and an image in a folder, opened and left as the daemon does, with somebody else in between.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::SystemTime;

use forebay_backends::{OpenOptions, Uri};
use forebay_core::cache_index::header::RingHeader;
use forebay_core::flash_pool::DiskNumber;
use forebay_core::flash_pool::disk::DiskFlags;
use forebay_core::flash_pool::fence::{self, Verdict};
use forebay_core::ids::Sequence;

use super::claims::check_claim;
use super::sidecar::Found;
use super::*;
use crate::events::EventLog;
use crate::pool::owner::PoolOwner;
use crate::pool::{DiskWish, OpenedLog, Pool, Share, testing};
use crate::tmpfs;

mod cut_log;
mod disk_alone;
mod put_back;
mod replaced;
mod sidecars;
mod times;
mod torn;

const MIB: u64 = 1 << 20;

struct Bed {
    folder: tempfile::TempDir,
    wish: DiskWish,
    /// The sidecar lies in a state folder, as if there were no place beside the image.
    is_apart: bool,
    /// There is a state folder.
    has_state: bool,
}

/// A disk that is served.
struct Served {
    pool: Pool,
    number: DiskNumber,
    fence: Fence,
    log: OpenedLog,
    _staged: Staged,
}

/// What a disk has staged, which goes with this.
struct Staged(Uuid);

impl Drop for Staged {
    fn drop(&mut self) {
        crate::pool::staging::remove_of(self.0);
    }
}

/// A disk that ends so, with nothing under way.
fn leaving(end: EndOfSession) -> Leaving {
    Leaving { end, is_quiet: true, log_end: None }
}

impl Bed {
    fn new() -> Bed {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("db.raw"), vec![1; 8 << 20]).unwrap();
        let uri = format!("file:{}", folder.path().join("db.raw").display());
        let wish = DiskWish {
            name: "db".into(),
            uri,
            size: 8 * MIB,
            block_size: 8192,
            grid_offset: None,
            mode: "write-back".into(),
            log_bytes: 4 * MIB,
            read_only: false,
            is_deferred: false,
            identity: Uuid::NIL,
            is_staged: false,
            is_exclusive: false,
            takes_over: None,
        };
        Bed { folder, wish, is_apart: false, has_state: false }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn image(&self) -> File {
        File::options().write(true).open(self.path("db.raw")).unwrap()
    }

    fn pool(&self) -> Pool {
        Pool::open(&self.path("pool"), &[Share { cache: MIB, ring: MIB, log: 4 * MIB }]).unwrap()
    }

    fn probe(&self) -> Probe {
        let uri: Uri = self.wish.uri.parse().unwrap();
        let options = OpenOptions { read_only: self.wish.read_only, ..Default::default() };
        forebay_backends::open(&uri, options).unwrap().probe().unwrap()
    }

    fn place(&self) -> SidecarPlace {
        self.sides().1
    }

    fn sides(&self) -> (Option<Probe>, SidecarPlace) {
        let probe = Some(self.probe());
        let place = match self.is_apart {
            true => SidecarPlace::Apart(self.path("state/db.forebay")),
            false => SidecarPlace::of(probe.as_ref(), None),
        };
        (probe, place)
    }

    fn examine(&self, pool: &mut Pool) -> Result<(DiskNumber, Examined)> {
        let size = fs::metadata(self.path("db.raw")).unwrap().len();
        let wish = DiskWish { size, ..self.wish.clone() };
        let number = pool.admit(&wish).unwrap();
        let state = Some(self.path("state")).filter(|_| self.has_state);
        let examined = examine(pool, number, &wish, self.sides(), state.as_deref())?;
        Ok((number, examined.note(pool, number)?))
    }

    fn verdict(&self) -> Verdict {
        self.examine(&mut self.pool()).unwrap().1.verdict
    }

    /// Opens the disk; `steps` of: pending, sidecar, log, committed, last write.
    fn open(&self, steps: usize) -> Option<Served> {
        self.open_with(|step| step < steps)
    }

    /// Opens the disk, and does something after so many of its steps.
    fn open_and(&self, steps: usize, then: impl Fn(&Bed)) -> Served {
        let goes_on = |step| {
            if step == steps {
                then(self);
            }
            true
        };
        self.open_with(goes_on).unwrap()
    }

    /// Opens the disk as long as it goes on after a number of steps.
    fn open_with(&self, goes_on: impl Fn(usize) -> bool) -> Option<Served> {
        let mut pool = self.pool();
        let (number, examined) = self.examine(&mut pool).unwrap();
        if !goes_on(0) {
            return None;
        }
        let generation = examined.begin_session(&mut pool, number).unwrap();
        if !goes_on(1) {
            return None;
        }
        let mut notes = Vec::new();
        let mut fence = examined.begin(&pool, number, true, &mut notes).unwrap();
        assert_eq!(notes, []);
        if !goes_on(2) {
            return None;
        }
        let log = pool.open_log(number, generation, None).unwrap();
        if !goes_on(3) {
            return None;
        }
        let found = fence.found(&pool.record(number), log.is_dirty());
        pool.commit_session(number, &self.wish, &log.segments(), found).unwrap();
        if !goes_on(4) {
            return None;
        }
        fence.follow(true, &mut notes).unwrap();
        let _staged = Staged(log.disk);
        Some(Served { pool, number, fence, log, _staged })
    }

    fn serve(&self) -> Served {
        self.open(5).unwrap()
    }

    fn sidecar(&self) -> Sidecar {
        match sidecar::read(Some(&self.path("db.raw.forebay"))) {
            Found::There(sidecar) => sidecar,
            other => panic!("{other:?}"),
        }
    }
}

impl Served {
    /// Left in order.
    fn leave(mut self, end: EndOfSession) {
        let last = self.fence.last_look().expect("nobody writes");
        self.pool.close(self.number, end, true, Some(last)).unwrap();
        self.fence.leave(end, true, true).unwrap();
    }

    /// As the shard when a write is durable in the log: that of this number, and the first group of the session.
    fn append(&self, number: u64) {
        let tail = self.log.tail;
        let place = (tail.segment, tail.page);
        let of = (self.log.found.next_group, Sequence(number));
        testing::append(&self.pool, &self.log, place, of).unwrap();
    }

    /// As the shard when it writes to primary storage.
    fn write(&self, bed: &Bed, at: u64) {
        bed.image().write_all_at(&[9; 512], at).unwrap();
        self.fence.last_write.as_ref().unwrap().note_write();
    }
}

#[test]
fn the_primary_storage_that_is_served_is_flushed_wherever_it_is_by_now() {
    let bed = Bed::new();
    let served = bed.serve();
    served.fence.flush_primary(false, true).unwrap();
    fs::rename(bed.path("db.raw"), bed.path("moved.raw")).unwrap();
    served.fence.flush_primary(false, true).unwrap();
}

/// The kernel tells once of a write that failed, and the start that it tells is not the one that serves.
#[test]
fn a_start_that_fails_at_its_flush_leaves_word_for_the_guest_of_the_next_one() {
    let bed = Bed::new();
    let fails = || {
        unreported_loss::tests::FLUSH_FAILS.set(true);
        let error = bed.examine(&mut bed.pool()).err().expect("the flush fails");
        assert_eq!(error.to_string(), "cannot look at its primary storage");
    };
    let probe = bed.probe().copy();
    let found = || UnreportedLoss::find(Some(&probe));
    if tmpfs::folder().is_none() {
        return;
    }
    fails();
    bed.examine(&mut bed.pool()).unwrap();
    assert!(found().is_noted());
    // One more changes nothing.
    fails();
    let mut next = found();
    assert!(next.is_noted());
    next.follow(true, 0, 0, || 0);
    next.follow(false, 1, 0, || 0);
    next.follow(false, 1, 1, || 0);
    assert!(!found().is_noted(), "the guest was told");
    // A log has it all, or does not.
    let served = bed.serve();
    for has_log in [true, false] {
        unreported_loss::tests::FLUSH_FAILS.set(true);
        served.fence.flush_primary(false, has_log).unwrap_err();
        assert_eq!(found().is_noted(), !has_log);
        served.fence.flush_primary(false, false).unwrap();
    }
    found().forget();
}

#[test]
fn primary_storage_without_a_place_beside_it_is_claimed_in_the_state_folder() {
    let mut bed = Bed::new();
    bed.is_apart = true;
    bed.serve().leave(EndOfSession::Dirty);
    // The flash is not there: a new pool would serve what is older than the log.
    fs::rename(bed.path("pool"), bed.path("away")).unwrap();
    let error = bed.examine(&mut bed.pool()).err().expect("it is the other pool's").to_string();
    assert!(error.contains("the disk 'db' of another pool"), "{error}");
    assert!(check_claim(None, &bed.place(), None, None).is_err(), "without flash neither");
    fs::remove_file(bed.path("pool")).unwrap();
    fs::rename(bed.path("away"), bed.path("pool")).unwrap();
    bed.serve().leave(EndOfSession::Clean);
    check_claim(None, &bed.place(), None, None).unwrap();
    // A state folder that was put back says nothing of primary storage.
    let old = fs::read(bed.path("state/db.forebay")).unwrap();
    bed.serve().leave(EndOfSession::Clean);
    fs::write(bed.path("state/db.forebay"), old).unwrap();
    assert_eq!(bed.verdict(), Verdict::Weak(fence::Doubt::Sidecar));
    bed.serve().leave(EndOfSession::Detached);
    assert!(!bed.path("state/db.forebay").exists());
    // What cannot be written is told, and refuses nothing.
    fs::remove_dir(bed.path("state")).unwrap();
    fs::write(bed.path("state"), "no folder").unwrap();
    let mut pool = bed.pool();
    let (number, examined) = bed.examine(&mut pool).unwrap();
    pool.begin_session(number).unwrap();
    let mut notes = Vec::new();
    examined.begin(&pool, number, true, &mut notes).unwrap().follow(true, &mut notes).unwrap();
    assert!(notes.len() == 1 && notes[0].1.contains("--state-dir"), "{notes:?}");
}

#[test]
fn a_start_knows_when_the_one_before_did_not_see_the_end_of_what_it_sent() {
    let bed = Bed::new();
    let is_unanswered = |bed: &Bed| bed.examine(&mut bed.pool()).unwrap().1.is_unanswered();
    assert!(!is_unanswered(&bed), "it is new");
    bed.serve().leave(EndOfSession::Dirty);
    assert!(!is_unanswered(&bed));
    drop(bed.serve());
    assert!(is_unanswered(&bed), "killed");
    assert!(bed.open(2).is_none());
    assert!(is_unanswered(&bed), "the one after it did not come to its end");
    let mut served = bed.serve();
    served.pool.close(served.number, EndOfSession::Dirty, false, None).unwrap();
    served.fence.leave(EndOfSession::Dirty, false, false).unwrap();
    drop(served);
    assert!(is_unanswered(&bed), "stopped while primary storage did not answer");
    bed.serve().leave(EndOfSession::Clean);
    assert!(!is_unanswered(&bed));
}

/// A server may have several addresses, and each a sidecar of its own.
#[test]
fn a_start_without_a_sidecar_of_an_export_goes_by_what_the_flash_knows() {
    let mut bed = Bed::new();
    bed.is_apart = true;
    let is_unanswered = |bed: &Bed| bed.examine(&mut bed.pool()).unwrap().1.is_unanswered();
    for killed in [false, true] {
        assert!(!is_unanswered(&bed));
        let served = bed.serve();
        if killed {
            drop(served);
        } else {
            served.leave(EndOfSession::Dirty);
        }
        fs::remove_file(bed.place().path().unwrap()).unwrap();
        assert_eq!(is_unanswered(&bed), killed);
    }
}

fn has_tmpfs() -> bool {
    crate::pool::staging::folder().is_some()
}

#[test]
fn a_disk_that_was_left_in_order_finds_strong_evidence() {
    let bed = Bed::new();
    for end in [EndOfSession::Clean, EndOfSession::Dirty, EndOfSession::Clean] {
        let served = bed.serve();
        assert_eq!(bed.sidecar().state, SidecarState::OpenWithLog);
        served.write(&bed, 4096);
        served.leave(end);
        let expect = match end {
            EndOfSession::Dirty => SidecarState::Dirty,
            _ => SidecarState::Clean,
        };
        assert_eq!(bed.sidecar().state, expect);
        assert_eq!(bed.verdict(), Verdict::Strong, "{end:?}");
    }
    assert_eq!(bed.sidecar().generation, Generation(6), "two for each session");
    bed.serve().leave(EndOfSession::Detached);
    assert!(!bed.path("db.raw.forebay").exists());
}

#[test]
fn a_start_that_dies_between_the_steps_is_judged_from_the_same_facts() {
    for steps in 0..5 {
        let bed = Bed::new();
        bed.serve().leave(EndOfSession::Clean);
        for _ in 0..2 {
            assert!(bed.open(steps).is_none());
        }
        // Between the commit and the note of the last write nobody knows what was written: that is the one weak moment.
        let expect = match steps {
            4 => Verdict::Weak(fence::Doubt::Unseen),
            _ => Verdict::Strong,
        };
        assert_eq!(bed.verdict(), expect, "died after {steps} steps");
        // And whoever wrote meanwhile is found, whichever step it was.
        let image = bed.image();
        image.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        let verdict = bed.verdict();
        assert!(matches!(verdict, Verdict::Mismatch(_)), "{steps} steps: {verdict:?}");
    }
}

#[test]
fn a_cache_that_must_not_be_believed_is_given_up_before_a_start_takes_over_what_says_so() {
    for steps in 0..5 {
        let bed = Bed::new();
        let mut served = bed.serve();
        let (pool, number) = (&mut served.pool, served.number);
        pool.take_cache(number, MIB).unwrap();
        let header = RingHeader {
            disk: pool.disk_uuid(number),
            generation: Generation(1),
            nonce: 5,
            disk_size: 8 * MIB,
            block_size: 8192,
            slots: 64,
            pages: 20,
        };
        pool.begin_ring(number, MIB, &header).unwrap().expect("there is room");
        served.leave(EndOfSession::Clean);
        let mut pool = bed.pool();
        assert!(pool.take_cache(number, MIB).unwrap().former.is_some());
        drop(pool);
        // Flash that had failed could not say so itself.
        let own = bed.sidecar();
        let ahead = Sidecar { generation: Generation(own.generation.0 + 1), ..own };
        sidecar::write(&bed.path("db.raw.forebay"), &ahead).unwrap();
        assert!(bed.open(steps).is_none());
        assert_eq!(bed.pool().take_cache(number, MIB).unwrap().former, None, "{steps} steps");
    }
}

#[tokio::test]
async fn a_pool_that_cannot_be_written_leaves_the_evidence_of_a_dirty_disk_as_after_a_kill() {
    if !has_tmpfs() {
        return;
    }
    let bed = Bed::new();
    let served = bed.serve();
    served.write(&bed, 0);
    let Served { mut pool, number, fence, log, _staged } = served;
    drop(log);
    pool.has_failed = true;
    let (_events, sender) = EventLog::start(None).unwrap();
    let (owner, handle) = PoolOwner::start(Arc::new(Mutex::new(pool)), sender).unwrap();
    let place = DiskPlace::new(Some((handle, number)), Some(fence), Guard::Itself);
    place.leave(leaving(EndOfSession::Dirty), || false).unwrap();
    drop((place, owner, _staged));
    assert_eq!(bed.sidecar().state, SidecarState::OpenWithLog);
    assert_eq!(bed.verdict(), Verdict::Strong);
    bed.image().set_modified(SystemTime::now() + Duration::from_secs(3)).unwrap();
    assert!(matches!(bed.verdict(), Verdict::Mismatch(fence::Change::Modified { .. })));
}
