//! The ring: what outlives a restart, and the order in which that has to be.

use super::*;
use crate::action::Voided;
use crate::cache_index::RingGeometry;
use crate::cache_index::header::RingHeader;
use crate::cache_index::recover::{Cold, RingReader};
use crate::config::RingConfig;
use crate::ids::{Generation, SlotId, Uuid};
use crate::sealed::Page;
use crate::stats::IndexState;

mod gaps;
mod marks;

const DISK: Uuid = Uuid(*b"a disk with ring");
const NONCE: u64 = 77;

/// A disk of 1 MiB with a flash tier of `slots` blocks of 4 KiB, and nothing in RAM.
pub(super) fn with_ring(slots: u64) -> Config {
    let pages = RingGeometry::new(slots as u32, 1, 4 * KIB, 1 << 20).pages();
    let mut ring = RingConfig::new(DISK, Generation(1), NONCE, pages, 1 << 20);
    ring.mark_delay = Nanos::from_millis(1_000);
    Config {
        ram_bytes: 0,
        flash_bytes: slots * 4 * KIB,
        flash_admission: crate::config::FlashAdmission::Always,
        ring: Some(ring),
        ..config()
    }
}

fn index_state(rig: &Rig) -> IndexState {
    rig.engine.statistics(rig.now).ring.expect("a ring").state
}

struct Reader<'a> {
    ring: &'a [u8],
    first: u32,
}

impl RingReader for Reader<'_> {
    fn load(&mut self, first: u32, _: u32, _: Option<(u32, u32)>) -> Result<(), String> {
        self.first = first;
        Ok(())
    }

    fn page(&self, index: u32) -> &Page {
        let at = (self.first + index) as usize * 4096;
        self.ring[at..at + 4096].try_into().expect("a page")
    }
}

impl Rig {
    /// What a restart finds: the next run, with what is on the devices now.
    pub(super) fn restarted(&self) -> Result<(Rig, RestoredCache), Cold> {
        self.restarted_behind(&[])
    }

    /// The same with records of these ranges in the log.
    pub(super) fn restarted_behind(
        &self,
        logged: &[ByteRange],
    ) -> Result<(Rig, RestoredCache), Cold> {
        self.restarted_as(*self.engine.config(), logged)
    }

    /// The same with this configuration.
    pub(super) fn restarted_as(
        &self,
        mut config: Config,
        logged: &[ByteRange],
    ) -> Result<(Rig, RestoredCache), Cold> {
        let ring = config.ring.as_mut().expect("there is a ring");
        ring.generation.0 += 1;
        let header = RingHeader {
            disk: DISK,
            generation: Generation(1),
            nonce: NONCE,
            disk_size: ring.disk_size,
            block_size: config.block_size as u32,
            slots: (config.flash_bytes.max(config.flash_room) / config.block_size) as u32,
            pages: ring.pages,
        };
        let mut next = Rig::new(config);
        let mut reader = Reader { ring: &self.ring, first: 0 };
        let logged = logged.iter().copied();
        let restored = next.engine.restore_cache(&header, &mut reader, logged)?;
        next.backend.clone_from(&self.backend);
        next.flash.clone_from(&self.flash);
        next.ring.clone_from(&self.ring);
        next.now = self.now;
        next.engine.check_invariants();
        Ok((next, restored))
    }

    /// Lets time pass, and I/O end well, until nothing is left to do.
    pub(super) fn settle_ring(&mut self) {
        loop {
            let deadline = self.engine.next_deadline();
            if !self.pending.is_empty() {
                self.complete(0, IoStatus::Ok);
            } else if deadline != Nanos::NEVER {
                self.now = self.now.max(deadline);
                self.tick(0);
            } else {
                break;
            }
        }
    }

    pub(super) fn fill(&mut self, blocks: std::ops::Range<u64>) {
        for block in blocks {
            self.read(block, block * 4096, 4096);
            self.settle();
        }
    }

