//! Recovery of the write log for a new engine, step by step, so that it can die between any two of them.
//!
//! ```text
//!  generation + 1 pending ─► flush ─► recover ─► give back what nothing depends on
//!     ─► each fresh segment: lease, groups, flush, header, flush ─► staging empty ─► committed ─► leases given back
//! ```
//! Each arrow is a step that is durable before the next one, as in `docs/format/protocol.md`. A recovery that dies begins
//! anew: after the death of the process it finds what was staged, unless that was emptied; after the loss of power
//! it does not, and what it had written and not flushed may be gone.

use std::collections::VecDeque;

use forebay_core::config::GridOffset;
use forebay_core::geometry::{PAGE, SECTOR};
use forebay_core::ids::{Generation, SegmentId, Sequence};
use forebay_core::sealed::Page;
use forebay_core::write_back::format::group::{GroupView, RecordKind};
use forebay_core::write_back::format::recover::{
    LeasedSegment, LogReader, ReadError, RecordPlace, RecoverInput, RecoveredLog, RecoveredRecord,
    recover,
};
use forebay_core::write_back::format::reopen::{FreshGroup, FreshSegment, Session, Tail, reopen};
use forebay_core::write_back::format::segment::SegmentHeader;
use forebay_core::write_back::format::summary::{self, Summary};

use crate::device::Device;
use crate::epochs::Trust;
use crate::planted::Planted;
use crate::pool::{DISK, NONCE, Pool, StagedGroup};
use crate::stamp;
use crate::world::World;

/// I/Os of recovery, which no engine asked for.
const RECOVERY_IO: u64 = u64::MAX;

/// The recovery died: it begins anew.
#[derive(Debug)]
pub(crate) struct Died;

/// When a recovery dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Steps that it does before.
    pub after: u64,
    /// Its host dies, too.
    pub power: bool,
}

/// Which recoveries die.
#[derive(Clone, Debug)]
pub(crate) enum Deaths {
    /// Three of ten.
    ByChance,
    /// These, one after the other, and none after them.
    Planned(VecDeque<Death>),
}

