//! The index and its cache, without an engine: batches, marks, the end of a run, and the next one.

use crate::action::{Action, Actions, Io, IoOp, Target};
use crate::cache::tests::{BLOCK, DISK, Rig, block, config};
use crate::cache_index::header::RingHeader;
use crate::cache_index::page::{self, PageFlags, PageHeader, PageWriter};
use crate::cache_index::recover::RingReader;
use crate::cache_index::{CacheIndex, IndexWants, PrimaryFlushes, RingGeometry};
use crate::config::{Config, RingConfig};
use crate::cx::Cx;
use crate::geometry::{ByteRange, GranuleMask, PAGE};
use crate::ids::{BlockIndex, Generation, Nanos, SlotId, Uuid};
use crate::sealed::{PAGE_LEN, Page};
use crate::status::IoStatus;
use crate::table::Key;

const SLOTS: u64 = 8;
const NONCE: u64 = 5;
const NO_FLUSH: PrimaryFlushes =
    PrimaryFlushes { starts: 0, succeeded: 0, is_in_flight: false, retry_at: Nanos(0) };

/// An index, its cache and the pages that are on flash.
struct World {
    rig: Rig,
    index: CacheIndex,
    slots: u64,
    ring: Vec<Page>,
    /// Its I/O, if one is under way.
    pending: Option<Io>,
    /// It was asked that the index is noted to be void.
    voids: u32,
}

fn recorded(slots: u64) -> Config {
    let pages = RingGeometry::new(slots as u32, 2, BLOCK, DISK).pages();
    let ring = RingConfig::new(Uuid([1; 16]), Generation(1), NONCE, pages, DISK);
    Config { ring: Some(ring), ..config(0, slots) }
}

struct Reader<'a> {
    ring: &'a [Page],
    first: u32,
}

impl RingReader for Reader<'_> {
    fn load(&mut self, first: u32, _: u32, _: Option<(u32, u32)>) -> Result<(), String> {
        self.first = first;
        Ok(())
    }

    fn page(&self, index: u32) -> &Page {
        &self.ring[(self.first + index) as usize]
    }
}

impl World {
    fn new(config: Config) -> World {
        let ring = config.ring.expect("a ring");
        let rig = Rig::new(config);
        let grid = rig.shared.grid;
        let slots = config.flash_bytes / BLOCK;
        World {
            index: CacheIndex::new(ring, &config, slots as u32, &grid, config.buffer_bytes),
            slots,
            ring: vec![[0; PAGE_LEN]; ring.pages as usize],
            rig,
            pending: None,
            voids: 0,
        }
    }

    /// One call of the index.
    fn call<T>(&mut self, call: impl FnOnce(&mut World, &mut Actions) -> T) -> T {
        let mut actions = Actions::with_capacity(8);
        let result = call(self, &mut actions);
        for action in actions.list {
            match action {
                Action::Io(io) if io.target == Target::Ring || io.op == IoOp::Flush => {
                    assert!(self.pending.replace(io).is_none(), "one batch at a time");
                }
                Action::Io(io) => self.rig.pending.push(io),
                Action::Void => self.voids += 1,
                _ => {}
            }
        }
        self.index.check_invariants();
        self.rig.cache.check_invariants();
        result
    }

    fn advance(&mut self, flushes: PrimaryFlushes, writes: &[ByteRange]) {
        let _ = self.wants(flushes, writes);
    }

    /// The same, and what the index wants.
    fn wants(&mut self, flushes: PrimaryFlushes, writes: &[ByteRange]) -> IndexWants {
        self.call(|World { index, rig, .. }, actions| {
            let mut cx = Cx { actions, shared: &mut rig.shared };
            let writes = writes.iter().copied();
            let wants = index.advance_marks(flushes, writes, &rig.cache, &mut cx);
            index.record_if_due(&mut rig.cache, &mut cx);
            wants
        })
    }

    /// The I/O under way ends.
    fn end_io(&mut self, status: IoStatus) {
        let io = self.pending.take().expect("one is under way");
        let key = Key(io.id.0);
        self.rig.shared.ios.remove(key);
        self.rig.shared.hanging.flash.remove(key);
        if io.target == Target::Ring && status.is_ok() {
            let first = (io.range.start / PAGE) as usize;
            let pages = self.index.pages();
            self.ring[first..first + pages.len()].copy_from_slice(pages);
        }
        self.call(|World { index, rig, .. }, actions| {
            let mut cx = Cx { actions, shared: &mut rig.shared };
            index.on_io(status, &mut rig.cache, &mut cx);
        });
    }

