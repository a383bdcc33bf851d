//! Ranges that are too long to be dropped from the cache at once, with requests, faults and ends in between.

use super::drop_cache::blocks_cached;
use super::warm::with_ring;
use super::*;
use crate::ids::BlockIndex;

/// Blocks of the disk, and slots of a cache that holds all of them.
const BLOCKS: u64 = 4096;
const DISK: u64 = BLOCKS * 4096;
/// Blocks that one call may drop.
const PART: u64 = 512;

/// A disk whose cache is all in RAM.
fn large(config: Config) -> Config {
    let backend = BackendTraits { size: DISK, ..config.backend };
    Config { backend, ram_bytes: DISK, ..config }
}

/// A small disk whose cache is on flash, with a ring; four slots are dropped at each tick.
fn recorded() -> Config {
    with_ring(16)
}

/// The same with a write log.
fn recorded_with_log() -> Config {
    Config {
        flash_bytes: 64 * KIB,
        flash_admission: recorded().flash_admission,
        ring: recorded().ring,
        ..with_log()
    }
}

fn discard(rig: &mut Rig, range: ByteRange) {
    rig.submit(1, range.start, range.len(), Op::Discard { fua: false });
}

/// The same, and it is acknowledged.
fn discarded(rig: &mut Rig, range: ByteRange) {
    rig.replies.retain(|reply| reply.0 != 1);
    discard(rig, range);
    rig.until_reply(1);
}

fn all() -> ByteRange {
    ByteRange::at(0, DISK)
}

impl Rig {
    fn filled(config: Config) -> Rig {
        let mut rig = Rig::new(config);
        rig.settle_log_or_not();
        for part in 0..16 {
            rig.read(part, part * DISK / 16, DISK / 16);
            rig.settle_log_or_not();
        }
        assert_eq!(blocks_cached(&rig), BLOCKS);
        rig
    }

    fn settle_log_or_not(&mut self) {
        match self.engine.config().write_log {
            Some(_) => self.settle_log(),
            None => self.settle(),
        }
    }

    /// One thing that is to happen; false when nothing is.
    fn step(&mut self) -> bool {
        self.grant();
        let deadline = self.engine.next_deadline();
        if !self.pending.is_empty() {
            self.complete(0, IoStatus::Ok);
        } else if deadline != Nanos::NEVER {
            self.now = self.now.max(deadline);
            self.tick(0);
        } else {
            return false;
        }
        true
    }

    /// Ends I/Os, and lets no time pass.
    fn until_reply(&mut self, tag: u64) {
        while !self.has_reply(tag) {
            self.grant();
            if !self.has_reply(tag) {
                self.complete(0, IoStatus::Ok);
            }
        }
    }

    fn ticks_once(&mut self) {
        self.now = self.now.max(self.engine.parts.cache.stale_deadline());
        self.tick(0);
    }

    /// Until nothing is stale, without ending an I/O.
    fn sweep_stale(&mut self) {
        while !self.engine.parts.cache.stale().is_empty() {
            self.ticks_once();
        }
    }
}

#[test]
fn no_call_drops_more_than_a_part_whatever_becomes_wrong() {
    type What = fn(&mut Rig);
    let discarded: What = |rig| discard(rig, all());
    let zeroed: What = |rig| {
        let op = Op::WriteZeroes { may_unmap: true, fast_only: false, fua: true };
        rig.submit(1, 0, DISK, op);
    };
    let lost: What = |rig| {
        rig.engine.on_session_lost(rig.now, &mut rig.actions);
        rig.run_actions();
    };
    let dropped: What = |rig| {
        rig.engine.drop_cache(rig.now, &mut rig.actions);
        rig.run_actions();
    };
    let passed_through: What = |rig| {
        rig.engine.set_mode(rig.now, Mode::PassThrough, &mut rig.actions).expect("no log needed");
        rig.run_actions();
    };
    let through = || large(config());
    let back = || large(with_log());
    for (config, what) in [
        (through(), discarded),
        (through(), zeroed),
        (through(), lost),
        (through(), dropped),
        (back(), discarded),
        (back(), zeroed),
        (back(), passed_through),
    ] {
        let mut rig = Rig::filled(config);
        let mut before = blocks_cached(&rig);
        what(&mut rig);
        loop {
            let now = blocks_cached(&rig);
            assert!(before - now <= PART, "{} blocks at once", before - now);
            before = now;
            if !rig.step() {
                break;
            }
        }
        assert_eq!(before, 0, "everything is dropped in the end");
    }
}

