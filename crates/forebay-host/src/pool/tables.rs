//! The tables of a pool in memory, and how they are changed on flash: one page pair at a time, durably.

use std::collections::BTreeSet;
use std::io;

use anyhow::{Context, Result, anyhow, ensure};
use forebay_core::flash_pool::disk::{DiskFlags, DiskRecord, SessionEnd};
use forebay_core::flash_pool::lease::{Holder, Lease, LeaseTable, NotHeld, Role};
use forebay_core::flash_pool::pair::{self, PairInvalid};
use forebay_core::flash_pool::progress::Progress;
use forebay_core::flash_pool::reservations::Reservations;
use forebay_core::flash_pool::superblock::Superblock;
use forebay_core::flash_pool::{DiskNumber, PairId, PoolGeometry, SUPERBLOCKS};
use forebay_core::ids::{Generation, SegmentId, Sequence, Uuid};
use forebay_core::sealed::has_seal;
use forebay_core::write_back::format::COUNT_MAX;

mod write;

use super::file::{PoolFile, PoolPage};
use super::host;

/// The ordinal of the leases of a ring that must not be believed.
pub const VOID: u64 = COUNT_MAX;

/// A segment with the lease that it is held under.
pub type Held = (SegmentId, Lease);

/// See the module.
#[derive(Clone, Debug)]
pub struct Tables {
    /// What the pool is.
    pub superblock: Superblock,
    /// Who has each segment.
    pub leases: LeaseTable,
    disks: Vec<Option<DiskRecord>>,
    progress: Vec<Option<Progress>>,
    /// Of each number; what cannot be read is its disk's trouble alone.
    reservations: Vec<Result<Reservations, PairInvalid>>,
    /// Of the contents of each page pair, durable.
    versions: Vec<u64>,
    /// Page pairs whose next version was written and not flushed.
    written: Vec<PairId>,
    /// How often a flush had failed before the first of those was written.
    failed_before: u64,
    /// Page pairs of which one copy says what was before their last change.
    alone: BTreeSet<PairId>,
}

/// A table of which no copy is whole.
#[derive(Debug)]
pub(super) struct Damaged {
    /// Which, and why.
    pub(super) why: String,
    /// Whose it is; `None`: everybody's, that of the leases.
    pub(super) disk: Option<DiskNumber>,
}

impl Tables {
    /// Those of a pool that nothing was written to.
    fn empty(superblock: Superblock) -> Tables {
        let geometry = superblock.geometry;
        let disks = geometry.disks().count();
        Tables {
            superblock,
            leases: LeaseTable::new(geometry),
            disks: vec![None; disks],
            progress: vec![None; disks],
            reservations: vec![Ok(no_reservations(Uuid::NIL)); disks],
            versions: vec![0; geometry.pairs() as usize],
            written: Vec::new(),
            failed_before: 0,
            alone: BTreeSet::new(),
        }
    }

    /// Makes a pool of nobody on `file`.
    ///
    /// # Errors
    /// The medium's. The pool is not there then, or as far as it can be told from one.
    pub fn create(file: &PoolFile, superblock: Superblock) -> io::Result<Tables> {
        let mut tables = Tables::empty(superblock);
        let mut page = PoolPage::ZERO;
        file.write(SUPERBLOCKS[0], std::slice::from_ref(&page))?;
        file.sync()?;
        superblock.encode(&mut page.0);
        file.write(SUPERBLOCKS[1], std::slice::from_ref(&page))?;
        // Tables without it would be somebody's data to the next start.
        file.sync()?;
        // Twice: of each page pair there are both copies from the start.
        for _ in 0..2 {
            tables.put_nothing(file)?;
            tables.sync(file)?;
        }
        superblock.encode(&mut page.0);
        file.write(SUPERBLOCKS[0], std::slice::from_ref(&page))?;
        file.sync()?;
        Ok(tables)
    }

