//! `docs/reference/metrics.md`, made from the tables that a scrape is made from.

use forebay_core::stats::LATENCY_STEPS;

use super::markdown::{paragraph, prose, table};
use crate::daemon::metrics::describe;

pub(super) fn page() -> String {
    let mut page = String::from("# Metrics\n");
    paragraph(
        &mut page,
        "`forebay serve` answers `http://127.0.0.1:7480/metrics` in the OpenMetrics text format. A client that accepts \
         `text/plain` and not OpenMetrics gets the older format of Prometheus. `http` in the \
         [configuration file](configuration.md) changes the address, or switches it off.",
    );
    paragraph(
        &mut page,
        "Metrics keep their names, units and labels from version to version. New ones may come. Counters begin at 0 when a disk \
         is opened. A metric is absent for a disk that lacks the part that it measures.",
    );
    paragraph(
        &mut page,
        "The configuration gives the values of the labels `disk`, `listener` and `pool`. Those of other labels are a fixed set of \
         words. A metric of a state has the label with the value of now, and is 1. [States](states.md) explains their values.",
    );
    let bounds = LATENCY_STEPS.map(|bound| format!("{}", bound.0 as f64 / 1e9)).join(", ");
    paragraph(
        &mut page,
        &format!(
            "A histogram has `_bucket`, `_sum` and `_count`. Its buckets end at {bounds} seconds, exact to one per cent."
        ),
    );
    for (heading, metrics) in describe() {
        page.push_str(&format!("\n## {heading}\n"));
        let rows = metrics.iter().map(|metric| {
            let label = |(label, values): &(&str, Vec<&str>)| match values.as_slice() {
                [] => format!("`{label}`"),
                words => format!("`{label}`: {}", words.join(", ")),
            };
            let labels: Vec<_> = metric.labels.iter().map(label).collect();
            [
                format!("`{}`", metric.name),
                metric.kind.to_owned(),
                labels.join("; "),
                prose(metric.help),
            ]
        });
        table(&mut page, ["metric", "type", "labels", "meaning"], &rows.collect::<Vec<_>>());
    }
    page
}
