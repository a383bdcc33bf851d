//! `forebay trace mrc`: miss-ratio curves as a table, a plot and JSON.

use anyhow::Result;
use forebay_backends::size::rounded;
use forebay_trace::mrc::{self, Curve, Method, Point, Settings};
use forebay_trace::report;
use indicatif::ProgressBar;

use super::super::output::show;
use super::super::table::{Table, count};
use super::super::{page_file, write_page};
use super::input::Input;
use crate::cli::trace::MrcArgs;

/// Lines of the plot, from all to none.
const PLOT_LINES: usize = 11;
/// Columns of the plot for a cache size.
const PLOT_STEP: usize = 4;

pub(super) fn mrc(args: &MrcArgs) -> Result<()> {
    let page = page_file(&args.page)?;
    let settings = Settings {
        policies: args.policy.clone(),
        block_sizes: args.block_size.iter().map(|size| size.0).collect(),
        cache_sizes: args.cache_size.iter().map(|size| size.0).collect(),
        sample: args.sample,
        grid_offset: args.grid_offset.0,
    };
    let spinner = ProgressBar::new_spinner().with_message("measuring reuse");
    let mut input = Input::of(&args.input);
    if args.policy.iter().any(|policy| *policy != mrc::LRU) {
        input = input.again()?;
    }
    let counted = || {
        let spinner = spinner.clone();
        Ok(input.open()?.inspect(move |_| spinner.inc(1)))
    };
    let curves = mrc::curves(counted, &settings)?;
    spinner.finish_and_clear();
    write_page(page, || report::mrc(&input.name(), &curves))?;
    input.bad().tell();
    if args.json {
        return input.bad().show_json(serde_json::json!({ "curves": curves }));
    }
    let file = args.input.file.display();
    show(format_args!("{file}: miss ratio by cache size\n{}", describe(&curves, "trace")))
}

/// Curves of what `whose` touches, as a table and a plot.
pub(crate) fn describe(curves: &[Curve], whose: &str) -> String {
    let mut text = String::new();
    for (letter, curve) in letters().zip(curves) {
        text += &format!("  {letter}  {}\n", about(curve, whose));
    }
    text += "\n";
    let head = letters().take(curves.len()).map(|letter| letter.to_string());
    let head: Vec<String> = ["cache".to_owned()].into_iter().chain(head).collect();
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    let sizes = curves.first().map_or(&[][..], |curve| &curve.points);
    for (at, point) in sizes.iter().enumerate() {
        let mut row = vec![rounded(point.cache_size).to_string()];
        row.extend(curves.iter().map(|curve| figure(&curve.points[at])));
        table.row(row);
    }
    text += &table.text(2);
    if curves.iter().flat_map(|curve| &curve.points).any(|point| point.bound.is_some()) {
        text += "  ±: the exact miss ratio is within this, in 95 of 100 points\n";
    }
    if sizes.len() > 2 {
        text += &format!("\n{}", plot(curves));
    }
    text
}

/// A miss ratio, with its bound where it is of a sample.
fn figure(point: &Point) -> String {
    match point.bound {
        None => format!("{:.4}", point.miss_ratio),
        Some(bound) => format!("{:.3} ±{bound:.3}", point.miss_ratio),
    }
}

/// Names of curves in the table and the plot.
fn letters() -> impl Iterator<Item = char> {
    ('A'..='Z').chain('a'..='z').chain(std::iter::repeat('?'))
}

fn about(curve: &Curve, whose: &str) -> String {
    let how = match curve.method {
        Method::Exact => "exact".to_owned(),
        Method::Simulation => "simulated".to_owned(),
        Method::Shards => {
            format!("from {} of the blocks ({})", share(curve.share), looked_at(curve))
        }
        Method::Miniature => {
            format!("simulated with {} of the blocks ({})", share(curve.share), looked_at(curve))
        }
    };
    let mut text = format!(
        "{}, blocks of {}, {how}; the {whose} touches {}, with the rest of its blocks {}",
        curve.policy,
        rounded(curve.block_size),
        rounded(curve.touched),
        rounded(curve.footprint),
    );
    if let Some(grid) = curve.grid_moved {
        text +=
            &format!("; grid offset {} in caches above {}", grid.grid_offset, rounded(grid.above));
    } else if curve.grid_offset > 0 {
        text += &format!("; grid offset {}", curve.grid_offset);
    }
    text
}

/// How many blocks the sample has.
fn looked_at(curve: &Curve) -> String {
    count((curve.footprint as f64 / curve.block_size as f64 * curve.share).round() as u64)
}

fn share(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Miss ratios from 1 to 0, a letter for each curve, `*` where two meet.
fn plot(curves: &[Curve]) -> String {
    let sizes = curves.iter().map(|curve| curve.points.len()).max().unwrap_or(0);
    let mut lines = vec![vec![' '; sizes * PLOT_STEP]; PLOT_LINES];
    for (letter, curve) in letters().zip(curves) {
        for (at, point) in curve.points.iter().enumerate() {
            let line = ((1.0 - point.miss_ratio) * (PLOT_LINES - 1) as f64).round() as usize;
            let cell = &mut lines[line][at * PLOT_STEP + PLOT_STEP / 2];
            *cell = if *cell == ' ' { letter } else { '*' };
        }
    }
    let mut text = String::new();
    for (n, line) in lines.iter().enumerate() {
        let ratio = 1.0 - n as f64 / (PLOT_LINES - 1) as f64;
        let line: String = line.iter().collect();
        text += format!("  {ratio:.1} |{line}").trim_end();
        text += "\n";
    }
    text += &format!("      +{}\n", "-".repeat(sizes * PLOT_STEP));
    let mut labels = String::new();
    let points = curves.first().map_or(&[][..], |curve| &curve.points);
    for point in points.iter().step_by(4) {
        labels +=
            &format!("{:<width$}", rounded(point.cache_size).to_string(), width = 4 * PLOT_STEP);
    }
    text + &format!("       {}\n", labels.trim_end())
}
