//! Random histories of crashes: whatever is torn, and wherever a restart dies, the records stay and the log stays short.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::geometry::ByteRange;
use crate::sealed::{PAGE_LEN, crc32c};
use crate::splitmix::Rng;
use crate::write_back::format::recover::{
    LeasedSegment, LogReader, ReadError, RecoverInput, recover,
};

/// Pages of a segment.
const PAGES: u32 = 64;
const DISK: Uuid = Uuid([3; 16]);

/// A medium of segments whose unflushed sectors may be lost one by one, and the tables of a pool, which are not.
#[derive(Clone)]
struct Flash {
    segments: BTreeMap<u32, Vec<u8>>,
    durable: BTreeMap<u32, Vec<u8>>,
    leased: BTreeMap<u32, LeasedSegment>,
    next_ordinal: u64,
    generation: u64,
    /// Most segments that were leased at a time.
    most: usize,
    /// Sequences and what was written under them.
    written: Vec<(Entry, u8)>,
    /// Writes and flushes until the process dies.
    left: u32,
    random: Rng,
}

/// The process died.
struct Died;

impl Flash {
    fn new(seed: u64) -> Flash {
        Flash {
            segments: BTreeMap::new(),
            durable: BTreeMap::new(),
            leased: BTreeMap::new(),
            next_ordinal: 0,
            generation: 0,
            most: 0,
            written: Vec::new(),
            left: u32::MAX,
            random: Rng::new(seed),
        }
    }

    fn lease(&mut self) -> (SegmentId, u64) {
        let free = (0..).find(|number| !self.leased.contains_key(number)).expect("no end");
        let (segment, ordinal) = (SegmentId(free), self.next_ordinal);
        self.next_ordinal += 1;
        let generation = Generation(self.generation);
        self.leased.insert(free, LeasedSegment { segment, generation, ordinal });
        self.most = self.most.max(self.leased.len());
        (segment, ordinal)
    }

    fn step(&mut self) -> Result<(), Died> {
        self.left = self.left.checked_sub(1).ok_or(Died)?;
        Ok(())
    }

