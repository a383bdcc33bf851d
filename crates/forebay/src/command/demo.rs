//! `forebay demo`: the same I/O without cache, with a cold cache and with a warm one.
//!
//! ```text
//!   replay ──NBD, unix socket──► shard thread ──► model:san (five 15,000 rpm disks, RAID 5) ──► sparse file
//! ```
//! Everything is real but the time that primary storage takes, which the model decides. Two daemons are
//! made, one after the other: one without cache, one with RAM over flash that sees the I/O twice.
//!
//! Requests are issued by the clock, whether or not earlier ones have ended, as a guest's would be: the
//! built-in workload ([`forebay_trace::workload`]) at a rate that the modelled SAN can just bear, a given
//! trace scaled in time so that it fits and the SAN can bear it.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::{Op, Record, Summary};
use forebay_trace::replay::{self, Pace};
use forebay_trace::results::{Results, Run};
use forebay_trace::workload::{self, Workload};

use super::served::Served;
use super::table::{Table, count, percent, time};
use super::trace::replay::{Job, check, write_json};
use super::{page_file, signals, write_page};
use crate::cli::DemoArgs;
use crate::config::values::{Bypass, Flash, Mode, Name, Reactor as ReactorChoice, Size};
use crate::config::{DaemonSpec, DiskOptions};

/// Size of the disk for the built-in workload: its hot area is 64 MiB, its loop 128 MiB.
const DISK_BYTES: u64 = 1 << 30;
const RAM_BYTES: u64 = 256 << 20;
const FLASH_BYTES: u64 = 512 << 20;
/// How many requests per second the built-in workload asks for: about nine tenths of what the SAN can do.
const REQUESTS_PER_SECOND: u64 = 600;
/// Requests outstanding where a given trace has no times.
const QUEUE_DEPTH: u32 = 8;
/// A given trace takes this long, and asks for no more than the SAN can bear.
const TRACE_TIME: Duration = Duration::from_secs(25);
const TRACE_REQUESTS_PER_SECOND: u64 = 250;
/// No replay takes longer than this.
const REPLAY_TIME_MAX: Duration = Duration::from_secs(38);

/// The I/O to replay, and how it is described.
struct Work {
    trace: String,
    records: Vec<Record>,
    summary: Summary,
    pace: Pace,
    disk_bytes: u64,
    description: String,
}

/// Shows the gain.
pub(crate) fn demo(args: DemoArgs) -> Result<()> {
    let file = args.json.as_deref().map(super::create).transpose()?;
    let page = page_file(&args.page)?;
    let work = match &args.trace {
        Some(path) => from_trace(path)?,
        None => built_in(args.requests)?,
    };
    let folder = tempfile::Builder::new()
        .prefix("forebay-demo-")
        .tempdir()
        .context("cannot make a temporary folder; set TMPDIR to a place with 1 GiB")?;
    // Ctrl-C must not leave the disk image behind.
    let path = folder.path().to_owned();
    signals::on_signal(move || {
        let _ = std::fs::remove_dir_all(&path);
        std::process::exit(1);
    })?;
    println!("Forebay's demonstration: {}", work.description);
    println!(
        "Primary storage is a modelled SAN (five 15,000 rpm disks, RAID 5), the disk has {};\n\
         the cache is {} of RAM over {} of flash (here a file), in blocks of 8 KiB.\n",
        rounded(work.disk_bytes),
        rounded(RAM_BYTES),
        rounded(FLASH_BYTES)
    );
    let image = folder.path().join("disk.raw");
    let mut runs = Vec::new();
    make_image(&image, work.disk_bytes)?;
    let served = Served::start(spec(folder.path(), "pass-through")?, folder.path())?;
    runs.push(replay(&served, "without cache", &work)?);
    served.stop()?;
    let served = Served::start(spec(folder.path(), "write-through")?, folder.path())?;
    runs.push(replay(&served, "cold cache", &work)?);
    runs.push(replay(&served, "warm cache", &work)?);
    served.stop()?;
    print!("{}", report(&runs));
    let results = Results::new(runs);
    write_json(file, &results)?;
    write_page(page, || forebay_trace::report::comparison(&results.runs))?;
    results.runs.iter().try_for_each(check)
}

