//! The allowed contents of every sector: the client's side of the contract, without any cache.
//!
//! The engine serialises overlapping writes in the order of their arrival, so the oracle can be stricter
//! than a register with concurrent operations. (Zeroes may have to wait for a buffer, and are then
//! overtaken by writes that arrived before they are acknowledged: they *drift*.) Per sector it keeps
//! ```text
//! base   the last version that is known: acknowledged, or seen by a read
//! open   versions of requests that arrived later and were not acknowledged: under way, failed, timed
//!        out, or discards; each may have changed the sector, or not
//! old    versions before `base` that come back if primary storage loses what was not flushed
//! ```
//! A read returns `base` or an open version, and what it returns becomes `base`: the same sector never
//! goes back. When it returns, whatever arrived before it has ended, in `base` or never. A write that is
//! acknowledged becomes `base`, and what arrived before it is gone. A flush that is acknowledged clears what was
//! old when it was submitted; the loss of volatile bytes may bring back only what is left.
//!
//! What a dead process had sent may land *late*: its version stays open although reads return others, until it lands. A
//! read that arrived before that may have seen either.
//!
//! After a loss of acknowledged bytes the oracle keeps a *debt*: a flush that covers them has to
//! fail before one may succeed. A flush that failed before the loss leaves no debt: it has
//! reported its bytes.

use std::collections::{BTreeMap, BTreeSet};

use forebay_core::geometry::{ByteRange, SECTOR};

use crate::stamp::{self, Version};

/// A version that is not known to be there, or not.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    arrival: u64,
    version: Version,
    /// Under way, and perhaps behind requests that arrived later.
    drifts: bool,
    /// If it is there, it stays there.
    durable: bool,
    /// A dead process had sent it: nobody was answered, and no flush of a log covers it.
    is_unanswered: bool,
}

/// A version that may come back.
#[derive(Clone, Copy, Debug)]
struct Old {
    version: Version,
    /// Number of the acknowledgement that made it old.
    by: u64,
    /// Arrival of the request whose version made it old.
    behind: u64,
    /// What made it old is on primary storage alone, as nobody was answered for it.
    is_beside_log: bool,
}

#[derive(Clone, Debug, Default)]
struct Sector {
    base: Version,
    /// Number of the acknowledgement of `base`.
    acknowledged: u64,
    /// Arrival of the request that made `base`.
    based_on: u64,
    open: Vec<Open>,
    old: Vec<Old>,
    /// Arrivals before this one may have seen what was there before something landed late.
    landed_at: u64,
}

impl Old {
    fn new(version: Version, by: u64, behind: u64) -> Old {
        Old { version, by, behind, is_beside_log: false }
    }
}

impl Sector {
    /// A later version has this number: whatever flush covers it covers what was before.
    fn cover(&mut self, by: u64) {
        for old in self.old.iter_mut().filter(|old| old.is_beside_log) {
            (old.by, old.is_beside_log) = (by, false);
        }
    }
}

/// Acknowledged writes that primary storage lost, by the numbers of their acknowledgements.
#[derive(Clone, Copy, Debug)]
struct Debt {
    first: u64,
    last: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Oracle {
    sectors: Vec<Sector>,
    /// Sectors with old versions.
    with_old: BTreeSet<u64>,
    /// By sector, what may land late.
    late: BTreeMap<u64, Version>,
    acknowledgements: u64,
    /// Acknowledgements up to here are from engines before the present one, or a flush of them failed.
    told: u64,
    /// Arrivals before this one may have seen what a loss undid.
    loss_at: u64,
    debt: Option<Debt>,
}

/// The range in sectors.
pub fn sectors(range: ByteRange) -> std::ops::Range<u64> {
    range.start / SECTOR..range.end / SECTOR
}

impl Oracle {
    /// A disk of `size` bytes that reads as `version`.
    pub fn new(size: u64, version: Version) -> Oracle {
        Oracle {
            sectors: vec![Sector { base: version, ..Sector::default() }; (size / SECTOR) as usize],
            with_old: BTreeSet::new(),
            late: BTreeMap::new(),
            acknowledgements: 0,
            told: 0,
            loss_at: 0,
            debt: None,
        }
    }

