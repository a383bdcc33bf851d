//! Everything that the daemon does to a pool, with the first, second, third, … I/O failing, and what a start finds
//! after it, with power lost or not.

use std::os::unix::fs::FileExt;

use forebay_core::flash_pool::disk::Evidence;
use forebay_core::flash_pool::progress::Progress;
use forebay_core::flash_pool::{PairId, SUPERBLOCKS};
use forebay_core::ids::{GroupNumber, Sequence, Uuid};
use forebay_core::write_back::format::recover::RecordPlace;
use forebay_core::write_back::format::segment::SegmentHeader;

use super::super::file::PoolPage;
use super::super::file::medium::{self, Fate};
use super::super::testing::{self, data, epoch};
use super::*;

/// What the guest was told, and what it was not, over all runs.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The last record that was durable.
    durable: u64,
    /// The last record that may be there.
    written: u64,
    /// Records that may be freed: primary storage has them.
    flushed: u64,
    /// No generation up to here may be given out again.
    generation: u64,
    /// Reservations that were durable last, and those that may be.
    reserved: Vec<u8>,
    maybe_reserved: Option<Vec<u8>>,
    /// The disk, which stays the same until it is detached.
    disk: Option<Uuid>,
    /// It was detached, or that was tried.
    detached: bool,
}

/// A session of the disk, as a shard has it.
pub(super) struct Session {
    pub(super) number: DiskNumber,
    pub(super) log: OpenedLog,
    segment: SegmentId,
    page: u32,
    group: GroupNumber,
    next: Sequence,
}

impl Session {
    /// Opens the disk as the daemon does, and looks at what is there.
    pub(super) fn open(pool: &mut Pool, wish: &DiskWish, told: &mut Told) -> Result<Session> {
        let number = pool.admit(wish)?;
        told.meet(pool.record(number).uuid);
        told.check_reservations(pool.reservations(number)?);
        let generation = pool.begin_session(number)?;
        assert!(generation.0 > told.generation, "generation {generation:?} was given out before");
        told.generation = generation.0;
        let log = pool.open_log(number, generation, Some(0))?;
        told.check(pool, &log);
        pool.commit_session(number, wish, &log.segments(), (Evidence::default(), false))?;
        let (group, next) = (log.found.next_group, log.found.next_sequence);
        Ok(Session { number, segment: log.tail.segment, page: log.tail.page, group, next, log })
    }

    /// Writes a durable group of one record.
    pub(super) fn append(&mut self, pool: &Pool, told: &mut Told) -> Result<()> {
        told.written = told.written.max(self.next.0);
        let (place, number) = ((self.segment, self.page), (self.group, self.next));
        testing::append(pool, &self.log, place, number)?;
        told.durable = self.next.0;
        (self.page, self.group.0, self.next) = (self.page + 2, self.group.0 + 1, self.next.plus(1));
        Ok(())
    }

    /// Goes on in another segment.
    pub(super) fn next_segment(&mut self, pool: &mut Pool) -> Result<()> {
        let held = pool.lease_log(self.number).context("no lease")?;
        self.go_on_in(pool, held)
    }

    /// Goes on in the segment that it has, which primary storage has all of.
    fn renew(&mut self, pool: &mut Pool) -> Result<()> {
        let mut leases = pool.log_leases(self.number).into_iter();
        let held = leases.find(|(segment, _)| *segment == self.segment).context("not held")?;
        let renewed = pool.renew_log(held).context("not renewed")?;
        assert_eq!(renewed.0, self.segment);
        // Nobody frees it with the lease that has ended.
        assert_eq!(pool.free(&[held]), Some(vec![self.segment]));
        self.go_on_in(pool, renewed)
    }

    fn go_on_in(&mut self, pool: &Pool, (segment, lease): Held) -> Result<()> {
        let header = SegmentHeader {
            disk: self.log.disk,
            generation: self.log.generation,
            ordinal: lease.ordinal,
            first_group: self.group,
            first_sequence: self.next,
            durable: Sequence(self.next.0 - 1),
            epoch: epoch(self.next),
            nonce: self.log.nonce,
            segment,
            phase: 0,
        };
        let mut page = PoolPage::ZERO;
        header.encode(&mut page.0);
        pool.file.write(page_offset(pool.geometry(), segment, 0), std::slice::from_ref(&page))?;
        pool.file.sync()?;
        (self.segment, self.page) = (segment, 1);
        Ok(())
    }

