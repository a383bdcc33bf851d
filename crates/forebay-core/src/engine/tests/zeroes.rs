//! Zeroes that are written, because primary storage does not make them itself: their order and their memory.

use super::*;

const MIB: u64 = 1 << 20;

/// A disk in write-through on primary storage of 8 MiB that is zeroed by writing.
fn zeroed_by_writing(logical_block: u32) -> Config {
    let mut config = Config { mode: Mode::WriteThrough, ..config() };
    (config.backend.size, config.backend.logical_block) = (8 * MIB, logical_block);
    config.backend.write_zeroes = false;
    config
}

fn zeroes() -> Op {
    Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false }
}

impl Rig {
    /// Takes all memory that clients get.
    fn borrow_all(&mut self) -> Vec<Buffer> {
        let mut lent = Vec::new();
        for len in [MIB, 64 * KIB, 4096] {
            while let Some(buffer) = self.engine.write_buffer(ByteRange::at(0, len)) {
                lent.push(buffer);
            }
        }
        lent
    }

    fn give_back(&mut self, lent: Vec<Buffer>) {
        for buffer in lent {
            self.engine.release(self.now, buffer, &mut self.actions);
            self.run_actions();
        }
    }
}

#[test]
fn zeroes_keep_their_place_before_a_later_write_without_any_memory_to_lend() {
    let mut rig = Rig::new(zeroed_by_writing(512));
    let range = ByteRange::at(MIB, 4096);
    let buffer = rig.engine.write_buffer(range).expect("a buffer");
    rig.slice(buffer.at(range)).fill(9);
    let lent = rig.borrow_all();
    // It waits for memory, as all do that come.
    rig.read(1, 4 * MIB, 4096);
    rig.submit(2, 0, 2 * MIB, zeroes());
    assert_eq!(rig.drawn(), ["W 0+1048576"]);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 1048576+1048576"]);
    // Whoever sent the zeroes may have given them up: this write is the newer one all the same.
    rig.submit(3, MIB, 4096, Op::Write { buffer, fua: false });
    assert_eq!(rig.drawn(), ["W 1048576+1048576"]);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 1048576+4096"]);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.replied(2).1.is_ok() && rig.replied(3).1.is_ok() && !rig.has_reply(1));
    rig.give_back(lent);
    rig.settle();
    let found: Vec<u8> = [0, MIB - 1, MIB, MIB + 4095, MIB + 4096, 2 * MIB - 1]
        .map(|at| rig.backend[at as usize])
        .into();
    assert_eq!(found, [0, 0, 9, 9, 0, 0]);
    rig.expect_bytes(MIB, 4096, 9);
}

#[test]
fn parts_of_logical_blocks_are_zeroed_in_turns_without_any_memory_to_lend() {
    let mut rig = Rig::new(zeroed_by_writing(4096));
    let lent = rig.borrow_all();
    for tag in 0..40 {
        let start = tag * 65536;
        rig.backend[start as usize..][..65536].fill(10 + tag as u8);
        rig.submit(tag, start + 512, 8192, zeroes());
    }
    assert_eq!(rig.pending.len(), 32, "the others wait");
    let mut at = 0;
    while !rig.pending.is_empty() {
        assert!(rig.pending.len() <= 32);
        // In no order.
        at = (at + 7) % rig.pending.len();
        rig.complete(at, IoStatus::Ok);
    }
    for tag in 0..40 {
        assert!(rig.replied(tag).1.is_ok());
        let at = |by: u64| rig.backend[(tag * 65536 + by) as usize];
        let other = 10 + tag as u8;
        assert_eq!([0, 511, 512, 8703, 8704, 12287].map(at), [other, other, 0, 0, other, other]);
    }
    rig.give_back(lent);
    rig.settle();
    assert!(rig.engine.is_idle());
}

#[test]
fn zeroes_that_wait_for_their_turn_are_in_time_as_long_as_one_whose_turn_it_is() {
    let mut rig = Rig::new(zeroed_by_writing(4096));
    for tag in 0..34 {
        rig.submit(tag, tag * 65536 + 512, 1024, zeroes());
    }
    let waits = |rig: &Rig| !rig.drawn().iter().any(|io| io.starts_with("R 2097152"));
    rig.tick(29_000);
    // One is read and not written yet; the others hang.
    rig.complete(0, IoStatus::Ok);
    rig.tick(2_000);
    assert_eq!((1..32).filter(|tag| rig.replied(*tag).1 == IoStatus::TimedOut).count(), 31);
    assert!(waits(&rig) && !rig.has_reply(32) && !rig.has_reply(33));
    // What it waited is not held against it. The next one takes its turn when that fails.
    rig.complete(rig.find("W 0+4096"), IoStatus::Ok);
    assert!(rig.replied(0).1.is_ok() && !waits(&rig));
    rig.tick(29_000);
    assert!(!rig.has_reply(32) && !rig.has_reply(33));
    rig.complete(rig.find("R 2097152+4096"), IoStatus::IoError);
    assert_eq!(rig.replied(32).1, IoStatus::IoError);
    assert_eq!(rig.drawn().last().unwrap(), "R 2162688+4096");
    // Nobody whose turn it is is in time: who waits is not, either.
    rig.submit(34, 40 * 65536 + 512, 1024, zeroes());
    rig.tick(31_000);
    rig.tick(1_000);
    assert_eq!([33, 34].map(|tag| rig.replied(tag).1), [IoStatus::TimedOut; 2]);
    rig.submit(35, 41 * 65536 + 512, 1024, zeroes());
    assert_eq!(rig.pending.len(), 32);
    rig.settle();
    assert!(rig.replied(35).1.is_ok());
    let zeroed = |tag: u64| rig.backend[(tag * 65536 + 512) as usize] == 0;
    assert!(!zeroed(1) && !zeroed(33) && !zeroed(40), "what is given up is not written");
    assert!(zeroed(0) && zeroed(41) && rig.engine.is_idle());
}