    /// Says of everything that it is nobody's.
    fn put_nothing(&mut self, file: &PoolFile) -> io::Result<()> {
        let (pool, geometry) = (self.superblock, self.geometry());
        for number in geometry.disks() {
            self.put_disk(file, number, None)?;
            let nobody = nothing_of(Uuid::NIL);
            self.put(file, PairId::Progress(number), |version, page| {
                nobody.encode(&pool, number, version, page);
            })?;
            self.put_reservations(file, number, &no_reservations(Uuid::NIL))?;
        }
        (0..geometry.lease_pages()).try_for_each(|number| self.put_leases(file, number))
    }

    /// True when there is the record of any disk, whatever became of the rest: the pool was finished once.
    ///
    /// # Errors
    /// The medium's.
    pub fn have_disks(file: &PoolFile, superblock: Superblock) -> Result<bool> {
        let geometry = superblock.geometry;
        let pages = pairs(file, geometry)?;
        let has_disks = geometry.disks().any(|number| {
            let at = geometry.place(PairId::Disk(number)) as usize;
            let copies = [&pages[0][at].0, &pages[1][at].0];
            DiskRecord::decode(&superblock, number, copies).is_ok_and(|(_, disk)| disk.is_some())
        });
        ensure!(
            has_disks || !pages.iter().flatten().any(PoolPage::is_unreadable),
            "pages of the tables cannot be read, and without them nobody knows whether the pool has disks"
        );
        Ok(has_disks)
    }

    /// Reads the tables of the pool that `superblock` says is on `file`.
    ///
    /// # Errors
    /// The medium's, or a table that is damaged.
    pub fn read(file: &PoolFile, superblock: Superblock) -> Result<Tables> {
        let (tables, damaged) = Tables::read_what_is_whole(file, superblock)?;
        match damaged.into_iter().next() {
            None => Ok(tables),
            Some(first) => Err(anyhow!(first.why)),
        }
    }

    /// Reads those tables of which a copy is whole, and tells of the others. Where there are any, this is nothing to act on.
    ///
    /// # Errors
    /// The medium's.
    pub(super) fn read_what_is_whole(
        file: &PoolFile,
        superblock: Superblock,
    ) -> Result<(Tables, Vec<Damaged>)> {
        let pool = &superblock;
        let geometry = superblock.geometry;
        let mut tables = Tables::empty(superblock);
        let mut damaged = Vec::new();
        let pages = pairs(file, geometry)?;
        let copies_of = |pair: PairId| {
            let index = geometry.place(pair) as usize;
            [&pages[0][index].0, &pages[1][index].0]
        };
        for number in geometry.disks() {
            let at = usize::from(number.0);
            let mut of_disk = |what: &str, why: PairInvalid| {
                let why = format!("the {what} of disk {at} in the pool: {why}");
                damaged.push(Damaged { why, disk: Some(number) });
            };
            let pair = PairId::Disk(number);
            match DiskRecord::decode(pool, number, copies_of(pair)) {
                Ok(found) => {
                    (tables.versions[geometry.place(pair) as usize], tables.disks[at]) = found
                }
                Err(why) => of_disk("record", why),
            }
            let pair = PairId::Progress(number);
            match Progress::decode(pool, number, copies_of(pair)) {
                Ok((version, progress)) => {
                    tables.versions[geometry.place(pair) as usize] = version;
                    tables.progress[at] = Some(progress);
                }
                Err(why) => of_disk("progress", why),
            }
            let pair = PairId::Reservations(number);
            tables.reservations[at] =
                Reservations::decode(pool, number, copies_of(pair)).map(|(version, found)| {
                    tables.versions[geometry.place(pair) as usize] = version;
                    found
                });
        }
        // What its other copy does not say, because it rotted or a process was killed before it said so, is written there. One
        // that cannot be read stays: it may be the newer, and be read later.
        let is_alone = |pair: &PairId| {
            let index = geometry.place(*pair) as usize;
            let copies = [&pages[0][index], &pages[1][index]];
            let [one, other] = copies.map(|page| &page.0);
            let is_same = one[pair::CONTENTS..] == other[pair::CONTENTS..]
                && copies.iter().all(|page| has_seal(&page.0, pair::MAGIC));
            !is_same && !copies.iter().any(|page| page.is_unreadable())
        };
        let leases = (0..geometry.lease_pages()).map(PairId::Leases);
        let is_read = |number: &DiskNumber| tables.reservations[usize::from(number.0)].is_ok();
        let reservations = geometry.disks().filter(is_read).map(PairId::Reservations);
        let mirrored = geometry.disks().map(PairId::Disk).chain(reservations).chain(leases);
        tables.alone = mirrored.filter(is_alone).collect();
        for number in 0..geometry.lease_pages() {
            let pair = PairId::Leases(number);
            match tables.leases.decode(pool, number, copies_of(pair)) {
                Ok(version) => tables.versions[geometry.place(pair) as usize] = version,
                Err(why) => {
                    let why = format!("page {number} of the leases in the pool: {why}");
                    damaged.push(Damaged { why, disk: None });
                }
            }
        }
        Ok((tables, damaged))
    }