    /// Stores reservations, each time others.
    fn reserve(&self, pool: &mut Pool, told: &mut Told) -> Result<()> {
        let before = told.maybe_reserved.as_ref().unwrap_or(&told.reserved);
        let state = vec![before.first().map_or(1, |byte| byte + 1); 40];
        told.maybe_reserved = Some(state.clone());
        ensure!(pool.set_reservations(self.number, state.clone()), "not stored");
        (told.reserved, told.maybe_reserved) = (state, None);
        Ok(())
    }

    /// Primary storage has all of it; what is noted is what frees segments.
    fn destage(&self, pool: &mut Pool, told: &mut Told) -> Result<()> {
        let flushed = Sequence(self.next.0 - 1);
        told.flushed = flushed.0;
        let progress = Progress { disk: self.log.disk, flushed, through: flushed };
        pool.tables.set_progress(&pool.file, self.number, progress)?;
        Ok(())
    }
}

impl Told {
    /// The pool says that the disk is this one.
    fn meet(&mut self, disk: Uuid) {
        if self.disk != Some(disk) {
            assert!(self.disk.is_none() || self.detached, "it was {:?}, and is {disk}", self.disk);
            *self = Told { disk: Some(disk), ..Told::default() };
        }
        self.detached = false;
    }

    /// Reservations are those that were durable last, or were being stored.
    fn check_reservations(&mut self, found: Vec<u8>) {
        let maybe = self.maybe_reserved.take();
        assert!(found == self.reserved || Some(&found) == maybe.as_ref(), "{found:?} {self:?}");
        self.reserved = found;
    }

    /// What was durable is there, with its bytes, unless primary storage has it.
    fn check(&mut self, pool: &Pool, log: &OpenedLog) {
        let next = log.found.next_sequence.0;
        assert!(next > self.durable, "the log ends at {next}, {} was durable", self.durable);
        let first = log.found.records.first().map_or(next, |record| record.sequence.0);
        assert!(first <= self.flushed + 1, "records from {first}, flushed was {}", self.flushed);
        for record in &log.found.records {
            assert!(record.sequence.0 <= self.written.max(self.durable));
            let RecordPlace::Log { segment, page } = record.place else { panic!("{record:?}") };
            let mut found = PoolPage::ZERO;
            // Beside the pool: this I/O is no part of what is tried.
            let file = std::fs::File::open(pool.file.path()).unwrap();
            let offset = page_offset(pool.geometry(), segment, page);
            file.read_exact_at(&mut found.0, offset).unwrap();
            assert!(found.0 == data(record.sequence.0).0, "{record:?}");
        }
        (self.durable, self.written) = (next - 1, next - 1);
    }
}

const SHARES: [Share; 1] = [Share { cache: 2 * MIB, ring: MIB, log: 3 * MIB }];

