//! `forebay trace simulate`: what one cache would have hit, or what a whole configuration would have done.

use std::time::Duration;

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_core::config::Config;
use forebay_core::flash_pool::segment_size;
use forebay_core::stats::LatencySummary;
use forebay_trace::report;
use forebay_trace::simulate::{self, SimulatedPolicy, Uses};
use forebay_trace::what_if::{
    self, GivenLatencies, Ios, Log, Models, Outcome, Pacing, Settings, Survey, Wear,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::super::output::show;
use super::super::table::{Table, count, of, percent, time};
use super::super::{page_file, write_page};
use super::input::Input;
use crate::cli::trace::{SimulateArgs, WhatIfArgs};
use crate::config::values::{Endurance, Flash, FlashSize, Name, Size, Span, ValueError};
use crate::config::{DiskOptions, DiskSpec, check};

const BAR: &str = "{msg} {bar:30} {percent} %, {eta} left";
const DAYS_OF_YEAR: f64 = 365.25;

pub(super) fn simulate(args: &SimulateArgs) -> Result<()> {
    match args.cache_size {
        Some(Size(bytes)) => count_hits(args, bytes),
        None => what_if(args),
    }
}

fn count_hits(args: &SimulateArgs, cache_size: u64) -> Result<()> {
    let settings = simulate::Settings {
        cache_size,
        block_size: args.block_size.0,
        policy: args.policy,
        grid_offset: args.grid_offset.0,
    };
    let input = Input::of(&args.input);
    let reader = input.open()?;
    let spinner = ProgressBar::new_spinner().with_message("simulating");
    let counted = reader.inspect(|_| spinner.inc(1));
    let outcome = simulate::simulate(counted, &settings)?;
    spinner.finish_and_clear();
    input.bad().tell();
    if args.json {
        return input.bad().show_json(&outcome);
    }
    let mut text = format!(
        "{}: cache of {} in blocks of {}, policy {}, grid offset {}\n",
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
    text += &table.text(2);
    text += &format!(
        "  {} blocks touched, {} cached at the end, {} evicted; miss ratio {:.4}\n",
        count(outcome.blocks_touched),
        count(outcome.blocks_cached),
        count(outcome.evictions),
        outcome.miss_ratio
    );
    show(text)
}

fn what_if(args: &SimulateArgs) -> Result<()> {
    let page = page_file(&args.page)?;
    let spinner = ProgressBar::new_spinner().with_message("reading the trace");
    let input = Input::of(&args.input).again()?;
    let survey = Survey::of(input.open()?.inspect(|_| spinner.inc(1)))?;
    spinner.finish_and_clear();
    let settings = settings(args, &survey)?;
    let bar = ProgressBar::new(2 * (survey.summary.reads + survey.summary.writes));
    bar.set_style(ProgressStyle::with_template(BAR).expect("a template that is right"));
    bar.set_message("simulating");
    bar.enable_steady_tick(Duration::from_millis(200));
    let records = || {
        let bar = bar.clone();
        Ok(input.open()?.inspect(move |_| bar.inc(1)))
    };
    let outcome = what_if::what_if(records, &survey, &settings)?;
    bar.finish_and_clear();
    write_page(page, || report::what_if(&input.name(), &outcome))?;
    input.bad().tell();
    if args.json {
        return input.bad().show_json(&outcome);
    }
    let mut text = format!("{}: {}", args.input.file.display(), describe(&outcome));
    if survey.devices() > 1 {
        let devices = survey.devices();
        text += &format!("  {devices} devices were taken for one disk: --device N looks at one\n");
    }
    show(text)
}

/// What the options say, with the defaults of `forebay run`.
fn settings(args: &SimulateArgs, survey: &Survey) -> Result<Settings> {
    let asked = &args.what_if;
    let SimulatedPolicy::Online(policy) = args.policy else {
        let why =
            "belady knows what comes: it can be counted (--cache-size SIZE), a disk cannot have it";
        return Err(ValueError(why.to_owned()).into());
    };
    let spec = spec(args, survey.traits().size);
    check::disk(&spec).map_err(ValueError)?;
    let flash = spec.flash.as_ref().map_or(0, |flash| flash.bytes);
    let write_log = spec.write_log.as_ref().map(|log| log.engine_config(segment_size(flash, 1)));
    let config = Config { policy, write_log, ..spec.engine_config(survey.traits()) };
    let nanos = |span: Option<Span>| span.map(|Span(time)| time.as_nanos() as u64);
    let told = GivenLatencies {
        ram_ns: nanos(asked.ram_latency),
        flash_ns: nanos(asked.flash_latency),
        flash_write_ns: nanos(asked.flash_write_latency),
        backend_ns: nanos(asked.backend_latency),
        backend_write_ns: nanos(asked.backend_write_latency),
    };
    Ok(Settings {
        config,
        models: Models::new(&told, asked.backend, survey),
        durable_writes: !spec.write_cache_of_units,
        queue_depth: asked.queue_depth,
        endurance: asked.flash_endurance.map(|Endurance(bytes)| bytes),
    })
}

/// The disk that 'forebay run' would have with these options.
fn spec(args: &SimulateArgs, size: u64) -> DiskSpec {
    let asked: &WhatIfArgs = &args.what_if;
    let flash = asked.flash.map(|FlashSize(bytes)| Flash { path: "flash".into(), bytes });
    let options = DiskOptions {
        mode: asked.mode,
        block_size: Some(args.block_size),
        ram: asked.ram,
        flash,
        grid_offset: Some(args.grid_offset),
        flash_admission: asked.flash_admission,
        flash_dwpd: asked.flash_dwpd,
        bypass_sequential: asked.bypass_sequential,
        write_log: asked.write_log,
        destage_order: asked.destage_order,
        destage_barrier: asked.destage_barrier,
        max_destage_rate: asked.max_destage_rate,
        write_cache: asked.write_cache,
        ..DiskOptions::default()
    };
    options.resolve(Name("simulated".to_owned()), format!("mem:{size}"))
}

fn describe(outcome: &Outcome) -> String {
    let mut text = format!(
        "{}, RAM {}, flash {}, blocks of {}, policy {}, grid offset {}\n",
        outcome.mode,
        rounded(outcome.ram_bytes),
        rounded(outcome.flash_bytes),
        rounded(outcome.block_size),
        outcome.policy,
        outcome.grid_offset
    );
    text += &match outcome.pacing {
        Pacing::Trace => {
            format!("  {} on the trace's clock\n", time(outcome.trace.duration_ns))
        }
        Pacing::Closed { queue_depth } => {
            format!("  {queue_depth} requests at a time, {} in all\n", time(outcome.duration_ns))
        }
    };
    let headings = ["", "requests", "mean", "p50", "p99", "longest"];
    let mut table = Table::new(&headings);
    let (before, after) = (&outcome.before, &outcome.after);
    for (name, of) in [
        ("reads without Forebay", &before.reads),
        ("reads with it", &after.reads),
        ("writes without Forebay", &before.writes),
        ("writes with it", &after.writes),
    ] {
        if of.count > 0 {
            table.row(row(name, of));
        }
    }
    text += &table.text(2);
    if outcome.late > 0 {
        text += &format!("  {} waited longer than 30 s\n", of(outcome.late, "request"));
    }
    let hits = &outcome.hits;
    let reads = hits.reads();
    text += &format!(
        "  reads hit: {} (RAM {}, flash {}, reads in flight {}), in part {}; {} bypassed the cache\n",
        percent(hits.ram + hits.flash + hits.joined, reads),
        percent(hits.ram, reads),
        percent(hits.flash, reads),
        percent(hits.joined, reads),
        percent(hits.partial, reads),
        percent(hits.bypassed, reads),
    );
    let storage = (&outcome.storage_before, &outcome.storage_after);
    let of_storage = |name, ios: fn(&Ios) -> u64, bytes: fn(&Ios) -> u64| {
        format!(
            "  primary storage: {} {name} instead of {}, {} instead of {}\n",
            count(ios(storage.1)),
            count(ios(storage.0)),
            rounded(bytes(storage.1)),
            rounded(bytes(storage.0)),
        )
    };
    text += &of_storage("reads", |ios| ios.reads, |ios| ios.read_bytes);
    text += &of_storage("writes", |ios| ios.writes, |ios| ios.write_bytes);
    if let Some(log) = &outcome.log {
        text += &of_log(log);
    }
    if let Some(wear) = &outcome.flash {
        text += &of_flash(wear);
    }
    text
}

fn row(name: &str, of: &LatencySummary) -> Vec<String> {
    let times = [of.mean_ns, of.p50_ns, of.p99_ns, of.max_ns].map(time);
    [name.to_owned(), count(of.count)].into_iter().chain(times).collect()
}

fn of_log(log: &Log) -> String {
    let slowed = match (log.throttled_ns, log.times_full) {
        (0, 0) => "writers were never slowed".to_owned(),
        (slowed, full) => {
            let delayed = log.acknowledgements_delayed;
            let text = format!(
                "writers were slowed by {} in all ({}, {} on average, within {})",
                time(log.injected_latency_ns),
                of(delayed, "acknowledgement"),
                time(log.injected_latency_ns / delayed.max(1)),
                time(slowed)
            );
            if full > 0 { format!("{text}; it was full {}", of(full, "time")) } else { text }
        }
    };
    format!(
        "  write log: {} of {} occupied at most, {} dirty; {slowed}\n  destaging: {} in {}, {}/s while there was something to destage; done {} after the last answer\n",
        rounded(log.occupied_bytes_max),
        rounded(log.capacity_bytes),
        rounded(log.dirty_bytes_max),
        rounded(log.destage_bytes),
        of(log.destage_writes, "write"),
        rounded(log.destage_bytes_per_second),
        time(log.drained_ns)
    )
}

fn of_flash(wear: &Wear) -> String {
    let mut text = format!(
        "  flash: {} written (cache {}, write log {}, index {})",
        rounded(wear.bytes),
        rounded(wear.cache_bytes),
        rounded(wear.log_bytes),
        rounded(wear.index_bytes)
    );
    if let (Some(per_day), Some(drive)) = (wear.bytes_per_day, wear.drive_writes_per_day) {
        let per_day = rounded(per_day as u64);
        text += &format!(", {per_day} a day when warm, {drive:.2} drive writes");
    }
    match wear.lifetime_days {
        Some(days) if days < DAYS_OF_YEAR => text += &format!("; it lasts {days:.0} days"),
        Some(days) => text += &format!("; it lasts {:.1} years", days / DAYS_OF_YEAR),
        None => {}
    }
    text + "\n"
}
