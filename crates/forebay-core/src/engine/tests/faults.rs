//! Devices that fail: what clients hear, and what the cache must not hold afterwards.

use super::*;
use crate::action::PrimaryOp;
use crate::config::FlashAdmission;
use crate::stats::{RequestOp, TierState};

fn with_flash() -> Config {
    Config {
        ram_bytes: 0,
        flash_bytes: 64 * KIB,
        flash_admission: FlashAdmission::Always,
        ..config()
    }
}

/// A rig whose flash holds the first block.
fn warm_flash(config: Config) -> Rig {
    let mut rig = Rig::new(config);
    rig.read(1, 0, 4096);
    rig.settle();
    assert_eq!(rig.engine.statistics(rig.now).flash.slots_used, 1);
    rig
}

#[test]
fn a_failed_fetch_fails_its_read_alone_and_caches_nothing() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.read(2, 8192, 4096);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    rig.expect_bytes(0, 4096, 0);
    assert_eq!(rig.counters().read_misses, 2, "the failed read left nothing behind");
}

#[test]
fn a_failed_write_drops_what_the_cache_holds_of_its_range() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.settle();
    rig.write(2, 0, 4096, 77);
    // Half of it landed.
    rig.backend[..2048].fill(77);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(2).1, IoStatus::IoError);
    rig.expect_bytes(0, 2048, 77);
    rig.expect_bytes(2048, 2048, 0);
}

#[test]
fn rotten_bytes_on_flash_are_a_miss_and_counted() {
    let mut rig = warm_flash(with_flash());
    rig.flash[100] ^= 1;
    rig.read(2, 0, 4096);
    rig.settle();
    assert_eq!(rig.replied(2).2, [0; 4096]);
    assert_eq!(rig.counters().flash_checksum_errors, 1);
    assert!(rig.events.contains(&Event::ChecksumMismatch { offset: 0 }));
    expect_misses(&rig, 2, 1);
}

/// So many reads missed, and primary storage was asked for so many blocks whose bytes on flash were wrong.
#[track_caller]
fn expect_misses(rig: &Rig, reads: u64, invalidated: u64) {
    let Counters { read_misses, read_hits_partial, read_hits_flash, .. } = rig.counters();
    assert_eq!((read_misses, read_hits_partial, read_hits_flash), (reads, 0, 0));
    assert_eq!(rig.engine.statistics(rig.now).misses.invalidated, invalidated);
}

#[test]
fn a_read_of_which_a_part_is_rotten_on_flash_is_a_partial_hit() {
    let mut rig = Rig::new(with_flash());
    for block in 0..2 {
        rig.read(block, block * 4096, 4096);
        rig.settle();
    }
    rig.flash[100] ^= 1;
    rig.read(2, 0, 8192);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    let Counters { read_misses, read_hits_partial, flash_checksum_errors, .. } = rig.counters();
    assert_eq!((read_misses, read_hits_partial, flash_checksum_errors), (2, 1, 1));
}

#[test]
fn a_flash_read_error_is_a_miss() {
    let mut rig = warm_flash(with_flash());
    rig.read(2, 0, 4096);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.drawn(), ["R 0+4096"]);
    rig.settle();
    assert_eq!(rig.replied(2).1, IoStatus::Ok);
    assert_eq!(rig.counters().flash_errors, 1);
    expect_misses(&rig, 2, 1);
}

#[test]
fn a_slot_that_fails_a_write_is_quarantined() {
    let mut rig = Rig::new(with_flash());
    rig.read(1, 0, 4096);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["w 0+4096"]);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.counters().flash_slots_quarantined, 1);
    rig.read(2, 0, 4096);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["w 4096+4096"], "another slot is used");
    rig.settle();
    rig.expect_bytes(0, 4096, 0);
}

#[test]
fn flash_that_keeps_failing_is_given_up_and_ram_goes_on() {
    let mut rig = Rig::new(Config { ram_bytes: 16 * KIB, ..with_flash() });
    for block in 0..64 {
        rig.read(block, block * 4096, 4096);
        while !rig.pending.is_empty() {
            let status = match rig.pending[0].target {
                Target::Flash => IoStatus::IoError,
                Target::Backend | Target::Log | Target::Ring | Target::Journal => IoStatus::Ok,
            };
            rig.complete(0, status);
        }
        rig.sent();
    }
    assert!(rig.events.contains(&Event::FlashFailed { status: IoStatus::IoError }));
    let flash = rig.engine.statistics(rig.now).flash;
    assert_eq!((flash.state, flash.failure), (TierState::Failed, Some(IoStatus::IoError)));
    rig.expect_bytes(63 * 4096, 4096, 63);
    assert_eq!(rig.counters().read_hits_ram, 1);
}