    /// A request that will make `range` read as `version` arrived; `drifts`: later ones may overtake it.
    pub fn begin(&mut self, arrival: u64, version: Version, range: ByteRange, drifts: bool) {
        for sector in sectors(range) {
            self.sectors[sector as usize].open.push(Open {
                arrival,
                version,
                drifts,
                ..Open::default()
            });
        }
    }

    /// A request that drifts has ended, and may have changed its range.
    pub fn settle(&mut self, arrival: u64, range: ByteRange) {
        for sector in sectors(range) {
            let open = &mut self.sectors[sector as usize].open;
            open.iter_mut().filter(|o| o.arrival == arrival).for_each(|o| o.drifts = false);
        }
    }

    /// It was acknowledged; `durable`: with FUA.
    pub fn acknowledge(&mut self, arrival: u64, range: ByteRange, durable: bool) {
        self.acknowledgements += 1;
        let by = self.acknowledgements;
        for index in sectors(range) {
            let sector = &mut self.sectors[index as usize];
            let Some(position) = sector.open.iter().position(|open| open.arrival == arrival) else {
                panic!("sector {index}: request {arrival} was overtaken by a newer one");
            };
            let Open { version, drifts, .. } = sector.open[position];
            if drifts && sector.based_on > arrival {
                // Overtaken: which of the two came last, a read will tell.
                sector.open[position].drifts = false;
                continue;
            }
            if durable {
                sector.old.clear();
                self.with_old.remove(&index);
            } else {
                sector.cover(by);
                let before = sector.open[..position].iter().map(|open| open.version);
                let before = before.chain([sector.base]);
                sector.old.extend(before.map(|version| Old::new(version, by, arrival)));
                self.with_old.insert(index);
            }
            let mut index = 0;
            sector.open.retain(|open| {
                index += 1;
                index > position + 1 || (open.drifts && open.arrival != arrival)
            });
            (sector.base, sector.acknowledged, sector.based_on) = (version, by, arrival);
        }
    }

    /// A discard with FUA was acknowledged: whether it changed a sector or not, that stays so.
    pub fn discarded_durably(&mut self, arrival: u64, range: ByteRange) {
        for index in sectors(range) {
            let sector = &mut self.sectors[index as usize];
            // A write that arrived later may have been acknowledged before: what it made old it may bring back.
            sector.old.retain(|old| old.behind > arrival);
            if sector.old.is_empty() {
                self.with_old.remove(&index);
            }
            // One that drifts may still do the same later, and that would not be durable.
            let durable = !sector.open.iter().any(|open| open.drifts);
            let discard = sector.open.iter_mut().filter(|open| open.arrival == arrival);
            discard.for_each(|open| open.durable = durable);
        }
    }

