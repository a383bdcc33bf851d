//! What is told of the traces that the project keeps (`traces/`): a real kernel and file system made them.

use forebay_backends::model::ModelConfig;
use forebay_core::config::{Config, DestageOrder, GridOffset, Mode, WriteLogConfig};
use forebay_trace::Error;
use forebay_trace::characterise::characterise;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::info::info;
use forebay_trace::mrc::{Curve, Sample, Settings, curves};
use forebay_trace::record::Record;
use forebay_trace::what_if::{self, GivenLatencies, Models, Survey, what_if};

/// A record, or why there is none.
type Next = Result<Record, Error>;

fn recorded(name: &str) -> impl Iterator<Item = Next> + use<> {
    let path = format!("{}/../../traces/{name}.fbt", env!("CARGO_MANIFEST_DIR"));
    Reader::open(path.as_ref(), &Options::default()).expect("the repository has it")
}

/// In lines that can be read in a difference.
fn told(name: &str) -> String {
    let is = info(recorded(name), true).expect("it is whole");
    let (sum, grid) = (is.summary, is.devices[0].alignment.grid_offset);
    let (reads, writes) = (sum.reads, sum.writes);
    let mut lines = vec![
        format!(
            "{reads} reads of {} bytes, {writes} writes of {}",
            sum.read_bytes, sum.written_bytes
        ),
        format!("up to byte {} in {} ns", sum.span_bytes, sum.duration_ns),
        format!("{} uses of pages, {} bytes of them distinct", is.reuse.uses, is.reuse.footprint),
        format!("{:.4} sequential, grid {grid:?}", is.devices[0].sequential),
    ];
    for of in &characterise(recorded(name)).expect("it is whole")[0].histograms {
        let buckets: Vec<u64> = of.buckets.iter().map(|&(_, count)| count).collect();
        lines.push(format!("{}: {:?} to {:?}, {buckets:?}", of.name, of.min, of.max));
    }
    for curve in exact_curves(name, &["lru", "belady"]) {
        lines.push(format!("{} misses {:.4?}", curve.policy, miss_ratios(&curve)));
    }
    lines.join("\n") + "\n"
}

/// In blocks of 8 KiB.
fn exact_curves(name: &str, policies: &[&str]) -> Vec<Curve> {
    curves_of(name, policies, 8 << 10, &[8, 32, 128, 512].map(|mib: u64| mib << 20))
}

fn curves_of(name: &str, policies: &[&str], block: u64, caches: &[u64]) -> Vec<Curve> {
    let settings = Settings {
        policies: policies.iter().map(|name| name.parse().expect("a policy")).collect(),
        block_sizes: vec![block],
        cache_sizes: caches.to_vec(),
        sample: Sample::Exact,
        grid_offset: GridOffset::Fixed(0),
    };
    curves(|| Ok(recorded(name)), &settings).expect("it is whole")
}

fn miss_ratios(curve: &Curve) -> Vec<f64> {
    curve.points.iter().map(|point| point.miss_ratio).collect()
}

#[test]
fn figures_of_the_recorded_traces_are_what_they_were() {
    assert_eq!(told("pgbench"), include_str!("recorded/pgbench.txt"));
    assert_eq!(told("build"), include_str!("recorded/build.txt"));
}

#[test]
fn the_default_policy_is_between_the_optimum_and_a_little_above_lru() {
    for name in ["pgbench", "build"] {
        let [lru, auto, belady] = &exact_curves(name, &["lru", "auto", "belady"])[..] else {
            panic!("a curve for each")
        };
        for ((lru, auto), belady) in
            miss_ratios(lru).into_iter().zip(miss_ratios(auto)).zip(miss_ratios(belady))
        {
            assert!(belady <= auto && auto <= lru + 0.03, "{name}: {belady}, {auto}, {lru}");
        }
    }
}

/// The database writes in bursts, many of them while it does not read, and an array with a write cache takes them at
/// once: destaged as fast as that, they would hold up the reads that follow.
#[test]
fn destaging_to_an_array_makes_reads_no_slower_than_writing_through() {
    const MIB: u64 = 1 << 20;
    let survey = Survey::of(recorded("pgbench")).expect("it is whole");
    let storage: ModelConfig = "model:san".parse().expect("a model");
    let reads = |config: Config| {
        let settings = what_if::Settings {
            config,
            models: Models::new(&GivenLatencies::default(), Some(storage), &survey),
            durable_writes: true,
            queue_depth: None,
            endurance: None,
        };
        what_if(|| Ok(recorded("pgbench")), &survey, &settings).expect("it works").after.reads
    };
    let through = Config {
        block_size: 8 << 10,
        ram_bytes: 64 * MIB,
        flash_bytes: 192 * MIB,
        grid_offset: GridOffset::Fixed(0),
        ..Config::for_disk(survey.traits())
    };
    let written_through = reads(through);
    for order in [DestageOrder::Strict, DestageOrder::Window] {
        let log = WriteLogConfig { order, ..WriteLogConfig::new(1024, 16) };
        let back = reads(Config { mode: Mode::WriteBack, write_log: Some(log), ..through });
        println!("{order:?}: {back:?}; written through: {written_through:?}");
        assert!(back.mean_ns <= written_through.mean_ns, "{order:?}: {back:?}");
        assert!(back.p99_ns <= written_through.p99_ns, "{order:?}: {back:?}");
        assert!(back.max_ns <= written_through.max_ns, "{order:?}: {back:?}");
    }
}

/// Curves of samples of both traces beside the exact ones: LRU from reuse distances, the default policy in small caches.
#[test]
fn of_points_of_sampled_curves_95_in_100_have_the_exact_one_within_their_bound() {
    let (mut points, mut within, mut bounds) = (0, 0, Vec::new());
    for (name, block_size) in [("pgbench", 64 << 10), ("build", 4 << 10), ("build", 16 << 10)] {
        let all: Vec<Record> = recorded(name).collect::<Result<_, _>>().expect("it is whole");
        let curves_of = |sample, cache_sizes| {
            let settings = Settings {
                policies: ["lru", "auto"].map(|name| name.parse().expect("a policy")).into(),
                block_sizes: vec![block_size],
                cache_sizes,
                sample,
                grid_offset: GridOffset::Auto,
            };
            curves(|| Ok(all.iter().copied().map(Ok)), &settings).expect("it is whole")
        };
        let exact = curves_of(Sample::Exact, Vec::new());
        assert!(exact.iter().flat_map(|curve| &curve.points).all(|of| of.bound.is_none()));
        let sizes: Vec<u64> = exact[0].points.iter().map(|point| point.cache_size).collect();
        for sample in [Sample::Auto, Sample::Share(0.1), Sample::Share(0.03)] {
            for (sampled, exact) in curves_of(sample, sizes.clone()).iter().zip(&exact) {
                for (point, exact) in sampled.points.iter().zip(&exact.points) {
                    let Some(bound) = point.bound else { continue };
                    points += 1;
                    within += usize::from((point.miss_ratio - exact.miss_ratio).abs() <= bound);
                    bounds.extend((sample == Sample::Auto).then_some(bound));
                }
            }
        }
    }
    assert!(points > 150 && within * 100 >= points * 95, "{within} of {points}");
    let mean = bounds.iter().sum::<f64>() / bounds.len() as f64;
    assert!((0.0..0.03).contains(&mean), "a bound that says nothing: {mean}");
}
