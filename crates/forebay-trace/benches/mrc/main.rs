//! CPU time of miss-ratio curves and of simulations, beside that of cutting every request into blocks, which all of
//! them have to do; and, where `FOREBAY_TRACES` names a folder of real traces, how far sampled curves are from exact
//! ones.
//!
//! Beside the simulations is libCacheSim, where target/libcachesim has it (`scripts/setup bench`): the same uses of the same blocks, a cache of as
//! many, in the same rounds. It reads them from a file in its own binary format that is in the page cache.
//!
//! And what a whole configuration costs to simulate, in requests.
//!
//! Rounds are interleaved; the median, the least and the most of five are printed. `-- WORDS` measures what has one of these words in
//! its name.

mod cachesim;

use std::path::Path;

use forebay_core::config::{Config, GridOffset};
use forebay_core::splitmix::Rng;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::mrc::{self, Curve, Sample, curves};
use forebay_trace::record::{Op, Record};
use forebay_trace::simulate::{self, simulate};
use forebay_trace::what_if::{self, GivenLatencies, Models, Survey};
use forebay_trace::workload::{Settings, Workload};
use rustix::time::{ClockId, clock_gettime};

const ROUNDS: usize = 5;
const WHOLE: &str = "simulate RAM over flash";
const PAGE: u64 = 4096;

/// CPU seconds of this thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn is_tiny() -> bool {
    !std::env::args().any(|arg| arg == "--bench")
}

fn main() {
    // As a test (`cargo test --benches`) it runs tiny, and alone.
    let (requests, blocks, loops) =
        if is_tiny() { (2_000, 4_096, 2) } else { (1_000_000, 1 << 20, 4) };
    let disk_bytes = if is_tiny() { 64 << 20 } else { 8 << 30 };
    let settings = Settings { disk_bytes, requests, interval_ns_mean: 1, seed: 11 };
    let words: Vec<String> =
        std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    if is_wanted("made-up workload") {
        measure("made-up workload", &Workload::new(settings).collect::<Vec<_>>(), 1);
    }
    if is_wanted("single pages, skewed") {
        measure("single pages, skewed", &pages(requests, blocks), loops);
    }
    let Some(folder) = std::env::var_os("FOREBAY_TRACES") else { return };
    let folder: &Path = folder.as_ref();
    let traces = traces(folder);
    for (name, block_size, records) in &traces {
        if *block_size == PAGE && records.len() > 100_000 && is_wanted(name) {
            measure(name, records, 1);
        }
    }
    for (name, block_size, records) in traces.iter().filter(|(name, ..)| is_wanted(name)) {
        for block_size in [*block_size, block_size * 16] {
            differences(name, records, block_size);
        }
    }
}

/// Reads of one page each, of which the eighth that is used most gets half.
fn pages(requests: u64, blocks: u64) -> Vec<Record> {
    let mut random = Rng::new(3);
    let page = |_| {
        let place = (random.unit().powi(3) * blocks as f64) as u64 * 0x9E37_79B1 % blocks;
        let offset = place * PAGE;
        Record { time_ns: 0, op: Op::Read, offset, len: PAGE as u32, device: 0, latency_ns: None }
    };
    (0..requests).map(page).collect()
}

fn settings(policy: &str, block_size: u64, cache_sizes: Vec<u64>, sample: Sample) -> mrc::Settings {
    mrc::Settings {
        policies: vec![policy.parse().expect("a policy")],
        block_sizes: vec![block_size],
        cache_sizes,
        sample,
        grid_offset: GridOffset::Fixed(0),
    }
}

