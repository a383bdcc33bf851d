//! The cache alone: its actions are carried out at once, its I/Os end when the test says so.

mod model;
mod resize;

use super::*;
use crate::action::{Action, Actions, Buffer, Event, Io, IoOp, ReplyData, Span};
use crate::config::BackendTraits;
use crate::cx::Shared;
use crate::cx::io::IoKind;
use crate::geometry::{ByteRange, SECTOR};
use crate::ids::Nanos;
use crate::table::Key;

/// Bytes of a cache block, and of the disk.
pub(crate) const BLOCK: u64 = 8 << 10;
pub(crate) const DISK: u64 = 64 * BLOCK;
const IOS_MAX: u32 = 64;

/// A cache, its memory and its flash. A cell stands for a sector.
pub(crate) struct Rig {
    pub cache: Cache,
    pub shared: Shared,
    memory: Vec<u64>,
    flash: Vec<u64>,
    /// I/Os that the cache asked for, oldest first.
    pub pending: Vec<Io>,
    pub events: Vec<Event>,
    /// Granules that the log holds and primary storage has not.
    pub undestaged: GranuleMask,
}

/// A disk whose tiers have so many blocks.
pub(crate) fn config(ram: u64, flash: u64) -> Config {
    let backend = BackendTraits {
        size: DISK,
        logical_block: 512,
        read_only: false,
        discard: false,
        write_zeroes: false,
        extents: false,
    };
    Config {
        block_size: BLOCK,
        grid_offset: GridOffset::Fixed(0),
        ram_bytes: ram * BLOCK,
        flash_bytes: flash * BLOCK,
        buffer_bytes: 2 << 20,
        ..Config::for_disk(backend)
    }
}

/// The bytes of block `block`.
pub(crate) fn block(block: u64) -> ByteRange {
    ByteRange::at(block * BLOCK, BLOCK)
}

fn sectors(start: u64, len: u64) -> std::ops::Range<usize> {
    (start / SECTOR) as usize..((start + len) / SECTOR) as usize
}

impl Rig {
    pub(crate) fn new(config: Config) -> Rig {
        let grid = Grid::new(config.backend.size, config.block_size, 0);
        let shared = Shared::new(config, grid, IOS_MAX);
        let memory = config.buffer_bytes + config.ram_bytes.max(config.ram_room);
        Rig {
            cache: Cache::new(&config, &grid, config.buffer_bytes, IOS_MAX),
            shared,
            memory: vec![0; sectors(0, memory).end],
            flash: vec![0; sectors(0, config.flash_bytes).end],
            pending: Vec::new(),
            events: Vec::new(),
            undestaged: GranuleMask::NONE,
        }
    }

    /// One call of the cache, with what it asked for carried out.
    pub(crate) fn call<T>(
        &mut self,
        call: impl FnOnce(&mut Cache, Undestaged<'_>, &mut Cx<'_>) -> T,
    ) -> T {
        let mut actions = Actions::with_capacity(64);
        let undestaged = self.undestaged;
        let mut cx = Cx { actions: &mut actions, shared: &mut self.shared };
        let result = call(&mut self.cache, &|_, of, _| undestaged.intersect(of), &mut cx);
        for action in actions.list {
            match action {
                Action::Copy { from, to } => {
                    let at = sectors(to.offset, 0).start;
                    self.memory.copy_within(sectors(from.offset, from.len.into()), at);
                }
                Action::Io(io) => self.pending.push(io),
                Action::Event(event) => self.events.push(event),
                _ => {}
            }
        }
        self.shared.buffers.carried_out();
        self.shared.buffers.asked();
        self.cache.check_invariants();
        result
    }

    /// A buffer for `range`, every sector of it with its cell of `cells`.
    fn buffer(&mut self, range: ByteRange, cells: impl Fn(u64) -> u64) -> Buffer {
        let buffer = self.shared.take_buffer(range).expect("memory");
        for at in (range.start..range.end).step_by(SECTOR as usize) {
            let memory = buffer.at(ByteRange::at(at, SECTOR));
            self.memory[sectors(memory.offset, SECTOR).start] = cells(at / SECTOR);
        }
        buffer
    }

    /// `range` was fetched.
    pub(crate) fn install(&mut self, range: ByteRange, cells: impl Fn(u64) -> u64) {
        let buffer = self.buffer(range, cells);
        self.call(|cache, undestaged, cx| cache.install(range, buffer, undestaged, cx));
        self.shared.free_buffer(buffer);
    }

    /// `range` was written.
    fn write(&mut self, range: ByteRange, bypass: bool, cells: impl Fn(u64) -> u64) {
        let buffer = self.buffer(range, cells);
        let write = Update { range, buffer, keeps: true, is_stream: false, bypass };
        for block in self.shared.grid.blocks(range) {
            self.call(|cache, undestaged, cx| cache.update(block, &write, undestaged, cx));
        }
        self.shared.free_buffer(buffer);
    }

