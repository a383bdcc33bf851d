//! `forebay trace replay`, and a replay with its bar for the commands that make several.

use std::cell::Cell;
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use forebay_backends::size::rounded;
use forebay_backends::{Backend, OpenOptions, Uri};
use forebay_core::ids::Nanos;
use forebay_host::date::utc;
use forebay_io::clock;
use forebay_io::reactor::Reactor;
use forebay_trace::record::{Record, Summary};
use forebay_trace::replay::{
    self, Asked, EndedBy, Latency, Outcome, Pace, Progress, Settings, Touched,
};
use forebay_trace::report;
use forebay_trace::results::{self, Results, Run};
use indicatif::{ProgressBar, ProgressStyle};

use super::super::output::{Output, show};
use super::super::table::{Table, count, of, time};
use super::super::{page_file, signals, write_page};
use super::input::Input;
use crate::cli::trace::{How, ReplayArgs};

/// Operations that a replay's reactor has room for.
const REACTOR_ENTRIES: u32 = 1024;
/// I/Os that a replay as fast as possible keeps outstanding, unless told otherwise.
const QUEUE_DEPTH: u32 = 32;
/// Time between two lines where there is no terminal.
const SAY_EVERY: Duration = Duration::from_secs(10);

pub(super) fn replay(args: &ReplayArgs) -> Result<()> {
    let input = Input::of(&args.input).again()?;
    let opened = open(&args.target)?;
    let (asked, touched) = survey(&input, (&args.target, &*opened), args.how.prefill)?;
    let settings = Settings {
        verify: args.verify,
        overwrite: args.overwrite,
        // Bytes of an earlier replay on the same target are not to pass for those of this one.
        seed: if args.verify { now_ns() } else { Settings::default().seed },
        ..settings(&args.how)
    };
    let wants_end = signals::wants_end()?;
    let file = args.json.as_deref().map(Output::create).transpose()?;
    let page = page_file(&args.page)?;
    let target = results::name_of_target(&args.target.to_string());
    let passes = args.how.passes;
    let job = Job {
        name: args.name.as_deref().unwrap_or(&target),
        trace: &input.name(),
        target: &args.target,
        configuration: None,
        asked: Asked { summary: &asked, touched: touched.as_ref() },
        passes,
        settings,
        wants_end: &wants_end,
    };
    let mut run = job.run_on(opened, replay::passes(|| input.open(), passes, asked))?;
    input.bad().tell();
    input.bad().note(&mut run);
    warn_of_holes(&mut run);
    let results = Results::new(vec![run]);
    let run = &results.runs[0];
    write_json(file, &results)?;
    write_page(page, || report::replay(run))?;
    let shown = show(describe(run));
    check(run)?;
    shown
}

/// Opens the target of a replay.
pub(super) fn open(target: &Uri) -> Result<Box<dyn Backend>> {
    forebay_backends::open(target, OpenOptions::default())
        .with_context(|| format!("cannot open the target {target}"))
}

/// What the trace asks for, and what of the target it touches where that is to be filled or may have holes. A model takes the
/// same time for a hole as for data.
pub(super) fn survey(
    input: &Input<'_>,
    (target, opened): (&Uri, &dyn Backend),
    prefill: bool,
) -> Result<(Summary, Option<Touched>)> {
    let has_holes = match target {
        Uri::File(_) | Uri::Block(_) | Uri::Nbd(_) => true,
        Uri::Mem(_) | Uri::Model { .. } | Uri::Fault { .. } => false,
    };
    if !has_holes && !prefill {
        return Ok((Summary::of(input.open()?)?, None));
    }
    let properties = opened.properties();
    let mut touched = Touched::new(properties.size, properties.logical_block);
    let summary = Summary::of(touched.counted(input.open()?))?;
    Ok((summary, Some(touched)))
}

/// Says, and notes, where reads of a replay found nothing on storage.
pub(super) fn warn_of_holes(run: &mut Run) {
    let Some(holes) = run.outcome.holes.filter(|holes| holes.bytes > 0) else { return };
    let warning = format!(
        "{}: {} of the {} that the trace reads first are holes of the target, which storage answers without a look: the figures are \
         not those of a disk with data. --prefill writes them before the replay",
        run.target,
        rounded(holes.bytes),
        rounded(holes.of)
    );
    super::super::last_words::say(&warning);
    run.warnings.push(warning);
}

