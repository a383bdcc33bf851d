//! vscsiStats' histograms as charts: by itself, and as a part of other pages.

use forebay_backends::size::rounded;
use maud::{Markup, html};

use super::chart::columns;
use super::figures::{count, number, time_at_axis};
use super::{page, table};
use crate::characterise::{Device, Named};

/// A bound in words.
type Words = fn(i64) -> String;

/// Families of histograms: title, what is in the name of each of its histograms, and how its bounds read.
const FAMILIES: [(&str, &str, Words); 6] = [
    ("Length of requests", "IO lengths", length),
    ("Distance from the request before, in sectors", "between successive", |sectors| {
        signed(sectors)
    }),
    ("Distance from the closest of the last 16, in sectors", "closest of previous 16", |sectors| {
        signed(sectors)
    }),
    ("Latency", "latency of", |micros| time_at_axis(micros as f64 * 1e3)),
    ("Outstanding requests when one is issued", "outstanding", |number| number.to_string()),
    ("Time since the request before", "interarrival", |micros| time_at_axis(micros as f64 * 1e3)),
];

/// The page of a trace's histograms.
pub fn histograms(trace: &str, devices: &[Device]) -> String {
    let requests: u64 =
        devices.iter().filter_map(|device| device.histograms.first()).map(|all| all.count).sum();
    let lead = html! {
        p.lead { (count(requests)) " requests of " (devices.len()) @if devices.len() == 1 { " disk" } @else { " disks" } ", as vscsiStats counts them." }
    };
    let sections = html! {
        @for Device { device, histograms } in devices {
            h2 { "Device " (device) }
            (families(histograms))
            (numbers(histograms))
        }
    };
    page(&format!("Histograms of {trace}"), &lead, &sections)
}

/// A chart for each family that has numbers.
pub(super) fn families(histograms: &[Named]) -> Markup {
    html! {
        div.two {
            @for (title, part, words) in FAMILIES {
                @let all: Vec<&Named> = histograms.iter().filter(|named| is_of(named, part)).collect();
                @if all.iter().any(|named| named.count > 0) { (family(title, &all, words)) }
            }
        }
    }
}

fn is_of(named: &Named, part: &str) -> bool {
    // Times between arrivals are called a latency, too.
    named.name.contains(part) && (part != "latency of" || !named.name.contains("interarrival"))
}

fn family(title: &'static str, all: &[&Named], words: Words) -> Markup {
    let filled = |named: &&&Named| named.count > 0;
    let places = all.iter().filter(filled).flat_map(|named| {
        named
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, (_, count))| *count > 0)
            .map(|(place, _)| place)
    });
    let (first, last) =
        places.fold((usize::MAX, 0), |(first, last), place| (first.min(place), last.max(place)));
    let bounds = &all[0].buckets;
    let label = |place: usize| match place + 1 == bounds.len() {
        true => format!("> {}", words(bounds[place].0)),
        false => format!("≤ {}", words(bounds[place].0)),
    };
    let labels: Vec<String> = (first..=last).map(label).collect();
    let shares = |named: &Named| {
        (first..=last).map(|place| named.buckets[place].1 as f64 / named.count as f64).collect()
    };
    let name = |named: &Named| match (named.name.contains("Read"), named.name.contains("Write")) {
        (true, _) => "reads",
        (_, true) => "writes",
        (false, false) => "all",
    };
    let groups = all.iter().filter(filled).map(|named| (name(named), shares(named)));
    // Reads and writes say what all are; with one of them only, it is all.
    let mut groups: Vec<(&str, Vec<f64>)> =
        groups.filter(|(name, _)| all.len() == 1 || *name != "all").collect();
    groups.sort_by_key(|(name, _)| *name);
    columns(title, [across(title), "Share of requests"], &labels, &groups)
}

/// The quantity of a family: its title without the other words.
fn across(title: &'static str) -> &'static str {
    match title.split_once(" in sectors") {
        Some(_) => "Distance (sectors)",
        None if title.starts_with("Outstanding") => "Outstanding requests",
        None => title,
    }
}

fn numbers(histograms: &[Named]) -> Markup {
    let value = |value: Option<i64>| value.map_or("-".to_owned(), signed);
    let rows = histograms.iter().map(|named| {
        vec![
            named.name.to_string(),
            count(named.count),
            value(named.min),
            value(named.mean),
            value(named.max),
        ]
    });
    table(&["histogram", "count", "min", "mean", "max"], &rows.collect::<Vec<_>>())
}

/// vscsiStats' bounds are sizes, and one byte less than some.
fn length(bytes: i64) -> String {
    match bytes % 512 {
        0 => rounded(bytes as u64).to_string(),
        _ => format!("{bytes} B"),
    }
}

fn signed(value: i64) -> String {
    let text = number(value.unsigned_abs() as f64);
    if value < 0 { format!("−{text}") } else { text }
}