impl Pool {
    /// Something became durable, or was written.
    fn step(&mut self) -> Result<(), Died> {
        self.steps += 1;
        match self.dies_after.as_mut() {
            Some(0) => {
                self.dies_after = None;
                return Err(Died);
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    /// The result of recovery. Where nothing has rotted the summaries of segments say the same as
    /// their groups.
    fn recover(&self, staged: &[StagedGroup]) -> RecoveredLog {
        let found = self.read_back(staged, false);
        let walked = self.read_back(staged, true);
        let walked = RecoveredLog { report: found.report.clone(), ..walked };
        assert!(found == walked, "a summary says something else than the groups");
        found
    }

    fn read_back(&self, staged: &[StagedGroup], walk_all: bool) -> RecoveredLog {
        let held = self.held.iter();
        let segments: Vec<_> = held
            .map(|(&segment, &(generation, ordinal))| LeasedSegment {
                segment,
                generation,
                ordinal,
            })
            .collect();
        let headers: Vec<&Page> = staged.iter().map(|(header, _)| &**header).collect();
        let (flushed, through) = self.device.progress;
        let input = RecoverInput {
            disk: DISK,
            disk_size: self.disk_size,
            segment_pages: self.segment_pages,
            segments: &segments,
            flushed,
            through,
            durable: self.log_end,
            committed: self.committed,
            pending: self.pending,
            staged: &headers,
            accept_missing: None,
            walk_all,
        };
        let believes = !walk_all && self.planted == Planted::UnclaimedSummary;
        let mut reader = Reader { pool: self, believes };
        recover(&input, &mut reader).unwrap_or_else(|error| panic!("recovery: {error}"))
    }

    fn write(&mut self, segment: SegmentId, page: u32, bytes: &[u8]) -> Result<(), Died> {
        let start = (u64::from(segment.0 * self.segment_pages) + u64::from(page)) * PAGE;
        self.device.overwrite(RECOVERY_IO, start, bytes);
        self.step()
    }

    fn flush(&mut self) -> Result<(), Died> {
        self.device.flush_all();
        self.step()
    }

    /// The data pages of records that were found.
    fn data(&self, found: &RecoveredLog, group: &FreshGroup, staged: &[StagedGroup]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in &found.records[group.records.clone()] {
            let len = record.data_pages() as usize * PAGE as usize;
            let (from, start) = match record.place {
                RecordPlace::Log { segment, page } => {
                    let start = u64::from(segment.0 * self.segment_pages + page) * PAGE;
                    (self.device.bytes(), start)
                }
                RecordPlace::Staged { group, page } => {
                    (&staged[group as usize].1[..], u64::from(page) * PAGE)
                }
            };
            bytes.extend_from_slice(&from[start as usize..][..len]);
        }
        bytes
    }

    /// Writes a fresh segment; its header counts, and comes last.
    fn write_fresh(
        &mut self,
        found: &RecoveredLog,
        fresh: &FreshSegment,
        (session, staged): (&Session, &[StagedGroup]),
        planted: Planted,
    ) -> Result<(SegmentId, u64), Died> {
        let place = self.lease().expect("the pool has room for a restart");
        self.step()?;
        for group in &fresh.groups {
            let mut page = [0; PAGE as usize];
            group.encode(found, session, &mut page);
            let data = self.data(found, group, staged);
            self.write(place.0, group.page, &page)?;
            self.write(place.0, group.page + 1, &data)?;
        }
        if planted != Planted::HeaderBeforeGroups {
            self.flush()?;
        }
        let mut page = [0; PAGE as usize];
        fresh.header(session, place, found.next_epoch).encode(&mut page);
        self.write(place.0, 0, &page)?;
        if planted != Planted::HeaderNotFlushed {
            self.flush()?;
        }
        Ok(place)
    }

    /// Leaves a log that goes on where it is said, and says what is in it.
    fn reopen(
        &mut self,
        staged: &mut Vec<StagedGroup>,
        phase: u16,
        planted: Planted,
        primary: &mut Device,
    ) -> Result<(RecoveredLog, Tail, u64), Died> {
        self.steps = 0;
        self.pending = Generation(self.pending.0 + 1);
        self.flush()?;
        staged.sort_by_key(|(page, _)| GroupView::staged(page).map_or(0, |v| v.header().number.0));
        let mut found = self.recover(staged);
        if found.lacks_what_was_sent() && planted != Planted::ForgottenParts {
            // Before the log forgets it: the next start would not know.
            primary.settle();
            primary.flush_all();
            self.step()?;
        }
        for segment in std::mem::take(&mut found.unused) {
            self.give_back(segment);
            self.step()?;
        }
        let in_memory = staged.clone();
        if planted == Planted::StagingEmptiedEarly {
            staged.clear();
        }
        let phase = found.records.first().map_or(phase, |record| record.phase);
        let session = Session { disk: DISK, generation: self.pending, nonce: NONCE, phase };
        let plan = reopen(&found, self.segment_pages);
        let mut places = Vec::new();
        for fresh in &plan.segments {
            places.push(self.write_fresh(&found, fresh, (&session, &in_memory), planted)?);
        }
        let before = found.segments.len() as u64 + 1;
        let tail = plan.apply(&mut found, &places);
        let compacted = before.saturating_sub(found.segments.len() as u64);
        self.check_reopened(&found);
        staged.clear();
        self.step()?;
        (self.committed, self.log_end) = (self.pending, Sequence(0));
        self.step()?;
        let keep = found.segments.iter().map(|s| s.segment).chain([tail.segment]);
        let keep: Vec<SegmentId> = keep.collect();
        for segment in self.held.keys().copied().collect::<Vec<_>>() {
            if !keep.contains(&segment) {
                self.give_back(segment);
                self.step()?;
            }
        }
        Ok((found, tail, compacted))
    }

    /// The engine's input is the present state of flash.
    fn check_reopened(&self, opened: &RecoveredLog) {
        let found = self.recover(&[]);
        let checksums = |log: &RecoveredLog| -> Vec<u32> {
            let of = |record: &RecoveredRecord| {
                let first = record.first_checksum as usize;
                log.checksums[first..first + record.data_pages() as usize].to_vec()
            };
            log.records.iter().flat_map(of).collect()
        };
        let records = |log: &RecoveredLog| -> Vec<RecoveredRecord> {
            let same = |r: &RecoveredRecord| RecoveredRecord { first_checksum: 0, ..*r };
            log.records.iter().map(same).collect()
        };
        assert_eq!(records(&found), records(opened));
        assert_eq!(checksums(&found), checksums(opened));
        assert_eq!(found.segments, opened.segments);
        let next = |log: &RecoveredLog| (log.next_group, log.next_sequence, log.next_ordinal);
        assert_eq!(next(&found), next(opened));
        assert!(found.next_epoch >= opened.next_epoch);
    }
}

struct Reader<'a> {
    pool: &'a Pool,
    /// Every summary is claimed by the header of the next segment.
    believes: bool,
}

impl LogReader for Reader<'_> {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        out.copy_from_slice(&self.bytes(segment, page)[..out.len()]);
        if self.believes && page == 0 {
            self.claim(out.first_chunk_mut().expect("a page"));
        }
        Ok(())
    }
}

