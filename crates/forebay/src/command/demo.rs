//! `forebay demo`: the same I/O without cache, with a cold cache and with a warm one.
//!
//! ```text
//!   replay ──NBD, unix socket──► shard thread ──► model:san (five 15,000 rpm disks, RAID 5) ──► sparse file
//! ```
//! Everything is real but the time that primary storage takes, which the model decides. Two daemons are
//! made, one after the other: one without cache, one with RAM over flash and a write log, which sees the I/O with an empty
//! cache, and then with one that has seen the requests before them in the trace, but not these.
//!
//! Requests are issued by the clock, whether or not earlier ones have ended, as a guest's would be: a stretch of
//! a trace, scaled in time so that the SAN can bear it. Unless one is given it is that of a PostgreSQL server, which
//! the binary carries.

use std::io::Cursor;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_trace::formats::{Options, Reader};
use forebay_trace::record::{Op, Record, Summary};
use forebay_trace::replay::{self, Asked, Pace};
use forebay_trace::results::{self, Results, Run};

use super::output::{Output, show};
use super::served::Served;
use super::table::{Table, count, percent, time};
use super::trace::SAME_AGAIN;
use super::trace::replay::{Job, check, write_json};
use super::{page_file, signals, write_page};
use crate::cli::DemoArgs;
use crate::config::values::{Flash, Mode, Name, Reactor as ReactorChoice, Size};
use crate::config::{DaemonSpec, DiskOptions};

/// PostgreSQL under pgbench, as `traces/record` recorded it.
const RECORDED: &[u8] = include_bytes!("../../../../traces/pgbench.fbt");
const RECORDED_NAME: &str = "traces/pgbench.fbt, PostgreSQL under pgbench";
const RAM_BYTES: u64 = 256 << 20;
const FLASH_BYTES: u64 = 512 << 20;
/// Of the flash.
const WRITE_LOG_BYTES: u64 = 128 << 20;
/// Requests outstanding where a trace has no times.
const QUEUE_DEPTH: u32 = 8;
/// The SAN can bear so many of most traces.
const REQUESTS_PER_SECOND: u64 = 250;
/// Requests of a replay, unless it is told: 25 s.
const REQUESTS: u64 = 25 * REQUESTS_PER_SECOND;

/// So many requests for each of a replay warm the cache before it, where the trace has them.
const WARM_UP: usize = 4;
/// The last of them come at the guest's pace: what went faster fills the array's own write cache, which takes seconds to drain.
const LEAD_IN: usize = 10 * REQUESTS_PER_SECOND as usize;

/// The I/O to replay, and how it is described.
struct Work {
    trace: String,
    /// What comes before it in the trace, to warm the cache with.
    before: Vec<Record>,
    records: Vec<Record>,
    pace: Pace,
    /// No replay takes longer than this.
    time_max: Duration,
    disk_bytes: u64,
    description: String,
}

/// Shows the gain.
pub(crate) fn demo(args: DemoArgs) -> Result<()> {
    let file = args.json.as_deref().map(Output::create).transpose()?;
    let page = page_file(&args.page)?;
    let (trace, reader) = match &args.trace {
        Some(path) => (path.display().to_string(), Reader::open(path, &Options::default())?),
        None => {
            let name = RECORDED_NAME.to_owned();
            let reader = Reader::new(Cursor::new(RECORDED), &name, &Options::default())?;
            (name, reader)
        }
    };
    let work = work(trace, reader, args.requests.unwrap_or(REQUESTS))?;
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
    // It goes on where nobody reads how far it is.
    let _ = show(format_args!("Forebay's demonstration: {}\n", work.description));
    let _ = show(format_args!(
        "Primary storage is a modelled SAN (five 15,000 rpm disks, RAID 5), the disk has {};\n\
         the cache is {} of RAM over {} of flash (here a file), in blocks of 8 KiB; writes go to a log of {}\n\
         on the flash first.\n\n",
        rounded(work.disk_bytes),
        rounded(RAM_BYTES),
        rounded(FLASH_BYTES),
        rounded(WRITE_LOG_BYTES)
    ));
    let image = folder.path().join("disk.raw");
    let mut runs = Vec::new();
    make_image(&image, work.disk_bytes)?;
    Served::during(spec(folder.path(), "pass-through")?, folder.path(), |served| {
        runs.push(replay(served, "no cache", &work)?);
        Ok(())
    })?;
    Served::during(spec(folder.path(), "write-back")?, folder.path(), |served| {
        runs.push(replay(served, "cold cache", &work)?);
        let is_warm = warm_up(served, &work)?;
        let mut warm = replay(served, "warm cache", &work)?;
        warm.warnings.extend((!is_warm).then(|| SAME_AGAIN.to_owned()));
        runs.push(warm);
        Ok(())
    })?;
    let shown = show(report(&runs, work.time_max));
    let results = Results::new(runs);
    write_json(file, &results)?;
    write_page(page, || forebay_trace::report::comparison(&results.runs))?;
    results.runs.iter().try_for_each(check)?;
    shown
}

