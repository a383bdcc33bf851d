use forebay_core::geometry::ByteRange;

use super::*;
use crate::testing::Bench;

#[test]
fn an_io_ends_when_the_model_says_and_not_before() {
    let uri = "model:san?iops=1000&latency=5ms&inner=mem:1MiB";
    let mut bench = Bench::at(uri, Nanos::from_millis(100));
    let write = bench.submit_write(ByteRange::at(0, 4096), 7);
    let (read, memory) = bench.submit_read(ByteRange::at(8192, 4096));
    assert!(bench.ended.is_empty());
    assert_eq!(bench.backend.next_deadline(), Nanos::from_millis(105));
    bench.at_time(Nanos::from_millis(105));
    assert_eq!(bench.ended.get(&write), Some(&IoStatus::Ok));
    assert_eq!(bench.backend.next_deadline(), Nanos::from_millis(106));
    bench.at_time(Nanos(106_000_000 - 1));
    assert!(!bench.ended.contains_key(&read));
    bench.at_time(Nanos::from_millis(106));
    assert_eq!(bench.ended.get(&read), Some(&IoStatus::Ok));
    assert!(bench.bytes(memory).iter().all(|byte| *byte == 0));
    assert_eq!(bench.backend.next_deadline(), Nanos::NEVER);
}

#[test]
fn a_refused_io_takes_no_time() {
    let mut bench = Bench::at("model:san?latency=5ms&inner=mem:1MiB", Nanos(0));
    let (beyond, _) = bench.submit_read(ByteRange::at(1 << 20, 4096));
    bench.at_time(Nanos(0));
    assert_eq!(bench.ended.get(&beyond), Some(&IoStatus::Invalid));
}

#[test]
fn extents_and_data_come_from_inside() {
    let mut bench = Bench::at("model:san?inner=mem:1MiB", Nanos(0));
    let write = bench.submit_write(ByteRange::at(0, 4096), 7);
    bench.at_time(Nanos::from_millis(100));
    assert_eq!(bench.ended.get(&write), Some(&IoStatus::Ok));
    let asked = bench.submit(IoOp::Extents, ByteRange::at(0, 1 << 20));
    bench.at_time(Nanos::from_millis(200));
    assert_eq!(bench.extents[&asked].len(), 2);
}

#[test]
fn an_inner_backend_that_is_slower_than_the_model_decides() {
    let uri = "model:san?latency=5ms&inner=fault:rule=delay,time=1s&inner=mem:1MiB";
    let mut bench = Bench::at(uri, Nanos(0));
    let (read, _) = bench.submit_read(ByteRange::at(0, 4096));
    bench.at_time(Nanos::from_millis(999));
    assert!(bench.ended.is_empty());
    bench.at_time(Nanos::from_millis(1000));
    assert_eq!(bench.ended.get(&read), Some(&IoStatus::Ok));
}
