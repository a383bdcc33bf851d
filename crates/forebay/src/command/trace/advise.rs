//! `forebay trace advise`: which cache each disk should have, in words, as a table and as JSON.

use std::path::Path;

use anyhow::{Result, ensure};
use forebay_backends::size::rounded;
use forebay_trace::advise::{self, Advice, Settings};
use forebay_trace::report::{self, DiskAdvice};
use indicatif::ProgressBar;

use super::super::output::show;
use super::super::table::{Table, time};
use super::super::{page_file, write_page};
use super::input::{Bad, Input};
use crate::cli::trace::AdviseArgs;
use crate::config::values::Size;

pub(super) fn advise(args: &AdviseArgs) -> Result<()> {
    let [ram, flash] = [args.ram, args.flash].map(|size| size.map_or(0, |Size(bytes)| bytes));
    ensure!(
        ram > 0 || flash > 0,
        "there is nothing to divide: say how much --ram or --flash there is"
    );
    let page = page_file(&args.page)?;
    let settings = Settings { ram, flash, known: args.latencies.known() };
    let spinner = ProgressBar::new_spinner().with_message("simulating caches");
    let inputs = args.files.iter().map(|file| Input::new(file, &args.reading).again());
    let inputs = inputs.collect::<Result<Vec<Input<'_>>>>()?;
    let study = |input: &Input<'_>| {
        let counted = || {
            let spinner = spinner.clone();
            Ok(input.open()?.inspect(move |_| spinner.inc(1)))
        };
        advise::study(&input.name(), counted, &settings)
    };
    let disks = inputs.iter().map(study).collect::<Result<Vec<_>, _>>()?;
    spinner.finish_and_clear();
    let advices = advise::advise(&disks, &settings);
    write_page(page, || {
        let told = disks.iter().zip(&advices);
        let told = told.map(|(disk, advice)| DiskAdvice { disk, advice, notes: &[] });
        report::advice(&told.collect::<Vec<_>>())
    })?;
    let bad = Bad::of_all(&inputs);
    bad.tell();
    if args.json {
        return bad.show_json(serde_json::json!({ "disks": advices }));
    }
    let texts: Vec<String> = advices.iter().map(describe).collect();
    let mut text = texts.join("\n");
    for (disk, file) in
        disks.iter().zip(&args.files).filter(|(disk, _)| disk.info.devices.len() > 1)
    {
        text += &format!("\n{}\n", devices(file, disk.info.devices.len()));
    }
    show(text)
}

fn devices(file: &Path, devices: usize) -> String {
    format!(
        "{} has {devices} devices, which were taken together: --device N looks at one",
        file.display()
    )
}

/// An advice, for people.
pub(crate) fn describe(advice: &Advice) -> String {
    let mut text = format!("{}: {}\n", advice.name, advice.sentence);
    let ns = |ns: f64| time(ns.round() as u64);
    if advice.before != advice.after {
        text += &format!(
            "  all requests: {} → {} on average, p99 {} → {}",
            ns(advice.before.mean_ns),
            ns(advice.after.mean_ns),
            ns(advice.before.p99_ns),
            ns(advice.after.p99_ns),
        );
        match advice.flash_written_per_day {
            Some(bytes) if bytes > 0.0 => {
                text += &format!("; {} a day to flash\n", rounded(bytes as u64));
            }
            _ => text += "\n",
        }
    }
    text += &format!("  forebay run … {}\n", advice.options.join(" "));
    if advice.plan.is_none() {
        return text;
    }
    let headings = ["", "RAM", "flash", "block", "reads hit", "mean", "p99", "metadata"];
    let mut table = Table::new(&headings);
    for (of, is_advised) in advice.by_size() {
        table.row(vec![
            if is_advised { "advised" } else { "" }.to_owned(),
            rounded(of.ram).to_string(),
            rounded(of.flash).to_string(),
            rounded(of.block_size).to_string(),
            format!("{:.1} %", of.hit_ratio * 100.0),
            ns(of.read.mean_ns),
            ns(of.read.p99_ns),
            rounded(of.metadata_bytes).to_string(),
        ]);
    }
    text + &table.text(2)
}
