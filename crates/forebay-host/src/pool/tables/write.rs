//! How the tables get to flash: each page in its copy before last, then once more where an old copy could do harm.

use std::io;

use forebay_core::flash_pool::reservations::Reservations;
use forebay_core::flash_pool::{DiskNumber, PairId, pair};
use forebay_core::ids::SegmentId;
use forebay_core::sealed::Page;

use super::Tables;
use crate::pool::file::{PoolFile, PoolPage};

impl Tables {
    /// Writes the pages of the leases of these segments, durably.
    pub(super) fn write_leases(
        &mut self,
        file: &PoolFile,
        segments: &[SegmentId],
    ) -> io::Result<()> {
        let page_of = |&segment: &SegmentId| match self.geometry().lease_pair(segment) {
            PairId::Leases(page) => page,
            pair => unreachable!("a lease is in a page of leases, not in {pair:?}"),
        };
        let mut pages: Vec<u32> = segments.iter().map(page_of).collect();
        pages.sort_unstable();
        pages.dedup();
        for &page in &pages {
            self.put_leases(file, page)?;
        }
        if pages.is_empty() {
            return Ok(());
        }
        self.alone.extend(pages.into_iter().map(PairId::Leases));
        self.sync(file)
    }

    /// Writes the leases and records that changed into their other copy as well, durably, and reservations whose change was cut
    /// off between their copies. Should one copy rot, or not be read any more, the other must not say what was before: that a
    /// ring may be believed, that a segment of a log is nobody's, that no session was killed, or that a node that was preempted
    /// still has its reservation.
    ///
    /// # Errors
    /// The medium's.
    pub fn mirror(&mut self, file: &PoolFile) -> io::Result<()> {
        let alone = std::mem::take(&mut self.alone);
        for pair in &alone {
            match *pair {
                PairId::Leases(page) => self.put_leases(file, page)?,
                PairId::Disk(number) => {
                    let record = self.disks[usize::from(number.0)].clone();
                    self.put_disk(file, number, record.as_ref())?;
                }
                PairId::Reservations(number) => {
                    let found = self.reservations[usize::from(number.0)].clone();
                    self.put_reservations(file, number, &found.expect("they were read"))?;
                }
                // Who writes it sees to it that an older state does no harm.
                PairId::Progress(_) => unreachable!("its copies may differ"),
            }
        }
        if alone.is_empty() { Ok(()) } else { self.sync(file) }
    }

    pub(super) fn put_reservations(
        &mut self,
        file: &PoolFile,
        number: DiskNumber,
        reservations: &Reservations,
    ) -> io::Result<()> {
        let pool = self.superblock;
        self.put(file, PairId::Reservations(number), |version, page| {
            reservations.encode(&pool, number, version, page);
        })
    }

    pub(super) fn put_leases(&mut self, file: &PoolFile, number: u32) -> io::Result<()> {
        let (pair, mut page) = (PairId::Leases(number), PoolPage::ZERO);
        let version = self.version(pair) + 1;
        self.leases.encode(&self.superblock, number, version, &mut page.0);
        self.write_page(file, pair, version, &page)
    }

    /// Makes durable what was written. What was not may be on flash or not: its version is written again, over the same
    /// copy, or the other one, the last that is durable, could be lost.
    pub(super) fn sync(&mut self, file: &PoolFile) -> io::Result<()> {
        let written = std::mem::take(&mut self.written);
        file.sync_since(self.failed_before)?;
        for pair in written {
            *self.version_mut(pair) += 1;
        }
        Ok(())
    }

    /// Writes the next version of a page pair over the copy before last.
    pub(super) fn put(
        &mut self,
        file: &PoolFile,
        pair: PairId,
        encode: impl FnOnce(u64, &mut Page),
    ) -> io::Result<()> {
        let version = self.version(pair) + 1;
        let mut page = PoolPage::ZERO;
        encode(version, &mut page.0);
        self.write_page(file, pair, version, &page)
    }

    fn write_page(
        &mut self,
        file: &PoolFile,
        pair: PairId,
        version: u64,
        page: &PoolPage,
    ) -> io::Result<()> {
        let offset = self.geometry().pair_offset(pair, pair::copy_of(version));
        if self.written.is_empty() {
            self.failed_before = file.failed_flushes();
        }
        file.write(offset, std::slice::from_ref(page))?;
        if !self.written.contains(&pair) {
            self.written.push(pair);
        }
        Ok(())
    }
}