    fn pass_a_minute(&mut self) {
        self.rig.shared.now = self.rig.shared.now.plus(Nanos::from_millis(60_000));
    }

    /// Everything is recorded that is due within a minute.
    fn settle(&mut self) {
        for _ in 0..2 {
            self.advance(NO_FLUSH, &[]);
            while self.pending.is_some() {
                self.end_io(IoStatus::Ok);
            }
            self.pass_a_minute();
        }
    }

    /// Blocks come to flash.
    fn fill(&mut self, blocks: std::ops::Range<u64>) {
        for n in blocks {
            self.rig.install(block(n), |_| n);
            while !self.rig.pending.is_empty() {
                self.index.note_fill();
                self.rig.end_fill(0, IoStatus::Ok);
            }
        }
    }

    /// The next run, with what is on flash.
    fn restarted(&self, logged: &[ByteRange]) -> World {
        let mut config = recorded(self.slots);
        let ring = config.ring.as_mut().expect("a ring");
        ring.generation = Generation(2);
        let header = RingHeader {
            disk: ring.disk,
            generation: Generation(1),
            nonce: NONCE,
            disk_size: DISK,
            block_size: BLOCK as u32,
            slots: self.slots as u32,
            pages: ring.pages,
        };
        let mut next = World::new(config);
        next.ring.clone_from(&self.ring);
        let mut reader = Reader { ring: &self.ring, first: 0 };
        let logged = logged.iter().copied();
        let World { index, rig, .. } = &mut next;
        index
            .restore(&header, &mut reader, logged, &mut rig.cache, &mut rig.shared)
            .expect("a warm cache");
        next
    }

    /// Blocks that are on flash.
    fn blocks(&self) -> Vec<u64> {
        (0..DISK / BLOCK).filter(|&n| self.rig.found(n)[1] == GranuleMask(0b11)).collect()
    }
}

/// A world whose marks of the start are gone.
fn settled() -> World {
    settled_with(SLOTS)
}

fn settled_with(slots: u64) -> World {
    let mut world = World::new(recorded(slots));
    world.settle();
    let flushed = PrimaryFlushes { starts: 1, succeeded: 1, ..NO_FLUSH };
    assert_eq!(world.wants(flushed, &[]), IndexWants::Nothing);
    world.settle();
    assert_eq!(world.index.statistics().regions_marked, 0);
    world
}

#[test]
fn what_is_recorded_is_found_by_the_next_run() {
    let mut world = settled();
    world.fill(2..7);
    assert!(world.restarted(&[]).blocks().is_empty(), "nothing of it is recorded yet");
    world.settle();
    assert_eq!(world.restarted(&[]).blocks(), [2, 3, 4, 5, 6]);
    assert_eq!(world.restarted(&[block(3)]).blocks(), [2, 4, 5, 6], "the log has the newest");
}

/// A crash can leave a block recorded in a slot that it left, and in the one where it lies now, when what says that the former
/// is empty was to come in the next page.
#[test]
fn a_former_slot_of_a_block_is_empty_before_the_block_changes() {
    // So many that the walk does not come round meanwhile.
    let slots = 100_000;
    let mut world = settled_with(slots);
    world.fill(2..4);
    world.settle();
    let last = world.index.statistics().last_page;
    let ring = recorded(slots).ring.expect("a ring");
    let place = (last % u64::from(ring.pages)) as usize;
    let former = world.rig.cache.lookup(BlockIndex(2)).flash.expect("it is on flash").0;
    let slot = SlotId(slots as u32 - 1);
    assert_ne!(slot, former);
    let before = page::decode(&world.ring[place - 1], ring.disk, NONCE).expect("the last page");
    let mut writer = PageWriter::new(&mut world.ring[place]);
    writer.claim(slot, BlockIndex(2), GranuleMask(0b11), false, &[1, 2]);

    writer.finish(&PageHeader {
        number: last + 1,
        durable: last,
        walk: (before.walk.1, before.walk.1 + 1),
        flags: PageFlags::default(),
        ..before
    });
    let mut next = world.restarted(&[]);
    assert_eq!(next.blocks(), [2, 3]);
    next.rig.cache.invalidate(block(2), &mut next.rig.shared);
    next.settle();
    assert_eq!(next.restarted(&[]).blocks(), [3], "the old bytes came back");
    // So it is when the log has the newest: what is noted then counts for both slots.
    let mut next = world.restarted(&[block(2)]);
    next.settle();
    assert_eq!(next.restarted(&[]).blocks(), [3], "the old bytes came back");
}

