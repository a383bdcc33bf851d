//! `forebay trace info`: what a trace is, for people and as JSON.

use anyhow::Result;
use forebay_backends::size::{exact, rounded};
use forebay_trace::info::{self, Device, Info, Region, Window};
use forebay_trace::report;
use indicatif::ProgressBar;

use super::super::output::show;
use super::super::table::{Table, count, of, percent, time};
use super::super::{page_file, write_page};
use super::BAR_LENGTH;
use super::input::Input;
use crate::cli::trace::InfoArgs;

/// Windows of a line over time at most: two become one where there are more.
const LINE_LENGTH: usize = 64;
/// Devices that are shown, those with most requests.
const DEVICES_MAX: usize = 32;

pub(super) fn info(args: &InfoArgs) -> Result<()> {
    let page = page_file(&args.page)?;
    let spinner = ProgressBar::new_spinner().with_message("counting");
    let input = Input::of(&args.input);
    let counted = input.open()?.inspect(|_| spinner.inc(1));
    let info = info::info(counted, args.exact)?;
    spinner.finish_and_clear();
    write_page(page, || report::info(&input.name(), &info))?;
    input.bad().tell();
    if args.json {
        return input.bad().show_json(&info);
    }
    show(format_args!("{}: {}", args.input.file.display(), describe(&info)))
}

fn describe(info: &Info) -> String {
    let summary = &info.summary;
    let requests = summary.reads + summary.writes;
    let mut text = format!(
        "{} in {}, {} reads; {} read, {} written, up to byte {}\n",
        of(requests, "request"),
        time(summary.duration_ns),
        percent(summary.reads, requests),
        rounded(summary.read_bytes),
        rounded(summary.written_bytes),
        rounded(summary.span_bytes),
    );
    if requests == 0 {
        return text;
    }
    text += &lengths(info);
    text += &devices(&info.devices);
    text += &over_time(info);
    text += &reuse(info);
    text += &hottest(info);
    text
}

fn lengths(info: &Info) -> String {
    let of = &info.lengths;
    let requests = info.summary.reads + info.summary.writes;
    let common = of.common.iter();
    let common =
        common.map(|&(len, n)| format!("{} {}", rounded(len.into()), percent(n, requests)));
    format!(
        "\nlengths: {} to {}, mean {}, half up to {}, 99 % up to {}\n  most: {}\n",
        rounded(of.min.into()),
        rounded(of.max.into()),
        rounded(of.mean as u64),
        rounded(of.p50.into()),
        rounded(of.p99.into()),
        common.collect::<Vec<_>>().join(", ")
    )
}

fn devices(devices: &[Device]) -> String {
    let share = |share: f64| format!("{:.1} %", share * 100.0);
    let mut shown: Vec<&Device> = devices.iter().collect();
    shown.sort_by_key(|of| std::cmp::Reverse(of.summary.reads + of.summary.writes));
    shown.truncate(DEVICES_MAX);
    shown.sort_by_key(|of| of.device);
    let head = ["device", "requests", "reads", "up to byte", "sequential", "… to one of 16"];
    let mut table = Table::new(&head);
    for Device { device, summary, sequential, sequential_of_16, .. } in &shown {
        let requests = summary.reads + summary.writes;
        table.row(vec![
            device.to_string(),
            count(requests),
            percent(summary.reads, requests),
            rounded(summary.span_bytes).to_string(),
            share(*sequential),
            share(*sequential_of_16),
        ]);
    }
    let mut text = format!("\n{}", table.text(0));
    for line in info::alignments(&shown) {
        text += &format!("{line}\n");
    }
    if shown.len() < devices.len() {
        text +=
            &format!("{} devices with fewer requests: see --json\n", devices.len() - shown.len());
    }
    text
}

fn over_time(info: &Info) -> String {
    if info.summary.duration_ns == 0 {
        return "\nthe trace has no times\n".to_owned();
    }
    let requests = |of: &Window| of.reads + of.writes;
    let per_second = |requests: u64, ns: u64| requests as f64 * 1e9 / ns.max(1) as f64;
    let all: u64 = info.windows.iter().map(requests).sum();
    let most = info.windows.iter().map(requests).max().unwrap_or(0);
    let set = |of: &Window| of.working_set;
    let mean = info.windows.iter().map(set).sum::<u64>() / info.windows.len() as u64;
    format!(
        "\nby windows of {}:\n  requests/s   {}  {:.0} on average, {:.0} at most\n  \
         working set  {}  {} on average, {} at most\n",
        time(info.window_ns),
        line(info.windows.iter().map(requests)),
        per_second(all, info.summary.duration_ns),
        per_second(most, info.window_ns),
        line(info.windows.iter().map(set)),
        rounded(mean),
        rounded(info.windows.iter().map(set).max().unwrap_or(0)),
    )
}

/// A small plot of one line; of two numbers that share a place the larger.
fn line(numbers: impl Iterator<Item = u64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let mut numbers: Vec<u64> = numbers.collect();
    while numbers.len() > LINE_LENGTH {
        numbers = numbers.chunks(2).map(|pair| *pair.iter().max().expect("not empty")).collect();
    }
    let most = numbers.iter().copied().max().unwrap_or(0).max(1);
    let bar = |number: u64| match number {
        0 => ' ',
        _ => BARS[(u128::from(number) * 7 / u128::from(most)) as usize],
    };
    numbers.into_iter().map(bar).collect()
}

fn reuse(info: &Info) -> String {
    let reuse = &info.reuse;
    let how = match reuse.sample {
        1.0 => "exact".to_owned(),
        share => format!("from {:.2} % of them", share * 100.0),
    };
    let mut text = format!(
        "\ntouched: {} in pages of 4 KiB; pages are used again after at most so much else ({how}):\n",
        rounded(reuse.footprint)
    );
    let mut row = |label: String, share: f64| {
        let bar = "#".repeat((share * BAR_LENGTH as f64) as usize);
        text += format!("  {label:>12}  {:>6.2} % {bar}", share * 100.0).trim_end();
        text += "\n";
    };
    // Four doublings of distances to a line.
    for of in reuse.distances.chunks(4) {
        let (up_to, _) = of[of.len() - 1];
        row(format!("≤ {}", rounded(up_to)), of.iter().map(|(_, share)| share).sum());
    }
    row("first use".to_owned(), reuse.first);
    text
}

fn hottest(info: &Info) -> String {
    let requests = info.summary.reads + info.summary.writes;
    let mut table = Table::new(&["from byte", "device", "requests", "of all", "reads"]);
    for Region { device, start, reads, writes } in &info.hottest {
        table.row(vec![
            exact(*start).to_string(),
            device.to_string(),
            count(reads + writes),
            percent(reads + writes, requests),
            percent(*reads, reads + writes),
        ]);
    }
    format!("\nhottest regions of {}:\n{}", rounded(info.region_bytes), table.text(2))
}
