//! The time of requests behind a long one, which is written piece by piece.

use super::*;

const MIB: u64 = 1 << 20;
/// Pieces of the long one.
const PIECES: u64 = 8;
const ZEROES: Op = Op::WriteZeroes { may_unmap: false, fast_only: false, fua: true };

/// A disk of this many pieces, without a cache, that cannot zero by itself.
fn by_writing(logical_block: u32) -> Rig {
    let size = PIECES * MIB;
    let backend = BackendTraits { size, logical_block, write_zeroes: false, ..config().backend };
    Rig::new(Config { backend, ram_bytes: 0, ..config() })
}

impl Rig {
    /// Time passes bit by bit, so that whoever is out of time is told so.
    fn pass_seconds(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.tick(1000));
    }

    fn status_of(&self, tag: u64) -> Option<IoStatus> {
        self.has_reply(tag).then(|| self.replied(tag).1)
    }
}

#[test]
fn who_waits_for_a_long_write_of_zeroes_is_in_time_while_that_goes_on() {
    let mut rig = by_writing(512);
    rig.submit(1, 0, PIECES * MIB, ZEROES);
    rig.read(2, 0, 4096);
    rig.read(3, PIECES * MIB - 4096, 4096);
    // It waits for the read behind the zeroes, and not for them.
    rig.write(4, PIECES * MIB - 512, 512, 7);
    for piece in 0..PIECES {
        rig.pass_seconds(20);
        let write = rig.find(&format!("W {}+{MIB}", piece * MIB));
        rig.complete(write, IoStatus::Ok);
        if piece == 0 {
            assert_eq!(rig.status_of(2), None);
            rig.complete(rig.find("R 0+4096"), IoStatus::Ok);
            assert_eq!(rig.replied(2), &(2, IoStatus::Ok, vec![0; 4096]));
        }
        let is_last = piece == PIECES - 1;
        assert_eq!(rig.drawn().iter().any(|io| io.starts_with('R')), is_last);
    }
    // Primary storage has all of its time for what waited.
    rig.pass_seconds(29);
    rig.settle();
    for tag in 1..=4 {
        assert_eq!(rig.status_of(tag), Some(IoStatus::Ok), "{tag}");
    }
    assert_eq!(rig.replied(3).2, [0; 4096]);
    assert_eq!(rig.counters().requests_timed_out, 0);
}

#[test]
fn who_waited_for_the_range_of_a_slow_write_has_all_of_its_time() {
    let mut rig = by_writing(512);
    rig.write(1, 0, 4096, 1);
    rig.write(2, 0, 4096, 2);
    rig.read(3, 0, 4096);
    for tag in 1..=3 {
        rig.pass_seconds(25);
        assert_eq!(rig.status_of(tag), None);
        rig.complete(0, IoStatus::Ok);
        assert_eq!(rig.status_of(tag), Some(IoStatus::Ok));
    }
    assert_eq!(rig.counters().requests_timed_out, 0);
}

#[test]
fn who_waits_for_zeroes_that_hang_is_out_of_time_soon_after_them() {
    let mut rig = by_writing(512);
    rig.submit(1, 0, PIECES * MIB, ZEROES);
    for tag in 2..7 {
        // Each waits for the zeroes, and for those before it, which are due a little later than it is.
        rig.write(tag, 7 * MIB, 512 * (tag - 1), 7);
        rig.pass_seconds(29);
        rig.complete(0, IoStatus::Ok);
    }
    rig.pass_seconds(29);
    assert!((1..7).all(|tag| rig.status_of(tag).is_none()));
    rig.pass_seconds(1);
    assert_eq!(rig.status_of(1), Some(IoStatus::TimedOut));
    rig.pass_seconds(30);
    for tag in 2..7 {
        assert_eq!(rig.status_of(tag), Some(IoStatus::TimedOut), "{tag}");
    }
    // What hangs has its range.
    rig.write(20, 6 * MIB, 512, 7);
    assert_eq!(rig.pending.len(), 1);
    rig.settle();
    assert!(rig.engine.is_idle());
}

#[test]
fn what_is_zeroed_can_be_written_while_the_rest_is_zeroed() {
    let mut rig = by_writing(4096);
    // Both edges are read, changed and written.
    rig.submit(1, 512, 3 * MIB - 1024, ZEROES);
    rig.write(2, 0, 4096, 7);
    rig.write(3, 3 * MIB - 4096, 4096, 8);
    rig.complete(rig.find("R 0+4096"), IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 0+4096"], "the edge");
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 0+4096", &format!("W 4096+{MIB}")]);
    rig.complete(0, IoStatus::Ok);
    assert_eq!((rig.status_of(2), rig.status_of(1)), (Some(IoStatus::Ok), None));
    rig.settle();
    for (start, byte) in [(0, 7), (4096, 0), (3 * MIB - 8192, 0), (3 * MIB - 4096, 8)] {
        rig.expect_bytes(start, 4096, byte);
    }
}