    /// A compare-and-write found `expected` up to its end, or up to `difference`, by its answer.
    /// The bytes before a difference read as expected, and the sector with it differs there.
    ///
    /// # Errors
    /// That cannot be what it found.
    pub fn compared(
        &mut self,
        arrival: u64,
        range: ByteRange,
        expected: &[u8],
        difference: Option<u64>,
    ) -> Result<(), String> {
        if arrival <= self.loss_at {
            return Ok(());
        }
        let end = difference.unwrap_or(range.len());
        for (index, bytes) in sectors(range).zip(expected.chunks_exact(SECTOR as usize)) {
            let at = index * SECTOR - range.start;
            if at > end {
                break;
            }
            if arrival <= self.sectors[index as usize].landed_at {
                continue;
            }
            // What is open of itself is not there yet.
            let before = arrival - 1;
            if end >= at + SECTOR {
                let version = stamp::read(bytes, index);
                let version = version.ok_or(format!("sector {index}: equal to nobody's bytes"))?;
                self.collapse(before, index, version)?;
                continue;
            }
            let found: Vec<Version> = self.candidates(arrival, index);
            let mut found: Vec<Version> = found
                .into_iter()
                .filter(|&version| stamp::differs(bytes, index, version) == Some(end - at))
                .collect();
            found.dedup();
            match found[..] {
                [] => {
                    let allowed = self.allowed(index);
                    return Err(format!(
                        "sector {index}: differs at {}, allowed: {allowed}",
                        end - at
                    ));
                }
                [version] => self.collapse(before, index, version)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The allowed contents of a sector for a request that is not answered.
    fn candidates(&self, arrival: u64, index: u64) -> Vec<Version> {
        let sector = &self.sectors[index as usize];
        let others = sector.open.iter().filter(|open| open.arrival != arrival);
        [sector.base].into_iter().chain(others.map(|open| open.version)).collect()
    }

    /// The content of a sector that a client may expect: the known one, or one that is about to
    /// come.
    pub fn guess(&self, index: u64, about_to: bool) -> Version {
        let sector = &self.sectors[index as usize];
        let newest = sector.open.last().filter(|_| about_to).map(|open| open.version);
        newest.unwrap_or(sector.base)
    }

    /// A process died, and these sectors may yet become what it had sent.
    pub fn expect_late(&mut self, sectors: impl IntoIterator<Item = (u64, Option<Version>)>) {
        for (index, version) in sectors {
            let Some(version) = version else { continue };
            let other = self.late.insert(index, version);
            assert!(other.is_none_or(|other| other == version), "sector {index}: {other:?}");
            let open = self.sectors[index as usize].open.iter_mut();
            open.filter(|open| open.version == version).for_each(|open| open.is_unanswered = true);
        }
    }

    /// What was expected in `range` has landed, as far as it does; reads that arrived up to `arrival` may have come before.
    pub fn landed(&mut self, arrival: u64, range: ByteRange) {
        for index in sectors(range) {
            let landed = self.late.remove(&index);
            let sector = &mut self.sectors[index as usize];
            // A write that was acknowledged since is in the log, and hides it.
            if sector.open.iter().any(|open| Some(open.version) == landed) {
                sector.landed_at = arrival;
            }
        }
    }

    /// Nothing lands any more.
    pub fn settled(&mut self) {
        self.late.clear();
    }

    /// It changed nothing: it was refused, or never tried.
    pub fn withdraw(&mut self, arrival: u64, range: ByteRange) {
        for index in sectors(range) {
            self.sectors[index as usize].open.retain(|open| open.arrival != arrival);
        }
    }

    /// A read returned `bytes`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn observe(&mut self, arrival: u64, range: ByteRange, bytes: &[u8]) -> Result<(), String> {
        assert_eq!(bytes.len() as u64, range.len());
        for (index, bytes) in sectors(range).zip(bytes.chunks_exact(SECTOR as usize)) {
            let Some(version) = stamp::read(bytes, index) else {
                let word = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
                return Err(format!(
                    "sector {index}: bytes that nobody wrote there ({word:#x}); allowed: {}",
                    self.allowed(index)
                ));
            };
            if arrival > self.loss_at.max(self.sectors[index as usize].landed_at) {
                self.collapse(arrival, index, version)?;
            }
        }
        Ok(())
    }

    fn collapse(&mut self, arrival: u64, index: u64, version: Version) -> Result<(), String> {
        let sector = &mut self.sectors[index as usize];
        // Zeroes can be there again: then what was open in between may come back.
        let is_base = sector.base == version;
        let matches =
            |open: &&Open| open.version == version && (!is_base || open.arrival < arrival);
        match sector.open.iter().rev().find(matches).copied() {
            Some(seen) => {
                self.acknowledgements += 1;
                let by = self.acknowledgements;
                if !seen.is_unanswered {
                    sector.cover(by);
                }
                if !seen.durable {
                    let before = sector.open.iter().filter(|o| o.arrival < seen.arrival);
                    let before = before.map(|open| open.version).chain([sector.base]);
                    let is_beside_log = seen.is_unanswered;
                    let old =
                        |version| Old { is_beside_log, ..Old::new(version, by, seen.arrival) };
                    sector.old.extend(before.map(old));
                    self.with_old.insert(index);
                }
                (sector.base, sector.acknowledged, sector.based_on) = (version, 0, seen.arrival);
            }
            None if is_base => {}
            None => {
                let allowed = self.allowed(index);
                return Err(format!("sector {index}: version {version}, allowed: {allowed}"));
            }
        }
        // Everything that arrived before this read has ended: it is in `base`, or never was.
        let late = self.late.get(&index);
        let under_way =
            |open: &Open| open.arrival > arrival || open.drifts || late == Some(&open.version);
        self.sectors[index as usize].open.retain(under_way);
        Ok(())
    }

    fn allowed(&self, index: u64) -> String {
        let sector = &self.sectors[index as usize];
        let open: Vec<_> = sector.open.iter().map(|o| (o.arrival, o.version)).collect();
        format!("{} or, by arrival, {open:?}", sector.base)
    }

    /// A flush is about to be submitted: what it will have to cover.
    pub fn flush_mark(&self) -> u64 {
        self.acknowledgements
    }

    /// A flush with this mark succeeded, of primary storage or of a log.
    ///
    /// # Errors
    /// It should have told of a loss.
    pub fn flushed(&mut self, mark: u64, of_log: bool) -> Result<(), String> {
        if let Some(debt) = self.debt
            && mark >= debt.first
        {
            return Err("a flush succeeded although acknowledged writes were lost".into());
        }
        let sectors = &mut self.sectors;
        self.with_old.retain(|&index| {
            let old = &mut sectors[index as usize].old;
            old.retain(|old| old.by > mark || of_log && old.is_beside_log);
            !old.is_empty()
        });
        Ok(())
    }

    /// A flush with this mark failed; `in_time`: not because its time was over.
    pub fn flush_failed(&mut self, mark: u64, in_time: bool) {
        if in_time {
            self.told = self.told.max(mark);
        }
        if self.debt.is_some_and(|debt| mark >= debt.last) {
            self.debt = None;
        }
    }

    /// Primary storage lost what was volatile; `reverted` sectors read as these versions now. Reads
    /// that arrived up to `arrival` may have seen what was before.
    ///
    /// # Errors
    /// A sector went back behind an acknowledged flush.
    pub fn lose(
        &mut self,
        arrival: u64,
        reverted: impl IntoIterator<Item = (u64, Option<Version>)>,
    ) -> Result<(), String> {
        self.loss_at = arrival;
        for (index, version) in reverted {
            let Some(version) = version else {
                return Err(format!("sector {index}: primary storage holds nobody's bytes"));
            };
            let sector = &mut self.sectors[index as usize];
            let known = sector.base == version
                || sector.open.iter().any(|open| open.version == version)
                || sector.old.iter().any(|old| old.version == version);
            if !known {
                return Err(format!(
                    "sector {index}: a loss brought version {version} back, behind a flush; allowed: {} and {:?}",
                    self.allowed(index),
                    self.sectors[index as usize].old
                ));
            }
            if sector.base != version {
                // It may have been there all the time: an open one that landed is no loss.
                let landed = sector.open.iter().any(|open| open.version == version);
                if !landed && sector.acknowledged > self.told {
                    let lost = sector.acknowledged;
                    let debt = self.debt.unwrap_or(Debt { first: lost, last: lost });
                    self.debt =
                        Some(Debt { first: debt.first.min(lost), last: debt.last.max(lost) });
                }
                // A write around it may still bring it back.
                let before = Open { version: sector.base, ..Open::default() };
                sector.open.insert(0, before);
                (sector.base, sector.acknowledged) = (version, 0);
            }
            sector.old.clear();
            self.with_old.remove(&index);
        }
        Ok(())
    }

    /// Those of `sectors` that do not read as the last known version.
    pub fn changed(&self, sectors: &[(u64, Option<Version>)]) -> Vec<(u64, Option<Version>)> {
        let is_base = |&&(index, version): &&(u64, Option<Version>)| {
            version != Some(self.sectors[index as usize].base)
        };
        sectors.iter().filter(is_base).copied().collect()
    }

    /// A new engine takes over: it cannot know what the one before did not flush.
    pub fn new_life(&mut self) {
        self.told = self.acknowledgements;
        self.debt = None;
    }

    /// True when every byte of `range` may read as zeroes for a request with this arrival.
    pub fn may_be_zero(&self, arrival: u64, range: ByteRange) -> bool {
        let allowed = |sector: &Sector| {
            arrival <= sector.landed_at
                || sector.base == stamp::ZEROES
                || sector.open.iter().any(|open| open.version == stamp::ZEROES)
        };
        arrival <= self.loss_at || sectors(range).all(|s| allowed(&self.sectors[s as usize]))
    }
}

#[cfg(test)]
mod tests;