    /// What a read of a block goes to.
    pub(super) fn source(&mut self, block: u64) -> String {
        self.read(1_000_000 + block, block * 4096, 4096);
        let first = self.drawn()[0].clone();
        self.settle();
        first[..1].to_owned()
    }
}

#[test]
fn a_restart_finds_what_was_recorded() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    let (mut next, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.found, restored.kept, restored.closed), (8, 8, false));
    for block in 0..9 {
        assert_eq!(next.source(block), if block < 8 { "r" } else { "R" }, "block {block}");
        next.expect_bytes(block * 4096, 4096, block as u8);
    }
}

#[test]
fn a_cache_on_another_grid_is_cold_and_not_damaged() {
    let config = Config { block_size: 8192, ..with_ring(16) };
    let fixed = |offset| Config { grid_offset: GridOffset::Fixed(offset), ..config };
    let mut rig = Rig::new(fixed(512));
    rig.fill(0..8);
    rig.settle_ring();
    assert_eq!(rig.restarted().expect("warm").1.kept, 4);
    assert_eq!(rig.restarted_as(fixed(4096), &[]).err(), Some(Cold::OtherGrid(512)));
}

#[test]
fn a_cache_does_not_move_the_grid_that_a_log_lies_on() {
    let config = Config { block_size: 8192, ..with_ring(16) };
    let mut rig = Rig::new(Config { grid_offset: GridOffset::Fixed(512), ..config });
    rig.fill(0..8);
    rig.settle_ring();
    let without_log = Config { grid_offset: GridOffset::Auto, ..config };
    assert_eq!(rig.restarted_as(without_log, &[]).expect("warm").1.kept, 4);
    // What observes the cache looks there, too.
    let observed = Config { curve: true, ..without_log };
    let next = rig.restarted_as(observed, &[]).expect("warm").0;
    let uses = next.engine.observer().uses().expect("the curve is kept");
    assert_eq!((next.engine.grid().offset(), uses.grid_offset()), (512, 512));
    let with_log = Config { write_log: with_log().write_log, ..without_log };
    assert_eq!(rig.restarted_as(with_log, &[]).err(), Some(Cold::OtherGrid(512)));
}

#[test]
fn what_was_not_recorded_is_not_found() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    assert_eq!(rig.restarted().err(), Some(Cold::Empty));
}

#[test]
fn until_primary_storage_was_flushed_nothing_is_believed() {
    let mut rig = Rig::new(with_ring(16));
    let but_flush = |rig: &mut Rig| {
        while let Some(at) = rig.drawn().iter().position(|io| io != "F 0+0") {
            rig.complete(at, IoStatus::Ok);
        }
    };
    for block in 0..8 {
        rig.read(block, block * 4096, 4096);
        but_flush(&mut rig);
    }
    rig.tick(1_000);
    but_flush(&mut rig);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    let (_, restored) = rig.restarted().expect("it can be read");
    assert_eq!((restored.found, restored.kept), (8, 0));
}

#[test]
fn a_slot_takes_other_bytes_only_after_the_ring_says_it_is_empty() {
    let mut rig = Rig::new(with_ring(2));
    rig.fill(0..2);
    rig.settle_ring();
    // Both slots are in use, or one is kept empty ahead.
    for block in 2..20 {
        let before = rig.flash.clone();
        let (mut seen, _) = rig.restarted().expect("warm");
        rig.read(block, block * 4096, 4096);
        while !rig.pending.is_empty() {
            let at = rig.drawn().iter().position(|io| !io.starts_with("ring"));
            let Some(at) = at else { break };
            rig.complete(at, IoStatus::Ok);
        }
        // The ring has not moved: everything it claims is still there, byte for byte.
        for slot in 0..2 {
            if let Some(block) =
                seen.engine.parts.cache.flash_directory().unwrap().block_of(SlotId(slot))
            {
                let place = slot as usize * 4096..(slot as usize + 1) * 4096;
                assert_eq!(rig.flash[place.clone()], before[place], "block {}", block.0);
            }
        }
        seen.sent();
        rig.settle_ring();
    }
}