    fn write(&mut self, segment: SegmentId, page: u32, bytes: &[u8]) -> Result<(), Died> {
        self.step()?;
        let image = self.segments.entry(segment.0).or_insert_with(|| vec![0; 64 * PAGE_LEN]);
        image[page as usize * PAGE_LEN..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Died> {
        self.step()?;
        self.durable = self.segments.clone();
        Ok(())
    }

    /// Each sector that was not flushed is there, or is not.
    fn lose_power(&mut self) {
        let segments = self.segments.clone();
        for (number, image) in segments {
            let empty = vec![0; image.len()];
            let old = self.durable.get(&number).unwrap_or(&empty).clone();
            let now = self.segments.get_mut(&number).expect("it is there");
            let mut sectors = now.chunks_exact_mut(512).zip(old.chunks_exact(512));
            let random = &mut self.random;
            sectors.by_ref().filter(|(now, old)| now != old).for_each(|(now, old)| {
                if random.below(2) == 0 {
                    now.copy_from_slice(old);
                }
            });
        }
        self.durable = self.segments.clone();
    }

    fn recover(&mut self) -> RecoveredLog {
        let segments: Vec<_> = self.leased.values().copied().collect();
        let input = RecoverInput {
            disk: DISK,
            disk_size: 1 << 30,
            segment_pages: PAGES,
            segments: &segments,
            flushed: Sequence(0),
            through: Sequence(0),
            durable: Sequence(0),
            committed: Generation(self.generation),
            pending: Generation(self.generation),
            staged: &[],
            accept_missing: None,
            walk_all: false,
        };
        recover(&input, self).unwrap()
    }

    /// Opens the log as its owner does.
    fn open(&mut self) -> Result<(RecoveredLog, Tail, Session), Died> {
        self.generation += 1;
        self.flush()?;
        let mut found = self.recover();
        for segment in std::mem::take(&mut found.unused) {
            self.leased.remove(&segment.0);
        }
        let (generation, nonce) = (Generation(self.generation), self.generation * 77);
        let session = Session { disk: DISK, generation, nonce, phase: 0 };
        let plan = reopen(&found, PAGES);
        let mut places = Vec::new();
        for fresh in &plan.segments {
            let place = self.lease();
            for group in &fresh.groups {
                let mut page = [0; PAGE_LEN];
                group.encode(&found, &session, &mut page);
                self.write(place.0, group.page, &page)?;
                for (n, record) in found.records[group.records.clone()].iter().enumerate() {
                    let data = self.data(record);
                    let before = &found.records[group.records.clone()][..n];
                    let at: u32 = before.iter().map(RecoveredRecord::data_pages).sum();
                    self.write(place.0, group.page + 1 + at, &data)?;
                }
            }
            self.flush()?;
            let mut page = [0; PAGE_LEN];
            fresh.header(&session, place, found.next_epoch).encode(&mut page);
            self.write(place.0, 0, &page)?;
            self.flush()?;
            places.push(place);
        }
        let tail = plan.apply(&mut found, &places);
        let keep: BTreeSet<u32> = found.segments.iter().map(|s| s.segment.0).collect();
        self.leased.retain(|number, _| keep.contains(number) || *number == tail.segment.0);
        Ok((found, tail, session))
    }

    fn data(&self, record: &RecoveredRecord) -> Vec<u8> {
        let RecordPlace::Log { segment, page } = record.place else { panic!("nothing is staged") };
        let at = page as usize * PAGE_LEN;
        self.segments[&segment.0][at..][..record.data_pages() as usize * PAGE_LEN].to_vec()
    }

    /// Appends a durable group, where there is room.
    fn append(
        &mut self,
        (found, session): (&mut RecoveredLog, &Session),
        tail: &mut Tail,
        sizes: &[u32],
    ) -> Result<(), Died> {
        let pages = 1 + sizes.iter().sum::<u32>();
        if tail.page + pages > summary::first_page(PAGES) {
            return Ok(());
        }
        let mut page = [0; PAGE_LEN];
        let first = found.next_sequence;
        let header = GroupHeader {
            disk: DISK,
            generation: session.generation,
            number: found.next_group,
            first_sequence: first,
            durable: Sequence(0),
            nonce: session.nonce,
            phase: 0,
        };
        group::begin(&mut page, &header);
        let mut data = Vec::new();
        let mut entries = Vec::new();
        for &size in sizes {
            let byte = self.random.next_u64() as u8;
            let entry = Entry {
                range: ByteRange::at(u64::from(byte) * 4096, u64::from(size.max(1)) * 4096),
                epoch: found.next_epoch,
                kind: if size == 0 { RecordKind::Zero } else { RecordKind::Write },
                more: false,
            };
            let bytes = vec![byte; size as usize * PAGE_LEN];
            let checksums: Vec<u32> = bytes.chunks(PAGE_LEN).map(crc32c).collect();
            group::append(&mut page, &entry, &checksums);
            data.extend(bytes);
            entries.push((entry, byte));
        }
        group::seal(&mut page, Sequence(first.0 - 1));
        self.write(tail.segment, tail.page, &[&page[..], &data].concat())?;
        // What was written may be there from now on, and must be when it is flushed.
        self.written.truncate(first.0 as usize - 1);
        self.written.extend(entries);
        self.flush()?;
        tail.page += pages;
        found.next_group.0 += 1;
        found.next_sequence = first.plus(sizes.len() as u64);
        Ok(())
    }

    fn check(&self, found: &RecoveredLog, durable: u64) {
        let count = found.records.len() as u64;
        assert!(count >= durable, "{durable} records were durable, {count} are there");
        for (record, (entry, byte)) in found.records.iter().zip(&self.written) {
            assert_eq!((record.range, record.kind), (entry.range, entry.kind), "{record:?}");
            assert!(self.data(record).iter().all(|b| b == byte), "{record:?}");
        }
    }
}

impl LogReader for Flash {
    fn read(&mut self, segment: SegmentId, page: u32, out: &mut [u8]) -> Result<(), ReadError> {
        let at = page as usize * PAGE_LEN;
        match self.segments.get(&segment.0) {
            Some(image) => out.copy_from_slice(&image[at..at + out.len()]),
            None => out.fill(0),
        }
        Ok(())
    }
}

/// One life of the process: groups by their records' pages, steps until it dies, whether the host dies with it.
type Life = (Vec<Vec<u32>>, u32, bool);

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let group = prop::collection::vec(0..6_u32, 1..5);
    let life = (prop::collection::vec(group, 0..4), 0..40_u32, any::<bool>());
    prop::collection::vec(life, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn crashes_in_a_row_lose_nothing_and_do_not_eat_the_pool(lives in lives(), random: u64) {
        let mut flash = Flash::new(random);
        let mut durable = 0;
        for (groups, left, host) in lives {
            flash.left = left;
            if let Ok((mut found, mut tail, session)) = flash.open() {
                flash.check(&found, durable);
                durable = found.next_sequence.0 - 1;
                for sizes in &groups {
                    if flash.append((&mut found, &session), &mut tail, sizes).is_err() {
                        break;
                    }
                    durable = found.next_sequence.0 - 1;
                }
            }
            if host {
                flash.lose_power();
            }
        }
        flash.left = u32::MAX;
        let Ok((found, ..)) = flash.open() else { panic!("nothing stops it") };
        flash.check(&found, durable);
        // Two neighbours hold more than a quarter of a segment, and so do any two: and two more for a restart
        // that did not come to its end, one for the new one.
        let pages: u32 = found.records.iter().map(|record| 1 + record.data_pages()).sum();
        prop_assert!(flash.most as u32 <= 8 * pages / PAGES + 5, "{} for {pages}", flash.most);
    }
}

#[test]
fn a_hundred_crashes_that_each_leave_a_record_take_as_many_segments_as_the_records_need() {
    let mut flash = Flash::new(1);
    for _ in 0..100 {
        let Ok((mut found, mut tail, session)) = flash.open() else { panic!("nothing stops it") };
        assert!(flash.append((&mut found, &session), &mut tail, &[1]).is_ok());
        flash.lose_power();
    }
    let Ok((found, ..)) = flash.open() else { panic!("nothing stops it") };
    flash.check(&found, 100);
    // 100 data pages, in segments of 64: half full at least, and one to write to.
    assert!(flash.most <= 6, "{} segments", flash.most);
}

#[test]
fn a_hundred_restarts_that_die_in_recovery_take_no_more_segments_than_one() {
    let mut flash = Flash::new(1);
    let Ok((mut found, mut tail, session)) = flash.open() else { panic!("nothing stops it") };
    for _ in 0..3 {
        assert!(flash.append((&mut found, &session), &mut tail, &[5, 0, 1]).is_ok());
    }
    for left in 0..100 {
        flash.left = left % 9;
        let opened = flash.open().is_ok();
        if left % 2 == 0 {
            flash.lose_power();
        }
        flash.left = u32::MAX;
        let found = flash.recover();
        flash.check(&found, 9);
        assert!(flash.leased.len() <= 3, "{} segments ({opened})", flash.leased.len());
    }
}

#[test]
fn a_long_last_segment_is_left_alone_and_short_ones_are_put_together() {
    let mut flash = Flash::new(1);
    let mut segments = Vec::new();
    for sizes in [&[50][..], &[5], &[5], &[5]] {
        let Ok((mut found, mut tail, session)) = flash.open() else { panic!("nothing stops it") };
        segments.push(found.segments.len());
        assert!(flash.append((&mut found, &session), &mut tail, sizes).is_ok());
    }
    let Ok((found, tail, _)) = flash.open() else { panic!("nothing stops it") };
    assert_eq!(segments, [0, 1, 2, 2]);
    let pages: Vec<u64> = found.segments.iter().map(|s| s.end_sequence.0).collect();
    assert_eq!(pages, [2, 5]);
    // Three records in one group behind the header.
    assert_eq!(tail.page, 1 + 1 + 15);
}