/// The life of a disk: two sessions, the first left as by a crash, more segments, destaging, each kind of end.
fn life(path: &Path, told: &mut Told) -> Result<()> {
    let wish = wish("db", "file:/db");
    let mut pool = Pool::open(path, &SHARES)?;
    let mut session = Session::open(&mut pool, &wish, told)?;
    pool.take_cache(session.number, 2 * MIB)?;
    pool.begin_ring(session.number, MIB, &cache::ring_header(&pool, session.number, 256))?;
    pool.take_cache(session.number, 3 * MIB)?;
    pool.trim_cache(session.number, MIB)?;
    session.append(&pool, told)?;
    session.reserve(&mut pool, told)?;
    session.append(&pool, told)?;
    session.reserve(&mut pool, told)?;
    drop((pool, session));
    let mut pool = Pool::open(path, &SHARES)?;
    let mut session = Session::open(&mut pool, &wish, told)?;
    session.append(&pool, told)?;
    session.next_segment(&mut pool)?;
    session.append(&pool, told)?;
    session.destage(&mut pool, told)?;
    session.reserve(&mut pool, told)?;
    let old = session.log.segments();
    pool.free_log(session.number, |segment| old.contains(&segment))?;
    session.append(&pool, told)?;
    session.destage(&mut pool, told)?;
    session.renew(&mut pool)?;
    session.append(&pool, told)?;
    pool.close(session.number, EndOfSession::Dirty, true, None)?;
    drop((pool, session));
    let mut pool = Pool::open(path, &SHARES)?;
    let session = Session::open(&mut pool, &wish, told)?;
    session.destage(&mut pool, told)?;
    pool.close(session.number, EndOfSession::Clean, true, None)?;
    drop((pool, session));
    let mut pool = Pool::open(path, &SHARES)?;
    let session = Session::open(&mut pool, &wish, told)?;
    told.detached = true;
    pool.close(session.number, EndOfSession::Detached, true, None).map(|_| ())
}

const FATES: [Fate; 4] = [Fate::Fails, Fate::Tears, Fate::Lies, Fate::Dies];

/// In memory: what is flushed, and what is not, the medium under test decides.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Does `work` with each of its I/Os meeting each fate, then starts again until all is well.
fn sweep(
    work: impl Fn(&Path, &mut Told) -> Result<()>,
    start: &Path,
    fates: &[Fate],
    ios_min: u64,
) {
    for (fate, power) in fates.iter().flat_map(|&fate| [(fate, false), (fate, true)]) {
        for nth in 1.. {
            let folder = folder();
            let path = folder.path().join("flash");
            std::fs::copy(start, &path).unwrap();
            let mut told = Told::default();
            medium::arm(&[(nth, fate)]);
            let ended = work(&path, &mut told);
            let was_read = medium::has_struck_read();
            let is_struck = medium::disarm(&path, power.then_some(nth));
            // A table that could not be read is read again.
            let may_go_well = was_read && fate != Fate::Dies;
            let is_as_told = is_struck == ended.is_err() || may_go_well;
            assert!(is_as_told, "I/O {nth} {fate:?}: {ended:?}");
            let again = work(&path, &mut told);
            assert!(again.is_ok(), "after I/O {nth} {fate:?}, power lost: {power}: {again:?}");
            if !is_struck {
                assert!(nth > ios_min, "there are {nth} I/Os");
                break;
            }
        }
    }
}

#[test]
fn whichever_io_fails_a_pool_opens_again_and_holds_what_was_durable() {
    let folder = folder();
    let made = folder.path().join("made");
    drop(Pool::open(&made, &SHARES).unwrap());
    sweep(life, &made, &FATES, 50);
}

#[test]
fn whichever_io_fails_a_pool_that_was_not_finished_is_made_again() {
    let make = |path: &Path, _: &mut Told| Pool::open(path, &SHARES).map(drop);
    // A file that the start itself made goes when it fails.
    let folder = folder();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, []).unwrap();
    sweep(make, &empty, &[Fate::Tears], 130);
}

#[test]
fn whichever_io_fails_show_and_check_say_so_and_change_nothing() {
    let folder = folder();
    let path = folder.path().join("flash");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let mut told = Told::default();
    let mut session = Session::open(&mut pool, &wish("db", "file:/db"), &mut told).unwrap();
    session.append(&pool, &mut told).unwrap();
    drop((pool, session));
    let before = std::fs::read(&path).unwrap();
    let whole = (report::show(&path).unwrap(), check::check(&path).unwrap());
    for nth in 1.. {
        medium::arm(&[(nth, Fate::Fails)]);
        let shown = report::show(&path);
        let checked = check::check(&path);
        if !medium::disarm(&path, None) {
            assert!(checked.unwrap().errors.is_empty());
            break;
        }
        // A table is read again, and nothing is missing then.
        let is_same = |shown: report::PoolReport| {
            let has_error = shown.disks.iter().any(|disk| disk.error.is_some());
            has_error || shown == whole.0
        };
        let is_noticed = shown.map_or(true, is_same)
            && checked.map_or(true, |report| !report.errors.is_empty() || report == whole.1);
        assert!(is_noticed, "I/O {nth} went unnoticed");
    }
    assert!(std::fs::read(&path).unwrap() == before);
    staging::remove_of(told.disk.expect("it was opened"));
}