#[test]
fn flash_that_is_given_up_is_left_as_it_is() {
    let mut rig = Rig::new(Config { flash_timeout: Nanos::from_millis(5), ..recorded() });
    rig.fill(0..8);
    rig.read(1, 0, 4096);
    rig.tick(5);
    rig.settle_ring();
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    assert_eq!(blocks_cached(&rig), 0, "nothing of it counts");
    assert_eq!(
        rig.engine.parts.cache.flash_directory().unwrap().len(),
        8,
        "it was not gone through"
    );
    rig.backend.fill(0xAB);
    rig.expect_bytes(0, 4096, 0xAB);
}

#[test]
fn a_zeroed_range_reads_as_zeroes_and_a_write_to_it_as_written_however_far_the_drop_is() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        let mut rig = Rig::filled(Config { mode, ..large(with_log()) });
        discarded(&mut rig, all());
        let mut parts = 0;
        while !rig.engine.parts.cache.stale().is_empty() {
            for block in [0, 5, BLOCKS / 2 + parts, BLOCKS - 1] {
                rig.expect_bytes(
                    block * 4096,
                    4096,
                    if block == 5 && parts > 0 { 0x77 } else { 0 },
                );
            }
            rig.write(100 + parts, 5 * 4096, 4096, 0x77);
            rig.until_reply(100 + parts);
            rig.expect_bytes(5 * 4096, 4096, 0x77);
            rig.ticks_once();
            parts += 1;
        }
        assert!(parts >= BLOCKS / PART / 2, "{parts} parts");
        rig.expect_bytes(5 * 4096, 4096, 0x77);
        // And everything is cached again.
        rig.expect_bytes(6 * 4096, 4096, 0);
        let reads = rig.counters().read_hits_ram;
        rig.expect_bytes(6 * 4096, 4096, 0);
        assert_eq!(rig.counters().read_hits_ram, reads + 1, "{mode:?}");
    }
}

#[test]
fn what_is_not_in_the_range_stays_cached_and_is_read_from_there() {
    let mut rig = Rig::filled(large(with_log()));
    let part = ByteRange::new(4096 * 7 + 512, DISK / 2 + 512);
    discarded(&mut rig, part);
    let dropped = BLOCKS / 2 - 7;
    let hits = rig.counters().read_hits_ram;
    rig.expect_bytes(0, 4096, 0);
    rig.expect_bytes(DISK - 4096, 4096, 255);
    assert_eq!(rig.counters().read_hits_ram, hits + 2);
    rig.expect_bytes(4096 * 7, 512, 7);
    rig.expect_bytes(DISK / 2, 512, 0);
    rig.expect_bytes(DISK / 2 + 512, 3584, 0);
    rig.settle_log();
    assert!(blocks_cached(&rig) >= BLOCKS - dropped - 1, "{}", blocks_cached(&rig));
}

#[test]
fn a_fill_of_flash_that_is_under_way_brings_no_zeroed_block_back() {
    let mut rig = Rig::new(recorded_with_log());
    rig.settle_log();
    rig.read(2, 0, 4096);
    while !rig.drawn().iter().any(|io| io == "w 0+4096") {
        rig.complete(0, IoStatus::Ok);
    }
    discarded(&mut rig, ByteRange::at(0, 1 << 20));
    rig.sweep_stale();
    rig.settle_log();
    rig.expect_bytes(0, 4096, 0);
    assert_eq!(rig.replied(2).2, [0; 4096]);
}

