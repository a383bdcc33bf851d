use std::collections::{BTreeMap, HashSet};

use forebay_core::splitmix::Rng;

use super::*;
use crate::record::Op;
use crate::workload::{Settings, Workload};

fn told(records: &[Record], is_exact: bool) -> Info {
    info(records.iter().copied().map(Ok), is_exact).unwrap()
}

fn record(time_ns: u64, op: Op, offset: u64, len: u32) -> Record {
    Record { time_ns, op, offset, len, device: 0, latency_ns: None }
}

fn workload(requests: u64) -> Vec<Record> {
    let settings = Settings { disk_bytes: 1 << 30, requests, interval_ns_mean: 100_000, seed: 4 };
    Workload::new(settings).collect()
}

#[test]
fn figures_are_those_of_a_plain_count() {
    let records = workload(20_000);
    let Info { summary, lengths, windows, window_ns, reuse, hottest, region_bytes, .. } =
        told(&records, true);
    assert_eq!(summary, Summary::of(records.iter().copied().map(Ok)).unwrap());
    let mut sorted: Vec<u32> = records.iter().map(|record| record.len).collect();
    sorted.sort_unstable();
    assert_eq!((lengths.min, lengths.max), (sorted[0], sorted[sorted.len() - 1]));
    assert_eq!((lengths.p50, lengths.p99), (sorted[9_999], sorted[19_799]));
    assert_eq!(lengths.common.iter().map(|(_, count)| count).sum::<u64>(), 20_000);

    let pages = |of: &[Record]| {
        let all = of.iter().flat_map(|r| r.offset / 4096..=(r.end() - 1) / 4096);
        all.collect::<HashSet<u64>>().len() as u64 * 4096
    };
    assert!((65..=128).contains(&windows.len()), "{}", windows.len());
    for window in &windows {
        let within = |r: &&Record| r.time_ns / window_ns == window.start_ns / window_ns;
        let of: Vec<Record> = records.iter().filter(within).copied().collect();
        assert_eq!(window.reads + window.writes, of.len() as u64);
        assert_eq!(window.bytes, of.iter().map(|r| u64::from(r.len)).sum::<u64>());
        let differ = window.working_set as f64 / pages(&of) as f64 - 1.0;
        assert!(differ.abs() < 0.08, "{differ}");
    }

    assert_eq!((reuse.sample, reuse.footprint), (1.0, pages(&records)));
    let firsts = (reuse.footprint / 4096) as f64 / reuse.uses as f64;
    assert!((reuse.first - firsts).abs() < 1e-9);
    let all: f64 = reuse.distances.iter().map(|(_, share)| share).sum();
    assert!((all + reuse.first - 1.0).abs() < 1e-9);

    assert_eq!((hottest.len(), region_bytes), (8, 1 << 20));
    let mut counts = std::collections::HashMap::new();
    for record in &records {
        *counts.entry(record.offset >> 20 << 20).or_insert(0) += 1;
    }
    let mut counts: Vec<(u64, u64)> = counts.into_iter().map(|(start, n)| (n, start)).collect();
    counts.sort_by_key(|&(n, start)| (std::cmp::Reverse(n), start));
    let found: Vec<_> = hottest.iter().map(|r| (r.reads + r.writes, r.start)).collect();
    assert_eq!(found, counts[..8]);
}

#[test]
fn a_sample_tells_nearly_the_same() {
    let records = workload(20_000);
    let (sampled, exact) = (told(&records, false).reuse, told(&records, true).reuse);
    assert!(sampled.sample < 0.1 && sampled.uses == exact.uses);
    let near = |a: f64, b: f64| (a - b).abs() < 0.03;
    assert!(near(sampled.footprint as f64 / exact.footprint as f64, 1.0));
    assert!(near(sampled.first, exact.first));
    for ((_, sampled), (_, exact)) in sampled.distances.iter().zip(&exact.distances) {
        assert!(near(*sampled, *exact), "{sampled} {exact}");
    }
}