#[test]
fn flash_that_does_not_answer_is_given_up_and_the_read_goes_to_primary_storage() {
    let mut rig = warm_flash(with_flash());
    rig.read(2, 0, 4096);
    assert_eq!(rig.drawn(), ["r 0+4096"]);
    rig.tick(5_000);
    assert_eq!(rig.drawn(), ["r 0+4096", "R 0+4096"]);
    rig.complete(1, IoStatus::Ok);
    assert_eq!(rig.replied(2).2, [0; 4096]);
    assert!(!rig.engine.is_idle(), "the hung I/O still owns its buffer");
    rig.complete(0, IoStatus::Ok);
    assert!(rig.engine.is_idle());
}

#[test]
fn flash_that_hangs_with_all_places_taken_leaves_places_for_the_reads_anew() {
    let flash_bytes = 256 * KIB;
    let mut rig = Rig::new(Config { requests_max: 40, flash_bytes, ..with_flash() });
    rig.read(1, 0, 200 * KIB);
    rig.settle();
    let whole_blocks = 8;
    for tag in 2..42 {
        // Each wants something that none before it brings.
        rig.submit(tag, tag * 4 * KIB, 32 * KIB, Op::Read { no_admit: true });
    }
    assert_eq!(rig.pending.len(), 40 * whole_blocks, "all of it from flash");
    rig.tick(5_000);
    assert_eq!(rig.pending.len(), 40 * whole_blocks + 40);
    rig.settle();
    assert!((2..42).all(|tag| rig.replied(tag).1.is_ok()));
    assert!(rig.engine.is_idle());
}

#[test]
fn zeroes_of_which_a_piece_may_be_lost_fail() {
    let backend = BackendTraits { size: 8 << 20, write_zeroes: false, ..config().backend };
    let mut rig = Rig::new(Config { backend, ..config() });
    rig.submit(1, 0, 3 << 20, Op::WriteZeroes { may_unmap: true, fast_only: false, fua: true });
    rig.complete(0, IoStatus::Ok);
    rig.engine.on_session_lost(rig.now, &mut rig.actions);
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
}

#[test]
fn granules_dropped_from_a_pinned_slot_do_not_come_back_in_it() {
    let mut rig = Rig::new(Config { block_size: 16 * KIB, ..config() });
    rig.read(1, 0, 16 * KIB);
    rig.settle();
    rig.read(2, 0, 16 * KIB);
    let slots = rig.engine.config().buffer_bytes as usize;
    let block = rig.backend[..16 * KIB as usize].to_vec();
    let start = slots + rig.memory[slots..].windows(block.len()).position(|w| w == block).unwrap();
    let pinned = start..start + block.len();
    rig.write(3, 0, 512, 77);
    rig.complete(0, IoStatus::IoError);
    rig.backend[..4096].fill(78);
    let before = rig.memory[pinned.clone()].to_vec();
    rig.read(4, 0, 16 * KIB);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::Ok);
    }
    assert!(rig.memory[pinned] == before, "the slot changed under a reply");
}

#[test]
fn errors_of_primary_storage_are_told_once_and_an_end_when_it_has_worked_for_a_while() {
    let mut rig = Rig::new(Config { ram_bytes: 0, ..config() });
    let (op, status) = (PrimaryOp::Write, IoStatus::NoSpace);
    let write = |rig: &mut Rig, tag: u64, status: IoStatus| {
        rig.write(tag, tag * 4096, 4096, 7);
        rig.complete(0, status);
        rig.sent();
    };
    for tag in 1..=5 {
        write(&mut rig, tag, IoStatus::NoSpace);
        rig.tick(1000);
    }
    let fails = Event::PrimaryFails { op, status, offset: 4096, is_destaging: false };
    assert_eq!(rig.events, [fails]);
    let shown = rig.engine.statistics(rig.now);
    let errors = &shown.primary_errors[..];
    assert_eq!(errors.len(), 1);
    assert_eq!((errors[0].operation, errors[0].status), (PrimaryOp::Write, IoStatus::NoSpace));
    assert_eq!((errors[0].last_offset, errors[0].failed), (5 * 4096, 5));
    let last = shown.last_failed_request.expect("five failed");
    assert_eq!((last.operation, last.offset, last.length), (RequestOp::Write, 5 * 4096, 4096));
    // Nothing says that writes work, and little that reads do.
    rig.tick(60_000);
    assert_eq!((rig.events.len(), rig.engine.next_deadline()), (1, Nanos::NEVER));
    rig.expect_bytes(0, 4096, 0);
    rig.tick(60_000);
    assert_eq!(rig.events.len(), 1);
    // One that works proves little, and less with a failure behind it.
    write(&mut rig, 6, IoStatus::Ok);
    write(&mut rig, 7, IoStatus::NoSpace);
    rig.tick(60_000);
    write(&mut rig, 8, IoStatus::NoSpace);
    write(&mut rig, 9, IoStatus::Ok);
    rig.tick(14_999);
    assert_eq!(rig.events, [fails]);
    rig.tick(1);
    assert_eq!(rig.events, [fails, Event::PrimaryWorks { op, failed: 7 }]);
    assert_eq!(rig.engine.statistics(rig.now).primary_errors, []);
}

