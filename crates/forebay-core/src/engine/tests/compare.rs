//! Compare-and-write: what it compares with, what it writes, whom it waits for, and who waits for it.

use super::*;
use crate::config::{FlashAdmission, OnTimeout};

impl Rig {
    /// Tells the engine what was compared.
    pub(super) fn compared(&mut self) {
        for (id, difference) in std::mem::take(&mut self.comparisons) {
            self.engine.compared(self.now, id, difference, &mut self.actions);
        }
    }

    pub(super) fn difference(&self, tag: u64) -> u64 {
        let (_, status, bytes) = self.replied(tag);
        assert_eq!(*status, IoStatus::Miscompare);
        u64::from_le_bytes(bytes[..].try_into().expect("an offset"))
    }

    /// One that must find what it expects, with nothing in its way.
    pub(super) fn swap(&mut self, start: u64, expected: u8, new: u8) {
        let tag = 2_000_000 + self.replies.len() as u64;
        self.compare_and_write(tag, start, &[expected; 512], new, false);
        self.settle();
        assert_eq!(self.replied(tag).1, IoStatus::Ok, "at {start}");
    }

    /// Lets the log's own I/O end, and nothing else.
    pub(super) fn commit(&mut self) {
        self.grant();
        while let Some(at) = self.drawn().iter().position(|io| io.starts_with("log")) {
            self.complete(at, IoStatus::Ok);
        }
    }

    pub(super) fn no_memory_is_lost(&mut self) {
        self.settle_log();
        let statistics = self.engine.statistics(self.now);
        assert_eq!(statistics.buffer_bytes, statistics.buffer_bytes_free);
        assert!(self.engine.is_idle());
    }
}

#[test]
fn what_is_expected_is_replaced_in_cache_and_on_primary_storage() {
    let mut rig = Rig::new(config());
    rig.compare_and_write(1, 4096, &[1; 1024], 77, false);
    assert_eq!(rig.drawn(), ["R 4096+4096"], "whole granules, which are kept");
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["W 4096+1024"]);
    assert!(!rig.has_reply(1));
    rig.settle();
    assert_eq!(rig.replied(1).1, IoStatus::Ok);
    assert_eq!((rig.backend[5119], rig.backend[5120]), (77, 1));
    rig.expect_bytes(4096, 1024, 77);
    assert_eq!((rig.counters().read_hits_ram, rig.counters().backend_reads), (1, 1));
    rig.no_memory_is_lost();
}

#[test]
fn what_differs_is_told_where_and_nothing_changes() {
    let mut rig = Rig::new(config());
    for (tag, at) in [(1, 0), (2, 511), (3, 512), (4, 1023)] {
        let mut expected = [1; 1024];
        expected[at] = 9;
        // A later difference does not count.
        expected[1023] = 9;
        rig.compare_and_write(tag, 4096, &expected, 77, true);
        rig.settle();
        assert_eq!(rig.difference(tag), at as u64);
    }
    assert_eq!(rig.backend[4096..8192], [1; 4096]);
    rig.expect_bytes(4096, 4096, 1);
    let counters = rig.counters();
    assert_eq!((counters.miscompares, counters.compare_and_writes), (4, 0));
    assert_eq!((counters.requests_failed, counters.writes, counters.backend_writes), (0, 0, 0));
    assert_eq!(rig.engine.statistics(rig.now).latency.compare_and_write.count, 4);
    rig.no_memory_is_lost();
}

#[test]
fn of_two_that_expect_the_same_exactly_one_wins() {
    for config in [config(), with_log(), Config { ram_bytes: 256 * KIB, ..with_log() }] {
        let mut rig = Rig::new(config);
        rig.tick(0);
        rig.settle_log();
        rig.compare_and_write(1, 4096, &[1; 512], 70, true);
        rig.compare_and_write(2, 4096, &[1; 512], 71, true);
        rig.settle_log();
        assert_eq!((rig.replied(1).1, rig.difference(2)), (IoStatus::Ok, 0));
        rig.expect_bytes(4096, 512, 70);
        rig.swap(4096, 70, 72);
        rig.no_memory_is_lost();
    }
}

