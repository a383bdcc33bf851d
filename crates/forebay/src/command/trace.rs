//! `forebay trace`: simulate a cache on a trace, replay a trace on a target, write it in another format, characterise it, advise
//! a cache.

mod ab;
mod advise;
mod compare;
mod info;
mod input;
mod mrc;
mod passes;
mod record;
pub(crate) mod replay;
mod simulate;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Result, ensure};
use forebay_trace::characterise::{self, Device, Named};
use forebay_trace::formats::{Format, Writer};
use forebay_trace::report;
use indicatif::ProgressBar;
use serde::Serialize;

pub(super) use self::ab::SAME_AGAIN;
pub(super) use self::advise::describe as describe_advice;
use self::input::Input;
pub(super) use self::mrc::describe as describe_curves;
pub(super) use self::passes::Passes;
pub(super) use self::record::record_last;
use super::output::{Output, show};
use super::table::{count, percent};
use super::{page_file, write_page};
use crate::cli::trace::{ConvertArgs, HistogramArgs, TraceCommand};

/// Length of the bar of a bucket that has everything.
const BAR_LENGTH: u64 = 40;

/// Carries out a command on traces.
pub(crate) fn trace(command: TraceCommand) -> Result<()> {
    match command {
        TraceCommand::Record(args) => record::record(&args),
        TraceCommand::Simulate(args) => simulate::simulate(&args),
        TraceCommand::Replay(args) => replay::replay(&args),
        TraceCommand::Compare(args) => compare::compare(&args),
        TraceCommand::Ab(args) => ab::ab(&args),
        TraceCommand::Convert(args) => convert(&args),
        TraceCommand::Histogram(args) => histogram(&args),
        TraceCommand::Mrc(args) => mrc::mrc(&args),
        TraceCommand::Info(args) => info::info(&args),
        TraceCommand::Advise(args) => advise::advise(&args),
    }
}

/// What a conversion did.
#[derive(Debug, Serialize)]
struct Converted {
    from: String,
    to: String,
    requests: u64,
    /// Other commands, empty requests and header lines.
    passed_over: u64,
    bytes: u64,
}

fn convert(args: &ConvertArgs) -> Result<()> {
    let input = Input::of(&args.input);
    let mut reading = input.open()?;
    let to = args.to.map_or_else(|| Format::of_name(&args.output), Ok)?;
    ensure!(
        !is_same_file(&args.input.file, &args.output),
        "{} is the trace that is read: write to another file",
        args.output.display()
    );
    let output = Output::create(&args.output)?;
    let mut writer = Writer::to_file(output.file()?, &args.output, to)?;
    let spinner = ProgressBar::new_spinner().with_message("converting");
    for record in reading.by_ref() {
        writer.write(&record?)?;
        spinner.inc(1);
    }
    spinner.finish_and_clear();
    let requests = writer.records();
    let bytes = writer.finish()?;
    output.commit()?;
    let converted = Converted {
        from: reading.reader().format().to_string(),
        to: to.to_string(),
        requests,
        passed_over: reading.reader().counts().ignored,
        bytes,
    };
    drop(reading);
    input.bad().tell();
    if args.json {
        return input.bad().show_json(&converted);
    }
    let each = converted.bytes as f64 / requests.max(1) as f64;
    show(format_args!(
        "{}: {} requests of {} as {}, {each:.1} bytes each; {} other commands and lines passed over\n",
        args.output.display(),
        count(requests),
        converted.from,
        converted.to,
        count(converted.passed_over)
    ))
}

fn histogram(args: &HistogramArgs) -> Result<()> {
    let page = page_file(&args.page)?;
    let spinner = ProgressBar::new_spinner().with_message("counting");
    let input = Input::of(&args.input);
    let counted = input.open()?.inspect(|_| spinner.inc(1));
    let devices = characterise::characterise(counted)?;
    spinner.finish_and_clear();
    write_page(page, || report::histograms(&input.name(), &devices))?;
    input.bad().tell();
    show(if args.json {
        serde_json::to_string(&devices)? + "\n"
    } else if args.csv {
        characterise::csv(&devices)
    } else {
        describe_histograms(&devices, |device| format!("device {device}"))
    })
}

/// All histograms, those of each device below its title.
pub(super) fn describe_histograms(devices: &[Device], title: impl Fn(u32) -> String) -> String {
    let mut text = String::new();
    for Device { device, histograms } in devices {
        text += &format!("{}\n", title(*device));
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