    /// How the pool is cut.
    pub fn geometry(&self) -> PoolGeometry {
        self.superblock.geometry
    }

    /// The disks that have a record.
    pub fn disks(&self) -> impl Iterator<Item = (DiskNumber, &DiskRecord)> {
        (0..).map(DiskNumber).zip(&self.disks).filter_map(|(n, disk)| Some((n, disk.as_ref()?)))
    }

    /// The record of a disk.
    pub fn disk(&self, number: DiskNumber) -> Option<&DiskRecord> {
        self.disks[usize::from(number.0)].as_ref()
    }

    /// The progress of a disk; nothing for one that has none.
    pub fn progress(&self, number: DiskNumber) -> Progress {
        let uuid = self.disk(number).map_or(Uuid::NIL, |record| record.uuid);
        let found = self.progress[usize::from(number.0)].filter(|found| found.disk == uuid);
        found.unwrap_or(nothing_of(uuid))
    }

    /// The version of a page pair.
    pub fn version(&self, pair: PairId) -> u64 {
        self.versions[self.geometry().place(pair) as usize]
    }

    fn version_mut(&mut self, pair: PairId) -> &mut u64 {
        &mut self.versions[self.superblock.geometry.place(pair) as usize]
    }

    /// True when reservations of a disk are kept, or nobody knows.
    pub fn has_reservations(&self, number: DiskNumber) -> bool {
        self.reservations(number).map_or(true, |state| !state.is_empty())
    }

    /// Segments of a disk's log.
    pub fn log_segments(&self, number: DiskNumber) -> usize {
        self.leases.log_of(number).count()
    }

    /// True when the last session of a disk did not end in order, on a host that lives, and had acknowledged writes that only
    /// its staging file may have.
    pub fn may_have_staged(&self, number: DiskNumber) -> bool {
        let record = self.disk(number).expect("there is such a disk");
        record.session == SessionEnd::Running
            && record.boot == host::boot()
            && record.flags.has(DiskFlags::STAGED)
            && self.log_segments(number) > 0
    }

    /// Segments that a disk has in a role, in the order in which they came, and then of place.
    pub fn held(&self, disk: DiskNumber, role: Role) -> Vec<SegmentId> {
        self.held_under(disk, role).into_iter().map(|(segment, _)| segment).collect()
    }

    /// The same with their leases.
    pub fn held_under(&self, disk: DiskNumber, role: Role) -> Vec<Held> {
        let mut held: Vec<Held> = self.leases.of(disk, role).collect();
        held.sort_by_key(|(segment, lease)| (lease.ordinal, *segment));
        held
    }

    /// True when the ring of a disk's cache must not be believed.
    pub fn has_void_ring(&self, disk: DiskNumber) -> bool {
        self.leases.iter().any(|(_, holder)| match holder {
            Holder::Leased(lease) => {
                lease.disk == disk && lease.role == Role::Index && lease.ordinal == VOID
            }
            Holder::Free | Holder::Metadata => false,
        })
    }