#[test]
fn nobody_reads_or_writes_between_the_comparison_and_the_write() {
    let mut rig = Rig::new(config());
    rig.tells_comparisons = false;
    rig.read(0, 4096, 4096);
    rig.settle();
    rig.compare_and_write(1, 4096, &[1; 512], 70, false);
    rig.read(2, 4096, 512);
    rig.write(3, 4096, 512, 71);
    rig.read(4, 4608, 512);
    assert!(rig.has_reply(4), "a neighbour in RAM is not held");
    assert!(rig.pending.is_empty() && !rig.has_reply(2), "all wait for the comparison");
    rig.compared();
    rig.run_actions();
    assert_eq!(rig.drawn(), ["W 4096+512"]);
    assert!(!rig.has_reply(2));
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.replied(2).2, [70; 512]);
    rig.settle();
    rig.expect_bytes(4096, 512, 71);
}

#[test]
fn it_compares_with_the_newest_bytes_wherever_they_are() {
    let flash_admission = FlashAdmission::Always;
    let tiers = Config { flash_bytes: 256 * KIB, flash_admission, ..with_log() };
    let mut rig = write_back(tiers);
    rig.read(1, 0, 4096);
    rig.settle();
    rig.compare_and_write(2, 0, &[0; 512], 10, false);
    assert_eq!(rig.drawn(), ["r 0+4096"], "from flash");
    rig.settle();
    assert!(rig.replied(2).1.is_ok());
    rig.swap(0, 10, 11);
    assert_eq!(rig.counters().log_read_bytes, 0, "from the group in memory");
    rig.settle_log();
    rig.backend[..512].fill(99);
    rig.compare_and_write(3, 0, &[11; 512], 13, false);
    let below = rig.find("R 0+4096");
    rig.complete(below, IoStatus::Ok);
    assert!(!rig.has_reply(3));
    rig.commit();
    assert!(rig.replied(3).1.is_ok(), "from the log, with older bytes on primary storage");
    rig.expect_bytes(0, 512, 13);
    rig.no_memory_is_lost();
}

#[test]
fn a_fetch_that_fails_is_told_and_nothing_is_written() {
    let mut rig = Rig::new(config());
    rig.compare_and_write(1, 4096, &[1; 512], 70, false);
    rig.write(2, 4096, 512, 71);
    rig.complete(0, IoStatus::IoError);
    assert_eq!(rig.replied(1).1, IoStatus::IoError);
    assert_eq!(rig.drawn(), ["W 4096+512"], "only of the write behind it");
    rig.settle();
    assert_eq!((rig.backend[4096], rig.counters().requests_failed), (71, 1));
    rig.no_memory_is_lost();
}

#[test]
fn one_whose_time_is_over_before_it_compared_writes_nothing() {
    for compares in [false, true] {
        let mut rig = Rig::new(config());
        rig.tells_comparisons = false;
        rig.compare_and_write(1, 4096, &[1; 512], 70, false);
        if compares {
            rig.complete(0, IoStatus::Ok);
            assert_eq!(rig.comparisons.len(), 1);
        }
        rig.tick(30_000);
        assert_eq!(rig.replied(1).1, IoStatus::TimedOut);
        rig.write(2, 4096, 512, 71);
        rig.compared();
        rig.run_actions();
        rig.tells_comparisons = true;
        rig.settle();
        assert_eq!(rig.backend[4096], 71);
        rig.expect_bytes(4096, 512, 71);
        rig.no_memory_is_lost();
    }
}