#[test]
fn what_ram_evicts_of_a_zeroed_range_does_not_come_to_flash() {
    let tiers = Config { ram_bytes: 16 * KIB, ..recorded_with_log() };
    let mut rig = Rig::new(tiers);
    rig.settle_log();
    for block in 1..5 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    discarded(&mut rig, ByteRange::at(0, 64 * KIB));
    // RAM has to make room before anything is dropped.
    for block in 100..104 {
        rig.expect_bytes(block * 4096, 4096, block as u8);
    }
    let flash = rig.engine.parts.cache.flash_directory().unwrap();
    assert!((1..5).all(|block| flash.find(BlockIndex(block)).is_none()));
    rig.settle_log();
    for block in 1..5 {
        rig.expect_bytes(block * 4096, 4096, 0);
    }
}

#[test]
fn marks_stay_until_the_ring_knows_of_every_part() {
    let mut rig = Rig::new(recorded());
    rig.fill(0..12);
    rig.settle_ring();
    discarded(&mut rig, ByteRange::at(0, 1 << 20));
    // Primary storage is flushed, the time of the marks is over, and the ring is written: but parts are left.
    let due = rig.engine.parts.cache.stale().due();
    for step in 0..4 {
        rig.submit(10 + step, 0, 0, Op::Flush);
        rig.settle();
        rig.engine.parts.cache.stale().postpone(Nanos::NEVER);
        for _ in 0..3 {
            rig.tick(1_000);
            rig.settle();
        }
        let (mut next, restored) = rig.restarted().expect("warm");
        assert_eq!(restored.kept, 0, "after {step} parts");
        next.expect_bytes(0, 4096, 0);
        rig.engine.parts.cache.stale().postpone(due);
        rig.ticks_once();
    }
    rig.settle_ring();
    assert!(rig.engine.parts.cache.stale().is_empty());
    let (mut next, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.found, restored.kept), (0, 0));
    next.expect_bytes(0, 4096, 0);
    // Now that it is known regions are not marked any more: what comes is kept.
    rig.fill(3..5);
    rig.settle_ring();
    assert_eq!(rig.restarted().expect("warm").1.kept, 2);
}

#[test]
fn the_log_keeps_its_zeroes_until_the_ring_knows_of_every_part() {
    let mut rig = Rig::new(recorded_with_log());
    rig.settle_log();
    for block in 10..22 {
        rig.read(block, block * 4096, 4096);
        rig.settle_log();
    }
    let zeroed = ByteRange::at(0, 1 << 20);
    let forgets = |rig: &Rig| {
        let is_note = |io: &Io| matches!(io.op, IoOp::Progress { flushed, .. } if flushed.0 > 0);
        rig.pending.iter().any(is_note)
    };
    discarded(&mut rig, zeroed);
    rig.submit(2, 0, 0, Op::Flush);
    let due = rig.engine.parts.cache.stale().due();
    rig.engine.parts.cache.stale().postpone(Nanos::NEVER);
    for _ in 0..100 {
        rig.grant();
        match rig.pending.is_empty() {
            true => rig.tick(100),
            false => rig.complete(0, IoStatus::Ok),
        }
        assert!(!forgets(&rig), "nothing is dropped yet");
    }
    assert!(rig.backend.iter().all(|&byte| byte == 0), "it is destaged");
    let (_, restored) = rig.restarted_behind(&[zeroed]).expect("warm");
    assert_eq!((restored.found, restored.kept), (12, 0));
    rig.engine.parts.cache.stale().postpone(due);
    while !forgets(&rig) {
        assert!(rig.step(), "it is never noted");
    }
    assert_eq!(rig.restarted().expect("warm").1.found, 0);
}

#[test]
fn a_disk_that_ends_while_blocks_are_stale_is_closed_behind_them() {
    let mut rig = Rig::new(recorded());
    rig.fill(0..12);
    rig.settle_ring();
    discarded(&mut rig, ByteRange::at(0, 32 * KIB));
    rig.ticks_once();
    assert!(!rig.engine.parts.cache.stale().is_empty());
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.settle();
    rig.engine.close_ring(rig.now, true, &mut rig.actions);
    rig.run_actions();
    rig.settle();
    assert!(!rig.engine.is_ring_closed());
    rig.settle_ring();
    assert!(rig.engine.is_ring_closed() && rig.engine.is_idle());
    let (mut next, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.kept, restored.closed), (4, true));
    next.expect_bytes(0, 4096, 0);
    next.expect_bytes(32 * KIB, 4096, 8);
}