/// A stretch of a trace, scaled so that the SAN can bear it.
fn work(trace: String, reader: Reader, requests: u64) -> Result<Work> {
    let all: Vec<Record> = reader.collect::<Result<_, forebay_trace::Error>>()?;
    ensure!(!all.is_empty(), "the trace {trace} has no reads or writes");
    let requests = requests as usize;
    let first = typical_stretch(&all, requests);
    let records = rebased(&all[first..(first + requests).min(all.len())]);
    let before = all[first.saturating_sub(WARM_UP * requests)..first].to_vec();
    let summary = Summary::of(records.iter().copied().map(Ok))?;
    let time = Duration::from_secs_f64(records.len() as f64 / REQUESTS_PER_SECOND as f64);
    let (pace, how) = match summary.duration_ns {
        0 => (
            Pace::Closed { queue_depth: QUEUE_DEPTH },
            "it has no times: as fast as possible".to_owned(),
        ),
        duration_ns => {
            let speed = duration_ns as f64 / time.as_nanos() as f64;
            let (times, word) = match speed >= 1.0 {
                true => (speed, "faster"),
                false => (1.0 / speed, "slower"),
            };
            let how =
                format!("{times:.1} times {word} than recorded: {REQUESTS_PER_SECOND} a second");
            (Pace::Clock { speed }, how)
        }
    };
    let description = format!(
        "requests {} to {} of the {} in\n{trace} ({} of them reads),\n{how}.",
        count(first as u64 + 1),
        count((first + records.len()) as u64),
        count(all.len() as u64),
        percent(summary.reads, records.len() as u64)
    );
    let before_bytes = before.iter().map(Record::end).max().unwrap_or(0);
    let disk_bytes = summary.span_bytes.max(before_bytes).next_multiple_of(1 << 20);
    let time_max = time * 3 / 2 + Duration::from_millis(500);
    Ok(Work { trace, before, records, pace, time_max, disk_bytes, description })
}

/// The same, from the time of the first of them on.
fn rebased(records: &[Record]) -> Vec<Record> {
    let start_ns = records.first().map_or(0, |record| record.time_ns);
    let since =
        |record: &Record| Record { time_ns: record.time_ns.saturating_sub(start_ns), ..*record };
    records.iter().map(since).collect()
}

/// Where the stretch of `len` records begins whose share of reads is nearest to that of the whole trace. Enough to warm a cache
/// comes before it, where the trace is long enough.
fn typical_stretch(all: &[Record], len: usize) -> usize {
    let read_share = |records: &[Record]| {
        let reads = records.iter().filter(|record| record.op == Op::Read).count();
        reads as f64 / records.len().max(1) as f64
    };
    let whole = read_share(all);
    let last = all.len().saturating_sub(len);
    let distance =
        |first: &usize| (read_share(&all[*first..(first + len).min(all.len())]) - whole).abs();
    let starts = (last.min(WARM_UP * len)..=last).step_by((len / 8).max(1));
    starts.min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap_or(0)
}

fn make_image(path: &Path, bytes: u64) -> Result<()> {
    let file = std::fs::File::create(path)?;
    file.set_len(bytes).with_context(|| format!("cannot make a disk image of {}", rounded(bytes)))
}

/// Empties the cache and replays what comes before the work, most of it as fast as it goes; false where nothing does.
fn warm_up(served: &Served, work: &Work) -> Result<bool> {
    if work.before.is_empty() {
        return Ok(false);
    }
    served.drop_cache()?;
    // Not longer than the work itself: no replay takes longer than that may.
    let lead_in = LEAD_IN.min(work.records.len());
    let (most, last) = work.before.split_at(work.before.len().saturating_sub(lead_in));
    let (mut requests, mut elapsed_ns) = (0, 0);
    for (records, pace) in [(most, Pace::Closed { queue_depth: QUEUE_DEPTH }), (last, work.pace)] {
        let outcome = measure(served, "warming up", work, records, pace)?.outcome;
        requests += outcome.reads.count + outcome.writes.count;
        elapsed_ns += outcome.elapsed_ns;
    }
    let _ = show(format_args!(
        "  then the {} requests before them in the trace, to warm an empty cache, in {}\n",
        count(requests),
        time(elapsed_ns)
    ));
    Ok(true)
}

/// Replays the work as a client would.
fn replay(served: &Served, name: &'static str, work: &Work) -> Result<Run> {
    let run = measure(served, name, work, &work.records, work.pace)?;
    let requests = run.outcome.reads.count + run.outcome.writes.count;
    let _ = show(format_args!(
        "  {name}: {} requests in {}\n",
        count(requests),
        time(run.outcome.elapsed_ns)
    ));
    Ok(run)
}