#[test]
fn one_whose_write_or_flush_hangs_is_not_told_to_try_again_and_stays_owner_of_its_range() {
    let mut rig = Rig::new(config());
    rig.compare_and_write(1, 4096, &[1; 512], 70, true);
    rig.complete(0, IoStatus::Ok);
    for hangs in ["W 4096+512", "F 0+0"] {
        rig.tick(60_000);
        assert!(!rig.has_reply(1), "{hangs}: its bytes may be seen by whoever tries again");
        assert_eq!(rig.drawn(), [hangs], "only the old write");
        if hangs.starts_with('W') {
            rig.complete(0, IoStatus::Ok);
        }
    }
    rig.compare_and_write(2, 4096, &[70; 512], 71, false);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    rig.settle();
    assert!(rig.replied(1).1.is_ok());
    assert!(rig.replied(2).1.is_ok());
    assert_eq!(rig.backend[4096], 71);
}

#[test]
fn by_setting_it_waits_instead_of_timing_out() {
    let mut rig = Rig::new(Config { on_timeout: OnTimeout::Wait, ..config() });
    rig.compare_and_write(1, 4096, &[1; 512], 70, false);
    rig.tick(60_000);
    rig.settle();
    assert!(rig.replied(1).1.is_ok());
    assert_eq!(rig.backend[4096], 70);
}

#[test]
fn a_sector_of_a_larger_logical_block_keeps_its_neighbours() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough, Mode::WriteBack] {
        let mut config = Config { mode, ..with_log() };
        config.backend.logical_block = 4096;
        let mut rig = Rig::new(config);
        rig.tick(0);
        rig.settle_log();
        for tag in 0..8 {
            rig.compare_and_write(tag, 4096 + tag * 512, &[1; 512], 70 + tag as u8, true);
        }
        rig.settle_log();
        for tag in 0..8 {
            assert!(rig.replied(tag).1.is_ok(), "{mode:?}");
            assert_eq!(rig.backend[4096 + 512 * tag as usize..][..512], [70 + tag as u8; 512]);
        }
        assert_eq!((rig.backend[4095], rig.backend[8192]), (0, 2));
        rig.no_memory_is_lost();
    }
}

#[test]
fn with_fua_it_is_durable_when_it_is_answered() {
    let mut rig = Rig::new(config());
    rig.compare_and_write(1, 4096, &[1; 512], 70, true);
    rig.complete(0, IoStatus::Ok);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.drawn(), ["F 0+0"]);
    assert!(!rig.has_reply(1));
    rig.settle();
    assert!(rig.replied(1).1.is_ok());
    assert_eq!((rig.counters().compare_and_writes, rig.counters().writes), (1, 0));
}

#[test]
fn it_waits_for_the_commit_in_flight_and_its_own_and_for_nothing_else() {
    let mut rig = write_back(Config { ram_bytes: 256 * KIB, ..with_log() });
    rig.read(1, 4096, 4096);
    rig.write_with(2, 65536, 4096, 7, true);
    while !rig.has_reply(1) || !rig.has_reply(2) {
        rig.complete(0, IoStatus::Ok);
    }
    rig.sent();
    rig.commit();
    rig.tick(20_000);
    rig.commit();
    assert_eq!(rig.drawn(), ["W 65536+4096"], "the destager waits for primary storage");
    rig.write_with(3, 131_072, 4096, 8, true);
    rig.compare_and_write(4, 4096, &[1; 512], 70, true);
    assert_eq!(rig.drawn().len(), 2, "one commit, which came before it");
    rig.complete(1, IoStatus::Ok);
    assert!(rig.has_reply(3) && !rig.has_reply(4));
    assert_eq!(rig.drawn().len(), 2, "and its own");
    rig.complete(1, IoStatus::Ok);
    assert!(rig.replied(4).1.is_ok());
    assert_eq!(rig.drawn(), ["W 65536+4096"]);
    assert_eq!(rig.engine.statistics(rig.now).latency.compare_and_write.count, 0, "not sent yet");
    rig.settle_log();
    assert_eq!(rig.backend[4096..4608], [70; 512]);
}