    /// Changes the record of a disk, durably.
    ///
    /// # Errors
    /// A text of it is too long, or the medium's.
    pub fn set_disk(
        &mut self,
        file: &PoolFile,
        number: DiskNumber,
        record: Option<DiskRecord>,
    ) -> Result<()> {
        let pool = self.superblock;
        if let Some(record) = &record {
            // Nothing is written over a good copy before it is known that the record can be.
            let mut page = PoolPage::ZERO;
            let encoded = record.encode(&pool, number, 1, &mut page.0);
            encoded.map_err(|why| anyhow!("the disk's record cannot be kept on flash: {why}"))?;
        }
        let written = self.put_disk(file, number, record.as_ref());
        let written = written.and_then(|()| self.sync(file));
        written.context("cannot write the disk's record to flash")?;
        self.disks[usize::from(number.0)] = record;
        self.alone.insert(PairId::Disk(number));
        Ok(())
    }

    fn put_disk(
        &mut self,
        file: &PoolFile,
        number: DiskNumber,
        record: Option<&DiskRecord>,
    ) -> io::Result<()> {
        let pool = self.superblock;
        self.put(file, PairId::Disk(number), |version, page| match record {
            Some(record) => record.encode(&pool, number, version, page).expect("it was, before"),
            None => DiskRecord::encode_free(&pool, number, version, page),
        })
    }

    /// Changes the progress of a disk, durably.
    ///
    /// # Errors
    /// The medium's.
    pub fn set_progress(
        &mut self,
        file: &PoolFile,
        number: DiskNumber,
        progress: Progress,
    ) -> io::Result<()> {
        let pool = self.superblock;
        self.put(file, PairId::Progress(number), |version, page| {
            progress.encode(&pool, number, version, page);
        })?;
        self.sync(file)?;
        self.progress[usize::from(number.0)] = Some(progress);
        Ok(())
    }

    /// Has both copies of the progress of a disk say the same, durably. Where guests write past a log that is empty, a start
    /// that finds the newer copy damaged must not take what is in the log for newer.
    ///
    /// # Errors
    /// The medium's.
    pub fn repeat_progress(&mut self, file: &PoolFile, number: DiskNumber) -> io::Result<()> {
        let progress = self.progress(number);
        self.set_progress(file, number, progress)
    }

    /// Reads the progress of a disk again, which its shard has written meanwhile.
    ///
    /// # Errors
    /// The medium's, or neither copy is valid.
    pub fn reload_progress(&mut self, file: &PoolFile, number: DiskNumber) -> Result<()> {
        let pair = PairId::Progress(number);
        let name = self.disk(number).map_or("", |record| &record.name);
        let of_disk =
            format!("the progress of disk '{name}' on the flash {}", file.path().display());
        // What its shard wrote last may not be durable, and the next version goes over the one before.
        file.sync().with_context(|| format!("cannot flush {of_disk}"))?;
        let mut copies = [PoolPage::ZERO, PoolPage::ZERO];
        for (copy, page) in (0..).zip(&mut copies) {
            // One that cannot be read may be the newer: nothing is written on top of the older one.
            let offset = self.geometry().pair_offset(pair, copy);
            file.read(offset, std::slice::from_mut(page)).with_context(|| {
                format!(
                    "cannot read copy {copy} of {of_disk}, at byte {offset}. It may be the newer of two, so the other one is not \
                     used. Try again. Where the device never reads it again, copy it to another one as far as that goes, and use \
                     that one as the flash"
                )
            })?;
        }
        let copies = [&copies[0].0, &copies[1].0];
        let (version, progress) =
            Progress::decode(&self.superblock, number, copies).with_context(|| of_disk.clone())?;
        *self.version_mut(pair) = version;
        self.progress[usize::from(number.0)] = Some(progress);
        Ok(())
    }