fn measure(
    served: &Served,
    name: &'static str,
    work: &Work,
    records: &[Record],
    pace: Pace,
) -> Result<Run> {
    if records.is_empty() {
        return Ok(Run::default());
    }
    let records = rebased(records);
    let all = || records.iter().copied().map(Ok);
    let summary = Summary::of(all())?;
    let settings = replay::Settings {
        pace,
        duration_ns: Some(work.time_max.as_nanos() as u64),
        overwrite: true,
        ..replay::Settings::default()
    };
    let configuration = format!("{}, in front of a modelled SAN", served.configuration);
    let job = Job {
        name,
        trace: &work.trace,
        target: &served.uri,
        configuration: Some(&configuration),
        asked: Asked::from(&summary),
        passes: 1,
        settings,
        wants_end: &AtomicBool::new(false),
    };
    served.measure(&job, all())
}

/// One disk behind the modelled SAN, with what it needs in `folder`.
fn spec(folder: &Path, mode: &str) -> Result<DaemonSpec> {
    let name = Name("demo".to_owned());
    // The events of the one before may still be written.
    let state = folder.join(format!("state-{mode}"));
    let mode: Mode = mode.parse()?;
    let flash = Flash { path: folder.join("flash"), bytes: FLASH_BYTES };
    let options = DiskOptions {
        mode: Some(mode),
        ram: mode.0.caches().then_some(Size(RAM_BYTES)),
        flash: mode.0.caches().then_some(flash),
        write_log: mode.0.caches().then_some(Size(WRITE_LOG_BYTES)),
        ..DiskOptions::default()
    };
    let backend = format!("model:san?inner=file:{}", folder.join("disk.raw").display());
    Ok(DaemonSpec {
        disks: vec![options.resolve(name.clone(), backend)],
        listeners: Vec::new(),
        targets: Vec::new(),
        name,
        shards: 1,
        shards_asked: None,
        reactor: ReactorChoice(None),
        control: None,
        state_dir: Some(state),
        sources: None,
        pools: Vec::new(),
        http: None,
    })
}

/// The table, and what to try next.
fn report(runs: &[Run], time_max: Duration) -> String {
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
                let sign = if cache.backend_ios > unhelped { "−" } else { "" };
                let spared = unhelped.abs_diff(cache.backend_ios);
                format!("{sign}{} ({sign}{})", count(spared), percent(spared, unhelped))
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
    text += match runs[0].pace {
        Pace::Clock { .. } => {
            "Each run is the same I/O at the same times; IOPS differ only where primary storage fell behind.\n"
        }
        Pace::Closed { .. } | Pace::Dependent { .. } => {
            "Each run is the same I/O as fast as possible.\n"
        }
    };
    text += match results::warnings(runs).contains(&SAME_AGAIN) {
        true => SAME_AGAIN,
        false => {
            "The warm cache has seen what comes before these requests in the trace, not these."
        }
    };
    text += "\n\n";
    if runs.iter().any(|run| run.outcome.is_cut_short()) {
        let seconds = time_max.as_secs();
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

#[cfg(test)]
mod tests {
    use forebay_trace::results::CacheUse;

    use super::*;

    #[test]
    fn a_stretch_from_the_middle_of_a_trace_comes_at_the_pace_that_is_told() {
        let reader =
            Reader::new(Cursor::new(RECORDED), RECORDED_NAME, &Options::default()).unwrap();
        let work = work(RECORDED_NAME.to_owned(), reader, 1_500).unwrap();
        let Pace::Clock { speed } = work.pace else { panic!("it has times") };
        assert_eq!(work.records[0].time_ns, 0);
        let seconds = work.records[1_499].time_ns as f64 / speed / 1e9;
        let expected = 1_500.0 / REQUESTS_PER_SECOND as f64;
        assert!((seconds - expected).abs() < 0.01 * expected, "{seconds} s");
    }

    #[test]
    fn the_table_says_only_what_is_so() {
        let run = |name: &str, pace, backend_ios| {
            let cache = Some(CacheUse { backend_ios, ..CacheUse::default() });
            Run { name: name.to_owned(), pace, cache, ..Run::default() }
        };
        let of = |pace, after| {
            let runs = [run("no cache", pace, 200), run("cold cache", pace, after)];
            report(&runs, Duration::from_secs(1))
        };
        let clock = of(Pace::Clock { speed: 2.0 }, 150);
        assert!(clock.contains("50 (25.0 %)") && clock.contains("at the same times"), "{clock}");
        let closed = of(Pace::Closed { queue_depth: 8 }, 250);
        assert!(closed.contains("−50 (−25.0 %)"), "{closed}");
        assert!(!closed.contains("the same times"), "{closed}");
        assert!(closed.contains("Each run is the same I/O as fast as possible"), "{closed}");
    }
}
