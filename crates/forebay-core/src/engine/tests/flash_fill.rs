//! Blocks on their way to flash.

use super::*;
use crate::config::OnTimeout;

/// Flash alone, of 64 blocks of 8 KiB.
fn flash() -> Config {
    Config { block_size: 8 * KIB, ram_bytes: 0, flash_bytes: 512 * KIB, ..config() }
}

/// Writes to flash that are pending.
fn fills(rig: &Rig) -> usize {
    rig.pending.iter().filter(|io| io.target == Target::Flash).count()
}

#[test]
fn a_burst_of_fills_waits_for_the_device_and_all_of_it_arrives() {
    let mut rig = Rig::new(flash());
    rig.read(1, 0, 512 * KIB);
    rig.complete(0, IoStatus::Ok);
    assert!(rig.has_reply(1));
    assert_eq!(fills(&rig), 32, "as many as the device is given at once");
    rig.settle();
    assert_eq!((rig.counters().flash_admitted, rig.counters().flash_fills_skipped()), (64, 0));
    rig.read(2, 0, 512 * KIB);
    rig.settle();
    assert_eq!(rig.counters().read_hits_flash, 1);
    assert_eq!(rig.replied(2).2, rig.replied(1).2);
}

#[test]
fn the_other_half_of_a_block_joins_the_half_that_is_under_way() {
    let mut rig = Rig::new(flash());
    rig.read(1, 0, 4096);
    rig.complete(0, IoStatus::Ok);
    rig.read(2, 4096, 4096);
    let at = rig.find("R 4096+4096");
    rig.complete(at, IoStatus::Ok);
    assert_eq!(fills(&rig), 1, "one write of a block at a time");
    rig.settle();
    assert_eq!((rig.counters().flash_admitted, rig.counters().flash_fills_skipped()), (1, 0));
    rig.read(3, 0, 8192);
    assert_eq!(rig.drawn(), ["r 0+8192"]);
    rig.settle();
    assert_eq!((rig.replied(3).2[0], rig.replied(3).2[4096]), (0, 1));
}

#[test]
fn a_block_that_is_written_while_it_is_under_way_never_shows_old_bytes() {
    let mut rig = Rig::new(flash());
    rig.read(1, 0, 8192);
    rig.complete(0, IoStatus::Ok);
    // The write is done before the fill of the old bytes is.
    rig.write(2, 0, 8192, 77);
    let at = rig.find("W 0+8192");
    rig.complete(at, IoStatus::Ok);
    assert_eq!(fills(&rig), 1);
    rig.settle();
    rig.expect_bytes(0, 8192, 77);
    assert_eq!(rig.counters().flash_fills_skipped_busy, 1);
    // Now it is there, and stays so.
    rig.expect_bytes(0, 8192, 77);
    assert_eq!(rig.counters().read_hits_flash, 1);
}

#[test]
fn a_block_that_is_overwritten_keeps_its_slot_and_shows_nothing_until_its_bytes_are_there() {
    let mut rig = Rig::new(flash());
    rig.read(1, 0, 8192);
    rig.settle();
    rig.write(2, 0, 8192, 77);
    rig.complete(0, IoStatus::Ok);
    let cached = |rig: &Rig| rig.engine.statistics(rig.now).vfrc.num_blocks_currently_cached;
    assert_eq!((cached(&rig), fills(&rig)), (0, 1));
    rig.read(3, 0, 4096);
    assert!(rig.drawn().contains(&"R 0+4096".to_owned()), "{:?}", rig.drawn());
    rig.settle();
    assert_eq!(rig.replied(3).2, [77; 4096]);
    assert_eq!((cached(&rig), rig.counters().flash_admitted), (1, 1));
    rig.expect_bytes(0, 8192, 77);
    assert_eq!(rig.counters().read_hits_flash, 1);
}

#[test]
fn a_fill_that_fails_leaves_no_block_behind() {
    let mut rig = Rig::new(flash());
    rig.read(1, 0, 8192);
    rig.settle();
    rig.write(2, 0, 8192, 77);
    rig.complete(0, IoStatus::Ok);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.counters().flash_slots_quarantined, 1);
    rig.expect_bytes(0, 8192, 77);
    rig.settle();
}

#[test]
fn flash_that_dies_takes_the_fills_that_wait_with_it() {
    let mut rig = Rig::new(flash());
    rig.read(1, 0, 512 * KIB);
    rig.complete(0, IoStatus::Ok);
    rig.tick(5_000);
    assert!(rig.events.contains(&Event::FlashFailed { status: IoStatus::TimedOut }));
    assert_eq!(fills(&rig), 32, "nothing new is sent there");
    rig.settle();
    assert!(rig.engine.is_idle());
    rig.expect_bytes(0, 4096, 0);
}

#[test]
fn bytes_of_a_read_that_was_given_up_are_not_taken_for_wrong_ones_of_the_write_after_it() {
    let (backend_timeout, on_timeout) = (Nanos::from_millis(1_000), OnTimeout::Fail);
    let mut rig = Rig::new(Config { backend_timeout, on_timeout, ..flash() });
    rig.read(1, 0, 8192);
    rig.settle();
    let old = rig.flash[..8192].to_vec();
    rig.read(2, 0, 8192);
    rig.tick(1_000);
    assert_eq!(rig.replied(2).1, IoStatus::TimedOut);
    rig.write(3, 0, 8192, 77);
    for io in ["W 0+8192", "w 0+8192"] {
        let at = rig.find(io);
        rig.complete(at, IoStatus::Ok);
    }
    // Flash had read them before that.
    let new = std::mem::replace(&mut rig.flash, old);
    let at = rig.find("r 0+8192");
    rig.complete(at, IoStatus::Ok);
    rig.flash = new;
    assert_eq!(rig.counters().flash_checksum_errors, 0);
    rig.expect_bytes(0, 8192, 77);
    assert_eq!(rig.counters().read_hits_flash, 1);
}