    /// The slices that a read of `range` is answered with from RAM.
    fn hit(&mut self, range: ByteRange) -> Option<Vec<Span>> {
        self.call(|cache, _, cx| {
            let hit = cache.may_hit(range, &cx.grid).then(|| cache.hit(range, cx))?;
            let ReplyData::Slots { first, count } = hit? else { panic!("slots") };
            Some(cx.actions.slices[first as usize..(first + count) as usize].to_vec())
        })
    }

    fn cells(&self, memory: Span) -> &[u64] {
        &self.memory[sectors(memory.offset, memory.len.into())]
    }

    /// The fill at place `n` of the pending I/Os ends.
    pub(crate) fn end_fill(&mut self, n: usize, status: IoStatus) {
        let io = self.pending.remove(n);
        let entry = self.shared.ios.remove(Key(io.id.0));
        self.shared.hanging.flash.remove(Key(io.id.0));
        let IoKind::Fill { fill, to } = entry.kind else { panic!("a fill") };
        let IoOp::Write { memory, .. } = io.op else { panic!("a write") };
        let written = self.cells(memory).to_vec();
        if status.is_ok() {
            self.flash[sectors(io.range.start, io.range.len())].copy_from_slice(&written);
        }
        let checksums: Vec<u32> = (to.first..to.end).map(|granule| 100 + granule).collect();
        self.call(|cache, _, cx| cache.on_fill(fill, to, status, &checksums, cx));
    }

    fn end_fills(&mut self) {
        while !self.pending.is_empty() {
            self.end_fill(0, IoStatus::Ok);
        }
    }

    /// Granules of a block in RAM and on flash.
    pub(crate) fn found(&self, block: u64) -> [GranuleMask; 2] {
        let found = self.cache.lookup(BlockIndex(block as u32));
        [found.in_ram(), found.flash.map_or(GranuleMask::NONE, |(_, valid)| valid)]
    }
}

const ALL: GranuleMask = GranuleMask(0b11);

#[test]
fn what_is_installed_is_hit_in_ram() {
    let mut rig = Rig::new(config(4, 0));
    rig.install(block(3), |sector| sector);
    let slices = rig.hit(block(3)).expect("a hit");
    assert_eq!(rig.cells(slices[0]), (48..64).collect::<Vec<u64>>());
    assert_eq!(rig.hit(ByteRange::at(3 * BLOCK, BLOCK + 512)), None, "the next block is not there");
}

#[test]
fn what_ram_gives_up_goes_to_flash() {
    let mut rig = Rig::new(config(2, 8));
    for n in 0..3 {
        rig.install(block(n), |_| n);
    }
    assert_eq!(rig.pending.len(), 1);
    assert_eq!(rig.found(0), [GranuleMask::NONE; 2], "it is on its way");
    rig.end_fill(0, IoStatus::Ok);
    assert_eq!(rig.found(0), [GranuleMask::NONE, ALL]);
    assert_eq!(rig.shared.counters.ram_evicted, 1);
}

#[test]
fn what_is_in_the_log_waits_for_the_destager() {
    let mut rig = Rig::new(config(2, 8));
    rig.undestaged = ALL;
    for n in 0..3 {
        rig.install(block(n), |_| n);
    }
    assert!(rig.pending.is_empty());
    let buffer = rig.buffer(block(0), |_| 7);
    let is_offered = |rig: &mut Rig| {
        rig.call(|cache, _, cx| cache.offer_destaged(BlockIndex(0), ALL, buffer, cx));
        !rig.pending.is_empty()
    };
    assert!(!is_offered(&mut rig), "nobody has asked for it twice");
    assert!(is_offered(&mut rig), "it is remembered");
}

#[test]
fn a_write_cancels_what_is_on_its_way_to_flash() {
    let mut rig = Rig::new(config(0, 8));
    rig.install(block(0), |_| 1);
    rig.write(ByteRange::at(0, 4096), true, |_| 2);
    rig.end_fills();
    assert_eq!(rig.found(0), [GranuleMask::NONE, GranuleMask(0b10)]);
}

#[test]
fn a_slot_of_a_reply_does_not_change_until_it_is_sent() {
    let mut rig = Rig::new(config(4, 0));
    rig.install(block(0), |_| 1);
    let sent = rig.hit(block(0)).expect("a hit")[0];
    rig.write(ByteRange::at(0, 512), false, |_| 2);
    assert!(rig.cells(sent).iter().all(|&cell| cell == 1));
    let new = rig.hit(block(0)).expect("a hit")[0];
    assert_eq!((rig.cells(new)[0], rig.cells(new)[1]), (2, 1));
    rig.cache.unpin();
    rig.cache.check_invariants();
}

