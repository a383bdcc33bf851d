use proptest::prelude::*;

use super::*;
use crate::record::Op;
use crate::simulate::simulate;
use crate::workload::{self, Workload};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn policies(names: &str) -> Vec<SimulatedPolicy> {
    names.split(' ').map(|name| name.parse().unwrap()).collect()
}

fn settings(names: &str, block_sizes: &[u64], sample: Sample) -> Settings {
    Settings {
        policies: policies(names),
        block_sizes: block_sizes.to_vec(),
        cache_sizes: Vec::new(),
        sample,
        grid_offset: GridOffset::Fixed(0),
    }
}

fn run(records: &[Record], settings: &Settings) -> Vec<Curve> {
    curves(|| Ok(records.iter().copied().map(Ok)), settings).unwrap()
}

/// Every point of every curve, beside what the simulation of that one cache says.
fn compare(records: &[Record], settings: &Settings) -> Result<(), TestCaseError> {
    for curve in run(records, settings) {
        let mut moved = None;
        for point in &curve.points {
            let alone = simulate::Settings {
                cache_size: point.cache_size,
                block_size: curve.block_size,
                policy: curve.policy.parse().unwrap(),
                grid_offset: settings.grid_offset,
            };
            let outcome = simulate(records.iter().copied().map(Ok), &alone).unwrap();
            let what = format!("{} {} {}", curve.policy, curve.block_size, point.cache_size);
            prop_assert_eq!(point.reads, Some(outcome.reads), "{}", &what);
            prop_assert_eq!(point.writes, Some(outcome.writes), "{}", &what);
            prop_assert_eq!(point.miss_ratio, outcome.miss_ratio, "{}", &what);
            prop_assert_eq!(point.read_hit_ratio, outcome.read_hit_ratio, "{}", &what);
            let of_requests = Some(outcome.read_request_hit_ratio);
            prop_assert_eq!(point.read_request_hit_ratio, of_requests, "{}", &what);
            let above = |grid: GridMove| {
                (point.cache_size > grid.above).then_some((grid.grid_offset, grid.after))
            };
            let found = outcome.grid_moved_after.map(|after| (outcome.grid_offset, after));
            prop_assert_eq!(curve.grid_moved.and_then(above), found, "{}", &what);
            moved = outcome.grid_moved_after.map(|_| outcome.blocks_touched).or(moved);
        }
        let above = curve.grid_moved.map_or(u64::MAX, |grid| grid.above);
        if let Some(blocks) = moved
            && curve.footprint > above
        {
            prop_assert_eq!(curve.footprint, blocks * curve.block_size);
        }
    }
    Ok(())
}

fn requests(records: usize) -> impl Strategy<Value = Vec<Record>> {
    let request = (any::<bool>(), 0..3000u64, 1..100u32, 0..3u32);
    let request = request.prop_map(|(read, sector, sectors, device)| Record {
        time_ns: 0,
        op: if read { Op::Read } else { Op::Write },
        offset: sector * 512,
        len: sectors * 512,
        device: device / 2,
        latency_ns: None,
    });
    prop::collection::vec(request, 0..records)
}

const ALL: &str = "lru fifo auto clock sieve s3fifo arc lirs wtinylfu belady";

proptest! {
    #[test]
    fn every_point_is_what_the_simulation_of_that_cache_says(
        records in requests(300),
        shift in 9..=20u32,
        offset in 0..8u64,
    ) {
        let block_size = 1 << shift;
        let sizes = [1, 2, 3, 5, 8, 13, 21, 34, 55, 200].map(|slots| slots * block_size);
        let settings = Settings {
            cache_sizes: sizes.to_vec(),
            grid_offset: GridOffset::Fixed(offset * 512 % block_size),
            ..settings(ALL, &[block_size], Sample::Exact)
        };
        compare(&records, &settings)?;
    }

    #[test]
    fn lru_is_monotone_and_its_counts_add_up(
        records in requests(300),
        sample in prop::sample::select(vec![Sample::Auto, Sample::Exact, Sample::Share(0.5)]),
        block_size in prop::sample::select(vec![4 * KIB, 64 * KIB]),
    ) {
        let cache_sizes = (1..80).chain([1 << 16]).map(|slots| slots * block_size).collect();
        let settings = Settings { cache_sizes, ..settings("lru", &[block_size], sample) };
        let curve = run(&records, &settings).remove(0);
        let ratios: Vec<f64> = curve.points.iter().map(|point| point.miss_ratio).collect();
        prop_assert!(ratios.iter().rev().is_sorted(), "{:?}", ratios);
        prop_assert!(ratios.iter().all(|ratio| (0.0..=1.0).contains(ratio)));
        if sample == Sample::Exact {
            let last = curve.points.last().unwrap();
            let (reads, writes) = (last.reads.unwrap(), last.writes.unwrap());
            prop_assert_eq!(reads.requests + writes.requests, records.len() as u64);
            // Everything fits: only first uses miss.
            let uses = [reads, writes];
            let misses: u64 = uses.iter().map(|uses| uses.granules - uses.granule_hits).sum();
            prop_assert_eq!(misses * curve.granule_size, curve.touched);
        }
    }
}

