//! A disk that becomes longer while it is served.

use super::*;
use crate::engine::Growth;

/// A disk that ends within a page, and so within a granule.
const END: u64 = (1 << 20) - 1024;
const LONGER: u64 = 2 << 20;

fn odd(config: Config) -> Rig {
    let mut config = config;
    config.backend.size = END;
    Rig::new(config)
}

impl Rig {
    /// Primary storage becomes longer, with bytes of its own; then the disk does.
    fn grow(&mut self, size: u64) -> Growth {
        self.backend.resize(size as usize, 0xAB);
        let growth = self.engine.grow(self.now, size, &mut self.actions).expect("a possible size");
        self.engine.check_invariants();
        growth
    }

    /// So many I/Os and leases at most; true when nothing is left to do.
    fn go_on(&mut self, steps: usize) -> bool {
        for _ in 0..steps {
            if self.leases.0 > 0 {
                self.grant();
            } else if !self.pending.is_empty() {
                self.complete(0, IoStatus::Ok);
            } else {
                return true;
            }
        }
        false
    }
}

#[test]
fn what_is_beyond_the_end_can_be_used_once_the_disk_has_grown() {
    let mut rig = Rig::new(config());
    rig.read(1, 1 << 20, 4096);
    assert_eq!(rig.replies.pop().unwrap().1, IoStatus::Invalid);
    rig.fill(0..4);
    assert_eq!(rig.grow(LONGER), Growth::Done);
    assert_eq!(rig.engine.config().backend.size, LONGER);
    rig.read(2, LONGER - 4096, 4096);
    rig.settle();
    assert_eq!(rig.replies.pop().unwrap().2, [0xAB; 4096]);
    rig.write(3, LONGER - 512, 512, 7);
    rig.settle();
    assert_eq!(rig.backend[LONGER as usize - 1], 7);
    rig.read(4, 0, 4096);
    assert!(rig.pending.is_empty(), "what was cached stays");
}

#[test]
fn a_granule_at_the_old_end_is_fetched_anew() {
    let mut rig = odd(config());
    let page = END & !4095;
    rig.read(1, page, END - page);
    rig.settle();
    rig.read(2, page, END - page);
    assert!(rig.pending.is_empty(), "it is in RAM");
    assert_eq!(rig.grow(LONGER), Growth::Done);
    rig.read(3, page, 4096);
    rig.settle();
    let (tag, _, bytes) = rig.replies.pop().unwrap();
    assert_eq!(tag, 3);
    assert_eq!(bytes, rig.backend[page as usize..][..4096]);
    assert!(bytes.ends_with(&[0xAB; 1024]));
}

#[test]
fn the_end_moves_when_no_request_is_in_flight_there() {
    let mut rig = odd(config());
    let page = END & !4095;
    rig.read(1, 0, 4096);
    rig.read(2, page, 512);
    assert_eq!(rig.grow(LONGER), Growth::Busy);
    assert_eq!(rig.engine.config().backend.size, END);
    rig.complete(1, IoStatus::Ok);
    assert_eq!(rig.grow(LONGER), Growth::Done, "the other one is elsewhere");
    rig.settle();
    rig.read(3, page, 4096);
    rig.settle();
    assert_eq!(rig.replies.pop().unwrap().2, rig.backend[page as usize..][..4096]);
}

#[test]
fn a_destaged_page_at_the_old_end_does_not_overwrite_what_is_behind_it() {
    let page = END & !4095;
    // The disk grows at each instant of a write's way to primary storage, or as soon after as it can.
    let mut busy = 0;
    for instant in 0.. {
        let mut rig = odd(with_log());
        rig.backend.resize(LONGER as usize, 0xAB);
        rig.tick(0);
        rig.settle_log();
        rig.write_with(1, page, END - page, 9, true);
        let is_over = rig.go_on(instant);
        while rig.grow(LONGER) == Growth::Busy {
            busy += 1;
            assert!(!rig.go_on(1), "it can grow once all is done");
        }
        rig.settle_log();
        assert!(rig.backend[page as usize..END as usize] == [9; 3072]);
        assert!(rig.backend[END as usize..][..1024] == [0xAB; 1024]);
        rig.read(2, page, 4096);
        rig.settle_log();
        assert!(rig.replied(2).2 == rig.backend[page as usize..][..4096]);
        if is_over {
            break;
        }
    }
    assert!(busy > 2, "{busy}: the request, the reading of its page, the writing");
}

#[test]
fn a_ring_that_was_begun_before_goes_on_and_drops_what_was_being_written_behind() {
    let mut rig = Rig::new(super::warm::with_ring(16));
    rig.fill(0..4);
    assert_eq!(rig.grow(LONGER), Growth::Done);
    // A block behind the old end, in the last region: none that is cached shares its mark.
    let block = LONGER / 4096 - 1;
    rig.fill(block..block + 1);
    rig.settle_ring();
    let (mut next, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.found, restored.kept), (5, 5));
    assert_eq!(next.source(block), "r");
    assert_eq!(next.source(0), "r");
    // Killed before its write was flushed.
    rig.write(1, LONGER - 4096, 4096, 9);
    rig.settle();
    let (mut next, restored) = rig.restarted().expect("warm");
    assert_eq!((restored.found - restored.kept, restored.kept), (1, 4));
    assert_eq!(next.source(block), "R", "it may be older than primary storage");
    assert_eq!(next.source(0), "r");
}

#[test]
fn impossible_sizes_are_refused() {
    let mut rig = odd(config());
    for size in [0, END - 512, END + 100, 4096 << 32] {
        assert!(rig.engine.grow(rig.now, size, &mut rig.actions).is_err(), "{size}");
    }
    assert_eq!(rig.engine.grow(rig.now, END, &mut rig.actions), Ok(Growth::Done));
    assert_eq!(rig.engine.config().backend.size, END);
}

/// A client may take long to send what is to be compared.
#[test]
fn a_compare_whose_buffer_was_lent_before_the_disk_grew_compares_what_ram_has() {
    let mut rig = odd(Config { ram_bytes: 256 * KIB, ..with_log() });
    rig.tick(0);
    rig.settle_log();
    assert_eq!(rig.engine.mode(), Mode::WriteBack);
    let sector = ByteRange::at(END - 512, 512);
    let buffer = rig.engine.compare_buffer(sector).expect("a free buffer");
    assert_eq!(rig.grow(LONGER), Growth::Done);
    let page = END & !4095;
    rig.write(1, page, 4096, 7);
    rig.read(2, page, 4096);
    rig.settle_log();
    rig.slice(buffer.at(sector)).fill(70);
    rig.slice(buffer.expected(sector)).fill(7);
    rig.submit(3, sector.start, 512, Op::CompareAndWrite { buffer, fua: false });
    rig.settle_log();
    assert!(rig.replied(3).1.is_ok());
    rig.read(4, page, 4096);
    rig.settle_log();
    let mut expected = [7; 4096];
    expected[(sector.start - page) as usize..][..512].fill(70);
    assert_eq!(rig.replied(4).2, expected);
}