/// The built-in workload.
fn built_in(requests: u64) -> Result<Work> {
    let settings = workload::Settings {
        disk_bytes: DISK_BYTES,
        requests,
        interval_ns_mean: 1_000_000_000 / REQUESTS_PER_SECOND,
        seed: 1,
    };
    let records: Vec<Record> = Workload::new(settings).collect();
    let summary = Summary::of(records.iter().copied().map(Ok))?;
    let description = format!(
        "{} requests of a made-up workload, {REQUESTS_PER_SECOND} per second\n\
         (60 % a hot set, 20 % a loop, 8 % a scan, 12 % random; {} of all are writes).",
        count(requests),
        percent(summary.writes, requests)
    );
    let pace = Pace::Clock { speed: 1.0 };
    let trace = "the built-in workload".to_owned();
    Ok(Work { trace, records, summary, pace, disk_bytes: DISK_BYTES, description })
}

/// As much of a trace as the SAN can bear in the time, scaled to take just that.
fn from_trace(path: &Path) -> Result<Work> {
    let all: Vec<Record> =
        Reader::open(path, &Options::default())?.collect::<Result<_, forebay_trace::Error>>()?;
    ensure!(!all.is_empty(), "the trace {} has no reads or writes", path.display());
    let fits = (TRACE_TIME.as_secs() * TRACE_REQUESTS_PER_SECOND) as usize;
    let first = typical_stretch(&all, fits);
    let start_ns = all[first].time_ns;
    let rebased =
        |record: &Record| Record { time_ns: record.time_ns.saturating_sub(start_ns), ..*record };
    let records: Vec<Record> = all[first..].iter().take(fits).map(rebased).collect();
    let summary = Summary::of(records.iter().copied().map(Ok))?;
    let speed = summary.duration_ns as f64 / TRACE_TIME.as_nanos() as f64;
    let (pace, how) = match summary.duration_ns {
        0 => (
            Pace::Closed { queue_depth: QUEUE_DEPTH },
            "it has no times: as fast as possible".to_owned(),
        ),
        _ => {
            let times = if speed >= 1.0 { speed } else { 1.0 / speed };
            let word = if speed >= 1.0 { "faster" } else { "slower" };
            let seconds = TRACE_TIME.as_secs();
            (
                Pace::Clock { speed },
                format!("{times:.1} times {word} than recorded, to fit into {seconds}s"),
            )
        }
    };
    let description = format!(
        "requests {} to {} of the {} in {}\n({} of them reads), {how}.",
        count(first as u64 + 1),
        count((first + records.len()) as u64),
        count(all.len() as u64),
        path.display(),
        percent(summary.reads, records.len() as u64)
    );
    let disk_bytes = summary.span_bytes.next_multiple_of(1 << 20);
    let trace = path.display().to_string();
    Ok(Work { trace, records, summary, pace, disk_bytes, description })
}

