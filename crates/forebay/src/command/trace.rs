//! `forebay trace`: simulate a cache on a trace, replay a trace on a target, write it in another format, characterise it.

mod info;
mod mrc;
mod record;

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use forebay_backends::OpenOptions;
use forebay_backends::size::rounded;
use forebay_core::ids::Nanos;
use forebay_io::clock;
use forebay_io::reactor::Reactor;
use forebay_trace::characterise::{self, Device, Named};
use forebay_trace::formats::{Format, Options, Reader, Writer};
use forebay_trace::record::Summary;
use forebay_trace::replay::{self, Latency, Pace, Progress};
use forebay_trace::simulate::{self, Uses};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::create;
use super::table::{Table, count, percent, time};
use crate::cli::trace::{
    ConvertArgs, HistogramArgs, ReplayArgs, SimulateArgs, TraceCommand, TraceInput,
};

/// Operations that a replay's reactor has room for.
const REACTOR_ENTRIES: u32 = 1024;
/// I/Os that a replay as fast as possible keeps outstanding, unless told otherwise.
const QUEUE_DEPTH: u32 = 32;
/// Length of the bar of a bucket that has everything.
const BAR_LENGTH: u64 = 40;

/// Carries out a command on traces.
pub(crate) fn trace(command: TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Record(args) => record::record(&args),
        TraceCommand::Simulate(args) => simulate(args),
        TraceCommand::Replay(args) => replay(args),
        TraceCommand::Convert(args) => convert(&args),
        TraceCommand::Histogram(args) => histogram(&args),
        TraceCommand::Mrc(args) => mrc::mrc(&args),
        TraceCommand::Info(args) => info::info(&args),
    }
}

/// Opens a trace as its arguments say.
pub(crate) fn open(input: &TraceInput) -> Result<Reader, forebay_trace::Error> {
    let options = Options {
        format: input.format,
        time_unit: input.time_unit,
        len_unit: input.length_unit,
        device: input.device,
        skip_bad: input.skip_bad,
    };
    Reader::open(&input.file, &options)
}

fn simulate(args: SimulateArgs) -> Result<()> {
    let settings = simulate::Settings {
        cache_size: args.cache_size.0,
        block_size: args.block_size.0,
        policy: args.policy,
        grid_offset: args.grid_offset.0,
    };
    let reader = open(&args.input)?;
    let spinner = ProgressBar::new_spinner().with_message("simulating");
    let counted = reader.inspect(|_| spinner.inc(1));
    let outcome = simulate::simulate(counted, &settings)?;
    spinner.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string(&outcome)?);
        return Ok(());
    }
    println!(
        "{}: cache of {} in blocks of {}, policy {}, grid offset {}",
        args.input.file.display(),
        rounded(outcome.cache_size),
        rounded(outcome.block_size),
        outcome.policy,
        outcome.grid_offset
    );
    let mut table = Table::new(&["", "requests", "all hit", "4 KiB pieces", "hit"]);
    for (name, uses) in [("reads", &outcome.reads), ("writes", &outcome.writes)] {
        let Uses { requests, request_hits, granules, granule_hits } = *uses;
        table.row(vec![
            name.to_owned(),
            count(requests),
            percent(request_hits, requests),
            count(granules),
            percent(granule_hits, granules),
        ]);
    }
    print!("{}", table.text(2));
    println!(
        "  {} blocks touched, {} cached at the end, {} evicted; miss ratio {:.4}",
        count(outcome.blocks_touched),
        count(outcome.blocks_cached),
        count(outcome.evictions),
        outcome.miss_ratio
    );
    Ok(())
}

fn replay(args: ReplayArgs) -> Result<()> {
    let summary = Summary::of(open(&args.input)?)?;
    let mut target = forebay_backends::open(&args.target, OpenOptions::default())
        .with_context(|| format!("cannot open the target {}", args.target))?;
    let mut reactor = Reactor::new(REACTOR_ENTRIES, None)?;
    let pace = match args.as_fast_as_possible {
        true => Pace::Closed { queue_depth: args.queue_depth.unwrap_or(QUEUE_DEPTH) },
        false => Pace::Clock { speed: args.speed },
    };
    let settings = replay::Settings {
        pace,
        duration_ns: args.duration.map(|span| span.0.as_nanos() as u64),
        wrap: args.wrap,
        ..replay::Settings::default()
    };
    let shown_on_stdout = args.json.as_deref() == Some(Path::new("-"));
    let file = args.json.as_deref().filter(|_| !shown_on_stdout).map(create).transpose()?;
    let bar = progress_bar(summary.reads + summary.writes, "replaying");
    let outcome = replay::replay(
        open(&args.input)?,
        &summary,
        target.as_mut(),
        &mut reactor,
        &settings,
        &|| Nanos(clock::now_nanos()),
        &mut |progress: &Progress| bar.set_position(progress.ended),
    )?;
    bar.finish_and_clear();
    if let Some(mut file) = file {
        serde_json::to_writer_pretty(&mut file, &outcome).context("cannot write the figures")?;
        writeln!(file)?;
    }
    if shown_on_stdout {
        println!("{}", serde_json::to_string_pretty(&outcome)?);
    }
    if !shown_on_stdout {
        print!("{}", describe(&args, &outcome));
    }
    anyhow::ensure!(
        outcome.errors == 0,
        "{} requests failed on the target; the first: {}",
        outcome.errors,
        outcome.first_error.as_deref().unwrap_or("unknown")
    );
    Ok(())
}