/// A page pair is written again after its flush failed: over the same copy, or a loss of power would leave none.
#[test]
fn tables_outlive_a_failed_flush_and_a_loss_of_power_in_the_next_write() {
    let fates = [Fate::Fails, Fate::FailsElsewhere];
    for (seed, fate) in (0..16).flat_map(|seed| fates.map(|fate| (seed, fate))) {
        let folder = folder();
        let path = folder.path().join("flash");
        let shares = [share(40, 3)];
        let mut pool = Pool::open(&path, &shares).unwrap();
        let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
        // A write of the leases and its flush, twice: the first flush fails, at the second one the power goes.
        medium::arm(&[(2, fate), (2, Fate::Dies)]);
        assert!(pool.take_cache(number, 40 * MIB).is_err());
        assert!(pool.drop_cache(number).is_err());
        drop(pool);
        assert!(medium::disarm(&path, Some(seed)));
        let pool = Pool::open(&path, &shares).unwrap();
        assert_eq!(pool.record(number).uuid, log.disk);
        assert_eq!(pool.tables.log_segments(number), 1);
        staging::remove_of(log.disk);
    }
}

#[test]
fn a_ring_is_void_in_a_pool_whose_tables_could_not_be_written_once() {
    let fates = [Fate::Fails, Fate::Tears, Fate::Lies];
    for (fate, nth, seed) in fates.iter().flat_map(|&fate| [(fate, 1, 3), (fate, 2, 4)]) {
        let folder = folder();
        let path = folder.path().join("flash");
        let mut pool = Pool::open(&path, &SHARES).unwrap();
        let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
        pool.take_cache(number, 2 * MIB).unwrap();
        let header = cache::ring_header(&pool, number, 256);
        pool.begin_ring(number, MIB, &header).unwrap().unwrap();
        pool.mirror();
        // A write of the leases, or its flush.
        medium::arm(&[(nth, fate)]);
        assert!(pool.lease_log(number).is_err() && pool.has_failed);
        assert!(pool.void_ring(number), "flash works");
        assert!(medium::disarm(&path, Some(seed)));
        assert!(pool.lease_log(number).is_err(), "nothing more is leased");
        let [segment] = pool.tables.held(number, Role::Index)[..] else { panic!("one") };
        let pair = pool.geometry().lease_pair(segment);
        let places = [0, 1].map(|copy| pool.geometry().pair_offset(pair, copy));
        drop(pool);
        for place in places {
            // Nobody has mirrored it.
            medium::spoil(&[place]);
            let pool = Pool::open(&path, &SHARES).unwrap();
            medium::disarm(&path, None);
            assert!(pool.tables.has_void_ring(number), "{fate:?} {nth}, without {place}");
            assert_eq!(pool.record(number).uuid, log.disk);
        }
        staging::remove_of(log.disk);
    }
}

#[test]
fn no_ring_is_said_to_be_void_that_flash_may_still_have() {
    let folder = folder();
    let path = folder.path().join("flash");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
    pool.take_cache(number, 2 * MIB).unwrap();
    let header = cache::ring_header(&pool, number, 256);
    pool.begin_ring(number, MIB, &header).unwrap().unwrap();
    // In memory it is free by then.
    medium::arm(&[(1, Fate::Fails)]);
    assert!(pool.drop_cache(number).is_err());
    assert!(!pool.void_ring(number));
    medium::disarm(&path, None);
    drop(pool);
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    for nth in [1, 2] {
        medium::arm(&[(nth, Fate::Fails)]);
        assert!(!pool.void_ring(number), "its own write fails");
        medium::disarm(&path, None);
    }
    assert!(pool.has_failed && pool.void_ring(number));
    staging::remove_of(log.disk);
}

