//! Sequential streams that pass the cache by.

use super::*;

const MIB: u64 = 1024 * KIB;

/// A disk of 64 MiB with this cache in RAM.
fn rig(ram_bytes: u64) -> Rig {
    rig_of(config().block_size, ram_bytes)
}

fn rig_of(block_size: u64, ram_bytes: u64) -> Rig {
    let backend = BackendTraits { size: 64 * MIB, ..config().backend };
    let sequential_bypass = SequentialBypass::Auto;
    Rig::new(Config { backend, block_size, ram_bytes, sequential_bypass, ..config() })
}

impl Rig {
    /// Reads a range in order, 64 KiB at a time.
    fn scan(&mut self, start: u64, len: u64) {
        self.scan_by(start, len, 64 * KIB);
    }

    fn scan_by(&mut self, start: u64, len: u64, step: u64) {
        for at in (start..start + len).step_by(step as usize) {
            self.read(1, at, step);
            self.settle();
            self.replies.clear();
        }
    }
}

#[test]
fn a_stream_is_cached_while_there_is_room() {
    let mut rig = rig(16 * MIB);
    rig.scan(0, 15 * MIB);
    assert_eq!(rig.counters().reads_bypassed, 0);
}

#[test]
fn a_stream_whose_blocks_do_not_come_back_is_passed_by() {
    let mut rig = rig(MIB);
    rig.scan(0, 16 * MIB);
    let before = rig.counters().ram_filled;
    rig.scan(16 * MIB, 48 * MIB);
    assert_eq!(rig.counters().ram_filled, before, "it has learned that");
}

#[test]
fn a_stream_that_begins_within_a_block_does_not_come_back_to_its_blocks() {
    for (offset, step) in [(4096, 64 * KIB), (0, 4096), (4096, 12 * KIB)] {
        let mut rig = rig_of(8192, MIB);
        rig.scan_by(offset, 15 * MIB, step);
        let before = rig.counters().ram_filled;
        rig.scan_by(offset + 15 * MIB, 45 * MIB, step);
        let filled = rig.counters().ram_filled - before;
        assert!(filled < 16, "{step} bytes at a time, from {offset}: {filled}");
    }
}

#[test]
fn a_stream_whose_blocks_come_back_is_cached_again() {
    let mut rig = rig(8 * MIB);
    rig.scan(0, 40 * MIB);
    assert!(rig.counters().reads_bypassed > 0, "they did not come back");
    // From now on each stretch is read a second time soon after the first.
    for round in 0..8u64 {
        let start = round * 8 % 64 * MIB;
        rig.scan(start, 6 * MIB);
        rig.scan(start, 6 * MIB);
    }
    let before = rig.counters().read_hits_ram;
    rig.scan(40 * MIB, 6 * MIB);
    rig.scan(40 * MIB, 6 * MIB);
    assert!(rig.counters().read_hits_ram - before > 90, "of 96");
}