/// Where the stretch of `len` records begins whose share of reads is nearest to that of the whole trace.
fn typical_stretch(all: &[Record], len: usize) -> usize {
    let read_share = |records: &[Record]| {
        let reads = records.iter().filter(|record| record.op == Op::Read).count();
        reads as f64 / records.len().max(1) as f64
    };
    let whole = read_share(all);
    let last = all.len().saturating_sub(len);
    let distance =
        |first: &usize| (read_share(&all[*first..(first + len).min(all.len())]) - whole).abs();
    let starts = (0..=last).step_by((len / 8).max(1));
    starts.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

fn make_image(path: &Path, bytes: u64) -> Result<()> {
    let file = std::fs::File::create(path)?;
    file.set_len(bytes).with_context(|| format!("cannot make a disk image of {}", rounded(bytes)))
}

/// Replays the work as a client would.
fn replay(served: &Served, name: &'static str, work: &Work) -> Result<Run> {
    let settings = replay::Settings {
        pace: work.pace,
        duration_ns: Some(REPLAY_TIME_MAX.as_nanos() as u64),
        overwrite: true,
        ..replay::Settings::default()
    };
    let job = Job {
        name,
        trace: &work.trace,
        target: &served.uri,
        asked: &work.summary,
        passes: 1,
        settings,
        wants_end: &AtomicBool::new(false),
    };
    let run = served.measure(&job, work.records.iter().copied().map(Ok))?;
    let requests = run.outcome.reads.count + run.outcome.writes.count;
    println!("  {name}: {} requests in {}", count(requests), time(run.outcome.elapsed_ns));
    Ok(run)
}

/// One disk behind the modelled SAN, with what it needs in `folder`.
fn spec(folder: &Path, mode: &str) -> Result<DaemonSpec> {
    let name = Name("demo".to_owned());
    let mode: Mode = mode.parse()?;
    let flash = Flash { path: folder.join("flash"), bytes: FLASH_BYTES };
    let options = DiskOptions {
        mode: Some(mode),
        ram: mode.0.caches().then_some(Size(RAM_BYTES)),
        flash: mode.0.caches().then_some(flash),
        // The workload comes back to what it reads in order, and there is room for it.
        bypass_sequential: Some(Bypass(None)),
        ..DiskOptions::default()
    };
    let backend = format!("model:san?inner=file:{}", folder.join("disk.raw").display());
    Ok(DaemonSpec {
        disks: vec![options.resolve(name.clone(), backend)],
        listeners: Vec::new(),
        targets: Vec::new(),
        name,
        shards: 1,
        reactor: ReactorChoice(None),
        control: None,
        state_dir: Some(folder.join("state")),
    })
}

/// The table, and what to try next.
fn report(runs: &[Run]) -> String {
    let mut table = Table::new(&[
        "",
        "read mean",
        "p50",
        "p99",
        "write mean",
        "p50",
        "p99",
        "IOPS",
        "hit ratio",
        "I/Os spared",
    ]);
    let used = |run: &Run| run.cache.unwrap_or_default();
    let unhelped = used(&runs[0]).backend_ios;
    for run in runs {
        let (reads, writes, cache) = (&run.outcome.reads, &run.outcome.writes, used(run));
        let spared = match run.name == runs[0].name {
            true => "-".to_owned(),
            false => {
                let spared = unhelped.saturating_sub(cache.backend_ios);
                format!("{} ({})", count(spared), percent(spared, unhelped))
            }
        };
        table.row(vec![
            run.name.clone(),
            time(reads.mean_ns as u64),
            time(reads.p50_ns),
            time(reads.p99_ns),
            time(writes.mean_ns as u64),
            time(writes.p50_ns),
            time(writes.p99_ns),
            format!("{:.0}", run.outcome.iops),
            percent(cache.read_hits, cache.reads),
            spared,
        ]);
    }
    let mut text = format!("\n{}\n", table.text(0));
    text += "Each run is the same I/O at the same times; IOPS differ only where primary storage fell behind.\n\n";
    if runs.iter().any(|run| run.outcome.is_cut_short()) {
        let seconds = REPLAY_TIME_MAX.as_secs();
        text +=
            &format!("A replay was ended after {seconds}s; its figures are of fewer requests.\n\n");
    }
    text += "\
What to try next:
  forebay demo --trace FILE                  your own I/O (vscsiStats, MSR, SSDsim, …)
  forebay run file:/path/disk.raw --ram 1GiB --nbd unix:/tmp/disk.sock
                                             a disk of yours; it prints how to attach
  forebay trace simulate FILE --cache-size 512MiB
                                             what a cache would gain, without any I/O
";
    text
}