#[test]
fn a_claim_is_written_after_its_data_are_flushed() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..4);
    rig.settle_ring();
    rig.fill(4..5);
    rig.tick(1_000);
    assert_eq!(rig.drawn(), ["f 0+0"]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.drawn()[0].starts_with("ring W"));
}

#[test]
fn a_ring_that_fails_is_voided_before_the_next_write() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(1, 4096, 4096, 0xAA);
    rig.complete(0, IoStatus::IoError);
    assert_eq!((rig.voids, rig.pending.len()), (1, 0), "the write waits");
    assert_eq!(index_state(&rig), IndexState::GivenUp);
    rig.engine.voided(rig.now, Voided::InPool, &mut rig.actions);
    rig.run_actions();
    assert_eq!(rig.drawn(), ["W 4096+4096"]);
    rig.settle();
    // The cache goes on, for this run. It is shown as long that the next start finds nothing of it.
    assert_eq!(rig.source(2), "r");
    assert_eq!(index_state(&rig), IndexState::GivenUp);
    assert!(rig.events.iter().all(|event| *event != Event::RingNotVoided));
}

#[test]
fn a_ring_that_cannot_be_voided_is_told_and_holds_nobody_up() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.write(1, 4096, 4096, 0xAA);
    rig.complete(0, IoStatus::IoError);
    rig.now = rig.engine.next_deadline();
    rig.tick(0);
    assert!(rig.events.contains(&Event::RingNotVoided));
    assert_eq!(rig.drawn(), ["W 4096+4096"]);
    rig.settle();
    assert_eq!(index_state(&rig), IndexState::GivenUp);
}

#[test]
fn a_disk_that_ends_in_order_is_all_warm() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.write(1, 4096, 4096, 0xAA);
    rig.settle();
    rig.submit(2, 0, 0, Op::Flush);
    rig.settle();
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.engine.close_ring(rig.now, true, &mut rig.actions);
    assert!(!rig.engine.is_idle());
    rig.run_actions();
    rig.settle();
    assert!(rig.engine.is_idle());
    assert_eq!(index_state(&rig), IndexState::Closed);
    let (mut next, restored) = rig.restarted().expect("warm");
    assert!(restored.closed);
    assert_eq!((restored.found, restored.kept), (8, 8));
    next.expect_bytes(4096, 4096, 0xAA);
    assert_eq!(next.source(1), "r");
}

#[test]
fn the_ring_goes_round_and_still_says_everything() {
    let mut config = with_ring(64);
    config.flash_bytes = 64 * 4 * KIB;
    let mut rig = Rig::new(config);
    let mut state = 1_u64;
    for round in 0..6_000_u64 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = (state >> 33) % 200;
        if state >> 20 & 7 == 0 {
            rig.write(round, block * 4096, 4096, (round % 251) as u8);
            rig.settle();
        } else {
            rig.read(round, block * 4096, 4096);
            rig.settle();
        }
        rig.replies.clear();
        rig.events.clear();
        if round % 97 == 0 {
            rig.settle_ring();
            let (next, restored) = rig.restarted().expect("warm");
            assert_eq!(restored.found, restored.kept);
            let of = |rig: &Rig| {
                let dir = rig.engine.parts.cache.flash_directory().unwrap();
                (0..64).map(|slot| dir.block_of(SlotId(slot))).collect::<Vec<_>>()
            };
            assert_eq!(of(&next), of(&rig), "round {round}");
            if round % 5 == 0 {
                rig = next;
            }
        }
    }
    let last = rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
    assert!(last > 2 * u64::from(rig.engine.config().ring.expect("a ring").pages), "{last}");
}