/// What a conversion did.
#[derive(Debug, Serialize)]
struct Converted {
    from: String,
    to: String,
    requests: u64,
    /// Other commands, empty requests and header lines.
    passed_over: u64,
    /// Bad records passed over (`--skip-bad`), and what was wrong with the first.
    bad: u64,
    first_bad: Option<String>,
    bytes: u64,
}

fn convert(args: &ConvertArgs) -> Result<()> {
    let mut reader = open(&args.input)?;
    let to = args.to.map_or_else(|| Format::of_name(&args.output), Ok)?;
    ensure!(
        !is_same_file(&args.input.file, &args.output),
        "{} is the trace that is read: write to another file",
        args.output.display()
    );
    let mut writer = Writer::create(&args.output, to)?;
    let spinner = ProgressBar::new_spinner().with_message("converting");
    for record in reader.by_ref() {
        writer.write(&record?)?;
        spinner.inc(1);
    }
    spinner.finish_and_clear();
    let requests = writer.records();
    writer.finish()?;
    let counts = reader.counts();
    let converted = Converted {
        from: reader.format().to_string(),
        to: to.to_string(),
        requests,
        passed_over: counts.ignored,
        bad: counts.bad,
        first_bad: counts.first_bad.clone(),
        bytes: std::fs::metadata(&args.output).map_or(0, |data| data.len()),
    };
    if args.json {
        println!("{}", serde_json::to_string(&converted)?);
        return Ok(());
    }
    let each = converted.bytes as f64 / requests.max(1) as f64;
    println!(
        "{}: {} requests of {} as {}, {each:.1} bytes each; {} other commands and lines passed over",
        args.output.display(),
        count(requests),
        converted.from,
        converted.to,
        count(converted.passed_over)
    );
    if let Some(first) = &converted.first_bad {
        println!("  {} bad records passed over; the first: {first}", count(converted.bad));
    }
    Ok(())
}

fn histogram(args: &HistogramArgs) -> Result<()> {
    let spinner = ProgressBar::new_spinner().with_message("counting");
    let counted = open(&args.input)?.inspect(|_| spinner.inc(1));
    let devices = characterise::characterise(counted)?;
    spinner.finish_and_clear();
    if args.json {
        println!("{}", serde_json::to_string(&devices)?);
    } else if args.csv {
        print!("{}", characterise::csv(&devices));
    } else {
        print!("{}", describe_histograms(&devices));
    }
    Ok(())
}

fn describe_histograms(devices: &[Device]) -> String {
    let mut text = String::new();
    for Device { device, histograms } in devices {
        text += &format!("device {device}\n");
        for Named { name, min, max, mean, count: numbers, buckets } in histograms {
            let (Some(min), Some(max), Some(mean)) = (min, max, mean) else {
                text += &format!("  {name}: none\n");
                continue;
            };
            text += &format!("  {name}: {}, {min} to {max}, mean {mean}\n", count(*numbers));
            let beyond = buckets.len() - 1;
            let filled = buckets.iter().enumerate().filter(|(_, (_, numbers))| *numbers > 0);
            for (place, (limit, in_it)) in filled {
                let sign = if place == beyond { '>' } else { '≤' };
                let bar = "#".repeat((in_it * BAR_LENGTH / numbers) as usize);
                let share = percent(*in_it, *numbers);
                text += &format!("    {sign} {limit:>8} {:>12} {share:>7} {bar}\n", count(*in_it));
            }
        }
    }
    text
}

/// True when two names are of one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| std::fs::metadata(path).map(|data| (data.dev(), data.ino()));
    matches!((place(one), place(other)), (Ok(one), Ok(other)) if one == other)
}

/// A bar over a known number of requests.
pub(crate) fn progress_bar(requests: u64, what: &'static str) -> ProgressBar {
    let style =
        "{msg:<28} [{bar:40}] {percent:>3} %  {human_pos} of {human_len} requests  {elapsed}";
    let style = ProgressStyle::with_template(style).expect("the template is valid");
    ProgressBar::new(requests).with_style(style.progress_chars("=> ")).with_message(what)
}

fn describe(args: &ReplayArgs, outcome: &replay::Outcome) -> String {
    let mut table = Table::new(&["", "count", "mean", "p50", "p90", "p99", "p99.9", "max"]);
    let rows: [(&str, &Latency); 3] =
        [("reads", &outcome.reads), ("writes", &outcome.writes), ("lag", &outcome.lag)];
    for (name, latency) in rows.into_iter().filter(|(_, latency)| latency.count > 0) {
        let mut row = vec![name.to_owned(), count(latency.count), time(latency.mean_ns as u64)];
        let figures =
            [latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns, latency.max_ns];
        row.extend(figures.map(time));
        table.row(row);
    }
    let mut text = format!(
        "{} on {}: {} in {}, {:.0} I/Os per second\n{}",
        args.input.file.display(),
        args.target,
        rounded(outcome.read_bytes + outcome.written_bytes),
        time(outcome.elapsed_ns),
        outcome.iops,
        table.text(2)
    );
    let notes = [
        (outcome.wrapped, "requests were folded back into the target (--wrap)"),
        (outcome.widened, "requests were grown to whole logical blocks of the target"),
        (outcome.too_long, "requests were left out: too long"),
    ];
    for (number, what) in notes.into_iter().filter(|(number, _)| *number > 0) {
        text += &format!("  {} {what}\n", count(number));
    }
    if outcome.is_cut_short {
        text += "  --duration ended it before the trace did\n";
    }
    text
}
