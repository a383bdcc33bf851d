//! What a start makes of the ring that a former run left.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use forebay_core::cache_index::header::RingHeader;
use forebay_core::cache_index::page::{PageFlags, PageHeader, PageWriter};
use forebay_core::config::{BackendTraits, Config};
use forebay_core::engine::Engine;
use forebay_core::geometry::GranuleMask;
use forebay_core::ids::{BlockIndex, Nanos, SlotId};
use forebay_core::stats::RingStatistics;

use super::super::file::{PoolPage, medium};
use super::*;
use crate::warm::Start;

const BLOCK: u64 = 4096;
/// What its cache has flash for at most, in bytes.
const ROOM: u64 = 8 * MIB;

/// A disk whose cache may have other flash at each start.
struct Bed {
    _folder: tempfile::TempDir,
    path: PathBuf,
    pool: SharedPool,
    number: DiskNumber,
}

impl Bed {
    fn new() -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flash");
        let shares = [Share { cache: ROOM, ring: 3 * MIB, log: 4 * MIB }];
        let mut pool = open(&path, &shares).unwrap();
        let (number, _) = serve(&mut pool, &wish("db", "file:/db"));
        Bed { _folder: folder, path, pool: Arc::new(Mutex::new(pool)), number }
    }

    /// Starts with a cache of so many bytes: where its ring is, what came back, and what was told.
    fn start(&self, flash_bytes: u64) -> (Area, RingStatistics, Vec<(Severity, String)>) {
        let traits = BackendTraits {
            size: 64 * MIB,
            logical_block: 512,
            read_only: false,
            discard: false,
            write_zeroes: false,
            extents: false,
        };
        let config =
            Config { block_size: BLOCK, flash_bytes, flash_room: ROOM, ..Config::for_disk(traits) };
        let mut pool = lock(&self.pool);
        let generation = pool.begin_session(self.number).unwrap();
        let area = pool.take_cache(self.number, flash_bytes).unwrap();
        let begun = pool.snapshot();
        drop(pool);
        let (mut config, mut notes) = (config, Vec::new());
        let run = (generation, false);
        let start = Start::new(&begun, self.number, &area, run, &mut config, &mut notes);
        let make = |config| Engine::new(config).map_err(anyhow::Error::new);
        let started = start.unwrap().expect("it has slots");
        let started = started.engine(&self.pool, &begun, true, None, make, &mut notes).unwrap();
        lock(&self.pool).trim_cache(self.number, flash_bytes).unwrap();
        let ring = started.engine.statistics(Nanos(0)).ring.expect("it has a ring");
        (started.ring.expect("there is room"), ring, notes)
    }

    /// The ring says that blocks are in these slots.
    fn record(&self, ring: Area, slots: &[u64]) {
        let pool = lock(&self.pool);
        let RingHeader { disk, generation, nonce, .. } = pool.ring_header(ring).unwrap().unwrap();
        let mut page = PoolPage::ZERO;
        let mut writer = PageWriter::new(&mut page.0);
        for (block, slot) in (0..).zip(slots) {
            writer.claim(SlotId(*slot as u32), BlockIndex(block), GranuleMask(1), false, &[7]);
        }
        writer.finish(&PageHeader {
            disk,
            generation,
            nonce,
            number: 1,
            durable: 0,
            tail: 1,
            walk: (0, 0),
            grid_offset: 0,
            flags: PageFlags::EMPTY.with(PageFlags::UNMARKED),
        });
        pool.file.write(ring.offset + PAGE, &[page]).unwrap();
    }
}

#[test]
fn a_cache_that_no_longer_has_all_the_flash_it_got_keeps_what_is_in_the_rest() {
    let bed = Bed::new();
    let (ring, _, _) = bed.start(8 * MIB);
    bed.record(ring, &[0, 6 * MIB / BLOCK]);
    let nonce = |ring| lock(&bed.pool).ring_header(ring).unwrap().unwrap().nonce;
    let before = nonce(ring);
    let (ring, all, notes) = bed.start(8 * MIB);
    assert_eq!((all.blocks_found, all.blocks_kept), (2, 2), "{notes:?}");
    assert_eq!(nonce(ring), before);
    let (ring, part, notes) = bed.start(4 * MIB);
    assert_eq!((part.blocks_found, part.blocks_kept), (2, 1), "{notes:?}");
    assert_ne!(nonce(ring), before, "the former one says what is in slots that are gone");
    assert!(notes.iter().all(|(severity, _)| *severity == Severity::Info), "{notes:?}");
}

#[test]
fn an_index_whose_header_cannot_be_read_is_begun_anew_with_a_warning() {
    let bed = Bed::new();
    let (ring, _, _) = bed.start(8 * MIB);
    bed.record(ring, &[0]);
    medium::spoil(&[ring.offset]);
    let (again, cold, notes) = bed.start(8 * MIB);
    medium::disarm(&bed.path, None);
    assert!(!cold.is_warm);
    let [(Severity::Warning, text)] = &notes[..] else { panic!("{notes:?}") };
    assert!(text.contains("starts empty: its index cannot be read: "), "{text}");
    // Nothing of the former ring is believed once it can be read again.
    assert_eq!(again, ring);
    let (_, found, notes) = bed.start(8 * MIB);
    assert!(!found.is_warm && notes.len() == 1, "{notes:?}");
}