#[test]
fn flushed_is_noted_after_the_ring_knows_what_the_log_dropped() {
    let pages = with_ring(16).ring;
    let mut rig = Rig::new(Config {
        flash_bytes: 64 * KIB,
        flash_admission: crate::config::FlashAdmission::Always,
        ring: pages,
        ..with_log()
    });
    rig.settle_log();
    for block in 0..4 {
        rig.read(block, block * 4096, 4096);
        rig.settle_log();
    }
    rig.write_with(10, 4096, 4096, 0xAA, true);
    let mut recorded = None;
    for _ in 0..200 {
        rig.grant();
        let last = rig.engine.statistics(rig.now).ring.expect("a ring").last_page;
        if rig.drawn().iter().any(|io| io == "F 0+0") {
            recorded = Some(last);
        }
        let notes = rig.pending.iter().any(|io| {
            matches!(io.op, IoOp::Progress { flushed, .. } if flushed > crate::ids::Sequence(0))
        });
        if notes {
            assert!(recorded.is_some_and(|before| last > before), "the ring was not written");
            // The block that was written is back with the bytes that were destaged.
            let (mut next, restored) = rig.restarted().expect("warm");
            assert_eq!(restored.kept, 4);
            assert_eq!(next.source(1), "r");
            return next.expect_bytes(4096, 4096, 0xAA);
        }
        match rig.pending.is_empty() {
            false => rig.complete(0, IoStatus::Ok),
            true => {
                rig.now = rig.now.max(rig.engine.next_deadline());
                rig.tick(0);
            }
        }
    }
    panic!("flushed was never noted: {:?}", rig.drawn());
}

#[test]
fn a_cache_is_dropped_only_when_a_restart_does_not_find_it_either() {
    let mut rig = Rig::new(with_ring(16));
    rig.fill(0..8);
    rig.settle_ring();
    rig.engine.drop_cache(rig.now, &mut rig.actions);
    rig.run_actions();
    while rig.pending.is_empty() {
        assert_eq!(rig.engine.dropped(), None);
        rig.now = rig.now.max(rig.engine.next_deadline());
        rig.tick(0);
    }
    // Everything is dropped, and the ring is being told.
    assert_eq!(rig.engine.statistics(rig.now).vfrc.num_blocks_currently_cached, 0);
    assert_eq!(rig.engine.dropped(), None);
    assert_eq!(rig.restarted().expect("warm").1.found, 8);
    rig.settle();
    assert_eq!(rig.engine.dropped(), Some(8));
    assert_eq!(rig.restarted().expect("warm").1.found, 0);
}

#[test]
fn what_a_part_of_a_write_drops_is_recorded_before_primary_storage_has_the_part() {
    let Config { flash_bytes, flash_admission, ring, .. } = with_ring(16);
    let mut rig = write_back(Config { flash_bytes, flash_admission, ring, ..with_log() });
    rig.fill(0..8);
    rig.settle_log();
    // Fills most of a segment: the next write begins in it, and ends in another group.
    rig.write_with(100, 512 * KIB, 36 * KIB, 1, true);
    rig.commit();
    rig.write(101, 0, 32 * KIB, 2);
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("possible");
    rig.run_actions();
    // Its second part stays on its way to flash; at first, what its first one drops stays unrecorded as well.
    for (records, expected) in [(false, 1), (true, 2)] {
        for _ in 0..300 {
            let goes = |io: &String| {
                !io.starts_with("log W 65536") && (records || !io.starts_with("ring"))
            };
            match rig.drawn().iter().position(goes) {
                Some(at) => rig.complete(at, IoStatus::Ok),
                None => rig.tick(10),
            }
        }
        assert_eq!(
            (rig.backend[512 * 1024], rig.backend[4096]),
            (1, expected),
            "{:?}",
            rig.drawn()
        );
    }
    rig.settle_log();
    rig.expect_bytes(0, 32 * KIB, 2);
}

#[test]
fn a_flash_tier_is_full_although_it_keeps_slots_empty() {
    let mut rig = Rig::new(with_ring(128));
    for n in 0..200 {
        assert!(n > 120 || !rig.engine.statistics(rig.now).flash.is_full());
        rig.read(n, n * 4096, 4096);
        rig.settle();
    }
    let flash = rig.engine.statistics(rig.now).flash;
    assert_eq!((flash.slots, flash.slots_used, flash.slots_kept_empty), (128, 126, 2));
    assert!(flash.is_full());
}