/// A guest whose partition begins at sector 63.
fn misaligned(requests: u64) -> Vec<Record> {
    let settings =
        workload::Settings { disk_bytes: 64 * MIB, requests, interval_ns_mean: 1000, seed: 5 };
    let shifted = |record: Record| Record { offset: record.offset + 63 * 512, ..record };
    Workload::new(settings).map(shifted).collect()
}

#[test]
fn a_grid_that_is_found_moves_for_the_caches_that_move_it() {
    let records = misaligned(1000);
    let settings = Settings {
        cache_sizes: (2..8).map(|fourfold| (16 * KIB) << (2 * fourfold)).collect(),
        grid_offset: GridOffset::Auto,
        ..settings(ALL, &[512, 4 * KIB, 64 * KIB], Sample::Exact)
    };
    compare(&records, &settings).unwrap();
    let curves = run(&records, &settings);
    let moved: Vec<_> =
        curves.iter().map(|curve| curve.grid_moved.map(|g| g.grid_offset)).collect();
    let of_4_kib = settings.policies.len();
    assert_eq!((moved[0], moved[of_4_kib]), (None, Some(3584)));
    let above = curves[of_4_kib].grid_moved.unwrap().above;
    assert!((4 * MIB..256 * MIB).contains(&above), "some sizes are on either side of {above}");
}

/// Mean and largest difference of miss ratios at 1, 2 … 100 % of the footprint.
fn differences(records: &[Record], policy: &str, block_size: u64, sample: Sample) -> (f64, f64) {
    let exact = run(records, &settings("lru", &[block_size], Sample::Exact));
    let percent = |n: u64| (exact[0].footprint * n / 100 / block_size).max(1) * block_size;
    let step = if policy == "lru" { 1 } else { 10 };
    let cache_sizes: Vec<u64> = (1..=100).step_by(step).map(percent).collect();
    let with = |sample| Settings {
        cache_sizes: cache_sizes.clone(),
        ..settings(policy, &[block_size], sample)
    };
    let exact = run(records, &with(Sample::Exact)).remove(0);
    let sampled = run(records, &with(sample)).remove(0);
    let both = exact.points.iter().zip(&sampled.points);
    let all: Vec<f64> = both.map(|(a, b)| (a.miss_ratio - b.miss_ratio).abs()).collect();
    (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max))
}

#[test]
fn samples_are_near_the_exact_curves() {
    let settings =
        workload::Settings { disk_bytes: 1 << 30, requests: 20_000, interval_ns_mean: 1, seed: 9 };
    let records: Vec<_> = Workload::new(settings).collect();
    for (policy, block_size, sample) in [
        ("lru", 4 * KIB, Sample::Auto),
        ("lru", 64 * KIB, Sample::Auto),
        ("lru", 4 * KIB, Sample::Share(0.05)),
        ("fifo", 4 * KIB, Sample::Auto),
        ("s3fifo", 16 * KIB, Sample::Auto),
        ("auto", 16 * KIB, Sample::Auto),
        ("belady", 4 * KIB, Sample::Auto),
    ] {
        let (mean, _) = differences(&records, policy, block_size, sample);
        let limit = if policy == "lru" { 0.01 } else { 0.02 };
        assert!(mean <= limit, "{policy} {block_size} {sample:?}: {mean}");
    }
}

