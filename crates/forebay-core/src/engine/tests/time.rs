//! Where the time of requests goes, and which of them took longest.

mod behind;

use super::*;
use crate::stats::{RequestOp, SlowRequest, TimeSplit, TimeStatistics};

const MS: u64 = 1_000_000;

impl Rig {
    fn time(&self) -> TimeStatistics {
        self.engine.statistics(self.now).time
    }

    fn slowest(&self) -> Vec<SlowRequest> {
        self.engine.statistics(self.now).slowest
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(Nanos::from_millis(millis));
    }

    /// The parts are the whole, for each kind of request.
    fn check_sums(&self) {
        let TimeStatistics { read, write, flush } = self.time();
        for split in [read, write, flush] {
            let parts: u64 = split.parts().iter().map(|(_, ns)| ns).sum();
            assert_eq!(parts, split.total_ns, "{split:?}");
        }
    }
}

#[test]
fn a_hit_has_no_wait_and_a_miss_waits_for_primary_storage() {
    let mut rig = Rig::new(config());
    rig.read(1, 0, 4096);
    rig.pass(5);
    rig.complete(0, IoStatus::Ok);
    rig.pass(1);
    rig.sent();
    let expect =
        TimeSplit { total_ns: 6 * MS, primary_ns: 5 * MS, rest_ns: MS, ..TimeSplit::default() };
    assert_eq!(rig.time().read, expect);
    rig.read(2, 0, 4096);
    rig.pass(2);
    rig.sent();
    let expect = TimeSplit { total_ns: 8 * MS, rest_ns: 3 * MS, ..expect };
    assert_eq!(rig.time().read, expect);
    rig.check_sums();
    // Until its reply is sent neither its time nor its wait counts: no part ever becomes less.
    rig.read(3, 65536, 4096);
    rig.pass(5);
    rig.complete(0, IoStatus::Ok);
    assert_eq!(rig.time().read, expect);
    rig.sent();
    assert_eq!(rig.time().read.primary_ns, 10 * MS);
    rig.check_sums();
}

#[test]
fn who_waits_for_an_earlier_request_waits_in_the_queue() {
    let mut rig = Rig::new(config());
    rig.write(1, 0, 4096, 7);
    rig.pass(1);
    rig.read(2, 0, 4096);
    rig.pass(3);
    rig.settle();
    let TimeStatistics { read, write, .. } = rig.time();
    assert_eq!((write.primary_ns, write.total_ns), (4 * MS, 4 * MS));
    assert_eq!((read.queue_ns, read.total_ns), (3 * MS, 3 * MS));
    rig.check_sums();
}

#[test]
fn a_read_that_flash_answers_waits_for_flash() {
    let mut config = config();
    (config.ram_bytes, config.flash_bytes) = (0, 256 * KIB);
    let mut rig = Rig::new(config);
    rig.read(1, 0, 4096);
    rig.settle();
    rig.read(2, 0, 4096);
    rig.pass(1);
    rig.settle();
    assert_eq!(rig.time().read.flash_ns, MS);
    rig.check_sums();
}

#[test]
fn a_durable_write_waits_for_the_log_and_a_flush_for_its_device() {
    let mut rig = write_back(with_log());
    let before = rig.time();
    rig.write_with(1, 0, 4096, 1, true);
    rig.pass(2);
    rig.log();
    rig.sent();
    let write = rig.time().write.since(&before.write);
    assert_eq!((write.log_ns, write.total_ns), (2 * MS, 2 * MS), "{write:?}");
    let mut rig = Rig::new(config());
    rig.submit(2, 0, 0, Op::Flush);
    rig.pass(9);
    rig.settle();
    assert_eq!(rig.time().flush.primary_ns, 9 * MS);
    rig.check_sums();
}

#[test]
fn a_writer_waits_for_room_in_the_log() {
    let mut rig = write_back(with_log());
    for tag in 0..40 {
        rig.write(tag, tag * 8192, 8192, tag as u8 + 1);
        rig.grant();
    }
    rig.pass(50);
    rig.settle_log();
    let write = rig.time().write;
    assert!(write.room_ns >= 50 * MS, "{write:?}");
    rig.check_sums();
}

#[test]
fn the_time_of_writes_is_that_of_the_writes_that_are_counted() {
    for (config, kind) in [(config(), "without a log"), (with_log(), "with one")] {
        let mut rig =
            if config.write_log.is_some() { write_back(config) } else { Rig::new(config) };
        let before = rig.engine.statistics(rig.now);
        rig.write_with(1, 0, 4096, 7, true);
        rig.pass(4);
        rig.settle();
        rig.submit(2, 8192, 4096, Op::Discard { fua: true });
        rig.pass(900);
        rig.settle();
        let zeroes = Op::WriteZeroes { may_unmap: false, fast_only: false, fua: true };
        rig.submit(3, 16384, 4096, zeroes);
        rig.pass(700);
        rig.settle();
        rig.compare_and_write(4, 0, &[7; 512], 8, true);
        rig.pass(500);
        rig.settle();
        let now = rig.engine.statistics(rig.now);
        assert_eq!(now.counters.writes, before.counters.writes + 1);
        let write = now.time.write.since(&before.time.write);
        assert_eq!(write.total_ns, 4 * MS, "{kind}: {write:?}");
        let latency = &now.latency;
        assert_eq!((latency.write.count, latency.write.sum_ns), (1, 4 * MS), "{kind}");
        assert_eq!((latency.zero.count, latency.zero.sum_ns), (2, 1600 * MS), "{kind}");
        assert_eq!(latency.compare_and_write.sum_ns, 500 * MS, "{kind}");
        rig.check_sums();
    }
}

#[test]
fn the_slowest_request_of_each_minute_is_kept_for_an_hour() {
    let mut rig = Rig::new(config());
    for (tag, millis) in [(1, 5), (2, 9), (3, 7)] {
        rig.read(tag, tag * 8192, 4096);
        rig.pass(millis);
        rig.settle();
    }
    rig.pass(60_000);
    rig.write(4, 0, 512, 1);
    rig.pass(2);
    rig.settle();
    let slowest = rig.slowest();
    let shown: Vec<_> =
        slowest.iter().map(|it| (it.operation, it.offset, it.time.total_ns / MS)).collect();
    assert_eq!(shown, [(RequestOp::Write, 0, 2), (RequestOp::Read, 16384, 9)]);
    assert_eq!((slowest[1].length, slowest[1].time.primary_ns), (4096, 9 * MS));
    assert_eq!(slowest[1].ago_ns, 60_009 * MS);
    // A hit is nothing that took long.
    rig.pass(60_000);
    rig.read(5, 0, 512);
    rig.pass(3);
    rig.sent();
    assert_eq!(rig.slowest().len(), 2);
    rig.pass(58 * 60_000);
    assert_eq!(rig.slowest().len(), 1);
    for n in 0..100 {
        rig.pass(60_000);
        rig.read(100 + n, 40960, 4096);
        rig.write(300 + n, 40960, 512, 1);
        rig.pass(1);
        rig.settle();
    }
    assert_eq!(rig.slowest().len(), 60);
}