#[test]
fn what_a_batch_claims_is_flushed_before_the_batch_is_written() {
    let mut world = settled();
    world.fill(0..1);
    world.pass_a_minute();
    world.advance(NO_FLUSH, &[]);
    world.pass_a_minute();
    world.advance(NO_FLUSH, &[]);
    assert_eq!(world.pending.expect("a flush").target, Target::Flash);
    world.end_io(IoStatus::Ok);
    assert_eq!(world.pending.expect("a batch").target, Target::Ring);
    world.end_io(IoStatus::Ok);
    assert_eq!(world.restarted(&[]).blocks(), [0]);
}

#[test]
fn a_write_waits_until_its_mark_is_durable() {
    let mut world = settled();
    world.fill(0..2);
    world.settle();
    let range = block(1);
    assert!(!world.index.intends(Key(9), range));
    world.advance(NO_FLUSH, &[]);
    world.end_io(IoStatus::Ok);
    assert_eq!(world.rig.shared.ready.pop_front(), Some(Key(9)));
    assert!(world.index.intends(Key(9), range));
    assert!(world.restarted(&[]).blocks().is_empty(), "both are in the region that is marked");
}

#[test]
fn a_mark_goes_when_the_write_ended_and_was_flushed() {
    let mut world = settled();
    let range = block(1);
    let marked = |world: &World| world.index.statistics().regions_marked;
    let flushed = |number| PrimaryFlushes { starts: number, succeeded: number, ..NO_FLUSH };
    assert!(!world.index.intends(Key(9), range));
    world.advance(NO_FLUSH, &[range]);
    world.end_io(IoStatus::Ok);
    // The time of the marks is over while the write is under way: it stays marked.
    world.pass_a_minute();
    world.advance(NO_FLUSH, &[range]);
    world.pass_a_minute();
    assert_eq!(world.wants(NO_FLUSH, &[range]), IndexWants::Flush);
    assert_eq!(world.wants(flushed(1), &[range]), IndexWants::Nothing);
    assert_eq!(marked(&world), 1);
    // It ended. A flush that was over by then says nothing of it.
    world.pass_a_minute();
    world.advance(flushed(1), &[]);
    world.advance(flushed(1), &[]);
    assert_eq!(marked(&world), 1);
    world.advance(flushed(2), &[]);
    assert_eq!(marked(&world), 0);
}

#[test]
fn a_batch_that_fails_voids_the_index() {
    let mut world = settled();
    assert!(!world.index.intends(Key(9), block(1)));
    world.advance(NO_FLUSH, &[]);
    world.end_io(IoStatus::IoError);
    assert!(world.voids == 1 && world.index.is_voiding());
    assert!(!world.index.intends(Key(10), block(1)), "it might be believed still");
    assert!(!world.index.is_recorded(0));
    let goes_on = world.call(|World { index, rig, .. }, actions| {
        index.voided(true, &mut rig.cache, &mut Cx { actions, shared: &mut rig.shared })
    });
    assert!(goes_on && world.index.is_closed());
    assert_eq!(world.rig.shared.ready, [Key(9), Key(10)]);
    assert!(world.index.intends(Key(9), block(1)) && world.index.is_recorded(u64::MAX));
}

#[test]
fn nobody_waits_for_ever_until_the_index_is_void() {
    let mut world = settled();
    world.call(|World { index, rig, .. }, actions| {
        index.void(IoStatus::IoError, &mut Cx { actions, shared: &mut rig.shared });
    });
    let time_out = |world: &mut World| {
        world.call(|World { index, rig, .. }, actions| {
            index.time_out(&mut rig.cache, &mut Cx { actions, shared: &mut rig.shared });
        });
        world.index.is_closed()
    };
    assert!(!time_out(&mut world));
    world.rig.shared.now = world.index.deadline(world.rig.shared.now, NO_FLUSH);
    assert!(time_out(&mut world));
}

#[test]
fn an_index_that_is_closed_in_order_marks_nothing() {
    let mut world = settled();
    world.fill(0..3);
    assert!(!world.index.intends(Key(9), block(1)));
    assert!(world.index.close(true) && !world.index.is_settled());
    world.settle();
    assert!(world.index.is_closed() && world.index.is_settled());
    let next = world.restarted(&[]);
    assert_eq!(next.blocks(), [0, 1, 2]);
    assert_eq!(next.index.statistics().regions_marked, 0);
}