/// As on a disk whose guest asks for no more of what has failed.
#[test]
fn a_failure_is_over_when_primary_storage_works_otherwise_and_does_not_fail_for_minutes() {
    let mut rig = Rig::new(Config { ram_bytes: 0, ..config() });
    for tag in 1..=2 {
        rig.write(tag, 0, 4096, 7);
        rig.complete(0, IoStatus::NoSpace);
        rig.sent();
        rig.tick(100_000);
    }
    rig.tick(1_000_000);
    assert!(!rig.engine.statistics(rig.now).primary_errors.is_empty(), "nothing was asked of it");
    rig.write(3, 0, 4096, 7);
    rig.complete(0, IoStatus::NoSpace);
    rig.sent();
    rig.engine.flush_primary_storage(rig.now, &mut rig.actions);
    rig.run_actions();
    rig.complete(0, IoStatus::Ok);
    rig.tick(299_999);
    assert_eq!(rig.events.len(), 1);
    rig.tick(1);
    assert_eq!(rig.events[1..], [Event::PrimaryWorks { op: PrimaryOp::Write, failed: 3 }]);
    assert_eq!(rig.engine.statistics(rig.now).primary_errors, []);
}

/// A server may say so of anything. Only zeroes, discards and queries are what not every storage can do.
#[test]
fn a_read_a_write_and_a_flush_that_are_unsupported_have_failed() {
    for op in PrimaryOp::ALL {
        let mut rig = Rig::new(config());
        match op {
            PrimaryOp::Read => rig.read(1, 0, 4096),
            PrimaryOp::Write => rig.write(1, 0, 4096, 7),
            PrimaryOp::Flush => {
                rig.write(2, 0, 4096, 7);
                rig.settle();
                rig.submit(1, 0, 0, Op::Flush);
            }
        }
        rig.complete(0, IoStatus::Unsupported);
        assert_eq!(rig.replied(1).1, IoStatus::IoError, "{op:?}");
        assert_eq!(rig.counters().backend_errors, 1, "{op:?}");
        let status = IoStatus::IoError;
        let fails = Event::PrimaryFails { op, status, offset: 0, is_destaging: false };
        assert_eq!(rig.events[0], fails);
    }
}

#[test]
fn zeroes_that_are_written_and_said_to_be_unsupported_fail_their_request() {
    let mut config = config();
    config.backend.write_zeroes = false;
    let mut rig = Rig::new(config);
    rig.submit(1, 0, 4096, Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false });
    let write = rig.find("W 0+4096");
    rig.complete(write, IoStatus::Unsupported);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
}

/// A server may have zeroed a part before it says so of the next one.
#[test]
fn zeroes_that_are_unsupported_in_the_end_leave_nothing_old_in_the_cache() {
    for is_written in [false, true] {
        let mut config = config();
        config.backend.size = 4 << 20;
        let mut rig = Rig::new(config);
        let (len, cached) = (2 << 20, (2 << 20) - 16384);
        rig.read(1, cached, 16384);
        rig.settle();
        rig.submit(2, 0, len, Op::WriteZeroes { may_unmap: true, fast_only: false, fua: false });
        rig.backend[..len as usize].fill(0);
        if is_written {
            rig.complete(0, IoStatus::Unsupported);
            assert_eq!(rig.drawn(), ["W 0+1048576"]);
        }
        rig.tick(31_000);
        assert_eq!(rig.replied(2).1, IoStatus::TimedOut);
        rig.complete(0, if is_written { IoStatus::IoError } else { IoStatus::Unsupported });
        rig.settle();
        rig.expect_bytes(cached, 16384, 0);
        assert!(rig.engine.statistics(rig.now).unflushed_bytes >= len, "{is_written}");
    }
}

#[test]
fn a_request_whose_flush_fails_is_counted_as_failed_alone() {
    let mut rig = Rig::new(config());
    rig.write_with(1, 0, 4096, 7, true);
    rig.submit(2, 8192, 4096, Op::WriteZeroes { may_unmap: true, fast_only: false, fua: true });
    rig.complete(0, IoStatus::Ok);
    rig.complete(0, IoStatus::Ok);
    while !rig.pending.is_empty() {
        rig.complete(0, IoStatus::IoError);
    }
    assert_eq!((rig.replied(1).1, rig.replied(2).1), (IoStatus::IoError, IoStatus::IoError));
    let Counters { writes, write_bytes, discards, requests_failed, .. } = rig.counters();
    assert_eq!((writes, write_bytes, discards, requests_failed), (0, 0, 0, 2));
    rig.write_with(3, 0, 4096, 7, true);
    rig.settle();
    assert_eq!((rig.counters().writes, rig.counters().flushes), (1, 0));
}