/// The kernel tells one of those who have the file open of pages that it could not write, perhaps a shard.
#[test]
fn a_flush_that_failed_for_a_shard_has_failed_for_the_tables_that_were_written_before() {
    let folder = folder();
    let path = folder.path().join("flash");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
    let version = |pool: &Pool| pool.tables.version(PairId::Disk(number));
    let before = version(&pool);
    // A write of a page, and its flush.
    medium::arm(&[(2, Fate::FailsElsewhere)]);
    let error = format!("{:#}", pool.set_log_end(number, Sequence(0)).unwrap_err());
    assert!(error.contains("a flush that a disk asked for failed"), "{error}");
    assert_eq!(version(&pool), before, "the same copy comes next");
    pool.set_log_end(number, Sequence(0)).unwrap();
    assert_eq!(version(&pool), before + 1);
    medium::arm(&[(2, Fate::FailsElsewhere)]);
    assert!(pool.lease_log(number).is_err() && pool.has_failed);
    medium::disarm(&path, None);
    staging::remove_of(log.disk);
}

#[test]
fn reservations_whose_change_was_cut_off_between_the_copies_are_in_both_after_the_next_start() {
    let folder = folder();
    let path = folder.path().join("flash");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let (number, log) = serve(&mut pool, &wish("db", "file:/db"));
    assert!(pool.set_reservations(number, vec![1; 40]));
    // A copy and its flush; the process is killed before the other one.
    medium::arm(&[(3, Fate::Dies)]);
    assert!(!pool.set_reservations(number, vec![2; 40]));
    medium::disarm(&path, None);
    drop(pool);
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    pool.mirror();
    let places = [0, 1].map(|copy| pool.geometry().pair_offset(PairId::Reservations(number), copy));
    drop(pool);
    for place in places {
        medium::spoil(&[place]);
        let found = Pool::open(&path, &SHARES).unwrap().reservations(number).unwrap();
        medium::disarm(&path, None);
        assert_eq!(found, [2; 40], "without the page at {place}");
    }
    staging::remove_of(log.disk);
}

#[test]
fn a_page_of_tables_or_a_superblock_that_cannot_be_read_loses_nothing() {
    let folder = folder();
    let path = folder.path().join("flash");
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    let mut told = Told::default();
    let mut session = Session::open(&mut pool, &wish("db", "file:/db"), &mut told).unwrap();
    session.append(&pool, &mut told).unwrap();
    // The process is killed before the owner has written the other copies: that of the next one does.
    drop((pool, session));
    let mut pool = Pool::open(&path, &SHARES).unwrap();
    pool.tables.mirror(&pool.file).unwrap();
    let geometry = pool.geometry();
    drop(pool);
    let shown = report::show(&path).unwrap();
    let pairs = geometry.disks().map(PairId::Disk);
    let pairs = pairs.chain((0..geometry.lease_pages()).map(PairId::Leases));
    let places = pairs.flat_map(|pair| [0, 1].map(|copy| geometry.pair_offset(pair, copy)));
    for place in SUPERBLOCKS.into_iter().chain(places) {
        medium::spoil(&[place]);
        let found = report::show(&path).unwrap();
        let checked = check::check(&path).unwrap();
        let opened = Pool::open(&path, &SHARES).map(drop);
        medium::disarm(&path, None);
        opened.unwrap();
        assert_eq!(found.disks, shown.disks, "without the page at {place}");
        let tells = |it: &String| it.contains("cannot be read") || it.contains("is damaged");
        assert!(checked.errors.is_empty() && checked.warnings.iter().any(tells), "{checked:?}");
    }
    // Nothing at all is an error of the medium.
    let all: Vec<u64> = (0..geometry.pairs().into()).map(|page| page * PAGE).collect();
    medium::spoil(&[&SUPERBLOCKS[..], &all].concat());
    let error = format!("{:#}", report::show(&path).unwrap_err());
    medium::disarm(&path, None);
    assert!(error.contains("cannot read the flash") && error.contains("Input/output"), "{error}");
    staging::remove_of(told.disk.expect("it was opened"));
}