#[test]
fn sizes_are_chosen_by_the_footprint() {
    let records = misaligned(3000);
    let curves = run(&records, &settings("fifo lru", &[4 * KIB, 64 * KIB], Sample::Auto));
    let shown: Vec<_> = curves.iter().map(|curve| (curve.policy.as_str(), curve.method)).collect();
    let fifo = ("fifo", Method::Simulation);
    assert_eq!(shown, [fifo, ("lru", Method::Shards), fifo, ("lru", Method::Shards)]);
    for curve in &curves {
        let last = curve.points.last().unwrap();
        assert!(last.cache_size >= curve.footprint && curve.points.len() > 10);
        assert!(curve.touched <= curve.footprint);
        // Whatever the policy, only first uses miss at the end.
        let same = curves.iter().filter(|other| other.block_size == curve.block_size);
        for other in same {
            let differ = other.points.last().unwrap().miss_ratio - last.miss_ratio;
            assert!(differ.abs() < 0.01, "{differ}");
        }
    }
}

#[test]
fn a_trace_of_nothing_has_curves_of_zeroes() {
    for sample in [Sample::Auto, Sample::Exact, Sample::Share(0.01)] {
        for curve in run(&[], &settings(ALL, &[4 * KIB], sample)) {
            assert_eq!((curve.footprint, curve.touched), (0, 0));
            assert!(curve.points.iter().all(|point| point.miss_ratio == 0.0));
        }
    }
}

#[test]
fn settings_that_cannot_work_are_refused_with_what_is_allowed() {
    let good = settings("lru", &[4 * KIB], Sample::Auto);
    let cases = [
        (Settings { policies: Vec::new(), ..good.clone() }, "name a policy"),
        (Settings { block_sizes: Vec::new(), ..good.clone() }, "name a block size"),
        (Settings { block_sizes: vec![5000], ..good.clone() }, "use a power of two"),
        (Settings { cache_sizes: vec![100], ..good.clone() }, "below the block size"),
        (Settings { grid_offset: GridOffset::Fixed(8192), ..good }, "a multiple of 512"),
    ];
    for (settings, expect) in cases {
        let error = curves(|| Ok(std::iter::empty()), &settings).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
    for text in ["0", "1.1", "-1", "NaN", "some", ""] {
        let error = text.parse::<Sample>().unwrap_err().to_string();
        assert!(error.contains("use auto, exact, or a share"), "{error}");
    }
    assert_eq!("0.01".parse::<Sample>().unwrap(), Sample::Share(0.01));
    let broken = || Ok(std::iter::once(Err(Error::new(ErrorKind::BadRecord, "line 7"))));
    let error = curves(broken, &settings("fifo", &[4096], Sample::Auto)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadRecord);
}

#[test]
fn a_cache_beyond_any_memory_has_a_bound_as_others_have() {
    let mut shards = forebay_core::mrc::Shards::for_disk(1);
    for block in 0..5000 {
        shards.on_use(forebay_core::characteristics::Kind::Read, block % 1000, 0..1);
    }
    let curve = of_disk(&shards.snapshot(), 8192, 0, &[0, 1, 8192, 4 << 20, u64::MAX]);
    for point in &curve.points {
        assert!((0.0..=1.0).contains(&point.bound.unwrap()), "{point:?}");
    }
    assert!(curve.points[4].miss_ratio < 0.3 && curve.points[1].miss_ratio == 1.0);
}

#[test]
fn blocks_of_devices_with_great_numbers_have_keys_of_their_own() {
    assert_eq!(key_of(5, 7), 7 ^ 5 << 43, "samples of traces stay as they were");
    assert_eq!(key_of((1 << 21) - 1, 1 << 42), 1 << 42 ^ ((1 << 21) - 1) << 43);
    let devices = [0, 1, 3, 1 << 20, 1 << 21, 1 | 1 << 21, 1 << 31, 1 | 1 << 31, u32::MAX];
    let blocks = [0, 1, 2, 1 << 10, (1 << 32) - 1];
    let all = devices.iter().flat_map(|device| blocks.map(|block| key_of(*device, block)));
    let keys: std::collections::BTreeSet<u64> = all.collect();
    assert_eq!(keys.len(), devices.len() * blocks.len());
}