impl Reader<'_> {
    /// The device's content from this page on.
    fn bytes(&self, segment: SegmentId, page: u32) -> &[u8] {
        let start = (u64::from(segment.0 * self.pool.segment_pages) + u64::from(page)) * PAGE;
        &self.pool.device.bytes()[start as usize..]
    }

    /// Makes a segment's header claim what the summary of the segment before says.
    fn claim(&self, page: &mut Page) {
        let Ok(mut header) = SegmentHeader::decode(page) else { return };
        let held = self.pool.held.iter().map(|(&segment, &(_, ordinal))| (ordinal, segment));
        let before = held.filter(|&(ordinal, _)| ordinal < header.ordinal).max();
        let Some((_, segment)) = before else { return };
        let page_0 = self.bytes(segment, 0).first_chunk().expect("a page");
        let first = summary::first_page(self.pool.segment_pages);
        let room = u64::from(summary::pages(self.pool.segment_pages)) * PAGE;
        let bytes = &self.bytes(segment, first)[..room as usize];
        if SegmentHeader::decode(page_0).is_ok_and(|of| Summary::decode(bytes, &of).is_ok()) {
            header.durable = Sequence(header.first_sequence.0 - 1);
            header.encode(page);
        }
    }
}

impl World<'_> {
    /// Opens the log of the first engine, and its cache.
    pub(crate) fn open_log(&mut self) {
        match self.setup.config.write_log {
            Some(_) => {
                self.recover_log(&mut Vec::new()).expect("nothing is planned to die");
            }
            None => self.make_engine(None),
        }
        self.begin_memory();
        self.engine.begin(self.now, &mut self.actions);
    }

    /// Recovers the log for a new engine and opens it.
    pub(crate) fn recover_log(&mut self, staged: &mut Vec<StagedGroup>) -> Result<(), Died> {
        self.open_journal()?;
        let Some(mut log) = self.setup.config.write_log else { return Ok(()) };
        let phase = match self.setup.config.grid_offset {
            GridOffset::Fixed(offset) => (offset % PAGE) as u16,
            GridOffset::Auto => 0,
        };
        let (found, tail, compacted) =
            self.pool.reopen(staged, phase, self.planted, &mut self.backend)?;
        self.log.line(self.now, || format!("recovered {:?}", found.report));
        self.coverage.records_recovered += found.records.len() as u64;
        self.coverage.records_staged += found.report.records_staged;
        self.coverage.segments_compacted += compacted;
        self.coverage.segments_summarized += u64::from(found.report.segments_summarized);
        self.coverage.summaries_damaged += u64::from(found.report.summaries_damaged);
        let leaves_out = found.report.records_dropped > 0;
        self.coverage.parts_left_out += u64::from(leaves_out);
        self.coverage.parts_sent += u64::from(leaves_out && found.through >= found.next_sequence);
        log.generation = self.pool.pending;
        log.segments_found = found.segments.len() as u32 + 1;
        let mut config = self.setup.config;
        if let Some(record) = found.records.first() {
            config.grid_offset = GridOffset::Fixed(record.phase.into());
        }
        config.write_log = Some(log);
        self.setup.config = config;
        self.make_engine(Some((&found, tail)));
        Ok(())
    }

    /// Recovers a log although recoveries die on the way; true when the host died, now or before.
    pub(crate) fn recover_in_the_end(&mut self, mut staged: Vec<StagedGroup>, host: bool) -> bool {
        let mut host = host;
        loop {
            let death = self.next_death();
            self.pool.dies_after = death.map(|death| death.after);
            let dies = death.filter(|_| self.journal.is_some() && self.chance.chance(500));
            if let Some(journal) = &mut self.journal {
                journal.dies_after = dies.map(|death| death.after);
            }
            if self.recover_log(&mut staged).is_ok() {
                self.pool.dies_after = None;
                if let Some(journal) = &mut self.journal {
                    journal.dies_after = None;
                }
                return host;
            }
            let power = death.is_some_and(|death| death.power);
            self.coverage.recoveries_cut += 1;
            self.log.line(self.now, || format!("recovery dies, its host too: {power}"));
            if power {
                host = true;
                staged.clear();
                self.epochs.trust = Trust::Nothing;
                self.pool.device.lose_power();
                self.flash_loses_power();
                self.backend.settle();
                self.backend.lose(true);
                if let Some(journal) = &mut self.journal {
                    journal.device.lose(true);
                }
            }
        }
    }

    fn next_death(&mut self) -> Option<Death> {
        match &mut self.deaths {
            Deaths::Planned(deaths) => deaths.pop_front(),
            Deaths::ByChance => self
                .chance
                .chance(300)
                .then(|| Death { after: self.chance.below(12), power: self.chance.chance(400) }),
        }
    }

    /// After a loss of power the disk is what the log lays over primary storage.
    pub(crate) fn compare_after_power_loss(&mut self, in_order: bool) {
        let found = self.pool.recover(&[]);
        let mut image = self.backend.bytes().to_vec();
        for record in &found.records {
            let place = record.range.start as usize..record.range.end as usize;
            let RecordPlace::Log { segment, page } = record.place else {
                panic!("all is on flash")
            };
            if record.kind == RecordKind::Zero {
                image[place].fill(0);
                continue;
            }
            let first = u64::from(segment.0 * self.pool.segment_pages + page) * PAGE;
            let shift = (PAGE - u64::from(record.phase)) % PAGE;
            let start = (first + (record.range.start + shift) % PAGE) as usize;
            let len = record.range.len() as usize;
            image[place].copy_from_slice(&self.pool.device.bytes()[start..start + len]);
        }
        if in_order {
            // Whatever was lost, no epoch is there without all of the earlier ones.
            self.epochs.check(image.chunks_exact(SECTOR as usize));
        }
        let versions = image.chunks_exact(SECTOR as usize).zip(0..);
        let all: Vec<_> =
            versions.map(|(bytes, sector)| (sector, stamp::read(bytes, sector))).collect();
        let changed = self.oracle.changed(&all);
        self.coverage.sectors_lost += changed.len() as u64;
        self.log.line(self.now, || format!("power loss reverts {changed:?}"));
        let arrival = self.clients.arrive();
        self.oracle.lose(arrival, changed).unwrap_or_else(|wrong| panic!("{wrong}"));
        self.oracle.new_life();
    }
}
