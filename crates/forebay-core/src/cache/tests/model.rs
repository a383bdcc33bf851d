//! Whatever happens, a granule that counts as cached has the newest bytes of the disk.

use proptest::prelude::*;

use super::*;

const SECTORS: usize = (DISK / SECTOR) as usize;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Sectors are fetched, and installed where they cover granules.
    Read(ByteRange),
    Write(ByteRange, bool),
    /// The disk has other bytes there, which the cache must not know.
    Lose(ByteRange),
    EndFill(usize, bool),
    Send,
    Tick,
    /// So many bytes more of the disk's memory are there.
    Memory(u64),
    /// RAM is to have so many slots.
    Resize(u64),
}

fn range() -> impl Strategy<Value = ByteRange> {
    // Most of them near each other, and some long ones.
    let start = prop_oneof![3 => 0..8 * BLOCK / SECTOR, 1 => 0..DISK / SECTOR];
    let len = prop_oneof![8 => 1u64..40, 1 => 1..DISK / SECTOR];
    (start, len).prop_map(|(start, len)| {
        let end = (start + len).min(DISK / SECTOR);
        ByteRange::new(start * SECTOR, end * SECTOR)
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => range().prop_map(Step::Read),
        4 => (range(), any::<bool>()).prop_map(|(range, bypass)| Step::Write(range, bypass)),
        3 => range().prop_map(Step::Lose),
        5 => (0usize..8, prop::bool::weighted(0.95)).prop_map(|(n, ok)| Step::EndFill(n, ok)),
        2 => Just(Step::Send),
        2 => Just(Step::Tick),
        1 => (0..2 * BLOCK).prop_map(Step::Memory),
        1 => (1u64..9).prop_map(Step::Resize),
    ]
}

struct World {
    rig: Rig,
    /// What each sector of the disk has.
    disk: Vec<u64>,
    version: u64,
    /// Slices of replies that were not sent, with what they had.
    replies: Vec<(Span, Vec<u64>)>,
    /// Up to here the disk's memory is there.
    memory: u64,
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Read(range) => {
                let disk = self.disk.clone();
                match self.rig.hit(range) {
                    Some(slices) => self.answer(range, slices),
                    None => self.rig.install(range, |sector| disk[sector as usize]),
                }
            }
            Step::Write(range, bypass) => {
                let version = self.change(range);
                self.rig.write(range, bypass, |_| version);
            }
            Step::Lose(range) => {
                self.change(range);
                self.rig.call(|cache, _, cx| cache.invalidate(range, cx));
            }
            Step::EndFill(n, is_ok) => {
                let status = if is_ok { IoStatus::Ok } else { IoStatus::IoError };
                if !self.rig.pending.is_empty() {
                    self.rig.end_fill(n % self.rig.pending.len(), status);
                }
            }
            Step::Send => {
                for (slice, cells) in self.replies.drain(..) {
                    assert_eq!(self.rig.cells(slice), cells, "a slot of a reply has changed");
                }
                self.rig.cache.unpin();
            }
            Step::Memory(more) => {
                self.memory = self.memory.saturating_add(more);
                self.rig.cache.have_memory(self.memory);
            }
            Step::Tick => {
                self.rig.shared.now = self.rig.shared.now.plus(Nanos::from_millis(1));
                self.rig.call(|cache, _, cx| cache.drop_more(cx));
                if let Some(end) = self.rig.tick() {
                    self.memory = self.memory.min(end);
                    self.rig.memory[sectors(end, 0).start..].fill(u64::MAX);
                }
            }
            Step::Resize(slots) => {
                if self.rig.cache.has_ram()
                    && let Some(missing) = self.rig.resize(slots)
                {
                    self.memory = missing.start;
                }
            }
        }
    }

    fn change(&mut self, range: ByteRange) -> u64 {
        self.version += 1;
        self.disk[sectors(range.start, range.len())].fill(self.version);
        self.version
    }

    fn answer(&mut self, range: ByteRange, slices: Vec<Span>) {
        let mut cells = Vec::new();
        for slice in slices {
            let of_slice = self.rig.cells(slice).to_vec();
            cells.extend_from_slice(&of_slice);
            self.replies.push((slice, of_slice));
        }
        assert_eq!(cells, &self.disk[sectors(range.start, range.len())]);
    }

    /// Every granule that counts as cached has what the disk has.
    fn check(&self) {
        let grid = self.rig.shared.grid;
        for block in grid.blocks(self.rig.shared.config.disk()) {
            let Found { ram, flash } = self.rig.cache.lookup(block);
            let in_ram = ram.map_or(GranuleMask::NONE, |(_, valid)| valid);
            let all = grid.touched(block, grid.range_of(block));
            for granule in all.runs().flat_map(|(first, end)| first..end) {
                let range = grid.granule_range(block, granule, granule + 1);
                // The destager asks for it without a lookup.
                let memory = self.rig.cache.memory_of(&grid.piece(range.start, range.end));
                assert_eq!(memory.is_some(), in_ram.has(granule), "block {} in RAM", block.0);
                let Some(memory) = memory else { continue };
                assert!(memory.offset + u64::from(memory.len) <= self.memory, "it is not there");
                let newest = &self.disk[sectors(range.start, range.len())];
                assert_eq!(self.rig.cells(memory), newest, "block {} in RAM", block.0);
            }
            let Some((slot, valid)) = flash else { continue };
            for (first, end) in valid.runs() {
                let range = grid.granule_range(block, first, end);
                let place = u64::from(slot.0) * BLOCK + grid.offset_in_block(range.start);
                let newest = &self.disk[sectors(range.start, range.len())];
                let held = &self.rig.flash[sectors(place, range.len())];
                assert_eq!(held, newest, "block {} on flash", block.0);
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_cached_is_the_newest(
        ram in 0u64..6,
        flash in 0u64..10,
        waits in any::<bool>(),
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut rig = Rig::new(Config { ram_room: 8 * BLOCK, ..config(ram, flash) });
        let (disk, replies) = (vec![0; SECTORS], Vec::new());
        let mut memory = u64::MAX / 2;
        if waits {
            rig.cache.withhold_ram();
            memory = rig.cache.ram_place().map_or(0, |place| place.start);
        }
        let mut world = World { rig, disk, version: 0, replies, memory };
        for step in steps {
            world.take(step);
            world.check();
        }
    }
}