#[test]
fn the_throttle_does_not_delay_it() {
    let mut rig = throttled(Config { ram_bytes: 1 << 20, ..with_log() });
    rig.read(1, 4096, 4096);
    rig.complete(rig.find("R 4096+4096"), IoStatus::Ok);
    rig.write(50, 4096 + 1024, 512, 8);
    assert!(!rig.has_reply(50), "a neighbour is throttled, too");
    rig.compare_and_write(51, 4096, &[1; 512], 70, false);
    assert!(rig.replied(51).1.is_ok(), "in the log's memory, which survives the process");
    assert!(!rig.has_reply(50));
    rig.compare_and_write(52, 4096, &[70; 512], 71, true);
    rig.commit();
    assert!(rig.replied(52).1.is_ok());
    rig.engine.pause_destaging(rig.now, false, &mut rig.actions);
    rig.run_actions();
    rig.settle_log();
    assert!(rig.has_reply(50));
    rig.expect_bytes(4096, 512, 71);
}

#[test]
fn in_a_full_log_it_waits_for_room_as_a_write_does() {
    let mut rig = write_back(with_log());
    for tag in 10..50 {
        rig.grant();
        rig.write(tag, tag * 8192, 8192, 7);
    }
    assert!((10..50).any(|tag| !rig.has_reply(tag)));
    rig.compare_and_write(1, 4096, &[1; 512], 70, true);
    let fetch = rig.find("R 4096+4096");
    rig.complete(fetch, IoStatus::Ok);
    rig.read(2, 4096, 512);
    assert!(!rig.has_reply(1) && !rig.has_reply(2));
    rig.settle_log();
    assert!(rig.replied(1).1.is_ok());
    assert_eq!(rig.replied(2).2, [70; 512]);
    rig.no_memory_is_lost();
}

#[test]
fn it_needs_no_more_memory_than_it_came_with() {
    let mut config = Config { buffer_bytes: 36 << 20, requests_max: 4096, ..config() };
    config.backend.size = 64 << 20;
    let mut rig = Rig::new(config);
    let mut tag = 0;
    loop {
        let range = ByteRange::at(tag * 65536 + 512, 65536);
        let Some(buffer) = rig.engine.compare_buffer(range) else { break };
        let bytes: Vec<u8> = rig.backend[range.start as usize..range.end as usize].to_vec();
        rig.slice(buffer.expected(range)).copy_from_slice(&bytes);
        rig.slice(buffer.at(range)).fill(70);
        rig.submit(tag, range.start, 65536, Op::CompareAndWrite { buffer, fua: false });
        tag += 1;
    }
    assert!(tag > 100, "memory for {tag}");
    rig.settle();
    assert!((0..tag).all(|tag| rig.replied(tag).1.is_ok()));
    assert_eq!(rig.counters().buffer_waits, 0);
    let unused = rig.engine.compare_buffer(ByteRange::at(512, 512)).expect("a free buffer");
    rig.engine.release(rig.now, unused, &mut rig.actions);
    rig.no_memory_is_lost();
}

#[test]
fn what_cannot_be_done_is_refused() {
    let mut rig = Rig::new(config());
    let range = ByteRange::at(0, 1024);
    let buffer = rig.engine.compare_buffer(range).expect("a free buffer");
    rig.submit(1, 256, 512, Op::CompareAndWrite { buffer, fua: false });
    assert_eq!(rig.replied(1).1, IoStatus::Invalid);
    let mut read_only = config();
    read_only.backend.read_only = true;
    let mut other = Rig::new(read_only);
    other.compare_and_write(1, 0, &[0; 512], 70, false);
    assert_eq!(other.replied(1).1, IoStatus::ReadOnly);
    let buffer = rig.engine.compare_buffer(range).expect("a free buffer");
    rig.engine.shut_down(rig.now, &mut rig.actions);
    rig.submit(2, 0, 1024, Op::CompareAndWrite { buffer, fua: false });
    assert_eq!(rig.replied(2).1, IoStatus::ShuttingDown);
    rig.no_memory_is_lost();
}
