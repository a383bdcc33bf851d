//! `forebay stats --history`: what a disk did minute by minute, and what it waited for.

use anyhow::Result;
use forebay_core::stats::TimeSplit;
use forebay_host::date;

use super::client::{self, Found};
use super::table::{Table, count, percent, time};
use super::time as spent;
use crate::daemon::api::Minute;

/// The minutes of a disk, as a table or a line of JSON for each.
pub(super) async fn history(found: &Found, json: bool) -> Result<String> {
    let path = format!("/v1/disks/{}/history", found.disk);
    let minutes: Vec<Minute> = client::ask(&found.control, &path).await?;
    if json {
        let lines = minutes.iter().map(|minute| Ok(serde_json::to_string(minute)? + "\n"));
        return lines.collect();
    }
    if minutes.is_empty() {
        return Ok(format!("disk {}: no whole minute with requests yet\n", found.disk));
    }
    Ok(format!("disk {}, minutes with requests:\n{}", found.disk, table(&minutes)))
}

fn table(minutes: &[Minute]) -> String {
    let some_failed = minutes.iter().any(|minute| minute.failed > 0);
    let mut headings = vec![
        "until (UTC)",
        "reads/s",
        "hits",
        "mean",
        "waits for",
        "writes/s",
        "mean",
        "waits for",
    ];
    headings.extend(some_failed.then_some("failed"));
    let mut table = Table::new(&headings);
    for minute in minutes {
        let seconds = (minute.length_ms as f64 / 1e3).max(1e-3);
        let per_second = |requests: u64| count((requests as f64 / seconds).round() as u64);
        let mean = |split: &TimeSplit, requests: u64| {
            split.total_ns.checked_div(requests).map_or("-".to_owned(), time)
        };
        let waits = |split: &TimeSplit| match spent::largest(split) {
            Some((part, share)) => format!("{part} {:.0} %", 100.0 * share),
            None => "-".to_owned(),
        };
        let at = date::utc(minute.end_ms);
        let mut row = vec![
            at.get(11..19).unwrap_or(&at).to_owned(),
            per_second(minute.reads),
            percent(minute.read_hits, minute.reads),
            mean(&minute.read_time, minute.reads),
            waits(&minute.read_time),
            per_second(minute.writes),
            mean(&minute.write_time, minute.writes),
            waits(&minute.write_time),
        ];
        row.extend(some_failed.then(|| count(minute.failed)));
        table.row(row);
    }
    table.text(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_a_line_of_at_most_80_columns() {
        let time =
            TimeSplit { total_ns: 60_000_000, primary_ns: 54_000_000, ..TimeSplit::default() };
        let minute = Minute {
            end_ms: 1_700_000_000_000,
            length_ms: 60_000,
            reads: 6000,
            read_hits: 5400,
            read_time: time,
            ..Minute::default()
        };
        let shown = table(&[minute]);
        let line = shown.lines().nth(1).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..4], ["22:13:20", "100", "90.0", "%"], "{shown}");
        assert!(
            line.contains("primary 100 %") && shown.lines().all(|it| it.len() <= 80),
            "{shown}"
        );
    }

    #[test]
    fn failures_are_shown_of_each_minute_where_one_has_some() {
        let minute = |failed| Minute { length_ms: 60_000, failed, ..Minute::default() };
        assert!(!table(&[minute(0)]).contains("failed"));
        let shown = table(&[minute(0), minute(1200)]);
        let last = |line: &str| line.split_whitespace().last().map(str::to_owned);
        let last: Vec<_> = shown.lines().filter_map(last).collect();
        assert_eq!(last, ["failed", "0", "1,200"], "{shown}");
        assert!(shown.lines().all(|it| it.len() <= 80), "{shown}");
    }
}