#[test]
fn streams_and_partitions_are_found_on_each_device() {
    let mut records = Vec::new();
    for n in 0..1000 {
        // Two streams by turns on a partition from sector 63, and random pages on another device.
        records.push(record(n, Op::Read, 63 * 512 + n * 4096, 4096));
        records.push(record(n, Op::Write, (1 << 30) + 3584 + n * 8192, 8192));
        let random = record(n, Op::Read, n * 7919 % 5000 * 4096, 4096);
        records.push(Record { device: 3, ..random });
    }
    let devices = told(&records, false).devices;
    let numbers: Vec<u32> = devices.iter().map(|device| device.device).collect();
    assert_eq!(numbers, [0, 3]);
    assert_eq!(devices[0].sequential, 0.0);
    assert_eq!(devices[0].sequential_of_16, 1998.0 / 2000.0);
    let alignment = Alignment { grid_offset: Some(3584), requests: 2000, agree: 2000 };
    assert_eq!(devices[0].alignment, alignment);
    assert!(devices[1].sequential_of_16 < 0.1);
    assert_eq!(devices[1].alignment.grid_offset, Some(0));
    assert_eq!((devices[1].summary.reads, devices[1].summary.writes), (1000, 0));
}

#[test]
fn a_map_has_each_request_where_and_when_it_begins() {
    let mut records = workload(20_000);
    for (n, record) in (0..).zip(&mut records) {
        record.device = n % 2 * 7;
    }
    let maps = told(&records, false).maps;
    assert_eq!(maps.iter().map(|map| map.device).collect::<Vec<_>>(), [0, 7]);
    for Map { device, row_bytes, column_ns, cells } in &maps {
        let mut expect = BTreeMap::<(u64, u64), [u64; 2]>::new();
        for record in records.iter().filter(|record| record.device == *device) {
            let at = (record.offset / row_bytes, record.time_ns / column_ns);
            expect.entry(at).or_default()[usize::from(record.op == Op::Write)] += 1;
        }
        let cell = |of: &Cell| ((of.row as u64, of.column as u64), [of.reads, of.writes]);
        assert_eq!(cells.iter().map(cell).collect::<BTreeMap<_, _>>(), expect);
        let rows = cells.iter().map(|of| of.row).max().unwrap() + 1;
        let columns = cells.iter().map(|of| of.column).max().unwrap() + 1;
        assert!((33..=64).contains(&rows) && (49..=96).contains(&columns), "{rows} x {columns}");
    }
    let far = record(0, Op::Read, u64::MAX - 4096, 1);
    let many: Vec<Record> = (0..1000).map(|device| Record { device, ..far }).collect();
    let maps = told(&many, false).maps;
    assert_eq!((maps.len(), maps[0].cells.len()), (32, 1), "memory is bounded");
}

#[test]
fn memory_is_bounded_whatever_comes() {
    let mut gathered = Gathered::new(false);
    let mut random = Rng::new(1);
    for n in 0..200_000u64 {
        let word = random.next_u64();
        let time = if n % 1000 == 999 { word >> 8 } else { n << 20 };
        let len = 1 + (word >> 40) as u32 % 100_000;
        gathered.add(&record(time, Op::Write, word >> 3, len)).unwrap();
    }
    assert!(gathered.lengths.len() <= LENGTHS_MAX + 32);
    let info = gathered.info();
    assert!(info.windows.len() <= 128 && info.hottest.len() == 8);
    assert_eq!(info.windows.iter().map(|w| w.writes).sum::<u64>(), 200_000);
    assert!(info.region_bytes > 1 << 40);
}

#[test]
fn a_trace_of_nothing_is_told() {
    let info = told(&[], false);
    assert_eq!((info.read_share, info.reuse.first, info.reuse.footprint), (0.0, 0.0, 0));
    assert!(info.windows.is_empty() && info.hottest.is_empty() && info.devices.is_empty());
    assert_eq!(info.lengths, Lengths::default());
    let broken = std::iter::once(Err(Error::new(crate::ErrorKind::BadRecord, "line 7")));
    assert!(super::info(broken, false).is_err());
}