    /// The reservations of a disk that outlive a restart; empty when there are none.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn reservations(&self, number: DiskNumber) -> Result<&[u8], PairInvalid> {
        let uuid = self.disk(number).map_or(Uuid::NIL, |record| record.uuid);
        match &self.reservations[usize::from(number.0)] {
            Ok(found) if found.disk == uuid => Ok(&found.state),
            Ok(_) => Ok(&[]),
            Err(why) => Err(*why),
        }
    }

    /// Changes the reservations of a disk, durably, in both copies: should one of them rot, the other must not say what
    /// was before.
    ///
    /// # Errors
    /// The medium's.
    ///
    /// Panics when they are longer than a page can hold.
    pub fn set_reservations(
        &mut self,
        file: &PoolFile,
        number: DiskNumber,
        state: Vec<u8>,
    ) -> io::Result<()> {
        let disk = self.disk(number).map_or(Uuid::NIL, |record| record.uuid);
        let reservations = Reservations { disk, state };
        for _ in 0..2 {
            self.put_reservations(file, number, &reservations)?;
            self.sync(file)?;
        }
        self.reservations[usize::from(number.0)] = Ok(reservations);
        Ok(())
    }

    /// Leases segments, durably.
    ///
    /// # Errors
    /// The medium's; in memory they have changed hands then, and nobody may use them.
    pub fn lease(
        &mut self,
        file: &PoolFile,
        segments: &[SegmentId],
        lease: Lease,
    ) -> io::Result<()> {
        for &segment in segments {
            self.leases.lease(segment, lease);
        }
        self.write_leases(file, segments)
    }

    /// The ring of a disk must not be believed any more, whatever is in it; durably.
    ///
    /// # Errors
    /// The medium's.
    pub fn void_ring(&mut self, file: &PoolFile, disk: DiskNumber) -> io::Result<()> {
        let Some(&first) = self.held(disk, Role::Index).first() else { return Ok(()) };
        let generation = self.disk(disk).map_or(Generation(0), |record| record.pending);
        self.lease(file, &[first], Lease { disk, role: Role::Index, generation, ordinal: VOID })
    }

    /// Frees what is held under exactly these leases, durably. Segments that are not held so stay whose they are, and are
    /// returned.
    ///
    /// # Errors
    /// The medium's; in memory they have changed hands then, and nobody may use them.
    pub fn free(&mut self, file: &PoolFile, leases: &[Held]) -> io::Result<Vec<SegmentId>> {
        let (mut freed, mut refused) = (Vec::with_capacity(leases.len()), Vec::new());
        for &(segment, lease) in leases {
            match self.leases.free(segment, lease) {
                Ok(()) => freed.push(segment),
                Err(NotHeld) => refused.push(segment),
            }
        }
        self.write_leases(file, &freed)?;
        Ok(refused)
    }
}

/// The reservations of a disk that has none.
fn no_reservations(disk: Uuid) -> Reservations {
    Reservations { disk, state: Vec::new() }
}

/// The progress of a disk that has logged nothing.
fn nothing_of(disk: Uuid) -> Progress {
    Progress { disk, flushed: Sequence(0), through: Sequence(0) }
}

/// The pages of all tables, by their index, in both copies.
fn pairs(file: &PoolFile, geometry: PoolGeometry) -> Result<[Vec<PoolPage>; 2]> {
    let mut pages = [(); 2].map(|()| PoolPage::zeroes(geometry.pairs() as usize));
    let cannot = || "cannot read the tables of the pool";
    let mut error = None;
    for (copy, pages) in (0..).zip(&mut pages) {
        let offset = geometry.pair_offset(PairId::Disk(DiskNumber(0)), copy);
        let unread = file.read_what_can_be_read(offset, pages).with_context(cannot)?;
        error = unread.or(error);
    }
    match error {
        Some(error) if pages.iter().flatten().all(PoolPage::is_unreadable) => {
            Err(error).with_context(cannot)
        }
        _ => Ok(pages),
    }
}