/// Times everything on `records`, gone through `loops` times.
fn measure(name: &str, records: &[Record], loops: usize) {
    let requests = records.len() * loops;
    let all = || records.iter().cycle().take(requests).copied().map(Ok);
    let uses = |of: &Record| (of.end() - 1) / PAGE - of.offset / PAGE + 1;
    let uses = records.iter().map(uses).sum::<u64>() * loops as u64;
    let curve = |sample| {
        curves(|| Ok(all()), &settings("lru", PAGE, vec![1 << 30], sample)).expect("it works")
    };
    let footprint = curve(Sample::Exact)[0].footprint;
    let cache_size = (footprint / 10 / PAGE).max(1) * PAGE;
    let simulated = |policy: &str| {
        let policy = policy.parse().expect("a policy");
        let grid_offset = GridOffset::Fixed(0);
        let settings = simulate::Settings { cache_size, block_size: PAGE, policy, grid_offset };
        simulate(all(), &settings).expect("it works");
    };
    let survey = Survey::of(records.iter().copied().map(Ok)).expect("it has requests");
    let what_if = || {
        let config = Config {
            ram_bytes: cache_size / 4,
            flash_bytes: cache_size,
            ..Config::for_disk(survey.traits())
        };
        let settings = what_if::Settings {
            config,
            models: Models::new(&GivenLatencies::default(), None, &survey),
            durable_writes: true,
            queue_depth: None,
            endurance: None,
        };
        let once = || Ok(records.iter().copied().map(Ok));
        what_if::what_if(once, &survey, &settings).expect("it works");
    };
    // What is wanted, in requests of curves and in uses of blocks of simulations.
    let run = |what: usize| match what {
        0 => drop(curve(Sample::Share(1e-9))),
        1 => drop(curve(Sample::Exact)),
        2 => drop(curve(Sample::Auto)),
        3 => drop(curve(Sample::Share(0.01))),
        4 => simulated("lru"),
        5 => simulated("s3fifo"),
        6 => simulated("auto"),
        _ => what_if(),
    };
    let mut names = vec![
        "limit: hash every block",
        "exact",
        "8192 samples",
        "1 % of the blocks",
        "simulate lru",
        "simulate s3fifo",
        "simulate auto",
        WHOLE,
    ];
    let peer = (!is_tiny()).then(|| {
        cachesim::Peer::new(&mut all().map(|record| record.expect("it is one")), cache_size / PAGE)
    });
    let peer = peer.flatten();
    if peer.is_some() {
        names.extend(cachesim::NAMES);
    }
    let mut times = vec![[0.0; ROUNDS]; names.len()];
    let (ours, theirs) = times.split_at_mut(8);
    for round in 0..ROUNDS {
        for (what, times) in ours.iter_mut().enumerate() {
            let start = cpu_seconds();
            run(what);
            times[round] = cpu_seconds() - start;
        }
        if let Some(peer) = &peer {
            theirs
                .iter_mut()
                .zip(peer.seconds())
                .for_each(|(times, seconds)| times[round] = seconds);
        }
    }
    println!("\n{name}: {requests} requests, {uses} uses of {} blocks", footprint / PAGE);
    println!(
        "  {:<24} {:>9} {:>19} {:>12} {:>12} {:>8}",
        "", "CPU s", "least to most", "M requests/s", "M blocks/s", "limit"
    );
    let mut limit = 0.0;
    for (name, times) in names.iter().zip(&mut times) {
        // Of these one round through the records is enough.
        let part = if *name == WHOLE { loops as f64 } else { 1.0 };
        let (requests, uses) = (requests as f64 / part, uses as f64 / part);
        times.sort_by(f64::total_cmp);
        let median = times[ROUNDS / 2].max(1e-9);
        if limit == 0.0 {
            limit = median;
        }
        println!(
            "  {name:<24} {median:>9.4} {:>9.4} {:>9.4} {:>12.2} {:>12.2} {:>7.2}×",
            times[0],
            times[ROUNDS - 1],
            requests / median / 1e6,
            uses / median / 1e6,
            median / limit,
        );
    }
}

/// Name, block size and requests of the traces of the folder that have reuse.
fn traces(folder: &Path) -> Vec<(&'static str, u64, Vec<Record>)> {
    let all = [
        ("cloudPhysicsIO.vscsi.zst", PAGE, 512),
        ("msprod-DTRS1K.ssdsim.zst", PAGE, 512),
        ("msr-prxy_0-reads-13h.mqsim.zst", PAGE, 512),
        ("financial1-50k-pages.disksim.zst", PAGE, 4096),
        ("financial1-first10k.ssdsim.zst", PAGE, 512),
        ("tpcc-small.mqsim.zst", PAGE, 512),
        ("OLTP.lis.zst", 512, 512),
        ("P3.lis.zst", 512, 512),
        ("netsys-150521203555-0.blktrace.zst", PAGE, 512),
        ("netsys-150521203555-1.blktrace.zst", PAGE, 512),
        ("netsys-150521203555-2.blktrace.zst", PAGE, 512),
        ("netsys-150521203555-3.blktrace.zst", PAGE, 512),
        ("netsys-150521203555-4.blktrace.zst", PAGE, 512),
        ("netsys-150521203555-5.blktrace.zst", PAGE, 512),
    ];
    let read = |(name, block_size, len_unit)| {
        let options = Options { len_unit: Some(len_unit), ..Options::default() };
        let records = Reader::open(&folder.join(name), &options).and_then(Iterator::collect);
        (name, block_size, records.expect("the folder has the traces"))
    };
    all.into_iter().map(read).collect()
}

/// Prints the mean and the largest difference of sampled from exact miss ratios: LRU at 1, 2 … 100 % of the
/// footprint, others at twelve sizes.
fn differences(name: &str, records: &[Record], block_size: u64) {
    let run = |policy, sizes, sample| -> Curve {
        let settings = settings(policy, block_size, sizes, sample);
        curves(|| Ok(records.iter().copied().map(Ok)), &settings).expect("it works").remove(0)
    };
    let footprint = run("lru", Vec::new(), Sample::Exact).footprint;
    println!("\n{name}, {} blocks of {block_size}", footprint / block_size);
    for policy in ["lru", "fifo", "s3fifo", "belady"] {
        let percents = match policy {
            "lru" => (1..=100).collect(),
            _ => vec![1, 2, 5, 10, 20, 25, 30, 40, 50, 60, 75, 90],
        };
        let size = |percent: u64| (footprint * percent / 100 / block_size).max(1) * block_size;
        let sizes: Vec<u64> = percents.into_iter().map(size).collect();
        let exact = run(policy, sizes.clone(), Sample::Exact);
        let sampled = run(policy, sizes, Sample::Auto);
        let both = exact.points.iter().zip(&sampled.points);
        let all: Vec<f64> = both.map(|(a, b)| (a.miss_ratio - b.miss_ratio).abs()).collect();
        println!(
            "  {policy:<8} {:>7.2} % of the blocks: mean {:.4}, most {:.4}",
            sampled.share * 100.0,
            all.iter().sum::<f64>() / all.len() as f64,
            all.iter().copied().fold(0.0, f64::max)
        );
    }
}
