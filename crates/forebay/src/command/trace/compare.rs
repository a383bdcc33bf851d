//! `forebay trace compare`: results of replays, each held against the first.

use anyhow::{Result, ensure};
use forebay_trace::compare::{self, Difference, Figure, differences};
use forebay_trace::report;
use forebay_trace::results::{self, Results, Run};
use serde::Serialize;

use super::super::output::show;
use super::super::table::{Table, count, percent};
use super::super::{page_file, write_page};
use super::input::of_standard;
use crate::cli::trace::CompareArgs;

/// One run held against the first.
#[derive(Debug, Serialize)]
struct Compared<'a> {
    first: &'a str,
    other: &'a str,
    differences: Vec<Difference>,
    /// What has to be known of the first run beside its figures.
    first_notes: Vec<String>,
    /// The same of the other one.
    other_notes: Vec<String>,
    /// Reasons why the two are hard to compare.
    mismatches: Vec<String>,
}

pub(super) fn compare(args: &CompareArgs) -> Result<()> {
    let mut runs = Vec::new();
    for path in &args.files {
        runs.extend(Results::open(of_standard(path))?.runs);
    }
    results::short_names(&mut runs);
    ensure!(
        runs.len() > 1,
        "{} has the results of one replay: name another file to compare it with",
        args.files[0].display()
    );
    let page = page_file(&args.page)?;
    write_page(page, || report::comparison(&runs))?;
    if args.json {
        let all: Vec<Compared<'_>> =
            runs[1..].iter().map(|run| held_against(&runs[0], run)).collect();
        return show(format_args!("{}\n", serde_json::to_string(&all)?));
    }
    show(describe(&runs))
}

/// What has to be known of a run beside its figures.
fn notes(run: &Run) -> Vec<String> {
    let mut notes = report::notes(&run.outcome);
    notes.extend(run.warnings.iter().cloned());
    notes
}

fn held_against<'a>(first: &'a Run, run: &'a Run) -> Compared<'a> {
    Compared {
        first: &first.name,
        other: &run.name,
        differences: differences(first, run),
        first_notes: notes(first),
        other_notes: notes(run),
        mismatches: report::mismatches(&[first.clone(), run.clone()]),
    }
}

/// A table of all runs, and what differs in words.
pub(super) fn describe(runs: &[Run]) -> String {
    let mut head = vec![""];
    head.extend(runs.iter().map(|run| run.name.as_str()));
    let mut table = Table::new(&head);
    for figure in Figure::ALL.into_iter().filter(|of| runs.iter().any(|run| of.of(run).is_some())) {
        let mut row = vec![figure.name().to_owned()];
        row.extend(runs.iter().map(|run| report::value(figure, run)));
        table.row(row);
    }
    if runs.iter().any(|run| run.cache.is_some()) {
        let hits =
            |run: &Run| run.cache.map_or("-".to_owned(), |of| percent(of.read_hits, of.reads));
        let ios = |run: &Run| run.cache.map_or("-".to_owned(), |of| count(of.backend_ios));
        let row = |name: &str, of: &dyn Fn(&Run) -> String| {
            std::iter::once(name.to_owned()).chain(runs.iter().map(of)).collect()
        };
        table.row(row("read hit ratio", &hits));
        table.row(row("I/Os of primary storage", &ios));
    }
    let mut text = table.text(2);
    for run in &runs[1..] {
        text += &format!("\n{} vs. {} (in brackets: 95 % interval):\n", run.name, runs[0].name);
        for words in compare::words(&differences(&runs[0], run)) {
            text += &format!("  {words}\n");
        }
    }
    for run in runs {
        for note in report::notes(&run.outcome) {
            text += &format!("\nCareful: {}: {note}\n", run.name);
        }
    }
    for warning in results::warnings(runs) {
        text += &format!("\nCareful: {warning}\n");
    }
    for mismatch in report::mismatches(runs) {
        text += &format!("\nCareful: {mismatch}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use forebay_trace::replay::{EndedBy, Outcome};

    use super::*;

    #[test]
    fn requests_that_failed_or_were_left_out_are_told_of() {
        let bad =
            Outcome { errors: 3, too_long: 2, ended_by: EndedBy::Interrupt, ..Outcome::default() };
        let run = |name: &str, outcome| Run { name: name.to_owned(), outcome, ..Run::default() };
        let runs = [run("good", Outcome::default()), run("bad", bad)];
        let text = describe(&runs);
        let notes = [
            "It was interrupted before the end of the trace: the figures are of fewer requests.",
            "3 requests failed on the target; they are not in the latencies.",
            "2 requests were left out: too long.",
        ];
        for note in notes {
            assert!(text.contains(&format!("\nCareful: bad: {note}\n")), "{text}");
        }
        assert!(!text.contains("good: "), "{text}");
        let told = serde_json::to_value(held_against(&runs[0], &runs[1])).unwrap();
        assert_eq!(told["other_notes"], serde_json::json!(notes));
        assert_eq!(told["first_notes"], serde_json::json!([]));
    }
}