/// How the command line wants it replayed.
pub(super) fn settings(how: &How) -> Settings {
    let pace = match (how.as_fast_as_possible, how.dependent) {
        (false, false) => Pace::Clock { speed: how.speed },
        (false, true) => Pace::Dependent { speed: Some(how.speed) },
        (true, false) => Pace::Closed { queue_depth: how.queue_depth.unwrap_or(QUEUE_DEPTH) },
        (true, true) => Pace::Dependent { speed: None },
    };
    let duration_ns = how.duration.map(|span| span.0.as_nanos() as u64);
    let (wrap, prefill) = (how.wrap, how.prefill);
    Settings { pace, duration_ns, wrap, prefill, ..Settings::default() }
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

/// Writes results, where they are wanted.
pub(in crate::command) fn write_json(file: Option<Output>, results: &Results) -> Result<()> {
    let Some(mut file) = file else { return Ok(()) };
    file.write(&(serde_json::to_string(results)? + "\n"))?;
    file.commit()
}

/// Fails where requests did, or where reads did not bring back what was written.
pub(in crate::command) fn check(run: &Run) -> Result<()> {
    let outcome = &run.outcome;
    if let Some(found) = &outcome.verified {
        ensure!(
            found.wrong() == 0,
            "{} sectors are not what was written; the first: {}",
            count(found.wrong()),
            found.findings.first().map_or("unknown", String::as_str)
        );
    }
    ensure!(
        outcome.ended_by != EndedBy::Trace
            || outcome.reads.count + outcome.writes.count + outcome.errors > 0,
        "{}: none of the trace's requests was replayed: {} are too long for the target or a replay",
        run.name,
        count(outcome.too_long)
    );
    ensure!(
        outcome.errors == 0,
        "{}: {} requests failed on the target; the first: {}",
        run.name,
        outcome.errors,
        outcome.first_error.as_deref().unwrap_or("unknown")
    );
    Ok(())
}

/// One replay, with a bar over its requests.
pub(in crate::command) struct Job<'a> {
    pub name: &'a str,
    /// What its trace is called.
    pub trace: &'a str,
    pub target: &'a Uri,
    /// The disk behind the target in words, where it is one of this process.
    pub configuration: Option<&'a str>,
    /// Of one pass.
    pub asked: Asked<'a>,
    pub passes: u32,
    pub settings: Settings,
    pub wants_end: &'a AtomicBool,
}

impl Job<'_> {
    /// Replays `records`, all passes of them.
    pub fn run(
        &self,
        records: impl Iterator<Item = Result<Record, forebay_trace::Error>>,
    ) -> Result<Run> {
        self.run_on(open(self.target)?, records)
    }

    /// The same on the target that is open already.
    pub fn run_on(
        &self,
        mut target: Box<dyn Backend>,
        records: impl Iterator<Item = Result<Record, forebay_trace::Error>>,
    ) -> Result<Run> {
        let started = utc(now_ns() / 1_000_000);
        let mut reactor = Reactor::new(REACTOR_ENTRIES, None)?;
        let (bar, filling) = (self.bar(), self.bar_of_filling());
        let said = Cell::new(Instant::now());
        let mut progress = |progress: &Progress| {
            match progress.prefilling {
                Some((done, all)) => {
                    filling.set_length(all);
                    filling.set_position(done);
                }
                None => {
                    filling.finish_and_clear();
                    bar.set_position(progress.ended);
                    bar.set_prefix(self.left(progress));
                }
            }
            if bar.is_hidden() && said.get().elapsed() >= SAY_EVERY {
                said.set(Instant::now());
                let all = bar.length().unwrap_or(0);
                let (ended, left) = (count(progress.ended), self.left(progress));
                let name = self.name;
                let _ = writeln!(
                    std::io::stderr(),
                    "{name}: {ended} of {} requests, {left}",
                    count(all)
                );
            }
            match self.wants_end.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let outcome = replay::replay(
            records,
            self.asked,
            target.as_mut(),
            &mut reactor,
            &self.settings,
            &|| Nanos(clock::now_nanos()),
            &mut progress,
        )?;
        filling.finish_and_clear();
        bar.finish_and_clear();
        Ok(Run {
            name: self.name.to_owned(),
            trace: self.trace.to_owned(),
            target: self.target.to_string(),
            configuration: self.configuration.map(str::to_owned),
            started,
            pace: self.settings.pace,
            passes: self.passes,
            asked: *self.asked.summary,
            bad: 0,
            first_bad: None,
            warnings: Vec::new(),
            cache: None,
            outcome,
        })
    }

    fn bar(&self) -> ProgressBar {
        let style =
            "{msg:<14} [{bar:36}] {percent:>3} %  {human_pos} of {human_len} requests, {prefix}";
        let style = ProgressStyle::with_template(style).expect("the template is valid");
        let requests =
            (self.asked.summary.reads + self.asked.summary.writes) * u64::from(self.passes);
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(requests)
        } else {
            ProgressBar::hidden()
        };
        bar.set_length(requests);
        bar.with_style(style.progress_chars("=> ")).with_message(self.name.to_owned())
    }

    /// Of what is written before the replay.
    fn bar_of_filling(&self) -> ProgressBar {
        let style =
            "{msg:<14} [{bar:36}] {percent:>3} %  {bytes} of {total_bytes} prefilled, {eta}";
        let style = ProgressStyle::with_template(style).expect("the template is valid");
        let bar = match std::io::stderr().is_terminal() && self.settings.prefill {
            true => ProgressBar::new(0),
            false => ProgressBar::hidden(),
        };
        bar.with_style(style.progress_chars("=> ")).with_message(self.name.to_owned())
    }

    /// How much time is left, in words.
    fn left(&self, progress: &Progress) -> String {
        if let Some((done, all)) = progress.prefilling {
            return format!("{} of {} prefilled", rounded(done), rounded(all));
        }
        if let Some((done, all)) = progress.reading_back {
            return format!("{} of {} read back", rounded(done), rounded(all));
        }
        let whole = replay::duration_ns(self.passes, self.asked.summary);
        let requests =
            (self.asked.summary.reads + self.asked.summary.writes) * u64::from(self.passes);
        let left_of = |share: f64| match share > 0.0 {
            true => (progress.elapsed_ns as f64 * (1.0 - share) / share) as u64,
            false => u64::MAX,
        };
        let mut left_ns = match self.settings.pace {
            Pace::Clock { speed } => {
                (whole.saturating_sub(progress.trace_time_ns) as f64 / speed) as u64
            }
            Pace::Closed { .. } | Pace::Dependent { .. } => {
                left_of(progress.ended as f64 / requests.max(1) as f64)
            }
        };
        if let Some(most) = self.settings.duration_ns {
            left_ns = left_ns.min(most.saturating_sub(progress.elapsed_ns));
        }
        match left_ns {
            u64::MAX => "time left not known".to_owned(),
            _ => format!("{} left", clock_time(left_ns / 1_000_000_000)),
        }
    }
}