#[test]
fn a_slot_of_a_reply_gets_no_other_bytes_when_it_loses_some() {
    let mut rig = Rig::new(config(4, 0));
    rig.install(block(0), |_| 1);
    let sent = rig.hit(block(0)).expect("a hit")[0];
    let first = ByteRange::at(0, 4096);
    rig.call(|cache, _, cx| cache.invalidate(first, cx));
    rig.install(first, |_| 2);
    assert!(rig.cells(sent).iter().all(|&cell| cell == 1));
}

#[test]
fn a_slot_that_cannot_be_written_is_not_used_again() {
    let mut rig = Rig::new(config(0, 1));
    rig.install(block(0), |_| 1);
    rig.end_fill(0, IoStatus::IoError);
    assert!(matches!(rig.events[..], [Event::SlotQuarantined { offset: 0 }]));
    rig.install(block(1), |_| 1);
    assert!(rig.pending.is_empty() && rig.shared.counters.flash_fills_skipped_slots == 1);
}

#[test]
fn what_flash_delivers_wrongly_is_dropped() {
    let mut rig = Rig::new(config(0, 8));
    rig.install(block(0), |_| 1);
    rig.end_fills();
    let (slot, _) = rig.cache.lookup(BlockIndex(0)).flash.expect("it is there");
    let at = SlotRun { block: BlockIndex(0), slot, first: 0, end: 2 };
    for (checksums, is_right) in [([100, 101], true), ([100, 99], false)] {
        let place = rig.call(|cache, _, cx| cache.begin_flash_read(at, &cx.grid));
        assert_eq!(place.len(), BLOCK);
        let ended = rig.call(|cache, _, cx| cache.end_flash_read(at, IoStatus::Ok, &checksums, cx));
        assert_eq!(ended, is_right);
    }
    assert_eq!(rig.found(0), [GranuleMask::NONE; 2]);
    assert_eq!(rig.shared.counters.flash_checksum_errors, 1);
}

#[test]
fn a_long_range_is_gone_at_once_and_dropped_part_by_part() {
    let mut rig = Rig::new(config(16, 0));
    for n in 0..16 {
        rig.install(block(n), |_| n);
    }
    let all = rig.shared.config.disk();
    rig.call(|cache, _, cx| cache.invalidate(all, cx));
    assert!(rig.hit(block(0)).is_none() && rig.found(5) == [GranuleMask::NONE; 2]);
    let mut ticks = 0;
    while rig.cache.stale_deadline() != Nanos::NEVER {
        rig.shared.now = rig.cache.stale_deadline();
        rig.call(|cache, _, cx| cache.drop_more(cx));
        ticks += 1;
    }
    assert_eq!((ticks, rig.cache.statistics()[0].slots_used), (4, 0));
}

#[test]
fn an_administrator_hears_how_much_was_dropped() {
    let mut rig = Rig::new(config(16, 0));
    for n in 0..9 {
        rig.install(block(n), |_| n);
    }
    rig.call(|cache, _, cx| cache.begin_drop(cx));
    while rig.cache.swept().is_none() {
        rig.shared.now = rig.cache.stale_deadline();
        rig.call(|cache, _, cx| cache.drop_more(cx));
    }
    assert_eq!((rig.cache.end_drop(), rig.cache.swept()), (9, None));
}

#[test]
fn a_tier_that_was_given_up_is_not_used() {
    let mut rig = Rig::new(config(0, 8));
    rig.install(block(0), |_| 1);
    rig.end_fills();
    let failures = (0..20).take_while(|_| !rig.cache.note_flash_io(IoStatus::IoError)).count();
    assert_eq!(failures, 7, "it is given up at the eighth");
    rig.call(|cache, _, cx| cache.fail_flash(IoStatus::IoError, cx));
    rig.install(block(1), |_| 1);
    assert_eq!(rig.found(0), [GranuleMask::NONE; 2]);
    assert!(rig.pending.is_empty());
}

#[test]
fn blocks_that_are_written_again_and_again_keep_within_the_budget_of_writes() {
    const DAY: u64 = 64 << 20;
    let written = |flash_bytes_per_day| {
        let mut rig = Rig::new(Config { flash_bytes_per_day, ..config(0, 32) });
        for minute in 0..24 * 60 {
            rig.shared.now = Nanos::from_millis(minute * 60_000);
            for n in 0..16 {
                rig.write(block(n), false, |_| minute);
                rig.end_fills();
            }
        }
        (rig.shared.counters.flash_write_bytes, rig.shared.counters.flash_refused)
    };
    let guest = 24 * 60 * 16 * BLOCK;
    assert_eq!(written(None), (guest, 0));
    let (bytes, refused) = written(Some(DAY));
    // What a day brings, the hour that there is at first, and the write that uses the last of it.
    let most = DAY + DAY / 24 + BLOCK;
    assert!((DAY..most).contains(&bytes), "{bytes} written, at most {most}");
    assert_eq!(refused, (guest - bytes) / BLOCK);
}