#[test]
fn a_change_of_mode_and_a_drop_of_the_cache_meanwhile_lose_no_part() {
    let mut rig = Rig::filled(large(with_log()));
    discarded(&mut rig, ByteRange::at(0, DISK / 2));
    rig.ticks_once();
    rig.engine.set_mode(rig.now, Mode::WriteThrough, &mut rig.actions).expect("no log needed");
    rig.engine.drop_cache(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.expect_bytes(0, 4096, 0);
    let mut dropped = None;
    while dropped.is_none() {
        assert!(rig.step());
        dropped = rig.engine.dropped();
    }
    assert!(dropped.is_some_and(|blocks| blocks >= BLOCKS / 2), "{dropped:?}");
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteThrough);
    assert!(rig.engine.parts.cache.stale().is_empty());
    rig.expect_bytes(0, 4096, 0);
    rig.expect_bytes(DISK - 4096, 4096, 255);
}

#[test]
fn a_part_ends_although_more_keeps_coming() {
    let mut rig = Rig::filled(large(with_log()));
    rig.engine.drop_cache(rig.now, &mut rig.actions);
    rig.run_actions();
    let mut ticks = 0;
    while rig.engine.dropped().is_none() {
        discarded(&mut rig, all());
        rig.ticks_once();
        ticks += 1;
        assert!(ticks <= BLOCKS / PART + 1, "the drop never ends");
    }
    rig.settle_log();
    assert!(rig.engine.parts.cache.stale().is_empty());
}

#[test]
fn more_ranges_than_there_are_parts_are_dropped_with_what_is_between_them() {
    // Sixteen slots: more than four blocks make a part.
    let mut rig = Rig::new(Config { ram_bytes: 64 * KIB, ..config() });
    let calls = 200;
    for n in 0..calls {
        let start = n * 37 % 240 * 4096;
        rig.submit(n, start, 6 * 4096, Op::Discard { fua: false });
        rig.until_reply(n);
        rig.expect_bytes(start, 6 * 4096, 0);
    }
    assert_eq!(rig.counters().drops_in_parts, calls);
    rig.settle_ring();
    assert!(rig.engine.parts.cache.stale().is_empty());
    for n in 0..calls {
        rig.expect_bytes(n * 37 % 240 * 4096, 6 * 4096, 0);
    }
}

#[test]
fn what_is_stale_in_ram_is_not_destaged() {
    let mut rig = write_back(Config { ram_bytes: 64 * KIB, ..with_log() });
    for n in 0..13 {
        rig.read(n, n * 4096, 4096);
        rig.settle_log();
    }
    // Longer than what is left of the segment: its first part is in the log before the cache has any of it.
    rig.write(100, 0, 13 * 4096, 7);
    assert!(!rig.has_reply(100));
    rig.settle_log();
    assert!(rig.replied(100).1.is_ok());
    assert!(rig.backend[..13 * 4096].iter().all(|&byte| byte == 7), "old bytes are destaged");
}

/// As when a guest trims what is free between what it uses, faster than the cache is swept.
#[test]
fn many_discards_drop_nothing_of_what_lies_between_them() {
    const STEP: u64 = 40 * 4096;
    const DISCARDS: u64 = 100;
    for base in [config(), with_log()] {
        let requests_max = DISCARDS as u32 + 1;
        let mut rig = Rig::new(Config { ram_bytes: 512 * KIB, requests_max, ..large(base) });
        rig.settle_log_or_not();
        for step in 0..DISCARDS {
            rig.read(1, step * STEP, 4096);
            rig.settle_log_or_not();
        }
        assert_eq!(blocks_cached(&rig), DISCARDS);
        for step in 0..DISCARDS {
            rig.submit(1000 + step, step * STEP + 4096, STEP - 4096, Op::Discard { fua: false });
        }
        while let Some(waits) = rig.pending.len().checked_sub(1) {
            rig.complete(waits, IoStatus::Ok);
            rig.grant();
        }
        rig.sweep_stale();
        rig.settle_log_or_not();
        assert_eq!(blocks_cached(&rig), DISCARDS);
        for step in 0..DISCARDS {
            assert_eq!(rig.replied(1000 + step).1, IoStatus::Ok);
        }
    }
}