/// `1:02:03`, `2:03`.
fn clock_time(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

fn describe(run: &Run) -> String {
    let outcome = &run.outcome;
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
        "{} on {}: {} in {}, {} per second\n{}",
        run.trace,
        run.measured(),
        rounded(outcome.read_bytes + outcome.written_bytes),
        time(outcome.elapsed_ns),
        of(outcome.iops.round() as u64, "I/O"),
        table.text(2)
    );
    for note in notes(outcome) {
        text += &format!("  {note}\n");
    }
    text
}

/// What has to be known beside the figures.
fn notes(outcome: &Outcome) -> Vec<String> {
    let counted = [
        (outcome.wrapped, "requests were folded back into the target (--wrap)"),
        (outcome.widened, "requests were grown to whole logical blocks of the target"),
        (outcome.too_long, "requests were left out: too long"),
        (
            outcome.sessions_lost,
            "sessions of the target were lost; what was not flushed may be, too",
        ),
    ];
    let counted = counted.into_iter().filter(|(number, _)| *number > 0);
    let mut notes: Vec<String> =
        counted.map(|(number, what)| format!("{} {what}", count(number))).collect();
    if outcome.prefilled_bytes > 0 {
        let bytes = rounded(outcome.prefilled_bytes);
        notes.push(format!("{bytes} were written before it began (--prefill)"));
    }
    match outcome.ended_by {
        EndedBy::Trace => {}
        EndedBy::Duration => notes.push("--duration ended it before the trace did".to_owned()),
        EndedBy::Interrupt => {
            notes.push("it was interrupted before the end of the trace".to_owned())
        }
    }
    if let Some(found) = &outcome.verified {
        notes.push(format!(
            "verified: {} sectors, {} of them wrong ({} stale, {} lost, {} misplaced, {} torn); {}",
            count(found.checked),
            count(found.wrong()),
            count(found.stale),
            count(found.lost),
            count(found.misplaced),
            count(found.torn),
            found.read_back()
        ));
        notes.extend(found.findings.iter().map(|finding| format!("  {finding}")));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_by_the_clock_or_by_what_is_done() {
        let target: Uri = "mem:1MiB".parse().unwrap();
        let asked = Summary { reads: 101, duration_ns: 100_000_000_000, ..Summary::default() };
        let wants_end = AtomicBool::new(false);
        let left = |settings, passes, progress: &Progress| {
            let job = Job {
                name: "a",
                trace: "t",
                target: &target,
                configuration: None,
                asked: Asked::from(&asked),
                passes,
                settings,
                wants_end: &wants_end,
            };
            job.left(progress)
        };
        let progress = Progress {
            elapsed_ns: 20_000_000_000,
            issued: 30,
            ended: 25,
            trace_time_ns: 40_000_000_000,
            prefilling: None,
            reading_back: None,
        };
        let clock = Settings { pace: Pace::Clock { speed: 2.0 }, ..Settings::default() };
        assert_eq!(left(clock, 1, &progress), "0:30 left");
        assert_eq!(left(clock, 3, &progress), "2:11 left");
        let short = Settings { duration_ns: Some(21_000_000_000), ..clock };
        assert_eq!(left(short, 1, &progress), "0:01 left");
        let closed = Settings { pace: Pace::Closed { queue_depth: 1 }, ..Settings::default() };
        assert_eq!(left(closed, 1, &progress), "1:00 left");
        assert_eq!(left(closed, 1, &Progress { ended: 0, ..progress }), "time left not known");
        let back = Progress { reading_back: Some((1 << 20, 4 << 20)), ..progress };
        assert_eq!(left(closed, 1, &back), "1 MiB of 4 MiB read back");
        assert_eq!(clock_time(3723), "1:02:03");
    }
}
